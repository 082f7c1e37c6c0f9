/* The choice of a tile from a table (kernels/common/dispatch.h) and what all CUDA implementations share on the host
 * (kernels/common/dispatch.h). Needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "kernels/attention.h"
#include "kernels/common/checks.h"
#include "kernels/common/dispatch.h"
#include "tests/dense.h"

/* More than its head, as a kernel's rows have. */
struct row {
    struct attn_tile tile;
    double time;
};

static const struct row rows[] = {
    {{{"d64_large", ""}, 64, 2, 60000}, 3.0}, {{{"d64_small", ""}, 64, 2, 40000}, 2.0},
    {{{"d64_tiny", ""}, 64, 2, 20000}, 4.0},  {{{"d128_only", ""}, 128, 1, 90000}, 1.0},
    {{{NULL, NULL}, 0, 0, 0}, 0.0},
};

static double time_of(const struct attn_request *request, const struct attn_tile *tile)
{
    (void)request;
    return ((const struct row *)(const void *)tile)->time;
}

static const void *const one_list[] = {rows, NULL};
static const struct attn_tile_table in_order = {"forward", one_list, sizeof rows[0], NULL, NULL},
                                    by_time = {"backward", one_list, sizeof rows[0], time_of, NULL};

static const char *chosen(const struct attn_tile_table *table, int64_t head_dim, size_t smem_bytes, const char *variant,
                          struct attn_message *why)
{
    const struct attn_problem p = {.head_dim = head_dim};
    const struct attn_device device = {.platform = ATTN_CUDA, .smem_per_block_bytes = smem_bytes};
    const struct attn_request request = {.problem = &p, .device = &device, .variant = variant};
    const struct row *row = attn_choose_tile(table, &request, why);
    const char *name = attn_chosen_variant(table, &request);

    assert_true(row == NULL ? name == NULL : strcmp(name, row->tile.shown.name) == 0);
    return name;
}

static void first_tile_that_fits_as_often_as_wanted(void **state)
{
    struct attn_message why = {""};
    (void)state;
    assert_string_equal(chosen(&in_order, 64, 232448, NULL, &why), "d64_large");
    assert_string_equal(chosen(&in_order, 64, 2 * 60000 + 1024, NULL, &why), "d64_large"); /* and 1024 more a block */
    assert_string_equal(chosen(&in_order, 64, 2 * 60000 + 1023, NULL, &why), "d64_small");
    assert_string_equal(chosen(&in_order, 128, 90000, NULL, &why), "d128_only");
}

static void first_tile_that_fits_once_when_none_fits_twice(void **state)
{
    struct attn_message why = {""};
    (void)state;
    assert_string_equal(chosen(&in_order, 64, 2 * 20000 + 1024, NULL, &why), "d64_tiny"); /* the smallest, twice */
    assert_string_equal(chosen(&in_order, 64, 2 * 20000 + 1023, NULL, &why), "d64_small");
    assert_string_equal(chosen(&in_order, 64, 39999, NULL, &why), "d64_tiny");
}

static void shortest_estimated_time(void **state)
{
    struct attn_message why = {""};
    (void)state;
    assert_string_equal(chosen(&by_time, 64, 232448, NULL, &why), "d64_small");
    assert_string_equal(chosen(&by_time, 64, 39999, NULL, &why), "d64_tiny"); /* the others do not fit */
}

static void forced_variants_and_refusals(void **state)
{
    struct attn_message why = {""};
    (void)state;
    assert_string_equal(chosen(&in_order, 64, 232448, "d64_tiny", &why), "d64_tiny");
    assert_null(chosen(&in_order, 64, 232448, "d128_only", &why));
    assert_string_equal(why.text, "the forward has no variant d128_only for head_dim 64");
    assert_null(chosen(&by_time, 128, 89999, NULL, &why));
    assert_string_equal(why.text, "d128_only needs 90000 bytes of shared memory, a block has at most 89999");
}

/* ---- dispatch: a made-up implementation for devices of compute capability 7.5 ----------------------------------- */

static const struct attn_problem dense = DENSE(2, 4, 2, 128, 128, 64, ATTN_BF16, ATTN_BSHD, true, -1, -1, 0.125f, 0);

static int launched;

static enum attn_status check_device(const struct attn_request *request, struct attn_message *why)
{
    return request->device->sm == 75 ? ATTN_OK : attn_fail(why, ATTN_UNSUPPORTED, "needs 7.5");
}

static enum attn_status takes(const struct attn_request *request, struct attn_message *why)
{
    return attn_choose_tile(&in_order, request, why) != NULL ? ATTN_OK : ATTN_UNSUPPORTED;
}

static size_t bytes_256(const struct attn_request *request)
{
    (void)request;
    return 256;
}

static enum attn_status count_launch(const struct attn_request *request, const struct attn_tensors *tensors,
                                     const struct attn_run *run, struct attn_message *why)
{
    (void)request, (void)tensors, (void)run, (void)why;
    launched++;
    return ATTN_OK;
}

static const struct attn_direction forward = {takes, bytes_256, count_launch, &in_order},
                                   backward = {takes, bytes_256, count_launch, &by_time};
static const struct attn_dispatch dispatch = {check_device, {&forward, &backward}, {{0, 0}}};
ATTN_DISPATCH_FUNCTIONS(dispatch)
static const struct attn_impl made_up = {.abi = ATTN_ABI, .name = "made_up", ATTN_DISPATCH_MEMBERS};

static void variants_of_both_directions(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_string_equal(made_up.variants[i].name, rows[i % 4].tile.shown.name);
    assert_null(made_up.variants[8].name);
}

/* Where an implementation has kernels for 8 bits, requests of these go there, but not against a cache that decode
 * takes. */
static void eight_bits_have_a_direction(void **state)
{
    static const struct attn_direction eight_bits = {takes, bytes_256, count_launch, &in_order};
    static const struct attn_direction decode = {takes, bytes_256, count_launch, &in_order};
    static const struct attn_dispatch with = {check_device, {&forward, &backward, &decode, &eight_bits}, {{0, 0}}};
    static const struct attn_dispatch alone = {check_device, {&forward, &backward, NULL, &eight_bits}, {{0, 0}}};
    struct attn_problem p = {.head_dim = 64, .dtype = ATTN_E4M3};
    struct attn_request request = {.problem = &p};
    struct attn_variant list[ATTN_MAX_VARIANTS];
    (void)state;
    assert_ptr_equal(attn_direction_of(&with, &request), &eight_bits);
    assert_ptr_equal(attn_direction_of(&alone, &request), &eight_bits);
    assert_ptr_equal(attn_direction_of(&dispatch, &request), &forward);
    p.lengths = ATTN_CACHE;
    assert_ptr_equal(attn_direction_of(&with, &request), &decode);
    assert_ptr_equal(attn_direction_of(&alone, &request), &eight_bits);
    p.lengths = ATTN_FIXED;
    request.mode = ATTN_BWD;
    assert_ptr_equal(attn_direction_of(&with, &request), &backward);
    request.mode = ATTN_FWD;
    p.dtype = ATTN_FP16;
    assert_ptr_equal(attn_direction_of(&with, &request), &forward);
    assert_int_equal(attn_dispatch_variants(&with, list), 16);
    assert_int_equal(attn_dispatch_variants(&alone, list), 12);
}

/* Each direction takes its own attributes: here the backward has no windows, and a cache is decode's alone. */
static void each_direction_has_a_range(void **state)
{
    static const struct attn_direction decode = {takes, bytes_256, count_launch, &in_order};
    static const struct attn_dispatch with = {
        check_device, {&forward, &backward, &decode}, {{ATTN_WITH_WINDOW, 0}, {0, 0}, {ATTN_WITH_CACHE, 256}}};
    const struct attn_device device = {.platform = ATTN_CUDA, .sm = 75, .smem_per_block_bytes = 232448};
    struct attn_problem p = dense;
    struct attn_request request = {.problem = &p, .device = &device};
    struct attn_message why = {""};
    (void)state;
    p.window_left = 5;
    assert_int_equal(attn_dispatch_accepts(&with, 12, &request, &why), ATTN_OK);
    request.mode = ATTN_BWD;
    assert_int_equal(attn_dispatch_accepts(&with, 12, &request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes no window");
    request.mode = ATTN_FWD;
    p.lengths = ATTN_CACHE;
    assert_int_equal(attn_dispatch_accepts(&with, 12, &request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes no window");
    p.window_left = -1;
    assert_int_equal(attn_dispatch_accepts(&with, 12, &request, &why), ATTN_OK);
    assert_int_equal(attn_dispatch_accepts(&dispatch, 8, &request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes no cache");
}

/* What attn_check_tensors says to a forward; "" where it takes the tensors. */
static const char *said_of(const struct attn_problem *p, const struct attn_tensors *tensors)
{
    static struct attn_message why;
    const struct attn_request request = {.problem = p, .mode = ATTN_FWD};
    why.text[0] = '\0';
    const enum attn_status status = attn_check_tensors(&request, tensors, &why);
    assert_int_equal(status == ATTN_OK, why.text[0] == '\0');
    return why.text;
}

/* Caches, pages, sinks, scales; strides count in bytes of the tensor's own type, those of pages from page to page. */
static void missing_arrays_and_strides(void **state)
{
    static float memory[64 * 4] __attribute__((aligned(16)));
    static const int32_t number;
    const struct attn_tensor tensor = {.data = memory, .stride_batch = 64, .stride_head = 64, .stride_row = 64};
    struct attn_tensors t = {.q = tensor, .k = tensor, .v = tensor, .o = tensor, .lse = memory};
    struct attn_problem p = dense;
    (void)state;
    p.lengths = ATTN_CACHE, p.page_size = 16, p.pages = 2, p.batch = 1, p.has_sink = true;
    assert_string_equal(said_of(&p, &t), "seqused_k is missing");
    t.seqused_k = &number;
    assert_string_equal(said_of(&p, &t), "page_table is missing");
    t.page_table = &number;
    assert_string_equal(said_of(&p, &t), "sink is missing");
    t.sink = memory;
    assert_string_equal(said_of(&p, &t), "");
    t.k.stride_batch = 60; /* one sequence, two pages */
    assert_string_equal(said_of(&p, &t), "tensor k: its pointer and strides must be multiples of 16 bytes");
    p.pages = 1;
    assert_string_equal(said_of(&p, &t), "");

    p = dense;
    p.dtype = ATTN_E4M3, p.out_dtype = ATTN_BF16, t.k = tensor;
    assert_string_equal(said_of(&p, &t), "scale_q, scale_k or scale_v is missing");
    t.scale_q = t.scale_k = t.scale_v = memory;
    t.o.stride_row = 72; /* of 16 bits: 144 bytes */
    assert_string_equal(said_of(&p, &t), "");
    t.q.stride_row = 72;
    assert_string_equal(said_of(&p, &t), "tensor q: its pointer and strides must be multiples of 16 bytes");
}

/* An empty list among the lists does not end them. */
static void tiles_of_all_lists(void **state)
{
    static const struct row others[] = {{{{"d32", ""}, 32, 1, 1000}, 1.0}, {{{NULL, NULL}, 0, 0, 0}, 0.0}};
    static const void *const lists[] = {others, others + 1, rows, NULL};
    static const struct attn_tile_table table = {"forward", lists, sizeof rows[0], NULL, NULL};
    const struct attn_tile *tile = attn_next_tile(&table, NULL);
    (void)state;
    assert_ptr_equal(tile, &others[0].tile);
    for (int i = 0; i < 4; i++) {
        tile = attn_next_tile(&table, tile);
        assert_ptr_equal(tile, &rows[i].tile);
    }
    assert_null(attn_next_tile(&table, tile));
}

/* An implementation with more variants than its list has room for refuses everything, with the reason. */
static void too_many_variants_are_refused(void **state)
{
    static struct row many_rows[ATTN_MAX_VARIANTS / 2 + 1];
    static const void *const lists[] = {many_rows, NULL};
    static const struct attn_tile_table many = {"forward", lists, sizeof rows[0], NULL, NULL};
    static const struct attn_direction crowded = {takes, bytes_256, count_launch, &many};
    static const struct attn_dispatch crowd = {check_device, {&crowded, &crowded}, {{0, 0}}};
    struct attn_variant list[ATTN_MAX_VARIANTS];
    struct attn_message why = {""};
    const struct attn_problem p = {.head_dim = 64};
    const struct attn_device device = {.platform = ATTN_CUDA};
    const struct attn_request request = {.problem = &p, .device = &device};
    (void)state;
    assert_int_equal(attn_dispatch_variants(&dispatch, list), 8);
    for (int i = 0; i < ATTN_MAX_VARIANTS / 2; i++)
        many_rows[i] = rows[0];
    const size_t count = attn_dispatch_variants(&crowd, list);
    assert_int_equal(count, ATTN_MAX_VARIANTS);
    assert_non_null(list[ATTN_MAX_VARIANTS - 2].name);
    assert_null(list[ATTN_MAX_VARIANTS - 1].name);
    assert_int_equal(attn_dispatch_accepts(&crowd, count, &request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "has 128 variants and a list of 127: raise ATTN_MAX_VARIANTS");
}

static void launches_what_it_accepts(void **state)
{
    static float memory[64 * 4];
    const struct attn_problem p = {.batch = 1,
                                   .q_heads = 1,
                                   .kv_heads = 1,
                                   .q_len = 1,
                                   .kv_len = 1,
                                   .head_dim = 64,
                                   .dtype = ATTN_FP16,
                                   .window_left = -1,
                                   .window_right = -1,
                                   .scale = 1.0f};
    struct attn_device device = {.platform = ATTN_CUDA, .sm = 75, .smem_per_block_bytes = 232448};
    const struct attn_request request = {.problem = &p, .device = &device, .mode = ATTN_FWD};
    const struct attn_tensor tensor = {.data = memory, .stride_row = 64};
    struct attn_tensors tensors = {.q = tensor, .k = tensor, .v = tensor, .o = tensor, .lse = memory};
    struct attn_run run = {.workspace = memory, .workspace_bytes = 256};
    struct attn_message why = {""};
    (void)state;

    assert_int_equal(made_up.launch(&request, &tensors, &run, &why), ATTN_OK);
    assert_int_equal(launched, 1);
    assert_string_equal(made_up.variant(&request), "d64_large");
    assert_int_equal(made_up.workspace_bytes(&request), 256);
    run.workspace_bytes = 255;
    assert_int_equal(made_up.launch(&request, &tensors, &run, &why), ATTN_ERROR);
    assert_string_equal(why.text, "workspace of 255 bytes where 256 are needed");
    run.workspace_bytes = 256;
    tensors.k.data = NULL;
    assert_int_equal(made_up.launch(&request, &tensors, &run, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "tensor k is missing");
    device.sm = 80;
    assert_int_equal(made_up.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "needs 7.5");
    device.platform = ATTN_CPU; /* what all refuse comes first */
    assert_int_equal(made_up.accepts(&request, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "runs on CUDA devices only");
    assert_int_equal(launched, 1);
}

static void a_range_says_what_is_taken(void **state)
{
    struct attn_problem p = DENSE(1, 1, 1, 64, 64, 40, ATTN_FP16, ATTN_BSHD, false, -1, -1, 0.125f, 0);
    const struct attn_device device = {.platform = ATTN_CUDA};
    const struct attn_request request = {.problem = &p, .device = &device};
    const struct attn_range narrow = {0, 0}, wide = {ATTN_WITH_WINDOW | ATTN_WITH_BLOCK_MASK, 256};
    struct attn_message why = {""};
    (void)state;

    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_OK);
    assert_int_equal(attn_check_request(&request, &narrow, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "head_dim 40: takes 64 and 128");
    p.window_left = 3;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_OK);
    assert_int_equal(attn_check_request(&request, &narrow, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes no window");
    p.head_dim = 264;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "head_dim 264: takes multiples of 8 from 8 to 256");
    p.head_dim = 12;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_UNSUPPORTED);
    p.head_dim = 256;
    p.mask_block = 12;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "block mask of 12 rows and keys: takes multiples of 8");
    p.mask_block = 16;
    p.softcap = 1;
    assert_int_equal(attn_check_request(&request, &wide, &why), ATTN_UNSUPPORTED);
    assert_string_equal(why.text, "takes no softcap");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_tile_that_fits_as_often_as_wanted),
        cmocka_unit_test(first_tile_that_fits_once_when_none_fits_twice),
        cmocka_unit_test(shortest_estimated_time),
        cmocka_unit_test(forced_variants_and_refusals),
        cmocka_unit_test(variants_of_both_directions),
        cmocka_unit_test(eight_bits_have_a_direction),
        cmocka_unit_test(each_direction_has_a_range),
        cmocka_unit_test(missing_arrays_and_strides),
        cmocka_unit_test(tiles_of_all_lists),
        cmocka_unit_test(too_many_variants_are_refused),
        cmocka_unit_test(launches_what_it_accepts),
        cmocka_unit_test(a_range_says_what_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
