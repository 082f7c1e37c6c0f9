/* The peer `cudnn`: NVIDIA's attention through the cuDNN graph API, found at run time.
 *
 * The program neither links cuDNN nor needs it to start. The library is opened at its first use: the path given to
 * cudnn_peer_set_library, else the environment variable FABENCH_CUDNN, else "libcudnn.so.9" by the loader's own search,
 * else the folder where set-up had put it when the program was built (FABENCH_CUDNN_DIR of CMakeLists.txt). A path may
 * name the library, its folder, or a Python site-packages folder that holds nvidia/cudnn/lib. A path that was named and
 * does not work is not replaced by another library.
 */
#ifndef FABENCH_CUDNN_PEER_H
#define FABENCH_CUDNN_PEER_H

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct attn_impl attn_cudnn;

/* The version of the library that is used, "9.19.0"; NULL where there is none. The string lives as long as the
 * program. */
const char *cudnn_peer_library_version(void);

/* Chooses the library; NULL = the environment, else the loader's search. Copies the path. Has an effect only before the
 * first use of the peer: a loaded library is kept. Not thread-safe. */
void cudnn_peer_set_library(const char *path);

#ifdef __cplusplus
}
#endif
#endif
