/* What a file of instances/ needs: the row of a tile in the table of the sm_90 backward, with its kernels. */
#pragma once
#include "kernels/sm90/bwd/kernel.cuh"

namespace sm90_bwd {

#define NAME_END_ONCE ""
#define NAME_END_LOOP "_loop"
#define NAME_END_PAIR "_pair"
#define NAME_END_FEW "_few"
#define TEXT_END_ONCE ""
#define TEXT_END_LOOP "; a block takes one tile of keys after the other"
#define TEXT_END_PAIR "; two blocks share queries and dQ of two tiles of keys"
#define TEXT_END_FEW "; a block keeps queries and dQ of a head, which has no more, and goes over its tiles of keys"
#define SHOWN(D, Q, V_FP16, K_FP16, V_BF16, BLOCK)                                                                     \
    {                                                                                                                  \
        "bwd_d" #D "_k128q" #Q NAME_END_##BLOCK,                                                                       \
            "128 keys x " #Q " queries, two warpgroups of keys and one for dQ; in registers " #V_FP16 " and " #K_FP16  \
            " x 16 columns of V and of K in fp16, " #V_BF16 " x 16 of V in bf16" TEXT_END_##BLOCK                      \
    }

/* The kernel of a tile; NULL where there is none: pairs, blocks that keep their queries, block masks, and blocks that
 * take one work tile of ranges after the other are not deterministic. */
template <typename Tile, bool DETERMINISTIC> constexpr fused_sm90_bwd_kernel kernel_of()
{
    if constexpr (DETERMINISTIC &&
                  (Tile::IS_PAIR || Tile::IS_FEW || Tile::Work::HAS_LISTS || (Tile::IS_LOOP && !Tile::Work::IS_DENSE)))
        return NULL;
    else if constexpr (Tile::IS_FEW)
        return backward_few_queries<Tile>;
    else
        return backward<Tile, DETERMINISTIC>;
}

/* Shared memory of a block, in both dtypes. */
template <typename Tile> constexpr size_t smem_bytes_of()
{
    if constexpr (Tile::IS_FEW)
        return sizeof(FewQueriesSmem<Tile>);
    else
        return sizeof(Smem<Tile>);
}

template <template <typename> class Tile, typename Work> constexpr size_t smem_bytes()
{
    constexpr size_t BYTES = smem_bytes_of<With<Tile<__half>, Work, Plain>>();
    static_assert(BYTES == smem_bytes_of<With<Tile<__nv_bfloat16>, Work, Plain>>(), "one size for each tile");
    return BYTES;
}

/* The same of windows and packed lengths, of these with a softcap, or of block masks. */
#define WORK_KERNELS(TILE, WORK, SCORE, DETERMINISTIC)                                                                 \
    {                                                                                                                  \
        kernel_of<With<TILE<__half>, WORK, SCORE>, DETERMINISTIC>(),                                                   \
            kernel_of<With<TILE<__nv_bfloat16>, WORK, SCORE>, DETERMINISTIC>()                                         \
    }
#define WORK_ROW(NAME, TILE, STEP_TIME, SUMMARY, WORK, SCORE, HAS_SOFTCAP, HAS_LISTS, IS_LOOP)                         \
    {{{NAME, SUMMARY}, TILE<__half>::HEAD_DIM, 1, smem_bytes<TILE, WORK>()},                                           \
     {TILE<__half>::Q_TILE, STEP_TIME, 200, 0, IS_LOOP, 1, false},                                                     \
     false,                                                                                                            \
     HAS_SOFTCAP,                                                                                                      \
     HAS_LISTS,                                                                                                        \
     sizeof(WORK::Listed),                                                                                             \
     {WORK_KERNELS(TILE, WORK, SCORE, false), WORK_KERNELS(TILE, WORK, SCORE, true)}},
#define RANGES_ROW(NAME, TILE, STEP_TIME, SUMMARY, IS_LOOP)                                                            \
    WORK_ROW(NAME, TILE, STEP_TIME, SUMMARY "; windows and packed lengths", Ranges, Plain, false, false, IS_LOOP)
#define SOFTCAP_ROW(NAME, TILE, STEP_TIME, SUMMARY)                                                                    \
    WORK_ROW(NAME, TILE, STEP_TIME, SUMMARY "; softcap", Ranges, Softcap, true, false, false)
#define LISTS_ROW(NAME, TILE, STEP_TIME, SUMMARY, IS_LOOP)                                                             \
    WORK_ROW(NAME, TILE, STEP_TIME, SUMMARY "; block masks, not dense attention", Lists, Plain, false, true, IS_LOOP)
#define DTYPES(TILE, DETERMINISTIC)                                                                                    \
    {                                                                                                                  \
        kernel_of<With<TILE<__half>, Dense, Plain>, DETERMINISTIC>(),                                                  \
            kernel_of<With<TILE<__nv_bfloat16>, Dense, Plain>, DETERMINISTIC>()                                        \
    }
#define TABLE_ROW(DIM, Q, V_FP16, K_FP16, V_BF16, BLOCK, STEP_TIME, BLOCK_TIME, START_TIME, FP16, BF16)                \
    {{SHOWN(DIM, Q, V_FP16, K_FP16, V_BF16, BLOCK), DIM, 1, smem_bytes<TILE_NAME(DIM, Q, BLOCK), Dense>()},            \
     {Q, STEP_TIME, BLOCK_TIME, START_TIME, BLOCK == LOOP || BLOCK == PAIR, BLOCK == PAIR ? 2 : 1, BLOCK == FEW},      \
     true,                                                                                                             \
     false,                                                                                                            \
     false,                                                                                                            \
     sizeof(Dense::Listed),                                                                                            \
     {DTYPES(TILE_NAME(DIM, Q, BLOCK), false), DTYPES(TILE_NAME(DIM, Q, BLOCK), true)}},

} // namespace sm90_bwd
