/* The sm_90a blocks under kernels/device, each alone against plain C: products of wgmma in every arrangement that the
 * kernels use, boxes of TMA inside and over the edge of a tensor, matrices through ldmatrix and stmatrix, a ring of
 * barriers, ordered additions of blocks, ping-pong of warpgroups, 16-bit numbers above a bound, divisions, elected
 * lanes, a barrier that warps reach at different instructions, a value broadcast in a warp. */
#include "tests/gpu/blocks.h"
#include "tests/gpu/gpu_check.h"

#include "kernels/common/launch.h"
#include "kernels/common/small_floats.h"

static uint64_t counter;

/* Small whole numbers: products and sums are exact in every order, so that results must be equal. */
static int number(void) { return (int)(fill_random16(7, 3, counter++) % 17) - 8; }

static uint16_t encoded(enum attn_dtype dtype, int x)
{
    return dtype == ATTN_FP16 ? attn_to_fp16((float)x) : attn_to_bf16((float)x);
}

static void test_multiply(enum blocks_operands operands, enum attn_dtype dtype, int n, bool accumulate)
{
    static const char *const names[BLOCKS_OPERANDS] = {"shared", "shared transposed", "registers",
                                                       "registers transposed"};
    enum { M = BLOCKS_M, K = BLOCKS_K, MAX_N = 128 };
    static int a[M * K], b[MAX_N * K];
    static float c[M * MAX_N], before[M * MAX_N];
    static uint16_t a_bits[M * K], b_bits[MAX_N * K];
    const size_t a_bytes = sizeof a_bits, b_bytes = (size_t)(n * K) * 2, c_bytes = (size_t)(M * n) * sizeof *c;

    for (int i = 0; i < M * K; i++)
        a_bits[i] = encoded(dtype, a[i] = number());
    for (int i = 0; i < n * K; i++)
        b_bits[i] = encoded(dtype, b[i] = number());
    for (int i = 0; i < M * n; i++)
        before[i] = accumulate ? (float)number() : NAN; /* what is not accumulated must not be read */
    uint16_t *a_device = device_alloc(a_bytes), *b_device = device_alloc(b_bytes);
    float *c_device = device_alloc(c_bytes);
    need_cuda(cudaMemcpy(a_device, a_bits, a_bytes, cudaMemcpyHostToDevice), "upload of A");
    need_cuda(cudaMemcpy(b_device, b_bits, b_bytes, cudaMemcpyHostToDevice), "upload of B");
    need_cuda(cudaMemcpy(c_device, before, c_bytes, cudaMemcpyHostToDevice), "upload of C");
    need_cuda(blocks_multiply(operands, dtype, n, a_device, b_device, c_device, accumulate), "blocks_multiply");
    need_cuda(cudaDeviceSynchronize(), "blocks_multiply");
    need_cuda(cudaMemcpy(c, c_device, c_bytes, cudaMemcpyDeviceToHost), "download of C");

    int wrong = 0, first = -1;
    for (int m = 0; m < M; m++)
        for (int j = 0; j < n; j++) {
            int sum = accumulate ? (int)before[m * n + j] : 0;
            for (int k = 0; k < K; k++)
                sum += a[m * K + k] * b[j * K + k];
            if (!(c[m * n + j] == (float)sum) && wrong++ == 0)
                first = m * n + j;
        }
    check(wrong == 0, "wgmma m64n%dk16 %s, %s%s: %d of %d wrong, the first at [%d, %d]", n, dtype_text(dtype),
          names[operands], accumulate ? ", accumulated" : "", wrong, M * n, first / n, first % n);
    need_cuda(cudaFree(a_device), "cudaFree");
    need_cuda(cudaFree(b_device), "cudaFree");
    need_cuda(cudaFree(c_device), "cudaFree");
}

/* A box that begins at `row` of a tensor of `len` rows: its rows arrive, zeros beyond, and nothing is written
 * beyond. */
static void test_copy_box(int64_t len, int row, int rows)
{
    const struct attn_problem problem = {.batch = 2, .head_dim = 128, .dtype = ATTN_FP16};
    const int64_t heads = 3, elements = problem.batch * len * heads * problem.head_dim;
    const size_t bytes = (size_t)elements * 2;
    const int at[4] = {64, row, 2, 1};
    uint16_t *host = host_alloc(bytes), *copied = host_alloc(bytes);
    uint16_t *in = device_alloc(bytes), *out = device_alloc(bytes);
    int *poisoned = device_alloc(sizeof *poisoned), left = -1;
    struct attn_message why = {""};
    CUtensorMap from, to;

    for (int64_t i = 0; i < elements; i++)
        host[i] = encoded(ATTN_FP16, number() | 1); /* never zero, so that zeros come from the edge alone */
    need_cuda(cudaMemcpy(in, host, bytes, cudaMemcpyHostToDevice), "upload");
    need_cuda(cudaMemset(out, 0xff, bytes), "cudaMemset");
    need_cuda(cudaMemset(poisoned, 0, sizeof *poisoned), "cudaMemset");
    /* [batch, len, heads, head_dim] in memory */
    const int64_t row_stride = heads * problem.head_dim;
    const struct attn_tensor source = {in, len * row_stride, problem.head_dim, row_stride},
                             target = {out, len * row_stride, problem.head_dim, row_stride};
    need(tensor_map_encode(&from, "from", &source, &problem, heads, len, rows, &why) == ATTN_OK, why.text);
    need(tensor_map_encode(&to, "to", &target, &problem, heads, len, rows, &why) == ATTN_OK, why.text);
    need_cuda(blocks_copy_box(&from, &to, rows, at, poisoned), "blocks_copy_box");
    need_cuda(cudaDeviceSynchronize(), "blocks_copy_box");
    need_cuda(cudaMemcpy(copied, out, bytes, cudaMemcpyDeviceToHost), "download");
    need_cuda(cudaMemcpy(&left, poisoned, sizeof left, cudaMemcpyDeviceToHost), "download");

    int64_t wrong = 0;
    for (int64_t i = 0; i < elements; i++) {
        const int64_t column = i % problem.head_dim, head = i / problem.head_dim % heads, r = i / row_stride % len,
                      batch = i / (len * row_stride);
        const bool is_inside =
            column >= at[0] && column < at[0] + 64 && head == at[2] && batch == at[3] && r >= row && r < row + rows;
        wrong += copied[i] != (is_inside ? host[i] : 0xffff);
    }
    check(wrong == 0, "tma box of %d rows at row %d of %lld: %lld elements wrong", rows, row, (long long)len,
          (long long)wrong);
    check(left == (64 - rows) * 64,
          "tma box of %d rows at row %d of %lld: %d elements of shared memory untouched, not %d", rows, row,
          (long long)len, left, (64 - rows) * 64);
    need_cuda(cudaFree(in), "cudaFree");
    need_cuda(cudaFree(out), "cudaFree");
    need_cuda(cudaFree(poisoned), "cudaFree");
    free(host);
    free(copied);
}

static void test_refused_maps(void)
{
    const struct attn_problem problem = {.batch = 2, .head_dim = 64, .dtype = ATTN_BF16};
    uint16_t *data = device_alloc(1 << 20);
    const struct attn_tensor odd = {data, 64 * 64, 64, 68}, expanded = {data, 0, 64 * 64, 64};
    struct attn_message why = {""};
    CUtensorMap map;

    check(tensor_map_encode(&map, "k", &odd, &problem, 2, 16, 64, &why) == ATTN_UNSUPPORTED &&
              strstr(why.text, "tensor k") && strstr(why.text, "row stride of 136 bytes"),
          "a row stride of 136 bytes is refused: %s", why.text);
    check(tensor_map_encode(&map, "v", &expanded, &problem, 2, 16, 64, &why) == ATTN_UNSUPPORTED &&
              strstr(why.text, "batch stride of 0 bytes"),
          "a batch stride of 0 is refused: %s", why.text);
    check(tensor_map_encode(&map, "q", &(struct attn_tensor){data, 16 * 64 * 2, 64, 128}, &problem, 2, 16, 512, &why) ==
                  ATTN_ERROR &&
              strstr(why.text, "512 rows a box"),
          "a box of 512 rows is named: %s", why.text);
    need_cuda(cudaFree(data), "cudaFree");
}

static void test_move_matrix(void)
{
    uint16_t in[256], out[256] = {0};
    uint16_t *device = device_alloc(2 * sizeof in);
    for (int i = 0; i < 256; i++)
        in[i] = (uint16_t)(i * 257 + 1);
    need_cuda(cudaMemcpy(device, in, sizeof in, cudaMemcpyHostToDevice), "upload");
    need_cuda(blocks_move_matrix(device, device + 256), "blocks_move_matrix");
    need_cuda(cudaDeviceSynchronize(), "blocks_move_matrix");
    need_cuda(cudaMemcpy(out, device + 256, sizeof out, cudaMemcpyDeviceToHost), "download");
    check(memcmp(in, out, sizeof in) == 0, "a 16 x 16 matrix through ldmatrix and stmatrix");
    need_cuda(cudaFree(device), "cudaFree");
}

static void test_ring(bool bulk, bool one_lane)
{
    enum { COUNT = 32 * 1000 };
    int *in = host_alloc(COUNT * sizeof *in), *out = host_alloc(COUNT * sizeof *out);
    int *device = device_alloc(2 * COUNT * sizeof *device);
    for (int i = 0; i < COUNT; i++)
        in[i] = i * 3 + 1;
    need_cuda(cudaMemcpy(device, in, COUNT * sizeof *in, cudaMemcpyHostToDevice), "upload");
    need_cuda(cudaMemset(device + COUNT, 0, COUNT * sizeof *device), "clear");
    need_cuda(blocks_ring(bulk, one_lane, device, device + COUNT, COUNT), "blocks_ring");
    need_cuda(cudaDeviceSynchronize(), "blocks_ring");
    need_cuda(cudaMemcpy(out, device + COUNT, COUNT * sizeof *out, cudaMemcpyDeviceToHost), "download");
    check(memcmp(in, out, COUNT * sizeof *in) == 0,
          "%d numbers through a ring of two slots, filled by %s, given back by %s", COUNT,
          bulk ? "the copy engine" : "lanes", one_lane ? "one lane" : "all lanes");
    need_cuda(cudaFree(device), "cudaFree");
    free(in);
    free(out);
}

/* The sums are those of the order that the semaphores fix, to the last bit; another order gives other sums. */
static void test_add_in_order(int blocks, int tiles)
{
    const int64_t count = (int64_t)tiles * 2 * 64, semaphores = (tiles + 1) / 2 * 2;
    float *in = host_alloc((size_t)(blocks * count) * sizeof *in), *sums = host_alloc((size_t)count * sizeof *sums);
    float *device = device_alloc((size_t)((blocks + 1) * count) * sizeof *device + (size_t)semaphores * sizeof(int));
    float *device_sums = device + blocks * count;
    int64_t wrong = 0, by_order = 0;

    for (int64_t i = 0; i < blocks * count; i++)
        in[i] = ldexpf((float)number() + 0.37f, (int)(i % 7) - 3);
    need_cuda(cudaMemcpy(device, in, (size_t)(blocks * count) * sizeof *in, cudaMemcpyHostToDevice), "upload");
    need_cuda(cudaMemset(device_sums, 0, (size_t)count * sizeof *sums + (size_t)semaphores * sizeof(int)), "clear");
    need_cuda(blocks_add_in_order(blocks, tiles, device, device_sums, (int *)(device_sums + count)),
              "blocks_add_in_order");
    need_cuda(cudaDeviceSynchronize(), "blocks_add_in_order");
    need_cuda(cudaMemcpy(sums, device_sums, (size_t)count * sizeof *sums, cudaMemcpyDeviceToHost), "download");
    for (int64_t i = 0; i < count; i++) {
        const int64_t tile = i / (2 * 64);
        float forward = 0, backward = 0;
        for (int64_t b = 0; b < blocks; b++)
            forward += b * tiles / blocks <= tile ? in[b * count + i] : 0;
        for (int64_t b = blocks - 1; b >= 0; b--)
            backward += b * tiles / blocks <= tile ? in[b * count + i] : 0;
        wrong += sums[i] != forward;
        by_order += forward != backward;
    }
    check(wrong == 0, "%d blocks add to %d tiles in order: %lld of %lld sums wrong", blocks, tiles, (long long)wrong,
          (long long)count);
    check(blocks < 8 || by_order > count / 4, "the order of %d additions shows in %lld of %lld sums", blocks,
          (long long)by_order, (long long)count);
    need_cuda(cudaFree(device), "cudaFree");
    free(in);
    free(sums);
}

/* Each step multiplies by an odd number, so that a later step does not remove the error of an earlier one. */
static void test_ping_pong(int warpgroups)
{
    enum { N = BLOCKS_WARPGROUP };
    const int steps = 1000 * warpgroups;
    const size_t order_bytes = (size_t)steps * sizeof(int);
    uint32_t x[2][N], last[N], *device = device_alloc(sizeof last + order_bytes);
    int *order = host_alloc(order_bytes), wrong = 0, misplaced = 0;

    need_cuda(cudaMemset(device, 0xff, sizeof last + order_bytes), "cudaMemset");
    need_cuda(blocks_ping_pong(warpgroups, steps, device, (int *)(device + N)), "blocks_ping_pong");
    need_cuda(cudaDeviceSynchronize(), "blocks_ping_pong");
    need_cuda(cudaMemcpy(last, device, sizeof last, cudaMemcpyDeviceToHost), "download");
    need_cuda(cudaMemcpy(order, device + N, order_bytes, cudaMemcpyDeviceToHost), "download");
    for (int t = 0; t < N; t++)
        x[0][t] = (uint32_t)t;
    for (int step = 0; step < steps; step++) {
        misplaced += order[step] != step % warpgroups;
        for (int t = 0; t < N; t++)
            x[(step + 1) % 2][t] = 3 * x[step % 2][(t + BLOCKS_AWAY) % N] + (uint32_t)(step + step % warpgroups);
    }
    for (int t = 0; t < N; t++)
        wrong += last[t] != x[steps % 2][t];
    check(wrong == 0 && misplaced == 0, "%d steps of %d warpgroups: %d of %d numbers wrong, %d steps out of order",
          steps, warpgroups, wrong, N, misplaced);
    need_cuda(cudaFree(device), "cudaFree");
    free(order);
}

/* The bound is 2^8. One number of each row, at each place in turn, is at the bound, beyond it or any at or above 0; the
 * others are 0, at the bound, within it or any. */
static void test_any_exceeds(enum attn_dtype dtype, int pairs)
{
    enum { ONES = 6, OTHERS = 4, TIMES = 8 };
    const uint16_t largest = encoded(dtype, 256), infinity = dtype == ATTN_FP16 ? 0x7c00 : 0x7f80;
    const int numbers = 2 * pairs, rows = numbers * ONES * OTHERS * TIMES;
    const size_t bytes = (size_t)(rows * numbers) * sizeof(uint16_t);
    uint16_t *p = host_alloc(bytes), *device = device_alloc(bytes + (size_t)rows);
    bool *passed = host_alloc((size_t)rows), *passed_device = (bool *)(device + rows * numbers);

    for (int i = 0; i < rows * numbers; i++) {
        const uint16_t any = fill_random16(7, 3, counter++) & 0x7fff, within = any % (largest + 1),
                       beyond = largest + 1;
        const uint16_t ones[ONES] = {largest, beyond, infinity, infinity + 1, 0x7fff, any};
        const uint16_t others[OTHERS] = {0, largest, within, any};
        const int row = i / numbers, kind = row / numbers;
        p[i] = i % numbers == row % numbers ? ones[kind % ONES] : others[kind / ONES % OTHERS];
    }
    need_cuda(cudaMemcpy(device, p, bytes, cudaMemcpyHostToDevice), "upload");
    for (int way = 0; way < 2; way++) {
        const uint32_t headroom = way == 0 ? (0x7fffu - largest) * 0x10001u : 0; /* 0: nothing passes */
        int wrong = 0, passing = 0;
        need_cuda(blocks_any_exceeds(pairs, (const uint32_t *)device, headroom, passed_device, rows),
                  "blocks_any_exceeds");
        need_cuda(cudaDeviceSynchronize(), "blocks_any_exceeds");
        need_cuda(cudaMemcpy(passed, passed_device, (size_t)rows, cudaMemcpyDeviceToHost), "download");
        for (int row = 0; row < rows; row++) {
            bool passes = false;
            for (int i = 0; i < numbers && headroom != 0; i++)
                passes |= !(fill_load(p, dtype, row * numbers + i) <= 256); /* a NaN passes */
            passing += passes;
            wrong += passed[row] != passes;
        }
        check(wrong == 0, "%d of %d rows of %d pairs of %s pass with headroom 0x%08x: %d wrong", passing, rows, pairs,
              dtype_text(dtype), headroom, wrong);
    }
    need_cuda(cudaFree(device), "cudaFree");
    free(p);
    free(passed);
}

/* Dividends where the quotient changes: multiples of the divisor and their neighbours, up to the largest. */
static void test_divide(int divisor)
{
    enum { COUNT = 4096 };
    static int dividends[COUNT], quotients[COUNT];
    int *device = device_alloc(2 * sizeof dividends), wrong = 0, first = -1;

    for (int i = 0; i < COUNT; i++) {
        const int64_t high = fill_random16(7, 3, counter++) & 0x7fff, any = high << 16 | fill_random16(7, 3, counter++),
                      multiple = (i % 2 ? any : INT32_MAX) / divisor * divisor, near = multiple + i / 2 % 3 - 1;
        dividends[i] = (int)(i < 8 ? i : near < 0 ? 0 : near > INT32_MAX ? INT32_MAX : near);
    }
    need_cuda(cudaMemcpy(device, dividends, sizeof dividends, cudaMemcpyHostToDevice), "upload");
    need_cuda(cudaMemset(device + COUNT, 0xff, sizeof quotients), "cudaMemset");
    need_cuda(blocks_divide(divisor, device, device + COUNT, COUNT), "blocks_divide");
    need_cuda(cudaDeviceSynchronize(), "blocks_divide");
    need_cuda(cudaMemcpy(quotients, device + COUNT, sizeof quotients, cudaMemcpyDeviceToHost), "download");
    for (int i = 0; i < COUNT; i++)
        if (quotients[i] != dividends[i] / divisor && wrong++ == 0)
            first = i;
    check(wrong == 0, "divisions by %d: %d of %d wrong, the first of %d", divisor, wrong, COUNT,
          first < 0 ? 0 : dividends[first]);
    need_cuda(cudaFree(device), "cudaFree");
}

static void test_elect(void)
{
    int elected[BLOCKS_ELECTORS], *device = device_alloc(sizeof elected), both = 0, others = 0;

    need_cuda(blocks_elect(device), "blocks_elect");
    need_cuda(cudaDeviceSynchronize(), "blocks_elect");
    need_cuda(cudaMemcpy(elected, device, sizeof elected, cudaMemcpyDeviceToHost), "download");
    for (int warp = 0; warp < BLOCKS_ELECTORS; warp += 32) {
        int of_warp = 0;
        for (int lane = 0; lane < 32; lane++) {
            of_warp += elected[warp + lane] == 3;
            others += elected[warp + lane] != 3 && elected[warp + lane] != 0;
        }
        both += of_warp == 1;
    }
    check(both == BLOCKS_ELECTORS / 32 && others == 0, "one thread is elected twice in %d of %d warps, %d others once",
          both, BLOCKS_ELECTORS / 32, others);
    need_cuda(cudaFree(device), "cudaFree");
}

static void test_bar_sync_unaligned(void)
{
    int numbers[BLOCKS_MEETINGS][32], *in = device_alloc(sizeof numbers), *out = device_alloc(sizeof numbers),
                                      wrong = 0;

    for (int i = 0; i < BLOCKS_MEETINGS * 32; i++)
        numbers[i / 32][i % 32] = 1000 + i;
    need_cuda(cudaMemcpy(in, numbers, sizeof numbers, cudaMemcpyHostToDevice), "upload");
    need_cuda(blocks_bar_sync_unaligned(in, out), "blocks_bar_sync_unaligned");
    need_cuda(cudaDeviceSynchronize(), "blocks_bar_sync_unaligned");
    need_cuda(cudaMemcpy(numbers, out, sizeof numbers, cudaMemcpyDeviceToHost), "download");
    for (int i = 0; i < BLOCKS_MEETINGS * 32; i++)
        wrong += numbers[i / 32][i % 32] != 1000 + i / 32 * 32 + 31 - i % 32;
    check(wrong == 0, "what one warp leaves for another at a barrier: %d of %d numbers are others", wrong,
          BLOCKS_MEETINGS * 32);
    need_cuda(cudaFree(in), "cudaFree");
    need_cuda(cudaFree(out), "cudaFree");
}

static void test_keep_uniform(void)
{
    unsigned numbers[BLOCKS_ELECTORS], *device = device_alloc(sizeof numbers);
    int wrong = 0;

    for (unsigned i = 0; i < BLOCKS_ELECTORS; i++)
        numbers[i] = 1000 + i;
    need_cuda(cudaMemcpy(device, numbers, sizeof numbers, cudaMemcpyHostToDevice), "upload");
    need_cuda(blocks_keep_uniform(device), "blocks_keep_uniform");
    need_cuda(cudaDeviceSynchronize(), "blocks_keep_uniform");
    need_cuda(cudaMemcpy(numbers, device, sizeof numbers, cudaMemcpyDeviceToHost), "download");
    for (unsigned i = 0; i < BLOCKS_ELECTORS; i++)
        wrong += numbers[i] != 1000 + i / 32 * 32;
    check(wrong == 0, "the number of a warp's first lane: %d of %d lanes have another", wrong, BLOCKS_ELECTORS);
    need_cuda(cudaFree(device), "cudaFree");
}

int main(void)
{
    const struct attn_device device = check_device();
    if (device.sm != 90) {
        printf("skip: compute capability %d.%d, these blocks are sm_90a code\n", device.sm / 10, device.sm % 10);
        return CHECK_EXIT_SKIPPED;
    }
    for (int operands = 0; operands < BLOCKS_OPERANDS; operands++)
        for (int dtype = ATTN_FP16; dtype <= ATTN_BF16; dtype++)
            for (int n = 64; n <= 128; n *= 2)
                for (int accumulate = 0; accumulate < 2; accumulate++)
                    test_multiply((enum blocks_operands)operands, (enum attn_dtype)dtype, n, accumulate);
    test_copy_box(256, 128, 64);
    test_copy_box(150, 128, 64); /* over the end */
    test_copy_box(150, 134, 16); /* up to the end */
    test_copy_box(16, 64, 64);   /* all beyond it */
    test_refused_maps();
    test_move_matrix();
    for (int way = 0; way < 4; way++)
        test_ring(way / 2, way % 2);
    test_add_in_order(1, 1);
    test_add_in_order(2, 5);
    test_add_in_order(64, 200);
    test_add_in_order(6000, 21); /* more than run at a time */
    for (int warpgroups = 2; warpgroups <= 4; warpgroups++)
        test_ping_pong(warpgroups);
    for (int way = 0; way < 4; way++)
        test_any_exceeds(way / 2 ? ATTN_BF16 : ATTN_FP16, way % 2 ? 32 : 16);
    static const int divisors[] = {
        1,        2,   3,    5,     6,     7,     12,    16,      31,        33,      127,
        128,      641, 1000, 16383, 65535, 65536, 65537, 1 << 20, 715827883, 1 << 30, INT32_MAX - 1,
        INT32_MAX};
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++)
        test_divide(divisors[i]);
    test_elect();
    test_bar_sync_unaligned();
    test_keep_uniform();
    return check_finish();
}
