/* The 8-bit forward keeps the mass of many small weights: one key has a weight of 2^14 and 1,023 keys one of 1 each, so
 * that these are 5.9 % of the sum. O is that share, as V is 1 for them and 0 for the large key. P is 2^-6 for each,
 * which e4m3 holds; with an offset of its exponent that is 4 lower, or a row max that lags, it would be 0. */
#include "tests/gpu/gpu_check.h"

#include "kernels/common/small_floats.h"

enum { ROWS = 128, KEYS = 1024 };

static const struct attn_impl *fused_sm90(void)
{
    const struct attn_impl *const *all = attn_registry();
    while (*all && strcmp((*all)->name, "fused_sm90") != 0)
        all++;
    return *all;
}

static struct mirror zeros(int64_t len, int64_t head_dim, enum attn_dtype dtype)
{
    struct mirror m = mirror_create(ATTN_BHSD, dtype, 1, 1, len, head_dim);
    memset(m.host.data, 0, m.bytes);
    return m;
}

static void put(const struct mirror *m, int64_t row, int64_t column, float value)
{
    fill_store(m->host.data, m->dtype, row * m->host.stride_row + column, value);
}

static void test_tail(const struct attn_impl *impl, const struct attn_device *device, int64_t head_dim, int64_t large,
                      enum attn_dtype dtype, bool is_fast)
{
    const float one = 1, ln_2 = 0.69314718f;
    const struct attn_problem p = {.batch = 1,
                                   .q_heads = 1,
                                   .kv_heads = 1,
                                   .q_len = ROWS,
                                   .kv_len = KEYS,
                                   .head_dim = head_dim,
                                   .dtype = dtype,
                                   .out_dtype = ATTN_BF16,
                                   .layout = ATTN_BHSD,
                                   .window_left = -1,
                                   .window_right = -1,
                                   .scale = ln_2,
                                   .quant_scale = ATTN_SCALE_TENSOR};
    const struct attn_request request = {
        .problem = &p, .device = device, .mode = ATTN_FWD, .fast = is_fast, .outputs = ATTN_O | ATTN_LSE};
    struct mirror q = zeros(ROWS, head_dim, dtype), k = zeros(KEYS, head_dim, dtype), v = zeros(KEYS, head_dim, dtype);
    struct mirror o = zeros(ROWS, head_dim, ATTN_BF16), lse = zeros(ROWS, 1, ATTN_FP32);
    struct attn_message why = {""};
    float *const scale = device_alloc(sizeof one);
    for (int64_t row = 0; row < ROWS; row++)
        put(&q, row, 0, 1);
    put(&k, large, 0, 14);
    for (int64_t row = 0; row < KEYS; row++)
        for (int64_t c = 0; c < head_dim && row != large; c++)
            put(&v, row, c, 1);
    mirror_upload(&q);
    mirror_upload(&k);
    mirror_upload(&v);
    need_cuda(cudaMemcpy(scale, &one, sizeof one, cudaMemcpyHostToDevice), "upload");
    const struct attn_tensors tensors = {.q = q.device,
                                         .k = k.device,
                                         .v = v.device,
                                         .o = o.device,
                                         .lse = lse.device.data,
                                         .scale_q = scale,
                                         .scale_k = scale,
                                         .scale_v = scale};
    need(impl->accepts(&request, &why) == ATTN_OK, why.text);
    const size_t bytes = impl->workspace_bytes(&request);
    struct attn_run run = {.workspace = device_alloc(bytes), .workspace_bytes = bytes};
    need(impl->launch(&request, &tensors, &run, &why) == ATTN_OK, why.text);
    need_cuda(cudaDeviceSynchronize(), "launch");
    mirror_download(&o);
    mirror_download(&lse);
    const double sum = 16384 + KEYS - 1, want = (KEYS - 1) / sum;
    double worst = 0, worst_lse = 0;
    for (int64_t row = 0; row < ROWS; row++) {
        worst_lse = fmax(worst_lse, fabs((double)mirror_at(&lse, 0, 0, row, 0) - log(sum)));
        for (int64_t c = 0; c < head_dim; c++)
            worst = fmax(worst, fabs((double)mirror_at(&o, 0, 0, row, c) / want - 1));
    }
    check(worst < 0.006 && worst_lse < 1e-3, /* the rounding of O to bf16 is 0.004 */
          "d%d %s%s, large key %d: O off by %.2g of it, LSE by %.2g", (int)head_dim,
          dtype == ATTN_E4M3 ? "e4m3" : "e5m2", is_fast ? " fast" : "", (int)large, worst, worst_lse);
    mirror_free(&q);
    mirror_free(&k);
    mirror_free(&v);
    mirror_free(&o);
    mirror_free(&lse);
    need_cuda(cudaFree(scale), "cudaFree");
    need_cuda(cudaFree(run.workspace), "cudaFree");
}

int main(void)
{
    static const int64_t larges[] = {0, 127, 128, 500, KEYS - 1};
    const struct attn_device device = check_device();
    const struct attn_impl *const impl = fused_sm90();
    if (!impl || device.sm != 90) {
        printf("skip: no 8-bit forward for this device\n");
        return CHECK_EXIT_SKIPPED;
    }
    for (int64_t head_dim = 64; head_dim <= 128; head_dim *= 2)
        for (int i = 0; i < 5; i++)
            for (int kind = 0; kind < 4; kind++)
                test_tail(impl, &device, head_dim, larges[i], kind & 1 ? ATTN_E5M2 : ATTN_E4M3, kind & 2);
    return check_finish();
}
