/* The targets that read a file on its own: .npy, CSV, floors, published figures, the tensors.json of a dump. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/csv.h"
#include "cmd/base/log.h"
#include "cmd/base/npy.h"
#include "cmd/base/numbers.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/chart/overlay.h"
#include "cmd/device/buffers.h"
#include "cmd/gate/floors.h"
#include "cmd/options/options_line.h"
#include "cmd/options/options.h"
#include "cmd/plan/plan.h"
#include "cmd/problem/problem_key.h"
#include "cmd/record/record_file.h"
#include "cmd/run/tuned.h"
#include "tests/fuzz/fuzz.h"

/* ---- fuzz_npy ---- */

/* A .npy file. */

static volatile unsigned sum_of_bytes; /* of the data, so that every byte is read */

int fuzz_npy(const uint8_t *data, size_t size)
{
    struct npy npy;
    struct reason why = {""};
    if (!npy_read(fuzz_put(0, data, size), &npy, &why)) {
        FUZZ_CHECK(why.text[0] && !npy.data);
        return 0;
    }
    size_t bytes = npy.type == NPY_FLOAT32 ? 4 : 2;
    FUZZ_CHECK(npy.dims >= 0 && npy.dims <= 4);
    for (int i = 0; i < npy.dims; i++)
        bytes *= (size_t)npy.shape[i];
    FUZZ_CHECK(bytes == npy.bytes);
    for (size_t i = 0; i < npy.bytes; i++)
        sum_of_bytes += ((const unsigned char *)npy.data)[i];
    npy_free(&npy);
    return 0;
}

/* ---- fuzz_csv ---- */

/* A CSV file, in a format that its first byte chooses; what was read is written, and read again as the same cells. */

/* The cells of one row, cleaned as the writer cleans them, compared with a row that was read. */
static void check_row(const struct csv_reader *is, const struct name_list *was)
{
    FUZZ_CHECK(is->count == was->count);
    for (int i = 0; i < is->count; i++)
        FUZZ_CHECK(strcmp(is->cells[i], was->names[i]) == 0);
}

static void add_row(const struct csv_reader *r, struct csv_row *row, struct name_list *cells)
{
    for (int i = 0; i < r->count; i++) {
        struct text clean = {0};
        text_add_clean(&clean, r->cells[i]);
        name_list_add(cells, text_string(&clean));
        csv_add(row, r->cells[i]);
        text_free(&clean);
    }
    csv_end(row);
}

static void read_again(const struct csv_row *row, const struct name_list *rows, int count)
{
    struct csv_reader again;
    struct reason why = {""};
    const struct csv_format strict = {.comment = '#', .trims = true, .bytes_max = 1 << 30};
    FUZZ_CHECK(csv_open(&again, fuzz_put(1, text_string(&row->text), row->text.length), strict, &why));
    for (int i = 0; i < count; i++) {
        FUZZ_CHECK(csv_next(&again, &why) == CSV_ROW);
        check_row(&again, &rows[i]);
    }
    FUZZ_CHECK(csv_next(&again, &why) == CSV_END);
    csv_close(&again);
}

int fuzz_csv(const uint8_t *data, size_t size)
{
    struct fuzz_input rest = {data, size};
    const unsigned choice = fuzz_byte(&rest);
    const struct csv_format format = {
        .comment = choice & 1 ? '#' : '\0', .trims = (choice & 2) != 0, .bytes_max = choice & 4 ? 40 : 4096};
    struct csv_reader reader;
    struct csv_row row = {0};
    struct name_list *rows = NULL;
    struct reason why = {""};
    enum csv_result result;
    int count = 0;
    FUZZ_CHECK(csv_open(&reader, fuzz_put(0, rest.data, rest.size), format, &why));
    while ((result = csv_next(&reader, &why)) == CSV_ROW || result == CSV_COMMENT) {
        if (result == CSV_COMMENT || (reader.count == 1 && !*reader.cells[0])) /* written, it would be a blank line */
            continue;
        rows = xrealloc(rows, (unsigned long)(count + 1) * sizeof *rows);
        rows[count] = (struct name_list){0};
        add_row(&reader, &row, &rows[count++]);
    }
    FUZZ_CHECK(result == CSV_END || why.text[0]);
    csv_close(&reader);
    read_again(&row, rows, count);
    for (int i = 0; i < count; i++)
        name_list_free(&rows[i]);
    free(rows);
    csv_free(&row);
    return 0;
}

/* ---- fuzz_tuned ---- */

/* A file of tuned choices: each is found again, and its line is one. */
int fuzz_tuned(const uint8_t *data, size_t size)
{
    struct attn_message why = {""};
    struct tuned tuned;
    if (!tuned_read(fuzz_put(0, data, size), &tuned, &why)) {
        FUZZ_CHECK(why.text[0] && !tuned.header && tuned.count == 0);
        return 0;
    }
    FUZZ_CHECK(tuned.header && tuned.whole_bytes > 0 && tuned.whole_bytes <= (int64_t)size);
    for (int i = 0; i < tuned.count; i++) {
        const struct tuned_choice *found = tuned_find(&tuned, tuned.choices[i].impl, &tuned.choices[i].key);
        json_t *line = tuned_line(&tuned.choices[i]);
        FUZZ_CHECK(found && tuned_is_same(&found->key, &tuned.choices[i].key));
        json_decref(line);
    }
    tuned_free(&tuned);
    return 0;
}

/* ---- fuzz_floors ---- */

/* A file of floors, and its answers for rows with and without values. */

static void check_floors(struct floors *floors, const struct record_row *row)
{
    char missed[200] = "";
    const enum floors_result answer = floors_check(floors, row, missed, sizeof missed);
    FUZZ_CHECK((answer == FLOORS_MISSED) == (missed[0] != '\0'));
}

int fuzz_floors(const uint8_t *data, size_t size)
{
    struct attn_message why = {""};
    struct record_row row = {0};
    struct floors *floors = floors_read(fuzz_put(0, data, size), &why);
    if (!floors) {
        FUZZ_CHECK(why.text[0]);
        return 0;
    }
    record_row_clear(&row);
    check_floors(floors, &row);
    strcpy(row.impl, "fused_sm90");
    row.key.mode = 0;
    row.key.head_dim = 128;
    row.key.q_len = 16384;
    row.status = STATUS_OK;
    row.tflops = row.time_ms = row.pct_of_gemm = 300;
    row.repro = xstrdup("fabench --d 128");
    check_floors(floors, &row);
    floors_are_matched(floors, &why);
    record_row_free(&row);
    floors_free(floors);
    return 0;
}

/* ---- fuzz_overlay ---- */

/* A file of published figures. */

int fuzz_overlay(const uint8_t *data, size_t size)
{
    struct overlay overlay;
    struct record_row row = {0};
    struct attn_message why = {""};
    if (!overlay_read(fuzz_put(0, data, size), &overlay, &why)) {
        FUZZ_CHECK(why.text[0] && !overlay.points);
        return 0;
    }
    FUZZ_CHECK(overlay.count > 0);
    for (int i = 0; i < overlay.count; i++) {
        FUZZ_CHECK(overlay.points[i].tflops > 0 && isfinite(overlay.points[i].tflops));
        overlay_fits(&overlay.points[i], &row);
    }
    overlay_free(&overlay);
    return 0;
}

/* ---- fuzz_dump ---- */

/* The tensors.json of a dump: what is read is a problem whose sizes can be computed with. */

int fuzz_dump(const uint8_t *data, size_t size)
{
    struct plan_item item;
    struct attn_message why = {""};
    struct options o;
    bool has_problem = false;
    if (!plan_item_read(fuzz_put(0, data, size), NULL, &item, &has_problem, &why)) {
        FUZZ_CHECK(why.text[0] && !has_problem);
        return 0;
    }
    if (!has_problem)
        return 0;
    const struct attn_problem *p = &item.problem;
    FUZZ_CHECK(plan_shape_fits(p) && p->q_heads % p->kv_heads == 0 && p->scale > 0 && !item.folder && !item.name[0]);
    FUZZ_CHECK(tensor_set_bytes(&item) > 0);
    FUZZ_CHECK(options_parse_line("fabench", &o) == 0);
    char *repro = plan_repro(&o, &item, "naive");
    FUZZ_CHECK(item.batch_gap || item.strides || strstr(repro, " --mode "));
    free(repro);
    options_free(&o);
    return 0;
}

/* The targets that read text: one string, and the words of a command line. */

/* ---- fuzz_text ---- */

/* Numbers, lists, shell words, cleaning and layout of one string. */

static void try_numbers(const char *text)
{
    char buffer[64], why[200];
    int64_t whole, again, *values = NULL;
    double real;
    int count = 0;
    if (number_parse_count(text, &whole))
        FUZZ_CHECK(whole >= 0 && number_parse_count(number_print_count(whole, buffer, sizeof buffer), &again) &&
                   again == whole);
    if (number_parse_real(text, &real)) {
        FUZZ_CHECK(isfinite(real));
        number_print_short(real, buffer, sizeof buffer);
        number_print_bytes(real, buffer, sizeof buffer);
    }
    if (number_parse_percent(text, &real))
        FUZZ_CHECK(isfinite(real) && real >= 0);
    if (number_parse_list(text, &values, &count, why, sizeof why))
        FUZZ_CHECK(count > 0 && count <= 4096);
    else
        FUZZ_CHECK(count == 0 && why[0]);
    free(values);
}

static void try_fields(const char *text)
{
    struct problem_key key;
    char buffer[64];
    for (int i = 0; i < problem_field_count; i++) {
        problem_key_clear(&key);
        if (problem_field_parse(&problem_fields[i], text, &key))
            FUZZ_CHECK(*problem_field_text(&problem_fields[i], &key, buffer, sizeof buffer));
    }
}

static void try_clean(const char *text)
{
    struct text clean = {0}, again = {0};
    char part[24], cut[24];
    text_add_clean(&clean, text);
    text_add_clean(&again, text_string(&clean));
    FUZZ_CHECK(strcmp(text_string(&clean), text_string(&again)) == 0);
    text_clean(text, part, sizeof part);
    FUZZ_CHECK(strncmp(text_string(&clean), part, strlen(part)) == 0);
    text_cut_middle(text, cut, sizeof cut);
    FUZZ_CHECK(strlen(cut) < sizeof cut);
    text_free(&clean);
    text_free(&again);
}

static void try_words(const char *text)
{
    struct text line = {0};
    struct name_list words = {0};
    text_add_shell_word(&line, "first");
    text_add_shell_word(&line, text);
    FUZZ_CHECK(text_split_shell(text_string(&line), &words) && words.count == 2 && !strcmp(words.names[1], text));
    text_split_shell(text, &words);
    text_free(&line);
    name_list_free(&words);
}

static void try_layout(const char *text)
{
    static const char *const names[] = {"--seqlen", "--mode", "--impl-lib", "tflops"};
    struct text clean = {0};
    text_add_clean(&clean, text);
    char *shortened = text_take(&clean);
    for (int width = 0; width <= 40; width += 13) {
        wrap_words(stdout, width, 2, 4, shortened);
        wrap_command(stdout, width, 2, shortened);
    }
    for (int limit = 30; limit >= 0; limit -= 7) {
        wrap_shorten(shortened, limit);
        FUZZ_CHECK(wrap_columns(shortened) <= limit);
    }
    free(shortened);
    nearest_name(text, names, sizeof names / sizeof *names);
}

int fuzz_text(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);
    try_numbers(text);
    try_fields(text);
    try_clean(text);
    try_words(text);
    try_layout(text);
    free(text);
    return 0;
}

/* ---- fuzz_options ---- */

/* The command line: each line of the input is one word. A valid one is planned, and its recorded form is read back. */

enum { WORDS_MAX = 64 };

static void try_plan(const struct options *o)
{
    struct plan made;
    for (int platform = ATTN_CPU; platform <= ATTN_CUDA; platform++) {
        const int status = o->command == COMMAND_VERIFY ? plan_make_verify(o, (enum attn_platform)platform, &made)
                                                        : plan_make(o, (enum attn_platform)platform, &made);
        if (status != EXIT_OK)
            continue;
        FUZZ_CHECK(made.count > 0);
        free(plan_repro(o, &made.items[made.count - 1], "naive"));
        plan_free(&made);
    }
}

static void try_options(const struct options *o)
{
    struct attn_message why = {""};
    struct options again;
    if (o->columns)
        record_columns_valid(o->columns, &why);
    if (o->command == COMMAND_SWEEP || o->command == COMMAND_VERIFY)
        try_plan(o);
    if (o->command != COMMAND_SWEEP)
        return;
    FUZZ_CHECK(options_parse_line(o->command_line, &again) == EXIT_OK);
    options_free(&again);
}

int fuzz_options(const uint8_t *data, size_t size)
{
    char *line = fuzz_string(data, size), *words[WORDS_MAX + 2] = {xstrdup("fabench")}, *rest = line, *word;
    struct options o;
    int count = 1;
    bool done;
    while (count <= WORDS_MAX && (word = strsep(&rest, "\n")) != NULL)
        if (*word || rest) /* not the empty word behind the last line end */
            words[count++] = xstrdup(word);
    if (options_parse(count, words, &o, &done) == EXIT_OK && !done) {
        try_options(&o);
        options_free(&o);
    }
    free(line);
    line = fuzz_string(data, size);
    if (options_parse_line(line, &o) == EXIT_OK)
        options_free(&o);
    for (int i = 0; i < count; i++)
        free(words[i]);
    free(line);
    return 0;
}
