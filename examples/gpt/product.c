/*
 * product.c: the result is divided into blocks. The worker that computes a block packs the rows of
 * a and columns of b that it needs into scratch memory of its own.
 * Every element is summed in the order of k whatever the blocks are, so neither their
 * size nor the number of threads changes a bit.
 */
#include "product.h"

#include <stdlib.h>

#include "matmul/kernel.h"

enum { BLOCK = 2 * MU_BLOCK }; /* rows and columns of a block, whole panels of every kernel */

struct gpt_machine {
    const mu_kernel *kernel;
    unsigned workers;
    size_t scratch_per_worker; /* elements */
    float *scratch;
};

gpt_matrix gpt_rows(const float *data, size_t cols)
{
    return (gpt_matrix){data, (ptrdiff_t)cols, 1};
}

gpt_matrix gpt_transposed(const float *data, size_t cols)
{
    return (gpt_matrix){data, 1, (ptrdiff_t)cols};
}

muonium_status gpt_machine_create(gpt_machine **machine)
{
    const mu_kernel *kernel;
    muonium_status status = mu_kernel_choose(MUONIUM_F32, &kernel);
    if (status != MUONIUM_OK) {
        return status;
    }
    gpt_machine *made = malloc(sizeof *made);
    unsigned workers = mu_pool_workers();
    size_t elements = 2 * BLOCK * kernel->kc; /* fits into a usual L2 cache */
    float *scratch = mu_alloc(workers * elements * sizeof *scratch);
    if (made == NULL || scratch == NULL) {
        free(made);
        mu_free(scratch);
        return mu_fail(MUONIUM_NO_MEMORY, "no memory for the scratch of %u threads", workers);
    }
    *made = (gpt_machine){kernel, workers, elements, scratch};
    *machine = made;
    return MUONIUM_OK;
}

void gpt_machine_destroy(gpt_machine *machine)
{
    if (machine != NULL) {
        mu_free(machine->scratch);
        free(machine);
    }
}

unsigned gpt_machine_workers(const gpt_machine *machine)
{
    return machine->workers;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Rows i0 to i0 + rows, columns j0 to j0 + cols of the result. */
static void multiply_block(const gpt_machine *machine, unsigned worker, const gpt_product *p,
                           size_t i0, size_t rows, size_t j0, size_t cols)
{
    const mu_kernel *kernel = machine->kernel;
    const size_t mr = kernel->mr, nr = kernel->nr;
    float *packed_a = machine->scratch + worker * machine->scratch_per_worker;
    float *packed_b = packed_a + BLOCK * kernel->kc;
    for (size_t k0 = 0; k0 < p->k; k0 += kernel->kc) {
        const size_t k = least(kernel->kc, p->k - k0);
        mu_pack_source left = {.data =
                                   p->a.data + (ptrdiff_t)i0 * p->a.row + (ptrdiff_t)k0 * p->a.col,
                               .dtype = MUONIUM_F32,
                               .line_stride = p->a.row,
                               .k_stride = p->a.col,
                               .scale = (double)p->scale};
        mu_pack_source right = {.data =
                                    p->b.data + (ptrdiff_t)k0 * p->b.row + (ptrdiff_t)j0 * p->b.col,
                                .dtype = MUONIUM_F32,
                                .line_stride = p->b.col,
                                .k_stride = p->b.row,
                                .scale = 1};
        kernel->pack_a(&left, rows, k, packed_a, mr * k);
        kernel->pack_b(&right, cols, k, packed_b, nr * k);
        for (size_t j = 0; j < cols; j += nr) {
            for (size_t i = 0; i < rows; i += mr) {
                kernel->tile(k, k, packed_a + i * k, 1, (ptrdiff_t)mr, packed_b + j * k,
                             (ptrdiff_t)nr, p->c + (i0 + i) * p->c_row + j0 + j,
                             (ptrdiff_t)p->c_row, least(mr, rows - i), least(nr, cols - j),
                             p->accumulate || k0 > 0);
            }
        }
    }
}

typedef struct blocked {
    const gpt_machine *machine;
    const gpt_product *product;
    size_t rows, cols; /* of a block */
    size_t across;     /* blocks side by side */
} blocked;

static void multiply_task(void *context, size_t index, unsigned worker)
{
    const blocked *work = context;
    const gpt_product *p = work->product;
    size_t i0 = index / work->across * work->rows, j0 = index % work->across * work->cols;
    multiply_block(work->machine, worker, p, i0, least(work->rows, p->m - i0), j0,
                   least(work->cols, p->n - j0));
}

static size_t pieces(size_t whole, size_t piece)
{
    return (whole + piece - 1) / piece;
}

void gpt_multiply(const gpt_machine *machine, const gpt_product *product)
{
    /* Smaller blocks cost more packing, so only as small as it takes to occupy everyone. */
    const size_t mr = machine->kernel->mr, nr = machine->kernel->nr;
    size_t rows = BLOCK, cols = BLOCK, enough = machine->workers > 1 ? 4 * machine->workers : 1;
    while (pieces(product->m, rows) * pieces(product->n, cols) < enough &&
           (rows > mr || cols > nr)) {
        size_t *larger = rows > mr && (rows >= cols || cols <= nr) ? &rows : &cols;
        const size_t panel = larger == &rows ? mr : nr;
        *larger = mu_round_up(*larger / 2, panel);
    }
    const size_t across = pieces(product->n, cols), blocks = across * pieces(product->m, rows);
    blocked work = {machine, product, rows, cols, across};
    mu_pool_run(multiply_task, &work, blocks, machine->workers);
}

void gpt_multiply_alone(const gpt_machine *machine, unsigned worker, const gpt_product *product)
{
    for (size_t i = 0; i < product->m; i += BLOCK) {
        for (size_t j = 0; j < product->n; j += BLOCK) {
            multiply_block(machine, worker, product, i, least(BLOCK, product->m - i), j,
                           least(BLOCK, product->n - j));
        }
    }
}
