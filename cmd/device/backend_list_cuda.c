/* Which CUDA devices there are, without a context: they may be in use by others. What one of them is, and
 * how fast it copies. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/device/backend.h"
#include "reference/harness/harness_cuda.h"

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

static enum attn_status answered(cudaError_t error, int ordinal, struct attn_message *why)
{
    if (error == cudaSuccess)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "cuda:%d: %s", ordinal, cudaGetErrorString(error));
    return ATTN_ERROR;
}

enum attn_status backend_list_cuda(struct device_info devices[DEVICES_MAX], int *count, struct attn_message *why)
{
    TRY(backend_count_cuda(count, why));
    *count = *count < DEVICES_MAX ? *count : DEVICES_MAX;
    for (int i = 0; i < *count; i++) {
        struct cudaDeviceProp p;
        struct device_info *const device = &devices[i];
        memset(device, 0, sizeof *device);
        TRY(answered(cudaGetDeviceProperties(&p, i), i, why));
        TRY(answered(cudaDeviceGetPCIBusId(device->pci_bus_id, (int)sizeof device->pci_bus_id, i), i, why));
        snprintf(device->name, sizeof device->name, "%s", p.name);
        print_uuid(&p.uuid, device->uuid, sizeof device->uuid);
    }
    return ATTN_OK;
}

/* The highest clock and the memory's bandwidth; 0 where the driver does not tell. */
static void describe_peaks(struct device_info *info, int ordinal)
{
    int clock_khz = 0, memory_khz = 0, bus_bits = 0;
    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, ordinal) == cudaSuccess)
        info->max_sm_clock_mhz = 1e-3 * clock_khz;
    if (cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, ordinal) == cudaSuccess &&
        cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, ordinal) == cudaSuccess)
        info->memory_gb_per_s = 2.0 * memory_khz * 1e3 * bus_bits / 8 * 1e-9; /* two transfers in a clock */
    (void)cudaGetLastError();
}

enum attn_status backend_describe_cuda(struct backend *be, int ordinal, struct attn_message *why)
{
    struct cudaDeviceProp p;
    int driver = 0, runtime = 0;
    TRY(answered(cudaGetDeviceProperties(&p, ordinal), ordinal, why));
    TRY(answered(cudaDriverGetVersion(&driver), ordinal, why));
    TRY(answered(cudaRuntimeGetVersion(&runtime), ordinal, why));
    be->device.platform = ATTN_CUDA;
    be->device.ordinal = ordinal;
    be->device.sm = p.major * 10 + p.minor;
    be->device.multiprocessors = p.multiProcessorCount;
    be->device.threads = 1;
    be->device.smem_per_block_bytes = p.sharedMemPerBlockOptin;
    be->device.l2_bytes = (size_t)p.l2CacheSize;
    be->device.memory_bytes = p.totalGlobalMem;
    be->info.memory_bytes = (double)p.totalGlobalMem;
    be->info.l2_bytes = p.l2CacheSize;
    be->info.multiprocessors = p.multiProcessorCount;
    be->info.compute_capability = be->device.sm;
    snprintf(be->info.name, sizeof be->info.name, "%s", p.name);
    snprintf(be->info.arch, sizeof be->info.arch, "sm_%d", be->device.sm);
    snprintf(be->info.cuda, sizeof be->info.cuda, "%d.%d", runtime / 1000, runtime % 1000 / 10);
    describe_peaks(&be->info, ordinal);
    TRY(answered(cudaDeviceGetPCIBusId(be->info.pci_bus_id, (int)sizeof be->info.pci_bus_id, ordinal), ordinal, why));
    if (driver < runtime)
        log_warn("the driver supports CUDA %d.%d, this build uses %d.%d", driver / 1000, driver % 1000 / 10,
                 runtime / 1000, runtime % 1000 / 10);
    return ATTN_OK;
}

/* The time of a copy in ms; NaN where something failed. */
static double copy_ms(void *to, const void *from, size_t bytes, cudaEvent_t start, cudaEvent_t stop,
                      cudaStream_t stream)
{
    float elapsed_ms = 0;
    if (cudaEventRecord(start, stream) != cudaSuccess ||
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream) != cudaSuccess ||
        cudaEventRecord(stop, stream) != cudaSuccess || cudaEventSynchronize(stop) != cudaSuccess ||
        cudaEventElapsedTime(&elapsed_ms, start, stop) != cudaSuccess)
        return NAN;
    return (double)elapsed_ms;
}

double backend_copy_gbps_cuda(void *stream)
{
    enum { REPEATS = 10 };
    const size_t bytes = (size_t)1 << 30;
    void *from = NULL, *to = NULL;
    cudaEvent_t start = NULL, stop = NULL;
    double best_gbps = NAN;
    if (cudaMalloc(&from, bytes) == cudaSuccess && cudaMalloc(&to, bytes) == cudaSuccess &&
        cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&stop) == cudaSuccess &&
        harness_pattern(from, bytes, 0x3c003c00u, stream) == 0)
        for (int i = 0; i < REPEATS; i++)
            best_gbps = fmax(best_gbps, 2.0 * (double)bytes / copy_ms(to, from, bytes, start, stop, stream) * 1e-6);
    if (start)
        cudaEventDestroy(start);
    if (stop)
        cudaEventDestroy(stop);
    cudaFree(from);
    cudaFree(to);
    cudaGetLastError();
    return best_gbps;
}

bool backend_quantise_room_cuda(struct backend *be, const struct quantiser *q, size_t *workspace_bytes)
{
    (void)be;
    *workspace_bytes = quantise_cuda_workspace_bytes(q->jobs, q->count);
    return quantise_cuda_takes(q->jobs, q->count);
}

int backend_quantise_cuda(const struct quantiser *q, void *stream)
{
    return quantise_cuda(q->jobs, q->count, q->workspace, stream);
}

size_t backend_free_bytes_cuda(struct backend *be)
{
    (void)be;
    size_t available = 0, total = 0;
    return cudaMemGetInfo(&available, &total) == cudaSuccess ? available : 0;
}
