/* What a problem has beyond dense attention at head dims 64 and 128, as the kernels of fused_sm80 see it: the subjects
 * of kernels/family together, and which kernels a request needs. C and CUDA C++. */
#ifndef FABENCH_SM80_FAMILY_H
#define FABENCH_SM80_FAMILY_H

#include "kernels/attention.h"
#include "kernels/family/block_mask.h"
#include "kernels/family/dropout.h"
#include "kernels/family/lengths.h"
#include "kernels/family/schedule.h"
#include "kernels/family/softcap.h"
#include "kernels/family/tile_lists.h"
#include "kernels/family/window.h"
#include "kernels/family/work_order.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every field is set, also where the attribute is absent. */
struct fused_sm80_family {
    struct family_lengths lengths;
    struct family_block_mask mask;
    struct family_work_order order;
    struct family_tile_lists lists;
    struct family_dropout dropout;
    struct family_softcap softcap;
    struct family_window window;
    int32_t head_dim;
};

/* What a problem adds to scores, or to the sum of a row. */
struct fused_sm80_score {
    const float *sinks, *slopes; /* device, [q_heads]; NULL: there are none */
    struct attn_tensor bias;     /* no data: there is none; strides of what is shared are 0 */
    float unit;                  /* 1 / scale, with a softcap 1 / softcap: what a logit is in the unit of scores */
    bool bias_is_fp32;           /* else as Q */
};

/* Which kernels a request needs, the attributes of family.cuh. */
enum sm80_kind {
    SM80_DENSE,          /* dense attention at head dim 64 or 128 */
    SM80_SPARSE,         /* what remains without dropout and softcap */
    SM80_SPARSE_DROPOUT, /* what remains without softcap; a tile that has no kernel of the kind, or is wider than the
                            head_dim, takes both kinds with its kernel of the family */
    SM80_FAMILY,
    SM80_WINDOW, /* forward: what of SM80_SPARSE has neither packed lengths nor a block mask */
    SM80_SCORE,  /* with ALiBi or a bias, in the forward with a sink, and whatever else */
    SM80_KINDS
};

enum sm80_kind sm80_kind_of(const struct attn_request *);

/* Whether a tile of that head_dim, and that of V, has V and O of the problem: a V as wide as Q and K in a tile that has
 * it so, else both head dims exactly. */
bool sm80_has_v(const struct attn_problem *, int head_dim, int v_head_dim);

/* Refuses a V of another head_dim than Q and K where no tile has it, or beside what its kernels do not take. */
enum attn_status sm80_check_v(const struct attn_request *, struct attn_message *why);

/* The tiling of a kernel of that kind. */
struct family_tiling sm80_tiling_of(const struct attn_problem *, enum sm80_kind, bool is_keys, int own_tile,
                                    int other_tile);

/* Refuses lengths and softcaps that the family's kernels do not take. */
enum attn_status sm80_check_family(const struct attn_request *, struct attn_message *why);

/* The kernels' parameters; `workspace` is where work tiles and lists go. */
struct fused_sm80_family sm80_family_of(const struct attn_request *, const struct attn_tensors *, void *workspace,
                                        const struct family_tiling *);

struct fused_sm80_score sm80_score_of(const struct attn_request *, const struct attn_tensors *);

#ifdef __cplusplus
}
#endif
#endif
