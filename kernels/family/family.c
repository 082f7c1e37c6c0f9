/* What kernels see of each subject of the family, from the description of a problem. */
#include <float.h>
#include <math.h>

#include "kernels/common/checks.h"
#include "kernels/common/dispatch.h"
#include "kernels/family/block_mask.h"
#include "kernels/family/dropout.h"
#include "kernels/family/lengths.h"
#include "kernels/family/softcap.h"
#include "kernels/family/softcap_near.h"
#include "kernels/family/window.h"

static const float LOG2_E = 1.44269504088896340736f;

struct family_lengths family_lengths_of(const struct attn_problem *p, const struct attn_tensors *t)
{
    const bool is_packed = p->lengths == ATTN_PACKED;

    return (struct family_lengths){is_packed ? t->cu_seqlens_q : NULL, is_packed ? t->cu_seqlens_k : NULL, p->total_q,
                                   (int32_t)p->batch};
}

int64_t family_row_blocks(const struct attn_problem *p, int rows)
{
    return p->lengths == ATTN_PACKED ? p->total_q / rows + p->batch : 0;
}

static int32_t side_of(const struct attn_problem *p, int64_t window)
{
    const int64_t unbounded = p->q_len + p->kv_len;

    return (int32_t)(window < 0 || window > unbounded ? unbounded : window);
}

struct family_window family_window_of(const struct attn_problem *p)
{
    return (struct family_window){side_of(p, p->window_left), p->causal ? 0 : side_of(p, p->window_right)};
}

struct family_block_mask family_block_mask_of(const struct attn_problem *p, const struct attn_tensors *t)
{
    const int64_t block = p->mask_block, row_blocks = block > 0 ? attn_tiles(p->q_len, block) : 0,
                  key_blocks = block > 0 ? attn_tiles(p->kv_len, block) : 0, plane = row_blocks * key_blocks;

    return (struct family_block_mask){
        .blocks = block > 0 ? t->block_mask : NULL,
        .batch_stride = p->mask_batch > 1 ? p->mask_heads * plane : 0,
        .head_stride = p->mask_heads > 1 ? plane : 0,
        .block = (int32_t)block,
        .row_blocks = (int32_t)row_blocks,
        .key_blocks = (int32_t)key_blocks,
        .block_by = divisor_of(block > 0 ? block : 1),
    };
}

struct family_dropout family_dropout_of(const struct attn_problem *p)
{
    const uint32_t threshold = p->dropout > 0.0f ? attn_dropout_threshold(p->dropout) : 0;

    return (struct family_dropout){attn_philox_keys_of(p->dropout_seed), threshold, (threshold << 16) - 1,
                                   1.0f / (1.0f - p->dropout), 1.0f - p->dropout};
}

struct family_softcap family_softcap_of(const struct attn_problem *p)
{
    return (struct family_softcap){p->softcap > 0.0f ? 2.0f * LOG2_E * p->scale / p->softcap : 0.0f};
}

struct family_softcap_near family_softcap_near_of(const struct attn_problem *p)
{
    /* tanh is off by 1.7e-3 |x|^6 of it. */
    static const double MOST_ERROR = 2e-5, ERROR = 1.7e-3, MOST = 0.5, COSINE_30 = 0.86602540378443865;
    const double cap = (double)p->softcap, scale = (double)p->scale / cap;
    struct family_softcap_near near = {.largest = -1};

    /* Within these bounds nothing overflows, and what underflows does not count. */
    if (!(fabs(scale) >= 1e-3 && fabs(scale) <= 1e3))
        return near;
    const double largest = fmin(pow(MOST_ERROR / (ERROR * cap), 1.0 / 7), MOST), middle = largest * largest / 2;
    /* tanh(x) / x as a polynomial of degree 2 in x^2: that through three Chebyshev nodes. */
    const double x[3] = {middle * (1 + COSINE_30), middle, middle * (1 - COSINE_30)};
    double y[3];
    for (int i = 0; i < 3; i++)
        y[i] = tanh(sqrt(x[i])) / sqrt(x[i]);
    const double first = (y[1] - y[0]) / (x[1] - x[0]), second = (y[2] - y[1]) / (x[2] - x[1]);
    const double square = (second - first) / (x[2] - x[0]), linear = first - square * (x[0] + x[1]);
    near.largest = (float)(largest / fabs(scale));
    near.odd[0] = (float)((y[0] - x[0] * (linear + square * x[0])) * scale);
    near.odd[1] = (float)(linear * pow(scale, 3));
    near.odd[2] = (float)(square * pow(scale, 5));
    return near;
}

enum attn_status family_check_softcap(const struct attn_problem *p, struct attn_message *why)
{
    const float inner = family_softcap_of(p).inner;

    if (p->softcap > (float)FAMILY_MAX_SOFTCAP || (p->softcap > 0.0f && !(inner >= FLT_MIN && inner <= FLT_MAX)))
        return attn_fail(
            why, ATTN_UNSUPPORTED,
            "softcap %g with scale %g: takes softcaps up to %d, and scale / softcap that is a normal fp32 number",
            (double)p->softcap, (double)p->scale, (int)FAMILY_MAX_SOFTCAP);
    return ATTN_OK;
}
