/* Chooses and opens the device that the options ask for. */
#include "cmd/device/backend.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"

void backend_say_no_device(int driver, int runtime, const char *error, struct attn_message *why)
{
    if (driver == 0)
        snprintf(why->text, sizeof why->text,
                 "no CUDA device: this machine has no NVIDIA driver, or libcuda.so.1 is not where the loader looks");
    else if (driver / 1000 < runtime / 1000)
        snprintf(why->text, sizeof why->text,
                 "no CUDA device: the driver here serves CUDA %d.%d at most, and this program was built with CUDA "
                 "%d.%d; a newer driver, or a build with an older toolkit, is needed",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else
        snprintf(why->text, sizeof why->text, "no CUDA device: %s", error);
}

/* Entries of a folder; 0 where there is none. */
static int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

int backend_driver_gpus(void)
{
    enum { NO_DEVICE = 100 /* CUDA_ERROR_NO_DEVICE */ };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *init = library ? dlsym(library, "cuInit") : NULL;
    void *get_count = library ? dlsym(library, "cuDeviceGetCount") : NULL;
    int (*cu_init)(unsigned) = NULL, (*cu_count)(int *) = NULL, count = 0;
    if (!init || !get_count)
        return 0;
    memcpy(&cu_init, &init, sizeof cu_init);
    memcpy(&cu_count, &get_count, sizeof cu_count);
    const int status = cu_init(0);
    if (status == 0)
        return cu_count(&count) == 0 ? count : 0;
    return status == NO_DEVICE ? 0 : count_entries("/proc/driver/nvidia/gpus");
}

enum attn_status backend_open(struct backend *be, enum device_choice choice, int ordinal, struct attn_message *why)
{
    struct attn_message reason = {""};
    if (choice == DEVICE_CPU)
        return backend_open_cpu(be, why);
#ifdef FABENCH_WITH_CUDA
    const enum attn_status status = backend_open_cuda(be, choice == DEVICE_CUDA ? ordinal : 0, &reason);
    if (status == ATTN_OK)
        return ATTN_OK;
#else
    (void)ordinal;
    snprintf(reason.text, sizeof reason.text, "this build has no CUDA");
#endif
    if (choice == DEVICE_CUDA) {
        *why = reason;
        return ATTN_ERROR;
    }
    const int gpus = backend_driver_gpus();
    if (gpus > 0) {
        snprintf(
            why->text, sizeof why->text,
            "the driver here reports %d GPU%s, and this program cannot use %s: %.250s; --device cpu runs on the CPU, "
            "a build with CUDA for this device on the GPU",
            gpus, gpus == 1 ? "" : "s", gpus == 1 ? "it" : "the first", reason.text);
        return ATTN_ERROR;
    }
    snprintf(why->text, sizeof why->text, "no usable GPU (%.400s): running on the CPU", reason.text);
    return backend_open_cpu(be, why);
}

enum attn_status backend_list(struct device_info devices[DEVICES_MAX], int *count, struct attn_message *why)
{
    *count = 0;
#ifdef FABENCH_WITH_CUDA
    return backend_list_cuda(devices, count, why);
#else
    (void)devices;
    snprintf(why->text, sizeof why->text, "this build has no CUDA");
    return ATTN_ERROR;
#endif
}
