/* The part of the products of dQ and dK that is made from squares, see reference_product of reference/reference.h. */
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/attention.h"

/* to = x^2; `to` may be x. Both enqueue on the stream. */
enum attn_status squares_make(const float *x, int64_t elements, float *to, cudaStream_t stream,
                              struct attn_message *why);

/* product = reference_product(product, scale^2 squares). */
enum attn_status squares_take(float *product, const float *squares, double scale, int64_t elements, cudaStream_t stream,
                              struct attn_message *why);
