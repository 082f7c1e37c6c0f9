/* A CSV file, in a format that its first byte chooses; what was read is written, and read again as the same cells. */
#include <stdlib.h>
#include <string.h>

#include "cmd/base/csv.h"
#include "cmd/base/log.h"
#include "tests/fuzz/fuzz.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
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
