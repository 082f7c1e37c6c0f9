/* The 8-bit sm_90 forward of head_dim 128. */
#include "kernels/sm90/fwd/fp8/instance.cuh"

using namespace sm90_fp8;

extern "C" const struct fused_sm90_fp8_tile fused_sm90_fp8_d128[] = {FP8_TILES_D128(FP8_TILE_ROW){}};
