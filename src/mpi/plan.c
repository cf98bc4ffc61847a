/*
 * plan.c: assigns pieces to ranks, longest first, and describes the result.
 */
#include "mpi/plan.h"
#include "optimizer/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A matrix is cut by columns only if its longest piece takes less than this share of its time. */
#define WORTH_A_SPLIT 0.8

static const muonium_mpi_plan_options defaults = {
    .struct_size = sizeof defaults, .flops = 2e11, .bandwidth = 1e10, .split = true};

void muonium_mpi_plan_options_init_sized(muonium_mpi_plan_options *options, size_t size)
{
    if (mu_check_version() == MUONIUM_OK) { /* else muonium_mpi_plan_create says why */
        mu_versioned_init(options, size, &defaults, sizeof defaults);
    }
}

static muonium_status read_plan_options(const muonium_mpi_plan_options *given,
                                        muonium_mpi_plan_options *options)
{
    *options = defaults;
    muonium_status status =
        mu_versioned_read("muonium_mpi_plan_options", given, options, sizeof *options);
    if (status != MUONIUM_OK) {
        return status;
    }
    if (!(options->flops > 0) || !isfinite(options->flops) || !(options->bandwidth > 0) ||
        !isfinite(options->bandwidth)) {
        return mu_fail(MUONIUM_INVALID, "flops is %g and bandwidth %g: use finite numbers above 0",
                       options->flops, options->bandwidth);
    }
    return MUONIUM_OK;
}

/* ---- cutting by columns ---- */

/* How a matrix could be cut. */
typedef struct split {
    size_t most; /* pieces; 1: it stays whole */
    size_t m, n; /* oriented */
    size_t block, blocks;
    mu_split_price price;
    double by_column; /* seconds of each column, on top of price.fixed */
} split;

static muonium_status consider_split(const muonium_optimizer *description,
                                     const muonium_mpi_plan_options *options, int ranks,
                                     double share, const mu_part *part, split *s)
{
    const mu_parameter *p = description->parameters[part->piece.parameter];
    const muonium_group *group = p->group;
    /* Most rules need whole rows; blocks of int8 state and stochastic rounding need consecutive
     * elements. */
    bool whole = mu_needs_whole_matrices(&group->options) || mu_has_blocks(p) ||
                 (group->options.stochastic_rounding && p->tensor.dtype != MUONIUM_F32);
    *s = (split){.most = 1};
    if (whole || part->rows == 0 || !(part->piece.seconds > share) || ranks == 1 ||
        !options->split) {
        return MUONIUM_OK;
    }
    s->m = part->rows < part->cols ? part->rows : part->cols;
    s->n = part->rows < part->cols ? part->cols : part->rows;
    muonium_status status = mu_price_split(group, options, s->m, s->n, &s->price);
    if (status == MUONIUM_OK) {
        s->block = part->block;
        s->blocks = (s->n + s->block - 1) / s->block;
        s->most = s->blocks < (size_t)ranks ? s->blocks : (size_t)ranks;
        s->by_column = (part->piece.seconds - s->price.fixed) / (double)s->n;
    }
    return status;
}

/* The seconds of the longest of `ways` pieces. */
static double longest_of(const split *s, size_t ways)
{
    double widest = (double)((s->blocks + ways - 1) / ways * s->block);
    return s->price.fixed + s->by_column * widest;
}

/* The smallest number of pieces whose longest is within the limit, or within 25 % of the
 * shortest possible. More pieces cost more in total: each repeats the fixed work. */
static size_t ways_within(const mu_part *part, const split *s, double limit)
{
    if (s->most == 1 || part->piece.seconds <= limit) {
        return 1;
    }
    double shortest = longest_of(s, s->most);
    double reach = 1.25 * shortest > limit ? 1.25 * shortest : limit;
    size_t ways = 2;
    while (ways < s->most && longest_of(s, ways) > reach) {
        ways++;
    }
    return longest_of(s, ways) < WORTH_A_SPLIT * part->piece.seconds ? ways : 1;
}

/* Cut a matrix into pieces of whole blocks, whose numbers differ by at most one. */
static void split_part(const mu_part *whole, const split *s, size_t ways, mu_part *pieces)
{
    bool tall = whole->rows > whole->cols;
    for (size_t k = 0; k < ways; k++) {
        size_t from = k * s->blocks / ways * s->block;
        size_t to = (k + 1) * s->blocks / ways * s->block;
        to = to < s->n ? to : s->n;
        mu_part *part = &pieces[k];
        *part = *whole;
        part->cut = MU_CUT_COLUMNS;
        part->first_col = from;
        part->col_count = to - from;
        part->siblings = ways;
        part->sibling = k;
        part->triangles = s->price.grams * s->m * (s->m + 1); /* sent on, and sent back */
        part->elements = s->m * part->col_count;
        part->piece.seconds = s->price.fixed + s->by_column * (double)part->col_count;
        part->piece.first += tall ? from * s->m : from;
        part->piece.runs = tall ? 1 : s->m;
        part->piece.run = tall ? part->elements : part->col_count;
        part->piece.stride = tall ? part->elements : s->n;
    }
}

/* ---- packing ---- */

/* Longest first; equal ones in their order. */
static int compare_parts(const void *a, const void *b)
{
    const mu_part *x = *(const mu_part *const *)a, *y = *(const mu_part *const *)b;
    if (x->piece.seconds != y->piece.seconds) {
        return x->piece.seconds > y->piece.seconds ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

/* A rank and its load. */
typedef struct rank_load {
    double seconds;
    int rank;
} rank_load;

static int compare_loads(const void *a, const void *b)
{
    const rank_load *x = a, *y = b;
    if (x->seconds != y->seconds) {
        return x->seconds < y->seconds ? -1 : 1;
    }
    return x->rank - y->rank;
}

static int compare_ranks(const void *a, const void *b)
{
    return ((const rank_load *)a)->rank - ((const rank_load *)b)->rank;
}

/* The first rank with the least load. */
static rank_load *least_loaded(rank_load *loads, int ranks)
{
    rank_load *least = loads;
    for (int r = 1; r < ranks; r++) {
        bool less = loads[r].seconds < least->seconds ||
                    (loads[r].seconds <= least->seconds && loads[r].rank < least->rank);
        least = less ? &loads[r] : least;
    }
    return least;
}

static void give(mu_part *part, rank_load *to)
{
    part->piece.owner = to->rank;
    to->seconds += part->piece.seconds;
}

/* Give every part an owner; returns the seconds of the busiest rank. The pieces of one matrix are
 * assigned together, to different ranks in ascending order, since sums travel along them. */
static double assign_owners(mu_part *parts, size_t count, mu_part **order, rank_load *loads,
                            int ranks)
{
    size_t units = 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].cut != MU_CUT_COLUMNS || parts[i].sibling == 0) {
            order[units++] = &parts[i];
        }
    }
    qsort(order, units, sizeof *order, compare_parts);
    for (int r = 0; r < ranks; r++) {
        loads[r] = (rank_load){0, r};
    }
    for (size_t i = 0; i < units; i++) {
        if (order[i]->cut != MU_CUT_COLUMNS) {
            give(order[i], least_loaded(loads, ranks));
            continue;
        }
        qsort(loads, (size_t)ranks, sizeof *loads, compare_loads);
        qsort(loads, order[i]->siblings, sizeof *loads, compare_ranks);
        for (size_t k = 0; k < order[i]->siblings; k++) {
            give(order[i] + k, &loads[k]);
        }
    }
    double busiest = 0;
    for (int r = 0; r < ranks; r++) {
        busiest = loads[r].seconds > busiest ? loads[r].seconds : busiest;
    }
    return busiest;
}

/* ---- the search for a limit ---- */

/* The search for the limit beyond which matrices are cut. */
typedef struct search {
    const mu_part *whole;
    size_t whole_count;
    split *splits;  /* one for each */
    mu_part *parts; /* room for all pieces */
    size_t count;
    mu_part **order;
    rank_load *loads;
    int ranks;
} search;

static double try_limit(search *s, double limit)
{
    s->count = 0;
    for (size_t i = 0; i < s->whole_count; i++) {
        size_t ways = ways_within(&s->whole[i], &s->splits[i], limit);
        if (ways > 1) {
            split_part(&s->whole[i], &s->splits[i], ways, &s->parts[s->count]);
        } else {
            s->parts[s->count] = s->whole[i];
        }
        s->count += ways;
    }
    return assign_owners(s->parts, s->count, s->order, s->loads, s->ranks);
}

/* Lower the limit as long as that shortens the step noticeably. */
static void find_limit(search *s, double longest, double share)
{
    double best_limit = INFINITY, best = try_limit(s, INFINITY);
    for (double limit = 0.8 * longest; limit > 0.5 * share; limit *= 0.8) {
        double busiest = try_limit(s, limit);
        if (busiest < 0.97 * best) {
            best = busiest;
            best_limit = limit;
        }
    }
    try_limit(s, best_limit);
}

static muonium_status assign(const muonium_optimizer *description,
                             const muonium_mpi_plan_options *options, muonium_mpi_plan *plan)
{
    double total = 0, longest = 0;
    size_t pieces = 0;
    muonium_status status = MUONIUM_OK;
    search s = {.whole = plan->parts, .whole_count = plan->count, .ranks = plan->ranks};
    for (size_t i = 0; i < plan->count; i++) {
        double seconds = plan->parts[i].piece.seconds;
        total += seconds;
        longest = seconds > longest ? seconds : longest;
    }
    s.splits = mu_alloc(plan->count * sizeof *s.splits);
    s.loads = mu_alloc((size_t)plan->ranks * sizeof *s.loads);
    for (size_t i = 0; s.splits && status == MUONIUM_OK && i < plan->count; i++) {
        status = consider_split(description, options, plan->ranks, total / plan->ranks,
                                &plan->parts[i], &s.splits[i]);
        pieces += s.splits[i].most;
    }
    s.parts = mu_alloc(pieces * sizeof *s.parts);
    s.order = mu_alloc(pieces * sizeof *s.order);
    if (status == MUONIUM_OK && (!s.splits || !s.loads || !s.parts || !s.order)) {
        status = mu_fail(MUONIUM_NO_MEMORY, "no memory for a plan of %zu pieces", pieces);
    }
    if (status == MUONIUM_OK) {
        find_limit(&s, longest, total / plan->ranks);
        mu_free(plan->parts);
        plan->parts = s.parts;
        plan->count = s.count;
        s.parts = NULL;
    }
    mu_free(s.splits);
    mu_free(s.loads);
    mu_free(s.parts);
    mu_free(s.order);
    return status;
}

/* ---- description ---- */

static uint64_t state_bytes_of_part(const mu_parameter *p, const mu_part *part)
{
    mu_state_array arrays[MU_STATE_KINDS];
    size_t count = mu_state_arrays(p, arrays);
    uint64_t bytes = 0;
    for (size_t k = 0; k < count; k++) {
        size_t each = arrays[k].spec->per_row ? p->matrices.cols.total : 1;
        size_t elements =
            arrays[k].spec->per_block ? mu_state_blocks(part->elements) : part->elements / each;
        bytes += part->cut == MU_CUT_WHOLE ? mu_state_bytes(&arrays[k])
                                           : elements * muonium_dtype_size(arrays[k].dtype);
    }
    return bytes;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        hash = (hash ^ (value >> 8 * i & 0xff)) * 0x100000001b3u; /* FNV-1a */
    }
    return hash;
}

static void summarize(const muonium_optimizer *description, muonium_mpi_plan *plan)
{
    muonium_mpi_plan_info *info = &plan->info;
    uint64_t hash = 0xcbf29ce484222325u, update_bytes = 0;
    info->ranks = plan->ranks;
    info->pieces = plan->count;
    for (size_t i = 0; i < plan->count; i++) {
        const mu_part *part = &plan->parts[i];
        const muonium_mpi_piece *piece = &part->piece;
        const mu_parameter *p = description->parameters[piece->parameter];
        muonium_mpi_share *load = &plan->loads[piece->owner];
        uint64_t width = muonium_dtype_size(p->tensor.dtype);
        load->pieces++;
        load->seconds += piece->seconds;
        load->triangles += part->triangles;
        info->split += part->cut == MU_CUT_COLUMNS && part->sibling == 0;
        load->elements += part->elements;
        load->state_bytes += state_bytes_of_part(p, part);
        load->update_bytes += part->elements * width; /* for now: of its own */
        update_bytes += part->elements * width;
        info->elements += part->elements;
        info->seconds += piece->seconds;
        /* Ranks that share a matrix add up sums over the same blocks of columns: their length
         * depends on the precision and the kernel. */
        bool shared = part->cut == MU_CUT_COLUMNS;
        const size_t numbers[] = {piece->parameter, piece->muon, (size_t)piece->owner,
                                  piece->first,     piece->run,  piece->runs,
                                  piece->stride,    part->cut,   shared ? part->block : 0};
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            hash = mix(hash, numbers[k]);
        }
    }
    for (int r = 0; r < plan->ranks; r++) {
        muonium_mpi_share *load = &plan->loads[r];
        load->gradient_bytes = (info->elements - load->elements) * sizeof(float);
        load->update_bytes = update_bytes - load->update_bytes;
        info->largest = load->seconds > info->largest ? load->seconds : info->largest;
        info->triangles = load->triangles > info->triangles ? load->triangles : info->triangles;
    }
    info->mean = info->seconds / plan->ranks;
    info->hash = mix(hash, (uint64_t)plan->ranks);
}

muonium_status muonium_mpi_plan_create(const muonium_optimizer *description, int ranks,
                                       const muonium_mpi_plan_options *options,
                                       muonium_mpi_plan **plan)
{
    muonium_mpi_plan_options chosen;
    if (mu_check_version() != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (!description || !plan) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", description ? "plan" : "description");
    }
    if (ranks < 1) {
        return mu_fail(MUONIUM_INVALID, "ranks is %d: use at least 1", ranks);
    }
    if (description->count == 0) {
        return mu_fail(MUONIUM_INVALID,
                       "the description has no parameters: add some with muonium_add");
    }
    muonium_status status = read_plan_options(options, &chosen);
    if (status != MUONIUM_OK) {
        return status;
    }
    muonium_mpi_plan *made = mu_alloc_zeroed(sizeof *made);
    if (!made) {
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for a plan");
    }
    made->ranks = ranks;
    made->loads = mu_alloc_zeroed((size_t)ranks * sizeof *made->loads);
    status = made->loads ? mu_cut_parameters(description, &made->parts, &made->count)
                         : mu_fail(MUONIUM_NO_MEMORY, "no memory for %d ranks", ranks);
    if (status == MUONIUM_OK) {
        status = mu_price_parts(description, &chosen, made->parts, made->count);
    }
    if (status == MUONIUM_OK) {
        status = assign(description, &chosen, made);
    }
    if (status != MUONIUM_OK) {
        muonium_mpi_plan_destroy(made);
        return status;
    }
    summarize(description, made);
    *plan = made;
    return MUONIUM_OK;
}

void muonium_mpi_plan_destroy(muonium_mpi_plan *plan)
{
    if (plan) {
        mu_free(plan->parts);
        mu_free(plan->loads);
        mu_free(plan);
    }
}

muonium_status muonium_mpi_plan_describe_sized(const muonium_mpi_plan *plan,
                                               muonium_mpi_plan_info *info, size_t size)
{
    if (!plan || !info) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", plan ? "info" : "plan");
    }
    mu_sized_write(info, size, &plan->info, sizeof plan->info);
    return MUONIUM_OK;
}

muonium_status muonium_mpi_plan_share_sized(const muonium_mpi_plan *plan, int rank,
                                            muonium_mpi_share *load, size_t size)
{
    if (!plan || !load) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", plan ? "load" : "plan");
    }
    if (rank < 0 || rank >= plan->ranks) {
        return mu_fail(MUONIUM_INVALID, "rank is %d: there are %d, counted from 0", rank,
                       plan->ranks);
    }
    mu_sized_write(load, size, &plan->loads[rank], sizeof plan->loads[rank]);
    return MUONIUM_OK;
}

muonium_status muonium_mpi_plan_piece_sized(const muonium_mpi_plan *plan, size_t index,
                                            muonium_mpi_piece *piece, size_t size)
{
    if (!plan || !piece) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", plan ? "piece" : "plan");
    }
    if (index >= plan->count) {
        return mu_fail(MUONIUM_INVALID, "piece is %zu: there are %zu, counted from 0", index,
                       plan->count);
    }
    mu_sized_write(piece, size, &plan->parts[index].piece, sizeof plan->parts[index].piece);
    return MUONIUM_OK;
}
