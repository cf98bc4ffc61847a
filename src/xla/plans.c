/*
 * plans.c: the plans of the most recent calls, by shape, options and number of threads.
 *
 * A plan is immutable, so any number of calls may execute one at a time. The plan that was not
 * used for the longest time makes room for a new one; one that is in use stays.
 */
#include "xla/xla.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 64 };

/* All on which a plan depends. Two keys are equal if their bytes are. */
typedef struct plan_key {
    int threads;
    muonium_shape shape;
    muonium_plan_options options; /* without its table */
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

static void make_key(muonium_shape shape, const muonium_plan_options *options, plan_key *key)
{
    memset(key, 0, sizeof *key);
    key->threads = muonium_threads();
    key->shape = shape;
    memcpy(&key->options, options, sizeof key->options);
    key->options.table = NULL;
    if (options->table != NULL) {
        memcpy(key->table, options->table, options->table_rows * sizeof *key->table);
    }
}

static void use(mu_xla_plan *plan)
{
    plan->users++;
    plan->last_use = ++cache.uses;
}

static mu_xla_plan *find(const plan_key *key)
{
    for (int i = 0; i < KEPT; i++) {
        mu_xla_plan *plan = cache.plans[i];
        if (plan != NULL && memcmp(&plan->key, key, sizeof *key) == 0) {
            return plan;
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
        free(plan);
    }
}

muonium_status mu_xla_plan_take(muonium_shape shape, const muonium_plan_options *options,
                                mu_xla_plan **taken)
{
    plan_key key;
    make_key(shape, options, &key);
    pthread_mutex_lock(&cache.mutex);
    mu_xla_plan *plan = find(&key);
    if (plan != NULL) {
        use(plan);
    }
    pthread_mutex_unlock(&cache.mutex);
    *taken = plan;
    if (plan != NULL) {
        return MUONIUM_OK;
    }

    plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return MUONIUM_NO_MEMORY;
    }
    muonium_status status = muonium_plan_create(shape, options, &plan->plan);
    if (status != MUONIUM_OK) {
        free(plan);
        return status;
    }
    plan->key = key;
    mu_xla_plan *replaced = NULL;
    pthread_mutex_lock(&cache.mutex);
    use(plan);
    mu_xla_plan **place = find_place();
    if (place != NULL) {
        replaced = *place;
        *place = plan;
        plan->kept = true;
    }
    pthread_mutex_unlock(&cache.mutex);
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
    pthread_mutex_lock(&cache.mutex);
    taken->users--;
    bool unused = taken->users == 0 && !taken->kept;
    pthread_mutex_unlock(&cache.mutex);
    if (unused) {
        destroy(taken);
    }
}
