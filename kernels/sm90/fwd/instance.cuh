/* What a file of instances/ needs: the row of a tile in the table of the sm_90 forward, with its kernels. */
#pragma once
#include "kernels/sm90/fwd/kernel.cuh"

namespace sm90_fwd {

/* Warpgroups that skip different blocks of causal problems do not take turns (ping-pong). */
#define KERNELS(TILE, PING_PONG) \
    { \
        fused_fwd_kernel<__half, With<TILE, Dense, Plain>, PING_PONG>, \
            fused_fwd_kernel<__nv_bfloat16, With<TILE, Dense, Plain>, PING_PONG> \
    }
#define CAUSAL_KERNELS(TILE) KERNELS(TILE, (!Traits<With<TILE, Dense, Plain>>::ROTATES_ROWS))
#define SPLITS_NAME_1 ""
#define SPLITS_NAME_2 "_k2"
#define SPLITS_TEXT_1 ""
#define SPLITS_TEXT_2 ", the keys of a block halved between two warpgroups"
#define BLOCKS_NAME_1 ""
#define BLOCKS_NAME_2 "_pair"
#define BLOCKS_TEXT_1 ""
#define BLOCKS_TEXT_2 ", two blocks load keys for each other"
#define SHOWN(D, M, N, KV, SPLITS, BLOCKS) \
    { \
        "fwd_d" #D "_m" #M "n" #N "_s" #KV SPLITS_NAME_##SPLITS BLOCKS_NAME_##BLOCKS, #M \
            " x " #N " tile, 64 rows a warpgroup, " #KV " stages of K and V" SPLITS_TEXT_##SPLITS BLOCKS_TEXT_##BLOCKS \
    }
#define TILE_ROW(DIM, ROWS, KEYS, KV, SPLITS, CHECK, Q_STEPS, BLOCKS, COST, START, ORDER) \
    {{SHOWN(DIM, ROWS, KEYS, KV, SPLITS, BLOCKS), DIM, 1, \
      sizeof(SharedStorage<With<TILE_NAME(DIM, ROWS, KEYS, KV, SPLITS, BLOCKS), Dense, Plain>>)}, \
     ROWS, \
     BLOCKS, \
     1, \
     Traits<With<TILE_NAME(DIM, ROWS, KEYS, KV, SPLITS, BLOCKS), Dense, Plain>>::THREADS, \
     KEYS, \
     COST, \
     START, \
     Traits<With<TILE_NAME(DIM, ROWS, KEYS, KV, SPLITS, BLOCKS), Dense, Plain>>::HAS_PARTS, \
     true, \
     false, \
     false, \
     {KERNELS(TILE_NAME(DIM, ROWS, KEYS, KV, SPLITS, BLOCKS), true), \
      CAUSAL_KERNELS(TILE_NAME(DIM, ROWS, KEYS, KV, SPLITS, BLOCKS))}},

} // namespace sm90_fwd
