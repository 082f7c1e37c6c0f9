#!/usr/bin/env python3
"""Writes README.md's table of results from record files, so that no figure there is typed by hand.

    scripts/readme_table.py [--check] [--readme FILE] [RECORD.jsonl ...]

Without records: all of results/h200/*.jsonl. The figures of an implementation in a line come from one record: of those with
the most of its lengths, the newest. The table goes between the lines `<!-- results:begin -->` and `<!-- results:end -->`;
with --check nothing is written and the exit code is 1 when README.md says something else. Needs Python 3 and nothing
beside it.

One line per direction, mask and head_dim, bf16, in the default convention (16384 tokens, heads x head_dim = 2048, cold
L2, normal inputs): TFLOPS of the fastest of our fused implementations that passed its check, its share of the GEMM
ceiling and its speed over cudnn and, where it ran beside, over fa3 from the same rounds, and the largest share of an error
bound that it used at any length. Sustained figures come from the newest record that has them.
"""

import argparse
import glob
import json
import os
import sys

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
SCHEMA = 1
DTYPE = "bf16"
LENGTHS = (1024, 4096, 16384)
LONGEST = LENGTHS[-1]
PEERS = ("cudnn", "fa3")
TOKENS, HIDDEN = 16384, 2048


class Refused(Exception):
    """An error, as a sentence for the user."""


def read_rows(path):
    """The rows of one record file. A cut last line is left out, as the program's own reader does."""
    rows = []
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {error}") from error
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines) and number > 1:
                break
            raise Refused(f"{path}: line {number}: {error.msg}") from error
        if number == 1:
            if not isinstance(entry, dict) or entry.get("type") != "header" or entry.get("schema") != SCHEMA:
                raise Refused(f"{path}: not a record file of schema {SCHEMA}")
            if entry.get("synthetic"):
                raise Refused(f"{path}: synthetic records are not results")
        elif entry.get("type") == "row":
            rows.append(dict(entry, file=path))
    if not lines[0].strip():
        raise Refused(f"{path}: not a record file: it is empty")
    return rows


def is_ours(row):
    """True for a checked row of one of our fused implementations on a problem of the table."""
    return (
        row.get("status") == "ok"
        and row.get("check") == "pass"
        and row.get("impl", "").startswith("fused")
        and row.get("dtype") == DTYPE
        and row.get("q_len") == row.get("kv_len")
        and row.get("q_heads") == row.get("kv_heads")
        and row.get("batch", 0) * row.get("q_len", 0) == TOKENS
        and row.get("q_heads", 0) * row.get("head_dim", 0) == HIDDEN
        and row.get("dist") == "normal"
        and row.get("logit_std") is None
        and row.get("l2") == "cold"
        and row.get("window_left", -1) < 0
        and row.get("window_right", -1) < 0
        and row.get("tflops") is not None
    )


def rows_of_newest_record(rows):
    """Of each (mode, causal, head_dim, impl, layout) the rows of one file: of those with the most of LENGTHS, the newest. A case
    that is in a file more than once counts as it was last."""
    lines = {}
    for row in sorted(rows, key=lambda row: row.get("time_utc", "")):
        files = lines.setdefault(tuple(row.get(name) for name in ("mode", "causal", "head_dim", "impl", "layout")), {})
        files.setdefault(row["file"], {})[row["q_len"]] = row
    chosen = []
    for files in lines.values():
        chosen += max(files.values(), key=lambda cases: (len(cases.keys() & set(LENGTHS)),
                                                         max(row.get("time_utc", "") for row in cases.values()))).values()
    return chosen


def fastest(rows):
    """{(mode, causal, head_dim): {q_len: the fastest row}}"""
    table = {}
    for row in rows:
        line = table.setdefault((row["mode"], row["causal"], row["head_dim"]), {})
        if row["q_len"] not in line or row["tflops"] > line[row["q_len"]]["tflops"]:
            line[row["q_len"]] = row
    return table


def number(row, name, form):
    return form.format(row[name]) if row is not None and row.get(name) is not None else ""


def speed_over(row, impl):
    """The row's speed over another implementation of the same rounds; None where the record does not have it."""
    words = dict(word.split("=") for word in (row or {}).get("speedups", "").split())
    if impl in words:
        return float(words[impl])
    return row.get("speedup_vs_peer") if row is not None and row.get("peer") == impl else None


def newest_sustained(rows, line):
    """The newest sustained TFLOPS at LONGEST of the implementation in this line, from whatever record has it."""
    known = [row for row in rows if row["impl"] == line["impl"] and row["q_len"] == LONGEST
             and all(row.get(name) == line.get(name) for name in ("mode", "causal", "head_dim", "layout"))
             and row.get("tflops_sustained") is not None]
    return max(known, key=lambda row: row.get("time_utc", "")) if known else None


def together(rows, name):
    """The values of a column, newest first, as one text."""
    rows = sorted(rows, key=lambda row: row.get("time_utc", ""), reverse=True)
    return ", ".join(dict.fromkeys(str(row[name]) for row in rows if row.get(name)))


def sustained_words(sustained):
    """Where the column of sustained figures comes from."""
    rows = [row for row in sustained.values() if row]
    if not rows:
        return ""
    seconds = sorted({round(row["sustain_s"]) for row in rows if row.get("sustain_s")})
    files = ", ".join(f"`{path}`" for path in sorted({row["file"] for row in rows}))
    length = f" of {' or '.join(map(str, seconds))} s" if seconds else ""
    return f"; sustained: over load{length}, from {files} at commit {together(rows, 'commit')}"


def render(rows):
    rows = [row for row in rows if is_ours(row)]
    if not rows:
        raise Refused(f"no checked fused {DTYPE} row with {TOKENS} tokens and heads x head_dim = {HIDDEN}")
    devices = sorted({row.get("device", "") for row in rows})
    if len(devices) != 1:
        raise Refused("records of more than one device: " + ", ".join(devices))
    table = fastest(rows_of_newest_record(rows))
    used = [row for line in table.values() for row in line.values()]
    name = devices[0].removeprefix("NVIDIA ") if hasattr(str, "removeprefix") else devices[0]
    peers = [peer for peer in PEERS if any(speed_over(row, peer) for row in used)]
    sustained = {key: newest_sustained(rows, line[LONGEST]) if LONGEST in line else None for key, line in table.items()}
    has_sustained = any(sustained.values())
    at = f" at {LONGEST // 1024}k"
    headings = [f"{n // 1024}k" for n in LENGTHS] + [f"sustained{at}"] * has_sustained
    headings += [f"% GEMM{at}"] + [f"x {peer}{at}" for peer in peers] + ["error / bound"]
    text = [f"| {name}, {DTYPE}, TFLOPS | " + " | ".join(headings) + " |", "|---|" + "---:|" * len(headings)]
    for mode, causal, head_dim in sorted(table, key=lambda key: (key[0] != "fwd", key[1], key[2])):
        line = table[mode, causal, head_dim]
        longest = line.get(LONGEST)
        errors = [row["err_used"] for row in line.values() if row.get("err_used") is not None]
        cells = [f"{mode} {'causal' if causal else 'full'} d{head_dim}"]
        cells += [number(line.get(n), "tflops", "{:.0f}") for n in LENGTHS]
        cells += [number(sustained[mode, causal, head_dim], "tflops_sustained", "{:.0f}")] * has_sustained
        cells += [number(longest, "pct_of_gemm", "{:.0f}")]
        speeds = [speed_over(longest, peer) for peer in peers]
        cells += [f"{speed:.2f}" if speed else "" for speed in speeds]
        cells += [f"{max(errors):.2f}" if errors else ""]
        text.append("| " + " | ".join(cells) + " |")
    versions = [devices[0]]
    for label, column in (("driver", "driver"), ("CUDA", "cuda"), ("cuDNN", "cudnn")):
        if together(used, column):
            versions.append(f"{label} {together(used, column)}")
    measured = ", ".join(
        f"{impl} at commit {together([row for row in used if row.get('impl') == impl], 'commit')}"
        for impl in together(used, "impl").split(", ")
    )
    files = ", ".join(f"`{path}`" for path in sorted({row["file"] for row in used}))
    dates = sorted(row.get("time_utc", "")[:10] for row in used)
    text += [
        "",
        f"{', '.join(versions)}; {measured}, "
        + (dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}")
        + f". {TOKENS} tokens, heads x head_dim = {HIDDEN}, cold L2, inputs N(0,1), burst{sustained_words(sustained)}. Every figure is of a row "
        "that passed its check; error / bound is the largest of all lengths. From " + files
        + " by `scripts/readme_table.py`.",
    ]
    return "\n".join(text)


def replaced(readme, table):
    """README's text with the table between the markers, which must be there once, in order."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        raise Refused(f"README must hold {BEGIN} and, behind it, {END}, once each")
    head, rest = readme.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="Writes README.md's table of results from record files.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when README is not up to date")
    parser.add_argument("--readme", default=os.path.join(root, "README.md"), metavar="FILE")
    parser.add_argument("records", nargs="*", metavar="RECORD.jsonl", help="default: results/h200/*.jsonl")
    arguments = parser.parse_args()
    paths = arguments.records or sorted(glob.glob(os.path.join(root, "results", "h200", "*.jsonl")))
    if not paths:
        print("readme_table: results/h200 holds no records, README stays as it is", file=sys.stderr)
        return 0
    try:
        rows = []
        for path in paths:
            name = os.path.relpath(path, root)
            name = os.path.basename(path) if name.startswith("..") else name
            rows += [dict(row, file=name) for row in read_rows(path)]
        with open(arguments.readme, encoding="utf-8") as file:
            before = file.read()
        after = replaced(before, render(rows))
        if arguments.check:
            if before != after:
                print(f"readme_table: {arguments.readme} is not up to date: run scripts/readme_table.py",
                      file=sys.stderr)
                return 1
        elif before != after:
            temporary = arguments.readme + ".new"
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(after)
            os.replace(temporary, arguments.readme)
    except (Refused, OSError) as error:
        print(f"readme_table: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
