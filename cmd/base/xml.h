/* Text within XML and HTML. */
#ifndef FABENCH_BASE_XML_H
#define FABENCH_BASE_XML_H

#include <stdio.h>

/* Between elements, or in double quotes as an attribute. XML 1.0 has no control characters: they become spaces. */
void xml_put_text(FILE *, const char *text);

#endif
