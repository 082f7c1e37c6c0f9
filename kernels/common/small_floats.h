/* The 16- and 8-bit types from and to fp32. Plain C: the same bits on every machine. */
#ifndef FABENCH_SMALL_FLOATS_H
#define FABENCH_SMALL_FLOATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Round to nearest even to 16 bits and back; NaN stays NaN, overflow goes to infinity. */
uint16_t attn_to_fp16(float);
uint16_t attn_to_bf16(float);
float attn_from_fp16(uint16_t);
float attn_from_bf16(uint16_t);

/* The 8-bit types of the OCP specification (OFP8, 2023): nearest even, and what is too large becomes the largest finite
 * value, 448 or 57344, with its sign; NaN stays NaN. From them also on the device. */
uint8_t attn_to_e4m3(float);
uint8_t attn_to_e5m2(float);

#ifdef __cplusplus
}
#endif

/* Placed at the top of a float's exponent and mantissa, with the difference of the two biases added to the exponent.
 * `unit`: the smallest denormal. */
ATTN_FUNCTION float attn_from_8_bits(uint8_t code, int mantissa_bits, int bias, float unit)
{
    const uint32_t magnitude = code & 0x7fu;
    const uint32_t bits = (magnitude << (23 - mantissa_bits)) + ((uint32_t)(127 - bias) << 23);
    float value;
    memcpy(&value, &bits, sizeof value);
    if (magnitude >> mantissa_bits == 0)
        value = (float)magnitude * unit;
    return code & 0x80u ? -value : value;
}

/* 4 bits of exponent with bias 7, 3 of mantissa; no infinity, and NaN where all bits below the sign are set. */
ATTN_FUNCTION float attn_from_e4m3(uint8_t code)
{
    return (code & 0x7f) == 0x7f ? (float)NAN : attn_from_8_bits(code, 3, 7, 0x1p-9f);
}

/* 5 bits of exponent with bias 15, 2 of mantissa: the upper half of fp16. */
ATTN_FUNCTION float attn_from_e5m2(uint8_t code)
{
    if ((code & 0x7f) > 0x7c)
        return (float)NAN;
    if ((code & 0x7f) == 0x7c)
        return code & 0x80 ? -(float)INFINITY : (float)INFINITY;
    return attn_from_8_bits(code, 2, 15, 0x1p-16f);
}

#endif
