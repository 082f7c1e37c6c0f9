/* The 16- and 8-bit types from and to fp32, bit by bit. */
#include "kernels/common/small_floats.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bits >> shift, rounded to nearest even. */
static uint32_t shift_to_even(uint32_t bits, int shift)
{
    const uint32_t half = (1u << (shift - 1)) - 1;
    return (bits + half + ((bits >> shift) & 1)) >> shift;
}

uint16_t attn_to_fp16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* a NaN keeps its upper payload and becomes quiet */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x47800000u) /* 2^16 and above, infinity included; 65520 to 2^16 round up to infinity below */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) /* 2^-14 and above: normal; a carry into the exponent is correct */
        return (uint16_t)(sign | shift_to_even(magnitude - (112u << 23), 13));
    if (magnitude < 0x33000000u) /* below 2^-25, half of the smallest denormal */
        return (uint16_t)sign;
    const int exponent = (int)(magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_to_even(mantissa, 126 - exponent));
}

float attn_from_fp16(uint16_t value)
{
    const uint32_t sign = (uint32_t)(value & 0x8000u) << 16, exponent = (value >> 10) & 31u, mantissa = value & 0x3ffu;
    if (exponent == 31)
        return float_of(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_of(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

uint16_t attn_to_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)shift_to_even(bits, 16);
}

float attn_from_bf16(uint16_t value) { return float_of((uint32_t)value << 16); }

/* An 8-bit type: bits of the mantissa, bias of the exponent, the code of its largest finite value. */
struct small_float {
    int mantissa, bias;
    uint32_t largest;
};

static const struct small_float e4m3 = {3, 7, 0x7e}, e5m2 = {2, 15, 0x7b};

static uint8_t to_small(float value, const struct small_float *type)
{
    const uint32_t bits = bits_of(value), sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
    const int exponent = (int)(magnitude >> 23), drop = 23 - type->mantissa, least = 127 - type->bias;
    if (magnitude > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    uint32_t code = 0;
    if (exponent > least)
        code = shift_to_even(magnitude - ((uint32_t)least << 23), drop);
    else if (drop + 1 + least - exponent <= 25) /* a denormal, or half of the smallest one and more */
        code = shift_to_even((magnitude & 0x7fffffu) | 0x800000u, drop + 1 + least - exponent);
    return (uint8_t)(sign | (code < type->largest ? code : type->largest));
}

uint8_t attn_to_e4m3(float value) { return to_small(value, &e4m3); }
uint8_t attn_to_e5m2(float value) { return to_small(value, &e5m2); }
