#!/usr/bin/env python3
"""Makes the golden vectors: for each case (case.json) the results of attention in float64, stored as float32.

    tests/golden/make.py                 writes o, lse, dq, dk, dv of every case
    tests/golden/make.py --check         compares what is stored with what it computes; exit code 1 on a difference
    tests/golden/make.py --against DIR   DIR has cases with their inputs (q.npy, k.npy, v.npy, do.npy) and the results of
                                         another program: the formulas below, from these inputs, compared with them

It has nothing in common with the program's own reference: plain loops of Python over the definition, no tiles, no running
maximum. Inputs are not stored. Element i of a tensor is the sum of the three 21-bit fields of word i of SplitMix64, moved to mean 0
and divided by 2^20, of which the 8 most significant bits are kept: close to normal, standard deviation 1, exact in bf16.
Q and K are multiplied by `qk_factor` of the case (1). The stream's seed is the 64-bit FNV-1a hash of "<case>/<tensor>"
(tests/unit/reference/golden.h does the same). Pages and block masks are stored. Needs Python 3 and
nothing beside it. Cases with a sink, ALiBi, a bias, another head dim of V, dropout, 8 bits or new rows in a cache were
written by with_torch.py: their gradients are those of PyTorch's autograd.

8-bit tensors are the low bytes of the same words, without infinities and NaN (`stored_bytes`), times scales (`scale_of`).
Dropout has the mask of Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011) that kernels/attention.h lays out.

On 2026-11-27 --against said, of 17 cases with other inputs and results in float64 by PyTorch: largest difference 5e-8.
"""

import array
import json
import math
import operator
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WORD = (1 << 64) - 1
TOLERANCE = 1e-6  # of a stored fp32 value, relative to the largest one of its tensor


def words(name, count):
    """SplitMix64, seeded with the hash of the name."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 & WORD
    for _ in range(count):
        state = state + 0x9E3779B97F4A7C15 & WORD
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
        yield z ^ z >> 31


def inputs(name, count, factor):
    """The elements of a tensor by its name, "<case>/<tensor>"."""
    values, field = [], (1 << 21) - 1
    for z in words(name, count):
        total = 2 * ((z & field) + (z >> 21 & field) + (z >> 42 & field)) - 3 * field
        size = abs(total)
        dropped = max(size.bit_length() - 8, 0)
        values.append(math.copysign((size >> dropped << dropped) * factor / 2**21, total))
    return values


def stored_bytes(name, count, kind):
    """An 8-bit tensor by its name: bytes; what would be an infinity or NaN has the exponent 0 in its place."""
    def finite(byte):
        if kind == "e4m3":
            return byte & 0x87 if byte & 0x7F == 0x7F else byte
        return byte & 0x83 if byte & 0x7C == 0x7C else byte
    return [finite(z & 0xFF) for z in words(name, count)]


def value_of(byte, kind):
    """The number that a byte stands for: sign, exponent, fraction; an exponent of 0 has no leading 1."""
    fraction_bits, bias = (3, 7) if kind == "e4m3" else (2, 15)
    exponent, fraction = (byte & 0x7F) >> fraction_bits, (byte & (1 << fraction_bits) - 1) / 2**fraction_bits
    size = fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias)
    return -size if byte & 0x80 else size


def scale_of(tensor, index, kind):
    """Element `index` of the scales of q, k or v."""
    return (1 + (3 * index + "qkv".index(tensor)) % 8 / 8) * (2.0**-7 if kind == "e4m3" else 2.0**-14)


def kept(case, b, head, row, key):
    """What P is multiplied with: 0, or 1 / (1 - dropout) in fp32."""
    if not case.get("dropout"):
        return 1.0
    counter = [key // 16 * 4 + key % 8 // 2, row // 16 * 8 + row % 8, head, b]
    low, high = case["dropout_seed"] & 0xFFFFFFFF, case["dropout_seed"] >> 32
    for _ in range(10):
        x, y = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [y >> 32 ^ counter[1] ^ low, y & 0xFFFFFFFF, x >> 32 ^ counter[3] ^ high, x & 0xFFFFFFFF]
        low, high = low + 0x9E3779B9 & 0xFFFFFFFF, high + 0xBB67AE85 & 0xFFFFFFFF
    bits = counter[2 * (key % 2) + row // 8 % 2] >> (16 if key // 8 % 2 else 0) & 0xFFFF
    if bits < int(case["dropout"] * 65536 + 0.5):
        return 0.0
    return struct.unpack("<f", struct.pack("<f", 1 / (1 - case["dropout"])))[0]


def read_npy(path):
    """The elements of a .npy file of version 1.0 in C order."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", path
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    kind = next(code for word, code in (("'<f4'", "f"), ("'<i4'", "i"), ("'|u1'", "B")) if word.encode() in data[:begin])
    values = array.array(kind)
    values.frombytes(data[begin:])
    return values


def write_npy(path, shape, values):
    header = str({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.write(array.array("f", values).tobytes())


def dot(x, y):
    return sum(map(operator.mul, x, y))


def attend(case, q, k, v, dout, hidden, sink, added, factor):
    """One head of one sequence: lists of rows -> o, lse, dq, dk, dv, dsink, dbias. dout None: forward only. hidden(row, key):
    beside the mask of the case. sink: a logit, -inf = none. added(row, key): to S, behind the softcap. factor(row, key): of
    P, by dropout."""
    scale, softcap, shift = case["scale"], case.get("softcap", 0), len(k) - len(q)
    left, right = case.get("window_left", -1), case.get("window_right", -1)
    d, v_dim = case["head_dim"], case.get("v_head_dim", case["head_dim"])
    o, lse, dq, dsink, dbias = [], [], [], 0.0, [[0.0] * len(k) for _ in q]
    dk, dv = [[0.0] * d for _ in k], [[0.0] * v_dim for _ in k]
    for i, row in enumerate(q):
        at = i + shift
        keys = [j for j in range(len(k)) if (not case["causal"] or j <= at) and (left < 0 or j >= at - left)
                and (right < 0 or j <= at + right) and not hidden(i, j)]
        s = [scale * dot(row, k[j]) for j in keys]
        slope = [1.0] * len(s)
        if softcap:
            tanh = [math.tanh(x / softcap) for x in s]
            s, slope = [softcap * x for x in tanh], [1 - x * x for x in tanh]
        s = [x + added(i, j) for x, j in zip(s, keys)]
        has_terms = keys or sink > -math.inf
        top = max(s + [sink]) if has_terms else 0.0
        e = [math.exp(x - top) for x in s]
        total = math.fsum(e + [math.exp(sink - top)])
        p, m = [x / total for x in e], [factor(i, j) for j in keys]
        pm = [x * y for x, y in zip(p, m)]
        o.append([dot(pm, [v[j][c] for j in keys]) for c in range(v_dim)])
        lse.append(top + math.log(total) if has_terms else -math.inf)
        if dout is None:
            continue
        delta = dot(dout[i], o[i])
        dsink -= math.exp(sink - lse[i]) * delta if has_terms else 0
        for x, y, j in zip(p, m, keys):
            dbias[i][j] = x * (y * dot(dout[i], v[j]) - delta)
        ds = [dbias[i][j] * y * scale for y, j in zip(slope, keys)]
        dq.append([dot(ds, [k[j][c] for j in keys]) for c in range(d)])
        for x, y, j in zip(pm, ds, keys):
            dv[j] = [old + x * new for old, new in zip(dv[j], dout[i])]
            dk[j] = [old + y * new for old, new in zip(dk[j], row)]
    return o, lse, dq, dk, dv, dsink, dbias


class Rows:
    """A tensor as rows by (sequence, head, row); `offset` gives the first element of one, `scale` what it is multiplied by."""

    def __init__(self, values, offset, width, scale=lambda b, h, i: 1.0):
        self.values, self.offset, self.width, self.scale = values, offset, width, scale

    def get(self, b, h, count):
        return [[self.scale(b, h, i) * x for x in self.values[at:at + self.width]]
                for i, at in enumerate(self.offset(b, h, i) for i in range(count))]

    def add(self, b, h, rows):
        for i, row in enumerate(rows):
            at = self.offset(b, h, i)
            self.values[at:at + self.width] = [x + y for x, y in zip(self.values[at:at + self.width], row)]


def geometry(case, folder):
    """q_lens, kv_lens and, for rows, keys and LSE, the shape and the offset of a row of head_dim elements (LSE: of one)."""
    hq, hk, d = case["q_heads"], case["kv_heads"], case["head_dim"]
    kind = case.get("kind", "dense")
    if kind == "dense":
        b, nq, nk = case["batch"], case["q_len"], case["kv_len"]
        return ([nq] * b, [nk] * b, ((b, hq, nq, d), lambda s, h, i: ((s * hq + h) * nq + i) * d),
                ((b, hk, nk, d), lambda s, h, i: ((s * hk + h) * nk + i) * d),
                ((b, hq, nq), lambda s, h, i: (s * hq + h) * nq + i))
    if kind == "varlen":
        q_lens, kv_lens = case["q_lens"], case["kv_lens"]
        total_q, total_k = sum(q_lens), sum(kv_lens)
        at_q, at_k = ([sum(lens[:s]) for s in range(len(lens))] for lens in (q_lens, kv_lens))
        return (q_lens, kv_lens, ((total_q, hq, d), lambda s, h, i: ((at_q[s] + i) * hq + h) * d),
                ((total_k, hk, d), lambda s, h, i: ((at_k[s] + i) * hk + h) * d),
                ((hq, total_q), lambda s, h, i: h * total_q + at_q[s] + i))
    kv_lens, page = case["kv_lens"], case["page_size"]
    table = read_npy(os.path.join(folder, "page_table.npy"))
    pages, b = -(-max(kv_lens) // page), len(kv_lens)
    keys = ((max(table) + 1, page, hk, d),
            lambda s, h, j: ((table[s * pages + j // page] * page + j % page) * hk + h) * d)
    if "q_lens" in case:
        q_lens, total_q = case["q_lens"], sum(case["q_lens"])
        return (q_lens, kv_lens, ((total_q, hq, d), lambda s, h, i: ((sum(q_lens[:s]) + i) * hq + h) * d), keys,
                ((hq, total_q), lambda s, h, i: h * total_q + sum(q_lens[:s]) + i))
    nq = case["q_len"]
    return ([nq] * b, kv_lens, ((b, nq, hq, d), lambda s, h, i: ((s * nq + i) * hq + h) * d), keys,
            ((b, hq, nq), lambda s, h, i: (s * hq + h) * nq + i))


def scales(case, tensor):
    """scale(sequence, head, row) of q, k or v; None where it has no 8 bits."""
    kind = case.get("dtype") or case.get("cache_dtype") if tensor != "q" else case.get("dtype")
    if not kind:
        return None
    is_q, hk, group = tensor == "q", case["kv_heads"], case["q_heads"] // case["kv_heads"]
    if case["quant_scale"] == "head":
        return lambda b, h, i: scale_of(tensor, b * hk + (h // group if is_q else h), kind)
    block, lens = case["scale_block"], case["q_lens" if is_q else "kv_lens"]

    def blocks_of_packed(b, h, i):
        return scale_of(tensor, h * (sum(lens) // block + len(lens)) + sum(lens[:b]) // block + b + i // block, kind)
    return blocks_of_packed


def compute(name, case, folder, stored_inputs):
    """{file: (shape, values)} of the results."""
    q_lens, kv_lens, (q_shape, q_at), (k_shape, k_at), (lse_shape, lse_at) = geometry(case, folder)
    d, group, is_paged = case["head_dim"], case["q_heads"] // case["kv_heads"], case.get("kind") == "paged"

    v_dim = case.get("v_head_dim", d)
    v_shape, o_shape = (*k_shape[:-1], v_dim), (*q_shape[:-1], v_dim)

    def v_at(s, h, i):
        return k_at(s, h, i) // d * v_dim

    def o_at(s, h, i):
        return q_at(s, h, i) // d * v_dim

    def tensor(file, shape, at):
        path = os.path.join(folder, file + ".npy")
        factor = case.get("qk_factor", 1) if file[0] in "qk" else 1
        if file[0] in "qkv" and scales(case, file[0]):
            kind = case.get("dtype") or case.get("cache_dtype")
            values = [value_of(x, kind) for x in stored_bytes(f"{name}/{file}", math.prod(shape), kind)]
            return Rows(values, at, shape[-1], scales(case, file[0]))
        values = read_npy(path).tolist() if stored_inputs else inputs(f"{name}/{file}", math.prod(shape), factor)
        return Rows(values, at, shape[-1])
    q, k = tensor("q", q_shape, q_at), tensor("k" + "_pages" * is_paged, k_shape, k_at)
    v = Rows(k.values, k_at, v_dim) if case.get("v_in_k") else tensor("v" + "_pages" * is_paged, v_shape, v_at)
    dout = None if is_paged or case.get("dtype") else tensor("do", o_shape, o_at)
    o, dq = Rows([0.0] * math.prod(o_shape), o_at, v_dim), Rows([0.0] * math.prod(q_shape), q_at, d)
    dk, dv = Rows([0.0] * math.prod(k_shape), k_at, d), Rows([0.0] * math.prod(v_shape), v_at, v_dim)
    heads = case["q_heads"]
    sinks = inputs(f"{name}/sink", heads, 1) if case.get("sink") else [-math.inf] * heads
    bias_shape, bias_plane = bias_of(case)
    longest_q, longest_k = bias_shape[2:]
    bias = inputs(f"{name}/bias", math.prod(bias_shape), 1)
    dsink, dbias = [0.0] * heads, [0.0] * len(bias)
    lse = Rows([0.0] * math.prod(lse_shape), lse_at, 1)
    mask, block = None, case.get("block_rows", 0)
    if block:
        mask = read_npy(os.path.join(folder, "block_mask.npy"))
    for b, (nq, nk) in enumerate(zip(q_lens, kv_lens)):
        for h in range(case["q_heads"]):
            columns, rows = -(-nk // block) if block else 0, -(-nq // block) if block else 0

            def hidden(i, j):
                return mask is not None and not mask[(h * rows + i // block) * columns + j // block]

            def added(i, j):
                if bias:
                    return bias[(bias_plane(b, h) * longest_q + i) * longest_k + j]
                return -2 ** (-8 * (h + 1) / heads) * abs(i + nk - nq - j) if case.get("alibi") else 0.0
            got = attend(case, q.get(b, h, nq), k.get(b, h // group, nk), v.get(b, h // group, nk),
                         dout and dout.get(b, h, nq), hidden, sinks[h], added, lambda i, j: kept(case, b, h, i, j))
            o.add(b, h, got[0])
            lse.add(b, h, [[x] for x in got[1]])
            if dout:
                dq.add(b, h, got[2])
                dk.add(b, h // group, got[3])
                dv.add(b, h // group, got[4])
                dsink[h] += got[5]
                for i, row in enumerate(got[6] if bias else []):
                    for j, x in enumerate(row):
                        dbias[(bias_plane(b, h) * longest_q + i) * longest_k + j] += x
    results = {"o": (o_shape, o.values), "lse": (lse_shape, lse.values)}
    if dout:
        results.update(dq=(q_shape, dq.values), dk=(k_shape, dk.values), dv=(v_shape, dv.values))
    if case.get("sink") and dout:
        results["dsink"] = ((heads,), dsink)
    if bias:
        results["dbias"] = (bias_shape, dbias)
    return results


def bias_of(case):
    """The shape of the bias, with the longest lengths, and which of its planes a sequence and a head have."""
    batch = len(case["q_lens"]) if "q_lens" in case else case.get("batch", 0)
    b, h = {"full": (batch, case["q_heads"]), "heads": (1, case["q_heads"]),
            "batch": (batch, 1)}.get(case.get("bias"), (0, 0))
    rows, keys = (max(case[x + "_lens"]) if x + "_lens" in case else case.get(x + "_len", 0) for x in ("q", "kv"))
    return (b, h, rows, keys), lambda s, head: (s if b > 1 else 0) * h + (head if h > 1 else 0)


def difference(got, want):
    """The largest one, relative to the largest finite value."""
    assert len(got) == len(want), "another number of elements"
    largest = max((abs(x) for x in want if math.isfinite(x)), default=1.0) or 1.0
    return max((0.0 if x == y else abs(x - y) / largest for x, y in zip(got, want)), default=0.0)


def main():
    argument = sys.argv[1] if len(sys.argv) > 1 else ""
    against = sys.argv[2] if argument == "--against" and len(sys.argv) == 3 else None
    if argument not in ("", "--check") and not against or len(sys.argv) > 2 and not against:
        print(__doc__, end="")
        return 2
    root, worst = against or HERE, 0.0
    for name in sorted(os.listdir(root)):
        folder = os.path.join(root, name)
        if not os.path.exists(os.path.join(folder, "case.json")):
            continue
        with open(os.path.join(folder, "case.json"), encoding="utf-8") as file:
            case = json.load(file)
        for file, (shape, values) in compute(name, case, folder, bool(against)).items():
            path = os.path.join(folder, file + ".npy")
            if argument:
                off = difference(values, read_npy(path))
                worst = max(worst, off)
                if off > TOLERANCE:
                    print(f"{path}: differs by {off:.3g} of its largest value")
            else:
                write_npy(path, shape, values)
    if argument:
        print(f"largest difference {worst:.3g}, allowed {TOLERANCE:g}")
    return 1 if worst > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
