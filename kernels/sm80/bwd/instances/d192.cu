/* The main kernels of the sm_80 backward of tiles of head_dim 192, best first. */
#include "kernels/sm80/bwd/instance.cuh"

using namespace sm80_bwd;

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_d192[] = {
    TILE_ROW("d192_kv64q64", Sm80BwdD192, NO, YES, NO, YES, NO,
             "64 keys x 64 queries, 8 warps, dQ a step later, 177 KB shared memory")
        TILE_ROW("d192_kv32q32", Sm80BwdD192Small, NO, NO, NO, YES, YES,
                 "32 keys x 32 queries, 4 warps, dQ a step later, 85 KB shared memory"){}};
