/* The sm_90 forward of windows and packed lengths, and of softcap, with these or in dense attention. */
#include "kernels/sm90/fwd/instance.cuh"
#include "kernels/sm90/fwd/ranges.cuh"
#include "kernels/sm90/fwd/softcap.cuh"

using namespace sm90_fwd;

/* As in dense attention, without what takes registers that the ranges need (C7511). */
struct RangesD128 : TILE_NAME(128, 128, 128, 2, 1, 1) {
    static constexpr int Q_REGISTER_STEPS = 2;
    static constexpr Schedule SCHEDULE = SCHEDULE_RANGES_D128;
};
/* The largest weights of a last block are not known early where its scores are small (softcap.cuh). */
struct SoftcapD64 : TILE_NAME(64, 256, 64, 5, 1, 1) {
    static constexpr Schedule SCHEDULE = {false, false, true, true, true, false};
};
using D128 = With<RangesD128, Ranges, Plain>;
using D64 = With<TILE_NAME(64, 256, 64, 5, 1, 1), Ranges, Plain>;
using D128Softcap = With<RangesD128, Ranges, Softcap>;
using D64Softcap = With<SoftcapD64, Ranges, Softcap>;

#define RANGES_ROW(NAME, TILE, PING_PONG, HAS_SOFTCAP, SUMMARY) \
    {{{NAME, SUMMARY "; windows, packed lengths"}, TILE::HEAD_DIM, 1, sizeof(SharedStorage<TILE>)}, \
     TILE::BLOCK_M, \
     1, \
     1, \
     Traits<TILE>::THREADS, \
     TILE::BLOCK_N, \
     100, \
     0, \
     false, \
     false, \
     HAS_SOFTCAP, \
     false, \
     {{fused_fwd_kernel<__half, TILE, PING_PONG>, fused_fwd_kernel<__nv_bfloat16, TILE, PING_PONG>}, \
      {fused_fwd_kernel<__half, TILE, PING_PONG>, fused_fwd_kernel<__nv_bfloat16, TILE, PING_PONG>}}},

/* Dense attention. */
struct SoftcapPairD128 : TILE_NAME(128, 128, 128, 2, 1, 2) {};
struct SoftcapPairD64 : TILE_NAME(64, 256, 64, 8, 1, 2) {
    static constexpr Schedule SCHEDULE = {false, false, false, true, true, false};
};

#define SOFTCAP_KERNELS(TILE, PING_PONG) \
    { \
        fused_fwd_kernel<__half, With<TILE, Dense, Softcap>, PING_PONG>, \
            fused_fwd_kernel<__nv_bfloat16, With<TILE, Dense, Softcap>, PING_PONG> \
    }
#define SOFTCAP_ROW(NAME, TILE, COST, START, SUMMARY) \
    {{{NAME, SUMMARY "; softcap"}, TILE::HEAD_DIM, 1, sizeof(SharedStorage<With<TILE, Dense, Softcap>>)}, \
     TILE::BLOCK_M, \
     TILE::CLUSTER, \
     1, \
     Traits<With<TILE, Dense, Softcap>>::THREADS, \
     TILE::BLOCK_N, \
     COST, \
     START, \
     Traits<With<TILE, Dense, Softcap>>::HAS_PARTS, \
     true, \
     true, \
     false, \
     {SOFTCAP_KERNELS(TILE, true), SOFTCAP_KERNELS(TILE, (!Traits<With<TILE, Dense, Softcap>>::ROTATES_ROWS))}},

extern "C" const struct fused_sm90_fwd_tile fused_sm90_fwd_ranges[] = {
    RANGES_ROW("fwd_ranges_d128_m128n128_s2", D128, true, false,
               "128 x 128 tile, 64 rows a warpgroup, 2 stages of K and V")
        RANGES_ROW("fwd_softcap_ranges_d128_m128n128_s2", D128Softcap, true, true, "the same; softcap") RANGES_ROW(
            "fwd_ranges_d64_m256n64_s5", D64, false, false, "256 x 64 tile, 64 rows a warpgroup, 5 stages of K and V")
            RANGES_ROW("fwd_softcap_ranges_d64_m256n64_s5", D64Softcap, false, true, "the same; softcap")
                SOFTCAP_ROW("fwd_softcap_d128_m128n128_s2", RangesD128, 100, 130,
                            "128 x 128 tile, 64 rows a warpgroup, 2 stages of K and V")
                    SOFTCAP_ROW("fwd_softcap_d128_m128n128_s2_pair", SoftcapPairD128, 97, 175,
                                "the same, two blocks load keys for each other")
                        SOFTCAP_ROW("fwd_softcap_d64_m256n64_s5", SoftcapD64, 99, 160,
                                    "256 x 64 tile, 64 rows a warpgroup, 5 stages of K and V")
                            SOFTCAP_ROW("fwd_softcap_d64_m256n64_s8_pair", SoftcapPairD64, 98, 197,
                                        "the same, 8 stages, two blocks load keys for each other"){}};
