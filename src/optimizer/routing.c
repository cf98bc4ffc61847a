/*
 * routing.c: chooses Muon or AdamW for a parameter, and gives the reason.
 *
 * A route that the caller gives comes first, then the name, then the shape. The rule,
 * options.routing, says which names and shapes. The reason is a short text that reports and
 * logs show.
 */
#include "optimizer/optimizer.h"

#include "optimizer/names.h"

#include <stdio.h>
#include <string.h>

/* ---- rules ---- */

/* Names of embeddings, output heads, norms, biases, routers and gains in the model families
 * of tests/optimizer/test_routing_families.c. */
static const mu_name_pattern default_patterns[] = {
    {"*embed*", MU_NAME_WORD},
    {"*emb", MU_NAME_WORD},
    {"wte", MU_NAME_PART},
    {"wpe", MU_NAME_PART},
    {"shared", MU_NAME_MODULE},
    {"lm_head", MU_NAME_PART},
    {"head", MU_NAME_PART},
    {"*_head", MU_NAME_OUTSIDE},
    {"head_dist", MU_NAME_OUTSIDE},
    {"classifier", MU_NAME_OUTSIDE},
    {"output_projection", MU_NAME_OUTSIDE},
    {"qa_outputs", MU_NAME_OUTSIDE},
    {"output", MU_NAME_TOP},
    {"score", MU_NAME_TOP},
    {"proj_out", MU_NAME_TOP},
    {"fc", MU_NAME_TOP},
    {"decoder", MU_NAME_MODULE},
    {"logits", MU_NAME_WORD},
    {"vocab", MU_NAME_WORD},
    {"*norm", MU_NAME_WORD},
    {"*norms", MU_NAME_WORD},
    {"*normalization", MU_NAME_WORD},
    {"ln_*", MU_NAME_PART},
    {"ln", MU_NAME_WORD},
    {"bias", MU_NAME_WORD},
    {"biases", MU_NAME_WORD},
    {"router", MU_NAME_WORD},
    {"gate", MU_NAME_ROUTER},
    {"smear", MU_NAME_WORD},
    {"gain", MU_NAME_WORD},
    {"gains", MU_NAME_WORD},
    {"a_log", MU_NAME_PART},
};

static const mu_name_pattern wrapper_patterns[] = {
    {"*router*", MU_NAME_PART},
    {"*embed*", MU_NAME_PART},
    {"*norm*", MU_NAME_PART},
    {"*smear*", MU_NAME_PART},
};

static const mu_name_pattern moonlight_patterns[] = {
    {"*embed_tokens*", MU_NAME_PART},
    {"*lm_head*", MU_NAME_PART},
};

static const mu_name_pattern motif_patterns[] = {
    {"embed_tokens", MU_NAME_PART},
    {"lm_head", MU_NAME_PART},
    {"tok_embeddings", MU_NAME_PART},
    {"output", MU_NAME_PART},
};

/* In the order of muonium_routing. */
static const struct rule {
    const mu_name_pattern *patterns;
    size_t pattern_count;
    bool only_2d;
    bool limits; /* unit dimensions, min_dim and max_aspect count; else two dimensions suffice */
} rules[] = {
    [MUONIUM_ROUTING_MUONIUM] = {default_patterns, MU_COUNT(default_patterns), false, true},
    [MUONIUM_ROUTING_TIMM] = {NULL, 0, false, true},
    [MUONIUM_ROUTING_TORCH] = {NULL, 0, true, false},
    [MUONIUM_ROUTING_WRAPPER] = {wrapper_patterns, MU_COUNT(wrapper_patterns), true, false},
    [MUONIUM_ROUTING_KELLER] = {NULL, 0, false, false},
    [MUONIUM_ROUTING_MOONLIGHT] = {moonlight_patterns, MU_COUNT(moonlight_patterns), false, false},
    [MUONIUM_ROUTING_MOTIF] = {motif_patterns, MU_COUNT(motif_patterns), false, false},
};

_Static_assert(MU_COUNT(rules) == MUONIUM_ROUTING_MOTIF + 1, "a rule for each muonium_routing");

const char *muonium_default_pattern(int index, const char **place)
{
    static const char *const places[] = {"part", "word", "module", "outside", "top", "router"};
    if (index < 0 || (size_t)index >= MU_COUNT(default_patterns)) {
        return NULL;
    }
    if (place != NULL) {
        *place = places[default_patterns[index].place];
    }
    return default_patterns[index].pattern;
}

bool mu_routes_by_name(const muonium_options *options)
{
    return rules[options->routing].pattern_count > 0;
}

/* The first pattern that the name matches; NULL if none. */
static const char *matching_pattern(const muonium_options *options, const char *name,
                                    const muonium_tensor *tensor)
{
    const struct rule *rule = &rules[options->routing];
    for (size_t i = 0; options->patterns != NULL && i < options->pattern_count; i++) {
        const mu_name_pattern own = {options->patterns[i], MU_NAME_PART};
        if (mu_name_matches(&own, name, tensor)) {
            return own.pattern;
        }
    }
    for (size_t i = 0; !options->only_patterns && i < rule->pattern_count; i++) {
        if (mu_name_matches(&rule->patterns[i], name, tensor)) {
            return rule->patterns[i].pattern;
        }
    }
    return NULL;
}

/* ---- shapes ---- */

static bool has_splits(const muonium_tensor *tensor)
{
    return tensor->row_split_count > 0 || tensor->heads > 0;
}

/* Whether the tensor itself has a layout or splits. */
static bool has_layout(const muonium_tensor *tensor)
{
    return tensor->layout != MUONIUM_LAYOUT_AUTO || has_splits(tensor);
}

static size_t count_above_one(const muonium_tensor *tensor)
{
    size_t count = 0;
    for (size_t d = 0; d < tensor->ndim; d++) {
        count += tensor->shape[d] > 1;
    }
    return count;
}

/* Whether the sides of an (out, in) matrix suit Muon; if not, writes the reason. */
static bool sides_fit(const muonium_options *options, size_t out, size_t in,
                      char reason[MU_REASON_SIZE])
{
    const size_t small = out < in ? out : in, large = out < in ? in : out;
    const double aspect = (double)large / (double)small;
    if (small < options->min_dim) {
        snprintf(reason, MU_REASON_SIZE, "min_dim_too_small:%zu", small);
        return false;
    }
    if (aspect > options->max_aspect) {
        /* printf writes the decimal point of the locale. The reason always has a dot. */
        char text[48];
        snprintf(text, sizeof text, "%.1f", aspect);
        snprintf(reason, MU_REASON_SIZE, "extreme_aspect_ratio:%.*s.%c",
                 (int)strspn(text, "0123456789"), text, text[strlen(text) - 1]);
        return false;
    }
    return true;
}

static bool shape_fits(const muonium_tensor *tensor, const muonium_options *options,
                       const mu_matrices *matrices, char reason[MU_REASON_SIZE])
{
    const struct rule *rule = &rules[options->routing];
    if ((options->only_2d || rule->only_2d) && tensor->ndim > 2 && !has_layout(tensor)) {
        strcpy(reason, "not_2d");
        return false;
    }
    if (rule->limits ? count_above_one(tensor) < 2 : tensor->ndim < 2) {
        strcpy(reason, "insufficient_dims");
        return false;
    }
    if (!rule->limits) {
        return true;
    }
    const size_t cols = matrices->cols.total;
    if (matrices->layout->judged_flattened && !has_splits(tensor)) {
        if (tensor->shape[0] == 1 || tensor->shape[1] == 1) {
            strcpy(reason, "leading_unit_dims");
            return false;
        }
        return sides_fit(options, tensor->shape[0], matrices->positions * cols, reason);
    }
    if (matrices->sizes == NULL) {
        return sides_fit(options, matrices->rows.total / matrices->blocks, cols, reason);
    }
    for (size_t block = 0; block < matrices->blocks; block++) {
        if (!sides_fit(options, matrices->sizes[block], cols, reason)) {
            return false;
        }
    }
    return true;
}

/* ---- the decision ---- */

muonium_status mu_route(const muonium_tensor *tensor, const char *name,
                        const muonium_options *options, const mu_matrices *matrices, bool *muon,
                        char reason[MU_REASON_SIZE])
{
    const muonium_route given =
        tensor->route != MUONIUM_ROUTE_AUTO ? tensor->route : options->route;
    if (matrices->batch.total == 0 || matrices->rows.total == 0 || matrices->cols.total == 0) {
        strcpy(reason, "empty");
        *muon = false;
        return MUONIUM_OK;
    }
    switch (given) {
    case MUONIUM_ROUTE_ADAM:
        strcpy(reason, "use_fallback_flag");
        *muon = false;
        return MUONIUM_OK;
    case MUONIUM_ROUTE_MUON:
        if (tensor->ndim < 2) {
            return mu_fail(MUONIUM_INVALID,
                           "route of %s is MUONIUM_ROUTE_MUON, but ndim is %zu: Muon takes at "
                           "least 2 dimensions; leave the choice to MUONIUM_ROUTE_AUTO",
                           name, tensor->ndim);
        }
        strcpy(reason, "use_muon_flag");
        *muon = true;
        return MUONIUM_OK;
    case MUONIUM_ROUTE_AUTO:
        break;
    default:
        return mu_fail(MUONIUM_INVALID, "route of %s is %d: use a value of muonium_route, 0 to %d",
                       name, (int)given, (int)MUONIUM_ROUTE_ADAM);
    }
    const char *pattern = matching_pattern(options, name, tensor);
    if (pattern != NULL) {
        snprintf(reason, MU_REASON_SIZE, "name_pattern:%s", pattern);
        *muon = false;
        return MUONIUM_OK;
    }
    *muon = shape_fits(tensor, options, matrices, reason);
    if (*muon) {
        strcpy(reason, "ok");
    }
    return MUONIUM_OK;
}

/* ---- layouts and splits from names ---- */

void mu_recognise(muonium_tensor *tensor, const char *name, const muonium_options *options,
                  size_t splits[3])
{
    if (has_layout(tensor)) {
        return;
    }
    if (tensor->ndim == 3 && options->layout_3d == MUONIUM_LAYOUT_AUTO && !options->only_2d &&
        !rules[options->routing].only_2d && mu_name_is_experts(name)) {
        tensor->layout = MUONIUM_LAYOUT_EXPERTS;
    }
    const muonium_fusion fusion = mu_fusion_of(name, tensor);
    const bool flattened = tensor->ndim == 3 && !mu_resolve_layout(tensor, options)->leading_batch;
    if (!options->split_fused || fusion.count == 0 || flattened) {
        return;
    }
    if (fusion.columns) {
        tensor->layout = MUONIUM_LAYOUT_FAN;
        tensor->out_axes = 2;
        tensor->in_axes = 1;
    }
    memcpy(splits, fusion.rows, sizeof fusion.rows);
    tensor->row_splits = splits;
    tensor->row_split_count = fusion.count;
}

muonium_status muonium_fused_sized(const muonium_tensor *tensor, size_t tensor_size,
                                   muonium_fusion *fusion, size_t size)
{
    if (tensor == NULL || fusion == NULL) {
        return mu_fail(MUONIUM_INVALID, "%s is NULL", tensor == NULL ? "tensor" : "fusion");
    }
    muonium_tensor read;
    muonium_status status = mu_sized_read("tensor", tensor, tensor_size, &read, sizeof read);
    if (status == MUONIUM_OK) {
        muonium_fusion found = mu_fusion_of(read.name != NULL ? read.name : "", &read);
        mu_sized_write(fusion, size, &found, sizeof found);
    }
    return status;
}
