/* What the CPU's and CUDA's half of the plugin share. Each half wraps the fused kernels of this build's registry: the
 * same launches, then a wait of PACED_PCT per cent of the time that they took (with PACED_BACKWARD_ONLY in the backward
 * alone). */
#ifndef FABENCH_TESTS_PACED_H
#define FABENCH_TESTS_PACED_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernel that a request gets: the first fused one of the registry that takes it, as `--impl fused` chooses; NULL
 * with the last one's reason. A kernel that must be prepared is none: the plugin keeps no plan. */
const struct attn_impl *paced_kernel(const struct attn_request *, struct attn_message *why);

double paced_share(enum attn_mode); /* of the kernel's time that is waited */

/* ATTN_OK where some kernel takes it, or a refusal of the whole direction with PACED_REFUSES_BACKWARD. */
enum attn_status paced_accepts(const struct attn_request *, struct attn_message *why);

#ifdef FABENCH_WITH_CUDA
/* paced_cuda.cu: fills the row named paced_cuda. */
void paced_cuda_row(struct attn_impl *row);
#endif

#ifdef __cplusplus
}
#endif
#endif
