/* Opening cuDNN and what it opens by name; see cudnn_peer.h for where it is looked for.
 *
 * cuDNN 9 is a thin libcudnn.so.9 that opens its parts by bare name when they are first needed; the loader looks in
 * LD_LIBRARY_PATH before the library's own folder, so the parts are opened here from that folder first. Otherwise two
 * versions could be mixed, and the reported version would not be the one that computes. cuDNN opens cuBLASLt by bare
 * name too: ours is opened first, so that both use the same one. */
#include "reference/peers/cudnn_loading.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <link.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "reference/cublas_library.h"
#include "reference/peers/cudnn_library.h"

namespace {

enum { PATH_SIZE = 4096 };

char chosen_path[PATH_SIZE]; /* cudnn_choose_library; empty = none */

/* "folder of the loaded file that holds address" + tail; false where that is no file in a folder. */
bool beside(const void *address, const char *tail, char file[PATH_SIZE])
{
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname || !strrchr(info.dli_fname, '/'))
        return false;
    const int folder = static_cast<int>(strrchr(info.dli_fname, '/') - info.dli_fname);
    return snprintf(file, PATH_SIZE, "%.*s/%s", folder, info.dli_fname, tail) < PATH_SIZE;
}

const char cuda_runtime_variable[] = "CUDNN_FRONTEND_CUDART_LIB_NAME"; /* the front end reads it */

bool use_cuda_runtime(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_LOCAL) && setenv(cuda_runtime_variable, file, 1) == 0;
}

/* Tells the front end which CUDA runtime to call; by itself it would take the first of several that the loader finds,
 * perhaps of another major version, and print a warning. The choice: the one this program is linked with, or, where it
 * is linked in statically, a shared one of the same major version (both share the device's primary context), looked
 * for by the loader, beside cuBLAS, and where Python packages put it. */
bool name_cuda_runtime(const void *address_in_cudnn, const void *address_in_cublas)
{
    const char *named = getenv(cuda_runtime_variable);
    if (named && named[0])
        return true;
    char name[32], shared_folder[64], own_folder[64], file[PATH_SIZE];
    const int major = CUDART_VERSION / 1000;
    snprintf(name, sizeof name, "libcudart.so.%d", major);
    snprintf(shared_folder, sizeof shared_folder, "../../cu%d/lib/%s", major, name);
    snprintf(own_folder, sizeof own_folder, "../../cuda_runtime/lib/%s", name);
    return (beside(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"), name, file) && use_cuda_runtime(file)) ||
           use_cuda_runtime(name) || (beside(address_in_cublas, name, file) && use_cuda_runtime(file)) ||
           (beside(address_in_cudnn, shared_folder, file) && use_cuda_runtime(file)) ||
           (beside(address_in_cudnn, own_folder, file) && use_cuda_runtime(file));
}

void *open_any(struct attn_message *why)
{
    const struct cudnn_places places = {"libcudnn.so.9", chosen_path, getenv("FABENCH_CUDNN"), FABENCH_CUDNN_FOLDER};
    return cudnn_library_open(&places, why);
}

/* cuDNN opens NVRTC by bare name. Where the loader would not find it, the one of the toolkit that this program was
 * built with is opened first; where that is gone, cuDNN's own error names it. */
void open_nvrtc(void)
{
    char file[PATH_SIZE];
    const int major = CUDART_VERSION / 1000;
    snprintf(file, sizeof file, "libnvrtc.so.%d", major);
    if (!dlopen(file, RTLD_LAZY | RTLD_LOCAL) &&
        snprintf(file, sizeof file, "%s/libnvrtc.so.%d", FABENCH_TOOLKIT_LIBRARIES, major) < PATH_SIZE)
        dlopen(file, RTLD_LAZY | RTLD_LOCAL);
}

/* Opens one of cuDNN's parts from the folder of the library itself; see the head of this file. A part that is not
 * there is left to cuDNN, whose own error names it. */
void open_part(void *library_handle, const char *part)
{
    struct link_map *map = nullptr;
    char file[PATH_SIZE];
    if (dlinfo(library_handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name)
        return;
    const char *slash = strrchr(map->l_name, '/');
    if (!slash)
        return;
    const int folder = static_cast<int>(slash - map->l_name);
    if (snprintf(file, sizeof file, "%.*s/libcudnn_%s.so.9", folder, map->l_name, part) < PATH_SIZE)
        dlopen(file, RTLD_LAZY | RTLD_LOCAL);
}

struct cudnn_loaded open_library(void)
{
    struct cudnn_loaded result = {};
    const struct cublas_functions *cublas = cublas_library(nullptr); /* where there is none, cuDNN looks for itself */
    const void *address_in_cublas = cublas ? reinterpret_cast<const void *>(cublas->create) : nullptr;
    void *handle = open_any(&result.why);
    if (!handle)
        return result;
    open_nvrtc();
    open_part(handle, "graph"); /* cudnnGetVersion calls it */
    const auto version = reinterpret_cast<size_t (*)(void)>(dlsym(handle, "cudnnGetVersion"));
    const size_t number = version ? version() : 0;
    const int major = static_cast<int>(number / 10000), minor = static_cast<int>(number / 100 % 100);
    const int patch = static_cast<int>(number % 100);
    if (number < 90000) {
        cudnn_fail(&result.why, ATTN_UNSUPPORTED,
                   "the library found as libcudnn.so.9 is not cuDNN 9 (version number %zu)", number);
        return result;
    }
    if (!name_cuda_runtime(reinterpret_cast<const void *>(version), address_in_cublas)) {
        cudnn_fail(
            &result.why, ATTN_UNSUPPORTED,
            "cuDNN %d.%d.%d found, but no libcudart.so.%d, which its front end calls (looked in the loader's path, "
            "beside cuBLAS and beside cuDNN; set %s to its path)",
            major, minor, patch, CUDART_VERSION / 1000, cuda_runtime_variable);
        return result;
    }
    result.handle = handle;
    result.number = number;
    snprintf(result.version, sizeof result.version, "%d.%d.%d", major, minor, patch);
    result.usable = true;
    return result;
}

} // namespace

enum attn_status cudnn_fail(struct attn_message *why, enum attn_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    for (char *c = why->text; *c; c++) /* messages of libraries may have several lines */
        if (*c == '\n' || *c == '\r' || *c == '\t')
            *c = ' ';
    for (size_t length = strlen(why->text); length > 0 && why->text[length - 1] == ' '; length--)
        why->text[length - 1] = '\0';
    return status;
}

const struct cudnn_loaded *cudnn_loaded_library(void)
{
    static const struct cudnn_loaded library = open_library();
    return &library;
}

static bool open_parts(void)
{
    for (const char *part : {"ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled"})
        open_part(cudnn_loaded_library()->handle, part);
    return true;
}

void cudnn_open_parts(void)
{
    static const bool opened = open_parts();
    (void)opened;
}

void cudnn_choose_library(const char *path) { snprintf(chosen_path, sizeof chosen_path, "%s", path ? path : ""); }
