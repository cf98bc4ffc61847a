/*
 * elementwise_portable.c: the element-wise kernels for any CPU.
 */
#define NAME portable
#include "vector/kernels/elementwise_template.h"
