/* The sm_80 forward of tiles of head_dim 192, of V 128. */
#include "kernels/sm80/fwd/instance.cuh"

using namespace sm80_fwd;

extern "C" const struct fused_sm80_fwd_tile fused_sm80_fwd_d192x128[] = {FWD_TILES_D192X128(V_TILE_ROW){}};
