"""PyTorch's scaled_dot_product_attention for race.py, on the GPU where there is one. A Triton kernel goes in the same
place: forward() calls it with tensors on the device."""
import time

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
CACHE = torch.empty(256 << 20, dtype=torch.int8, device=DEVICE) if DEVICE == "cuda" else None


def load(array, dtype):
    return torch.from_numpy(array.copy()).to(DEVICE, DTYPES[dtype])


def store(tensor):
    return tensor.detach().float().cpu().numpy()


def milliseconds(call):
    if DEVICE == "cpu":
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3
    CACHE.zero_()  # fabench, too, measures with a cold L2 cache
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def forward(q, k, v, scale, causal):
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError("the causal mask of PyTorch is aligned at the top left: use equal lengths")
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale,
                                          enable_gqa=q.shape[1] != k.shape[1])
