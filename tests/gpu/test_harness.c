/* The harness' own CUDA code against plain C: fill, round, pattern, hash, gate, flush, reading,
 * block comparison, GEMM. */
#include "tests/gpu/gpu_check.h"

#include <time.h>

#include "reference/compare.h"
#include "reference/harness/harness_cuda.h"

static uint32_t random32(void)
{
    static uint64_t counter;
    counter++;
    return fill_random16(99, 1, counter * 2) << 16 | fill_random16(99, 1, counter * 2 + 1);
}

static void need_launch(int error, const char *what)
{
    need_cuda((cudaError_t)error, what);
    need_cuda(cudaDeviceSynchronize(), what);
}

/* ---- fill and round --------------------------------------------------------------------------------------------- */

static void test_fill(void)
{
    static const enum fill_dist dists[] = {FILL_NORMAL, FILL_UNIFORM, FILL_SHARP,    FILL_HUGE,     FILL_TINY,
                                           FILL_RISING, FILL_FALLING, FILL_OUTLIERS, FILL_CHANNELS, FILL_DRIFT};
    float *table = host_alloc(FILL_TABLE_SIZE * sizeof *table);
    float *device_table = device_alloc(FILL_TABLE_SIZE * sizeof *table);
    for (int dtype = ATTN_FP32; dtype <= ATTN_BF16; dtype++)
        for (int i = 0; i < 20; i++) { /* Q and K of each */
            const enum fill_tensor id = i % 2 ? FILL_K : FILL_Q;
            const enum fill_dist dist = dists[i / 2];
            const struct fill_column column = fill_first_column(&(struct fill_spec){.dist = dist}, id, 29);
            const enum fill_stretch stretch = fill_stretch_of(dist, id);
            float gain;
            fill_table(dist, id, table, &gain);
            need_cuda(cudaMemcpy(device_table, table, FILL_TABLE_SIZE * sizeof *table, cudaMemcpyHostToDevice),
                      "upload");
            /* Odd extents, and a gap of 3 elements behind every row that must stay as it is. */
            struct mirror m = mirror_strided((enum attn_dtype)dtype, 3, 5, 37, 29, 37 * 5 * 32, 32, 5 * 32);
            memset(m.host.data, 0xA5, m.bytes);
            mirror_upload(&m);
            need_launch(harness_fill(m.device, m.dtype, 3, 5, 37, 29, 1234567, id, gain, device_table, NULL),
                        "harness_fill");
            if (stretch != FILL_STRETCH_NONE)
                need_launch(harness_stretch(m.device, m.dtype, 3, 5, 37, 29, 1234567, id, stretch, NULL),
                            "harness_stretch");
            if (column.kind != FILL_FIRST_DRAWN)
                need_launch(harness_fill_first_column(m.device, m.dtype, 3, 5, 37, column, NULL),
                            "harness_fill_first_column");
            void *want = host_alloc(m.bytes);
            memset(want, 0xA5, m.bytes);
            const struct attn_tensor x = {want, 37 * 5 * 32, 32, 5 * 32};
            fill_tensor_host(x, m.dtype, 3, 5, 37, 29, 1234567, id, table, gain);
            fill_stretch_host(x, m.dtype, 3, 5, 37, 29, 1234567, id, stretch);
            fill_first_column_host(x, m.dtype, 3, 5, 37, column);
            mirror_download(&m);
            check(memcmp(want, m.host.data, m.bytes) == 0, "fill %s dist %d: device and host bit-equal",
                  dtype_text(m.dtype), i);
            free(want);
            mirror_free(&m);
        }
    free(table);
    need_cuda(cudaFree(device_table), "cudaFree");
}

/* Random bits of floats whose exponents reach denormals, ties and overflow of both 16-bit types. */
static float wild_float(int i)
{
    static const float special[] = {0,          -0.0f,     1,         INFINITY, -INFINITY,  65504,
                                    65519.9f,   65520,     0x1p-24f,  0x1p-25f, 0x1.8p-25f, 0x1.002p0f,
                                    0x1.006p0f, 0x1.01p0f, 0x1.03p0f, 3.4e38f};
    if (i < (int)(sizeof special / sizeof special[0]))
        return special[i];
    uint32_t bits = random32();
    if (i % 2)
        bits = (bits & 0x807fffffu) | (uint32_t)(127 - 26 + (int)(random32() % 44)) << 23;
    if (i % 3 == 0)
        bits &= 0xfffff000u; /* halfway cases of fp16 are frequent here, of bf16 after the next line */
    if (i % 6 == 0)
        bits &= 0xffff8000u;
    float value;
    memcpy(&value, &bits, sizeof value);
    return isfinite(value) ? value : 1;
}

static void test_round(void)
{
    for (int dtype = ATTN_FP32; dtype <= ATTN_BF16; dtype++) {
        struct mirror m = mirror_create(ATTN_BSHD, (enum attn_dtype)dtype, 2, 3, 41, 24);
        const int count = 2 * 3 * 41 * 24;
        float *from = host_alloc((size_t)count * sizeof *from);
        float *device_from = device_alloc((size_t)count * sizeof *from);
        for (int i = 0; i < count; i++)
            from[i] = wild_float(i);
        need_cuda(cudaMemcpy(device_from, from, (size_t)count * sizeof *from, cudaMemcpyHostToDevice), "upload");
        need_launch(harness_round(device_from, m.device, m.dtype, 2, 3, 41, 24, NULL), "harness_round");
        mirror_download(&m);
        int wrong = 0;
        for (int i = 0; i < count; i++) {
            float want[1]; /* room for any dtype */
            fill_store(want, m.dtype, 0, from[i]);
            const int col = i % 24, row = i / 24 % 41, h = i / 24 / 41 % 3, b = i / 24 / 41 / 3;
            const float got = mirror_at(&m, b, h, row, col), expected = fill_load(want, m.dtype, 0);
            wrong += memcmp(&got, &expected, sizeof got) != 0;
        }
        check(wrong == 0, "round %s: %d of %d elements differ from the host's", dtype_text(m.dtype), wrong, count);
        free(from);
        need_cuda(cudaFree(device_from), "cudaFree");
        mirror_free(&m);
    }
}

/* ---- patterns, hash, flush -------------------------------------------------------------------------------------- */

static unsigned long long read_counter(const unsigned long long *counter)
{
    unsigned long long value;
    need_cuda(cudaMemcpy(&value, counter, sizeof value, cudaMemcpyDeviceToHost), "download");
    return value;
}

static unsigned long long mismatches(const void *buffer, size_t bytes, uint32_t pattern, unsigned long long *counter)
{
    need_cuda(cudaMemset(counter, 0, sizeof *counter), "cudaMemset");
    need_launch(harness_count_mismatch(buffer, bytes, pattern, counter, NULL), "harness_count_mismatch");
    return read_counter(counter);
}

static void test_pattern(unsigned long long *counter)
{
    enum { SPACE = 40000, PATTERN = 0x7fc1a2b3 };
    static const size_t sizes[] = {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 1026, 30003};
    unsigned char *host = host_alloc(SPACE), *device = device_alloc(SPACE);
    int wrong_bytes = 0, wrong_counts = 0, cases = 0;
    for (size_t offset = 0; offset <= 20; offset += offset < 4 ? 1 : 4)
        for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++, cases++) {
            need_cuda(cudaMemset(device, 0xEE, SPACE), "cudaMemset");
            need_launch(harness_pattern(device + 64 + offset, sizes[i], PATTERN, NULL), "harness_pattern");
            need_cuda(cudaMemcpy(host, device, SPACE, cudaMemcpyDeviceToHost), "download");
            for (size_t j = 0; j < SPACE; j++) {
                const bool inside = j >= 64 + offset && j < 64 + offset + sizes[i];
                const uint32_t want = inside ? (uint32_t)PATTERN >> (8 * ((j - 64 - offset) % 4)) & 255u : 0xEEu;
                wrong_bytes += host[j] != want;
            }
            wrong_counts += mismatches(device + 64 + offset, sizes[i], PATTERN, counter) != 0;
            /* Two bytes of one word, the last byte: one or two words. */
            const size_t last = sizes[i] - 1, first = last / 4 > 3 ? 4 : last;
            host[64 + offset + first] ^= 1;
            host[64 + offset + last] ^= 128;
            need_cuda(cudaMemcpy(device, host, SPACE, cudaMemcpyHostToDevice), "upload");
            wrong_counts +=
                mismatches(device + 64 + offset, sizes[i], PATTERN, counter) != (first / 4 == last / 4 ? 1u : 2u);
        }
    check(wrong_bytes == 0, "pattern: %d wrong bytes in %d cases of offset and size", wrong_bytes, cases);
    check(wrong_counts == 0, "count_mismatch: %d wrong counts in %d cases", wrong_counts, cases);
    free(host);
    need_cuda(cudaFree(device), "cudaFree");
}

/* The digest under a change of signs; *all_set may be NULL. */
static unsigned long long signed_hash_of(const struct mirror *m, const struct column_signs *signs,
                                         unsigned long long *counters, unsigned long long *all_set)
{
    need_cuda(cudaMemset(counters, 0, 2 * sizeof *counters), "cudaMemset");
    need_launch(harness_digest(m->device, attn_dtype_bytes(m->dtype), m->batch, m->heads, m->len, m->head_dim, signs,
                               counters, NULL),
                "harness_digest");
    if (all_set)
        *all_set = read_counter(counters + 1);
    return read_counter(counters);
}

static unsigned long long hash_of(const struct mirror *m, unsigned long long *counters)
{
    static const struct column_signs none;
    return signed_hash_of(m, &none, counters, NULL);
}

static void flip_bit(const struct mirror *m, size_t byte, int bit)
{
    ((unsigned char *)m->host.data)[byte] ^= (unsigned char)(1 << bit);
    mirror_upload(m);
}

static void test_hash(unsigned long long *counter)
{
    for (int dtype = ATTN_FP32; dtype <= ATTN_FP16; dtype++) {
        struct mirror m = mirror_create(ATTN_BSHD, (enum attn_dtype)dtype, 2, 3, 50, 20);
        struct mirror other = mirror_create(ATTN_BHSD, (enum attn_dtype)dtype, 2, 3, 50, 20);
        float *table = host_alloc(FILL_TABLE_SIZE * sizeof *table), gain;
        fill_table(FILL_NORMAL, FILL_Q, table, &gain);
        fill_tensor_host(m.host, m.dtype, 2, 3, 50, 20, 5, FILL_Q, table, gain);
        fill_tensor_host(other.host, m.dtype, 2, 3, 50, 20, 5, FILL_Q, table, gain);
        mirror_upload(&m);
        mirror_upload(&other);
        const unsigned long long base = hash_of(&m, counter);
        check(base == hash_of(&m, counter) && base == hash_of(&other, counter),
              "hash %s: the same again and in the other layout", dtype_text(m.dtype));
        int unseen = 0;
        const int bits = (int)attn_dtype_bytes(m.dtype) * 8;
        for (int i = 0; i < 200; i++) {
            const size_t byte = random32() % m.bytes;
            flip_bit(&m, byte, i % 8);
            unseen += hash_of(&m, counter) == base;
            flip_bit(&m, byte, i % 8);
        }
        unsigned char *data = m.host.data, saved[4];
        const size_t size = (size_t)bits / 8, from = 3 * size, to = 700 * size;
        memcpy(saved, data + from, size);
        memcpy(data + from, data + to, size);
        memcpy(data + to, saved, size);
        mirror_upload(&m);
        unseen += memcmp(data + from, data + to, size) != 0 && hash_of(&m, counter) == base;
        check(unseen == 0, "hash %s: %d of 200 flipped bits and one swap unseen", dtype_text(m.dtype), unseen);
        free(table);
        mirror_free(&m);
        mirror_free(&other);
    }
}

/* Signs of columns: the device against the host, element by element; the digest without the change is the digest before
 * it, whatever the signs of zeros; elements whose bits are all set are counted. Head dims with whole vectors and
 * without. */
static void test_signs(unsigned long long *counters)
{
    static const int head_dims[] = {8, 20, 64, 256};
    for (int n = 0; n < 4 * 3; n++) {
        const int head_dim = head_dims[n % 4];
        struct mirror m = mirror_create(n % 2 ? ATTN_BSHD : ATTN_BHSD, (enum attn_dtype)(n / 4), 2, 3, 50, head_dim);
        const size_t size = attn_dtype_bytes(m.dtype);
        float *table = host_alloc(FILL_TABLE_SIZE * sizeof *table), gain;
        struct column_signs signs = {.negated = {0}};
        for (int i = 0; i < SIGNS_COLUMNS / 32; i++)
            signs.negated[i] = random32();
        fill_table(FILL_NORMAL, FILL_Q, table, &gain);
        fill_tensor_host(m.host, m.dtype, 2, 3, 50, head_dim, 5, FILL_Q, table, gain);
        memset((char *)m.host.data + 7 * size, 0, size);
        memset((char *)m.host.data + 11 * size, 0xff, size);
        mirror_upload(&m);
        unsigned long long all_set = 0;
        const unsigned long long before =
            signed_hash_of(&m, &(struct column_signs){.negated = {0}}, counters, &all_set);
        need_launch(harness_flip(m.device, size, 2, 3, 50, head_dim, &signs, NULL), "harness_flip");
        const unsigned long long after = signed_hash_of(&m, &signs, counters, NULL);
        unsigned char *got = host_alloc(m.bytes);
        need_cuda(cudaMemcpy(got, m.device.data, m.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
        int wrong = 0;
        for (size_t at = 0; at < m.bytes / size; at++) {
            const uint32_t mask = column_is_negated(&signs, (int64_t)at % head_dim) ? sign_bit(size) : 0;
            uint32_t want = 0, have = 0;
            memcpy(&want, (const char *)m.host.data + at * size, size);
            memcpy(&have, got + at * size, size);
            wrong += (want ^ mask) != have;
        }
        check(wrong == 0, "signs %s d%d: %d elements differ from the host", dtype_text(m.dtype), head_dim, wrong);
        check(before == after, "signs %s d%d: the digest without the change is the one before", dtype_text(m.dtype),
              head_dim);
        check(after != hash_of(&m, counters), "signs %s d%d: the digest sees the change", dtype_text(m.dtype),
              head_dim);
        check(all_set == 1, "signs %s d%d: %llu elements with all bits set, 1 expected", dtype_text(m.dtype), head_dim,
              all_set);
        free(got);
        free(table);
        mirror_free(&m);
    }
}

/* One word of each page is looked at: of a change in one word about one seed in page_bytes / 4 tells. */
static void test_look(unsigned long long *counter)
{
    enum { WORDS = 5000, PAGE_BYTES = 64, TRIES = 400 };
    uint32_t *device = device_alloc(WORDS * sizeof *device);
    struct harness_look look = {
        .data = {device, device + 1003}, .bytes = {1003 * 4, (WORDS - 1003) * 4}, .count = 2, .page_bytes = PAGE_BYTES};
    int seen = 0, unsteady = 0;
    need_cuda(cudaMemset(device, 0x5a, WORDS * sizeof *device), "cudaMemset");
    for (int i = 0; i < TRIES; i++) {
        unsigned long long sums[3];
        const uint32_t at = random32() % WORDS;
        look.seed = (uint64_t)random32() << 32 | random32();
        for (int n = 0; n < 3; n++) {
            if (n)
                need_cuda(cudaMemset(device + at, n == 1 ? 0x5a : 0x5b, 4), "cudaMemset");
            need_cuda(cudaMemset(counter, 0, sizeof *counter), "cudaMemset");
            need_launch(harness_look(&look, counter, NULL), "harness_look");
            sums[n] = read_counter(counter);
        }
        need_cuda(cudaMemset(device + at, 0x5a, 4), "cudaMemset");
        unsteady += sums[0] != sums[1];
        seen += sums[2] != sums[0];
    }
    check(unsteady == 0, "look: %d of %d sums of the same words differ", unsteady, TRIES);
    check(seen > TRIES / 40 && seen < TRIES / 8, "look: %d of %d changed words seen, about one in 16 expected", seen,
          TRIES);
    need_cuda(cudaFree(device), "cudaFree");
}

static void test_flush(void)
{
    const size_t bytes = (64 << 20) + 4;
    const int64_t words = (int64_t)(bytes / 4);
    uint32_t *host = host_alloc(bytes), *device = device_alloc(bytes);
    need_cuda(cudaMemset(device, 0x11, bytes), "cudaMemset");
    need_launch(harness_flush_l2(device, bytes, NULL), "harness_flush_l2");
    need_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "download");
    int64_t untouched = 0;
    for (int64_t i = 0; i < words; i++)
        untouched += host[i] == 0x11111111u;
    check(untouched == 0, "flush: %lld of %lld words not rewritten", (long long)untouched, (long long)words);
    free(host);
    need_cuda(cudaFree(device), "cudaFree");
}

/* ---- gate ------------------------------------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_gate(void)
{
    volatile int *flags = NULL;
    int *device_flags = NULL;
    cudaStream_t stream;
    need_cuda(cudaHostAlloc((void **)&flags, 2 * sizeof *flags, cudaHostAllocMapped), "cudaHostAlloc");
    need_cuda(cudaHostGetDevicePointer((void **)&device_flags, (void *)flags, 0), "cudaHostGetDevicePointer");
    need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    flags[0] = flags[1] = 0;
    need_cuda((cudaError_t)harness_gate(&device_flags[0], &device_flags[1], 20000000000ull, stream), "harness_gate");
    const double start = now_s();
    while (now_s() - start < 0.05) {
    }
    const bool held = cudaStreamQuery(stream) == cudaErrorNotReady;
    flags[0] = 1;
    need_cuda(cudaStreamSynchronize(stream), "opened gate");
    check(held && flags[1] == 0, "gate: holds the stream for 50 ms, then opens");
    check(now_s() - start < 10, "gate: opened by the host, not by its limit");
    flags[0] = 0;
    const double again = now_s();
    need_cuda((cudaError_t)harness_gate(&device_flags[0], &device_flags[1], 30000000ull, stream), "harness_gate");
    need_cuda(cudaStreamSynchronize(stream), "gate that nobody opens");
    const double took = now_s() - again;
    check(flags[1] == 1 && took >= 0.029 && took < 5, "gate: gives up after its limit of 30 ms (%.1f ms) and says so",
          1e3 * took);
    need_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
    need_cuda(cudaFreeHost((void *)flags), "cudaFreeHost");
}

/* ---- compare ---------------------------------------------------------------------------------------------------- */

static bool near(double a, double b, double relative)
{
    return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= relative * fmax(fabs(a), fabs(b));
}

static bool same_block(const struct compare_block *a, const struct compare_block *b)
{
    return near(a->err2, b->err2, 1e-12) && near(a->ref2, b->ref2, 1e-12) && near(a->abs2, b->abs2, 1e-12) &&
           fabs(a->err_dot - b->err_dot) <= 1e-12 * sqrt(a->err2 * a->ref2) &&
           fabs(a->round_dot - b->round_dot) <= 1e-12 * a->ref2 && a->max_abs_err == b->max_abs_err &&
           a->max_abs_x == b->max_abs_x && a->max_abs_product == b->max_abs_product &&
           near(a->max_used, b->max_used, 1e-6) && a->max_used_at == b->max_used_at && a->bad == b->bad &&
           a->first_bad_row == b->first_bad_row && a->last_bad_row == b->last_bad_row && a->nonfinite == b->nonfinite &&
           a->first_nonfinite_at == b->first_nonfinite_at;
}

/* Reference, product and output of random data: small errors, some wrong elements, everything that is not finite on
 * one side or both, infinities that may be, rows of zeros whose bound is 0. */
static void make_compare_case(struct mirror *x, float *ref, float *abs_product, int64_t count)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    const int64_t d = x->head_dim;
    for (int64_t i = 0; i < count; i++) {
        const bool zero_row = i / d % 17 == 3;
        ref[i] = zero_row ? 0 : (float)random32() / 4294967296.0f - 0.5f;
        abs_product[i] = zero_row ? 0 : 2 * fabsf(ref[i]) + 0.1f;
        const uint32_t die = random32() % 400;
        float value = zero_row ? 0 : ref[i] * (1 + 0.004f * ((float)(random32() % 1000) / 500 - 1));
        if (die == 0)
            value += 0.5f;
        if (die == 1)
            value = odd[random32() % 3];
        if (die == 2)
            ref[i] = odd[random32() % 3];
        if (die == 3)
            value = ref[i] = odd[random32() % 3];
        if (die == 4) {
            value = INFINITY;
            ref[i] = -INFINITY;
        }
        if (die == 5) { /* around the numbers that round to infinity, of either sign */
            ref[i] = (float)compare_overflow(x->dtype) * (0.99f + (float)(random32() % 100) * 1e-4f);
            value = random32() % 4 == 0 ? -INFINITY : INFINITY;
        }
        const int64_t row = i / d, b = row / x->len / x->heads, h = row / x->len % x->heads;
        fill_store(x->host.data, x->dtype,
                   b * x->host.stride_batch + h * x->host.stride_head + row % x->len * x->host.stride_row + i % d,
                   value);
    }
}

static void test_compare_case(enum attn_dtype dtype, enum attn_layout layout, int64_t len, int64_t d, bool absolute,
                              bool with_abs)
{
    struct mirror x = mirror_create(layout, dtype, 2, 3, len, d);
    const int64_t count = 2 * 3 * len * d, blocks = 2 * 3 * compare_blocks_per_head(len);
    const size_t bytes = (size_t)count * sizeof(float), block_bytes = (size_t)blocks * sizeof(struct compare_block);
    float *ref = host_alloc(bytes), *abs_product = host_alloc(bytes);
    make_compare_case(&x, ref, abs_product, count);
    mirror_upload(&x);
    float *device_ref = device_alloc(bytes), *device_abs = device_alloc(bytes);
    need_cuda(cudaMemcpy(device_ref, ref, bytes, cudaMemcpyHostToDevice), "upload");
    need_cuda(cudaMemcpy(device_abs, abs_product, bytes, cudaMemcpyHostToDevice), "upload");
    struct compare_job job = {x.host,
                              dtype,
                              ref,
                              with_abs ? abs_product : NULL,
                              2,
                              3,
                              len,
                              d,
                              .rtol = 0.01,
                              .atol_abs = 0.0002,
                              .atol_element = 0.0003};
    *(absolute ? &job.atol_absolute : &job.atol_rms) = absolute ? 1e-3 : 0.05;
    struct compare_block *want = host_alloc(block_bytes), *got = host_alloc(block_bytes),
                         *again = host_alloc(block_bytes), *device_blocks = device_alloc(block_bytes);
    compare_blocks_cpu(&job, want, 2);
    job.x = x.device;
    job.ref = device_ref;
    job.abs = with_abs ? device_abs : NULL;
    struct compare_block *results[] = {got, again};
    for (int i = 0; i < 2; i++) {
        need_launch(compare_blocks_cuda(&job, device_blocks, NULL), "compare_blocks_cuda");
        need_cuda(cudaMemcpy(results[i], device_blocks, block_bytes, cudaMemcpyDeviceToHost), "download");
    }
    int64_t wrong = 0, bad = 0, nonfinite = 0;
    for (int64_t i = 0; i < blocks; i++) {
        wrong += !same_block(&want[i], &got[i]);
        bad += want[i].bad;
        nonfinite += want[i].nonfinite;
    }
    check(wrong == 0 && memcmp(got, again, block_bytes) == 0,
          "compare %s %s len %lld d %lld %s%s: %lld of %lld blocks differ from the host's (%lld bad, %lld non-finite)",
          dtype_text(dtype), layout == ATTN_BSHD ? "bshd" : "bhsd", (long long)len, (long long)d,
          absolute ? "absolute" : "rms", with_abs ? " abs" : "", (long long)wrong, (long long)blocks, (long long)bad,
          (long long)nonfinite);
    free(ref);
    free(abs_product);
    free(want);
    free(got);
    free(again);
    need_cuda(cudaFree(device_ref), "cudaFree");
    need_cuda(cudaFree(device_abs), "cudaFree");
    need_cuda(cudaFree(device_blocks), "cudaFree");
    mirror_free(&x);
}

static void test_compare(void)
{
    test_compare_case(ATTN_BF16, ATTN_BSHD, 300, 128, false, true);
    test_compare_case(ATTN_FP16, ATTN_BHSD, 65, 64, false, true);
    test_compare_case(ATTN_FP32, ATTN_BSHD, 63, 33, false, true);
    test_compare_case(ATTN_FP16, ATTN_BSHD, 1, 8, false, false);
    test_compare_case(ATTN_FP32, ATTN_BHSD, 1000, 1, true, false);
    test_compare_case(ATTN_BF16, ATTN_BHSD, 129, 72, true, true);
    test_compare_case(ATTN_FP16, ATTN_BHSD, 65, 33, true, true);
}

/* ---- GEMM ------------------------------------------------------------------------------------------------------- */

static void test_gemm(void)
{
    float *table = host_alloc(FILL_TABLE_SIZE * sizeof *table), gain;
    float *device_table = device_alloc(FILL_TABLE_SIZE * sizeof *table);
    fill_table(FILL_NORMAL, FILL_GEMM, table, &gain);
    need_cuda(cudaMemcpy(device_table, table, FILL_TABLE_SIZE * sizeof *table, cudaMemcpyHostToDevice), "upload");
    cudaEvent_t from, to;
    need_cuda(cudaEventCreate(&from), "cudaEventCreate");
    need_cuda(cudaEventCreate(&to), "cudaEventCreate");
    for (int dtype = ATTN_FP32; dtype <= ATTN_BF16; dtype++) {
        struct attn_message why = {""};
        struct harness_gemm *gemm = harness_gemm_create((enum attn_dtype)dtype, device_table, &why);
        if (!check(gemm != NULL, "gemm %s: created %s", dtype_text((enum attn_dtype)dtype), why.text))
            continue;
        enum attn_status status = harness_gemm_launch(gemm, NULL, &why);
        const int launches = dtype == ATTN_FP32 ? 2 : 20;
        need_cuda(cudaEventRecord(from, NULL), "cudaEventRecord");
        for (int i = 0; i < launches && status == ATTN_OK; i++)
            status = harness_gemm_launch(gemm, NULL, &why);
        need_cuda(cudaEventRecord(to, NULL), "cudaEventRecord");
        need_cuda(cudaEventSynchronize(to), "cudaEventSynchronize");
        float ms = 0;
        need_cuda(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime");
        const double tflops = harness_gemm_flops(gemm) * launches / ms * 1e-9;
        check(status == ATTN_OK && harness_gemm_flops(gemm) == 2.0 * 8192 * 8192 * 8192 && tflops > 0.1 && tflops < 1e4,
              "gemm %s: %.1f TFLOPS %s", dtype_text((enum attn_dtype)dtype), tflops, why.text);
        harness_gemm_destroy(gemm);
    }
    need_cuda(cudaEventDestroy(from), "cudaEventDestroy");
    need_cuda(cudaEventDestroy(to), "cudaEventDestroy");
    free(table);
    need_cuda(cudaFree(device_table), "cudaFree");
}

/* ---- the read ceiling ------------------------------------------------------------------------------------------- */

/* The sum that the kernel leaves, of a buffer with any number of tiles, is that of every word. */
static void test_read(void)
{
    static const size_t sizes[] = {16, 64, 4096, 16384, 16384 + 16, 3 * 16384 - 64, (64 << 20) + 48};
    int multiprocessors = 0;
    need_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "multiprocessors");
    const int count = harness_read_sums(multiprocessors);
    const size_t most = sizes[sizeof sizes / sizeof sizes[0] - 1],
                 sum_bytes = (size_t)count * sizeof(unsigned long long);
    uint32_t *host = host_alloc(most), *device = device_alloc(most);
    unsigned long long *sums = host_alloc(sum_bytes), *device_sums = device_alloc(sum_bytes);
    for (size_t i = 0; i < most / 4; i++)
        host[i] = random32();
    need_cuda(cudaMemcpy(device, host, most, cudaMemcpyHostToDevice), "upload");
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        unsigned long long want = 0, got = 0;
        for (size_t i = 0; i < sizes[n] / 4; i++)
            want += host[i];
        need_cuda(cudaMemset(device_sums, 0, sum_bytes), "cudaMemset");
        need_launch(harness_read(device, sizes[n], multiprocessors, device_sums, NULL), "harness_read");
        need_cuda(cudaMemcpy(sums, device_sums, sum_bytes, cudaMemcpyDeviceToHost), "download");
        for (int i = 0; i < count; i++)
            got += sums[i];
        check(got == want, "read: %zu bytes: sum %llx, want %llx", sizes[n], got, want);
    }
    free(host);
    free(sums);
    need_cuda(cudaFree(device), "cudaFree");
    need_cuda(cudaFree(device_sums), "cudaFree");
}

int main(void)
{
    (void)check_device();
    unsigned long long *counter = device_alloc(2 * sizeof *counter);
    test_fill();
    test_round();
    test_pattern(counter);
    test_hash(counter);
    test_signs(counter);
    test_look(counter);
    test_flush();
    test_gate();
    test_read();
    test_compare();
    test_gemm();
    need_cuda(cudaFree(counter), "cudaFree");
    need_cuda(cudaDeviceSynchronize(), "the end");
    return check_finish();
}
