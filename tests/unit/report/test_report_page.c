/* The page of the report and its CSV: the verdict, why labels differ, units, order. All records are synthetic and
 * marked so. */
#include "tests/unit/report/report_of.h"

#include "cmd/report/report_page.h"

static char *page_of(bool as_csv)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    if (as_csv) {
        report_write_csv(&report, out);
    } else {
        struct page *d =
            report_page(&report, &(struct report_charts){.is_gnuplot_absent = true, .was_asked = true}, NULL);
        page_write_markdown(d, out, true);
        page_close(d);
    }
    assert_int_equal(fclose(out), 0);
    return text;
}

static void assert_in(const char *text, const char *part, bool is_there)
{
    if ((strstr(text, part) != NULL) != is_there)
        fail_msg("\"%s\" is %sin:\n%.6000s", part, is_there ? "not " : "", text);
}

static void page_contents(void **state)
{
    (void)state;
    add_set(0, "a", 100);
    add_set(1, "a", 150);
    files[1].count--;
    files[1].rows[0].energy_j = 1.5;
    files[1].rows[0].tflops_sustained = 90;
    files[1].rows[0].power_w = 650;
    files[1].rows[0].sustain_s = 90;
    files[1].rows[2].sustain_s = 30; /* of a row that is not the best it counts, too */
    files[0].rows[1].pct_of_gemm = 130;
    strcpy(input.currency, "EUR");
    labels[0].price = 20000;
    make(2, 2);
    char *text = page_of(false);
    assert_in(text, "Yes: they share problems and conditions (2 labels, boards not recorded, 2 records)", true);
    assert_in(text, "NOT COMPARABLE", false);
    assert_in(text, "15 of 16 points", true);
    assert_in(text, "100.0", true);
    assert_in(text, "5.000", true); /* TFLOPS per 1000 EUR */
    assert_in(text, "130 % of the GEMM ceiling, which is suspect", true);
    assert_in(text, "gnuplot was not installed", true);
    assert_in(text, "SYNTHETIC", true);
    assert_in(text, "L1: fastest at 15", true);
    assert_in(text, "| **L0** | not measured | not measured |    not measured |", true);
    assert_in(text, "| **L1** |      **650** | not measured |         **2.0** |", true);
    assert_in(text, "Not measured: fabench --preset acceptance --out DIR puts each row under 10 s of load", true);
    free(text);
    text = page_of(true);
    assert_in(text, "label,device,group,", true);
    assert_in(text, "L0,A GPU,1,fwd,bf16,0,4,32,32,4096,4096,64,-1,-1,bshd,normal,cold,1,1,a,,100,99,101,1,,2,0,",
              true);
    assert_in(text, ",20000,EUR,0.005,\n", true);
    free(text);
    files[1].rows[0].key.dtype = ATTN_FP16; /* one row less in common */
    files[1].count = 1;
    make(2, 2);
    text = page_of(false);
    assert_in(text, "> **NOT COMPARABLE", true);
    assert_in(text, "dtype bf16 against fp16", true);
    assert_in(text, "Side by side", false);
    free(text);
}

/* Sets what the header of a file says of its board and its device. */
static void set_device(int file, const char *uuid, double power_limit_w, double memory_gb)
{
    json_t *device = json_object_get(files[file].header, "device");
    json_object_set_new(device, "uuid", json_string(uuid));
    json_object_set_new(device, "power_limit_w", json_real(power_limit_w));
    json_object_set_new(device, "memory_gb", json_real(memory_gb));
}

/* `first` stands before `second` in the text, and both are there. */
static void assert_before(const char *text, const char *first, const char *second)
{
    const char *one = strstr(text, first), *two = strstr(text, second);
    if (!one || !two || one > two)
        fail_msg("\"%s\" is not before \"%s\" in:\n%.6000s", first, second, text);
}

/* The page begins with the verdict; it says why one device is slower, counts boards, and has sustained before burst. */
static void page_begins_with_the_verdict(void **state)
{
    (void)state;
    add_set(0, "a", 100);
    add_set(1, "a", 150);
    add_set(2, "a", 149.9);
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < files[f].count; i++) {
            struct record_row *row = &files[f].rows[i];
            snprintf(row->commit, sizeof row->commit, "c%d", f > 0);
            row->sm_clock_mhz = f ? 1500 : 1000;
            row->power_capped_pct = f ? 0 : 80;
            row->gemm_tflops = f ? 400 : 300;
            if (f < 2)
                row->tflops_sustained = f ? 120 : 90;
        }
    set_device(0, "board-0", 300, 80);
    set_device(1, "board-1", 700, 141);
    set_device(2, "board-1", 700, 141);
    strcpy(input.currency, "EUR");
    labels[0].price = 1000;
    labels[1].price = 4000;
    make(2, 2);
    char *text = page_of(false);
    assert_in(
        text,
        "L1 is the fastest by the geometric mean of the published set: 120.0 TFLOPS sustained (150.0 burst); "
        "L0 has 90.00 (-25.0 %). L1 is alone in front at 16 of the 16 points that it shares, and tied there at 0. "
        "L0 gives the most for its price: 90.00 TFLOPS sustained per 1000 EUR. 32 of 32 rows passed their check.",
        true);
    assert_in(text, "> **Measured by different commits of fabench: L0 ", true);
    assert_in(text, "They differ in fabench", false); /* not in a bullet too */
    assert_in(text, "One board stands for a label here: a difference of a few per cent between labels", true);
    assert_before(text, "One board stands for a label", "L1 is the fastest");
    assert_before(text, "L1 is the fastest", "Measured by different commits");
    assert_before(text, "Measured by different commits", "## Comparable?");
    assert_in(text, "(2 labels, 2 boards, 2 records)", true);
    assert_in(
        text,
        "L0 runs at 66.7 % of the speed of L1 over the 16 points that both have (burst): SM clock 1000 MHz against "
        "1500 (-33.3 %); at its power cap 80 % of the time against 0 %; power limit 300 W against 700 W; its GEMM "
        "ceiling is -25.0 %.",
        true);
    assert_non_null(strstr(text, "of the set"));
    assert_before(strstr(text, "of the set"), " sustained |", " burst |");
    assert_before(text, "| price, EUR | memory |", "sustained TFLOPS per 1000 EUR");
    assert_before(text, "sustained TFLOPS per 1000 EUR", "burst TFLOPS per 1000 EUR");
    assert_in(text, " 80 GB |", true);
    assert_before(text, "| sustained TFLOPS |", "| burst TFLOPS |");
    free(text);
    make(3, 3); /* not all have sustained figures; L2 is within the intervals of L1, and its board is L1's */
    text = page_of(false);
    assert_in(text, "150.0 TFLOPS burst; L0 has 100.0 (-33.3 %), L2 has 149.9 (-0.1 %, a tie: the intervals overlap).",
              true);
    assert_in(text, "L1 has a sustained mean, 120.0, which not all have.", true);
    assert_in(text, "(3 labels, 2 boards, 3 records)", true);
    free(text);
}

static void set_boards(int file, const char *board)
{
    for (int i = 0; i < files[file].count; i++)
        snprintf(files[file].rows[i].board, sizeof files[file].rows[i].board, "%s", board);
}

/* One board is not a product; the page says so before it ranks. Two commits on one board may be compared. */
static void what_may_not_be_concluded(void **state)
{
    (void)state;
    static const struct {
        const char *boards[3], *words;
    } cases[] = {{{"0badcafe", "0badcafe", "0badcafe"}, NULL},
                 {{"0badcafe", "1badcafe", "1badcafe"}, "One board stands for a label here: a difference"},
                 {{"0badcafe", "1badcafe", "2badcafe"}, "One board stands for a label here: a difference"},
                 {{"0badcafe", "", "1badcafe"}, "Which boards were measured is not recorded: a difference"}};
    for (int f = 0; f < 3; f++)
        add_set(f, "a", 100 + f);
    labels[1].files[1] = 2;
    labels[1].file_count = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int f = 0; f < 3; f++)
            set_boards(f, cases[i].boards[f]);
        make(2, 3);
        char *text = page_of(false);
        if (cases[i].words)
            assert_before(text, cases[i].words, "is the fastest");
        else
            assert_in(text, "says nothing about a product", false);
        free(text);
    }
}

static void small_figures_are_gflops(void **state)
{
    (void)state;
    add_fwd(0, "a", 0.2);
    make(1, 1);
    char *text = page_of(false);
    assert_in(text, "burst GFLOPS", true);
    assert_in(text, "**200.0**", true);
    assert_in(text, "burst TFLOPS", false);
    free(text);
    text = page_of(true);
    assert_in(text, ",a,,0.2,", true); /* the CSV has TFLOPS always */
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(page_contents, begin, finish),
        cmocka_unit_test_setup_teardown(page_begins_with_the_verdict, begin, finish),
        cmocka_unit_test_setup_teardown(what_may_not_be_concluded, begin, finish),
        cmocka_unit_test_setup_teardown(small_figures_are_gflops, begin, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
