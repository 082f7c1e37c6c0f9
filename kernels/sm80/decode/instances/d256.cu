/* The sm_80 decode of head_dim 256. */
#include "kernels/sm80/decode/instance.cuh"

extern "C" const struct fused_sm80_decode_tile fused_sm80_decode_d256[] = {DECODE_ROW(256, 64, 64, 4)
                                                                               DECODE_ROW(256, 64, 16, 4){}};
