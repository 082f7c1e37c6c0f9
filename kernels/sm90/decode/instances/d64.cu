/* The sm_90 decode of head_dim 64. */
#include "kernels/sm90/decode/instance.cuh"

extern "C" const struct fused_sm90_decode_tile fused_sm90_decode_d64[] = {
    DECODE_FEW_ROWS_ROW("decode", 64, 128, 12, false) DECODE_ROW(64, 128, 13)
        DECODE_FEW_ROWS_ROW("decode_8bit", 64, 128, 24, true) DECODE_8_BIT_ROW(64, 128, 4){}};
