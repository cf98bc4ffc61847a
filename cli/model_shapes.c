/*
 * model_shapes.c: tensors of models, layer by layer.
 */
#include "model_shapes.h"

#include <stdint.h>
#include <stdio.h>

typedef struct tensor_shape {
    const char *name;
    size_t ndim;
    size_t shape[3];
    size_t splits; /* into as many equal blocks of rows */
} tensor_shape;

/* Tensors before the layers, of every layer, and after them; each list ends with a name
 * of NULL. */
typedef struct model_shapes {
    const char *name;
    size_t layers;
    const tensor_shape *before, *layer, *after;
} model_shapes;

static const tensor_shape none[] = {{.name = NULL}};

static const tensor_shape gpt2_before[] = {
    {"wte", 2, {50257, 768}, 0}, {"wpe", 2, {1024, 768}, 0}, {.name = NULL}};
static const tensor_shape gpt2_layer[] = {
    {"ln_1.weight", 1, {768}, 0},
    {"ln_1.bias", 1, {768}, 0},
    {"attn.c_attn.weight", 2, {2304, 768}, 3},
    {"attn.c_attn.bias", 1, {2304}, 0},
    {"attn.c_proj.weight", 2, {768, 768}, 0},
    {"attn.c_proj.bias", 1, {768}, 0},
    {"ln_2.weight", 1, {768}, 0},
    {"ln_2.bias", 1, {768}, 0},
    {"mlp.c_fc.weight", 2, {3072, 768}, 0},
    {"mlp.c_fc.bias", 1, {3072}, 0},
    {"mlp.c_proj.weight", 2, {768, 3072}, 0},
    {"mlp.c_proj.bias", 1, {768}, 0},
    {.name = NULL},
};
static const tensor_shape gpt2_after[] = {
    {"ln_f.weight", 1, {768}, 0}, {"ln_f.bias", 1, {768}, 0}, {.name = NULL}};

static const tensor_shape llama_before[] = {{"embed_tokens", 2, {32000, 4096}, 0}, {.name = NULL}};
static const tensor_shape llama_layer[] = {
    {"self_attn.q_proj.weight", 2, {4096, 4096}, 0},
    {"self_attn.k_proj.weight", 2, {4096, 4096}, 0},
    {"self_attn.v_proj.weight", 2, {4096, 4096}, 0},
    {"self_attn.o_proj.weight", 2, {4096, 4096}, 0},
    {"mlp.gate_proj.weight", 2, {11008, 4096}, 0},
    {"mlp.up_proj.weight", 2, {11008, 4096}, 0},
    {"mlp.down_proj.weight", 2, {4096, 11008}, 0},
    {"input_layernorm.weight", 1, {4096}, 0},
    {"post_attention_layernorm.weight", 1, {4096}, 0},
    {.name = NULL},
};
static const tensor_shape llama_after[] = {
    {"norm.weight", 1, {4096}, 0}, {"lm_head", 2, {32000, 4096}, 0}, {.name = NULL}};

static const tensor_shape moe_before[] = {{"embed_tokens", 2, {50304, 2048}, 0}, {.name = NULL}};
static const tensor_shape moe_layer[] = {
    {"self_attn.q_proj.weight", 2, {2048, 2048}, 0},
    {"self_attn.k_proj.weight", 2, {2048, 2048}, 0},
    {"self_attn.v_proj.weight", 2, {2048, 2048}, 0},
    {"self_attn.o_proj.weight", 2, {2048, 2048}, 0},
    {"mlp.router.weight", 2, {64, 2048}, 0},
    {"mlp.experts.gate", 3, {64, 1024, 2048}, 0},
    {"mlp.experts.up", 3, {64, 1024, 2048}, 0},
    {"mlp.experts.down", 3, {64, 2048, 1024}, 0},
    {"input_layernorm.weight", 1, {2048}, 0},
    {"post_attention_layernorm.weight", 1, {2048}, 0},
    {.name = NULL},
};
static const tensor_shape moe_after[] = {
    {"norm.weight", 1, {2048}, 0}, {"lm_head", 2, {50304, 2048}, 0}, {.name = NULL}};

/* One wide matrix that no rank should have to do alone. */
static const tensor_shape wide_layer[] = {{"w", 2, {2048, 65536}, 0}, {.name = NULL}};

static const model_shapes models[] = {
    {"gpt2", 12, gpt2_before, gpt2_layer, gpt2_after},
    {"llama-7b", 32, llama_before, llama_layer, llama_after},
    {"moe-64", 16, moe_before, moe_layer, moe_after},
    {"one-matrix", 1, none, wide_layer, none},
};

enum { MODEL_COUNT = sizeof models / sizeof models[0] };

const char *model_shapes_name(int index)
{
    return index >= 0 && index < MODEL_COUNT ? models[index].name : NULL;
}

/* Where the next tensor pretends to lie. */
typedef struct adding {
    muonium_optimizer *description;
    muonium_dtype dtype;
    uintptr_t next;
} adding;

static muonium_status add_list(adding *a, const tensor_shape *list, const char *prefix)
{
    muonium_status status = MUONIUM_OK;
    for (const tensor_shape *s = list; status == MUONIUM_OK && s->name != NULL; s++) {
        char name[96];
        muonium_tensor tensor = {
            .name = name, .dtype = a->dtype, .ndim = s->ndim, .heads = s->splits};
        size_t bytes = muonium_dtype_size(a->dtype);
        for (size_t d = 0; d < s->ndim; d++) {
            tensor.shape[d] = s->shape[d];
            bytes *= s->shape[d];
        }
        if (s->ndim == 3) {
            tensor.layout = MUONIUM_LAYOUT_EXPERTS;
        }
        snprintf(name, sizeof name, "%s%s", prefix, s->name);
        tensor.data = (void *)a->next; /* never read */
        a->next += (bytes + 63) / 64 * 64;
        status = muonium_add(a->description, &tensor, NULL);
    }
    return status;
}

muonium_status model_shapes_add(int index, muonium_dtype dtype, muonium_optimizer *description)
{
    const model_shapes *model = &models[index];
    adding a = {description, dtype, 1 << 16};
    muonium_status status = add_list(&a, model->before, "");
    for (size_t i = 0; status == MUONIUM_OK && i < model->layers; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%zu.", i);
        status = add_list(&a, model->layer, prefix);
    }
    return status == MUONIUM_OK ? add_list(&a, model->after, "") : status;
}
