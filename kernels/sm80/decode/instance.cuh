/* What a file of instances/ needs: a row in the table of tiles of the sm_80 decode, with its kernels. */
#pragma once
#include "kernels/sm80/decode/kernel.cuh"

#define DECODE_ROW(DIM, KEYS, ROWS, WARPS) \
    {{{"decode_d" #DIM "_m" #ROWS "n" #KEYS, \
       #ROWS " rows x " #KEYS " keys, " #WARPS " warps, parts of the keys combined by the last block"}, \
      DIM, \
      1, \
      sizeof(sm80_decode::SharedStorage<sm80_decode::Tile<DIM, KEYS, ROWS, WARPS>>) + \
          sm80_decode::LEAST_SLOTS * sm80_decode::Tile<DIM, KEYS, ROWS, WARPS>::SLOT_BYTES}, \
     KEYS, \
     ROWS, \
     sm80_decode::Tile<DIM, KEYS, ROWS, WARPS>::THREADS, \
     sm80_decode::Tile<DIM, KEYS, ROWS, WARPS>::SLOT_BYTES, \
     sm80_decode::LEAST_SLOTS, \
     {sm80_decode::fused_decode_kernel<__half, sm80_decode::Tile<DIM, KEYS, ROWS, WARPS>>, \
      sm80_decode::fused_decode_kernel<__nv_bfloat16, sm80_decode::Tile<DIM, KEYS, ROWS, WARPS>>}},
