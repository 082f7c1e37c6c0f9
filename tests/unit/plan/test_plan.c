/* Options -> problems: the grids of the presets, the papers' convention, refusals, and the repro command, which must
 * make the same problem again. */
#include "tests/unit/plan/plan_of.h"

#include "cmd/problem/problem.h"
#include "cmd/problem/problem_key.h"

static void paper_grid_is_the_default_on_cuda(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench", ATTN_CUDA);
    assert_int_equal(plan.count, 2 * 2 * 2 * 5);
    for (int i = 0; i < plan.count; i++) {
        const struct attn_problem *p = &plan.items[i].problem;
        assert_int_equal(p->batch * p->q_len, 16384);
        assert_int_equal(p->q_heads * p->head_dim, 2048);
        assert_int_equal(p->kv_len, p->q_len);
        assert_int_equal(p->kv_heads, p->q_heads);
        assert_int_equal(p->dtype, ATTN_FP16);
        assert_true(fabs((double)p->scale - 1 / sqrt((double)p->head_dim)) < 1e-7);
    }
    plan_free(&plan);
}

static void documented_example(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --mode bwd --causal --d 128", ATTN_CUDA);
    assert_int_equal(plan.count, 5);
    for (int i = 0; i < plan.count; i++) {
        assert_int_equal(plan.items[i].mode, ATTN_BWD);
        assert_true(plan.items[i].problem.causal);
        assert_int_equal(plan.items[i].problem.head_dim, 128);
        assert_int_equal(plan.items[i].problem.q_len, 1024 << i);
    }
    plan_free(&plan);
}

static void cpu_defaults_to_quick(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench", ATTN_CPU);
    assert_string_equal(plan.preset, "quick");
    assert_int_equal(plan.count, 16);
    assert_int_equal(plan.items[0].problem.dtype, ATTN_FP32);
    plan_free(&plan);
}

static void ci_has_twelve_points(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --preset ci", ATTN_CUDA);
    assert_int_equal(plan.count, 12);
    for (int i = 0; i < plan.count; i++)
        assert_int_equal(plan.items[i].problem.dtype, ATTN_BF16);
    plan_free(&plan);
}

static void node_has_eight_points(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --preset node", ATTN_CUDA);
    assert_int_equal(plan.count, 8);
    for (int i = 0; i < plan.count; i++) {
        assert_int_equal(plan.items[i].problem.dtype, ATTN_BF16);
        assert_true(plan.items[i].problem.causal);
        assert_true(plan.items[i].problem.q_len >= 4096);
    }
    plan_free(&plan);
    plan = plan_of("fabench --preset node --no-causal --d 64 --mode fwd", ATTN_CPU);
    assert_int_equal(plan.count, 1);
    assert_false(plan.items[0].problem.causal);
    plan_free(&plan);
}

/* The lengths of the published rows, in their type. */
static void generations_begin_at_512(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --preset generations", ATTN_CUDA);
    assert_int_equal(plan.count, 6 * 2 * 2 * 2);
    assert_int_equal(plan.items[0].problem.q_len, 512);
    assert_int_equal(plan.items[plan.count - 1].problem.q_len, 16384);
    for (int i = 0; i < plan.count; i++)
        assert_int_equal(plan.items[i].problem.dtype, ATTN_FP16);
    plan_free(&plan);
}

static void acceptance_is_sustained(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --preset acceptance", ATTN_CUDA);
    assert_string_equal(plan.preset, "acceptance");
    assert_true(plan.sustain_s == 10);
    assert_int_equal(plan.count, 2 * 2 * 2 * 2);
    for (int i = 0; i < plan.count; i++) {
        const int64_t n = plan.items[i].problem.q_len;
        assert_int_equal(plan.items[i].problem.dtype, ATTN_BF16);
        assert_true(n == 4096 || n == 16384);
    }
    plan_free(&plan);
    plan = plan_of("fabench --preset acceptance --sustain-s 60 --d 64", ATTN_CUDA);
    assert_true(plan.sustain_s == 60);
    assert_int_equal(plan.count, 8);
    plan_free(&plan);
    plan = plan_of("fabench --preset acceptance --sustain-s 0", ATTN_CUDA);
    assert_true(plan.sustain_s == 0);
    plan_free(&plan);
    plan = plan_of("fabench", ATTN_CUDA);
    assert_true(plan.sustain_s == 0);
    plan_free(&plan);
}

static void explicit_options_win_over_the_preset(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --preset ci --samples 7 --min-time-ms 9 --dtype fp16 --seqlen 2k", ATTN_CUDA);
    assert_int_equal(plan.samples, 7);
    assert_true(plan.min_time_ms == 9);
    assert_int_equal(plan.items[0].problem.q_len, 2048);
    assert_int_equal(plan.items[0].problem.dtype, ATTN_FP16);
    plan_free(&plan);
}

static void lengths_are_crossed(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --mode fwd --causal --d 64 --seqlen 1,2k --kv-len 64,100 --batch 3 --heads 6 "
                               "--kv-heads 2",
                               ATTN_CUDA);
    assert_int_equal(plan.count, 4);
    assert_int_equal(plan.items[1].problem.q_len, 1);
    assert_int_equal(plan.items[1].problem.kv_len, 100);
    assert_int_equal(plan.items[3].problem.q_len, 2048);
    assert_int_equal(plan.items[3].problem.kv_heads, 2);
    plan_free(&plan);
}

/* A folder of --dump for each kind of inputs. */
static void names_say_the_data(void **state)
{
    (void)state;
    struct plan plan =
        plan_of("fabench --dtype bf16 --mode fwd --causal --d 64 --seqlen 1k --dist normal,outliers,drift", ATTN_CUDA);
    assert_int_equal(plan.count, 3);
    assert_string_equal(plan.items[0].name, "fwd-causal-d-64-n-1k-bf16");
    assert_string_equal(plan.items[1].name, "fwd-causal-d-64-n-1k-bf16-outliers");
    assert_string_equal(plan.items[2].name, "fwd-causal-d-64-n-1k-bf16-drift");
    plan_free(&plan);
    plan = plan_of("fabench --dtype bf16 --mode fwd --causal --d 64 --seqlen 1k --logit-std 1,4 --logit-mean=-500",
                   ATTN_CUDA);
    assert_int_equal(plan.count, 2);
    assert_string_equal(plan.items[1].name, "fwd-causal-d-64-n-1k-bf16-std-4-mean--500");
    plan_free(&plan);
}

/* Each dtype of 8 bits in the forward alone, with each type of O and each kind of scales. */
static void eight_bits(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --dtype bf16,e5m2 --causal --d 64 --seqlen 1k", ATTN_CUDA);
    assert_int_equal(plan.count, 3); /* bf16 in both modes */
    assert_int_equal(plan.items[0].problem.quant_scale, ATTN_SCALE_NONE);
    assert_int_equal(plan.items[2].mode, ATTN_FWD);
    assert_int_equal(plan.items[2].problem.out_dtype, ATTN_BF16);
    assert_int_equal(plan.items[2].problem.quant_scale, ATTN_SCALE_TENSOR);
    assert_string_equal(plan.items[2].name, "fwd-causal-d-64-n-1k-e5m2");
    plan_free(&plan);
    plan = plan_of(
        "fabench --dtype e4m3 --out-dtype fp16,bf16 --fp8-scale block,head --scale-block 64 --hadamard --causal "
        "--d 64 --seqlen 1k",
        ATTN_CUDA);
    assert_int_equal(plan.count, 4);
    assert_int_equal(plan.items[1].problem.scale_block, 64);
    assert_int_equal(plan.items[2].problem.scale_block, 0);
    assert_string_equal(plan.items[0].name, "fwd-causal-d-64-n-1k-e4m3-scale-head-hadamard");
    assert_string_equal(plan.items[3].name, "fwd-causal-d-64-n-1k-e4m3-out-fp16-scale-block-of-64-hadamard");
    const struct problem_key key = plan_item_key(&plan.items[3], L2_COLD);
    char *options = problem_key_options(&key);
    assert_non_null(strstr(options, " --out-dtype fp16 --fp8-scale block --scale-block 64 --hadamard"));
    free(options);
    plan_free(&plan);
}

static void refusals(void **state)
{
    static const char *const lines[] = {
        "fabench --profile",
        "fabench --input /tmp",                        /* several head dims and lengths */
        "fabench --input /tmp --d 64 --seqlen 1k,2k",  /* several lengths, and with them batches */
        "fabench --input /tmp --d 64,128 --seqlen 1k", /* heads too */
        "fabench --input /tmp --d 64 --seqlen 1k --kv-len 1,2",
        "fabench --input /tmp --d 64 --seqlen 1k,2k --batch 1",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct options o = parse(lines[i]);
        struct plan plan;
        assert_int_equal(plan_make(&o, ATTN_CUDA, &plan), EXIT_USAGE);
        assert_int_equal(plan.count, 0);
        options_free(&o);
    }
}

/* Lists are crossed, pairs of --shape are not; a window to the right is for problems without a causal mask. */
static void lists_of_heads_and_windows(void **state)
{
    (void)state;
    struct plan plan = plan_of("fabench --mode fwd --d 64 -n 1k --no-causal --batch 1,2 --heads 8,16 --kv-heads 2,4 "
                               "--window-left none,3 --dropout 0.5 --dropout-seed 9",
                               ATTN_CUDA);
    assert_int_equal(plan.count, 2 * 2 * 2 * 2);
    for (int i = 0; i < plan.count; i++) {
        const struct attn_problem *p = &plan.items[i].problem;
        assert_int_equal(p->batch, i / 8 + 1);
        assert_int_equal(p->q_heads, i / 4 % 2 ? 16 : 8);
        assert_int_equal(p->kv_heads, i / 2 % 2 ? 4 : 2);
        assert_int_equal(p->window_left, i % 2 ? 3 : -1);
        assert_int_equal(p->window_right, -1);
        assert_true(p->dropout == 0.5f && p->dropout_seed == 9);
    }
    plan_free(&plan);
    plan = plan_of("fabench --mode fwd --d 64 -n 1k --shape 8x2,4x4 --window-right none,0,5", ATTN_CUDA);
    assert_int_equal(plan.count, 2 * (3 + 2)); /* full with each window, causal without the last */
    assert_int_equal(plan.items[0].problem.q_heads, 8);
    assert_int_equal(plan.items[0].problem.kv_heads, 2);
    assert_int_equal(plan.items[3].problem.q_heads, 4);
    assert_int_equal(plan.items[3].problem.kv_heads, 4);
    for (int i = 0; i < plan.count; i++)
        assert_true(!plan.items[i].problem.causal || plan.items[i].problem.window_right <= 0);
    plan_free(&plan);
}

/* A row's label says what is not the default, and its command makes the same problem. */
static void windows_and_dropout_come_back(void **state)
{
    (void)state;
    struct options o =
        parse("fabench --mode bwd --d 64 -n 1k --no-causal --window-left 5 --window-right 0 --dropout 0.1 "
              "--dropout-seed 3 --softcap 30");
    struct plan plan, again;
    assert_int_equal(plan_make(&o, ATTN_CPU, &plan), EXIT_OK);
    assert_int_equal(plan.count, 1);
    const struct plan_item *item = &plan.items[0];
    const struct problem_key key = plan_item_key(item, L2_COLD);
    char label[PROBLEM_LABEL_SIZE], *repro = plan_repro(&o, item, "naive");
    assert_string_equal(problem_key_label(&key, label, sizeof label),
                        "bwd full   d64  1k  fp32 left 5 right 0 dropout 0.1 dropout_seed 3 softcap 30");
    struct options other = parse(repro);
    assert_int_equal(plan_make(&other, ATTN_CPU, &again), EXIT_OK);
    assert_int_equal(again.count, 1);
    const struct problem_key second = plan_item_key(&again.items[0], L2_COLD);
    assert_int_equal(problem_key_compare(&key, &second, false), 0);
    struct problem_key old = key; /* as of a record from before there were these columns */
    old.dropout_seed = INT64_MIN;
    old.softcap = NAN;
    problem_key_complete(&old);
    assert_true(old.dropout_seed == 0 && old.softcap == 0);
    free(repro);
    plan_free(&plan);
    plan_free(&again);
    options_free(&o);
    options_free(&other);
}

/* The preset's convention makes heads from the head dim, so only the plan can see that kv heads do not divide them. The
 * sentence is said once, and of the options it names only the one that was given as wrong. */
static void kv_heads_that_do_not_divide(void **state)
{
    (void)state;
    struct options o = parse("fabench --kv-heads 3 --dtype fp16,bf16");
    struct plan plan;
    help_listen();
    const int code = plan_make(&o, ATTN_CUDA, &plan);
    const char *said = help_said();
    assert_int_equal(code, EXIT_USAGE);
    assert_string_equal(said,
                        "fabench: --kv-heads 3: must divide the 32 query heads of head dim 64; --heads sets their "
                        "number\n");
    options_free(&o);
}

/* One set of tensors serves every mode, mask and dtype. */
static void input_is_for_tensors_of_one_shape(void **state)
{
    (void)state;
    struct plan all = plan_of("fabench --input /tmp --d 64 --seqlen 1k --dtype fp16,bf16", ATTN_CUDA);
    assert_int_equal(all.count, 2 * 2 * 2);
    plan_free(&all);
    struct plan points = plan_of("fabench --input /tmp --d 64 --seqlen 1k,2k --points 0,2", ATTN_CUDA);
    assert_int_equal(points.count, 2);
    assert_int_equal(points.items[1].problem.q_len, points.items[0].problem.q_len);
    plan_free(&points);
}

static void repro_makes_the_same_problem(void **state)
{
    (void)state;
    struct options o =
        parse("fabench --mode bwd --causal=both --d 64,128 --seqlen 1k,3000 --kv-len 2k --hidden 1024 "
              "--kv-heads 4 --layout bhsd --dist sharp --seed 77 --deterministic --dtype bf16 --scale 0.3");
    struct plan plan;
    assert_int_equal(plan_make(&o, ATTN_CUDA, &plan), EXIT_OK);
    assert_int_equal(plan.count, 8);
    for (int i = 0; i < plan.count; i++) {
        char *command = plan_repro(&o, &plan.items[i], "naive");
        struct plan again = plan_of(command, ATTN_CUDA);
        assert_int_equal(again.count, 1);
        assert_memory_equal(&again.items[0], &plan.items[i], sizeof again.items[0]);
        plan_free(&again);
        free(command);
    }
    plan_free(&plan);
    options_free(&o);
}

static void flops_follow_the_convention(void **state)
{
    (void)state;
    struct attn_problem p = {.batch = 2,
                             .q_heads = 3,
                             .kv_heads = 3,
                             .q_len = 1024,
                             .kv_len = 1024,
                             .head_dim = 64,
                             .window_left = -1,
                             .window_right = -1};
    const double full = 4.0 * 2 * 3 * 64 * 1024 * 1024;
    assert_true(problem_flops(&p, ATTN_FWD, problem_pairs(&p, NULL)) == full);
    assert_true(problem_flops(&p, ATTN_BWD, problem_pairs(&p, NULL)) == 2.5 * full);
    p.causal = true;
    assert_true(problem_flops(&p, ATTN_FWD, problem_pairs(&p, NULL)) == full / 2);
    p.q_len = 2; /* bottom-right: 1023 and 1024 keys */
    assert_true(problem_flops(&p, ATTN_FWD, problem_pairs(&p, NULL)) == 4.0 * 2 * 3 * 64 * 2047);
}

static void points_choose_among_the_problems(void **state)
{
    (void)state;
    struct plan all = plan_of("fabench --preset ci --preheat-s 3", ATTN_CUDA);
    struct plan two = plan_of("fabench --preset ci --points 7,2", ATTN_CUDA);
    assert_true(all.preheat_ms == 3000 && two.preheat_ms == 0);
    assert_int_equal(two.count, 2);
    assert_memory_equal(&two.items[0].problem, &all.items[7].problem, sizeof all.items[7].problem);
    assert_memory_equal(&two.items[1].problem, &all.items[2].problem, sizeof all.items[2].problem);
    plan_free(&all);
    plan_free(&two);
    struct options o = parse("fabench --preset ci --points 12");
    struct plan plan;
    assert_int_equal(plan_make(&o, ATTN_CUDA, &plan), EXIT_USAGE);
    options_free(&o);
}

/* Six kinds of inputs, in the order of the closing table; typed options replace them. */
static void kinds_of_inputs(void **state)
{
    (void)state;
    static const struct {
        enum fill_dist dist;
        double logit_std;
    } want[] = {{FILL_NORMAL, 1}, {FILL_NORMAL, 4},  {FILL_NORMAL, 16},
                {FILL_RISING, 0}, {FILL_FALLING, 0}, {FILL_ZEROS, 0}};
    struct plan plan = plan_of("fabench --preset data --mode fwd --causal --d 64", ATTN_CUDA);
    assert_int_equal(plan.count, 12);
    for (int i = 0; i < plan.count; i++) {
        assert_int_equal(plan.items[i].dist, want[i / 2].dist);
        assert_true(plan.items[i].logit_std == want[i / 2].logit_std);
        assert_int_equal(plan.items[i].problem.q_len, i % 2 ? 16384 : 4096);
        assert_int_equal(plan.items[i].problem.dtype, ATTN_BF16);
    }
    plan_free(&plan);
    plan = plan_of("fabench --preset data", ATTN_CUDA);
    assert_int_equal(plan.count, 96);
    plan_free(&plan);
    plan = plan_of("fabench --preset data", ATTN_CPU);
    assert_int_equal(plan.count, 48);
    assert_int_equal(plan.items[0].problem.dtype, ATTN_FP32);
    plan_free(&plan);
    plan = plan_of("fabench --dist normal,uniform --logit-std 1,2 -n 1k --mode fwd --causal --d 64", ATTN_CUDA);
    assert_int_equal(plan.count, 4);
    assert_true(plan.items[2].dist == FILL_UNIFORM && plan.items[3].logit_std == 2);
    plan_free(&plan);
    plan = plan_of("fabench --preset data --dist rising --mode fwd --causal --d 64", ATTN_CUDA);
    assert_int_equal(plan.count, 2);
    plan_free(&plan);
}

/* `repro` makes each problem of the preset again, alone. */
static void repro_of_kinds(void **state)
{
    (void)state;
    static const char *const lines[] = {"fabench --preset data --mode fwd --causal --d 64 -n 1k",
                                        "fabench --preset data --dist normal --mode fwd --causal --d 64 -n 1k",
                                        "fabench --dist sharp --logit-std 0.25,3 --mode bwd --causal --d 64 -n 1k"};
    for (int l = 0; l < 3; l++) {
        struct options o = parse(lines[l]);
        struct plan plan;
        assert_int_equal(plan_make(&o, ATTN_CUDA, &plan), EXIT_OK);
        for (int i = 0; i < plan.count; i++) {
            char *line = plan_repro(&o, &plan.items[i], NULL);
            struct plan again = plan_of(line, ATTN_CUDA);
            assert_int_equal(again.count, 1);
            assert_int_equal(again.items[0].dist, plan.items[i].dist);
            assert_true(again.items[0].logit_std == plan.items[i].logit_std);
            plan_free(&again);
            free(line);
        }
        plan_free(&plan);
        options_free(&o);
    }
}

/* Numbers that the dtype does not have are refused before anything runs. */
static void logit_std_beyond_fp16(void **state)
{
    (void)state;
    struct plan plan;
    struct options o = parse("fabench --logit-std 100 --scale 0.000001 --dtype fp16");
    assert_int_equal(plan_make(&o, ATTN_CUDA, &plan), EXIT_USAGE);
    options_free(&o);
    o = parse("fabench --logit-std 100 --scale 0.000001 --dtype bf16");
    assert_int_equal(plan_make(&o, ATTN_CUDA, &plan), EXIT_OK);
    plan_free(&plan);
    options_free(&o);
}

/* Decode: one new token, causal, against caches that --kv-len, --lengths or a preset has. */
static void decode_is_a_forward_against_a_cache(void **state)
{
    static const struct {
        const char *line;
        int count;
        int64_t batch, q_len, kv_len, page_size, pages;
        bool causal;
    } all[] = {
        {"fabench --mode decode --d 64 --kv-len 2k", 1, 8, 1, 2048, 0, 0, true},
        {"fabench --mode decode --d 64 --kv-len 2k --page-size 64 --batch 3", 1, 3, 1, 2048, 64, 97, true},
        {"fabench --mode decode --d 64 --kv-len 40,50 --seqlen 7 --no-causal --batch 2", 2, 2, 7, 40, 0, 0, false},
        {"fabench --mode decode --d 64 --causal=both --lengths list:9:30 --page-size 8", 2, 2, 1, 30, 8, 7, false},
        {"fabench --mode decode --d 64 --preset ci", 3, 16, 1, 1024, 0, 0, true},
    };
    (void)state;
    for (size_t n = 0; n < sizeof all / sizeof all[0]; n++) {
        struct options o = parse(all[n].line);
        struct plan plan;
        assert_int_equal(plan_make(&o, ATTN_CUDA, &plan), EXIT_OK);
        assert_int_equal(plan.count, all[n].count);
        const struct plan_item *item = &plan.items[0];
        const struct attn_problem *p = &item->problem;
        assert_true(item->mode == ATTN_FWD && p->lengths == ATTN_CACHE && item->arrays->seqused_k);
        assert_true(p->batch == all[n].batch && p->q_len == all[n].q_len && p->kv_len == all[n].kv_len);
        assert_true(p->page_size == all[n].page_size && p->pages == all[n].pages && p->causal == all[n].causal);
        assert_int_equal(plan_item_key(item, L2_COLD).mode, MODE_DECODE);
        assert_memory_equal(item->name, "decode", 6);
        plan_free(&plan);
        options_free(&o);
    }
    struct options o = parse("fabench --mode decode --kv-len 8 --seqlen 9");
    struct plan plan;
    assert_int_equal(plan_make(&o, ATTN_CPU, &plan), EXIT_USAGE);
    options_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paper_grid_is_the_default_on_cuda),
        cmocka_unit_test(kinds_of_inputs),
        cmocka_unit_test(repro_of_kinds),
        cmocka_unit_test(logit_std_beyond_fp16),
        cmocka_unit_test(documented_example),
        cmocka_unit_test(cpu_defaults_to_quick),
        cmocka_unit_test(ci_has_twelve_points),
        cmocka_unit_test(node_has_eight_points),
        cmocka_unit_test(generations_begin_at_512),
        cmocka_unit_test(decode_is_a_forward_against_a_cache),
        cmocka_unit_test(acceptance_is_sustained),
        cmocka_unit_test(points_choose_among_the_problems),
        cmocka_unit_test(explicit_options_win_over_the_preset),
        cmocka_unit_test(lengths_are_crossed),
        cmocka_unit_test(names_say_the_data),
        cmocka_unit_test(eight_bits),
        cmocka_unit_test(refusals),
        cmocka_unit_test(lists_of_heads_and_windows),
        cmocka_unit_test(windows_and_dropout_come_back),
        cmocka_unit_test(kv_heads_that_do_not_divide),
        cmocka_unit_test(input_is_for_tensors_of_one_shape),
        cmocka_unit_test(repro_makes_the_same_problem),
        cmocka_unit_test(flops_follow_the_convention),
    };
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
