"""What cudnn_vs_pytorch.py and fused_vs_flash2.py share: an operator of PyTorch timed in rounds like fabench's, one
point of fabench in a fresh process, and the ratio of the two.

A PyTorch sample is one replay of a CUDA graph of the operator between two events, after a write to a buffer of twice
the L2, in turn with an 8192^3 GEMM as in fabench's rounds: near the power cap the other work of the rounds changes a
kernel's clock (without the GEMM, PyTorch's figures were 7 % higher on an H200). The figure is the median of the samples
after a warm-up by time.
"""

import csv
import os
import statistics
import subprocess
import time

TOKENS, HIDDEN = 16384, 2048  # of every problem: batch = tokens / length, heads = hidden / head_dim


class Failure(Exception):
    """An error: a sentence for the user and the exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Rounds:
    """PyTorch on a CUDA device: launches as graphs, timed sample by sample."""

    def __init__(self, samples, warmup_ms, min_time_ms):
        try:
            import torch
        except ImportError as error:
            raise Failure(6, f"PyTorch cannot be imported: {error}") from error
        if not torch.cuda.is_available():
            raise Failure(6, "PyTorch sees no CUDA device")
        self.torch, self.samples, self.warmup_ms, self.min_time_ms = torch, samples, warmup_ms, min_time_ms
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.flush = torch.empty(2 * l2_bytes, dtype=torch.uint8, device="cuda")
        self.gemms = {}
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def kind(self, dtype):
        return {"fp16": self.torch.float16, "bf16": self.torch.bfloat16}[dtype]

    def capture(self, launch, stream):
        """A graph of one launch, after one launch without, and the outputs that it writes to."""
        torch = self.torch
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            launch()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept = launch()
        return graph, kept

    def time_ms(self, launch, dtype):
        """The median time of a launch."""
        stream = self.torch.cuda.Stream()
        graph, kept = self.capture(launch, stream)
        with self.torch.cuda.stream(stream):
            times_ms = self.sample(graph, self.gemm(dtype, stream))
        del graph, kept
        return statistics.median(times_ms)

    def gemm(self, dtype, stream):
        """A graph of one 8192^3 product: fabench's rounds hold one, and near the power cap it sets the clock of all."""
        torch = self.torch
        if dtype not in self.gemms:
            a, b = (torch.randn((8192, 8192), device="cuda").to(self.kind(dtype)) for _ in range(2))
            graph, product = self.capture(lambda: torch.matmul(a, b), stream)
            self.gemms[dtype] = (graph, a, b, product)
        return self.gemms[dtype][0]

    def round(self, graph, gemm, index):
        """One sample of both, each with the L2 flushed before it; the time of the first in milliseconds. Everything is
        queued before the one wait: pauses of the interpreter would let the GPU cool down and clock up."""
        before, after = self.events
        self.flush.fill_(index & 255)
        before.record()
        graph.replay()
        after.record()
        self.flush.fill_(index + 1 & 255)
        gemm.replay()
        self.torch.cuda.current_stream().synchronize()
        return before.elapsed_time(after)

    def sample(self, graph, gemm):
        begin = time.monotonic()
        while (time.monotonic() - begin) * 1e3 < self.warmup_ms:
            self.round(graph, gemm, 0)
        begin, times_ms = time.monotonic(), []
        while len(times_ms) < self.samples or (time.monotonic() - begin) * 1e3 < self.min_time_ms:
            times_ms.append(self.round(graph, gemm, len(times_ms)))
        return times_ms


def run_fabench_for(program, impls, arguments, environment=None):
    """The rows of one problem in a fresh process, which prints its CSV: a dictionary of texts for each."""
    command = [program, "--impl", ",".join(impls), *arguments, "--plot", "none", "--out", "none", "--csv", "-"]
    try:
        done = subprocess.run(command, env=environment or os.environ, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(6, f"{program}: {error}") from error
    if done.returncode != 0:
        raise Failure(6, f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    lines = done.stdout.splitlines()
    header = next((i for i, line in enumerate(lines) if {"impl", "tflops"} <= set(line.split(","))), None)
    rows = [] if header is None else list(csv.DictReader(lines[header:]))
    found = [[row for row in rows if row.get("impl") == impl] for impl in impls]
    for impl, own in zip(impls, found):
        if len(own) != 1 or not own[0].get("tflops"):
            raise Failure(6, f"{' '.join(command)}: no row of {impl} with tflops on stdout")
    return [own[0] for own in found]


def run_fabench(program, impl, arguments, environment=None):
    """The same of one implementation."""
    return run_fabench_for(program, [impl], arguments, environment)[0]


def live_ratio(ours, theirs):
    """Both are functions that measure a speed. The clock drifts alike for both: theirs is measured before and after."""
    before = theirs()
    middle = ours()
    mean = (before + theirs()) / 2
    return middle, mean, middle / mean


def measured_ratio(ours, theirs, minimum):
    """(our speed, their speed, ratio). Below the minimum: measured twice more, and the median of the three counts."""
    tries = [live_ratio(ours, theirs)]
    if tries[0][2] < minimum:
        tries += [live_ratio(ours, theirs) for _ in range(2)]
        tries.sort(key=lambda one: one[2])
    return tries[len(tries) // 2]
