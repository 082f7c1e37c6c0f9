/* The sm_80 forward of tiles of head_dim 96. */
#include "kernels/sm80/fwd/instance.cuh"

using namespace sm80_fwd;

extern "C" const struct fused_sm80_fwd_tile fused_sm80_fwd_d96[] = {FWD_TILES_D96(TILE_ROW){}};
