/* Rules between options: sizes, outputs, and pairs that contradict each other. Errors that can be known from the
 * options alone are found here, before any measurement. */
#include "cmd/options/options_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/base/program.h"
#include "cmd/options/options.h"

/* Tensors and score matrices beyond these are refused, so that no product of sizes leaves 64 bits anywhere. */
#define TENSOR_ELEMENTS_MAX ((int64_t)1 << 40)
#define SCORE_ELEMENTS_MAX ((int64_t)1 << 56)

/* The value of an option as typed, NULL when it was not given. */
static const char *typed(const struct parse *p, const char *name)
{
    const struct option_def *def = option_find(p->command, name, strlen(name));
    FABENCH_ASSERT(def, "no option %s", name);
    return p->value[def - option_table];
}

static int64_t largest_of(const struct int_list *list, int step)
{
    int64_t largest = 0;
    for (int i = 0; i < list->count; i += step)
        largest = list->values[i] > largest ? list->values[i] : largest;
    return largest;
}

/* The most query heads of a problem of this head dim. */
static int64_t heads_of(const struct options *o, int64_t head_dim)
{
    const int64_t heads = (o->hidden ? o->hidden : 2048) / head_dim;
    if (o->shapes.count)
        return largest_of(&o->shapes, 2);
    return o->heads.count ? largest_of(&o->heads, 1) : heads > 1 ? heads : 1;
}

static bool check_heads(const struct parse *p, const struct int_list *dims)
{
    const struct options *o = p->o;
    /* With neither of the two options the preset decides the number of heads, and plan_make checks it. */
    if (!o->heads.count && !o->hidden)
        return true;
    for (int k = 0; k < o->kv_heads.count; k++) {
        for (int i = 0; i < o->heads.count; i++)
            if (o->heads.values[i] % o->kv_heads.values[k])
                return options_refuse(
                    "--kv-heads", typed(p, "--kv-heads"), "must divide --heads %s%s", typed(p, "--heads"),
                    o->heads.count + o->kv_heads.count > 2 ? ", each of them; --shape takes pairs, as 32x8,64x8" : "");
        for (int i = 0; i < dims->count && !o->heads.count; i++) {
            const int64_t heads = heads_of(o, dims_qk(dims->values[i]));
            if (heads % o->kv_heads.values[k])
                return options_refuse("--kv-heads", typed(p, "--kv-heads"),
                                      "must divide the %" PRId64 " heads that --hidden %s makes of --d %" PRId64, heads,
                                      typed(p, "--hidden"), dims_qk(dims->values[i]));
        }
    }
    return true;
}

/* The first of the dtypes that were given and have 8 bits, or have not; NULL = none. */
static const char *first_dtype(const struct options *o, bool has_8_bits)
{
    for (int dtype = 0; o->dtypes_given && dtype < (int)(sizeof o->dtypes / sizeof o->dtypes[0]); dtype++)
        if (o->dtypes[dtype] && attn_dtype_is_8_bit((enum attn_dtype)dtype) == has_8_bits)
            return problem_dtype_name(dtype);
    return NULL;
}

/* 8-bit inputs, and the options that are for them alone. A dump brings its own dtypes. */
static bool check_8_bits(const struct parse *p)
{
    static const char *const own[] = {"--out-dtype", "--fp8-scale", "--scale-block", "--hadamard"};
    static const char *const what[] = {"whose output has its type", "which have no scales", "which have no scales",
                                       "which are not quantised"};
    const struct options *o = p->o;
    const char *const narrow = first_dtype(o, true), *const wide = first_dtype(o, false);
    const bool has_options = 1 << p->command->command & (FOR_RUNS | FOR_GATES | FOR_TUNE);
    for (int i = 0; i < 4 && has_options; i++) {
        const char *const value = typed(p, own[i]);
        if (!value || (!o->dtypes_given && (o->input_dir || o->outputs_dir)))
            continue;
        if (wide)
            return options_refuse(own[i], *value ? value : NULL,
                                  "cannot be used with --dtype %s, %s; it is for "
                                  "e4m3 and e5m2",
                                  wide, what[i]);
        if (!narrow)
            return options_refuse(own[i], *value ? value : NULL, "needs 8-bit inputs: --dtype e4m3 or e5m2");
    }
    if (o->quant_in_time && o->input_dir)
        return options_refuse("--quant-in-time", NULL,
                              "cannot be used with --input, whose tensors are taken as they are");
    if (o->quant_in_time && !narrow)
        return options_refuse("--quant-in-time", NULL, "needs 8-bit inputs: --dtype e4m3 or e5m2");
    if (o->quant_in_time && o->sustain_s > 0)
        return options_refuse("--quant-in-time", NULL,
                              "cannot be used with --sustain-s, whose regions are launches alone");
    if (o->scale_block && !o->fp8_scales[ATTN_SCALE_BLOCK - ATTN_SCALE_TENSOR])
        return options_refuse("--scale-block", typed(p, "--scale-block"),
                              "needs --fp8-scale block, whose blocks it sizes");
    for (int i = 0; i < o->head_dims.count && o->hadamard; i++)
        if (dims_qk(o->head_dims.values[i]) & (dims_qk(o->head_dims.values[i]) - 1))
            return options_refuse("--hadamard", NULL,
                                  "cannot be used with --d %" PRId64 "; head dims must be powers of two",
                                  dims_qk(o->head_dims.values[i]));
    if (narrow && o->mode_given && o->modes[ATTN_BWD])
        return options_refuse("--mode", typed(p, "--mode"),
                              "cannot be used with --dtype %s, which has no backward; "
                              "must be fwd",
                              narrow);
    return true;
}

static bool has_cache_dtype(const struct options *o) { return o->cache_dtypes[1] || o->cache_dtypes[2]; }

/* Decode stands alone: the defaults of a run with several modes, and what it means by lengths, are others. */
static bool check_decode(const struct parse *p)
{
    const struct options *o = p->o;
    static const char *const of_decode[] = {"--page-size", "--splits"};
    for (int i = 0; i < 2 && !o->modes[MODE_DECODE] && !o->input_dir; i++)
        if (typed(p, of_decode[i]) && strcmp(typed(p, of_decode[i]), "0") != 0)
            return options_refuse(of_decode[i], typed(p, of_decode[i]),
                                  "needs --mode decode, a forward against a cache");
    if (has_cache_dtype(o)) {
        const char *const value = typed(p, "--cache-dtype"), *const wide = o->dtypes[ATTN_FP32] ? "fp32" : NULL;
        if (!o->modes[MODE_DECODE] && !o->input_dir)
            return options_refuse("--cache-dtype", value, "needs --mode decode, a forward against a cache");
        if (o->dtypes_given && (wide || first_dtype(o, true)))
            return options_refuse("--cache-dtype", value, "cannot be used with --dtype %s; Q must be fp16 or bf16",
                                  wide ? wide : first_dtype(o, true));
    }
    for (int i = 0; i < o->head_dims.count && !o->modes[MODE_DECODE] && !o->input_dir; i++)
        if (dims_qk(o->head_dims.values[i]) == DIMS_CACHE_QK && o->command != COMMAND_VERIFY)
            return options_refuse("--d", typed(p, "--d"), "%dx%d needs --mode decode, a forward against a cache",
                                  DIMS_CACHE_QK, DIMS_CACHE_V);
    if (o->preset == PRESET_DECODE && (!o->modes[MODE_DECODE] || o->modes[MODE_FWD] || o->modes[MODE_BWD]))
        return options_refuse("--mode", typed(p, "--mode"),
                              "cannot be used with --preset decode, whose problems are forwards against a cache; must "
                              "be decode or left out");
    if (!o->modes[MODE_DECODE])
        return true;
    if (o->modes[MODE_FWD] || o->modes[MODE_BWD])
        return options_refuse("--mode", typed(p, "--mode"),
                              "decode cannot be used with fwd or bwd; must be decode alone, or fwd, bwd or both");
    if (o->block_masks.count)
        return options_refuse("--block-mask", typed(p, "--block-mask"),
                              "cannot be used with --mode decode, whose few rows have no blocks; must be left out");
    if (1 << o->command & FOR_TIMED && !o->files.count && !o->kv_lens.count && !o->lengths.count && !o->input_dir &&
        o->preset == PRESET_NONE)
        return options_refuse("--mode", "decode",
                              "needs the lengths of the caches: --kv-len N, --lengths SPEC or a --preset");
    return true;
}

/* Windows and dropout. */
static bool check_attributes(const struct parse *p)
{
    const struct options *o = p->o;
    const double least = 1.0 / 65536;
    if (o->causal_given && o->causal[1] && largest_of(&o->windows_right, 1) > 0)
        return options_refuse("--window-right", typed(p, "--window-right"),
                              "cannot be used with --causal, which ends at the diagonal; must be none or 0");
    static const char *const replaced[] = {"--kv-len", "--seqlen", "--batch"}; /* in decode the first one alone */
    for (int i = 0; i < (o->modes[MODE_DECODE] ? 1 : 3) && o->lengths.count; i++)
        if (typed(p, replaced[i]))
            return options_refuse("--lengths", typed(p, "--lengths"), "cannot be used with %s, which it replaces",
                                  replaced[i]);
    if (o->mask_block && !o->block_masks.count)
        return options_refuse("--mask-block", typed(p, "--mask-block"),
                              "needs --block-mask SPEC, whose blocks it sizes");
    /* As float, as a problem has it: a command that the program prints has as many digits as that needs. */
    if (o->attributes.dropout > 0 && (float)o->attributes.dropout < (float)least)
        return options_refuse("--dropout", typed(p, "--dropout"),
                              "too small for the 16 bits that decide an element; must be 0, or from %.3g to 0.9999",
                              least);
    if (o->bias != BIAS_NONE && o->attributes.has_alibi)
        return options_refuse("--alibi", NULL,
                              "cannot be used with --bias %s, which is added in the same place; give one",
                              typed(p, "--bias"));
    if (o->attributes.dropout_seed && o->attributes.dropout == 0)
        return options_refuse("--dropout-seed", typed(p, "--dropout-seed"), "needs --dropout P, whose seed it is");
    return true;
}

static bool product_is_within(int64_t limit, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t product;
    return number_multiply(a, b, &product) && number_multiply(product, c, &product) &&
           number_multiply(product, d, &product) && product <= limit;
}

/* Checks one (q_len, head dims) with the longest kv_len. When it is too large, the message names the largest number
 * that was given. */
static bool check_size(const struct parse *p, int64_t q_len, int64_t kv_len, int64_t dims)
{
    const struct options *o = p->o;
    const int64_t head_dim = dims_v(dims) > dims_qk(dims) ? dims_v(dims) : dims_qk(dims);
    const int64_t tokens = o->total_tokens ? o->total_tokens : 16384;
    const int64_t len = o->modes[MODE_DECODE] ? kv_len : q_len; /* whose tokens are counted */
    const int64_t batch = o->batches.count ? largest_of(&o->batches, 1) : tokens / len > 1 ? tokens / len : 1;
    const int64_t heads = heads_of(o, dims_qk(dims)), longest = q_len > kv_len ? q_len : kv_len;
    const bool tensor_fits = product_is_within(TENSOR_ELEMENTS_MAX, batch, heads, longest, head_dim);
    if (tensor_fits && product_is_within(SCORE_ELEMENTS_MAX, batch, heads, q_len, kv_len))
        return true;
    const struct {
        const char *name;
        int64_t value;
    } causes[] = {{"--batch", batch}, {"--total-tokens", batch}, {"--heads", heads},  {"--hidden", heads},
                  {"--shape", heads}, {"--seqlen", q_len},       {"--kv-len", kv_len}};
    const char *name = NULL;
    int64_t largest = 0;
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++)
        if (typed(p, causes[i].name) && causes[i].value > largest) {
            largest = causes[i].value;
            name = causes[i].name;
        }
    FABENCH_ASSERT(name, "the defaults are too large");
    if (!tensor_fits)
        return options_refuse(name, typed(p, name),
                              "too large; batch %" PRId64 " x heads %" PRId64 " x len %" PRId64 " x head dim %" PRId64
                              " must be at most 2^40 elements",
                              batch, heads, longest, head_dim);
    return options_refuse(name, typed(p, name),
                          "too large; batch %" PRId64 " x heads %" PRId64 " x q_len %" PRId64 " x kv_len %" PRId64
                          " must be at most 2^56 scores",
                          batch, heads, q_len, kv_len);
}

/* --logit-std scales what is drawn: there must be something drawn to scale. */
static bool check_logit_std(const struct parse *p)
{
    const struct options *o = p->o;
    if (!o->logit_stds.count)
        return true;
    if (o->input_dir)
        return options_refuse("--logit-std", typed(p, "--logit-std"),
                              "cannot be used with --input, whose tensors are taken as they are");
    for (int dist = 0; dist < FILL_DISTS; dist++)
        if (o->dists[dist] && !fill_takes_logit_std((enum fill_dist)dist))
            return options_refuse("--logit-std", typed(p, "--logit-std"),
                                  "cannot be used with --dist %s; it is for normal, uniform, sharp and huge",
                                  problem_dist_name(dist));
    return true;
}

/* --logit-mean writes into what is drawn. */
static bool check_logit_mean(const struct parse *p)
{
    const struct options *o = p->o;
    if (!o->logit_means.count)
        return true;
    if (o->input_dir)
        return options_refuse("--logit-mean", typed(p, "--logit-mean"),
                              "cannot be used with --input, whose tensors are taken as they are");
    for (int dist = 0; dist < FILL_DISTS; dist++)
        if (o->dists[dist] && !fill_takes_logit_std((enum fill_dist)dist))
            return options_refuse("--logit-mean", typed(p, "--logit-mean"),
                                  "cannot be used with --dist %s; it is for normal, uniform, sharp and huge",
                                  problem_dist_name(dist));
    return true;
}

/* --input has one set of tensors: one distribution at most, whose name nothing would use. */
static bool check_dists(const struct parse *p)
{
    int count = 0;
    for (int dist = 0; dist < FILL_DISTS; dist++)
        count += p->o->dists[dist];
    if (p->o->input_dir && count > 1)
        return options_refuse("--dist", typed(p, "--dist"),
                              "cannot be a list with --input, which has one set of tensors");
    return true;
}

/* The sizes with the longest default lengths where none were given; the presets' are among them. */
static bool check_problems(const struct parse *p)
{
    static int64_t default_dims[] = {64, 128}, default_lens[] = {1024, 16384}, one[] = {1};
    const struct options *o = p->o;
    const bool is_decode = o->modes[MODE_DECODE];
    const struct int_list dims = o->head_dims.count ? o->head_dims : (struct int_list){default_dims, 2};
    const struct int_list lens = o->q_lens.count ? o->q_lens
                                 : is_decode     ? (struct int_list){one, 1}
                                                 : (struct int_list){default_lens, 2};
    int64_t longest_kv = is_decode && !o->kv_lens.count ? 16384 : 0;
    if (o->batches.count && o->total_tokens)
        return options_refuse("--batch", typed(p, "--batch"), "cannot be used with --total-tokens %s; give one of them",
                              typed(p, "--total-tokens"));
    if (o->heads.count && o->hidden)
        return options_refuse("--heads", typed(p, "--heads"), "cannot be used with --hidden %s; give one of them",
                              typed(p, "--hidden"));
    const char *const others[] = {"--heads", "--kv-heads", "--hidden"};
    for (int i = 0; i < 3 && o->shapes.count; i++)
        if (typed(p, others[i]))
            return options_refuse("--shape", typed(p, "--shape"), "cannot be used with %s %s; give one of them",
                                  others[i], typed(p, others[i]));
    if (!check_heads(p, &dims) || !check_decode(p) || !check_attributes(p) || !check_8_bits(p))
        return false;
    for (int i = 0; i < o->kv_lens.count; i++)
        longest_kv = o->kv_lens.values[i] > longest_kv ? o->kv_lens.values[i] : longest_kv;
    for (int i = 0; i < lens.count; i++)
        for (int j = 0; j < dims.count; j++)
            if (!check_size(p, lens.values[i], longest_kv ? longest_kv : lens.values[i], dims.values[j]))
                return false;
    return true;
}

/* A run into a folder that holds a record would replace it. A new name instead would leave the old record where the
 * next command looks for the new one, so the run is refused before it measures. Files that --csv and --jsonl name are
 * replaced, as any output file that is named. */
static bool check_overwrite(const struct options *o)
{
    const struct {
        const char *name, *given;
    } files[] = {{"run.jsonl", o->jsonl_path}, {"run.csv", o->csv_path}};
    if (o->overwrite && o->resume)
        return options_refuse("--overwrite", NULL, "cannot be used with --resume; give one of them");
    if (o->overwrite || o->resume || o->dry_run || o->profile || !o->out_dir || strcmp(o->out_dir, "none") == 0 ||
        (o->command != COMMAND_SWEEP && o->command != COMMAND_VERIFY))
        return true;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct stat info;
        char *path = xasprintf("%s/%s", o->out_dir, files[i].name);
        const bool is_there = !files[i].given && stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
        free(path);
        if (is_there)
            return options_refuse("--out", o->out_dir, "holds the %s of an earlier run; must be another folder, or %s",
                                  files[i].name,
                                  o->command == COMMAND_SWEEP ? "--resume continues the record, --overwrite replaces it"
                                                              : "--overwrite replaces it");
    }
    return true;
}

static bool check_outputs(const struct parse *p)
{
    const struct options *o = p->o;
    const bool has_dir = o->out_dir && strcmp(o->out_dir, "none") != 0;
    const struct {
        const char *name, *path;
    } files[] = {{"--csv", o->csv_path}, {"--jsonl", o->jsonl_path}};
    const bool draws_files = o->plot == PLOT_SVG || o->plot == PLOT_PNG;
    const char *stdout_user = o->plot_given && o->plot == PLOT_TERM ? "--plot term" : NULL;
    struct reason why;
    for (int i = 0; i < 2; i++) {
        if (!files[i].path)
            continue;
        if (strcmp(files[i].path, "-") != 0) {
            if (!path_takes_file(files[i].path, has_dir ? o->out_dir : NULL, &why))
                return options_refuse(files[i].name, files[i].path, "%s", why.text);
        } else if (stdout_user) {
            return options_refuse(files[i].name, "-", "stdout is used by %s; only one output can go there",
                                  stdout_user);
        } else {
            stdout_user = i ? "--jsonl -" : "--csv -";
        }
    }
    if (o->csv_path && o->jsonl_path && path_is_same(o->csv_path, o->jsonl_path))
        return options_refuse("--jsonl", o->jsonl_path, "is the file of --csv; must be another one");
    if (!check_overwrite(o))
        return false;
    if (o->resume && o->command == COMMAND_SWEEP && (o->jsonl_path ? strcmp(o->jsonl_path, "-") == 0 : !has_dir))
        return options_refuse("--resume", NULL,
                              "needs the record to continue: the --out DIR or the --jsonl PATH of "
                              "the run");
    if (o->resume && (o->dry_run || o->profile))
        return options_refuse("--resume", NULL, "cannot be used with %s; give one of them",
                              o->dry_run ? "--dry-run" : "--profile");
    if (o->plot_given && draws_files && o->out_dir && !has_dir)
        return options_refuse("--plot", typed(p, "--plot"), "cannot be used with --out none; must be term or none");
    if (o->overlay_path && o->out_dir && !has_dir && o->plot != PLOT_TERM)
        return options_refuse("--overlay", o->overlay_path,
                              "cannot be used with --out none, where no chart is drawn; must be left out");
    if (o->input_dir && o->dump_dir && path_is_same(o->input_dir, o->dump_dir))
        return options_refuse("--dump", o->dump_dir, "is the directory of --input; must be another one");
    if (o->outputs_dir && o->dump_dir && path_is_same(o->outputs_dir, o->dump_dir))
        return options_refuse("--dump", o->dump_dir, "is the directory of --outputs; must be another one");
    if (o->dump_dtype != DUMP_NATIVE && !o->dump_dir)
        return options_refuse("--dump-dtype", "fp32", "needs --dump DIR, whose files it is about");
    return true;
}

/* What ab and gate read must not be what they write: --junit, and `outputs` in the folder of --out. */
static bool check_input(const struct options *o, const char *name, const char *path, const char *const *outputs,
                        size_t count)
{
    const bool has_dir = o->out_dir && strcmp(o->out_dir, "none") != 0;
    if (!path)
        return true;
    if (o->junit_path && path_is_same(o->junit_path, path))
        return options_refuse("--junit", o->junit_path, "is the file of %s; must be another one", name);
    for (size_t i = 0; i < count && has_dir; i++) {
        char *output = xasprintf("%s/%s", o->out_dir, outputs[i]);
        const bool is_same = path_is_same(output, path);
        free(output);
        if (is_same)
            return options_refuse("--out", o->out_dir, "its %s is the file of %s; must be another folder", outputs[i],
                                  name);
    }
    return true;
}

static bool check_gate(const struct parse *p)
{
    static const char *const outputs[] = {"current.jsonl",   "current-2.jsonl", "current-3.jsonl",
                                          "current-4.jsonl", "current-5.jsonl", "verdicts.csv"};
    enum { OUTPUTS = sizeof outputs / sizeof outputs[0], MOST = 16 };
    const struct options *o = p->o;
    if (!o->baselines.count && !o->floors)
        return options_refuse("gate", NULL, "needs something to compare with: --baseline A.jsonl, or --floors FILE");
    if (o->baselines.count > MOST || o->currents.count > MOST)
        return options_refuse(o->baselines.count > MOST ? "--baseline" : "--current", NULL,
                              "is given more than %d times; must be %d records at most", MOST, MOST);
    if (o->currents.count && (o->sweep_words.count || o->impls.count))
        return options_refuse("--current", o->currents.names[0],
                              "cannot be used with %s: a stored run is not measured again",
                              o->impls.count ? "--impl" : o->sweep_words.names[0]);
    if (o->currents.count && o->runs_max)
        return options_refuse("--current", o->currents.names[0], "cannot be used with --runs: nothing is measured");
    if (o->is_subset && !(o->currents.count && o->baselines.count))
        return options_refuse("--subset", NULL, "is for a --baseline and a --current record");
    for (int i = 0; i < o->baselines.count; i++)
        if (!check_input(o, "--baseline", o->baselines.names[i], outputs, OUTPUTS))
            return false;
    for (int i = 0; i < o->currents.count; i++)
        if (!check_input(o, "--current", o->currents.names[i], outputs, OUTPUTS))
            return false;
    return check_input(o, "--floors", o->floors, outputs, OUTPUTS);
}

static bool check_tune(const struct parse *p)
{
    const struct options *o = p->o;
    if (o->impls.count != 1)
        return options_refuse("tune", NULL, "needs one implementation, whose variants it tries: --impl NAME");
    if (!o->tuned_out)
        return options_refuse("tune", NULL, "needs a file for its choices: --write FILE");
    if (o->check == CHECK_OFF)
        return options_refuse("--check", "off",
                              "cannot be used with tune, which takes what has passed; full or sample");
    if (o->files.count && o->random_count)
        return options_refuse("--random", typed(p, "--random"),
                              "cannot be used with a record, whose problems are tried; give one of them");
    return true;
}

static bool check_ab(const struct parse *p)
{
    const struct options *o = p->o;
    if (o->files.count != 2)
        return options_refuse("ab", NULL, "needs two programs or two libraries, as in %s ab OLD NEW; there %s %d",
                              program_name(), o->files.count == 1 ? "is" : "are", o->files.count);
    if (o->pairs.count > 2 || (o->pairs.count == 2 && o->pairs.values[0] > o->pairs.values[1]))
        return options_refuse("--pairs", typed(p, "--pairs"), "must be the least and the most, as 6,16");
    static const char *const outputs[] = {"verdicts.csv"};
    return check_input(o, "OLD", o->files.names[0], outputs, 1) && check_input(o, "NEW", o->files.names[1], outputs, 1);
}

/* --outputs launches nothing. */
static bool check_stored(const struct parse *p)
{
    static const char *const of_launches[] = {"--repeats", "--impl-lib", "--variant",   "--deterministic",
                                              "--preset",  "--random",   "--invariance"};
    for (size_t i = 0; p->o->outputs_dir && i < sizeof of_launches / sizeof of_launches[0]; i++)
        if (typed(p, of_launches[i]))
            return options_refuse(of_launches[i], *typed(p, of_launches[i]) ? typed(p, of_launches[i]) : NULL,
                                  "cannot be used with --outputs, where nothing is launched; must be left out");
    if (p->o->random_count && typed(p, "--preset"))
        return options_refuse("--random", typed(p, "--random"),
                              "cannot be used with --preset %s, whose shapes are fixed; give one of them",
                              typed(p, "--preset"));
    return true;
}

/* --invariance is about the forward, and about what the implementation chooses. */
static bool check_invariance(const struct parse *p)
{
    const struct options *o = p->o;
    if (!o->invariance)
        return true;
    if (o->mode_given && o->modes[ATTN_BWD])
        return options_refuse("--mode", typed(p, "--mode"),
                              "cannot be used with --invariance, which compares forwards; must be fwd or decode");
    if (o->variant)
        return options_refuse("--variant", o->variant,
                              "cannot be used with --invariance, which leaves the choice to the implementation; "
                              "--impl NAME:VARIANT is looked at, too");
    return true;
}

static bool check_plot(const struct parse *p)
{
    const struct options *o = p->o;
    if (!o->files.count)
        return options_refuse("plot", NULL, "needs the record files to draw, as in %s plot run.jsonl", program_name());
    if (o->plot == PLOT_NONE)
        return options_refuse("--plot", "none", "draws nothing; must be svg, png, term or md");
    const bool has_files = o->plot == PLOT_SVG || o->plot == PLOT_PNG;
    if (o->out_dir && strcmp(o->out_dir, "none") == 0 && has_files)
        return options_refuse("--out", "none",
                              "is not a folder for the charts; must be a directory, or --plot term|md");
    if (!has_files && (typed(p, "--plot-kind") || typed(p, "--plot-layout")))
        return options_refuse(typed(p, "--plot-kind") ? "--plot-kind" : "--plot-layout", NULL,
                              "is for charts in files; must be left out, or --plot svg|png");
    if (o->overlay_path && (o->plot == PLOT_MARKDOWN || o->plot_layout == LAYOUT_SLIDE))
        return options_refuse("--overlay", o->overlay_path,
                              "is drawn in charts over the length alone; must be left out with --plot md and "
                              "--plot-layout slide");
    return true;
}

static bool check_report(const struct parse *p)
{
    const struct options *o = p->o;
    if (!o->files.count)
        return options_refuse("report", NULL, "needs record files, as in %s report H200=a.jsonl B200=b.jsonl",
                              program_name());
    if (o->is_fleet && (o->is_history || o->prices.count || o->overlay_path))
        return options_refuse(o->is_history     ? "--history"
                              : o->prices.count ? "--price"
                                                : "--overlay",
                              NULL, "cannot be used with --boards; must be left out");
    if (o->nodes.count && !o->is_fleet)
        return options_refuse("--nodes", typed(p, "--nodes"), "needs --boards, the page of a fleet");
    if (o->is_history && (o->prices.count || o->overlay_path))
        return options_refuse(o->prices.count ? "--price" : "--overlay", NULL,
                              "cannot be used with --history, which has no prices and no charts; must be left out");
    if (o->plot != PLOT_SVG && o->plot != PLOT_NONE)
        return options_refuse("--plot", typed(p, "--plot"), "must be svg (within the HTML page) or none");
    return true;
}

/* Several devices: what one record of them cannot have, and what is for them alone. */
static bool check_boards(const struct parse *p)
{
    const struct options *o = p->o;
    const char *const needs_one = o->profile         ? "--profile"
                                  : o->dry_run       ? "--dry-run"
                                  : o->dump_dir      ? "--dump"
                                  : o->outputs_dir   ? "--outputs"
                                  : o->accepted_path ? "--accepted"
                                                     : NULL;
    if (options_has_boards(o) && o->command != COMMAND_SWEEP && o->command != COMMAND_VERIFY &&
        o->command != COMMAND_INFO)
        return options_refuse("--device", typed(p, "--device"), "must be one device: %s takes one", p->command->name);
    if (options_has_boards(o) && needs_one)
        return options_refuse("--device", typed(p, "--device"), "cannot be used with %s, which takes one device",
                              needs_one);
    if (!options_has_boards(o) && o->one_by_one)
        return options_refuse("--one-by-one", NULL, "is for several devices: --device all, or cuda:0,cuda:1");
    const char *const of_several = !isnan(o->max_board_spread_pct) ? "--max-board-spread"
                                   : o->board_baselines.count      ? "--board-baseline"
                                                                   : NULL;
    if (!options_has_boards(o) && of_several)
        return options_refuse(of_several, typed(p, of_several),
                              "is for several devices: --device all, or cuda:0,cuda:1");
    return true;
}

bool options_check(const struct parse *p)
{
    const struct options *o = p->o;
    const char *const tolerance = typed(p, "--atol") ? "--atol" : typed(p, "--rtol") ? "--rtol" : NULL;
    if (o->quiet && o->verbose)
        return options_refuse("--quiet", NULL, "cannot be used with --verbose; give one of them");
    if (o->check == CHECK_OFF && tolerance)
        return options_refuse(tolerance, typed(p, tolerance),
                              "cannot be used with --check off; must be left out, or --check full|sample");
    if (o->sustain_s > 0 && o->sustain_s < SUSTAIN_MIN_S)
        return options_refuse("--sustain-s", typed(p, "--sustain-s"),
                              "too short to measure energy; must be 0 (none), or from %g to 3600", SUSTAIN_MIN_S);
    if (o->sustain_s > 0 && o->profile)
        return options_refuse("--sustain-s", typed(p, "--sustain-s"),
                              "cannot be used with --profile, which launches once; give one of them");
    if (o->counters && o->profile)
        return options_refuse("--counters", NULL,
                              "cannot be used with --profile, whose profiler counts; give one of them");
    struct reason why;
    if (o->junit_path && (strcmp(o->junit_path, "-") == 0 || !path_takes_file(o->junit_path, o->out_dir, &why)))
        return options_refuse("--junit", o->junit_path, "%s",
                              strcmp(o->junit_path, "-") ? why.text : "must be a file: stdout has the results");
    const char *const records[] = {o->csv_path, o->jsonl_path};
    for (int i = 0; i < 2 && o->junit_path; i++)
        if (records[i] && path_is_same(records[i], o->junit_path))
            return options_refuse("--junit", o->junit_path, "is the file of %s; must be another one",
                                  i ? "--jsonl" : "--csv");
    if (o->accepted_path && !path_takes_file(o->accepted_path, NULL, &why))
        return options_refuse("--accepted", o->accepted_path, "%s", why.text);
    if (o->verdict_path && (strcmp(o->verdict_path, "-") == 0 || !path_takes_file(o->verdict_path, o->out_dir, &why)))
        return options_refuse("--verdict", o->verdict_path, "%s",
                              strcmp(o->verdict_path, "-") ? why.text : "must be a file: stdout has the results");
    if (o->overlay_path && o->plot == PLOT_NONE)
        return options_refuse("--overlay", o->overlay_path, "cannot be used with --plot none; must be left out");
    const bool is_good = o->command == COMMAND_GATE     ? check_gate(p)
                         : o->command == COMMAND_AB     ? check_ab(p)
                         : o->command == COMMAND_TUNE   ? check_tune(p)
                         : o->command == COMMAND_REPORT ? check_report(p)
                         : o->command == COMMAND_PLOT   ? check_plot(p)
                         : o->command == COMMAND_VERIFY ? check_stored(p) && check_invariance(p)
                                                        : true;
    return is_good && check_boards(p) && check_outputs(p) && check_dists(p) && check_logit_std(p) &&
           check_logit_mean(p) && check_problems(p);
}

bool options_refuse(const char *name, const char *value, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    int length = snprintf(text, sizeof text, "%.80s%s%s%.100s%s: ", name, value ? " " : "",
                          value && !*value ? "''" : "", value ? value : "", value && strlen(value) > 100 ? "..." : "");
    va_start(arguments, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
    log_error("%s", text);
    return false;
}
