/* The problems that are tuned. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/text.h"
#include "cmd/plan/plan.h"
#include "cmd/tune/tune.h"

/* Adds a problem that is not there yet. */
static void add(struct tune_list *list, const struct problem_key *key)
{
    for (int i = 0; i < list->count; i++)
        if (tuned_is_same(&list->items[i].key, key))
            return;
    list->items = xrealloc(list->items, (unsigned long)(list->count + 1) * sizeof *list->items);
    list->items[list->count++] = (struct tune_problem){.key = *key, .options = problem_key_options(key)};
}

static int add_records(const struct options *o, struct tune_list *list)
{
    for (int i = 0; i < o->files.count; i++) {
        struct record_file file;
        struct attn_message why = {""};
        if (!record_read(o->files.names[i], &file, &why)) {
            log_error("tune: %s", why.text);
            return EXIT_NOT_COMPARABLE;
        }
        for (int row = 0; row < file.count; row++)
            add(list, &file.rows[row].key);
        record_file_free(&file);
    }
    return EXIT_OK;
}

static int add_plan(const struct options *o, enum attn_platform platform, struct tune_list *list)
{
    struct plan plan;
    const int status = plan_make(o, platform, &plan);
    for (int i = 0; status == EXIT_OK && i < plan.count; i++) {
        const struct problem_key key = plan_item_key(&plan.items[i], o->l2);
        add(list, &key);
    }
    if (status == EXIT_OK)
        plan_free(&plan);
    return status;
}

/* ---- drawn problems ---- */

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int64_t draw_below(uint64_t *state, int64_t end) { return (int64_t)(draw(state) % (uint64_t)end); }

/* Even over the logarithm. */
static int64_t draw_log(uint64_t *state, double least, double most)
{
    const double share = (double)(draw(state) >> 11) * 0x1p-53;
    return (int64_t)llround(least * pow(most / least, share));
}

/* One of two: of those that are set, where it was said. */
static int draw_one(uint64_t *state, const bool set[2], bool is_given)
{
    const int drawn = (int)draw_below(state, 2);
    return is_given && !set[drawn] ? 1 - drawn : drawn;
}

char *tune_random_options(const struct options *o, enum attn_platform platform, int64_t number)
{
    /* Scores of all heads, so that no problem takes seconds: on a GPU those of 64 heads of 16K. */
    const double longest = platform == ATTN_CUDA ? 20000 : 500;
    const double most_scores = platform == ATTN_CUDA ? 64.0 * 16384 * 16384 : 8.0 * 512 * 512;
    static const int64_t groups[] = {1, 1, 1, 2, 4, 8}, dims[] = {64, 128};
    uint64_t state = o->seed * 0xD1342543DE82EF95u + (uint64_t)number;
    const int mode = draw_one(&state, o->modes, o->mode_given);
    const int causal = draw_one(&state, o->causal, o->causal_given);
    const bool types[] = {o->dtypes[ATTN_FP16], o->dtypes[ATTN_BF16]};
    const int dtype = draw_one(&state, types, o->dtypes_given);
    const int64_t dim = o->head_dims.count ? dims_qk(o->head_dims.values[draw_below(&state, o->head_dims.count)])
                                           : dims[draw_below(&state, 2)];
    const int64_t len = draw_log(&state, 100, longest), other = draw_log(&state, 100, longest);
    const int64_t kv_len = draw_below(&state, 4) == 0 ? other : len;
    const double scores = (double)len * (double)kv_len;
    const int64_t most = (int64_t)fmax(1, fmin(512, most_scores / scores));
    const int64_t heads = draw_log(&state, 1, (double)most), group = groups[draw_below(&state, 6)];
    const int64_t kv_heads = heads / group > 0 ? draw_log(&state, 1, (double)(heads / group)) : 1;
    const int64_t q_heads = heads / group > 0 ? kv_heads * group : heads, batch = heads / q_heads;
    return xasprintf(" --mode %s --causal=%s --dtype %s --d %" PRId64 " --seqlen %" PRId64 " --kv-len %" PRId64
                     " --batch %" PRId64 " --shape %" PRId64 "x%" PRId64,
                     mode ? "bwd" : "fwd", causal ? "yes" : "no",
                     platform == ATTN_CPU ? "fp32"
                     : dtype              ? "bf16"
                                          : "fp16",
                     dim, len, kv_len, batch, q_heads, heads / group > 0 ? kv_heads : heads);
}

static int add_drawn(const struct options *o, enum attn_platform platform, struct tune_list *list)
{
    int status = EXIT_OK;
    for (int64_t number = 0; number < o->random_count && status == EXIT_OK; number++) {
        struct options one;
        char *words = tune_random_options(o, platform, number), *line = xasprintf("fabench%s", words);
        status = options_parse_line(line, &one);
        if (status == EXIT_OK) {
            status = add_plan(&one, platform, list);
            options_free(&one);
        }
        free(line);
        free(words);
    }
    return status;
}

int tune_list_make(const struct options *o, enum attn_platform platform, struct tune_list *list)
{
    memset(list, 0, sizeof *list);
    const int status = o->files.count    ? add_records(o, list)
                       : o->random_count ? add_drawn(o, platform, list)
                                         : add_plan(o, platform, list);
    if (status == EXIT_OK && list->count <= TUNE_PROBLEMS_MAX)
        return EXIT_OK;
    if (status == EXIT_OK)
        log_error("tune: %d problems, at most %d", list->count, (int)TUNE_PROBLEMS_MAX);
    tune_list_free(list);
    return status == EXIT_OK ? EXIT_USAGE : status;
}

void tune_list_free(struct tune_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->items[i].options);
    free(list->items);
    memset(list, 0, sizeof *list);
}
