/* Numbers of 8 bits, e4m3 and e5m2 (OFP8): from floats, and products of a warpgroup, sm_90a. */
#pragma once
#include <cstdint>

#include "kernels/device/wgmma.cuh"

namespace device {

/* ---- from floats ---- */

/* Four floats rounded to nearest even into one register, the first in the lowest byte; what is too large becomes the
 * largest finite value. sm_89 and newer. PTX ISA, "Data Movement and Conversion Instructions: cvt". */
struct e4m3 {};
struct e5m2 {};
template <typename T> __device__ uint32_t pack4(float x0, float x1, float x2, float x3);

#define PACK4(T) \
    template <> __device__ __forceinline__ uint32_t pack4<T>(float x0, float x1, float x2, float x3) \
    { \
        uint32_t all; \
        asm("{\n" \
            ".reg .b16 low, high;\n" \
            "cvt.rn.satfinite." #T "x2.f32 low, %2, %1;\n" \
            "cvt.rn.satfinite." #T "x2.f32 high, %4, %3;\n" \
            "mov.b32 %0, {low, high};\n" \
            "}" \
            : "=r"(all) \
            : "f"(x0), "f"(x1), "f"(x2), "f"(x3)); \
        return all; \
    }
PACK4(e4m3)
PACK4(e5m2)
#undef PACK4

/* ---- products of a warpgroup ---- */

/* C[64 x N] (+)= A[64 x 32] B[32 x N] with operands of 8 bits. C and the life of a product are as in wgmma.cuh.
 *   A in registers is four of pack4: rows g, g + 8, g, g + 8 and k 4q to 4q+3 (first two), 4q+16 to 4q+19 (last two).
 * Operands in shared memory are k-major alone; a panel is as wide as its rows, 128 bytes with the 128B swizzle or 64
 * with the 64B swizzle (bits 4 and 5 of an address are XORed with 7 and 8), and 32 k further is 32 bytes further. Sums
 * of products are kept in fewer bits than fp32 has. */

/* The upper half of a descriptor: the swizzle, and eight rows as the stride. */
template <int ROW_BYTES> constexpr uint32_t WGMMA_UPPER_OF = ROW_BYTES == 128 ? 0x40000040u : 0x80000020u;

#define WGMMA_8_BIT_STRUCT(T, TYPE, N, C, i0, i1, i2, i3, i4, i5, i6) \
    template <> struct wgmma<T, N> { \
        template <int ROW_BYTES> \
        static __device__ __forceinline__ void shared(float (&c)[C], uint32_t a, uint32_t b, bool accumulate) \
        { \
            asm volatile("{\n" \
                         ".reg .pred p;\n" \
                         ".reg .b64 x, y;\n" \
                         "mov.b64 x, {%" #i0 ", %" #i3 "};\n" \
                         "mov.b64 y, {%" #i1 ", %" #i3 "};\n" \
                         "setp.ne.b32 p, %" #i2 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." TYPE "." TYPE " {" WGMMA_TEXT_##C \
                         "}, x, y, p, 1, 1;\n" \
                         "}" \
                         : WGMMA_C_##C \
                         : "r"(a), "r"(b), "r"(int(accumulate)), "n"(int(WGMMA_UPPER_OF<ROW_BYTES>))); \
        } \
        template <int ROW_BYTES> \
        static __device__ __forceinline__ void registers(float (&c)[C], const uint32_t *a, uint32_t b, \
                                                         bool accumulate) \
        { \
            asm volatile("{\n" \
                         ".reg .pred p;\n" \
                         ".reg .b64 y;\n" \
                         "mov.b64 y, {%" #i4 ", %" #i6 "};\n" \
                         "setp.ne.b32 p, %" #i5 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." TYPE "." TYPE " {" WGMMA_TEXT_##C \
                         "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, y, p, 1, 1;\n" \
                         "}" \
                         : WGMMA_C_##C \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(int(accumulate)), \
                           "n"(int(WGMMA_UPPER_OF<ROW_BYTES>))); \
        } \
    };
#define WGMMA_8_BIT_STRUCTS(T, TYPE) \
    WGMMA_8_BIT_STRUCT(T, TYPE, 64, 32, 32, 33, 34, 35, 36, 37, 38) \
    WGMMA_8_BIT_STRUCT(T, TYPE, 128, 64, 64, 65, 66, 67, 68, 69, 70)

WGMMA_8_BIT_STRUCTS(e4m3, "e4m3")
WGMMA_8_BIT_STRUCTS(e5m2, "e5m2")

#undef WGMMA_8_BIT_STRUCTS
#undef WGMMA_8_BIT_STRUCT

} // namespace device
