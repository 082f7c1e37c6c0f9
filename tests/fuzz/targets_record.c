/* The targets that read records: the reader itself, --resume, gate, report, plot. */
#include <stdlib.h>
#include <string.h>

#include "cmd/base/csv.h"
#include "cmd/base/log.h"
#include "cmd/chart/chart.h"
#include "cmd/chart/chart_gnuplot.h"
#include "cmd/chart/chart_markdown.h"
#include "cmd/chart/chart_slide.h"
#include "cmd/gate/gate.h"
#include "cmd/options/options.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"
#include "cmd/report/report_data.h"
#include "cmd/report/report_page.h"
#include "cmd/run/resume.h"
#include "cmd/table/table.h"
#include "tests/fuzz/fuzz.h"

/* ---- fuzz_record ---- */

/* A record file: what was read is written as JSONL and CSV; the JSONL is read again as the same rows. */

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

int fuzz_record(const uint8_t *data, size_t size)
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

/* ---- fuzz_resume ---- */

/* --resume: a record is opened to be continued, compared with the plan of this command line, shown as a table, and a
 * line is appended. */

static const char *const slots[] = {"naive", "fused"};
enum { SLOTS = sizeof slots / sizeof *slots };
static struct options resume_options;
static struct plan resume_plan;

static void make_plan(void)
{
    char jsonl[60];
    bool done;
    snprintf(jsonl, sizeof jsonl, "--jsonl=%s", fuzz_path(0));
    const char *const words[] = {"fabench",     "--device=cpu", "--mode=fwd", "--causal=both", "--d=64",
                                 "--seqlen=1k", "--dtype=fp32", "--seed=1",   "--resume",      jsonl};
    enum { WORDS = sizeof words / sizeof *words };
    char *argv[WORDS];
    for (int i = 0; i < WORDS; i++)
        argv[i] = xstrdup(words[i]);
    FUZZ_CHECK(options_parse(WORDS, argv, &resume_options, &done) == EXIT_OK);
    FUZZ_CHECK(plan_make(&resume_options, ATTN_CPU, &resume_plan) == EXIT_OK && resume_plan.count == 2);
    for (int i = 0; i < WORDS; i++)
        free(argv[i]);
}

static void show(const struct record_file *file)
{
    struct table *table = table_open(stdout, 110, false, NULL, false);
    table_convention(table, "16384 tokens");
    for (int i = 0; i < file->count; i++)
        table_row(table, &file->rows[i]);
    table_close(table, NULL, 1, EXIT_OK);
}

static void go_on(struct resume *r)
{
    struct record_file again;
    struct attn_message why = {""};
    json_t *note = json_pack("{s:s}", "type", "note");
    FUZZ_CHECK(record_continue(r->writer, &r->killed, note) == 0);
    FUZZ_CHECK(record_read(fuzz_path(0), &again, &why) && again.count == r->file.count && !again.cut);
    record_file_free(&again);
    json_decref(note);
}

int fuzz_resume(const uint8_t *data, size_t size)
{
    struct resume r;
    struct attn_message why = {""};
    unsigned done[2], rerun[2];
    if (!resume_plan.count)
        make_plan();
    fuzz_put(0, data, size);
    if (resume_open(&r, &resume_options) == EXIT_OK && r.file.header) {
        FUZZ_CHECK(resume_fits(&r, r.file.header, &why));
        if (resume_match(&r, &resume_plan, slots, SLOTS, done, rerun, &why))
            FUZZ_CHECK(((done[0] | rerun[0] | done[1] | rerun[1]) >> SLOTS) == 0);
        show(&r.file);
        go_on(&r);
    }
    resume_close(&r);
    return 0;
}

/* ---- fuzz_gate ---- */

/* gate: a baseline, the current record, and floors where the input has a third part. All outputs are written. */

static void put_part(int file, struct fuzz_input part) { fuzz_put(file, part.data, part.size); }

/* The options of `gate` with or without --floors. */
static struct options gate_options(const char *folder, bool has_floors)
{
    struct options o;
    bool done;
    char *words[] = {xstrdup("fabench"),
                     xstrdup("gate"),
                     xasprintf("--out=%s", folder),
                     xstrdup("--junit=/dev/null"),
                     xasprintf("--baseline=%s", fuzz_path(0)),
                     xasprintf("--current=%s", fuzz_path(1)),
                     xstrdup("--subset"),
                     xasprintf("--floors=%s", fuzz_path(2))};
    enum { WORDS = sizeof words / sizeof *words };
    FUZZ_CHECK(options_parse(has_floors ? WORDS : WORDS - 1, words, &o, &done) == EXIT_OK);
    for (int i = 0; i < WORDS; i++)
        free(words[i]);
    return o;
}

int fuzz_gate(const uint8_t *data, size_t size)
{
    static struct options plain, with_floors;
    struct fuzz_input rest = {data, size};
    if (!plain.baselines.count) {
        static const char *const names[] = {"verdicts.csv", NULL};
        const char *const folder = fuzz_folder(names);
        plain = gate_options(folder, false);
        with_floors = gate_options(folder, true);
        plain.is_subset = false;
        FUZZ_CHECK(setenv("GITHUB_ACTIONS", "true", 1) == 0);
    }
    const struct fuzz_input baseline = fuzz_part(&rest), current = fuzz_part(&rest);
    put_part(0, baseline);
    put_part(1, current.size ? current : baseline);
    put_part(2, rest);
    const int code = gate_run(rest.size ? &with_floors : &plain);
    FUZZ_CHECK(code >= EXIT_OK && code <= EXIT_IO);
    return 0;
}

/* ---- fuzz_report ---- */

/* report: two records (or one twice) as a page in each of its formats. */

static struct options report_options(int files)
{
    struct options o;
    bool done;
    char *words[] = {xstrdup("fabench"),    xstrdup("report"),     xstrdup("--plot=none"),
                     xstrdup("--out=none"), xstrdup(fuzz_path(0)), xstrdup(fuzz_path(1))};
    enum { WORDS = sizeof words / sizeof *words };
    FUZZ_CHECK(options_parse(WORDS - 2 + files, words, &o, &done) == EXIT_OK);
    for (int i = 0; i < WORDS; i++)
        free(words[i]);
    return o;
}

static void write_all(const struct report *r)
{
    struct page *page = report_page(r, &(struct report_charts){0}, NULL), *brief = report_brief(r);
    page_write_markdown(page, stdout, false);
    FUZZ_CHECK(page_write_html(page, stdout, "/"));
    page_write_text(brief, stdout, 80);
    report_write_csv(r, stdout);
    page_close(page);
    page_close(brief);
}

int fuzz_report(const uint8_t *data, size_t size)
{
    static struct options one, two;
    struct fuzz_input rest = {data, size};
    struct report_input input;
    struct report report;
    if (!one.files.count) {
        one = report_options(1);
        two = report_options(2);
    }
    const struct fuzz_input first = fuzz_part(&rest);
    fuzz_put(0, first.data, first.size);
    fuzz_put(1, rest.data, rest.size);
    if (report_input_read(rest.size ? &two : &one, &input) == EXIT_OK) {
        report_make(&report, &input);
        report_make_groups(&report);
        write_all(&report);
        report_free(&report);
    }
    report_input_free(&input);
    return 0;
}

/* ---- fuzz_chart ---- */

/* plot: a record, and published figures where the input has a second part, as charts. Every page is written, to
 * /dev/null. gnuplot is not run: for the terminal it is looked for in a PATH without it. */

static const char *chart_folder; /* NULL before the first input */

static void prepare_chart(void)
{
    static const char *const names[] = {"page.gp", "page.dat", NULL};
    FUZZ_CHECK(setenv("PATH", "/nonexistent", 1) == 0);
    chart_folder = fuzz_folder(names);
}

static void draw_panel(const struct chart_set *set, const struct chart_panel *panel)
{
    for (int kind = 0; kind < CHART_KIND_COUNT; kind++) {
        const struct chart_page page = {(enum chart_kind)kind, panel, 1, 1, "page", false};
        FUZZ_CHECK(chart_write_page(set, &page, chart_folder, PLOT_SVG) >= 0);
        FUZZ_CHECK(slide_write(set, &page, chart_folder, PLOT_SVG) >= 0);
    }
}

int fuzz_chart(const uint8_t *data, size_t size)
{
    struct fuzz_input rest = {data, size};
    struct record_file file;
    struct overlay overlay = {.count = 0};
    struct chart_set set;
    struct attn_message why = {""};
    if (!chart_folder)
        prepare_chart();
    const struct fuzz_input record = fuzz_part(&rest);
    if (!record_read(fuzz_put(0, record.data, record.size), &file, &why))
        return 0;
    const bool has_overlay = rest.size && overlay_read(fuzz_put(1, rest.data, rest.size), &overlay, &why);
    const struct chart_input input = {.files = &file, .file_count = 1, .overlay = has_overlay ? &overlay : NULL};
    chart_set_make(&set, &input);
    for (int i = 0; i < set.panel_count && i < 4; i++)
        draw_panel(&set, &set.panels[i]);
    FILE *const nowhere = fopen("/dev/null", "w");
    FUZZ_CHECK(nowhere);
    chart_put_markdown(&set, nowhere);
    FUZZ_CHECK(fclose(nowhere) == 0);
    chart_set_free(&set);
    int images = 0;
    if (size % 64 == 0) /* not always: it looks for gnuplot in a child process, which takes longer than all the rest */
        FUZZ_CHECK(charts_write(&input, NULL, PLOT_TERM, 80, false, &images) == EXIT_OK);
    overlay_free(&overlay);
    record_file_free(&file);
    return 0;
}
