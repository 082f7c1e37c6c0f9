/* The main kernels of the sm_80 backward of tiles of head_dim 256, best first. */
#include "kernels/sm80/bwd/instance.cuh"

using namespace sm80_bwd;

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_d256[] = {
    TILE_ROW("d256_kv64q64", Sm80BwdD256, NO, YES, NO, YES, NO,
             "64 keys x 64 queries, 8 warps, dQ a step later, 225 KB shared memory")
        TILE_ROW("d256_kv32q32", Sm80BwdD256Small, NO, NO, NO, YES, YES,
                 "32 keys x 32 queries, 4 warps, 1 stage, dQ a step later, 77 KB shared memory"){}};
