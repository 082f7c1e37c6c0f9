#!/usr/bin/env python3
"""Writes the tables of docs/generations.md from a run of --preset generations, so that no figure there is typed.

    scripts/generations.py [--check] [--page FILE] [--csv FILE] [RECORD.jsonl]

With a record its rows go to the CSV (results/h200/bars/generations.csv); then the page is made from that. Where there is
none the page says so. A table for each mask and head_dim: forward and backward together in TFLOPS, an implementation in
each line, a length in each column. A picture of the CSV's name with the ending .svg is shown above them. With --check
nothing is written, and the exit code is 1 where the page differs. Needs Python 3 and nothing beside it.
"""
import argparse
import csv
import json
import os
import sys

BEGIN, END = "<!-- generations:begin -->", "<!-- generations:end -->"
IMPLS = ("naive", "fused_v1", "fused_sm80", "fused_sm90")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
# FlashAttention-1 on an H100, forward and backward, by (causal, head_dim): the charts of FlashAttention-2's repository.
PUBLISHED = {
    (0, 64): (157, 159, 161, 161, 166, 168),
    (0, 128): (127, 127, 128, 131, 137, 139),
    (1, 64): (104, 123, 136, 138, 149, 156),
    (1, 128): (98, 109, 108, 126, 135, 137),
}
NONE = "-"


class Refused(Exception):
    """An error, as a sentence for the user."""


COLUMNS = ("device", "commit", "impl", "variant", "mode", "causal", "head_dim", "q_len", "dtype", "check", "check_scope",
           "err_used", "time_ms", "noise_pct", "flops", "tflops", "sm_clock_mhz")
KEY = ("impl", "mode", "causal", "head_dim", "q_len")


def write_csv(record, path):
    """The rows of a record in short."""
    try:
        with open(record, encoding="utf-8") as file:
            entries = [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        raise Refused(f"{record}: {error}") from error
    rows = [entry for entry in entries if entry.get("type") == "row"]
    if not rows or entries[0].get("synthetic"):
        raise Refused(f"{record}: not a record of a run")
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for row in rows:
            values = (row.get(name, "") for name in COLUMNS)
            out.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in values])


def read_csv(path):
    """{(impl, mode, causal, head_dim, length): row} of the rows that passed their check, and one of them."""
    rows = {}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for name in KEY[2:]:
                row[name] = int(row[name])
            for name in ("time_ms", "flops"):
                row[name] = float(row[name] or 0)
            if row["check"] == "pass" and row["dtype"] == "fp16":
                rows[tuple(row[name] for name in KEY)] = row
    if not any(key[0] == "fused_v1" for key in rows):
        raise Refused(f"{path}: has no row of fused_v1 that passed its check")
    return rows


def together(rows, impl, causal, head_dim, length):
    """TFLOPS of forward and backward together, or None."""
    both = [rows.get((impl, mode, causal, head_dim, length)) for mode in ("fwd", "bwd")]
    if not all(row and row.get("time_ms") and row.get("flops") for row in both):
        return None
    return sum(row["flops"] for row in both) / sum(row["time_ms"] for row in both) * 1e-9


def line_of(name, cells):
    return f"| {name} | " + " | ".join(cells) + " |"


def table(rows, causal, head_dim):
    title = f"{'causal' if causal else 'full'}, d {head_dim}"
    lines = [line_of(title, [f"{n // 1024}k" if n >= 1024 else str(n) for n in LENGTHS]),
             "|---|" + "---:|" * len(LENGTHS)]
    speeds = {impl: [together(rows, impl, causal, head_dim, n) for n in LENGTHS] for impl in IMPLS}
    for impl in IMPLS:
        lines.append(line_of(f"`{impl}`", [NONE if x is None else f"{x:.0f}" for x in speeds[impl]]))
    published = PUBLISHED[causal, head_dim]
    lines.append(line_of("published", [str(x) for x in published]))
    lines.append(line_of("v1 / published", [NONE if x is None else f"{x / y:.2f}"
                                            for x, y in zip(speeds["fused_v1"], published)]))
    lines.append(line_of("sm80 / v1", [NONE if x is None or y is None else f"{x / y:.2f}"
                                       for x, y in zip(speeds["fused_sm80"], speeds["fused_v1"])]))
    return "\n".join(lines)


def text_of(path, page):
    if not os.path.exists(path):
        return "Not measured yet."
    rows = read_csv(path)
    link = os.path.relpath(path, os.path.dirname(page) or ".")
    first = next(iter(rows.values()))
    parts = [f"{first['device']}, commit {first['commit'][:10]}: [{os.path.basename(path)}]({link})."]
    if os.path.exists(os.path.splitext(path)[0] + ".svg"):
        parts.append(f"![TFLOPS over the length]({os.path.splitext(link)[0]}.svg)")
    parts += [table(rows, causal, head_dim) for causal in (0, 1) for head_dim in (64, 128)]
    return "\n\n".join(parts)


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", default=os.path.join(root, "docs/generations.md"))
    parser.add_argument("--csv", default=os.path.join(root, "results/h200/bars/generations.csv"))
    parser.add_argument("record", nargs="?")
    arguments = parser.parse_args()
    try:
        with open(arguments.page, encoding="utf-8") as file:
            page = file.read()
        if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
            raise Refused(f"{arguments.page}: has no lines {BEGIN} and {END}")
        if arguments.record and not arguments.check:
            write_csv(arguments.record, arguments.csv)
        text = text_of(arguments.csv, arguments.page)
    except (Refused, OSError, KeyError, ValueError) as error:
        print(f"generations: {error}", file=sys.stderr)
        return 2
    wanted = page[:page.index(BEGIN)] + BEGIN + "\n" + text + "\n" + page[page.index(END):]
    if wanted != page and arguments.check:
        print(f"generations: {arguments.page} differs from its record; scripts/generations.py writes it", file=sys.stderr)
        return 1
    if wanted != page:
        with open(arguments.page, "w", encoding="utf-8") as file:
            file.write(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
