/* The values of a problem's inputs: made from the seed, read from files, quantised to 8 bits; and the results of
 * another program, read from files. */
#ifndef FABENCH_INPUTS_H
#define FABENCH_INPUTS_H

#include "cmd/device/buffers.h"

/* Inputs of a mode: q k v (fwd), q k v o lse dout (bwd; o and lse are filled by the reference), and the item's arrays.
 * Filled from the seed or, with input_dir, from <input_dir>/{q,k,v,do}.npy. 8-bit inputs are made in bf16, from the
 * seed or from floats in the files, and quantised (reference/harness/quantise.h); 8-bit integers in the files are taken
 * as they are, with <input_dir>/scale_{q,k,v}.npy. */
enum attn_status inputs_make(struct backend *, const struct plan_item *, const char *input_dir, struct tensor_set *,
                             struct attn_message *why);
/* The same values again into the memory that inputs_make has allocated; not o and lse. */
enum attn_status inputs_fill(struct backend *, const struct plan_item *, const char *input_dir, struct tensor_set *,
                             struct attn_message *why);
/* The same for dO alone. */
enum attn_status input_fill_dout(struct backend *, const struct plan_item *, const char *input_dir, struct tensor_set *,
                                 struct attn_message *why);
/* True for 8-bit inputs that are made from others: then inputs_make_before makes those, in bf16, a set of its own. */
bool inputs_are_quantised(const struct plan_item *, const char *input_dir);
enum attn_status inputs_make_before(struct backend *, const struct plan_item *, const char *input_dir,
                                    struct plan_item *before, struct tensor_set *, struct attn_message *why);

/* Quantising for --quant-in-time: inputs as they were before, and memory of its own for what comes of them, so that it
 * leaves the inputs of the launches as they are. ATTN_UNSUPPORTED with a sentence where the device does not do it. */
struct quantising {
    struct tensor_set before, to;
    struct buffer workspace;
    struct quantiser quantiser;
};
enum attn_status quantising_make(struct backend *, const struct plan_item *, struct quantising *,
                                 struct attn_message *why);
void quantising_free(struct backend *, struct quantising *);

/* Checks before any work that the files of <input_dir> have the item's shapes and finite values in its dtype. False
 * with a sentence naming the file. */
bool inputs_readable(const struct plan_item *, const char *input_dir, struct attn_message *why);

/* Uploads the item's arrays, and the set's scale_values, to where inputs_allocate has made room for them. */
enum attn_status inputs_upload_arrays(struct backend *, const struct plan_item *, struct tensor_set *,
                                      struct attn_message *why);
enum attn_status inputs_upload_scales(struct backend *, struct tensor_set *, struct attn_message *why);
/* Puts the item's arrays in host memory in the place of those on the device. */
void inputs_point_at_host_arrays(const struct plan_item *, struct attn_tensors *);
/* True when the arrays of lengths, masks and scales are what they were made from. */
enum attn_status inputs_arrays_hold(struct backend *, const struct plan_item *, const struct tensor_set *, bool *holds,
                                    struct attn_message *why);

/* Results of another program: <dir>/{o,lse}.npy or {dq,dk,dv}.npy into the set's buffers, rounded to their dtypes;
 * values that are not finite are taken as they are. lse.npy may be absent. `found`: the attn_output bits of those that
 * are there. ATTN_UNSUPPORTED with a sentence that names the file of the tensor `bad` where one is absent or does not
 * fit. */
enum attn_status outputs_read(struct backend *, const struct plan_item *, const char *dir, struct tensor_set *outputs,
                              unsigned *found, enum problem_tensor *bad, struct attn_message *why);

/* The element at which a row of the file lies in memory; -1 behind the used keys of a cache, where the file has NaN. */
int64_t tensor_file_row(const struct plan_item *, const struct attn_tensors *, enum problem_tensor, int64_t batch,
                        int64_t head, int64_t row);

#endif
