/* Values whose origin the compiler may not look through. Emits no instruction. */
#pragma once

namespace device {

/* Keeps a pointer that is advanced step by step from being rewritten as base + i * stride, which costs a multiplication
 * and registers at every step. */
template <typename T> __device__ __forceinline__ void keep_pointer(const T *&pointer)
{
    asm volatile("" : "+l"(pointer));
}

/* The same number, of which the compiler does not know that it is the same: what is computed from it is computed
 * again instead of being held in registers all the while. */
__device__ __forceinline__ int forget(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

} // namespace device
