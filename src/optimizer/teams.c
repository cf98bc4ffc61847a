/*
 * teams.c: how many teams of workers a step has, how many workers a team may have, and how many
 * matrices a job. Several numbers are tried on a model of the step; the fastest that has the memory
 * is taken. Results do not depend on the choice.
 *
 * The model: a job has a cost, in floating-point operations; the jobs are done by `teams` teams,
 * the costliest first; all workers are divided evenly among the running jobs, up to the width of a
 * team; and a team of several workers loses what its last tasks leave idle. Element-wise work
 * fills the gaps.
 */
#include "optimizer/schedule.h"

#include <float.h>

enum {
    FLOPS_PER_BYTE = 8,   /* of memory traffic: what a core computes meanwhile */
    MUON_BYTES = 28,      /* per element, read and written outside the orthogonalisation */
    ADAM_BYTES = 28,      /* per element */
    JOB_FLOPS = 20000000, /* of a job, at least: a worker takes some 0.2 ms */
    MODELED_JOBS = 512    /* the last ones; those before are assumed to balance */
};

typedef struct trial {
    unsigned teams, width;
    size_t copies; /* of every matrix */
    double time;   /* of the step, by the model */
} trial;

static double matrix_cost(const mu_class *c)
{
    muonium_plan_info info;
    muonium_plan_describe(c->plan, &info);
    return info.flops + (double)FLOPS_PER_BYTE * MUON_BYTES * (double)c->m * (double)c->n;
}

/* The share of the time of `workers` that share one matrix in which they work: each product ends
 * with half a task of idleness for each, and dividing it costs some per cent. */
static double efficiency(const mu_class *c, double workers, unsigned width)
{
    const double dividing = 0.97;
    size_t block = mu_plan_shared_block(c->m);
    double blocks = (double)((c->m + block - 1) / block), tasks = blocks * (blocks + 1) / 2;
    return width < 2 ? 1 : dividing / (1 + 0.5 * (workers > 1 ? workers : 0) / tasks);
}

/* ---- capacities ---- */

/* Set workspace and capacity of a class for teams of `width`, where a batch may take `area`
 * bytes. False if one matrix takes more. */
static bool fit_class(mu_class *c, const trial *t, size_t area)
{
    /* Small matrices are worth a job only together, as long as all teams have some jobs. */
    double few = JOB_FLOPS / c->cost;
    size_t jobs = (size_t)t->teams * 4, capacity = few > 1 ? few < 1e6 ? (size_t)few : 1000000 : 1;
    size_t most = (c->count * t->copies + jobs - 1) / jobs;
    capacity = capacity < most ? capacity : most;
    capacity = capacity < c->count ? capacity : c->count;
    for (;; capacity -= capacity / 4 + 1) {
        capacity -= capacity % c->together;
        capacity = capacity < c->together || c->across ? c->together : capacity;
        if (mu_plan_for_team(c->plan, capacity, t->width) != MUONIUM_OK) {
            return false;
        }
        muonium_plan_info info;
        muonium_plan_describe(c->plan, &info);
        c->workspace = info.workspace;
        c->capacity = capacity;
        if (mu_scratch_bytes(c) <= area) {
            return true;
        }
        if (capacity == c->together) {
            return false;
        }
    }
}

/* Fit all classes into `bytes` for all teams; what one matrix needs is there for one team. */
static bool fit(mu_schedule *schedule, const trial *t, size_t bytes, const unsigned *workers)
{
    size_t area = bytes / t->teams, unit = t->teams > 1 ? mu_area_unit(area) : 1;
    area = area / unit * unit;
    bool fits = true;
    for (size_t i = 0; i < schedule->class_count; i++) {
        mu_class *c = &schedule->classes[i];
        trial whole = {1, *workers, 1, 0};
        if (c->across) {
            fit_class(c, &whole, bytes);
        } else {
            fits = fit_class(c, t, area) && fits;
        }
    }
    return fits;
}

/* ---- the model ---- */

typedef struct running_job {
    const mu_class *of;
    double left;
} running_job;

typedef struct job_group {
    const mu_class *of;
    size_t jobs;
    double cost; /* of one */
} job_group;

/* Move on until a job ends, and take it away; the time that passed. */
static double run_to_next_end(running_job *running, unsigned *count, const trial *t,
                              unsigned workers)
{
    double share = (double)workers / *count, first = DBL_MAX;
    share = share < t->width ? share : t->width;
    for (unsigned i = 0; i < *count; i++) {
        double speed = share * efficiency(running[i].of, share, t->width);
        double time = running[i].left / speed;
        first = time < first ? time : first;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < *count; i++) {
        running_job job = running[i];
        job.left -= first * share * efficiency(job.of, share, t->width);
        if (job.left > 1e-9 * running[i].of->cost) {
            running[kept++] = job;
        }
    }
    *count = kept;
    return first;
}

/* The classes as groups of equal jobs, the costliest first. */
static size_t group_jobs(const mu_schedule *schedule, size_t copies, job_group *groups)
{
    size_t count = 0;
    for (size_t i = 0; i < schedule->class_count; i++) {
        const mu_class *c = &schedule->classes[i];
        if (!c->across) {
            job_group made = {c, (c->count + c->capacity - 1) / c->capacity * copies,
                              c->cost * (double)c->capacity};
            size_t at = count++;
            for (; at > 0 && groups[at - 1].cost < made.cost; at--) {
                groups[at] = groups[at - 1];
            }
            groups[at] = made;
        }
    }
    return count;
}

static double modeled_time(const trial *t, unsigned workers, job_group *groups, size_t count,
                           double filler)
{
    running_job running[MU_MAX_TEAMS];
    unsigned active = 0;
    size_t all = 0, group = 0;
    double time = 0, busy = 0;
    for (size_t i = 0; i < count; i++) {
        all += groups[i].jobs;
        busy += (double)groups[i].jobs * groups[i].cost;
    }
    for (; all > MODELED_JOBS; all--) {
        double each = (double)workers / t->teams;
        time += groups[group].cost / workers / efficiency(groups[group].of, each, t->width);
        groups[group].jobs--;
        group += groups[group].jobs == 0;
    }
    while (all > 0 || active > 0) {
        for (; all > 0 && active < t->teams; all--) {
            running[active++] = (running_job){groups[group].of, groups[group].cost};
            groups[group].jobs--;
            group += groups[group].jobs == 0;
        }
        time += run_to_next_end(running, &active, t, workers);
    }
    double idle = time * workers - busy;
    return filler > idle ? time + (filler - idle) / workers : time;
}

/* ---- the choice ---- */

static size_t need_of_one(mu_schedule *schedule, unsigned workers)
{
    const trial alone = {1, workers, 1, 0};
    size_t need = 0;
    fit(schedule, &alone, 0, &workers); /* capacities of 1 */
    for (size_t i = 0; i < schedule->class_count; i++) {
        size_t bytes = mu_scratch_bytes(&schedule->classes[i]);
        need = bytes > need ? bytes : need;
    }
    return need;
}

static double adam_cost(const muonium_optimizer *optimizer)
{
    double elements = 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        elements += optimizer->parameters[i]->muon ? 0 : (double)optimizer->parameters[i]->elements;
    }
    return elements * FLOPS_PER_BYTE * ADAM_BYTES;
}

/* The next smaller number of teams that divides the workers otherwise. */
static unsigned fewer_teams(unsigned teams, unsigned workers)
{
    return workers / (workers / teams + 1);
}

static void try_width(mu_schedule *schedule, trial t, size_t bytes, double filler,
                      job_group *groups, trial *best)
{
    const double worth = 0.995; /* a wider team must gain more than the model can tell */
    unsigned workers = schedule->workers;
    if (!fit(schedule, &t, bytes, &workers)) {
        return;
    }
    size_t count = group_jobs(schedule, t.copies, groups);
    t.time = modeled_time(&t, workers, groups, count, filler);
    if (best->teams == 0 || t.time < worth * best->time) {
        *best = t;
    }
}

muonium_status mu_choose_teams(const muonium_optimizer *optimizer, mu_schedule *schedule,
                               size_t bound, size_t copies)
{
    unsigned workers = schedule->workers;
    job_group *groups = mu_alloc(schedule->class_count * sizeof *groups);
    if (!groups) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory to divide %zu classes of matrices",
                       schedule->class_count);
    }
    for (size_t i = 0; i < schedule->class_count; i++) {
        schedule->classes[i].cost = matrix_cost(&schedule->classes[i]);
    }
    size_t need = need_of_one(schedule, workers), bytes;
    bytes = mu_add(need, bound, &bytes) ? bytes : SIZE_MAX;
    double filler = adam_cost(optimizer);
    trial best = {0};
    unsigned most = workers < MU_MAX_TEAMS ? workers : MU_MAX_TEAMS;
    for (unsigned teams = most; teams > 0; teams = fewer_teams(teams, workers)) {
        unsigned even = (workers + teams - 1) / teams;
        const unsigned widths[] = {even, 2 * even, 4 * even, workers};
        for (size_t i = 0; i < MU_COUNT(widths); i++) {
            if (widths[i] <= workers && (i == 0 || widths[i] > widths[i - 1])) {
                try_width(schedule, (trial){teams, widths[i], copies, 0}, bytes, filler, groups,
                          &best);
            }
        }
    }
    mu_free(groups);
    if (best.teams == 0) {
        best = (trial){1, workers, copies, 0};
    }
    schedule->teams = best.teams;
    schedule->width = best.width;
    fit(schedule, &best, bytes, &workers);
    return MUONIUM_OK;
}
