/* The sm_80 decode of head_dim 128. */
#include "kernels/sm80/decode/instance.cuh"

extern "C" const struct fused_sm80_decode_tile fused_sm80_decode_d128[] = {DECODE_ROW(128, 64, 64)
                                                                               DECODE_ROW(128, 64, 16){}};
