/* The producer of the sm_90 backward, a warp: takes work tiles for its block and loads K and V of each, and for each
 * step Q, dO and the row statistics. It is up to one work tile ahead of the warpgroups that compute. In a pair
 * (pair.cuh) that of rank 0 takes the work tiles and loads Q of both blocks, that of rank 1 dO. */
#pragma once
#include "kernels/device/barriers.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/grid_order.cuh"
#include "kernels/device/registers.cuh"
#include "kernels/sm90/bwd/pair.cuh"
#include "kernels/sm90/bwd/tiles.cuh"
#include "kernels/sm90/bwd/zeros.cuh"

namespace sm90_bwd {

using namespace device;

/* K or V of a work tile. `beside`: bytes of other copies that arrive at the same barrier. */
template <typename Tile>
__device__ __forceinline__ void load_keys(const unsigned char *to, const CUtensorMap *map, const uint64_t *full,
                                          const WorkTileOf<Tile> &work, int beside)
{
    using S = Traits<Tile>;
    mbarrier_arrive_expect(shared_address(full), S::KV_BYTES + beside);
#pragma unroll
    for (int panel = 0; panel < S::PANELS; ++panel)
        Tile::Work::load(shared_address(to) + panel * S::KV_PANEL_BYTES, map, shared_address(full), L2_EVICT_FIRST,
                         panel * PANEL_COLUMNS, Tile::Work::key_place(work, own_kv_tile<Tile>(work) * KV_TILE));
}

/* lse2 and -D of a step, beside load_rows; in a pair the one of them that belongs to what the block loads. `full`: the
 * barrier at which they arrive where that is no pair. */
template <typename Tile, int RANK>
__device__ __forceinline__ void load_stats(Smem<Tile> &smem, const Params &params, const WorkTileOf<Tile> &work,
                                           int batch, int head, int tile, int stage, const uint64_t *full)
{
    using S = Traits<Tile>;
    const float *stats = params.stats + int64_t(tile_index<Tile>(params, work, batch, head, tile)) * (2 * Tile::Q_TILE);

    if constexpr (!S::IS_PAIR)
        bulk_load(shared_address(smem.stats[stage]), stats, S::STATS_BYTES, shared_address(full));
    else if (RANK == Q_LOADER)
        load_stats_for_both<Tile>(smem.stats[stage], &smem.full[stage], stats);
    else
        load_stats_for_both<Tile>(smem.pair.neg_delta[stage], &smem.pair.dout_full[stage], stats + Tile::Q_TILE);
}

/* Q and dO of a step, or in a pair the one of them that the block loads for both; and their statistics, unless these
 * are not there yet and load_stats is to follow: in a pair they still belong to the same barrier. */
template <typename Tile, int RANK, bool WITH_STATS = true>
__device__ __forceinline__ void load_rows(Smem<Tile> &smem, const Params &params, const WorkTileOf<Tile> &work,
                                          int batch, int head, int tile, int stage)
{
    using S = Traits<Tile>;
    const int row = tile * Tile::Q_TILE;

    if constexpr (S::IS_PAIR) {
        if (RANK == Q_LOADER)
            load_rows_for_both<Tile>(smem.q[stage], &smem.full[stage], &params.q, row, head, batch);
        else
            load_rows_for_both<Tile>(smem.dout[stage], &smem.pair.dout_full[stage], &params.dout, row, head, batch);
        if (WITH_STATS)
            load_stats<Tile, RANK>(smem, params, work, batch, head, tile, stage, NULL);
    } else {
        const uint32_t full = shared_address(&smem.full[stage]);
        const typename Tile::Work::Place place = Tile::Work::q_place(work, row, head, batch);
        mbarrier_arrive_expect(full, S::STAGE_BYTES - (WITH_STATS ? 0 : S::STATS_BYTES));
#pragma unroll
        for (int panel = 0; panel < S::PANELS; ++panel)
            Tile::Work::load(shared_address(smem.q[stage]) + panel * S::Q_PANEL_BYTES, &params.q, full, L2_EVICT_NORMAL,
                             panel * PANEL_COLUMNS, place);
        if (WITH_STATS)
            load_stats<Tile, RANK>(smem, params, work, batch, head, tile, stage, &smem.full[stage]);
#pragma unroll
        for (int panel = 0; panel < S::PANELS; ++panel)
            Tile::Work::load(shared_address(smem.dout[stage]) + panel * S::Q_PANEL_BYTES, &params.dout, full,
                             L2_EVICT_NORMAL, panel * PANEL_COLUMNS, place);
    }
}

/* All threads of the warp keep the counts and one issues the copies, so that the counts are in uniform registers. The
 * producer is at the work tile that the block computes or at the next one. */
template <typename Tile, int RANK, bool DETERMINISTIC> struct Producer {
    using S = Traits<Tile>;
    static constexpr bool IS_DOUT = S::IS_PAIR && RANK == DOUT_LOADER;
    static constexpr int STAGES = IS_DOUT ? S::DOUT_STAGES : S::STAGES;
    static constexpr int UNKNOWN_TILE = -1;
    /* What is known of the next work tile: nothing; its number, which may still be on its way from device memory; that
     * it is being copied to its slot; it is there, and its steps are being loaded; K, too; V, too; there is none;
     * nothing until the block has computed this one. */
    enum { UNKNOWN, NUMBERED, COPIED, FOUND, K_LOADED, READY, NONE, LATE } next = UNKNOWN;
    PipelineState<STAGES> filled; /* the stage that is filled next */
    int left = 0;                 /* steps of the work tile that are not loaded yet */
    int batch, head, tile;        /* the step that is loaded next: a tile of queries of a query head */
    int begin_tile;               /* the work tile's first one */
    int first_tile;               /* the tile with which the steps of a head end */
    int slot = 0;                 /* of the work tile */
    int loaded = 0;               /* steps of all work tiles */
    int number;                   /* lane 0: of the next work tile, from NUMBERED on; in a pair, rank 0 has it */
    uint32_t copies = 0;          /* of work tiles */
    typename Tile::Work::StepList list;

    /* The first work tile, which is in slot 0, and its first step. */
    __device__ __forceinline__ void begin(Smem<Tile> &smem, const Params &params)
    {
        begin_steps(smem, params);
        find_step(smem, params);
        if (elect_one()) {
            load_k(smem, params);
            if (left > 0) {
                note_step(smem, params);
                load_rows<Tile, RANK, false>(smem, params, smem.work[slot], batch_of(smem), head, tile, 0);
            }
            load_v(smem, params);
        }
        grid_wait_for_last(); /* for what it prepares: the other work tiles, statistics, zeros in dq_sum */
        number = blockIdx.x;  /* a pair reads it from the work tile */
        if (!S::IS_PAIR && elect_one())
            mbarrier_arrive_expect(shared_address(&smem.first_stats_full), left > 0 ? S::STATS_BYTES : 0);
        if (left > 0) {
            if (elect_one())
                load_stats<Tile, RANK>(smem, params, smem.work[slot], batch_of(smem), head, tile, 0,
                                       &smem.first_stats_full);
            count_step(smem, params);
        }
        next = READY;
    }

    /* Loads the next step of the work tile, if there is one and not so many of all have been loaded yet. Where it may
     * not wait for the stage it does nothing if that is not free. */
    __device__ __forceinline__ void load_next(Smem<Tile> &smem, const Params &params, int most, bool may_wait = true)
    {
        if (loaded >= most || left == 0)
            return;
        uint32_t empty = shared_address(&smem.empty[filled.stage]);
        if constexpr (IS_DOUT)
            empty = shared_address(&smem.pair.dout_empty[filled.stage]);
        if (may_wait)
            mbarrier_wait(empty, filled.phase ^ 1);
        else if (!mbarrier_test_together(empty, filled.phase ^ 1))
            return;
        if (elect_one()) {
            note_step(smem, params);
            load_rows<Tile, RANK>(smem, params, smem.work[slot], batch_of(smem), head, tile, filled.stage);
        }
        count_step(smem, params);
    }

    /* Before each step of the block's work tile, which is in slot `now`: where all steps but a few have been loaded
     * finds out about the next work tile, little by little. */
    __device__ __forceinline__ void look_ahead(Smem<Tile> &smem, const Params &params,
                                               const PipelineState<S::WORK_SLOTS> &now)
    {
        if (S::TAKES_MORE && left <= 2 && next < FOUND)
            find_next(smem, params, now);
        find_step(smem, params);
    }

    /* K of the next work tile, which comes where V of this one is: once V is in registers, or dP of the last step has
     * been computed. */
    __device__ __forceinline__ void load_next_k(Smem<Tile> &smem, const Params &params,
                                                const PipelineState<S::WORK_SLOTS> &now)
    {
        if (next != FOUND)
            return;
        if (!S::CROSSES_WORK)
            mbarrier_wait(shared_address(&smem.operands_full), now.stage % 2);
        if (elect_one())
            load_k(smem, params);
        next = K_LOADED;
    }

    /* Of blocks that cross to the next work tile: its V, once dP of the last step has been computed. */
    __device__ __forceinline__ void load_next_v(Smem<Tile> &smem, const Params &params)
    {
        if (next != K_LOADED)
            return;
        if (elect_one())
            load_v(smem, params);
        next = READY;
    }

    /* Behind the last step of a work tile, `step` over all of them, and before the first one: loads what could not be
     * loaded before. */
    __device__ __forceinline__ void finish_work(Smem<Tile> &smem, const Params &params,
                                                const PipelineState<S::WORK_SLOTS> &now, int step)
    {
        if (next == LATE)
            next = UNKNOWN;
#pragma unroll 1
        while (next < FOUND)
            find_next(smem, params, now);
        if (next == NONE)
            return;
        load_next_k(smem, params, now);
        if constexpr (S::CROSSES_WORK) { /* the K after that comes where K was: dQ of the last step has read it */
            load_next_v(smem, params);
            mbarrier_wait(shared_address(&smem.ds_empty[(step + 1) % 2]), (step + 1) / 2 % 2 ^ 1);
        } else if (next == K_LOADED) { /* V comes where K was */
            mbarrier_wait(shared_address(&smem.ds_empty[(step + 1) % 2]), (step + 1) / 2 % 2 ^ 1);
            if (elect_one())
                load_v(smem, params);
        }
        load_steps(smem, params, step + STAGES);
        next = keep_uniform(S::IS_PAIR ? smem.work[slot].number : number) < params.early_tiles ? UNKNOWN : LATE;
        if (S::CROSSES_WORK && next == UNKNOWN && left <= 2) /* a short work tile: its steps are all asked for */
            ask_number(params);
    }

    /* Loads steps of the work tile until so many of all have been loaded. */
    __device__ __forceinline__ void load_steps(Smem<Tile> &smem, const Params &params, int most)
    {
#pragma unroll 1
        while (loaded < most && left > 0) {
            find_step(smem, params);
            load_next(smem, params, most);
        }
    }

  private:
    /* A step has been loaded. */
    __device__ __forceinline__ void count_step(const Smem<Tile> &smem, const Params &params)
    {
        if constexpr (Tile::Work::HAS_LISTS) {
            tile = UNKNOWN_TILE;
        } else if constexpr (S::NOTES_STEPS) { /* without registers for what the work tile says */
            if (--tile < smem.work[slot].first_tile[0]) {
                tile = smem.work[slot].begin_tile;
                ++head;
            }
        } else if (--tile < first_tile) {
            tile = Tile::Work::last_tile(params, begin_tile);
            ++head;
        }
        filled.advance();
        ++loaded;
        --left;
    }

    /* Lists, which need its register, read it where it is needed. */
    __device__ __forceinline__ int batch_of(const Smem<Tile> &smem) const
    {
        if constexpr (Tile::Work::HAS_LISTS)
            return smem.work[slot].batch;
        return batch;
    }

    /* Lists: finds the next step, if there is one, ahead of load_next. */
    __device__ __forceinline__ void find_step(Smem<Tile> &smem, const Params &params)
    {
        if constexpr (Tile::Work::HAS_LISTS) {
            if (left > 0 && tile == UNKNOWN_TILE)
                tile = list.next(head, params, smem.work[slot]);
        }
    }

    /* The thread that loads a step, ahead of its loads, whose barrier it then arrives at. */
    __device__ __forceinline__ void note_step(Smem<Tile> &smem, const Params &params)
    {
        if constexpr (S::NOTES_STEPS) {
            /* The slowest warp of the dQ warpgroup is at a step while the KV warps, with two buffers of dS, have
             * released the stage of the next one. */
            constexpr int NOTED = NOTED_STEPS;
            static_assert(NOTED >= S::STAGES + 2 && (NOTED & (NOTED - 1)) == 0, "steps that are read later");
            smem.work[0].noted[loaded % NOTED] = {
                tile, tile_index<Tile>(params, smem.work[slot], batch_of(smem), head, tile)};
        }
    }

    __device__ __forceinline__ void ask_number(const Params &params)
    {
        if (threadIdx.x % LANES == 0 && RANK == 0)
            number = static_cast<int>(S::IS_PAIR ? gridDim.x / 2 : gridDim.x) + atomicAdd(params.taken, 1);
        next = NUMBERED;
    }

    __device__ __forceinline__ void find_next(Smem<Tile> &smem, const Params &params,
                                              const PipelineState<S::WORK_SLOTS> &now)
    {
        int stage = now.stage;
        if constexpr (S::NOTES_STEPS && !Tile::Work::HAS_LISTS)
            stage = forget(stage); /* what follows from it is computed again at every use */
        const int to = (stage + 1) % S::WORK_SLOTS;
        if (next == UNKNOWN) {
            ask_number(params);
        } else if (next == NUMBERED) {
            /* The slot is free once all warps, in a pair those of both blocks, have finished with the work tile three
             * before the block's. */
            mbarrier_wait(shared_address(&smem.work_empty[to]), now.phase ^ (to != 0));
            if (threadIdx.x % LANES == 0 && S::IS_PAIR) {
                const uint32_t full = shared_address(&smem.work_full);
                mbarrier_arrive_expect(full, sizeof(WorkTile));
                if (RANK == 0)
                    bulk_load_multicast(shared_address(&smem.work[to]),
                                        static_cast<const WorkTile *>(params.work) + min(number, params.work_tiles),
                                        sizeof(WorkTile), full, BOTH_BLOCKS);
            } else if (threadIdx.x % LANES == 0) {
                const int from = min(number, params.work_tiles);
                using Listed = typename Tile::Work::Listed;
                const Listed *listed = static_cast<const Listed *>(params.work);
                mbarrier_arrive_expect(shared_address(&smem.work_full), sizeof(Listed));
                bulk_load(shared_address(&smem.work[to]), listed + from, sizeof(Listed),
                          shared_address(&smem.work_full));
            }
            next = COPIED;
        } else if (left == 0) {
            mbarrier_wait(shared_address(&smem.work_full), copies++ % 2);
            const int steps = keep_uniform(smem.work[to].steps);
            next = steps == NO_WORK ? NONE : FOUND;
            slot = to;
            if (next == NONE && elect_one())
                mbarrier_arrive(shared_address(&smem.k_full[to]));
            if (next == FOUND) {
                begin_steps(smem, params);
                if (!DETERMINISTIC && S::WRITES_ZEROS) /* otherwise preprocess has written all */
                    wait_for_zeros<Tile>(params, keep_uniform(smem.work[slot].section));
                if (S::PREFETCHES_KEYS && elect_one())
                    prefetch_keys(params, smem.work[slot]);
            }
            if (S::V_IN_REGISTERS || S::CROSSES_WORK)
                load_next_k(smem, params, now);
        }
    }

    __device__ __forceinline__ void begin_steps(Smem<Tile> &smem, const Params &params)
    {
        const WorkTileOf<Tile> &work = smem.work[slot];
        left = keep_uniform(work.steps);
        batch = keep_uniform(work.batch);
        head = keep_uniform(work.kv_head * params.group + work.first_head);
        tile = begin_tile = keep_uniform(work.begin_tile);
        first_tile = keep_uniform(work.first_tile[0]);
        if constexpr (Tile::Work::HAS_LISTS) {
            list = {tile, -1};
            tile = UNKNOWN_TILE;
        }
    }

    /* K and V of a work tile, to the second-level cache. */
    __device__ __forceinline__ void prefetch_keys(const Params &params, const WorkTileOf<Tile> &work)
    {
#pragma unroll
        for (int panel = 0; panel < S::PANELS; ++panel) {
            const typename Tile::Work::Place place = Tile::Work::key_place(work, own_kv_tile<Tile>(work) * KV_TILE);
            Tile::Work::prefetch(&params.k, panel * PANEL_COLUMNS, place);
            Tile::Work::prefetch(&params.v, panel * PANEL_COLUMNS, place);
        }
    }

    __device__ __forceinline__ void load_k(Smem<Tile> &smem, const Params &params)
    {
        load_keys<Tile>(smem.keys[k_area<Tile>(slot)], &params.k, &smem.k_full[slot], smem.work[slot], 0);
    }

    __device__ __forceinline__ void load_v(Smem<Tile> &smem, const Params &params)
    {
        const WorkTileOf<Tile> &work = smem.work[slot];
        load_keys<Tile>(smem.keys[v_area<Tile>(slot)], &params.v, &smem.v_full[slot], work,
                        S::IS_PAIR ? S::KV_PANEL_BYTES : 0);
        if constexpr (S::IS_PAIR) /* the panel of the other block's K */
            tma_load(shared_address(smem.dq.other_k), &params.k, shared_address(&smem.v_full[slot]), L2_EVICT_FIRST,
                     S::Q_PANELS == 1 ? pair_rank() * PANEL_COLUMNS : 0, (work.kv_tile + 1 - pair_rank()) * KV_TILE,
                     work.kv_head, work.batch);
    }
};

} // namespace sm90_bwd
