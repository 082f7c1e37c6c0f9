/* A page of headings, text, lists, tables and charts, written as Markdown, HTML or text for a terminal. Text is passed
 * without markup: this module escapes the special characters of each format. */
#ifndef FABENCH_PAGE_H
#define FABENCH_PAGE_H

#include <stdbool.h>
#include <stdio.h>

struct page;

enum page_emphasis { CELL_PLAIN, CELL_STRONG, CELL_BAD };

/* The page is owned by the caller, who frees it with page_close. The page copies all text that it is given. */
struct page *page_open(const char *title);
void page_close(struct page *);

__attribute__((format(printf, 3, 4))) void page_heading(struct page *, int level, const char *format, ...);
__attribute__((format(printf, 2, 3))) void page_text(struct page *, const char *format, ...);
/* A highlighted warning. */
__attribute__((format(printf, 2, 3))) void page_warning(struct page *, const char *format, ...);
/* One item of a list. Consecutive items form one list. */
__attribute__((format(printf, 2, 3))) void page_item(struct page *, const char *format, ...);
/* The image <name>.svg; page_write_html takes its folder. */
void page_chart(struct page *, const char *name, const char *description);

/* Begins a table of strlen(alignment) columns, each 'l' or 'r'. Then page_cell adds its cells row by row, first the
 * names of the columns. An empty text means: not measured. */
void page_table(struct page *, const char *alignment);
__attribute__((format(printf, 3, 4))) void page_cell(struct page *, enum page_emphasis, const char *format, ...);

/* Markdown. Charts are links to the images, omitted when with_charts is false. */
void page_write_markdown(const struct page *, FILE *, bool with_charts);

/* The same as a new file. False after a sentence. */
bool page_store_markdown(const struct page *, const char *path, bool with_charts);

/* Text for a terminal: paragraphs wrapped at `width` columns, tables not wrapped, no charts. */
void page_write_text(const struct page *, FILE *, int width);

/* One HTML file that contains the charts of the folder `dir` as svg. False, after a message on stderr, when a chart
 * cannot be read. */
bool page_write_html(const struct page *, FILE *, const char *dir);

#endif
