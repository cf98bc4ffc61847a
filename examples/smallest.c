/* The smallest complete program: moves a matrix to the identity. */
#include <muonium.h>
#include <stdio.h>

enum { N = 8, STEPS = 200 };

int main(void)
{
    static float w[N * N], gradient[N * N];
    muonium_tensor weight = {.name = "w", .ndim = 2, .shape = {N, N}, .data = w, .grad = gradient};
    muonium_optimizer *optimizer = NULL;
    bool ok = muonium_create(NULL, &optimizer) == MUONIUM_OK && /* NULL: the default options */
              muonium_add(optimizer, &weight, NULL) == MUONIUM_OK;
    for (int step = 0; ok && step <= STEPS; step++) {
        double loss = 0; /* half the squared distance from the identity */
        for (int i = 0; i < N * N; i++) {
            gradient[i] = w[i] - (i % (N + 1) == 0);
            loss += gradient[i] * gradient[i] / 2;
        }
        if (step % 50 == 0) {
            printf("step %3d  loss %.3f\n", step, loss);
        }
        muonium_set_lr(optimizer, NULL, 0.05 * (STEPS - step) / STEPS);
        ok = muonium_step(optimizer) == MUONIUM_OK;
    }
    if (!ok) {
        fprintf(stderr, "%s\n", muonium_last_error());
    }
    muonium_destroy(optimizer);
    return ok ? 0 : 1;
}
