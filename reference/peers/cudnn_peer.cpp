/* cuDNN as a peer: forward and backward attention through the cuDNN graph API (the header-only cudnn-frontend).
 *
 * Loading. The front end is compiled for dynamic loading: it calls cuDNN through the handle cudnn_dlhandle, which this
 * file opens, so that the user's path has priority and the program starts without cuDNN. cuDNN 9 is a thin
 * libcudnn.so.9 that opens its parts by bare name when they are first needed; the loader looks in LD_LIBRARY_PATH
 * before the library's own folder, so the parts are opened here from that folder first. Otherwise two versions could be
 * mixed, and the reported version would not be the one that computes. cuDNN opens cuBLASLt by bare name too: ours is
 * opened first, so that both use the same one.
 *
 * Mathematics. The front end's Stats tensor is max + ln(sum exp) of the scaled scores: the contract's LSE, natural
 * logarithm with the scale included (cudnn-frontend, docs/operations/Attention.md, set_stats_use_log2), fp32 [batch,
 * q_heads, q_len, 1]. No conversion is needed. The causal mask is the diagonal band with right bound 0; top left where
 * q_len = kv_len, so that cuDNN sees what frameworks send it, bottom right otherwise.
 *
 * Plans. cuDNN compiles and chooses per shape and stride, and only then knows the size of the workspace. So prepare
 * builds the plan, its handle and its device workspace (plan_bytes tells how much) and launch enqueues: no allocation,
 * no wait, capturable. A CUDA graph captured from a launch reads the plan's workspace: destroy it before release. A
 * plan serves one launch at a time.
 *
 * Refused, with a reason: what the front end's own checks refuse for this version and architecture, and masks under
 * which a row sees no key (cuDNN does not define its result). Also two defects of cuDNN 9.19's backward that `verify`
 * found on an H200: a launch of more than 65535 batches fails, and with element offsets past 2^31 dQ and dK are wrong
 * (relative RMS error 0.1 to 0.7), while the forward is right.
 * Not promised: LSE bit-equal over runs; with q_len = 1 the last bits differed.
 */
#include "reference/peers/cudnn_peer.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>

#include "reference/cublas_library.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB /* no graph is written or read back */
#include <cudnn_frontend.h>

namespace fe = cudnn_frontend;

namespace cudnn_frontend {
void *cudnn_dlhandle = nullptr; /* the front end's; set by open_library */
}

namespace {

enum { PATH_SIZE = 4096 };

/* Tensors of a graph by number. */
enum tensor_uid : int64_t { UID_Q = 1, UID_K, UID_V, UID_O, UID_LSE, UID_DOUT, UID_DQ, UID_DK, UID_DV };

struct library {
    bool usable;
    char version[32];        /* "9.19.0" */
    char variant[40];        /* "cudnn_9.19.0" */
    struct attn_message why; /* where it is not usable */
};

struct plan {
    cudnnHandle_t handle;
    fe::graph::Graph graph;
    std::unordered_map<int64_t, void *> pointers; /* every key from the start, so that launch only assigns */
    void *workspace;                              /* device memory */
    size_t workspace_bytes;
};

char chosen_path[PATH_SIZE]; /* cudnn_peer_set_library; empty = none */

__attribute__((format(printf, 3, 4))) enum attn_status fail(struct attn_message *why, enum attn_status status,
                                                            const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    for (char *c = why->text; *c; c++) /* messages of libraries may have several lines */
        if (*c == '\n' || *c == '\r' || *c == '\t')
            *c = ' ';
    for (size_t length = strlen(why->text); length > 0 && why->text[length - 1] == ' '; length--)
        why->text[length - 1] = '\0';
    return status;
}

/* Runs body and turns exceptions into a status, because none may reach the C caller. */
template <typename Body> enum attn_status without_exceptions(struct attn_message *why, const char *where, Body body)
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return fail(why, ATTN_NO_MEMORY, "cudnn: %s: out of host memory", where);
    } catch (const std::exception &e) {
        return fail(why, ATTN_ERROR, "cudnn: %s: %s", where, e.what());
    } catch (...) {
        return fail(why, ATTN_ERROR, "cudnn: %s: an exception without a name", where);
    }
}

/* ---- the library ------------------------------------------------------------------------------------------------ */

/* "folder of the loaded file that holds address" + tail; false where that is no file in a folder. */
bool beside(const void *address, const char *tail, char file[PATH_SIZE])
{
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname || !strrchr(info.dli_fname, '/'))
        return false;
    const int folder = static_cast<int>(strrchr(info.dli_fname, '/') - info.dli_fname);
    return snprintf(file, PATH_SIZE, "%.*s/%s", folder, info.dli_fname, tail) < PATH_SIZE;
}

const char cuda_runtime_variable[] = "CUDNN_FRONTEND_CUDART_LIB_NAME"; /* the front end reads it */

bool use_cuda_runtime(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_LOCAL) && setenv(cuda_runtime_variable, file, 1) == 0;
}

/* Tells the front end which CUDA runtime to call; by itself it would take the first of several that the loader finds,
 * perhaps of another major version, and print a warning. The choice: the one this program is linked with, or, where it
 * is linked in statically, a shared one of the same major version (both share the device's primary context), looked
 * for by the loader, beside cuBLAS, and where Python packages put it. */
bool name_cuda_runtime(const void *address_in_cudnn, const void *address_in_cublas)
{
    const char *named = getenv(cuda_runtime_variable);
    if (named && named[0])
        return true;
    char name[32], shared_folder[64], own_folder[64], file[PATH_SIZE];
    const int major = CUDART_VERSION / 1000;
    snprintf(name, sizeof name, "libcudart.so.%d", major);
    snprintf(shared_folder, sizeof shared_folder, "../../cu%d/lib/%s", major, name);
    snprintf(own_folder, sizeof own_folder, "../../cuda_runtime/lib/%s", name);
    return (beside(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"), name, file) && use_cuda_runtime(file)) ||
           use_cuda_runtime(name) || (beside(address_in_cublas, name, file) && use_cuda_runtime(file)) ||
           (beside(address_in_cudnn, shared_folder, file) && use_cuda_runtime(file)) ||
           (beside(address_in_cudnn, own_folder, file) && use_cuda_runtime(file));
}

void *open_any(struct attn_message *why)
{
    const struct cudnn_places places = {"libcudnn.so.9", chosen_path, getenv("FABENCH_CUDNN"), FABENCH_CUDNN_FOLDER};
    return cudnn_library_open(&places, why);
}

/* cuDNN opens NVRTC by bare name. Where the loader would not find it, the one of the toolkit that this program was
 * built with is opened first; where that is gone, cuDNN's own error names it. */
void open_nvrtc(void)
{
    char file[PATH_SIZE];
    const int major = CUDART_VERSION / 1000;
    snprintf(file, sizeof file, "libnvrtc.so.%d", major);
    if (!dlopen(file, RTLD_LAZY | RTLD_LOCAL) &&
        snprintf(file, sizeof file, "%s/libnvrtc.so.%d", FABENCH_TOOLKIT_LIBRARIES, major) < PATH_SIZE)
        dlopen(file, RTLD_LAZY | RTLD_LOCAL);
}

/* Opens one of cuDNN's parts from the folder of the library itself; see the head of this file. A part that is not
 * there is left to cuDNN, whose own error names it. */
void open_part(void *library_handle, const char *part)
{
    struct link_map *map = nullptr;
    char file[PATH_SIZE];
    if (dlinfo(library_handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name)
        return;
    const char *slash = strrchr(map->l_name, '/');
    if (!slash)
        return;
    const int folder = static_cast<int>(slash - map->l_name);
    if (snprintf(file, sizeof file, "%.*s/libcudnn_%s.so.9", folder, map->l_name, part) < PATH_SIZE)
        dlopen(file, RTLD_LAZY | RTLD_LOCAL);
}

bool open_parts(void)
{
    for (const char *part : {"ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled"})
        open_part(fe::cudnn_dlhandle, part);
    return true;
}

struct library open_library(void)
{
    struct library result = {};
    const struct cublas_functions *cublas = cublas_library(nullptr); /* where there is none, cuDNN looks for itself */
    const void *address_in_cublas = cublas ? reinterpret_cast<const void *>(cublas->create) : nullptr;
    void *handle = open_any(&result.why);
    if (!handle)
        return result;
    open_nvrtc();
    open_part(handle, "graph"); /* cudnnGetVersion calls it */
    const auto version = reinterpret_cast<size_t (*)(void)>(dlsym(handle, "cudnnGetVersion"));
    const size_t number = version ? version() : 0;
    const int major = static_cast<int>(number / 10000), minor = static_cast<int>(number / 100 % 100);
    const int patch = static_cast<int>(number % 100);
    if (number < 90000) {
        fail(&result.why, ATTN_UNSUPPORTED, "the library found as libcudnn.so.9 is not cuDNN 9 (version number %zu)",
             number);
        return result;
    }
    if (!name_cuda_runtime(reinterpret_cast<const void *>(version), address_in_cublas)) {
        fail(&result.why, ATTN_UNSUPPORTED,
             "cuDNN %d.%d.%d found, but no libcudart.so.%d, which its front end calls (looked in the loader's path, "
             "beside cuBLAS and beside cuDNN; set %s to its path)",
             major, minor, patch, CUDART_VERSION / 1000, cuda_runtime_variable);
        return result;
    }
    fe::cudnn_dlhandle = handle;
    snprintf(result.version, sizeof result.version, "%d.%d.%d", major, minor, patch);
    snprintf(result.variant, sizeof result.variant, "cudnn_%s", result.version);
    result.usable = true;
    return result;
}

const struct library *loaded_library(void)
{
    static const struct library library = open_library();
    return &library;
}

/* ---- the graph -------------------------------------------------------------------------------------------------- */

using tensor_pointer = std::shared_ptr<fe::graph::Tensor_attributes>;

struct extent {
    int64_t heads, len;
};

fe::DataType_t data_type(const struct attn_problem *p)
{
    return p->dtype == ATTN_BF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
}

void shape(fe::graph::Tensor_attributes *to, tensor_uid uid, const struct attn_problem *p, extent e,
           const struct attn_tensor *t)
{
    to->set_uid(uid)
        .set_dim({p->batch, e.heads, e.len, p->head_dim})
        .set_stride({t->stride_batch, t->stride_head, t->stride_row, 1})
        .set_data_type(data_type(p));
}

void shape_lse(fe::graph::Tensor_attributes *to, const struct attn_problem *p)
{
    to->set_uid(UID_LSE)
        .set_dim({p->batch, p->q_heads, p->q_len, 1})
        .set_stride({p->q_heads * p->q_len, p->q_len, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
}

tensor_pointer input(fe::graph::Graph *graph, const char *name, tensor_uid uid, const struct attn_problem *p, extent e,
                     const struct attn_tensor *t)
{
    auto attributes = fe::graph::Tensor_attributes().set_name(name);
    shape(&attributes, uid, p, e, t);
    return graph->tensor(attributes);
}

template <typename Options> void set_mask(Options *options, const struct attn_problem *p)
{
    if (!p->causal || p->q_len == 1) /* the last row sees every key */
        return;
    options->set_diagonal_alignment(p->q_len == p->kv_len ? fe::DiagonalAlignment_t::TOP_LEFT
                                                          : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    options->set_diagonal_band_right_bound(0);
}

void describe_forward(fe::graph::Graph *graph, const struct attn_request *request, const struct attn_tensors *t)
{
    const struct attn_problem *p = request->problem;
    const extent rows = {p->q_heads, p->q_len}, keys = {p->kv_heads, p->kv_len};
    const tensor_pointer q = input(graph, "Q", UID_Q, p, rows, &t->q);
    const tensor_pointer k = input(graph, "K", UID_K, p, keys, &t->k);
    const tensor_pointer v = input(graph, "V", UID_V, p, keys, &t->v);
    auto options = fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true).set_attn_scale(p->scale);
    set_mask(&options, p);
    const auto outputs = graph->sdpa(q, k, v, options);
    shape(outputs[0].get(), UID_O, p, rows, &t->o);
    shape_lse(outputs[1].get(), p);
    outputs[0]->set_output(true);
    outputs[1]->set_output(true);
}

void describe_backward(fe::graph::Graph *graph, const struct attn_request *request, const struct attn_tensors *t)
{
    const struct attn_problem *p = request->problem;
    const extent rows = {p->q_heads, p->q_len}, keys = {p->kv_heads, p->kv_len};
    const tensor_pointer q = input(graph, "Q", UID_Q, p, rows, &t->q);
    const tensor_pointer k = input(graph, "K", UID_K, p, keys, &t->k);
    const tensor_pointer v = input(graph, "V", UID_V, p, keys, &t->v);
    const tensor_pointer o = input(graph, "O", UID_O, p, rows, &t->o);
    const tensor_pointer dout = input(graph, "dO", UID_DOUT, p, rows, &t->dout);
    auto lse_attributes = fe::graph::Tensor_attributes().set_name("LSE");
    shape_lse(&lse_attributes, p);
    const tensor_pointer lse = graph->tensor(lse_attributes);
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("backward")
                       .set_attn_scale(p->scale)
                       .set_deterministic_algorithm(request->deterministic);
    set_mask(&options, p);
    const auto outputs = graph->sdpa_backward(q, k, v, o, dout, lse, options);
    shape(outputs[0].get(), UID_DQ, p, rows, &t->dq);
    shape(outputs[1].get(), UID_DK, p, keys, &t->dk);
    shape(outputs[2].get(), UID_DV, p, keys, &t->dv);
    for (const tensor_pointer &output : outputs)
        output->set_output(true);
}

void describe(fe::graph::Graph *graph, const struct attn_request *request, const struct attn_tensors *tensors)
{
    graph->set_io_data_type(data_type(request->problem))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(request->device->sm);
    if (request->mode == ATTN_FWD)
        describe_forward(graph, request, tensors);
    else
        describe_backward(graph, request, tensors);
}

/* Contiguous strides of the problem's layout, for checks before the tensors exist. */
struct attn_tensor packed(const struct attn_problem *p, extent e)
{
    struct attn_tensor t = {};
    t.stride_batch = e.heads * e.len * p->head_dim;
    t.stride_head = p->layout == ATTN_BHSD ? e.len * p->head_dim : p->head_dim;
    t.stride_row = p->layout == ATTN_BHSD ? p->head_dim : e.heads * p->head_dim;
    return t;
}

/* Asks the front end whether the loaded version takes the problem: host arithmetic and host memory only, no handle, no
 * plan. */
enum attn_status validate(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    struct attn_tensors t = {};
    t.q = t.o = t.dout = t.dq = packed(p, {p->q_heads, p->q_len});
    t.k = t.v = t.dk = t.dv = packed(p, {p->kv_heads, p->kv_len});
    fe::graph::Graph graph;
    describe(&graph, request, &t);
    fe::error_t status = graph.validate();
    if (status.is_bad())
        return fail(why, ATTN_UNSUPPORTED, "cuDNN %s: %s", loaded_library()->version, status.get_message().c_str());
    return ATTN_OK;
}

/* ---- the implementation ----------------------------------------------------------------------------------------- */

enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const struct library *library = loaded_library();
    const enum attn_status status = attn_check_attributes(request, 0, why);
    if (status != ATTN_OK)
        return status;
    if (!library->usable) {
        *why = library->why;
        return ATTN_UNSUPPORTED;
    }
    if (request->device->platform != ATTN_CUDA)
        return fail(why, ATTN_UNSUPPORTED, "needs a CUDA device");
    if (request->device->sm < 80)
        return fail(why, ATTN_UNSUPPORTED, "needs sm_80 or newer; this device is sm_%d", request->device->sm);
    if (request->variant && strcmp(request->variant, library->variant) != 0)
        return fail(why, ATTN_UNSUPPORTED, "no variant %s: the library loaded is %s", request->variant,
                    library->variant);
    if (p->dtype != ATTN_FP16 && p->dtype != ATTN_BF16)
        return fail(why, ATTN_UNSUPPORTED, "takes fp16 and bf16, not fp32");
    if (p->causal && p->q_len > p->kv_len)
        return fail(why, ATTN_UNSUPPORTED,
                    "rows that see no key: causal with q_len %" PRId64 " > kv_len %" PRId64 ", undefined in cuDNN",
                    p->q_len, p->kv_len);
    if (request->mode == ATTN_BWD && p->batch > 65535)
        return fail(why, ATTN_UNSUPPORTED, "backward of more than 65535 batches: cuDNN's launch fails");
    return without_exceptions(why, "validate", [&] { return validate(request, why); });
}

/* Elements from the first to the last of a tensor that backward reads or writes. */
int64_t last_element(const struct attn_tensor *t, int64_t batch, int64_t heads, int64_t len, int64_t head_dim)
{
    return t->data ? (batch - 1) * t->stride_batch + (heads - 1) * t->stride_head + (len - 1) * t->stride_row + head_dim
                   : 0;
}

bool reaches_past_2_to_31(const struct attn_problem *p, const struct attn_tensors *t)
{
    const struct attn_tensor *const of_q[] = {&t->q, &t->o, &t->dout, &t->dq};
    const struct attn_tensor *const of_kv[] = {&t->k, &t->v, &t->dk, &t->dv};
    int64_t largest = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t q = last_element(of_q[i], p->batch, p->q_heads, p->q_len, p->head_dim);
        const int64_t kv = last_element(of_kv[i], p->batch, p->kv_heads, p->kv_len, p->head_dim);
        largest = std::max(largest, std::max(q, kv));
    }
    return largest > INT64_C(1) << 31;
}

/* The workspace belongs to the plan, because its size is known only with a plan. */
size_t workspace_bytes(const struct attn_request *) { return 0; }

size_t plan_bytes(const struct attn_request *, const void *plan)
{
    return plan ? static_cast<const struct plan *>(plan)->workspace_bytes : 0;
}

const char *variant(const struct attn_request *)
{
    const struct library *library = loaded_library();
    return library->usable ? library->variant : nullptr;
}

void release(void *opaque)
{
    struct plan *plan = static_cast<struct plan *>(opaque);
    struct attn_message unheard;
    if (!plan)
        return;
    without_exceptions(&unheard, "release", [&] {
        cudaFree(plan->workspace);
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
                  fe::HeurMode_t heuristics)
{
    plan->graph = fe::graph::Graph();
    describe(&plan->graph, request, tensors);
    return plan->graph.build(plan->handle, {heuristics}, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
}

enum attn_status build_plan(struct plan *plan, const struct attn_request *request, const struct attn_tensors *tensors,
                            struct attn_message *why)
{
    static const bool parts_opened = open_parts();
    (void)parts_opened;
    const char *version = loaded_library()->version;
    const cudnnStatus_t created = fe::detail::create_handle(&plan->handle);
    if (created != CUDNN_STATUS_SUCCESS) {
        plan->handle = nullptr;
        return fail(why, ATTN_ERROR, "cuDNN %s: cudnnCreate: %s", version, fe::detail::get_error_string(created));
    }
    fe::error_t first = build(plan, request, tensors, fe::HeurMode_t::A);
    if (first.is_bad() && build(plan, request, tensors, fe::HeurMode_t::FALLBACK).is_bad()) {
        const bool broken =
            first.get_code() == fe::error_code_t::CUDA_API_FAILED || first.get_code() == fe::error_code_t::HANDLE_ERROR;
        return fail(why, broken ? ATTN_ERROR : ATTN_UNSUPPORTED, "cuDNN %s: %s", version, first.get_message().c_str());
    }
    int64_t bytes = 0;
    fe::error_t sized = plan->graph.get_workspace_size(bytes);
    if (sized.is_bad() || bytes < 0)
        return fail(why, ATTN_ERROR, "cuDNN %s: workspace size: %s", version, sized.get_message().c_str());
    if (bytes == 0)
        return ATTN_OK;
    const cudaError_t allocated = cudaMalloc(&plan->workspace, static_cast<size_t>(bytes));
    if (allocated != cudaSuccess) {
        cudaGetLastError();
        return fail(why, allocated == cudaErrorMemoryAllocation ? ATTN_NO_MEMORY : ATTN_ERROR,
                    "cuDNN %s: workspace of %" PRId64 " bytes: %s", version, bytes, cudaGetErrorString(allocated));
    }
    plan->workspace_bytes = static_cast<size_t>(bytes);
    return ATTN_OK;
}

enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **result,
                         struct attn_message *why)
{
    *result = nullptr;
    if (request->mode == ATTN_BWD && reaches_past_2_to_31(request->problem, tensors))
        return fail(why, ATTN_UNSUPPORTED,
                    "backward over element offsets past 2^31: cuDNN's gradients are wrong there");
    if (!loaded_library()->usable) {
        *why = loaded_library()->why;
        return ATTN_UNSUPPORTED;
    }
    const char *unaligned = misaligned(request, tensors);
    if (unaligned)
        return fail(why, ATTN_UNSUPPORTED, "cuDNN needs 16-byte aligned tensors; %s is not", unaligned);
    struct plan *plan = nullptr;
    const enum attn_status status = without_exceptions(why, "prepare", [&] {
        plan = new struct plan();
        const enum attn_status built = build_plan(plan, request, tensors, why);
        if (built == ATTN_OK)
            for (int64_t uid = UID_Q; uid <= (request->mode == ATTN_FWD ? UID_LSE : UID_DV); uid++)
                plan->pointers[uid] = nullptr;
        return built;
    });
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
        return fail(why, ATTN_ERROR, "cudnn: launch without a plan");
    return without_exceptions(why, "launch", [&] {
        const cudnnStatus_t set = fe::detail::set_stream(plan->handle, static_cast<cudaStream_t>(run->stream));
        if (set != CUDNN_STATUS_SUCCESS)
            return fail(why, ATTN_ERROR, "cudnnSetStream: %s", fe::detail::get_error_string(set));
        plan->pointers[UID_Q] = tensors->q.data;
        plan->pointers[UID_K] = tensors->k.data;
        plan->pointers[UID_V] = tensors->v.data;
        plan->pointers[UID_O] = tensors->o.data;
        plan->pointers[UID_LSE] = tensors->lse;
        if (request->mode == ATTN_BWD) {
            plan->pointers[UID_DOUT] = tensors->dout.data;
            plan->pointers[UID_DQ] = tensors->dq.data;
            plan->pointers[UID_DK] = tensors->dk.data;
            plan->pointers[UID_DV] = tensors->dv.data;
        }
        fe::error_t status = plan->graph.execute(plan->handle, plan->pointers, plan->workspace);
        if (status.is_bad())
            return fail(why, ATTN_ERROR, "cuDNN %s: %s", loaded_library()->version, status.get_message().c_str());
        return ATTN_OK;
    });
}

} // namespace

extern "C" const char *cudnn_peer_library_version(void)
{
    const struct library *library = loaded_library();
    return library->usable ? library->version : nullptr;
}

extern "C" void cudnn_peer_set_library(const char *path)
{
    snprintf(chosen_path, sizeof chosen_path, "%s", path ? path : "");
}

/* cuDNN promises an order of summation for dQ only on request; forward has no such choice. */
extern "C" const struct attn_impl attn_cudnn = {
    .abi = ATTN_ABI,
    .name = "cudnn",
    .summary = "NVIDIA cuDNN 9's fused attention through its graph API, loaded at run time",
    .platform = ATTN_CUDA,
    .repeatable = {ATTN_O, 0},
    .repeatable_deterministic = {ATTN_O, ATTN_DQ | ATTN_DK | ATTN_DV},
    .accepts = accepts,
    .workspace_bytes = workspace_bytes,
    .plan_bytes = plan_bytes,
    .variant = variant,
    .prepare = prepare,
    .launch = launch,
    .release = release,
    .variants = nullptr,
    .role = ATTN_ROLE_PEER,
};
