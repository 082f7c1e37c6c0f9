/* A problem as a graph of the cuDNN front end. Only cudnn_peer.cpp includes it: the front end's templates take half the
 * compile time of the whole program. What is said here in one line is reasoned at the head of that file. */
#ifndef FABENCH_CUDNN_GRAPH_H
#define FABENCH_CUDNN_GRAPH_H

#include <algorithm>
#include <memory>
#include <optional>

#include "kernels/attention.h"
#include "reference/peers/cudnn_problem.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB /* no graph is written or read back */
#include <cudnn_frontend.h>

namespace fe = cudnn_frontend;

namespace cudnn_graph {

/* Tensors of a graph by number. */
enum tensor_uid : int64_t {
    UID_Q = 1,
    UID_K,
    UID_V,
    UID_O,
    UID_LSE,
    UID_DOUT,
    UID_DQ,
    UID_DK,
    UID_DV,
    UID_END,
    UID_OFFSET = 20, /* + the number of a packed tensor: where its sequences begin */
    UID_LEN_Q = 40,
    UID_LEN_KV,
    UID_MASK,
    UID_SINK,
    UID_BIAS,
    UID_DSINK,
    UID_DBIAS
};

/* What a graph needs to know beside the request and the strides. */
struct sequences {
    int64_t count; /* of the plan */
    bool packed, square;
    bool far; /* offsets of packed tensors need 64 bits */
};

using tensor_pointer = std::shared_ptr<fe::graph::Tensor_attributes>;
using graph_pointer = std::shared_ptr<fe::graph::Graph>;

/* One graph in the making. */
struct description {
    fe::graph::Graph *graph;
    const struct attn_request *request;
    const struct attn_problem *p;
    const struct attn_tensors *t;
    struct sequences sequences;
    tensor_pointer len_q, len_kv; /* of packed sequences */
};

inline fe::DataType_t data_type(const struct attn_problem *p)
{
    return p->dtype == ATTN_BF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
}

/* An array of whole numbers in device memory. */
inline tensor_pointer array(fe::graph::Graph *graph, int64_t uid, int64_t count, fe::DataType_t type)
{
    return graph->tensor(fe::graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type));
}

inline void set_offset(const struct description *d, fe::graph::Tensor_attributes *to, tensor_uid uid)
{
    if (d->sequences.packed)
        to->set_ragged_offset(array(d->graph, UID_OFFSET + uid, d->sequences.count + 1,
                                    d->sequences.far ? fe::DataType_t::INT64 : fe::DataType_t::INT32));
}

/* The stride over sequences of a packed tensor is not used; it only has to be legal. */
inline void shape(const struct description *d, fe::graph::Tensor_attributes *to, tensor_uid uid,
                  const struct attn_tensor *t)
{
    const struct attn_problem *p = d->p;
    const bool is_kv = uid == UID_K || uid == UID_V || uid == UID_DK || uid == UID_DV;
    const bool has_columns_of_v = uid == UID_V || uid == UID_O || uid == UID_DOUT || uid == UID_DV;
    const int64_t heads = is_kv ? p->kv_heads : p->q_heads, len = is_kv ? p->kv_len : p->q_len;
    const int64_t batch_stride =
        d->sequences.packed ? std::max(heads * t->stride_head, len * t->stride_row) : t->stride_batch;
    to->set_uid(uid)
        .set_dim({d->sequences.count, heads, len, has_columns_of_v ? attn_v_head_dim(p) : p->head_dim})
        .set_stride({batch_stride, t->stride_head, t->stride_row, 1})
        .set_data_type(data_type(p));
    set_offset(d, to, uid);
}

inline void shape_lse(const struct description *d, fe::graph::Tensor_attributes *to)
{
    const struct attn_problem *p = d->p;
    const int64_t rows = d->sequences.packed ? p->total_q : p->q_len;
    to->set_uid(UID_LSE)
        .set_dim({d->sequences.count, p->q_heads, p->q_len, 1})
        .set_stride({p->q_heads * rows, rows, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
    set_offset(d, to, UID_LSE);
}

inline tensor_pointer input(const struct description *d, const char *name, tensor_uid uid, const struct attn_tensor *t)
{
    auto attributes = fe::graph::Tensor_attributes().set_name(name);
    shape(d, &attributes, uid, t);
    return d->graph->tensor(attributes);
}

inline fe::DiagonalAlignment_t alignment(const struct description *d)
{
    return d->sequences.square ? fe::DiagonalAlignment_t::TOP_LEFT : fe::DiagonalAlignment_t::BOTTOM_RIGHT;
}

template <typename Options> void set_band(Options *options, const struct description *d)
{
    const struct cudnn_band band = cudnn_band_of(d->p);
    if (!band.has_left && !band.has_right)
        return;
    options->set_diagonal_alignment(alignment(d));
    if (band.has_left)
        options->set_diagonal_band_left_bound(band.left);
    if (band.has_right)
        options->set_diagonal_band_right_bound(band.right);
}

/* The masks of a graph with a score modifier, which applies them itself. */
inline tensor_pointer masked(const struct description *d, const graph_pointer &graph, tensor_pointer scores)
{
    const struct cudnn_band band = cudnn_band_of(d->p);
    if (d->sequences.packed)
        scores = fe::graph::attn::score_modifiers::padding_mask(graph, scores, d->len_kv, d->len_q);
    if (!band.has_left && !band.has_right)
        return scores;
    const auto left = band.has_left ? std::optional<int64_t>(band.left) : std::nullopt;
    const auto right = band.has_right ? std::optional<int64_t>(band.right) : std::nullopt;
    return fe::graph::attn::score_modifiers::sliding_window_mask(graph, scores, alignment(d), left, right, d->p->q_len,
                                                                 d->p->kv_len, d->len_q, d->len_kv, nullptr, nullptr);
}

/* Softcap and masks; `d` may be gone when the front end calls the modifier. */
template <typename Options>
std::shared_ptr<fe::graph::attn::score_modifiers::Softcap> set_softcap(Options *options, const struct description *d,
                                                                       const tensor_pointer &cap)
{
    const auto softcap = std::make_shared<fe::graph::attn::score_modifiers::Softcap>();
    options->set_score_mod([softcap, cap, copy = *d](const graph_pointer &graph, const tensor_pointer &scores) {
        return masked(&copy, graph, softcap->forward(graph, scores, cap));
    });
    return softcap;
}

/* The sink of each query head and its gradient; a bias and its gradient. */
inline fe::graph::Tensor_attributes sink_of_heads(const struct description *d, tensor_uid uid)
{
    const int64_t heads = d->p->q_heads;
    return fe::graph::Tensor_attributes()
        .set_uid(uid)
        .set_dim({1, heads, 1, 1})
        .set_stride({heads, 1, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
}

inline fe::graph::Tensor_attributes bias_of(const struct description *d, tensor_uid uid, const struct attn_tensor *t)
{
    const struct attn_problem *p = d->p;
    return fe::graph::Tensor_attributes()
        .set_uid(uid)
        .set_dim({p->bias_batch, p->bias_heads, p->q_len, p->kv_len})
        .set_stride({t->stride_batch, t->stride_head, t->stride_row, 1})
        .set_data_type(p->bias_dtype == ATTN_FP32 ? fe::DataType_t::FLOAT : data_type(p));
}

template <typename Options> void set_options(Options *options, struct description *d)
{
    options->set_attn_scale(d->p->scale);
    if (d->p->has_sink)
        options->set_sink_token(d->graph->tensor(sink_of_heads(d, UID_SINK).set_name("sink")));
    if (d->p->bias_heads > 0)
        options->set_bias(d->graph->tensor(bias_of(d, UID_BIAS, &d->t->bias).set_name("bias")));
    if (d->sequences.packed) {
        d->len_q = array(d->graph, UID_LEN_Q, d->sequences.count, fe::DataType_t::INT32);
        d->len_kv = array(d->graph, UID_LEN_KV, d->sequences.count, fe::DataType_t::INT32);
        options->set_padding_mask(d->p->softcap == 0.0f).set_seq_len_q(d->len_q).set_seq_len_kv(d->len_kv);
    }
    if (d->p->softcap == 0.0f)
        set_band(options, d);
}

inline tensor_pointer dropout_mask(const struct description *d)
{
    const struct attn_problem *p = d->p;
    return d->graph->tensor(fe::graph::Tensor_attributes()
                                .set_name("dropout mask")
                                .set_uid(UID_MASK)
                                .set_dim({d->sequences.count, p->q_heads, p->q_len, p->kv_len})
                                .set_stride({p->q_heads * p->q_len * p->kv_len, p->q_len * p->kv_len, p->kv_len, 1})
                                .set_data_type(data_type(p)));
}

inline void describe_forward(struct description *d)
{
    const struct attn_tensors *t = d->t;
    const tensor_pointer q = input(d, "Q", UID_Q, &t->q);
    const tensor_pointer k = input(d, "K", UID_K, &t->k);
    const tensor_pointer v = input(d, "V", UID_V, &t->v);
    auto options = fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true);
    set_options(&options, d);
    if (d->p->softcap != 0.0f)
        set_softcap(&options, d, d->graph->tensor(d->p->softcap));
    if (d->p->dropout != 0.0f)
        options.set_dropout(dropout_mask(d), d->graph->tensor(1.0f / (1.0f - d->p->dropout)));
    const auto outputs = d->graph->sdpa(q, k, v, options);
    shape(d, outputs[0].get(), UID_O, &t->o);
    shape_lse(d, outputs[1].get());
    outputs[0]->set_output(true);
    outputs[1]->set_output(true);
}

/* The totals of packed rows let the front end give its intermediate tensors the packed layout, with the strides of dK
 * and dV times the group: right only where all heads of a row lie within the row's stride. */
inline void set_totals(fe::graph::SDPA_backward_attributes *options, const struct description *d)
{
    const struct attn_problem *p = d->p;
    if (!d->sequences.packed)
        return;
    options->set_max_total_seq_len_q(p->total_q);
    if (p->kv_heads * d->t->dk.stride_head <= d->t->dk.stride_row &&
        p->kv_heads * d->t->dv.stride_head <= d->t->dv.stride_row)
        options->set_max_total_seq_len_kv(p->total_k);
}

inline void describe_backward(struct description *d)
{
    const struct attn_tensors *t = d->t;
    const tensor_pointer q = input(d, "Q", UID_Q, &t->q);
    const tensor_pointer k = input(d, "K", UID_K, &t->k);
    const tensor_pointer v = input(d, "V", UID_V, &t->v);
    const tensor_pointer o = input(d, "O", UID_O, &t->o);
    const tensor_pointer dout = input(d, "dO", UID_DOUT, &t->dout);
    auto lse_attributes = fe::graph::Tensor_attributes().set_name("LSE");
    shape_lse(d, &lse_attributes);
    const tensor_pointer lse = d->graph->tensor(lse_attributes);
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("backward")
                       .set_deterministic_algorithm(d->request->deterministic);
    set_options(&options, d);
    set_totals(&options, d);
    if (d->p->softcap != 0.0f) {
        const tensor_pointer cap = d->graph->tensor(d->p->softcap);
        const auto softcap = set_softcap(&options, d, cap);
        options.set_score_mod_bprop([softcap, cap](const graph_pointer &graph, const tensor_pointer &slope) {
            return softcap->backward(graph, slope, cap);
        });
    }
    const unsigned wanted = attn_wanted_outputs(d->request);
    if (wanted & ATTN_DSINK)
        options.set_dsink_token(std::make_shared<fe::graph::Tensor_attributes>(
            sink_of_heads(d, UID_DSINK).set_name("dSink").set_output(true)));
    if (wanted & ATTN_DBIAS)
        options.set_dbias(std::make_shared<fe::graph::Tensor_attributes>(
            bias_of(d, UID_DBIAS, &t->dbias).set_name("dBias").set_output(true)));
    const auto outputs = d->graph->sdpa_backward(q, k, v, o, dout, lse, options);
    shape(d, outputs[0].get(), UID_DQ, &t->dq);
    shape(d, outputs[1].get(), UID_DK, &t->dk);
    shape(d, outputs[2].get(), UID_DV, &t->dv);
    for (const tensor_pointer &output : outputs)
        output->set_output(true);
}

inline void describe(fe::graph::Graph *graph, const struct attn_request *request, const struct attn_tensors *tensors,
                     const struct sequences &sequences)
{
    struct description d = {graph, request, request->problem, tensors, sequences, nullptr, nullptr};
    graph->set_io_data_type(data_type(request->problem))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(request->device->sm);
    if (request->mode == ATTN_FWD)
        describe_forward(&d);
    else
        describe_backward(&d);
}

} // namespace cudnn_graph

#endif
