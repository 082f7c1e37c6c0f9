/* Texts about options. */
#include "cmd/options/options_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char option_values_text[] =
    "Options are written --name VALUE or --name=VALUE and are not shortened. Lists have commas: 64,128. A range is "
    "1k:16k:*2, which multiplies, or 512:4k:+512, which adds. 1k is 1024, 1m is 1048576.";

const struct named_text option_exit_codes[] = {
    {"0", "done; all that was asked is checked; a comparison passed"},
    {"1", "a check failed"},
    {"2", "wrong usage"},
    {"3", "slower than what it was compared with"},
    {"4", "inconclusive: too noisy to decide"},
    {"5", "not comparable: a record that is absent, unreadable or of other conditions"},
    {"6", "no usable device, a CUDA error, a timeout, or a named implementation that ran nowhere"},
    {"7", "a file cannot be read or written, an internal error, or selftest failed"},
    {"130", "interrupted with Ctrl-C, or stopped at --max-time-s; the rows until then are complete, --resume runs the "
            "rest"},
    {NULL, NULL}};

const struct named_text option_presets[] = {
    {"quick", "lengths 1k and 4k, short measuring times; smaller problems on a CPU, where it is the default"},
    {"paper", "lengths 1k to 16k, 16k tokens, hidden size 2048; the default on a GPU"},
    {"ci", "12 points in bf16: lengths 1k, 4k and 16k, the causal mask at 1k and 16k"},
    {"acceptance", "lengths 4k and 16k in bf16, with 10 s of sustained load for each row"},
    {"full",
     "what the kernels take, slice by slice, in bf16: head dims, grouped heads, windows, packed sequences, block "
     "masks, dropout, softcap, fp16; with lengths of your own they are crossed as in other presets; "
     "--max-time-s and --resume run it in parts; smaller problems on a CPU"},
    {"data", "lengths 4k and 16k in bf16 with six kinds of inputs: logit-std 1, 4 and 16, rising, falling, zeros; "
             "smaller problems on a CPU"},
    {"node",
     "a node in less than a minute: lengths 4k and 16k in bf16, causal, short measuring times; for --device all "
     "with --board-baseline or --max-board-spread"},
    {"decode",
     "one token against a cache, in bf16 at head dim 128: batches of 1 to 256 sequences with 1k to 128k keys, up to "
     "32 GiB, of four pairs of head counts; batches of unequal lengths; contiguous and in pages of 16 and 64; smaller "
     "problems on a CPU"},
    {"generations",
     "naive, fused_v1, fused_sm80 and fused_sm90 beside each other in fp16, lengths 512 to 16k: the steps from "
     "three passes to FlashAttention-3 (docs/generations.md)"},
    {NULL, NULL}};

/* --shape is num_attention_heads x num_key_value_heads of config.json; a window of w keys is w - 1 to the left of the
 * diagonal. */
const struct model_shape option_models[] = {
    {"Llama 3.1 8B", "--causal --shape 32x8 --d 128", "meta-llama/Llama-3.1-8B"},
    {"Llama 3.1 70B", "--causal --shape 64x8 --d 128", "meta-llama/Llama-3.1-70B"},
    {"Llama 3.1 405B", "--causal --shape 128x8 --d 128", "meta-llama/Llama-3.1-405B"},
    {"Llama 2 7B", "--causal --shape 32x32 --d 128", "meta-llama/Llama-2-7b-hf"},
    {"Mistral 7B v0.1", "--causal --shape 32x8 --d 128 --window-left 4095", "mistralai/Mistral-7B-v0.1"},
    {"Mixtral 8x7B", "--causal --shape 32x8 --d 128", "mistralai/Mixtral-8x7B-v0.1"},
    {"Qwen2.5 7B", "--causal --shape 28x4 --d 128", "Qwen/Qwen2.5-7B"},
    {"Qwen2.5 72B", "--causal --shape 64x8 --d 128", "Qwen/Qwen2.5-72B"},
    {"Qwen3 30B-A3B", "--causal --shape 32x4 --d 128", "Qwen/Qwen3-30B-A3B"},
    {"Gemma 2 9B", "--causal --shape 16x8 --d 256 --softcap 50 --window-left none,4095",
     "google/gemma-2-9b; every second layer has the window"},
    {"Gemma 3 27B", "--causal --shape 32x16 --d 128 --scale 0.07715 --window-left none,1023",
     "google/gemma-3-27b-it; five of six layers have the window; the scale is 1/sqrt(168)"},
    {"gpt-oss 20B", "--causal --shape 64x8 --d 64 --sink --window-left none,127",
     "openai/gpt-oss-20b; every second layer has the window"},
    {"Phi-3 mini 4k", "--causal --shape 32x32 --d 96 --window-left 2046", "microsoft/Phi-3-mini-4k-instruct"},
    {"Falcon 7B", "--causal --shape 71x1 --d 64", "tiiuae/falcon-7b"},
    {"DeepSeek V3, prefill", "--causal --shape 128x128 --d 192x128",
     "deepseek-ai/DeepSeek-V3: qk_nope_head_dim + qk_rope_head_dim, v_head_dim"},
    {"DeepSeek V3, decode", "--mode decode --kv-len 8k --shape 128x1 --d 576x512 --scale 0.07217",
     "the same: kv_lora_rank + qk_rope_head_dim; the scale is that of 192 columns"},
    {NULL, NULL, NULL}};

const struct named_text option_variables[] = {
    {"FABENCH_OUT_ROOT", "the folder in which default folders of --out are made, instead of fabench-out"},
    {"FABENCH_CUBLAS", "the cuBLAS library to load, or a folder with it"},
    {"FABENCH_CUDNN", "the cuDNN library to load, or a folder with it"},
    {"FABENCH_BLAS", "the BLAS library to load on the CPU"},
    {"FABENCH_NVML", "the NVML library to load"},
    {"FABENCH_CUPTI", "the CUPTI library to load, for --counters"},
    {"FABENCH_LOCK_DIR", "the folder of the files with which ab and gate lock a device"},
    {"FABENCH_HOST", "the host's name in records and verdicts, instead of its own"},
    {"FABENCH_CALLED_AS", "how hints name the program, instead of as it was called; scripts/run.sh sets it"},
    {"COLUMNS", "width of the output where stdout is not a terminal"},
    {"NO_COLOR", "if set, no colours unless --color always"},
    {"TMPDIR", "the folder of the temporary files of ab and gate"},
    {NULL, NULL}};

const char *option_join_names(const char *const *names, int count, char *buffer, size_t size)
{
    buffer[0] = 0;
    for (int i = 0; i < count; i++) {
        const char *const separator = i == 0 ? "" : i == count - 1 ? " or " : ", ";
        snprintf(buffer + strlen(buffer), size - strlen(buffer), "%s%s", separator, names[i]);
    }
    return buffer;
}

int option_legal_choices(const struct option_def *def, const char *choices[OPTION_CHOICES_MAX])
{
    int count = 0;
    for (int i = option_is_preset(def); def->choices && def->choices[i] && count < OPTION_CHOICES_MAX; i++)
        choices[count++] = def->choices[i];
    return count;
}

static const char several[] = ", several with commas";

const char *option_legal_text(const struct option_def *def, char *buffer, size_t size)
{
    const char *choices[OPTION_CHOICES_MAX];
    if (def->choices)
        option_join_names(choices, option_legal_choices(def, choices), buffer, size);
    else if (def->multiple)
        snprintf(buffer, size, "a multiple of %" PRId64 " from %g to %g", def->multiple, def->min, def->max);
    else if (def->kind == KIND_PERCENT)
        snprintf(buffer, size, "a percentage from %g%% to %g%%", def->min, def->max);
    else if (def->kind == KIND_REAL || def->kind == KIND_REAL_LIST)
        snprintf(buffer, size, "a number from %g to %.7g", def->min, def->max);
    else if (def->max > 9e18)
        snprintf(buffer, size, "a whole number from %g to %" PRId64, def->min, INT64_MAX);
    else if (def->max > 0)
        snprintf(buffer, size, "a whole number from %g to %.0f", def->min, def->max);
    else
        snprintf(buffer, size, "%s", def->unit ? def->unit : "");
    if (def->kind == KIND_CHOICE_SET || def->kind == KIND_REAL_LIST)
        snprintf(buffer + strlen(buffer), size - strlen(buffer), "%s", several);
    return buffer;
}

const char *option_values(const struct option_def *def, char *buffer, size_t size)
{
    if (def->kind == KIND_HELP) {
        const char *names[GROUP_COUNT + 1] = {"all"};
        for (int i = 0; i < GROUP_COUNT; i++)
            names[i + 1] = option_groups[i].name;
        return option_join_names(names, GROUP_COUNT + 1, buffer, size);
    }
    option_legal_text(def, buffer, size);
    if (def->unit && strcmp(buffer, def->unit) == 0)
        buffer[0] = 0;
    if (def->kind == KIND_COUNT_LIST || def->kind == KIND_DIMS)
        snprintf(buffer + strlen(buffer), size - strlen(buffer), "; lists and ranges");
    const bool takes_several = def->kind == KIND_CHOICE_SET || def->kind == KIND_REAL_LIST;
    if (takes_several && strlen(buffer) > sizeof several) /* shorter, for the width of the help */
        snprintf(strstr(buffer, several), sizeof several, "; lists");
    return buffer;
}

/* Does the value follow the option's name at once, as in --causal[=yes|no|both]? */
static bool value_is_attached(const struct option_def *def)
{
    return def->kind == KIND_CAUSAL || !option_takes_value(def);
}

const char *option_syntax(const struct option_def *def, char *buffer, size_t size)
{
    const char *const separator = def->kind == KIND_CHOICE_SET ? "," : "|";
    int used = snprintf(buffer, size, "%s%s%s%s%s", def->name, def->alias ? ", " : "", def->alias ? def->alias : "",
                        value_is_attached(def) ? "" : " ", def->unit ? def->unit : "");
    for (int i = 0; !def->unit && def->choices && def->choices[i] && (size_t)used < size; i++)
        if (!def->choices_shown || i < def->choices_shown)
            used += snprintf(buffer + used, size - (size_t)used, "%s%s", i ? separator : "", def->choices[i]);
    return buffer;
}

const char *option_commands(const struct option_def *def, char *buffer, size_t size)
{
    buffer[0] = 0;
    if (def->commands == FOR_ANY) {
        snprintf(buffer, size, "all");
        return buffer;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (option_serves(def, &command_table[i]))
            snprintf(buffer + strlen(buffer), size - strlen(buffer), "%s%s", *buffer ? ", " : "",
                     command_table[i].name);
    return buffer;
}

const char *option_explanation(const struct option_def *def) { return def->detail ? def->detail : def->help; }
