/* The main kernels of the sm_80 backward of tiles of head_dim 96, best first. */
#include "kernels/sm80/bwd/instance.cuh"

using namespace sm80_bwd;

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_d96[] = {
    TILE_ROW("d96_kv128q64", Sm80BwdD96, NO, YES, NO, YES, NO,
             "128 keys x 64 queries, 8 warps, dQ a step later, 177 KB shared memory")
        TILE_ROW("d96_kv64q32", Sm80BwdD96Small, NO, NO, NO, YES, YES,
                 "64 keys x 32 queries, 4 warps, dQ a step later, 89 KB shared memory"){}};
