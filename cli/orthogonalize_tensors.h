/*
 * orthogonalize_tensors.h: the polar factors of every matrix of a safetensors file.
 */
#ifndef CLI_ORTHOGONALIZE_TENSORS_H
#define CLI_ORTHOGONALIZE_TENSORS_H

#include "command.h"

/* Replace the matrices at a view by their polar factors, and tell of the plan. */
muonium_status orthogonalize_view(muonium_shape shape, const muonium_plan_options *chosen,
                                  const muonium_view *view, muonium_plan_info *info,
                                  muonium_certificate *certificates);

/* The whole command, for files of that format; returns the exit code. */
int orthogonalize_tensors(const command *self, const char *in, const char *out,
                          const muonium_plan_options *chosen, bool as_json);

#endif
