/* Softcap, as kernels see it: S = softcap tanh(scale / softcap Q K^T). C and CUDA C++. */
#ifndef FABENCH_FAMILY_SOFTCAP_H
#define FABENCH_FAMILY_SOFTCAP_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FAMILY_MAX_SOFTCAP = 2048 }; /* a logit's error is up to 2^-22 times the softcap */

struct family_softcap {
    float inner; /* 2 log2(e) scale / softcap: tanh(x) is computed from 2^(inner Q K^T); 0: no softcap */
};

struct family_softcap family_softcap_of(const struct attn_problem *);

/* Refuses softcaps that kernels cannot compute exactly enough. */
enum attn_status family_check_softcap(const struct attn_problem *, struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
