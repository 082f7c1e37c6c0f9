/* The command line word by word: every option's default, legal and illegal values, unknown words, commands; and that a
 * refusal is one sentence on stderr, nothing on stdout, and exit code 2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/text.h"
#include "tests/unit/options/options_run.h"

/* ---- Defaults ---------------------------------------------------------------------------------------------------- */

static void defaults(void **state)
{
    (void)state;
    taken("");
    assert_int_equal(options.command, COMMAND_SWEEP);
    assert_int_equal(options.preset, PRESET_NONE);
    assert_false(options.mode_given);
    assert_true(options.modes[ATTN_FWD] && options.modes[ATTN_BWD]);
    assert_false(options.causal_given);
    assert_true(options.causal[0] && options.causal[1]);
    assert_list(&options.head_dims, "");
    assert_list(&options.q_lens, "");
    assert_list(&options.kv_lens, "");
    assert_false(options.dtypes_given);
    assert_false(options.dtypes[ATTN_FP32] || options.dtypes[ATTN_FP16] || options.dtypes[ATTN_BF16]);
    assert_names(&options.impls, "");
    assert_names(&options.impl_libs, "");
    assert_null(options.variant);
    assert_false(options.deterministic);
    assert_int_equal(options.total_tokens, 0);
    assert_int_equal(options.hidden, 0);
    assert_int_equal(options.batches.count, 0);
    assert_int_equal(options.heads.count, 0);
    assert_int_equal(options.kv_heads.count, 0);
    assert_true(options.attributes.dropout == 0);
    assert_int_equal(options.layout, ATTN_BSHD);
    assert_true(isnan(options.scale));
    assert_int_equal(options.dist, FILL_NORMAL);
    assert_int_equal(options.seed, 1);
    assert_int_equal(options.device, DEVICE_AUTO);
    assert_int_equal(options.device_ordinal, 0);
    assert_int_equal(options.check, CHECK_FULL);
    assert_true(isnan(options.atol) && isnan(options.rtol));
    assert_true(isnan(options.warmup_ms) && isnan(options.min_time_ms));
    assert_int_equal(options.samples, 0);
    assert_true(isnan(options.max_noise_pct));
    assert_true(options.timeout_s == 60);
    assert_true(isnan(options.sustain_s));
    assert_int_equal(options.l2, L2_COLD);
    assert_null(options.out_dir);
    assert_null(options.csv_path);
    assert_null(options.jsonl_path);
    assert_int_equal(options.plot, PLOT_SVG);
    assert_false(options.plot_given);
    assert_null(options.columns);
    assert_null(options.input_dir);
    assert_null(options.dump_dir);
    assert_false(options.resume || options.profile || options.dry_run || options.verbose || options.quiet);
    assert_int_equal(options.color, COLOR_AUTO);
    assert_names(&options.files, "");
    assert_string_equal(options.command_line, "fabench");
}

/* ---- One legal and one illegal value of every option ------------------------------------------------------------ */

#define FIELD(member) offsetof(struct options, member), sizeof((struct options *)0)->member
static const int64_t five = 5, seven = 7, four_k = 4096, big = 2147483647;
static const int two_values = 2;
static const double quarter = 0.25;
static const uint64_t zero_seed = 0;
static const double one_and_half = 1.5, sixty = 60, nothing = 0, half = 0.5;
static const bool backward[3] = {false, true, false}, directions[3] = {true, true, false},
                  decode[3] = {false, false, true};
static const enum problem_bias heads_bias = BIAS_HEADS;
static const bool yes = true, only_bwd[2] = {false, true}, only_full[2] = {true, false}, both[2] = {true, true},
                  sixteen_bit[5] = {false, true, true}, only_fp16[2] = {false, true},
                  head_and_block[3] = {false, true, true};
static const enum preset ci = PRESET_CI;
static const enum attn_layout bhsd = ATTN_BHSD;
static const enum fill_dist sharp = FILL_SHARP;
#define DISTS "normal, uniform, zeros, sharp, huge, constant, tiny, peak, rising, falling, outliers, channels or drift"
static const bool slopes[FILL_DISTS] = {[FILL_RISING] = true, [FILL_FALLING] = true};
static const enum device_choice cuda = DEVICE_CUDA, cpu = DEVICE_CPU;
static const enum check_scope off = CHECK_OFF, sample = CHECK_SAMPLE;
static const enum plot_layout slide = LAYOUT_SLIDE;
static const enum plot_format markdown = PLOT_MARKDOWN;
static const bool gemm_and_ms[PLOT_KINDS] = {[5] = true, [6] = true};
static const enum l2_policy hot = L2_HOT;
static const enum plot_format term = PLOT_TERM;
static const enum dump_dtype dump_fp32 = DUMP_FP32;
static const enum color_choice never = COLOR_NEVER;

/* Options whose value is plain memory. */
static const struct value_case {
    const char *legal;
    size_t offset, size;
    const void *want;
    const char *illegal, *sentence;
} value_cases[] = {
    {"--preset ci", FIELD(preset), &ci, "--preset cii",
     "--preset cii: must be quick, paper, ci, acceptance, full, data, node, decode or generations; did you mean ci"},
    {"--dump new --dump-dtype fp32", FIELD(dump_dtype), &dump_fp32, "--dump new --dump-dtype bf16",
     "--dump-dtype bf16: must be native or fp32"},
    {"--sustain-s 60", FIELD(sustain_s), &sixty, "--sustain-s 3601",
     "--sustain-s 3601: must be a number from 0 to 3600"},
    {"--sustain-s 0", FIELD(sustain_s), &nothing, "--sustain-s nan",
     "--sustain-s nan: must be a number from 0 to 3600"},
    {"--mode bwd", FIELD(modes), backward, "--mode fwd,both",
     "--mode fwd,both: must be fwd, bwd or decode, several with commas"},
    {"--mode=bwd", FIELD(mode_given), &yes, "--mode fwd,",
     "--mode fwd,: an item of the list is empty; must be fwd, bwd or decode, several with commas"},
    {"--mode fwd,bwd", FIELD(modes), directions, "--mode ''",
     "--mode '': the list is empty; must be fwd, bwd or decode, several with commas"},
    {"--mode decode --kv-len 8", FIELD(modes), decode, "--mode decod",
     "--mode decod: must be fwd, bwd or decode, several with commas; did you mean decode"},
    {"--mode decode --kv-len 8 --page-size 4k", FIELD(attributes.page_size), &four_k, "--page-size 7",
     "--page-size 7: must be a multiple of 8 from 0 to 65536"},
    {"--mode decode --kv-len 8 --splits 7", FIELD(splits), &seven, "--splits -1",
     "--splits -1: must be a whole number from 0 to 1024"},
    {"--causal", FIELD(causal), only_bwd, "--causal=maybe", "--causal=maybe: must be no, yes or both"},
    {"--causal", FIELD(causal_given), &yes, "--causal=", "--causal '': must be no, yes or both"},
    {"--causal=yes", FIELD(causal), only_bwd, "--causal no",
     "--causal no: takes no separate word; did you mean --causal=no"},
    {"--causal=no", FIELD(causal), only_full, "--causal yes",
     "--causal yes: takes no separate word; did you mean --causal=yes"},
    {"--causal=both", FIELD(causal), both, "--causal both",
     "--causal both: takes no separate word; did you mean --causal=both"},
    {"--no-causal", FIELD(causal), only_full, "--no-causal=yes", "--no-causal yes: takes no value"},
    {"--dtype fp16,bf16", FIELD(dtypes), sixteen_bit, "--dtype half",
     "--dtype half: must be fp32, fp16, bf16, e4m3 or e5m2, several with commas"},
    {"--dtype bf16,fp16", FIELD(dtypes_given), &yes, "--dtype fp8",
     "--dtype fp8: fp8 is more than one type; must be fp32, fp16, bf16, e4m3 or e5m2, several with commas"},
    {"--dtype e4m3 --out-dtype fp16", FIELD(out_dtypes), only_fp16, "--out-dtype e4m3",
     "--out-dtype e4m3: must be bf16 or fp16, several with commas"},
    {"--dtype e5m2 --fp8-scale block,head", FIELD(fp8_scales), head_and_block, "--fp8-scale row",
     "--fp8-scale row: must be tensor, head or block, several with commas"},
    {"--dtype e4m3 --fp8-scale block --scale-block 4k", FIELD(scale_block), &four_k, "--scale-block 0",
     "--scale-block 0: must be a whole number from 1 to 65536"},
    {"--sink", FIELD(attributes.has_sink), &yes, "--sink=1", "--sink 1: takes no value"},
    {"--alibi", FIELD(attributes.has_alibi), &yes, "--alibi=1", "--alibi 1: takes no value"},
    {"--bias heads", FIELD(bias), &heads_bias, "--bias rows", "--bias rows: must be none, full, heads or batch"},
    {"--dtype e4m3 --quant-in-time", FIELD(quant_in_time), &yes, "--quant-in-time=1",
     "--quant-in-time 1: takes no value"},
    {"--dtype e4m3 --hadamard", FIELD(hadamard), &yes, "--hadamard=yes", "--hadamard yes: takes no value"},
    {"--total-tokens 4k", FIELD(total_tokens), &four_k, "--total-tokens 0",
     "--total-tokens 0: must be a whole number from 1 to 2147483647"},
    {"--hidden 4k", FIELD(hidden), &four_k, "--hidden 2e3",
     "--hidden 2e3: must be a whole number from 1 to 2147483647"},
    {"--batch 5,7,5", FIELD(batches.count), &two_values, "--batch -1",
     "--batch -1: \"-1\" is not a whole number (digits, k for 1024, m for 1024k); must be a whole number from 1 to "
     "2147483647, or a "
     "list as 64,128 or 1k:16k:*2"},
    {"--heads 5,6", FIELD(heads.count), &two_values, "--heads 2147483648",
     "--heads 2147483648: must be a whole number from 1 to 2147483647"},
    {"--heads 6 --kv-heads 3,2", FIELD(kv_heads.count), &two_values, "--kv-heads 0",
     "--kv-heads 0: must be a whole number from 1 to 2147483647"},
    {"--shape 8x2", FIELD(shapes.count), &two_values, "--shape 8x3",
     "--shape 8x3: the 3 key heads must divide the 8 query heads"},
    {"--shape 8x2", FIELD(shapes.count), &two_values, "--shape 8",
     "--shape 8: must be query x key heads with commas, as 32x8,64x8"},
    {"--window-left none,0", FIELD(windows_left.count), &two_values, "--window-left -2",
     "--window-left -2: must be none (or -1), or whole numbers from 0 to 2147483647 with commas"},
    {"--window-right -1,5", FIELD(windows_right.count), &two_values, "--window-right 1000000000000000000",
     "--window-right 1000000000000000000: must be none (or -1), or whole numbers from 0 to 2147483647 with commas"},
    {"--dropout 0.25", FIELD(attributes.dropout), &quarter, "--dropout 1",
     "--dropout 1: must be a number from 0 to 0.9999"},
    {"--lengths uniform:1:8,@file", FIELD(lengths.count), &two_values, "--lengths uniform:1:8,",
     "--lengths uniform:1:8,: an item of the list is empty"},
    {"--block-mask none,local:1", FIELD(block_masks.count), &two_values, "--block-mask ,",
     "--block-mask ,: an item of the list is empty"},
    {"--block-mask local:1 --mask-block 4k", FIELD(mask_block), &four_k, "--mask-block 12",
     "--mask-block 12: must be a multiple of 8 from 8 to 65536"},
    {"--softcap 0.25", FIELD(attributes.softcap), &quarter, "--softcap -1",
     "--softcap -1: must be a number from 0 to 1000000"},
    {"--dropout 0.25", FIELD(attributes.dropout), &quarter, "--dropout nan",
     "--dropout nan: must be a number from 0 to 0.9999"},
    {"--dropout 0.25 --dropout-seed 4k", FIELD(attributes.dropout_seed), &four_k, "--dropout=-0.1",
     "--dropout -0.1: must be a number from 0 to 0.9999"},
    {"--layout bhsd", FIELD(layout), &bhsd, "--layout bhds", "--layout bhds: must be bshd or bhsd; did you mean bhsd"},
    {"--dist falling,rising", FIELD(dists), slopes, "--dist gauss",
     "--dist gauss: must be " DISTS ", several with commas"},
    {"--dist normal", FIELD(dists_given), &yes, "--dist normal,",
     "--dist normal,: an item of the list is empty; must be " DISTS ", several with commas"},
    {"selftest --dist sharp", FIELD(dist), &sharp, "selftest --dist sharp,huge", "--dist sharp,huge: must be " DISTS},
    {"--seed 0", FIELD(seed), &zero_seed, "--seed -1",
     "--seed -1: must be a whole number from 0 to 9223372036854775807"},
    {"--deterministic", FIELD(deterministic), &yes, "--deterministic=1", "--deterministic 1: takes no value"},
    {"--device cuda:1", FIELD(device), &cuda, "--device cuda",
     "--device cuda: must be auto, cpu, all, or cuda:0, cuda:1 and so on"},
    {"--device cpu", FIELD(device), &cpu, "--device cuda:-1",
     "--device cuda:-1: must be auto, cpu, all, or cuda:0, cuda:1 and so on"},
    {"--check off", FIELD(check), &off, "--check no", "--check no: must be full, sample or off"},
    {"verify --check sample", FIELD(check), &sample, "verify --check off", "--check off: must be full or sample"},
    {"--scale 1.5", FIELD(scale), &one_and_half, "--scale 0", "--scale 0: must be a number from 1e-06 to 10000"},
    {"--atol 0", FIELD(atol), &nothing, "--atol nan", "--atol nan: must be a number from 0 to 1000000"},
    {"--rtol 1.5", FIELD(rtol), &one_and_half, "--rtol -0.1", "--rtol -0.1: must be a number from 0 to 1000000"},
    {"verify --random 7", FIELD(random_count), &seven, "verify --random 0",
     "--random 0: must be a whole number from 1 to 100000"},
    {"verify --repeats 7", FIELD(repeats), &seven, "verify --repeats 1.5",
     "--repeats 1.5: must be a whole number from 0 to 1000000"},
    {"verify --invariance", FIELD(invariance), &yes, "verify --invariance=no", "--invariance no: takes no value"},
    {"selftest --max-failures 7", FIELD(max_failures), &seven, "verify --max-failures -1",
     "--max-failures -1: must be a whole number from 0 to 1000000"},
    {"--warmup-ms 0", FIELD(warmup_ms), &nothing, "--warmup-ms inf",
     "--warmup-ms inf: must be a number from 0 to 3600000"},
    {"--min-time-ms 1.5", FIELD(min_time_ms), &one_and_half, "--min-time-ms 1s",
     "--min-time-ms 1s: must be a number from 0 to 3600000"},
    {"--samples 5", FIELD(samples), &five, "--samples 0", "--samples 0: must be a whole number from 1 to 1000000"},
    {"--max-noise 0.5%", FIELD(max_noise_pct), &half, "--max-noise -1%",
     "--max-noise -1%: must be a percentage from 0.001% to 100%"},
    {"--max-noise 0.5", FIELD(max_noise_pct), &half, "--max-noise 101%",
     "--max-noise 101%: must be a percentage from 0.001% to 100%"},
    {"--timeout-s 1.5", FIELD(timeout_s), &one_and_half, "--timeout-s 0",
     "--timeout-s 0: must be a number from 0.1 to 86400"},
    {"--max-time-s 1.5", FIELD(max_time_s), &one_and_half, "--max-time-s 0",
     "--max-time-s 0: must be a number from 0.1 to 86400"},
    {"--l2 hot", FIELD(l2), &hot, "--l2 warm", "--l2 warm: must be cold or hot"},
    {"--plot term", FIELD(plot), &term, "--plot html", "--plot html: must be svg, png, term or none"},
    {"--plot svg", FIELD(plot_given), &yes, "--plot ''", "--plot '': must be svg, png, term or none"},
    {"--preheat-s 1.5", FIELD(preheat_s), &one_and_half, "--preheat-s -1",
     "--preheat-s -1: must be a number from 0 to 3600"},
    {"ab a b --delta 1.5%", FIELD(delta_pct), &one_and_half, "ab a b --delta 0%",
     "--delta 0%: must be a percentage from 0.1% to 50%"},
    {"ab a b --soft 4", FIELD(soft), only_full, "ab a b --soft 3", "--soft 3: must be 4 or 5, several with commas"},
    {"gate --baseline a --soft 4,5", FIELD(soft), both, "gate --baseline a --soft ''",
     "--soft '': the list is empty; must be 4 or 5, several with commas"},
    {"gate --baseline a --current b --subset", FIELD(is_subset), &yes, "gate --baseline a --subset",
     "--subset: is for a --baseline and a --current record"},
    {"--profile", FIELD(profile), &yes, "--profile=no", "--profile no: takes no value"},
    {"--counters", FIELD(counters), &yes, "--counters=1", "--counters 1: takes no value"},
    {"--dry-run", FIELD(dry_run), &yes, "--dry-run=1", "--dry-run 1: takes no value"},
    {"report --boards --nodes n1,n2 a.jsonl", FIELD(is_fleet), &yes, "report --boards --history a.jsonl",
     "--history: cannot be used with --boards; must be left out"},
    {"report --history a.jsonl", FIELD(is_history), &yes, "report --history --price a=5EUR a.jsonl",
     "--price: cannot be used with --history, which has no prices and no charts; must be left out"},
    {"plot --plot-layout slide a.jsonl", FIELD(plot_layout), &slide, "plot --plot-layout wall a.jsonl",
     "--plot-layout wall: must be page or slide"},
    {"plot --plot md a.jsonl", FIELD(plot), &markdown, "plot --plot md --plot-kind ms a.jsonl",
     "--plot-kind: is for charts in files; must be left out, or --plot svg|png"},
    {"plot --plot-kind gemm,ms a.jsonl", FIELD(plot_kinds), &gemm_and_ms, "plot --plot-kind watts a.jsonl",
     "--plot-kind watts: must be tflops, sustained, speedup, memory, error, gemm, ms, joules, quantising, bytes or "
     "roofline, several with commas"},
    {"--overwrite", FIELD(overwrite), &yes, "--overwrite=1", "--overwrite 1: takes no value"},
    {"--verbose", FIELD(verbose), &yes, "--verbose=2", "--verbose 2: takes no value"},
    {"--quiet", FIELD(quiet), &yes, "--quiet=", "--quiet '': takes no value"},
    {"--color never", FIELD(color), &never, "--color on", "--color on: must be auto, always or never"},
    {"--seqlen 2147483647 --kv-len 1 --heads 1 --d 8 --batch 1", FIELD(heads.count), &(const int){1},
     "--seqlen 2147483648", "--seqlen 2147483648: must be a whole number from 1 to 2147483647"},
    {"--total-tokens 2147483647 --heads 1 --d 8 --kv-len 64", FIELD(total_tokens), &big, "--total-tokens ''",
     "--total-tokens '': must be a whole number from 1 to 2147483647"},
};

static void values_in_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof value_cases / sizeof value_cases[0]; i++) {
        const struct value_case *c = &value_cases[i];
        taken(c->legal);
        if (memcmp((char *)&options + c->offset, c->want, c->size) != 0)
            fail_msg("fabench %s: another value", c->legal);
        refused(c->illegal, c->sentence);
    }
}

static void lists(void **state)
{
    (void)state;
    taken("--d 64,128,8 --seqlen 1k:16k:*2 --kv-len 512:2k:+512");
    assert_list(&options.head_dims, "64,128,8,");
    assert_list(&options.q_lens, "1024,2048,4096,8192,16384,");
    assert_list(&options.kv_lens, "512,1024,1536,2048,");
    taken("--headdim=256 -n 1k,7");
    assert_list(&options.head_dims, "256,");
    assert_list(&options.q_lens, "1024,7,");
    taken("-n=5");
    assert_list(&options.q_lens, "5,");
    taken("--impl naive,fused,naive");
    assert_names(&options.impls, "naive,fused,");
    refused("--d 63", "--d 63: must be a multiple of 8 from 8 to 256");
    refused("--d 0", "--d 0: must be a multiple of 8 from 8 to 256");
    refused("--d 264", "--d 264: must be a multiple of 8 from 8 to 256");
    refused("--headdim=63", "--headdim 63: must be a multiple of 8 from 8 to 256");
    refused("--d 64,60", "--d 64,60: 60 is not allowed; each must be a multiple of 8 from 8 to 256");
    refused("--seqlen 0", "--seqlen 0: must be a whole number from 1 to 2147483647");
    refused("--kv-len 0:2:+1", "--kv-len 0:2:+1: 0 is not allowed; each must be a whole number from 1 to 2147483647");
    static const char tail[] = "; must be a whole number from 1 to 2147483647, or a list as 64,128 or 1k:16k:*2";
    static const struct {
        const char *line, *start;
    } cases[] = {
        {"--seqlen 1kk", "--seqlen 1kk: \"1kk\" is not a whole number (digits, k for 1024, m for 1024k)"},
        {"-n -5", "-n -5: \"-5\" is not a whole number (digits, k for 1024, m for 1024k)"},
        {"--seqlen ''", "--seqlen '': the list is empty"},
        {"--seqlen=", "--seqlen '': the list is empty"},
        {"--kv-len 1,,2", "--kv-len 1,,2: an item of the list is empty"},
        {"-n 4k:1k:*2", "-n 4k:1k:*2: the range \"4k:1k:*2\" ends before it begins"},
        {"-n 1k:4k", "-n 1k:4k: \"1k:4k\" is not a range; ranges are written 1k:16k:*2 or 512:4k:+512"},
        {"-n 1:1g:+1", "-n 1:1g:+1: \"1:1g:+1\" is not a range; ranges are written 1k:16k:*2 or 512:4k:+512"},
        {"-n 1:100k:+1", "-n 1:100k:+1: a list has at most 4096 values"},
        {"-n 9223372036854775808",
         "-n 9223372036854775808: \"9223372036854775808\" is not a whole number (digits, k for 1024, m for 1024k)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char sentence[300];
        snprintf(sentence, sizeof sentence, "%s%s", cases[i].start, tail);
        refused(cases[i].line, sentence);
    }
    refused("--impl naive,,fused", "--impl naive,,fused: an item of the list is empty; must be names with commas, as "
                                   "naive,fused");
    refused("--impl ''", "--impl '': the list is empty; must be names with commas, as naive,fused");
    refused("--impl Naive", "--impl Naive: must be names of a-z, 0-9 and _ with commas, as naive,fused");
}

static void lists_of_numbers(void **state)
{
    (void)state;
    taken("--logit-std 1,4,0.5 --dist normal,uniform");
    assert_int_equal(options.logit_stds.count, 3);
    assert_true(options.logit_stds.values[1] == 4 && options.logit_stds.values[2] == 0.5);
    taken("--logit-std 2 --logit-std 3"); /* the last one holds */
    assert_int_equal(options.logit_stds.count, 1);
    assert_true(options.logit_stds.values[0] == 3);
    static const char *const wrong[] = {"0", "-1", "nan", "inf", "1e9", "1,0", "1,,2", "1,", "''", "4x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char line[80], sentence[200];
        snprintf(line, sizeof line, "--logit-std %s", wrong[i]);
        snprintf(sentence, sizeof sentence, "--logit-std %s: must be a number from 0.001 to 1000, several with commas",
                 wrong[i]);
        refused(line, sentence);
    }
}

static void texts(void **state)
{
    (void)state;
    taken("--peer mine");
    assert_string_equal(options.peer, "mine");
    refused("--peer ''", "--peer '': must not be empty");
    taken("--variant d128_causal --columns impl,time_ms --out none --csv run.csv --jsonl dir/run.jsonl --input dir "
          "--dump new/deep --impl-lib file --impl-lib readonly");
    assert_string_equal(options.variant, "d128_causal");
    assert_string_equal(options.columns, "impl,time_ms");
    assert_string_equal(options.out_dir, "none");
    assert_string_equal(options.csv_path, "run.csv");
    assert_string_equal(options.jsonl_path, "dir/run.jsonl");
    assert_string_equal(options.input_dir, "dir");
    assert_string_equal(options.dump_dir, "new/deep");
    assert_names(&options.impl_libs, "file,readonly,");
    refused("--variant ''", "--variant '': must not be empty");
    refused("--columns ''", "--columns '': must not be empty");
    refused("--out ''", "--out '': must not be empty");
    refused("--csv ''", "--csv '': must not be empty");
    refused("--jsonl ''", "--jsonl '': must not be empty");
    refused("--input ''", "--input '': must not be empty");
    refused("--dump ''", "--dump '': must not be empty");
    refused("--impl-lib ''", "--impl-lib '': must name a shared library");
    refused("--impl-lib ./absent.so", "--impl-lib ./absent.so: must be a file that exists (No such file or directory)");
    refused("--impl-lib dir", "--impl-lib dir: is a directory; must be a file");
    taken("--device cuda:3");
    assert_int_equal(options.device_ordinal, 3);
    refused("--device cuda:1k", "--device cuda:1k: must be auto, cpu, all, or cuda:0, cuda:1 and so on");
    refused("--device cuda:0k", "--device cuda:0k: must be auto, cpu, all, or cuda:0, cuda:1 and so on");
    refused("--device cuda:1024", "--device cuda:1024: must be auto, cpu, all, or cuda:0, cuda:1 and so on");
    taken("--device cuda:0,cuda:2 --one-by-one");
    assert_int_equal(options.device, DEVICE_CUDA);
    assert_int_equal(options.device_ordinals.count, 2);
    assert_int_equal(options.device_ordinals.values[1], 2);
    assert_true(options_has_boards(&options));
    taken("--device cuda:0,cuda:2 --device cuda:1"); /* the last one holds */
    assert_false(options_has_boards(&options));
    assert_int_equal(options.device_ordinal, 1);
    taken("--device all --max-board-spread 2.5% --board-baseline a --board-baseline b --seqlen 128");
    assert_true(options.all_devices);
    assert_int_equal(options.board_baselines.count, 2);
    assert_true(options.max_board_spread_pct > 2.4 && options.max_board_spread_pct < 2.6);
    struct options one;
    options_for_device(&options, 3, &one);
    assert_false(options_has_boards(&one));
    assert_int_equal(one.device_ordinal, 3);
    assert_true(isnan(one.max_board_spread_pct));
    assert_int_equal(one.board_baselines.count, 0);
    assert_int_equal(one.given.count, 4);
    assert_string_equal(one.given.names[0], "--device");
    assert_string_equal(one.given.names[1], "cuda:3");
    assert_string_equal(one.given.names[2], "--seqlen");
    options_free_one(&one);
    refused("--device cuda:0,cuda:0", "--device cuda:0,cuda:0: cuda:0 is there twice; must be each device once");
    refused("--device all,cuda:0",
            "--device all,cuda:0: must be auto, cpu, all, or cuda:0, cuda:1 and so on, several with commas");
    taken("--exit-style slurm --verdict v.json");
    assert_int_equal(options.exit_style, EXIT_STYLE_SLURM);
    assert_string_equal(options.verdict_path, "v.json");
    refused("--exit-style sl", "--exit-style sl: must be plain, nagios or slurm");
    refused("--verdict -", "--verdict -: must be a file: stdout has the results");
    refused("--device cuda:0 --one-by-one", "--one-by-one: is for several devices: --device all, or cuda:0,cuda:1");
    refused("list --device all", "--device all: must be one device: list takes one");
    refused("--device gpu", "--device gpu: must be auto, cpu, all, or cuda:0, cuda:1 and so on");
}

/* Is the option a word of a command line in this test file? */
static bool file_has_option(const char *path, const char *name)
{
    char *text = xcalloc(1 << 20, 1), word[60];
    FILE *const file = fopen(path, "r");
    bool is_there = false;
    assert_non_null(file);
    assert_in_range(fread(text, 1, (1 << 20) - 1, file), 1, (1 << 20) - 2);
    fclose(file);
    for (int i = 0; i < 2; i++) { /* the first word, or a later one */
        snprintf(word, sizeof word, "%c%s", i ? ' ' : '"', name);
        for (const char *at = text; !is_there && (at = strstr(at, word)); at++)
            is_there = strchr(" =\",", at[strlen(word)]);
    }
    free(text);
    return is_there;
}

/* Every option appears on a command line in this folder's tests: a new one cannot come without. */
static void logit_means(void **state)
{
    (void)state;
    taken("--logit-mean=-500,20000");
    assert_true(options.logit_means.count == 2 && options.logit_means.values[0] == -500);
    refused_with("--logit-mean 20001", "--logit-mean 20001: must be");
    refused_with("--logit-mean 5 --dist peak", "--logit-mean 5: cannot be used with --dist peak");
}

static void every_option_is_tested(void **state)
{
    (void)state;
    char pattern[1024];
    glob_t files;
    snprintf(pattern, sizeof pattern, "%s", __FILE__);
    snprintf(strrchr(pattern, '/'), 20, "/test_*.c");
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    for (int i = 0; i < option_count; i++) {
        bool is_tested = false;
        for (size_t j = 0; j < files.gl_pathc && !is_tested; j++)
            is_tested = file_has_option(files.gl_pathv[j], option_table[i].name);
        if (!is_tested)
            fail_msg("%s has no test", option_table[i].name);
    }
    globfree(&files);
}

static void missing_values(void **state)
{
    (void)state;
    refused("--atol", "--atol: needs a value: a number from 0 to 1000000");
    refused("--csv", "--csv: needs a value: PATH");
    refused("--l2", "--l2: needs a value: cold or hot");
    refused("--csv --jsonl x", "--csv: needs a value: PATH; one that begins with - is written --csv=--jsonl");
    refused("--variant -n", "--variant: needs a value: NAME; one that begins with - is written --variant=-n");
    refused("--d -n 5", "--d: needs a value: a multiple of 8 from 8 to 256; one that begins with - is written --d=-n");
    refused("--csv --", "--csv: needs a value: PATH; one that begins with - is written --csv=--");
    taken("--csv=--jsonl");
    assert_string_equal(options.csv_path, "--jsonl");
    for (int i = 0; i < option_count; i++) {
        char part[60];
        if (!option_takes_value(&option_table[i]) || option_table[i].kind == KIND_CAUSAL ||
            !(option_table[i].commands & 1u << COMMAND_SWEEP))
            continue;
        snprintf(part, sizeof part, "fabench: %s: needs a value: ", option_table[i].name);
        refused_with(option_table[i].name, part);
    }
}

static void causal_never_eats_a_word(void **state)
{
    (void)state;
    taken("--mode bwd --causal --d 128");
    assert_true(options.causal[1] && !options.causal[0]);
    assert_list(&options.head_dims, "128,");
    taken("--causal");
    refused("--causal true", "true: sweep takes no such argument; lists are written with commas, as 64,128");
    refused("--causal --no-causal", "--no-causal: cannot be used with --causal; both masks are --causal=both");
    refused("--no-causal --causal=both", "--causal: cannot be used with --no-causal; both masks are --causal=both");
}

static void repeated_options(void **state)
{
    (void)state;
    taken("--d 64,128 --d 256");
    assert_list(&options.head_dims, "256,");
    assert_int_equal(options.given.count, 2);
    assert_string_equal(options.given.names[1], "256");
    assert_names(&options.sweep_words, "--d=256,");
    assert_string_equal(options.deciding, "--d 256");
    taken("--seqlen 64 --d 32 -n 128");
    assert_list(&options.q_lens, "128,");
    assert_names(&options.sweep_words, "--d=32,--seqlen=128,");
    taken("--impl naive,fused --impl null");
    assert_names(&options.impls, "null,");
    taken("--seed 1 --seed 7 --seed 5");
    assert_int_equal(options.seed, 5);
    assert_int_equal(options.given.count, 2);
    taken("--mode fwd --mode bwd");
    assert_true(options.modes[ATTN_BWD] && !options.modes[ATTN_FWD]);
    taken("--causal --causal=no");
    assert_true(options.causal[0] && !options.causal[1]);
    taken("--causal=no --causal");
    assert_true(options.causal[1] && !options.causal[0]);
    taken("--verbose --verbose");
    assert_true(options.verbose);
    taken("--device cuda:3 --device cpu");
    assert_int_equal(options.device, DEVICE_CPU);
    taken("--out a --out b");
    assert_string_equal(options.out_dir, "b");
    /* What is wrong stays wrong, wherever it stands. */
    refused("--d 7 --d 64", "--d 7: must be a multiple of 8 from 8 to 256");
    refused("--d 64 --d 7", "--d 7: must be a multiple of 8 from 8 to 256");
    /* Options of one kind of value are kept apart from others whose names begin alike. */
    taken("--dump-dtype fp32 --dump x --dump y");
    assert_string_equal(options.dump_dir, "y");
    assert_int_equal(options.dump_dtype, DUMP_FP32);
    taken("--preset quick --samples 5 --samples 9 --sustain-s 3");
    assert_names(&options.sweep_words, "--preset=quick,--samples=9,--sustain-s=3,");
}

/* ---- Unknown words ----------------------------------------------------------------------------------------------- */

static void unknown_options(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"--seqln 5", "--seqln: no such option; did you mean --seqlen"},
        {"--seq-len 5", "--seq-len: no such option; did you mean --seqlen"},
        {"--seqlen5", "--seqlen5: no such option; did you mean --seqlen"},
        {"--head-dim 64", "--head-dim: no such option; did you mean --headdim"},
        {"--haeds 8", "--haeds: no such option; did you mean --heads"},
        {"--kvheads 8", "--kvheads: no such option; did you mean --kv-heads"},
        {"--Causal", "--Causal: no such option; did you mean --causal"},
        {"--nocausal", "--nocausal: no such option; did you mean --no-causal"},
        {"--noise 1%", "--noise: no such option; did you mean --max-noise"},
        {"--timeout 5", "--timeout: no such option; did you mean --timeout-s"},
        {"--determ", "--determ: no such option; did you mean --deterministic"},
        {"--impls=naive", "--impls: no such option; did you mean --impl"},
        {"-d 64", "-d: no such option; did you mean --d"},
        {"-help", "-help: no such option; did you mean --help"},
        {"-x", "-x: no such option; see fabench --help"},
        {"-5", "-5: no such option; see fabench --help"},
        {"--frobnicate", "--frobnicate: no such option; see fabench --help"},
        {"--windows 5", "--windows: no such option; see fabench --help"},
        {"--dropoutt 0.1", "--dropoutt: no such option; did you mean --dropout"},
        {"--=5", "--: no such option; see fabench --help"},
        {"plot --seqln 5", "--seqln: no such option; see fabench --help"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i].line, cases[i].sentence);
}

static void nearest_names(void **state)
{
    (void)state;
    static const char *const names[] = {"naive", "fused_sm80", "cudnn", "null"};
    static const char *const none[] = {"x"};
    assert_string_equal(nearest_name("nave", names, 4), "naive");
    assert_string_equal(nearest_name("niave", names, 4), "naive");
    assert_string_equal(nearest_name("cuDNN", (const char *const[]){"cudnn", "cuDNm"}, 2), "cuDNm");
    assert_string_equal(nearest_name("fused", names, 4), "fused_sm80");
    assert_string_equal(nearest_name("fused_sm90", names, 4), "fused_sm80");
    assert_null(nearest_name("flash", names, 4));
    assert_null(nearest_name("", names, 4));
    assert_null(nearest_name("naive", none, 1));
    assert_null(nearest_name("naive", names, 0));
    char longest[500];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(nearest_name(longest, names, 4));
}

static void commands(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum command command;
    } good[] = {{"sweep", COMMAND_SWEEP},
                {"verify", COMMAND_VERIFY},
                {"info", COMMAND_INFO},
                {"list", COMMAND_LIST},
                {"selftest", COMMAND_SELFTEST}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        taken(good[i].name);
        assert_int_equal(options.command, good[i].command);
    }
    refused("verfy", "verfy: no such command; did you mean verify");
    refused("frob --d 64",
            "frob: no such command; must be verify, gate, ab, tune, report, plot, info, list, selftest or "
            "help, or no word for the sweep");
    refused("''",
            "'': no such command; must be verify, gate, ab, tune, report, plot, info, list, selftest or help, or no "
            "word for the sweep");
    refused("--d 64 verify", "verify: a command is the first word, before the options");
    refused("--d 64 128", "128: sweep takes no such argument; lists are written with commas, as 64,128");
    refused("verify a.jsonl", "a.jsonl: verify takes no such argument; lists are written with commas, as 64,128");
    refused("info x", "x: info takes no such argument; lists are written with commas, as 64,128");
    refused("list x", "x: list takes no such argument; lists are written with commas, as 64,128");
    refused("-- --d", "--d: sweep takes no such argument; lists are written with commas, as 64,128");
    refused("--d 64 ''", "'': sweep takes no such argument; lists are written with commas, as 64,128");
}

static void options_of_other_commands(void **state)
{
    (void)state;
    refused("verify --min-time-ms 5", "--min-time-ms: is not an option of verify, only of sweep, gate, ab, tune");
    refused("verify -n 5", "-n: is not an option of verify, only of sweep, gate, ab, tune, selftest");
    refused("plot --d 64", "--d: is not an option of plot, only of sweep, verify, gate, ab, tune, selftest");
    refused("info --plot svg", "--plot: is not an option of info, only of sweep, report, plot");
    refused("list --csv x", "--csv: is not an option of list, only of sweep, verify");
    refused("verify --preset paper", "--preset paper: must be quick");
    taken("verify --preset quick --d 64 --mode fwd --check sample --no-causal --seed 5 --dtype fp32 --timeout-s 5");
    assert_int_equal(options.preset, PRESET_QUICK);
    assert_int_equal(options.seed, 5);
    taken("info --device cpu --quiet");
    taken("list --device cuda:0 --impl-lib file --verbose");
}

/* The options that rows depend on, in the order of the table, whatever the order of the words; nothing about output. */
static void deciding_options(void **state)
{
    (void)state;
    taken("--samples 9 --out dir --quiet --d 64 --resume --causal --impl naive,fused --plot none --color never");
    assert_string_equal(options.deciding, "--causal --d 64 --impl naive,fused --samples 9");
    taken("--impl-lib ./file --impl-lib ./readonly --sustain-s 2 --causal=no");
    assert_string_equal(options.deciding, "--causal no --impl-lib ./file --impl-lib ./readonly --sustain-s 2");
    taken("--jsonl - --verbose");
    assert_string_equal(options.deciding, "");
}

/* The line of a record's header: problems and timing come back, where it wrote does not. */
static void a_recorded_line_comes_back(void **state)
{
    (void)state;
    struct options again;
    assert_int_equal(
        options_parse_line("fabench --d 64,128 --out '/no such/it'\\''s' --causal --variant 'a b'", &again), EXIT_OK);
    assert_null(again.out_dir);
    assert_string_equal(again.variant, "a b");
    assert_names(&again.sweep_words, "--d=64,128,--causal,--variant=a b,");
    options_free(&again);
    assert_int_equal(options_parse_line("fabench verify --d 64", &again), EXIT_USAGE);
    assert_int_equal(options_parse_line("", &again), EXIT_USAGE);
}

static void not_in_this_version(void **state)
{
    (void)state;
    refused("--preset none", "--preset none: must be quick, paper, ci, acceptance, full, data, node, decode or "
                             "generations; did you mean node");
    refused("--dtype fp16,fp8_e4m3",
            "--dtype fp16,fp8_e4m3: fp8 is more than one type; must be fp32, fp16, bf16, e4m3 or e5m2, several with "
            "commas");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(values_in_memory),
        cmocka_unit_test(lists),
        cmocka_unit_test(lists_of_numbers),
        cmocka_unit_test(texts),
        cmocka_unit_test(logit_means),
        cmocka_unit_test(every_option_is_tested),
        cmocka_unit_test(missing_values),
        cmocka_unit_test(causal_never_eats_a_word),
        cmocka_unit_test(repeated_options),
        cmocka_unit_test(unknown_options),
        cmocka_unit_test(nearest_names),
        cmocka_unit_test(commands),
        cmocka_unit_test(options_of_other_commands),
        cmocka_unit_test(deciding_options),
        cmocka_unit_test(a_recorded_line_comes_back),
        cmocka_unit_test(not_in_this_version),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
