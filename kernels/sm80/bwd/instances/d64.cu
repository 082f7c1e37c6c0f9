/* The main kernels of the sm_80 backward of tiles of head_dim 64, best first. */
#include "kernels/sm80/bwd/instance.cuh"

using namespace sm80_bwd;

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_d64[] = {
    TILE_ROW("d64_kv128q64", Sm80BwdD64, YES, YES, YES, YES, YES,
             "128 keys x 64 queries, 4 warps, dQ a step later, 97 KB shared memory")
        TILE_ROW("d64_kv128q64_oneds", Sm80BwdD64OneDs, YES, NO, NO, NO, NO,
                 "128 keys x 64 queries, 4 warps, 81 KB shared memory"){}};
