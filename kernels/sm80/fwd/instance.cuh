/* What a file of instances/ needs: the row of a tile in the table of the sm_80 forward, with its kernels. */
#pragma once
#include "kernels/sm80/fwd/kernel.cuh"

namespace sm80_fwd {

#define TILE(DIM, ROWS, KEYS) FwdD##DIM##M##ROWS##N##KEYS
#define KERNELS_YES(TILE_NAME, ATTRIBUTES) \
    { \
        fused_fwd_kernel<__half, TILE_NAME, ATTRIBUTES>, fused_fwd_kernel<__nv_bfloat16, TILE_NAME, ATTRIBUTES> \
    }
#define KERNELS_NO(TILE_NAME, ATTRIBUTES) \
    { \
        NULL, NULL \
    }
#define TILE_ROW(DIM, ROWS, KEYS, W, BLOCKS, KB, DENSE, SPARSE, DROPOUT, FAMILY, SCORE) \
    {{{"fwd_d" #DIM "_m" #ROWS "n" #KEYS, \
       #ROWS " x " #KEYS " tile, " #W " warps, 2 stages, " #KB " KB shared memory"}, \
      DIM, \
      BLOCKS, \
      sizeof(Smem<TILE(DIM, ROWS, KEYS)>)}, \
     DIM, \
     ROWS, \
     KEYS, \
     Traits<TILE(DIM, ROWS, KEYS)>::THREADS, \
     {KERNELS_##DENSE(TILE(DIM, ROWS, KEYS), Dense), KERNELS_##SPARSE(TILE(DIM, ROWS, KEYS), Sparse), \
      KERNELS_##DROPOUT(TILE(DIM, ROWS, KEYS), SparseDropout), KERNELS_##FAMILY(TILE(DIM, ROWS, KEYS), Family), \
      KERNELS_##SPARSE(TILE(DIM, ROWS, KEYS), Window), KERNELS_##SCORE(TILE(DIM, ROWS, KEYS), Score)}},

/* A row of a V of another head_dim. */
#define V_TILE(DIM, V_DIM, ROWS, KEYS) FwdD##DIM##X##V_DIM##M##ROWS##N##KEYS
#define V_TILE_ROW(DIM, V_DIM, ROWS, KEYS, W, BLOCKS, KB) \
    {{{"fwd_d" #DIM "x" #V_DIM "_m" #ROWS "n" #KEYS, \
       #ROWS " x " #KEYS " tile, " #W " warps, 2 stages, " #KB " KB shared memory"}, \
      DIM, \
      BLOCKS, \
      sizeof(Smem<V_TILE(DIM, V_DIM, ROWS, KEYS)>)}, \
     V_DIM, \
     ROWS, \
     KEYS, \
     Traits<V_TILE(DIM, V_DIM, ROWS, KEYS)>::THREADS, \
     {{NULL, NULL}, \
      KERNELS_YES(V_TILE(DIM, V_DIM, ROWS, KEYS), Sparse), \
      {NULL, NULL}, \
      {NULL, NULL}, \
      KERNELS_YES(V_TILE(DIM, V_DIM, ROWS, KEYS), Window), \
      {NULL, NULL}}},

} // namespace sm80_fwd
