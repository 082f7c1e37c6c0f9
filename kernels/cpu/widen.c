/* Copies of 8-bit inputs, and of 16-bit queries of an 8-bit cache, in fp32. */
#include "kernels/cpu/cpu_kernels.h"

#include <omp.h>

#include "kernels/common/checks.h"
#include "kernels/common/small_floats.h"

static enum attn_status accepts_cache(const struct attn_problem *p, struct attn_message *why)
{
    if (p->lengths != ATTN_CACHE || !attn_dtype_is_8_bit(p->cache_dtype) || p->quant_scale != ATTN_SCALE_HEAD)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes a cache in e4m3 or e5m2 with scales of heads");
    if (p->dtype != ATTN_FP16 && p->dtype != ATTN_BF16)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes an 8-bit cache beside queries in fp16 or bf16 only");
    return ATTN_OK;
}

bool cpu_is_widened(const struct attn_problem *p) { return attn_dtype_is_8_bit(attn_kv_dtype(p)); }

enum attn_status cpu_accepts_types(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const unsigned left_out = attn_default_outputs(request->mode) & ~attn_wanted_outputs(request);
    if (left_out & ~(unsigned)ATTN_LSE)
        return attn_fail(why, ATTN_UNSUPPORTED, "leaves out the LSE of a forward only");
    if (p->cache_dtype != ATTN_FP32)
        return accepts_cache(p, why);
    if (!attn_dtype_is_8_bit(p->dtype))
        return p->dtype == ATTN_FP32 ? ATTN_OK : attn_fail(why, ATTN_UNSUPPORTED, "computes in fp32 only");
    if (request->mode != ATTN_FWD)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes 8-bit inputs in the forward only");
    if (p->out_dtype != ATTN_FP16 && p->out_dtype != ATTN_BF16)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes 8-bit inputs with an output in fp16 or bf16 only");
    return ATTN_OK;
}

/* Rows of all heads of Q and O, or of K and V. */
static int64_t rows_of(const struct attn_problem *p, bool is_kv)
{
    if (is_kv)
        return p->kv_heads * (p->lengths == ATTN_PACKED ? p->total_k : p->batch * p->kv_len);
    return p->q_heads * (attn_rows_are_packed(p) ? p->total_q : p->batch * p->q_len);
}

size_t cpu_widened_bytes(const struct attn_problem *p)
{
    if (!cpu_is_widened(p))
        return 0;
    const size_t rows = (size_t)rows_of(p, false) + (size_t)rows_of(p, true);
    return (rows * (size_t)(p->head_dim + attn_v_head_dim(p)) * sizeof(float) + 63) / 64 * 64;
}

/* A contiguous tensor [batch, heads, len, d], packed [heads, total, d], at *next, which moves behind it. */
static struct attn_tensor place(const struct attn_problem *p, bool is_kv, int64_t d, float **next)
{
    const int64_t keys = p->lengths == ATTN_PACKED ? p->total_k : p->kv_len;
    const int64_t len = is_kv ? keys : attn_rows_are_packed(p) ? p->total_q : p->q_len;
    const struct attn_tensor t = {*next, (is_kv ? p->kv_heads : p->q_heads) * len * d, len * d, d};
    *next += rows_of(p, is_kv) * d;
    return t;
}

static void fill_table(enum attn_dtype dtype, float table[256])
{
    for (int code = 0; code < 256; code++)
        table[code] = dtype == ATTN_E4M3 ? attn_from_e4m3((uint8_t)code) : attn_from_e5m2((uint8_t)code);
}

static void widen_row(int64_t d, const float table[256], const uint8_t *from, float scale, float *to)
{
    for (int64_t c = 0; c < d; c++)
        to[c] = table[from[c]] * scale;
}

static void widen_16_bits(int64_t d, enum attn_dtype dtype, const uint16_t *from, float *to)
{
    for (int64_t c = 0; c < d; c++)
        to[c] = dtype == ATTN_BF16 ? attn_from_bf16(from[c]) : attn_from_fp16(from[c]);
}

static void widen_queries(const struct attn_problem *p, const struct attn_tensors *t, const float table[256], int64_t b,
                          int64_t head, const struct cpu_widened *wide)
{
    const int64_t rows = attn_sequence_at(p, t, b).q_len, group = p->q_heads / p->kv_heads;
    for (int64_t i = 0; i < rows; i++) {
        if (!attn_dtype_is_8_bit(p->dtype)) {
            widen_16_bits(p->head_dim, p->dtype, (const uint16_t *)t->q.data + attn_row_offset(p, t, t->q, b, head, i),
                          (float *)wide->tensors.q.data +
                              attn_row_offset(&wide->problem, t, wide->tensors.q, b, head, i));
            continue;
        }
        const int64_t scale = attn_scale_index(p, t->cu_seqlens_q, p->total_q, p->q_heads, p->q_len, group, b, head, i);
        widen_row(p->head_dim, table, (const uint8_t *)t->q.data + attn_row_offset(p, t, t->q, b, head, i),
                  t->scale_q ? t->scale_q[scale] : 1.0f,
                  (float *)wide->tensors.q.data + attn_row_offset(&wide->problem, t, wide->tensors.q, b, head, i));
    }
}

static void widen_keys(const struct attn_problem *p, const struct attn_tensors *t, const float table[256], int64_t b,
                       int64_t head, const struct cpu_widened *wide)
{
    const int64_t keys = attn_sequence_at(p, t, b).kv_len;
    for (int64_t j = 0; j < keys; j++) {
        const int64_t scale = attn_scale_index(p, t->cu_seqlens_k, p->total_k, p->kv_heads, p->kv_len, 1, b, head, j);
        widen_row(p->head_dim, table, (const uint8_t *)t->k.data + attn_key_offset(p, t, t->k, b, head, j),
                  t->scale_k ? t->scale_k[scale] : 1.0f,
                  (float *)wide->tensors.k.data + attn_key_offset(&wide->problem, t, wide->tensors.k, b, head, j));
        widen_row(attn_v_head_dim(p), table, (const uint8_t *)t->v.data + attn_key_offset(p, t, t->v, b, head, j),
                  t->scale_v ? t->scale_v[scale] : 1.0f,
                  (float *)wide->tensors.v.data + attn_key_offset(&wide->problem, t, wide->tensors.v, b, head, j));
    }
}

void cpu_widen(const struct attn_request *request, const struct attn_tensors *t, void *memory, struct cpu_widened *wide)
{
    const struct attn_problem *p = request->problem;
    float table[256], *next = memory;
    *wide = (struct cpu_widened){*p, *t};
    wide->problem.dtype = wide->problem.cache_dtype = ATTN_FP32;
    wide->problem.quant_scale = ATTN_SCALE_NONE;
    wide->problem.page_size = 0;
    wide->tensors.q = place(p, false, p->head_dim, &next);
    wide->tensors.o = place(p, false, attn_v_head_dim(p), &next);
    wide->tensors.k = place(p, true, p->head_dim, &next);
    wide->tensors.v = place(p, true, attn_v_head_dim(p), &next);
    fill_table(attn_kv_dtype(p), table);
    const int64_t q_tasks = p->batch * p->q_heads, tasks = q_tasks + p->batch * p->kv_heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(request->device->threads > 0 ? request->device->threads : 1)
    for (int64_t task = 0; task < tasks; task++)
        if (task < q_tasks)
            widen_queries(p, t, table, task / p->q_heads, task % p->q_heads, wide);
        else
            widen_keys(p, t, table, (task - q_tasks) / p->kv_heads, (task - q_tasks) % p->kv_heads, wide);
}

void cpu_narrow(const struct attn_request *request, const struct cpu_widened *wide, const struct attn_tensors *t)
{
    const struct attn_problem *p = request->problem;
#pragma omp parallel for schedule(dynamic, 1) num_threads(request->device->threads > 0 ? request->device->threads : 1)
    for (int64_t task = 0; task < p->batch * p->q_heads; task++) {
        const int64_t b = task / p->q_heads, head = task % p->q_heads, rows = attn_sequence_at(p, t, b).q_len;
        for (int64_t i = 0; i < rows; i++) {
            const float *from =
                (const float *)wide->tensors.o.data + attn_row_offset(&wide->problem, t, wide->tensors.o, b, head, i);
            uint16_t *to = (uint16_t *)t->o.data + attn_row_offset(p, t, t->o, b, head, i);
            for (int64_t c = 0; c < attn_v_head_dim(p); c++)
                to[c] = attn_output_dtype(p) == ATTN_BF16 ? attn_to_bf16(from[c]) : attn_to_fp16(from[c]);
        }
    }
}
