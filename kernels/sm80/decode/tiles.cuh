/* The tiles of the sm_80 decode, their sizes, their shared memory, and the circular buffer in it. */
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/device/barriers.cuh"
#include "kernels/sm80/decode/params.h"

namespace sm80_decode {

using Params = fused_sm80_decode_params;
using Part = family_decode_part;

/* The first warps compute, the others load. */
constexpr int PRODUCER_WARPS = 4, PRODUCER_THREADS = 32 * PRODUCER_WARPS;
constexpr int Q_STAGES = 2;              /* the part that is computed and the next one */
constexpr uint32_t CONSUMER_BARRIER = 1; /* bar_sync of the consumers */
constexpr int LEAST_SLOTS = 2;           /* a tile of K and one of V */
/* What the consumers exchange at the end of a part, so many columns of O at a time, in rows that are apart by more for
 * the sake of the banks. */
constexpr int OUT_COLUMNS = 32, OUT_STRIDE = OUT_COLUMNS + 8;

/* DIM: head_dim; KEYS: of a tile; ROWS: query rows of a tile, of which each of the consumer WARPS has 16; those that
 * have the same rows share out the keys of a tile. */
template <int DIM, int KEYS, int ROWS_, int WARPS> struct Tile {
    static constexpr int HEAD_DIM = DIM, TILE_KEYS = KEYS, ROWS = ROWS_;
    static constexpr int CONSUMER_WARPS = WARPS, CONSUMER_THREADS = 32 * WARPS;
    static constexpr int THREADS = CONSUMER_THREADS + PRODUCER_THREADS;
    static constexpr int ROW_WARPS = ROWS / 16, KEY_WARPS = WARPS / ROW_WARPS, WARP_KEYS = KEYS / KEY_WARPS;
    static constexpr int CHUNKS = DIM / 8; /* of 16 bytes, in a row */
    static constexpr int SLOT_BYTES = KEYS * DIM * 2, Q_BYTES = ROWS * DIM * 2;
    static constexpr int COLUMNS = DIM < 128 ? DIM : 128; /* of a row that are added up at once */
    static_assert(WARP_KEYS % 16 == 0, "a step of the second product has 16 keys");
};

template <typename Tile> struct alignas(1024) SharedStorage {
    char q[Q_STAGES][Tile::Q_BYTES];
    float out[Tile::CONSUMER_WARPS][16][OUT_STRIDE];
    float4 sums[Tile::KEY_WARPS][Tile::ROWS]; /* of the rows of each warp: row max, sum of P, sum of the rounded P */
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES];
    uint64_t kv_full[FUSED_SM80_DECODE_MOST_SLOTS], kv_empty[FUSED_SM80_DECODE_MOST_SLOTS];
    Part part[Q_STAGES]; /* whose rows a stage of Q holds; sequence -1: there are no more */
    int arrived;         /* what the counter of a group of parts was */
    /* Behind it the slots, in which tiles of K and of V alternate. */
};

template <typename Tile> __device__ __forceinline__ uint32_t slot_address(const SharedStorage<Tile> &smem, int slot)
{
    return device::shared_address(&smem) + static_cast<uint32_t>(sizeof smem) + slot * Tile::SLOT_BYTES;
}

/* The slot that is used next, see PipelineState; how many there are is known at run time. */
struct SlotState {
    int slot = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ void advance(int slots)
    {
        if (++slot == slots) {
            slot = 0;
            phase ^= 1;
        }
    }
};

/* Waits, with the whole warp, until the phase of this parity has ended. */
__device__ __forceinline__ void wait_for(const uint64_t *barrier, uint32_t parity)
{
    const uint32_t address = device::shared_address(barrier);
#if __CUDA_ARCH__ >= 900
    device::mbarrier_wait_together(address, parity);
#else
    while (!device::mbarrier_test_together(address, parity)) {
    }
#endif
}

} // namespace sm80_decode
