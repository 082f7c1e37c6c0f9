/* A stand-in for FlashAttention-3's library, for tests/unit/peers: writes down how it was called, as text, and asks its
 * caller what the real one asks. Compiled with the build ID of the real one (fake_fa3) and with another
 * (fake_fa3_other); with FAKE_MAJOR it speaks another version of the interface. */
#include <stdio.h>
#include <string.h>

#include "examples/peers/flash_attention_3/xla_ffi.h"

#ifndef FAKE_MAJOR
#define FAKE_MAJOR FFI_MAJOR
#endif
#define VISIBLE __attribute__((visibility("default")))

VISIBLE char fake_fa3_seen[4096];     /* the last call */
VISIBLE size_t fake_fa3_scratch = 64; /* bytes that a call allocates */
VISIBLE const char *fake_fa3_error;   /* what a call fails with, or NULL */
VISIBLE int fake_fa3_error_code = FFI_INVALID_ARGUMENT;
VISIBLE void *fake_fa3_given; /* the scratch that it was given */

static void note(const char *text)
{
    const size_t length = strlen(fake_fa3_seen);
    snprintf(fake_fa3_seen + length, sizeof fake_fa3_seen - length, "%s", text);
}

static void note_list(const char *name, const struct ffi_list *list)
{
    char text[200];
    note(name);
    for (int64_t i = 0; i < list->count; i++) {
        const struct ffi_buffer *b = list->items[i];
        snprintf(text, sizeof text, " %s%d:%p(", list->kinds[i] == FFI_BUFFER ? "" : "?", b->type, b->data);
        note(text);
        for (int64_t d = 0; d < b->rank; d++) {
            snprintf(text, sizeof text, d ? ",%lld" : "%lld", (long long)b->dims[d]);
            note(text);
        }
        note(")");
    }
    note("\n");
}

static void note_attributes(const struct ffi_attributes *a)
{
    for (int64_t i = 0; i < a->count; i++) {
        char text[200];
        const struct ffi_scalar *s = a->items[i];
        const double value = s->type == FFI_PRED  ? *(const _Bool *)s->value
                             : s->type == FFI_S64 ? (double)*(const int64_t *)s->value
                             : s->type == FFI_F64 ? *(const double *)s->value
                                                  : -1e9;
        snprintf(text, sizeof text, "%s%.*s=%g", i ? " " : "", (int)a->names[i]->length, a->names[i]->text, value);
        note(text);
    }
    note("\n");
}

static void *answer_version(struct ffi_call *call)
{
    struct ffi_metadata *metadata = ((struct ffi_metadata_extension *)call->head.extensions)->metadata;
    metadata->version.major_version = FAKE_MAJOR;
    metadata->version.minor_version = 1;
    return NULL;
}

static void *called(const char *name, struct ffi_call *call)
{
    if (call->head.extensions && call->head.extensions->kind == FFI_METADATA)
        return answer_version(call);
    fake_fa3_seen[0] = 0;
    note(name);
    note("\n");
    note_list("arguments", &call->arguments);
    note_list("results", &call->results);
    note_attributes(&call->attributes);

    struct ffi_stream stream = {{sizeof stream, NULL}, call->context, NULL};
    struct ffi_device device = {{sizeof device, NULL}, call->context, -1};
    struct ffi_memory memory = {{sizeof memory, NULL}, call->context, fake_fa3_scratch, 16, NULL};
    void *error = call->interface->stream(&stream);
    error = error ? error : call->interface->device(&device);
    error = error ? error : call->interface->allocate(&memory);
    fake_fa3_given = memory.data;
    if (!error && fake_fa3_error) {
        struct ffi_error_create create = {{sizeof create, NULL}, fake_fa3_error, fake_fa3_error_code};
        error = call->interface->error_create(&create);
    }
    char text[100];
    snprintf(text, sizeof text, "stream %p device %d", stream.stream, device.ordinal);
    note(text);
    return error;
}

VISIBLE void *dew_flash3_mha_fwd(struct ffi_call *call) { return called("fwd", call); }
VISIBLE void *dew_flash3_mha_bwd(struct ffi_call *call) { return called("bwd", call); }
VISIBLE void *dew_flash3_mha_varlen_fwd(struct ffi_call *call) { return called("varlen_fwd", call); }
VISIBLE void *dew_flash3_mha_varlen_bwd(struct ffi_call *call) { return called("varlen_bwd", call); }
