/* Matrix products of a warpgroup (four neighbouring warps, the first a multiple of four), sm_90a.
 * PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: wgmma".
 *
 * C[64 x N] (+)= A[64 x 16] B[16 x N], fp32 sums, 16-bit operands. B lies in shared memory, A there or in registers.
 *   C: with w the warp in its warpgroup, g = lane / 4 and q = lane % 4, register i of a lane is
 *      row 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 q + i % 2.
 *   A in registers is four of pack2: rows g, g + 8, g, g + 8 and k 2q 2q+1 (first two), 2q+8 2q+9 (last two): C's
 *      registers 8 j to 8 j + 7, packed in pairs, are A of the k from 16 j on.
 *
 * Life of a product: wgmma_fence; any number of wgmma_*; wgmma_commit; later wgmma_wait<n>, which waits for all but
 * the last n commits. In between nothing may touch C, nor A's registers. wgmma_hold after the wait (and before the
 * fence, where registers were written) keeps the compiler from moving such touches across.
 *
 * Operands in shared memory are panels: rows of 128 bytes (64 elements) with the 128B swizzle (warp_matrix.cuh), each
 * panel on a 1024-byte boundary. Seen from the product a panel is
 *   k-major  - its rows are rows of A or columns of B, 64 k wide: 16 k further is 32 bytes further;
 *   mn-major - its rows are k, 64 rows of A or columns of B wide ("transposed"): 16 k further is 2048 bytes further,
 *              the next 64 columns are a panel further. */
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace device {

/* Descriptor fields: address / 16 in bits 0-13, leading offset / 16 in 16-29, stride offset / 16 in 32-45, swizzle in
 * 62-63 (1 = 128B). PTX ISA, "Shared Memory Matrix Layout: matrix descriptor". Here they are their lower halves: the
 * upper one is the same for every panel, eight rows of 128 bytes as the stride and the 128B swizzle. Moving by b bytes
 * is adding b / 16. */
#define WGMMA_UPPER "0x40000040"
__device__ __forceinline__ uint32_t wgmma_k_major(uint32_t shared) { return 1 << 16 | (shared & 0x3ffff) >> 4; }

/* panel_bytes: how far apart panels lie (any number where N is 64). */
__device__ __forceinline__ uint32_t wgmma_mn_major(uint32_t shared, uint32_t panel_bytes)
{
    return (panel_bytes >> 4) << 16 | (shared & 0x3ffff) >> 4;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int pending> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

template <int COUNT> __device__ __forceinline__ void wgmma_hold(float (&c)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        asm volatile("" : "+f"(c[i])::"memory");
}

template <int COUNT> __device__ __forceinline__ void wgmma_hold(uint32_t (&a)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        asm volatile("" : "+r"(a[i])::"memory");
}

enum wgmma_major { WGMMA_K_MAJOR = 0, WGMMA_MN_MAJOR = 1 };

/* The instruction of one N (64, 72 or 128; another takes two lists and a line below) and one element type.
 *   shared:    C (+)= A B with both in shared memory; A_MAJOR and B_MAJOR say how the panels lie.
 *   registers: C (+)= A B with A in registers.
 * `accumulate` false starts C at zero. */
template <typename T, int N> struct wgmma;

/* Operand lists: the text names registers 0.., the constraint lists bind them. */
#define WGMMA_TEXT_32 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
    "%30,%31"
#define WGMMA_TEXT_36 WGMMA_TEXT_32 ",%32,%33,%34,%35"
#define WGMMA_TEXT_64 \
    WGMMA_TEXT_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
                  "%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_C_8(i) \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
#define WGMMA_C_32 WGMMA_C_8(0), WGMMA_C_8(8), WGMMA_C_8(16), WGMMA_C_8(24)
#define WGMMA_C_36 WGMMA_C_32, "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35])
#define WGMMA_C_64 WGMMA_C_32, WGMMA_C_8(32), WGMMA_C_8(40), WGMMA_C_8(48), WGMMA_C_8(56)

/* i0.. are the numbers of the operands that follow the C registers. */
#define WGMMA_STRUCT(T, TYPE, N, C, i0, i1, i2, i3, i4, i5, i6) \
    template <> struct wgmma<T, N> { \
        template <wgmma_major A_MAJOR, wgmma_major B_MAJOR> \
        static __device__ __forceinline__ void shared(float (&c)[C], uint32_t a, uint32_t b, bool accumulate) \
        { \
            asm volatile("{\n" \
                         ".reg .pred p;\n" \
                         ".reg .b64 x, y;\n" \
                         "mov.b64 x, {%" #i0 ", " WGMMA_UPPER "};\n" \
                         "mov.b64 y, {%" #i1 ", " WGMMA_UPPER "};\n" \
                         "setp.ne.b32 p, %" #i2 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_TEXT_##C \
                         "}, x, y, p, 1, 1, %" #i3 ", %" #i4 ";\n" \
                         "}" \
                         : WGMMA_C_##C \
                         : "r"(a), "r"(b), "r"(int(accumulate)), "n"(int(A_MAJOR)), "n"(int(B_MAJOR))); \
        } \
        template <wgmma_major B_MAJOR> \
        static __device__ __forceinline__ void registers(float (&c)[C], const uint32_t *a, uint32_t b, \
                                                         bool accumulate) \
        { \
            asm volatile("{\n" \
                         ".reg .pred p;\n" \
                         ".reg .b64 y;\n" \
                         "mov.b64 y, {%" #i4 ", " WGMMA_UPPER "};\n" \
                         "setp.ne.b32 p, %" #i5 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_TEXT_##C \
                         "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, y, p, 1, 1, %" #i6 ";\n" \
                         "}" \
                         : WGMMA_C_##C \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(int(accumulate)), \
                           "n"(int(B_MAJOR))); \
        } \
    };
#define WGMMA_STRUCTS(T, TYPE) \
    WGMMA_STRUCT(T, TYPE, 64, 32, 32, 33, 34, 35, 36, 37, 38) \
    WGMMA_STRUCT(T, TYPE, 72, 36, 36, 37, 38, 39, 40, 41, 42) \
    WGMMA_STRUCT(T, TYPE, 128, 64, 64, 65, 66, 67, 68, 69, 70)

WGMMA_STRUCTS(__half, "f16")
WGMMA_STRUCTS(__nv_bfloat16, "bf16")

#undef WGMMA_STRUCTS
#undef WGMMA_UPPER
#undef WGMMA_STRUCT

} // namespace device
