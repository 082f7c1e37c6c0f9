/* The option table. A new option is one row here and one field in struct options. */
#include "cmd/options/options_table.h"

#include <stddef.h>
#include <string.h>

static const char *const verify_check_names[] = {[CHECK_FULL] = "full", [CHECK_SAMPLE] = "sample", NULL};
static const char *const verify_preset_names[] = {[PRESET_NONE] = "none", [PRESET_QUICK] = "quick", NULL};
static const char *const plot_names[] = {
    [PLOT_SVG] = "svg", [PLOT_PNG] = "png", [PLOT_TERM] = "term", [PLOT_NONE] = "none", NULL};
static const char *const plot_command_names[] = {
    [PLOT_SVG] = "svg", [PLOT_PNG] = "png", [PLOT_TERM] = "term", [PLOT_NONE] = "none", [PLOT_MARKDOWN] = "md", NULL};
static const char *const layout_names[] = {[LAYOUT_PAGE] = "page", [LAYOUT_SLIDE] = "slide", NULL};
static const char *const plot_kind_names[] = {"tflops", "sustained", "speedup",    "memory", "error",    "gemm",
                                              "ms",     "joules",    "quantising", "bytes",  "roofline", NULL};
static const char *const color_names[] = {
    [COLOR_AUTO] = "auto", [COLOR_ALWAYS] = "always", [COLOR_NEVER] = "never", NULL};
static const char *const soft_names[] = {[SOFT_INCONCLUSIVE] = "4", [SOFT_NOT_COMPARABLE] = "5", NULL};
static const char *const dump_dtype_names[] = {[DUMP_NATIVE] = "native", [DUMP_FP32] = "fp32", NULL};
static const char *const cache_dtype_names[] = {"none", "e4m3", "e5m2", NULL};
static const char *const out_dtype_names[] = {"bf16", "fp16", NULL};
static const char *const causal_names[] = {"no", "yes", "both", NULL};

const struct option_group_def option_groups[GROUP_COUNT] = {
    [GROUP_PROBLEM] = {"problem", "what is computed"},
    [GROUP_IMPL] = {"impl", "implementations and device"},
    [GROUP_CHECK] = {"check", "correctness"},
    [GROUP_MEASURE] = {"measure", "timing"},
    [GROUP_GATES] = {"gates", "comparisons of ab, gate and boards"},
    [GROUP_OUTPUT] = {"output", "files and terminal"},
};

#define AT(field) .offset = offsetof(struct options, field)
#define GIVEN(field) .given_offset = offsetof(struct options, field)
#define LATE(text) .fallback = text, .is_late = true

/* Texts that two rows share. */
#define HEAD_DIMS_DETAIL \
    "Head dimensions. Any multiple of 8 up to 256 is taken here; an implementation may refuse some, and then says " \
    "why. QxV, as 192x128, is a V (and O) of another head dimension than Q and K. 576x512, in --mode decode, is a " \
    "cache in which V is the first 512 columns of K, in the same memory."
#define DTYPE_DETAIL "Types of Q, K, V, the output and the gradients."
#define DTYPE_8_BIT_DETAIL \
    " e4m3 and e5m2 have 8 bits: the forward alone, with scales (--fp8-scale) and an output of another type " \
    "(--out-dtype)."
#define DIST_DETAIL \
    "Distribution of the inputs. normal: mean 0, variance 1; uniform: from -1 to 1; zeros; sharp: Q times 8, a few " \
    "keys win; huge: Q times 256, one key wins; peak: each query is 64 times one key; constant: V is 1 everywhere, " \
    "so that dQ and dK are 0; tiny: all times 2^-20, denormals in fp16; rising, falling: normal, but the logits grow " \
    "or fall by 60 from the first key to the last; outliers: one value in a thousand has 101 times the variance; " \
    "channels: every 32nd column of Q and K is 20 times larger; drift: K and V grow 8 times over the keys."
#define CHECK_DETAIL \
    "Compares the results with an fp32 reference before and after the timing. full: every element; sample: the " \
    "query heads of the first and of the last pair of sequence and key head, in a forward of more than 16k rows " \
    "blocks of rows of them, other ones with another --seed; "

const struct option_def option_table[] = {
    {"--preset", NULL, KIND_CHOICE, AT(preset), .choices = option_preset_names, LATE("paper; quick on CPU"),
     .unit = "quick|paper|ci|...|decode|generations", .help = "options win", .commands = FOR_SWEEP | FOR_TUNE,
     .detail = "A set of problems and of measuring times, see Presets. Every other option overrides its part of it."},
    {"--preset", NULL, KIND_CHOICE, AT(preset), .choices = option_preset_names, LATE("ci; the baseline's"),
     .unit = "quick|paper|ci|...|decode|generations", .help = "options win", .commands = FOR_GATES,
     .detail = "The preset of the processes that measure, see Presets. ab takes ci (quick with --device cpu), gate "
               "what the command line in the baseline says."},
    {"--preset", NULL, KIND_CHOICE, AT(preset), .choices = verify_preset_names, .unit = "quick", .help = "fewer shapes",
     .commands = FOR_VERIFY, .detail = "The shapes that also finish in a short time under a memory checker."},
    {"--mode", NULL, KIND_CHOICE_SET, AT(modes), GIVEN(mode_given), .choices = problem_mode_names,
     .fallback = "fwd,bwd", .help = "directions; decode = forward against a cache", .commands = FOR_PROBLEMS,
     .detail = "fwd: the forward pass, O and LSE. bwd: the backward pass, dQ, dK and dV. decode, alone: --seqlen new "
               "tokens of each sequence [1], against a cache of --kv-len keys, the last of which are theirs; causal "
               "unless --causal says otherwise."},
    {"--causal", NULL, KIND_CAUSAL, AT(causal), GIVEN(causal_given), .choices = causal_names, .fallback = "both",
     .unit = "[=yes|no|both]", .commands = FOR_PROBLEMS, .is_joined = true,
     .detail = "The causal mask, aligned to the end of the keys (bottom right). --causal alone means yes; a value "
               "follows an equals sign."},
    {"--no-causal", NULL, KIND_NO_CAUSAL, AT(causal), GIVEN(causal_given), .help = "mask; --causal alone = yes",
     .commands = FOR_PROBLEMS, .detail = "The same as --causal=no."},
    {"--d", "--headdim", KIND_DIMS, AT(head_dims), .min = 8, .max = 256, .multiple = 8, LATE("64,128"), .unit = "N,...",
     .help = "head dims, multiples of 8; 192x128: V has 128", .commands = FOR_RUNS | FOR_GATES | FOR_TUNE,
     .detail = HEAD_DIMS_DETAIL},
    {"--d", "--headdim", KIND_DIMS, AT(head_dims), .min = 8, .max = 256, .multiple = 8, LATE("64"), .unit = "N,...",
     .help = "head dims, multiples of 8 up to 256", .commands = FOR_SELFTEST, .detail = HEAD_DIMS_DETAIL},
    {"--seqlen", "-n", KIND_COUNT_LIST, AT(q_lens), .min = 1, .max = INT32_MAX, LATE("1k:16k:*2"), .unit = "N,...",
     .help = "query lengths", .commands = FOR_TIMED,
     .detail = "Query lengths; also the key lengths where --kv-len is not given. The default is the preset's."},
    {"--seqlen", "-n", KIND_COUNT_LIST, AT(q_lens), .min = 128, .max = 1 << 20, LATE("1k,16k"), .unit = "N,...",
     .help = "lengths, a tile of keys at least", .commands = FOR_SELFTEST,
     .detail = "Query and key lengths; of packed sequences and caches the longest. One fault needs two tiles of 128 "
               "keys."},
    {"--kv-len", NULL, KIND_COUNT_LIST, AT(kv_lens), .min = 1, .max = INT32_MAX, LATE("equal"), .unit = "N,...",
     .help = "key lengths, each with each --seqlen", .commands = FOR_TIMED,
     .detail = "Key lengths; each is combined with each query length. In decode the lengths of the caches."},
    {"--dtype", NULL, KIND_CHOICE_SET, AT(dtypes), GIVEN(dtypes_given), .choices = problem_dtype_names,
     LATE("fp16 on CUDA, fp32 on CPU"), .help = "types of the tensors", .commands = FOR_RUNS | FOR_GATES | FOR_TUNE,
     .detail = DTYPE_DETAIL DTYPE_8_BIT_DETAIL
     " The presets ci and acceptance take bf16 on a GPU, full and verify fp16 and bf16."},
    {"--dtype", NULL, KIND_CHOICE_SET, AT(dtypes), GIVEN(dtypes_given), .choices = problem_dtype_names, LATE("all"),
     .help = "types of the tensors", .commands = FOR_SELFTEST,
     .detail = DTYPE_DETAIL " e4m3 and e5m2, forward: with "
                            "the faults of their scales."},
    {"--total-tokens", NULL, KIND_COUNT, AT(total_tokens), .min = 1, .max = INT32_MAX, LATE("16k"), .unit = "N",
     .commands = FOR_TIMED, .is_joined = true,
     .detail = "Tokens of one problem: the batch is tokens / query length, at least 1. Not with --batch."},
    {"--hidden", NULL, KIND_COUNT, AT(hidden), .min = 1, .max = INT32_MAX, LATE("2048"), .unit = "N",
     .help = "batch = tokens/n, heads = hidden/d", .commands = FOR_TIMED,
     .detail = "Width of the model: there are hidden / head dim heads, at least 1. Not with --heads."},
    {"--batch", NULL, KIND_COUNT_LIST, AT(batches), .min = 1, .max = INT32_MAX, .unit = "N,...", .commands = FOR_TIMED,
     .is_joined = true,
     .detail = "Sequences of one problem, instead of --total-tokens. Lists of --batch, --heads and --kv-heads are "
               "crossed."},
    {"--heads", NULL, KIND_COUNT_LIST, AT(heads), .min = 1, .max = INT32_MAX, .unit = "N,...", .commands = FOR_TIMED,
     .is_joined = true, .detail = "Query heads, instead of --hidden."},
    {"--heads", NULL, KIND_COUNT, AT(selftest_heads), .min = 2, .max = 1024, LATE("2"), .unit = "N",
     .help = "heads, with a batch of 1", .commands = FOR_SELFTEST,
     .detail = "Heads, with a batch of 1; at least 2, because one fault exchanges two of them."},
    {"--kv-heads", NULL, KIND_COUNT_LIST, AT(kv_heads), .min = 1, .max = INT32_MAX, .unit = "N,...",
     .help = "instead of those; kv-heads divides heads [= heads]", .commands = FOR_TIMED,
     .detail = "Heads of K and V; must divide the query heads. The default is as many as query heads."},
    {"--shape", NULL, KIND_SHAPES, AT(shapes), .unit = "QxK,...", .help = "query x key heads, not crossed",
     .is_rare = true, .commands = FOR_TIMED,
     .detail = "Pairs of query heads and key heads, as 32x8,64x8, instead of --heads and --kv-heads, whose lists are "
               "crossed."},
    {"--window-left", NULL, KIND_WINDOWS, AT(windows_left), .min = 0, .max = INT32_MAX, .unit = "N,...",
     .help = "keys before the diagonal", .is_rare = true, .commands = FOR_TIMED,
     .detail =
         "Keys that a row sees before its diagonal, which ends at the bottom right; the diagonal's own key is seen "
         "too. 0 is the diagonal alone, none or -1 all keys, as without the option. A list makes several problems."},
    {"--window-right", NULL, KIND_WINDOWS, AT(windows_right), .min = 0, .max = INT32_MAX, .unit = "N,...",
     .help = "keys after the diagonal", .is_rare = true, .commands = FOR_TIMED,
     .detail = "The same after the diagonal. The causal mask has 0 there: more than 0 is refused with --causal, and "
               "where --causal is not given it runs without the causal mask alone."},
    {"--lengths", NULL, KIND_WORDS, AT(lengths), LATE("fixed"), .unit = "SPEC,...",
     .help = "sequences of different lengths, packed", .is_rare = true, .commands = FOR_TIMED,
     .detail =
         "Sequences of different lengths, packed one behind the other, instead of --seqlen, --kv-len and --batch. "
         "uniform:LO:HI and lognormal:MEAN:SIGMA draw lengths from --seed until --total-tokens are used up, the last "
         "one cut to fit; list:Q:Q or list:QxK:QxK has these query and key lengths, 0 too, list:Q*N N times Q; @FILE "
         "has a line "
         "q_len[,kv_len] for each sequence; fixed is no such thing. Each item of a list makes problems of its own. In "
         "--mode decode these are the lengths of caches, one for each sequence: uniform and lognormal draw --batch of "
         "them, and only --kv-len is replaced; list:QxK:QxK and lines with two lengths say the new tokens of each "
         "sequence, too, as in a batch of chunks of a prefill beside decode, and replace --seqlen."},
    {"--page-size", NULL, KIND_COUNT, AT(attributes.page_size), GIVEN(page_size_given), .min = 0, .max = PAGE_SIZE_MAX,
     .multiple = 8, .fallback = "0", .unit = "N", .help = "rows of a page of the cache", .is_rare = true,
     .commands = FOR_TIMED,
     .detail =
         "Rows of a page of the cache, a multiple of 8; 0 is a contiguous cache. Pages lie in an order drawn from "
         "--seed; what no sequence uses is NaN."},
    {"--cache-dtype", NULL, KIND_CHOICE_SET, AT(cache_dtypes), .choices = cache_dtype_names, .fallback = "none",
     .help = "8-bit K and V of a cache, 16-bit Q", .is_rare = true, .commands = FOR_TIMED,
     .detail = "Types of K and V of a cache in --mode decode, beside Q and O in 16 bits; none: that of Q. They are "
               "drawn in the "
               "type of Q and quantised before the timing, with a scale for each sequence and key head. Without "
               "--dtype a CPU, "
               "which computes in fp32, takes a Q in bf16."},
    {"--block-mask", NULL, KIND_WORDS, AT(block_masks), LATE("none"), .unit = "SPEC,...",
     .help = "computes some blocks of S only", .is_rare = true, .is_joined = true, .commands = FOR_TIMED,
     .detail = "Blocks of rows and keys that are computed; the others are not visible. random:DENSITY: each with this "
               "probability, other ones for each query head; local:N: at most N blocks from the diagonal; strided:N: "
               "every Nth from the diagonal on; @FILE.npy: uint8 or bool [batch or 1, heads or 1, blocks of rows, "
               "blocks of keys]; none. With the causal mask and windows what both let through is visible."},
    {"--mask-block", NULL, KIND_COUNT, AT(mask_block), .min = 8, .max = 65536, .multiple = 8, LATE("128"), .unit = "N",
     .help = "blocks of S that are computed", .is_rare = true, .commands = FOR_TIMED,
     .detail = "Rows and keys of a block of --block-mask, a multiple of 8."},
    {"--dropout", NULL, KIND_REAL, AT(attributes.dropout), .min = 0, .max = 0.9999, .fallback = "0", .unit = "P",
     .help = "dropout after the softmax", .is_rare = true, .commands = FOR_TIMED,
     .detail = "Probability with which an element of P is dropped after the softmax; what is kept is multiplied by 1 / "
               "(1 - P). docs/design.md says which elements they are; every implementation has the same ones."},
    {"--dropout-seed", NULL, KIND_COUNT, AT(attributes.dropout_seed), .min = 0, .max = 9223372036854775807.0,
     .fallback = "0", .unit = "N", .help = "random seed of dropout", .is_rare = true, .commands = FOR_TIMED,
     .detail = "Random seed of dropout."},
    {"--softcap", NULL, KIND_REAL, AT(attributes.softcap), .min = 0, .max = 1e6, .fallback = "0", .unit = "X",
     .help = "bound of the logits", .is_rare = true, .commands = FOR_TIMED,
     .detail = "S = X tanh(scale Q K^T / X), before the mask; 0 is none."},
    {"--sink", NULL, KIND_FLAG, AT(attributes.has_sink), .help = "a logit a head in the denominator", .is_rare = true,
     .commands = FOR_TIMED,
     .detail =
         "An attention sink: one logit of each query head, N(0,1) from --seed (with --input from sink.npy), which "
         "is added to the denominator of the softmax alone. LSE includes it; the backward also makes dSink."},
    {"--alibi", NULL, KIND_FLAG, AT(attributes.has_alibi), .help = "ALiBi's bias of the distance", .is_rare = true,
     .commands = FOR_TIMED,
     .detail =
         "ALiBi: S of row i and key j is lowered by slope |i + kv_len - q_len - j|, behind the scale and the softcap "
         "and before the masks; the slope of query head h is 2^(-8 (h + 1) / heads)."},
    {"--bias", NULL, KIND_CHOICE, AT(bias), .choices = problem_bias_names, .fallback = "none",
     .unit = "full|heads|batch", .help = "a matrix that is added to S", .is_rare = true, .commands = FOR_TIMED,
     .detail =
         "A bias [batch or 1, heads or 1, rows, keys] that is added to S, behind the scale and the softcap and before "
         "the masks, drawn like the inputs, in the 16-bit type of Q or in fp32. full: of each sequence and query head; "
         "heads: of each query head, for all sequences; batch: of each sequence, for all heads. The backward also "
         "makes dBias. Not with --alibi."},
    {"--out-dtype", NULL, KIND_CHOICE_SET, AT(out_dtypes), .choices = out_dtype_names, .fallback = "bf16",
     .help = "output of 8-bit inputs", .is_rare = true, .commands = FOR_RUNS | FOR_GATES | FOR_TUNE,
     .detail = "Types of O where the inputs have 8 bits."},
    {"--fp8-scale", NULL, KIND_CHOICE_SET, AT(fp8_scales), .choices = problem_quant_names + ATTN_SCALE_TENSOR,
     .fallback = "tensor", .help = "scales of 8-bit inputs", .is_rare = true,
     .commands = FOR_RUNS | FOR_GATES | FOR_TUNE,
     .detail =
         "What the scales of 8-bit inputs are for; an element is what is stored times its scale. tensor: one for "
         "each of Q, K and V; head: for each sequence and key head, Q's for the query heads of its group; block: "
         "for each block of rows of a head. The inputs are drawn in bf16 and quantised before the timing: a scale "
         "is the largest value divided by the largest of the type."},
    {"--scale-block", NULL, KIND_COUNT, AT(scale_block), .min = 1, .max = 65536, LATE("128"), .unit = "N",
     .help = "rows of a block of them", .is_rare = true, .commands = FOR_RUNS | FOR_GATES | FOR_TUNE,
     .detail = "Rows of a block of --fp8-scale block."},
    {"--hadamard", NULL, KIND_FLAG, AT(hadamard), .help = "rotate Q and K before quantising", .is_rare = true,
     .commands = FOR_RUNS | FOR_GATES | FOR_TUNE,
     .detail = "Multiplies each row of Q and of K by the same random-sign Hadamard matrix, made from the seed, before "
               "they are quantised to 8 bits; head dims must be powers of two."},
    {"--quant-in-time", NULL, KIND_FLAG, AT(quant_in_time), .help = "the time of quantising counts", .is_rare = true,
     .commands = FOR_SWEEP | FOR_GATES,
     .detail =
         "Quantises Q, K and V to 8 bits on the device in every round, and adds the time that it took (quant_ms) to "
         "the time of each launch of the round: what a caller with 16-bit tensors waits for."},
    {"--layout", NULL, KIND_CHOICE, AT(layout), .choices = problem_layout_names, .fallback = "bshd",
     .help = "batch, s = length, heads, d in memory", .commands = FOR_TIMED,
     .detail = "Order of the dimensions in memory, the last one contiguous: batch (b), length (s), heads (h), head dim "
               "(d)."},
    {"--scale", NULL, KIND_REAL, AT(scale), .min = 1e-6, .max = 1e4, LATE("1/sqrt(d)"), .unit = "X",
     .help = "factor of Q K^T", .commands = FOR_RUNS | FOR_GATES | FOR_TUNE,
     .detail = "The factor of Q K^T before the softmax."},
    {"--dist", NULL, KIND_CHOICE_SET, AT(dists), GIVEN(dists_given), .choices = problem_dist_names, .choices_shown = 3,
     .fallback = "normal", .is_joined = true, .commands = FOR_TIMED, .detail = DIST_DETAIL},
    {"--dist", NULL, KIND_CHOICE, AT(dist), .choices = problem_dist_names, .choices_shown = 3, .fallback = "normal",
     .help = "inputs; also sharp, huge, peak, constant, tiny, ...", .commands = FOR_SELFTEST, .detail = DIST_DETAIL},
    {"--logit-std", NULL, KIND_REAL_LIST, AT(logit_stds), .min = 0.001, .max = 1000, LATE("as drawn"), .unit = "X,...",
     .help = "inputs, size of their logits", .commands = FOR_TIMED,
     .detail = "Scales Q so that the logits, scale Q K^T, have this standard deviation; with normal inputs and the "
               "default scale it is 1 as drawn. For the distributions normal, uniform, sharp and huge; each value with "
               "each of them."},
    {"--logit-mean", NULL, KIND_REAL_LIST, AT(logit_means), .min = -20000, .max = 20000, LATE("0"), .unit = "X,...",
     .help = "inputs, what all logits have in common", .commands = FOR_TIMED, .is_rare = true,
     .detail =
         "Adds X to every logit, by the first columns of Q and K: softmax does not change, but a logit this large "
         "has fewer digits left. Served models have been seen with -20000. For the distributions that --logit-std "
         "takes; each value with each of them."},
    {"--seed", NULL, KIND_COUNT, AT(seed), .min = 0, .max = 9223372036854775807.0, .fallback = "1", .unit = "N",
     .help = "random seed of the inputs", .commands = FOR_PROBLEMS,
     .detail =
         "Random seed of the inputs; the same seed gives the same inputs on every machine. A problem of verify has "
         "a seed of its own, made from this one and its key, so that key and --seed name its inputs whatever else "
         "is run; its row has that seed, with which a sweep draws the same."},
    {"--input", NULL, KIND_IN_DIR, AT(input_dir), .unit = "DIR", .help = "take the inputs from .npy files here",
     .commands = FOR_SWEEP,
     .detail = "Takes the inputs from .npy files in this folder, as --dump names them, rounded to the dtype of each "
               "problem. Modes, masks and dtypes may differ, shapes may not. A folder that --dump wrote, whole or one "
               "of those in it, also brings its problems: without other options all of them run as they did."},

    {"--random", NULL, KIND_COUNT, AT(random_count), .min = 1, .max = 100000, .unit = "N",
     .help = "N random problems, which --seed chooses", .commands = FOR_VERIFY,
     .detail =
         "N random problems instead of the hard shapes, over all that can be asked: lengths 1 to 5000 (on the CPU "
         "1 to 384), heads, head dims, windows, dropout, caches and their pages, inputs, also of 8 bits, strides, on a "
         "GPU also launches from a CUDA graph; in the modes, masks, dtypes, scales and head dims of the options. "
         "--seed chooses them; the key of "
         "problem n begins with rn, so that --only rn runs it alone. Refusals are counted by their reason."},
    {"--random", NULL, KIND_COUNT, AT(random_count), .min = 1, .max = 4096, .unit = "N",
     .help = "N random problems, which --seed chooses", .commands = FOR_TUNE,
     .detail = "N random problems of dense attention instead of those of the preset: lengths from 100 to 20k, 1 to 512 "
               "sequences x heads, grouped heads, fp16 and bf16; on a CPU smaller ones in fp32. Of --mode, --causal, "
               "--dtype and --d only what these say."},
    {"--only", NULL, KIND_TEXT, AT(only), .unit = "KEY", .help = "only the problem of this key, or with these words",
     .commands = FOR_VERIFY,
     .detail = "Only the problem whose key this is, or those whose keys have it as a part, as peak or bwd-causal, or "
               "whose line of the table has these words, as '2x2/2x63x63x64 bhsd causal'. The key names the problem's "
               "folder in --dump; --dry-run prints all of them, a failure its own."},

    {"--accepted", NULL, KIND_TEXT, AT(accepted_path), .unit = "FILE",
     .help = "rows that must run; written where absent", .is_rare = true, .group = GROUP_CHECK, .commands = FOR_VERIFY,
     .detail =
         "A list of the rows that must run, by implementation and key. One that is refused or absent now is a failure "
         "(exit code 1), although nothing that ran was wrong. Where the file does not exist, it is written."},

    {"--impl", NULL, KIND_NAMES, AT(impls), LATE("naive,fused,cudnn"), .unit = "NAME,...",
     .help = "fused = the best; or NAME:VARIANT", .group = GROUP_IMPL, .commands = FOR_RUNS,
     .detail =
         "Implementations, as fabench list names them. fused is the first fused kernel that takes the problem. "
         "NAME:VARIANT forces one tile configuration, NAME:deterministic the deterministic mode, NAME:smem_99kb what "
         "runs where thread blocks have 99 KB of shared memory, NAME:invariant results of a sequence that do not "
         "depend "
         "on the others, NAME:fast short sums of 8-bit numbers; all can stand beside the plain NAME and, in the order "
         "NAME:VARIANT:deterministic:invariant:fast, together. A named implementation that runs nowhere ends with 6."},
    {"--impl", NULL, KIND_NAMES, AT(impls), LATE("fused; the baseline's"), .unit = "NAME,...",
     .help = "what is compared", .group = GROUP_IMPL, .commands = FOR_GATES,
     .detail = "Implementations that are compared, as fabench list names them: fused in ab, those of the baseline in "
               "gate."},
    {"--impl", NULL, KIND_NAMES, AT(impls), .unit = "NAME", .help = "whose variants are tried", .group = GROUP_IMPL,
     .commands = FOR_TUNE,
     .detail = "The implementation whose variants are tried, one that fabench list shows with variants."},
    {"--impl", NULL, KIND_NAMES, AT(impls), LATE("fused, else naive"), .unit = "NAME,...",
     .help = "computes the right results", .group = GROUP_IMPL, .commands = FOR_SELFTEST,
     .detail = "The implementation whose right results get the faults."},
    {"--impl-lib", NULL, KIND_LIBRARY, AT(impl_libs), .unit = "PATH",
     .help = "shared library with more implementations; repeatable", .group = GROUP_IMPL,
     .commands = FOR_PROBLEMS | FOR_LIST,
     .detail = "A shared library with more implementations; may be given several times. See examples/plugin."},
    {"--tuned", NULL, KIND_IN_FILE, AT(tuned_path), .unit = "FILE", .help = "variants that fabench tune has found",
     .is_rare = true, .group = GROUP_IMPL, .commands = FOR_RUNS,
     .detail = "A file of fabench tune: implementations take the variants that it has for a problem, others and other "
               "problems what they choose themselves. A file of another device or build ends the run with 5."},
    {"--peer", NULL, KIND_TEXT, AT(peer), LATE("cudnn"), .unit = "NAME", .group = GROUP_IMPL, .commands = FOR_SWEEP,
     .is_joined = true,
     .detail =
         "The implementation that the columns peer and speedup_vs_peer, and x NAME in the table, compare with: any "
         "of fabench list or of a library. It runs beside those of --impl where it is not one of them."},
    {"--variant", NULL, KIND_TEXT, AT(variant), .unit = "NAME", .help = "whom x PEER means; tiles as list names them",
     .group = GROUP_IMPL, .commands = FOR_RUNS | FOR_GATES,
     .detail = "Forces one tile configuration, named as in fabench list, on all implementations."},
    {"--deterministic", NULL, KIND_FLAG, AT(deterministic), .help = "outputs with the same bits in every run",
     .group = GROUP_IMPL, .commands = FOR_RUNS | FOR_GATES,
     .detail = "Asks for outputs with the same bits in every run. An implementation that cannot promise it refuses."},
    {"--splits", NULL, KIND_COUNT, AT(splits), .min = 0, .max = 1024, .fallback = "0", .unit = "N",
     .help = "parts of the keys in decode", .is_rare = true, .group = GROUP_IMPL, .commands = FOR_TIMED,
     .detail =
         "Parts into which the keys of a row are split in --mode decode, each computed by itself and then merged; "
         "0 is the implementation's choice. One that cannot split refuses. Rows of different splits are the same "
         "case."},
    {"--device", NULL, KIND_DEVICE, AT(device), .fallback = "auto", .unit = "auto|cpu|cuda:N,...|all",
     .help = "where it runs", .group = GROUP_IMPL, .commands = FOR_RUNS | FOR_INFO,
     .detail = "auto is the first CUDA device, else the CPU. all, or several as cuda:0,cuda:2: one record of all these "
               "devices, each with a supervisor, a worker and a lock of its own, and a summary by board."},
    {"--device", NULL, KIND_DEVICE, AT(device), .fallback = "auto", .unit = "auto|cpu|cuda:N", .help = "where it runs",
     .group = GROUP_IMPL, .commands = FOR_GATES | FOR_SELFTEST | FOR_LIST | FOR_TUNE,
     .detail = "auto is the first CUDA device, else the CPU; ab and gate take the CPU only where it is named."},
    {"--one-by-one", NULL, KIND_FLAG, AT(one_by_one), .help = "several devices in turn, not together", .is_rare = true,
     .group = GROUP_IMPL, .commands = FOR_RUNS,
     .detail = "Measures the devices of --device all, or of a list, one after the other. Without it they run together: "
               "the load that a host sees."},
    {"--max-board-spread", NULL, KIND_PERCENT, AT(max_board_spread_pct), .min = 0.01, .max = 100, .unit = "P%",
     .help = "a board slower than the others by more", .is_rare = true, .group = GROUP_GATES, .commands = FOR_SWEEP,
     .detail = "With several devices: where a board is slower than the median of the others by more than this, or a "
               "quarter of its cases by three times as much, all are measured again; one that is so again is named, "
               "and the exit code is 3."},
    {"--board-baseline", NULL, KIND_TEXTS, AT(board_baselines), .unit = "PATH",
     .help = "earlier records of the boards, or of their fleet", .is_rare = true, .group = GROUP_GATES,
     .commands = FOR_SWEEP,
     .detail =
         "With several devices, or all: a record, or a folder of records named *.jsonl. Each board is compared "
         "with its own earlier runs, where there is none with the boards of its model; one that is slower by "
         "more than its repeatability and the spread between boards explain, or a quarter of its cases, twice, is "
         "named (exit 3). The smallest loss that is found is printed. With --max-board-spread the limit is not lower "
         "than that."},

    {"--check", NULL, KIND_CHOICE, AT(check), .choices = problem_scope_names, .fallback = "full",
     .help = "compare each row with the reference", .group = GROUP_CHECK, .commands = FOR_SWEEP | FOR_GATE | FOR_TUNE,
     .detail = CHECK_DETAIL "off: nothing, and the output says NOT CHECKED."},
    {"--check", NULL, KIND_CHOICE, AT(check), .choices = verify_check_names, .fallback = "full",
     .help = "how much is compared with the reference", .group = GROUP_CHECK, .commands = FOR_VERIFY,
     .detail = "Compares the results with an fp32 reference. full: every element; sample: the query heads of the first "
               "and of the last pair of sequence and key head."},
    {"--atol", NULL, KIND_REAL, AT(atol), .min = 0, .max = 1e6, .unit = "X", .group = GROUP_CHECK,
     .commands = FOR_RUNS | FOR_GATES | FOR_TUNE, .is_joined = true,
     .detail = "Absolute tolerance of an element. With --atol or --rtol these are used as given instead of the bounds "
               "that follow from type and row."},
    {"--rtol", NULL, KIND_REAL, AT(rtol), .min = 0, .max = 1e6, .unit = "X", .help = "used as given [by dtype and row]",
     .group = GROUP_CHECK, .commands = FOR_RUNS | FOR_GATES | FOR_TUNE,
     .detail = "Tolerance relative to the reference; see --atol."},
    {"--repeats", NULL, KIND_COUNT, AT(repeats), .min = 0, .max = 1000000, .fallback = "5", .unit = "N",
     .help = "more runs, whose bits must agree", .group = GROUP_CHECK, .commands = FOR_VERIFY,
     .detail = "Runs after the first one; tensors that the implementation promises to repeat must have the same bits."},
    {"--invariance", NULL, KIND_FLAG, AT(invariance), .help = "the bits of a sequence in other batches",
     .is_rare = true, .group = GROUP_CHECK, .commands = FOR_VERIFY,
     .detail =
         "Computes the sequences of each forward alone, in other orders and batches, in pages and contiguous, and "
         "compares bits. An implementation that promises a mode for it runs as NAME:invariant and fails where "
         "bits differ; of the others the column batch_invariant says it. A plain NAME beside NAME:invariant "
         "runs as it is. Without backward and dropout."},

    {"--outputs", NULL, KIND_IN_DIR, AT(outputs_dir), .unit = "DIR", .help = "judge the results in these files instead",
     .group = GROUP_CHECK, .commands = FOR_VERIFY,
     .detail = "Judges results that another program has written, and launches nothing. DIR is a folder that --dump "
               "wrote, or one of those in it; beside a problem's inputs each folder NAME holds the results of one "
               "implementation, o.npy and lse.npy or dq.npy, dk.npy and dv.npy. Without --impl all are judged. "
               "lse.npy may be absent. See examples/python."},

    {"--warmup-ms", NULL, KIND_REAL, AT(warmup_ms), .min = 0, .max = 3600000, LATE("500"), .unit = "X",
     .group = GROUP_MEASURE, .commands = FOR_TIMED, .is_joined = true,
     .detail = "Least time of the warm-up before the samples of a problem, in milliseconds. The default is the "
               "preset's."},
    {"--min-time-ms", NULL, KIND_REAL, AT(min_time_ms), .min = 0, .max = 3600000, LATE("500"), .unit = "X",
     .help = "least time of warm-up and of samples", .group = GROUP_MEASURE, .commands = FOR_TIMED,
     .detail = "Least time that the samples of an implementation take together, in milliseconds. The default is the "
               "preset's."},
    {"--samples", NULL, KIND_COUNT, AT(samples), .min = 1, .max = 1000000, LATE("30"), .unit = "N",
     .help = "least number of samples", .group = GROUP_MEASURE, .commands = FOR_TIMED,
     .detail = "Least number of samples of each implementation. The default is the preset's."},
    {"--max-noise", NULL, KIND_PERCENT, AT(max_noise_pct), .min = 0.001, .max = 100, LATE("0.5%"), .unit = "P%",
     .help = "half-width of 95 % intervals: median, ratio", .group = GROUP_MEASURE, .commands = FOR_TIMED,
     .detail = "Sampling goes on until the half-widths of the 95 % intervals of the median time and of the ratios are "
               "below this, or the time limit of the sampling is reached."},
    {"--preheat-s", NULL, KIND_REAL, AT(preheat_s), .min = 0, .max = 3600, LATE("0; 3 of ab and gate"), .unit = "X",
     .help = "load before the first problem", .is_rare = true, .group = GROUP_MEASURE, .commands = FOR_TIMED,
     .detail = "Seconds of load on the device before the first problem, so that all problems meet a warm device."},
    {"--timeout-s", NULL, KIND_REAL, AT(timeout_s), .min = 0.1, .max = 86400, .fallback = "60", .unit = "X",
     .help = "ends a case that hangs", .group = GROUP_MEASURE, .commands = FOR_PROBLEMS,
     .detail = "Seconds after which a case that has not finished is ended with status timeout."},
    {"--sustain-s", NULL, KIND_REAL, AT(sustain_s), .min = 0, .max = 3600, LATE("0"), .unit = "X",
     .group = GROUP_MEASURE, .commands = FOR_SWEEP | FOR_GATE, .is_joined = true,
     .detail = "Seconds of uninterrupted load for each row, from which sustained TFLOPS, power and energy come; 0 is "
               "none. At least 2, because the device's energy counter moves in steps; 10 is better."},
    {"--counters", NULL, KIND_FLAG, AT(counters), .help = "a row's power and joules; bytes and FLOPs counted",
     .group = GROUP_MEASURE, .commands = FOR_SWEEP,
     .detail = "Counts bytes to device memory and L2 and the FLOPs of the tensor cores with the GPU's own counters, in "
               "launches apart from the timing; a row whose FLOPs are too few fails by the rule executed. Needs CUPTI "
               "and the permission to read counters; without them the columns are empty and one line says why."},
    {"--l2", NULL, KIND_CHOICE, AT(l2), .choices = problem_l2_names, .fallback = "cold",
     .help = "L2 cache before each sample", .group = GROUP_MEASURE, .commands = FOR_TIMED,
     .detail = "State of the L2 cache before each sample. cold: overwritten with other data; hot: as the previous "
               "launch left it."},
    {"--points", NULL, KIND_COUNT_LIST, AT(points), .min = 0, .max = 99999, .unit = "N,...", .is_hidden = true,
     .help = "only these problems of the plan", .group = GROUP_MEASURE, .commands = FOR_SWEEP},
    {"--profile", NULL, KIND_FLAG, AT(profile), .help = "one launch of one case for a profiler, no record",
     .group = GROUP_MEASURE, .commands = FOR_SWEEP,
     .detail = "Launches one implementation once on one problem, between cudaProfilerStart and cudaProfilerStop in an "
               "NVTX range. Nothing is checked or recorded."},
    {"--dry-run", NULL, KIND_FLAG, AT(dry_run), .help = "only the plan: cases, memory, time", .group = GROUP_MEASURE,
     .commands = FOR_RUNS, .detail = "Prints the plan and ends: cases, workspaces, memory, expected time."},

    {"--baseline", NULL, KIND_TEXTS, AT(baselines), .unit = "PATH", .group = GROUP_GATES, .commands = FOR_GATE,
     .is_joined = true,
     .detail = "A record file (JSONL) to compare with. Several, one process each, show how much processes differ."},
    {"--current", NULL, KIND_TEXTS, AT(currents), .unit = "PATH",
     .help = "record files, repeatable; no --current = "
             "measure now",
     .group = GROUP_GATES, .commands = FOR_GATE,
     .detail = "A record file that is compared with the baseline. Without it, the baseline's sweep is measured now."},
    {"--runs", NULL, KIND_COUNT, AT(runs_max), .min = 1, .max = 16, LATE("5"), .unit = "N",
     .help = "processes that are measured at most", .group = GROUP_GATES, .commands = FOR_GATE,
     .detail = "gate measures one process, a second one to confirm a loss, and more where noise leaves cases open, up "
               "to this number."},
    {"--subset", NULL, KIND_FLAG, AT(is_subset), .help = "--current may lack cases of the baseline",
     .group = GROUP_GATES, .commands = FOR_GATE,
     .detail = "Cases of the baseline that --current lacks are passed over; without it they end with 5."},
    {"--floors", NULL, KIND_TEXT, AT(floors), .unit = "PATH", .help = "CSV of least values, see docs/gates.md",
     .group = GROUP_GATES, .commands = FOR_GATE,
     .detail = "A CSV file of least values of columns, with or without a baseline; docs/gates.md describes it."},
    {"--delta", NULL, KIND_PERCENT, AT(delta_pct), .min = 0.1, .max = 50, LATE("2%; 5% of gate"), .unit = "P%",
     .help = "smaller losses count as none", .group = GROUP_GATES, .commands = FOR_GATES,
     .detail = "The loss of speed from which on a case counts as slower; smaller ones count as none."},
    {"--pairs", NULL, KIND_COUNT_LIST, AT(pairs), .min = 2, .max = 64, LATE("6,16"), .unit = "MIN,MAX",
     .help = "processes of each side", .group = GROUP_GATES, .commands = FOR_AB,
     .detail = "Pairs of processes, one of OLD and one of NEW: the least number, and the most for cases that are still "
               "open. Even numbers, because the order of the processes is drawn for two pairs together."},
    {"--order-seed", NULL, KIND_COUNT, AT(order_seed), .min = 1, .max = INT32_MAX, LATE("drawn"), .unit = "N",
     .help = "order of the processes, to repeat a run", .is_rare = true, .group = GROUP_GATES, .commands = FOR_AB,
     .detail = "The number that the order of the processes of OLD and NEW is drawn from. ab prints the one it used."},
    {"--soft", NULL, KIND_CHOICE_SET, AT(soft), .choices = soft_names, .unit = "4,5",
     .help = "exit 0 instead of these codes", .group = GROUP_GATES, .commands = FOR_GATES,
     .detail = "Exit codes that become 0: 4 inconclusive, 5 not comparable. The output says so."},
    {"--junit", NULL, KIND_OUT_FILE, AT(junit_path), .unit = "PATH", .help = "the verdicts as JUnit XML",
     .group = GROUP_GATES, .commands = FOR_GATES, .detail = "Writes the verdicts to this file as JUnit XML."},
    {"--junit", NULL, KIND_OUT_FILE, AT(junit_path), .unit = "PATH", .help = "a test for each result, as JUnit XML",
     .group = GROUP_OUTPUT, .commands = FOR_VERIFY | FOR_SELFTEST,
     .detail = "Writes a test case for each result to this file as JUnit XML."},

    {"--out", NULL, KIND_OUT_DIR, AT(out_dir), LATE("fabench-out/<device>-<utc>/"), .unit = "DIR|none",
     .help = "folder of all files", .group = GROUP_OUTPUT, .commands = FOR_RUNS,
     .detail = "The folder of the record, the CSV and the charts; none writes no files."},
    {"--out", NULL, KIND_OUT_DIR, AT(out_dir), LATE("the working folder"), .unit = "DIR|none",
     .help = "folder of the charts", .group = GROUP_OUTPUT, .commands = FOR_PLOT,
     .detail = "The folder of the charts; none only with --plot term."},
    {"--out", NULL, KIND_OUT_DIR, AT(out_dir), LATE("fabench-out/report-<utc>/"), .unit = "DIR|none",
     .help = "none = Markdown on stdout", .group = GROUP_OUTPUT, .commands = FOR_REPORT,
     .detail = "The folder of the page and its charts; none prints the page as Markdown to stdout."},
    {"--out", NULL, KIND_OUT_DIR, AT(out_dir), LATE("none"), .unit = "DIR|none",
     .help = "keeps every process' record, and verdicts.csv", .group = GROUP_OUTPUT, .commands = FOR_GATES,
     .detail = "A folder that keeps the record of every process, and verdicts.csv."},
    {"--write", NULL, KIND_OUT_FILE, AT(tuned_out), .unit = "FILE", .help = "where the choices go; for --tuned FILE",
     .group = GROUP_OUTPUT, .commands = FOR_TUNE,
     .detail = "The file that gets a line for each problem as soon as it is done; --tuned takes it."},
    {"--resume", NULL, KIND_FLAG, AT(resume), .group = GROUP_OUTPUT, .commands = FOR_TUNE, .is_joined = true,
     .detail = "Goes on with the file of --write; its problems are not tried again."},
    {"--overwrite", NULL, KIND_FLAG, AT(overwrite), .group = GROUP_OUTPUT, .commands = FOR_TUNE, .is_joined = true,
     .detail = "Replaces the file of --write."},
    {"--max-time-s", NULL, KIND_REAL, AT(max_time_s), .min = 0.1, .max = 86400, LATE("no limit"), .unit = "X",
     .help = "go on with that file, replace it; a part of the problems", .group = GROUP_OUTPUT, .commands = FOR_TUNE,
     .detail = "Seconds after which no other problem is begun; at least one is tried. The exit code is then 130, and "
               "--resume goes on."},
    {"--resume", NULL, KIND_FLAG, AT(resume), .group = GROUP_OUTPUT, .commands = FOR_SWEEP, .is_joined = true,
     .detail = "Continues the record in --out or --jsonl that an interrupted sweep left; rows in it are not measured "
               "again, except those whose process was killed."},
    {"--max-time-s", NULL, KIND_REAL, AT(max_time_s), .min = 0.1, .max = 86400, LATE("no limit"), .unit = "X",
     .help = "continue the record in --out; run a part of it", .group = GROUP_OUTPUT, .commands = FOR_SWEEP,
     .detail = "Seconds after which no other problem is begun; at least one is run. What is left then is said with the "
               "command that goes on with it (--resume), and the exit code is 130, as after Ctrl-C."},
    {"--overwrite", NULL, KIND_FLAG, AT(overwrite), .help = "replace the record in --out", .group = GROUP_OUTPUT,
     .commands = FOR_RUNS,
     .detail = "Replaces the record and the CSV that the folder of --out holds. Without it, or --resume, a run into a "
               "folder that holds a record ends with 2 before it measures."},
    {"--csv", NULL, KIND_OUT_FILE, AT(csv_path), .unit = "PATH", .group = GROUP_OUTPUT, .commands = FOR_RUNS,
     .is_joined = true, .detail = "The rows as CSV; - is stdout. The default is run.csv in the folder of --out."},
    {"--jsonl", NULL, KIND_OUT_FILE, AT(jsonl_path), .unit = "PATH", .help = "records; - = stdout [in the --out DIR]",
     .group = GROUP_OUTPUT, .commands = FOR_RUNS,
     .detail = "The record, one JSON object a line; - is stdout. The default is run.jsonl in the folder of --out."},
    {"--jsonl", NULL, KIND_OUT_FILE, AT(jsonl_path), .unit = "PATH", .help = "a row for each result; - = stdout",
     .group = GROUP_OUTPUT, .commands = FOR_SELFTEST,
     .detail = "A row for each result, one JSON object a line; - is stdout."},
    {"--columns", NULL, KIND_TEXT, AT(columns), LATE("all"), .unit = "NAME,...", .help = "columns of the CSV",
     .group = GROUP_OUTPUT, .commands = FOR_RUNS, .detail = "Columns of the CSV, in this order."},
    {"--plot", NULL, KIND_CHOICE, AT(plot), GIVEN(plot_given), .choices = plot_names, .fallback = "svg",
     .help = "charts", .group = GROUP_OUTPUT, .commands = FOR_SWEEP,
     .detail = "Charts: files that gnuplot draws (svg, png), or bars on the terminal (term)."},
    {"--plot", NULL, KIND_CHOICE, AT(plot), GIVEN(plot_given), .choices = plot_command_names, .fallback = "svg",
     .unit = "svg|png|term|md", .help = "charts, or tables in Markdown", .group = GROUP_OUTPUT, .commands = FOR_PLOT,
     .detail = "Charts: files that gnuplot draws (svg, png), or bars on the terminal (term). md prints tables in "
               "Markdown: time and its interval, speed, share of the GEMM, joules, time relative to the fastest."},
    {"--plot-layout", NULL, KIND_CHOICE, AT(plot_layout), .choices = layout_names, .fallback = "page",
     .group = GROUP_OUTPUT, .commands = FOR_PLOT, .is_joined = true,
     .detail = "page: panels of lines over the length. slide: 16:9, for each kind and mode (for each panel where these "
               "have more than 72 bars) grouped bars with their values over one y axis, files NAME-slide."},
    {"--plot-kind", NULL, KIND_CHOICE_SET, AT(plot_kinds), .choices = plot_kind_names, LATE("tflops to error"),
     .unit = "NAME,...", .help = "slide: 16:9 bars; kinds", .group = GROUP_OUTPUT, .commands = FOR_PLOT,
     .detail =
         "Kinds of charts: tflops (of decode GB/s), sustained (TFLOPS under load), speedup (over naive), memory "
         "(of the workspace), error (against the reference), gemm (per cent of the GEMM, of decode of reading), "
         "ms (time of a pass), joules (energy of a pass), quantising (error of 8 bits beside the inputs before), bytes "
         "(to device memory, counted and modelled), roofline (speed over FLOPs per byte). The first five are the "
         "default, with rows of --counters the last two as well; one for which the records have no figure is left "
         "out."},
    {"--plot", NULL, KIND_CHOICE, AT(plot), GIVEN(plot_given), .choices = plot_names, .fallback = "svg",
     .unit = "svg|none", .help = "charts of the page", .group = GROUP_OUTPUT, .commands = FOR_REPORT,
     .detail = "Charts of the page: svg or none."},
    {"--overlay", NULL, KIND_IN_FILE, AT(overlay_path), .unit = "FILE", .help = "published points for the charts",
     .group = GROUP_OUTPUT, .commands = FOR_SWEEP | FOR_PLOT | FOR_REPORT,
     .detail = "A CSV file of published figures, which the charts show as marks; docs/report.md describes it."},
    {"--price", NULL, KIND_TEXTS, AT(prices), .unit = "LABEL=31000EUR", .help = "of one device; repeatable",
     .group = GROUP_OUTPUT, .commands = FOR_REPORT,
     .detail = "The price of one device with this label, for TFLOPS per price; may be given once for each label."},
    {"--boards", NULL, KIND_FLAG, AT(is_fleet), .help = "the boards of a fleet, hosts x boards", .group = GROUP_OUTPUT,
     .commands = FOR_REPORT,
     .detail =
         "Instead of the page: the boards of all hosts whose records are in these files, and in files named *.jsonl "
         "of these folders: slow boards, missing and failed nodes, a table. To stdout; --out none prints Markdown, "
         "--out DIR also writes DIR/boards.md, boards.csv and a heat map, boards.svg."},
    {"--nodes", NULL, KIND_WORDS, AT(nodes), .unit = "HOST,...", .help = "of --boards: hosts that should be there",
     .is_rare = true, .group = GROUP_OUTPUT, .commands = FOR_REPORT,
     .detail = "With --boards: names of hosts, with commas; one without a record is named as missing."},
    {"--history", NULL, KIND_FLAG, AT(is_history), .help = "a line a case over commits, with its band",
     .group = GROUP_OUTPUT, .commands = FOR_REPORT,
     .detail =
         "Instead of the page: a line for each problem and implementation over the commits (or labels) of all files, "
         "in the order in which they were measured, each with its band, and the largest loss from one to the "
         "next. To stdout; --out none prints Markdown, --out DIR writes DIR/history.md."},
    {"--dump", NULL, KIND_OUT_DIR, AT(dump_dir), .unit = "DIR", .group = GROUP_OUTPUT, .commands = FOR_RUNS,
     .is_joined = true,
     .detail = "Writes the inputs of each problem (in backward with the reference's O and LSE) with the reference's "
               "results (o_reference.npy) into a folder of its own in this one, the results of each implementation "
               "and their differences from the reference (o.npy, o_difference.npy) into a folder NAME in that, and "
               "beside them a tensors.json that says what the problem is and what the files hold."},
    {"--dump-dtype", NULL, KIND_CHOICE, AT(dump_dtype), .choices = dump_dtype_names, .fallback = "native",
     .help = "the tensors as .npy files here, of these types", .group = GROUP_OUTPUT, .commands = FOR_RUNS,
     .detail = "NumPy has no bfloat16: natively its bits are stored as 16-bit integers. float32 changes no value."},
    {"--exit-style", NULL, KIND_CHOICE, AT(exit_style), .choices = exit_style_names, .fallback = "plain",
     .help = "exit codes of Nagios or Slurm", .is_rare = true, .group = GROUP_OUTPUT,
     .commands = FOR_RUNS | FOR_GATES | FOR_SELFTEST,
     .detail =
         "nagios: 0 OK, 1 undecided, 2 a failed check or a slow board, 3 all else; slurm: 1 for a failed check or a "
         "slow board, 0 for all else, so that nothing else drains a node. Sweep and verify then print a line "
         "fabench-drain: for each such board. docs/fleet.md has the table."},
    {"--verdict", NULL, KIND_OUT_FILE, AT(verdict_path), .unit = "PATH", .help = "one JSON object about the node",
     .is_rare = true, .group = GROUP_OUTPUT, .commands = FOR_RUNS,
     .detail = "Writes what the run says about its node: state, exit codes, boards, and why one should be drained."},
    {"--max-failures", NULL, KIND_COUNT, AT(max_failures), .min = 0, .max = 1000000, .fallback = "20", .unit = "N",
     .help = "failures that are printed", .group = GROUP_OUTPUT, .commands = FOR_RUNS | FOR_SELFTEST,
     .detail = "At most this many failures are printed; the rest are counted. The record has all of them."},
    {"--verbose", NULL, KIND_FLAG, AT(verbose), .group = GROUP_OUTPUT, .commands = FOR_ANY, .is_joined = true,
     .detail = "Says more: below each row its samples and why sampling ended, the passes of naive; of verify the rows "
               "that were refused, too; more on stderr."},
    {"--quiet", NULL, KIND_FLAG, AT(quiet), .help = "say more, or only warnings and errors", .group = GROUP_OUTPUT,
     .commands = FOR_ANY,
     .detail =
         "Prints nothing but warnings and errors, on stderr: no table, summary or verdicts. What was asked for by "
         "name is still printed: --csv -, --jsonl -, --plot term, report --out none, list, info, --dry-run."},
    {"--color", NULL, KIND_CHOICE, AT(color), .choices = color_names, .fallback = "auto",
     .help = "colours on the terminal", .group = GROUP_OUTPUT, .commands = FOR_ANY,
     .detail = "Colours on the terminal. auto: where stdout is a terminal and NO_COLOR is not set."},
    {"--version", NULL, KIND_VERSION, .group = GROUP_OUTPUT, .commands = FOR_ANY, .is_joined = true,
     .detail = "Prints version, commit and build, and ends."},
    {"--help", "-h", KIND_HELP, .unit = "[=all|GROUP]", .help = "print and end; all or one group in full",
     .group = GROUP_OUTPUT, .commands = FOR_ANY,
     .detail = "Prints a short help, all options in full, or one group: problem, impl, check, measure, gates, output. "
               "After a command only that command's options."},
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
    return def->kind != KIND_FLAG && def->kind != KIND_NO_CAUSAL && def->kind != KIND_HELP && def->kind != KIND_VERSION;
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

/* The names of the enums in struct options. */

const char *const option_preset_names[] = {[PRESET_NONE] = "none",
                                           [PRESET_QUICK] = "quick",
                                           [PRESET_PAPER] = "paper",
                                           [PRESET_CI] = "ci",
                                           [PRESET_ACCEPTANCE] = "acceptance",
                                           [PRESET_FULL] = "full",
                                           [PRESET_DATA] = "data",
                                           [PRESET_NODE] = "node",
                                           [PRESET_DECODE] = "decode",
                                           [PRESET_GENERATIONS] = "generations",
                                           NULL};

const char *option_preset_name(enum preset preset) { return option_preset_names[preset]; }

/* The commands as a table. */

#define COMMAND_ROW(id, name, arguments, takes_words, summary) {name, arguments, takes_words, summary, COMMAND_##id},
const struct command_def command_table[] = {COMMAND_LIST(COMMAND_ROW)};
