/* NumPy's .npy format 1.0/2.0, C order, little endian: <f4 <f2, and bf16 stored as <u2 (NumPy has no bfloat16). */
#ifndef FABENCH_NPY_H
#define FABENCH_NPY_H

#include "kernels/attention.h"

struct npy {
    int dims;
    int64_t shape[4];
    enum attn_dtype dtype; /* <u2 reads as ATTN_BF16 */
    void *data;            /* owned, C order, aligned for any type */
    size_t bytes;
};

/* False with a sentence naming the file: missing, wrong magic or version, bad header, Fortran order, other dtype, more
 * than 4 dims, length of the file other than the header says. */
bool npy_read(const char *path, struct npy *, struct attn_message *why);
bool npy_write(const char *path, const struct npy *, struct attn_message *why);
void npy_free(struct npy *);

#endif
