/* The part of the XLA FFI C interface (major version 0) that a caller of a handler needs: what it fills in for a call,
 * and what the handler asks back. Declared here from the interface's layout, so that no header of XLA is needed; the
 * assertions at the end hold the layout for 64-bit Linux.
 *
 * Every struct begins with its size in bytes and a list of extensions. An error is a pointer that only its maker reads;
 * NULL is success.
 */
#ifndef FABENCH_XLA_FFI_H
#define FABENCH_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

enum { FFI_MAJOR = 0, FFI_MINOR = 1 };
enum ffi_type { FFI_PRED = 1, FFI_S32 = 4, FFI_S64 = 5, FFI_F16 = 10, FFI_F32 = 11, FFI_F64 = 12, FFI_BF16 = 16 };
enum ffi_code { FFI_INVALID_ARGUMENT = 3, FFI_RESOURCE_EXHAUSTED = 8, FFI_UNIMPLEMENTED = 12 };
enum { FFI_BUFFER = 1, FFI_SCALAR = 3 }; /* kinds of an argument or result, and of an attribute */
enum { FFI_EXECUTE = 3 };                /* the stage of a call that computes */
enum { FFI_METADATA = 1 };               /* the extension that asks for the handler's version */

struct ffi_extension {
    size_t bytes;
    int32_t kind;
    struct ffi_extension *next;
};

struct ffi_head {
    size_t bytes;
    struct ffi_extension *extensions;
};

struct ffi_version {
    struct ffi_head head;
    int32_t major_version, minor_version;
};

struct ffi_metadata {
    size_t bytes;
    struct ffi_version version;
    uint32_t traits;
    int64_t state_type;
};

struct ffi_metadata_extension {
    struct ffi_extension extension;
    struct ffi_metadata *metadata;
};

struct ffi_buffer {
    struct ffi_head head;
    int32_t type;
    void *data;
    int64_t rank;
    const int64_t *dims;
};

struct ffi_scalar {
    int32_t type;
    void *value;
};

struct ffi_name {
    const char *text;
    size_t length;
};

/* The arguments, or the results. */
struct ffi_list {
    struct ffi_head head;
    int64_t count;
    const int32_t *kinds;
    void *const *items;
};

/* Sorted by name. */
struct ffi_attributes {
    struct ffi_head head;
    int64_t count;
    const int32_t *kinds;
    struct ffi_name *const *names;
    void *const *items;
};

struct ffi_interface;

struct ffi_call {
    struct ffi_head head;
    const struct ffi_interface *interface;
    void *context; /* the caller's own; handed back with every question */
    int32_t stage;
    struct ffi_list arguments, results;
    struct ffi_attributes attributes;
    void *future; /* not counted in head.bytes */
};

typedef void *ffi_handler(struct ffi_call *);

/* What a handler asks its caller; each question has a struct, whose last fields are the answer. */
struct ffi_error_create {
    struct ffi_head head;
    const char *message;
    int32_t code;
};

struct ffi_error_details {
    struct ffi_head head;
    void *error;
    const char *message;
    int32_t code;
};

struct ffi_stream {
    struct ffi_head head;
    void *context, *stream;
};

struct ffi_memory {
    struct ffi_head head;
    void *context;
    size_t size, alignment;
    void *data;
};

struct ffi_device {
    struct ffi_head head;
    void *context;
    int32_t ordinal;
};

typedef void *ffi_question(void *question);

struct ffi_interface {
    struct ffi_head head;
    struct ffi_version version;
    const void *internal;
    void *(*error_create)(struct ffi_error_create *);
    void (*error_details)(struct ffi_error_details *);
    void (*error_destroy)(void *question);
    ffi_question *handler_register;
    void *(*stream)(struct ffi_stream *);
    ffi_question *type_register, *context_get, *state_set, *state_get;
    void *(*allocate)(struct ffi_memory *);
    ffi_question *release;
    ffi_question *schedule, *thread_count, *future_create, *future_available, *future_error, *run_id;
    void *(*device)(struct ffi_device *);
    ffi_question *find_extension, *options;
};

#define FFI_AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
FFI_AT(ffi_metadata, version, 8);
FFI_AT(ffi_metadata, traits, 32);
FFI_AT(ffi_metadata_extension, metadata, 24);
FFI_AT(ffi_buffer, data, 24);
FFI_AT(ffi_buffer, dims, 40);
FFI_AT(ffi_call, stage, 32);
FFI_AT(ffi_call, arguments, 40);
FFI_AT(ffi_call, results, 80);
FFI_AT(ffi_call, attributes, 120);
FFI_AT(ffi_call, future, 168);
FFI_AT(ffi_error_details, message, 24);
FFI_AT(ffi_memory, data, 40);
FFI_AT(ffi_device, ordinal, 24);
FFI_AT(ffi_interface, error_create, 48);
FFI_AT(ffi_interface, stream, 80);
FFI_AT(ffi_interface, allocate, 120);
FFI_AT(ffi_interface, release, 128);
FFI_AT(ffi_interface, device, 184);
_Static_assert(sizeof(struct ffi_interface) == 208, "ffi_interface");
#undef FFI_AT

#endif
