/* Compares labels as a whole, by their geometric means or over the points that two of them share. */
#include "cmd/report/report_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/numbers.h"
#include "cmd/base/text.h"
#include "cmd/report/report_data.h"

/* What `label` has relative to `other` over the points that both have: geometric means of ratios (1 = equal), medians'
 * means of shares of time. NaN = not measured at any of them. */
struct comparison {
    int points;
    double speed, sustained, gemm;             /* ratios label / other */
    double clock_mhz, other_clock_mhz;         /* geometric means */
    double capped_pct, other_capped_pct;       /* means */
    double throttled_pct, other_throttled_pct; /* means */
};

struct mean {
    double sum;
    int count;
};

static void add(struct mean *m, double value)
{
    if (!isfinite(value))
        return;
    m->sum += value;
    m->count++;
}

static double mean_of(const struct mean *m) { return m->count ? m->sum / m->count : NAN; }
static double log_ratio(double a, double b) { return a > 0 && b > 0 ? log(a / b) : NAN; }

static struct comparison compare(const struct report *r, int label, int other)
{
    struct mean speed = {0}, sustained = {0}, gemm = {0}, clocks[2] = {{0}}, capped[2] = {{0}}, throttled[2] = {{0}};
    struct comparison c = {.points = 0};
    for (int p = 0; p < r->point_count; p++) {
        const struct report_figure *const figures[] = {report_figure_at(r, p, label), report_figure_at(r, p, other)};
        const struct record_row *const mine = &figures[0]->best, *const theirs = &figures[1]->best;
        if (!figures[0]->is_there || !figures[1]->is_there)
            continue;
        c.points++;
        add(&speed, log_ratio(mine->tflops, theirs->tflops));
        add(&sustained, log_ratio(mine->tflops_sustained, theirs->tflops_sustained));
        add(&gemm, log_ratio(mine->gemm_tflops, theirs->gemm_tflops));
        for (int i = 0; i < 2; i++) { /* each of these only where both have it */
            if (isfinite(mine->sm_clock_mhz) && isfinite(theirs->sm_clock_mhz))
                add(&clocks[i], log(figures[i]->best.sm_clock_mhz));
            if (isfinite(mine->power_capped_pct) && isfinite(theirs->power_capped_pct))
                add(&capped[i], figures[i]->best.power_capped_pct);
            if (isfinite(mine->throttled_pct) && isfinite(theirs->throttled_pct))
                add(&throttled[i], figures[i]->best.throttled_pct);
        }
    }
    c.speed = exp(mean_of(&speed));
    c.sustained = exp(mean_of(&sustained));
    c.gemm = exp(mean_of(&gemm));
    c.clock_mhz = exp(mean_of(&clocks[0]));
    c.other_clock_mhz = exp(mean_of(&clocks[1]));
    c.capped_pct = mean_of(&capped[0]);
    c.other_capped_pct = mean_of(&capped[1]);
    c.throttled_pct = mean_of(&throttled[0]);
    c.other_throttled_pct = mean_of(&throttled[1]);
    return c;
}

/* ---- the fastest ---- */

/* By what the labels of a group are ordered: the first of these that all of them have. */
enum order { BY_SUSTAINED, BY_BURST, BY_SHARED };

static double geomean_by(const struct report *r, int label, enum order order)
{
    const struct report_geomeans *g = &r->summaries[label].geomeans;
    return order == BY_SUSTAINED ? g->tflops_sustained : g->tflops;
}

static enum order order_of(const struct report *r, int group)
{
    bool has_sustained = true, has_burst = true;
    for (int l = 0; l < r->input->label_count; l++) {
        if (r->summaries[l].group != group)
            continue;
        has_sustained &= isfinite(geomean_by(r, l, BY_SUSTAINED));
        has_burst &= isfinite(geomean_by(r, l, BY_BURST));
    }
    return has_sustained ? BY_SUSTAINED : has_burst ? BY_BURST : BY_SHARED;
}

/* The fastest label of a group: that with the largest geometric mean; where not all have one, that against which every
 * other one is slower over the points that the two share. -1 = there is none. */
static int fastest_of(const struct report *r, int group)
{
    const enum order order = order_of(r, group);
    int best = -1;
    for (int l = 0; l < r->input->label_count; l++) {
        bool is_best = r->summaries[l].group == group;
        for (int k = 0; k < r->input->label_count && is_best; k++) {
            if (k == l || r->summaries[k].group != group)
                continue;
            is_best =
                order == BY_SHARED ? compare(r, l, k).speed > 1 : geomean_by(r, l, order) > geomean_by(r, k, order);
        }
        if (is_best)
            best = l;
    }
    return best;
}

/* The geometric mean over the published set of the lower or the upper ends of the intervals, in TFLOPS. NaN where a
 * point is missing or has no interval. */
static double geomean_end(const struct report *r, int label, bool is_upper)
{
    struct mean ends = {0};
    for (int p = 0; p < r->point_count; p++) {
        const struct report_figure *f = report_figure_at(r, p, label);
        if (r->points[p].set_index >= 0 && f->is_there && f->has_interval)
            add(&ends, log(is_upper ? f->hi : f->lo));
    }
    return ends.count == REPORT_SET_POINTS ? exp(mean_of(&ends)) : NAN;
}

static int labels_of(const struct report *r, int group)
{
    int count = 0;
    for (int l = 0; l < r->input->label_count; l++)
        count += r->summaries[l].group == group;
    return count;
}

/* ---- the paragraph ---- */

static const char *speed(const struct report *r, double tflops, char text[40])
{
    return number_print_short(tflops * r->unit_scale, text, 40);
}

/* "640.9 TFLOPS sustained (700.1 burst)", or the burst figure alone. */
static void add_speeds(const struct report *r, int label, struct text *text)
{
    const struct report_geomeans *g = &r->summaries[label].geomeans;
    char one[40], two[40];
    if (isfinite(g->tflops_sustained))
        text_add(text, "%s %s sustained (%s burst)", speed(r, g->tflops_sustained, one), r->unit,
                 speed(r, g->tflops, two));
    else
        text_add(text, "%s %s burst", speed(r, g->tflops, one), r->unit);
}

static void add_others(const struct report *r, int best, enum order order, struct text *text)
{
    const char *separator = " ";
    for (int l = 0; l < r->input->label_count; l++) {
        if (l == best || r->summaries[l].group != r->summaries[best].group)
            continue;
        const struct comparison c = compare(r, l, best);
        const double ratio = order == BY_SHARED ? c.speed : geomean_by(r, l, order) / geomean_by(r, best, order);
        char own[40];
        text_add(text, "%s%s", separator, report_label_name(r, l));
        if (order == BY_SHARED)
            text_add(text, " is at %.0f %% of its speed over the %d point%s that both have", 100 * ratio, c.points,
                     c.points == 1 ? "" : "s");
        else
            text_add(text, " has %s (%+.1f %%%s)", speed(r, geomean_by(r, l, order), own), 100 * (ratio - 1),
                     order == BY_BURST && !(geomean_end(r, l, true) < geomean_end(r, best, false))
                         ? ", a tie: the intervals overlap"
                         : "");
        separator = ", ";
    }
    text_add(text, ".");
}

static void add_group(const struct report *r, int group, struct text *text)
{
    const enum order order = order_of(r, group);
    const int best = fastest_of(r, group);
    if (text->length)
        text_add(text, " ");
    if (best < 0) {
        text_add(text, "No label is faster than all others.");
        return;
    }
    const struct report_summary *s = &r->summaries[best];
    text_add(text, "%s is the fastest", report_label_name(r, best));
    if (order == BY_SHARED) {
        text_add(text, ":");
    } else {
        text_add(text, " by the geometric mean of the published set: ");
        if (order == BY_SUSTAINED) {
            add_speeds(r, best, text);
        } else {
            char own[40];
            text_add(text, "%s %s burst", speed(r, s->geomeans.tflops, own), r->unit);
        }
        text_add(text, ";");
    }
    add_others(r, best, order, text);
    int shared = 0;
    for (int p = 0; p < r->point_count; p++)
        shared += report_figure_at(r, p, best)->rank > 0;
    text_add(text, " %s is alone in front at %d of the %d point%s that it shares, and tied there at %d.",
             report_label_name(r, best), s->best_points, shared, shared == 1 ? "" : "s", s->tied_points);
    for (int l = 0; order == BY_BURST && l < r->input->label_count; l++) {
        char own[40];
        if (r->summaries[l].group == group && isfinite(r->summaries[l].geomeans.tflops_sustained))
            text_add(text, " %s has a sustained mean, %s, which not all have.", report_label_name(r, l),
                     speed(r, r->summaries[l].geomeans.tflops_sustained, own));
    }
}

/* Which label gives the most speed for its price, where at least two have a price and a geometric mean. */
static void add_price(const struct report *r, struct text *text)
{
    const enum order order = r->group_count == 1 ? order_of(r, 0) : BY_SHARED;
    int best = -1, priced = 0;
    double most = 0;
    for (int l = 0; l < r->input->label_count && order != BY_SHARED; l++) {
        const double value = geomean_by(r, l, order) / r->input->labels[l].price;
        priced += isfinite(value);
        if (isfinite(value) && value > most) {
            most = value;
            best = l;
        }
    }
    char own[40];
    if (priced > 1)
        text_add(text, " %s gives the most for its price: %s %s %s per 1000 %s.", report_label_name(r, best),
                 speed(r, 1000 * most, own), r->unit, order == BY_SUSTAINED ? "sustained" : "burst",
                 r->input->currency);
}

static void add_checks(const struct report *r, struct text *text)
{
    int rows = 0, pass = 0, fail = 0;
    for (int l = 0; l < r->input->label_count; l++) {
        rows += r->summaries[l].counts.rows;
        pass += r->summaries[l].counts.pass;
        fail += r->summaries[l].counts.fail;
    }
    text_add(text, " %d of %d rows passed their check", pass, rows);
    if (fail)
        text_add(text, ", %d FAILED and %s not used", fail, fail == 1 ? "is" : "are");
    text_add(text, ".");
}

/* What may not be concluded, because one board stands for a product or the records do not say how many do. Nothing
 * where all labels are of one board: then they differ in something else. */
static void add_limits(const struct report *r, struct text *text)
{
    bool has_unknown = false, has_single = false;
    for (int l = 0; l < r->input->label_count; l++) {
        has_unknown |= report_boards(r, l) == 0;
        has_single |= report_boards(r, l) == 1;
    }
    if (r->input->label_count == 1 || report_all_boards(r) == 1)
        return;
    if (has_unknown)
        text_add(text,
                 "Which boards were measured is not recorded: a difference of a few per cent between labels may be "
                 "one between two boards and says nothing about a product.");
    else if (has_single)
        text_add(text, "One board stands for a label here: a difference of a few per cent between labels may be one "
                       "between two boards and says nothing about a product.");
}

void report_put_verdict(struct page *page, const struct report *r)
{
    struct text text = {0};
    add_limits(r, &text);
    if (r->input->label_count == 1) {
        text_add(&text, "One device, nothing to compare. %s: ", report_label_name(r, 0));
        if (isfinite(r->summaries[0].geomeans.tflops))
            add_speeds(r, 0, &text);
        else
            text_add(&text, "figures for %d of the %d points of the published set, so there is no mean of it",
                     r->summaries[0].geomeans.points, REPORT_SET_POINTS);
        text_add(&text, ".");
    }
    for (int g = 0; g < r->group_count; g++)
        if (labels_of(r, g) > 1)
            add_group(r, g, &text);
    add_price(r, &text);
    add_checks(r, &text);
    const char *words = text_string(&text);
    if (r->group_count > 1)
        page_warning(page,
                     "NOT COMPARABLE: the %d labels make %d groups that share no problem under the same "
                     "conditions; nothing is ranked across them.",
                     r->input->label_count, r->group_count);
    page_text(page, "%s", words + strspn(words, " "));
    text_free(&text);
}

/* ---- commits, extent ---- */

void report_put_commits(struct page *page, const struct report *r)
{
    struct text line = {0};
    bool is_mixed = false;
    char *first = NULL;
    for (int l = 0; l < r->input->label_count; l++) {
        char *text = report_commit_text(r, l);
        is_mixed |= strstr(text, "; ") != NULL || (first && strcmp(first, text) != 0);
        text_separate(&line, ", ");
        text_add(&line, "%s %s", report_label_name(r, l), text[0] ? text : "not known");
        if (!first)
            first = text;
        else
            free(text);
    }
    if (is_mixed)
        page_warning(
            page, "Measured by different commits of fabench: %s. A difference between them can be one of the program.",
            text_string(&line));
    free(first);
    text_free(&line);
}

char *report_extent(const struct report *r)
{
    struct text text = {0};
    const int labels = r->input->label_count, files = r->input->file_count, boards = report_all_boards(r);
    text_add(&text, "%d label%s, ", labels, labels == 1 ? "" : "s");
    if (boards)
        text_add(&text, "%d board%s", boards, boards == 1 ? "" : "s");
    else
        text_add(&text, "boards not recorded");
    text_add(&text, ", %d record%s", files, files == 1 ? "" : "s");
    return text_take(&text);
}

/* ---- reasons ---- */

static void put_reason(struct page *page, const struct report *r, int label, int best)
{
    const struct comparison c = compare(r, label, best);
    const char *name = report_label_name(r, label), *other = report_label_name(r, best);
    struct text text = {0};
    if (!c.points || !(c.speed < 1))
        return;
    if (isfinite(c.clock_mhz))
        text_join(&text, "; ", "SM clock %.0f MHz against %.0f (%+.1f %%)", c.clock_mhz, c.other_clock_mhz,
                  100 * (c.clock_mhz / c.other_clock_mhz - 1));
    if (isfinite(c.capped_pct))
        text_join(&text, "; ", "at its power cap %.0f %% of the time against %.0f %%", c.capped_pct,
                  c.other_capped_pct);
    char *limit = report_power_limit_text(r, label), *other_limit = report_power_limit_text(r, best);
    if (limit[0] && other_limit[0])
        text_join(&text, "; ", "power limit %s against %s", limit, other_limit);
    if (c.throttled_pct > 1 || c.other_throttled_pct > 1)
        text_join(&text, "; ", "thermal slowdown %.0f %% of the time against %.0f %%", c.throttled_pct,
                  c.other_throttled_pct);
    if (isfinite(c.gemm))
        text_join(&text, "; ", "its GEMM ceiling is %+.1f %%", 100 * (c.gemm - 1));
    page_item(page, "%s runs at %.1f %% of the speed of %s over the %d point%s that both have (burst): %s.", name,
              100 * c.speed, other, c.points, c.points == 1 ? "" : "s",
              text.length ? text_string(&text) : "these records hold no clock, power or GEMM figures that say why");
    free(limit);
    free(other_limit);
    text_free(&text);
}

void report_put_reasons(struct page *page, const struct report *r)
{
    for (int g = 0; g < r->group_count; g++) {
        const int best = labels_of(r, g) > 1 ? fastest_of(r, g) : -1;
        for (int l = 0; best >= 0 && l < r->input->label_count; l++)
            if (l != best && r->summaries[l].group == g)
                put_reason(page, r, l, best);
    }
}
