/* The main kernels of the sm_80 backward of tiles of head_dim 64, of V 128, best first. */
#include "kernels/sm80/bwd/instance.cuh"

using namespace sm80_bwd;

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_d64x128[] = {
    V_TILE_ROW("d64x128_kv128q64", Sm80BwdD64V128,
               "128 keys x 64 queries, 8 warps, dQ a step later, 145 KB shared memory")
        V_TILE_ROW("d64x128_kv64q32", Sm80BwdD64V128Small,
                   "64 keys x 32 queries, 4 warps, dQ a step later, 73 KB shared memory"){}};
