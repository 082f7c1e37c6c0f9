/* Products of 8-bit numbers on sm_90a against plain C, where every order of sums is exact; how many bits such a product
 * keeps of a sum; the rounding of floats to 8 bits against kernels/common/small_floats.h; 2^x of a polynomial. */
#include "tests/gpu/eight_bits.h"
#include "tests/gpu/gpu_check.h"

#include "kernels/common/small_floats.h"

enum { M = EIGHT_BITS_M, MOST = 128 };

static uint64_t counter;

/* Small whole numbers, which both types hold. */
static int number(void) { return (int)(fill_random16(7, 3, counter++) % 9) - 4; }

static uint8_t encoded(enum attn_dtype dtype, float x)
{
    return dtype == ATTN_E4M3 ? attn_to_e4m3(x) : attn_to_e5m2(x);
}

static const char *name_of(enum attn_dtype dtype) { return dtype == ATTN_E4M3 ? "e4m3" : "e5m2"; }

/* c (+)= a b by the device. */
static void multiply(bool from_registers, enum attn_dtype dtype, int n, int k, const uint8_t *a, const uint8_t *b,
                     float *c, bool accumulate)
{
    uint8_t *a_device = device_alloc((size_t)(M * k)), *b_device = device_alloc((size_t)(n * k));
    const size_t c_bytes = (size_t)(M * n) * sizeof *c;
    float *c_device = device_alloc(c_bytes);
    need_cuda(cudaMemcpy(a_device, a, (size_t)(M * k), cudaMemcpyHostToDevice), "upload of A");
    need_cuda(cudaMemcpy(b_device, b, (size_t)(n * k), cudaMemcpyHostToDevice), "upload of B");
    need_cuda(cudaMemcpy(c_device, c, c_bytes, cudaMemcpyHostToDevice), "upload of C");
    need_cuda(eight_bits_multiply(from_registers, dtype, n, k, a_device, b_device, c_device, accumulate), "multiply");
    need_cuda(cudaMemcpy(c, c_device, c_bytes, cudaMemcpyDeviceToHost), "download of C");
    need_cuda(cudaFree(a_device), "cudaFree");
    need_cuda(cudaFree(b_device), "cudaFree");
    need_cuda(cudaFree(c_device), "cudaFree");
}

static void test_multiply(bool from_registers, enum attn_dtype dtype, int n, int k, bool accumulate)
{
    static int a[M * MOST], b[MOST * MOST];
    static float c[M * MOST], before[M * MOST];
    static uint8_t a_bits[M * MOST], b_bits[MOST * MOST];
    int wrong = 0, first = -1;

    for (int i = 0; i < M * k; i++)
        a_bits[i] = encoded(dtype, (float)(a[i] = number()));
    for (int i = 0; i < n * k; i++)
        b_bits[i] = encoded(dtype, (float)(b[i] = number()));
    for (int i = 0; i < M * n; i++)
        c[i] = before[i] = accumulate ? (float)number() : NAN; /* what is not accumulated must not be read */
    multiply(from_registers, dtype, n, k, a_bits, b_bits, c, accumulate);
    for (int m = 0; m < M; m++)
        for (int j = 0; j < n; j++) {
            int sum = accumulate ? (int)before[m * n + j] : 0;
            for (int i = 0; i < k; i++)
                sum += a[m * k + i] * b[j * k + i];
            if (!(c[m * n + j] == (float)sum) && wrong++ == 0)
                first = m * n + j;
        }
    check(wrong == 0, "wgmma m64n%dk32 %s, rows of %d bytes, A in %s%s: %d of %d wrong, the first at [%d, %d]", n,
          name_of(dtype), k, from_registers ? "registers" : "shared memory", accumulate ? ", accumulated" : "", wrong,
          M * n, first / n, first % n);
}

/* a b + c of one element, in an instruction of k = 32: two products, and c. */
static float sum_of(enum attn_dtype dtype, float a0, float b0, float a1, float b1, float c_before)
{
    static uint8_t a[M * 64], b[64 * 64];
    static float c[M * 64];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    a[0] = encoded(dtype, a0), a[1] = encoded(dtype, a1);
    b[0] = encoded(dtype, b0), b[1] = encoded(dtype, b1);
    for (int i = 0; i < M * 64; i++)
        c[i] = c_before;
    multiply(false, dtype, 64, 64, a, b, c, true);
    return c[0];
}

/* The largest i for which a sum with a part of 2^-i beside one of 1 keeps it. Smaller parts must be lost at all i
 * beyond, which says that the sum has so many bits behind the first one. */
static int bits_kept(enum attn_dtype dtype, int what)
{
    int kept = 0;
    for (int i = 1; i <= 24; i++) {
        const float part = ldexpf(1, -i), half = ldexpf(1, -i / 2), other = ldexpf(1, i / 2 - i);
        const float sum = what == 0   ? sum_of(dtype, 0, 0, 0, 0, 1 + part)     /* C alone, A = B = 0 */
                          : what == 1 ? sum_of(dtype, 1, 1, 0, 0, part)         /* a product of 1, and C */
                          : what == 2 ? sum_of(dtype, half, other, 0, 0, 1)     /* C of 1, and a product */
                                      : sum_of(dtype, 1, 1, half, other, 0.0f); /* two products */
        if (sum == 1 + part && kept == i - 1)
            kept = i;
    }
    return kept;
}

/* 1 plus parts that lie below what is kept: 1.75 of the last bit becomes 1 of it where it is cut off, 2 where it is
 * rounded. */
static void test_bits(enum attn_dtype dtype)
{
    static const char *const names[] = {"C alone", "a product of 1 and a small C", "a C of 1 and a small product",
                                        "two products"};
    int kept[4];
    for (int what = 0; what < 4; what++)
        kept[what] = bits_kept(dtype, what);
    for (int what = 0; what < 4; what++)
        check(kept[what] >= 13 && kept[what] <= 23, /* the judge counts on 13: judge_floor_of_8_bits */
              "%s, %s: a sum keeps %d bits behind the first one", name_of(dtype), names[what], kept[what]);
    if (kept[1] <= 20) {
        const float unit = ldexpf(1, -kept[1]), above = sum_of(dtype, 1, 1, 0, 0, 1.75f * unit),
                    below = sum_of(dtype, -1, 1, 0, 0, -1.75f * unit);
        check(above == -below, "%s: 1 + 1.75 of the last bit becomes 1 + %g of it, and the same with the other sign",
              name_of(dtype), (double)((above - 1) / unit));
    }
}

/* Every way that floats round: around each code, halves of its distance to the next one, and what is too large. */
static void test_pack(enum attn_dtype dtype)
{
    enum { CODES = 128, EACH = 8, COUNT = CODES * EACH };
    static float from[4 * COUNT];
    static uint32_t packed[COUNT];
    for (int i = 0; i < 4 * COUNT; i++) {
        const uint8_t code = (uint8_t)(i / 4 / EACH), next = (uint8_t)(code + 1);
        const float x = dtype == ATTN_E4M3 ? attn_from_e4m3(code) : attn_from_e5m2(code);
        const float y = dtype == ATTN_E4M3 ? attn_from_e4m3(next) : attn_from_e5m2(next);
        const float at = (float)(i % (4 * EACH)) / (4 * EACH); /* of the way to the next one */
        from[i] =
            (i & 1 ? -1.0f : 1.0f) * (isfinite(x) && isfinite(y) && code < 127 ? x + at * (y - x) : 1e5f * (1 + at));
    }
    float *from_device = device_alloc(sizeof from);
    uint32_t *packed_device = device_alloc(sizeof packed);
    need_cuda(cudaMemcpy(from_device, from, sizeof from, cudaMemcpyHostToDevice), "upload");
    need_cuda(eight_bits_pack(dtype, from_device, packed_device, COUNT), "pack");
    need_cuda(cudaMemcpy(packed, packed_device, sizeof packed, cudaMemcpyDeviceToHost), "download");
    int wrong = 0;
    for (int i = 0; i < 4 * COUNT; i++)
        wrong += (uint8_t)(packed[i / 4] >> i % 4 * 8) != encoded(dtype, from[i]);
    check(wrong == 0, "pack4 %s: %d of %d wrong", name_of(dtype), wrong, 4 * COUNT);
    need_cuda(cudaFree(from_device), "cudaFree");
    need_cuda(cudaFree(packed_device), "cudaFree");
}

/* 2^x of a polynomial: its error, whole numbers, and what is no number. */
static void test_exp2(void)
{
    enum { COUNT = 1 << 16, ENDS = 4 };
    static float x[COUNT], y[COUNT];
    static const float ends[ENDS] = {-INFINITY, -1e30f, -120.0f, NAN};
    double most = 0;
    for (int i = 0; i < COUNT; i++)
        x[i] = i < ENDS ? ends[i] : -120.0f + (float)i * (128.0f / COUNT); /* steps of 2^-9 */
    float *x_device = device_alloc(sizeof x), *y_device = device_alloc(sizeof y);
    need_cuda(cudaMemcpy(x_device, x, sizeof x, cudaMemcpyHostToDevice), "upload");
    need_cuda(eight_bits_exp2(x_device, y_device, COUNT), "exp2");
    need_cuda(cudaMemcpy(y, y_device, sizeof y, cudaMemcpyDeviceToHost), "download");
    int wrong = 0;
    for (int i = ENDS; i < COUNT; i++) {
        most = fmax(most, fabs(y[i] / exp2((double)x[i]) - 1));
        wrong += x[i] == rintf(x[i]) && y[i] != exp2f(x[i]);
    }
    check(most < 0x1p-13, "exp2_polynomial: relative error %.3g", most);
    check(wrong == 0, "exp2_polynomial: %d whole numbers wrong", wrong);
    check(y[0] == 0x1p-120f && y[1] == y[0] && y[2] == y[0] && isnan(y[3]), "exp2_polynomial: %g %g %g %g at the ends",
          y[0], y[1], y[2], y[3]);
    need_cuda(cudaFree(x_device), "cudaFree");
    need_cuda(cudaFree(y_device), "cudaFree");
}

int main(void)
{
    const struct attn_device device = check_device();
    if (device.sm != 90) {
        printf("skip: compute capability %d.%d, these products are sm_90a code\n", device.sm / 10, device.sm % 10);
        return CHECK_EXIT_SKIPPED;
    }
    for (int dtype = ATTN_E4M3; dtype <= ATTN_E5M2; dtype++) {
        for (int way = 0; way < 16; way++)
            test_multiply(way & 1, (enum attn_dtype)dtype, way & 2 ? 128 : 64, way & 4 ? 128 : 64, way & 8);
        test_bits((enum attn_dtype)dtype);
        test_pack((enum attn_dtype)dtype);
    }
    test_exp2();
    return check_finish();
}
