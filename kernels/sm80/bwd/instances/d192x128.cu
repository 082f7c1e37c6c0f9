/* The main kernels of the sm_80 backward of tiles of head_dim 192, of V 128, best first. */
#include "kernels/sm80/bwd/instance.cuh"

using namespace sm80_bwd;

extern "C" const struct fused_sm80_bwd_tile fused_sm80_bwd_d192x128[] = {
    V_TILE_ROW("d192x128_kv64q64", Sm80BwdD192V128,
               "64 keys x 64 queries, 8 warps, dQ a step later, 153 KB shared memory")
        V_TILE_ROW("d192x128_kv32q32", Sm80BwdD192V128Small,
                   "32 keys x 32 queries, 4 warps, dQ a step later, 73 KB shared memory"){}};
