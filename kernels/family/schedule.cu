/* What runs ahead of main kernels where a block's work cannot be told from its number: lists of work tiles
 * and of visible tiles, which the host cannot make, as lengths and masks are in device memory.
 *
 *   schedule_work   packed sequences: one block lists the work tiles; the host launches as many blocks as there can be
 *   list_tiles      a block mask: a warp for each own tile of each mask lists the tiles of the other side that it
 *                   sees any of (tile_lists.cuh)
 *   sort_work       the same, of fixed lengths: a block lists the work tiles of a section of heads
 *
 * Work tiles are sorted by how many tiles of the other side they visit, the most first, so that long ones start early
 * and short ones fill the gaps at the end: a counting sort with a counter for each of FAMILY_SCHEDULE_THREADS classes.
 * Within a class the order depends on the run; no result does. For kernels whose blocks wait for the tiles before in
 * the same sequence the class is the tile's number (schedule.h).
 *
 * For the backward of packed sequences schedule_work also fills the table of row blocks: stats and dq_sum begin a
 * sequence at a multiple of row_block rows, block cu_seqlens_q[b] / row_block + b. */
#include "kernels/device/grid_order.cuh"
#include "kernels/family/block_mask.cuh"
#include "kernels/family/schedule.h"
#include "kernels/family/tile_lists.cuh"

namespace {

using namespace family;
using Params = family_schedule;

constexpr int THREADS = FAMILY_SCHEDULE_THREADS, CLASSES = THREADS, LANES = 32;

/* The main kernel may start, where it is launched so (kernels/common/launch.h), and wait for the lists. */
__device__ __forceinline__ void let_main_start()
{
#if __CUDA_ARCH__ >= 900
    device::grid_let_next_start();
#endif
}

/* ---- the sort ---------------------------------------------------------------------------------------------------- */

/* The class of a work tile that visits so many tiles of at most `most`: 0 for those that visit most. */
__device__ __forceinline__ int class_of(int64_t visited, int64_t most)
{
    const float share = static_cast<float>(visited) / static_cast<float>(most);
    return CLASSES - 1 - min(static_cast<int>(share * (CLASSES - 1)), CLASSES - 1);
}

/* The sum of x in the lanes up to this one (Hillis and Steele 1986). */
__device__ __forceinline__ int sum_up_to(int x, int lane)
{
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, x, step);
        x += lane >= step ? before : 0;
    }
    return x;
}

/* All threads of a block sort; for_each(each) calls each(work tile, its class) for the thread's own ones. Calls
 * place(position, work tile), and returns how many there are. */
template <typename ForEach, typename Place>
__device__ __forceinline__ int sort_by_class(const ForEach &for_each, const Place &place)
{
    __shared__ int counts[CLASSES], totals[LANES];
    const int thread = threadIdx.x, warp = thread / LANES, lane = thread % LANES;
    static_assert(THREADS == LANES * LANES, "a total for each lane");

    counts[thread] = 0;
    __syncthreads();
    for_each([&](const family_work &, int own_class) { atomicAdd(&counts[own_class], 1); });
    __syncthreads();
    const int own = counts[thread], up_to_own = sum_up_to(own, lane); /* of the warp's classes */
    if (lane == LANES - 1)
        totals[warp] = up_to_own;
    __syncthreads();
    const int up_to_lane = sum_up_to(totals[lane], lane);
    const int tiles = __shfl_sync(0xffffffffu, up_to_lane, LANES - 1);
    const int before = __shfl_sync(0xffffffffu, up_to_lane, max(warp - 1, 0));
    counts[thread] = (warp > 0 ? before : 0) + up_to_own - own;
    __syncthreads();
    for_each([&](const family_work &work, int own_class) { place(atomicAdd(&counts[own_class], 1), work); });
    return tiles;
}

/* ---- packed sequences -------------------------------------------------------------------------------------------- */

__device__ __forceinline__ TileRange range_of(const Params &params, const Sequence &s, int tile)
{
    const int first = tile * params.own_tile;
    return params.own_is_keys ? row_tiles_of(params.window, s, first, params.own_tile, params.other_tile)
                              : key_tiles_of(params.window, s, first, params.own_tile, params.other_tile);
}

/* Where sequences begin, in shared memory: a block reads those of as many as it has threads at once. */
struct Starts {
    static constexpr int WARPS = THREADS / LANES;
    int q[THREADS + WARPS + 2], k[THREADS + WARPS + 2];

    /* Number i, so that those of number WARPS l + w for each lane l are in different banks. */
    __device__ __forceinline__ static int at(int i) { return i + i / WARPS; }
};

/* All threads of a block call it: each(sequence, lane) in all lanes of the warp whose turn it is. SKIPS_EMPTY: not for
 * sequences without own tiles. A lane looks at one of 32 sequences of its warp, so that these cost nothing. */
template <bool SKIPS_EMPTY, typename Each>
__device__ __forceinline__ void for_each_sequence(Starts &starts, const Params &params, const Each &each)
{
    const int thread = threadIdx.x, warp = thread / LANES, lane = thread % LANES;
    const family_lengths &lengths = params.lengths;

    for (int first = 0; first < lengths.batch; first += THREADS) {
        const int count = min(THREADS, lengths.batch - first);
        __syncthreads(); /* those of the sequences before have been read */
        for (int i = thread; i <= count; i += THREADS) {
            starts.q[Starts::at(i)] = lengths.cu_seqlens_q[first + i];
            starts.k[Starts::at(i)] = lengths.cu_seqlens_k[first + i];
        }
        __syncthreads();
        const int own = lane * Starts::WARPS + warp;
        bool has_tiles = own < count;
        if (SKIPS_EMPTY && has_tiles) {
            const int *const begins = params.own_is_keys ? starts.k : starts.q;
            has_tiles = begins[Starts::at(own + 1)] > begins[Starts::at(own)];
        }
        for (unsigned left = __ballot_sync(0xffffffffu, has_tiles); left != 0; left &= left - 1) {
            const int i = (__ffs(left) - 1) * Starts::WARPS + warp, here = Starts::at(i), next = Starts::at(i + 1);
            const int q_first = starts.q[here], k_first = starts.k[here];
            each(Sequence{first + i, starts.q[next] - q_first, starts.k[next] - k_first, q_first, k_first}, lane);
        }
    }
}

/* A warp takes one sequence at a time, a lane one of its tiles. IN_ORDER: the class is the tile's number. */
template <bool IN_ORDER>
__global__ void __launch_bounds__(THREADS, 1) schedule_work(const __grid_constant__ Params params)
{
    __shared__ Starts starts;
    const int thread = threadIdx.x;
    let_main_start();
    const auto for_each = [&](const auto &each) {
        for_each_sequence<true>(starts, params, [&](const Sequence &s, int lane) {
            const int len = params.own_is_keys ? s.kv_len : s.q_len;
            const int tiles = len / params.own_tile + (len % params.own_tile != 0);
            for (int tile = lane; tile < tiles; tile += LANES) {
                if constexpr (IN_ORDER) {
                    each({s.number, 0, tile}, min(tile, CLASSES - 1));
                } else {
                    const TileRange range = range_of(params, s, tile);
                    each({s.number, 0, tile},
                         class_of(range.end - range.first, params.longest_other / params.other_tile + 1));
                }
            }
        });
    };
    const int tiles = sort_by_class(for_each, [&](int at, const family_work &work) {
        if (at < params.order.work_tiles)
            params.order.work[at] = work;
    });
    if (thread == 0) {
        params.order.count[0] = tiles;
        params.order.count[1] = 0;
    }
    for (int at = tiles + thread; at < params.order.work_tiles; at += THREADS)
        params.order.work[at] = {-1, 0, 0};
    if (params.order.row_blocks == NULL)
        return;
    for_each_sequence<false>(starts, params, [&](const Sequence &s, int lane) {
        const int end = (s.q_first + s.q_len) / params.row_block + s.number + 1;
        for (int i = s.q_first / params.row_block + s.number + lane; i < end; i += LANES)
            params.order.row_blocks[i] = s.number;
    });
}

/* ---- block masks ------------------------------------------------------------------------------------------------- */

/* The own tile that a list is of: the sequence, whose number is -1 for none, the query head of its mask, the tile. */
struct ListedTile {
    Sequence sequence;
    int head, tile;
};

__device__ __forceinline__ ListedTile listed_tile(const Params &params, int number)
{
    if (params.lengths.cu_seqlens_q == NULL) {
        const int len = params.longest_other, own_len = params.longest_own;
        const int plane = number / params.own_tiles, sequence = plane / params.mask_heads;
        return {{sequence, params.own_is_keys ? len : own_len, params.own_is_keys ? own_len : len, 0, 0},
                plane - sequence * params.mask_heads,
                number - plane * params.own_tiles};
    }
    const family_work work = params.order.work[number % params.order.work_tiles];
    ListedTile listed = {{-1, 0, 0, 0, 0}, number / params.order.work_tiles, work.tile};
    if (work.sequence >= 0)
        listed.sequence = sequence_at(params.lengths, work.sequence, 0, 0);
    return listed;
}

constexpr int GROUPS = LIST_TILES / LANES;

/* What the block mask shows of the tiles first + 32 i, i < GROUPS, that are in the range: bits 2 i and 2 i + 1 as
 * blocks_seen says it. The lookups are all on their way at once where a tile lies in one block of the mask. */
__device__ __forceinline__ unsigned tiles_seen(const Params &params, const ListedTile &own, const uint8_t *mask,
                                               TileRange range, int first)
{
    const int own_first = own.tile * params.own_tile;
    unsigned seen = 0;
    if (params.tiles_are_in_blocks) {
        const int own_block = device::quotient(own_first, params.mask.block_by);
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            const int tile = first + i * LANES,
                      block = device::quotient(tile * params.other_tile, params.mask.block_by);
            const int64_t row_block = params.own_is_keys ? block : own_block;
            const int key_block = params.own_is_keys ? own_block : block;
            if (tile >= range.first && tile < range.end && mask[row_block * params.mask.key_blocks + key_block] != 0)
                seen |= 3u << 2 * i;
        }
        return seen;
    }
#pragma unroll 1
    for (int i = 0; i < GROUPS; ++i) {
        const int tile = first + i * LANES, other = tile * params.other_tile;
        if (tile >= range.first && tile < range.end)
            seen |= (params.own_is_keys
                         ? blocks_seen(params.mask, mask, other, params.other_tile, own_first, params.own_tile)
                         : blocks_seen(params.mask, mask, own_first, params.own_tile, other, params.other_tile))
                    << 2 * i;
    }
    return seen;
}

/* The bits of a visible tile's entry but for TILE_HAS_HIDDEN. */
__device__ __forceinline__ int entry_bits(const Params &params, const ListedTile &own, int other)
{
    const int first = own.tile * params.own_tile, second = other * params.other_tile;
    return params.own_is_keys
               ? tile_bits_of<true>(params.window, own.sequence, second, params.other_tile, first, params.own_tile)
               : tile_bits_of<false>(params.window, own.sequence, first, params.own_tile, second, params.other_tile);
}

__global__ void __launch_bounds__(FAMILY_LISTS_THREADS) list_tiles(const __grid_constant__ Params params)
{
    const int lane = threadIdx.x % LANES;
    const unsigned warp = blockIdx.x * (FAMILY_LISTS_THREADS / LANES) + threadIdx.x / LANES;
    if (warp >= static_cast<unsigned>(params.list_count))
        return;
    const int number = static_cast<int>(warp);
    const ListedTile own = listed_tile(params, number);
    if (own.sequence.number < 0)
        return;
    const uint8_t *mask = mask_of_head(params.mask, own.sequence.number, own.head);
    const TileRange range = range_of(params, own.sequence, own.tile);
    int visible = 0, first = range.first / LIST_TILES * LIST_TILES;
    do {
        const bool is_plain = params.lists.is_plain;
        uint16_t *entries =
            is_plain ? list_section(params.lists, number, 0) + visible : list_section(params.lists, number, first);
        const unsigned seen = tiles_seen(params, own, mask, range, first + lane);
        int listed = 0;
#pragma unroll 1
        for (int group = 0; group < GROUPS; ++group) {
            const unsigned own_seen = seen >> 2 * group, any = __ballot_sync(0xffffffffu, own_seen & 1u);
            const int i = group * LANES + lane;
            if (own_seen & 1u)
                entries[listed + __popc(any & ((1u << lane) - 1u))] =
                    static_cast<uint16_t>(is_plain ? first + i
                                                   : i << TILE_BITS | entry_bits(params, own, first + i) |
                                                         (own_seen & 2u ? 0 : TILE_HAS_HIDDEN));
            listed += __popc(any);
        }
        for (int i = listed + lane; !is_plain && i < params.lists.chunks * FAMILY_LIST_CHUNK; i += LANES)
            entries[i] = LIST_END;
        visible += listed;
        first += LIST_TILES;
    } while (first < range.end);
    if (lane == 0)
        params.lists.visible[number] = visible;
}

__global__ void __launch_bounds__(THREADS) sort_work(const __grid_constant__ Params params)
{
    let_main_start();
    const int first_group = blockIdx.x * params.section_groups;
    const int end_group = blockIdx.x == params.sections - 1 ? params.head_groups : first_group + params.section_groups;
    const int first =
        first_group * params.group * params.own_tiles; /* work tiles are within 31 bits: family_check_grid */
    const int end = end_group * params.group * params.own_tiles;
    const int64_t most = (params.longest_other / params.other_tile + 1) * static_cast<int64_t>(params.list_group);
    const auto for_each = [&](const auto &each) {
        for (int i = first + threadIdx.x; i < end; i += THREADS) {
            const int head_index = i / params.own_tiles, tile = i - head_index * params.own_tiles;
            const int sequence = head_index / params.heads;
            const family_work work = {sequence, head_index - sequence * params.heads, tile};
            int64_t visited = 0;
            for (int j = 0; j < params.list_group; ++j)
                visited +=
                    params.lists
                        .visible[list_number(params.lists, work.sequence, work.head * params.list_group + j, tile)];
            each(work, class_of(visited, most));
        }
    };
    sort_by_class(for_each, [&](int at, const family_work &work) { params.order.work[first + at] = work; });
}

} // namespace

extern "C" const family_schedule_kernel family_schedule_work = schedule_work<false>,
                                        family_schedule_work_in_order = schedule_work<true>,
                                        family_list_tiles = list_tiles, family_sort_work = sort_work;
