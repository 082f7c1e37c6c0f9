/* What a file of instances/ needs: a row in the table of tiles of the sm_90 decode, with its kernels. */
#pragma once
#include "kernels/sm90/decode/kernel.cuh"

#define DECODE_ROW(DIM, KEYS, SLOTS)                                                                                   \
    {{{"decode_d" #DIM "_n" #KEYS "_s" #SLOTS,                                                                         \
       "64 rows x " #KEYS " keys, " #SLOTS " buffers of K or V, parts of the keys combined by the last block"},        \
      DIM,                                                                                                             \
      1,                                                                                                               \
      sizeof(sm90_decode::SharedStorage<sm90_decode::Tile<DIM, KEYS, SLOTS>>)},                                        \
     KEYS,                                                                                                             \
     sm90_decode::THREADS,                                                                                             \
     {sm90_decode::fused_decode_kernel<__half, sm90_decode::Tile<DIM, KEYS, SLOTS>>,                                   \
      sm90_decode::fused_decode_kernel<__nv_bfloat16, sm90_decode::Tile<DIM, KEYS, SLOTS>>}},
