/* Makes the groups by shared points, and finds the conditions in which labels differ. */
#include "cmd/report/report_data.h"

#include <math.h>
#include <string.h>

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

static bool share_a_point(const struct report *r, int a, int b)
{
    for (int p = 0; p < r->point_count; p++)
        if (report_figure_at(r, p, a)->is_there && report_figure_at(r, p, b)->is_there)
            return true;
    return false;
}

void report_make_groups(struct report *r)
{
    const int count = r->input->label_count;
    for (int i = 0; i < count; i++)
        r->summaries[i].group = -1;
    for (int i = 0; i < count; i++) {
        if (r->summaries[i].group >= 0)
            continue;
        r->summaries[i].group = r->group_count++;
        for (bool grew = true; grew;) {
            grew = false;
            for (int a = 0; a < count; a++)
                for (int b = 0; b < count; b++)
                    if (r->summaries[a].group == r->summaries[i].group && r->summaries[b].group < 0 &&
                        share_a_point(r, a, b)) {
                        r->summaries[b].group = r->summaries[i].group;
                        grew = true;
                    }
        }
    }
}

/* The conditions of a row that can differ between labels, so that they share no point. */
enum { CONDITIONS = 11, VALUES_BYTES = 160 };
static const char *const condition_names[CONDITIONS] = {
    "dtype", "tokens", "heads x head dim", "head dim", "length",       "mode",
    "mask",  "layout", "inputs",           "L2",       "timing method"};

static const char *condition_value(int which, const struct record_row *row, char *text, size_t size)
{
    const char *word = "";
    char data[PROBLEM_DATA_SIZE];
    double number = NAN;
    switch (which) {
    case 0: word = problem_dtype_name(row->key.dtype); break;
    case 1: number = (double)row->key.batch * (double)row->key.q_len; break;
    case 2: number = (double)row->key.q_heads * (double)row->key.head_dim; break;
    case 3: number = (double)row->key.head_dim; break;
    case 4: number = (double)row->key.q_len; break;
    case 5: word = problem_mode_name(row->key.mode); break;
    case 6: word = row->key.causal ? "causal" : "full"; break;
    case 7: word = problem_layout_name(row->key.layout); break;
    case 8: word = problem_key_data(&row->key, data, sizeof data); break;
    case 9: word = problem_l2_name(row->key.l2); break;
    default: word = row->method; break;
    }
    if (isnan(number))
        snprintf(text, size, "%s", word);
    else
        snprintf(text, size, "%.0f", number);
    return text;
}

/* The values of one condition over a label's figures as "fp16, bf16", and whether `other` has one of them. */
static bool condition_values(const struct report *r, int label, int other, int which, char text[VALUES_BYTES])
{
    bool is_common = false;
    text[0] = '\0';
    for (int p = 0; p < r->point_count; p++) {
        char value[64], known[64];
        bool is_new = report_figure_at(r, p, label)->is_there;
        if (!is_new)
            continue;
        condition_value(which, r->points[p].row, value, sizeof value);
        for (int q = 0; q < p && is_new; q++)
            is_new = !report_figure_at(r, q, label)->is_there ||
                     !is(condition_value(which, r->points[q].row, known, sizeof known), value);
        if (!is_new)
            continue;
        const size_t used = strlen(text);
        snprintf(text + used, VALUES_BYTES - used, "%s%s", used ? ", " : "", value);
        for (int q = 0; q < r->point_count; q++)
            is_common |= report_figure_at(r, q, other)->is_there &&
                         is(condition_value(which, r->points[q].row, known, sizeof known), value);
    }
    return is_common;
}

void report_difference(const struct report *r, int label, int other, char *text, size_t size)
{
    text[0] = '\0';
    for (int which = 0; which < CONDITIONS; which++) {
        char a[VALUES_BYTES], b[VALUES_BYTES];
        const bool is_common = condition_values(r, label, other, which, a);
        condition_values(r, other, label, which, b);
        const size_t used = strlen(text);
        if (!is_common && used < size)
            snprintf(text + used, size - used, "%s%s %s against %s", used ? "; " : "", condition_names[which], a, b);
    }
    if (!*text)
        snprintf(text, size, "they were given different problems");
}
