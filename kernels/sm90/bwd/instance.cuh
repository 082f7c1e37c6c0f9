/* What a file of instances/ needs: the row of a tile in the table of the sm_90 backward, with its kernels. */
#pragma once
#include "kernels/sm90/bwd/kernel.cuh"

namespace sm90_bwd {

#define LOOP_TEXT "; a block takes one tile of keys after the other"

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

/* The row of a tile with its policies in the table of tiles. */
template <template <typename> class Tile, typename Work, typename Score>
constexpr fused_sm90_bwd_tile row_of(const char *name, const char *summary)
{
    using Fp16 = With<Tile<__half>, Work, Score>;
    using Bf16 = With<Tile<__nv_bfloat16>, Work, Score>;
    static_assert(smem_bytes_of<Fp16>() == smem_bytes_of<Bf16>(), "one size for each tile");
    return {.tile = {{name, summary}, Fp16::HEAD_DIM, 1, smem_bytes_of<Fp16>()},
            .q = {Fp16::Q_TILE, Fp16::STEP_TIME, Fp16::BLOCK_TIME, Fp16::START_TIME, Fp16::IS_LOOP,
                  Fp16::IS_PAIR ? 2 : 1, Fp16::IS_FEW},
            .is_dense = Work::IS_DENSE,
            .has_softcap = Score::HAS_SLOPE,
            .has_lists = Work::HAS_LISTS,
            .writes_zeros = Traits<Fp16>::WRITES_ZEROS,
            .listed_bytes = sizeof(typename Work::Listed),
            .kernels = {{kernel_of<Fp16, false>(), kernel_of<Bf16, false>()},
                        {kernel_of<Fp16, true>(), kernel_of<Bf16, true>()}}};
}

/* The row of a tile of dense attention, from its line in tiles.cuh. */
#define NAME_END_ONCE ""
#define NAME_END_LOOP "_loop"
#define NAME_END_PAIR "_pair"
#define NAME_END_FEW "_few"
#define TEXT_END_ONCE ""
#define TEXT_END_LOOP LOOP_TEXT
#define TEXT_END_PAIR "; two blocks share queries and dQ of two tiles of keys"
#define TEXT_END_FEW "; a block keeps queries and dQ of a head, which has no more, and goes over its tiles of keys"
#define DENSE_ROW(D, Q, V_FP16, K_FP16, V_BF16, BLOCK, ...) \
    row_of<TILE_NAME(D, Q, BLOCK), Dense, Plain>( \
        "bwd_d" #D "_k128q" #Q NAME_END_##BLOCK, \
        "128 keys x " #Q " queries, two warpgroups of keys and one for dQ; in registers " #V_FP16 " and " #K_FP16 \
        " x 16 columns of V and of K in fp16, " #V_BF16 " x 16 of V in bf16" TEXT_END_##BLOCK),

} // namespace sm90_bwd
