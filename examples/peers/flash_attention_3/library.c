/* The library's functions are handlers of the XLA FFI C interface. This file is their caller: it fills in a call and
 * serves what they ask back: the stream, the device, scratch and errors. */
#define _GNU_SOURCE /* dladdr, dlinfo */
#include "library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define WHEEL "dew-flash-attn-cu13 0.3.6"
#define LIBRARY "dew_flash_attn/libdew_flash_attn3.so" /* its path in the wheel, below this plugin's folder */

/* The build ID that the linker wrote into the library of this wheel. Another build may have other kernels, other
 * arguments and other sizes of scratch. */
static const unsigned char build_id[] = {0x15, 0xbc, 0x21, 0xfb, 0xab, 0x08, 0x96, 0xd1, 0x2f, 0xc1,
                                         0xd8, 0x99, 0xe3, 0xa3, 0xe7, 0x16, 0xce, 0x08, 0x8e, 0x88};

static const char *const function_names[FA3_FUNCTIONS] = {"dew_flash3_mha_fwd", "dew_flash3_mha_bwd",
                                                          "dew_flash3_mha_varlen_fwd", "dew_flash3_mha_varlen_bwd"};
static ffi_handler *functions[FA3_FUNCTIONS];
static char trouble[sizeof((struct attn_message *)0)->text];

#define SIZED(object) \
    { \
        sizeof(object), NULL \
    }

/* ---- what a function asks back ---- */

/* The error of a call; one at a time in a thread. */
static _Thread_local struct failure {
    int32_t code;
    char text[400];
} failure;

static void *fail(int32_t code, const char *text)
{
    failure.code = code;
    snprintf(failure.text, sizeof failure.text, "%s", text && text[0] ? text : "the library gives no reason");
    for (char *c = failure.text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    return &failure;
}

static void *on_error_create(struct ffi_error_create *question) { return fail(question->code, question->message); }

static void on_error_details(struct ffi_error_details *question)
{
    const struct failure *error = question->error;
    question->message = error->text;
    question->code = error->code;
}

static void on_error_destroy(void *question) { (void)question; }

static void *on_stream(struct ffi_stream *question)
{
    question->stream = ((struct fa3_call *)question->context)->stream;
    return NULL;
}

static void *on_device(struct ffi_device *question)
{
    question->ordinal = ((struct fa3_call *)question->context)->ordinal;
    return NULL;
}

static void *on_allocate(struct ffi_memory *question)
{
    struct fa3_memory *scratch = &((struct fa3_call *)question->context)->scratch;
    question->data = question->alignment <= FA3_ALIGNMENT ? fa3_cut(scratch, question->size) : NULL;
    if (question->data)
        return NULL;
    char text[200];
    snprintf(text, sizeof text, "the library asks for %zu bytes of scratch at multiples of %zu; %zu bytes are left",
             question->size, question->alignment, scratch->left);
    return fail(FFI_RESOURCE_EXHAUSTED, text);
}

/* All work of a call is in one stream and the scratch belongs to the call, so there is nothing to do. */
static void *on_release(void *question)
{
    (void)question;
    return NULL;
}

static void *on_other(void *question)
{
    (void)question;
    return fail(FFI_UNIMPLEMENTED, "the library asks for something that this plugin does not serve");
}

static const struct ffi_interface interface = {
    .head = SIZED(struct ffi_interface),
    .version = {SIZED(struct ffi_version), FFI_MAJOR, FFI_MINOR},
    .error_create = on_error_create,
    .error_details = on_error_details,
    .error_destroy = on_error_destroy,
    .handler_register = on_other,
    .stream = on_stream,
    .type_register = on_other,
    .context_get = on_other,
    .state_set = on_other,
    .state_get = on_other,
    .allocate = on_allocate,
    .release = on_release,
    .schedule = on_other,
    .thread_count = on_other,
    .future_create = on_other,
    .future_available = on_other,
    .future_error = on_other,
    .run_id = on_other,
    .device = on_device,
    .find_extension = on_other,
    .options = on_other,
};

/* ---- finding and loading ---- */

/* The bytes of the build ID in one segment of notes, or NULL. */
static const unsigned char *id_among_notes(const char *notes, size_t bytes, size_t *length)
{
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
        const ElfW(Nhdr) *note = (const void *)(notes + at);
        const char *name = notes + at + sizeof *note;
        const char *content = name + fa3_rounded_up(note->n_namesz, 4);
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
            *length = note->n_descsz;
            return (const unsigned char *)content;
        }
        at = (size_t)(content - notes) + fa3_rounded_up(note->n_descsz, 4);
    }
    return NULL;
}

static bool is_known_build(void *library)
{
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return false;
    const char *base = (const char *)map->l_addr; /* where the file's header lies: its first segment begins at 0 */
    const ElfW(Ehdr) *header = (const void *)base;
    const ElfW(Phdr) *segments = (const void *)(base + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++) {
        size_t length = 0;
        const unsigned char *id = segments[i].p_type == PT_NOTE
                                      ? id_among_notes(base + segments[i].p_vaddr, segments[i].p_memsz, &length)
                                      : NULL;
        if (id)
            return length == sizeof build_id && memcmp(id, build_id, sizeof build_id) == 0;
    }
    return false;
}

/* Asks a function which version of the interface it was compiled for. */
static bool speaks_our_version(ffi_handler *function)
{
    struct ffi_metadata metadata = {.bytes = sizeof metadata, .version = {.head = SIZED(metadata.version)}};
    struct ffi_metadata_extension extension = {{sizeof extension, FFI_METADATA, NULL}, &metadata};
    struct ffi_call call = {.head = {offsetof(struct ffi_call, future), &extension.extension},
                            .interface = &interface,
                            .stage = FFI_EXECUTE};
    if (function(&call)) {
        snprintf(trouble, sizeof trouble, "the library of FlashAttention-3 does not say its version: %s", failure.text);
        return false;
    }
    if (metadata.version.major_version != FFI_MAJOR) {
        snprintf(trouble, sizeof trouble, "the library of FlashAttention-3 speaks XLA FFI %d.%d, this plugin %d.%d",
                 metadata.version.major_version, metadata.version.minor_version, FFI_MAJOR, FFI_MINOR);
        return false;
    }
    return true;
}

/* FABENCH_FA3 or, beside this plugin, the file as it lies in the wheel. */
static void path_of_library(char *path, size_t size)
{
    const char *named = getenv("FABENCH_FA3");
    Dl_info self;
    if (named && named[0]) {
        snprintf(path, size, "%s", named);
        return;
    }
    const char *slash = dladdr((void *)build_id, &self) ? strrchr(self.dli_fname, '/') : NULL;
    snprintf(path, size, "%.*s" LIBRARY, slash ? (int)(slash + 1 - self.dli_fname) : 0, slash ? self.dli_fname : "");
}

static bool find_functions(void *library, const char *path)
{
    if (!is_known_build(library)) {
        snprintf(trouble, sizeof trouble, "%.300s is not the library of the wheel " WHEEL ", the only one that is used",
                 path);
        return false;
    }
    for (int i = 0; i < FA3_FUNCTIONS; i++) {
        void *const symbol = dlsym(library, function_names[i]);
        if (!symbol) {
            snprintf(trouble, sizeof trouble, "%.300s has no function %s", path, function_names[i]);
            return false;
        }
        memcpy(&functions[i], &symbol, sizeof symbol);
        if (!speaks_our_version(functions[i]))
            return false;
    }
    return true;
}

static void load(void)
{
    char path[4096];
    path_of_library(path, sizeof path);
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(trouble, sizeof trouble,
                 "cannot load FlashAttention-3: %.300s (build.sh of this plugin fetches it; FABENCH_FA3 names it)",
                 dlerror());
    else if (!find_functions(library, path))
        dlclose(library);
}

const char *fa3_library_trouble(void)
{
    static bool is_loaded;
    if (!is_loaded) {
        is_loaded = true;
        load();
    }
    return trouble;
}

/* ---- a call ---- */

size_t fa3_rounded_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

void *fa3_cut(struct fa3_memory *memory, size_t bytes)
{
    const size_t rounded = fa3_rounded_up(bytes, FA3_ALIGNMENT);
    if (rounded < bytes || rounded > memory->left)
        return NULL;
    char *const piece = memory->next;
    memory->next += rounded;
    memory->left -= rounded;
    return piece;
}

void fa3_add_buffer(struct fa3_list *list, enum ffi_type type, const void *data, int rank, const int64_t dims[])
{
    const int i = list->count++;
    memcpy(list->dims[i], dims, (size_t)rank * sizeof dims[0]);
    list->buffers[i] = (struct ffi_buffer){SIZED(struct ffi_buffer), (int32_t)type, (void *)data, rank, list->dims[i]};
    list->kinds[i] = FFI_BUFFER;
    list->items[i] = &list->buffers[i];
}

void fa3_add_attribute(struct fa3_attributes *a, const char *name, enum ffi_type type, void *value)
{
    const int i = a->count++;
    a->kinds[i] = FFI_SCALAR;
    a->names[i] = (struct ffi_name){name, strlen(name)};
    a->name_items[i] = &a->names[i];
    a->scalars[i] = (struct ffi_scalar){(int32_t)type, value};
    a->items[i] = &a->scalars[i];
}

enum attn_status fa3_run(enum fa3_function function, struct fa3_call *call, struct attn_message *why)
{
    if (trouble[0]) {
        snprintf(why->text, sizeof why->text, "%s", trouble);
        return ATTN_ERROR;
    }
    struct fa3_list *in = &call->arguments, *out = &call->results;
    struct fa3_attributes *a = &call->attributes;
    struct ffi_call made = {
        .head = {offsetof(struct ffi_call, future), NULL},
        .interface = &interface,
        .context = call,
        .stage = FFI_EXECUTE,
        .arguments = {SIZED(struct ffi_list), in->count, in->kinds, in->items},
        .results = {SIZED(struct ffi_list), out->count, out->kinds, out->items},
        .attributes = {SIZED(struct ffi_attributes), a->count, a->kinds, a->name_items, a->items},
    };
    if (!functions[function](&made))
        return ATTN_OK;
    snprintf(why->text, sizeof why->text, "FlashAttention-3: %s", failure.text);
    return failure.code == FFI_INVALID_ARGUMENT ? ATTN_UNSUPPORTED : ATTN_ERROR;
}
