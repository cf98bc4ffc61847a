/* The smallest complete program: learns a matrix from examples of what it does. */
#include <muonium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT = 4, IN = 8, EXAMPLES = 64, STEPS = 200 };

static float w[OUT][IN], gradient[OUT][IN], x[EXAMPLES][IN], y[EXAMPLES][OUT];

/* The mean squared error of predicting y by w x; fills the gradient. */
static double loss(void *unused)
{
    double sum = 0;
    (void)unused;
    memset(gradient, 0, sizeof gradient);
    for (int e = 0; e < EXAMPLES; e++) {
        for (int i = 0; i < OUT; i++) {
            float error = -y[e][i];
            for (int j = 0; j < IN; j++) {
                error += w[i][j] * x[e][j];
            }
            for (int j = 0; j < IN; j++) {
                gradient[i][j] += 2 * error * x[e][j] / EXAMPLES;
            }
            sum += error * error / EXAMPLES;
        }
    }
    return sum;
}

static void check(muonium_status status)
{
    if (status != MUONIUM_OK) {
        fprintf(stderr, "%s\n", muonium_last_error());
        exit(1);
    }
}

int main(void)
{
    for (int e = 0; e < EXAMPLES; e++) {
        for (int j = 0; j < IN; j++) {
            x[e][j] = (float)((e * e + 7 * e * j + 3 * j) % 17) / 8 - 1;
        }
        for (int i = 0; i < OUT; i++) {
            y[e][i] = x[e][i] - 2 * x[e][i + 4];
        }
    }

    muonium_optimizer *optimizer;
    check(muonium_create(NULL, &optimizer)); /* NULL: the default options */
    muonium_tensor weights = {.name = "w",
                              .dtype = MUONIUM_F32,
                              .ndim = 2,
                              .shape = {OUT, IN},
                              .data = w,
                              .grad = gradient};
    check(muonium_add(optimizer, &weights, NULL));
    for (int step = 0; step < STEPS; step++) {
        double before;
        check(muonium_set_lr(optimizer, NULL, 0.1 * (STEPS - step) / STEPS));
        check(muonium_step_with(optimizer, loss, NULL, &before));
        if (step % 50 == 0) {
            printf("step %3d  loss %.3f\n", step, before);
        }
    }
    printf("step %3d  loss %.3f\n", STEPS, loss(NULL));
    muonium_destroy(optimizer);
    return 0;
}
