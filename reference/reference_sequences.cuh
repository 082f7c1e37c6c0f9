/* The fp32 reference on CUDA for problems with attributes beyond windows; reference_cuda calls it. */
#pragma once
#include "reference/cublas.h"
#include "reference/reference.h"

/* Bytes of workspace, without that of cuBLAS. */
size_t reference_sequences_bytes(const struct attn_problem *, enum attn_mode);

/* As reference_cuda. `blas` is bound to the stream. Waits for the stream where sequences have lengths of their own. */
enum attn_status reference_sequences(const struct attn_problem *, enum attn_mode, const struct attn_tensors *,
                                     const struct reference_outputs *, cublasHandle_t blas, void *workspace,
                                     cudaStream_t stream, struct attn_message *why);
