/*
 * spectra.c: see spectra.h.
 */
#include "spectra.h"

#include <lapacke.h>
#include <math.h>

#include "base/half.h"

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        fprintf(stderr, "no memory for a test\n");
        abort();
    }
    return memory;
}

/* ---- spectra ---- */

static void logarithmic(double *sigma, size_t count, double decades)
{
    for (size_t i = 0; i < count; i++) {
        sigma[i] = pow(10, -decades * (double)i / (double)(count > 1 ? count - 1 : 1));
    }
}

static void keep_first(double *sigma, size_t count, size_t rank)
{
    for (size_t i = 0; i < count; i++) {
        sigma[i] = i < rank ? 1.0 + 0.1 * (double)i : 0;
    }
}

static void exponential(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    for (size_t i = 0; i < count; i++) {
        sigma[i] = exp(-(double)i);
    }
}

static void zero_or_two(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    for (size_t i = 0; i < count; i++) {
        sigma[i] = i % 2 == 0 ? 2 : 0;
    }
}

static void linear(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    for (size_t i = 0; i < count; i++) {
        sigma[i] = 0.5 * (double)(i + 1) / (double)count - (count > 1 ? 0.5 / (double)count : 0);
    }
}

static void three_decades(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    logarithmic(sigma, count, 3);
}

static void five_decades(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    logarithmic(sigma, count, 5);
}

static void seven_decades(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    logarithmic(sigma, count, 7);
}

static void nine_decades(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    logarithmic(sigma, count, 9);
}

static void half_zeros(test_rng *rng, double *sigma, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sigma[i] = i < (count + 1) / 2 ? test_uniform(rng, 0.1, 1) : 0;
    }
}

static void rank_one(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    keep_first(sigma, count, 1);
}

static void rank_two(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    keep_first(sigma, count, 2);
}

static void rank_ten(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    keep_first(sigma, count, 10);
}

static void two_large(test_rng *rng, double *sigma, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sigma[i] = i < 2 ? 1 : 1e-6 * test_uniform(rng, 0.5, 1.5);
    }
}

/* The first makes up 0.9 of the Frobenius norm. */
static void one_dominant(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    for (size_t i = 0; i < count; i++) {
        sigma[i] = i == 0 ? 0.9 : sqrt(0.19 / (double)(count - 1));
    }
}

/* Gamma with shape 3 and scale 1/2: a sum of three exponential variables. */
static void gamma_distributed(test_rng *rng, double *sigma, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double product = 1;
        for (int j = 0; j < 3; j++) {
            product *= 1 - test_uniform(rng, 0, 1);
        }
        sigma[i] = -0.5 * log(product);
    }
}

static void evenly(test_rng *rng, double *sigma, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sigma[i] = test_uniform(rng, 0.2, 1);
    }
}

static void powers_of_two(test_rng *rng, double *sigma, size_t count)
{
    (void)rng;
    for (size_t i = 0; i < count; i++) {
        sigma[i] = ldexp(1, -(int)(i % 24));
    }
}

const spectrum spectra[] = {
    {"even", evenly, 1},
    {"even, 1e-30", evenly, 1e-30},
    {"even, 1e30", evenly, 1e30},
    {"exponential decay", exponential, 1},
    {"{0, 2}", zero_or_two, 1},
    {"linspace 0 to 0.5", linear, 1},
    {"logspace 0 to -3", three_decades, 1},
    {"logspace 0 to -5", five_decades, 1},
    {"logspace 0 to -7", seven_decades, 1},
    {"logspace 0 to -9", nine_decades, 1},
    {"half zeros", half_zeros, 1},
    {"rank 1", rank_one, 1},
    {"rank 2", rank_two, 1},
    {"rank 10", rank_ten, 1},
    {"two large, rest tiny", two_large, 1},
    {"one dominant, rest alike", one_dominant, 1},
    {"Gamma(3, 0.5)", gamma_distributed, 1},
    {"powers of two", powers_of_two, 1},
    {NULL, NULL, 0},
};

/* ---- matrices ---- */

/* `count` random orthonormal columns of length n, n >= count, as rows. */
static double *orthonormal(test_rng *rng, size_t n, size_t count)
{
    double *q = allocate(n * count * sizeof *q), *tau = allocate(count * sizeof *tau);
    test_fill_normal(rng, q, n * count);
    lapack_int length = (lapack_int)n, number = (lapack_int)count;
    if (LAPACKE_dgeqrf(LAPACK_COL_MAJOR, length, number, q, length, tau) != 0 ||
        LAPACKE_dorgqr(LAPACK_COL_MAJOR, length, number, number, q, length, tau) != 0) {
        fprintf(stderr, "LAPACK failed to make an orthogonal matrix\n");
        abort();
    }
    free(tau);
    return q;
}

/* y (rows x cols) = sum over l of u(l) weight[l] v(l), where element i of u(l) lies at
 * u[i * u_step + l * u_next] and v is count x cols. */
static void expand(size_t rows, size_t cols, size_t count, const double *u, size_t u_step,
                   size_t u_next, const double *weight, const double *v, double *y)
{
    for (size_t i = 0; i < rows; i++) {
        double *row = y + i * cols;
        for (size_t j = 0; j < cols; j++) {
            row[j] = 0;
        }
        for (size_t l = 0; l < count; l++) {
            double factor = u[i * u_step + l * u_next] * weight[l];
            for (size_t j = 0; j < cols; j++) {
                row[j] += factor * v[l * cols + j];
            }
        }
    }
}

void spectra_matrix(test_rng *rng, const double *sigma, size_t rows, size_t cols, double *x)
{
    size_t count = rows < cols ? rows : cols;
    double *u = orthonormal(rng, rows, count), *v = orthonormal(rng, cols, count);
    expand(rows, cols, count, u, 1, rows, sigma, v, x);
    free(u);
    free(v);
}

void spectra_draw(const spectrum *kind, test_rng *rng, size_t rows, size_t cols, double *x)
{
    size_t count = rows < cols ? rows : cols;
    double *sigma = allocate(count * sizeof *sigma);
    kind->fill(rng, sigma, count);
    for (size_t i = 0; i < count; i++) {
        sigma[i] *= kind->scale;
    }
    spectra_matrix(rng, sigma, rows, cols, x);
    free(sigma);
}

/* ---- element types ---- */

void *spectra_store(muonium_dtype dtype, const double *x, size_t count)
{
    void *to = allocate(count * muonium_dtype_size(dtype));
    for (size_t i = 0; i < count; i++) {
        if (dtype == MUONIUM_F32) {
            ((float *)to)[i] = (float)x[i];
        } else if (dtype == MUONIUM_F64) {
            ((double *)to)[i] = x[i];
        } else if (dtype == MUONIUM_BF16) {
            ((uint16_t *)to)[i] = mu_bf16_from_f32((float)x[i]);
        } else {
            ((uint16_t *)to)[i] = mu_f16_from_f32((float)x[i]);
        }
    }
    return to;
}

void spectra_load(muonium_dtype dtype, const void *from, double *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == MUONIUM_F32) {
            x[i] = (double)((const float *)from)[i];
        } else if (dtype == MUONIUM_F64) {
            x[i] = ((const double *)from)[i];
        } else if (dtype == MUONIUM_BF16) {
            x[i] = (double)mu_f32_from_bf16(((const uint16_t *)from)[i]);
        } else {
            x[i] = (double)mu_f32_from_f16(((const uint16_t *)from)[i]);
        }
    }
}

void spectra_round(muonium_dtype dtype, double *x, size_t count)
{
    void *rounded = spectra_store(dtype, x, count);
    spectra_load(dtype, rounded, x, count);
    free(rounded);
}

double spectra_unit(muonium_dtype dtype)
{
    switch (dtype) {
    case MUONIUM_F64:
        return 0x1p-53;
    case MUONIUM_BF16:
        return 0x1p-9;
    case MUONIUM_F16:
        return 0x1p-12;
    case MUONIUM_FIXED15:
        return 0x1p-16;
    default:
        return 0x1p-24;
    }
}

/* ---- the reference ---- */

decomposition decompose(const double *x, size_t rows, size_t cols)
{
    decomposition d = {.rows = rows, .cols = cols, .count = rows < cols ? rows : cols};
    double *copy = allocate(rows * cols * sizeof *copy);
    double *unconverged = allocate(d.count * sizeof *unconverged);
    d.u = allocate(rows * d.count * sizeof *d.u);
    d.sigma = allocate(d.count * sizeof *d.sigma);
    d.vt = allocate(d.count * cols * sizeof *d.vt);
    memcpy(copy, x, rows * cols * sizeof *copy);
    lapack_int count = (lapack_int)d.count, width = (lapack_int)cols;
    if (LAPACKE_dgesvd(LAPACK_ROW_MAJOR, 'S', 'S', (lapack_int)rows, width, copy, width, d.sigma,
                       d.u, count, d.vt, width, unconverged) != 0) {
        fprintf(stderr, "LAPACK failed to find singular values\n");
        abort();
    }
    free(copy);
    free(unconverged);
    return d;
}

void decomposition_free(decomposition *d)
{
    free(d->u);
    free(d->sigma);
    free(d->vt);
}

double composed(const double (*table)[3], int steps, double x)
{
    for (int t = 0; t < steps; t++) {
        x = table[t][0] * x + table[t][1] * x * x * x + table[t][2] * x * x * x * x * x;
    }
    return x;
}

void decomposition_map(const decomposition *d, double divisor, const double (*table)[3], int steps,
                       double *y)
{
    double *mapped = allocate(d->count * sizeof *mapped);
    for (size_t l = 0; l < d->count; l++) {
        mapped[l] = composed(table, steps, d->sigma[l] / divisor);
    }
    expand(d->rows, d->cols, d->count, d->u, d->count, 1, mapped, d->vt, y);
    free(mapped);
}

double schatten_norm(const decomposition *d, double p)
{
    double sum = 0, largest = d->sigma[0];
    for (size_t l = 0; l < d->count && largest > 0; l++) {
        sum += pow(d->sigma[l] / largest, p);
    }
    return largest * pow(sum, 1 / p);
}

void divide_rows(double *x, size_t rows, size_t cols)
{
    bool tall = rows > cols;
    size_t m = tall ? cols : rows, n = tall ? rows : cols;
    size_t row_step = tall ? 1 : cols, col_step = tall ? cols : 1;
    double *divisor = allocate(m * sizeof *divisor);
    for (size_t i = 0; i < m; i++) {
        double sum = 0;
        for (size_t j = 0; j < m; j++) {
            double dot = 0;
            for (size_t l = 0; l < n; l++) {
                dot += x[i * row_step + l * col_step] * x[j * row_step + l * col_step];
            }
            sum += fabs(dot);
        }
        divisor[i] = sum > 0 ? sqrt(sum) : 1;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t l = 0; l < n; l++) {
            x[i * row_step + l * col_step] /= divisor[i];
        }
    }
    free(divisor);
}

double relative_error(const double *a, const double *b, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(size > 0 ? difference / size : difference);
}

double distance_from_orthogonal(const double *y, size_t rows, size_t cols)
{
    bool tall = rows > cols;
    size_t m = tall ? cols : rows, n = tall ? rows : cols;
    size_t row_step = tall ? 1 : cols, col_step = tall ? cols : 1;
    double sum = 0;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j <= i; j++) {
            double dot = i == j ? -1 : 0;
            for (size_t l = 0; l < n; l++) {
                dot += y[i * row_step + l * col_step] * y[j * row_step + l * col_step];
            }
            sum += (i == j ? 1 : 2) * dot * dot;
        }
    }
    return sqrt(sum);
}

double amplification(const double (*table)[3], int steps)
{
    enum { POINTS = 400 };
    double sum = 0, top = 1;
    for (int t = 0; t < steps; t++) {
        const double *abc = table[t];
        double steepest = 0, highest = 0;
        for (int i = 0; i <= POINTS; i++) {
            double x = top * i / POINTS, y = x * x;
            double slope = fabs(abc[0] + y * (3 * abc[1] + y * 5 * abc[2]));
            double value = fabs(x * (abc[0] + y * (abc[1] + y * abc[2])));
            steepest = slope > steepest ? slope : steepest; /* by fmax, gcc 12 for aarch64 fails */
            highest = value > highest ? value : highest;
        }
        sum = sum * steepest + fabs(abc[0]) + fabs(abc[1]) + fabs(abc[2]);
        top = highest;
    }
    return sum;
}

/* ---- running the library ---- */

void spectra_table(const muonium_plan_options *options, double (*table)[3])
{
    muonium_plan *plan;
    muonium_plan_info info;
    muonium_shape one = {1, 1, 1};
    muonium_plan_options standard = *options;
    standard.form = MUONIUM_FORM_STANDARD; /* needs no search for restarts */
    assert_ok(muonium_plan_create(one, &standard, &plan));
    assert_ok(muonium_plan_describe(plan, &info));
    muonium_plan_destroy(plan);
    assert_int_equal(info.steps, options->steps);
    memcpy(table, info.table, (size_t)options->steps * sizeof *table);
}

void spectra_run(const muonium_plan_options *options, muonium_dtype dtype, size_t rows, size_t cols,
                 const double *x, double *y, muonium_certificate *certificate)
{
    size_t count = rows * cols;
    void *from = spectra_store(dtype, x, count), *to = spectra_store(dtype, x, count);
    memset(to, 0xff, count * muonium_dtype_size(dtype)); /* NaN: what is not written shows */
    muonium_shape shape = {1, rows, cols};
    muonium_view in = muonium_dense(dtype, shape, from), out = muonium_dense(dtype, shape, to);
    muonium_status status = muonium_orthogonalize(shape, options, &in, &out, certificate);
    spectra_load(dtype, to, y, count);
    free(from);
    free(to);
    assert_ok(status);
}
