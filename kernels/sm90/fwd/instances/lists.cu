/* The sm_90 forward of block masks. */
#include "kernels/sm90/fwd/instance.cuh"
#include "kernels/sm90/fwd/lists.cuh"

using namespace sm90_fwd;

/* As that of windows (ranges.cu). */
struct ListsD128 : TILE_NAME(128, 128, 128, 2, 1, 1) {
    static constexpr int Q_REGISTER_STEPS = 2;
    static constexpr Schedule SCHEDULE = SCHEDULE_RANGES_D128;
};

/* Neither 192 nor 256 rows lie in one block of the mask, and two warpgroups do not hide each other's latencies well:
 * two work tiles at a time. */
struct ListsD64 {
    static constexpr int HEAD_DIM = 64, BLOCK_M = 128, BLOCK_N = 64, STAGES = 4, KEY_SPLITS = 1;
    static constexpr int Q_REGISTER_STEPS = 0, CLUSTER = 1, HALVES = 2;
    static constexpr bool CHECKS_AFTER_EXP = true;
    static constexpr Schedule SCHEDULE = SCHEDULE_D64_N64;
};
using D128 = With<ListsD128, Lists, Plain>;
using D64 = With<ListsD64, Lists, Plain>;

#define LISTS_KERNELS(TILE, PING_PONG) \
    { \
        fused_fwd_kernel<__half, TILE, PING_PONG>, fused_fwd_kernel<__nv_bfloat16, TILE, PING_PONG> \
    }
#define LISTS_ROW(NAME, TILE, PING_PONG, SUMMARY) \
    {{{NAME, SUMMARY "; block masks, not dense attention"}, \
      TILE::HEAD_DIM, \
      1, \
      TILE::HALVES * sizeof(SharedStorage<TILE>)}, \
     TILE::BLOCK_M, \
     1, \
     TILE::HALVES, \
     Traits<TILE>::THREADS, \
     TILE::BLOCK_N, \
     100, \
     0, \
     false, \
     false, \
     false, \
     true, \
     {LISTS_KERNELS(TILE, PING_PONG), LISTS_KERNELS(TILE, PING_PONG)}},

extern "C" const struct fused_sm90_fwd_tile fused_sm90_fwd_lists[] = {
    LISTS_ROW("fwd_lists_d128_m128n128_s2", D128, true, "128 x 128 tile, 64 rows a warpgroup, 2 stages of K and V")
        LISTS_ROW("fwd_lists_d64_m128n64_s4_x2", D64, false,
                  "two 128 x 64 tiles at a time, 64 rows a warpgroup, 4 stages of K and V of each"){}};
