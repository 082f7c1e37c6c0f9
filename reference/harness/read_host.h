/* The read ceiling of the CPU: threads that only read. Beside it a forward against a cache is judged, whose time is
 * that of reading the keys. The one of CUDA devices is harness_read of harness_cuda.h. */
#ifndef FABENCH_READ_HOST_H
#define FABENCH_READ_HOST_H

#include <stdint.h>

/* The sum of `count` words, modulo 2^64; each thread reads one part, from its beginning to its end. The sum is what
 * keeps the compiler from leaving out the reading. */
uint64_t harness_read_host(const uint64_t *words, int64_t count, int threads);

#endif
