#!/usr/bin/env python3
"""Writes the golden vectors of the cases with a sink, ALiBi, a bias or another head dim of V with PyTorch: the forward in
float64, the gradients by autograd.

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


def compute(name, case):
    """{file: (shape, values)} of the results."""
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
        if not any(x in case for x in ("v_head_dim", "sink", "alibi", "bias")):
            continue
        for file, (shape, values) in compute(name, case).items():
            path = os.path.join(folder, file + ".npy")
            if is_check:
                worst = max(worst, make.difference(values, make.read_npy(path)))
            else:
                make.write_npy(path, shape, values)
    print(f"largest difference {worst:.3g}, allowed {make.TOLERANCE:g}" if is_check else "written")
    return 1 if worst > make.TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
