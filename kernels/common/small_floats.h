/* The 16- and 8-bit types from and to fp32. Plain C: the same bits on every machine. */
#ifndef FABENCH_SMALL_FLOATS_H
#define FABENCH_SMALL_FLOATS_H

#include <stdint.h>

/* Round to nearest even to 16 bits and back; NaN stays NaN, overflow goes to infinity. */
uint16_t attn_to_fp16(float);
uint16_t attn_to_bf16(float);
float attn_from_fp16(uint16_t);
float attn_from_bf16(uint16_t);

/* The 8-bit types of the OCP specification (OFP8, 2023): nearest even, and what is too large becomes the largest finite
 * value, 448 or 57344, with its sign; NaN stays NaN. */
uint8_t attn_to_e4m3(float);
uint8_t attn_to_e5m2(float);
float attn_from_e4m3(uint8_t);
float attn_from_e5m2(uint8_t);

#endif
