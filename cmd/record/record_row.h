/* One row of a record: the problem, how the case ended, and what was measured. Section 7 of docs/design.md has the
 * columns. */
#ifndef FABENCH_RECORD_ROW_H
#define FABENCH_RECORD_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/problem/problem_key.h"
#include "cmd/record/record_list.h"
#include "reference/registry.h"

enum { RECORD_SCHEMA = 1 };
#define RECORD_METHOD "5" /* version of the timing method (cmd/measure/rounds.h); raised when it changes */

/* How a case ended, and the verdict on its results; NONE = not in the record. */
enum record_status {
    STATUS_NONE = -1,
    STATUS_OK,
    STATUS_OOM,
    STATUS_UNSUPPORTED,
    STATUS_SKIPPED,
    STATUS_ERROR,
    STATUS_TIMEOUT
};
enum record_check { CHECKED_NONE = -1, CHECKED_PASS, CHECKED_FAIL, CHECKED_OFF };

/* Errors of one output tensor. The JSONL has those of all tensors; the row's error columns are those of the worst
 * one. */
struct record_tensor {
    char name[8]; /* o lse dq dk dv; or what else a launch changed: an input, wksp (the workspace) */
    double max_abs_err, rel_rms_err, rel_rms_bound, block_rms_err, gain_err, err_ratio, used;
    char rule[24];     /* the rule nearest its bound: nonfinite element rms block_rms gain naive lse */
    char worst[64];    /* "dk[0,3,127,64]" */
    char failure[512]; /* the FAIL sentence of section 6 of docs/design.md, empty when it passed */
};

/* Of a row: the outputs, and findings about other tensors. */
enum { RECORD_TENSORS_MAX = 8 };

struct record_pass {
    char name[16];
    double time_ms;
};

/* How statuses and verdicts are written; NULL ends each. */
extern const char *const record_status_names[]; /* ok oom unsupported skipped error timeout */
extern const char *const record_check_names[];  /* pass fail off */

/* Declarations of the columns' fields. */
#define RECORD_FIELD_TEXT(field, bytes) char field[bytes];
#define RECORD_FIELD_STRING(field, unused) char *field;
#define RECORD_FIELD_COUNT(field, unused) int64_t field;
#define RECORD_FIELD_REAL(field, unused) double field;
#define RECORD_FIELD_NAME(field, unused) int field;
#define RECORD_FIELD(kind, field, extra, ...) RECORD_FIELD_##kind(field, extra)

/* One row. Not measured: NaN, INT64_MIN, -1 of a name, "", NULL. Owned: the STRING columns and samples_ms. */
struct record_row {
    RECORD_RUN_COLUMNS(RECORD_FIELD)
    struct problem_key key; /* what was asked */
    RECORD_RESULT_COLUMNS(RECORD_FIELD)
    RECORD_LATE_COLUMNS(RECORD_FIELD)

    /* In JSONL alone, as lists. */
    double *samples_ms; /* `samples` of them */
    struct record_tensor tensors[RECORD_TENSORS_MAX];
    int tensor_count;
    struct record_pass passes[8];
    int pass_count;
};

/* The role of a row's implementation. A record holds only names. The names of naive, the peers and `null` are reserved
 * (a loaded library that uses one is refused), so that the role follows from the name. */

/* The role of an implementation by the name in a record; a variant (after a colon) is ignored. */
enum attn_role role_of_name(const char *impl);

/* The name of the only implementation in a role: "naive", "cudnn", "null". */
const char *role_name(enum attn_role);

/* True for a kernel of this program that `--impl fused` may choose: their names begin with "fused_". */
bool role_is_fused(const char *impl);

#endif
