/* Pages as Markdown, HTML and text, and that text from a record is never interpreted as markup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/report/page.h"

static char folder[] = "/tmp/fabench-page-XXXXXX";

static int begin(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return rmdir(folder);
}

enum format { MARKDOWN, TEXT, HTML };

static char *written(const struct page *page, enum format format)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    if (format == MARKDOWN)
        page_write_markdown(page, out, true);
    else if (format == TEXT)
        page_write_text(page, out, 40);
    else
        assert_true(page_write_html(page, out, folder));
    assert_int_equal(fclose(out), 0);
    return text;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void table_of(struct page *page)
{
    page_table(page, "lr");
    page_cell(page, CELL_PLAIN, "name");
    page_cell(page, CELL_PLAIN, "TFLOPS");
    page_cell(page, CELL_PLAIN, "H200");
    page_cell(page, CELL_STRONG, "%.1f", 655.0);
    page_cell(page, CELL_PLAIN, "B|200 \xc2\xb1");
    page_cell(page, CELL_PLAIN, "%s", "");
}

static void tables(void **state)
{
    struct page *page = page_open("T");
    (void)state;
    table_of(page);
    char *text = written(page, MARKDOWN);
    assert_string_equal(text, "# T\n\n"
                              "| name     |    TFLOPS |\n"
                              "| -------- | --------: |\n"
                              "| H200     | **655.0** |\n"
                              "| B\\|200 \xc2\xb1 |           |\n");
    free(text);
    text = written(page, TEXT);
    assert_string_equal(text, "T\n\n"
                              "name     TFLOPS\n"
                              "H200      655.0\n"
                              "B|200 \xc2\xb1\n");
    free(text);
    text = written(page, HTML);
    assert_has(text, "<th>name</th><th class=\"r\">TFLOPS</th></tr>");
    assert_has(text, "<td class=\"r s\">655.0</td></tr>");
    free(text);
    page_close(page);
}

static void text_is_only_text(void **state)
{
    struct page *page = page_open("<T> & \"t\"");
    (void)state;
    page_heading(page, 2, "%s", "a <script>x</script>");
    page_text(page, "%s", "two\nlines *not* [a](link) \x01 \xff");
    page_warning(page, "%s", "careful");
    page_item(page, "one");
    page_item(page, "two");
    char *text = written(page, HTML);
    assert_null(strstr(text, "<script"));
    assert_has(text, "<h2>a &lt;script&gt;x&lt;/script&gt;</h2>");
    assert_has(text, "<title>&lt;T&gt; &amp; &quot;t&quot;</title>");
    assert_has(text, "<p class=\"w\">careful</p>");
    assert_has(text, "<ul>\n<li>one</li>\n<li>two</li>\n</ul>");
    free(text);
    text = written(page, MARKDOWN);
    assert_has(text, "## a \\<script\\>x\\</script\\>\n");
    assert_has(text, "\ntwo lines \\*not\\* \\[a\\](link)   ?\n");
    assert_has(text, "> **careful**\n");
    assert_has(text, "- one\n- two\n");
    free(text);
    page_close(page);
}

static char *file_in_folder(const char *name, const char *content)
{
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(content, out) >= 0 && fclose(out) == 0);
    return path;
}

static void charts_are_in_the_page(void **state)
{
    struct page *page = page_open("T");
    (void)state;
    char *path = file_in_folder("c.svg", "<?xml version=\"1.0\"?>\n<svg><defs><circle id='gpDot'/></defs>"
                                         "<use xlink:href='#gpDot'/><g clip-path=\"url(#box)\"/></svg>\n");
    page_chart(page, "c", "a \"chart\"");
    page_chart(page, "c", "again");
    char *text = written(page, HTML);
    assert_null(strstr(text, "<?xml"));
    assert_has(text, "aria-label=\"a &quot;chart&quot;\"");
    assert_has(text, "<circle id='c0-gpDot'/></defs><use xlink:href='#c0-gpDot'/><g clip-path=\"url(#c0-box)\"/>");
    assert_has(text, "id='c1-gpDot'");
    free(text);
    text = written(page, MARKDOWN);
    assert_has(text, "![a \"chart\"](c.svg)");
    free(text);
    /* A missing chart is an error. */
    unlink(path);
    free(path);
    FILE *out = tmpfile();
    assert_non_null(out);
    assert_false(page_write_html(page, out, folder));
    fclose(out);
    page_close(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),
        cmocka_unit_test(text_is_only_text),
        cmocka_unit_test(charts_are_in_the_page),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
