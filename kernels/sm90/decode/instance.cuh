/* What a file of instances/ needs: rows in the table of tiles of the sm_90 decode, with their kernels. */
#pragma once
#include "kernels/sm90/decode/kernel.cuh"

#define DECODE_TILE(DIM, KEYS, SLOTS) sm90_decode::Tile<DIM, KEYS, SLOTS>
#define DECODE_PACKED_TILE(DIM, KEYS, SLOTS) sm90_decode::PackedTile<DECODE_TILE(DIM, KEYS, SLOTS)>
#define DECODE_INVARIANT_TILE(DIM, KEYS, SLOTS) sm90_decode::InvariantTile<DECODE_TILE(DIM, KEYS, SLOTS)>
#define DECODE_KERNELS(...) \
    { \
        sm90_decode::fused_decode_kernel<__half, __VA_ARGS__>, \
            sm90_decode::fused_decode_kernel<__nv_bfloat16, __VA_ARGS__> \
    }
#define DECODE_ROW(DIM, KEYS, SLOTS) \
    {{{"decode_d" #DIM "_n" #KEYS "_s" #SLOTS, \
       "64 rows x " #KEYS " keys, " #SLOTS " buffers of K or V, parts of the keys combined by the last block"}, \
      DIM, \
      1, \
      sizeof(sm90_decode::SharedStorage<DECODE_PACKED_TILE(DIM, KEYS, SLOTS)>)}, \
     sm90_decode::ROWS, \
     KEYS, \
     sm90_decode::THREADS, \
     false, \
     false, \
     {DECODE_KERNELS(DECODE_TILE(DIM, KEYS, SLOTS)), DECODE_KERNELS(DECODE_PACKED_TILE(DIM, KEYS, SLOTS)), \
      DECODE_KERNELS(DECODE_INVARIANT_TILE(DIM, KEYS, SLOTS))}},

#define DECODE_8_BIT_KERNELS(...) \
    { \
        sm90_decode::fused_decode_8_bit_kernel<__half, sm90_decode::Tile8Bit<__VA_ARGS__>>, \
            sm90_decode::fused_decode_8_bit_kernel<__nv_bfloat16, sm90_decode::Tile8Bit<__VA_ARGS__>> \
    }
#define DECODE_8_BIT_ROW(DIM, KEYS, SLOTS) \
    {{{"decode_8bit_d" #DIM "_n" #KEYS "_s" #SLOTS, \
       "8-bit cache: 64 rows x " #KEYS " keys, widened to " #SLOTS " buffers of K or V by warps of their own"}, \
      DIM, \
      1, \
      sizeof(sm90_decode::SharedStorage8Bit<sm90_decode::Tile8Bit<DECODE_PACKED_TILE(DIM, KEYS, SLOTS)>>)}, \
     sm90_decode::ROWS, \
     KEYS, \
     sm90_decode::THREADS_8_BIT, \
     false, \
     true, \
     {DECODE_8_BIT_KERNELS(DECODE_TILE(DIM, KEYS, SLOTS)), DECODE_8_BIT_KERNELS(DECODE_PACKED_TILE(DIM, KEYS, SLOTS)), \
      DECODE_8_BIT_KERNELS(DECODE_INVARIANT_TILE(DIM, KEYS, SLOTS))}},

#define DECODE_FEW_ROWS_KERNELS(...) \
    { \
        sm90_decode::fused_decode_few_rows_kernel<__half, __VA_ARGS__>, \
            sm90_decode::fused_decode_few_rows_kernel<__nv_bfloat16, __VA_ARGS__> \
    }
#define DECODE_FEW_ROWS_TILE(DIM, KEYS, SLOTS, IS_8_BIT) sm90_decode::FewRowsTile<DIM, KEYS, SLOTS, IS_8_BIT>
#define DECODE_FEW_ROWS_ROW(NAME, DIM, KEYS, SLOTS, IS_8_BIT) \
    {{{NAME "_d" #DIM "_m16n" #KEYS "_s" #SLOTS, \
       "16 rows or fewer x " #KEYS " keys, " #SLOTS " buffers of K or V, keys shared by the warps"}, \
      DIM, \
      1, \
      sizeof(sm90_decode::FewRowsStorage<sm90_decode::PackedTile<DECODE_FEW_ROWS_TILE(DIM, KEYS, SLOTS, IS_8_BIT)>>)}, \
     DECODE_FEW_ROWS_TILE(DIM, KEYS, SLOTS, IS_8_BIT)::ROWS, \
     KEYS, \
     sm90_decode::FEW_ROWS_THREADS<DECODE_FEW_ROWS_TILE(DIM, KEYS, SLOTS, IS_8_BIT)>, \
     false, \
     IS_8_BIT, \
     {DECODE_FEW_ROWS_KERNELS(DECODE_FEW_ROWS_TILE(DIM, KEYS, SLOTS, IS_8_BIT)), \
      DECODE_FEW_ROWS_KERNELS(sm90_decode::PackedTile<DECODE_FEW_ROWS_TILE(DIM, KEYS, SLOTS, IS_8_BIT)>), \
      {NULL, NULL}}},

#define DECODE_CLUSTER_TILE(DIM, KEYS, SLOTS, IS_8_BIT) \
    sm90_decode::ClusterTile<DECODE_FEW_ROWS_TILE(DIM, KEYS, SLOTS, IS_8_BIT)>
#define DECODE_CLUSTER_ROW(NAME, DIM, KEYS, SLOTS, IS_8_BIT) \
    {{{NAME "_d" #DIM "_m16n" #KEYS "_s" #SLOTS "_cluster", \
       "16 rows or fewer x " #KEYS " keys, " #SLOTS " buffers of K or V, a cluster of blocks for each kv head"}, \
      DIM, \
      1, \
      sizeof(sm90_decode::FewRowsStorage<DECODE_CLUSTER_TILE(DIM, KEYS, SLOTS, IS_8_BIT)>)}, \
     DECODE_CLUSTER_TILE(DIM, KEYS, SLOTS, IS_8_BIT)::ROWS, \
     KEYS, \
     sm90_decode::FEW_ROWS_THREADS<DECODE_CLUSTER_TILE(DIM, KEYS, SLOTS, IS_8_BIT)>, \
     true, \
     IS_8_BIT, \
     {DECODE_FEW_ROWS_KERNELS(DECODE_CLUSTER_TILE(DIM, KEYS, SLOTS, IS_8_BIT)), {NULL, NULL}, {NULL, NULL}}},
