/*
 * columns.c: orthogonalises a matrix that is distributed by columns, as tensor-parallel weights
 * are, without gathering it. Sums over columns are those of across.c.
 */
#include "mpi/distributed.h"

#include <math.h>
#include <string.h>

#include "mpi/sharing.h"
#include "orthogonalize/plan.h"

static const char what[] = "orthogonalising shared columns";

struct muonium_mpi_columns {
    muonium_mpi d; /* only its communicators and waits are used */
    muonium_plan *plan;
    size_t rows, cols; /* on this rank */
    size_t all;        /* columns of all ranks */
    mu_sharing sharing;
    void *workspace;
    float *values; /* our columns, dense */
    muonium_nonfinite nonfinite;
};

/* ---- making ---- */

/* Count the columns of the ranks before this one, and of all ranks. */
static muonium_status count_columns(muonium_mpi_columns *c, size_t *before)
{
    muonium_mpi *d = &c->d;
    uint64_t *widths = mu_alloc((size_t)d->ranks * sizeof *widths), mine = c->cols;
    MPI_Request request;
    muonium_status status = mu_agree(
        d, widths ? MUONIUM_OK : mu_fail(MUONIUM_NO_MEMORY, "no memory for %d ranks", d->ranks),
        what);
    if (status == MUONIUM_OK) {
        widths[d->rank] = mine;
        status = mu_mpi_ok(d,
                           MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, widths, 1,
                                          MPI_UINT64_T, d->comm, &request),
                           what);
        status = status == MUONIUM_OK ? mu_wait(d, &request, what) : status;
    }
    *before = c->all = 0;
    for (int r = 0; status == MUONIUM_OK && r < d->ranks; r++) {
        *before += r < d->rank ? widths[r] : 0;
        c->all += widths[r];
    }
    mu_release(d, widths);
    return status;
}

static muonium_status plan_columns(muonium_mpi_columns *c, const muonium_plan_options *options)
{
    if (c->rows > c->all) {
        return mu_fail(MUONIUM_INVALID,
                       "the matrix has %zu rows and %zu columns on all ranks: it must be split "
                       "along its longer side; pass views with rows and columns exchanged",
                       c->rows, c->all);
    }
    muonium_status status =
        muonium_plan_create((muonium_shape){1, c->rows, c->all}, options, &c->plan);
    if (status != MUONIUM_OK) {
        return status;
    }
    c->nonfinite = c->plan->options.nonfinite;
    size_t block = 0;
    status = mu_block_of_precision(c->plan->options.precision, c->all, &block);
    if (status == MUONIUM_OK) {
        status = mu_plan_narrow(c->plan, c->cols);
    }
    if (status == MUONIUM_OK) {
        status =
            mu_sharing_make(&c->d, c->rows, c->all, c->cols, block, c->plan->kernel, &c->sharing);
        c->sharing.before = c->d.rank - 1;
        c->sharing.after = c->d.rank + 1 < c->d.ranks ? c->d.rank + 1 : -1;
        c->sharing.across.first = c->d.rank == 0;
    }
    if (status == MUONIUM_OK) {
        c->workspace = mu_alloc(c->plan->workspace_bytes);
        c->values = mu_alloc(c->rows * c->cols * sizeof *c->values);
        if (!c->workspace || !c->values) {
            status = mu_fail(MUONIUM_NO_MEMORY, "no memory for %zu x %zu", c->rows, c->cols);
        }
    }
    return status;
}

muonium_status muonium_mpi_columns_create(MPI_Comm comm, size_t rows, size_t cols,
                                          const muonium_plan_options *options, double deadline,
                                          muonium_mpi_columns **columns)
{
    static muonium_mpi_columns spare; /* as in muonium_mpi_create */
    if (mu_check_version() != MUONIUM_OK) {
        return MUONIUM_INVALID;
    }
    if (comm == MPI_COMM_NULL || spare.d.broken) {
        return comm == MPI_COMM_NULL ? mu_fail(MUONIUM_INVALID, "comm is MPI_COMM_NULL")
                                     : mu_usable(&spare.d);
    }
    muonium_mpi_columns *made = mu_alloc_zeroed(sizeof *made), *c = made ? made : &spare;
    size_t before = 0;
    c->rows = rows;
    c->cols = cols;
    muonium_mpi_options_init(&c->d.options);
    c->d.options.deadline = deadline > 0 ? deadline : c->d.options.deadline;
    muonium_status status = mu_connect(&c->d, comm);
    if (status == MUONIUM_OK) {
        if (!made) {
            status = mu_fail(MUONIUM_NO_MEMORY, "no memory for shared columns");
        } else if (!columns) {
            status = mu_fail(MUONIUM_INVALID, "columns is NULL");
        } else if (rows == 0 || cols == 0) {
            status = mu_fail(MUONIUM_INVALID,
                             "rows is %zu and cols %zu: every rank needs at least one of each",
                             rows, cols);
        }
        status = mu_agree(&c->d, status, what);
    }
    if (status == MUONIUM_OK) {
        status = count_columns(c, &before);
    }
    if (status == MUONIUM_OK) {
        status = mu_agree(&c->d, plan_columns(c, options), what);
    }
    mu_settle(&c->d);
    if (status == MUONIUM_OK) {
        *columns = c;
    } else if (made) {
        muonium_mpi_columns_destroy(made);
    } else if (!c->d.broken) {
        mu_disconnect(&c->d);
    }
    return status;
}

void muonium_mpi_columns_destroy(muonium_mpi_columns *c)
{
    if (!c || c->d.broken) {
        return; /* MPI may still write to the memory */
    }
    mu_sharing_free(&c->sharing);
    muonium_plan_destroy(c->plan);
    mu_free(c->workspace);
    mu_free(c->values);
    mu_disconnect(&c->d);
    mu_free(c);
}

/* ---- using ---- */

/* A block of columns is one piece, as in the Gram matrix. */
static mu_survey survey_columns(const muonium_mpi_columns *c)
{
    const mu_across *across = &c->sharing.across;
    size_t blocks = (c->cols + across->block - 1) / across->block;
    double *memory = across->memory;
    mu_row_survey s = {.rows = c->rows,
                       .sums = memory,
                       .largest = memory + blocks * c->rows,
                       .pieces = blocks,
                       .stride = c->rows,
                       .across = across};
    for (size_t row = 0; row < c->rows; row++) {
        mu_survey_start_row(&s, row);
        for (size_t k = 0, col = 0; k < blocks; k++, col += across->block) {
            size_t cols = c->cols - col < across->block ? c->cols - col : across->block;
            const float *values = c->values + row * c->cols + col;
            mu_survey_add(&s, row, k, c->plan->rows->stats(values, cols, 1));
        }
    }
    return mu_survey_of_rows(&s);
}

static muonium_status execute_columns(muonium_mpi_columns *c, muonium_certificate *certificate)
{
    mu_survey s = survey_columns(c);
    if (!c->d.broken && c->nonfinite == MUONIUM_NONFINITE_ERROR && !isfinite(s.largest)) {
        return mu_fail(MUONIUM_NON_FINITE,
                       "the matrix has elements that are not finite, on some rank: nothing was "
                       "written; set nonfinite to skip or propagate to go on");
    }
    mu_oriented matrix = {(char *)c->values, MUONIUM_F32, (ptrdiff_t)c->cols, 1};
    mu_plan_run_across(c->plan, &matrix, &s, &c->sharing.across, c->workspace, certificate);
    return mu_usable(&c->d);
}

muonium_status muonium_mpi_columns_execute_sized(muonium_mpi_columns *c, const muonium_view *in,
                                                 const muonium_view *out,
                                                 muonium_certificate *certificate, size_t size)
{
    if (!c || !in || !out || !in->data || !out->data) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL",
                       !c                 ? "columns"
                       : !in || !in->data ? "in"
                                          : "out");
    }
    muonium_status status = mu_usable(&c->d);
    if (status != MUONIUM_OK) {
        return status;
    }
    mu_block from = {in->data, in->dtype, in->row_stride, in->col_stride, c->rows, c->cols};
    muonium_certificate found = {.outcome = MUONIUM_ORTHOGONALIZED};
    mu_block to = {out->data, out->dtype, out->row_stride, out->col_stride, c->rows, c->cols};
    const mu_rows *rows = NULL;
    status = mu_rows_choose(MUONIUM_F32, &rows);
    mu_fenv environment = mu_fenv_enter();
    if (status == MUONIUM_OK) {
        rows->load(&from, c->values, c->cols);
        status = execute_columns(c, &found);
    }
    if (status == MUONIUM_OK) {
        if (certificate) {
            mu_sized_write(certificate, size, &found, sizeof found);
        }
        rows->store(c->values, c->cols, &to);
    }
    mu_fenv_leave(environment);
    return status;
}
