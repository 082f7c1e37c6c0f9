/* FlashAttention-3 of the wheel dew-flash-attn-cu13: finds and loads its library, and calls one of its functions. */
#ifndef FABENCH_FA3_LIBRARY_H
#define FABENCH_FA3_LIBRARY_H

#include <attention.h>

#include "xla_ffi.h"

enum fa3_function { FA3_FORWARD, FA3_BACKWARD, FA3_PACKED_FORWARD, FA3_PACKED_BACKWARD, FA3_FUNCTIONS };
enum { FA3_MOST_BUFFERS = 8, FA3_MOST_ATTRIBUTES = 6, FA3_ALIGNMENT = 256 };

/* Memory that pieces are cut from. */
struct fa3_memory {
    char *next;
    size_t left;
};

/* Arguments or results of a call. */
struct fa3_list {
    int count;
    struct ffi_buffer buffers[FA3_MOST_BUFFERS];
    int64_t dims[FA3_MOST_BUFFERS][4];
    int32_t kinds[FA3_MOST_BUFFERS];
    void *items[FA3_MOST_BUFFERS];
};

/* Attributes of a call, to be added in the order of their names. */
struct fa3_attributes {
    int count;
    int32_t kinds[FA3_MOST_ATTRIBUTES];
    struct ffi_name names[FA3_MOST_ATTRIBUTES], *name_items[FA3_MOST_ATTRIBUTES];
    struct ffi_scalar scalars[FA3_MOST_ATTRIBUTES];
    void *items[FA3_MOST_ATTRIBUTES];
};

struct fa3_call {
    struct fa3_list arguments, results;
    struct fa3_attributes attributes;
    void *stream;
    int32_t ordinal;           /* of the device */
    struct fa3_memory scratch; /* what the function allocates is cut from it */
};

/* Loads the library at the first call. "" when it can be used, else why it cannot. */
const char *fa3_library_trouble(void);

size_t fa3_rounded_up(size_t n, size_t multiple);

/* A piece at a multiple of FA3_ALIGNMENT; NULL when too little is left. */
void *fa3_cut(struct fa3_memory *memory, size_t bytes);

void fa3_add_buffer(struct fa3_list *list, enum ffi_type type, const void *data, int rank, const int64_t dims[]);
void fa3_add_attribute(struct fa3_attributes *attributes, const char *name, enum ffi_type type, void *value);

/* Calls a function of the loaded library. */
enum attn_status fa3_run(enum fa3_function function, struct fa3_call *call, struct attn_message *why);

#endif
