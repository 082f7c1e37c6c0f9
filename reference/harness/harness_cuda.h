/* The harness' own CUDA kernels and ceilings behind plain C functions. Every function enqueues on `stream`
 * (cudaStream_t), allocates nothing unless it says so, waits for nothing, and returns a cudaError_t as int. */
#ifndef FABENCH_HARNESS_CUDA_H
#define FABENCH_HARNESS_CUDA_H

#include "kernels/attention.h"
#include "reference/harness/fill.h"
#include "reference/harness/signs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element (b, h, row, col) of tensor number `tensor_id` becomes
 *     gain * quantile_table[random16(seed, tensor_id, index)]
 * rounded to nearest even in `dtype`, index = ((b * heads + h) * len + row) * head_dim + col. random16 and the table
 * are reference/harness/fill.h's, so that the same seed makes the same bits on the CPU and on every device.
 * quantile_table: 65536 floats in device memory. */
int harness_fill(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len,
                 int64_t head_dim, uint64_t seed, uint32_t tensor_id, float gain, const float *quantile_table,
                 void *stream);

/* Writes fill_column_value of fill.h into the first column of every row, rounded likewise. */
int harness_fill_first_column(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads,
                              int64_t len, struct fill_column column, void *stream);

/* Multiplies every element by fill_stretch_factor of fill.h, rounded likewise. */
int harness_stretch(struct attn_tensor tensor, enum attn_dtype dtype, int64_t batch, int64_t heads, int64_t len,
                    int64_t head_dim, uint64_t seed, uint32_t tensor_id, enum fill_stretch kind, void *stream);

/* Rounds a contiguous fp32 [batch, heads, len, head_dim] into a strided tensor. */
int harness_round(const float *from, struct attn_tensor to, enum attn_dtype dtype, int64_t batch, int64_t heads,
                  int64_t len, int64_t head_dim, void *stream);

/* Writes the 32-bit pattern over the whole buffer (a tail of less than 4 bytes gets the pattern's first bytes). */
int harness_pattern(void *buffer, size_t bytes, uint32_t pattern, void *stream);

/* Adds to *mismatches (device memory, zeroed by the caller) the number of 32-bit words that differ from the pattern. */
int harness_count_mismatch(const void *buffer, size_t bytes, uint32_t pattern, unsigned long long *mismatches,
                           void *stream);

/* Changes the sign of every element that `signs` names. element_bytes is 1, 2 or 4. */
int harness_flip(struct attn_tensor tensor, size_t element_bytes, int64_t batch, int64_t heads, int64_t len,
                 int64_t head_dim, const struct column_signs *signs, void *stream);

/* Adds to digest[0] (device memory, both zeroed by the caller) a hash of every element and its position in the tensor,
 * which does not depend on the order of summation, and to digest[1] the number of elements whose bits are all set. The
 * hash is of the elements after a change of the signs in `signs`, and of zeros without their sign. element_bytes is 2
 * or 4. */
int harness_digest(struct attn_tensor tensor, size_t element_bytes, int64_t batch, int64_t heads, int64_t len,
                   int64_t head_dim, const struct column_signs *signs, unsigned long long *digest, void *stream);

/* Memory of which one 32-bit word in each page of page_bytes is read. */
enum { HARNESS_SPANS = 4 };
struct harness_look {
    const void *data[HARNESS_SPANS];
    size_t bytes[HARNESS_SPANS];
    int count, page_bytes;
    uint64_t seed; /* of the places */
};
/* Adds to *sum (device memory) a hash of these words and their places. */
int harness_look(const struct harness_look *, unsigned long long *sum, void *stream);

/* The stream gate: a one-thread kernel that spins until *open (host-mapped memory, volatile) is non-zero, or until
 * limit_ns of %globaltimer have passed; then it writes 1 to *timed_out (host-mapped) so that the caller can tell.
 * The caller must open it; a debugger that stops the host makes it run into its limit. */
int harness_gate(volatile int *open_device, volatile int *timed_out_device, uint64_t limit_ns, void *stream);

/* Reads and writes the whole buffer, which removes everything else from an L2 cache of half its size. */
int harness_flush_l2(void *buffer, size_t bytes, void *stream);

/* The GEMM ceiling: C = A B, 8192^3, 16-bit inputs and output (or fp32 without TF32), fp32 accumulation, through
 * cuBLAS, normal data. create allocates its handle, matrices and workspace on the current device and fills them;
 * NULL with the reason on failure. */
struct harness_gemm;
struct harness_gemm *harness_gemm_create(enum attn_dtype dtype, const float *quantile_table, struct attn_message *why);
enum attn_status harness_gemm_launch(struct harness_gemm *, void *stream, struct attn_message *why);
double harness_gemm_flops(const struct harness_gemm *); /* 2 * 8192^3 */
void harness_gemm_destroy(struct harness_gemm *);

/* The read ceiling: reads the buffer, 16-byte aligned and a multiple of 16 bytes, with all multiprocessors. The sums
 * that it leaves in device memory, harness_read_sums of them at most, are together that of all 32-bit words; those that
 * it has no use for stay as they are. */
int harness_read_sums(int multiprocessors);
int harness_read(const void *buffer, size_t bytes, int multiprocessors, unsigned long long *sums, void *stream);

#ifdef __cplusplus
}
#endif
#endif
