/* The main kernels of the sm_80 backward of tiles of head_dim 32, best first. */
#include "kernels/sm80/bwd/instance.cuh"

using namespace sm80_bwd;

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_d32[] = {
    TILE_ROW("d32_kv128q64", Sm80BwdD32, NO, YES, NO, YES, YES,
             "128 keys x 64 queries, 4 warps, dQ a step later, 97 KB shared memory"){}};
