/* The smallest complete program: moves a matrix to the identity. */
#include <muonium.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 8, STEPS = 200 };

static void check(muonium_status status)
{
    if (status != MUONIUM_OK) {
        fprintf(stderr, "%s\n", muonium_last_error());
        exit(1);
    }
}

int main(void)
{
    static float w[N * N], gradient[N * N];
    muonium_tensor weight = {.name = "w", .ndim = 2, .shape = {N, N}, .data = w, .grad = gradient};
    muonium_optimizer *optimizer;

    check(muonium_create(NULL, &optimizer)); /* NULL: the default options */
    check(muonium_add(optimizer, &weight, NULL));
    for (int step = 0; step <= STEPS; step++) {
        double loss = 0; /* half the squared distance from the identity */
        for (int i = 0; i < N * N; i++) {
            gradient[i] = w[i] - (i % (N + 1) == 0);
            loss += gradient[i] * gradient[i] / 2;
        }
        if (step % 50 == 0) {
            printf("step %3d  loss %.3f\n", step, loss);
        }
        check(muonium_set_lr(optimizer, NULL, 0.05 * (STEPS - step) / STEPS));
        check(muonium_step(optimizer));
    }
    muonium_destroy(optimizer);
    return 0;
}
