/* Compares a record with the run that continues it. */
#include "cmd/run/resume.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/record/record.h"
#include "cmd/record/record_figures.h"

/* Signals that an administrator, a batch system or the kernel out of memory sends; a fault of the program itself raises
 * others. */
static bool is_killed_from_outside(const struct record_row *row)
{
    return row->status == STATUS_ERROR &&
           (row->worker_signal == SIGKILL || row->worker_signal == SIGTERM || row->worker_signal == SIGHUP);
}

/* Moves the killed rows from r->file to r->killed. */
static void take_out_killed(struct resume *r)
{
    struct record_file *file = &r->file;
    const char *run_id = json_string_value(json_object_get(file->header, "run_id"));
    int kept = 0;
    r->killed.types_at = xmalloc((unsigned long)(file->count + 1) * sizeof *r->killed.types_at);
    for (int i = 0; i < file->count; i++) {
        const bool is_ours = run_id && !strcmp(file->rows[i].run_id, run_id); /* others are refused by resume_match */
        if (is_ours && is_killed_from_outside(&file->rows[i]) && file->types_at[i] >= 0) {
            r->killed.types_at[r->killed.count++] = file->types_at[i];
            record_row_free(&file->rows[i]);
            continue;
        }
        file->types_at[kept] = file->types_at[i];
        file->rows[kept++] = file->rows[i];
    }
    file->count = kept;
}

int resume_open(struct resume *r, const struct options *o)
{
    struct attn_message why = {""};
    char *path = o->jsonl_path ? xstrdup(o->jsonl_path) : xasprintf("%s/run.jsonl", o->out_dir);
    memset(r, 0, sizeof *r);
    r->writer = record_reopen_jsonl(path, &r->file, &why);
    free(path);
    if (r->writer && !record_file_samples_agree(&r->file, &why)) {
        resume_close(r);
        log_error("--resume: %s", why.text);
        return EXIT_NOT_COMPARABLE;
    }
    if (r->writer) {
        take_out_killed(r);
        return EXIT_OK;
    }
    log_error("--resume: %s", why.text);
    return EXIT_NOT_COMPARABLE;
}

void resume_close(struct resume *r)
{
    if (r->writer)
        record_close(r->writer);
    record_file_free(&r->file);
    free(r->killed.types_at);
    memset(r, 0, sizeof *r);
}

json_t *resume_header_of(const struct resume *r, const char *pci)
{
    const size_t later = json_array_size(r->file.later_headers);
    for (size_t i = 0; i <= later; i++) {
        json_t *header = i == 0 ? r->file.header : json_array_get(r->file.later_headers, i - 1);
        const char *of = json_string_value(header_value(header, "device.pci_bus_id"));
        if (of && !strcmp(of, pci))
            return header;
    }
    return NULL;
}

bool resume_take_board(struct resume *all, const char *pci, struct resume *one)
{
    memset(one, 0, sizeof *one);
    one->file.header = resume_header_of(all, pci);
    if (!json_incref(one->file.header))
        return false;
    one->file.path = xstrdup(all->file.path);
    one->file.rows = xcalloc((unsigned long)all->file.count + 1, sizeof *one->file.rows);
    int left = 0;
    for (int i = 0; i < all->file.count; i++) {
        struct record_row *row = &all->file.rows[i];
        if (!strcmp(row->pci, pci))
            one->file.rows[one->file.count++] = *row;
        else
            all->file.rows[left++] = *row;
    }
    all->file.count = left;
    return true;
}

bool resume_fits(const struct resume *r, const json_t *header, struct attn_message *why)
{
    static const char *const paths[] = {"tool.version",
                                        "tool.commit",
                                        "tool.build",
                                        "host.machine",
                                        "device.name",
                                        "device.arch",
                                        "device.uuid",
                                        "device.driver",
                                        "device.cuda",
                                        "device.cudnn",
                                        "device.vbios",
                                        "device.memory_gb",
                                        "device.threads",
                                        "device.multiprocessors",
                                        "device.power_limit_w",
                                        "device.ecc",
                                        "device.mig",
                                        "policy.options",
                                        "policy.method",
                                        "policy.preset",
                                        "policy.l2",
                                        "policy.check",
                                        "policy.clocks",
                                        "policy.warmup_ms",
                                        "policy.min_time_ms",
                                        "policy.max_noise_pct",
                                        "policy.timeout_s",
                                        "policy.sustain_s",
                                        "policy.samples",
                                        "policy.total_tokens",
                                        "policy.round_members"};
    static const char *const environment[] = {"environment.CUDA_VISIBLE_DEVICES", "environment.CUDA_DEVICE_ORDER",
                                              "environment.CUDA_LAUNCH_BLOCKING", "environment.CUDA_MODULE_LOADING",
                                              "environment.NVIDIA_TF32_OVERRIDE", "environment.OMP_NUM_THREADS",
                                              "environment.OPENBLAS_NUM_THREADS"};
    char was[120], is[120];
    const char *other =
        header_difference(r->file.header, header, paths, sizeof paths / sizeof *paths, was, is, sizeof was);
    if (!other)
        other = header_difference(r->file.header, header, environment, sizeof environment / sizeof *environment, was,
                                  is, sizeof was);
    if (!other)
        return true;
    snprintf(why->text, sizeof why->text, "%s is of another run: its %s is %s, here it is %s",
             path_shown(r->file.path).text, other, was, is);
    return false;
}

/* Without the cache policy, which is not part of a plan item; resume_fits has compared it. */
static bool is_row_of(const struct record_row *row, const struct plan_item *item)
{
    const struct problem_key wanted = plan_item_key(item, (enum l2_policy)row->key.l2);
    return problem_key_compare(&row->key, &wanted, false) == 0;
}

static bool refuse_row(const struct resume *r, int row, struct attn_message *why, const char *sentence)
{
    snprintf(why->text, sizeof why->text, "%s: row %d (%s %s d%lld n=%lld) %s", path_shown(r->file.path).text, row + 1,
             r->file.rows[row].impl, problem_mode_name(r->file.rows[row].key.mode),
             (long long)r->file.rows[row].key.head_dim, (long long)r->file.rows[row].key.q_len, sentence);
    return false;
}

/* Finds the plan's item of one row and marks it done. A plan may hold an item twice; then the first one without a row
 * is taken. The search begins where the last one ended, because rows are in the order of the plan. */
static bool find_item(const struct resume *r, int index, const struct plan *plan, int slot, int *from, unsigned *done,
                      int *item_out, struct attn_message *why)
{
    const struct record_row *row = &r->file.rows[index];
    bool is_planned = false;
    for (int n = 0; n < plan->count; n++) {
        const int item = (*from + n) % plan->count;
        if (!is_row_of(row, &plan->items[item]))
            continue;
        is_planned = true;
        if (done[item] & 1u << slot)
            continue;
        done[item] |= 1u << slot;
        *from = *item_out = item;
        return true;
    }
    return refuse_row(r, index, why, is_planned ? "occurs twice" : "is not part of what these options run");
}

bool resume_match(const struct resume *r, const struct plan *plan, const char *const *slots, int slot_count,
                  unsigned *done, unsigned *rerun, struct attn_message *why)
{
    const char *run_id = json_string_value(json_object_get(r->file.header, "run_id"));
    const unsigned all = (unsigned)((UINT64_C(1) << slot_count) - 1);
    unsigned *have = xcalloc((unsigned long)plan->count, sizeof *have);
    unsigned *ran = xcalloc((unsigned long)plan->count, sizeof *ran);
    bool good = true;
    for (int i = 0, from = 0; i < r->file.count && good; i++) {
        const struct record_row *row = &r->file.rows[i];
        int slot = 0, item = 0;
        while (slot < slot_count && strcmp(slots[slot], row->asked))
            slot++;
        if (!run_id || strcmp(row->run_id, run_id))
            good = refuse_row(r, i, why, "is of another run than the header");
        else if (slot == slot_count)
            good = refuse_row(r, i, why, "is of an implementation that was not asked for");
        else if ((good = find_item(r, i, plan, slot, &from, have, &item, why)) && row->status == STATUS_OK)
            ran[item] |= 1u << slot;
    }
    for (int i = 0; i < plan->count && good; i++) {
        if (done)
            done[i] = have[i];
        if (rerun)
            rerun[i] = have[i] == all ? 0 : ran[i];
    }
    free(have);
    free(ran);
    return good;
}
