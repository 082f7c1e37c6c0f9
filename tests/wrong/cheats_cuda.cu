/* CUDA implementations that do less than they are asked to, or in fewer bits, for the rule "executed" of --counters;
 * and one that does all, for comparison. Forward, full attention, head_dim 128, whole tiles of 64 rows and keys,
 * sm_90a.
 *
 * A warpgroup has 64 rows of a head and goes over the keys by 64: S = Q K^T and O += P V by wgmma, P in registers. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdio>

#include "kernels/attention.h"
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/copy_engine.cuh"
#include "kernels/device/memory.cuh"
#include "kernels/device/warp_matrix.cuh"
#include "kernels/device/wgmma.cuh"

using namespace device;

enum { TILE = 64, HEAD_DIM = 128, THREADS = 128, PANEL = TILE * 64, EVERY = 8 };

enum cheat {
    HONEST,
    SKIPS_BLOCKS, /* O of every eighth tile of keys is left out */
    HALF_KEYS,    /* only the first half of the keys */
    HALF_HEADS,   /* odd heads get what the head before them has */
    LAST_ROWS,    /* the last tile of rows gets what the one before has */
    FP8_SCORES,   /* Q and K are rounded to e4m3, S = Q K^T is computed in 8 bits */
    FP16_SUMS     /* the sums of Q K^T are in fp16 */
};

struct arguments {
    struct attn_problem p;
    struct attn_tensors t;
    float scale_log2;
};

template <typename T> __device__ T *row_of(const struct attn_tensor &t, int64_t b, int64_t h, int64_t i)
{
    return (T *)t.data + b * t.stride_batch + h * t.stride_head + i * t.stride_row;
}

/* 64 rows of 128 columns, as two panels. */
template <typename T> __device__ void load_tile(uint16_t *panels, const T *from, int64_t stride)
{
    for (int n = threadIdx.x; n < TILE * 16; n += THREADS) {
        const int row = n / 16, chunk = n % 16;
        *(uint4 *)((char *)panels + chunk / 8 * (PANEL * 2) + swizzle_128b(row, chunk % 8)) =
            *(const uint4 *)(from + row * stride + chunk * 8);
    }
}

/* The same in e4m3, as one panel. */
template <typename T> __device__ void load_tile_e4m3(uint8_t *panel, const T *from, int64_t stride)
{
    for (int n = threadIdx.x; n < TILE * HEAD_DIM; n += THREADS) {
        const int row = n / HEAD_DIM, column = n % HEAD_DIM;
        const __nv_fp8_e4m3 x((float)from[row * stride + column]);
        panel[swizzle_128b(row, column / 16) + column % 16] = x.__x;
    }
}

/* PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async": C[64 x 64] (+)= A B of k = 32 in 8
 * bits. */
__device__ void wgmma_e4m3(float (&c)[32], uint32_t a, uint32_t b, bool accumulate)
{
    asm volatile("{\n.reg .pred p;\n.reg .b64 x, y;\n"
                 "mov.b64 x, {%32, 0x40000040};\nmov.b64 y, {%33, 0x40000040};\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,"
                 "%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, x, y, p, 1, 1;\n}"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                   "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
                   "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]),
                   "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
                   "+f"(c[30]), "+f"(c[31])
                 : "r"(a), "r"(b), "r"((int)accumulate));
}

/* PTX ISA, "mma.m16n8k16": sums in fp16. c: rows g and g + 8, columns 2q and 2q + 1. */
__device__ void mma_in_fp16(uint32_t (&c)[2], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two neighbouring elements in fp16. */
template <typename T> __device__ uint32_t two(const T *from) { return pack2<__half>((float)from[0], (float)from[1]); }

template <typename T>
__device__ void scores_in_fp16(float (&s)[32], const T *q, int64_t q_stride, const T *k, int64_t k_stride)
{
    const int lane = threadIdx.x % 32, g = lane / 4, column = lane % 4 * 2;
    const T *row = q + (threadIdx.x / 32 * 16 + g) * q_stride + column;
    for (int n = 0; n < TILE / 8; n++) {
        uint32_t c[2] = {0, 0};
        const T *key = k + (n * 8 + g) * k_stride + column;
        for (int d = 0; d < HEAD_DIM; d += 16) {
            const uint32_t a[4] = {two(row + d), two(row + 8 * q_stride + d), two(row + d + 8),
                                   two(row + 8 * q_stride + d + 8)};
            mma_in_fp16(c, a, two(key + d), two(key + d + 8));
        }
        for (int i = 0; i < 2; i++) {
            const float2 pair = unpack2<__half>(c[i]);
            s[4 * n + 2 * i] = pair.x;
            s[4 * n + 2 * i + 1] = pair.y;
        }
    }
}

/* Of a row, over the four lanes that have it. */
__device__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

struct __align__(1024) tiles
{
    uint16_t q[2 * PANEL], k[2 * PANEL], v[2 * PANEL];
    uint8_t q8[TILE * HEAD_DIM], k8[TILE * HEAD_DIM];
};

template <typename T, enum cheat CHEAT> __global__ void __launch_bounds__(THREADS) kernel(const struct arguments a)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    tiles &s_tiles = *(tiles *)memory;
    const int64_t h = blockIdx.y, b = blockIdx.z, kv = h / (a.p.q_heads / a.p.kv_heads);
    const int64_t first = (int64_t)blockIdx.x * TILE;
    const int64_t keys = CHEAT == HALF_KEYS ? a.p.kv_len / 2 / TILE * TILE : a.p.kv_len;
    if ((CHEAT == HALF_HEADS && h % 2) || (CHEAT == LAST_ROWS && first + TILE >= a.p.q_len && first > 0))
        return; /* copied by another block */
    const T *q = row_of<T>(a.t.q, b, h, first);
    load_tile(s_tiles.q, q, a.t.q.stride_row);
    if (CHEAT == FP8_SCORES)
        load_tile_e4m3(s_tiles.q8, q, a.t.q.stride_row);
    float o[64], s[32], largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    for (int i = 0; i < 64; i++)
        o[i] = 0;
    for (int64_t key = 0; key < keys; key += TILE) {
        const T *k = row_of<T>(a.t.k, b, kv, key);
        __syncthreads();
        load_tile(s_tiles.k, k, a.t.k.stride_row);
        load_tile(s_tiles.v, row_of<T>(a.t.v, b, kv, key), a.t.v.stride_row);
        if (CHEAT == FP8_SCORES)
            load_tile_e4m3(s_tiles.k8, k, a.t.k.stride_row);
        async_proxy_fence();
        __syncthreads();
        if (CHEAT == FP16_SUMS) {
            scores_in_fp16<T>(s, q, a.t.q.stride_row, k, a.t.k.stride_row);
        } else {
            const uint32_t first_q =
                wgmma_k_major(shared_address(CHEAT == FP8_SCORES ? (void *)s_tiles.q8 : s_tiles.q));
            const uint32_t first_k =
                wgmma_k_major(shared_address(CHEAT == FP8_SCORES ? (void *)s_tiles.k8 : s_tiles.k));
            wgmma_hold(s);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < (CHEAT == FP8_SCORES ? 4 : 8); step++) {
                const uint32_t at = step / 4 * (PANEL * 2 / 16) + step % 4 * 2;
                if (CHEAT == FP8_SCORES)
                    wgmma_e4m3(s, first_q + at, first_k + at, step > 0);
                else
                    wgmma<T, 64>::template shared<WGMMA_K_MAJOR, WGMMA_K_MAJOR>(s, first_q + at, first_k + at,
                                                                                step > 0);
            }
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_hold(s);
        }
        float factor[2];
        for (int r = 0; r < 2; r++) {
            float most = largest[r];
            for (int i = 0; i < 8; i++)
                most = fmaxf(most, fmaxf(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]));
            most = quad_max(most);
            factor[r] = exp2f((largest[r] - most) * a.scale_log2);
            largest[r] = most;
            sum[r] *= factor[r];
        }
        uint32_t p[16];
        for (int i = 0; i < 16; i++) {
            const int r = i % 2;
            const float x = exp2f((s[2 * i] - largest[r]) * a.scale_log2);
            const float y = exp2f((s[2 * i + 1] - largest[r]) * a.scale_log2);
            sum[r] += x + y;
            p[i] = pack2<T>(x, y);
        }
        for (int i = 0; i < 64; i++)
            o[i] *= factor[i / 2 % 2];
        if (CHEAT == SKIPS_BLOCKS && key / TILE % EVERY == EVERY - 1)
            continue;
        const uint32_t first_v = wgmma_mn_major(shared_address(s_tiles.v), PANEL * 2);
        wgmma_hold(o);
        wgmma_hold(p);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE / 16; step++)
            wgmma<T, 128>::template registers<WGMMA_MN_MAJOR>(o, &p[4 * step], first_v + step * (16 * 128 / 16), true);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(o);
    }
    const int lane = threadIdx.x % 32;
    const int64_t copies = CHEAT == HALF_HEADS || (CHEAT == LAST_ROWS && first + 2 * TILE == a.p.q_len) ? 2 : 1;
    for (int r = 0; r < 2; r++) {
        const float total = quad_sum(sum[r]), lse = (largest[r] * a.scale_log2 + log2f(total)) * 0.69314718f;
        for (int64_t copy = 0; copy < copies; copy++) {
            const int64_t head = h + (CHEAT == HALF_HEADS ? copy : 0);
            const int64_t row =
                first + (CHEAT == LAST_ROWS ? copy * TILE : 0) + threadIdx.x / 32 * 16 + lane / 4 + 8 * r;
            T *to = row_of<T>(a.t.o, b, head, row);
            for (int i = 0; i < 16; i++)
                *(uint32_t *)(to + 8 * i + lane % 4 * 2) =
                    pack2<T>(o[4 * i + 2 * r] / total, o[4 * i + 2 * r + 1] / total);
            if (lane % 4 == 0)
                a.t.lse[(b * a.p.q_heads + head) * a.p.q_len + row] = lse;
        }
    }
}

template <enum cheat CHEAT>
static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct arguments a = {*p, *tensors, p->scale * 1.44269504f};
    const dim3 grid((unsigned)(p->q_len / TILE), (unsigned)p->q_heads, (unsigned)p->batch);
    const auto function = p->dtype == ATTN_FP16 ? kernel<__half, CHEAT> : kernel<__nv_bfloat16, CHEAT>;
    cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(tiles));
    if (error == cudaSuccess) {
        function<<<grid, THREADS, sizeof(tiles), (cudaStream_t)run->stream>>>(a);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "launch: %s", cudaGetErrorString(error));
    return ATTN_ERROR;
}

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK)
        return status;
    if (request->mode == ATTN_FWD && (p->dtype == ATTN_FP16 || p->dtype == ATTN_BF16) && p->head_dim == HEAD_DIM &&
        !p->causal && p->q_len % TILE == 0 && p->kv_len % (2 * TILE) == 0 && p->q_heads % 2 == 0 &&
        request->device->sm == 90)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text,
             "takes full forwards of head_dim 128 on sm_90, of whole tiles and even heads");
    return ATTN_UNSUPPORTED;
}

static size_t workspace_bytes(const struct attn_request *) { return 0; }

typedef enum attn_status launch_function(const struct attn_request *, const struct attn_tensors *,
                                         const struct attn_run *, struct attn_message *);

static struct attn_impl row(const char *name, const char *summary, launch_function *function)
{
    struct attn_impl impl = {};
    impl.abi = ATTN_ABI;
    impl.name = name;
    impl.summary = summary;
    impl.platform = ATTN_CUDA;
    impl.accepts = accepts;
    impl.workspace_bytes = workspace_bytes;
    impl.launch = function;
    return impl;
}

extern "C" const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl table[] = {
        row("cheat_none", "computes all", launch<HONEST>),
        row("cheat_blocks", "leaves out every eighth tile of keys", launch<SKIPS_BLOCKS>),
        row("cheat_keys", "reads half of the keys", launch<HALF_KEYS>),
        row("cheat_heads", "copies odd heads", launch<HALF_HEADS>),
        row("cheat_rows", "copies the last rows", launch<LAST_ROWS>),
        row("cheat_fp8", "scores in 8 bits", launch<FP8_SCORES>),
        row("cheat_sums", "sums of scores in fp16", launch<FP16_SUMS>),
        {},
    };
    return abi == ATTN_ABI ? table : NULL;
}
