/*
 * ggml.h: what examples/ggml/train.c uses of ggml 0.25, declared after its documentation. Where
 * ggml itself cannot be had, the example is compiled against this.
 */
#ifndef GGML_DECLARATIONS_H
#define GGML_DECLARATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGML_DEFAULT_GRAPH_SIZE 2048

enum ggml_type { GGML_TYPE_F32 };

enum ggml_opt_loss_type { GGML_OPT_LOSS_TYPE_CROSS_ENTROPY };

enum ggml_opt_optimizer_type { GGML_OPT_OPTIMIZER_TYPE_SGD };

struct ggml_context;
struct ggml_cgraph;
typedef struct ggml_backend *ggml_backend_t;
typedef struct ggml_backend_sched *ggml_backend_sched_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_opt_context *ggml_opt_context_t;
typedef struct ggml_opt_result *ggml_opt_result_t;

struct ggml_tensor {
    int64_t ne[4];
    void *data;
    char name[64];
};

struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};

struct ggml_opt_optimizer_params {
    struct {
        float alpha, beta1, beta2, eps, wd;
    } adamw;
    struct {
        float alpha, wd;
    } sgd;
};

struct ggml_opt_params {
    struct ggml_context *ctx_compute;
    struct ggml_tensor *inputs, *outputs;
    int32_t opt_period;
    struct ggml_opt_optimizer_params (*get_opt_pars)(void *userdata);
    enum ggml_opt_optimizer_type optimizer;
};

struct ggml_context *ggml_init(struct ggml_init_params params);
void ggml_free(struct ggml_context *context);
size_t ggml_tensor_overhead(void);
size_t ggml_graph_overhead(void);
int64_t ggml_nelements(const struct ggml_tensor *tensor);
struct ggml_tensor *ggml_new_tensor_2d(struct ggml_context *context, enum ggml_type type,
                                       int64_t ne0, int64_t ne1);
struct ggml_tensor *ggml_set_name(struct ggml_tensor *tensor, const char *name);
void ggml_set_param(struct ggml_tensor *tensor);
void ggml_set_input(struct ggml_tensor *tensor);
struct ggml_tensor *ggml_mul_mat(struct ggml_context *context, struct ggml_tensor *a,
                                 struct ggml_tensor *b);
struct ggml_tensor *ggml_relu(struct ggml_context *context, struct ggml_tensor *a);

ggml_backend_t ggml_backend_cpu_init(void);
void ggml_backend_cpu_set_n_threads(ggml_backend_t backend, int threads);
void ggml_backend_free(ggml_backend_t backend);
ggml_backend_sched_t ggml_backend_sched_new(ggml_backend_t *backends,
                                            ggml_backend_buffer_type_t *types, int count,
                                            size_t graph_size, bool parallel, bool op_offload);
void ggml_backend_sched_free(ggml_backend_sched_t sched);
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors(struct ggml_context *context,
                                                     ggml_backend_t backend);
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer);

struct ggml_opt_optimizer_params ggml_opt_get_default_optimizer_params(void *userdata);
struct ggml_opt_params ggml_opt_default_params(ggml_backend_sched_t sched,
                                               enum ggml_opt_loss_type loss);
ggml_opt_context_t ggml_opt_init(struct ggml_opt_params params);
void ggml_opt_free(ggml_opt_context_t context);
void ggml_opt_reset(ggml_opt_context_t context, bool optimizer);
void ggml_opt_alloc(ggml_opt_context_t context, bool backward);
void ggml_opt_eval(ggml_opt_context_t context, ggml_opt_result_t result);
struct ggml_tensor *ggml_opt_inputs(ggml_opt_context_t context);
struct ggml_tensor *ggml_opt_labels(ggml_opt_context_t context);
struct ggml_tensor *ggml_opt_grad_acc(ggml_opt_context_t context, struct ggml_tensor *node);
ggml_opt_result_t ggml_opt_result_init(void);
void ggml_opt_result_free(ggml_opt_result_t result);
void ggml_opt_result_loss(ggml_opt_result_t result, double *loss, double *uncertainty);

#endif
