/* The presets full and decode: slices through what the kernels take, each a crossing of a few lists. All lists crossed
 * would be thousands of problems. Of plan.c alone. */
#ifndef FABENCH_PLAN_FULL_H
#define FABENCH_PLAN_FULL_H

#include "cmd/options/options.h"

enum { PLAN_SLICE_SHAPES = 4 };

/* Values for options that were not given, as typed; NULL or 0 = as without the option. Masks and modes are crossed with
 * all of them. A slice has lens or lengths. */
struct plan_slice {
    const char *head_dims, *lens, *kv_lens;
    const char *windows_left, *windows_right;
    const char *batches;
    int64_t shapes[PLAN_SLICE_SHAPES][2]; /* query heads and key heads; zeros end them */
    const char *lengths, *block_masks;
    double dropout, softcap;
    int64_t page_size;
    bool is_fp16;  /* on a GPU: fp16 instead of bf16 */
    bool is_cache; /* of the preset decode */
};

const struct plan_slice *plan_slices(enum preset, enum attn_platform, int *count);

/* False of other presets; where inputs come from files; of full, where the options say lengths, decode or 8-bit types:
 * then they are crossed as in other presets. */
bool plan_has_slices(enum preset, const struct options *);

/* False where K and V of a cache together are larger than the preset decode has them: what leaves room for the
 * reference on a GPU with 80 GB. */
bool plan_cache_fits(const struct attn_problem *);

/* The options of one slice: those that were given, and the slice's for the others. */
struct slice_options {
    struct options options; /* owns nothing */
    struct int_list lists[7];
    struct name_list texts[2];
    int list_count, text_count;
};

/* False where an option was given that this slice is about: other slices have its problems then. True: free it with
 * slice_options_free. `given` must live as long. */
bool slice_options_make(const struct plan_slice *, const struct options *given, enum attn_platform,
                        struct slice_options *);
void slice_options_free(struct slice_options *);

#endif
