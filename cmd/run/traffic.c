/* What a launch has to move and to compute. */
#include "cmd/run/traffic.h"

#include <math.h>

#include "cmd/problem/problem.h"
#include "cmd/problem/problem_arrays.h"

enum { SUM_BYTES = 4, STATISTICS = 2 }; /* fp32; of a row: LSE and the row sum of dO O */

static bool is_plain(const struct attn_problem *p)
{
    return p->lengths == ATTN_FIXED && p->mask_block == 0 && p->page_size == 0;
}

/* Keys that the rows from `row` to before `end` see, in whole tiles of `tile` keys. */
static double seen_keys(const struct attn_problem *p, int64_t row, int64_t end, int64_t tile)
{
    int64_t first, last, ignored;
    attn_visible(p, row, &first, &ignored);
    attn_visible(p, (end < p->q_len ? end : p->q_len) - 1, &ignored, &last);
    if (first < 0)
        first = 0;
    return last < first ? 0 : (double)((last / tile - first / tile + 1) * tile);
}

/* Keys, over all tiles of `rows` rows of a query head, that a tile goes through in whole tiles of `keys`. */
static double keys_of_tiles(const struct attn_problem *p, int64_t rows, int64_t keys)
{
    double sum = 0;
    for (int64_t row = 0; row < p->q_len; row += rows)
        sum += seen_keys(p, row, row + rows, keys);
    return sum;
}

/* Rows, over all tiles of `keys` keys of a query head, that a tile goes through in whole tiles of `rows`. */
static double rows_of_tiles(const struct attn_problem *p, int64_t rows, int64_t keys)
{
    double area = 0; /* in tiles */
    for (int64_t row = 0; row < p->q_len; row += rows)
        area += seen_keys(p, row, row + rows, keys) / (double)keys;
    return area * (double)rows;
}

/* ---- naive ---- */

static struct traffic naive(const struct plan_item *item)
{
    const struct attn_problem *const p = &item->problem;
    const double bytes = (double)attn_dtype_bytes(p->dtype), heads = (double)p->batch * (double)p->q_heads;
    const double pitch = (double)((p->kv_len + 7) / 8 * 8), square = heads * (double)p->q_len * pitch;
    const double visible = problem_pairs(p, item->arrays) / (heads * (double)p->q_len * (double)p->kv_len);
    const double min = problem_min_bytes(p, item->mode, (double)problem_all_keys(p));
    const double lse = heads * (double)p->q_len * SUM_BYTES;
    const double both = (double)p->head_dim + (double)attn_v_head_dim(p);
    struct traffic t = {.l2_bytes = NAN};
    if (item->mode == ATTN_FWD) {
        /* scores write S; softmax reads what is visible and writes P; output reads P. */
        t.dram_bytes = min + (1 + visible + 1 + 1) * square * bytes;
        t.flops = 2 * both * square;
    } else {
        /* dv reads P; dp writes dP; ds reads what is visible of P and dP and writes dS; dq and dk read dS. dO is read
         * twice, O and LSE not at all. */
        t.dram_bytes = min - lse + (1 + 1 + 2 * visible + 1 + 2) * square * bytes;
        t.flops = 4 * both * square;
    }
    return t;
}

/* ---- the others ---- */

/* Bytes of a row of Q and of O, for all query heads. */
struct row_bytes {
    double q, o, sums; /* sums: dQ in fp32 */
};

static struct row_bytes row_bytes_of(const struct attn_problem *p)
{
    const double heads = (double)p->batch * (double)p->q_heads;
    return (struct row_bytes){
        .q = heads * (double)p->head_dim * (double)attn_dtype_bytes(p->dtype),
        .o = heads * (double)attn_v_head_dim(p) * (double)attn_dtype_bytes(attn_output_dtype(p)),
        .sums = heads * (double)p->head_dim * SUM_BYTES,
    };
}

static double fused_dram(const struct plan_item *item)
{
    const struct attn_problem *const p = &item->problem;
    const struct row_bytes row = row_bytes_of(p);
    const double rows = (double)problem_all_rows(p) / (double)(p->lengths == ATTN_PACKED ? 1 : p->batch);
    const double min = problem_min_bytes(p, item->mode, problem_used_keys(p, item->arrays));
    const double statistics = STATISTICS * SUM_BYTES * (double)p->batch * (double)p->q_heads;
    if (item->mode == ATTN_FWD)
        return min;
    return min + rows * (row.o + 2 * row.sums + 2 * statistics);
}

static double fused_l2(const struct plan_item *item, const struct attn_work *work)
{
    const struct attn_problem *const p = &item->problem;
    const struct row_bytes row = row_bytes_of(p);
    const double heads = (double)p->batch * (double)p->q_heads, q_len = (double)p->q_len;
    const double key = ((double)p->head_dim + (double)attn_v_head_dim(p)) * (double)attn_dtype_bytes(attn_kv_dtype(p));
    const double statistics = STATISTICS * SUM_BYTES * heads;
    if (item->mode == ATTN_FWD)
        return q_len * (row.q + row.o + heads * SUM_BYTES) +
               heads * keys_of_tiles(p, work->tile_rows, work->tile_keys) * key;
    /* The kernel before reads O, dO and LSE and writes statistics and zeros; the one behind reads sums and writes dQ.
     * K, V and dK, dV once; each tile of keys reads Q, dO and statistics and adds to the sums. */
    const double around = q_len * (2 * row.o + heads * SUM_BYTES + statistics + 2 * row.sums + row.q);
    const double keys = 2 * (double)p->batch * (double)p->kv_heads * (double)p->kv_len * key;
    return around + keys + rows_of_tiles(p, work->tile_rows, work->tile_keys) * (row.q + row.o + statistics + row.sums);
}

struct traffic traffic_of(const struct plan_item *item, bool is_naive, const struct attn_work *work)
{
    const struct attn_problem *const p = &item->problem;
    if (is_naive) {
        const bool is_dense = is_plain(p) && p->window_left < 0 && p->window_right < 0 && p->softcap == 0 &&
                              p->dropout == 0 && !attn_dtype_is_8_bit(p->dtype) && !p->has_alibi && !p->bias_batch;
        return is_dense ? naive(item) : (struct traffic){NAN, NAN, NAN};
    }
    return (struct traffic){
        .dram_bytes = fused_dram(item),
        .l2_bytes = is_plain(p) && work->tile_rows > 0 && work->tile_keys > 0 ? fused_l2(item, work) : (double)NAN,
        .flops = work->flops > 0 ? work->flops : (double)NAN,
    };
}
