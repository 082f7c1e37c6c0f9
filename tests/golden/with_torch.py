#!/usr/bin/env python3
"""Writes the golden vectors of the cases with a sink, ALiBi, a bias, another head dim of V, dropout, 8 bits or new rows in a
cache with PyTorch: the forward in float64, the gradients by autograd, 8-bit numbers by its own types.

    tests/golden/with_torch.py           writes o, lse, dq, dk, dv and, where there are, dsink and dbias
    tests/golden/with_torch.py --check   compares what is stored; exit code 1 on a difference

For development: needs PyTorch (any version with float64 on the CPU; made with 2.15). The unit test runs make.py --check,
which computes the same cases by plain loops and its own formulas of the gradients. Inputs are make.py's.
"""

import json
import math
import os
import sys

import torch

import make


def leaf(name, tensor, shape, factor=1):
    values = torch.tensor(make.inputs(f"{name}/{tensor}", math.prod(shape), factor), dtype=torch.float64)
    return values.reshape(shape).requires_grad_()


def visible(case):
    """[q_len, kv_len]: the causal mask and the window."""
    rows, keys = torch.arange(case["q_len"])[:, None], torch.arange(case["kv_len"])[None, :]
    behind = rows + case["kv_len"] - case["q_len"] - keys
    seen = torch.ones_like(behind, dtype=torch.bool)
    if case["causal"]:
        seen &= behind >= 0
    if case.get("window_left", -1) >= 0:
        seen &= behind <= case["window_left"]
    if case.get("window_right", -1) >= 0:
        seen &= -behind <= case["window_right"]
    return seen, behind.abs()


def flat(name, case, tensor, shape):
    """All elements of q, k, v or do in one dimension; 8-bit ones without their scales."""
    count = math.prod(shape)
    kind = case.get("dtype") or case.get("cache_dtype")
    if tensor[0] in "qkv" and make.scales(case, tensor[0]):
        narrow = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind]
        stored = make.stored_bytes(f"{name}/{tensor}", count, kind)
        return torch.tensor(stored, dtype=torch.uint8).view(narrow).to(torch.float64)
    return torch.tensor(make.inputs(f"{name}/{tensor}", count, 1), dtype=torch.float64).requires_grad_()


def rows_of(case, tensor, values, at, b, h, count, columns):
    """[count, columns] of one head of one sequence."""
    first = torch.tensor([at(b, h, i) for i in range(count)], dtype=torch.long)
    rows = values[first[:, None] + torch.arange(columns)]
    scale = make.scales(case, tensor)
    return rows * torch.tensor([scale(b, h, i) for i in range(count)], dtype=torch.float64)[:, None] if scale else rows


def compute_each(name, case, folder):
    """The same for packed sequences, caches and 8 bits: head by head."""
    q_lens, kv_lens, (q_shape, q_at), (k_shape, k_at), (lse_shape, lse_at) = make.geometry(case, folder)
    d, heads, pages = case["head_dim"], case["q_heads"], "_pages" * (case["kind"] == "paged")
    v_dim, group = case.get("v_head_dim", d), heads // case["kv_heads"]
    o_shape, v_shape = (*q_shape[:-1], v_dim), (*k_shape[:-1], v_dim)
    q, k = flat(name, case, "q", q_shape), flat(name, case, "k" + pages, k_shape)
    v = k if case.get("v_in_k") else flat(name, case, "v" + pages, v_shape)
    sink = leaf(name, "sink", (heads,)) if case.get("sink") else None
    bias_shape, plane = make.bias_of(case)
    bias = leaf(name, "bias", bias_shape) if case.get("bias") else None
    o, lse = torch.zeros(math.prod(o_shape), dtype=torch.float64), torch.zeros(math.prod(lse_shape), dtype=torch.float64)
    for b, (nq, nk) in enumerate(zip(q_lens, kv_lens)):
        seen, distance = visible({**case, "q_len": nq, "kv_len": nk})
        for h in range(heads):
            s = rows_of(case, "q", q, q_at, b, h, nq, d) @ rows_of(case, "k", k, k_at, b, h // group, nk, d).T * case["scale"]
            if case.get("softcap"):
                s = torch.tanh(s / case["softcap"]) * case["softcap"]
            if case.get("alibi"):
                s = s - 2 ** (-8 * (h + 1) / heads) * distance
            if bias is not None:
                at = plane(b, h)
                s = s + bias[at // bias_shape[1], at % bias_shape[1], :nq, :nk]
            s = s.masked_fill(~seen, -math.inf)
            terms = s if sink is None else torch.cat([s, sink[h].expand(nq, 1)], -1)
            sums = torch.logsumexp(terms, -1)
            p = torch.exp(s - sums.masked_fill(sums == -math.inf, 0)[:, None])
            kept = [[make.kept(case, b, h, i, j) for j in range(nk)] for i in range(nq)]
            p = p * torch.tensor(kept, dtype=torch.float64).reshape(nq, nk)
            v_at = k_at if case.get("v_in_k") else lambda s, h, i: k_at(s, h, i) // d * v_dim
            result = p @ rows_of(case, "v", v, v_at, b, h // group, nk, v_dim)
            first = torch.tensor([q_at(b, h, i) // d * v_dim for i in range(nq)], dtype=torch.long)
            o = o.index_put(((first[:, None] + torch.arange(v_dim)).flatten(),), result.flatten())
            lse = lse.index_put((torch.tensor([lse_at(b, h, i) for i in range(nq)], dtype=torch.long),), sums)
    results = {"o": (o_shape, o), "lse": (lse_shape, lse)}
    if case["kind"] == "varlen" and not case.get("dtype"):
        o.backward(flat(name, case, "do", o_shape).detach())
        results |= {"dq": (q_shape, q.grad), "dk": (k_shape, k.grad), "dv": (v_shape, v.grad)}
        results |= {"dsink": ((heads,), sink.grad)} if sink is not None else {}
        results |= {"dbias": (bias_shape, bias.grad)} if bias is not None else {}
    return {file: (shape, x.detach().flatten().tolist()) for file, (shape, x) in results.items()}


def compute(name, case, folder):
    """{file: (shape, values)} of the results."""
    if case.get("kind", "dense") != "dense" or case.get("dtype"):
        return compute_each(name, case, folder)
    b, hq, hk, nq, nk, d = (case[x] for x in ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim"))
    v_dim, factor = case.get("v_head_dim", d), case.get("qk_factor", 1)
    q, k = leaf(name, "q", (b, hq, nq, d), factor), leaf(name, "k", (b, hk, nk, d), factor)
    v, dout = leaf(name, "v", (b, hk, nk, v_dim)), leaf(name, "do", (b, hq, nq, v_dim)).detach()
    s = q @ k.repeat_interleave(hq // hk, 1).transpose(-1, -2) * case["scale"]
    if case.get("softcap"):
        s = torch.tanh(s / case["softcap"]) * case["softcap"]
    seen, distance = visible(case)
    leaves = {"dq": q, "dk": k, "dv": v}
    if case.get("alibi"):
        slopes = torch.tensor([2 ** (-8 * (h + 1) / hq) for h in range(hq)], dtype=torch.float64)
        s = s - slopes[None, :, None, None] * distance
    if case.get("bias"):
        leaves["dbias"] = leaf(name, "bias", make.bias_of(case)[0])
        s = s + leaves["dbias"]
    s = s.masked_fill(~seen, -math.inf)
    if case.get("sink"):
        leaves["dsink"] = leaf(name, "sink", (hq,))
        s = torch.cat([s, leaves["dsink"][None, :, None, None].expand(b, hq, nq, 1)], -1)
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - lse.masked_fill(lse == -math.inf, 0)[..., None])[..., :nk]
    o = p @ v.repeat_interleave(hq // hk, 1)
    o.backward(dout)
    results = {"o": o, "lse": lse, **{file: x.grad for file, x in leaves.items()}}
    return {file: (tuple(x.shape), x.detach().flatten().tolist()) for file, x in results.items()}


def main():
    is_check, worst = sys.argv[1:] == ["--check"], 0.0
    if sys.argv[1:] and not is_check:
        print(__doc__, end="")
        return 2
    for name in sorted(os.listdir(make.HERE)):
        folder = os.path.join(make.HERE, name)
        if not os.path.exists(os.path.join(folder, "case.json")):
            continue
        with open(os.path.join(folder, "case.json"), encoding="utf-8") as file:
            case = json.load(file)
        if not any(x in case for x in ("v_head_dim", "sink", "alibi", "bias", "dropout", "quant_scale")):
            continue
        for file, (shape, values) in compute(name, case, folder).items():
            path = os.path.join(folder, file + ".npy")
            if is_check:
                worst = max(worst, make.difference(values, make.read_npy(path)))
            else:
                make.write_npy(path, shape, values)
    print(f"largest difference {worst:.3g}, allowed {make.TOLERANCE:g}" if is_check else "written")
    return 1 if worst > make.TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
