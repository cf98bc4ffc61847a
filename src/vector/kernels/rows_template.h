/*
 * rows_template.h: the row operations of rows.h, included once per instruction set and real type.
 * No include guard, on purpose. Parameters:
 *
 *   T             float or double
 *   T_DTYPE       MUONIUM_F32 or MUONIUM_F64
 *   T_BITS        32 or 64
 *   VEC(op)       the SIMD operations: VEC(t) is the vector type. Functions: load, store (both
 *                 unaligned), set1, zero, add, mul, fma(a, b, c) = a*b + c,
 *                 transpose(VL vectors), choose(n, a, b): the first n lanes of a, the rest of b,
 *                 widen(dtype, source) and, for f32, narrow(vector, half dtype, target)
 *   VL            lanes per vector
 *   NAME(f)       f with the suffix of this instantiation
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "vector/kernels/kernels.h"

#define V VEC(t)

#include "vector/kernels/convert_template.h"

/* Round to f32 such that rounding the result to a half type is as if the value were rounded once:
 * an inexact result gets an odd last bit, which no tie can have. */
static float NAME(to_odd)(T value)
{
    float rounded = (float)value;
    if ((T)rounded == value || isnan(rounded) || isinf(rounded)) {
        return rounded;
    }
    uint32_t bits = mu_bits_of_f32(rounded);
    if ((bits & 1u) == 0) {
        bool away = fabs((double)rounded) > fabs((double)value);
        bits = away ? bits - 1 : bits + 1;
    }
    return mu_f32_of_bits(bits);
}

static void NAME(store_one)(void *to, muonium_dtype dtype, T value)
{
    uint16_t half;
    float single;
    double real;
    switch (dtype) {
    case MUONIUM_F32:
        single = (float)value;
        memcpy(to, &single, sizeof single);
        break;
    case MUONIUM_F64:
        real = (double)value;
        memcpy(to, &real, sizeof real);
        break;
    case MUONIUM_BF16:
        half = mu_bf16_from_f32(NAME(to_odd)(value));
        memcpy(to, &half, sizeof half);
        break;
    case MUONIUM_F16:
        half = mu_f16_from_f32(NAME(to_odd)(value));
        memcpy(to, &half, sizeof half);
        break;
    default: /* no type of elements: callers check */
        break;
    }
}

static void NAME(store_row)(const T *restrict from, size_t n, void *to, muonium_dtype dtype,
                            ptrdiff_t stride)
{
    char *target = to;
    ptrdiff_t step = stride * (ptrdiff_t)muonium_dtype_size(dtype);
    size_t i = 0;
    if (stride == 1 && dtype == T_DTYPE) {
        memcpy(to, from, n * sizeof(T));
        return;
    }
#if T_BITS == 32 /* f64 has no vector that rounds to a half type once: store_one does */
    if (stride == 1 && dtype != MUONIUM_F64) {
        for (; i + VL <= n; i += VL) {
            VEC(narrow)(VEC(load)(from + i), dtype, target + (ptrdiff_t)i * step);
        }
    }
#endif
    for (; i < n; i++) {
        NAME(store_one)(target + (ptrdiff_t)i * step, dtype, from[i]);
    }
}

#define STAGE 64 /* elements of a column at a time when memory runs down the columns */

static char *NAME(at)(const mu_block *block, size_t i, size_t j)
{
    ptrdiff_t index = (ptrdiff_t)i * block->row_stride + (ptrdiff_t)j * block->col_stride;
    return (char *)block->data + index * (ptrdiff_t)muonium_dtype_size(block->dtype);
}

static void NAME(load)(const mu_block *from, void *to, size_t ld)
{
    T *target = to;
    if (!mu_runs_down(from->row_stride, from->col_stride)) {
        for (size_t i = 0; i < from->rows; i++) {
            NAME(load_row)(NAME(at)(from, i, 0), from->dtype, from->col_stride, from->cols,
                           target + i * ld);
        }
        return;
    }
    size_t transposed = from->row_stride == 1 ? from->cols / VL * VL : 0;
    size_t whole = transposed > 0 ? from->rows / VL * VL : 0;
    for (size_t j = 0; j < transposed; j += VL) {
        for (size_t i = 0; i < whole; i += VL) {
            V block[VL];
            MU_UNROLLED
            for (size_t l = 0; l < VL; l++) {
                const void *down = NAME(at)(from, i, j + l);
                block[l] = from->dtype == T_DTYPE ? VEC(load)(down) : VEC(widen)(from->dtype, down);
            }
            VEC(transpose)(block);
            MU_UNROLLED
            for (size_t l = 0; l < VL; l++) {
                VEC(store)(target + (i + l) * ld + j, block[l]);
            }
        }
    }
    T column[STAGE];
    for (size_t i0 = 0; i0 < from->rows; i0 += STAGE) {
        size_t rows = from->rows - i0 < STAGE ? from->rows - i0 : STAGE;
        /* Whole blocks are done. */
        size_t first = i0 + rows <= whole ? transposed : 0;
        for (size_t j = first; j < from->cols; j++) {
            NAME(load_row)(NAME(at)(from, i0, j), from->dtype, from->row_stride, rows, column);
            for (size_t i = 0; i < rows; i++) {
                target[(i0 + i) * ld + j] = column[i];
            }
        }
    }
}

static void NAME(store)(const void *from, size_t ld, const mu_block *to)
{
    const T *source = from;
    if (!mu_runs_down(to->row_stride, to->col_stride)) {
        for (size_t i = 0; i < to->rows; i++) {
            NAME(store_row)(source + i * ld, to->cols, NAME(at)(to, i, 0), to->dtype,
                            to->col_stride);
        }
        return;
    }
    T column[STAGE];
    for (size_t i0 = 0; i0 < to->rows; i0 += STAGE) {
        size_t rows = to->rows - i0 < STAGE ? to->rows - i0 : STAGE;
        for (size_t j = 0; j < to->cols; j++) {
            for (size_t i = 0; i < rows; i++) {
                column[i] = source[(i0 + i) * ld + j];
            }
            NAME(store_row)(column, rows, NAME(at)(to, i0, j), to->dtype, to->row_stride);
        }
    }
}

/* ---- epilogue and mirror ---- */

/* The epilogue with a constant number of terms. Vectors and the elements after the last vector
 * round alike: by multiplications and additions. */
static inline
    __attribute__((always_inline)) void NAME(epilogue_with)(const size_t terms, T *block,
                                                            ptrdiff_t ldc, size_t rows, size_t cols,
                                                            bool lower, const mu_epilogue *f)
{
    T scale = (T)f->scale, factor[3] = {0, 0, 0}, sum_factor = (T)f->sum_factor;
    T diagonal[2 * VL] = {0}; /* a vector from VL - i on has the shift in lane i */
    diagonal[VL] = (T)f->shift;
    for (size_t t = 0; t < terms; t++) {
        factor[t] = (T)f->terms[t].factor;
    }
    bool shifts = lower && f->shift != 0, changes = terms > 0 || f->scale != 1;
    for (size_t i = 0; i < rows; i++) {
        T *restrict c = block + (ptrdiff_t)i * ldc;
        T *restrict sum = f->sum ? (T *)f->sum + (ptrdiff_t)i * f->sum_ld : NULL;
        const T *term[3] = {NULL, NULL, NULL};
        for (size_t t = 0; t < terms; t++) {
            term[t] = (const T *)f->terms[t].data + (ptrdiff_t)i * f->terms[t].ld;
        }
        size_t reach = (i / VL + 1) * VL, n = lower && reach < cols ? reach : cols;
        size_t j = 0;
        for (; j + VL <= n; j += VL) {
            V value = VEC(load)(c + j);
            if (changes) {
                value = VEC(mul)(value, VEC(set1)(scale));
                MU_UNROLLED
                for (size_t t = 0; t < terms; t++) {
                    V more = VEC(mul)(VEC(load)(term[t] + j), VEC(set1)(factor[t]));
                    value = VEC(add)(value, more);
                }
            }
            if (shifts && i - j < VL) {
                value = VEC(add)(value, VEC(load)(diagonal + VL - (i - j)));
            }
            VEC(store)(c + j, value);
            if (sum) {
                V more = VEC(mul)(value, VEC(set1)(sum_factor));
                VEC(store)(sum + j, f->accumulate ? VEC(add)(VEC(load)(sum + j), more) : more);
            }
        }
        for (; j < n; j++) {
            c[j] *= scale;
            for (size_t t = 0; t < terms; t++) {
                c[j] += term[t][j] * factor[t];
            }
            if (shifts && i == j) {
                c[j] += (T)f->shift;
            }
            if (sum) {
                sum[j] = f->accumulate ? sum[j] + c[j] * sum_factor : c[j] * sum_factor;
            }
        }
    }
}

static void NAME(epilogue)(void *block, ptrdiff_t ldc, size_t rows, size_t cols, bool lower,
                           const mu_epilogue *f)
{
    switch (f->term_count) {
    case 0:
        NAME(epilogue_with)(0, block, ldc, rows, cols, lower, f);
        break;
    case 1:
        NAME(epilogue_with)(1, block, ldc, rows, cols, lower, f);
        break;
    case 2:
        NAME(epilogue_with)(2, block, ldc, rows, cols, lower, f);
        break;
    default:
        NAME(epilogue_with)(3, block, ldc, rows, cols, lower, f);
        break;
    }
}

/* Transpose the block of VL x VL at `down` to `across`. If the two are the same, the block is on
 * the diagonal, and what is below the diagonal stays. */
static inline
    __attribute__((always_inline)) void NAME(mirror_block)(const T *down, T *across, ptrdiff_t ldc)
{
    V block[VL], before[VL];
    bool diagonal = down == across;
    MU_UNROLLED
    for (size_t l = 0; l < VL; l++, down += ldc) {
        before[l] = block[l] = VEC(load)(down);
    }
    VEC(transpose)(block);
    MU_UNROLLED
    for (size_t l = 0; l < VL; l++, across += ldc) {
        VEC(store)(across, diagonal ? VEC(choose)(l + 1, before[l], block[l]) : block[l]);
    }
}

static void NAME(mirror)(void *matrix, ptrdiff_t ldc, size_t i0, size_t i1, size_t j0, size_t j1)
{
    T *c = matrix;
    for (size_t i = i0; i < i1; i += VL) {
        for (size_t j = j0; j < j1 && j < i + VL; j += VL) {
            if (i + VL <= i1 && j + VL <= j1 && (j + VL <= i || j == i)) {
                NAME(mirror_block)(c + (ptrdiff_t)i * ldc + (ptrdiff_t)j,
                                   c + (ptrdiff_t)j * ldc + (ptrdiff_t)i, ldc);
                continue;
            }
            for (size_t row = i; row < i + VL && row < i1; row++) {
                for (size_t col = j; col < j + VL && col < j1 && col < row; col++) {
                    c[(ptrdiff_t)col * ldc + (ptrdiff_t)row] =
                        c[(ptrdiff_t)row * ldc + (ptrdiff_t)col];
                }
            }
        }
    }
}

/* ---- rows ---- */

#define PARTS 16 /* independent sums: enough for latency, and the same on every instruction set */

/* Magnitudes compare as their bits do, those of infinity and NaN above all others. */
#if T_BITS == 32
#define PATTERN int32_t
#define MAGNITUDE INT32_MAX
#else
#define PATTERN int64_t
#define MAGNITUDE INT64_MAX
#endif

static double NAME(add_parts)(double sums[PARTS])
{
    for (size_t half = PARTS / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++) {
            sums[l] += sums[l + half];
        }
    }
    return sums[0];
}

static double NAME(row_squares)(const void *row, size_t n, double scale)
{
    const T *x = row;
    double sums[PARTS] = {0};
    size_t i = 0;
    for (; i + PARTS <= n; i += PARTS) {
        for (size_t l = 0; l < PARTS; l++) {
            double scaled = (double)x[i + l] * scale;
            sums[l] += scaled * scaled;
        }
    }
    for (size_t l = 0; i < n; i++, l++) {
        double scaled = (double)x[i] * scale;
        sums[l] += scaled * scaled;
    }
    return NAME(add_parts)(sums);
}

static mu_row_stats NAME(row_stats)(const void *row, size_t n, double scale)
{
    const T *x = row;
    PATTERN largest = 0;
    for (size_t i = 0; i < n; i++) {
        PATTERN bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= MAGNITUDE;
        largest = bits > largest ? bits : largest;
    }
    T magnitude;
    memcpy(&magnitude, &largest, sizeof magnitude);
    mu_row_stats stats = {NAME(row_squares)(row, n, scale), (double)magnitude};
    return stats;
}

#undef PATTERN
#undef MAGNITUDE

static double NAME(row_abs_sum)(const void *row, size_t n)
{
    const T *x = row;
    double sums[PARTS] = {0};
    size_t i = 0;
    for (; i + PARTS <= n; i += PARTS) {
        for (size_t l = 0; l < PARTS; l++) {
            sums[l] += fabs((double)x[i + l]);
        }
    }
    for (size_t l = 0; i < n; i++, l++) {
        sums[l] += fabs((double)x[i]);
    }
    return NAME(add_parts)(sums);
}

static void NAME(row_scale)(void *row, size_t n, double factor)
{
    T *x = row;
    for (size_t i = 0; i < n; i++) {
        x[i] *= (T)factor;
    }
}

static void NAME(row_add)(void *to, const void *from, size_t n, double factor, bool accumulate)
{
    T *y = to;
    const T *x = from;
    for (size_t i = 0; !accumulate && i < n; i++) {
        y[i] = (T)factor * x[i];
    }
    for (size_t i = 0; accumulate && i < n; i++) {
        y[i] += (T)factor * x[i];
    }
}

static T NAME(rounded_one)(T value, muonium_dtype half)
{
    double held; /* room for any type */
    NAME(store_one)(&held, half, value);
    return NAME(load_one)(&held, half);
}

#if T_BITS == 32
static inline V NAME(rounded)(V values, muonium_dtype half)
{
    uint16_t held[VL];
    if (half == MUONIUM_BF16) {
        VEC(narrow)(values, MUONIUM_BF16, held);
        return VEC(widen)(MUONIUM_BF16, held);
    }
    VEC(narrow)(values, MUONIUM_F16, held);
    return VEC(widen)(MUONIUM_F16, held);
}
#endif

static void NAME(row_round)(void *row, size_t n, muonium_dtype half)
{
    T *x = row;
    size_t i = 0;
#if T_BITS == 32
    for (; i + VL <= n; i += VL) {
        VEC(store)(x + i, NAME(rounded)(VEC(load)(x + i), half));
    }
#endif
    for (; i < n; i++) {
        x[i] = NAME(rounded_one)(x[i], half);
    }
}

static void NAME(row_combine)(void *to, double alpha, const void *from, double beta, size_t n,
                              muonium_dtype half)
{
    T *y = to;
    const T *x = from;
    size_t i = 0;
#if T_BITS == 32
    V first = VEC(set1)((T)alpha), second = VEC(set1)((T)beta);
    for (; i + VL <= n; i += VL) {
        V value = VEC(mul)(first, NAME(rounded)(VEC(load)(y + i), half));
        value = VEC(add)(value, VEC(mul)(second, VEC(load)(x + i)));
        VEC(store)(y + i, NAME(rounded)(value, half));
    }
#endif
    for (; i < n; i++) {
        y[i] = (T)alpha * NAME(rounded_one)(y[i], half) + (T)beta * x[i];
        y[i] = NAME(rounded_one)(y[i], half);
    }
}

#undef PARTS
#undef STAGE
#undef V
