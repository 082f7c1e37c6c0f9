/* What ALiBi and a bias add to scores, in all kernels `Score` of fused_sm80: forward, backward and deterministic dQ
 * have scores in registers in orders of their own, and walk over them. */
#pragma once
#include "kernels/device/arithmetic.cuh"
#include "kernels/sm80/family.cuh"

namespace sm80_family {

/* A bias below this counts as this: beside any other key P is 0 either way, and no score is -inf, as a hidden one. */
constexpr float LEAST_BIAS = -1048576.0f;

/* A lane's first score: of which sequence and head it is, its row and its key. */
struct ScorePlace {
    int sequence, head, row, key, q_len, kv_len;
};

__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(float x) { return x; }

/* The bias in elements of type B. */
template <typename B, typename ForEach>
__device__ __forceinline__ void add_bias(const fused_sm80_score &score, const ScorePlace &at, const ForEach &for_each)
{
    const struct attn_tensor &bias = score.bias;
    const B *first = static_cast<const B *>(bias.data) + at.sequence * bias.stride_batch + at.head * bias.stride_head +
                     at.row * bias.stride_row + at.key;
    const int rows = at.q_len - at.row, keys = at.kv_len - at.key;
    for_each([&](float &s, int row, int key) {
        if (row < rows && key < keys)
            s = fmaf(fmaxf(to_float(first[row * bias.stride_row + key]), LEAST_BIAS), score.unit, s);
    });
}

/* Adds both to scores of inputs of type T, behind a softcap and ahead of masks. for_each(add) calls
 * add(score, row, key) for each of the lane's scores, with its distances in rows and keys from the place. */
template <typename T, typename ForEach>
__device__ __forceinline__ void add_to_scores(const fused_sm80_score &score, const ScorePlace &at,
                                              const ForEach &for_each)
{
    if (score.slopes != NULL) {
        const float slope = score.slopes[at.head] * score.unit;
        const float first = static_cast<float>(at.row + at.kv_len - at.q_len - at.key);
        for_each(
            [&](float &s, int row, int key) { s = fmaf(fabsf(first + static_cast<float>(row - key)), -slope, s); });
    }
    if (score.bias.data == NULL)
        return;
    if (score.bias_is_fp32)
        add_bias<float>(score, at, for_each);
    else
        add_bias<T>(score, at, for_each);
}

} // namespace sm80_family
