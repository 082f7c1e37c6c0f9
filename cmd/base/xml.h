/* Text within XML and HTML. */
#ifndef FABENCH_BASE_XML_H
#define FABENCH_BASE_XML_H

#include <stdio.h>

/* Between elements, or in double quotes as an attribute. Control characters, which XML 1.0 does not have, are spaces. */
void xml_put_text(FILE *, const char *text);

#endif
