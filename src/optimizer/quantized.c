/*
 * quantized.c: see quantized.h.
 *
 * A block of the momentum is updated as a whole, since its scale follows from its largest element:
 *
 *     m = scale * q;  m = momentum of m and g;  scale, q = rounded m;  D = direction of g and
 *     scale * q
 *
 * All of that is in L1. So the momentum moves two bytes per element and step.
 */
#include "optimizer/quantized.h"

#include <string.h>

enum {
    BLOCK = MUONIUM_STATE_BLOCK,
    TASK = 16 * BLOCK, /* elements; fixed, so that the number of threads changes nothing */
};

/* ---- blocks of the momentum ---- */

bool mu_gathers_blocks(const mu_parameter *p)
{
    return mu_has_blocks(p) && !mu_selects(p) && p->matrices.layout->contiguous &&
           mu_has_whole_blocks(p);
}

/* A block of the momentum in the present step. */
typedef struct block_step {
    size_t first, count;   /* elements */
    const float *g;        /* gradient */
    float m[BLOCK];        /* momentum, before it is rounded or after it */
    float gradient[BLOCK]; /* a copy, where it is not in place */
    int8_t q[BLOCK];
    mu_scale scale; /* of the new momentum */
} block_step;

static void start_block(const mu_parameter *p, size_t first, block_step *s)
{
    size_t left = p->elements - first;
    s->first = first;
    s->count = left < BLOCK ? left : BLOCK;
}

/* The gradient of the block, in place if it is consecutive f32. */
static void load_block(const mu_schedule *schedule, const mu_parameter *p, block_step *s)
{
    mu_offset start = {0, 0, 0};
    for (size_t done = 0; done < s->count;) {
        mu_piece piece = mu_piece_at(p, start, &p->all, s->first + done, s->count - done);
        float *to = s->gradient + done;
        const float *g = mu_load_grad(schedule, p, &piece, to);
        if (piece.count == s->count) {
            s->g = g;
            return;
        }
        if (g != to) {
            memcpy(to, g, piece.count * sizeof *to);
        }
        done += piece.count;
    }
    s->g = s->gradient;
}

/* The momentum before it is rounded, and its scale. */
static void move_block(const mu_schedule *schedule, const mu_parameter *p,
                       const mu_momentum_step *step, block_step *s)
{
    const int8_t *q = p->state[MU_STATE_MOMENTUM];
    const float *scales = p->state[MU_STATE_MOMENTUM_SCALE];
    s->scale = mu_scale_of_block(schedule->elementwise->momentum_int8(
        step, q + s->first, scales[s->first / BLOCK], s->g, s->m, s->count));
}

/* The rounded momentum to q, and the direction that follows from it. */
static void settle_block(const mu_schedule *schedule, const mu_momentum_step *step,
                         const mu_dither *dither, block_step *s, int8_t *q, float *d)
{
    const mu_elementwise *elementwise = schedule->elementwise;
    if (s->scale.inverse > 0 && !dither->on) { /* in one pass */
        elementwise->direction_int8(step, s->g, s->m, s->scale.inverse, s->scale.scale, q, d,
                                    s->count);
        return;
    }
    mu_quantize_by(elementwise, s->m, s->count, s->scale, dither, q);
    elementwise->dequantize(q, s->count, s->scale.scale, s->m);
    elementwise->direction(step, s->g, s->m, d, s->count);
}

/* Ask for the next block's gradient while this one is computed, which takes passes over L1 without
 * a load from memory. */
static void expect_block(const mu_parameter *p, const block_step *s)
{
    size_t next = s->first + s->count, left = p->elements - next;
    size_t count = left < BLOCK ? left : BLOCK;
    const char *g = (const char *)(s->g + s->count);
    const char *q = (const char *)p->state[MU_STATE_MOMENTUM] + next;
    for (size_t at = 0; s->g != s->gradient && at < count * sizeof(float); at += 64) {
        __builtin_prefetch(g + at);
    }
    for (size_t at = 0; at < count; at += 64) {
        __builtin_prefetch(q + at, 1);
    }
}

static void update_block(const mu_schedule *schedule, const mu_parameter *p,
                         const mu_momentum_step *step, size_t first, block_step *s, float *d)
{
    int8_t *q = p->state[MU_STATE_MOMENTUM];
    float *scales = p->state[MU_STATE_MOMENTUM_SCALE];
    mu_dither dither = mu_dither_of(p, MU_STATE_MOMENTUM, first);
    start_block(p, first, s);
    load_block(schedule, p, s);
    expect_block(p, s);
    move_block(schedule, p, step, s);
    settle_block(schedule, step, &dither, s, q + first, d);
    scales[first / BLOCK] = s->scale.scale;
}

/* ---- blocks of several matrices, or of other places than rows ---- */

static void update_shared_chunk(void *context, size_t index, unsigned worker)
{
    const mu_schedule *schedule = context;
    const mu_chunk *chunk = &schedule->chunks[index];
    mu_parameter *p = chunk->parameter;
    (void)worker;
    if (!schedule->active[p->number] || !mu_has_blocks(p) || mu_gathers_blocks(p)) {
        return;
    }
    mu_momentum_step step = mu_momentum_of(p, p->steps);
    block_step s;
    float d[BLOCK];
    for (size_t done = 0; done < chunk->count; done += BLOCK) {
        update_block(schedule, p, &step, chunk->first + done, &s, d);
    }
}

void mu_update_shared_blocks(const muonium_optimizer *optimizer)
{
    bool any = false;
    for (size_t i = 0; i < optimizer->count; i++) {
        const mu_parameter *p = optimizer->parameters[i];
        any = any || (mu_has_blocks(p) && !mu_gathers_blocks(p));
    }
    if (any) {
        mu_pool_run(update_shared_chunk, optimizer->schedule, optimizer->schedule->chunk_count,
                    mu_pool_workers());
    }
}

/* ---- blocks of one matrix ---- */

typedef struct gathering {
    const mu_batch *b;
    size_t tasks; /* per matrix */
} gathering;

bool mu_row_is_cut(const mu_matrix_place *place, size_t row)
{
    return row * place->cols / TASK != ((row + 1) * place->cols - 1) / TASK;
}

static void gather_task(void *context, size_t index, unsigned worker)
{
    const gathering *of = context;
    const mu_batch *b = of->b;
    size_t i = b->first + index / of->tasks, first = index % of->tasks * TASK;
    mu_parameter *p = b->scratch.batch[i].parameter;
    (void)worker;
    if (!mu_gathers_blocks(p)) {
        return;
    }
    mu_matrix_place place = mu_place_at(b, i);
    size_t start = (size_t)mu_row_base(p, &place, 0).state, elements = place.rows * place.cols;
    size_t row = (first + place.cols - 1) / place.cols; /* the first that begins here */
    mu_row_survey survey = mu_survey_of_batch(b, i, &place, mu_is_tall(p, &place));
    float *direction = mu_direction_at(b, i);
    mu_momentum_step step = mu_momentum_of(p, p->steps);
    block_step s;
    for (size_t done = first; done < first + TASK && done < elements; done += BLOCK) {
        update_block(b->schedule, p, &step, start + done, &s, direction + done);
        for (; (row + 1) * place.cols <= done + s.count; row++) { /* in cache */
            mu_survey_gathered(b, &survey, direction + row * place.cols, place.cols, row);
        }
    }
}

void mu_gather_blocks(const mu_batch *b, size_t count)
{
    size_t tasks = (b->of->m * b->of->n + TASK - 1) / TASK;
    gathering of = {b, tasks};
    mu_pool_run(gather_task, &of, count * tasks, mu_pool_workers());
}

/* ---- what a step would do ---- */

size_t mu_preview_block(const mu_schedule *schedule, const mu_parameter *p, size_t first, float *g,
                        float *m, float *d)
{
    mu_momentum_step step = mu_momentum_of(p, p->steps + 1);
    mu_dither dither = mu_dither_of(p, MU_STATE_MOMENTUM, first);
    dither.stream++;
    block_step s;
    start_block(p, first, &s);
    load_block(schedule, p, &s);
    move_block(schedule, p, &step, &s);
    memcpy(g, s.g, s.count * sizeof *g);
    memcpy(m, s.m, s.count * sizeof *m);
    settle_block(schedule, &step, &dither, &s, s.q, d);
    return s.count;
}

/* ---- decay of integers ---- */

static void decay_run(const mu_elementwise *elementwise, float decay, const mu_dither *dither,
                      int8_t *q, size_t n)
{
    float x[BLOCK];
    elementwise->dequantize(q, n, decay, x);
    if (dither->on) {
        elementwise->quantize_stochastic(x, n, 1, dither->key, dither->stream, dither->counter, q);
    } else {
        elementwise->quantize(x, n, 1, q);
    }
}

void mu_decay_quantized(const mu_elementwise *elementwise, const mu_parameter *p, size_t first,
                        const size_t *chosen, size_t count)
{
    int8_t *q = (int8_t *)p->state[MU_STATE_MOMENTUM] + first, some[BLOCK];
    float decay = (float)p->group->options.ef_decay;
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t left = count - done, n = left < BLOCK ? left : BLOCK;
        mu_dither dither = mu_dither_of(p, MU_STATE_KINDS, first + (chosen ? chosen[done] : done));
        if (!chosen) {
            decay_run(elementwise, decay, &dither, q + done, n);
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            some[k] = q[chosen[done + k]];
        }
        decay_run(elementwise, decay, &dither, some, n);
        for (size_t k = 0; k < n; k++) {
            q[chosen[done + k]] = some[k];
        }
    }
}
