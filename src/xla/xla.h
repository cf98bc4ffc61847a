/*
 * xla.h: the handler by which XLA, and with it JAX, calls the library, and the plans that it keeps.
 * Beside the public interface it uses src/base and the table of options.
 */
#ifndef MU_XLA_H
#define MU_XLA_H

#include "base/base.h"
#include "xla/ffi.h"

/* The handler to register with XLA for the platform "Host": in Python,
 *
 *     jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(library.muonium_xla_orthogonalize),
 *                                 platform="cpu")
 *
 * A call orthogonalises all matrices of its arguments, which are one or more arrays of two
 * dimensions or more; the last two are those of a matrix. Every result has the type and the shape
 * of its argument, and may be the same memory.
 *
 * A string attribute sets the option of its name, an option of muonium_plan_options, to its text.
 * The attribute "table", an array of doubles, has the coefficients of the iterations, three for
 * each; instead of it one more argument may have them, f32 or f64 of the shape (..., rows, 3).
 * The leading dimensions of that argument, if any, are leading dimensions of all other arguments:
 * each of its tables is for the matrices with the same index.
 *
 * An error has the message of the library. A matrix that is skipped (nonfinite=skip) becomes
 * zero. Calls may come from any number of threads. */
MUONIUM_API mu_xla_error *muonium_xla_orthogonalize(mu_xla_frame *frame);

/* ---- settings.c ---- */

/* The options that the string attributes stand for, if a recent call had the same; else false. */
bool mu_xla_settings_find(const mu_xla_attributes *attributes, muonium_options *options);
void mu_xla_settings_keep(const mu_xla_attributes *attributes, const muonium_options *options);

/* ---- plans.c ---- */

/* The plan for a shape and options, from those that are kept, since creating one takes longer
 * than a small execution. Give it back afterwards. NULL, with the library's message, if there is
 * no such plan. */
typedef struct mu_xla_plan mu_xla_plan;
muonium_status mu_xla_plan_take(muonium_shape shape, const muonium_plan_options *options,
                                mu_xla_plan **taken);
const muonium_plan *mu_xla_plan_of(const mu_xla_plan *taken);
void mu_xla_plan_return(mu_xla_plan *taken);

#endif
