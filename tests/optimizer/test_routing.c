/*
 * test_routing.c: which parameters go to Muon, and why: routes given, names, shapes,
 * layouts; and the text of the log.
 */
#include "test.h"

#include <locale.h>
#include <math.h>

#include "optimizer/optimizer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static muonium_options recipe(const char *name)
{
    muonium_options options;
    assert_ok(muonium_options_init(&options, name));
    return options;
}

/* Fails unless the tensor is routed for `reason`; "ok" and "use_muon_flag" are the
 * reasons that lead to Muon. */
static void assert_route(const char *name, muonium_tensor tensor, const muonium_options *options,
                         const char *reason)
{
    mu_matrices matrices;
    char found[MU_REASON_SIZE];
    const bool expected = strcmp(reason, "ok") == 0 || strcmp(reason, "use_muon_flag") == 0;
    bool muon = !expected;
    memset(found, 0xa5, sizeof found);
    assert_ok(mu_layout_of(&tensor, name, options, &matrices));
    assert_ok(mu_route(&tensor, name, options, &matrices, &muon, found));
    if (strcmp(found, reason) != 0) {
        fail_msg("%s: the reason is %s, expected %s", name, found, reason);
    }
    assert_int_equal(muon, expected);
}

#define SHAPE(...)                                                                                 \
    {                                                                                              \
        .ndim = sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), .shape = { __VA_ARGS__ }         \
    }

/* ---- shapes ---- */

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        muonium_tensor tensor;
        const char *reason;
    } cases[] = {
        {SHAPE(64, 128), "ok"},
        {SHAPE(96, 3, 4, 4), "ok"},
        {SHAPE(4, 2048), "extreme_aspect_ratio:512.0"},
        {SHAPE(64), "insufficient_dims"},
        {SHAPE(1, 196, 768), "leading_unit_dims"},
        {{.ndim = 0}, "insufficient_dims"},
        {SHAPE(1), "insufficient_dims"},
        {SHAPE(1, 64), "insufficient_dims"},
        {SHAPE(64, 1, 1, 1), "insufficient_dims"},
        {SHAPE(64, 1, 3, 3), "leading_unit_dims"},
        {SHAPE(64, 64, 1, 1), "ok"},
        {SHAPE(3, 64), "min_dim_too_small:3"},
        {SHAPE(64, 2), "min_dim_too_small:2"},
        {SHAPE(64, 3, 1), "min_dim_too_small:3"},
        {SHAPE(4, 4), "ok"},
        {SHAPE(4, 512), "ok"},
        {SHAPE(512, 4), "ok"},
        {SHAPE(4, 513), "extreme_aspect_ratio:128.2"}, /* 128.25: ties go to even */
        {SHAPE(4, 515), "extreme_aspect_ratio:128.8"},
        {SHAPE(513, 4), "extreme_aspect_ratio:128.2"},
        {SHAPE(20, 2561), "extreme_aspect_ratio:128.1"}, /* just above 128.05 in double */
        {SHAPE(7, 1000), "extreme_aspect_ratio:142.9"},
        {SHAPE(4, 100000000), "extreme_aspect_ratio:25000000.0"},
        {SHAPE(8, 16, 32), "ok"},
        {SHAPE(8, 1000, 2), "extreme_aspect_ratio:250.0"},
    };
    const muonium_options o = recipe(NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_route("w", cases[i].tensor, &o, cases[i].reason);
    }
}

static void test_limits_from_options(void **state)
{
    (void)state;
    muonium_options o = recipe(NULL);
    o.min_dim = 65;
    assert_route("w", (muonium_tensor)SHAPE(64, 128), &o, "min_dim_too_small:64");
    o.min_dim = 1;
    o.max_aspect = 1.5;
    assert_route("w", (muonium_tensor)SHAPE(64, 128), &o, "extreme_aspect_ratio:2.0");
    assert_route("w", (muonium_tensor)SHAPE(3, 2), &o, "ok");
    o.max_aspect = INFINITY;
    assert_route("w", (muonium_tensor)SHAPE(2, 65536), &o, "ok");
}

static void test_layouts(void **state)
{
    (void)state;
    static const size_t splits[] = {60, 2, 2}, fits[] = {32, 16, 16};
    muonium_options o = recipe(NULL);
    muonium_tensor t;

    /* A convolution is judged flattened also when it is orthogonalised by position. */
    t = (muonium_tensor)SHAPE(96, 3, 4, 4);
    t.layout = MUONIUM_LAYOUT_SPATIAL;
    assert_route("w", t, &o, "ok");
    t = (muonium_tensor)SHAPE(96, 1, 4, 4);
    t.layout = MUONIUM_LAYOUT_SPATIAL;
    assert_route("w", t, &o, "leading_unit_dims");

    /* Matrices that are named count as they are, and leading ones are allowed. */
    t = (muonium_tensor)SHAPE(1, 196, 768);
    t.layout = MUONIUM_LAYOUT_EXPERTS;
    assert_route("w", t, &o, "ok");
    t = (muonium_tensor)SHAPE(8, 3, 64);
    t.layout = MUONIUM_LAYOUT_EXPERTS;
    assert_route("w", t, &o, "min_dim_too_small:3");
    t = (muonium_tensor)SHAPE(16, 1, 32);
    t.layout = MUONIUM_LAYOUT_FAN;
    t.out_axes = 1;
    t.in_axes = 4;
    assert_route("w", t, &o, "ok");
    t.in_axes = 2;
    assert_route("w", t, &o, "min_dim_too_small:1");
    t = (muonium_tensor)SHAPE(1, 64);
    t.layout = MUONIUM_LAYOUT_EXPERTS;
    assert_route("w", t, &o, "insufficient_dims");

    t = (muonium_tensor)SHAPE(64, 128);
    t.row_splits = splits;
    t.row_split_count = 3;
    assert_route("w", t, &o, "min_dim_too_small:2");
    t.row_splits = fits;
    assert_route("w", t, &o, "ok");
    t.row_splits = NULL;
    t.row_split_count = 0;
    t.heads = 4;
    assert_route("w", t, &o, "ok");
    t.heads = 32;
    assert_route("w", t, &o, "min_dim_too_small:2");
    t = (muonium_tensor)SHAPE(96, 3, 4, 4); /* 24 x 3 by position, but 24 x 48 flattened */
    t.heads = 4;
    assert_route("w", t, &o, "ok");
    t.layout = MUONIUM_LAYOUT_SPATIAL;
    assert_route("w", t, &o, "min_dim_too_small:3");

    /* (in, out) kernels are judged by both sides. */
    o.kernels_in_out = true;
    assert_route("w", (muonium_tensor)SHAPE(64, 2), &o, "min_dim_too_small:2");
    assert_route("w", (muonium_tensor)SHAPE(8, 8000), &o, "extreme_aspect_ratio:1000.0");
    assert_route("w", (muonium_tensor)SHAPE(64, 128), &o, "ok");
}

static void test_three_dimensions(void **state)
{
    (void)state;
    muonium_options o = recipe("keller"); /* batches over the first */
    o.routing = MUONIUM_ROUTING_TIMM;
    assert_route("w", (muonium_tensor)SHAPE(1, 196, 768), &o, "ok");
    assert_route("w", (muonium_tensor)SHAPE(8, 2, 64), &o, "min_dim_too_small:2");
    assert_route("w", (muonium_tensor)SHAPE(1, 8, 8, 8), &o, "leading_unit_dims");
    muonium_tensor t = SHAPE(1, 196, 768);
    t.layout = MUONIUM_LAYOUT_FLATTEN;
    assert_route("w", t, &o, "leading_unit_dims");

    o = recipe("torch"); /* two dimensions only, unless a layout is given */
    assert_route("w", (muonium_tensor)SHAPE(64, 128), &o, "ok");
    assert_route("w", (muonium_tensor)SHAPE(64, 16, 8), &o, "not_2d");
    assert_route("w", (muonium_tensor)SHAPE(64, 1, 1), &o, "not_2d");
    assert_route("w", (muonium_tensor)SHAPE(64), &o, "insufficient_dims");
    t = (muonium_tensor)SHAPE(64, 16, 8);
    t.layout = MUONIUM_LAYOUT_FLATTEN;
    assert_route("w", t, &o, "ok");
    t.layout = MUONIUM_LAYOUT_AUTO;
    t.heads = 4;
    assert_route("w", t, &o, "ok");
}

/* ---- names ---- */

static void test_default_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *name, *reason;
    } cases[] = {
        {"tok_embeddings.weight", "name_pattern:*embed*"},
        {"model.embed.weight", "name_pattern:*embed*"},
        {"TokenEmbedding", "name_pattern:*embed*"},
        {"tok_emb.weight", "name_pattern:*emb"},
        {"token_emb.weight", "name_pattern:*emb"},
        {"member.weight", "ok"},
        {"transformer.wte.weight", "name_pattern:wte"},
        {"transformer/wpe/weight", "name_pattern:wpe"},
        {"shared.weight", "name_pattern:shared"},
        {"shared.mlp.weight", "ok"},
        {"mlp.shared_experts.up_proj.weight", "ok"},
        {"lm_head.weight", "name_pattern:lm_head"},
        {"head", "name_pattern:head"},
        {"HEAD.weight", "name_pattern:head"},
        {"h.0.attn.heads.weight", "ok"},
        {"value_head.weight", "name_pattern:*_head"},
        {"h.0.multi_head.weight", "ok"},
        {"output.weight", "name_pattern:output"},
        {"model/output/kernel", "name_pattern:output"},
        {"output", "name_pattern:output"},
        {"layer.0.output.weight", "ok"},
        {"output.dense.weight", "ok"},
        {"classifier.weight", "name_pattern:classifier"},
        {"classifier.6.weight", "name_pattern:classifier"},
        {"score.weight", "name_pattern:score"},
        {"score_net.weight", "ok"},
        {"decoder.output_projection.weight", "name_pattern:output_projection"},
        {"to_logits.weight", "name_pattern:logits"},
        {"h.0.input_layernorm.weight", "name_pattern:*norm"},
        {"h.0.LayerNorm.weight", "name_pattern:*norm"},
        {"h.0.norm1.weight", "name_pattern:*norm"},
        {"h.0.q_norm.weight", "name_pattern:*norm"},
        {"h.0.normal_proj.weight", "ok"},
        {"h.0.ln_1.weight", "name_pattern:ln_*"},
        {"h.0.ln.weight", "name_pattern:ln"},
        {"fc.bias", "name_pattern:fc"},
        {"h.0.fc.bias", "name_pattern:bias"},
        {"fc1.in_bias", "name_pattern:bias"},
        {"relative_position_bias_table", "name_pattern:bias"},
        {"unbiased.weight", "ok"},
        {"moe.router.weight", "name_pattern:router"},
        {"mlp.gate.weight", "name_pattern:gate"},
        {"mlp.gate.wg.weight", "name_pattern:gate"},
        {"mlp.gate_proj.weight", "ok"},
        {"mlp.experts.3.gate.weight", "ok"},
        {"smear", "name_pattern:smear"},
        {"smear_gate.weight", "name_pattern:smear"},
        {"block.gain", "name_pattern:gain"},
        {"block.again", "ok"},
        {"mixer.A_log", "name_pattern:a_log"},
        {"h.0.mlp.w", "ok"},
        {"wtex.weight", "ok"},
        {"", "ok"},
        {"...//", "ok"},
        {".head.", "name_pattern:head"},
        {"parameter 3", "ok"},
        {"embed.norm", "name_pattern:*embed*"}, /* the first pattern, not the first part */
        {"norm.embed", "name_pattern:*embed*"},
        {"weight", "ok"},
    };
    const muonium_options o = recipe(NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_route(cases[i].name, (muonium_tensor)SHAPE(64, 128), &o, cases[i].reason);
    }
    /* The name goes before the shape. */
    assert_route("h.0.bias", (muonium_tensor)SHAPE(64), &o, "name_pattern:bias");
    /* A gate with more rows than columns is no router. */
    assert_route("mlp.gate.weight", (muonium_tensor)SHAPE(128, 64), &o, "ok");
}

/* Whether a name of one part matches. */
static bool glob(const char *pattern, const char *name)
{
    muonium_options o = recipe(NULL);
    mu_matrices matrices;
    const muonium_tensor t = SHAPE(64, 128);
    char reason[MU_REASON_SIZE];
    bool muon;
    o.patterns = &pattern;
    o.pattern_count = 1;
    o.only_patterns = true;
    assert_ok(mu_layout_of(&t, name, &o, &matrices));
    assert_ok(mu_route(&t, name, &o, &matrices, &muon, reason));
    return !muon;
}

static void test_globs(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"abc", "abc", true},    {"abc", "abcd", false},
        {"abc", "ab", false},    {"ABC", "abc", true},
        {"abc", "aBc", true},    {"*", "x", true},
        {"*", "", false},        {"", "x", false},
        {"?", "x", true},        {"?", "xy", false},
        {"a?c", "abc", true},    {"a?c", "ac", false},
        {"a*c", "ac", true},     {"a*c", "abcbc", true},
        {"a*c", "abcb", false},  {"*ab", "aab", true},
        {"*ab*", "xaabx", true}, {"*a*b*", "b_a", false},
        {"**a**", "a", true},    {"*?*?*", "x", false},
        {"*?*?*", "xy", true},   {"a*b?c*d", "axbxcxbyczd", true},
        {"*aab", "aaaab", true}, {"[ab]", "a", false},
        {"[ab]", "[ab]", true},  {"?", "é", true},
        {"??", "é", false},      {"*é", "né", true},
        {"n?e", "née", true},    {"k_*", "K_proj", true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (glob(cases[i].pattern, cases[i].name) != cases[i].matches) {
            fail_msg("pattern \"%s\", name \"%s\": expected %s", cases[i].pattern, cases[i].name,
                     cases[i].matches ? "a match" : "none");
        }
    }
}

/* The definition, which tries everything. */
static bool slow_glob(const char *pattern, const char *text)
{
    if (*pattern == '*') {
        return slow_glob(pattern + 1, text) || (*text != '\0' && slow_glob(pattern, text + 1));
    }
    if (*pattern == '\0' || *text == '\0') {
        return *pattern == *text;
    }
    return (*pattern == '?' || *pattern == *text) && slow_glob(pattern + 1, text + 1);
}

static void test_random_globs(void **state)
{
    (void)state;
    test_rng rng = test_rng_start("globs");
    size_t matched = 0;
    for (int round = 0; round < 20000; round++) {
        char pattern[8] = "", name[10] = "";
        for (size_t i = 0, n = test_below(&rng, sizeof pattern); i < n; i++) {
            pattern[i] = "ab*?"[test_below(&rng, 4)];
        }
        for (size_t i = 0, n = 1 + test_below(&rng, sizeof name - 1); i < n; i++) {
            name[i] = "ab"[test_below(&rng, 2)];
        }
        const bool expected = slow_glob(pattern, name);
        matched += expected;
        if (glob(pattern, name) != expected) {
            fail_msg("pattern \"%s\", name \"%s\": expected %d", pattern, name, expected);
        }
    }
    assert_in_range(matched, 1000, 19000);
}

static void test_own_patterns(void **state)
{
    (void)state;
    static const char *const own[] = {"Conv?", "*_proj"};
    char longest[83];
    memset(longest, 'a', sizeof longest - 1);
    longest[82] = '\0';
    const char *const long_list[] = {longest};
    muonium_options o = recipe(NULL);
    o.patterns = own;
    o.pattern_count = 2;
    assert_route("net.conv1.w", (muonium_tensor)SHAPE(64, 128), &o, "name_pattern:Conv?");
    assert_route("net.q_proj.w", (muonium_tensor)SHAPE(64, 128), &o, "name_pattern:*_proj");
    assert_route("lm_head.weight", (muonium_tensor)SHAPE(64, 128), &o, "name_pattern:lm_head");
    o.only_patterns = true;
    assert_route("net.q_proj.w", (muonium_tensor)SHAPE(64, 128), &o, "name_pattern:*_proj");
    assert_route("lm_head.weight", (muonium_tensor)SHAPE(64, 128), &o, "ok");
    o.pattern_count = 0; /* a list of none */
    assert_route("net.conv1.w", (muonium_tensor)SHAPE(64, 128), &o, "ok");
    assert_route("lm_head.weight", (muonium_tensor)SHAPE(64, 128), &o, "ok");
    o.patterns = NULL;
    assert_route("lm_head.weight", (muonium_tensor)SHAPE(64, 128), &o, "ok");
    o.patterns = long_list;
    o.pattern_count = 1;
    assert_ok(mu_check_options(&o));
    char reason[MU_REASON_SIZE + 1];
    assert_int_equal(snprintf(reason, sizeof reason, "name_pattern:%s", longest),
                     MU_REASON_SIZE - 1);
    assert_route(longest, (muonium_tensor)SHAPE(64, 128), &o, reason);
}

/* ---- routes given ---- */

static void test_flags(void **state)
{
    (void)state;
    muonium_options o = recipe(NULL);
    muonium_tensor good = SHAPE(64, 128), small = SHAPE(2, 2);
    good.route = MUONIUM_ROUTE_ADAM;
    assert_route("w", good, &o, "use_fallback_flag");
    small.route = MUONIUM_ROUTE_MUON; /* before name and shape */
    assert_route("lm_head", small, &o, "use_muon_flag");

    o.route = MUONIUM_ROUTE_MUON; /* the group's, and the tensor's before it */
    assert_route("w", good, &o, "use_fallback_flag");
    good.route = MUONIUM_ROUTE_AUTO;
    assert_route("lm_head", good, &o, "use_muon_flag");
    o.route = MUONIUM_ROUTE_ADAM;
    assert_route("w", good, &o, "use_fallback_flag");
    assert_route("w", small, &o, "use_muon_flag");
}

static void test_flag_errors(void **state)
{
    (void)state;
    muonium_options o = recipe(NULL);
    muonium_tensor t = SHAPE(64);
    mu_matrices matrices;
    char reason[MU_REASON_SIZE] = "before";
    bool muon = true;
    t.route = MUONIUM_ROUTE_MUON;
    assert_ok(mu_layout_of(&t, "h.b", &o, &matrices));
    assert_status_message(mu_route(&t, "h.b", &o, &matrices, &muon, reason), MUONIUM_INVALID,
                          "route of h.b is MUONIUM_ROUTE_MUON, but ndim is 1");
    t.route = (muonium_route)3;
    assert_status_message(mu_route(&t, "h.b", &o, &matrices, &muon, reason), MUONIUM_INVALID,
                          "route of h.b is 3");
    assert_string_equal(reason, "before");
    assert_true(muon);
}

/* ---- the log ---- */

typedef struct heard {
    char lines[16][4096];
    size_t count;
} heard;

static void hear(void *context, const char *line)
{
    heard *h = context;
    assert_true(h->count < COUNT(h->lines));
    assert_true(strlen(line) < sizeof h->lines[0]);
    strcpy(h->lines[h->count++], line);
}

/* Route tensors under the default recipe and log it. */
static void log_of(const muonium_tensor *tensors, size_t count, heard *h)
{
    muonium_group group = {.options = recipe(NULL)};
    const muonium_options o = group.options;
    mu_parameter *all = calloc(count + 1, sizeof *all);
    mu_parameter **list = calloc(count + 1, sizeof *list);
    assert_true(all != NULL && list != NULL);
    for (size_t i = 0; i < count; i++) {
        mu_parameter *p = list[i] = &all[i];
        p->tensor = tensors[i];
        char *name = (char *)(uintptr_t)(tensors[i].name != NULL ? tensors[i].name : "w");
        p->name = name;
        p->group = &group;
        assert_ok(mu_layout_of(&p->tensor, name, &o, &p->matrices));
        assert_ok(mu_route(&p->tensor, name, &o, &p->matrices, &p->muon, p->reason));
    }
    h->count = 0;
    const muonium_optimizer optimizer = {
        .parameters = list, .count = count, .log = hear, .log_context = h};
    mu_log_routes(&optimizer);
    free(list);
    free(all);
}

static void test_log(void **state)
{
    (void)state;
    static heard h;
    muonium_tensor tensors[6] = {SHAPE(64, 128), SHAPE(64),   SHAPE(96, 3, 4, 4),
                                 {.ndim = 0},    SHAPE(3, 5), SHAPE(50, 8)};
    tensors[5].name = "wte";
    log_of(tensors, 6, &h);
    assert_int_equal(h.count, 5);
    assert_string_equal(h.lines[0], "2 Muon, 4 AdamW");
    assert_string_equal(h.lines[1], "2 insufficient_dims: (64,), ()");
    assert_string_equal(h.lines[2], "1 min_dim_too_small:3: (3, 5)");
    assert_string_equal(h.lines[3], "1 name_pattern:wte: (50, 8)");
    assert_string_equal(h.lines[4], "2 ok: (64, 128), (96, 3, 4, 4)");

    log_of(NULL, 0, &h);
    assert_int_equal(h.count, 1);
    assert_string_equal(h.lines[0], "0 Muon, 0 AdamW");

    const muonium_optimizer silent = {.log = NULL};
    mu_log_routes(&silent);
    assert_int_equal(h.count, 1);
}

static void test_log_of_many(void **state)
{
    (void)state;
    static heard h;
    muonium_tensor tensors[13];
    for (size_t i = 0; i < COUNT(tensors); i++) {
        tensors[i] = (muonium_tensor)SHAPE(64, 100 + i);
    }
    log_of(tensors, 13, &h);
    assert_int_equal(h.count, 2);
    assert_string_equal(h.lines[0], "13 Muon, 0 AdamW");
    assert_string_equal(h.lines[1],
                        "13 ok: (64, 100), (64, 101), (64, 102), (64, 103), (64, 104), (64, 105), "
                        "(64, 106), (64, 107), (64, 108), (64, 109), …and 3 more");
    log_of(tensors, 10, &h);
    assert_string_equal(h.lines[1] + strlen(h.lines[1]) - 10, " (64, 109)");
    log_of(tensors, 11, &h);
    assert_non_null(strstr(h.lines[1], "(64, 109), …and 1 more"));
}

/* The longest line that there can be is whole. */
static void test_longest_line(void **state)
{
    (void)state;
    static heard h;
    static char name[] = "w";
    muonium_group group = {.options = recipe(NULL)};
    mu_parameter p = {.name = name,
                      .group = &group,
                      .tensor = {.ndim = MUONIUM_MAX_DIMS, .route = MUONIUM_ROUTE_ADAM}};
    mu_parameter *list[20];
    for (size_t d = 0; d < MUONIUM_MAX_DIMS; d++) {
        p.tensor.shape[d] = SIZE_MAX;
    }
    memset(p.reason, 'r', sizeof p.reason - 1);
    for (size_t i = 0; i < COUNT(list); i++) {
        list[i] = &p;
    }
    const muonium_optimizer optimizer = {
        .parameters = list, .count = COUNT(list), .log = hear, .log_context = &h};
    h.count = 0;
    mu_log_routes(&optimizer);
    assert_int_equal(h.count, 2);
    const char *end = h.lines[1] + strlen(h.lines[1]);
    const char tail[] = "), …and 10 more";
    assert_string_equal(end - strlen(tail), tail);
}

/* A host that writes numbers with a comma reads the same reasons. */
static void test_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    bool set = false;
    for (size_t i = 0; i < COUNT(names) && !set; i++) {
        set = setlocale(LC_NUMERIC, names[i]) != NULL;
    }
    if (!set) {
        skip(); /* none is installed */
    }
    const muonium_options o = recipe(NULL);
    assert_route("w", (muonium_tensor)SHAPE(4, 515), &o, "extreme_aspect_ratio:128.8");
    setlocale(LC_NUMERIC, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_limits_from_options),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_three_dimensions),
        cmocka_unit_test(test_default_patterns),
        cmocka_unit_test(test_globs),
        cmocka_unit_test(test_random_globs),
        cmocka_unit_test(test_own_patterns),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_flag_errors),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_log_of_many),
        cmocka_unit_test(test_longest_line),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
