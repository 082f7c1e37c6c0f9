/* Inputs on the CPU. Of a cache: the values of a contiguous one at the places that the table names, NaN everywhere
 * else, also after changes of signs; and its .npy files, which have no pages. With strides that leave room between the
 * rows: where packed Q, K and V lie, what is between the rows, and that a write there is found. Of 8 bits: what is
 * stored times its scale is near the value that was drawn, a dump brings both back, signs of columns change and change
 * back, and a launch that writes a scale is seen. */
#include "tests/unit/unit_help.h"

#include "cmd/base/npy.h"
#include "cmd/device/inputs.h"
#include "cmd/device/tensor_dump.h"
#include "tests/dense.h"

enum { BATCH = 3, HEADS = 2, LEN = 21, DIM = 16 };
static const int32_t used[BATCH] = {21, 1, 8};

/* A problem with caches; page_size < 0: fixed lengths without a cache, whose values are those to be found. */
static struct plan_item cached_item(enum attn_dtype dtype, enum attn_layout layout, int64_t page_size,
                                    struct problem_arrays *arrays)
{
    struct plan_item item = {.problem = DENSE(BATCH, 4, HEADS, 1, LEN, DIM, dtype, layout, true, -1, -1, 0.25f, 0),
                             .mode = ATTN_FWD,
                             .dist = FILL_NORMAL,
                             .seed = 3};
    struct reason why;
    memset(arrays, 0, sizeof *arrays);
    if (page_size < 0)
        return item;
    item.problem.page_size = page_size;
    assert_true(problem_set_cache(&item.problem, arrays, "list:21:1:8", 3, &why));
    item.arrays = arrays;
    return item;
}

static float value_at(const struct attn_problem *p, const struct attn_tensor *t, int64_t element)
{
    return fill_load(t->data, p->dtype, element);
}

/* The number of elements that are not NaN. */
static int64_t count_values(const struct plan_item *item, const struct tensor_set *set, enum problem_tensor tensor)
{
    const struct buffer *buffer = &set->buffers[tensor];
    int64_t count = 0;
    for (size_t i = 0; i < buffer->bytes / attn_dtype_bytes(item->problem.dtype); i++)
        count += !isnan(fill_load(buffer->data, item->problem.dtype, (int64_t)i));
    return count;
}

static void assert_cache(const struct plan_item *item, const struct tensor_set *set, const struct plan_item *plain,
                         const struct tensor_set *all)
{
    for (enum problem_tensor tensor = TENSOR_K; tensor <= TENSOR_V; tensor++) {
        const struct attn_tensor x = tensor_of(&item->problem, &set->tensors, tensor);
        const struct attn_tensor y = tensor_of(&plain->problem, &all->tensors, tensor);
        for (int64_t b = 0; b < BATCH; b++)
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t i = 0; i < used[b]; i++)
                    for (int64_t c = 0; c < DIM; c++)
                        assert_true(value_at(&item->problem, &x,
                                             attn_key_offset(&item->problem, &set->tensors, x, b, h, i) + c) ==
                                    value_at(&plain->problem, &y,
                                             b * y.stride_batch + h * y.stride_head + i * y.stride_row + c));
        assert_int_equal(count_values(item, set, tensor), (21 + 1 + 8) * HEADS * DIM);
    }
}

static void caches_hold_the_values_and_nan(void **state)
{
    static const int64_t pages[] = {0, 8, 64};
    const struct input_signs none = {.elements = {0}};
    const struct input_signs columns = {.qk = {.negated = {0x5u}}, .v = {.negated = {0xffu}}};
    struct input_signs elements = columns; /* whose places in pages are others */
    elements.elements[TENSOR_Q] = 11;
    elements.elements[TENSOR_K] = 7;
    elements.elements[TENSOR_V] = UINT64_MAX;
    struct attn_message why = {""};
    struct backend be;
    (void)state;
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    for (int n = 0; n < 3 * 3 * 2; n++) {
        const enum attn_dtype dtype = (enum attn_dtype)(n / 6);
        const enum attn_layout layout = n % 2 ? ATTN_BSHD : ATTN_BHSD;
        struct problem_arrays arrays, no_arrays;
        const struct plan_item item = cached_item(dtype, layout, pages[n / 2 % 3], &arrays);
        const struct plan_item plain = cached_item(dtype, layout, -1, &no_arrays);
        struct tensor_set set, all;
        uint64_t before, after;
        bool holds;
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(inputs_make(&be, &plain, NULL, &all, &why), ATTN_OK);
        assert_cache(&item, &set, &plain, &all);
        assert_int_equal(inputs_hash(&be, &item, &set, &before, &why), ATTN_OK);
        assert_int_equal(inputs_change_signs(&be, &item, &set, &elements, &why), ATTN_OK);
        assert_int_equal(inputs_hash(&be, &item, &set, &after, &why), ATTN_OK);
        assert_true(before == after);
        assert_int_equal(inputs_change_signs(&be, &item, &set, &columns, &why), ATTN_OK);
        assert_int_equal(inputs_change_signs(&be, &plain, &all, &columns, &why), ATTN_OK);
        assert_cache(&item, &set, &plain, &all);
        assert_int_equal(inputs_hash(&be, &item, &set, &after, &why), ATTN_OK);
        assert_true(before == after);
        assert_int_equal(inputs_change_signs(&be, &item, &set, &none, &why), ATTN_OK);
        /* A launch that changes an array, or what is behind the used keys, is seen. */
        assert_int_equal(inputs_arrays_hold(&be, &item, &set, &holds, &why), ATTN_OK);
        assert_true(holds);
        fill_store(set.buffers[TENSOR_K].data, dtype,
                   (int64_t)(set.buffers[TENSOR_K].bytes / attn_dtype_bytes(dtype)) - 1, 1);
        ((int32_t *)set.arrays[ARRAY_SEQUSED_K].data)[1]++;
        assert_int_equal(inputs_hash(&be, &item, &set, &after, &why), ATTN_OK);
        assert_true(before != after);
        assert_int_equal(inputs_arrays_hold(&be, &item, &set, &holds, &why), ATTN_OK);
        assert_false(holds);
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &all);
        problem_arrays_free(&arrays);
    }
    be.ops->close(&be);
}

/* A file has the keys in their order, whatever the pages, and makes them again. */
static void files_have_no_pages(void **state)
{
    struct attn_message why = {""};
    struct backend be;
    char dir[] = "/tmp/fabench-buffers-XXXXXX", path[64], command[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    for (int n = 0; n < 4; n++) {
        struct problem_arrays arrays, no_arrays;
        const struct plan_item item = cached_item(n % 2 ? ATTN_FP32 : ATTN_BF16, ATTN_BSHD, n / 2 * 8, &arrays);
        const struct plan_item plain = cached_item(n % 2 ? ATTN_FP32 : ATTN_BF16, ATTN_BSHD, -1, &no_arrays);
        struct tensor_set set, again, all;
        struct npy file;
        struct reason reason;
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(inputs_make(&be, &plain, NULL, &all, &why), ATTN_OK);
        assert_int_equal(tensor_set_dump(&be, &item, &set, NULL, dir, n == 2 ? DUMP_FP32 : DUMP_NATIVE, &why), ATTN_OK);
        snprintf(path, sizeof path, "%s/k.npy", dir);
        assert_true(npy_read(path, &file, &reason));
        assert_true(file.dims == 4 && file.shape[0] == BATCH && file.shape[1] == HEADS && file.shape[2] == LEN);
        npy_free(&file);
        assert_int_equal(inputs_make(&be, &item, dir, &again, &why), ATTN_OK);
        assert_cache(&item, &again, &plain, &all);
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &again);
        tensor_set_free(&be, &all);
        problem_arrays_free(&arrays);
    }
    be.ops->close(&be);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

static struct plan_item strided_item(enum plan_strides strides, enum attn_layout layout)
{
    return (struct plan_item){.mode = ATTN_BWD,
                              .dist = FILL_NORMAL,
                              .seed = 3,
                              .strides = strides,
                              .batch_gap = 24,
                              .problem = {.batch = 2,
                                          .q_heads = 4,
                                          .kv_heads = 2,
                                          .q_len = 5,
                                          .kv_len = 5,
                                          .head_dim = 16,
                                          .dtype = ATTN_BF16,
                                          .layout = layout,
                                          .window_left = -1,
                                          .window_right = -1,
                                          .scale = 0.25f}};
}

struct made {
    struct backend be;
    struct tensor_set inputs, outputs;
};

static struct made make(const struct plan_item *item)
{
    struct made m;
    struct attn_message why;
    assert_int_equal(backend_open_cpu(&m.be, &why), ATTN_OK);
    assert_int_equal(inputs_make(&m.be, item, NULL, &m.inputs, &why), ATTN_OK);
    assert_int_equal(outputs_make(&m.be, item, &m.inputs, &m.outputs, &why), ATTN_OK);
    return m;
}

static void done(struct made *m)
{
    tensor_set_free(&m->be, &m->inputs);
    tensor_set_free(&m->be, &m->outputs);
    m->be.ops->close(&m->be);
}

static int64_t offset_of(const struct buffer *buffer) /* elements of 2 bytes behind the first guard */
{
    return ((const char *)buffer->data - (const char *)buffer->base - GUARD_BYTES) / 2;
}

static void packed_tensors_lie_as_in_one(void **state)
{
    (void)state;
    const struct plan_item item = strided_item(PLAN_PACKED_QKV, ATTN_BSHD);
    struct made m = make(&item);
    const struct attn_tensors *t = &m.outputs.tensors;
    const struct attn_tensor *const packed[] = {&t->q, &t->k, &t->v, &t->dq, &t->dk, &t->dv};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(packed[i]->stride_row, (4 + 2 * 2) * 16);
        assert_int_equal(packed[i]->stride_head, 16);
        assert_int_equal(packed[i]->stride_batch, 5 * (4 + 2 * 2) * 16 + 24);
    }
    assert_int_equal(t->dout.stride_row, 4 * 16); /* not among them */
    assert_int_equal(offset_of(&m.inputs.buffers[TENSOR_Q]), 0);
    assert_int_equal(offset_of(&m.inputs.buffers[TENSOR_K]), 4 * 16);
    assert_int_equal(offset_of(&m.inputs.buffers[TENSOR_V]), (4 + 2) * 16);
    assert_int_equal(offset_of(&m.outputs.buffers[TENSOR_DV]), (4 + 2) * 16);
    done(&m);
}

/* Elements of a tensor that are not finite, over all of its memory. */
static int64_t nan_count(const struct buffer *buffer)
{
    int64_t count = 0;
    for (int64_t i = 0; i < (int64_t)(buffer->bytes / 2); i++)
        count += !isfinite(fill_load(buffer->data, ATTN_BF16, i));
    return count;
}

static void between_the_rows_is_nan(void **state)
{
    (void)state;
    const enum plan_strides all[] = {PLAN_CONTIGUOUS, PLAN_PACKED_QKV, PLAN_PADDED_ROWS};
    for (int i = 0; i < 3; i++)
        for (int layout = ATTN_BSHD; layout <= ATTN_BHSD; layout++) {
            const struct plan_item item = strided_item(all[i], (enum attn_layout)layout);
            struct made m = make(&item);
            for (enum problem_tensor t = TENSOR_Q; t <= TENSOR_V; t++) {
                const struct tensor_shape s = tensor_shape_of(&item.problem, t);
                const struct buffer *buffer = &m.inputs.buffers[t];
                const int64_t elements = s.batch * s.heads * s.len * s.head_dim;
                assert_true((int64_t)buffer->bytes / 2 >= elements + 24);
                assert_int_equal(nan_count(buffer), (int64_t)buffer->bytes / 2 - elements);
            }
            done(&m);
        }
}

/* Behind the used keys of a cache, between its rows and between those of 8-bit inputs is NaN; nothing is written behind
 * a buffer, whose last row has no room behind it. */
static void caches_are_nan_but_for_their_keys(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++) {
        int32_t seqused_k[] = {5, 3};
        int32_t page_table[] = {2, 0};
        const bool has_pages = n & 1, has_8_bits = n & 2;
        const struct problem_arrays arrays = {.seqused_k = seqused_k, .page_table = has_pages ? page_table : NULL};
        struct plan_item item = strided_item(PLAN_PADDED_ROWS, n & 4 ? ATTN_BHSD : ATTN_BSHD);
        item.mode = ATTN_FWD;
        item.batch_gap = 0;
        item.arrays = &arrays;
        item.problem.lengths = ATTN_CACHE;
        item.problem.q_len = 1;
        item.problem.page_size = has_pages ? 8 : 0;
        item.problem.pages = has_pages ? 3 : 0;
        if (has_8_bits) {
            item.problem.dtype = ATTN_E4M3;
            item.problem.out_dtype = ATTN_BF16;
            item.problem.quant_scale = ATTN_SCALE_TENSOR;
        }
        struct made m = make(&item);
        for (enum problem_tensor t = TENSOR_Q; t <= TENSOR_V; t++) {
            const struct buffer *buffer = &m.inputs.buffers[t];
            const int64_t elements = (int64_t)(buffer->bytes / attn_dtype_bytes(item.problem.dtype));
            struct attn_message why;
            int64_t finite = 0;
            uint64_t words = 1;
            for (int64_t i = 0; i < elements; i++)
                finite += isfinite(fill_load(buffer->data, item.problem.dtype, i));
            assert_int_equal(finite, t == TENSOR_Q ? 2 * 4 * 16 : (5 + 3) * 2 * 16);
            assert_true(elements > finite);
            assert_int_equal(buffer_guards_broken(&m.be, buffer, &words, &why), ATTN_OK);
            assert_int_equal(words, 0);
        }
        done(&m);
    }
}

/* Writes every element of dQ, then one word between two rows. */
static void a_write_between_the_rows_is_found(void **state)
{
    (void)state;
    const struct plan_item item = strided_item(PLAN_PADDED_ROWS, ATTN_BSHD);
    struct made m = make(&item);
    struct attn_message why;
    uint64_t words = 99;
    const struct attn_tensor dq = m.outputs.tensors.dq;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 4; h++)
            for (int64_t i = 0; i < 5; i++)
                for (int64_t c = 0; c < 16; c++)
                    fill_store(dq.data, ATTN_BF16, b * dq.stride_batch + h * dq.stride_head + i * dq.stride_row + c, 1);
    assert_int_equal(output_gaps_broken(&m.be, &item, &m.outputs, TENSOR_DQ, &words, &why), ATTN_OK);
    assert_int_equal(words, 0);
    fill_store(dq.data, ATTN_BF16, dq.stride_head - 1, 1); /* the last padding element of the first row */
    assert_int_equal(output_gaps_broken(&m.be, &item, &m.outputs, TENSOR_DQ, &words, &why), ATTN_OK);
    assert_int_equal(words, 1);
    assert_int_equal(output_gaps_broken(&m.be, &item, &m.outputs, TENSOR_DK, &words, &why), ATTN_OK);
    assert_int_equal(words, 0); /* nothing is written there yet */
    done(&m);
}

/* The guard in front reaches up to a tensor that begins further on. */
static void the_guard_reaches_the_tensor(void **state)
{
    (void)state;
    const struct plan_item item = strided_item(PLAN_PACKED_QKV, ATTN_BSHD);
    struct made m = make(&item);
    struct attn_message why;
    uint64_t words = 0;
    const struct buffer *dv = &m.outputs.buffers[TENSOR_DV];
    ((uint32_t *)dv->data)[-1] = 7;
    ((uint32_t *)dv->base)[GUARD_BYTES / 4 + 1] = 7;
    assert_int_equal(buffer_guards_broken(&m.be, dv, &words, &why), ATTN_OK);
    assert_int_equal(words, 2);
    assert_int_equal(buffer_guard(&m.be, dv, &why), ATTN_OK);
    assert_int_equal(buffer_guards_broken(&m.be, dv, &words, &why), ATTN_OK);
    assert_int_equal(words, 0);
    done(&m);
}

static struct plan_item item_of_8_bits(enum attn_quant_scale scale)
{
    struct plan_item item = {.problem = DENSE(2, 4, 2, 70, 90, 16, ATTN_E4M3, ATTN_BSHD, false, -1, -1, 0.25f, 0),
                             .mode = ATTN_FWD,
                             .dist = FILL_NORMAL,
                             .seed = 3};
    item.problem.out_dtype = ATTN_BF16;
    item.problem.quant_scale = scale;
    item.problem.scale_block = scale == ATTN_SCALE_BLOCK ? 32 : 0;
    return item;
}

static struct backend open_cpu(void)
{
    struct backend be;
    struct attn_message why = {""};
    assert_int_equal(backend_open_cpu(&be, &why), ATTN_OK);
    return be;
}

static void assert_near(const struct plan_item *item, const struct tensor_set *before, const struct tensor_set *set)
{
    const struct attn_problem *p = &item->problem;
    const struct attn_tensor k = set->tensors.k;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->kv_heads; h++)
            for (int64_t i = 0; i < p->kv_len; i++)
                for (int64_t c = 0; c < p->head_dim; c++) {
                    const int64_t at = b * k.stride_batch + h * k.stride_head + i * k.stride_row + c;
                    const float scale = set->tensors.scale_k[quantise_scale_at(p, QUANTISED_K, NULL, b, h, i)];
                    const float want = fill_load(before->tensors.k.data, ATTN_BF16, at);
                    const float got = fill_load(k.data, ATTN_E4M3, at) * scale;
                    assert_true(fabsf(got - want) <= fmaxf(fabsf(want) * 0x1p-4f, scale * 0x1p-10f) * 1.001f);
                }
}

static void made_from_others_in_bf16(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be = open_cpu();
    for (int scale = ATTN_SCALE_TENSOR; scale <= ATTN_SCALE_BLOCK; scale++) {
        const struct plan_item item = item_of_8_bits((enum attn_quant_scale)scale);
        struct plan_item item_before;
        struct tensor_set set, before;
        bool holds = false;
        assert_true(inputs_are_quantised(&item, NULL));
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(inputs_make_before(&be, &item, NULL, &item_before, &before, &why), ATTN_OK);
        assert_int_equal(item_before.problem.dtype, ATTN_BF16);
        assert_near(&item, &before, &set);
        assert_true(set.quant_ms >= 0 && isnan(before.quant_ms));
        assert_int_equal(inputs_arrays_hold(&be, &item, &set, &holds, &why), ATTN_OK);
        assert_true(holds);
        ((float *)set.scales[QUANTISED_V].data)[0] *= 2;
        assert_int_equal(inputs_arrays_hold(&be, &item, &set, &holds, &why), ATTN_OK);
        assert_false(holds);
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &before);
    }
    be.ops->close(&be);
}

static void signs_change_and_change_back(void **state)
{
    (void)state;
    struct attn_message why = {""};
    struct backend be = open_cpu();
    const struct plan_item item = item_of_8_bits(ATTN_SCALE_HEAD);
    const struct input_signs some = {.qk = {{0x0006}}, .v = {{0x8001}}}, none = {.qk = {{0}}};
    struct tensor_set set;
    uint64_t hash = 0, changed = 0, other = 0;
    assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
    const struct buffer *v = &set.buffers[TENSOR_V];
    uint8_t *copy = malloc(v->bytes);
    memcpy(copy, v->data, v->bytes);
    assert_int_equal(inputs_hash(&be, &item, &set, &hash, &why), ATTN_OK);
    assert_int_equal(inputs_change_signs(&be, &item, &set, &some, &why), ATTN_OK);
    for (size_t i = 0; i < v->bytes; i++) /* the columns 0 and 15 of 16 */
        assert_int_equal(((const uint8_t *)v->data)[i], copy[i] ^ (i % 16 == 0 || i % 16 == 15 ? 0x80 : 0));
    assert_int_equal(inputs_hash(&be, &item, &set, &changed, &why), ATTN_OK);
    assert_true(hash == changed); /* the hash leaves the change of signs out */
    ((uint8_t *)v->data)[5] ^= 1;
    assert_int_equal(inputs_hash(&be, &item, &set, &other, &why), ATTN_OK);
    assert_true(hash != other);
    ((uint8_t *)v->data)[5] ^= 1;
    assert_int_equal(inputs_change_signs(&be, &item, &set, &none, &why), ATTN_OK);
    assert_memory_equal(v->data, copy, v->bytes);
    free(copy);
    tensor_set_free(&be, &set);
    be.ops->close(&be);
}

static void a_dump_comes_back(void **state)
{
    (void)state;
    char dir[] = "/tmp/fabench-8-bits-XXXXXX", command[64];
    struct attn_message why = {""};
    struct backend be = open_cpu();
    assert_non_null(mkdtemp(dir));
    for (int scale = ATTN_SCALE_TENSOR; scale <= ATTN_SCALE_BLOCK; scale++) {
        const struct plan_item item = item_of_8_bits((enum attn_quant_scale)scale);
        struct plan_item other = item;
        struct tensor_set set, again;
        other.seed = 4;
        assert_int_equal(inputs_make(&be, &item, NULL, &set, &why), ATTN_OK);
        assert_int_equal(tensor_set_dump(&be, &item, &set, NULL, dir, DUMP_FP32, &why), ATTN_OK);
        assert_true(inputs_readable(&other, dir, &why));
        assert_false(inputs_are_quantised(&other, dir));
        assert_int_equal(inputs_make(&be, &other, dir, &again, &why), ATTN_OK);
        assert_true(isnan(again.quant_ms));
        for (int i = 0; i < QUANTISED_COUNT; i++) {
            assert_int_equal(again.scales[i].bytes, set.scales[i].bytes);
            assert_memory_equal(again.scales[i].data, set.scales[i].data, set.scales[i].bytes);
        }
        for (int i = TENSOR_Q; i <= TENSOR_V; i++)
            assert_memory_equal(again.buffers[i].data, set.buffers[i].data, set.buffers[i].bytes);
        tensor_set_free(&be, &set);
        tensor_set_free(&be, &again);
    }
    be.ops->close(&be);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* V in the first columns of K, in the same memory: its bytes are those of K, counted once. */
static void v_in_k_is_read_once(void **state)
{
    const struct attn_problem mla = {.batch = 2,
                                     .q_heads = 16,
                                     .kv_heads = 1,
                                     .q_len = 1,
                                     .kv_len = 1000,
                                     .head_dim = 576,
                                     .v_head_dim = 512,
                                     .dtype = ATTN_BF16,
                                     .lengths = ATTN_CACHE,
                                     .causal = true,
                                     .window_left = -1,
                                     .window_right = -1};
    const double keys = 2000, q = 2 * 16 * 576 * 2, k = keys * 576 * 2, o = 2 * 16 * 512 * 2, lse = 2 * 16 * 4;
    (void)state;
    assert_true(attn_v_is_in_k(&mla));
    assert_true(problem_needed_bytes(&mla, ATTN_FWD, keys) == q + k);
    assert_true(problem_min_bytes(&mla, ATTN_FWD, keys) == q + k + o + lse);
    struct attn_problem apart = mla;
    apart.head_dim = 192;
    apart.v_head_dim = 128;
    assert_true(problem_needed_bytes(&apart, ATTN_FWD, keys) == 2 * 16 * 192 * 2 + keys * (192 + 128) * 2);
}

/* Each input is read once, O is written in its own type. */
static void bytes_of_the_types(void **state)
{
    (void)state;
    struct plan_item item = item_of_8_bits(ATTN_SCALE_TENSOR);
    const double rows = 2 * 4 * 70, keys = 2 * 2 * 90;
    assert_true(problem_min_bytes(&item.problem, ATTN_FWD, (double)problem_all_keys(&item.problem)) ==
                rows * 16 * (1 + 2) + 2 * keys * 16 + rows * 4);
    item.problem.dtype = ATTN_FP16;
    assert_true(problem_min_bytes(&item.problem, ATTN_FWD, (double)problem_all_keys(&item.problem)) ==
                2 * rows * 16 * 2 + 2 * keys * 16 * 2 + rows * 4);
}

int main(void)
{
    const struct CMUnitTest of_buffers[] = {
        cmocka_unit_test(caches_hold_the_values_and_nan),
        cmocka_unit_test(files_have_no_pages),
    };
    const struct CMUnitTest of_strides[] = {
        cmocka_unit_test(packed_tensors_lie_as_in_one),      cmocka_unit_test(between_the_rows_is_nan),
        cmocka_unit_test(caches_are_nan_but_for_their_keys), cmocka_unit_test(a_write_between_the_rows_is_found),
        cmocka_unit_test(the_guard_reaches_the_tensor),
    };
    const struct CMUnitTest of_8_bit_inputs[] = {
        cmocka_unit_test(made_from_others_in_bf16), cmocka_unit_test(signs_change_and_change_back),
        cmocka_unit_test(a_dump_comes_back),        cmocka_unit_test(bytes_of_the_types),
        cmocka_unit_test(v_in_k_is_read_once),
    };
    return cmocka_run_group_tests(of_buffers, NULL, NULL) + cmocka_run_group_tests(of_strides, NULL, NULL) +
           cmocka_run_group_tests(of_8_bit_inputs, NULL, NULL);
}
