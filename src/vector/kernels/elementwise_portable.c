/*
 * elementwise_portable.c: the element-wise kernels for any CPU.
 */
#define ELEMENTWISE mu_elementwise_portable
#define ISA MU_ISA_PORTABLE
#include "vector/kernels/elementwise_template.h"
