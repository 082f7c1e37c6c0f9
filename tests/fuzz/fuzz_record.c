/* A record file: what was read is written as JSONL and CSV; the JSONL is read again as the same rows. */
#include <stdlib.h>

#include "cmd/base/csv.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"
#include "tests/fuzz/fuzz.h"

static void write_rows(struct record_writer *writer, const struct record_file *file)
{
    FUZZ_CHECK(writer);
    for (int i = 0; i < file->count; i++)
        FUZZ_CHECK(record_write(writer, &file->rows[i]) == 0);
    FUZZ_CHECK(record_close(writer) == 0);
}

/* A row as it is after it was written once: bytes that are not UTF-8 and empty texts are gone. */
static json_t *settled(const struct record_row *row)
{
    char why[300];
    struct record_row copy = {0};
    json_t *object = record_row_json(row);
    FUZZ_CHECK(record_row_parse(object, &copy, why, sizeof why));
    json_decref(object);
    object = record_row_json(&copy);
    record_row_free(&copy);
    return object;
}

static void read_again(const struct record_file *file)
{
    struct record_file again;
    struct attn_message why = {""};
    FUZZ_CHECK(record_read(fuzz_path(1), &again, &why));
    FUZZ_CHECK(again.count == file->count && !again.cut && again.is_ended);
    for (int i = 0; i < file->count; i++) {
        json_t *was = settled(&file->rows[i]), *is = record_row_json(&again.rows[i]);
        FUZZ_CHECK(json_equal(was, is));
        json_decref(was);
        json_decref(is);
    }
    record_file_free(&again);
}

static void read_csv(int rows)
{
    static const struct csv_format format = {.bytes_max = 1 << 26};
    struct csv_reader reader;
    struct reason why = {""};
    FUZZ_CHECK(csv_open(&reader, fuzz_path(2), format, &why) && csv_next(&reader, &why) == CSV_ROW);
    const int columns = reader.count;
    for (int i = 0; i < rows; i++)
        FUZZ_CHECK(csv_next(&reader, &why) == CSV_ROW && reader.count == columns);
    FUZZ_CHECK(csv_next(&reader, &why) == CSV_END);
    csv_close(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct record_file file;
    struct attn_message why = {""};
    if (!record_read(fuzz_put(0, data, size), &file, &why)) {
        FUZZ_CHECK(why.text[0] && !file.rows && !file.header);
        return 0;
    }
    FUZZ_CHECK(file.whole_bytes >= 0 && (size_t)file.whole_bytes <= size);
    write_rows(record_open_jsonl(fuzz_path(1), file.header, &why), &file);
    write_rows(record_open_csv(fuzz_path(2), NULL, &why), &file);
    read_again(&file);
    read_csv(file.count);
    record_file_free(&file);
    return 0;
}
