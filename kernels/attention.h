/* The contract between the program and every attention implementation, ours or a loaded library's.
 *
 * C11 and C++; needs nothing but the C library. An installed copy of this header is all that a shared library for
 * `fabench --impl-lib` needs (see examples/plugin).
 *
 * Mathematics (Vaswani et al. 2017, eq. 1; Dao et al. 2022, algorithms 1 and 4):
 *   S = scale * Q K^T,  P = softmax over the visible keys of S,  O = P V,
 *   LSE_i = ln sum over visible j of exp(S_ij)          (natural logarithm, scale included)
 *   dV = P^T dO,  dP = dO V^T,  D = rowsum(dO * O),  dS = P * (dP - D),  dQ = scale dS K,  dK = scale dS^T Q.
 *
 * Visibility. With shift = kv_len - q_len, row i sees key j iff
 *   (not causal or j <= i + shift) and (window_left < 0 or j >= i + shift - window_left)
 *                                  and (window_right < 0 or j <= i + shift + window_right).
 * A row that sees no key has O = 0 and LSE = -inf; its row of dQ is 0, and it adds nothing to dK and dV.
 *
 * Heads. kv_heads divides q_heads; query head h reads kv head h / (q_heads / kv_heads); dK and dV sum over the group.
 *
 * Ownership. The caller owns every buffer. A launch gets pointers, workspace and, on CUDA, a stream; it allocates no
 * memory and keeps no state. On CUDA it enqueues its work and does not wait for it; on the CPU the work is done when it
 * returns. What must live longer than a launch (a vendor's plan) is made by `prepare` and freed by `release`.
 * No function changes what the process shares: rounding, locale, signals, open files, working folder, environment. None
 * leaves threads at work or child processes behind.
 */
#ifndef FABENCH_ATTENTION_H
#define FABENCH_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct of this header changes. A library built for another number is refused. */
#define ATTN_ABI 1

enum attn_platform { ATTN_CPU = 0, ATTN_CUDA = 1 };
enum attn_mode { ATTN_FWD = 0, ATTN_BWD = 1 };
enum attn_dtype { ATTN_FP32 = 0, ATTN_FP16 = 1, ATTN_BF16 = 2 };
enum attn_layout { ATTN_BSHD = 0, ATTN_BHSD = 1 }; /* order of batch, len (s), heads, head_dim in memory */

/* What attention is asked. Every length is >= 1 and <= INT32_MAX; products of them need 64 bits. */
struct attn_problem {
    int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim;
    enum attn_dtype dtype;
    enum attn_layout layout;
    bool causal;
    int64_t window_left, window_right; /* keys left and right of the diagonal, inclusive; -1 = unbounded */
    float scale;                       /* resolved: never 0 for "default" */
    float dropout;                     /* probability of dropping; 0 = none */
};

/* One 4-d tensor [batch, heads, len, head_dim]; strides in elements, the last dimension is contiguous. */
struct attn_tensor {
    void *data;
    int64_t stride_batch, stride_head, stride_row;
};

/* Every tensor of a problem. Forward reads q k v and writes o lse. Backward reads q k v o lse dout and writes
 * dq dk dv. Unused ones have data == NULL. Device pointers on CUDA, host pointers on the CPU. */
struct attn_tensors {
    struct attn_tensor q, o, dout, dq; /* [batch, q_heads, q_len, head_dim] in problem.dtype */
    struct attn_tensor k, v, dk, dv;   /* [batch, kv_heads, kv_len, head_dim] in problem.dtype */
    float *lse;                        /* [batch, q_heads, q_len], fp32, contiguous */
};

/* Bits that name output tensors, for attn_impl.repeatable. */
enum attn_output { ATTN_O = 1, ATTN_LSE = 2, ATTN_DQ = 4, ATTN_DK = 8, ATTN_DV = 16 };

/* The device a request is for. On the CPU only `platform` and `threads` are set. */
struct attn_device {
    enum attn_platform platform;
    int ordinal; /* CUDA ordinal, current when any function of attn_impl is called */
    int sm;      /* compute capability as 10 * major + minor, 90 for an H100 */
    int multiprocessors;
    int threads;                 /* CPU threads an implementation may use */
    size_t smem_per_block_bytes; /* the opt-in maximum of one thread block */
    size_t l2_bytes;
    size_t memory_bytes; /* whole device memory */
};

/* One case: a problem, a direction and the wishes of the caller. */
struct attn_request {
    const struct attn_problem *problem;
    const struct attn_device *device;
    enum attn_mode mode;
    bool deterministic;  /* outputs must be bit-equal over runs */
    const char *variant; /* force this variant; NULL = the implementation chooses */
};

/* What one launch gets beside the request and the tensors. */
struct attn_run {
    void *workspace; /* 256-byte aligned, >= workspace_bytes(request); contents are undefined on entry */
    size_t workspace_bytes;
    void *stream; /* cudaStream_t on CUDA, NULL on the CPU */
    void *plan;   /* what prepare made, or NULL */
    /* Called on the host between the launches of a multi-pass implementation, at the start of each pass; NULL when
     * nobody listens. It may record an event in the stream, nothing else. */
    void (*pass)(void *pass_context, const char *pass_name);
    void *pass_context;
};

/* A sentence for the user, without a newline. Whoever returns a failure fills it. */
struct attn_message {
    char text[512];
};

enum attn_status {
    ATTN_OK = 0,
    ATTN_UNSUPPORTED = 1, /* this request, on this device, for the reason in the message */
    ATTN_NO_MEMORY = 2,
    ATTN_ERROR = 3 /* the device or a library failed; the message names the call */
};

/* One tile configuration, as `fabench list` shows it and `--variant` names it. */
struct attn_variant {
    const char *name;    /* "fwd_d128_m128n128_s2" */
    const char *summary; /* "128 x 64 tile, 4 warps, 2 stages, 96 KB shared memory" */
};

/* One implementation. Optional function pointers: plan_bytes, variant, prepare, release. */
struct attn_impl {
    int abi;             /* ATTN_ABI of the header it was compiled with */
    const char *name;    /* unique, [a-z0-9_]+ */
    const char *summary; /* one line for `fabench list` */
    enum attn_platform platform;
    /* Promises, indexed by attn_mode: the attn_output bits that are bit-equal over runs, by default and when
     * request.deterministic is set. `verify` holds the implementation to them. */
    unsigned repeatable[2], repeatable_deterministic[2];
    /* Answers ATTN_OK, or ATTN_UNSUPPORTED with the reason. Allocates nothing, launches nothing. */
    enum attn_status (*accepts)(const struct attn_request *, struct attn_message *why);
    /* Bytes of workspace that launch needs for an accepted request. */
    size_t (*workspace_bytes)(const struct attn_request *);
    /* Device bytes that this plan owns; they count as workspace in the records. NULL = 0. */
    size_t (*plan_bytes)(const struct attn_request *, const void *plan);
    /* The name of the variant that launch would run. This pointer is NULL where there are no variants. */
    const char *(*variant)(const struct attn_request *);
    /* Builds *plan outside the timing, from the strides (and alignments) of `tensors`, whose inputs are filled. May
     * allocate and run on the device; has finished when it returns. */
    enum attn_status (*prepare)(const struct attn_request *, const struct attn_tensors *, void **plan,
                                struct attn_message *why);
    /* CUDA: enqueues the whole computation on run->stream. CPU: computes it, and returns when it is done. */
    enum attn_status (*launch)(const struct attn_request *, const struct attn_tensors *, const struct attn_run *,
                               struct attn_message *why);
    void (*release)(void *plan);         /* frees what prepare made; required when prepare is given */
    const struct attn_variant *variants; /* terminated by a row without a name; NULL = none to choose */
};

/* Exported by a library for --impl-lib: a table terminated by a row without a name, or NULL when it does not serve
 * this ABI number. The table lives as long as the library. */
const struct attn_impl *fabench_impls(int abi);
typedef const struct attn_impl *(*fabench_impls_function)(int abi);

/* The fused kernels of this build, ended by NULL. The order is the preference: `--impl fused` runs the first one that
 * accepts. Naive implementations and peers are not among them. */
const struct attn_impl *const *attn_registry(void);

static inline size_t attn_dtype_bytes(enum attn_dtype dtype) { return dtype == ATTN_FP32 ? 4 : 2; }

/* First and last visible key of row i (first > last when it sees none). One definition of the mask for all. */
static inline void attn_visible(const struct attn_problem *p, int64_t row, int64_t *first, int64_t *last)
{
    const int64_t diagonal = row + p->kv_len - p->q_len;
    *first = 0;
    *last = p->kv_len - 1;
    if (p->causal && diagonal < *last)
        *last = diagonal;
    if (p->window_right >= 0 && diagonal + p->window_right < *last)
        *last = diagonal + p->window_right;
    if (p->window_left >= 0 && diagonal - p->window_left > *first)
        *first = diagonal - p->window_left;
}

#ifdef __cplusplus
}
#endif
#endif
