/* The main kernel of the sm_90 backward of head_dim 64. */
#include "kernels/sm90/bwd/instance.cuh"

using namespace sm90_bwd;

extern "C" const struct fused_sm90_bwd_tile fused_sm90_bwd_d64[] = {BWD_TILES_D64(DENSE_ROW){}};
