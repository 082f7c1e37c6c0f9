/* The sm_90 decode of head_dim 256. */
#include "kernels/sm90/decode/instance.cuh"

extern "C" const struct fused_sm90_decode_tile fused_sm90_decode_d256[] = {
    DECODE_FEW_ROWS_ROW("decode", 256, 64, 5, false) DECODE_ROW(256, 64, 5)
        DECODE_FEW_ROWS_ROW("decode_8bit", 256, 64, 10, true) DECODE_8_BIT_ROW(256, 64, 3){}};
