/* The float64 oracle beyond dense attention: against golden vectors, against the definition written as plain loops, and
 * Philox4x32-10 with the layout of dropout. Runs from the root of the repository. */
#include "tests/unit/reference/family.h"

/* ---- golden vectors ---------------------------------------------------------------------------------------------- */

static void golden_vectors(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDEN_FAMILY_CASES; i++) {
        struct golden_family g = golden_family_load(golden_family_names[i]);
        const struct attn_problem *p = &g.problem;
        struct reference_outputs out = outputs_new(p);
        run_oracle(p, g.has_backward ? ATTN_BWD : ATTN_FWD, &g.in, &out, 2);
        const bool packed = attn_rows_are_packed(p);
        const int64_t batch = packed ? 1 : p->batch, d = p->head_dim, dv = attn_v_head_dim(p);
        const int64_t q_len = packed ? p->total_q : p->q_len;
        const int64_t kv_len = p->lengths == ATTN_PACKED ? p->total_k : p->kv_len;
        const struct {
            const char *name;
            float *got;
            struct attn_tensor want;
            int64_t heads, len, width;
        } all[] = {{"o", out.o, g.want.o, p->q_heads, q_len, dv},
                   {"lse", out.lse, {g.want.lse, p->q_heads * q_len, q_len, 1}, p->q_heads, q_len, 1},
                   {"dq", out.dq, g.want.dq, p->q_heads, q_len, d},
                   {"dk", out.dk, g.want.dk, p->kv_heads, kv_len, d},
                   {"dv", out.dv, g.want.dv, p->kv_heads, kv_len, dv},
                   {"dsink", out.dsink, {g.want.dsink, 0, 1, 1}, p->has_sink ? p->q_heads : 0, 1, 1},
                   {"dbias", out.dbias, g.want.dbias, p->bias_heads, p->bias_heads ? p->q_len : 0, p->kv_len}};
        for (int n = 0; n < (g.has_backward ? 7 : 2); n++) {
            const struct attn_tensor got = {all[n].got, all[n].heads * all[n].len * all[n].width,
                                            all[n].len * all[n].width, all[n].width};
            const int64_t planes = n == 5 ? 1 : n == 6 ? p->bias_batch : batch;
            const double rms = golden_rms(got, all[n].want, planes, all[n].heads, all[n].len, all[n].width);
            if (!(rms <= 1e-6))
                fail_msg("%s: %s has a relative RMS error of %.3g", golden_family_names[i], all[n].name, rms);
        }
        outputs_free(&out);
        golden_family_free(&g);
    }
}

/* ---- the definition ---------------------------------------------------------------------------------------------- */

/* Row vectors of sequence b, dequantised. */
static void row_of_q(const struct made *m, int64_t b, int64_t h, int64_t i, double *to)
{
    const struct attn_problem *p = &m->p;
    const int64_t blocks = p->scale_block ? (p->q_len + p->scale_block - 1) / p->scale_block : 0;
    double scale = 1;
    if (p->quant_scale == ATTN_SCALE_TENSOR)
        scale = (double)m->t.scale_q[0];
    if (p->quant_scale == ATTN_SCALE_HEAD && !p->cache_dtype)
        scale = (double)m->t.scale_q[b * p->kv_heads + h / (p->q_heads / p->kv_heads)];
    if (p->quant_scale == ATTN_SCALE_BLOCK && attn_rows_are_packed(p))
        scale = (double)m->t.scale_q[h * (p->total_q / p->scale_block + p->batch) +
                                     m->t.cu_seqlens_q[b] / p->scale_block + b + i / p->scale_block];
    else if (p->quant_scale == ATTN_SCALE_BLOCK)
        scale = (double)m->t.scale_q[(b * p->q_heads + h) * blocks + i / p->scale_block];
    for (int64_t c = 0; c < p->head_dim; c++)
        to[c] = scale * (double)fill_load(m->t.q.data, p->dtype, attn_row_offset(p, &m->t, m->t.q, b, h, i) + c);
}

static void row_of_key(const struct made *m, struct attn_tensor x, int64_t d, const float *scales, int64_t b, int64_t g,
                       int64_t j, double *to)
{
    const struct attn_problem *p = &m->p;
    const int64_t blocks = p->scale_block ? (p->kv_len + p->scale_block - 1) / p->scale_block : 0;
    double scale = 1;
    if (p->quant_scale == ATTN_SCALE_TENSOR)
        scale = (double)scales[0];
    if (p->quant_scale == ATTN_SCALE_HEAD)
        scale = (double)scales[b * p->kv_heads + g];
    if (p->quant_scale == ATTN_SCALE_BLOCK && p->lengths == ATTN_PACKED)
        scale = (double)scales[g * (p->total_k / p->scale_block + p->batch) + m->t.cu_seqlens_k[b] / p->scale_block +
                               b + j / p->scale_block];
    else if (p->quant_scale == ATTN_SCALE_BLOCK)
        scale = (double)scales[(b * p->kv_heads + g) * blocks + j / p->scale_block];
    for (int64_t c = 0; c < d; c++)
        to[c] = scale * (double)fill_load(x.data, attn_kv_dtype(p), attn_key_offset(p, &m->t, x, b, g, j) + c);
}

static double dot(const double *x, const double *y, int64_t count)
{
    double sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += x[c] * y[c];
    return sum;
}

enum { MAX_DIM = 64 };

/* The element of the contiguous bias. */
static int64_t bias_place(const struct attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t plane = (p->bias_batch > 1 ? b * p->bias_heads : 0) + (p->bias_heads > 1 ? h : 0);
    return (plane * p->q_len + i) * p->kv_len + j;
}

/* The product over absolute values of an element, and the sum of the squares of its terms of dS. */
static double product_of(double absolute, double squares)
{
    return fmax(absolute, sqrt(2 / 3.14159265358979324 * squares));
}

/* One row: adds what it contributes to dk, dv and their _abs and to the squares of dk, of which row 0 is key 0 of its
 * sequence and head, and to the two sums of its head's dSink. */
static void definition_row(const struct made *m, int64_t b, int64_t h, int64_t i, struct attn_sequence at,
                           double *rows[4], double *keys[5], double *sinks, double *biases, double *lse)
{
    const struct attn_problem *p = &m->p;
    const int64_t g = h / (p->q_heads / p->kv_heads), d = p->head_dim, dv = attn_v_head_dim(p);
    const int64_t shift = at.kv_len - at.q_len;
    double q[MAX_DIM], k[MAX_DIM], v[MAX_DIM], dout[MAX_DIM], o[MAX_DIM] = {0}, squares[MAX_DIM] = {0};
    double spread2 = 0, size2 = 0, sum = 0, max = -INFINITY;
    double *s = malloc((size_t)(at.kv_len + 1) * 2 * sizeof *s), *const capped = s + at.kv_len + 1;
    assert_non_null(s);
    row_of_q(m, b, h, i, q);
    for (int64_t c = 0; c < dv; c++)
        dout[c] =
            (double)fill_load(m->t.dout.data, attn_output_dtype(p), attn_row_offset(p, &m->t, m->t.dout, b, h, i) + c);
    for (int64_t j = 0; j < at.kv_len; j++) {
        bool sees = (!p->causal || j <= i + shift) && (p->window_left < 0 || j >= i + shift - p->window_left) &&
                    (p->window_right < 0 || j <= i + shift + p->window_right);
        if (p->mask_block) {
            const int64_t rows_of_blocks = (p->q_len + p->mask_block - 1) / p->mask_block;
            const int64_t blocks = (p->kv_len + p->mask_block - 1) / p->mask_block;
            const int64_t plane = (p->mask_batch > 1 ? b * p->mask_heads : 0) + (p->mask_heads > 1 ? h : 0);
            sees = sees && m->t.block_mask[(plane * rows_of_blocks + i / p->mask_block) * blocks + j / p->mask_block];
        }
        row_of_key(m, m->t.k, d, m->t.scale_k, b, g, j, k);
        s[j] = (double)p->scale * dot(q, k, d);
        if (p->softcap != 0)
            s[j] = (double)p->softcap * tanh(s[j] / (double)p->softcap);
        capped[j] = s[j];
        if (p->bias_heads)
            s[j] += (double)fill_load(m->t.bias.data, p->bias_dtype, bias_place(p, b, h, i, j));
        if (p->has_alibi)
            s[j] -= (double)m->t.alibi_slopes[h] * fabs((double)(i + shift - j));
        s[j] = sees ? s[j] : -INFINITY;
        max = fmax(max, s[j]);
    }
    if (p->has_sink)
        max = fmax(max, (double)m->t.sink[h]);
    for (int64_t j = 0; j < at.kv_len && max != -INFINITY; j++)
        sum += exp(s[j] - max);
    if (p->has_sink)
        sum += exp((double)m->t.sink[h] - max);
    *lse = max == -INFINITY ? -INFINITY : max + log(sum);
    for (int64_t c = 0; c < MAX_DIM; c++)
        rows[0][c] = rows[1][c] = rows[2][c] = rows[3][c] = 0;
    for (int pass = 0; pass < 3 && max != -INFINITY; pass++) {
        for (int64_t c = 0; c < dv && pass == 1; c++) {
            o[c] = rows[0][c];
            spread2 += pow(dout[c] * o[c], 2);
        }
        if (pass == 1 && p->has_sink) {
            const double share = exp((double)m->t.sink[h] - *lse);
            sinks[0] -= share * dot(dout, o, dv);
            sinks[1] += share * share * spread2;
        }
        for (int64_t j = 0; j < at.kv_len; j++) {
            const double prob = exp(s[j] - *lse), drop = 65536 * (double)p->dropout - 0.5;
            const bool is_dropped = p->dropout != 0 && attn_dropout_bits(p->dropout_seed, b, h, i, j) < drop;
            const double factor = is_dropped ? 0 : 1 / (1 - (double)p->dropout);
            row_of_key(m, m->t.v, dv, m->t.scale_v, b, g, j, v);
            row_of_key(m, m->t.k, d, m->t.scale_k, b, g, j, k);
            const double inner = p->softcap != 0 && prob > 0 ? 1 - pow(capped[j] / (double)p->softcap, 2) : 1;
            const double part = factor * dot(dout, v, dv) - dot(dout, o, dv),
                         ds = (double)p->scale * inner * prob * part;
            const double lambda = reference_logit_error(p, *lse);
            const double spread = fmax(inner * sqrt(spread2), sqrt(size2)) + (1 - inner + lambda * inner) * fabs(part);
            const double ds_abs = fabs((double)p->scale) * prob * spread;
            if (pass == 1 && p->bias_heads) {
                biases[2 * bias_place(p, b, h, i, j)] += prob * part;
                biases[2 * bias_place(p, b, h, i, j) + 1] +=
                    pow(prob * (sqrt(spread2) + lambda * fabs(part) + 0.5625 * factor * fabs(dot(dout, v, dv))), 2);
            }
            if (pass == 1)
                size2 += pow(inner * prob * part, 2);
            for (int64_t c = 0; c < dv && pass == 0; c++) {
                rows[0][c] += factor * prob * v[c];
                rows[1][c] += factor * prob * fabs(v[c]);
            }
            for (int64_t c = 0; c < d && pass == 2; c++) {
                rows[2][c] += ds * k[c];
                rows[3][c] += ds_abs * fabs(k[c]);
                keys[0][j * d + c] += ds * q[c];
                keys[2][j * d + c] += ds_abs * fabs(q[c]);
                squares[c] += pow(ds * k[c], 2);
                keys[4][j * d + c] += pow(ds * q[c], 2);
            }
            for (int64_t c = 0; c < dv && pass == 2; c++) {
                keys[1][j * dv + c] += factor * prob * dout[c];
                keys[3][j * dv + c] += factor * prob * fabs(dout[c]);
            }
        }
    }
    for (int64_t c = 0; c < d; c++)
        rows[3][c] = product_of(rows[3][c], squares[c]);
    free(s);
}

static void store(float *to, int64_t place, const double *from, int64_t count)
{
    for (int64_t c = 0; c < count; c++)
        to[place * count + c] = (float)from[c];
}

static void definition(const struct made *m, const struct reference_outputs *out)
{
    const struct attn_problem *p = &m->p;
    const int64_t d = p->head_dim, dv = attn_v_head_dim(p), group = p->q_heads / p->kv_heads;
    double vectors[4][MAX_DIM], *rows[4] = {vectors[0], vectors[1], vectors[2], vectors[3]}, *keys[5];
    double sinks[16][2] = {{0}}, *const biases = calloc((size_t)(2 * bias_elements(p) + 1), sizeof *biases);
    assert_non_null(biases);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t g = 0; g < p->kv_heads; g++) {
            const struct attn_sequence at = attn_sequence_at(p, &m->t, b);
            const bool packed = p->lengths == ATTN_PACKED;
            for (int n = 0; n < 5; n++)
                assert_non_null(keys[n] = calloc((size_t)(at.kv_len * MAX_DIM + 1), sizeof **keys));
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                for (int64_t i = 0; i < at.q_len; i++) {
                    double lse;
                    const int64_t place =
                        p->total_q ? h * p->total_q + at.q_first + i : (b * p->q_heads + h) * p->q_len + i;
                    definition_row(m, b, h, i, at, rows, keys, sinks[h], biases, &lse);
                    out->lse[place] = (float)lse;
                    store(out->o, place, rows[0], dv);
                    store(out->o_abs, place, rows[1], dv);
                    store(out->dq, place, rows[2], d);
                    store(out->dq_abs, place, rows[3], d);
                }
            float *const to[] = {out->dk, out->dv, out->dk_abs, out->dv_abs};
            for (int64_t e = 0; e < at.kv_len * d; e++)
                keys[2][e] = product_of(keys[2][e], keys[4][e]);
            free(keys[4]);
            for (int n = 0; n < 4; n++) {
                for (int64_t j = 0; j < at.kv_len; j++)
                    store(to[n], packed ? g * p->total_k + at.k_first + j : (b * p->kv_heads + g) * p->kv_len + j,
                          keys[n] + j * (n % 2 ? dv : d), n % 2 ? dv : d);
                free(keys[n]);
            }
        }
    for (int64_t i = 0; i < bias_elements(p); i++) {
        out->dbias[i] = (float)biases[2 * i];
        out->dbias_abs[i] = (float)sqrt(biases[2 * i + 1]);
    }
    free(biases);
    for (int64_t h = 0; h < (p->has_sink ? p->q_heads : 0); h++) {
        out->dsink[h] = (float)sinks[h][0];
        out->dsink_abs[h] = (float)sqrt(sinks[h][1]);
    }
}

static void assert_near(const char *where, int output, const float *x, const float *ref, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (x[i] == ref[i] || (isnan(x[i]) && isnan(ref[i]))) /* infinities; unused slots of a cache */
            continue;
        if (!(fabs((double)x[i] - (double)ref[i]) <= 1e-11 + 2e-7 * fabs((double)ref[i])))
            fail_msg("%s: output %d [%lld] is %.9g, expected %.9g", where, output, (long long)i, (double)x[i],
                     (double)ref[i]);
    }
}

static const struct attn_problem problems[] = {
    {CAUSAL, .softcap = 1.5f},
    {BASE(1, 2, 1, 40, 33, 8, false, 5, 3), .softcap = 20},
    {CAUSAL, .v_head_dim = 24},
    {CAUSAL, .has_sink = true},
    {ANY, .has_alibi = true},
    {ANY, BIAS(3, 4)},
    {CAUSAL, BIAS(1, 4), DROPOUT, .softcap = 3},
    {BASE(5, 4, 2, 70, 50, 8, true, 12, -1), PACKED, BIAS(5, 1), .has_sink = true},
    {CAUSAL, PACKED, BIAS(1, 1)},
    {CAUSAL, PACKED, DROPOUT, .has_alibi = true, .softcap = 3},
    {BASE(2, 4, 2, 65, 40, 8, true, 9, -1), .has_sink = true}, /* rows that see nothing */
    {ANY, PACKED, DROPOUT, .has_sink = true, .softcap = 3},
    {ANY, PACKED, DROPOUT, .v_head_dim = 8, .softcap = 2},
    {ANY, DROPOUT},
    {CAUSAL, DROPOUT, .softcap = 2},
    {BASE(2, 2, 2, 65, 40, 8, true, 9, -1), DROPOUT},
    {ANY, MASK(16, 3, 4)},
    {CAUSAL, MASK(32, 1, 1)},
    {CAUSAL, MASK(64, 3, 1), DROPOUT},
    {ANY, PACKED},
    {CAUSAL, PACKED, DROPOUT},
    {BASE(5, 2, 1, 70, 50, 8, true, 12, -1), PACKED, .softcap = 3},
    {BASE(4, 2, 1, 50, 70, 8, false, 12, 4), PACKED, MASK(16, 4, 2)},
    {ANY, EIGHT(ATTN_E4M3, TENSOR, 0)},
    {CAUSAL, EIGHT(ATTN_E5M2, HEAD, 0)},
    {CAUSAL, EIGHT(ATTN_E4M3, BLOCK, 32)},
    {CAUSAL, EIGHT(ATTN_E4M3, BLOCK, 16), PACKED},
    {CAUSAL, EIGHT(ATTN_E5M2, HEAD, 0), PACKED, DROPOUT},
};

/* Where logits are large, here by a bias, each dS has their error, and |dBias| of an element of one head holds it. */
static void logits_in_dbias(void **state)
{
    static const struct attn_problem problem = {BASE(2, 4, 2, 30, 40, 8, true, -1, -1), .dtype = ATTN_FP16, BIAS(2, 4)};
    (void)state;
    struct made m = make(&problem);
    struct reference_outputs out = outputs_new(&m.p);
    int64_t larger = 0;
    assert_int_equal(m.p.bias_dtype, ATTN_FP32);
    for (int64_t b = 0; b < m.p.bias_batch; b++)
        for (int64_t h = 0; h < m.p.bias_heads; h++)
            for (int64_t i = 0; i < m.p.q_len; i++)
                for (int64_t j = 0; j < m.p.kv_len; j++)
                    ((float *)m.t.bias.data)[attn_bias_offset(&m.p, m.t.bias, b, h, i) + j] += 20000;
    run_oracle(&m.p, ATTN_BWD, &m.t, &out, 1);
    for (int64_t i = 0; i < bias_elements(&m.p); i++) {
        const double lambda = reference_logit_error(&m.p, (double)out.lse[i / m.p.kv_len]);
        const double error = lambda * fabs((double)out.dbias[i]);
        assert_true((double)out.dbias_abs[i] >= error * (1 - 1e-6));
        larger += error > 0.5 * (double)out.dbias_abs[i];
    }
    assert_true(larger > 10);
    outputs_free(&out);
    made_free(&m);
}

static void definition_as_plain_loops(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof problems / sizeof *problems; n++) {
        char where[32];
        snprintf(where, sizeof where, "problem %zu", n);
        struct made m = make(&problems[n]);
        struct reference_outputs out = outputs_new(&m.p), other = outputs_new(&m.p), ref = outputs_new(&m.p);
        float **a[OUTPUTS], **b[OUTPUTS], **r[OUTPUTS];
        run_oracle(&m.p, ATTN_BWD, &m.t, &out, 1);
        run_oracle(&m.p, ATTN_BWD, &m.t, &other, 5);
        definition(&m, &ref);
        list_outputs(&out, a);
        list_outputs(&other, b);
        list_outputs(&ref, r);
        for (int i = 0; i < OUTPUTS; i++) {
            assert_near(where, i, *a[i], *r[i], output_elements(&m.p, i));
            assert_memory_equal(*a[i], *b[i], (size_t)output_elements(&m.p, i) * sizeof(float));
        }
        outputs_free(&out);
        outputs_free(&other);
        outputs_free(&ref);
        made_free(&m);
    }
}

/* Against a cache: paged, contiguous, ragged, 8-bit, with a window. What is behind the used keys is NaN. */
static void caches(void **state)
{
    (void)state;
    static const struct attn_problem all[] = {
        {BASE(3, 4, 2, 1, 60, 16, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16},
        {BASE(4, 4, 1, 5, 61, 8, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 8, .softcap = 4},
        {BASE(3, 2, 2, 3, 40, 8, false, -1, -1), .lengths = ATTN_CACHE},
        {BASE(3, 2, 2, 3, 40, 8, true, 7, -1), .lengths = ATTN_CACHE, .page_size = 16, DROPOUT},
        {BASE(3, 4, 2, 2, 50, 16, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16, EIGHT(ATTN_E4M3, BLOCK, 32)},
        {BASE(5, 4, 2, 70, 150, 16, true, -1, -1), MIXED, .page_size = 16},
        {BASE(6, 2, 1, 20, 40, 8, false, 12, -1), MIXED, DROPOUT, .has_sink = true},
        {BASE(4, 4, 2, 30, 90, 8, true, -1, -1), MIXED, .page_size = 8, .has_alibi = true, .softcap = 3},
        {BASE(4, 4, 2, 30, 90, 8, true, -1, -1), MIXED, BIAS(4, 4), .layout = ATTN_BHSD},
        {BASE(5, 4, 2, 40, 90, 16, true, -1, -1), MIXED, .page_size = 16, EIGHT(ATTN_E4M3, BLOCK, 16)},
        {BASE(3, 4, 2, 1, 60, 16, true, -1, -1), .lengths = ATTN_CACHE, .page_size = 16,
         NARROW_CACHE(ATTN_E4M3, ATTN_BF16)},
        {BASE(3, 4, 2, 7, 60, 16, false, 9, -1), .lengths = ATTN_CACHE, NARROW_CACHE(ATTN_E5M2, ATTN_FP16), DROPOUT},
        {BASE(5, 4, 2, 40, 90, 16, true, -1, -1), MIXED, .page_size = 8, NARROW_CACHE(ATTN_E4M3, ATTN_FP16)},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        struct made m = make(&all[n]);
        const struct attn_problem *p = &m.p;
        poison_cache(&m);
        char where[32];
        snprintf(where, sizeof where, "cache %zu", n);
        struct reference_outputs out = outputs_new(p), ref = outputs_new(p);
        run_oracle(p, ATTN_FWD, &m.t, &out, 2);
        definition(&m, &ref);
        for (int64_t i = 0; i < q_rows(p); i++)
            assert_true(isfinite(out.lse[i]));
        assert_near(where, 0, out.o, ref.o, q_rows(p) * p->head_dim);
        assert_near(where, 1, out.lse, ref.lse, q_rows(p));
        assert_near(where, 5, out.o_abs, ref.o_abs, q_rows(p) * p->head_dim);
        outputs_free(&out);
        outputs_free(&ref);
        made_free(&m);
    }
}

/* A part of a problem, told where it lies, has the results of the whole. */
static void a_part_counts_from_its_place(void **state)
{
    (void)state;
    const struct attn_problem whole = {BASE(2, 4, 2, 70, 90, 16, true, -1, -1), DROPOUT, MASK(16, 1, 1)};
    struct made m = make(&whole);
    struct reference_outputs all = outputs_new(&m.p);
    run_oracle(&m.p, ATTN_FWD, &m.t, &all, 2);
    struct attn_problem part = m.p;
    part.batch = part.q_heads = part.kv_heads = 1;
    part.q_len = 20; /* the last rows, which see the same keys in a problem with fewer rows */
    struct attn_tensors t = m.t;
    t.q.data = (float *)t.q.data + t.q.stride_batch + 3 * t.q.stride_head + 50 * t.q.stride_row;
    t.k.data = (float *)t.k.data + t.k.stride_batch + t.k.stride_head;
    t.v.data = (float *)t.v.data + t.v.stride_batch + t.v.stride_head;
    struct reference_outputs some = outputs_new(&part);
    some.first_batch = 1;
    some.first_head = 3;
    some.first_row = 50;
    run_oracle(&part, ATTN_FWD, &t, &some, 1);
    const int64_t row = (1 * 4 + 3) * 70 + 50;
    assert_near("part", 0, some.o, all.o + row * 16, 20 * 16);
    assert_near("part", 1, some.lse, all.lse + row, 20);
    outputs_free(&some);
    outputs_free(&all);
    made_free(&m);
}

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

/* The known answers that Random123, the generator's own library, publishes (kat_vectors, philox4x32-10). */
static void philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t n = 0; n < sizeof known / sizeof *known; n++) {
        uint32_t words[4];
        memcpy(words, known[n].counter, sizeof words);
        attn_philox(words, (uint64_t)known[n].key[1] << 32 | known[n].key[0]);
        assert_memory_equal(words, known[n].words, sizeof words);
    }
}

/* Every half of every word of a call decides one element of a 16 x 16 block, and each element has one. */
static void eight_elements_for_each_call(void **state)
{
    (void)state;
    const uint64_t seed = 0xfedcba9876543210ull;
    enum { BATCH = 7, HEAD = 5, ROW_BLOCK = 3, KEY_BLOCK = 11 };
    int used[16][16] = {{0}};
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 4; c++) {
            uint32_t words[4] = {4 * KEY_BLOCK + (uint32_t)c, 8 * ROW_BLOCK + (uint32_t)r, HEAD, BATCH};
            attn_philox(words, seed);
            for (int n = 0; n < 8; n++) {
                const int word = n / 2, row = r + 8 * (word % 2), key = 2 * c + word / 2 + 8 * (n % 2);
                assert_int_equal(attn_dropout_bits(seed, BATCH, HEAD, 16 * ROW_BLOCK + row, 16 * KEY_BLOCK + key),
                                 words[word] >> 16 * (n % 2) & 0xffff);
                used[row][key]++;
            }
        }
    for (int i = 0; i < 256; i++)
        assert_int_equal(used[i / 16][i % 16], 1);
}

/* The share that is dropped, of all elements and in every row, and that neighbours do not depend on each other: within
 * 4 sigma (5 where the largest of many rows is meant). */
static void share_and_independence(void **state)
{
    (void)state;
    enum { N = 1024 };
    static const int lags[] = {1, 2, 4, 8, 16, 32, 64};
    static uint8_t dropped[N][N], other[N];
    const double p = 0.1;
    const uint32_t threshold = attn_dropout_threshold((float)p);
    double all = 0, heads = 0;
    for (int i = 0; i < N; i++) {
        double row = 0;
        for (int j = 0; j < N; j++) {
            dropped[i][j] = attn_dropout_bits(42, 1, 2, i, j) < threshold;
            other[j] = attn_dropout_bits(42, 1, 3, i, j) < threshold;
            row += dropped[i][j];
            heads += dropped[i][j] && other[j];
        }
        all += row;
        assert_true(fabs(row - N * p) <= 5 * sqrt(N * p * (1 - p)));
    }
    const double n = (double)N * N, sigma = sqrt(p * p * (1 - p * p) / n);
    assert_true(fabs(all / n - p) <= 4 * sqrt(p * (1 - p) / n));
    assert_true(fabs(heads / n - p * p) <= 4 * sigma);
    for (int l = 0; l < 7; l++) {
        double by_row = 0, by_key = 0;
        for (int i = 0; i + lags[l] < N; i++)
            for (int j = 0; j + lags[l] < N; j++) {
                by_row += dropped[i][j] && dropped[i + lags[l]][j];
                by_key += dropped[i][j] && dropped[i][j + lags[l]];
            }
        const double pairs = pow(N - lags[l], 2);
        assert_true(fabs(by_row / pairs - p * p) <= 4 * sigma * N / (N - lags[l]));
        assert_true(fabs(by_key / pairs - p * p) <= 4 * sigma * N / (N - lags[l]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_vectors),
        cmocka_unit_test(definition_as_plain_loops),
        cmocka_unit_test(logits_in_dbias),
        cmocka_unit_test(caches),
        cmocka_unit_test(a_part_counts_from_its_place),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(eight_elements_for_each_call),
        cmocka_unit_test(share_and_independence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
