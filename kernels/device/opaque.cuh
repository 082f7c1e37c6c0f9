/* Values of which the compiler does not know how they were computed. No instructions are emitted. */
#pragma once

namespace device {

/* Keeps a pointer that is advanced step by step from being rewritten as base + i * stride, which costs a multiplication
 * and registers at every step. */
template <typename T> __device__ __forceinline__ void keep_pointer(const T *&pointer)
{
    asm volatile("" : "+l"(pointer));
}

/* Returns x, which the compiler does not know: it computes again what follows from the result, instead of keeping it in
 * registers from an earlier use of x. */
__device__ __forceinline__ int forget(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

} // namespace device
