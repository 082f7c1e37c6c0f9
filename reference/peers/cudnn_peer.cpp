/* cuDNN as a peer: forward and backward attention through the cuDNN graph API (the header-only cudnn-frontend).
 *
 * Loading. The front end is compiled for dynamic loading: it calls cuDNN through the handle cudnn_dlhandle, which
 * cudnn_loading.cpp opens, so that the user's path has priority and the program starts without cuDNN.
 *
 * Mathematics. The front end's Stats tensor is max + ln(sum exp) of the scaled scores: the contract's LSE, natural
 * logarithm with the scale included (cudnn-frontend, docs/operations/Attention.md, set_stats_use_log2), fp32 [batch,
 * q_heads, q_len, 1]. No conversion is needed. Masks are a diagonal band (cudnn_problem.h); top left where q_len =
 * kv_len, so that cuDNN sees what frameworks send it, bottom right otherwise. Softcap is the front end's score
 * modifier; it takes no mask beside one, so the modifier applies the mask too.
 *
 * Packed sequences. cuDNN gets the tensors where they are, with the element where each sequence begins (a ragged offset
 * for each tensor) and the lengths. Both are made by prepare, because the lengths of a problem do not change, and
 * belong to the plan. Sequences without queries are left out. LSE has a ragged offset too, with the strides of
 * [q_heads, total_q].
 *
 * Sinks, biases, head dims. A sink is the front end's sink token, fp32 [1, q_heads, 1, 1], not scaled; a bias is added
 * behind the scale, in the type of the problem's. With fixed lengths only.
 *
 * Dropout. cuDNN's own generator gives a mask that is not the problem's, which could not be judged. So cuDNN gets the
 * problem's mask as a tensor of the inputs' type that prepare writes, [batch, q_heads, q_len, kv_len]. Reading it takes
 * longer than generating one: the name of the variant ends in "_given_mask", so that a row says what was timed.
 *
 * Plans. cuDNN compiles and chooses per shape and stride, and only then knows the size of the workspace. So prepare
 * builds the plan, its handle and its device workspace (plan_bytes tells how much) and launch enqueues: no allocation,
 * no wait, capturable. A CUDA graph captured from a launch reads the plan's memory: destroy it before release. A plan
 * serves one launch at a time.
 *
 * Refused, with a reason: what the front end's own checks refuse for this version and architecture, and masks under
 * which a row sees no key (cuDNN does not define its result). Beyond dense attention, versions before 9.19: 9.14 is
 * wrong for some windows, and none of them has been verified. Also defects of cuDNN 9.19's backward that `verify` found
 * on an H200: a launch of more than 65535 batches fails; with element offsets past 2^31 (relative RMS error 0.1 to
 * 0.7), and with a dropout mask of the caller (0.015 at dropout 0.1 to 200), dQ and dK are wrong, while dV and the
 * forward are right. Not promised: LSE bit-equal over runs; with q_len = 1 the last bits differed. */
#include "reference/peers/cudnn_peer.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "reference/lengths.h"
#include "reference/peers/cudnn_graph.h"
#include "reference/peers/cudnn_loading.h"
#include "reference/peers/cudnn_mask.h"
#include "reference/peers/cudnn_problem.h"
#include "reference/status.h"

namespace cudnn_frontend {
void *cudnn_dlhandle = nullptr; /* the front end's; set by loaded_library */
}

namespace {

using namespace cudnn_graph;

struct plan {
    cudnnHandle_t handle;
    fe::graph::Graph graph;
    std::unordered_map<int64_t, void *> pointers; /* every key from the start, so that launch only assigns */
    size_t zeroed_bytes;                          /* of the workspace, before each launch */
    void *workspace, *arrays, *mask;              /* device memory; arrays: lengths and offsets of packed sequences */
    size_t bytes;                                 /* of the three */
    const int32_t *number; /* in arrays: which of the problem's sequences each is; NULL where they are not packed */
};

/* Version and names of the loaded library. */
struct library : cudnn_loaded {
    char variant[40];         /* "cudnn_9.19.0" */
    char dropout_variant[56]; /* "cudnn_9.19.0_given_mask" */
};

const struct library *loaded_library(void)
{
    static const struct library library = [] {
        struct library result = {};
        static_cast<struct cudnn_loaded &>(result) = *cudnn_loaded_library();
        fe::cudnn_dlhandle = result.handle;
        snprintf(result.variant, sizeof result.variant, "cudnn_%s", result.version);
        snprintf(result.dropout_variant, sizeof result.dropout_variant, "cudnn_%s_given_mask", result.version);
        return result;
    }();
    return &library;
}

/* Runs body and turns exceptions into a status, because none may reach the C caller. */
template <typename Body> enum attn_status without_exceptions(struct attn_message *why, const char *where, Body body)
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return cudnn_fail(why, ATTN_NO_MEMORY, "cudnn: %s: out of host memory", where);
    } catch (const std::exception &e) {
        return cudnn_fail(why, ATTN_ERROR, "cudnn: %s: %s", where, e.what());
    } catch (...) {
        return cudnn_fail(why, ATTN_ERROR, "cudnn: %s: an exception without a name", where);
    }
}

/* ---- the implementation ----------------------------------------------------------------------------------------- */

/* Contiguous strides of the problem's layout, for checks before the tensors exist. */
struct attn_tensor contiguous(const struct attn_problem *p, int64_t heads, int64_t len, int64_t head_dim)
{
    struct attn_tensor t = {};
    t.stride_batch = heads * len * head_dim;
    t.stride_head = p->layout == ATTN_BHSD ? len * head_dim : head_dim;
    t.stride_row = p->layout == ATTN_BHSD ? head_dim : heads * head_dim;
    return t;
}

/* The same of a bias, whose rows begin on 16-byte boundaries. */
struct attn_tensor contiguous_bias(const struct attn_problem *p)
{
    struct attn_tensor t = {};
    t.stride_row = (p->kv_len + 7) / 8 * 8;
    t.stride_head = p->q_len * t.stride_row;
    t.stride_batch = p->bias_heads * t.stride_head;
    return t;
}

/* Asks the front end whether the loaded version takes the problem: host arithmetic and host memory only, no handle, no
 * plan. The lengths of packed sequences are not known yet: all as long as the longest is what it refuses least. */
enum attn_status validate(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const bool packed = p->lengths == ATTN_PACKED;
    struct attn_tensors t = {};
    const int64_t q_len = packed ? p->total_q : p->q_len, kv_len = packed ? p->total_k : p->kv_len;
    t.q = t.dq = contiguous(p, p->q_heads, q_len, p->head_dim);
    t.o = t.dout = contiguous(p, p->q_heads, q_len, attn_v_head_dim(p));
    t.k = t.dk = contiguous(p, p->kv_heads, kv_len, p->head_dim);
    t.v = t.dv = contiguous(p, p->kv_heads, kv_len, attn_v_head_dim(p));
    t.bias = t.dbias = contiguous_bias(p);
    fe::graph::Graph graph;
    describe(&graph, request, &t, {p->batch, packed, p->q_len == p->kv_len, false});
    fe::error_t status = graph.validate();
    if (status.is_bad())
        return cudnn_fail(why, ATTN_UNSUPPORTED, "cuDNN %s: %s", loaded_library()->version,
                          status.get_message().c_str());
    return ATTN_OK;
}

/* Static; NULL without a library. */
const char *variant_name(const struct attn_problem *p)
{
    const struct library *library = loaded_library();
    if (!library->usable)
        return nullptr;
    return p->dropout != 0.0f ? library->dropout_variant : library->variant;
}

/* Beyond dense attention: what the front end does not check. */
enum attn_status check_attributes(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    if (attn_attributes(request) != 0 && loaded_library()->number < 91900)
        return cudnn_fail(why, ATTN_UNSUPPORTED,
                          "windows, softcap, dropout, packed lengths, sinks, biases and a V of another head_dim need "
                          "cuDNN 9.19 or newer (9.14 is wrong for some windows, the others are not verified); the "
                          "library loaded is %s",
                          loaded_library()->version);
    if ((p->has_sink || p->bias_heads > 0 || attn_v_head_dim(p) != p->head_dim) &&
        (p->lengths != ATTN_FIXED || p->softcap != 0.0f || p->dropout != 0.0f))
        return cudnn_fail(why, ATTN_UNSUPPORTED,
                          "a sink, a bias or a V of another head_dim with packed lengths, softcap or dropout: not "
                          "verified");
    if (p->lengths == ATTN_PACKED && request->mode == ATTN_FWD && p->q_len == 1 && p->q_heads != p->kv_heads &&
        loaded_library()->number >= 92600)
        return cudnn_fail(why, ATTN_UNSUPPORTED,
                          "packed sequences of one query each with grouped heads: cuDNN 9.26 and newer leave LSE of "
                          "most heads unwritten (cudnn-frontend, issue 1083)");
    return ATTN_OK;
}

enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct library *library = loaded_library();
    enum attn_status status = attn_check_attributes(
        request,
        ATTN_WITH_WINDOW | ATTN_WITH_DROPOUT | ATTN_WITH_SOFTCAP | ATTN_WITH_PACKED_LENGTHS | ATTN_WITH_V_HEAD_DIM |
            ATTN_WITH_SINK | ATTN_WITH_DSINK | ATTN_WITH_BIAS | ATTN_WITH_DBIAS,
        why);
    if (status != ATTN_OK)
        return status;
    if (!library->usable) {
        *why = library->why;
        return ATTN_UNSUPPORTED;
    }
    if (request->device->platform != ATTN_CUDA)
        return cudnn_fail(why, ATTN_UNSUPPORTED, "needs a CUDA device");
    if (request->device->sm < 80)
        return cudnn_fail(why, ATTN_UNSUPPORTED, "needs sm_80 or newer; this device is sm_%d", request->device->sm);
    if (request->variant && strcmp(request->variant, variant_name(p)) != 0)
        return cudnn_fail(why, ATTN_UNSUPPORTED, "no variant %s: the library loaded is %s", request->variant,
                          variant_name(p));
    if (p->dtype != ATTN_FP16 && p->dtype != ATTN_BF16)
        return cudnn_fail(why, ATTN_UNSUPPORTED, "takes fp16 and bf16, not fp32");
    if (p->lengths == ATTN_FIXED && !cudnn_every_row_sees_a_key(p))
        return cudnn_fail(why, ATTN_UNSUPPORTED,
                          "rows that see no key: the mask with q_len %" PRId64 " > kv_len %" PRId64
                          ", undefined in cuDNN",
                          p->q_len, p->kv_len);
    if (request->mode == ATTN_BWD && p->batch > 65535)
        return cudnn_fail(why, ATTN_UNSUPPORTED, "backward of more than 65535 batches: cuDNN's launch fails");
    if (request->mode == ATTN_BWD && p->dropout != 0.0f)
        return cudnn_fail(why, ATTN_UNSUPPORTED,
                          "backward with dropout: with a mask of the caller cuDNN's dQ and dK are wrong");
    status = check_attributes(request, why);
    if (status != ATTN_OK)
        return status;
    return without_exceptions(why, "validate", [&] { return validate(request, why); });
}

/* Elements from the first to the last of a tensor; `len` is the total of packed rows. */
int64_t last_element(const struct attn_tensor *t, int64_t batch, int64_t heads, int64_t len, int64_t head_dim)
{
    return t->data ? (batch - 1) * t->stride_batch + (heads - 1) * t->stride_head + (len - 1) * t->stride_row + head_dim
                   : 0;
}

/* The largest of these over the tensors. */
int64_t largest_offset(const struct attn_problem *p, const struct attn_tensors *t)
{
    const bool packed = p->lengths == ATTN_PACKED;
    const int64_t batch = packed ? 1 : p->batch, q_len = packed ? p->total_q : p->q_len;
    const int64_t kv_len = packed ? p->total_k : p->kv_len;
    const struct attn_tensor *const of_q[] = {&t->q, &t->dq, &t->o, &t->dout};
    const struct attn_tensor *const of_kv[] = {&t->k, &t->dk, &t->v, &t->dv};
    int64_t largest = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t columns = i < 2 ? p->head_dim : attn_v_head_dim(p);
        const int64_t q = last_element(of_q[i], batch, p->q_heads, q_len, columns);
        const int64_t kv = last_element(of_kv[i], batch, p->kv_heads, kv_len, columns);
        largest = std::max(largest, std::max(q, kv));
    }
    return largest;
}

/* The workspace belongs to the plan, because its size is known only with a plan. */
size_t workspace_bytes(const struct attn_request *) { return 0; }

size_t plan_bytes(const struct attn_request *, const void *plan)
{
    return plan ? static_cast<const struct plan *>(plan)->bytes : 0;
}

const char *variant(const struct attn_request *request) { return variant_name(request->problem); }

void release(void *opaque)
{
    struct plan *plan = static_cast<struct plan *>(opaque);
    struct attn_message unheard;
    if (!plan)
        return;
    without_exceptions(&unheard, "release", [&] {
        cudaFree(plan->workspace);
        cudaFree(plan->arrays);
        cudaFree(plan->mask);
        const cudnnHandle_t handle = plan->handle;
        delete plan;
        if (handle)
            fe::detail::destroy_handle(handle);
        return ATTN_OK;
    });
}

/* The kernels load vectors of 16 bytes. The front end would refuse less at every launch; this refuses once. */
const char *misaligned(const struct attn_request *request, const struct attn_tensors *t)
{
    const struct {
        const char *name;
        const void *data;
        bool used;
    } list[] = {{"q", t->q.data, true},
                {"k", t->k.data, true},
                {"v", t->v.data, true},
                {"o", t->o.data, true},
                {"dout", t->dout.data, request->mode == ATTN_BWD},
                {"dq", t->dq.data, request->mode == ATTN_BWD},
                {"dk", t->dk.data, request->mode == ATTN_BWD},
                {"dv", t->dv.data, request->mode == ATTN_BWD}};
    for (const auto &tensor : list)
        if (tensor.used && reinterpret_cast<uintptr_t>(tensor.data) % 16 != 0)
            return tensor.name;
    return nullptr;
}

/* One attempt at a plan with one kind of heuristics. */
fe::error_t build(struct plan *plan, const struct attn_request *request, const struct attn_tensors *tensors,
                  const struct sequences &sequences, fe::HeurMode_t heuristics)
{
    plan->graph = fe::graph::Graph();
    describe(&plan->graph, request, tensors, sequences);
    return plan->graph.build(plan->handle, {heuristics}, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
}

/* Device memory that the plan owns. */
enum attn_status allocate(struct plan *plan, void **memory, size_t bytes, const char *purpose, struct attn_message *why)
{
    const enum attn_status status = bytes == 0 ? ATTN_OK : status_malloc(memory, bytes, purpose, why);
    plan->bytes += status == ATTN_OK ? bytes : 0;
    return status;
}

enum attn_status build_plan(struct plan *plan, const struct attn_request *request, const struct attn_tensors *tensors,
                            const struct sequences &sequences, struct attn_message *why)
{
    cudnn_open_parts();
    const char *version = loaded_library()->version;
    const cudnnStatus_t created = fe::detail::create_handle(&plan->handle);
    if (created != CUDNN_STATUS_SUCCESS) {
        plan->handle = nullptr;
        return cudnn_fail(why, ATTN_ERROR, "cuDNN %s: cudnnCreate: %s", version, fe::detail::get_error_string(created));
    }
    fe::error_t first = build(plan, request, tensors, sequences, fe::HeurMode_t::A);
    if (first.is_bad() && build(plan, request, tensors, sequences, fe::HeurMode_t::FALLBACK).is_bad()) {
        const bool broken =
            first.get_code() == fe::error_code_t::CUDA_API_FAILED || first.get_code() == fe::error_code_t::HANDLE_ERROR;
        return cudnn_fail(why, broken ? ATTN_ERROR : ATTN_UNSUPPORTED, "cuDNN %s: %s", version,
                          first.get_message().c_str());
    }
    int64_t bytes = 0;
    fe::error_t sized = plan->graph.get_workspace_size(bytes);
    if (sized.is_bad() || bytes < 0)
        return cudnn_fail(why, ATTN_ERROR, "cuDNN %s: workspace size: %s", version, sized.get_message().c_str());
    if (request->mode == ATTN_BWD && request->problem->lengths == ATTN_PACKED)
        plan->zeroed_bytes = static_cast<size_t>(bytes);
    return allocate(plan, &plan->workspace, static_cast<size_t>(bytes), "cuDNN's workspace", why);
}

/* Appends an array to what goes to the device; its place in bytes, a multiple of 16. */
template <typename T> size_t append(std::vector<char> *bytes, const std::vector<T> &values)
{
    const size_t at = (bytes->size() + 15) / 16 * 16;
    bytes->resize(at + values.size() * sizeof(T));
    std::copy_n(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T), bytes->data() + at);
    return at;
}

/* The elements where the sequences of one tensor begin. */
size_t append_offsets(std::vector<char> *bytes, const int64_t *first, int64_t count, int64_t stride_row, bool far)
{
    std::vector<int64_t> offsets(static_cast<size_t>(count) + 1);
    for (size_t i = 0; i < offsets.size(); i++)
        offsets[i] = first[i] * stride_row;
    return far ? append(bytes, offsets) : append(bytes, std::vector<int32_t>(offsets.begin(), offsets.end()));
}

/* The arrays of packed sequences in device memory, and where they are by number. */
enum attn_status upload(struct plan *plan, const struct attn_tensors *t, const struct cudnn_sequences *s, bool far,
                        struct attn_message *why)
{
    const struct {
        tensor_uid uid;
        const int64_t *first;
        int64_t stride_row;
    } list[] = {{UID_Q, s->q_first, t->q.stride_row},
                {UID_K, s->k_first, t->k.stride_row},
                {UID_V, s->k_first, t->v.stride_row},
                {UID_O, s->q_first, t->o.stride_row},
                {UID_LSE, s->q_first, 1},
                {UID_DOUT, s->q_first, t->dout.stride_row},
                {UID_DQ, s->q_first, t->dq.stride_row},
                {UID_DK, s->k_first, t->dk.stride_row},
                {UID_DV, s->k_first, t->dv.stride_row}};
    std::vector<char> bytes;
    std::unordered_map<int64_t, size_t> places;
    places[UID_LEN_Q] = append(&bytes, std::vector<int32_t>(s->q_len, s->q_len + s->count));
    places[UID_LEN_KV] = append(&bytes, std::vector<int32_t>(s->kv_len, s->kv_len + s->count));
    const size_t number = append(&bytes, std::vector<int32_t>(s->number, s->number + s->count));
    for (const auto &tensor : list)
        if (plan->pointers.count(tensor.uid) != 0)
            places[UID_OFFSET + tensor.uid] = append_offsets(&bytes, tensor.first, s->count, tensor.stride_row, far);
    const enum attn_status status = allocate(plan, &plan->arrays, bytes.size(), "the lengths of the sequences", why);
    if (status != ATTN_OK)
        return status;
    for (const auto &place : places)
        plan->pointers[place.first] = static_cast<char *>(plan->arrays) + place.second;
    plan->number = reinterpret_cast<const int32_t *>(static_cast<char *>(plan->arrays) + number);
    return status_cuda(cudaMemcpy(plan->arrays, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy", why);
}

enum attn_status make_mask(struct plan *plan, const struct attn_problem *p, int64_t count, struct attn_message *why)
{
    enum attn_status status = allocate(plan, &plan->mask, cudnn_mask_bytes(p, count), "dropout's mask for cuDNN", why);
    if (status == ATTN_OK)
        status = cudnn_mask_fill(p, count, plan->number, plan->mask, why);
    plan->pointers[UID_MASK] = plan->mask;
    return status;
}

/* Of what only some problems have; the graph has no other tensors. */
void set_more_pointers(struct plan *plan, const struct attn_request *request, const struct attn_tensors *tensors)
{
    const unsigned wanted = attn_wanted_outputs(request);
    if (request->problem->has_sink)
        plan->pointers[UID_SINK] = const_cast<float *>(tensors->sink);
    if (request->problem->bias_heads > 0)
        plan->pointers[UID_BIAS] = tensors->bias.data;
    if (wanted & ATTN_DSINK)
        plan->pointers[UID_DSINK] = tensors->dsink;
    if (wanted & ATTN_DBIAS)
        plan->pointers[UID_DBIAS] = tensors->dbias.data;
}

/* Everything of a plan. `packed` has the sequences of packed tensors, and is not read for others. */
enum attn_status fill_plan(struct plan *plan, const struct attn_request *request, const struct attn_tensors *tensors,
                           const struct cudnn_sequences *packed, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    struct sequences sequences = {p->batch, false, p->q_len == p->kv_len, false};
    if (p->lengths == ATTN_PACKED)
        sequences = {packed->count, true, packed->square, largest_offset(p, tensors) > INT32_MAX};
    enum attn_status status = build_plan(plan, request, tensors, sequences, why);
    for (int64_t uid = UID_Q; uid <= (request->mode == ATTN_FWD ? UID_LSE : UID_DV); uid++)
        plan->pointers[uid] = nullptr;
    set_more_pointers(plan, request, tensors);
    if (status == ATTN_OK && sequences.packed)
        status = upload(plan, tensors, packed, sequences.far, why);
    if (status == ATTN_OK && p->dropout != 0.0f)
        status = make_mask(plan, p, sequences.count, why);
    return status;
}

/* The packed sequences of the problem, by the lengths in device memory. */
enum attn_status read_sequences(const struct attn_request *request, const struct attn_tensors *tensors,
                                struct cudnn_sequences *out, struct attn_message *why)
{
    struct lengths lengths;
    enum attn_status status = lengths_copy(request->problem, tensors, nullptr, &lengths, why);
    if (status != ATTN_OK)
        return status;
    status = cudnn_sequences_make(request->problem, request->mode, lengths.tensors.cu_seqlens_q,
                                  lengths.tensors.cu_seqlens_k, out, why);
    lengths_free(&lengths);
    return status;
}

/* Refuses what only the tensors tell. */
enum attn_status check_tensors(const struct attn_request *request, const struct attn_tensors *tensors,
                               struct attn_message *why)
{
    if (request->mode == ATTN_BWD && largest_offset(request->problem, tensors) > INT64_C(1) << 31)
        return cudnn_fail(why, ATTN_UNSUPPORTED,
                          "backward over element offsets past 2^31: cuDNN's gradients are wrong there");
    if (!loaded_library()->usable) {
        *why = loaded_library()->why;
        return ATTN_UNSUPPORTED;
    }
    const char *unaligned = misaligned(request, tensors);
    if (unaligned)
        return cudnn_fail(why, ATTN_UNSUPPORTED, "cuDNN needs 16-byte aligned tensors; %s is not", unaligned);
    return ATTN_OK;
}

enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **result,
                         struct attn_message *why)
{
    struct cudnn_sequences packed = {};
    struct plan *plan = nullptr;
    *result = nullptr;
    enum attn_status status = check_tensors(request, tensors, why);
    if (status == ATTN_OK && request->problem->lengths == ATTN_PACKED)
        status = read_sequences(request, tensors, &packed, why);
    if (status != ATTN_OK)
        return status;
    status = without_exceptions(why, "prepare", [&] {
        plan = new struct plan();
        return fill_plan(plan, request, tensors, &packed, why);
    });
    cudnn_sequences_free(&packed);
    if (status != ATTN_OK) {
        release(plan);
        cudaGetLastError(); /* an error of a refused plan must not appear in the next call */
        return status;
    }
    *result = plan;
    return ATTN_OK;
}

enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                        const struct attn_run *run, struct attn_message *why)
{
    struct plan *plan = static_cast<struct plan *>(run->plan);
    if (!plan)
        return cudnn_fail(why, ATTN_ERROR, "cudnn: launch without a plan");
    return without_exceptions(why, "launch", [&] {
        const cudnnStatus_t set = fe::detail::set_stream(plan->handle, static_cast<cudaStream_t>(run->stream));
        if (set != CUDNN_STATUS_SUCCESS)
            return cudnn_fail(why, ATTN_ERROR, "cudnnSetStream: %s", fe::detail::get_error_string(set));
        plan->pointers[UID_Q] = tensors->q.data;
        plan->pointers[UID_K] = tensors->k.data;
        plan->pointers[UID_V] = tensors->v.data;
        plan->pointers[UID_O] = tensors->o.data;
        plan->pointers[UID_LSE] = tensors->lse;
        set_more_pointers(plan, request, tensors);
        if (request->mode == ATTN_BWD) {
            plan->pointers[UID_DOUT] = tensors->dout.data;
            plan->pointers[UID_DQ] = tensors->dq.data;
            plan->pointers[UID_DK] = tensors->dk.data;
            plan->pointers[UID_DV] = tensors->dv.data;
        }
        /* A backward of packed sequences counts on zeros there (9.19: dQ off by more than 900 times its bound). */
        if (plan->zeroed_bytes && cudaMemsetAsync(plan->workspace, 0, plan->zeroed_bytes,
                                                  static_cast<cudaStream_t>(run->stream)) != cudaSuccess)
            return cudnn_fail(why, ATTN_ERROR, "cudaMemsetAsync: %s", cudaGetErrorString(cudaGetLastError()));
        fe::error_t status = plan->graph.execute(plan->handle, plan->pointers, plan->workspace);
        if (status.is_bad())
            return cudnn_fail(why, ATTN_ERROR, "cuDNN %s: %s", loaded_library()->version, status.get_message().c_str());
        return ATTN_OK;
    });
}

} // namespace

extern "C" const char *cudnn_peer_library_version(void)
{
    const struct cudnn_loaded *library = cudnn_loaded_library();
    return library->usable ? library->version : nullptr;
}

extern "C" void cudnn_peer_set_library(const char *path) { cudnn_choose_library(path); }

/* cuDNN promises an order of summation for dQ only on request; forward has no such choice. */
extern "C" const struct attn_impl attn_cudnn = {
    .abi = ATTN_ABI,
    .name = "cudnn",
    .summary = "NVIDIA cuDNN 9's fused attention through its graph API, loaded at run time",
    .platform = ATTN_CUDA,
    .repeatable = {ATTN_O, 0},
    .repeatable_deterministic = {ATTN_O, ATTN_DQ | ATTN_DK | ATTN_DV},
    .invariant = {0, 0},
    .accepts = accepts,
    .workspace_bytes = workspace_bytes,
    .plan_bytes = plan_bytes,
    .variant = variant,
    .prepare = prepare,
    .launch = launch,
    .release = release,
    .variants = nullptr,
    .role = ATTN_ROLE_PEER,
    .work = nullptr,
};
