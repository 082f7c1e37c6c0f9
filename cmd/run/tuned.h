/* The file that `fabench tune` writes and --tuned reads: which variant of an implementation a problem gets.
 *
 * JSON lines. The first is an object of type "tuned" that says on which device and with which build the choices were
 * made; then one of type "choice" for each problem. A cut last line is no choice. */
#ifndef FABENCH_RUN_TUNED_H
#define FABENCH_RUN_TUNED_H

#include <jansson.h>

#include "cmd/base/impl_name.h"
#include "cmd/device/backend.h"
#include "cmd/problem/problem_key.h"

enum { TUNED_SCHEMA = 1 };

struct tuned_choice {
    struct problem_key key; /* what its inputs hold does not count: tuned_is_same */
    char impl[IMPL_NAME_SIZE], variant[IMPL_NAME_SIZE], built_in[IMPL_NAME_SIZE];
    int candidates;               /* variants that ran */
    double gain_pct;              /* of `fastest` over the built-in choice in the race; NaN = there was none */
    char fastest[IMPL_NAME_SIZE]; /* of all candidates in the first rounds */
};

struct tuned {
    json_t *header; /* NULL: the file has none yet */
    struct tuned_choice *choices;
    int count;
    int64_t whole_bytes; /* up to the end of the last whole line */
};

/* False with a sentence that begins with the path. An empty file is none. */
bool tuned_read(const char *path, struct tuned *, struct attn_message *why);
void tuned_free(struct tuned *);

/* The first line: this device and this build. The caller owns it. */
json_t *tuned_header(const struct device_info *);
json_t *tuned_line(const struct tuned_choice *);

/* Was it made on such a device with this build? Else false, with the first difference and both values. */
bool tuned_fits(const struct tuned *, const json_t *header, struct attn_message *why);

/* Do two problems ask the same work? The data and the random seeds of dropout may differ. */
bool tuned_is_same(const struct problem_key *, const struct problem_key *);

/* The choice for a problem; NULL = the file has none. */
const struct tuned_choice *tuned_find(const struct tuned *, const char *impl, const struct problem_key *);

#endif
