#!/usr/bin/env python3
"""Speed and error of one implementation over another's, point by point, from one or several records.

    scripts/ratios.py RECORD.jsonl... --of NAME[:VARIANT] --over NAME[,NAME...] [--least X] [--mean X] [--error X]
                      [--sustained [--energy X]] [--csv FILE]

Speed: the geometric mean, without the 5 % at either end, of the ratios of samples that were taken in the same rounds, as
the program's own speedup_vs_peer; above 1 is faster. Over several names: over the fastest of them at this point, in this
record. With several records (fresh processes of one build) a point's figure is the median over the records that have
it. Where the samples were taken out (scripts/publish.sh) the columns speedups and speedup_vs_peer are used. A point that
lacks one of the named implementations is compared with the others.

Error: the ratio of the relative RMS errors of each tensor (LSE apart), to the smallest of the named ones; below 1 is more
exact. The largest of the tensors is printed.

--sustained: the speed over the sustained regions (--sustain-s), each implementation alone, in turns, in place of that of
the rounds; and in place of errors the ratio of the joules that one pass takes, to the smallest of the named ones: below
1 is less.

Rows that did not pass their check count on neither side. Exit codes: 0 every limit is met, 1 one is not, 2 usage, 5
nothing to compare.
"""

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys

PROBLEM = ("mode", "dtype", "causal", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim", "layout", "scale",
           "dist", "logit_std", "l2")
# Columns that older records lack: what they have where the problem does not have it, and its word in a point's name.
ATTRIBUTES = {"window_left": (-1, "left"), "window_right": (-1, "right"), "dropout": (0, "dropout"),
              "lengths": ("fixed", "lengths"), "block_mask": ("none", "mask"), "mask_block": (0, "of"),
              "softcap": (0, "softcap"), "page_size": (0, "page"), "out_dtype": (None, "out"),
              "quant_scale": ("none", "scale"), "scale_block": (0, "of"), "hadamard": (0, "hadamard"),
              "sink": (0, "sink"), "alibi": (0, "alibi"), "bias": ("none", "bias"), "v_head_dim": (None, "dv"),
              "cache_dtype": (None, "cache")}


class Failure(Exception):
    """An error: a sentence for the user and the exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def problem_of(row):
    """Two rows are of one problem where these are equal."""
    attributes = ((row.get(name), absent) for name, (absent, _) in ATTRIBUTES.items())
    return (tuple(row.get(name) for name in PROBLEM) +
            tuple(absent if value is None else value for value, absent in attributes))


def rows_of(path):
    """The rows of a record that passed their check, {problem: {name: row}}, by their implementation and by what was asked
    for (impl:variant); a case that is there twice counts as last."""
    problems = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(5, f"{path}: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines) and number > 1:  # a cut record is readable up to there
                break
            raise Failure(5, f"{path}: line {number}: {error.msg}") from error
        if number == 1 and (not isinstance(row, dict) or row.get("type") != "header"):
            raise Failure(5, f"{path}: not a record file")
        if row.get("type") == "row" and row.get("status") == "ok" and row.get("check") == "pass":
            by_impl = problems.setdefault(problem_of(row), {})
            by_impl[row.get("impl")] = by_impl[row.get("asked")] = row
    return problems


def make_record(program, words, record, limit_s):
    """Runs the program with --jsonl; the record has its name only when the program has ended by itself. The exit code of
    the program; 130 where the limit ended it. A record that is there is not made again: then None."""
    if os.path.exists(record):
        return None
    part = record + ".part"
    if os.path.exists(part):
        os.remove(part)
    try:
        code = subprocess.run([program, *words, "--jsonl", part], check=False, timeout=max(limit_s, 0.1)).returncode
    except subprocess.TimeoutExpired:
        return 130
    except OSError as error:
        raise Failure(5, f"{program}: {error.strerror}") from error
    if code >= 0 and os.path.exists(part):  # not of a program that a signal ended
        os.replace(part, record)
    return code


def failed_rows(path):
    """How many rows of a record did not run or did not pass their check."""
    with open(path, encoding="utf-8") as file:
        rows = [row for row in map(json.loads, filter(str.strip, file)) if row.get("type") == "row"]
    return sum(row.get("status") != "ok" or row.get("check") != "pass" for row in rows)


def paired(ours, theirs):
    """Our speed over theirs from the same rounds; None where the record does not have it."""
    mine, other = ours.get("samples_ms"), theirs.get("samples_ms")
    if mine and other and len(mine) == len(other):
        logs = sorted(math.log(b / a) for a, b in zip(mine, other))
        cut = 0 if len(logs) < 5 else (len(logs) + 19) // 20
        return math.exp(statistics.fmean(logs[cut:len(logs) - cut]))
    words = dict(word.split("=") for word in ours.get("speedups", "").split())
    if theirs["impl"] in words:
        return float(words[theirs["impl"]])
    return ours.get("speedup_vs_peer") if ours.get("peer") == theirs["impl"] else None


def errors_of(row):
    return {tensor["name"]: tensor["rel_rms_err"] for tensor in row.get("tensors", [])
            if tensor.get("name") != "lse" and tensor.get("rel_rms_err") is not None}


def error_ratios(ours, others):
    """{tensor: our error over the smallest of theirs}, for tensors that have errors on both sides."""
    ratios = {}
    for name, error in errors_of(ours).items():
        theirs = [errors_of(other).get(name) for other in others]
        theirs = [value for value in theirs if value]
        if error and theirs:
            ratios[name] = error / min(theirs)
    return ratios


def ratio_of(ours, theirs, column):
    return ours[column] / theirs[column] if ours.get(column) and theirs.get(column) else None


def joule_ratios(ours, others):
    ratios = [ratio_of(ours, other, "energy_j") for other in others]
    return {"energy": max(ratios)} if all(ratios) else {}


def collect(options):
    """{problem: ([speed of each record], [fastest name], {tensor or "energy": [ratio]})}"""
    points = {}
    for path in options.records:
        for problem, by_impl in rows_of(path).items():
            ours = by_impl.get(options.of)
            others = [by_impl[name] for name in options.over if name in by_impl]
            if ours is None or not others:
                continue
            ratios = [(ratio_of(ours, other, "tflops_sustained") if options.sustained else paired(ours, other),
                       other["impl"]) for other in others]
            if any(ratio is None for ratio, _ in ratios):
                continue
            speed, fastest = min(ratios)
            speeds, names, seconds = points.setdefault(problem, ([], [], {}))
            speeds.append(speed)
            names.append(fastest)
            for name, ratio in (joule_ratios if options.sustained else error_ratios)(ours, others).items():
                seconds.setdefault(name, []).append(ratio)
    return points


def order(problem):
    row = dict(zip(PROBLEM + tuple(ATTRIBUTES), problem))
    return (row["mode"] != "fwd", row["dtype"], row["head_dim"], row["causal"], row["dist"] or "",
            row["logit_std"] or 0, row["q_len"], str(problem))


def name_of(problem):
    row = dict(zip(PROBLEM + tuple(ATTRIBUTES), problem))
    data = "" if row["dist"] == "normal" else f" {row['dist']}"
    data += f" std {row['logit_std']:g}" if row["logit_std"] else ""
    lengths = f"{row['q_len']}" + ("" if row["q_len"] == row["kv_len"] else f"x{row['kv_len']}")
    usual = row["q_heads"] == row["kv_heads"] and row["batch"] * row["q_len"] == 16384
    shape = "" if usual else f" batch {row['batch']} heads {row['q_heads']}/{row['kv_heads']}"
    for name, (absent, word) in ATTRIBUTES.items():
        if row[name] != absent:  # a fp32 number as it was asked for: 0.1, not 0.10000000149011612
            data += f" {word} {row[name]:g}" if isinstance(row[name], float) else f" {word} {row[name]}"
    mask = "causal" if row["causal"] else "full"
    return f"{row['mode']} {mask:6} d{row['head_dim']:<3} {row['dtype']} n={lengths}{shape}{data}"


def geomean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def write_csv(path, head, lines):
    """The points as a table, for results/<device>/bars/."""
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(head)
            table.writerows(lines)
    except OSError as error:
        raise Failure(6, f"{path}: {error.strerror}") from error


def compare(options):
    points = collect(options)
    if not points:
        raise Failure(5, f"no point where {options.of} and one of {', '.join(options.over)} passed, with " +
                         ("sustained regions" if options.sustained else "samples of the same rounds"))
    is_met, by_mode, lines = True, {}, []
    what = "joules" if options.sustained else "error"
    limit = options.energy if options.sustained else options.error
    print(f"{options.of} over {', '.join(options.over)}" + (", sustained" if options.sustained else ""))
    print(f"{'':44} {'speed':>6}  {'fastest':12} {'records':>7}  " +
          ("ratio of the joules of a pass" if options.sustained else "largest error ratio"))
    for problem in sorted(points, key=order):
        speeds, names, seconds = points[problem]
        speed = statistics.median(speeds)
        ratios = {name: statistics.median(values) for name, values in seconds.items()}
        worst = max(ratios, key=ratios.get) if ratios else None
        lacks = [text for text, lacking in (("speed", speed < options.least),
                                            (what, worst is not None and ratios[worst] > limit)) if lacking]
        is_met = is_met and not lacks
        modes = by_mode.setdefault(problem[0], ([], []))
        modes[0].append(speed)
        modes[1].extend(ratios.values())
        lines.append((options.of, " ".join(options.over), " ".join(name_of(problem).split()), f"{speed:.4f}",
                      statistics.mode(names), len(speeds), worst or "", f"{ratios[worst]:.4f}" if worst else ""))
        second = f"{ratios[worst]:.3f}" + ("" if options.sustained else f" {worst}") if worst else "-"
        mark = f"   limit: {', '.join(lacks)}" if lacks else ""
        print(f"{name_of(problem):44} {speed:6.3f}  {statistics.mode(names):12} {len(speeds):7}  {second}{mark}")
    for mode, (speeds, ratios) in by_mode.items():
        mean = geomean(speeds)
        is_met = is_met and mean >= options.mean
        text = f"; {what} ratio: geometric mean {geomean(ratios):.3f}, largest {max(ratios):.3f}" if ratios else ""
        print(f"{mode}: {len(speeds)} points, speed: geometric mean {mean:.3f}, least {min(speeds):.3f}{text}")
    if options.csv:
        write_csv(options.csv, ("of", "over", "point", "sustained_speed" if options.sustained else "speed", "fastest",
                                "records", "figure" if options.sustained else "tensor",
                                "energy_ratio" if options.sustained else "error_ratio"), lines)
    return 0 if is_met else 1


def reporting(name, compare_records, options):
    """The exit code of compare_records(options), a script's work; a failure is a sentence that starts with its name."""
    try:
        code = compare_records(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, as head, has what it wants
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
        return 0
    except Failure as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return failure.code


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s RECORD.jsonl... --of NAME --over NAME[,NAME...] [options]",
                                     description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", metavar="RECORD.jsonl")
    parser.add_argument("--of", required=True, metavar="NAME")
    parser.add_argument("--over", required=True, metavar="NAME,...", type=lambda text: text.split(","))
    parser.add_argument("--least", type=float, default=0, help="least speed of a point")
    parser.add_argument("--mean", type=float, default=0, help="least geometric mean of a direction")
    parser.add_argument("--error", type=float, default=math.inf, help="largest error ratio of a tensor")
    parser.add_argument("--sustained", action="store_true", help="speed and joules over the sustained regions")
    parser.add_argument("--energy", type=float, default=math.inf, help="largest ratio of joules, with --sustained")
    parser.add_argument("--csv", metavar="FILE", help="the points as a table, too")
    return reporting("ratios", compare, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
