/* What a file of instances/ needs: rows in the table of tiles of the sm_90 decode, with their kernels. */
#pragma once
#include "kernels/sm90/decode/kernel.cuh"

namespace sm90_decode {

template <typename Sizes> struct Kernels {
    template <typename T> static constexpr fused_sm90_decode_kernel alike = fused_decode_kernel<T, Sizes>;
    template <typename T> static constexpr fused_sm90_decode_kernel packed = fused_decode_kernel<T, PackedTile<Sizes>>;
    template <typename T>
    static constexpr fused_sm90_decode_kernel invariant = fused_decode_kernel<T, InvariantTile<Sizes>>;
};

template <typename Sizes, typename Stored> struct Kernels8Bit {
    template <typename T>
    static constexpr fused_sm90_decode_kernel alike = fused_decode_8_bit_kernel<T, Tile8Bit<Sizes, Stored>>;
    template <typename T>
    static constexpr fused_sm90_decode_kernel packed =
        fused_decode_8_bit_kernel<T, Tile8Bit<PackedTile<Sizes>, Stored>>;
    template <typename T>
    static constexpr fused_sm90_decode_kernel invariant =
        fused_decode_8_bit_kernel<T, Tile8Bit<InvariantTile<Sizes>, Stored>>;
};

} // namespace sm90_decode

#define DECODE_TILE(DIM, KEYS, SLOTS) sm90_decode::Tile<DIM, KEYS, SLOTS>
#define DECODE_PAIR(DIM, KEYS, SLOTS, WORK)                                                                            \
    {                                                                                                                  \
        {sm90_decode::Kernels<DECODE_TILE(DIM, KEYS, SLOTS)>::WORK<__half>},                                           \
        {                                                                                                              \
            sm90_decode::Kernels<DECODE_TILE(DIM, KEYS, SLOTS)>::WORK<__nv_bfloat16>                                   \
        }                                                                                                              \
    }
#define DECODE_ROW(DIM, KEYS, SLOTS)                                                                                   \
    {{{"decode_d" #DIM "_n" #KEYS "_s" #SLOTS,                                                                         \
       "64 rows x " #KEYS " keys, " #SLOTS " buffers of K or V, parts of the keys combined by the last block"},        \
      DIM,                                                                                                             \
      1,                                                                                                               \
      sizeof(sm90_decode::SharedStorage<sm90_decode::PackedTile<DECODE_TILE(DIM, KEYS, SLOTS)>>)},                     \
     KEYS,                                                                                                             \
     sm90_decode::THREADS,                                                                                             \
     false,                                                                                                            \
     {DECODE_PAIR(DIM, KEYS, SLOTS, alike), DECODE_PAIR(DIM, KEYS, SLOTS, packed),                                     \
      DECODE_PAIR(DIM, KEYS, SLOTS, invariant)}},

#define DECODE_8_BIT(DIM, KEYS, SLOTS, STORED) sm90_decode::Kernels8Bit<DECODE_TILE(DIM, KEYS, SLOTS), STORED>
#define DECODE_8_BIT_FOUR(DIM, KEYS, SLOTS, WORK)                                                                      \
    {                                                                                                                  \
        {DECODE_8_BIT(DIM, KEYS, SLOTS, __nv_fp8_e4m3)::WORK<__half>,                                                  \
         DECODE_8_BIT(DIM, KEYS, SLOTS, __nv_fp8_e5m2)::WORK<__half>},                                                 \
        {                                                                                                              \
            DECODE_8_BIT(DIM, KEYS, SLOTS, __nv_fp8_e4m3)::WORK<__nv_bfloat16>,                                        \
                DECODE_8_BIT(DIM, KEYS, SLOTS, __nv_fp8_e5m2)::WORK<__nv_bfloat16>                                     \
        }                                                                                                              \
    }
#define DECODE_8_BIT_ROW(DIM, KEYS, SLOTS)                                                                             \
    {{{"decode_8bit_d" #DIM "_n" #KEYS "_s" #SLOTS,                                                                    \
       "8-bit cache: 64 rows x " #KEYS " keys, widened to " #SLOTS " buffers of K or V by warps of their own"},        \
      DIM,                                                                                                             \
      1,                                                                                                               \
      sizeof(sm90_decode::SharedStorage8Bit<                                                                           \
             sm90_decode::Tile8Bit<sm90_decode::PackedTile<DECODE_TILE(DIM, KEYS, SLOTS)>, __nv_fp8_e4m3>>)},          \
     KEYS,                                                                                                             \
     sm90_decode::THREADS_8_BIT,                                                                                       \
     true,                                                                                                             \
     {DECODE_8_BIT_FOUR(DIM, KEYS, SLOTS, alike), DECODE_8_BIT_FOUR(DIM, KEYS, SLOTS, packed),                         \
      DECODE_8_BIT_FOUR(DIM, KEYS, SLOTS, invariant)}},
