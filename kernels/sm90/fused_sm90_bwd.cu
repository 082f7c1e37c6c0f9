/* fused_sm90, backward: FlashAttention-2's backward (Dao 2023, algorithm 2) on wgmma and TMA, compute capability 9.0.
 * Three kernels, each of which starts while the one before it ends:
 *   preprocess  lse2 = LSE * log2 e (bf16: minus 12, so that P is 2^12 times as large) and -D = -rowsum(dO * O) of
 *               every query; zeros in dq_sum, the fp32 sums of dQ; the list of work tiles
 *   backward    a block has 128 keys of a kv head and goes through the tiles of queries of all query heads of its
 *               group, the last tile first: recomputes P, keeps dK and dV in registers, adds its part to dq_sum
 *   convert     dQ = dqk_scale * dq_sum, rounded
 * 128 keys of a kv head, or a part of their steps, are a work tile (bwd_work.cuh); in a pair of blocks 2 x 128 keys. A
 * block has one, or, where they are many and not in parts, takes one after the other from the list (bwd_producer.cuh):
 * K of the next one comes where V is, as soon as nothing reads V any more, its first Q and dO follow those of the last
 * steps, and dK and dV are stored by way of the buffer of dS that the next step will use.
 * A block has two warpgroups of 64 keys each, which do not wait for one another; a third one loads and computes dQ.
 * One step (a tile of queries):
 *
 *   KV warpgroup (bwd_kv_warpgroup.cuh)                      dQ warpgroup (bwd_dq_warpgroup.cuh), producer
 *     rows are keys; P^T is in registers, in 16 bits           wait for dS of both KV warpgroups
 *     start dP^T = V dO^T, dV += P^T dO                        2 passes of 64 x 64: dQ = dS K, and meanwhile the
 *     dS^T = P^T * (dP^T - D)                                  previous pass goes to shared memory, from where the
 *     store dS^T to shared memory                                copy engine adds it to dq_sum (at head_dim 64 the
 *     start S^T = K Q^T of the next step                         second pass is added from registers)
 *     start dK += dS^T Q                                       load Q, dO and statistics of the step 3 ahead
 *     P^T = exp2(scale_log2 S^T - lse2) of the next step
 *
 * P^T is an operand of dV and a factor of dS^T. In bf16 it has too few bits for the latter: there P^T is rounded twice,
 * to bf16 for dV and to fp16 for dS^T, which replaces it. As P^T for dS^T has registers of its own, dS^T is computed
 * while dV runs. (fp16, head_dim 128: dP^T - D is. Short steps keep P^T in fp32 for dS^T.)
 *
 * Long problems of head_dim 64 go to pairs of blocks (bwd_pair.cuh), which share the loads of Q and dO and the
 * additions to dq_sum of two tiles of keys. Their dQ warpgroup (bwd_dq_pair.cuh) computes half of dQ for both tiles and
 * adds it from registers.
 *
 * Short problems of head_dim 64 have short steps, of 64 queries instead of 128: more of them is under way at a time
 * (bwd_kv_short_steps.cuh), dQ of a step is one pass, and the stage of a step is loaded again one step later.
 *
 *   shared memory (KB)  K 32 | V 32 | Q 3 x 16 | dO 3 x 16 | dS 2 x 16 | dQ 2 x 16 | lse2, -D 3 x 0.5   head_dim 128
 *                       K 16 | V 16 | Q 3 x 16 | dO 3 x 16 | dS 2 x 32 | dQ 16     | lse2, -D 3 x 1     head_dim 64
 *                       K 16 | V 16 | Q 4 x 8  | dO 4 x 8  | dS 2 x 16 | dQ 2 x 16 | lse2, -D 4 x 0.5   short steps
 *   pairs               K 32 + 16 | V 32 | Q 3 x 16 | dO 2 x 16 | dS 2 x (16 + 16) | lse2 3, -D 2 x 0.25   head_dim 128
 *                       K 16 + 16 | V 16 | Q 3 x 16 | dO 2 x 16 | dS 2 x (32 + 16) | lse2 3, -D 2 x 0.5    head_dim 64
 *
 * What must not be reordered:
 *   - dS is stored, and dV waited for, before S of the next step is started: otherwise the registers do not suffice
 *     (message C7512). dS is announced (ds_full) before that start at head_dim 128, where the dQ warpgroup is the
 *     slower one, after it at head_dim 64.
 *   - Between a wgmma and its wait nothing may touch its registers, and branches may meet only where the same products
 *     are under way on all of them: otherwise the assembler serialises every wgmma (messages C7510, C7514, C7515).
 *   - Short steps: dS is computed before its buffer is awaited (ds_empty), and that comes before the wait for dV. The
 *     assembler moves a wait for products to the start of its basic block, and the wait for the buffer begins one.
 *   - A stage is released (empty) after dS of its step is announced: the proxy fence of the latter orders the reads of
 *     the statistics before the copy that overwrites them. compute-sanitizer's racecheck reports this pair, because it
 *     does not follow __syncwarp into an arrival by one lane; scripts/gpu_check.sh counts these reports.
 *   - Pairs: a warp that passes over steps does so after it has released the stage of Q of the last step that it
 *     computed: they may be three, as many as Q has stages. A block must not end before the other one has: until then
 *     that one arrives at its barriers.
 *   - Deterministic: work tiles are added to a tile of dQ in the order of their keys (grid_order.cuh). One waits for
 *     those with smaller numbers only, so they have to start in the order of their numbers. Blocks that take one after
 *     the other do so; of blocks with one each it is what the hardware does.
 *
 * Masks: rows without a key and rows that pad have lse2 = +inf, hence P = 0; keys that pad and keys right of the
 * diagonal are masked where a tile has any. dK and dV are sums of one block in a fixed order. Measurements:
 * docs/kernels/sm90_bwd.md. */
#include "kernels/sm90/bwd_params.h"

#include "kernels/device/barriers.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/bwd_dq_pair.cuh"
#include "kernels/sm90/bwd_dq_warpgroup.cuh"
#include "kernels/sm90/bwd_kv_short_steps.cuh"
#include "kernels/sm90/bwd_kv_warpgroup.cuh"

namespace sm90_bwd {

namespace {

template <typename Tile, bool DETERMINISTIC>
__global__ void __launch_bounds__(Traits<Tile>::THREADS, 1) backward(const __grid_constant__ Params params)
{
    using S = Traits<Tile>;
    using T = typename Tile::Element;
    extern __shared__ __align__(1024) unsigned char s_bytes[];
    Smem<Tile> &smem = *keep_shared_uniform<Smem<Tile>>(s_bytes);
    constexpr unsigned CLUSTER = S::IS_PAIR ? 2 : 1;
    const int warpgroup = keep_uniform(threadIdx.x / WARPGROUP);

    grid_let_next_start();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::WORK_SLOTS; ++i) {
            mbarrier_init(shared_address(&smem.k_full[i]), 1);
            mbarrier_init(shared_address(&smem.v_full[i]), 1);
        }
        for (int i = 0; i < S::STAGES; ++i) {
            mbarrier_init(shared_address(&smem.full[i]), 1);
            mbarrier_init(shared_address(&smem.empty[i]), CLUSTER * S::KV_WARPS);
        }
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared_address(&smem.ds_full[i]), S::KV_WARPS);
            mbarrier_init(shared_address(&smem.ds_empty[i]), CLUSTER * S::DQ_WARPS);
        }
        if constexpr (S::IS_PAIR) {
            for (int i = 0; i < S::DOUT_STAGES; ++i) {
                mbarrier_init(shared_address(&smem.pair.dout_full[i]), 1);
                mbarrier_init(shared_address(&smem.pair.dout_empty[i]), CLUSTER * S::KV_WARPS);
                mbarrier_init(shared_address(&smem.pair.ds_received[i]), 1);
            }
        }
        if (S::TAKES_MORE) {
            mbarrier_init(shared_address(&smem.work_full), 1);
            mbarrier_init(shared_address(&smem.operands_full), S::KV_WARPS);
            for (int i = 0; i < S::WORK_SLOTS; ++i)
                mbarrier_init(shared_address(&smem.work_empty[i]),
                              (blockIdx.x % CLUSTER == 0 ? CLUSTER : 1) * (S::KV_WARPS + S::DQ_WARPS));
            for (int i = 0; i < S::KV_WARPS; ++i)
                smem.kv_work[i] = 0;
        }
        mbarrier_init_fence();
        smem.work[0] = work_tile<Tile::Q_TILE>(params, blockIdx.x / CLUSTER);
    }
    __syncthreads();
    if (S::IS_PAIR)
        cluster_sync();
    if (!S::TAKES_MORE && smem.work[0].steps == SKIPPED)
        return;
    if (warpgroup == 0) {
        registers_decrease<S::DQ_REGISTERS>();
        if constexpr (!S::IS_PAIR)
            dq_warpgroup<T, Tile, DETERMINISTIC>(smem, params);
        else if (pair_rank() == 0)
            dq_warpgroup_of_pair<T, Tile, 0>(smem, params);
        else
            dq_warpgroup_of_pair<T, Tile, 1>(smem, params);
    } else {
        registers_increase<S::KV_REGISTERS>();
        if constexpr (S::HAS_SHORT_STEPS) {
            kv_warpgroup_short_steps<T>(smem, params, warpgroup - 1);
        } else {
            kv_warpgroup<T>(smem, params, warpgroup - 1);
        }
    }
    if (S::IS_PAIR)
        cluster_sync(); /* until then the other block may arrive at barriers of this one */
}

} // namespace

} // namespace sm90_bwd

using namespace sm90_bwd;

#define NAME_END_ONCE ""
#define NAME_END_LOOP "_loop"
#define NAME_END_PAIR "_pair"
#define TEXT_END_ONCE ""
#define TEXT_END_LOOP "; a block takes one tile of keys after the other"
#define TEXT_END_PAIR "; two blocks share queries and dQ of two tiles of keys"
#define SHOWN(D, Q, V_FP16, K_FP16, V_BF16, BLOCK)                                                                     \
    {                                                                                                                  \
        "bwd_d" #D "_k128q" #Q NAME_END_##BLOCK,                                                                       \
            "128 keys x " #Q " queries, two warpgroups of keys and one for dQ; in registers " #V_FP16 " and " #K_FP16  \
            " x 16 columns of V and of K in fp16, " #V_BF16 " x 16 of V in bf16" TEXT_END_##BLOCK                      \
    }
#define DTYPES(TILE, DETERMINISTIC)                                                                                    \
    {                                                                                                                  \
        backward<TILE<__half>, DETERMINISTIC>, backward<TILE<__nv_bfloat16>, DETERMINISTIC>                            \
    }
/* Pairs have no deterministic kernels. */
#define DTYPES_ONCE DTYPES
#define DTYPES_LOOP DTYPES
#define DTYPES_PAIR(TILE, DETERMINISTIC)                                                                               \
    {                                                                                                                  \
        NULL, NULL                                                                                                     \
    }
/* Of a block, in both dtypes. */
template <template <typename> class Tile> constexpr size_t smem_bytes()
{
    static_assert(sizeof(Smem<Tile<__half>>) == sizeof(Smem<Tile<__nv_bfloat16>>), "one size for each tile");
    return sizeof(Smem<Tile<__half>>);
}

#define TABLE_ROW(DIM, Q, V_FP16, K_FP16, V_BF16, BLOCK, STEP_TIME, BLOCK_TIME, START_TIME)                            \
    {{SHOWN(DIM, Q, V_FP16, K_FP16, V_BF16, BLOCK), DIM, 1, smem_bytes<TILE_NAME(DIM, Q, BLOCK)>()},                   \
     {Q, STEP_TIME, BLOCK_TIME, START_TIME, BLOCK != ONCE, BLOCK == PAIR ? 2 : 1},                                     \
     {DTYPES(TILE_NAME(DIM, Q, BLOCK), false), DTYPES_##BLOCK(TILE_NAME(DIM, Q, BLOCK), true)}},

extern "C" const struct fused_sm90_bwd_tile fused_sm90_bwd_tiles[] = {BWD_TILES(TABLE_ROW){}};
