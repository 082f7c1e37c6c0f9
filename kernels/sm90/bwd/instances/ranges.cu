/* The main kernel of the sm_90 backward of windows and packed lengths. */
#include "kernels/sm90/bwd/instance.cuh"
#include "kernels/sm90/bwd/ranges.cuh"

using namespace sm90_bwd;

/* With fewer steps of 16 columns of V in registers than in dense attention, in fp16: the ranges need these. */
template <typename T> struct RangesD128 : TILE_NAME(128, 64, ONCE)<T> {
    static constexpr int V_STEPS = IS_BF16<T> ? 0 : 2;
};

/* With nothing of K and V in registers, as another work tile's come in between. */
template <typename T> struct RangesLoopD64 : TILE_NAME(64, 128, LOOP)<T> {
    static constexpr int V_STEPS = 0, K_STEPS = 0;
};

#define RANGES_TEXT "; windows and packed lengths"

extern "C" const struct fused_sm90_bwd_tile fused_sm90_bwd_ranges[] = {
    row_of<TILE_NAME(128, 64, LOOP), Ranges, Plain>("bwd_ranges_d128_k128q64_loop",
                                                    "128 keys x 64 queries" LOOP_TEXT RANGES_TEXT),
    row_of<RangesD128, Ranges, Plain>("bwd_ranges_d128_k128q64", "128 keys x 64 queries" RANGES_TEXT),
    row_of<RangesLoopD64, Ranges, Plain>("bwd_ranges_d64_k128q128_loop",
                                         "128 keys x 128 queries" LOOP_TEXT RANGES_TEXT),
    row_of<TILE_NAME(64, 128, ONCE), Ranges, Plain>("bwd_ranges_d64_k128q128", "128 keys x 128 queries" RANGES_TEXT),
    {}};
