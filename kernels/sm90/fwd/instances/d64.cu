/* The sm_90 forward of head_dim 64. */
#include "kernels/sm90/fwd/instance.cuh"

using namespace sm90_fwd;

extern "C" const struct fused_sm90_fwd_tile fused_sm90_fwd_d64[] = {FWD_TILES_D64(TILE_ROW){}};
