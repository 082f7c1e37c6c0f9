/* Whole rows of 16-bit elements between device memory and swizzled panels in shared memory (see warp_gemm_sm80.cuh),
 * 16 bytes of a thread at a time, sm_80 and newer. */
#pragma once
#include <cstdint>
#include "kernels/device/copies_sm80.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/warp_gemm_sm80.cuh"

namespace device {

/* All THREADS threads of a block start copying ROWS rows of COLUMNS elements, `rows` being the first, to panels from
 * `shared` on; rows from `left` on become zeros. The caller commits. `thread` is threadIdx.x. */
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void load_rows(uint32_t shared, const uint16_t *rows, int64_t stride_row, int64_t left,
                                          uint32_t thread = threadIdx.x)
{
    constexpr int ROW_CHUNKS = COLUMNS / 8, PASS_ROWS = THREADS / ROW_CHUNKS;
    static_assert(ROWS % PASS_ROWS == 0 && PASS_ROWS % 8 == 0, "passes are whole and keep the swizzle's phase");
    const uint32_t chunk = thread % ROW_CHUNKS, first = thread / ROW_CHUNKS;
    const uint16_t *source = rows + first * stride_row + chunk * 8;
    shared += chunk / 8 * (ROWS * ROW_BYTES) + swizzle_128b(first, chunk % 8);
    if (left >= ROWS) {
#pragma unroll
        for (int pass = 0; pass < ROWS; pass += PASS_ROWS, source += PASS_ROWS * stride_row)
            cp_async_16(shared + pass * ROW_BYTES, source, true);
        return;
    }
#pragma unroll
    for (int pass = 0; pass < ROWS; pass += PASS_ROWS, source += PASS_ROWS * stride_row) {
        const bool valid = static_cast<int>(first) + pass < static_cast<int>(left);
        cp_async_16(shared + pass * ROW_BYTES, valid ? source : rows, valid);
    }
}

/* The same of a head_dim that need not be a power of two, in two parts that are. */
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void load_wide_rows(uint32_t shared, const uint16_t *rows, int64_t stride_row, int64_t left,
                                               uint32_t thread = threadIdx.x)
{
    constexpr int PART = COLUMNS > 128 ? 128 : 64;
    if constexpr ((COLUMNS & (COLUMNS - 1)) == 0) {
        load_rows<ROWS, COLUMNS, THREADS>(shared, rows, stride_row, left, thread);
    } else {
        load_rows<ROWS, PART, THREADS>(shared, rows, stride_row, left, thread);
        load_rows<ROWS, COLUMNS - PART, THREADS>(shared + PART / PANEL_COLUMNS * (ROWS * ROW_BYTES), rows + PART,
                                                 stride_row, left, thread);
    }
}

/* A warp multiplies its 16 M16 rows x 64 columns by scale, rounds them and stores the first `left` rows, of NARROW ones
 * the first `columns` columns, through shared memory from `panel` on that nobody else uses. */
template <typename T, bool NARROW = false, typename Sums>
__device__ __forceinline__ void store_rows(Sums &sums, float scale, uint32_t panel, T *rows, int64_t stride_row,
                                           int left, int columns = PANEL_COLUMNS)
{
    static_assert(Sums::N8 * 8 == PANEL_COLUMNS, "one panel");
    const uint32_t lane = threadIdx.x % 32;
    Fragments<Sums::M16, PANEL_COLUMNS / 16> packed;
#pragma unroll
    for (int m = 0; m < Sums::M16; ++m)
#pragma unroll
        for (int n = 0; n < Sums::N8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sums.at[m][n][i] *= scale;
    pack_fragments<T>(packed, sums);
    store_fragments({lane_rows_16(lane), panel, 0}, 0, packed);
    __syncwarp();
#pragma unroll
    for (int pass = 0; pass < 16 * Sums::M16; pass += 4) {
        const int row = pass + lane / 8;
        const uint4 value = load_shared_128(panel + swizzle_128b(row, lane % 8));
        if (row < left && (!NARROW || static_cast<int>(lane % 8 * 8) < columns))
            store_once(reinterpret_cast<uint4 *>(rows + row * stride_row + lane % 8 * 8), value);
    }
}

} // namespace device
