"""Attention in NumPy, forward and backward, for race.py: the formulas, not a fast way to compute them."""
import numpy


def scores(q, k, scale, causal):
    """S = scale Q K^T with -inf where a row does not see a key; K has as many heads as Q."""
    s = scale * numpy.einsum("bhid,bhjd->bhij", q, k)
    if causal:  # aligned at the bottom right: row i sees key j if j <= i + kv_len - q_len
        rows, keys = s.shape[2:]
        s[:, :, numpy.arange(keys)[None, :] > numpy.arange(rows)[:, None] + keys - rows] = -numpy.inf
    return s


def spread(k, heads):
    """Grouped heads: query head h uses key head h / (heads / kv_heads)."""
    return numpy.repeat(k, heads // k.shape[1], axis=1)


def forward(q, k, v, scale, causal):
    heads = q.shape[1]
    s = scores(q, spread(k, heads), scale, causal)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        most = s.max(axis=-1, keepdims=True)
        e = numpy.exp(s - numpy.where(numpy.isfinite(most), most, 0))
        total = e.sum(axis=-1, keepdims=True)
        lse = (numpy.log(total) + numpy.where(numpy.isfinite(most), most, 0))[..., 0]
    o = numpy.einsum("bhij,bhjd->bhid", e, spread(v, heads)) / numpy.where(total > 0, total, 1)
    return o, lse


def backward(q, k, v, o, lse, do, scale, causal):
    heads, kv_heads = q.shape[1], k.shape[1]
    wide_k, wide_v = spread(k, heads), spread(v, heads)
    sees_a_key = numpy.isfinite(lse)[..., None]
    s = scores(q, wide_k, scale, causal) - numpy.where(sees_a_key, lse[..., None], 0)
    p = numpy.where(sees_a_key, numpy.exp(s), 0)
    dp = numpy.einsum("bhid,bhjd->bhij", do, wide_v)
    ds = p * (dp - (do * o).sum(axis=-1, keepdims=True))

    def gather(wide):  # the sum over the query heads of each key head
        return wide.reshape(wide.shape[0], kv_heads, heads // kv_heads, *wide.shape[2:]).sum(axis=2)

    dq = scale * numpy.einsum("bhij,bhjd->bhid", ds, wide_k)
    dk = gather(scale * numpy.einsum("bhij,bhid->bhjd", ds, q))
    dv = gather(numpy.einsum("bhij,bhid->bhjd", p, do))
    return dq, dk, dv
