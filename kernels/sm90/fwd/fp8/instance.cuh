/* What a file of instances/ needs: the row of a tile in the table of the 8-bit sm_90 forward, with its kernels. */
#pragma once
#include "kernels/sm90/fwd/fp8/kernel.cuh"

namespace sm90_fp8 {

#define FP8_KERNELS(T, TILE, SHORT) \
    { \
        {fused_fp8_kernel<T, With<TILE, false, false>>, fused_fp8_kernel<T, With<TILE, false, SHORT>>}, \
        { \
            fused_fp8_kernel<T, With<TILE, true, false>>, fused_fp8_kernel<T, With<TILE, true, SHORT>> \
        } \
    }
#define FP8_TILE_ROW(DIM, ROWS, KEYS, OF_K, OF_RAW, OF_V, Q_STEPS, TURNS, EVERY, SHORT, COST, START) \
    {{{"fp8_d" #DIM "_m" #ROWS "n" #KEYS, \
       #ROWS " x " #KEYS " tile, 64 rows a warpgroup, 8 bits, " #OF_K " stages of K, " #OF_V " of V transposed"}, \
      DIM, \
      1, \
      sizeof(SharedStorage<With<FP8_TILE_NAME(DIM, ROWS), false, false>>)}, \
     ROWS, \
     Traits<With<FP8_TILE_NAME(DIM, ROWS), false, false>>::THREADS, \
     KEYS, \
     COST, \
     START, \
     {FP8_KERNELS(e4m3, FP8_TILE_NAME(DIM, ROWS), SHORT), FP8_KERNELS(e5m2, FP8_TILE_NAME(DIM, ROWS), SHORT)}},

} // namespace sm90_fp8
