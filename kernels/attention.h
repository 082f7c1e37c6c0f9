/* The contract between the program and every attention implementation, ours or a loaded library's.
 *
 * C11 and C++; needs nothing but the C library. An installed copy of this header is all that a shared library for
 * `fabench --impl-lib` needs (see examples/plugin).
 *
 * Mathematics (Vaswani et al. 2017, eq. 1; Dao et al. 2022, algorithms 1 and 4):
 *   S = scale * Q K^T,  P = softmax over the visible keys of S,  O = P V,
 *   LSE_i = ln sum over visible j of exp(S_ij)          (natural logarithm, scale included)
 *   dV = P^T dO,  dP = dO V^T,  D = rowsum(dO * O),  dS = P * (dP - D),  dQ = scale dS K,  dK = scale dS^T Q.
 * Q and K have head_dim columns; V, O, dO and dV have attn_v_head_dim, which is head_dim where nothing else is said.
 *
 * Visibility. With shift = kv_len - q_len, row i sees key j iff
 *   (not causal or j <= i + shift) and (window_left < 0 or j >= i + shift - window_left)
 *                                  and (window_right < 0 or j <= i + shift + window_right).
 * A row that sees no key has O = 0 and LSE = -inf; its row of dQ is 0, and it adds nothing to dK and dV.
 *
 * Beyond dense attention a problem may have the attributes of enum attn_attribute. An implementation names those that
 * it computes and begins `accepts` with attn_check_attributes, which refuses all others: nothing is ever computed as if
 * an attribute were absent. In a struct that is zeroed but for the fields of dense attention all of them are absent.
 *   Softcap:   S = softcap * tanh(scale Q K^T / softcap), before the mask; dQ = scale (dS * (1 - (S / softcap)^2)) K,
 *              dK likewise.
 *   Bias:      S += bias[b or 0, h or 0, row, key], behind the softcap and before the mask. dBias is dS, 0 where the
 *              row does not see the key, summed over the sequences and heads that share an element.
 *   ALiBi:     S -= alibi_slopes[h] * |row + kv_len - q_len - key|, in the same place (Press et al. 2022). Not beside a
 *              bias.
 *   Sink:      one logit of each query head, which is not scaled and has no value: exp(sink[h]) is one more term of the
 *              sum that P is divided by. LSE = ln (exp(sink[h]) + sum over visible j of exp(S_ij)); a row that sees no
 *              key has O = 0 and LSE = sink[h]. dSink[h] = - sum over all rows of exp(sink[h] - LSE_i) * D_i.
 *   Dropout:   O = (P * M) V with M = 1 / (1 - dropout) for an element that is kept and 0 for one that is dropped; LSE
 *              is without it. dV = (P * M)^T dO, dP = M * (dO V^T), D = rowsum(dO * O) as before.
 *   Block mask: an element whose block of rows and keys has the value 0 is not visible, whatever the rest says.
 *   Lengths:   of each sequence its own, packed one behind the other, or those of a cache (enum attn_lengths). Masks
 *              are aligned to the bottom right of each sequence; rows and keys are counted from the beginning of their
 *              sequence, which counts as the batch.
 *   8 bits:    an element of Q, K, V is what is stored times its scale (enum attn_quant_scale). Or K and V of a cache
 *              alone have 8 bits (cache_dtype).
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
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct of this header changes. A library built for another number is refused. */
#define ATTN_ABI 3

enum attn_platform { ATTN_CPU = 0, ATTN_CUDA = 1 };
enum attn_mode { ATTN_FWD = 0, ATTN_BWD = 1 };
enum attn_dtype { ATTN_FP32 = 0, ATTN_FP16 = 1, ATTN_BF16 = 2, ATTN_E4M3 = 3, ATTN_E5M2 = 4 };
enum attn_layout { ATTN_BSHD = 0, ATTN_BHSD = 1 }; /* order of batch, len (s), heads, head_dim in memory */

/* Whose lengths the sequences have. */
enum attn_lengths {
    ATTN_FIXED = 0,  /* all q_len and kv_len */
    ATTN_PACKED = 1, /* their own: sequence b has the rows [cu_seqlens_q[b], cu_seqlens_q[b + 1]) of Q, O, dO, dQ and
                        the rows [cu_seqlens_k[b], cu_seqlens_k[b + 1]) of K, V, dK, dV, which have no batch dimension;
                        a length may be 0 */
    ATTN_CACHE = 2   /* new rows, against the first seqused_k[b] keys of a cache; forward only. The keys of the new rows
                        are the last ones of them. What is behind them holds anything, NaN too. Each sequence has q_len
                        new rows; or, where total_q is not 0, its own number of them: then Q and O are packed, and
                        sequence b has the rows [cu_seqlens_q[b], cu_seqlens_q[b + 1]), none or up to q_len */
};

/* What the scales of 8-bit inputs are for. Arrays of fp32; 16-bit and fp32 inputs have none. An 8-bit cache of 16-bit
 * queries has ATTN_SCALE_HEAD for K and V; scale_q is NULL. */
enum attn_quant_scale {
    ATTN_SCALE_NONE = 0,
    ATTN_SCALE_TENSOR = 1, /* one value for each of Q, K, V */
    ATTN_SCALE_HEAD = 2,   /* [batch, kv_heads], also Q's: the query heads of a group share one */
    ATTN_SCALE_BLOCK = 3   /* for each block of scale_block rows of a sequence: Q's [batch, q_heads, blocks of q_len],
                              K's and V's [batch, kv_heads, blocks of kv_len]. Packed: [heads, total / scale_block +
                              batch], the blocks of sequence b from cu_seqlens[b] / scale_block + b on */
};

/* What attention is asked. batch, heads and the longest lengths are >= 1 and <= INT32_MAX; products of them need 64
 * bits. Behind `dropout` a field that is 0 says that its attribute is absent. */
struct attn_problem {
    int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim; /* q_len, kv_len: where they differ, the longest */
    enum attn_dtype dtype;                                     /* of Q, K, V; see attn_output_dtype */
    enum attn_layout layout;
    bool causal;
    int64_t window_left, window_right; /* keys left and right of the diagonal, inclusive; -1 = unbounded */
    float scale;                       /* resolved: never 0 for "default" */
    float dropout;                     /* probability of dropping; 0 = none */
    uint64_t dropout_seed;
    float softcap;
    enum attn_lengths lengths;
    int64_t total_q, total_k;                   /* rows of packed Q and K; ATTN_PACKED. total_q alone: see ATTN_CACHE */
    int64_t page_size, pages;                   /* rows of a page, and pages in memory; ATTN_CACHE, 0 = contiguous */
    int64_t mask_block, mask_batch, mask_heads; /* rows and keys of a block; 1 or batch; 1 or q_heads */
    enum attn_dtype out_dtype;                  /* of O where dtype has 8 bits: fp16 or bf16 */
    enum attn_quant_scale quant_scale;
    int64_t scale_block;
    int64_t v_head_dim;             /* columns of V, O, dO, dV; 0 = head_dim. See attn_v_head_dim, attn_v_is_in_k */
    bool has_sink, has_alibi;       /* attn_tensors.sink, attn_tensors.alibi_slopes */
    int64_t bias_batch, bias_heads; /* of the bias: 1 or batch, 1 or q_heads; both 0 = none */
    enum attn_dtype bias_dtype;     /* of the bias and dBias: fp32, or the 16-bit type of O */
    enum attn_dtype cache_dtype;    /* of K and V; ATTN_CACHE: e4m3 or e5m2 beside 16-bit Q and O; 0 = dtype */
};

/* One 4-d tensor [batch, heads, len, head_dim]; strides in elements, the last dimension is contiguous. A packed tensor
 * is [heads, total, head_dim]: its batch is 1 and stride_batch is not used. A paged cache is [pages, heads, page_size,
 * head_dim]: stride_batch is the distance from page to page. A bias is [bias_batch, bias_heads, q_len, kv_len], q_len
 * and kv_len the longest: its rows and keys are those of a sequence, also where the sequences are packed. */
struct attn_tensor {
    void *data;
    int64_t stride_batch, stride_head, stride_row;
};

/* Every tensor of a problem. Forward reads q k v and writes o lse. Backward reads q k v o lse dout and writes
 * dq dk dv, and dsink and dbias where the request asks for them. Forward and backward read the arrays of the problem's
 * attributes. What is not used, or not among the outputs that are asked for, is NULL. Device pointers on CUDA, host
 * pointers on the CPU. */
struct attn_tensors {
    struct attn_tensor q, o, dout, dq; /* [batch, q_heads, q_len, head_dim]; q in problem.dtype; o, dout: V's columns */
    struct attn_tensor k, v, dk, dv;   /* [batch, kv_heads, kv_len, head_dim]; k and v in attn_kv_dtype */
    float *lse;                        /* [batch, q_heads, q_len], packed [q_heads, total_q]; fp32, contiguous */
    const int32_t *cu_seqlens_q,
        *cu_seqlens_k;                        /* [batch + 1] each, ascending from 0 to total_q, total_k; ATTN_PACKED */
    const int32_t *seqused_k;                 /* [batch]; ATTN_CACHE */
    const int32_t *page_table;                /* [batch, ceil(kv_len / page_size)]: numbers of pages */
    const uint8_t *block_mask;                /* [mask_batch, mask_heads, blocks of q_len, blocks of kv_len] */
    const float *scale_q, *scale_k, *scale_v; /* see enum attn_quant_scale */
    const float *sink;                        /* [q_heads]; finite */
    float *dsink;                             /* [q_heads]; of all sequences */
    const float *alibi_slopes;                /* [q_heads]; finite */
    struct attn_tensor bias, dbias;           /* in bias_dtype, all finite; rows begin on 16-byte boundaries, and what
                                                 lies between them holds anything. Every element of dbias is written */
};

/* Bits that name output tensors. */
enum attn_output { ATTN_O = 1, ATTN_LSE = 2, ATTN_DQ = 4, ATTN_DK = 8, ATTN_DV = 16, ATTN_DSINK = 32, ATTN_DBIAS = 64 };

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
    bool precise;        /* the more exact of two modes, of an implementation that has them */
    int64_t splits;      /* parts into which the keys of a row are split; 0 = the implementation chooses */
    /* The result of each sequence depends on that sequence alone: it has the same bits in a batch of its own, in any
     * other batch, in any order, paged and contiguous. Forward only; neither with a variant nor with splits. */
    bool invariant;
    /* Products of 8-bit numbers may be summed in the short accumulator of the tensor cores; without it sums are carried
     * over to fp32. Who has exact sums only takes both; who has short sums only refuses a request without it. */
    bool fast;
    unsigned outputs; /* attn_output bits that are wanted; 0 = attn_default_outputs */
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

/* What an implementation says of its own work, which counters of the hardware are compared with. */
struct attn_work {
    int64_t tile_rows, tile_keys; /* rows of Q and keys of a tile of S; 0 = not said */
    double
        flops; /* of the matrix products of all tiles that are computed, with what is masked inside them; 0 = not said:
                     the request does not tell, as with lengths and masks in arrays */
};

/* What an implementation is to the others. */
enum attn_role {
    ATTN_ROLE_KERNEL = 0, /* what is measured: fused kernels of the program and of loaded libraries */
    ATTN_ROLE_NAIVE = 1,  /* three passes; judged with doubled bounds, and rule 5 compares with its error */
    ATTN_ROLE_PEER = 2,   /* an implementation of another project */
    ATTN_ROLE_NOTHING = 3 /* computes nothing: has a time, but no result and no speed */
};

/* One implementation. Optional function pointers: plan_bytes, variant, prepare, release, work. */
struct attn_impl {
    int abi;             /* ATTN_ABI of the header it was compiled with */
    const char *name;    /* unique, [a-z0-9_]+ */
    const char *summary; /* one line for `fabench list` */
    enum attn_platform platform;
    /* Promises, indexed by attn_mode: the attn_output bits that are bit-equal over runs, by default and when
     * request.deterministic is set. `verify` holds the implementation to them. */
    unsigned repeatable[2], repeatable_deterministic[2];
    /* The same: the bits that keep what request.invariant says when it is set. 0 for the backward. */
    unsigned invariant[2];
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
    enum attn_role role;                 /* a loaded library's is ATTN_ROLE_KERNEL or ATTN_ROLE_PEER */
    /* What launch does for an accepted request. NULL = not said. */
    void (*work)(const struct attn_request *, struct attn_work *);
};

/* Exported by a library for --impl-lib: a table terminated by a row without a name, or NULL when it does not serve
 * this ABI number. The table lives as long as the library. */
const struct attn_impl *fabench_impls(int abi);
typedef const struct attn_impl *(*fabench_impls_function)(int abi);

/* The fused kernels of this build, ended by NULL. The order is the preference: `--impl fused` runs the first one that
 * accepts. Naive implementations and peers are not among them. */
const struct attn_impl *const *attn_registry(void);

/* Functions for the host and, in CUDA code, for the device. */
#if defined(__CUDACC__)
#define ATTN_FUNCTION static __host__ __device__ inline
#else
#define ATTN_FUNCTION static inline
#endif

static inline bool attn_dtype_is_8_bit(enum attn_dtype dtype) { return dtype == ATTN_E4M3 || dtype == ATTN_E5M2; }

static inline size_t attn_dtype_bytes(enum attn_dtype dtype)
{
    return dtype == ATTN_FP32 ? 4 : attn_dtype_is_8_bit(dtype) ? 1 : 2;
}

/* The type of O, dO and the gradients. */
static inline enum attn_dtype attn_output_dtype(const struct attn_problem *p)
{
    return attn_dtype_is_8_bit(p->dtype) ? p->out_dtype : p->dtype;
}

/* The type of K and V. */
static inline enum attn_dtype attn_kv_dtype(const struct attn_problem *p)
{
    return p->cache_dtype != ATTN_FP32 ? p->cache_dtype : p->dtype;
}

/* The columns of V, O, dO and dV. */
ATTN_FUNCTION int64_t attn_v_head_dim(const struct attn_problem *p)
{
    return p->v_head_dim != 0 ? p->v_head_dim : p->head_dim;
}

/* Head dims above 256 are those of a cache that has K and V in one memory (MLA): then V is the first attn_v_head_dim
 * columns of K, v has the pointer and the strides of k, and scale_v is scale_k. */
ATTN_FUNCTION bool attn_v_is_in_k(const struct attn_problem *p) { return p->head_dim > 256; }

/* Whether Q, O, dO, dQ and LSE have no batch dimension: sequence b begins at row cu_seqlens_q[b]. */
ATTN_FUNCTION bool attn_rows_are_packed(const struct attn_problem *p)
{
    return p->lengths == ATTN_PACKED || (p->lengths == ATTN_CACHE && p->total_q != 0);
}

/* The attn_output bits of a direction that has no wish. */
static inline unsigned attn_default_outputs(enum attn_mode mode)
{
    return mode == ATTN_FWD ? (unsigned)(ATTN_O | ATTN_LSE) : (unsigned)(ATTN_DQ | ATTN_DK | ATTN_DV);
}

/* The attn_output bits that a request wants. */
static inline unsigned attn_wanted_outputs(const struct attn_request *request)
{
    return request->outputs != 0 ? request->outputs : attn_default_outputs(request->mode);
}

/* What a request can ask beyond dense attention; one bit each. */
enum attn_attribute {
    ATTN_WITH_WINDOW = 1,
    ATTN_WITH_DROPOUT = 2,
    ATTN_WITH_SOFTCAP = 4,
    ATTN_WITH_PACKED_LENGTHS = 8,
    ATTN_WITH_CACHE = 16,
    ATTN_WITH_PAGES = 32,
    ATTN_WITH_BLOCK_MASK = 64,
    ATTN_WITH_8_BIT = 128,
    ATTN_WITH_PRECISE = 256,
    ATTN_WITH_SPLITS = 512,
    ATTN_WITH_V_HEAD_DIM = 1024,
    ATTN_WITH_SINK = 2048,
    ATTN_WITH_ALIBI = 4096,
    ATTN_WITH_BIAS = 8192,
    ATTN_WITH_CACHE_DTYPE = 16384,
    ATTN_WITH_PACKED_ROWS = 32768, /* of Q, against a cache */
    ATTN_WITH_INVARIANT = 65536,
    ATTN_WITH_FAST = 131072,
    ATTN_WITH_FEWER_OUTPUTS = 262144, /* not all of attn_default_outputs */
    ATTN_WITH_DSINK = 524288,
    ATTN_WITH_DBIAS = 1048576
};

/* The attributes that a request has. */
static inline unsigned attn_attributes(const struct attn_request *request)
{
    const struct attn_problem *p = request->problem;
    const unsigned outputs = attn_wanted_outputs(request);
    unsigned found = 0;
    found |= p->window_left >= 0 || p->window_right >= 0 ? ATTN_WITH_WINDOW : 0;
    found |= p->dropout != 0.0f ? ATTN_WITH_DROPOUT : 0;
    found |= p->softcap != 0.0f ? ATTN_WITH_SOFTCAP : 0;
    found |= p->lengths == ATTN_PACKED ? ATTN_WITH_PACKED_LENGTHS : 0;
    found |= p->lengths == ATTN_CACHE ? ATTN_WITH_CACHE : 0;
    found |= p->page_size != 0 ? ATTN_WITH_PAGES : 0;
    found |= p->mask_block != 0 ? ATTN_WITH_BLOCK_MASK : 0;
    found |= attn_dtype_is_8_bit(p->dtype) || (p->quant_scale != ATTN_SCALE_NONE && p->cache_dtype == ATTN_FP32)
                 ? ATTN_WITH_8_BIT
                 : 0;
    found |= request->precise ? ATTN_WITH_PRECISE : 0;
    found |= request->splits != 0 ? ATTN_WITH_SPLITS : 0;
    found |= attn_v_head_dim(p) != p->head_dim ? ATTN_WITH_V_HEAD_DIM : 0;
    found |= p->has_sink ? ATTN_WITH_SINK : 0;
    found |= p->has_alibi ? ATTN_WITH_ALIBI : 0;
    found |= p->bias_batch != 0 || p->bias_heads != 0 ? ATTN_WITH_BIAS : 0;
    found |= p->cache_dtype != ATTN_FP32 ? ATTN_WITH_CACHE_DTYPE : 0;
    found |= p->lengths == ATTN_CACHE && p->total_q != 0 ? ATTN_WITH_PACKED_ROWS : 0;
    found |= request->invariant ? ATTN_WITH_INVARIANT : 0;
    found |= request->fast ? ATTN_WITH_FAST : 0;
    found |= attn_default_outputs(request->mode) & ~outputs ? ATTN_WITH_FEWER_OUTPUTS : 0;
    found |= outputs & ATTN_DSINK ? ATTN_WITH_DSINK : 0;
    found |= outputs & ATTN_DBIAS ? ATTN_WITH_DBIAS : 0;
    return found;
}

/* Refuses, in words, a request with an attribute that is not among `known`, the attn_attribute bits of what the
 * implementation computes. Every `accepts` begins with it. */
static inline enum attn_status attn_check_attributes(const struct attn_request *request, unsigned known,
                                                     struct attn_message *why)
{
    static const char *const refusals[] = {"takes no window",
                                           "takes no dropout",
                                           "takes no softcap",
                                           "takes no sequences of different lengths",
                                           "takes no cache",
                                           "takes no paged cache",
                                           "takes no block mask",
                                           "takes no 8-bit inputs",
                                           "takes no precise mode",
                                           "takes no number of splits",
                                           "takes no V whose head_dim is not that of Q and K",
                                           "takes no sink",
                                           "takes no ALiBi",
                                           "takes no bias",
                                           "takes no 8-bit cache of 16-bit queries",
                                           "takes no numbers of new rows that differ",
                                           "takes no invariant mode",
                                           "takes no fast mode",
                                           "takes no request for a part of the outputs",
                                           "computes no dSink",
                                           "computes no dBias"};
    const unsigned unknown = attn_attributes(request) & ~known;
    for (int i = 0; unknown != 0 && i < (int)(sizeof refusals / sizeof refusals[0]); i++)
        if (unknown >> i & 1u) {
            snprintf(why->text, sizeof why->text, "%s", refusals[i]);
            return ATTN_UNSUPPORTED;
        }
    return ATTN_OK;
}

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

/* One sequence: its rows of Q are [q_first, q_first + q_len) of the tensor, its keys likewise; the batch dimension has
 * not moved them where the lengths are not packed. Reads the arrays of lengths, so on CUDA not for the host. */
struct attn_sequence {
    int64_t q_first, q_len, k_first, kv_len;
};

ATTN_FUNCTION struct attn_sequence attn_sequence_at(const struct attn_problem *p, const struct attn_tensors *t,
                                                    int64_t b)
{
    struct attn_sequence s = {0, p->q_len, 0, p->kv_len};
    if (p->lengths == ATTN_PACKED) {
        s.q_first = t->cu_seqlens_q[b];
        s.q_len = t->cu_seqlens_q[b + 1] - s.q_first;
        s.k_first = t->cu_seqlens_k[b];
        s.kv_len = t->cu_seqlens_k[b + 1] - s.k_first;
    } else if (p->lengths == ATTN_CACHE) {
        s.kv_len = t->seqused_k[b];
        if (p->total_q != 0) {
            s.q_first = t->cu_seqlens_q[b];
            s.q_len = t->cu_seqlens_q[b + 1] - s.q_first;
        }
    }
    return s;
}

/* Where a row lies among the rows of LSE: [batch, q_heads, q_len], packed [q_heads, total_q]. */
ATTN_FUNCTION int64_t attn_lse_index(const struct attn_problem *p, const struct attn_tensors *t, int64_t b,
                                     int64_t head, int64_t row)
{
    return attn_rows_are_packed(p) ? head * p->total_q + t->cu_seqlens_q[b] + row
                                   : (b * p->q_heads + head) * p->q_len + row;
}

/* The element where key `key` of sequence b begins in K or V, for kv head `head`. */
ATTN_FUNCTION int64_t attn_key_offset(const struct attn_problem *p, const struct attn_tensors *t, struct attn_tensor x,
                                      int64_t b, int64_t head, int64_t key)
{
    if (p->lengths == ATTN_CACHE && p->page_size > 0) {
        const int64_t pages = (p->kv_len + p->page_size - 1) / p->page_size; /* of a sequence in the table */
        return t->page_table[b * pages + key / p->page_size] * x.stride_batch + head * x.stride_head +
               key % p->page_size * x.stride_row;
    }
    if (p->lengths == ATTN_PACKED)
        return head * x.stride_head + (t->cu_seqlens_k[b] + key) * x.stride_row;
    return b * x.stride_batch + head * x.stride_head + key * x.stride_row;
}

/* The same for row `row` of Q, O, dO or dQ. */
ATTN_FUNCTION int64_t attn_row_offset(const struct attn_problem *p, const struct attn_tensors *t, struct attn_tensor x,
                                      int64_t b, int64_t head, int64_t row)
{
    if (attn_rows_are_packed(p))
        return head * x.stride_head + (t->cu_seqlens_q[b] + row) * x.stride_row;
    return b * x.stride_batch + head * x.stride_head + row * x.stride_row;
}

/* The element where the bias of row `row` begins, or that of dBias; the keys of the row's sequence follow. */
ATTN_FUNCTION int64_t attn_bias_offset(const struct attn_problem *p, struct attn_tensor x, int64_t b, int64_t head,
                                       int64_t row)
{
    return (p->bias_batch > 1 ? b : 0) * x.stride_batch + (p->bias_heads > 1 ? head : 0) * x.stride_head +
           row * x.stride_row;
}

/* The distance of ALiBi, which the slope is multiplied with, between a row and a key of a sequence. */
ATTN_FUNCTION int64_t attn_alibi_distance(int64_t q_len, int64_t kv_len, int64_t row, int64_t key)
{
    const int64_t distance = row + kv_len - q_len - key;
    return distance < 0 ? -distance : distance;
}

/* Where the scale of row `row` of sequence b lies in an array of scales: of Q with its q_heads heads, q_len and
 * cu_seqlens_q and total_q, of K and V with theirs. group: query heads that share a scale of ATTN_SCALE_HEAD, 1 for K
 * and V. */
ATTN_FUNCTION int64_t attn_scale_index(const struct attn_problem *p, const int32_t *cu_seqlens, int64_t total,
                                       int64_t heads, int64_t len, int64_t group, int64_t b, int64_t head, int64_t row)
{
    if (p->quant_scale == ATTN_SCALE_HEAD)
        return b * (heads / group) + head / group;
    if (p->quant_scale != ATTN_SCALE_BLOCK)
        return 0;
    if (p->lengths != ATTN_FIXED && total != 0)
        return head * (total / p->scale_block + p->batch) + cu_seqlens[b] / p->scale_block + b + row / p->scale_block;
    return (b * heads + head) * ((len + p->scale_block - 1) / p->scale_block) + row / p->scale_block;
}

/* False where the block mask hides the key from the row. Without a mask, true. */
ATTN_FUNCTION bool attn_block_is_visible(const struct attn_problem *p, const uint8_t *mask, int64_t b, int64_t head,
                                         int64_t row, int64_t key)
{
    if (p->mask_block == 0)
        return true;
    const int64_t rows = (p->q_len + p->mask_block - 1) / p->mask_block;
    const int64_t keys = (p->kv_len + p->mask_block - 1) / p->mask_block;
    const int64_t plane = (p->mask_batch > 1 ? b : 0) * p->mask_heads + (p->mask_heads > 1 ? head : 0);
    return mask[(plane * rows + row / p->mask_block) * keys + key / p->mask_block] != 0;
}

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): in ten rounds a counter of four words becomes four random words. */
enum { ATTN_PHILOX_ROUNDS = 10 };
#define ATTN_PHILOX_M0 0xD2511F53u /* what the words 0 and 2 are multiplied with */
#define ATTN_PHILOX_M1 0xCD9E8D57u

/* The keys of the rounds, which a kernel that calls it often is given. */
struct attn_philox_keys {
    uint32_t low[ATTN_PHILOX_ROUNDS], high[ATTN_PHILOX_ROUNDS];
};

ATTN_FUNCTION struct attn_philox_keys attn_philox_keys_of(uint64_t key)
{
    struct attn_philox_keys keys;
    for (uint32_t round = 0; round < ATTN_PHILOX_ROUNDS; round++) {
        keys.low[round] = (uint32_t)key + round * 0x9E3779B9u;
        keys.high[round] = (uint32_t)(key >> 32) + round * 0xBB67AE85u;
    }
    return keys;
}

ATTN_FUNCTION void attn_philox_round(uint32_t words[4], uint32_t low, uint32_t high)
{
    const uint64_t a = (uint64_t)ATTN_PHILOX_M0 * words[0], b = (uint64_t)ATTN_PHILOX_M1 * words[2];
    const uint32_t second = words[1], fourth = words[3];
    words[0] = (uint32_t)(b >> 32) ^ second ^ low;
    words[1] = (uint32_t)b;
    words[2] = (uint32_t)(a >> 32) ^ fourth ^ high;
    words[3] = (uint32_t)a;
}

/* The rounds from first_round on, of words that have had those before. */
ATTN_FUNCTION void attn_philox_rounds(uint32_t words[4], const struct attn_philox_keys *keys, int first_round)
{
    for (int round = first_round; round < ATTN_PHILOX_ROUNDS; round++)
        attn_philox_round(words, keys->low[round], keys->high[round]);
}

ATTN_FUNCTION void attn_philox(uint32_t words[4], uint64_t key)
{
    const struct attn_philox_keys keys = attn_philox_keys_of(key);
    attn_philox_rounds(words, &keys, 0);
}

/* The 16 random bits of an element of S: row and key counted from the beginning of their sequence, whose number is
 * `batch`, head the query head. Whatever the tiles, every kernel uses these (section 3 of docs/design.md).
 * One call of attn_philox serves eight elements of a 16 x 16 block: the rows r and r + 8, r < 8, and the keys 2 c,
 * 2 c + 1, 2 c + 8, 2 c + 9, c < 4: what a thread of mma.sync and wgmma holds of S. A thread of S^T needs the same
 * halves of two calls, those of its neighbour, which computes the other one.
 *   key      the seed
 *   counter  4 * (key / 16) + c,  8 * (row / 16) + r,  head,  batch
 *   bits     word 2 * (key % 2) + row / 8 % 2, its low half where key / 8 % 2 is 0 */
ATTN_FUNCTION uint32_t attn_dropout_bits(uint64_t seed, int64_t batch, int64_t head, int64_t row, int64_t key)
{
    uint32_t words[4] = {(uint32_t)(key / 16 * 4 + key % 8 / 2), (uint32_t)(row / 16 * 8 + row % 8), (uint32_t)head,
                         (uint32_t)batch};
    attn_philox(words, seed);
    return words[2 * (key % 2) + row / 8 % 2] >> (key / 8 % 2 ? 16 : 0) & 0xffffu;
}

/* An element is dropped where its bits are below this. */
ATTN_FUNCTION uint32_t attn_dropout_threshold(float dropout) { return (uint32_t)(dropout * 65536.0f + 0.5f); }

/* What P is multiplied with: 1 / (1 - dropout) or 0; 1 without dropout. */
ATTN_FUNCTION float attn_dropout_factor(const struct attn_problem *p, int64_t batch, int64_t head, int64_t row,
                                        int64_t key)
{
    if (p->dropout == 0.0f)
        return 1.0f;
    const uint32_t bits = attn_dropout_bits(p->dropout_seed, batch, head, row, key);
    return bits < attn_dropout_threshold(p->dropout) ? 0.0f : 1.0f / (1.0f - p->dropout);
}

#ifdef __cplusplus
}
#endif
#endif
