/* Files of published points: what is read, what is refused with its line, beside which rows a point stands. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/chart/overlay.h"

static char path[] = "/tmp/fabench-overlay-XXXXXX";
static struct attn_message why;

static int begin(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

static bool read_text(const char *text, struct overlay *overlay)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
    why.text[0] = '\0';
    return overlay_read(path, overlay, &why);
}

#define NAMES "impl,mode,dtype,causal,q_len,head_dim,tflops\n"

static void refused(const char *text, const char *part)
{
    struct overlay overlay;
    if (read_text(text, &overlay))
        fail_msg("taken: %s", text);
    if (!strstr(why.text, part))
        fail_msg("got \"%s\", want ...%s...", why.text, part);
    assert_int_equal(overlay.count, 0);
}

static void good_files(void **state)
{
    struct overlay overlay;
    (void)state;
    assert_true(read_text("# where from\n# more\n\n" NAMES "fa3,fwd,bf16,1,4096,128,682.5\r\n", &overlay));
    assert_string_equal(overlay.source, "where from");
    assert_int_equal(overlay.count, 1);
    assert_string_equal(overlay.points[0].impl, "fa3");
    assert_int_equal(overlay.points[0].q_len, 4096);
    assert_int_equal(overlay.points[0].batch, 0);
    assert_true(overlay.points[0].tflops == 682.5);
    overlay_free(&overlay);
    /* Other orders, other columns, quotes, a last line without its end. */
    assert_true(read_text("tflops,note,head_dim,q_len,causal,dtype,mode,impl,l2\n"
                          "1.5,\"a, \"\"b\"\"\",64,1k,0,fp16,bwd,\"x_1\",cold",
                          &overlay));
    assert_string_equal(overlay.source, "");
    assert_string_equal(overlay.points[0].impl, "x_1");
    assert_string_equal(overlay.points[0].l2, "cold");
    assert_int_equal(overlay.points[0].q_len, 1024);
    overlay_free(&overlay);
}

static void bad_files(void **state)
{
    (void)state;
    refused("", "line 0: not a file of published points: it holds no line of names");
    refused("# only words\n", "no line of names");
    refused(NAMES, "line 1: not a file of published points: it holds names and no point");
    refused("impl,mode,dtype,causal,q_len,head_dim\nx,fwd,bf16,0,1,8\n", "line 1: not a file of published points: its "
                                                                         "line of names has no column tflops");
    refused("impl,impl,mode,dtype,causal,q_len,head_dim,tflops\n", "the column impl occurs twice");
    refused(NAMES "fa3,fwd,bf16,0,1024,64\n", "line 2: has 6 cells, the line of names has 7");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,1,2\n", "has 8 cells");
    refused(NAMES "fa3,fwd,bf16,0,1024,,1\n", "its head_dim is empty");
    refused(NAMES "fa3,both,bf16,0,1024,64,1\n", "mode \"both\"");
    refused(NAMES "fa3,fwd,bf16,2,1024,64,1\n", "causal 2: must be 0 or 1");
    refused(NAMES "fa3,fwd,bf16,0,0,64,1\n", "must be above 0");
    refused(NAMES "fa3,fwd,bf16,0,-1,64,1\n", "q_len \"-1\": must be a whole number");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,0\n", "tflops \"0\": must be a number above 0");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,nan\n", "tflops \"nan\"");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,inf\n", "tflops \"inf\"");
    refused(NAMES "FA 3,fwd,bf16,0,1024,64,1\n", "impl \"FA 3\": must be a short name");
    refused(NAMES "fa3,fwd,bf16,0,1024,64,1\nfa3,fwd,bf16,0,1024,64,2\n", "line 3: this point occurs twice");
    refused(NAMES "\"fa3,fwd,bf16,0,1024,64,1\n", "a quote stays open");
    refused("{\"type\":\"header\",\"schema\":1}\n", "has no column impl");
    assert_false(overlay_read("/nonexistent/x.csv", &(struct overlay){.count = 0}, &why));
    assert_non_null(strstr(why.text, "/nonexistent/x.csv: No such file"));
}

static void long_lines(void **state)
{
    (void)state;
    char *text = calloc(1, 10000);
    assert_non_null(text);
    memset(text, 'x', 9000);
    refused(text, "longer than");
    free(text);
}

static void stands_beside_its_problem(void **state)
{
    struct record_row row = {.key = {.q_len = 1024, .kv_len = 1024, .head_dim = 64, .batch = 16, .q_heads = 32}};
    (void)state;
    row.key.mode = ATTN_FWD;
    row.key.dtype = ATTN_BF16;
    row.key.l2 = L2_COLD;
    struct overlay_point point = {.q_len = 1024, .head_dim = 64, .impl = "fa3", .mode = "fwd", .dtype = "bf16"};
    assert_true(overlay_fits(&point, &row));
    point.batch = 16;
    strcpy(point.l2, "cold");
    assert_true(overlay_fits(&point, &row));
    point.batch = 8;
    assert_false(overlay_fits(&point, &row));
    point.batch = 0;
    strcpy(point.l2, "hot");
    assert_false(overlay_fits(&point, &row));
    point.l2[0] = '\0';
    point.causal = 1;
    assert_false(overlay_fits(&point, &row));
    point.causal = 0;
    point.q_len = 2048;
    assert_false(overlay_fits(&point, &row));
}

static void the_published_file(void **state)
{
    struct overlay overlay;
    (void)state;
    if (!overlay_read("results/published/h200_peers.csv", &overlay, &why))
        fail_msg("%s", why.text);
    assert_int_equal(overlay.count, 260); /* 80 points of three implementations, 20 of one in e4m3 */
    assert_non_null(strstr(overlay.source, "H200"));
    overlay_free(&overlay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),         cmocka_unit_test(bad_files),
        cmocka_unit_test(long_lines),         cmocka_unit_test(stands_beside_its_problem),
        cmocka_unit_test(the_published_file),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
