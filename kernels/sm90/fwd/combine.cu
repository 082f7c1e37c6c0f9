/* The kernel behind the sm_90 forward where its last work tiles have parts (tail.h), bound by memory. A warp has 16
 * rows of 64 columns of such a tile. With m_i and l_i, the row max and row sum of part i, and its O_i:
 *
 *   m = max m_i    w_i = 2^(m_i - m) l_i    O = sum w_i O_i / sum w_i    LSE = ln 2 (m + log2 sum w_i)
 *
 * always in the order of the parts, so that results are the same bit by bit. A row without keys has l_i = 0 in all
 * parts: O = 0, LSE = -inf. */
#include <cfloat>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/slab.cuh"
#include "kernels/device/softmax.cuh"
#include "kernels/sm90/fwd/tiles.cuh"

namespace sm90_fwd {

namespace {

constexpr int THREADS = FUSED_SM90_FWD_COMBINE_THREADS, LANES = 32, WARPS = THREADS / LANES;
constexpr int PANEL_QUADS = PANEL_COLUMNS / 8, SLAB_BYTES = SLAB_ROWS * PANEL_COLUMNS * 2;
static_assert(SLAB_ROWS == FUSED_SM90_FWD_O_ROWS, "the host counts them");

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ Params params)
{
    constexpr int PANELS = HEAD_DIM / PANEL_COLUMNS;
    __shared__ __align__(1024) unsigned char s_bytes[WARPS * SLAB_BYTES];
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int number = blockIdx.x * WARPS + warp, slabs = params.work_rows / SLAB_ROWS;
    const int panel = number % PANELS, work = number / PANELS / slabs, slab = number / PANELS - work * slabs;

    if (work >= params.tail.works)
        return;
    const TilePlace place = tile_place(params, params.tail.first + work);
    const int first_row = place.row_tile * params.work_rows + slab * SLAB_ROWS, row = lane / 4;
    if (first_row >= params.q_len)
        return;
    /* Of part 0; `works` slots on is the next one. Quads of a slab lie column by column. */
    const int64_t slab_index = static_cast<int64_t>(work) * slabs + slab;
    const int64_t next_o = static_cast<int64_t>(params.tail.works) * params.work_rows * HEAD_DIM;
    const int64_t next_rows = static_cast<int64_t>(params.tail.works) * params.work_rows;
    const float *const part_o = params.part_o + slab_index * (SLAB_ROWS * HEAD_DIM) + panel * PANEL_QUADS * QUAD_FLOATS;
    const float *const part_max = params.part_max + slab_index * SLAB_ROWS + row;
    const float *const part_sum = params.part_sum + slab_index * SLAB_ROWS + row;
    float o[SLAB_FLOATS_OF_LANE] = {}, max_log2[2] = {-FLT_MAX, -FLT_MAX}, sum[2] = {}, inverse[2];

    grid_wait_for_last();
#pragma unroll 4
    for (int part = 0; part < params.tail.parts; ++part) {
        max_log2[0] = fmaxf(max_log2[0], part_max[part * next_rows]);
        max_log2[1] = fmaxf(max_log2[1], part_max[part * next_rows + 8]);
    }
    const auto weights = [&](float(&weight)[2], int part) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t at = part * next_rows + 8 * half;
            weight[half] = exp2_approx(part_max[at] - max_log2[half]) * part_sum[at];
        }
    };
#pragma unroll 4
    for (int part = 0; part < params.tail.parts; ++part) {
        float weight[2];
        weights(weight, part);
        sum[0] += weight[0];
        sum[1] += weight[1];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
        inverse[half] = sum[half] == 0.0f ? 0.0f : 1.0f / sum[half];
#pragma unroll 1
    for (int part = 0; part < params.tail.parts; ++part) {
        float weight[2], quads[PANEL_QUADS][4];
#pragma unroll
        for (int i = 0; i < PANEL_QUADS; ++i)
            load_quad(quads[i], part_o + part * next_o + i * QUAD_FLOATS, lane);
        weights(weight, part);
        weight[0] *= inverse[0];
        weight[1] *= inverse[1];
        /* A part in which the row has no key may have NaN: 0 times an infinite V. The branch also keeps the compiler
         * from beginning with the arithmetic before it has issued all loads. */
        if (__any_sync(WHOLE_WARP, weight[0] == 0.0f || weight[1] == 0.0f)) {
#pragma unroll
            for (int i = 0; i < SLAB_FLOATS_OF_LANE; ++i)
                if (weight[i / 2 % 2] == 0.0f)
                    quads[i / 4][i % 4] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < SLAB_FLOATS_OF_LANE; ++i)
            o[i] += quads[i / 4][i % 4] * weight[i / 2 % 2];
    }
    T *const to = static_cast<T *>(params.o_rows.data) + place.batch * params.o_rows.stride_batch +
                  place.head * params.o_rows.stride_head + first_row * params.o_rows.stride_row + panel * PANEL_COLUMNS;
    write_slab<T>(o, 1.0f, shared_address(s_bytes) + warp * SLAB_BYTES, to, params.o_rows.stride_row,
                  params.q_len - first_row, lane);
    if (panel == 0 && lane % 4 == 0) {
        float *const lse = params.lse +
                           (static_cast<int64_t>(place.batch) * params.q_heads.value + place.head) * params.q_len +
                           first_row + row;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (first_row + row + 8 * half < params.q_len)
                lse[8 * half] = sum[half] == 0.0f ? -INFINITY : LN_2 * (max_log2[half] + __log2f(sum[half]));
    }
}

} // namespace

} // namespace sm90_fwd

using namespace sm90_fwd;

extern "C" const fused_sm90_fwd_kernel fused_sm90_fwd_combine[2][SM90_HEAD_DIMS] = {
    {combine<__half, 64>, combine<__half, 128>}, {combine<__nv_bfloat16, 64>, combine<__nv_bfloat16, 128>}};
