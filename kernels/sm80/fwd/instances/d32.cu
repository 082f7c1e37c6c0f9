/* The sm_80 forward of tiles of head_dim 32. */
#include "kernels/sm80/fwd/instance.cuh"

using namespace sm80_fwd;

extern "C" const struct fused_sm80_fwd_tile fused_sm80_fwd_d32[] = {FWD_TILES_D32(TILE_ROW){}};
