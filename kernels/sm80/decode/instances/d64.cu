/* The sm_80 decode of head_dim 64. */
#include "kernels/sm80/decode/instance.cuh"

extern "C" const struct fused_sm80_decode_tile fused_sm80_decode_d64[] = {
    DECODE_ROW(64, 128, 64, 8) DECODE_ROW(64, 256, 16, 4) DECODE_ROW(64, 128, 16, 4){}};
