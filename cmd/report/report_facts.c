/* Reads facts from headers and rows. A member of a header that is missing or has another type than expected is omitted.
 * */
#include "cmd/report/report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/impl_name.h"
#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"
#include "cmd/record/record_row.h"

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

/* ---- conditions ---- */

enum fact {
    FACT_DEVICE,
    FACT_MEMORY,
    FACT_PROCESSORS,
    FACT_POWER_LIMIT,
    FACT_ECC,
    FACT_MIG,
    FACT_VBIOS,
    FACT_DRIVER,
    FACT_CUDA,
    FACT_CUDNN,
    FACT_CLOCKS,
    FACT_OTHER_PROCESSES,
    FACT_COPY,
    FACT_COMMIT,
    FACT_METHOD,
    FACT_TIMING,
    FACT_ROUNDS,
    FACT_CHECK,
    FACT_DATE,
    FACT_PRESET,
    FACT_FILES,
    FACT_COUNT
};

const struct report_fact report_facts[] = {
    [FACT_DEVICE] = {"device", false},
    [FACT_MEMORY] = {"memory", false},
    [FACT_PROCESSORS] = {"multiprocessors or threads", false},
    [FACT_POWER_LIMIT] = {"power limit", false},
    [FACT_ECC] = {"ECC", true},
    [FACT_MIG] = {"MIG", true},
    [FACT_VBIOS] = {"VBIOS", false},
    [FACT_DRIVER] = {"driver", true},
    [FACT_CUDA] = {"CUDA", true},
    [FACT_CUDNN] = {"cuDNN", true},
    [FACT_CLOCKS] = {"clocks", true},
    [FACT_OTHER_PROCESSES] = {"other processes", true},
    [FACT_COPY] = {"copy", false},
    [FACT_COMMIT] = {"fabench", true},
    [FACT_METHOD] = {"timing method", true},
    [FACT_TIMING] = {"warm-up, time, noise", true},
    [FACT_ROUNDS] = {"members of the rounds", true},
    [FACT_CHECK] = {"checked", true},
    [FACT_DATE] = {"measured", false},
    [FACT_PRESET] = {"preset", false},
    [FACT_FILES] = {"records", false},
};
_Static_assert(sizeof report_facts / sizeof report_facts[0] == FACT_COUNT, "report_facts");
const int report_fact_count = FACT_COUNT;

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void put_number(struct text *text, const json_t *object, const char *key, const char *unit)
{
    const json_t *value = json_object_get(object, key);
    char number[40];
    if (json_is_number(value) && json_number_value(value) == floor(json_number_value(value)))
        text_add(text, "%.0f%s", json_number_value(value), unit);
    else if (json_is_number(value))
        text_add(text, "%s%s", number_print_short(json_number_value(value), number, sizeof number), unit);
}

static void put_flag(struct text *text, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_boolean(value))
        text_add(text, "%s", json_is_true(value) ? "on" : "off");
}

static void put_rounds(struct text *text, const json_t *policy)
{
    const json_t *members = json_object_get(policy, "round_members");
    for (size_t i = 0; i < json_array_size(members); i++) {
        const char *name = json_string_value(json_array_get(members, i));
        text_add(text, "%s%s", i ? ", " : "", name ? name : "?");
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void put_fact(const struct record_file *file, enum fact fact, struct text *text)
{
    const json_t *device = json_object_get(file->header, "device"), *policy = json_object_get(file->header, "policy");
    const struct record_row *row = &file->rows[0];
    switch (fact) {
    case FACT_DEVICE: text_add(text, "%s (%s)", row->device, row->arch); break;
    case FACT_MEMORY: put_number(text, device, "memory_gb", " GB"); break;
    case FACT_PROCESSORS:
        put_number(text, device, json_object_get(device, "threads") ? "threads" : "multiprocessors", "");
        break;
    case FACT_POWER_LIMIT: put_number(text, device, "power_limit_w", " W"); break;
    case FACT_ECC: put_flag(text, device, "ecc"); break;
    case FACT_MIG: put_flag(text, device, "mig"); break;
    case FACT_VBIOS: text_add(text, "%s", text_of(device, "vbios")); break;
    case FACT_DRIVER: text_add(text, "%s", row->driver); break;
    case FACT_CUDA: text_add(text, "%s", row->cuda); break;
    case FACT_CUDNN: text_add(text, "%s", row->cudnn); break;
    case FACT_CLOCKS: text_add(text, "%s", text_of(policy, "clocks")); break;
    case FACT_OTHER_PROCESSES: put_number(text, device, "other_processes", ""); break;
    case FACT_COPY: put_number(text, device, "copy_gbps", " GB/s"); break;
    case FACT_COMMIT:
        text_add(text, "%s (%.12s)", text_of(json_object_get(file->header, "tool"), "version"), row->commit);
        break;
    case FACT_METHOD: text_add(text, "%s", row->method); break;
    case FACT_TIMING:
        put_number(text, policy, "warmup_ms", " ms, ");
        put_number(text, policy, "min_time_ms", " ms, ");
        put_number(text, policy, "max_noise_pct", " %");
        break;
    case FACT_ROUNDS: put_rounds(text, policy); break;
    case FACT_CHECK: text_add(text, "%s", text_of(policy, "check")); break;
    case FACT_DATE: text_add(text, "%.10s", row->time_utc); break;
    case FACT_PRESET: text_add(text, "%s", text_of(policy, "preset")); break;
    case FACT_FILES: text_add(text, "%s%s", base_name(file->path), file->cut ? " (cut)" : ""); break;
    case FACT_COUNT: break;
    }
}

char *report_fact_text(const struct report *r, int label, int fact)
{
    const struct report_label *l = &r->input->labels[label];
    struct name_list values = {0};
    struct text text = {0};
    for (int f = 0; f < l->file_count; f++) {
        struct text own = {0};
        put_fact(&r->input->files[l->files[f]], (enum fact)fact, &own);
        if (own.length > 0 && !name_list_has(&values, own.bytes)) {
            name_list_add(&values, own.bytes);
            text_separate(&text, "; ");
            text_add(&text, "%s", own.bytes);
        }
        text_free(&own);
    }
    name_list_free(&values);
    return text_take(&text);
}

char *report_commit_text(const struct report *r, int label) { return report_fact_text(r, label, FACT_COMMIT); }
char *report_power_limit_text(const struct report *r, int label)
{
    return report_fact_text(r, label, FACT_POWER_LIMIT);
}
char *report_memory_text(const struct report *r, int label) { return report_fact_text(r, label, FACT_MEMORY); }
bool report_fact_is_commit(int fact) { return fact == FACT_COMMIT; }

/* The board of a file: as its rows name it, or made from the UUID of its header; "" where neither says. */
struct board {
    char name[16];
};

static struct board board_of(const struct record_file *file)
{
    struct board board;
    record_board_name(text_of(json_object_get(file->header, "device"), "uuid"), board.name, sizeof board.name);
    for (int i = 0; i < file->count && !board.name[0]; i++)
        snprintf(board.name, sizeof board.name, "%s", file->rows[i].board);
    return board;
}

int report_boards(const struct report *r, int label)
{
    const struct report_label *l = &r->input->labels[label];
    bool is_one = true, are_many = true;
    for (int f = 0; f < l->file_count; f++) {
        const struct board board = board_of(&r->input->files[l->files[f]]);
        if (!board.name[0])
            return 0;
        for (int k = 0; k < f; k++) {
            const bool is_same = is(board.name, board_of(&r->input->files[l->files[k]]).name);
            is_one &= is_same;
            are_many &= !is_same;
        }
    }
    return is_one ? 1 : are_many ? l->file_count : 0;
}

int report_all_boards(const struct report *r)
{
    int boards = 0;
    for (int f = 0; f < r->input->file_count; f++) {
        const struct board board = board_of(&r->input->files[f]);
        bool is_new = true;
        if (!board.name[0])
            return 0;
        for (int k = 0; k < f; k++)
            is_new &= !is(board.name, board_of(&r->input->files[k]).name);
        boards += is_new;
    }
    return boards;
}

/* ---- notes ---- */

/* 90 of "sm_90" or "fused_sm90"; 0 = there is none. */
static long sm_of(const char *text)
{
    const char *at = strstr(text, "sm");
    if (!at)
        return 0;
    at += 2 + (at[2] == '_');
    return strtol(at, NULL, 10);
}

/* Has any file of the label a valid row of this implementation? */
static bool has_impl(const struct report *r, int label, const char *impl)
{
    const struct report_label *l = &r->input->labels[label];
    for (int f = 0; f < l->file_count; f++)
        for (int i = 0; i < r->input->files[l->files[f]].count; i++) {
            const struct record_row *row = &r->input->files[l->files[f]].rows[i];
            if (is(row->impl, impl) && report_row_is_valid(row))
                return true;
        }
    return false;
}

/* Adds a note when no fused kernel for the generation of the device ran, with the newest one that ran instead. */
static void note_path(const struct report *r, int label, struct text *text)
{
    const struct report_label *l = &r->input->labels[label];
    const long device = sm_of(r->input->files[l->files[0]].rows[0].arch);
    char newest[IMPL_NAME_SIZE] = "";
    bool has_own = false;
    for (int f = 0; f < l->file_count; f++)
        for (int i = 0; i < r->input->files[l->files[f]].count; i++) {
            const struct record_row *row = &r->input->files[l->files[f]].rows[i];
            if (!role_is_fused(row->impl) || !report_row_is_valid(row))
                continue;
            has_own |= sm_of(row->impl) / 10 == device / 10;
            if (sm_of(row->impl) >= sm_of(newest))
                snprintf(newest, sizeof newest, "%s", row->impl);
        }
    if (!newest[0])
        text_join(text, "; ", "no fused implementation in its records");
    else if (device && !has_own)
        text_join(text, "; ", "portable path: %s on sm_%ld", newest, device);
}

/* Adds a note for each peer that another label has and this one lacks. */
static void note_peers(const struct report *r, int label, struct text *text)
{
    char known[10][IMPL_NAME_SIZE];
    int count = 0;
    for (int f = 0; f < r->input->file_count; f++)
        for (int i = 0; i < r->input->files[f].count; i++) {
            const struct record_row *row = &r->input->files[f].rows[i];
            bool is_known = !is(row->impl, row->peer) || !report_row_is_valid(row);
            for (int k = 0; k < count && !is_known; k++)
                is_known = is(known[k], row->impl);
            if (is_known || count == 10)
                continue;
            snprintf(known[count++], sizeof known[0], "%s", row->impl);
            if (!has_impl(r, label, row->impl))
                text_join(text, "; ", "without the peer %s, which others had", row->impl);
        }
}

char *report_notes(const struct report *r, int label)
{
    const struct report_summary *s = &r->summaries[label];
    const struct report_label *l = &r->input->labels[label];
    struct text words = {0};
    note_path(r, label, &words);
    note_peers(r, label, &words);
    if (s->counts.fail)
        text_join(&words, "; ", "%d of %d rows FAILED their check", s->counts.fail, s->counts.rows);
    if (s->counts.off)
        text_join(&words, "; ", "%d rows were not checked and do not count", s->counts.off);
    if (s->counts.broken)
        text_join(&words, "; ", "%d rows ended in an error or a timeout", s->counts.broken);
    if (s->throttled_pct > 1)
        text_join(&words, "; ", "throttled for up to %.0f %% of the time", s->throttled_pct);
    for (int f = 0; f < l->file_count; f++)
        if (json_is_true(json_object_get(r->input->files[l->files[f]].header, "synthetic"))) {
            text_join(&words, "; ", "SYNTHETIC: nothing here was measured");
            break;
        }
    return text_take(&words);
}

/* ---- naive ---- */

/* The longest length that naive ran at and the shortest that did not fit, with the reason. */
struct naive_lengths {
    int64_t longest_ok, shortest_oom;
    const char *reason;
};

static struct naive_lengths naive_lengths_of(const struct report *r, int label, enum attn_mode mode)
{
    const struct report_label *l = &r->input->labels[label];
    struct naive_lengths lengths = {0, INT64_MAX, ""};
    for (int f = 0; f < l->file_count; f++)
        for (int i = 0; i < r->input->files[l->files[f]].count; i++) {
            const struct record_row *row = &r->input->files[l->files[f]].rows[i];
            if (role_of_name(row->impl) != ATTN_ROLE_NAIVE || row->key.mode != (int)mode)
                continue;
            if (report_row_is_valid(row) && row->key.q_len > lengths.longest_ok)
                lengths.longest_ok = row->key.q_len;
            if (row->status == STATUS_OOM && row->key.q_len < lengths.shortest_oom) {
                lengths.shortest_oom = row->key.q_len;
                lengths.reason = row->reason;
            }
        }
    return lengths;
}

char *report_naive_text(const struct report *r, int label)
{
    static const char *const modes[] = {"fwd", "bwd"};
    struct text text = {0};
    for (int m = 0; m < 2; m++) {
        const struct naive_lengths lengths = naive_lengths_of(r, label, m == 1 ? ATTN_BWD : ATTN_FWD);
        char ok[24], oom[24];
        if (!lengths.longest_ok && lengths.shortest_oom == INT64_MAX)
            continue;
        text_separate(&text, "; ");
        text_add(&text, "%s: ", modes[m]);
        number_print_count(lengths.longest_ok, ok, sizeof ok);
        number_print_count(lengths.shortest_oom, oom, sizeof oom);
        if (lengths.shortest_oom == INT64_MAX)
            text_add(&text, "fits at every measured length, up to %s", ok);
        else
            text_add(&text, "no longer fits at %s%s%s%s", oom, lengths.reason[0] ? " (" : "", lengths.reason,
                     lengths.reason[0] ? ")" : "");
        if (lengths.shortest_oom != INT64_MAX && lengths.longest_ok)
            text_add(&text, ", longest that ran: %s", ok);
    }
    return text_take(&text);
}
