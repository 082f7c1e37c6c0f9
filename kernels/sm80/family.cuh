/* The family on the device: the attributes that kernels are compiled with, and copies of narrower rows. Shared by the
 * kernels of both directions, which have the family in instantiations of their own: with the attributes `Dense` the
 * compiler sees nothing of it. Which attributes a problem has is decided at run time, in branches that a whole block
 * takes. What each subject is: kernels/family. */
#pragma once
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copies_sm80.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/family/block_mask.cuh"
#include "kernels/family/dropout.cuh"
#include "kernels/family/lengths.cuh"
#include "kernels/family/ranges.cuh"
#include "kernels/sm80/family.h"

namespace sm80_family {

using namespace family;

/* The attributes that a kernel is compiled with: none; which pairs are visible, at head dims that a tile has exactly;
 * the same with dropout; all but sinks, ALiBi and biases; all. */
struct Dense {
    static constexpr bool FAMILY = false, SPARSE = false, DROPOUT = false, SCORE = false;
};
struct Sparse {
    static constexpr bool FAMILY = false, SPARSE = true, DROPOUT = false, SCORE = false;
};
struct Window { /* as Sparse, of sequences of the same lengths without a block mask; the forward's */
    static constexpr bool FAMILY = false, SPARSE = true, DROPOUT = false, SCORE = false;
};
struct SparseDropout {
    static constexpr bool FAMILY = false, SPARSE = true, DROPOUT = true, SCORE = false;
};
struct Family {
    static constexpr bool FAMILY = true, SPARSE = false, DROPOUT = true, SCORE = false; /* decided at run time */
};
struct Score { /* as Family, with what is added to scores or to the sum of a row */
    static constexpr bool FAMILY = true, SPARSE = false, DROPOUT = true, SCORE = true;
};

template <typename Attributes> __device__ __forceinline__ bool has_dropout(const fused_sm80_family &family)
{
    return Attributes::DROPOUT && (!Attributes::FAMILY || family.dropout.threshold != 0);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* All THREADS threads of a block start copying ROWS rows of COLUMNS elements to panels of 64 columns, of which `rows`
 * rows and `columns` columns exist; the rest becomes zero, and `legal` stands in for its address. Thread t copies chunk
 * t % 8 of each panel. */
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void load_panels(uint32_t shared, const uint16_t *from, const void *legal, int64_t stride,
                                            int rows, int columns)
{
    constexpr int STEP = THREADS / 8;
    static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "passes are whole and keep the swizzle's phase");
    const int first = static_cast<int>(threadIdx.x) / 8, chunk = static_cast<int>(threadIdx.x) % 8;
    shared += device::swizzle_128b(first, chunk);
    from += first * stride + chunk * 8;
#pragma unroll
    for (int row = 0; row < ROWS; row += STEP) {
#pragma unroll
        for (int column = 0; column < COLUMNS; column += 64) {
            const bool valid = first + row < rows && column + chunk * 8 < columns;
            if (column + 64 <= COLUMNS || column + chunk * 8 < COLUMNS)
                device::cp_async_16(shared + column / 64 * (ROWS * 128) + row * 128, valid ? from + column : legal,
                                    valid);
        }
        from += STEP * stride;
        device::keep_pointer(from);
    }
}

} // namespace sm80_family
