/* Softcap (softcap.h) where logits are small beside it: tanh by a polynomial. C and CUDA C++. */
#ifndef FABENCH_FAMILY_SOFTCAP_NEAR_H
#define FABENCH_FAMILY_SOFTCAP_NEAR_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* tanh x, x = scale / softcap Q K^T, where |x| is small: s (odd[0] + odd[1] s^2 + odd[2] s^4), s = Q K^T. */
struct family_softcap_near {
    float largest; /* |s| up to this; -1: none */
    float odd[3];  /* odd[2] is above 0 */
};

/* |x| goes as far as the logit, softcap tanh x, is off by 2e-5 at most, but not beyond 0.5. */
struct family_softcap_near family_softcap_near_of(const struct attn_problem *);

#ifdef __cplusplus
}
#endif
#endif
