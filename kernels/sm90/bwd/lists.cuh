/* Block masks of 128 rows and keys, or multiples of that: a policy of the sm_90 backward (policies.cuh). A work tile
 * goes through the tiles of queries that the mask shows its 128 keys, as far as a causal problem lets them see these:
 * of each query head of its group a list, which a kernel ahead makes (kernels/family/schedule.cu), from its end to its
 * beginning. The producer, who reads it, notes in shared memory which tile a step is, before it loads it; who needs to
 * know reads it there behind the step's barrier. Elements are masked only where the diagonal or the end of the keys
 * cuts a tile; no KV warpgroup passes over a step.
 *
 * Work tiles come from a list, too, those with most steps first, in each section of heads. They have no parts. */
#pragma once

#include "kernels/family/tile_lists.cuh"
#include "kernels/sm90/bwd/policies.cuh"
#include "kernels/sm90/bwd/work.cuh"

namespace sm90_bwd {

struct Lists : Dense {
    static constexpr bool IS_DENSE = false, HAS_LISTS = true;

    struct WorkTile : fused_sm90_bwd_work_tile {
        NotedStep
            noted[NOTED_STEPS]; /* of the first slot; behind what the copy engine brings. Steps of all work tiles */
    };

    __device__ __forceinline__ static bool passes_over(int, int, int) { return false; }

    /* The number of the list of a query head. */
    __device__ __forceinline__ static int64_t list_of(const Params &params, const fused_sm90_bwd_work_tile &work,
                                                      int head)
    {
        return family::list_number(params.lists, work.batch, head, work.kv_tile);
    }

    /* A producer's way through the lists of a work tile: all lanes keep it. */
    struct StepList {
        int at;    /* the place in its list of the step that next() has found last; at first how many the list has */
        int chunk; /* of a lane: entry at / LANES * LANES + lane of the list; at first -1 */

        /* Goes on to the next tile of queries; head: on return that of its list. There is one. */
        __device__ __forceinline__ int next(int &head, const Params &params, const fused_sm90_bwd_work_tile &work)
        {
            bool is_new = at % LANES == 0 || chunk < 0;
            --at;
            while (at < 0) {
                at = params.lists.visible[list_of(params, work, ++head)] - 1;
                is_new = true;
            }
            if (is_new) {
                const int entry = at / LANES * LANES + static_cast<int>(threadIdx.x % LANES);
                const uint16_t *numbers = family::list_section(params.lists, list_of(params, work, head), 0);
                chunk = entry <= at ? numbers[entry] : 0;
            }
            return keep_uniform(__shfl_sync(0xffffffffu, chunk, at % LANES));
        }
    };

    /* The work tile of that number: what is in device memory of it where blocks take one after the other. */
    __device__ __forceinline__ static fused_sm90_bwd_work_tile listed_work_tile(const Params &params, int number)
    {
        const family_work listed = params.order.work[number];
        fused_sm90_bwd_work_tile work = {};

        work.number = number;
        work.batch = listed.sequence;
        work.kv_head = listed.head;
        work.kv_tile = listed.tile;
        for (int i = params.group - 1; i >= 0; --i) {
            const int visible = params.lists.visible[list_of(params, work, work.kv_head * params.group + i)];
            work.steps += visible;
            if (visible > 0) {
                work.first_head = i;
                work.begin_tile = visible; /* how many steps that head has */
            }
        }
        work.parts = 1;
        return work;
    }

    template <typename Tile> __device__ __forceinline__ static WorkTile work_tile(const Params &params, int number)
    {
        return {listed_work_tile(params, number), {}};
    }
};

} // namespace sm90_bwd
