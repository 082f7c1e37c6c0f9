/* --resume: a record is opened to be continued, compared with the plan of this command line, shown as a table, and a
 * line is appended. */
#include <stdlib.h>

#include "cmd/base/log.h"
#include "cmd/options/options_parse.h"
#include "cmd/run/resume.h"
#include "cmd/table/table.h"
#include "tests/fuzz/fuzz.h"

static const char *const slots[] = {"naive", "fused"};
enum { SLOTS = sizeof slots / sizeof *slots };
static struct options options;
static struct plan plan;

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
    FUZZ_CHECK(options_parse(WORDS, argv, &options, &done) == EXIT_OK);
    FUZZ_CHECK(plan_make(&options, ATTN_CPU, &plan) == EXIT_OK && plan.count == 2);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct resume r;
    struct attn_message why = {""};
    unsigned done[2], rerun[2];
    if (!plan.count)
        make_plan();
    fuzz_put(0, data, size);
    if (resume_open(&r, &options) == EXIT_OK && r.file.header) {
        FUZZ_CHECK(resume_fits(&r, r.file.header, &why));
        if (resume_match(&r, &plan, slots, SLOTS, done, rerun, &why))
            FUZZ_CHECK(((done[0] | rerun[0] | done[1] | rerun[1]) >> SLOTS) == 0);
        show(&r.file);
        go_on(&r);
    }
    resume_close(&r);
    return 0;
}
