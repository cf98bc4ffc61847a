/*
 * test_routing_families.c: the parameters of well-known model families, by the names that
 * their implementations give them and with their real shapes, and the route that each must
 * get. One layer of each kind stands for all. Then the rules of the recipes, fused matrices,
 * experts and warnings.
 */
#include "test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define WHERE(i) ((void *)(((uintptr_t)(i) + 1) << 40)) /* never read */

typedef enum wanted { ADAM, MUON, EXPERTS } wanted; /* EXPERTS: Muon, a matrix per expert */

typedef struct named {
    const char *name;
    size_t ndim;
    size_t shape[4];
    wanted route;
} named;

#define V(name, n)                                                                                 \
    {                                                                                              \
        name, 1, {n}, ADAM                                                                         \
    }
#define A(name, m, n)                                                                              \
    {                                                                                              \
        name, 2, {m, n}, ADAM                                                                      \
    }
#define M(name, m, n)                                                                              \
    {                                                                                              \
        name, 2, {m, n}, MUON                                                                      \
    }
#define T3(name, a, b, c, route)                                                                   \
    {                                                                                              \
        name, 3, {a, b, c}, route                                                                  \
    }
#define T4(name, a, b, c, d, route)                                                                \
    {                                                                                              \
        name, 4, {a, b, c, d}, route                                                               \
    }

static const named gpt2[] = {
    /* Hugging Face: Conv1D is (in, out) */
    A("transformer.wte.weight", 50257, 768),
    A("transformer.wpe.weight", 1024, 768),
    V("transformer.h.0.ln_1.weight", 768),
    M("transformer.h.0.attn.c_attn.weight", 768, 2304),
    V("transformer.h.0.attn.c_attn.bias", 2304),
    M("transformer.h.0.attn.c_proj.weight", 768, 768),
    M("transformer.h.0.mlp.c_fc.weight", 768, 3072),
    M("transformer.h.0.mlp.c_proj.weight", 3072, 768),
    V("transformer.ln_f.bias", 768),
    A("lm_head.weight", 50257, 768),
    A("score.weight", 16, 768), /* GPT2ForSequenceClassification */
};

static const named nanogpt[] = {
    A("transformer.wte.weight", 50304, 768),
    A("transformer.wpe.weight", 1024, 768),
    M("transformer.h.11.attn.c_attn.weight", 2304, 768),
    M("transformer.h.11.attn.c_proj.weight", 768, 768),
    M("transformer.h.11.mlp.c_fc.weight", 3072, 768),
    M("transformer.h.11.mlp.c_proj.weight", 768, 3072),
    V("transformer.h.11.ln_2.weight", 768),
    A("lm_head.weight", 50304, 768),
};

static const named nanochat[] = {
    A("transformer.wte.weight", 65536, 1280),
    M("transformer.h.0.attn.c_q.weight", 1280, 1280),
    M("transformer.h.0.attn.c_k.weight", 1280, 1280),
    M("transformer.h.0.attn.c_v.weight", 1280, 1280),
    M("transformer.h.0.attn.c_proj.weight", 1280, 1280),
    M("transformer.h.1.attn.ve_gate.weight", 10, 32),
    M("transformer.h.0.mlp.c_fc.weight", 5120, 1280),
    M("transformer.h.0.mlp.c_proj.weight", 1280, 5120),
    A("value_embeds.1.weight", 65536, 1280),
    V("resid_lambdas", 20),
    V("x0_lambdas", 20),
    A("smear_gate.weight", 1, 24),
    A("smear", 20, 1280),
    A("lm_head.weight", 65536, 1280),
};

static const named llama_hf[] = {
    A("model.embed_tokens.weight", 32000, 4096),
    M("model.layers.0.self_attn.q_proj.weight", 4096, 4096),
    M("model.layers.0.self_attn.k_proj.weight", 1024, 4096),
    M("model.layers.0.self_attn.v_proj.weight", 1024, 4096),
    M("model.layers.0.self_attn.o_proj.weight", 4096, 4096),
    M("model.layers.0.mlp.gate_proj.weight", 11008, 4096),
    M("model.layers.0.mlp.up_proj.weight", 11008, 4096),
    M("model.layers.0.mlp.down_proj.weight", 4096, 11008),
    V("model.layers.0.input_layernorm.weight", 4096),
    V("model.layers.0.post_attention_layernorm.weight", 4096),
    V("model.norm.weight", 4096),
    A("lm_head.weight", 32000, 4096),
    A("score.weight", 4, 4096), /* LlamaForSequenceClassification */
};

static const named llama_meta[] = {
    /* and torchtitan */
    A("tok_embeddings.weight", 128256, 4096),
    M("layers.0.attention.wq.weight", 4096, 4096),
    M("layers.0.attention.wk.weight", 1024, 4096),
    M("layers.0.attention.wv.weight", 1024, 4096),
    M("layers.0.attention.wo.weight", 4096, 4096),
    M("layers.0.feed_forward.w1.weight", 14336, 4096),
    M("layers.0.feed_forward.w2.weight", 4096, 14336),
    M("layers.0.feed_forward.w3.weight", 14336, 4096),
    V("layers.0.attention_norm.weight", 4096),
    V("layers.0.ffn_norm.weight", 4096),
    A("layers.1.moe.router.gate.weight", 16, 5120),
    T3("layers.1.moe.experts.w1", 16, 8192, 5120, EXPERTS),
    T3("layers.1.moe.experts.w2", 16, 5120, 8192, EXPERTS),
    T3("layers.1.moe.experts.w3", 16, 8192, 5120, EXPERTS),
    M("layers.1.moe.shared_experts.w1.weight", 8192, 5120),
    V("norm.weight", 4096),
    A("output.weight", 128256, 4096),
};

static const named mistral[] = {
    A("model.embed_tokens.weight", 32000, 4096),
    M("model.layers.31.self_attn.q_proj.weight", 4096, 4096),
    M("model.layers.31.self_attn.k_proj.weight", 1024, 4096),
    M("model.layers.31.mlp.gate_proj.weight", 14336, 4096),
    M("model.layers.31.mlp.down_proj.weight", 4096, 14336),
    A("lm_head.weight", 32000, 4096),
    A("output.weight", 32000, 4096), /* mistral-inference */
};

static const named mixtral[] = {
    A("model.embed_tokens.weight", 32000, 4096),
    M("model.layers.0.self_attn.q_proj.weight", 4096, 4096),
    A("model.layers.0.block_sparse_moe.gate.weight", 8, 4096),
    M("model.layers.0.block_sparse_moe.experts.7.w1.weight", 14336, 4096),
    M("model.layers.0.block_sparse_moe.experts.7.w2.weight", 4096, 14336),
    M("model.layers.0.block_sparse_moe.experts.7.w3.weight", 14336, 4096),
    A("model.layers.0.mlp.gate.weight", 8, 4096), /* transformers 5 */
    T3("model.layers.0.mlp.experts.gate_up_proj", 8, 28672, 4096, EXPERTS),
    T3("model.layers.0.mlp.experts.down_proj", 8, 4096, 14336, EXPERTS),
    A("lm_head.weight", 32000, 4096),
};

static const named qwen[] = {
    /* 2, 2-MoE, 3 and 3-MoE */
    A("model.embed_tokens.weight", 151936, 2048),
    M("model.layers.0.self_attn.q_proj.weight", 2048, 2048),
    V("model.layers.0.self_attn.q_proj.bias", 2048),
    M("model.layers.0.self_attn.k_proj.weight", 256, 2048),
    V("model.layers.0.self_attn.q_norm.weight", 128),
    V("model.layers.0.self_attn.k_norm.weight", 128),
    M("model.layers.0.mlp.gate_proj.weight", 11008, 2048),
    A("model.layers.0.mlp.gate.weight", 60, 2048),
    M("model.layers.0.mlp.experts.59.gate_proj.weight", 1408, 2048),
    M("model.layers.0.mlp.experts.59.down_proj.weight", 2048, 1408),
    M("model.layers.0.mlp.shared_expert.gate_proj.weight", 5632, 2048),
    A("model.layers.0.mlp.shared_expert_gate.weight", 1, 2048),
    A("model.layers.1.mlp.gate.weight", 128, 2048),
    A("lm_head.weight", 151936, 2048),
};

static const named gemma[] = {
    A("model.embed_tokens.weight", 256000, 2048),
    M("model.layers.0.self_attn.q_proj.weight", 2048, 2048),
    M("model.layers.0.self_attn.k_proj.weight", 256, 2048),
    M("model.layers.0.mlp.gate_proj.weight", 16384, 2048),
    M("model.layers.0.mlp.down_proj.weight", 2048, 16384),
    V("model.layers.0.pre_feedforward_layernorm.weight", 2048),
    A("embedder.weight", 256000, 2048), /* gemma_pytorch */
};

static const named phi[] = {
    /* 2 and 3 */
    A("model.embed_tokens.weight", 51200, 2560),
    M("model.layers.0.self_attn.dense.weight", 2560, 2560),
    M("model.layers.0.mlp.fc1.weight", 10240, 2560),
    M("model.layers.0.mlp.fc2.weight", 2560, 10240),
    V("model.final_layernorm.weight", 2560),
    M("model.layers.0.self_attn.qkv_proj.weight", 9216, 3072),
    M("model.layers.0.mlp.gate_up_proj.weight", 16384, 3072),
    A("lm_head.weight", 51200, 2560),
};

static const named deepseek_v3[] = {
    A("model.embed_tokens.weight", 129280, 7168),
    M("model.layers.0.self_attn.q_a_proj.weight", 1536, 7168),
    V("model.layers.0.self_attn.q_a_layernorm.weight", 1536),
    M("model.layers.0.self_attn.q_b_proj.weight", 24576, 1536),
    M("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 576, 7168),
    M("model.layers.0.self_attn.kv_b_proj.weight", 32768, 512),
    M("model.layers.0.self_attn.o_proj.weight", 7168, 16384),
    M("model.layers.0.mlp.gate_proj.weight", 18432, 7168),
    A("model.layers.3.mlp.gate.weight", 256, 7168),
    V("model.layers.3.mlp.gate.e_score_correction_bias", 256),
    M("model.layers.3.mlp.experts.0.gate_proj.weight", 2048, 7168),
    M("model.layers.3.mlp.shared_experts.up_proj.weight", 2048, 7168),
    M("model.layers.61.eh_proj.weight", 7168, 14336),
    A("model.layers.61.shared_head.head.weight", 129280, 7168),
    A("model.layers.61.embed_tokens.weight", 129280, 7168),
    A("lm_head.weight", 129280, 7168),
};

static const named gpt_neox[] = {
    A("gpt_neox.embed_in.weight", 50432, 6144),
    M("gpt_neox.layers.0.attention.query_key_value.weight", 18432, 6144),
    V("gpt_neox.layers.0.attention.query_key_value.bias", 18432),
    M("gpt_neox.layers.0.attention.dense.weight", 6144, 6144),
    M("gpt_neox.layers.0.mlp.dense_h_to_4h.weight", 24576, 6144),
    M("gpt_neox.layers.0.mlp.dense_4h_to_h.weight", 6144, 24576),
    V("gpt_neox.final_layer_norm.weight", 6144),
    A("embed_out.weight", 50432, 6144),
};

static const named t5[] = {
    A("shared.weight", 32128, 512),
    A("encoder.embed_tokens.weight", 32128, 512),
    M("encoder.block.0.layer.0.SelfAttention.q.weight", 512, 512),
    M("encoder.block.0.layer.0.SelfAttention.o.weight", 512, 512),
    A("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 32, 8),
    V("encoder.block.0.layer.0.layer_norm.weight", 512),
    M("encoder.block.0.layer.1.DenseReluDense.wi.weight", 2048, 512),
    M("decoder.block.0.layer.2.DenseReluDense.wi_0.weight", 1024, 512),
    M("decoder.block.0.layer.2.DenseReluDense.wo.weight", 512, 2048),
    M("decoder.block.0.layer.1.EncDecAttention.k.weight", 512, 512),
    V("decoder.final_layer_norm.weight", 512),
    A("lm_head.weight", 32128, 512),
};

static const named bert[] = {
    A("bert.embeddings.word_embeddings.weight", 30522, 768),
    A("bert.embeddings.position_embeddings.weight", 512, 768),
    A("bert.embeddings.token_type_embeddings.weight", 2, 768),
    V("bert.embeddings.LayerNorm.weight", 768),
    M("bert.encoder.layer.0.attention.self.query.weight", 768, 768),
    M("bert.encoder.layer.0.attention.output.dense.weight", 768, 768),
    V("bert.encoder.layer.0.attention.output.LayerNorm.weight", 768),
    M("bert.encoder.layer.0.intermediate.dense.weight", 3072, 768),
    M("bert.encoder.layer.0.output.dense.weight", 768, 3072),
    M("bert.pooler.dense.weight", 768, 768),
    M("cls.predictions.transform.dense.weight", 768, 768),
    A("cls.predictions.decoder.weight", 30522, 768),
    A("cls.seq_relationship.weight", 2, 768),
    A("classifier.weight", 20, 768),
    A("qa_outputs.weight", 8, 768),
};

static const named vit[] = {
    /* timm, Hugging Face, torchvision */
    T3("cls_token", 1, 1, 768, ADAM),
    T3("pos_embed", 1, 197, 768, ADAM),
    T4("patch_embed.proj.weight", 768, 3, 16, 16, ADAM),
    M("blocks.0.attn.qkv.weight", 2304, 768),
    M("blocks.0.attn.proj.weight", 768, 768),
    M("blocks.0.mlp.fc1.weight", 3072, 768),
    M("blocks.0.mlp.fc2.weight", 768, 3072),
    V("blocks.0.ls1.gamma", 768),
    A("head.weight", 1000, 768),
    A("head_dist.weight", 1000, 768), /* DeiT */
    T4("vit.embeddings.patch_embeddings.projection.weight", 768, 3, 16, 16, ADAM),
    M("vit.encoder.layer.0.attention.attention.query.weight", 768, 768),
    M("vit.encoder.layer.0.attention.output.dense.weight", 768, 768),
    A("classifier.weight", 1000, 768),
    M("encoder.layers.encoder_layer_0.self_attention.in_proj_weight", 2304, 768),
    A("heads.head.weight", 1000, 768),
};

static const named convnext[] = {
    /* timm, Hugging Face */
    T4("stem.0.weight", 96, 3, 4, 4, MUON),
    T4("stages.0.blocks.0.conv_dw.weight", 96, 1, 7, 7, ADAM),
    M("stages.0.blocks.0.mlp.fc1.weight", 384, 96),
    M("stages.0.blocks.0.mlp.fc2.weight", 96, 384),
    V("stages.0.blocks.0.gamma", 96),
    T4("stages.1.downsample.1.weight", 192, 96, 2, 2, MUON),
    V("head.norm.weight", 768),
    A("head.fc.weight", 1000, 768),
    M("convnext.encoder.stages.0.layers.0.pwconv1.weight", 384, 96),
    A("classifier.weight", 1000, 768),
};

static const named resnet[] = {
    /* torchvision */
    T4("conv1.weight", 64, 3, 7, 7, MUON),
    V("bn1.weight", 64),
    T4("layer1.0.conv1.weight", 64, 64, 1, 1, MUON),
    T4("layer1.0.conv2.weight", 64, 64, 3, 3, MUON),
    T4("layer2.0.downsample.0.weight", 512, 256, 1, 1, MUON),
    A("fc.weight", 1000, 2048),
    V("fc.bias", 1000),
};

static const named whisper[] = {
    /* Hugging Face, OpenAI */
    T3("model.encoder.conv1.weight", 384, 80, 3, MUON),
    T3("model.encoder.conv2.weight", 384, 384, 3, MUON),
    A("model.encoder.embed_positions.weight", 1500, 384),
    M("model.encoder.layers.0.self_attn.k_proj.weight", 384, 384),
    V("model.encoder.layers.0.self_attn_layer_norm.weight", 384),
    M("model.decoder.layers.0.encoder_attn.out_proj.weight", 384, 384),
    M("model.decoder.layers.0.fc1.weight", 1536, 384),
    A("model.decoder.embed_tokens.weight", 51865, 384),
    A("proj_out.weight", 51865, 384),
    A("decoder.token_embedding.weight", 51865, 384),
    A("decoder.positional_embedding", 448, 384),
    M("decoder.blocks.0.cross_attn.query.weight", 384, 384),
    M("encoder.blocks.0.mlp.0.weight", 1536, 384),
};

static const named clip[] = {
    /* Hugging Face, OpenAI */
    A("text_model.embeddings.token_embedding.weight", 49408, 512),
    A("text_model.embeddings.position_embedding.weight", 77, 512),
    M("text_model.encoder.layers.0.self_attn.q_proj.weight", 512, 512),
    M("text_model.encoder.layers.0.mlp.fc1.weight", 2048, 512),
    V("text_model.final_layer_norm.weight", 512),
    V("vision_model.embeddings.class_embedding", 768),
    T4("vision_model.embeddings.patch_embedding.weight", 768, 3, 32, 32, ADAM),
    A("vision_model.embeddings.position_embedding.weight", 50, 768),
    M("visual_projection.weight", 512, 768),
    M("text_projection.weight", 512, 512),
    {"logit_scale", 0, {0}, ADAM},
    A("positional_embedding", 77, 512),
    M("transformer.resblocks.0.attn.in_proj_weight", 1536, 512),
    V("transformer.resblocks.0.attn.in_proj_bias", 1536),
    M("transformer.resblocks.0.mlp.c_fc.weight", 2048, 512),
};

static const named mamba[] = {
    A("backbone.embeddings.weight", 50280, 768),
    A("backbone.layers.0.mixer.A_log", 1536, 16),
    V("backbone.layers.0.mixer.D", 1536),
    T3("backbone.layers.0.mixer.conv1d.weight", 1536, 1, 4, ADAM),
    M("backbone.layers.0.mixer.in_proj.weight", 3072, 768),
    M("backbone.layers.0.mixer.x_proj.weight", 80, 1536),
    M("backbone.layers.0.mixer.dt_proj.weight", 1536, 48),
    M("backbone.layers.0.mixer.out_proj.weight", 768, 1536),
    V("backbone.layers.0.norm.weight", 768),
    A("lm_head.weight", 50280, 768),
};

static const named others[] = {
    /* lucidrains, fairseq, Megatron, GPT-OSS */
    A("net.token_emb.emb.weight", 20000, 512),
    A("net.tok_emb.weight", 20000, 512),
    M("net.attn_layers.layers.0.1.to_qkv.weight", 1536, 512),
    A("net.to_logits.weight", 20000, 512),
    A("decoder.output_projection.weight", 40000, 512),
    M("decoder.layers.0.mlp.linear_fc1.weight", 2048, 512),
    A("model.layers.0.mlp.router.weight", 32, 2880),
    T3("model.layers.0.mlp.experts.gate_up_proj", 32, 2880, 5760, EXPERTS),
    A("model.layers.0.mlp.experts.gate_up_proj_bias", 32, 5760),
};

#define FAMILY(name)                                                                               \
    {                                                                                              \
#name, name, COUNT(name)                                                                   \
    }

static const struct family {
    const char *name;
    const named *parameters;
    size_t count;
} families[] = {
    FAMILY(gpt2),        FAMILY(nanogpt),  FAMILY(nanochat), FAMILY(llama_hf), FAMILY(llama_meta),
    FAMILY(mistral),     FAMILY(mixtral),  FAMILY(qwen),     FAMILY(gemma),    FAMILY(phi),
    FAMILY(deepseek_v3), FAMILY(gpt_neox), FAMILY(t5),       FAMILY(bert),     FAMILY(vit),
    FAMILY(convnext),    FAMILY(resnet),   FAMILY(whisper),  FAMILY(clip),     FAMILY(mamba),
    FAMILY(others),
};

static muonium_tensor tensor_of(const named *n, size_t number)
{
    muonium_tensor t = {.name = n->name, .ndim = n->ndim, .data = WHERE(number)};
    memcpy(t.shape, n->shape, sizeof n->shape);
    return t;
}

static muonium_optimizer *description(const muonium_options *o)
{
    muonium_optimizer *made;
    assert_ok(muonium_create_description(o, &made));
    return made;
}

static muonium_options recipe(const char *name)
{
    muonium_options o;
    assert_ok(muonium_options_init(&o, name));
    o.lr = 0.02;
    return o;
}

static void test_families(void **state)
{
    (void)state;
    const muonium_options o = recipe(NULL);
    for (size_t f = 0; f < COUNT(families); f++) {
        for (size_t i = 0; i < families[f].count; i++) {
            const named *n = &families[f].parameters[i];
            muonium_optimizer *opt = description(&o);
            muonium_parameter_report report;
            const muonium_tensor t = tensor_of(n, 0);
            assert_ok(muonium_add(opt, &t, NULL));
            assert_ok(muonium_report(opt, 0, &report));
            const size_t matrices = n->route == EXPERTS ? n->shape[0] : n->route == MUON ? 1 : 0;
            if (report.muon != (n->route != ADAM) || report.matrices != matrices) {
                fail_msg("%s: %s gets %s with %zu matrices (%s)", families[f].name, n->name,
                         report.muon ? "Muon" : "AdamW", report.matrices, report.reason);
            }
            muonium_destroy(opt);
        }
    }
}

/* ---- the rules of the recipes ---- */

static void test_rules(void **state)
{
    (void)state;
    static const char *const recipes[] = {"muonium", "timm",   "torch",     "optax",
                                          "fp16",    "keller", "moonlight", "motif"};
    static const struct {
        named parameter;
        const char *muon; /* by recipe: M or a dot for AdamW */
    } cases[] = {
        {M("h.0.mlp.w", 64, 64), "MMMMMMMM"},
        {M("wte.weight", 512, 64), ".MMMMMMM"},
        {M("model.embed_tokens.weight", 512, 64), ".MMM.M.."},
        {M("lm_head.weight", 512, 64), ".MMMMM.."},
        {M("output.weight", 512, 64), ".MMMMMM."},
        {M("tok_embeddings.weight", 512, 64), ".MMM.MM."},
        {M("head.weight", 512, 64), ".MMMMMMM"},
        {M("mlp.router.weight", 8, 64), ".MMM.MMM"},
        {M("attn.q_norm.weight", 8, 64), ".MMM.MMM"},
        {M("smear.weight", 8, 64), ".MMM.MMM"},
        {M("thin", 2, 4096), "..MMMMMM"},
        {M("flat", 1, 64), "..MMMMMM"},
        {T4("patch_embed.proj.weight", 64, 3, 4, 4, MUON), ".M...MMM"},
        {T4("conv.weight", 64, 32, 3, 3, MUON), "MM...MMM"},
        {T4("depthwise.weight", 64, 1, 3, 3, MUON), ".....MMM"},
        {T3("experts.w1", 8, 32, 64, MUON), "M....MMM"},
        {V("bias", 64), "........"},
        {{"scalar", 0, {0}, ADAM}, "........"},
    };
    for (size_t r = 0; r < COUNT(recipes); r++) {
        const muonium_options o = recipe(recipes[r]);
        muonium_optimizer *opt = description(&o);
        for (size_t i = 0; i < COUNT(cases); i++) {
            const muonium_tensor t = tensor_of(&cases[i].parameter, i);
            muonium_parameter_report report;
            assert_ok(muonium_add(opt, &t, NULL));
            assert_ok(muonium_report(opt, i, &report));
            if (report.muon != (cases[i].muon[r] == 'M')) {
                fail_msg("%s: %s gets %s (%s)", recipes[r], t.name, report.muon ? "Muon" : "AdamW",
                         report.reason);
            }
        }
        muonium_destroy(opt);
    }
}

static void test_queries(void **state)
{
    (void)state;
    const char *place = NULL;
    assert_string_equal(muonium_routing_name(0), "muonium");
    assert_string_equal(muonium_routing_name(6), "motif");
    assert_null(muonium_routing_name(7));
    assert_null(muonium_routing_name(-1));
    assert_string_equal(muonium_default_pattern(0, &place), "*embed*");
    assert_string_equal(place, "word");
    int count = 0;
    while (muonium_default_pattern(count, NULL) != NULL) {
        count++;
    }
    assert_in_range(count, 20, 60);
    assert_null(muonium_default_pattern(-1, &place));
    muonium_options o = recipe(NULL); /* any recipe with any rule */
    o.routing = MUONIUM_ROUTING_TORCH;
    muonium_optimizer *opt = description(&o);
    const muonium_tensor thin = {
        .name = "lm_head", .ndim = 2, .shape = {2, 1024}, .data = WHERE(0)};
    muonium_parameter_report report;
    assert_ok(muonium_add(opt, &thin, NULL));
    assert_ok(muonium_report(opt, 0, &report));
    assert_string_equal(report.reason, "ok");
    muonium_destroy(opt);
    o.routing = (muonium_routing)7;
    assert_status_message(muonium_create(&o, &opt), MUONIUM_INVALID, "routing is 7");
}

/* ---- fused matrices ---- */

static void test_fused(void **state)
{
    (void)state;
    static const struct {
        named tensor;
        const char *kind;
        size_t count, rows[3];
        bool columns;
    } cases[] = {
        {M("h.0.attn.c_attn.weight", 2304, 768), "QKV", 3, {768, 768, 768}, false},
        {M("h.0.attn.c_attn.weight", 768, 2304), "QKV", 3, {768, 768, 768}, true},
        {M("h.0.attn.c_attn.weight", 2304, 2048), "QKV", 3, {2048, 128, 128}, false},
        {M("l.0.self_attn.qkv_proj.weight", 5120, 3072), "QKV", 3, {3072, 1024, 1024}, false},
        {M("b.Wqkv.weight", 192, 64), "QKV", 3, {64, 64, 64}, false},
        {M("attn.in_proj_weight", 192, 64), "QKV", 3, {64, 64, 64}, false},
        {M("attn.qkv", 64, 64), "QKV", 0, {0}, false},
        {M("attn.qkv", 65, 64), "QKV", 0, {0}, false},
        {M("attn.qkv", 1000, 64), "QKV", 0, {0}, false},
        {M("a.query_key_value.weight", 192, 64), "QKV by heads", 0, {0}, false},
        {M("a.to_kv.weight", 128, 64), "K and V", 2, {64, 64, 0}, false},
        {M("mlp.gate_up_proj.weight", 96, 64), "gate and up", 2, {48, 48, 0}, false},
        {M("mlp.gate_up_proj.weight", 32, 64), "gate and up", 2, {16, 16, 0}, false},
        {M("mlp.w13.weight", 97, 64), "gate and up", 0, {0}, false},
        {T3("experts.gate_up_proj", 4, 96, 64, MUON), "gate and up", 2, {48, 48, 0}, false},
        {T3("experts.gate_up_proj", 4, 64, 96, MUON), "gate and up", 0, {0}, false},
        {T3("attn.qkv.weight", 192, 64, 1, MUON), NULL, 0, {0}, false},
        {V("attn.qkv.bias", 192), NULL, 0, {0}, false},
        {M("attn.q_proj.weight", 192, 64), NULL, 0, {0}, false},
        {M("", 192, 64), NULL, 0, {0}, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const muonium_tensor t = tensor_of(&cases[i].tensor, 0);
        muonium_fusion found;
        assert_ok(muonium_fused(&t, &found));
        assert_int_equal(found.kind == NULL, cases[i].kind == NULL);
        if (found.kind != NULL) {
            assert_string_equal(found.kind, cases[i].kind);
        }
        assert_int_equal(found.count, cases[i].count);
        assert_memory_equal(found.rows, cases[i].rows, sizeof found.rows);
        assert_int_equal(found.columns, cases[i].columns);
    }
    assert_status_message(muonium_fused(NULL, NULL), MUONIUM_INVALID, "tensor is NULL");
}

static void assert_matrices(const muonium_options *o, muonium_tensor t, size_t count, size_t rows,
                            size_t cols)
{
    muonium_optimizer *opt = description(o);
    muonium_parameter_report report;
    assert_ok(muonium_add(opt, &t, NULL));
    assert_ok(muonium_report(opt, 0, &report));
    assert_int_equal(report.matrices, count);
    assert_int_equal(report.rows, rows);
    assert_int_equal(report.cols, cols);
    muonium_destroy(opt);
}

static void test_split_fused(void **state)
{
    (void)state;
    muonium_options o = recipe(NULL);
    const named qkv = M("attn.qkv.weight", 192, 64), conv1d = M("attn.c_attn.weight", 64, 192),
                grouped = M("qkv_proj.weight", 96, 64),
                experts = T3("experts.gate_up_proj", 4, 96, 64, MUON),
                unknown = M("query_key_value.weight", 192, 64);
    assert_matrices(&o, tensor_of(&qkv, 0), 1, 192, 64);
    assert_matrices(&o, tensor_of(&experts, 0), 4, 96, 64);
    o.split_fused = true;
    assert_matrices(&o, tensor_of(&qkv, 0), 3, 64, 64);
    assert_matrices(&o, tensor_of(&conv1d, 0), 3, 64, 64);
    assert_matrices(&o, tensor_of(&grouped, 0), 3, 64, 64);
    assert_matrices(&o, tensor_of(&experts, 0), 8, 48, 64);
    assert_matrices(&o, tensor_of(&unknown, 0), 1, 192, 64);
    muonium_tensor own = tensor_of(&qkv, 0); /* what the caller says goes before */
    own.heads = 6;
    assert_matrices(&o, own, 6, 32, 64);
    own.heads = 0;
    own.layout = MUONIUM_LAYOUT_FLATTEN;
    assert_matrices(&o, own, 1, 192, 64);
    own = tensor_of(&experts, 0);
    o.layout_3d = MUONIUM_LAYOUT_FLATTEN;
    assert_matrices(&o, own, 0, 0, 0); /* 4 x 6144 is too long */
}

/* ---- warnings ---- */

typedef struct heard {
    char lines[8][512];
    size_t count;
} heard;

static void hear(void *context, const char *line)
{
    heard *h = context;
    assert_true(h->count < COUNT(h->lines));
    strcpy(h->lines[h->count++], line);
}

static heard warned;

/* The warnings for a model of some layers, to which all belongs that wants Muon. */
static void ask(const muonium_options *o, const named *list, size_t count, size_t layers)
{
    muonium_optimizer *opt = description(o);
    size_t number = 0;
    for (size_t i = 0; i < count; i++) {
        const bool once = layers == 1 || list[i].route == ADAM;
        for (size_t layer = 0; layer < (once ? 1 : layers); layer++) {
            muonium_tensor t = tensor_of(&list[i], number++);
            char name[128];
            if (!once) {
                snprintf(name, sizeof name, "layers.%zu.%s", layer, t.name);
                t.name = name;
            }
            assert_ok(muonium_add(opt, &t, NULL));
        }
    }
    warned.count = 0;
    assert_ok(muonium_warnings(opt, hear, &warned));
    muonium_destroy(opt);
}

static void assert_warned(size_t count, const char *text)
{
    assert_int_equal(warned.count, count);
    for (size_t i = 0; i < count; i++) {
        if (strstr(warned.lines[i], text) != NULL) {
            return;
        }
    }
    if (count > 0) {
        fail_msg("no warning has \"%s\": %s", text, warned.lines[0]);
    }
}

static void test_warnings(void **state)
{
    (void)state;
    const muonium_options own = recipe(NULL), keller = recipe("keller");
    static const named layer[] = {M("q", 768, 768), M("up", 3072, 768), M("down", 768, 3072)};
    static const named gpt[] = {M("transformer.wte", 50257, 768), M("h.0.q", 768, 768),
                                M("h.0.up", 3072, 768), M("h.1.up", 3072, 768),
                                M("h.2.up", 3072, 768)};
    static const named unnamed[] = {M(NULL, 50257, 768), M(NULL, 3072, 768)};
    static const named biases[] = {V("b1", 64), V("b2", 64)};
    static const named fused[] = {M("attn.qkv.weight", 2304, 768)};
    static const named by_heads[] = {M("query_key_value.weight", 2304, 768)};

    ask(&own, layer, COUNT(layer), 3);
    assert_warned(0, "");
    ask(&own, gpt, COUNT(gpt), 1);
    assert_warned(0, ""); /* the name tells */
    ask(&keller, gpt, COUNT(gpt), 1);
    assert_warned(1, "transformer.wte (50257 x 768) looks like an embedding");

    ask(&own, unnamed, COUNT(unnamed), 1);
    assert_warned(2, "2 matrices without a name get Muon");
    assert_warned(2, "parameter 0 (50257 x 768) looks like");
    ask(&keller, unnamed + 1, 1, 1);
    assert_warned(0, ""); /* a rule that needs no names */

    ask(&own, biases, COUNT(biases), 1);
    assert_warned(1, "no parameter gets Muon, all 2 get AdamW (b1: insufficient_dims)");

    ask(&own, fused, 1, 3);
    assert_warned(1, "layers.0.attn.qkv.weight and 2 more: QKV in one tensor");
    assert_warned(1, "would split it (rows 768 + 768 + 768)");
    ask(&own, by_heads, 1, 3);
    assert_warned(1, "give row_splits or heads");
    muonium_options split = own;
    split.split_fused = true;
    ask(&split, fused, 1, 3);
    assert_warned(0, "");

    muonium_options given = keller; /* a route that was given is not doubted */
    given.route = MUONIUM_ROUTE_MUON;
    ask(&given, unnamed, COUNT(unnamed), 1);
    assert_warned(0, "");
    given.route = MUONIUM_ROUTE_ADAM;
    ask(&given, layer, COUNT(layer), 1);
    assert_warned(0, "");

    assert_status_message(muonium_warnings(NULL, hear, NULL), MUONIUM_INVALID, "NULL");
}

/* No family is warned of a vocabulary, and only those with fused matrices of these. */
static void test_warnings_of_families(void **state)
{
    (void)state;
    const muonium_options o = recipe(NULL);
    for (size_t f = 0; f < COUNT(families); f++) {
        ask(&o, families[f].parameters, families[f].count, 3);
        for (size_t i = 0; i < warned.count; i++) {
            if (strstr(warned.lines[i], "in one tensor") == NULL) {
                fail_msg("%s: %s", families[f].name, warned.lines[i]);
            }
        }
    }
}

/* The log of the first step has them, marked, and only once. */
static void test_warnings_in_log(void **state)
{
    (void)state;
    static float data[64], grad[64];
    muonium_options o = recipe(NULL);
    muonium_optimizer *opt;
    static heard h;
    h.count = 0;
    o.log = hear;
    o.log_context = &h;
    assert_ok(muonium_create(&o, &opt));
    const muonium_tensor t = {.ndim = 2, .shape = {8, 8}, .data = data, .grad = grad};
    assert_ok(muonium_add(opt, &t, NULL));
    assert_ok(muonium_step(opt));
    assert_ok(muonium_step(opt));
    size_t marked = 0;
    for (size_t i = 0; i < h.count; i++) {
        marked += strncmp(h.lines[i], "warning: 1 matrix without a name gets Muon", 42) == 0;
    }
    assert_int_equal(marked, 1);
    muonium_destroy(opt);
}

/* Under hyperball zeros never move: the log of the first step says so, of zeros alone. */
static void test_zeros_under_hyperball(void **state)
{
    (void)state;
    static float zeros[64], ones[64], grad[64];
    for (size_t i = 0; i < COUNT(ones); i++) {
        grad[i] = ones[i] = 1;
    }
    static heard h;
    h.count = 0;
    muonium_options o = recipe("muonh");
    o.log = hear;
    o.log_context = &h;
    muonium_optimizer *opt;
    assert_ok(muonium_create(&o, &opt));
    muonium_tensor t = {.name = "silent", .ndim = 2, .shape = {8, 8}, .data = zeros, .grad = grad};
    assert_ok(muonium_add(opt, &t, NULL));
    t.name = "loud";
    t.data = ones;
    assert_ok(muonium_add(opt, &t, NULL));
    assert_ok(muonium_step(opt));
    assert_ok(muonium_step(opt));
    size_t warnings = 0;
    for (size_t i = 0; i < h.count; i++) {
        warnings += strncmp(h.lines[i], "warning: silent is zero and stays zero", 38) == 0;
        assert_null(strstr(h.lines[i], "warning: loud"));
    }
    assert_int_equal(warnings, 1);
    muonium_destroy(opt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_split_fused),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_warnings_of_families),
        cmocka_unit_test(test_warnings_in_log),
        cmocka_unit_test(test_zeros_under_hyperball),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
