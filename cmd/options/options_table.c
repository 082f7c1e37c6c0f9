/* The option table. A new option is one row here and one field in struct options. */
#include "cmd/options/options_table.h"

#include <stddef.h>
#include <string.h>

static const char *const verify_check_names[] = {[CHECK_FULL] = "full", [CHECK_SAMPLE] = "sample", NULL};
static const char *const verify_preset_names[] = {[PRESET_NONE] = "none", [PRESET_QUICK] = "quick", NULL};
static const char *const plot_names[] = {
    [PLOT_SVG] = "svg", [PLOT_PNG] = "png", [PLOT_TERM] = "term", [PLOT_NONE] = "none", NULL};
static const char *const color_names[] = {
    [COLOR_AUTO] = "auto", [COLOR_ALWAYS] = "always", [COLOR_NEVER] = "never", NULL};
static const char *const soft_names[] = {[SOFT_INCONCLUSIVE] = "4", [SOFT_NOT_COMPARABLE] = "5", NULL};
static const char *const dump_dtype_names[] = {[DUMP_NATIVE] = "native", [DUMP_FP32] = "fp32", NULL};
static const char *const causal_names[] = {"no", "yes", "both", NULL};

const char *const option_group_titles[] = {"what is computed", "by whom", "checking", "measuring", "gates", "output"};

#define AT(field) .offset = offsetof(struct options, field)
#define GIVEN(field) .given_offset = offsetof(struct options, field)
#define LATE(text) .fallback = text, .is_late = true

const struct option_def option_table[] = {
    {"--preset", NULL, KIND_CHOICE, AT(preset), .choices = option_preset_names, LATE("paper; quick on CPU"),
     .unit = "quick|paper|ci|acceptance|full", .help = "problems, effort; other options win", .commands = FOR_SWEEP},
    {"--preset", NULL, KIND_CHOICE, AT(preset), .choices = option_preset_names, LATE("ci; the baseline's"),
     .unit = "quick|paper|ci|acceptance|full", .help = "problems, effort; other options win", .commands = FOR_GATES},
    {"--preset", NULL, KIND_CHOICE, AT(preset), .choices = verify_preset_names, .unit = "quick",
     .help = "fewer shapes", .commands = FOR_VERIFY},
    {"--mode", NULL, KIND_CHOICE_SET, AT(modes), GIVEN(mode_given), .choices = problem_mode_names, .fallback = "fwd,bwd",
     .help = "forward, backward", .commands = FOR_PROBLEMS},
    {"--causal", NULL, KIND_CAUSAL, AT(causal), GIVEN(causal_given), .choices = causal_names, .fallback = "both",
     .unit = "[=yes|no|both]", .commands = FOR_PROBLEMS, .is_joined = true},
    {"--no-causal", NULL, KIND_NO_CAUSAL, AT(causal), GIVEN(causal_given), .help = "mask; --causal alone = yes",
     .commands = FOR_PROBLEMS},
    {"--d", "--headdim", KIND_COUNT_LIST, AT(head_dims), .min = 8, .max = 256, .multiple = 8, LATE("64,128"),
     .unit = "N,...", .help = "head dims, multiples of 8 up to 256", .commands = FOR_RUNS | FOR_GATES},
    {"--d", "--headdim", KIND_COUNT_LIST, AT(head_dims), .min = 8, .max = 256, .multiple = 8, LATE("64"),
     .unit = "N,...", .help = "head dims, multiples of 8 up to 256", .commands = FOR_SELFTEST},
    {"--seqlen", "-n", KIND_COUNT_LIST, AT(q_lens), .min = 1, .max = INT32_MAX, LATE("1k:16k:*2"), .unit = "N,...",
     .help = "query lengths", .commands = FOR_SWEEP | FOR_GATES},
    {"--seqlen", "-n", KIND_COUNT_LIST, AT(q_lens), .min = 256, .max = 1 << 20, LATE("1k,16k"), .unit = "N,...",
     .help = "lengths, two tiles of keys at least", .commands = FOR_SELFTEST},
    {"--kv-len", NULL, KIND_COUNT_LIST, AT(kv_lens), .min = 1, .max = INT32_MAX, LATE("equal"), .unit = "N,...",
     .help = "key lengths, crossed with --seqlen", .commands = FOR_SWEEP | FOR_GATES},
    {"--dtype", NULL, KIND_CHOICE_SET, AT(dtypes), GIVEN(dtypes_given), .choices = problem_dtype_names,
     LATE("fp16 on CUDA, fp32 on CPU"), .help = "of the tensors", .commands = FOR_RUNS | FOR_GATES},
    {"--dtype", NULL, KIND_CHOICE_SET, AT(dtypes), GIVEN(dtypes_given), .choices = problem_dtype_names, LATE("all"),
     .help = "of the tensors", .commands = FOR_SELFTEST},
    {"--total-tokens", NULL, KIND_COUNT, AT(total_tokens), .min = 1, .max = INT32_MAX, LATE("16k"), .unit = "N",
     .commands = FOR_SWEEP | FOR_GATES, .is_joined = true},
    {"--hidden", NULL, KIND_COUNT, AT(hidden), .min = 1, .max = INT32_MAX, LATE("2048"), .unit = "N",
     .help = "batch = tokens/n, heads = hidden/d", .commands = FOR_SWEEP | FOR_GATES},
    {"--batch", NULL, KIND_COUNT, AT(batch), .min = 1, .max = INT32_MAX, .unit = "N", .commands = FOR_SWEEP | FOR_GATES,
     .is_joined = true},
    {"--heads", NULL, KIND_COUNT, AT(heads), .min = 1, .max = INT32_MAX, .unit = "N", .commands = FOR_SWEEP | FOR_GATES,
     .is_joined = true},
    {"--heads", NULL, KIND_COUNT, AT(heads), .min = 2, .max = 1024, LATE("2"), .unit = "N", .help = "of a batch of 1",
     .commands = FOR_SELFTEST},
    {"--kv-heads", NULL, KIND_COUNT, AT(kv_heads), .min = 1, .max = INT32_MAX, .unit = "N",
     .help = "or these; kv-heads divides heads [= heads]", .commands = FOR_SWEEP | FOR_GATES},
    {"--layout", NULL, KIND_CHOICE, AT(layout), .choices = problem_layout_names, .fallback = "bshd",
     .help = "batch, s = length, heads, d in memory", .commands = FOR_SWEEP | FOR_GATES},
    {"--scale", NULL, KIND_REAL, AT(scale), .min = 1e-6, .max = 1e6, LATE("1/sqrt(d)"), .unit = "X",
     .help = "factor of Q K^T", .commands = FOR_RUNS | FOR_GATES},
    {"--dist", NULL, KIND_CHOICE, AT(dist), .choices = problem_dist_names, .choices_shown = 3, .fallback = "normal",
     .help = "inputs; also sharp, huge, peak, constant, tiny", .commands = FOR_SWEEP | FOR_GATES | FOR_SELFTEST},
    {"--seed", NULL, KIND_COUNT, AT(seed), .min = 0, .max = 9223372036854775807.0, .fallback = "1", .unit = "N",
     .help = "of the inputs", .commands = FOR_PROBLEMS},
    {"--input", NULL, KIND_IN_DIR, AT(input_dir), .unit = "DIR", .help = "take the inputs from .npy files here",
     .commands = FOR_SWEEP},

    {"--impl", NULL, KIND_NAMES, AT(impls), LATE("naive,fused,cudnn"), .unit = "NAME,...",
     .help = "fused: best; NAME:VARIANT|deterministic", .group = GROUP_WHO, .commands = FOR_RUNS},
    {"--impl", NULL, KIND_NAMES, AT(impls), LATE("fused; the baseline's"), .unit = "NAME,...",
     .help = "what is compared", .group = GROUP_WHO, .commands = FOR_GATES},
    {"--impl", NULL, KIND_NAMES, AT(impls), LATE("fused, else naive"), .unit = "NAME,...",
     .help = "computes the right results", .group = GROUP_WHO, .commands = FOR_SELFTEST},
    {"--impl-lib", NULL, KIND_LIBRARY, AT(impl_libs), .unit = "PATH", .help = "a library with more of them; repeatable",
     .group = GROUP_WHO, .commands = FOR_PROBLEMS | FOR_LIST},
    {"--variant", NULL, KIND_TEXT, AT(variant), .unit = "NAME", .help = "force a tile configuration of list",
     .group = GROUP_WHO, .commands = FOR_RUNS | FOR_GATES},
    {"--deterministic", NULL, KIND_FLAG, AT(deterministic), .help = "outputs bit-equal over runs", .group = GROUP_WHO,
     .commands = FOR_RUNS | FOR_GATES},
    {"--device", NULL, KIND_DEVICE, AT(device), .fallback = "auto", .unit = "auto|cpu|cuda:N", .help = "where it runs",
     .group = GROUP_WHO, .commands = FOR_PROBLEMS | FOR_INFO | FOR_LIST},

    {"--check", NULL, KIND_CHOICE, AT(check), .choices = problem_scope_names, .fallback = "full",
     .help = "of each row against the reference", .group = GROUP_CHECK, .commands = FOR_SWEEP | FOR_GATE},
    {"--check", NULL, KIND_CHOICE, AT(check), .choices = verify_check_names, .fallback = "full",
     .help = "against the reference", .group = GROUP_CHECK, .commands = FOR_VERIFY},
    {"--atol", NULL, KIND_REAL, AT(atol), .min = 0, .max = 1e6, .unit = "X", .group = GROUP_CHECK, .commands = FOR_RUNS | FOR_GATES,
     .is_joined = true},
    {"--rtol", NULL, KIND_REAL, AT(rtol), .min = 0, .max = 1e6, .unit = "X",
     .help = "taken literally [by dtype and row]", .group = GROUP_CHECK, .commands = FOR_RUNS | FOR_GATES},
    {"--repeats", NULL, KIND_COUNT, AT(repeats), .min = 0, .max = 1000000, .fallback = "5", .unit = "N",
     .help = "of verify: more runs, whose bits must agree", .group = GROUP_CHECK, .commands = FOR_VERIFY},

    {"--warmup-ms", NULL, KIND_REAL, AT(warmup_ms), .min = 0, .max = 3600000, LATE("500"), .unit = "X",
     .group = GROUP_MEASURE, .commands = FOR_SWEEP | FOR_GATES, .is_joined = true},
    {"--min-time-ms", NULL, KIND_REAL, AT(min_time_ms), .min = 0, .max = 3600000, LATE("500"), .unit = "X",
     .help = "of warm-up and of samples, at least", .group = GROUP_MEASURE, .commands = FOR_SWEEP | FOR_GATES},
    {"--samples", NULL, KIND_COUNT, AT(samples), .min = 1, .max = 1000000, LATE("30"), .unit = "N",
     .help = "at least", .group = GROUP_MEASURE, .commands = FOR_SWEEP | FOR_GATES},
    {"--max-noise", NULL, KIND_PERCENT, AT(max_noise_pct), .min = 0.001, .max = 100, LATE("0.5%"), .unit = "P%",
     .help = "half-width of 95 % intervals: median, ratio", .group = GROUP_MEASURE, .commands = FOR_SWEEP | FOR_GATES},
    {"--preheat-s", NULL, KIND_REAL, AT(preheat_s), .min = 0, .max = 3600, LATE("0; 3 of ab and gate"), .unit = "X",
     .help = "of load before the first problem", .group = GROUP_MEASURE, .commands = FOR_SWEEP | FOR_GATES},
    {"--timeout-s", NULL, KIND_REAL, AT(timeout_s), .min = 0.1, .max = 86400, .fallback = "60", .unit = "X",
     .help = "ends a case that hangs", .group = GROUP_MEASURE, .commands = FOR_PROBLEMS},
    {"--sustain-s", NULL, KIND_REAL, AT(sustain_s), .min = 0, .max = 3600, LATE("0"), .unit = "X",
     .help = "own region per row: power, energy; >= 2, better 10", .group = GROUP_MEASURE,
     .commands = FOR_SWEEP | FOR_GATE},
    {"--l2", NULL, KIND_CHOICE, AT(l2), .choices = problem_l2_names, .fallback = "cold", .help = "cache before each sample",
     .group = GROUP_MEASURE, .commands = FOR_SWEEP | FOR_GATES},
    {"--points", NULL, KIND_COUNT_LIST, AT(points), .min = 0, .max = 99999, .unit = "N,...", .is_hidden = true,
     .help = "only these problems of the plan", .group = GROUP_MEASURE, .commands = FOR_SWEEP},
    {"--profile", NULL, KIND_FLAG, AT(profile), .help = "one launch of one case for a profiler, no record",
     .group = GROUP_MEASURE, .commands = FOR_SWEEP},
    {"--dry-run", NULL, KIND_FLAG, AT(dry_run), .help = "only the plan: cases, memory, time", .group = GROUP_MEASURE,
     .commands = FOR_RUNS},

    {"--baseline", NULL, KIND_TEXT, AT(baseline), .unit = "PATH", .group = GROUP_GATE, .commands = FOR_GATE,
     .is_joined = true},
    {"--current", NULL, KIND_TEXT, AT(current), .unit = "PATH", .help = "record files; no --current = measure now",
     .group = GROUP_GATE, .commands = FOR_GATE},
    {"--subset", NULL, KIND_FLAG, AT(is_subset), .help = "--current may lack cases of the baseline",
     .group = GROUP_GATE, .commands = FOR_GATE},
    {"--floors", NULL, KIND_TEXT, AT(floors), .unit = "PATH", .help = "CSV of least values, see docs/gates.md",
     .group = GROUP_GATE, .commands = FOR_GATE},
    {"--delta", NULL, KIND_PERCENT, AT(delta_pct), .min = 0.1, .max = 50, LATE("2%; 5% of gate"), .unit = "P%",
     .help = "a loss up to this is none", .group = GROUP_GATE, .commands = FOR_GATES},
    {"--pairs", NULL, KIND_COUNT_LIST, AT(pairs), .min = 2, .max = 64, LATE("5,12"), .unit = "MIN,MAX",
     .help = "processes of each side", .group = GROUP_GATE, .commands = FOR_AB},
    {"--soft", NULL, KIND_CHOICE_SET, AT(soft), .choices = soft_names, .unit = "4,5",
     .help = "exit 0 instead of these codes", .group = GROUP_GATE, .commands = FOR_GATES},
    {"--junit", NULL, KIND_OUT_FILE, AT(junit_path), .unit = "PATH", .help = "the verdicts as JUnit XML",
     .group = GROUP_GATE, .commands = FOR_GATES},

    {"--out", NULL, KIND_OUT_DIR, AT(out_dir), LATE("fabench-out/<device>-<utc>/"), .unit = "DIR|none",
     .help = "for all files", .group = GROUP_OUTPUT, .commands = FOR_RUNS | FOR_PLOT},
    {"--out", NULL, KIND_OUT_DIR, AT(out_dir), LATE("fabench-out/report-<utc>/"), .unit = "DIR|none",
     .help = "none = Markdown on stdout", .group = GROUP_OUTPUT, .commands = FOR_REPORT},
    {"--out", NULL, KIND_OUT_DIR, AT(out_dir), LATE("none"), .unit = "DIR|none",
     .help = "keeps every process' record, and verdicts.csv", .group = GROUP_OUTPUT, .commands = FOR_GATES},
    {"--resume", NULL, KIND_FLAG, AT(resume), .help = "go on with the record in --out or --jsonl",
     .group = GROUP_OUTPUT, .commands = FOR_SWEEP},
    {"--csv", NULL, KIND_OUT_FILE, AT(csv_path), .unit = "PATH", .group = GROUP_OUTPUT, .commands = FOR_RUNS,
     .is_joined = true},
    {"--jsonl", NULL, KIND_OUT_FILE, AT(jsonl_path), .unit = "PATH", .help = "records; - = stdout [in the --out DIR]",
     .group = GROUP_OUTPUT, .commands = FOR_RUNS},
    {"--jsonl", NULL, KIND_OUT_FILE, AT(jsonl_path), .unit = "PATH", .help = "a row for each result; - = stdout",
     .group = GROUP_OUTPUT, .commands = FOR_SELFTEST},
    {"--columns", NULL, KIND_TEXT, AT(columns), LATE("all"), .unit = "NAME,...", .help = "of the CSV",
     .group = GROUP_OUTPUT, .commands = FOR_RUNS},
    {"--plot", NULL, KIND_CHOICE, AT(plot), GIVEN(plot_given), .choices = plot_names, .fallback = "svg",
     .help = "charts", .group = GROUP_OUTPUT, .commands = FOR_SWEEP | FOR_PLOT},
    {"--plot", NULL, KIND_CHOICE, AT(plot), GIVEN(plot_given), .choices = plot_names, .fallback = "svg",
     .unit = "svg|none", .help = "charts of the page", .group = GROUP_OUTPUT, .commands = FOR_REPORT},
    {"--overlay", NULL, KIND_IN_FILE, AT(overlay_path), .unit = "FILE", .help = "published points for the charts",
     .group = GROUP_OUTPUT, .commands = FOR_SWEEP | FOR_PLOT | FOR_REPORT},
    {"--price", NULL, KIND_TEXTS, AT(prices), .unit = "LABEL=31000EUR", .help = "of one device; repeatable",
     .group = GROUP_OUTPUT, .commands = FOR_REPORT},
    {"--dump", NULL, KIND_OUT_DIR, AT(dump_dir), .unit = "DIR", .help = "write the tensors as .npy files here",
     .group = GROUP_OUTPUT, .commands = FOR_SWEEP},
    {"--dump-dtype", NULL, KIND_CHOICE, AT(dump_dtype), .choices = dump_dtype_names, .fallback = "native",
     .help = "of these files: the tensors' own, or float32", .group = GROUP_OUTPUT, .commands = FOR_SWEEP},
    {"--verbose", NULL, KIND_FLAG, AT(verbose), .group = GROUP_OUTPUT, .commands = FOR_ANY, .is_joined = true},
    {"--quiet", NULL, KIND_FLAG, AT(quiet), .help = "say more, or only warnings and errors", .group = GROUP_OUTPUT,
     .commands = FOR_ANY},
    {"--color", NULL, KIND_CHOICE, AT(color), .choices = color_names, .fallback = "auto", .help = "on the terminal",
     .group = GROUP_OUTPUT, .commands = FOR_ANY},
    {"--version", NULL, KIND_VERSION, .group = GROUP_OUTPUT, .commands = FOR_ANY, .is_joined = true},
    {"--help", "-h", KIND_HELP, .help = "print and end", .group = GROUP_OUTPUT, .commands = FOR_ANY},
};
const int option_count = sizeof option_table / sizeof option_table[0];

const struct option_def *option_find(const struct command_def *command, const char *word, size_t length)
{
    const struct option_def *found = NULL;
    for (int i = 0; i < option_count; i++) {
        const char *const names[] = {option_table[i].name, option_table[i].alias};
        for (int j = 0; j < 2 && names[j]; j++)
            if (strlen(names[j]) == length && strncmp(names[j], word, length) == 0 &&
                (!found || option_serves(&option_table[i], command)))
                found = &option_table[i];
    }
    return found;
}

bool option_takes_value(const struct option_def *def)
{
    return def->kind != KIND_FLAG && def->kind != KIND_NO_CAUSAL && def->kind != KIND_HELP &&
           def->kind != KIND_VERSION;
}

bool option_serves(const struct option_def *def, const struct command_def *command)
{
    return def->commands & 1u << command->command;
}

bool option_is_preset(const struct option_def *def)
{
    return def->choices == option_preset_names || def->choices == verify_preset_names;
}

bool option_is_dtype(const struct option_def *def) { return def->choices == problem_dtype_names; }
