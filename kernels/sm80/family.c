/* Which of fused_sm80's kernels a request needs, and the family's part of their parameters. */
#include "kernels/sm80/family.h"

#include "kernels/common/checks.h"

enum sm80_kind sm80_kind_of(const struct attn_request *request)
{
    unsigned attributes = attn_attributes(request);

    if ((attributes & (ATTN_WITH_ALIBI | ATTN_WITH_BIAS)) != 0 ||
        ((attributes & ATTN_WITH_SINK) != 0 && request->mode == ATTN_FWD))
        return SM80_SCORE;
    /* The backward finds the sink in LSE. */
    attributes &= ~(unsigned)(ATTN_WITH_SINK | ATTN_WITH_DSINK | ATTN_WITH_DBIAS);
    if (attributes == 0 && (request->problem->head_dim == 64 || request->problem->head_dim == 128))
        return SM80_DENSE;
    if ((attributes & ATTN_WITH_SOFTCAP) != 0)
        return SM80_FAMILY;
    return attn_dropout_threshold(request->problem->dropout) != 0 ? SM80_SPARSE_DROPOUT : SM80_SPARSE;
}

bool sm80_has_v(const struct attn_problem *p, int head_dim, int v_head_dim)
{
    if (v_head_dim == head_dim)
        return attn_v_head_dim(p) == p->head_dim;
    return attn_v_head_dim(p) == v_head_dim && p->head_dim == head_dim;
}

enum attn_status sm80_check_v(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (attn_v_head_dim(p) == p->head_dim)
        return ATTN_OK;
    if (!sm80_has_v(p, 192, 128) && !sm80_has_v(p, 64, 128))
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "head_dim %d and %d of V: takes V of another head_dim as 192x128 or 64x128", (int)p->head_dim,
                         (int)attn_v_head_dim(p));
    if (sm80_kind_of(request) != SM80_SPARSE)
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "takes no dropout, softcap, %sALiBi or bias beside V of another head_dim",
                         request->mode == ATTN_FWD ? "sink, " : "");
    return ATTN_OK;
}

enum attn_status sm80_check_family(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;

    if (sm80_kind_of(request) == SM80_DENSE)
        return ATTN_OK;
    if (p->q_len > FAMILY_MAX_LEN || p->kv_len > FAMILY_MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "takes lengths up to %d with windows, dropout, softcap, packed sequences, block masks, "
                         "sinks, ALiBi, biases, V of another head_dim and head dims other than 64 and 128",
                         (int)FAMILY_MAX_LEN);
    if (p->has_alibi && p->bias_heads > 0)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes no bias beside ALiBi");
    if (p->bias_heads > 0 && p->bias_dtype != ATTN_FP32 && p->bias_dtype != p->dtype)
        return attn_fail(why, ATTN_UNSUPPORTED, "takes a bias in fp32 or in the type of the inputs");
    return family_check_softcap(p, why);
}

struct family_tiling sm80_tiling_of(const struct attn_problem *p, enum sm80_kind kind, bool is_keys, int own_tile,
                                    int other_tile)
{
    const bool has_lists = (kind == SM80_SPARSE || kind == SM80_SPARSE_DROPOUT) && p->mask_block > 0;

    return (struct family_tiling){is_keys, own_tile, other_tile, has_lists, FAMILY_ROW_BLOCK, false};
}

struct fused_sm80_family sm80_family_of(const struct attn_request *request, const struct attn_tensors *t,
                                        void *workspace, const struct family_tiling *tiling)
{
    const struct attn_problem *p = request->problem;

    return (struct fused_sm80_family){
        .lengths = family_lengths_of(p, t),
        .mask = family_block_mask_of(p, t),
        .order = family_work_order_of(p, tiling, workspace),
        .lists = family_tile_lists_of(p, tiling, workspace),
        .dropout = family_dropout_of(p),
        .softcap = family_softcap_of(p),
        .window = family_window_of(p),
        .head_dim = (int32_t)p->head_dim,
    };
}

struct fused_sm80_score sm80_score_of(const struct attn_request *request, const struct attn_tensors *t)
{
    const struct attn_problem *p = request->problem;
    struct fused_sm80_score score = {.sinks = p->has_sink ? t->sink : NULL,
                                     .slopes = p->has_alibi ? t->alibi_slopes : NULL,
                                     .unit = 1.0f / (p->softcap > 0.0f ? p->softcap : p->scale),
                                     .bias_is_fp32 = p->bias_dtype == ATTN_FP32};

    if (p->bias_heads > 0) {
        score.bias = t->bias;
        score.bias.stride_batch = p->bias_batch > 1 ? t->bias.stride_batch : 0;
        score.bias.stride_head = p->bias_heads > 1 ? t->bias.stride_head : 0;
    }
    return score;
}
