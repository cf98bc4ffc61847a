/*
 * spectrum.c: eigenvalues of R: an upper bound on the largest, and the range of all.
 *
 * The bound comes from repeated squaring. ||R^p||_F^(1/p) exceeds the largest eigenvalue by a
 * factor of at most m^(1/2p); no starting vector is needed.
 *
 * The range comes from Lanczos iterations on R - I. Subtracting I first keeps all digits of the
 * distance from 1. Each iteration multiplies one vector by R. The extreme eigenvalues of the
 * small tridiagonal matrix lie within the range of those of R - I and approach its ends quickly;
 * with as many iterations as R has rows they are the ends. All vectors are kept and
 * orthogonalised against each other, so that rounding makes no copies of eigenvalues.
 */
#include <float.h>
#include <math.h>

#include "base/random.h"
#include "orthogonalize/run.h"

enum { MOST_ITERATIONS = 24, COLUMNS_PER_TASK = 128, BISECTIONS = 60 };

/* ---- the largest eigenvalue ---- */

double mu_frobenius_norm(const mu_run *run, const void *square)
{
    const muonium_plan *plan = run->plan;
    size_t row_bytes = plan->ldr * muonium_dtype_size(plan->kernel->type);
    double sum = 0;
    for (size_t i = 0; i < plan->m; i++) {
        sum += plan->rows->squares((const char *)square + i * row_bytes, plan->m, 1);
    }
    return sqrt(sum);
}

/* Squaring stops when the lower bound (||R^2p||_F / ||R^p||_F)^(1/p) is close: within 1 % for a
 * bound, within rounding for the eigenvalue itself. Equal eigenvalues need the most squarings. */
double mu_largest_eigenvalue(mu_run *run, bool bounded)
{
    const int most_squarings = bounded ? 7 : 20;
    const double close = bounded ? 1.01 : 1 + 0x1p-20;
    const muonium_plan *plan = run->plan;
    const void *power = run->square[0];
    double norm = mu_frobenius_norm(run, power);
    double log_norm = log(norm); /* of the true power, its scaling undone */
    double bound = norm, p = 1;
    for (int j = 0; j < most_squarings; j++) {
        void *next = power == run->square[1] ? run->square[2] : run->square[1];
        mu_operand factor = mu_operand_of(plan->kernel, power, plan->ldr, 1 / norm, 0);
        mu_symmul(&run->with, plan->m, &factor, &factor, next, plan->ldr);
        double previous = log_norm;
        norm = mu_frobenius_norm(run, next);
        log_norm = 2 * previous + log(norm);
        double below = exp((log_norm - previous) / p);
        p *= 2;
        bound = exp(log_norm / p);
        power = next;
        if (bound <= below * close) {
            break;
        }
    }
    /* Room for rounding in f32, and the same in f64 so that both divide alike. */
    return !bounded ? bound : bound * (1 + 0x1p-21 * (sqrt((double)plan->m) + 8));
}

/* ---- the range ---- */

/* The tridiagonal matrix: `beta[j]` couples rows j and j + 1. */
typedef struct tridiagonal {
    int size;
    double alpha[MOST_ITERATIONS], beta[MOST_ITERATIONS];
} tridiagonal;

typedef struct multiplication {
    const mu_run *run;
    const double *v;
    char *product; /* m numbers of the kernel's type */
} multiplication;

/* Basis vector j, m doubles, alternately in square[1] and square[2]. Each has
 * m rows of ldr >= m elements of at least 4 bytes, and ldr is even. */
static double *basis_at(const mu_run *run, int j)
{
    return (double *)run->square[1 + j % 2] + (size_t)(j / 2) * run->plan->m;
}

static mu_block vector_of(const mu_run *run, void *data, muonium_dtype dtype)
{
    mu_block block = {data, dtype, (ptrdiff_t)run->plan->m, 1, 1, run->plan->m};
    return block;
}

/* product += R v for some columns of R. R is symmetric: add row i times v[i]. */
static void multiply_gram_columns(void *context, size_t index, unsigned worker)
{
    const multiplication *of = context;
    const muonium_plan *plan = of->run->plan;
    size_t bytes = muonium_dtype_size(plan->kernel->type), first = index * COLUMNS_PER_TASK;
    size_t left = plan->m - first, cols = left < COLUMNS_PER_TASK ? left : COLUMNS_PER_TASK;
    (void)worker;
    for (size_t i = 0; i < plan->m; i++) {
        const char *row = (const char *)of->run->square[0] + (i * plan->ldr + first) * bytes;
        plan->rows->add(of->product + first * bytes, row, cols, of->v[i], true);
    }
}

/* w = (R - I) v; `product` is memory for m numbers of the kernel's type. */
static void multiply_by_gram(const mu_run *run, const double *v, void *product, double *w)
{
    const muonium_plan *plan = run->plan;
    mu_block rounded = vector_of(run, product, plan->kernel->type);
    multiplication of = {run, v, product};
    plan->wide->store(v, plan->m, &rounded);
    plan->rows->scale(product, plan->m, -1);
    mu_pool_run(multiply_gram_columns, &of, (plan->m + COLUMNS_PER_TASK - 1) / COLUMNS_PER_TASK,
                run->with.workers);
    plan->wide->load(&rounded, w, plan->m);
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Basis vector j = w / norm. */
static void add_to_basis(const mu_run *run, int j, const double *w, double norm)
{
    double *v = basis_at(run, j);
    for (size_t i = 0; i < run->plan->m; i++) {
        v[i] = w[i] / norm;
    }
}

/* Subtract from w its projection on the first `size` basis vectors. */
static void project_out(const mu_run *run, int size, double *w)
{
    size_t m = run->plan->m;
    for (int k = 0; k < size; k++) {
        const double *v = basis_at(run, k);
        double along = dot(w, v, m);
        for (size_t i = 0; i < m; i++) {
            w[i] -= along * v[i];
        }
    }
}

static tridiagonal lanczos(const mu_run *run)
{
    size_t m = run->plan->m;
    double *product = run->row_sums, *w = run->row_sums + m;
    tridiagonal t = {0};
    for (size_t i = 0; i < m; i++) {
        uint32_t words[4];
        mu_random(0, i, 0, words);
        w[i] = mu_random_unit(words[0]) - 0.5;
    }
    add_to_basis(run, 0, w, sqrt(dot(w, w, m)));
    while (t.size < MOST_ITERATIONS && (size_t)t.size < m) {
        int j = t.size++;
        multiply_by_gram(run, basis_at(run, j), product, w);
        double before = sqrt(dot(w, w, m));
        t.alpha[j] = dot(w, basis_at(run, j), m);
        /* Twice: where little of w is left, the first pass leaves it far from orthogonal. */
        project_out(run, t.size, w);
        project_out(run, t.size, w);
        t.beta[j] = sqrt(dot(w, w, m));
        if (t.beta[j] <= 64 * DBL_EPSILON * before) {
            break; /* the basis spans an invariant space */
        }
        if ((size_t)t.size < m && t.size < MOST_ITERATIONS) {
            add_to_basis(run, t.size, w, t.beta[j]);
        }
    }
    return t;
}

/* How many eigenvalues are below x: the negative pivots of the elimination (Sturm). */
static int count_below(const tridiagonal *t, double x)
{
    int count = 0;
    double pivot = 1;
    for (int j = 0; j < t->size; j++) {
        double coupling = j > 0 ? t->beta[j - 1] * t->beta[j - 1] : 0;
        pivot = t->alpha[j] - x - coupling / pivot;
        pivot = pivot == 0 ? -DBL_MIN : pivot;
        count += pivot < 0;
    }
    return count;
}

/* Eigenvalue number `index`, in ascending order, within [low, high]. */
static double eigenvalue(const tridiagonal *t, int index, double low, double high)
{
    for (int i = 0; i < BISECTIONS; i++) {
        double middle = low + (high - low) / 2;
        if (count_below(t, middle) > index) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return low + (high - low) / 2;
}

void mu_singular_range(const mu_run *run, double *lowest, double *highest)
{
    tridiagonal t = lanczos(run);
    double reach = 0; /* no eigenvalue is larger in magnitude (Gershgorin) */
    for (int j = 0; j < t.size; j++) {
        double row = fabs(t.alpha[j]) + (j > 0 ? t.beta[j - 1] : 0) + t.beta[j];
        reach = row > reach ? row : reach;
    }
    *lowest = sqrt(fmax(1 + eigenvalue(&t, 0, -reach, reach), 0));
    *highest = sqrt(fmax(1 + eigenvalue(&t, t.size - 1, -reach, reach), 0));
}
