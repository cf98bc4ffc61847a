/*
 * gpt.c: the GPT of the demo, trained data-parallel. Every rank holds the model and takes its
 * share of the same global batch, so that any number of ranks that divides the batch learns
 * what one process learns, up to the rounding of sums:
 *
 *     mpirun -n 1 build/examples/mpi_gpt
 *     mpirun -n 4 build/examples/mpi_gpt [STEPS [CHECKPOINT]]
 *
 * With a checkpoint, the state is saved at the end.
 */
#include <stdio.h>
#include <stdlib.h>

#include <muonium_mpi.h>

#include "../gpt/corpus.h"
#include "../gpt/model.h"

enum { SEQUENCES = 24, LAYERS = 2, WIDTH = 96, HEADS = 3, CONTEXT = 64, BATCHES = 4 };

static int rank, ranks;

static void check(muonium_status status)
{
    if (status != MUONIUM_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, muonium_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* As in one process, but for the name of the first call. */
static muonium_optimizer *describe(gpt_model *model)
{
    muonium_optimizer *description;
    check(muonium_create_description(NULL, &description));
    for (size_t i = 0; i < model->parameter_count; i++) {
        const gpt_parameter *p = &model->parameters[i];
        muonium_tensor tensor = {
            .name = p->name,
            .ndim = p->ndim,
            .shape = {p->rows, p->cols},
            .data = model->weights + p->offset,
            .grad = model->gradients + p->offset,
            .heads = p->fused ? 3 : 0,
        };
        check(muonium_add(description, &tensor, NULL));
    }
    return description;
}

static void print_line(void *context, const char *line)
{
    if (*(int *)context > 0) {
        --*(int *)context;
        printf("%s\n", line);
    }
}

/* The mean over all ranks. */
static double mean_of(double value)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return value / ranks;
}

static double validate(gpt_pass *pass, const gpt_model *model, const gpt_corpus *corpus,
                       unsigned char *tokens, unsigned char *targets)
{
    double sum = 0;
    size_t share = SEQUENCES / (size_t)ranks, skip = (size_t)rank * share * CONTEXT;
    for (size_t i = 0; i < BATCHES; i++) {
        gpt_corpus_validation(corpus, i, BATCHES, SEQUENCES, CONTEXT, tokens, targets);
        sum += gpt_loss(pass, model, share, tokens + skip, targets + skip);
    }
    return mean_of(sum / BATCHES);
}

static void train(long steps, const char *checkpoint)
{
    size_t size, share = SEQUENCES / (size_t)ranks, skip = (size_t)rank * share * CONTEXT;
    const unsigned char *text = gpt_corpus_builtin(&size);
    gpt_corpus corpus;
    problem what;
    gpt_model *model;
    gpt_pass *pass;
    muonium_mpi *dist;
    static unsigned char tokens[SEQUENCES * CONTEXT], targets[SEQUENCES * CONTEXT];
    if (!gpt_corpus_create(text, size, CONTEXT, &corpus, &what)) {
        fprintf(stderr, "%s\n", what.text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    gpt_shape shape = {LAYERS, WIDTH, HEADS, CONTEXT, corpus.vocabulary};
    check(gpt_model_create(shape, 1, &model));
    check(gpt_pass_create(shape, share, &pass));
    muonium_optimizer *description = describe(model);
    check(muonium_mpi_create(MPI_COMM_WORLD, description, NULL, &dist));
    int lines = rank == 0 ? ranks + 1 : 0;
    check(muonium_mpi_report(dist, print_line, &lines));
    for (long step = 0; step < steps; step++) {
        gpt_corpus_draw(&corpus, 1, (uint64_t)step, SEQUENCES, CONTEXT, tokens, targets);
        double loss = gpt_loss(pass, model, share, tokens + skip, targets + skip);
        gpt_backward(pass, model);
        check(muonium_set_lr(description, NULL, 0.02 * (1 - (double)step / (double)steps)));
        check(muonium_mpi_step(dist)); /* averages, steps, and brings all models up to date */
        loss = mean_of(loss);
        if (rank == 0 && step % 20 == 0) {
            printf("step %4ld  loss %.4f\n", step, loss);
            fflush(stdout);
        }
    }
    double loss = validate(pass, model, &corpus, tokens, targets);
    if (checkpoint) {
        check(muonium_mpi_save(dist, checkpoint));
    }
    if (rank == 0) {
        printf("validation loss after %ld steps on %d ranks: %.4f\n", steps, ranks, loss);
    }
    muonium_mpi_destroy(dist);
    muonium_destroy(description);
    gpt_pass_destroy(pass);
    gpt_model_destroy(model);
    gpt_corpus_destroy(&corpus);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 100;
    if (SEQUENCES % ranks != 0 || steps < 1) {
        fprintf(stderr, "use a number of ranks that divides %d, and at least one step\n",
                SEQUENCES);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    train(steps, argc > 2 ? argv[2] : NULL);
    MPI_Finalize();
    return 0;
}
