#!/usr/bin/env python3
"""Races a function in Python (PyTorch, Triton, NumPy) against the implementations of fabench, and has it judged.

    race.py MODULE [--name NAME] [--folder DIR] [--samples N] [-- OPTIONS OF FABENCH]

1. `fabench OPTIONS --dump DIR` times its implementations and writes the inputs of each problem into DIR.
2. The functions of MODULE, a Python file, run on these inputs; their results go beside them, into a folder NAME.
3. `fabench verify --outputs DIR --impl NAME` judges the results by the rules that it has for kernels.

MODULE defines forward(q, k, v, scale, causal), which returns o or (o, lse), or backward(q, k, v, o, lse, do, scale,
causal), which returns (dq, dk, dv), or both. Tensors are [batch, heads, len, head_dim], lse is [batch, heads, len].
What a problem has beyond dense attention goes to parameters of these names, if the function has them; else the problem
is refused: window_left and window_right (-1 = unbounded), softcap, dropout and dropout_seed, and the other fields of
tensors.json by their names; arrays as NumPy arrays: cu_seqlens_q, cu_seqlens_k (packed lengths), block_mask and
mask_block, seqused_k and page_table (decode). A function that has **more gets all of them.
It may also define
    load(array, dtype)      what the functions get for an array of float32; dtype is fp16, bf16 or fp32
    store(tensor)           the NumPy array of a result
    milliseconds(call)      the time of one call; without it the wall clock is used

FABENCH names the program; else it is looked for on PATH. Exit codes: those of fabench verify; 2 for wrong usage.
"""
import argparse
import csv
import inspect
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import numpy


def fail(sentence, code=2):
    print(f"race: {sentence}", file=sys.stderr)
    sys.exit(code)


def load_module(path):
    if not os.path.isfile(path):
        fail(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location("raced", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "forward") and not hasattr(module, "backward"):
        fail(f"{path}: defines neither forward nor backward")
    return module


def read(folder, name):
    """A tensor of a dump as float32. NumPy has no bfloat16: its bits are stored as 16-bit integers."""
    array = numpy.load(folder / f"{name}.npy")
    if array.dtype == numpy.uint16:
        return (array.astype(numpy.uint32) << 16).view(numpy.float32)
    return array.astype(numpy.float32)


# The fields of a problem that every function knows, or that change nothing of what it computes.
DENSE = {"mode", "dtype", "causal", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim", "layout", "scale",
         "dist", "seed", "logit_std", "out_dtype", "total_q", "batch_gap", "strides"}
# How a field says that the problem has nothing of the kind.
NOTHING = (None, 0, "", "none", "fixed")
ARRAYS = ("cu_seqlens_q", "cu_seqlens_k", "block_mask", "seqused_k", "page_table", "sink", "alibi_slopes")


def beyond_dense(problem, folder):
    """What the problem has beyond dense attention: fields and arrays, by their names."""
    more = {key: value for key, value in problem.items()
            if key not in DENSE and value not in NOTHING and not (key.startswith("window_") and value < 0)}
    more.update({name: numpy.load(folder / f"{name}.npy") for name in ARRAYS if (folder / f"{name}.npy").exists()})
    if more.get("v_head_dim") == problem["head_dim"]:
        del more["v_head_dim"]
    if "cu_seqlens_q" in more or "seqused_k" in more:
        more.pop("lengths", None)  # the text that the arrays were made from
    return more


def chosen(function, path, problem, folder):
    """The parameters beyond dense attention that the function gets; a sentence and exit code 2 where it lacks one."""
    more = beyond_dense(problem, folder)
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    missing = [name for name in more if name not in parameters and not takes_all]
    if problem["mode"] == "decode" and "seqused_k" not in more:
        missing.append("decode")
    if missing:
        says = ", ".join(f"{name} ({more[name]})" if isinstance(more.get(name), (int, float, str)) else name
                         for name in missing)
        fail(f"{path}: {function.__name__} has no parameter for what {folder.name} needs: {says}; nothing was judged")
    return more


def wall_clock(call):
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def run(module, problem, folder, name, samples):
    """Runs the module's function on one problem, writes its results, and returns its median time in ms; None where the
    module has no function for it."""
    is_forward = problem["mode"] in ("fwd", "decode")
    function = getattr(module, "forward" if is_forward else "backward", None)
    if function is None:
        return None
    more = chosen(function, module.__file__, problem, folder)
    load = getattr(module, "load", lambda array, dtype: array)
    store = getattr(module, "store", lambda tensor: tensor)
    milliseconds = getattr(module, "milliseconds", wall_clock)
    inputs = [load(read(folder, tensor), "fp32" if tensor == "lse" else problem["dtype"])
              for tensor in (("q", "k", "v") if is_forward else ("q", "k", "v", "o", "lse", "do"))]

    def call():
        return function(*inputs, problem["scale"], bool(problem["causal"]), **more)

    results = call()
    names = ("o", "lse") if is_forward else ("dq", "dk", "dv")
    results = results if isinstance(results, tuple) else (results,)
    if len(results) < (1 if is_forward else 3) or len(results) > len(names):
        fail(f"{function.__name__} returned {len(results)} tensors, expected {' '.join(names)}")
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir()
    for tensor, result in zip(names, results):
        numpy.save(folder / name / f"{tensor}.npy", numpy.ascontiguousarray(store(result), dtype=numpy.float32))
    return statistics.median(milliseconds(call) for _ in range(samples))


def call_fabench(fabench, arguments, codes):
    code = subprocess.call([fabench, *arguments], stdout=sys.stderr)
    if code not in codes:
        fail(f"fabench {arguments[0]} ended with {code}", code)


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def is_of(row, problem):
    return all(float(row[key]) == problem[key] if isinstance(problem[key], (int, float)) else row[key] == problem[key]
               for key in ("mode", "dtype", "causal", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim"))


def print_table(problems, times, verdicts, rows, name):
    print(f"{'problem':<34} {'impl':<20} {'ms':>9}  {name + ' is':>16}  check")
    for folder, problem in problems:
        verdict = next((row for row in verdicts if is_of(row, problem)), None)
        if times[folder] is None or verdict is None:
            continue
        used = float(verdict["err_used"] or "nan")
        share = ">999" if used >= 999 else f"{used:.2f}"
        print(f"{folder.name:<34} {name:<20} {times[folder]:9.3f}  {'':>16}  {verdict['check']} {share} of its bound")
        for row in rows:
            if is_of(row, problem) and row["time_ms"]:
                # A wrong result has no speed.
                is_right = verdict["check"] == "pass" and row["check"] == "pass"
                ratio = f"{float(row['time_ms']) / times[folder]:.2f} x" if is_right else "-"
                print(f"{'':<34} {row['impl']:<20} {float(row['time_ms']):9.3f}  {ratio:>16}  {row['check']}")


def main():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module")
    parser.add_argument("--name", default="mine", help="of the results and in the table [mine]")
    parser.add_argument("--folder", default="race", help="of all files; made anew [race]")
    parser.add_argument("--samples", type=int, default=10, help="timed calls of the function [10]")
    o = parser.parse_args(sys.argv[1:split])
    options = sys.argv[split + 1:]
    fabench = os.environ.get("FABENCH") or shutil.which("fabench")
    if not fabench:
        fail("no fabench on PATH; FABENCH can name it")
    if o.samples < 1:
        fail(f"--samples {o.samples}: must be at least 1")
    module = load_module(o.module)
    folder = pathlib.Path(o.folder)
    if folder.exists() and not (folder / "fabench.csv").exists() and any(folder.iterdir()):
        fail(f"--folder {folder}: is not empty and not of an earlier race")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    dump = folder / "dump"
    call_fabench(fabench, [*options, "--dump", str(dump), "--out", "none", "--csv", str(folder / "fabench.csv")], (0, 1))
    problems = [(path.parent, json.loads(path.read_text())["problem"]) for path in sorted(dump.glob("*/tensors.json"))]
    times = {path: run(module, problem, path, o.name, o.samples) for path, problem in problems}
    if all(value is None for value in times.values()):
        fail(f"{o.module} has no function for any of these problems; see --mode of fabench")
    device = [word for i, word in enumerate(options)
              if word.startswith("--device") or (i and options[i - 1] == "--device")]
    code = subprocess.call([fabench, "verify", *device, "--outputs", str(dump), "--impl", o.name, "--out", "none",
                            "--csv", str(folder / "verdicts.csv")], stdout=sys.stderr)
    if code not in (0, 1):
        return code
    print_table(problems, times, rows_of(folder / "verdicts.csv"), rows_of(folder / "fabench.csv"), o.name)
    return code


if __name__ == "__main__":
    sys.exit(main())
