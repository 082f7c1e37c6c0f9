/* Quantities derived from a problem: FLOPs, bytes, visible pairs, strides. No device needed. */
#ifndef FABENCH_PROBLEM_H
#define FABENCH_PROBLEM_H

#include "kernels/attention.h"
#include "reference/harness/fill.h"

/* The tensors of a problem. Those before TENSOR_LSE are [batch, heads, len, head_dim] in the problem's dtype; LSE is
 * [batch, q_heads, q_len] in fp32. */
enum problem_tensor {
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_O,
    TENSOR_DO,
    TENSOR_DQ,
    TENSOR_DK,
    TENSOR_DV,
    TENSOR_LSE,
    TENSOR_DSINK, /* [q_heads] in fp32 */
    TENSOR_BIAS,  /* [bias_batch, bias_heads, q_len, kv_len] in bias_dtype */
    TENSOR_DBIAS,
    TENSOR_COUNT
};
const char *
    problem_tensor_name(enum problem_tensor);       /* as in records and in file names: q k v o do dq ... bias dbias */
const char *problem_tensor_title(const char *name); /* for people: "dk" -> "dK"; the name itself where it is none */
unsigned problem_tensor_bit(enum problem_tensor);   /* its enum attn_output; 0 = never an output */
/* The outputs of a mode in the order in which they are judged: o lse, or dq dk dv and what the attributes add. */
const enum problem_tensor *problem_outputs(const struct attn_problem *, enum attn_mode, int *count);
/* Their bits for attn_request.outputs; 0 where they are those of every problem. */
unsigned problem_wanted_outputs(const struct attn_problem *, enum attn_mode);
/* True for tensors that have no strides of their own: LSE and dSink. */
bool problem_is_array(enum problem_tensor);

/* Rows of Q, or keys, of all sequences together. */
int64_t problem_all_rows(const struct attn_problem *);
int64_t problem_all_keys(const struct attn_problem *);

/* Visible (row, key) pairs of one head with the lengths q_len and kv_len, by causal mask and window. The papers'
 * convention counts a causal square as exactly half. problem_arrays.h counts all of a problem. */
double problem_visible_pairs(const struct attn_problem *);

/* The direction as options, keys and records name it: a forward against a cache is one of its own. */
enum problem_mode { MODE_FWD = ATTN_FWD, MODE_BWD = ATTN_BWD, MODE_DECODE = 2, MODE_COUNT };
enum problem_mode problem_mode_of(const struct attn_problem *, enum attn_mode);
enum attn_mode problem_direction(int mode); /* of an enum problem_mode */

/* Section 3 of docs/design.md: of each of `pairs` visible pairs of all sequences and query heads (problem_pairs) fwd
 * 2 (d + d_v), bwd 2 (3 d + 2 d_v), which is 2.5 times that where d_v, V's head dim, is d, that of Q and K. */
double problem_flops(const struct attn_problem *, enum attn_mode, double pairs);

/* Bytes of memory traffic when each input is read once and each output is written once. keys: of K and of V, over all
 * sequences (problem_used_keys). */
double problem_min_bytes(const struct attn_problem *, enum attn_mode, double keys);
/* Those of the inputs that no launch can do without: a backward can compute O and LSE itself, and a bias counts
 * only where all pairs are visible. */
double problem_needed_bytes(const struct attn_problem *, enum attn_mode, double keys);

/* True when at least one row sees no key. */
bool problem_has_blind_rows(const struct attn_problem *);

/* "bwd causal d=128 n=16k bf16" */
const char *problem_print(const struct attn_problem *, enum attn_mode, char *buffer, size_t size);

/* The strides of a contiguous [batch, heads, len, head_dim] tensor in this layout; data stays NULL. */
struct attn_tensor problem_strides(enum attn_layout, int64_t heads, int64_t len, int64_t head_dim);

/* One more than the largest element offset that the strides reach. */
int64_t problem_extent(const struct attn_tensor *, int64_t batch, int64_t heads, int64_t len, int64_t head_dim);

/* Which sequences and heads have a bias of their own: each of each, each head, each sequence. */
enum problem_bias { BIAS_NONE, BIAS_FULL, BIAS_HEADS, BIAS_BATCH };
extern const char *const problem_bias_names[]; /* none full heads batch */
enum problem_bias problem_bias_of(const struct attn_problem *);
/* Gives the problem, which has its batch and heads and type, this bias: fp32, or the 16-bit type of Q. */
void problem_set_bias(struct attn_problem *, enum problem_bias);

/* The enums of a problem and their names, as typed on the command line and written in records. */

enum l2_policy { L2_COLD, L2_HOT };                       /* what a sample finds in the L2 cache */
enum check_scope { CHECK_FULL, CHECK_SAMPLE, CHECK_OFF }; /* how much of a result is compared with the reference */

/* Indexed by their enum; NULL ends each. */
extern const char *const problem_mode_names[];   /* problem_mode: fwd bwd decode */
extern const char *const problem_dtype_names[];  /* attn_dtype: fp32 fp16 bf16 e4m3 e5m2 */
extern const char *const problem_layout_names[]; /* attn_layout: bshd bhsd */
extern const char *const problem_dist_names[];   /* fill_dist: normal uniform zeros sharp ... rising falling */
extern const char *const problem_quant_names[];  /* attn_quant_scale: none tensor head block */
extern const char *const problem_l2_names[];     /* l2_policy: cold hot */
extern const char *const problem_scope_names[];  /* check_scope: full sample off */

/* The name of one value; "" for -1, which stands for absent. */
const char *problem_mode_name(int);
const char *problem_dtype_name(int);
const char *problem_layout_name(int);
const char *problem_dist_name(int);
const char *problem_l2_name(int);
const char *problem_scope_name(int);

#endif
