/* The main kernels of the sm_80 backward of tiles of head_dim 128, best first. */
#include "kernels/sm80/bwd/instance.cuh"

using namespace sm80_bwd;

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_d128[] = {
    TILE_ROW("d128_kv128q64", Sm80BwdD128, YES, YES, YES, YES, NO,
             "128 keys x 64 queries, 8 warps, dQ a step later, 177 KB shared memory")
        TILE_ROW("d128_kv128q64_oneds", Sm80BwdD128OneDs, YES, NO, NO, NO, NO,
                 "128 keys x 64 queries, 8 warps, 161 KB shared memory")
            TILE_ROW("d128_kv64q64", Sm80BwdD128OneStage, YES, NO, NO, NO, NO,
                     "64 keys x 64 queries, 4 warps, 1 stage, 89 KB shared memory")
                TILE_ROW("d128_kv64q32", Sm80BwdD128Small, NO, NO, NO, YES, YES,
                         "64 keys x 32 queries, 4 warps, dQ a step later, 89 KB shared memory; not dense attention"){}};
