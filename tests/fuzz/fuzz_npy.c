/* A .npy file. */
#include "cmd/base/npy.h"
#include "tests/fuzz/fuzz.h"

static volatile unsigned sum; /* of the data, so that every byte is read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy npy;
    struct reason why = {""};
    if (!npy_read(fuzz_put(0, data, size), &npy, &why)) {
        FUZZ_CHECK(why.text[0] && !npy.data);
        return 0;
    }
    size_t bytes = npy.type == NPY_FLOAT32 ? 4 : 2;
    FUZZ_CHECK(npy.dims >= 0 && npy.dims <= 4);
    for (int i = 0; i < npy.dims; i++)
        bytes *= (size_t)npy.shape[i];
    FUZZ_CHECK(bytes == npy.bytes);
    for (size_t i = 0; i < npy.bytes; i++)
        sum += ((const unsigned char *)npy.data)[i];
    npy_free(&npy);
    return 0;
}
