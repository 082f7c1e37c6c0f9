/* Collects the blocks of a page and writes them as Markdown, text for a terminal and HTML. */
#include "cmd/report/page.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"
#include "cmd/base/xml.h"
#include "cmd/record/record.h"

enum block_kind { BLOCK_HEADING, BLOCK_TEXT, BLOCK_WARNING, BLOCK_ITEM, BLOCK_CHART, BLOCK_TABLE };

struct cell {
    char *text;
    enum page_emphasis emphasis;
};

struct block {
    enum block_kind kind;
    int level;  /* of a heading */
    char *text; /* a chart's name, a table's alignment */
    char *more; /* a chart's description */
    struct cell *cells;
    int cell_count;
};

struct page {
    char *title;
    struct block *blocks;
    int count;
};

/* ---- collecting ---- */

/* Formats to one line of valid UTF-8; the caller frees it. */
static char *format_clean(const char *format, va_list arguments)
{
    char *raw = NULL;
    struct text clean = {0};
    const int length = vasprintf(&raw, format, arguments);
    FABENCH_ASSERT(length >= 0, "%s", format);
    text_add_clean(&clean, raw);
    free(raw);
    return text_take(&clean);
}

static struct block *add(struct page *page, enum block_kind kind)
{
    page->blocks = xrealloc(page->blocks, (unsigned long)(page->count + 1) * sizeof *page->blocks);
    struct block *block = &page->blocks[page->count++];
    memset(block, 0, sizeof *block);
    block->kind = kind;
    return block;
}

#define TAKE_TEXT(target) \
    do { \
        va_list arguments; \
        va_start(arguments, format); \
        (target) = format_clean(format, arguments); \
        va_end(arguments); \
    } while (0)

struct page *page_open(const char *title)
{
    struct page *page = xcalloc(1, sizeof *page);
    page->title = xstrdup(title);
    return page;
}

void page_close(struct page *page)
{
    for (int i = 0; i < page->count; i++) {
        for (int k = 0; k < page->blocks[i].cell_count; k++)
            free(page->blocks[i].cells[k].text);
        free(page->blocks[i].cells);
        free(page->blocks[i].text);
        free(page->blocks[i].more);
    }
    free(page->blocks);
    free(page->title);
    free(page);
}

void page_heading(struct page *page, int level, const char *format, ...)
{
    struct block *block = add(page, BLOCK_HEADING);
    block->level = level;
    TAKE_TEXT(block->text);
}

void page_text(struct page *page, const char *format, ...) { TAKE_TEXT(add(page, BLOCK_TEXT)->text); }

void page_warning(struct page *page, const char *format, ...) { TAKE_TEXT(add(page, BLOCK_WARNING)->text); }

void page_item(struct page *page, const char *format, ...) { TAKE_TEXT(add(page, BLOCK_ITEM)->text); }

void page_chart(struct page *page, const char *name, const char *description)
{
    struct block *block = add(page, BLOCK_CHART);
    block->text = xstrdup(name);
    block->more = xstrdup(description);
}

void page_table(struct page *page, const char *alignment) { add(page, BLOCK_TABLE)->text = xstrdup(alignment); }

void page_cell(struct page *page, enum page_emphasis emphasis, const char *format, ...)
{
    FABENCH_ASSERT(page->count > 0 && page->blocks[page->count - 1].kind == BLOCK_TABLE, "a cell outside a table");
    struct block *table = &page->blocks[page->count - 1];
    table->cells = xrealloc(table->cells, (unsigned long)(table->cell_count + 1) * sizeof *table->cells);
    struct cell *cell = &table->cells[table->cell_count++];
    cell->emphasis = emphasis;
    TAKE_TEXT(cell->text);
}

/* ---- Markdown ---- */

static void add_markdown(struct text *to, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\`*_[]<>|#&", *text))
            text_add_char(to, '\\');
        text_add_char(to, *text);
    }
}

static void put_markdown(FILE *out, const char *text)
{
    struct text escaped = {0};
    add_markdown(&escaped, text);
    fputs(text_string(&escaped), out);
    text_free(&escaped);
}

static char *markdown_cell(const struct cell *cell)
{
    struct text text = {0};
    const char *mark = cell->emphasis == CELL_PLAIN || !cell->text[0] ? "" : "**";
    text_add(&text, "%s", mark);
    add_markdown(&text, cell->text);
    text_add(&text, "%s", mark);
    return text_take(&text);
}

/* Pads the columns with spaces, so that the Markdown source is readable as a table. */
static void put_markdown_table(FILE *out, const struct block *table)
{
    const int columns = (int)strlen(table->text);
    char **cells = xcalloc((unsigned long)table->cell_count + 1, sizeof *cells);
    int *widths = xcalloc((unsigned long)columns + 1, sizeof *widths);
    for (int i = 0; i < table->cell_count; i++) {
        cells[i] = markdown_cell(&table->cells[i]);
        const int width = wrap_columns(cells[i]);
        widths[i % columns] = width > widths[i % columns] ? width : widths[i % columns];
    }
    for (int i = 0; i < columns; i++)
        widths[i] = widths[i] < 3 ? 3 : widths[i];
    for (int i = 0; i < table->cell_count; i++) {
        const int column = i % columns, fill = widths[column] - wrap_columns(cells[i]);
        const bool is_right = table->text[column] == 'r';
        fprintf(out, "%s%*s%s%*s", column ? " | " : "| ", is_right ? fill : 0, "", cells[i], is_right ? 0 : fill, "");
        if (column < columns - 1)
            continue;
        fprintf(out, " |\n");
        for (int k = 0; i == columns - 1 && k < columns; k++) { /* below the names */
            fputs("| ", out);
            for (int dash = 1; dash < widths[k]; dash++)
                fputc('-', out);
            fputs(table->text[k] == 'r' ? ": " : "- ", out);
            if (k == columns - 1)
                fprintf(out, "|\n");
        }
    }
    for (int i = 0; i < table->cell_count; i++)
        free(cells[i]);
    free(cells);
    free(widths);
}

void page_write_markdown(const struct page *page, FILE *out, bool with_charts)
{
    fputs("# ", out);
    put_markdown(out, page->title);
    fputc('\n', out);
    for (int i = 0; i < page->count; i++) {
        const struct block *block = &page->blocks[i];
        const bool is_next_item = block->kind == BLOCK_ITEM && i > 0 && page->blocks[i - 1].kind == BLOCK_ITEM;
        if (block->kind == BLOCK_CHART && !with_charts)
            continue;
        if (!is_next_item)
            fputc('\n', out);
        switch (block->kind) {
        case BLOCK_HEADING:
            for (int k = 0; k < block->level; k++)
                fputc('#', out);
            fputc(' ', out);
            put_markdown(out, block->text);
            fputc('\n', out);
            break;
        case BLOCK_WARNING:
            fputs("> **", out);
            put_markdown(out, block->text);
            fputs("**\n", out);
            break;
        case BLOCK_TEXT:
        case BLOCK_ITEM:
            fputs(block->kind == BLOCK_ITEM ? "- " : "", out);
            put_markdown(out, block->text);
            fputc('\n', out);
            break;
        case BLOCK_CHART:
            fputs("![", out);
            put_markdown(out, block->more);
            fprintf(out, "](%s.svg)\n", block->text);
            break;
        case BLOCK_TABLE: put_markdown_table(out, block); break;
        }
    }
}

bool page_store_markdown(const struct page *page, const char *path, bool with_charts)
{
    FILE *out = fopen(path, "we");
    if (out)
        page_write_markdown(page, out, with_charts);
    const bool is_whole = out && fflush(out) == 0 && !ferror(out);
    const int error = errno;
    const bool is_closed = out && fclose(out) == 0;
    if (!is_whole || !is_closed)
        log_error("%s: %s", path_shown(path).text, strerror(is_whole ? errno : error));
    return is_whole && is_closed;
}

/* ---- terminal ---- */

static void put_text_table(FILE *out, const struct block *table)
{
    const int columns = (int)strlen(table->text);
    int *widths = xcalloc((unsigned long)columns + 1, sizeof *widths), spaces = 0;
    for (int i = 0; i < table->cell_count; i++) {
        const int width = wrap_columns(table->cells[i].text);
        widths[i % columns] = width > widths[i % columns] ? width : widths[i % columns];
    }
    for (int i = 0; i < table->cell_count; i++) {
        const int column = i % columns, fill = widths[column] - wrap_columns(table->cells[i].text);
        const bool is_right = table->text[column] == 'r';
        spaces += (column ? 2 : 0) + (is_right ? fill : 0);
        if (table->cells[i].text[0]) { /* spaces are printed only before text, so that no line ends in spaces */
            fprintf(out, "%*s%s", spaces, "", table->cells[i].text);
            spaces = 0;
        }
        spaces += is_right ? 0 : fill;
        if (column == columns - 1) {
            fputc('\n', out);
            spaces = 0;
        }
    }
    free(widths);
}

void page_write_text(const struct page *page, FILE *out, int width)
{
    fprintf(out, "%s\n", page->title);
    for (int i = 0; i < page->count; i++) {
        const struct block *block = &page->blocks[i];
        if (block->kind == BLOCK_CHART)
            continue;
        if (block->kind != BLOCK_ITEM || page->blocks[i - 1].kind != BLOCK_ITEM)
            fputc('\n', out);
        if (block->kind == BLOCK_TABLE) {
            put_text_table(out, block);
        } else {
            fputs(block->kind == BLOCK_ITEM ? "- " : "", out);
            wrap_words(out, width - 2 * (block->kind == BLOCK_ITEM), 0, 2, block->text);
        }
    }
}

/* ---- HTML ---- */

static const char style[] =
    "body{font:15px/1.45 system-ui,-apple-system,'Segoe UI',Arial,sans-serif;color:#1a1a1a;background:#fff;"
    "max-width:1180px;margin:1.5em auto;padding:0 1.2em}\n"
    "h1{font-size:1.7em;margin:.2em 0 .5em}h2{font-size:1.3em;margin:1.8em 0 .4em;border-bottom:1px solid #ccc}\n"
    "h3{font-size:1.08em;margin:1.5em 0 .4em}p{margin:.5em 0;max-width:75em}ul{margin:.4em 0;padding-left:1.4em}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;margin:.6em 0;font-size:.9em}\n"
    "th,td{padding:.22em .65em;border-bottom:1px solid #e2e2e2;vertical-align:top;text-align:left}\n"
    "th{border-bottom:2px solid #888;vertical-align:bottom}\n"
    ".r{text-align:right;font-variant-numeric:tabular-nums}td.r{white-space:nowrap}\n"
    "tr:hover td{background:#f5f8fb}.s{font-weight:600}.b{color:#b00020;font-weight:600}\n"
    ".w{border-left:5px solid #b00020;background:#fdf0f1;padding:.6em .9em;font-weight:600}\n"
    "figure{margin:1em 0}figure svg{width:100%;height:auto;max-width:1100px}\n"
    "@media print{body{font-size:11px;max-width:none}figure,tr{break-inside:avoid}}\n";

static void put_element(FILE *out, const char *begin, const char *text, const char *end)
{
    fputs(begin, out);
    xml_put_text(out, text);
    fprintf(out, "%s\n", end);
}

static void put_html_table(FILE *out, const struct block *table)
{
    static const char *const classes[] = {[CELL_PLAIN] = "", [CELL_STRONG] = "s", [CELL_BAD] = "b"};
    const int columns = (int)strlen(table->text);
    fputs("<div class=\"scroll\"><table>\n", out);
    for (int i = 0; i < table->cell_count; i++) {
        const int column = i % columns;
        const char *name = i < columns ? "th" : "td", *mark = classes[table->cells[i].emphasis];
        const bool is_right = table->text[column] == 'r';
        if (column == 0)
            fputs("<tr>", out);
        fprintf(out, "<%s", name);
        if (is_right || *mark)
            fprintf(out, " class=\"%s%s%s\"", is_right ? "r" : "", is_right && *mark ? " " : "", mark);
        fputc('>', out);
        xml_put_text(out, table->cells[i].text);
        fprintf(out, "</%s>%s", name, column == columns - 1 ? "</tr>\n" : "");
    }
    fputs("</table></div>\n", out);
}

/* gnuplot uses the same ids in every picture, but ids must be unique in a page: prefixes each id with the number of the
 * picture. */
static void put_svg(FILE *out, const char *svg, int number)
{
    static const char *const references[] = {"id='", "id=\"", "href='#", "href=\"#", "url(#"};
    while (*svg) {
        size_t length = 0;
        for (size_t i = 0; i < sizeof references / sizeof references[0] && !length; i++)
            if (strncmp(svg, references[i], strlen(references[i])) == 0)
                length = strlen(references[i]);
        if (length)
            fprintf(out, "%.*sc%d-", (int)length, svg, number);
        else
            fputc(*svg, out);
        svg += length ? length : 1;
    }
}

static char *read_whole(const char *path)
{
    struct text text = {0};
    char buffer[4096];
    FILE *in = fopen(path, "re");
    for (size_t count; in && (count = fread(buffer, 1, sizeof buffer, in)) > 0;)
        text_add_bytes(&text, buffer, count);
    const bool is_good = in && !ferror(in);
    if (!is_good)
        log_error("%s: %s", path, strerror(errno));
    if (in)
        fclose(in);
    if (is_good)
        return text_take(&text);
    text_free(&text);
    return NULL;
}

static bool put_chart(FILE *out, const struct block *chart, const char *dir, int number)
{
    char *path = xasprintf("%s/%s.svg", dir, chart->text), *svg = read_whole(path);
    const char *begin = svg ? strstr(svg, "<svg") : NULL;
    if (svg && !begin)
        log_error("%s: is no svg", path);
    if (begin) {
        fputs("<figure role=\"img\" aria-label=\"", out);
        xml_put_text(out, chart->more);
        fputs("\">\n", out);
        put_svg(out, begin, number);
        fputs("</figure>\n", out);
    }
    free(svg);
    free(path);
    return begin != NULL;
}

bool page_write_html(const struct page *page, FILE *out, const char *dir)
{
    bool good = true;
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
          out);
    put_element(out, "<title>", page->title, "</title>");
    fprintf(out, "<style>\n%s</style></head><body>\n", style);
    put_element(out, "<h1>", page->title, "</h1>");
    for (int i = 0; i < page->count; i++) {
        const struct block *block = &page->blocks[i];
        const bool was_item = i > 0 && page->blocks[i - 1].kind == BLOCK_ITEM;
        if (block->kind == BLOCK_ITEM && !was_item)
            fputs("<ul>\n", out);
        if (block->kind != BLOCK_ITEM && was_item)
            fputs("</ul>\n", out);
        switch (block->kind) {
        case BLOCK_HEADING:
            put_element(out, block->level == 2 ? "<h2>" : "<h3>", block->text, block->level == 2 ? "</h2>" : "</h3>");
            break;
        case BLOCK_TEXT: put_element(out, "<p>", block->text, "</p>"); break;
        case BLOCK_WARNING: put_element(out, "<p class=\"w\">", block->text, "</p>"); break;
        case BLOCK_ITEM: put_element(out, "<li>", block->text, "</li>"); break;
        case BLOCK_CHART: good &= put_chart(out, block, dir, i); break;
        case BLOCK_TABLE: put_html_table(out, block); break;
        }
    }
    if (page->count && page->blocks[page->count - 1].kind == BLOCK_ITEM)
        fputs("</ul>\n", out);
    fputs("</body></html>\n", out);
    return good;
}
