/* `fabench help reference`: docs/reference.md, made from the program's tables. */
#ifndef FABENCH_REFERENCE_PAGE_H
#define FABENCH_REFERENCE_PAGE_H

/* Prints the page as Markdown to stdout. It depends on nothing but tables: every build prints the same. */
void reference_page_print(void);

#endif
