/* Opening libcudnn.so.9 at run time; the peer `cudnn` calls it. Needs nothing of CUDA or cuDNN to compile. */
#ifndef FABENCH_CUDNN_LIBRARY_H
#define FABENCH_CUDNN_LIBRARY_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where cuDNN may be, in the order in which it is looked for; NULL or "" = not given. A place names the library, its
 * folder, or a folder with lib/ or nvidia/cudnn/lib/ in it. A place that the user named and that does not work is not
 * replaced by another one. */
struct cudnn_places {
    const char *file_name;   /* libcudnn.so.9 */
    const char *chosen;      /* by a caller */
    const char *environment; /* FABENCH_CUDNN */
    const char *recorded;    /* after the loader's search: where the library was when this program was built */
};

/* A handle of dlopen, or NULL after a sentence. */
void *cudnn_library_open(const struct cudnn_places *, struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
