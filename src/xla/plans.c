/*
 * plans.c: the plans of the most recent calls, by shape, options and number of threads.
 *
 * A plan is immutable, so any number of calls may execute one at a time. The plan that was not
 * used for the longest time makes room for a new one; one that is in use stays.
 */
#include "xla/xla.h"

#include <pthread.h>
#include <string.h>

enum { KEPT = 64 };

/* All on which a plan depends. */
typedef struct plan_key {
    int threads;
    muonium_shape shape;
    muonium_plan_options options; /* without the pointer to the table */
    double table[MUONIUM_MAX_STEPS][3];
} plan_key;

struct mu_xla_plan {
    plan_key key;
    muonium_plan *plan;
    unsigned users;
    uint64_t last_use;
    bool kept;
};

static struct {
    pthread_mutex_t mutex;
    mu_xla_plan *plans[KEPT];
    uint64_t uses;
} cache = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A child of fork gets the mutex from the thread that forked, unlocked. */
static void lock_cache(void)
{
    pthread_mutex_lock(&cache.mutex);
}

static void unlock_cache(void)
{
    pthread_mutex_unlock(&cache.mutex);
}

__attribute__((constructor)) static void prepare_cache_for_fork(void)
{
    pthread_atfork(lock_cache, unlock_cache, unlock_cache);
}

static void make_key(muonium_shape shape, const muonium_plan_options *options, plan_key *key)
{
    *key = (plan_key){.threads = muonium_threads(), .shape = shape, .options = *options};
    key->options.table = NULL;
    if (options->table != NULL) {
        memcpy(key->table, options->table, options->table_rows * sizeof *key->table);
    }
}

/* clang-format off */
#define SAME_OWN(field)
#define SAME_PLAN(field) && a->field == b->field
/* clang-format on */

static bool same_options(const muonium_plan_options *a, const muonium_plan_options *b)
{
    return a->table_rows == b->table_rows
#define OPTION(part, type, field, initial, range, saved, help) SAME_##part(field)
#include "options/options.def"
        ;
}

static bool same_key(const plan_key *a, const plan_key *b)
{
    return a->threads == b->threads && a->shape.batch == b->shape.batch &&
           a->shape.rows == b->shape.rows && a->shape.cols == b->shape.cols &&
           same_options(&a->options, &b->options) &&
           memcmp(a->table, b->table, a->options.table_rows * sizeof *a->table) == 0;
}

static void use(mu_xla_plan *plan)
{
    plan->users++;
    plan->last_use = ++cache.uses;
}

static mu_xla_plan *find_plan(const plan_key *key)
{
    for (int i = 0; i < KEPT; i++) {
        if (cache.plans[i] != NULL && same_key(&cache.plans[i]->key, key)) {
            return cache.plans[i];
        }
    }
    return NULL;
}

/* An empty place, else that of the plan without users that was not used for the longest time;
 * NULL if all are in use. */
static mu_xla_plan **find_place(void)
{
    mu_xla_plan **oldest = NULL;
    for (int i = 0; i < KEPT; i++) {
        mu_xla_plan **place = &cache.plans[i];
        if (*place == NULL) {
            return place;
        }
        if ((*place)->users == 0 && (oldest == NULL || (*place)->last_use < (*oldest)->last_use)) {
            oldest = place;
        }
    }
    return oldest;
}

static void destroy(mu_xla_plan *plan)
{
    if (plan != NULL) {
        muonium_plan_destroy(plan->plan);
        mu_free(plan);
    }
}

muonium_status mu_xla_plan_take(muonium_shape shape, const muonium_plan_options *options,
                                mu_xla_plan **taken)
{
    plan_key key;
    make_key(shape, options, &key);
    lock_cache();
    mu_xla_plan *plan = find_plan(&key);
    if (plan != NULL) {
        use(plan);
    }
    unlock_cache();
    *taken = plan;
    if (plan != NULL) {
        return MUONIUM_OK;
    }

    plan = mu_alloc_zeroed(sizeof *plan);
    if (plan == NULL) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a plan");
    }
    muonium_status status = muonium_plan_create(shape, options, &plan->plan);
    if (status != MUONIUM_OK) {
        mu_free(plan);
        return status;
    }
    plan->key = key;
    mu_xla_plan *replaced = NULL;
    lock_cache();
    use(plan);
    mu_xla_plan **place = find_place();
    if (place != NULL) {
        replaced = *place;
        *place = plan;
        plan->kept = true;
    }
    unlock_cache();
    destroy(replaced);
    *taken = plan;
    return MUONIUM_OK;
}

const muonium_plan *mu_xla_plan_of(const mu_xla_plan *taken)
{
    return taken->plan;
}

void mu_xla_plan_return(mu_xla_plan *taken)
{
    lock_cache();
    taken->users--;
    bool unused = taken->users == 0 && !taken->kept;
    unlock_cache();
    if (unused) {
        destroy(taken);
    }
}
