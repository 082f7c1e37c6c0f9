/* The memory of one problem: guarded buffers, sets of tensors, outputs poisoned before every checked or timed use. */
#ifndef FABENCH_BUFFERS_H
#define FABENCH_BUFFERS_H

#include "cmd/device/backend.h"
#include "cmd/plan/plan.h"
#include "cmd/problem/problem.h"
#include "reference/harness/quantise.h"

/* Every 16- and 32-bit part of both patterns is a NaN in fp16, bf16 and fp32, so that a result computed from them is
 * NaN. Of POISON_PATTERN so is every byte in e4m3 and e5m2. */
#define POISON_PATTERN 0xFFFFFFFFu /* content of an output before a launch */
#define CANARY_PATTERN 0xFFC1FFC1u /* content of the guards before and after every buffer */
enum { GUARD_BYTES = 4096 };

/* A device allocation of GUARD_BYTES + bytes rounded up to 256 + GUARD_BYTES; data points behind the first guard. A
 * size that no memory has is refused with ATTN_NO_MEMORY and a sentence. */
struct buffer {
    void *base, *data;
    size_t bytes;
};

enum attn_status buffer_alloc(struct backend *, size_t bytes, struct buffer *, struct attn_message *why);
/* The same with data `offset` bytes (a multiple of 4) further on; the first guard reaches up to it. */
enum attn_status buffer_alloc_at(struct backend *, size_t offset, size_t bytes, struct buffer *,
                                 struct attn_message *why);
void buffer_free(struct backend *, struct buffer *);
/* True when the outer ends of its guards have changed, too: then memory of others may have. */
enum attn_status buffer_overrun(struct backend *, const struct buffer *, bool *is_overrun, struct attn_message *why);
/* Writes the guards again; nothing for a buffer without memory. */
enum attn_status buffer_guard(struct backend *, const struct buffer *, struct attn_message *why);
/* Counts the 32-bit words of both guards, and of the padding after the data, that no longer hold the canary. */
enum attn_status buffer_guards_broken(struct backend *, const struct buffer *, uint64_t *words,
                                      struct attn_message *why);

/* Of packed sequences batch is 1 and len is the sum of their lengths. Of K and V in pages batch is the number of pages
 * and len the rows of a page. */
struct tensor_shape {
    int64_t batch, heads, len, head_dim; /* columns; head_dim is 1 for LSE */
};
struct tensor_shape tensor_shape_of(const struct attn_problem *, enum problem_tensor);
/* The shape of its .npy file: K and V of a cache are [batch, heads, kv_len, head_dim] there, in pages or not. */
struct tensor_shape tensor_file_shape_of(const struct attn_problem *, enum problem_tensor);
/* The type of its elements: that of the inputs, or of the outputs, or fp32 for LSE. */
enum attn_dtype tensor_dtype_of(const struct attn_problem *, enum problem_tensor);
/* Where the tensor lies. */
struct attn_tensor tensor_of(const struct attn_problem *, const struct attn_tensors *, enum problem_tensor);
/* Puts it into other memory, at the same strides. */
void tensor_point_at(struct attn_tensors *, enum problem_tensor, void *memory);

/* What has changed sign since the inputs were filled: columns of Q and K, others of V, O and dO, and with the seeds of
 * `elements` single elements of Q, K, V and dO; 0 = none. */
struct input_signs {
    struct column_signs qk, v;
    uint64_t elements[TENSOR_COUNT];
};

/* A set of buffers for some tensors of one problem, with the tensors that point into them. `signs`: of inputs as they
 * are now, of outputs as the inputs were at the launch that wrote them (its caller copies them). */
struct tensor_set {
    struct attn_tensors tensors;
    struct input_signs signs;
    struct buffer buffers[TENSOR_COUNT];   /* by enum problem_tensor */
    struct buffer arrays[ARRAY_COUNT];     /* by enum problem_array; of a set of inputs */
    struct buffer scales[QUANTISED_COUNT]; /* of 8-bit inputs, by enum quantised */
    float *scale_values[QUANTISED_COUNT];  /* what was written into them; host memory, owned */
    double quant_ms;                       /* the time that quantising took; NaN where nothing was quantised */
};

/* Memory and guards for the inputs of a mode: q k v (fwd), q k v o lse dout (bwd), the item's arrays, and the scales of
 * 8-bit inputs. Their values: cmd/device/inputs.h. */
enum attn_status inputs_allocate(struct backend *, const struct plan_item *, struct tensor_set *,
                                 struct attn_message *why);

/* Outputs of a mode: o lse (fwd) or dq dk dv (bwd), poisoned. The inputs' tensors are copied into the set too, so that
 * `outputs->tensors` is complete for a launch. */
enum attn_status outputs_make(struct backend *, const struct plan_item *, const struct tensor_set *inputs,
                              struct tensor_set *outputs, struct attn_message *why);
enum attn_status outputs_poison(struct backend *, struct tensor_set *, struct attn_message *why);
/* True when buffer_overrun is of one of its buffers. */
enum attn_status tensor_set_overrun(struct backend *, const struct tensor_set *, bool *is_overrun,
                                    struct attn_message *why);
/* Writes the guards of every buffer this set owns again. */
enum attn_status tensor_set_guard(struct backend *, const struct tensor_set *, struct attn_message *why);
/* Frees the buffers this set owns. */
void tensor_set_free(struct backend *, struct tensor_set *);

/* Changes signs so that `to` are those that differ from the inputs as they were filled; enqueues.
 * reference/harness/signs.h says what follows for the outputs. */
enum attn_status inputs_change_signs(struct backend *, const struct plan_item *, struct tensor_set *inputs,
                                     const struct input_signs *to, struct attn_message *why);
/* What has the other sign in a tensor when the inputs have these; of outputs the columns alone. */
struct column_signs tensor_signs(const struct input_signs *, enum problem_tensor);

/* 32-bit words between the rows of an output, where its strides leave room, that no longer hold POISON_PATTERN. All
 * elements of the output must be finite; else some words may not be counted. */
enum attn_status output_gaps_broken(struct backend *, const struct plan_item *, const struct tensor_set *,
                                    enum problem_tensor, uint64_t *words, struct attn_message *why);

/* Hash of every element of the inputs without the change of signs; a launch must not change it. */
enum attn_status inputs_hash(struct backend *, const struct plan_item *, const struct tensor_set *, uint64_t *hash,
                             struct attn_message *why);
/* Digests of the outputs of a mode, each without its change of signs, by enum problem_tensor. */
enum attn_status outputs_digest(struct backend *, const struct plan_item *, const struct tensor_set *,
                                struct digest digests[TENSOR_COUNT], struct attn_message *why);

/* Bytes of inputs and of one set of outputs, for --dry-run and for the out-of-memory sentence. */
double tensor_set_bytes(const struct plan_item *);

#endif
