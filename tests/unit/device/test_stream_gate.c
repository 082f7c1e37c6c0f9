/* When launches are said to wait for the device, with a made-up gate. */
#include "tests/unit/unit_help.h"

#include "cmd/device/gate.h"

struct made_up {
    int calls, gives_up, fails_at; /* in the first `gives_up` trials; -1 = never fails */
};

static enum attn_status trial(void *context, bool *gave_up, struct attn_message *why)
{
    struct made_up *gate = context;
    const int n = gate->calls++;
    *gave_up = n < gate->gives_up;
    if (n != gate->fails_at)
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "no kernel");
    return ATTN_ERROR;
}

static void assert_tried(int gives_up, int fails_at, enum attn_status want, bool want_waits, int want_calls)
{
    struct made_up gate = {0, gives_up, fails_at};
    struct attn_message why = {""};
    bool waits = false;
    assert_int_equal(gate_try(trial, &gate, &waits, &why), want);
    assert_int_equal(gate.calls, want_calls);
    if (want == ATTN_OK)
        assert_int_equal(waits, want_waits);
    else
        assert_string_equal(why.text, "no kernel");
}

static void every_trial_counts(void **state)
{
    (void)state;
    assert_tried(0, -1, ATTN_OK, false, 1);
    assert_tried(GATE_TRIALS - 1, -1, ATTN_OK, false, GATE_TRIALS); /* a busy host */
    assert_tried(GATE_TRIALS, -1, ATTN_OK, true, GATE_TRIALS);
    assert_tried(GATE_TRIALS, 1, ATTN_ERROR, false, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_trial_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
