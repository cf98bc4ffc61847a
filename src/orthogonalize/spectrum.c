/*
 * spectrum.c: the range of the result's singular values, by the Lanczos iteration on
 * R - I, where R = Y Y^T is there already. Subtracting I first keeps all digits of what
 * matters, the distance from 1.
 *
 * An iteration multiplies one vector by R. The extreme eigenvalues of the small tridiagonal
 * matrix lie within the range of those of R - I and approach its ends quickly; with as many
 * iterations as R has rows they are the ends. All vectors are kept and orthogonalised
 * against each other, so that rounding makes no copies of eigenvalues.
 */
#include <float.h>
#include <math.h>

#include "base/random.h"
#include "orthogonalize/plan.h"

enum { MOST_ITERATIONS = 24, COLUMNS_PER_TASK = 128, BISECTIONS = 60 };

/* The tridiagonal matrix: `beta[j]` couples rows j and j + 1. */
typedef struct tridiagonal {
    int size;
    double alpha[MOST_ITERATIONS], beta[MOST_ITERATIONS];
} tridiagonal;

typedef struct multiplication {
    const mu_iteration *it;
    const double *v;
    char *product; /* m numbers of the kernel's type */
} multiplication;

/* Basis vector j, m doubles, in the second and the third square in turn. Each of these has
 * m rows of ldr >= m elements of at least 4 bytes, and ldr is even. */
static double *basis_at(const mu_iteration *it, int j)
{
    return (double *)it->square[1 + j % 2] + (size_t)(j / 2) * it->plan->m;
}

static mu_block vector_of(const mu_iteration *it, void *data, muonium_dtype dtype)
{
    mu_block block = {data, dtype, (ptrdiff_t)it->plan->m, 1, 1, it->plan->m};
    return block;
}

/* product += R v, some columns of R, which is symmetric: row i times v[i]. */
static void multiply_columns(void *context, size_t index, unsigned worker)
{
    const multiplication *of = context;
    const muonium_plan *plan = of->it->plan;
    size_t bytes = muonium_dtype_size(plan->kernel->type), first = index * COLUMNS_PER_TASK;
    size_t left = plan->m - first, cols = left < COLUMNS_PER_TASK ? left : COLUMNS_PER_TASK;
    (void)worker;
    for (size_t i = 0; i < plan->m; i++) {
        const char *row = (const char *)of->it->square[0] + (i * plan->ldr + first) * bytes;
        plan->rows->add(of->product + first * bytes, row, cols, of->v[i], true);
    }
}

/* w = (R - I) v; `product` is memory for m numbers of the kernel's type. */
static void multiply(const mu_iteration *it, const double *v, void *product, double *w)
{
    const muonium_plan *plan = it->plan;
    mu_block rounded = vector_of(it, product, plan->kernel->type);
    multiplication of = {it, v, product};
    plan->wide->store(v, plan->m, &rounded);
    plan->rows->scale(product, plan->m, -1);
    mu_pool_run(multiply_columns, &of, (plan->m + COLUMNS_PER_TASK - 1) / COLUMNS_PER_TASK,
                it->with.workers);
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

/* w, normalised, is the next basis vector. */
static void add_to_basis(const mu_iteration *it, int j, const double *w, double norm)
{
    double *v = basis_at(it, j);
    for (size_t i = 0; i < it->plan->m; i++) {
        v[i] = w[i] / norm;
    }
}

/* Subtract from w its projection on the first `size` basis vectors. */
static void leave_basis(const mu_iteration *it, int size, double *w)
{
    size_t m = it->plan->m;
    for (int k = 0; k < size; k++) {
        const double *v = basis_at(it, k);
        double along = dot(w, v, m);
        for (size_t i = 0; i < m; i++) {
            w[i] -= along * v[i];
        }
    }
}

static tridiagonal iterate(const mu_iteration *it)
{
    size_t m = it->plan->m;
    double *product = it->row_sums, *w = it->row_sums + m;
    tridiagonal t = {0};
    for (size_t i = 0; i < m; i++) {
        uint32_t words[4];
        mu_random(0, i, 0, words);
        w[i] = mu_random_unit(words[0]) - 0.5;
    }
    add_to_basis(it, 0, w, sqrt(dot(w, w, m)));
    while (t.size < MOST_ITERATIONS && (size_t)t.size < m) {
        int j = t.size++;
        multiply(it, basis_at(it, j), product, w);
        double before = sqrt(dot(w, w, m));
        t.alpha[j] = dot(w, basis_at(it, j), m);
        /* Twice: where little of w is left, the first pass leaves it far from orthogonal. */
        leave_basis(it, t.size, w);
        leave_basis(it, t.size, w);
        t.beta[j] = sqrt(dot(w, w, m));
        if (t.beta[j] <= 64 * DBL_EPSILON * before) {
            break; /* the basis spans an invariant space */
        }
        if ((size_t)t.size < m && t.size < MOST_ITERATIONS) {
            add_to_basis(it, t.size, w, t.beta[j]);
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

void mu_singular_range(const mu_iteration *it, double *lowest, double *highest)
{
    tridiagonal t = iterate(it);
    double reach = 0; /* no eigenvalue is larger in magnitude (Gershgorin) */
    for (int j = 0; j < t.size; j++) {
        double row = fabs(t.alpha[j]) + (j > 0 ? t.beta[j - 1] : 0) + t.beta[j];
        reach = row > reach ? row : reach;
    }
    *lowest = sqrt(fmax(1 + eigenvalue(&t, 0, -reach, reach), 0));
    *highest = sqrt(fmax(1 + eigenvalue(&t, t.size - 1, -reach, reach), 0));
}
