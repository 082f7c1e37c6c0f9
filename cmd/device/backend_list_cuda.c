/* Which CUDA devices there are. No context is made: they may be in use by others. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "cmd/device/backend.h"

enum attn_status backend_count_cuda(int *count, struct attn_message *why)
{
    const cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count > 0)
        return ATTN_OK;
    int driver = 0;
    cudaDriverGetVersion(&driver); /* 0 where there is none */
    backend_say_no_device(driver, CUDART_VERSION, error == cudaSuccess ? "none visible" : cudaGetErrorString(error),
                          why);
    cudaGetLastError();
    return ATTN_ERROR;
}

/* As nvidia-smi writes it. */
static void print_uuid(const cudaUUID_t *uuid, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "GPU");
    for (int i = 0; i < 16; i++) {
        const char *const dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(text + length, size - length, "%s%02x", dash, (unsigned char)uuid->bytes[i]);
    }
}

enum attn_status backend_list_cuda(struct device_info devices[DEVICES_MAX], int *count, struct attn_message *why)
{
    TRY(backend_count_cuda(count, why));
    *count = *count < DEVICES_MAX ? *count : DEVICES_MAX;
    for (int i = 0; i < *count; i++) {
        struct cudaDeviceProp p;
        struct device_info *const device = &devices[i];
        memset(device, 0, sizeof *device);
        cudaError_t error = cudaGetDeviceProperties(&p, i);
        if (error == cudaSuccess)
            error = cudaDeviceGetPCIBusId(device->pci_bus_id, (int)sizeof device->pci_bus_id, i);
        if (error != cudaSuccess) {
            snprintf(why->text, sizeof why->text, "cuda:%d: %s", i, cudaGetErrorString(error));
            return ATTN_ERROR;
        }
        snprintf(device->name, sizeof device->name, "%s", p.name);
        print_uuid(&p.uuid, device->uuid, sizeof device->uuid);
    }
    return ATTN_OK;
}
