/*
 * names.c: patterns and the names of parameters; see names.h.
 */
#include "optimizer/names.h"

#include "base/base.h"

#include <string.h>

static const char part_ends[] = "./";
static const char word_ends[] = "./_-0123456789";

/* Independent of the locale. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* The next UTF-8 character: past a byte and its continuation bytes. */
static const char *after_character(const char *text, const char *end)
{
    do {
        text++;
    } while (text < end && ((unsigned char)*text & 0xc0) == 0x80);
    return text;
}

/* Whether the text up to `end` matches `pattern`. After a mismatch the search resumes at the
 * last *, which then covers one more character. Earlier ones need no second try: the text
 * between two of them was matched at the earliest possible position. */
static bool matches(const char *pattern, const char *text, const char *end)
{
    const char *star = NULL, *taken = NULL;
    while (text < end) {
        if (*pattern == '*') {
            star = ++pattern;
            taken = text;
        } else if (*pattern == '?') {
            pattern++;
            text = after_character(text, end);
        } else if (*pattern != '\0' && lower(*pattern) == lower(*text)) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star;
            text = taken = after_character(taken, end);
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

/* ---- parts and words ---- */

typedef struct span {
    const char *text, *end;
} span;

/* The next piece after `at` of a name that is cut at `ends`; empty past the last. */
static span next_span(const char *at, const char *ends)
{
    const char *text = at + strspn(at, ends);
    return (span){text, text + strcspn(text, ends)};
}

static bool is_number(span part)
{
    for (const char *c = part.text; c < part.end; c++) {
        if (*c < '0' || *c > '9') {
            return false;
        }
    }
    return part.text < part.end;
}

static bool any_matches(const char *pattern, const char *name, const char *ends,
                        bool stop_at_number)
{
    for (span s = next_span(name, ends); s.text < s.end; s = next_span(s.end, ends)) {
        if (stop_at_number && is_number(s)) {
            return false;
        }
        if (matches(pattern, s.text, s.end)) {
            return true;
        }
    }
    return false;
}

/* The module of a tensor; *inside tells whether a part before it is a number. */
static span module_of(const char *name, bool *inside)
{
    static const char *const leaves[] = {"weight", "weights", "kernel", "w", "bias", "b"};
    span module = {name, name};
    *inside = false;
    for (span s = next_span(name, part_ends); s.text < s.end; s = next_span(s.end, part_ends)) {
        bool leaf = next_span(s.end, part_ends).text == next_span(s.end, part_ends).end &&
                    module.text < module.end;
        for (size_t i = 0; leaf && i < MU_COUNT(leaves); i++) {
            if (matches(leaves[i], s.text, s.end)) {
                return module;
            }
        }
        *inside = *inside || is_number(module);
        module = s;
    }
    return module;
}

static bool is_router(const char *pattern, const char *name, const muonium_tensor *tensor)
{
    return tensor->ndim == 2 && tensor->shape[0] < tensor->shape[1] &&
           any_matches(pattern, name, part_ends, false) &&
           !any_matches("expert", name, word_ends, false) &&
           !any_matches("experts", name, word_ends, false);
}

bool mu_name_matches(const mu_name_pattern *pattern, const char *name, const muonium_tensor *tensor)
{
    bool inside;
    span module;
    switch (pattern->place) {
    case MU_NAME_PART:
        return any_matches(pattern->pattern, name, part_ends, false);
    case MU_NAME_WORD:
        return any_matches(pattern->pattern, name, word_ends, false);
    case MU_NAME_OUTSIDE:
        return any_matches(pattern->pattern, name, part_ends, true);
    case MU_NAME_ROUTER:
        return is_router(pattern->pattern, name, tensor);
    case MU_NAME_MODULE:
    case MU_NAME_TOP:
        module = module_of(name, &inside);
        return module.text < module.end && !(inside && pattern->place == MU_NAME_TOP) &&
               matches(pattern->pattern, module.text, module.end);
    }
    return false;
}

/* ---- experts ---- */

bool mu_name_is_experts(const char *name)
{
    static const char *const words[] = {"expert", "experts", "moe"};
    static const char *const modules[] = {"w1",        "w2",      "w3",        "w13",
                                          "gate_proj", "up_proj", "down_proj", "gate_up_proj"};
    bool inside;
    for (size_t i = 0; i < MU_COUNT(words); i++) {
        if (any_matches(words[i], name, word_ends, false)) {
            return true;
        }
    }
    const span module = module_of(name, &inside);
    for (size_t i = 0; i < MU_COUNT(modules); i++) {
        if (module.text < module.end && matches(modules[i], module.text, module.end)) {
            return true;
        }
    }
    return false;
}

/* ---- fused matrices ---- */

typedef enum fused_kind { FUSED_QKV, FUSED_BY_HEAD, FUSED_KV, FUSED_GATE_UP } fused_kind;

static const char *const kind_names[] = {"QKV", "QKV by heads", "K and V", "gate and up"};

static const struct fused_name {
    const char *module;
    fused_kind kind;
} fused_names[] = {
    {"c_attn", FUSED_QKV},
    {"qkv", FUSED_QKV},
    {"qkv_proj", FUSED_QKV},
    {"to_qkv", FUSED_QKV},
    {"wqkv", FUSED_QKV},
    {"w_qkv", FUSED_QKV},
    {"attn_qkv", FUSED_QKV},
    {"in_proj_weight", FUSED_QKV},
    {"linear_qkv", FUSED_BY_HEAD},
    {"query_key_value", FUSED_BY_HEAD},
    {"kv_proj", FUSED_KV},
    {"to_kv", FUSED_KV},
    {"wkv", FUSED_KV},
    {"gate_up_proj", FUSED_GATE_UP},
    {"gate_up", FUSED_GATE_UP},
    {"up_gate_proj", FUSED_GATE_UP},
    {"w13", FUSED_GATE_UP},
    {"w12", FUSED_GATE_UP},
};

/* Queries, keys and values of `out` outputs from `in` inputs: as many queries as inputs, and
 * the keys and values, which may be fewer, alike. */
static bool split_qkv(size_t out, size_t in, muonium_fusion *fusion)
{
    if (out <= in || (out - in) / 2 > in || (out - in) % 2 != 0) {
        return false;
    }
    fusion->count = 3;
    fusion->rows[0] = in;
    fusion->rows[1] = fusion->rows[2] = (out - in) / 2;
    return true;
}

static void split_halves(size_t out, muonium_fusion *fusion)
{
    if (out % 2 == 0) {
        fusion->count = 2;
        fusion->rows[0] = fusion->rows[1] = out / 2;
    }
}

muonium_fusion mu_fusion_of(const char *name, const muonium_tensor *tensor)
{
    muonium_fusion fusion = {.kind = NULL};
    bool inside;
    const span module = module_of(name, &inside);
    if (tensor->ndim < 2 || tensor->ndim > 3 || module.text == module.end) {
        return fusion;
    }
    const size_t rows = tensor->shape[tensor->ndim - 2], cols = tensor->shape[tensor->ndim - 1];
    for (size_t i = 0; i < MU_COUNT(fused_names); i++) {
        const fused_kind kind = fused_names[i].kind;
        if (!matches(fused_names[i].module, module.text, module.end) ||
            (tensor->ndim == 3 && kind != FUSED_GATE_UP)) {
            continue;
        }
        fusion.kind = kind_names[kind];
        if (kind == FUSED_QKV && !split_qkv(rows, cols, &fusion)) {
            fusion.columns = rows > 0 && split_qkv(cols, rows, &fusion);
        } else if (kind == FUSED_KV) {
            split_halves(rows, &fusion);
        } else if (kind == FUSED_GATE_UP && (tensor->ndim == 2 || rows >= cols)) {
            split_halves(rows, &fusion); /* else the experts may be (in, out) */
        }
        break;
    }
    return fusion;
}
