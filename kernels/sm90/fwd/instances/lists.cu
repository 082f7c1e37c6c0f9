/* The sm_90 forward of block masks. */
#include "kernels/sm90/fwd/instance.cuh"
#include "kernels/sm90/fwd/lists.cuh"

using namespace sm90_fwd;

/* As that of windows (ranges.cu). */
struct ListsD128 : TILE_NAME(128, 128, 128, 2, 1, 1) {
    static constexpr int Q_REGISTER_STEPS = 2;
    static constexpr Schedule SCHEDULE = SCHEDULE_RANGES_D128;
};

/* Neither 192 nor 256 rows lie in one block of the mask. Two warpgroups have registers for all of Q. */
struct ListsD64 {
    static constexpr int HEAD_DIM = 64, BLOCK_M = 128, BLOCK_N = 128, STAGES = 5, KEY_SPLITS = 1;
    static constexpr int Q_REGISTER_STEPS = 4, CLUSTER = 1;
    static constexpr bool CHECKS_AFTER_EXP = true;
    static constexpr Schedule SCHEDULE = SCHEDULE_D64_N128;
};
/* The same with four warpgroups: two have the same rows and half of the keys of each block. */
struct ListsD64Split : ListsD64 {
    static constexpr int STAGES = 3, KEY_SPLITS = 2, Q_REGISTER_STEPS = 0;
    static constexpr Schedule SCHEDULE = SCHEDULE_SPLIT;
};
using D128 = With<ListsD128, Lists, Plain>;
using D64 = With<ListsD64, Lists, Plain>;
using D64Split = With<ListsD64Split, Lists, Plain>;

#define LISTS_KERNELS(TILE, PING_PONG) \
    { \
        fused_fwd_kernel<__half, TILE, PING_PONG>, fused_fwd_kernel<__nv_bfloat16, TILE, PING_PONG> \
    }
#define LISTS_ROW(NAME, TILE, COST, SUMMARY) \
    {{{NAME, SUMMARY "; block masks, not dense attention"}, TILE::HEAD_DIM, 1, sizeof(SharedStorage<TILE>)}, \
     TILE::BLOCK_M, \
     1, \
     Traits<TILE>::THREADS, \
     TILE::BLOCK_N, \
     COST, \
     0, \
     false, \
     false, \
     false, \
     true, \
     {LISTS_KERNELS(TILE, true), LISTS_KERNELS(TILE, (!Traits<TILE>::ROTATES_ROWS))}},

extern "C" const struct fused_sm90_fwd_tile fused_sm90_fwd_lists[] = {
    LISTS_ROW("fwd_lists_d128_m128n128_s2", D128, 100, "128 x 128 tile, 64 rows a warpgroup, 2 stages of K and V")
        LISTS_ROW("fwd_lists_d64_m128n128_s5", D64, 100, "128 x 128 tile, 64 rows a warpgroup, 5 stages of K and V")
            LISTS_ROW("fwd_lists_d64_m128n128_s3_k2", D64Split, 101,
                      "128 x 128 tile, 64 rows a warpgroup, 3 stages of K and V, the keys of a block halved between "
                      "two warpgroups"){}};
