/* What a file of instances/ needs: the row of a tile in the table of the sm_80 backward, with its kernels. */
#pragma once
#include "kernels/sm80/bwd/kernel.cuh"

namespace sm80_bwd {

/* A row: name, tile; whether it is compiled as Dense, Sparse, SparseDropout, Family, Score (family.cuh); summary, which
 * says "not dense attention" where the head_dim alone does not (scripts/gpu_check.sh). */
#define KERNELS_YES(Kernel, Tile, Attributes) \
    { \
        Kernel<Tile, __half, Attributes>, Kernel<Tile, __nv_bfloat16, Attributes> \
    }
#define KERNELS_NO(Kernel, Tile, Attributes) \
    { \
        NULL, NULL \
    }
#define TILE_ROW(name, Tile, DENSE, SPARSE, DROPOUT, FAMILY, SCORE, summary) \
    {{{name, summary}, Tile::HEAD_DIM, Tile::BLOCKS_PER_SM, sizeof(Smem<Tile>)}, \
     Tile::V_HEAD_DIM, \
     Tile::Q, \
     Tile::KV, \
     Traits<Tile>::THREADS, \
     HAS_PIECES<Tile>, \
     {KERNELS_##DENSE(backward_main, Tile, DenseDq), \
      KERNELS_##SPARSE(backward_main, Tile, Sparse), \
      KERNELS_##DROPOUT(backward_main, Tile, SparseDropout), \
      KERNELS_##FAMILY(backward_main, Tile, Family), \
      {NULL, NULL}, \
      KERNELS_##SCORE(backward_main, Tile, Score)}, \
     KERNELS_##DENSE(backward_main, Tile, DenseNoDq), \
     {{dense_convert<Tile, __half>(), dense_convert<Tile, __nv_bfloat16>()}, \
      KERNELS_##FAMILY(convert_dq, Tile, Family)}},
/* A row of a V of another head_dim, compiled as Sparse. */
#define V_TILE_ROW(name, Tile, summary) \
    {{{name, summary}, Tile::HEAD_DIM, Tile::BLOCKS_PER_SM, sizeof(Smem<Tile>)}, \
     Tile::V_HEAD_DIM, \
     Tile::Q, \
     Tile::KV, \
     Traits<Tile>::THREADS, \
     false, \
     {{NULL, NULL}, KERNELS_YES(backward_main, Tile, Sparse), {NULL, NULL}, {NULL, NULL}, {NULL, NULL}, {NULL, NULL}}, \
     {NULL, NULL}, \
     {{NULL, NULL}, KERNELS_YES(convert_dq, Tile, Family)}},

} // namespace sm80_bwd
