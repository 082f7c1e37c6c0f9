/* The sm_80 decode of head_dim 128. */
#include "kernels/sm80/decode/instance.cuh"

extern "C" const struct fused_sm80_decode_tile fused_sm80_decode_d128[] = {
    DECODE_ROW(128, 64, 64, 8) DECODE_ROW(128, 128, 16, 4) DECODE_ROW(128, 64, 16, 4){}};
