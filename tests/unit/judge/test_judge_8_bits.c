/* The bounds for kernels with 8-bit inputs: a model of one - Q K^T in the short sums of tensor cores, P rounded to the
 * 8 bits of the inputs before P V, O in bf16 - passes on every kind of inputs; with a fault it does not. */
#include "tests/unit/unit_help.h"

#include "cmd/judge/judge.h"
#include "reference/compare.h"
#include "reference/harness/fill.h"
#include "reference/harness/quantise.h"
#include "reference/reference.h"

enum {
    HEAD_DIM = 64,
    SCALE_BLOCK = 64,
    SUMMED = 32,   /* products of one instruction */
    KEPT_BITS = 13 /* behind the first one (tests/gpu/test_eight_bits.c) */
};

/* What is wrong with the model. */
enum fault {
    RIGHT,
    V_SCALE_OF_NEIGHBOUR,
    K_SCALE_OF_NEIGHBOUR,
    V_SCALE_1_PERCENT,
    K_SCALE_1_PERCENT,
    P_SATURATES,
    P_IN_5_BITS,
    LAST_TILE
};

/* One head: 8-bit tensors, scales of blocks of rows, the reference's results. */
struct made {
    struct attn_problem p;
    struct attn_tensors t;
    struct reference_outputs ref;
    void *memory[16];
    int count;
    double of_one_term; /* as limits_one_term has it */
};

static void *keep(struct made *m, size_t bytes)
{
    void *memory = calloc(1, bytes);
    assert_non_null(memory);
    m->memory[m->count++] = memory;
    return memory;
}

/* seed: of the data; with a rotation that of its signs, too. */
static void make_tensor(struct made *m, enum quantised which, enum fill_dist dist, uint64_t seed, bool is_rotated)
{
    static const enum fill_tensor ids[] = {FILL_Q, FILL_K, FILL_V};
    static float table[FILL_TABLE_SIZE];
    const int64_t len = m->p.q_len, elements = len * HEAD_DIM;
    const struct attn_tensor shape = {NULL, elements, elements, HEAD_DIM};
    struct quantise_job job = {.problem = &m->p,
                               .tensor = which,
                               .from = shape,
                               .from_dtype = ATTN_BF16,
                               .to = shape,
                               .is_rotated = is_rotated && which != QUANTISED_V,
                               .seed = seed};
    float gain;
    job.from.data = keep(m, (size_t)elements * 2);
    job.to.data = keep(m, (size_t)elements);
    job.scales = keep(m, (size_t)quantise_scales(&m->p, which) * sizeof(float));
    fill_table(dist, ids[which], table, &gain);
    fill_tensor_host(job.from, ATTN_BF16, 1, 1, len, HEAD_DIM, seed, ids[which], table, gain);
    fill_stretch_host(job.from, ATTN_BF16, 1, 1, len, HEAD_DIM, 1, ids[which], fill_stretch_of(dist, ids[which]));
    fill_first_column_host(job.from, ATTN_BF16, 1, 1, len,
                           fill_first_column(&(struct fill_spec){.dist = dist}, ids[which], HEAD_DIM));
    quantise(&job, 1);
    *(which == QUANTISED_Q ? &m->t.q : which == QUANTISED_K ? &m->t.k : &m->t.v) = job.to;
    *(which == QUANTISED_Q ? &m->t.scale_q : which == QUANTISED_K ? &m->t.scale_k : &m->t.scale_v) = job.scales;
}

static struct made make_head(int64_t len, enum fill_dist dist, enum attn_dtype dtype, uint64_t seed, bool is_rotated)
{
    struct made m = {.p = {.batch = 1,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .q_len = len,
                           .kv_len = len,
                           .head_dim = HEAD_DIM,
                           .dtype = dtype,
                           .out_dtype = ATTN_BF16,
                           .window_left = -1,
                           .window_right = -1,
                           .scale = 0.125f,
                           .quant_scale = ATTN_SCALE_BLOCK,
                           .scale_block = SCALE_BLOCK}};
    struct attn_message why;
    m.of_one_term = dist == FILL_OUTLIERS ? (dtype == ATTN_E4M3 ? 0x1p-4 : 0x1p-3) : 0;
    for (int i = 0; i < QUANTISED_COUNT; i++)
        make_tensor(&m, (enum quantised)i, dist, seed, is_rotated);
    m.ref.o = keep(&m, (size_t)(len * HEAD_DIM) * sizeof(float));
    m.ref.o_abs = keep(&m, (size_t)(len * HEAD_DIM) * sizeof(float));
    m.ref.lse = keep(&m, (size_t)len * sizeof(float));
    assert_int_equal(oracle_attention(&m.p, ATTN_FWD, &m.t, &m.ref, 2, &why), ATTN_OK);
    return m;
}

static void made_free(struct made *m)
{
    for (int i = 0; i < m->count; i++)
        free(m->memory[i]);
}

static double scale_of(const struct made *m, const float *scales, int64_t row, bool of_neighbour)
{
    const int64_t blocks = (m->p.q_len + SCALE_BLOCK - 1) / SCALE_BLOCK, block = row / SCALE_BLOCK;
    return (double)scales[of_neighbour ? (block + 1) % blocks : block];
}

/* The stored numbers, without their scales. */
static double *numbers_of(const struct made *m, struct attn_tensor t)
{
    const int64_t elements = m->p.q_len * HEAD_DIM;
    double *x = malloc((size_t)elements * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < elements; i++)
        x[i] = (double)fill_load(t.data, m->p.dtype, i);
    return x;
}

/* The product of two rows of numbers. An instruction adds 32 products to the sum so far, each cut off below the last
 * bit that the largest of them leaves. */
static double cut_product(const double *a, const double *b)
{
    double sum = 0;
    for (int first = 0; first < HEAD_DIM; first += SUMMED) {
        double most = fabs(sum);
        int exponent;
        for (int c = first; c < first + SUMMED; c++)
            most = fmax(most, fabs(a[c] * b[c]));
        frexp(most, &exponent); /* the first bit is 2^(exponent - 1) */
        const double unit = ldexp(1, exponent - 1 - KEPT_BITS), per_unit = 1 / unit;
        int64_t units = (int64_t)(sum * per_unit);
        for (int c = first; c < first + SUMMED; c++)
            units += (int64_t)(a[c] * b[c] * per_unit);
        sum = (double)units * unit;
    }
    return sum;
}

/* P as the kernel stores it: times 2^8 (e4m3) or 2^14 (e5m2), so that small elements are not lost. */
static double stored(const struct made *m, double p, enum fault fault)
{
    const int shift = fault == P_SATURATES ? 9 : m->p.dtype == ATTN_E4M3 ? 8 : 14;
    float rounded = 0;
    const enum attn_dtype dtype = fault == P_IN_5_BITS ? ATTN_E5M2 : m->p.dtype;
    fill_store(&rounded, dtype, 0, (float)ldexp(p, shift));
    return ldexp((double)fill_load(&rounded, dtype, 0), -shift);
}

/* Every row of the model's O, in bf16, and LSE. */
static void model(const struct made *m, enum fault fault, uint16_t *o, float *lse)
{
    const int64_t len = m->p.q_len, end = fault == LAST_TILE ? len - len / 16 : len;
    double *q = numbers_of(m, m->t.q), *k = numbers_of(m, m->t.k), *v = numbers_of(m, m->t.v);
    double *s = malloc((size_t)len * sizeof *s);
    for (int64_t j = 0; j < len * HEAD_DIM; j++)
        v[j] *= scale_of(m, m->t.scale_v, j / HEAD_DIM, fault == V_SCALE_OF_NEIGHBOUR) *
                (fault == V_SCALE_1_PERCENT ? 1.01 : 1);
    for (int64_t i = 0; i < len; i++) {
        const double scale_q = scale_of(m, m->t.scale_q, i, false) * (fault == K_SCALE_1_PERCENT ? 1.01 : 1);
        double row[HEAD_DIM] = {0}, most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < end; j++) {
            s[j] = cut_product(q + i * HEAD_DIM, k + j * HEAD_DIM) * scale_q *
                   scale_of(m, m->t.scale_k, j, fault == K_SCALE_OF_NEIGHBOUR);
            most = fmax(most, s[j]);
        }
        for (int64_t j = 0; j < end; j++) {
            const double p = exp((s[j] - most) * (double)m->p.scale), kept = stored(m, p, fault);
            sum += p;
            for (int64_t c = 0; c < HEAD_DIM; c++)
                row[c] += kept * v[j * HEAD_DIM + c];
        }
        for (int64_t c = 0; c < HEAD_DIM; c++)
            fill_store(o, ATTN_BF16, i * HEAD_DIM + c, (float)(row[c] / sum));
        lse[i] = (float)(most * (double)m->p.scale + log(sum));
    }
    free(s);
    free(q);
    free(k);
    free(v);
}

/* The verdict on O or LSE. short_sums: with the floor of those of 8-bit products. */
static struct record_tensor judge_head(const struct made *m, enum problem_tensor tensor, const void *x, bool short_sums)
{
    const bool is_lse = tensor == TENSOR_LSE;
    const int64_t len = m->p.q_len, head_dim = is_lse ? 1 : HEAD_DIM, elements = len * head_dim;
    const float *ref = is_lse ? m->ref.lse : m->ref.o;
    double ref2 = 0, lse = 0;
    for (int64_t i = 0; i < elements; i++)
        ref2 += (double)ref[i] * (double)ref[i];
    for (int64_t i = 0; i < len; i++)
        lse = fmax(lse, fabs((double)m->ref.lse[i]));
    const double rms = sqrt(ref2 / (double)elements);
    struct compare_block *blocks = calloc((size_t)compare_blocks_per_head(len), sizeof *blocks);
    struct judge_input in = {.tensor = tensor,
                             .blocks = blocks,
                             .batch = 1,
                             .heads = 1,
                             .len = len,
                             .head_dim = head_dim,
                             .independent_rows = len,
                             .naive_max_abs_err = 1e-9, /* of one that does not round P: rule 5 is not applied */
                             .bounds = judge_bounds_for(tensor, ATTN_BF16, ATTN_FWD, false, NAN, NAN, rms)};
    judge_floor_of_logits(&in.bounds, tensor, m->p.dtype, false, HEAD_DIM, lse, 0);
    if (!is_lse)
        judge_rounded_p(&in.bounds, m->p.dtype, false, NAN);
    if (short_sums)
        judge_floor_of_8_bits(&in.bounds, tensor, HEAD_DIM, len, lse, m->of_one_term);
    const struct compare_job job = {.x = {(void *)(uintptr_t)x, elements, elements, head_dim},
                                    .dtype = is_lse ? ATTN_FP32 : ATTN_BF16,
                                    .ref = ref,
                                    .abs = is_lse ? NULL : m->ref.o_abs,
                                    .batch = 1,
                                    .heads = 1,
                                    .len = len,
                                    .head_dim = head_dim,
                                    .atol_absolute = in.bounds.atol_absolute,
                                    .atol_element = in.bounds.atol_element,
                                    .atol_rms = in.bounds.atol_rms,
                                    .atol_abs = in.bounds.atol_abs,
                                    .rtol = in.bounds.rtol};
    struct record_tensor verdict;
    compare_blocks_cpu(&job, blocks, 1);
    judge_tensor(&in, &verdict);
    free(blocks);
    return verdict;
}

struct verdicts {
    struct record_tensor o, lse, lse_of_long_sums;
    double units_off; /* of LSE: 2^-13 of the largest */
};

static struct verdicts verdicts_of_seed(int64_t len, enum fill_dist dist, enum attn_dtype dtype, enum fault fault,
                                        uint64_t seed, bool is_rotated)
{
    struct made m = make_head(len, dist, dtype, seed, is_rotated);
    uint16_t *o = malloc((size_t)(len * HEAD_DIM) * sizeof *o);
    float *lse = malloc((size_t)len * sizeof *lse);
    model(&m, fault, o, lse);
    struct verdicts verdicts = {judge_head(&m, TENSOR_O, o, true), judge_head(&m, TENSOR_LSE, lse, true),
                                judge_head(&m, TENSOR_LSE, lse, false), 0};
    double most = 0;
    for (int64_t i = 0; i < len; i++)
        most = fmax(most, fabs((double)m.ref.lse[i]));
    verdicts.units_off = 0x1p13 * verdicts.lse.max_abs_err / most;
    free(o);
    free(lse);
    made_free(&m);
    return verdicts;
}

static struct verdicts verdicts_of(int64_t len, enum fill_dist dist, enum attn_dtype dtype, enum fault fault)
{
    return verdicts_of_seed(len, dist, dtype, fault, 1, false);
}

static void a_kernel_that_rounds_p_passes(void **state)
{
    static const enum fill_dist dists[] = {FILL_NORMAL, FILL_UNIFORM,  FILL_SHARP,    FILL_HUGE,
                                           FILL_RISING, FILL_FALLING,  FILL_CONSTANT, FILL_ZEROS,
                                           FILL_TINY,   FILL_OUTLIERS, FILL_CHANNELS, FILL_DRIFT};
    (void)state;
    for (size_t d = 0; d < sizeof dists / sizeof *dists; d++)
        for (int dtype = ATTN_E4M3; dtype <= ATTN_E5M2; dtype++)
            for (int64_t len = 40; len <= 640; len *= 4) {
                const struct verdicts v = verdicts_of(len, dists[d], (enum attn_dtype)dtype, RIGHT);
                if (!(v.o.used <= 0.85 && v.lse.used <= 0.85))
                    fail_msg("dist %d, type %d, %lld keys: %.3g of its bound by rule %s, LSE %.3g", (int)dists[d],
                             dtype, (long long)len, v.o.used, v.o.rule, v.lse.used);
            }
}

static void faults_are_caught(void **state)
{
    static const struct {
        enum fault fault;
        enum fill_dist dist;
    } cases[] = {{V_SCALE_OF_NEIGHBOUR, FILL_NORMAL}, {K_SCALE_OF_NEIGHBOUR, FILL_SHARP},
                 {V_SCALE_1_PERCENT, FILL_NORMAL},    {P_SATURATES, FILL_SHARP},
                 {P_IN_5_BITS, FILL_NORMAL},          {LAST_TILE, FILL_NORMAL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct record_tensor v = verdicts_of(640, cases[i].dist, ATTN_E4M3, cases[i].fault).o;
        if (!(v.used > 1))
            fail_msg("fault %d: %.3g of its bound by rule %s", (int)cases[i].fault, v.used, v.rule);
    }
}

/* Short sums need a floor: with that of long ones LSE of large logits fails. A scale that is 1 % too large is found. */
static void lse_of_short_sums(void **state)
{
    (void)state;
    for (int dtype = ATTN_E4M3; dtype <= ATTN_E5M2; dtype++) {
        const struct verdicts huge = verdicts_of(640, FILL_HUGE, (enum attn_dtype)dtype, RIGHT);
        const struct verdicts wrong = verdicts_of(640, FILL_NORMAL, (enum attn_dtype)dtype, K_SCALE_1_PERCENT);
        if (!(huge.lse_of_long_sums.used > 20 && huge.lse.used > 0.02 && wrong.lse.used > 2))
            fail_msg("type %d: huge %.3g and %.3g of its bound, 1 %%: %.3g", dtype, huge.lse_of_long_sums.used,
                     huge.lse.used, wrong.lse.used);
    }
}

/* Two columns of Q and K are far larger than the others, and both are rotated: half of the products of a logit are much
 * smaller than those of the other half, and may all have one sign. Each loses what is below the last bit of the sum: 32
 * of them more than 12 units together, as on an H200 (results/h200/bars/eight-bit-lse.csv). A scale that is 1 % too
 * large is found there, too. */
static void cuts_of_one_sign(void **state)
{
    enum { SEED = 8 };
    (void)state;
    const struct verdicts right = verdicts_of_seed(640, FILL_CHANNELS, ATTN_E4M3, RIGHT, SEED, true);
    const struct verdicts wrong = verdicts_of_seed(640, FILL_CHANNELS, ATTN_E4M3, K_SCALE_1_PERCENT, SEED, true);
    if (!(right.units_off > HEAD_DIM / 8 + 2 && right.lse.used <= 0.85 && right.o.used <= 0.85 && wrong.lse.used > 2))
        fail_msg("off by %.3g units, LSE at %.3g and O at %.3g of its bound, 1 %%: %.3g", right.units_off,
                 right.lse.used, right.o.used, wrong.lse.used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_that_rounds_p_passes),
        cmocka_unit_test(faults_are_caught),
        cmocka_unit_test(lse_of_short_sums),
        cmocka_unit_test(cuts_of_one_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
