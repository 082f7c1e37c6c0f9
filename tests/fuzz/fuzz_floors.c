/* A file of floors, and its answers for rows with and without values. */
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/gate/floors.h"
#include "tests/fuzz/fuzz.h"

static void check(struct floors *floors, const struct record_row *row)
{
    char missed[200] = "";
    const enum floors_result answer = floors_check(floors, row, missed, sizeof missed);
    FUZZ_CHECK((answer == FLOORS_MISSED) == (missed[0] != '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct attn_message why = {""};
    struct record_row row = {0};
    struct floors *floors = floors_read(fuzz_put(0, data, size), &why);
    if (!floors) {
        FUZZ_CHECK(why.text[0]);
        return 0;
    }
    record_row_clear(&row);
    check(floors, &row);
    strcpy(row.impl, "fused_sm90");
    row.key.mode = 0;
    row.key.head_dim = 128;
    row.key.q_len = 16384;
    row.status = STATUS_OK;
    row.tflops = row.time_ms = row.pct_of_gemm = 300;
    row.repro = xstrdup("fabench --d 128");
    check(floors, &row);
    floors_are_matched(floors, &why);
    record_row_free(&row);
    floors_free(floors);
    return 0;
}
