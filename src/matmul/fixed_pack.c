/*
 * fixed_pack.c: the sides of a fixed-point product: units, digits and their memory.
 */
#include "matmul/fixed_product.h"

#include <math.h>
#include <string.h>

enum {
    LOWEST_EXPONENT = -100 /* of a line: the unit of smaller ones would not be an f32 */
};

/* ---- memory ---- */

size_t mu_side_bytes(const mu_int8_kernel *kernel, int digits, size_t lines, size_t k)
{
    size_t blocks = mu_ceil_div(k, MU_FIXED_K), all = mu_round_up(lines, MU_LINE_GROUP);
    size_t groups = mu_round_up(mu_ceil_div(mu_min_size(k, MU_FIXED_K), 4), kernel->groups);
    size_t per_line = groups * 4 * (size_t)digits + sizeof(float) + MU_SUMS * sizeof(int32_t);
    return mu_round_up(blocks * all * per_line, MU_ALIGNMENT);
}

char *mu_give_side_memory(const mu_fixed_product *p, mu_digit_side *s, size_t k, bool is_a,
                          char *memory)
{
    size_t lines = mu_padded_lines(s), blocks = mu_ceil_div(k, MU_FIXED_K);
    s->packed = memory;
    memory += blocks * lines / s->width * mu_digit_panel_bytes(p, s, mu_min_size(k, MU_FIXED_K));
    s->unit = (float *)memory;
    memory += blocks * lines * sizeof *s->unit;
    s->start = is_a && p->kernel->start ? (int32_t *)memory : NULL;
    return s->start ? memory + blocks * lines * MU_SUMS * sizeof *s->start : memory;
}

/* ---- lines ---- */

/* 2^e, for -126 <= e <= 127. */
static float power_of_two(int e)
{
    uint32_t bits = (uint32_t)(e + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* Convert k-block `k0` of `lines` lines from X, of any type and strides, to a buffer in which k is
 * adjacent if the kernel packs by rows, else lines. */
static mu_digit_source load_lines(const mu_fixed_product *p, const mu_digit_side *s, size_t first,
                                  size_t lines, size_t k0, size_t k, float *buffer)
{
    const mu_operand *x = s->unread;
    ptrdiff_t line = s->by_columns ? x->col_stride : x->row_stride;
    ptrdiff_t k_stride = s->by_columns ? x->row_stride : x->col_stride;
    ptrdiff_t at = (ptrdiff_t)first * line + (ptrdiff_t)k0 * k_stride;
    const char *data = (const char *)x->data + at * (ptrdiff_t)muonium_dtype_size(x->dtype);
    mu_digit_source source = {.data = buffer, .scale = s->source.scale};
    if (p->kernel->by_rows) {
        mu_block block = {(void *)(uintptr_t)data, x->dtype, line, k_stride, lines, k};
        p->rows->load(&block, buffer, k);
        source.line_stride = (ptrdiff_t)k;
        source.k_stride = 1;
    } else {
        mu_block block = {(void *)(uintptr_t)data, x->dtype, k_stride, line, k, lines};
        p->rows->load(&block, buffer, MU_LINE_GROUP);
        source.line_stride = 1;
        source.k_stride = MU_LINE_GROUP;
    }
    return source;
}

/* The part of a source from (line, k) on. */
static mu_digit_source part_of(const mu_digit_source *whole, size_t line, size_t k)
{
    mu_digit_source part = *whole;
    ptrdiff_t at = (ptrdiff_t)line * whole->line_stride + (ptrdiff_t)k * whole->k_stride;
    part.data += at;
    part.other = whole->other ? whole->other + at : NULL;
    part.offset += (ptrdiff_t)line - (ptrdiff_t)k;
    return part;
}

/* The units of lines with these largest magnitudes: of the first digit, and by which elements are
 * multiplied. Digits divide by the smallest 2^e of which the largest is at most 127/128. A line
 * with an element that is not finite has no digits, and the unit NaN. */
static void set_units(int digits, const uint32_t *bits, size_t lines, float *unit, float *scale)
{
    const uint32_t fraction = 0x7fffff, most = 0x7e0000; /* that of 127/128 */
    for (size_t i = 0; i < lines; i++) {
        bool finite = bits[i] < 0x7f800000;
        int exponent = (int)(bits[i] >> 23) - 126 + ((bits[i] & fraction) > most);
        exponent = exponent > LOWEST_EXPONENT ? exponent : LOWEST_EXPONENT;
        scale[i] = finite ? power_of_two(8 * digits - 1 - exponent) : 0;
        unit[i] = finite ? power_of_two(exponent - 7) : NAN;
    }
}

void mu_split_lines(const mu_fixed_product *p, const mu_digit_side *s, const mu_digit_side *twin,
                    size_t k_block, size_t first, float *buffer)
{
    const mu_int8_kernel *kernel = p->kernel;
    size_t lines = mu_min_size(MU_LINE_GROUP, s->lines - first), k0 = k_block * MU_FIXED_K;
    size_t k = mu_min_size(MU_FIXED_K, s->k - k0), groups = mu_digit_groups(p, k);
    uint32_t bits[MU_LINE_GROUP];
    float scale[MU_LINE_GROUP];
    mu_digit_source source = s->unread ? load_lines(p, s, first, lines, s->first_k + k0, k, buffer)
                                       : part_of(&s->source, first, s->first_k + k0);
    kernel->largest(&source, lines, k, bits);
    set_units(p->digits, bits, lines, s->unit + k_block * mu_padded_lines(s) + first, scale);
    for (const mu_digit_side *to = s; to; to = to == s ? twin : NULL) {
        size_t panels = mu_padded_lines(to) / to->width, panel = first / to->width;
        size_t end = panel + mu_ceil_div(lines, to->width);
        if (to == twin && kernel->transpose) {
            for (; panel < end; panel++) {
                kernel->transpose(p->digits, groups, mu_digit_panel(p, s, k_block, panel),
                                  mu_digit_panel(p, to, k_block, panel));
            }
            continue;
        }
        to->pack(p->digits, &source, lines, k, groups, scale,
                 mu_digit_panel(p, to, k_block, panel));
        for (; to->start && panel < end; panel++) {
            kernel->start(p->digits, groups, mu_digit_panel(p, to, k_block, panel),
                          to->start + (k_block * panels + panel) * MU_SUMS * to->width);
        }
    }
}

typedef struct packing {
    const mu_fixed_product *p;
    const mu_digit_side *first, *second; /* with the same number of lines; the second may be NULL */
    bool twins;
} packing;

/* Some lines of each side together: if both sides are one matrix, the second finds it in cache. */
static void split_task(void *context, size_t index, unsigned worker)
{
    const packing *all = context;
    float *buffer = mu_line_buffer(all->p, worker);
    size_t groups = mu_ceil_div(all->first->lines, MU_LINE_GROUP);
    size_t block = index / groups, line = index % groups * MU_LINE_GROUP;
    mu_split_lines(all->p, all->first, all->twins ? all->second : NULL, block, line, buffer);
    if (all->second && !all->twins) {
        mu_split_lines(all->p, all->second, NULL, block, line, buffer);
    }
}

void mu_split_sides(const mu_fixed_product *p, const mu_digit_side *first,
                    const mu_digit_side *second, bool twins)
{
    packing all = {p, first, second, twins};
    size_t tasks = mu_ceil_div(first->lines, MU_LINE_GROUP) * mu_ceil_div(first->k, MU_FIXED_K);
    mu_pool_run(split_task, &all, tasks, p->workers);
}
