/* The dQ warpgroup of the sm_90 backward: computes dQ = dS K from the dS of the KV warpgroups and adds it to the sums
 * in device memory. Its first warp is the producer as well. */
#pragma once

#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/sm90/bwd/producer.cuh"
#include "kernels/sm90/bwd/tiles.cuh"
#include "kernels/sm90/bwd/zeros.cuh"

namespace sm90_bwd {

using namespace device;

/* Starts 64 x 64 of dQ = dS K for 128 keys, or adds them to what is under way. */
template <typename T>
__device__ __forceinline__ void start_dq(float (&dq)[32], uint32_t ds, uint32_t k, bool adds = false)
{
    constexpr int STEP = 16 * ROW_BYTES / 16;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KV_TILE / 16; ++step)
        wgmma<T, 64>::template shared<WGMMA_MN_MAJOR, WGMMA_MN_MAJOR>(dq, ds + step * STEP, k + step * STEP,
                                                                      adds || step > 0);
    wgmma_commit();
}

/* Writes what the copy engine adds of a warp's slab of a finished pass to shared memory. */
template <int QUADS> __device__ __forceinline__ void store_dq(const float (&dq)[32], uint32_t shared, int lane)
{
#pragma unroll
    for (int i = 0; i < QUADS; ++i) {
        const float values[4] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
        store_shared_float4(shared + (i * QUAD_FLOATS + lane * 4) * sizeof(float), values);
    }
}

/* Which of the buffers a pass of a step is written to: they take turns. */
template <typename Tile> __device__ __forceinline__ uint32_t dq_buffer(uint32_t step, uint32_t pass)
{
    return (step * Traits<Tile>::PASSES + pass) % Traits<Tile>::DQ_BUFFERS;
}

/* Has the copy engine add a warp's slab of a pass from shared memory to the sums of `tile`. */
template <typename Tile>
__device__ __forceinline__ void add_dq(Smem<Tile> &smem, const Params &params, int tile, int step, int pass, int warp)
{
    using S = Traits<Tile>;
    async_proxy_fence();
    __syncwarp();
    if (elect_one()) {
        bulk_reduce_add(params.dq_sum + int64_t(tile) * S::Q_FLOATS + pass * S::PASS_FLOATS + warp * SLAB_FLOATS,
                        shared_address(smem.dq.buffers[dq_buffer<Tile>(step, pass)][warp]),
                        S::DQ_BUFFER_FLOATS * sizeof(float));
        tma_store_commit();
    }
}

/* The same from registers, from quad FIRST on. */
template <typename Tile, int FIRST = 0>
__device__ __forceinline__ void add_dq(const float (&dq)[32], const Params &params, int tile, int pass, int warp,
                                       int lane)
{
    using S = Traits<Tile>;
    float *sums = params.dq_sum + int64_t(tile) * S::Q_FLOATS + pass * S::PASS_FLOATS + warp * SLAB_FLOATS;
#pragma unroll
    for (int i = FIRST; i < SLAB_QUADS; ++i) {
        const float values[4] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
        red_add_quad(sums + i * QUAD_FLOATS, lane, values);
    }
}

/* Adds a finished pass from registers, or writes it to shared memory for the copy engine. */
template <typename Tile>
__device__ __forceinline__ void finish_pass(Smem<Tile> &smem, const Params &params, const float (&dq)[32], int tile,
                                            int step, int pass, int warp, int lane)
{
    using S = Traits<Tile>;
    if (S::ADDS_FROM_REGISTERS && pass == S::LAST_PASS) {
        add_dq<Tile>(dq, params, tile, pass, warp, lane);
    } else {
        store_dq<S::COPIED_QUADS>(dq, shared_address(smem.dq.buffers[dq_buffer<Tile>(step, pass)][warp]), lane);
        if (S::COPIED_QUADS < SLAB_QUADS)
            add_dq<Tile, S::COPIED_QUADS>(dq, params, tile, pass, warp, lane);
    }
}

/* Waits until the copy engine has read the buffer that `pass` will write. */
template <typename Tile, bool DETERMINISTIC> __device__ __forceinline__ void wait_dq_buffer(int pass)
{
    if (elect_one()) {
        if (DETERMINISTIC && pass > 0)
            tma_store_wait_read<0>();
        else
            tma_store_wait_read<Traits<Tile>::DQ_BUFFERS - 1>();
    }
}

/* The semaphore of a warp's slabs of the tiles from `first_tile` on, which share it; NULL for first_tile -1. */
template <typename Tile> __device__ __forceinline__ int *semaphore_of(const Params &params, int first_tile, int warp)
{
    const int row_block = first_tile / Traits<Tile>::ROW_BLOCK_TILES;
    return first_tile < 0 ? NULL : params.dq_semaphores + int64_t(row_block) * SM90_BWD_TILE_SEMAPHORES + warp;
}

/* DETERMINISTIC: work tiles add to a tile of dQ in the order of their keys. */
template <typename T, typename Tile, bool DETERMINISTIC>
__device__ __forceinline__ void dq_warpgroup(Smem<Tile> &smem, const Params &params)
{
    using S = Traits<Tile>;
    /* Whether the next step is loaded before the last pass's additions. With 128 queries its stage is not free that
     * early; deterministic, nothing is added there. */
    constexpr bool LOADS_FIRST = Tile::Q_TILE == 64 && !DETERMINISTIC;
    const int warp = keep_uniform(threadIdx.x / LANES), lane = threadIdx.x % LANES;
    /* Operands of wgmma: K, and dS of the first buffer. */
    const uint32_t first_k = keep_uniform(wgmma_mn_major(shared_address(smem.keys[0]), S::KV_PANEL_BYTES));
    const uint32_t first_ds = keep_uniform(wgmma_mn_major(shared_address(smem.ds[0]), S::KV_PANEL_BYTES));
    PipelineState<S::WORK_SLOTS> slot = {S::WORK_SLOTS - 1, 1}; /* that before the first work tile's */
    Producer<Tile, 0, DETERMINISTIC> producer;
    int step = 0, before = -1; /* step: of all work tiles; before: tile of the previous step, whose last pass may not
                                  have been added yet */
    int unreleased = -1; /* deterministic: first of the tiles whose semaphore the last work tile has left to release */

    /* Fills the stage that is free about now: that of the current step, or, with short steps, whose dK is computed
     * later, that of the step before. */
    const auto refill = [&] {
        if (warp == 0)
            producer.load_next(smem, params, step + S::STAGES + !S::HAS_SHORT_STEPS);
    };

    if (warp == 0)
        producer.begin(smem, params);
    else
        grid_wait_for_last(); /* for the zeros in dq_sum and the semaphores */
#pragma unroll 1
    for (bool is_first = true; S::TAKES_MORE || is_first; is_first = false) {
        if (S::TAKES_MORE && warp == 0)
            producer.finish_work(smem, params, slot, step);
        else if (warp == 0)
            producer.load_steps(smem, params, S::STAGES);
        /* While the KV warpgroups begin with the next work tile, whose loads are under way. */
        if (DETERMINISTIC && S::TAKES_MORE && unreleased >= 0) {
            __syncwarp();
            semaphore_release_and_test(semaphore_of<Tile>(params, unreleased, warp), NULL, 0);
            unreleased = -1;
        }
        slot.advance();
        if (S::TAKES_MORE)
            mbarrier_wait_together(shared_address(&smem.k_full[slot.stage]), slot.phase);
        const WorkTileOf<Tile> &work = smem.work[slot.stage];
        const int steps = keep_uniform(work.steps), end = step + steps;
        if (steps == NO_WORK)
            break;
        if (!DETERMINISTIC && S::WRITES_ZEROS && warp > 0)
            write_zeros<Tile>(params, work, warp, lane);
        /* Deterministic, they are needed at every step. */
        const int kv_tile = DETERMINISTIC ? keep_uniform(work.kv_tile) : 0;
        const int first_tile = DETERMINISTIC ? keep_uniform(work.first_tile[0]) : 0;
        int in_head = keep_uniform(work.begin_tile - work.first_tile[0]); /* steps of the same head after this one */
        int tile = keep_uniform(
            tile_index<Tile>(params, work, work.batch, work.kv_head * params.group + work.first_head, work.begin_tile));
        int semaphore = -1;   /* deterministic: first of the tiles that share the semaphore of this or the last step */
        bool is_open = false; /* that semaphore, for this work tile */
        int turn = kv_tile;   /* at which count it is */
        const uint32_t k = keep_uniform(first_k + k_area<Tile>(slot.stage) * (S::KV_BYTES / 16));
#pragma unroll 1
        for (; step < end; ++step) {
            if constexpr (S::CROSSES_WORK) {
                /* Twice at the first step: a work tile of few steps has to find the next one in time. */
                if (warp == 0) {
#pragma unroll 1
                    for (int times = step == end - steps ? 2 : 1; times > 0; --times)
                        producer.look_ahead(smem, params, slot);
                }
            } else if (warp == 0) {
                producer.look_ahead(smem, params, slot);
            }
            const int buffer = step % 2;
            const int semaphore_tile = DETERMINISTIC ? tile - (in_head + first_tile) % S::SEMAPHORE_TILES : 0;
            mbarrier_wait(shared_address(&smem.ds_full[buffer]), step / 2 % 2);
            if constexpr (S::NOTES_STEPS)
                tile = keep_uniform(smem.work[0].noted[step % NOTED_STEPS].index);
            if (S::TAKES_MORE && !S::V_IN_REGISTERS && warp == 0 && step == end - 1) {
                if constexpr (S::CROSSES_WORK)
                    producer.load_next_v(smem, params);
                else
                    producer.load_next_k(smem, params, slot);
            }
#pragma unroll
            for (int pass = 0; pass < S::PASSES; ++pass) {
                float dq[32];
                const int ds_panel = S::Q_PANELS == 2 ? pass : 0, k_panel = S::Q_PANELS == 2 ? 0 : pass;
                start_dq<T>(dq, first_ds + buffer * (S::DS_BYTES / 16) + ds_panel * (S::KV_PANEL_BYTES / 16),
                            k + k_panel * (S::KV_PANEL_BYTES / 16));
                if (LOADS_FIRST && pass == S::LAST_PASS)
                    refill();
                /* The previous pass is added while this one is computed. Deterministic, all passes of a step are added
                 * after its last one, when dS has been read and the next loads are under way: nobody waits for this
                 * warpgroup then. */
                if (!DETERMINISTIC && pass > 0)
                    add_dq(smem, params, tile, step, pass - 1, warp);
                else if (!DETERMINISTIC && before >= 0 && !S::ADDS_FROM_REGISTERS)
                    add_dq(smem, params, before, step - 1, S::LAST_PASS, warp);
                if (DETERMINISTIC && pass == S::LAST_PASS && semaphore_tile != semaphore) {
                    __syncwarp(); /* by now earlier additions have arrived */
                    if constexpr (DETERMINISTIC && !Tile::Work::IS_DENSE) {
                        const int in_sequence = in_head + first_tile;
                        turn = kv_tile -
                               Tile::Work::first_key_tile(
                                   params, work, (in_sequence - in_sequence % S::SEMAPHORE_TILES) * Tile::Q_TILE);
                    }
                    is_open = semaphore_release_and_test(semaphore_of<Tile>(params, semaphore, warp),
                                                         semaphore_of<Tile>(params, semaphore_tile, warp), turn);
                    semaphore = semaphore_tile;
                }
                wait_dq_buffer<Tile, DETERMINISTIC>(pass);
                if (!LOADS_FIRST && pass == S::LAST_PASS)
                    refill();
                __syncwarp();
                wgmma_wait<0>();
                wgmma_hold(dq);
                if (pass == S::LAST_PASS && lane == 0)
                    mbarrier_arrive(shared_address(&smem.ds_empty[buffer]));
                if (DETERMINISTIC && pass == S::LAST_PASS) {
                    if (!is_open)
                        semaphore_wait(semaphore_of<Tile>(params, semaphore, warp), turn);
                    is_open = true;
                    if (pass > 0)
                        add_dq(smem, params, tile, step, pass - 1, warp);
                }
                finish_pass(smem, params, dq, tile, step, pass, warp, lane);
            }
            if (DETERMINISTIC && !S::ADDS_FROM_REGISTERS)
                add_dq(smem, params, tile, step, S::LAST_PASS, warp);
            before = tile;
            --tile;
            if (!S::NOTES_STEPS && --in_head < 0) { /* the next head */
                in_head = Tile::Work::last_tile(params, work.begin_tile) - keep_uniform(work.first_tile[0]);
                tile += head_tiles<Tile>(params) + in_head + 1;
            }
        }
        if constexpr (DETERMINISTIC && !Tile::Work::IS_DENSE) { /* the last step is of first_tile */
            if (semaphore >= 0 &&
                kv_tile < Tile::Work::last_key_tile(
                              params, work,
                              (first_tile / S::SEMAPHORE_TILES + 1) * (S::SEMAPHORE_TILES * Tile::Q_TILE) - 1)) {
                __syncwarp();
                semaphore_release_and_test(semaphore_of<Tile>(params, semaphore, warp), NULL, 0);
            }
        } else if (DETERMINISTIC && semaphore >= 0) {
            /* Of the last step: in_head is that of the step behind it, which may begin the next head. */
            const int last_tile = first_tile + (in_head + 1) % (params.q_tiles - first_tile);
            if (!sm90_bwd_has_successor(kv_tile, last_tile, S::SEMAPHORE_TILES, params.causal, params.shift,
                                        params.q_len, params.kv_len, Tile::Q_TILE, params.q_tiles))
                semaphore = -1;
            if (S::TAKES_MORE)
                unreleased = semaphore;
            else if (semaphore >= 0) {
                __syncwarp();
                semaphore_release_and_test(semaphore_of<Tile>(params, semaphore, warp), NULL, 0);
            }
        }
        __syncwarp();
        if (S::TAKES_MORE && lane == 0)
            release_work(smem, slot.stage);
    }
    if (!DETERMINISTIC && before >= 0 && !S::ADDS_FROM_REGISTERS)
        add_dq(smem, params, before, step - 1, S::LAST_PASS, warp);
    if (elect_one())
        tma_store_wait_read<0>(); /* shared memory must outlive the additions */
}

} // namespace sm90_bwd
