/* Lengths of sequences and block masks from their descriptions. */
#include "cmd/problem/problem_arrays.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/csv.h"
#include "cmd/base/log.h"
#include "cmd/base/npy.h"
#include "cmd/base/numbers.h"
#include "cmd/base/paths.h"
#include "cmd/problem/problem.h"

enum { SEQUENCES_MAX = 1000000 };

/* Sets the sentence. Always returns false. */
__attribute__((format(printf, 2, 3))) static bool refuse(struct reason *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- random numbers ---- */

/* Number `n` of a stream: splitmix64 of the seed and the number. */
static uint64_t random_bits(uint64_t seed, uint64_t n)
{
    return number_mix(seed * 0xD1342543DE82EF95ull + (n + 1) * NUMBER_MIX_STEP);
}

/* Uniform in (0, 1). */
static double random_unit(uint64_t seed, uint64_t n) { return ((double)(random_bits(seed, n) >> 11) + 0.5) * 0x1p-53; }

/* ---- words of a description ---- */

/* True when `text` is `kind`:..., and then *rest is what follows the colon. */
static bool is_kind(const char *text, const char *kind, const char **rest)
{
    const size_t length = strlen(kind);
    if (strncmp(text, kind, length) != 0 || text[length] != ':')
        return false;
    *rest = text + length + 1;
    return true;
}

/* Copies the word up to `end` or the end of the text into `word`, and moves *text behind it. */
static bool next_word(const char **text, char end, char *word, size_t size)
{
    const size_t length = strcspn(*text, (const char[]){end, '\0'});
    if (length == 0 || length >= size)
        return false;
    memcpy(word, *text, length);
    word[length] = '\0';
    *text += length + ((*text)[length] == end);
    return true;
}

/* ---- lengths ---- */

struct length_list {
    int64_t (*pairs)[2]; /* q_len, kv_len */
    int64_t count, room, total_q, total_k;
    int64_t wanted; /* sequences to draw; 0 = until the tokens are used up */
    bool has_pairs; /* a list or a file that says two lengths of a sequence */
};

static bool add_lengths(struct length_list *list, int64_t q_len, int64_t kv_len, struct reason *why)
{
    if (list->count >= SEQUENCES_MAX)
        return refuse(why, "more than %d sequences", SEQUENCES_MAX);
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->pairs = xrealloc(list->pairs, (unsigned long)list->room * sizeof *list->pairs);
    }
    list->pairs[list->count][0] = q_len;
    list->pairs[list->count++][1] = kv_len;
    list->total_q += q_len;
    list->total_k += kv_len;
    if (list->total_q > INT32_MAX || list->total_k > INT32_MAX)
        return refuse(why, "more than %d tokens", INT32_MAX);
    return true;
}

static bool parse_length(const char *text, int64_t *length)
{
    return number_parse_count(text, length) && *length <= INT32_MAX;
}

/* One length, or two with a `between` character. */
static bool parse_lengths(const char *text, char between, int64_t *q_len, int64_t *kv_len)
{
    char word[32];
    const bool is_pair = strchr(text, between) != NULL;
    if (!next_word(&text, between, word, sizeof word) || !parse_length(word, q_len))
        return false;
    *kv_len = *q_len;
    return is_pair ? parse_length(text, kv_len) : *text == '\0';
}

static bool read_list(const char *text, struct length_list *list, struct reason *why)
{
    while (*text) {
        char word[64];
        int64_t q_len, kv_len, times = 1;
        bool good = next_word(&text, ':', word, sizeof word);
        char *const star = good ? strchr(word, '*') : NULL;
        if (star) {
            *star = '\0';
            good = number_parse_count(star + 1, &times) && times > 0;
        }
        if (!good || !parse_lengths(word, 'x', &q_len, &kv_len))
            return refuse(why, "a list is list:Q:Q, list:QxK:QxK or list:Q*N for N times Q, of lengths from 0 to %d",
                          INT32_MAX);
        list->has_pairs |= strchr(word, 'x') != NULL;
        for (int64_t i = 0; i < times; i++)
            if (!add_lengths(list, q_len, kv_len, why))
                return false;
    }
    return true;
}

/* One row of a file of lengths. */
static bool read_cells(const struct csv_reader *reader, struct length_list *list, struct reason *why)
{
    int64_t q_len, kv_len;
    if (reader->count > 2 || !parse_length(reader->cells[0], &q_len))
        return refuse(why, "line %d is not q_len[,kv_len], lengths from 0 to %d", reader->line, INT32_MAX);
    kv_len = q_len;
    list->has_pairs |= reader->count == 2;
    if (reader->count == 2 && !parse_length(reader->cells[1], &kv_len))
        return refuse(why, "line %d: %.40s is no length from 0 to %d", reader->line, reader->cells[1], INT32_MAX);
    return add_lengths(list, q_len, kv_len, why);
}

static bool read_lengths_file(const char *path, struct length_list *list, struct reason *why)
{
    const struct csv_format format = {.comment = '#', .trims = true, .bytes_max = 4096};
    struct csv_reader reader;
    struct reason problem;
    bool good = csv_open(&reader, path, format, &problem);
    enum csv_result result = good ? CSV_ROW : CSV_ERROR;
    while (good && (result = csv_next(&reader, &problem)) != CSV_END && result != CSV_ERROR)
        if (result == CSV_ROW)
            good = read_cells(&reader, list, why);
    if (result == CSV_ERROR)
        good = refuse(why, "%.400s", problem.text);
    csv_close(&reader);
    return good;
}

/* Draws lengths until there are enough, or the tokens are used up. */
static bool draw_lengths(double (*draw)(uint64_t seed, uint64_t n, const double *), const double *numbers,
                         int64_t total_tokens, uint64_t seed, struct length_list *list, struct reason *why)
{
    for (uint64_t n = 0; list->wanted ? (int64_t)n < list->wanted : list->total_q < total_tokens; n++) {
        const int64_t left = list->wanted ? INT32_MAX : total_tokens - list->total_q;
        const double drawn = draw(seed, n, numbers);
        const int64_t length = drawn >= (double)left ? left : (int64_t)drawn;
        if (!add_lengths(list, length, length, why))
            return false;
    }
    return true;
}

static double draw_uniform(uint64_t seed, uint64_t n, const double *numbers)
{
    return floor(numbers[0] + random_unit(seed, n) * (numbers[1] - numbers[0] + 1));
}

/* N(0,1), by Box and Muller. */
static double random_normal(uint64_t seed, uint64_t n)
{
    return sqrt(-2 * log(random_unit(seed, 2 * n))) * cos(2 * 3.14159265358979323846 * random_unit(seed, 2 * n + 1));
}

/* The mean of exp(mu + sigma z) is exp(mu + sigma^2 / 2). */
static double draw_lognormal(uint64_t seed, uint64_t n, const double *numbers)
{
    const double z = random_normal(seed, n);
    return fmax(1, round(exp(log(numbers[0]) - numbers[1] * numbers[1] / 2 + numbers[1] * z)));
}

/* Two words behind the kind. */
static bool split_two(const char *rest, char words[2][32])
{
    return next_word(&rest, ':', words[0], sizeof words[0]) && next_word(&rest, ':', words[1], sizeof words[1]) &&
           *rest == '\0';
}

static bool read_lengths(const char *text, int64_t total_tokens, uint64_t seed, struct length_list *list,
                         struct reason *why)
{
    const char *rest = NULL;
    char words[2][32];
    int64_t least, most, mean;
    double sigma;
    if (text[0] == '@')
        return read_lengths_file(text + 1, list, why);
    if (is_kind(text, "list", &rest))
        return read_list(rest, list, why);
    if (is_kind(text, "uniform", &rest)) {
        if (!split_two(rest, words) || !parse_length(words[0], &least) || !parse_length(words[1], &most) || least < 1 ||
            most < least)
            return refuse(why, "uniform:LO:HI takes lengths with 1 <= LO <= HI");
        return draw_lengths(draw_uniform, (const double[]){(double)least, (double)most}, total_tokens, seed, list, why);
    }
    if (is_kind(text, "lognormal", &rest)) {
        if (!split_two(rest, words) || !parse_length(words[0], &mean) || mean < 1 ||
            !number_parse_real(words[1], &sigma) || !(sigma >= 0 && sigma <= 4))
            return refuse(why, "lognormal:MEAN:SIGMA takes a length of at least 1 and a number from 0 to 4");
        return draw_lengths(draw_lognormal, (const double[]){(double)mean, sigma}, total_tokens, seed, list, why);
    }
    return refuse(why, "must be fixed, uniform:LO:HI, lognormal:MEAN:SIGMA, list:Q[xK][*N]:... or @FILE");
}

static bool use_lengths(const struct length_list *list, int64_t total_tokens, struct attn_problem *p,
                        struct problem_arrays *a, struct reason *why)
{
    if (list->count == 0)
        return refuse(why, "has no sequence");
    if (list->total_q == 0 || list->total_k == 0)
        return refuse(why, "all %s lengths are 0", list->total_q == 0 ? "query" : "key");
    if (total_tokens && list->total_q > total_tokens)
        return refuse(why, "its %lld query tokens are more than --total-tokens %lld", (long long)list->total_q,
                      (long long)total_tokens);
    const size_t bytes = (size_t)(list->count + 1) * sizeof(int32_t);
    a->cu_seqlens_q = xcalloc(1, bytes);
    a->cu_seqlens_k = xcalloc(1, bytes);
    p->lengths = ATTN_PACKED;
    p->batch = list->count;
    p->q_len = p->kv_len = 1;
    p->total_q = list->total_q;
    p->total_k = list->total_k;
    for (int64_t b = 0; b < list->count; b++) {
        const int64_t q_len = list->pairs[b][0], kv_len = list->pairs[b][1];
        a->cu_seqlens_q[b + 1] = a->cu_seqlens_q[b] + (int32_t)q_len;
        a->cu_seqlens_k[b + 1] = a->cu_seqlens_k[b] + (int32_t)kv_len;
        p->q_len = q_len > p->q_len ? q_len : p->q_len;
        p->kv_len = kv_len > p->kv_len ? kv_len : p->kv_len;
    }
    return true;
}

bool problem_set_lengths(struct attn_problem *p, struct problem_arrays *a, const char *text, int64_t total_tokens,
                         uint64_t seed, struct reason *why)
{
    struct length_list list = {0};
    struct reason inner = {""};
    if (strlen(text) >= sizeof a->lengths)
        return refuse(why, "--lengths: longer than %zu characters", sizeof a->lengths - 1);
    const bool good =
        read_lengths(text, total_tokens, seed, &list, &inner) && use_lengths(&list, total_tokens, p, a, &inner);
    free(list.pairs);
    if (!good)
        return refuse(why, "--lengths %s: %.380s", path_shown(text).text, inner.text);
    snprintf(a->lengths, sizeof a->lengths, "%s", text);
    return true;
}

/* ---- cache ---- */

/* By Fisher and Yates. */
void problem_set_pages(struct attn_problem *p, struct problem_arrays *a, uint64_t seed)
{
    const int64_t per = problem_blocks_of(p->kv_len, p->page_size);
    int64_t used = 0, next = 0;
    for (int64_t b = 0; b < p->batch; b++)
        used += problem_blocks_of(a->seqused_k[b], p->page_size);
    int32_t *order = xmalloc((unsigned long)used * sizeof *order);
    for (int64_t i = 0; i < used; i++)
        order[i] = (int32_t)i;
    for (int64_t i = used - 1; i > 0; i--) {
        const int64_t j = (int64_t)(random_bits(seed + 0x70616765ull, (uint64_t)i) % (uint64_t)(i + 1));
        const int32_t page = order[i];
        order[i] = order[j];
        order[j] = page;
    }
    p->pages = used + 1;
    a->page_table = xmalloc((unsigned long)(p->batch * per) * sizeof *a->page_table);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < per; i++)
            a->page_table[b * per + i] =
                i < problem_blocks_of(a->seqused_k[b], p->page_size) ? order[next++] : (int32_t)used;
    free(order);
}

/* The lengths of a list or a file, or drawn ones, for the caches of `batch` sequences. */
static bool read_caches(const char *text, int64_t batch, uint64_t seed, struct length_list *list, struct reason *why)
{
    list->wanted = batch;
    if (text[0] != '@' && strncmp(text, "list:", 5) != 0 && batch == 0)
        return refuse(why, "needs --batch N, the number of caches to draw");
    if (!read_lengths(text, 0, seed, list, why))
        return false;
    if (list->count == 0)
        return refuse(why, "has no sequence");
    if (batch && list->count != batch)
        return refuse(why, "has %lld lengths for --batch %lld", (long long)list->count, (long long)batch);
    for (int64_t b = 0; b < list->count && list->has_pairs; b++)
        if (list->pairs[b][0] > list->pairs[b][1])
            return refuse(why,
                          "sequence %lld has %lld new tokens and a cache of %lld keys, which holds those of the new "
                          "tokens, too; QxK needs a K of at least Q",
                          (long long)b, (long long)list->pairs[b][0], (long long)list->pairs[b][1]);
    if (list->has_pairs && list->total_q == 0)
        return refuse(why, "no sequence has a new token");
    return true;
}

/* New rows of their own for each sequence, packed. */
static void pack_rows(const struct length_list *list, struct attn_problem *p, struct problem_arrays *a)
{
    a->cu_seqlens_q = xcalloc((unsigned long)list->count + 1, sizeof *a->cu_seqlens_q);
    p->total_q = list->total_q;
    p->q_len = 1;
    for (int64_t b = 0; b < list->count; b++) {
        a->cu_seqlens_q[b + 1] = a->cu_seqlens_q[b] + (int32_t)list->pairs[b][0];
        p->q_len = list->pairs[b][0] > p->q_len ? list->pairs[b][0] : p->q_len;
    }
}

/* text: --lengths; NULL = --kv-len */
static bool refuse_short(int64_t q_len, int64_t len, const char *text, struct reason *why)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)len);
    return refuse(why,
                  "%s %s: a cache of %s keys is shorter than the %lld new tokens of --seqlen, which are its last keys",
                  text ? "--lengths" : "--kv-len", text ? path_shown(text).text : number, number, (long long)q_len);
}

bool problem_set_cache(struct attn_problem *p, struct problem_arrays *a, const char *text, uint64_t seed,
                       struct reason *why)
{
    struct length_list list = {0};
    struct reason inner = {""};
    const bool is_fixed = !*text || strcmp(text, "fixed") == 0;
    if (strlen(text) >= sizeof a->lengths)
        return refuse(why, "--lengths: longer than %zu characters", sizeof a->lengths - 1);
    if (!is_fixed && !read_caches(text, p->batch, seed, &list, &inner)) {
        free(list.pairs);
        return refuse(why, "--lengths %s: %.380s", path_shown(text).text, inner.text);
    }
    p->lengths = ATTN_CACHE;
    p->batch = is_fixed ? p->batch : list.count;
    p->kv_len = is_fixed ? p->kv_len : 1;
    a->seqused_k = xmalloc((unsigned long)p->batch * sizeof *a->seqused_k);
    bool good = true;
    for (int64_t b = 0; b < p->batch && good; b++) {
        const int64_t len = is_fixed ? p->kv_len : list.pairs[b][1];
        a->seqused_k[b] = (int32_t)len;
        p->kv_len = len > p->kv_len ? len : p->kv_len;
        if (len < p->q_len && !list.has_pairs)
            good = refuse_short(p->q_len, len, is_fixed ? NULL : text, why);
    }
    if (list.has_pairs)
        pack_rows(&list, p, a);
    free(list.pairs);
    if (good && p->page_size > 0)
        problem_set_pages(p, a, seed);
    if (!is_fixed)
        snprintf(a->lengths, sizeof a->lengths, "%s", text);
    return good;
}

/* ---- block mask ---- */

static int64_t mask_bytes(const struct attn_problem *p)
{
    return p->mask_batch * p->mask_heads * problem_blocks_of(p->q_len, p->mask_block) *
           problem_blocks_of(p->kv_len, p->mask_block);
}

/* Whether block `j` of the keys is computed for block `i` of the rows, in plane `plane`. */
struct mask_rule {
    double density;         /* random, where > 0 */
    int64_t local, strided; /* -1, 0 = not this kind */
    uint64_t seed;
};

static bool is_computed(const struct mask_rule *rule, int64_t distance, uint64_t n)
{
    if (rule->density > 0)
        return random_unit(rule->seed, n) < rule->density;
    if (rule->local >= 0)
        return llabs(distance) <= rule->local;
    return distance % rule->strided == 0;
}

static void make_mask(const struct attn_problem *p, const struct mask_rule *rule, uint8_t *mask)
{
    const int64_t rows = problem_blocks_of(p->q_len, p->mask_block), keys = problem_blocks_of(p->kv_len, p->mask_block);
    int64_t n = 0;
    for (int64_t plane = 0; plane < p->mask_batch * p->mask_heads; plane++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < keys; j++, n++)
                mask[n] = is_computed(rule, i + keys - rows - j, (uint64_t)n);
}

static bool read_mask_file(const char *path, struct attn_problem *p, struct problem_arrays *a, struct reason *why)
{
    struct npy file;
    struct reason problem;
    const int64_t rows = problem_blocks_of(p->q_len, p->mask_block), keys = problem_blocks_of(p->kv_len, p->mask_block);
    if (!npy_read(path, &file, &problem))
        return refuse(why, "%.400s", problem.text);
    const int64_t *s = file.shape;
    bool good = file.type == NPY_UINT8 && file.dims == 4 && (s[0] == 1 || s[0] == p->batch) &&
                (s[1] == 1 || s[1] == p->q_heads) && s[2] == rows && s[3] == keys;
    if (!good)
        refuse(why,
               "must be uint8 or bool [%lld or 1, %lld or 1, %lld, %lld]: batch, query heads, blocks of %lld rows and "
               "of %lld keys",
               (long long)p->batch, (long long)p->q_heads, (long long)rows, (long long)keys, (long long)p->mask_block,
               (long long)p->mask_block);
    for (size_t i = 0; good && i < file.bytes; i++)
        if (((const uint8_t *)file.data)[i] > 1)
            good = refuse(why, "value %d; a block is 1, computed, or 0", ((const uint8_t *)file.data)[i]);
    if (good) {
        p->mask_batch = s[0];
        p->mask_heads = s[1];
        a->mask = xmalloc(file.bytes);
        memcpy(a->mask, file.data, file.bytes);
    }
    npy_free(&file);
    return good;
}

static bool read_mask(const char *text, struct attn_problem *p, struct problem_arrays *a, uint64_t seed,
                      struct reason *why)
{
    const char *rest = NULL;
    struct mask_rule rule = {.local = -1, .seed = seed + 0x6D61736Bull}; /* not the numbers of the lengths */
    if (text[0] == '@')
        return read_mask_file(text + 1, p, a, why);
    p->mask_batch = p->mask_heads = 1;
    if (is_kind(text, "random", &rest)) {
        if (!number_parse_real(rest, &rule.density) || !(rule.density > 0 && rule.density <= 1))
            return refuse(why, "random:DENSITY takes a number above 0 up to 1");
        p->mask_heads = p->q_heads;
    } else if (is_kind(text, "local", &rest)) {
        if (!number_parse_count(rest, &rule.local))
            return refuse(why, "local:N takes a number of blocks");
    } else if (is_kind(text, "strided", &rest)) {
        if (!number_parse_count(rest, &rule.strided) || rule.strided < 1)
            return refuse(why, "strided:N takes a number of blocks of at least 1");
    } else {
        return refuse(why, "must be none, random:DENSITY, local:N, strided:N or @FILE.npy");
    }
    if (mask_bytes(p) > INT32_MAX)
        return refuse(why, "has more than 2^31 blocks; a larger --mask-block has fewer");
    a->mask = xmalloc((unsigned long)mask_bytes(p));
    make_mask(p, &rule, a->mask);
    return true;
}

bool problem_set_block_mask(struct attn_problem *p, struct problem_arrays *a, const char *text, int64_t mask_block,
                            uint64_t seed, struct reason *why)
{
    struct reason inner = {""};
    if (strlen(text) >= sizeof a->block_mask)
        return refuse(why, "--block-mask: longer than %zu characters", sizeof a->block_mask - 1);
    p->mask_block = mask_block;
    if (!read_mask(text, p, a, seed, &inner))
        return refuse(why, "--block-mask %s: %.380s", path_shown(text).text, inner.text);
    snprintf(a->block_mask, sizeof a->block_mask, "%s", text);
    return true;
}

/* ---- sink and slopes ---- */

void problem_set_alibi(const struct attn_problem *p, struct problem_arrays *a)
{
    a->alibi_slopes = xmalloc((unsigned long)p->q_heads * sizeof *a->alibi_slopes);
    for (int64_t h = 0; h < p->q_heads; h++)
        a->alibi_slopes[h] = (float)exp2(-8.0 * (double)(h + 1) / (double)p->q_heads);
}

static bool read_sink(const char *path, int64_t heads, float *sink, struct reason *why)
{
    struct npy file;
    struct reason problem;
    if (!npy_read(path, &file, &problem))
        return refuse(why, "%.400s", problem.text);
    bool good = file.type == NPY_FLOAT32 && file.dims == 1 && file.shape[0] == heads;
    if (!good)
        refuse(why, "%s: must be fp32 [%lld], a logit for each query head", path_shown(path).text, (long long)heads);
    for (int64_t h = 0; h < heads && good; h++) {
        sink[h] = ((const float *)file.data)[h];
        good = isfinite(sink[h]) || refuse(why, "%s: element %lld is not finite", path_shown(path).text, (long long)h);
    }
    npy_free(&file);
    return good;
}

bool problem_set_sink(const struct attn_problem *p, struct problem_arrays *a, const char *path, uint64_t seed,
                      struct reason *why)
{
    struct reason inner = {""};
    a->sink = xmalloc((unsigned long)p->q_heads * sizeof *a->sink);
    if (path)
        return read_sink(path, p->q_heads, a->sink, &inner) || refuse(why, "--sink: %.400s", inner.text);
    for (int64_t h = 0; h < p->q_heads; h++)
        a->sink[h] = (float)random_normal(seed + 0x73696E6Bull, (uint64_t)h);
    return true;
}

/* ---- arrays ---- */

const void *problem_array(const struct attn_problem *p, const struct problem_arrays *a, enum problem_array which,
                          size_t *bytes)
{
    const void *array = NULL;
    *bytes = 0;
    if (!a)
        return NULL;
    switch (which) {
    case ARRAY_CU_SEQLENS_Q: array = a->cu_seqlens_q; break;
    case ARRAY_CU_SEQLENS_K: array = a->cu_seqlens_k; break;
    case ARRAY_BLOCK_MASK: array = a->mask; break;
    case ARRAY_SEQUSED_K: array = a->seqused_k; break;
    case ARRAY_PAGE_TABLE: array = a->page_table; break;
    case ARRAY_SINK: array = a->sink; break;
    case ARRAY_ALIBI_SLOPES: array = a->alibi_slopes; break;
    case ARRAY_COUNT: break;
    }
    if (!array)
        return NULL;
    const bool is_of_heads = which == ARRAY_SINK || which == ARRAY_ALIBI_SLOPES;
    const int64_t numbers = which == ARRAY_SEQUSED_K    ? p->batch
                            : is_of_heads               ? p->q_heads
                            : which == ARRAY_PAGE_TABLE ? p->batch * problem_blocks_of(p->kv_len, p->page_size)
                                                        : p->batch + 1;
    *bytes = which == ARRAY_BLOCK_MASK ? (size_t)mask_bytes(p) : (size_t)numbers * sizeof(int32_t);
    return array;
}

void problem_point_at(struct attn_tensors *t, const void *const arrays[ARRAY_COUNT])
{
    t->cu_seqlens_q = arrays[ARRAY_CU_SEQLENS_Q];
    t->cu_seqlens_k = arrays[ARRAY_CU_SEQLENS_K];
    t->block_mask = arrays[ARRAY_BLOCK_MASK];
    t->seqused_k = arrays[ARRAY_SEQUSED_K];
    t->page_table = arrays[ARRAY_PAGE_TABLE];
    t->sink = arrays[ARRAY_SINK];
    t->alibi_slopes = arrays[ARRAY_ALIBI_SLOPES];
}

void problem_arrays_free(struct problem_arrays *a)
{
    free(a->cu_seqlens_q);
    free(a->cu_seqlens_k);
    free(a->mask);
    free(a->seqused_k);
    free(a->page_table);
    free(a->sink);
    free(a->alibi_slopes);
    memset(a, 0, sizeof *a);
}

/* ---- visible pairs ---- */

/* Keys of [first, end) that the row sees. */
static int64_t visible_in(const struct attn_problem *p, int64_t row, int64_t first, int64_t end)
{
    int64_t from, to;
    attn_visible(p, row, &from, &to);
    from = from > first ? from : first;
    to = to + 1 < end ? to + 1 : end;
    return to > from ? to - from : 0;
}

/* Visible pairs of the rows [row0, row1) and the keys [key0, key1). Both ends of what a row sees grow with the row, so
 * where the first and the last row see all keys all rows do. */
static double pairs_of_block(const struct attn_problem *p, int64_t row0, int64_t row1, int64_t key0, int64_t key1)
{
    const int64_t keys = key1 - key0;
    if (visible_in(p, row0, key0, key1) == keys && visible_in(p, row1 - 1, key0, key1) == keys)
        return (double)(row1 - row0) * (double)keys;
    double pairs = 0;
    for (int64_t row = row0; row < row1; row++)
        pairs += (double)visible_in(p, row, key0, key1);
    return pairs;
}

/* `one`: the sequence as a problem of its own; `whole`: the problem whose blocks the mask has. */
static double pairs_under_mask(const struct attn_problem *one, const struct attn_problem *whole, const uint8_t *plane)
{
    const int64_t block = whole->mask_block, keys = problem_blocks_of(whole->kv_len, block);
    double pairs = 0;
    for (int64_t row = 0; row < one->q_len; row += block)
        for (int64_t key = 0; key < one->kv_len; key += block)
            if (plane[row / block * keys + key / block])
                pairs += pairs_of_block(one, row, row + block < one->q_len ? row + block : one->q_len, key,
                                        key + block < one->kv_len ? key + block : one->kv_len);
    return pairs;
}

double problem_used_keys(const struct attn_problem *p, const struct problem_arrays *a)
{
    double keys = 0;
    if (!a || !a->seqused_k)
        return (double)problem_all_keys(p);
    for (int64_t b = 0; b < p->batch; b++)
        keys += a->seqused_k[b];
    return keys;
}

double problem_pairs(const struct attn_problem *p, const struct problem_arrays *a)
{
    if (!a || !(a->mask || a->cu_seqlens_q || a->seqused_k))
        return (double)p->batch * (double)p->q_heads * problem_visible_pairs(p);
    double pairs = 0;
    struct attn_problem one = *p;
    for (int64_t b = 0; b < p->batch; b++) {
        if (a->cu_seqlens_q)
            one.q_len = a->cu_seqlens_q[b + 1] - a->cu_seqlens_q[b];
        if (a->cu_seqlens_k)
            one.kv_len = a->cu_seqlens_k[b + 1] - a->cu_seqlens_k[b];
        if (a->seqused_k)
            one.kv_len = a->seqused_k[b];
        if (!a->mask) {
            pairs += (double)p->q_heads * problem_visible_pairs(&one);
            continue;
        }
        const int64_t plane_bytes = mask_bytes(p) / (p->mask_batch * p->mask_heads);
        for (int64_t h = 0; h < p->mask_heads; h++)
            pairs +=
                (double)(p->q_heads / p->mask_heads) *
                pairs_under_mask(&one, p, a->mask + ((p->mask_batch > 1 ? b : 0) * p->mask_heads + h) * plane_bytes);
    }
    return pairs;
}
