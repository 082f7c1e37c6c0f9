/* The warps of the sm_90 decode that widen tiles of an 8-bit cache: from the buffer that the copy engine fills to the
 * one that the products read. Every number of 8 bits is one of 16 bits: nothing is rounded. Scales are not applied
 * here: that of K goes into the scale of the scores, that of V into the one of the output. */
#pragma once
#include <cstdint>
#include <cuda_fp8.h>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/sm90/decode/tiles.cuh"
#include "kernels/sm90/decode/walk.cuh"

namespace sm90_decode {

using namespace device;

/* 16-byte aligned. */
__device__ __forceinline__ void store_shared_128(uint32_t shared, const uint4 &value)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(value.x), "r"(value.y), "r"(value.z),
                 "r"(value.w)
                 : "memory");
}

/* Two numbers of 8 bits as fp16, the first in the low half. PTX ISA, "Data Movement and Conversion Instructions:
 * cvt". */
template <typename Stored> __device__ uint32_t widen_pair(uint16_t pair);

template <> __device__ __forceinline__ uint32_t widen_pair<__nv_fp8_e4m3>(uint16_t pair)
{
    uint32_t wide;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(wide) : "h"(pair));
    return wide;
}

/* The upper byte of fp16. */
template <> __device__ __forceinline__ uint32_t widen_pair<__nv_fp8_e5m2>(uint16_t pair)
{
    return __byte_perm(pair, 0, 0x1404);
}

/* A pair of fp16, which have few bits, as one of T: of fp32 the upper halves are bf16, and nothing is lost. */
template <typename T> __device__ uint32_t from_half_pair(uint32_t pair);
template <> __device__ __forceinline__ uint32_t from_half_pair<__half>(uint32_t pair) { return pair; }
template <> __device__ __forceinline__ uint32_t from_half_pair<__nv_bfloat16>(uint32_t pair)
{
    const float2 x = unpack2<__half>(pair);
    return __byte_perm(__float_as_uint(x.x), __float_as_uint(x.y), 0x7632);
}

/* Eight numbers of 8 bits to a chunk of 16 bytes. */
template <typename T, typename Stored>
__device__ __forceinline__ void widen_chunk(uint32_t to, uint32_t low, uint32_t high)
{
    store_shared_128(to, {from_half_pair<T>(widen_pair<Stored>(static_cast<uint16_t>(low))),
                          from_half_pair<T>(widen_pair<Stored>(static_cast<uint16_t>(low >> 16))),
                          from_half_pair<T>(widen_pair<Stored>(static_cast<uint16_t>(high))),
                          from_half_pair<T>(widen_pair<Stored>(static_cast<uint16_t>(high >> 16)))});
}

/* Where a warp reads and writes: 8 rows x 64 columns at a time, a lane 16 columns of a row. The rows of eight lanes
 * that go to shared memory together are r and r ^ 5, so that they use all banks once, on both sides, with both
 * swizzles. */
template <typename Tile> struct WideningLane {
    uint32_t from, to; /* within a tile */
    static constexpr int STEPS = Tile::TILE_KEYS / 8 * Tile::PANELS / WIDENING_WARPS;
    static constexpr int STEP_ROWS = WIDENING_WARPS / Tile::PANELS * 8;
    static_assert(STEPS * STEP_ROWS == Tile::TILE_KEYS, "the warps share the panels evenly");

    __device__ __forceinline__ WideningLane(int warp, int lane)
    {
        using Staged = Storage8Bit<Tile>;
        const int panel = warp % Tile::PANELS, group = warp / Tile::PANELS;
        const int row = lane / 8 ^ lane / 4 % 2 * 5, unit = lane % 4;
        const int column = panel * 64 % Staged::LOAD_COLUMNS / 16 + unit;
        const int swizzle = Staged::LOAD_ROW == 128 ? row : row / 2 % 4;
        from = panel * 64 / Staged::LOAD_COLUMNS * Staged::LOAD_PANEL_BYTES + (group * 8 + row) * Staged::LOAD_ROW +
               (column ^ swizzle) * 16;
        to = panel * Tile::KV_PANEL_BYTES + (group * 8 + row) * ROW_BYTES + (2 * unit ^ row) * 16;
    }
};

template <typename T, typename Stored, typename Tile>
__device__ __forceinline__ void widen_tile(uint32_t from, uint32_t to)
{
    constexpr int STEPS = WideningLane<Tile>::STEPS, STEP_ROWS = WideningLane<Tile>::STEP_ROWS;
    uint4 x[STEPS];
#pragma unroll
    for (int i = 0; i < STEPS; ++i)
        x[i] = load_shared_128(from + i * STEP_ROWS * Storage8Bit<Tile>::LOAD_ROW);
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const uint32_t chunk = to + i * STEP_ROWS * ROW_BYTES;
        widen_chunk<T, Stored>(chunk, x[i].x, x[i].y);
        widen_chunk<T, Stored>(chunk ^ 16, x[i].z, x[i].w);
    }
}

/* Tiles of K and V alternate in both buffers; each of two warpgroups has one kind, all tiles of the block's parts one
 * after the other. is_v: that of V. */
template <typename T, typename Tile>
__device__ __forceinline__ void widen(SharedStorage8Bit<Tile> &smem, bool is_e5m2, bool is_v, int warp, int lane)
{
    const WideningLane<Tile> mine(warp, lane);
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::SLOTS> kv;
    PipelineState<Tile::LOAD_SLOTS> loaded;

    if (is_v) {
        kv.advance();
        loaded.advance();
    }
    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.wide.q_full[q.stage]), q.phase);
        const PartOf<Tile> &part = smem.wide.part[q.stage];
        const bool is_end = part.sequence < 0;
        const int tiles = part.keys_end > part.keys_begin ? part.tiles : 0;
        __syncwarp();
        if (is_end)
            break;
        if (lane == 0)
            mbarrier_arrive(shared_address(&smem.wide.q_empty[q.stage]));
#pragma unroll 1
        for (int i = 0; i < tiles; ++i) {
            mbarrier_wait(shared_address(&smem.loaded.kv_full[loaded.stage]), loaded.phase);
            mbarrier_wait(shared_address(&smem.wide.kv_empty[kv.stage]), kv.phase ^ 1);
            const uint32_t from = shared_address(smem.loaded.kv[loaded.stage]) + mine.from;
            const uint32_t to = shared_address(smem.wide.kv[kv.stage]) + mine.to;
            if (is_e5m2)
                widen_tile<T, __nv_fp8_e5m2, Tile>(from, to);
            else
                widen_tile<T, __nv_fp8_e4m3, Tile>(from, to);
            async_proxy_fence();
            __syncwarp();
            if (lane == 0) {
                mbarrier_arrive(shared_address(&smem.wide.kv_full[kv.stage]));
                mbarrier_arrive(shared_address(&smem.loaded.kv_empty[loaded.stage]));
            }
            for (int step = 0; step < 2; ++step) {
                loaded.advance();
                kv.advance();
            }
        }
    }
}

} // namespace sm90_decode
