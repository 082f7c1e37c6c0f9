/* Quantising on the device against the oracle's quantiser on the host: all bits of what is stored and of the scales.
 * With the argument `times` its time beside a kernel that copies as many bytes. */
#include "tests/gpu/copy.h"
#include "tests/gpu/gpu_check.h"

#include "reference/harness/harness_cuda.h"
#include "reference/harness/quantise.h"

/* Q, K and V of a problem, quantised on both sides. */
struct both {
    struct attn_problem p;
    struct mirror from[QUANTISED_COUNT], to[QUANTISED_COUNT];
    float *scales[QUANTISED_COUNT], *scales_on_device[QUANTISED_COUNT];
    struct quantise_job host[QUANTISED_COUNT], device[QUANTISED_COUNT];
    void *workspace;
};

static const char *scale_name(const struct attn_problem *p)
{
    return p->quant_scale == ATTN_SCALE_BLOCK ? "block" : p->quant_scale == ATTN_SCALE_HEAD ? "head" : "tensor";
}

/* Values of every size: normal with outliers, zeros of both signs, whole blocks of zeros, and rows that are tiny. */
static void draw(struct mirror *m, enum fill_dist dist, enum fill_tensor id)
{
    static float table[FILL_TABLE_SIZE];
    float gain;
    fill_table(dist, id, table, &gain);
    fill_tensor_host(m->host, m->dtype, m->batch, m->heads, m->len, m->head_dim, 11, id, table, gain);
    fill_stretch_host(m->host, m->dtype, m->batch, m->heads, m->len, m->head_dim, 11, id, fill_stretch_of(dist, id));
    for (int64_t h = 0; dist == FILL_TINY && h < m->heads; h++)
        for (int64_t row = 0; row < m->len; row++)
            for (int64_t c = 0; c < m->head_dim; c++) {
                const int64_t at = h * m->host.stride_head + row * m->host.stride_row + c;
                const float x = fill_load(m->host.data, m->dtype, at);
                const float small =
                    m->dtype == ATTN_BF16 ? 0x1p-100f : 1; /* denormals of bf16; those of fp16 are there */
                fill_store(m->host.data, m->dtype, at, h == 0 ? x * small : c % 5 == 0 ? -0.0f : h == 1 ? 0.0f : x);
            }
}

static struct both both_new(const struct attn_problem *p, enum attn_dtype from, enum fill_dist dist, bool hadamard)
{
    static const enum fill_tensor ids[] = {FILL_Q, FILL_K, FILL_V};
    struct both b = {.p = *p};
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        const int64_t heads = i == QUANTISED_Q ? p->q_heads : p->kv_heads;
        const int64_t len = i == QUANTISED_Q ? p->q_len : p->kv_len;
        const size_t bytes = (size_t)quantise_scales(p, (enum quantised)i) * sizeof(float);
        b.from[i] = mirror_create(p->layout, from, p->batch, heads, len, p->head_dim);
        b.to[i] = mirror_create(p->layout, p->dtype, p->batch, heads, len, p->head_dim);
        draw(&b.from[i], dist, ids[i]);
        mirror_upload(&b.from[i]);
        b.scales[i] = host_alloc(bytes);
        b.scales_on_device[i] = device_alloc(bytes);
        need_cuda(cudaMemset(b.scales_on_device[i], 0xff, bytes), "cudaMemset");
        need_cuda(cudaMemset(b.to[i].device.data, 0xff, b.to[i].bytes), "cudaMemset");
        b.host[i] = (struct quantise_job){.problem = p,
                                          .tensor = (enum quantised)i,
                                          .from = b.from[i].host,
                                          .from_dtype = from,
                                          .to = b.to[i].host,
                                          .scales = b.scales[i],
                                          .is_rotated = hadamard && i != QUANTISED_V,
                                          .seed = 5};
        b.device[i] = b.host[i];
        b.device[i].from = b.from[i].device;
        b.device[i].to = b.to[i].device;
        b.device[i].scales = b.scales_on_device[i];
    }
    b.workspace = device_alloc(quantise_cuda_workspace_bytes(b.device, QUANTISED_COUNT));
    return b;
}

static void both_free(struct both *b)
{
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        mirror_free(&b->from[i]);
        mirror_free(&b->to[i]);
        free(b->scales[i]);
        need_cuda(cudaFree(b->scales_on_device[i]), "cudaFree");
    }
    need_cuda(cudaFree(b->workspace), "cudaFree");
}

static void test_bits(const struct attn_problem *p, enum attn_dtype from, enum fill_dist dist, bool hadamard)
{
    struct both b = both_new(p, from, dist, hadamard);
    int64_t wrong = 0, wrong_scales = 0, first = -1, count = 0;
    need(quantise_cuda_takes(b.device, QUANTISED_COUNT), "quantise_cuda_takes");
    for (int i = 0; i < QUANTISED_COUNT; i++)
        quantise(&b.host[i], 0);
    need_cuda((cudaError_t)quantise_cuda(b.device, QUANTISED_COUNT, b.workspace, NULL), "quantise_cuda");
    need_cuda(cudaDeviceSynchronize(), "quantise_cuda");
    for (int i = 0; i < QUANTISED_COUNT; i++) {
        const size_t scales = (size_t)quantise_scales(p, (enum quantised)i);
        uint8_t *got = host_alloc(b.to[i].bytes);
        float *got_scales = host_alloc(scales * sizeof(float));
        need_cuda(cudaMemcpy(got, b.to[i].device.data, b.to[i].bytes, cudaMemcpyDeviceToHost), "download");
        need_cuda(cudaMemcpy(got_scales, b.scales_on_device[i], scales * sizeof(float), cudaMemcpyDeviceToHost),
                  "download");
        for (size_t at = 0; at < b.to[i].bytes; at++, count++)
            if (got[at] != ((const uint8_t *)b.to[i].host.data)[at] && wrong++ == 0)
                first = count;
        for (size_t at = 0; at < scales; at++)
            wrong_scales += memcmp(&got_scales[at], &b.scales[i][at], sizeof(float)) != 0;
        free(got);
        free(got_scales);
    }
    check(wrong == 0 && wrong_scales == 0,
          "%s from %s%s, d %lld, %lld x %lld rows, heads %lld/%lld, scale %s %lld, dist %d, %s: %lld of %lld wrong, "
          "first "
          "%lld, %lld scales",
          p->dtype == ATTN_E4M3 ? "e4m3" : "e5m2", dtype_text(from), hadamard ? " rotated" : "", (long long)p->head_dim,
          (long long)p->q_len, (long long)p->kv_len, (long long)p->q_heads, (long long)p->kv_heads, scale_name(p),
          (long long)p->scale_block, (int)dist, p->layout == ATTN_BSHD ? "bshd" : "bhsd", (long long)wrong,
          (long long)count, (long long)first, (long long)wrong_scales);
    both_free(&b);
}

static struct attn_problem problem_of(int64_t head_dim, int64_t q_len, int64_t kv_len, int64_t q_heads,
                                      int64_t kv_heads, enum attn_dtype dtype, int64_t scale_block)
{
    struct attn_problem p = {.batch = 2,
                             .q_heads = q_heads,
                             .kv_heads = kv_heads,
                             .q_len = q_len,
                             .kv_len = kv_len,
                             .head_dim = head_dim,
                             .dtype = dtype,
                             .out_dtype = ATTN_BF16,
                             .window_left = -1,
                             .window_right = -1,
                             .scale = 0.125f};
    p.quant_scale = scale_block > 0 ? ATTN_SCALE_BLOCK : scale_block == 0 ? ATTN_SCALE_HEAD : ATTN_SCALE_TENSOR;
    p.scale_block = scale_block > 0 ? scale_block : 0;
    return p;
}

static void test_all_bits(void)
{
    static const int64_t dims[] = {64, 128, 256}, scales[] = {-1, 0, 128, 16, 100, 300};
    static const int64_t lens[][2] = {{1, 127}, {129, 128}, {1000, 1037}};
    static const enum fill_dist dists[] = {FILL_NORMAL, FILL_OUTLIERS, FILL_TINY, FILL_ZEROS};
    int n = 0;
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 6; s++)
            for (int l = 0; l < 3; l++)
                for (int i = 0; i < 8; i++, n++) {
                    struct attn_problem p = problem_of(dims[d], lens[l][0], lens[l][1], 6, n % 3 ? 2 : 6,
                                                       i & 1 ? ATTN_E5M2 : ATTN_E4M3, scales[s]);
                    p.layout = n % 5 < 2 ? ATTN_BHSD : ATTN_BSHD;
                    test_bits(&p, i & 2 ? ATTN_FP16 : ATTN_BF16, dists[n % 7 < 4 ? n % 4 : 0], i & 4);
                }
}

static int by_time(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Medians over rounds of one launch each, with a cold L2. */
static void print_times(int64_t head_dim, int64_t scale_block, bool hadamard)
{
    enum { ROUNDS = 31, LEN = 4096, TOKENS = 16384, HIDDEN = 2048, FLUSH = 160 << 20 };
    static float quantising[ROUNDS], copying[ROUNDS];
    const int64_t heads = HIDDEN / head_dim;
    struct attn_problem p = problem_of(head_dim, LEN, LEN, heads, heads, ATTN_E4M3, scale_block);
    p.batch = TOKENS / LEN;
    p.layout = ATTN_BSHD;
    struct both b = both_new(&p, ATTN_BF16, FILL_NORMAL, hadamard);
    void *flush = device_alloc(FLUSH);
    cudaEvent_t start, stop;
    need_cuda(cudaEventCreate(&start), "cudaEventCreate");
    need_cuda(cudaEventCreate(&stop), "cudaEventCreate");
    for (int i = -3; i < ROUNDS; i++)
        for (int copies = 0; copies < 2; copies++) {
            float *const time = &(copies ? copying : quantising)[i < 0 ? 0 : i];
            need_cuda((cudaError_t)harness_flush_l2(flush, FLUSH, NULL), "harness_flush_l2");
            need_cuda(cudaEventRecord(start, NULL), "cudaEventRecord");
            if (copies)
                for (int t = 0; t < QUANTISED_COUNT; t++)
                    need_cuda(
                        copy_half(b.from[t].device.data, b.to[t].device.data, TOKENS * HIDDEN, scale_block <= 0, NULL),
                        "copy_half");
            else
                need_cuda((cudaError_t)quantise_cuda(b.device, QUANTISED_COUNT, b.workspace, NULL), "quantise_cuda");
            need_cuda(cudaEventRecord(stop, NULL), "cudaEventRecord");
            need_cuda(cudaEventSynchronize(stop), "cudaEventSynchronize");
            need_cuda(cudaEventElapsedTime(time, start, stop), "cudaEventElapsedTime");
        }
    qsort(quantising, ROUNDS, sizeof(float), by_time);
    qsort(copying, ROUNDS, sizeof(float), by_time);
    const float ms = quantising[ROUNDS / 2], copy_ms = copying[ROUNDS / 2];
    printf("d %lld, scale %s%s: %.4f ms, copy %.4f ms, ratio %.3f, %.0f GB/s\n", (long long)head_dim, scale_name(&p),
           hadamard ? ", rotated" : "", (double)ms, (double)copy_ms, (double)(ms / copy_ms),
           3.0 * TOKENS * HIDDEN * (scale_block > 0 ? 3 : 5) / (double)ms * 1e-6);
    need_cuda(cudaEventDestroy(start), "cudaEventDestroy");
    need_cuda(cudaEventDestroy(stop), "cudaEventDestroy");
    need_cuda(cudaFree(flush), "cudaFree");
    both_free(&b);
}

int main(int count, char **arguments)
{
    check_device();
    if (count < 2 || strcmp(arguments[1], "times") != 0) {
        test_all_bits();
        return check_finish();
    }
    for (int64_t head_dim = 64; head_dim <= 256; head_dim *= 2)
        for (int hadamard = 0; hadamard < 2; hadamard++) {
            print_times(head_dim, head_dim == 256 ? 64 : 128, hadamard);
            print_times(head_dim, 0, hadamard);
        }
    return 0;
}
