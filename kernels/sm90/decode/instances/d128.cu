/* The sm_90 decode of head_dim 128. */
#include "kernels/sm90/decode/instance.cuh"

extern "C" const struct fused_sm90_decode_tile fused_sm90_decode_d128[] = {
    DECODE_CLUSTER_ROW("decode", 128, 64, 8, false) DECODE_FEW_ROWS_ROW("decode", 128, 64, 12, false)
        DECODE_ROW(128, 64, 12) DECODE_CLUSTER_ROW("decode_8bit", 128, 64, 16, true)
            DECODE_FEW_ROWS_ROW("decode_8bit", 128, 64, 24, true) DECODE_8_BIT_ROW(128, 64, 4){}};
