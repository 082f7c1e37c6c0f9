/* NumPy's .npy format 1.0 and 2.0 in C order, little endian: float32, float16, 16-bit integers (NumPy has no
 * bfloat16: its bits are stored as such), and 8-bit integers, as which bool is read. */
#ifndef FABENCH_NPY_H
#define FABENCH_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/base/log.h"

enum npy_type {
    NPY_FLOAT32,
    NPY_FLOAT16,
    NPY_UINT16,
    NPY_UINT8,
    NPY_INT32
}; /* <f4 <f2 <u2 |u1 <i4; the last one is only
                                                                                  written */

struct npy {
    int dims;
    int64_t shape[4];
    enum npy_type type;
    void *data; /* owned, C order, aligned for any type */
    size_t bytes;
};

/* False with a sentence naming the file: missing, wrong magic or version, bad header, Fortran order, other dtype, more
 * than 4 dims, a file length that does not match the header. */
bool npy_read(const char *path, struct npy *, struct reason *why);
bool npy_write(const char *path, const struct npy *, struct reason *why);
void npy_free(struct npy *);

#endif
