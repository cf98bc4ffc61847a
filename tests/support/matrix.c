/*
 * matrix.c: see matrix.h.
 */
#include "matrix.h"

#include <math.h>

#include "base/half.h"

double test_element(const void *data, muonium_dtype dtype, ptrdiff_t index)
{
    switch (dtype) {
    case MUONIUM_F32:
        return (double)((const float *)data)[index];
    case MUONIUM_F64:
        return ((const double *)data)[index];
    default:
        return (double)mu_f32_from_half(dtype, ((const uint16_t *)data)[index]);
    }
}

/* The magnitude of a half by its bits, where infinity counts as the number that
 * would follow the largest: so IEEE 754 defines what rounds to it. */
static double half_magnitude(uint16_t bits, muonium_dtype half)
{
    uint16_t infinity = half == MUONIUM_BF16 ? 0x7f80 : 0x7c00;
    if (bits == infinity) {
        return half == MUONIUM_BF16 ? 0x1p128 : 0x1p16;
    }
    return (double)mu_f32_from_half(half, bits);
}

uint16_t test_half_nearest(double value, muonium_dtype half)
{
    uint16_t infinity = half == MUONIUM_BF16 ? 0x7f80 : 0x7c00;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    uint16_t low = 0, high = infinity; /* the magnitude lies between these two */
    if (magnitude >= half_magnitude(infinity, half)) {
        return sign | infinity;
    }
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_magnitude(middle, half) <= magnitude) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = magnitude - half_magnitude(low, half);
    double above = half_magnitude(high, half) - magnitude;
    bool up = above < below || (above == below && high % 2 == 0);
    return sign | (up ? high : low);
}

void test_set_element(void *data, muonium_dtype dtype, ptrdiff_t index, double value)
{
    switch (dtype) {
    case MUONIUM_F32:
        ((float *)data)[index] = (float)value;
        break;
    case MUONIUM_F64:
        ((double *)data)[index] = value;
        break;
    default:
        ((uint16_t *)data)[index] = test_half_nearest(value, dtype);
        break;
    }
}

const char *test_dtype_name(muonium_dtype dtype)
{
    static const char *const names[] = {"f32", "f64", "bf16", "f16"};
    return names[dtype];
}

test_matrix test_matrix_new(muonium_dtype dtype, size_t rows, size_t cols, ptrdiff_t row_stride,
                            ptrdiff_t col_stride, bool at_front)
{
    ptrdiff_t down = (ptrdiff_t)(rows - 1) * row_stride;
    ptrdiff_t across = (ptrdiff_t)(cols - 1) * col_stride;
    ptrdiff_t lowest = (down < 0 ? down : 0) + (across < 0 ? across : 0);
    ptrdiff_t highest = (down > 0 ? down : 0) + (across > 0 ? across : 0);
    size_t element = muonium_dtype_size(dtype);
    test_matrix matrix = {NULL, NULL, dtype, rows, cols, row_stride, col_stride, 0};
    matrix.bytes = (size_t)(highest - lowest + 1) * element;
    matrix.memory =
        at_front ? test_guarded_alloc_front(matrix.bytes, 0) : test_guarded_alloc(matrix.bytes, 0);
    matrix.data = (char *)matrix.memory - lowest * (ptrdiff_t)element;
    return matrix;
}

void test_matrix_free(test_matrix *matrix)
{
    test_guarded_free(matrix->memory);
    matrix->memory = NULL;
}

static ptrdiff_t index_of(const test_matrix *matrix, size_t i, size_t j)
{
    return (ptrdiff_t)i * matrix->row_stride + (ptrdiff_t)j * matrix->col_stride;
}

double test_matrix_get(const test_matrix *matrix, size_t i, size_t j)
{
    return test_element(matrix->data, matrix->dtype, index_of(matrix, i, j));
}

void test_matrix_set(const test_matrix *matrix, size_t i, size_t j, double value)
{
    test_set_element(matrix->data, matrix->dtype, index_of(matrix, i, j), value);
}

bool test_matrix_gaps_intact(const test_matrix *matrix)
{
    ptrdiff_t element = (ptrdiff_t)muonium_dtype_size(matrix->dtype);
    const unsigned char *memory = matrix->memory;
    ptrdiff_t origin = (const unsigned char *)matrix->data - memory;
    unsigned char *used = calloc(matrix->bytes, 1);
    assert_non_null(used);
    for (size_t i = 0; i < matrix->rows; i++) {
        for (size_t j = 0; j < matrix->cols; j++) {
            memset(used + origin + index_of(matrix, i, j) * element, 1, (size_t)element);
        }
    }
    bool intact = true;
    for (size_t at = 0; at < matrix->bytes; at++) {
        intact = intact && (used[at] || memory[at] == 0xa5);
    }
    free(used);
    return intact;
}

void test_layout(size_t number, size_t rows, size_t cols, ptrdiff_t *row_stride,
                 ptrdiff_t *col_stride)
{
    ptrdiff_t r = (ptrdiff_t)rows, c = (ptrdiff_t)cols;
    const ptrdiff_t strides[TEST_LAYOUTS][2] = {
        {c, 1},      {c + 3, 1},      {1, r},           {1, r + 1},
        {-c - 1, 1}, {2 * c + 1, -2}, {-3, -3 * r - 2}, {3, 3 * r},
    };
    *row_stride = strides[number % TEST_LAYOUTS][0];
    *col_stride = strides[number % TEST_LAYOUTS][1];
}
