/* Keys and labels of rows. */
#include "cmd/record/case_key.h"

#include <inttypes.h>
#include <string.h>

#include "cmd/base/numbers.h"

char *case_problem_key(const struct record_row *r, char *buffer, size_t size)
{
    snprintf(buffer, size,
             "%s %s c%" PRId64 " b%" PRId64 " h%" PRId64 " kv%" PRId64 " n%" PRId64 " m%" PRId64 " d%" PRId64
             " %s w%" PRId64 ",%" PRId64 " p%.6g s%.6g %s seed%" PRId64 " %s",
             r->mode, r->dtype, r->causal, r->batch, r->q_heads, r->kv_heads, r->q_len, r->kv_len, r->head_dim,
             r->layout, r->window_left, r->window_right, r->dropout, r->scale, r->dist, r->seed, r->l2);
    return buffer;
}

char *case_label(const struct record_row *r, char *buffer, size_t size)
{
    char q[24], kv[24], lengths[56], dim[24];
    number_print_count(r->q_len, q, sizeof q);
    number_print_count(r->kv_len, kv, sizeof kv);
    snprintf(lengths, sizeof lengths, r->q_len == r->kv_len ? "%s" : "%sx%s", q, kv);
    snprintf(dim, sizeof dim, "d%" PRId64, r->head_dim);
    snprintf(buffer, size, "%s %-6s %-4s %-3s %s", r->mode, r->causal == 1 ? "causal" : "full", dim, lengths, r->dtype);
    return buffer;
}

bool case_is_timed(const struct record_row *r)
{
    return strcmp(r->status, "ok") == 0 && strcmp(r->check, "fail") != 0 && r->time_ms > 0;
}
