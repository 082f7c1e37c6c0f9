/* A page of headings, sentences, tables and charts, written as Markdown and as HTML. Text is given plain: characters
 * that have a meaning in a format are escaped here. */
#ifndef FABENCH_DOCUMENT_H
#define FABENCH_DOCUMENT_H

#include <stdbool.h>
#include <stdio.h>

struct document;

enum document_emphasis { CELL_PLAIN, CELL_STRONG, CELL_BAD };

struct document *document_open(const char *title);
void document_close(struct document *);

__attribute__((format(printf, 3, 4))) void document_heading(struct document *, int level, const char *format, ...);
__attribute__((format(printf, 2, 3))) void document_text(struct document *, const char *format, ...);
/* A sentence that is set off from the text as a warning. */
__attribute__((format(printf, 2, 3))) void document_warning(struct document *, const char *format, ...);
/* One item of a list; items without another block between them form one list. */
__attribute__((format(printf, 2, 3))) void document_item(struct document *, const char *format, ...);
/* <dir>/<name>.svg, where dir is given when the page is written. */
void document_chart(struct document *, const char *name, const char *description);

/* A table of strlen(alignment) columns, 'l' or 'r' each; then its cells line by line, the names of the columns first.
 * An empty text is a cell that was not measured. */
void document_table(struct document *, const char *alignment);
__attribute__((format(printf, 3, 4))) void document_cell(struct document *, enum document_emphasis,
                                                         const char *format, ...);

/* Markdown; charts are links to the images, left out when `with_charts` is false. */
void document_write_markdown(const struct document *, FILE *, bool with_charts);

/* Plain text for a terminal: sentences wrapped, tables as wide as they are, no charts. */
void document_write_text(const struct document *, FILE *, int width);

/* HTML that needs no other file: the charts of `dir` stand in it as svg. False after a sentence where one cannot be
 * read. */
bool document_write_html(const struct document *, FILE *, const char *dir);

#endif
