/* The reference page: presets, columns, terms, build options, exit codes. */
#include "cmd/inspect/inspect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"
#include "cmd/options/options.h"
#include "cmd/options/options_text.h"
#include "cmd/plan/plan.h"
#include "cmd/record/record.h"

/* The glossary: every word of the pages that is not the field's own, or that has one meaning here among several. */
static const struct named_text terms[] = {
    {"problem", "what attention is asked to compute: shape, dtype, mask, scale"},
    {"dense", "attention over all keys or under the causal mask, with equal lengths and none of the attributes beyond: "
              "windows, packed lengths, dropout, softcap, block masks, caches, 8 bits"},
    {"implementation", "one way to compute it: naive, fused_sm90, cudnn, or one of a loaded library"},
    {"variant", "a tile configuration of an implementation, as fabench list shows it"},
    {"naive", "the timed three-pass competitor: S and P stored in device memory in the I/O dtype"},
    {"fused", "a kernel that keeps S and P on the chip; as a name of --impl, the first of ours that takes the problem"},
    {"peer", "an implementation by others in the same process, as cudnn or fa3; the columns peer and speedup_vs_peer "
             "say which"},
    {"case", "a problem in one direction with one implementation: one row of a record"},
    {"key", "the name of a problem: its folder in --dump, and what --only takes"},
    {"record", "the JSONL file that a run leaves; everything else is made from it"},
    {"paper sweep",
     "the 40 problems of --preset paper in one dtype: forward and backward, full and causal, head dims 64 "
     "and 128, 1k to 16k; 16384 tokens, heads x head dim = 2048"},
    {"round", "one sample of every implementation of a problem and one of its ceiling, one after the other; ratios are "
              "computed within rounds, so that a change of clock or temperature affects both sides"},
    {"sample", "the time of one launch, measured with CUDA events, or with a monotonic clock on the CPU"},
    {"burst", "figures of the rounds: short launches with pauses between them"},
    {"sustained",
     "figures of a region of --sustain-s seconds of uninterrupted load of one implementation; never mixed with "
     "burst"},
    {"ceiling",
     "GEMM ceiling: what the GPU reaches in the same rounds on plain work, cuBLAS 8192^3 in the dtype of the row; "
     "%GEMM is the share of it"},
    {"read ceiling", "the ceiling of decode, in place of the GEMM: as many bytes as the problem has to read and write, "
                     "only read; %read "
                     "is the share of it"},
    {"capped", "the share of time in which the power limit held the clock down; normal for attention"},
    {"throttled", "the share of time in thermal slowdown or power brake; not normal"},
    {"cold, hot", "whether the L2 cache is overwritten before each sample (cold) or left as it was (hot)"},
    {"+-95%", "half the width of the 95 % interval of the median, as a share of it, by order statistics"},
    {"noise", "how far samples differ: noise_pct, and --max-noise, the half-width at which sampling ends"},
    {"geomean", "the geometric mean over the rows that both sides passed"},
    {"reference", "what results are compared with: three passes in fp32 on CUDA, the oracle on the CPU"},
    {"oracle", "the reference of the CPU, computed in float64"},
    {"golden vectors", "problems with results computed in float64 by other code, which the oracle is tested with"},
    {"check",
     "the comparison of every result with the reference, before and after timing; docs/judging.md has the rules"},
    {"err/bound", "the largest error divided by its bound, over rules and tensors: 1 is at the bound"},
    {"guard", "memory around and between the outputs, with a pattern that no implementation may change"},
    {"fault, lie", "in selftest: a wrong result, and work that is reported and not done; each must be found"},
    {"worker", "the process that a case runs in; the supervisor is the one that starts it and survives its end"},
    {"control",
     "what both sides of ab measure alike, as cudnn; a change of it is one of the device, not of the kernel"},
    {"baseline", "an earlier record that gate compares with"},
    {"floor", "the least value of a column that gate --floors accepts"},
    {"regression", "a loss of speed of at least --delta that the samples confirm; exit code 3"},
    {"inconclusive", "too much noise to decide; exit code 4"},
    {"label", "what report compares: a device, or a commit on it, with one record or several"},
    {"board", "one card, told by its UUID; a device is a product, of which there are many"},
    {"published set",
     "the 16 problems over which report makes geometric means: of the paper sweep in bf16, 4k and 16k"},
    {NULL, NULL}};

/* The same for the pages on the kernels. */
static const struct named_text kernel_terms[] = {
    {"tile",
     "what a thread block computes at a time: rows x keys, as in fwd_d128_m128n128; backward keys x queries, as in "
     "bwd_d128_k128q64"},
    {"work tile",
     "what a thread block takes from the list of work: forward some rows of one head and all keys that they "
     "see, backward some keys and all rows that see them"},
    {"step", "one turn of the main loop: forward one block of keys, backward one tile of queries"},
    {"part", "some of the steps of a work tile, where there are too few work tiles for the multiprocessors; results of "
             "parts are added"},
    {"few tiles", "problems with fewer work tiles than multiprocessors, or hardly more"},
    {"section",
     "heads whose work tiles come before those of the next section: so few that what they share stays in the "
     "L2"},
    {"edge", "a block of keys of which a row of the tile sees some and not others, so that the mask is applied"},
    {"late row", "a row that sees no key of the first blocks that its tile goes through"},
    {"warpgroup", "four warps, which issue one wgmma together"},
    {"KV, dQ warpgroup", "backward: a warpgroup that has some keys and their dK and dV, and the one that computes dQ"},
    {"producer, consumer", "the warps that load by TMA, and the warpgroups that compute on what was loaded"},
    {"stage", "one of the buffers in shared memory that the producer fills ahead of the consumers"},
    {"pair", "two thread blocks of a cluster that load for each other"},
    {"ping-pong", "two warpgroups take turns: one has the tensor cores while the other computes exponentials"},
    {"row max, row sum",
     "of the scores of a row so far, and of their exponentials: FlashAttention's running statistics"},
    {"lag", "how far the row max in use may be behind the true one before O is rescaled; results are the same"},
    {"LSE, D",
     "logarithm of the sum of exponentials of a row, which the forward leaves; sum of dO * O of a row, which the "
     "backward begins with"},
    {NULL, NULL}};

/* Of CMakeLists.txt. */
static const struct named_text build_options[] = {
    {"FABENCH_CUDA",
     "AUTO (default): CUDA code where there are a GPU driver and a toolkit of 12.4 or newer; TOOLKIT: where "
     "there is a toolkit; ON, OFF"},
    {"FABENCH_TESTS", "ON (default): builds the tests, which need cmocka"},
    {"FABENCH_WERROR", "ON: warnings are errors, as in the presets debug, one-arch and asan; default OFF"},
    {"FABENCH_LINEINFO", "ON: line numbers in CUDA code, for profilers and compute-sanitizer; default OFF"},
    {"FABENCH_CUDNN_DIR",
     "folder of cuDNN's libraries, where the program looks when the loader finds none and the variable "
     "FABENCH_CUDNN is not set"},
    {"FABENCH_CUDNN_FRONTEND_DIR", "headers of the cuDNN frontend; without them there is no peer cudnn"},
    {"FABENCH_SANITIZE", "sanitizers for host code, as address,undefined"},
    {"FABENCH_FUZZ", "ON: builds the fuzz targets for libFuzzer, which needs clang; default OFF"},
    {NULL, NULL}};

/* ---- Markdown ---- */

static void put_cell(const char *text)
{
    fputs("| ", stdout);
    for (; *text; text++) {
        if (strchr("|*<>_[]", *text))
            putchar('\\');
        putchar(*text);
    }
    putchar(' ');
}

static void put_row(const char *const *cells, int count)
{
    for (int i = 0; i < count; i++)
        put_cell(cells[i]);
    puts("|");
}

static void put_list(const char *title, const char *head, const struct named_text *list)
{
    printf("\n## %s\n\n| %s | |\n|---|---|\n", title, head);
    for (; list->name; list++)
        put_row((const char *const[]){list->name, list->text}, 2);
}

/* ---- presets ---- */

/* "1k, 4k, 16k": the values of `of` in the plan, each once, in their order. */
static char *list_of(const struct plan *plan, void (*print)(const struct plan_item *, char *text, size_t size))
{
    struct name_list names = {0};
    struct text line = {0};
    for (int i = 0; i < plan->count; i++) {
        char text[40];
        print(&plan->items[i], text, sizeof text);
        if (!name_list_has(&names, text))
            name_list_add(&names, text);
    }
    for (int i = 0; i < names.count; i++) {
        text_separate(&line, ", ");
        text_add(&line, "%s", names.names[i]);
    }
    name_list_free(&names);
    return text_take(&line);
}

static void print_length(const struct plan_item *item, char *text, size_t size)
{
    const struct problem_key key = plan_item_key(item, L2_COLD);
    if (strcmp(key.lengths, "fixed") != 0 && key.lengths[0])
        snprintf(text, size, "%s", key.lengths);
    else
        number_print_count(item->problem.lengths == ATTN_CACHE ? item->problem.kv_len : item->problem.q_len, text,
                           size);
}

static void print_dtype(const struct plan_item *item, char *text, size_t size)
{
    snprintf(text, size, "%s", problem_dtype_name(item->problem.dtype));
}

static void print_dim(const struct plan_item *item, char *text, size_t size)
{
    snprintf(text, size, "%lld", (long long)item->problem.head_dim);
}

static void put_preset(const struct named_text *preset, enum attn_platform platform)
{
    char program[] = "fabench", option[] = "--preset", *value = xstrdup(preset->name),
         *words[] = {program, option, value};
    char problems[24], tokens[24], hidden[24], measured[80], time[60];
    struct options o;
    struct plan plan;
    bool done = false;
    const int parsed = options_parse(3, words, &o, &done), planned = plan_make(&o, platform, &plan);
    FABENCH_ASSERT(parsed == EXIT_OK && planned == EXIT_OK, "preset %s", preset->name);
    const struct attn_problem *p = &plan.items[0].problem;
    const int members = platform == ATTN_CPU ? 2 : o.preset == PRESET_GENERATIONS ? 4 : 3; /* naive, fused, cudnn */
    const double seconds = plan.count * inspect_estimate_s(&plan, &o, members);
    char *lengths = list_of(&plan, print_length), *dtypes = list_of(&plan, print_dtype),
         *dims = list_of(&plan, print_dim);
    snprintf(problems, sizeof problems, "%d", plan.count);
    tokens[0] = '\0'; /* where the batches are a list */
    if (plan.total_tokens > 0)
        number_print_count(plan.total_tokens, tokens, sizeof tokens);
    number_print_count(p->q_heads * p->head_dim, hidden, sizeof hidden);
    snprintf(measured, sizeof measured, "%lld samples, %g ms, after %g ms", (long long)plan.samples, plan.min_time_ms,
             plan.warmup_ms);
    if (plan.sustain_s > 0)
        snprintf(measured + strlen(measured), sizeof measured - strlen(measured), "; then %g s of load",
                 plan.sustain_s);
    if (platform == ATTN_CPU && o.preset == PRESET_PAPER)
        snprintf(time, sizeof time, "hours: the problems are those of a GPU");
    else
        snprintf(time, sizeof time, seconds < 120 ? "%.0f s and the references" : "%.0f min and the references",
                 seconds < 120 ? seconds : seconds / 60);
    put_row((const char *const[]){preset->name, preset->text, problems, lengths, dims, dtypes, tokens, hidden, measured,
                                  time},
            10);
    free(lengths);
    free(dtypes);
    free(dims);
    free(value);
    plan_free(&plan);
    options_free(&o);
}

static void put_presets(void)
{
    static const char *const titles[] = {[ATTN_CUDA] = "On a GPU", [ATTN_CPU] = "On the CPU"};
    printf(
        "\n## Presets\n\nWhat `--preset` runs: both directions, with and without the causal mask where nothing else is "
        "said. "
        "Options that\nare typed replace the values of the preset. Batch = tokens / length, heads = hidden / head dim. "
        "Measured: the "
        "least number of samples\nof each implementation, the least time that they take together, the warm-up before "
        "them; sampling goes on, for up to\neight times that time, until the intervals are within `--max-noise`. "
        "The time is the most that warm-up and\nsampling take with naive, fused and, on a GPU, cudnn (the estimate of "
        "`--dry-run`); the references come on top.\n");
    for (int platform = ATTN_CUDA; platform >= ATTN_CPU; platform--) {
        printf("\n### %s\n\n| preset | what | problems | lengths | head dims | dtype | tokens | hidden | "
               "measured | time |\n|---|---|---:|---|---|---|---|---|---|---|\n",
               titles[platform]);
        for (const struct named_text *preset = option_presets; preset->name; preset++)
            if (platform == ATTN_CUDA || (strcmp(preset->name, "ci") && strcmp(preset->name, "acceptance")))
                put_preset(preset, (enum attn_platform)platform);
    }
    printf("\n`ci`, `acceptance`, `node` and `generations` never run on the CPU unless `--device cpu` says so. `verify "
           "--preset "
           "quick` takes the "
           "hard shapes\nthat end in a short time under a memory checker.\n");
}

/* ---- columns ---- */

/* "CSV, JSONL, table, verify": the views of a column. */
static const char *views_of(const struct column *column, char *text, size_t size)
{
    static const struct {
        enum record_view view;
        const char *name;
    } views[] = {{RECORD_CSV, "CSV"}, {RECORD_JSONL, "JSONL"}, {RECORD_TABLE, "table"}, {RECORD_VERIFY, "verify"}};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        if (column->views & views[i].view)
            snprintf(text + strlen(text), size - strlen(text), "%s%s", text[0] ? ", " : "", views[i].name);
    return text;
}

static void put_columns(const char *title, struct column_list list)
{
    printf("\n### %s\n\n| column | unit | meaning | empty when | in |\n|---|---|---|---|---|\n", title);
    for (int i = 0; i < list.count; i++) {
        const struct column *c = &list.columns[i];
        char views[60];
        put_row((const char *const[]){c->name, c->unit, c->meaning, c->empty, views_of(c, views, sizeof views)}, 5);
    }
}

void reference_page_print(void)
{
    fputs("# Reference\n\n<!-- Made by scripts/cli_docs.sh from the program's tables: `fabench help reference`. -->\n\n"
          "Every preset, column, term, build option and exit code. [cli.md](cli.md) has the commands, the options and "
          "the\n"
          "environment variables; [design.md](design.md) is the contract.\n",
          stdout);
    put_presets();
    printf(
        "\n## Columns\n\nAn empty cell was not measured; it is never 0, inf or nan. `--columns` chooses among those of "
        "the CSV. table: also used\nby the table of a sweep on the terminal; verify: by that of verify.\n");
    put_columns("Of a row", record_columns());
    put_columns("Of each tensor of a row: the list `tensors` of the JSONL", record_tensor_columns);
    put_columns("Of each pass of a row, with --verbose: the list `passes` of the JSONL", record_pass_columns);
    put_list("Terms", "term", terms);
    put_list("Words of the kernel pages", "word", kernel_terms);
    put_list("Build options", "-D of cmake", build_options);
    put_list("Exit codes", "code", option_exit_codes);
    puts("\nWhere several apply, the first of 130, 7, 6, 1, 5, 3, 4 wins.");
}
