#!/usr/bin/env python3
"""Writes README.md's table of results from record files, so that no figure there is typed by hand.

    scripts/readme_table.py [--check] [--readme FILE] [RECORD.jsonl ...]

Without records: all of results/h200/*.jsonl. The table and the three sentences below it go between the lines
`<!-- results:begin -->` and `<!-- results:end -->`. With --check nothing is written and the exit code is 1 when README.md
says something else there, or has a figure elsewhere (one with a decimal point, a per cent, TFLOPS, or times). Needs Python
3 and nothing beside it.

One line for each direction, mask and head_dim, at 16k tokens in bf16 in the default convention (16384 tokens, heads x
head_dim = 2048, cold L2, normal inputs), of the fastest of our fused implementations that passed its check there. Burst
figures, % GEMM and speeds over FlashAttention-3 (fa3) and cuDNN are of one record: of those with the most lengths, the
newest. Sustained figures and joules are of the newest record that has them, measured by the same timing method. A column
that no record has is left out.
"""

import argparse
import glob
import json
import math
import os
import re
import statistics
import sys
import textwrap

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
SCHEMA = 1
DTYPES = ("bf16", "fp16")
TABLE_DTYPE, TABLE_LENGTH = "bf16", 16384
PEERS = {"fa3": "FA3", "cudnn": "cuDNN"}
TOKENS, HIDDEN = 16384, 2048
LINE = ("mode", "causal", "head_dim")
FIGURE = re.compile(r"\d+\.\d+(?: times)?|\d+ ?%|\d+ (?:TFLOPS|times)")
NO_RESULT = {"12.4", "9.19", "2.5 times", "95 %"}  # versions, a definition, an interval


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


def is_of_convention(row):
    """True for a checked row on a problem of the table's convention."""
    return (
        row.get("status") == "ok"
        and row.get("check") == "pass"
        and row.get("dtype") in DTYPES
        and row.get("q_len") == row.get("kv_len")
        and row.get("q_heads") == row.get("kv_heads")
        and row.get("batch", 0) * row.get("q_len", 0) == TOKENS
        and row.get("q_heads", 0) * row.get("head_dim", 0) == HIDDEN
        and row.get("layout") == "bshd"
        and row.get("dist") == "normal"
        and row.get("logit_std") is None
        and row.get("l2") == "cold"
        and row.get("window_left", -1) < 0
        and row.get("window_right", -1) < 0
        and row.get("tflops") is not None
    )


def is_ours(row):
    return row.get("impl", "").startswith("fused")


def last_measured(rows):
    """A case that is in a file more than once counts as it was last: {file: {(dtype, line, q_len, impl): row}}."""
    files = {}
    for row in rows:
        key = (row["dtype"], tuple(row[name] for name in LINE), row["q_len"], row["impl"])
        files.setdefault(row["file"], {})[key] = row
    return files


def newest(cases):
    return max(row.get("time_utc", "") for row in cases.values())


def burst_record(files, dtype):
    """The cases of the file for burst figures of this type: of those with the most lengths, the newest."""
    with_it = []
    for cases in files.values():
        ours = {key: row for key, row in cases.items() if key[0] == dtype and is_ours(row)}
        if ours:
            with_it.append((len({key[2] for key in ours}), newest(cases), cases))
    return max(with_it, key=lambda entry: entry[:2])[2] if with_it else {}


def fastest(cases, dtype, line, q_len):
    ours = [row for key, row in cases.items() if key[:3] == (dtype, line, q_len) and is_ours(row)]
    return max(ours, key=lambda row: row["tflops"]) if ours else None


def sustained_rows(files, burst):
    """Our row and FlashAttention-3's with sustained figures for the problem of a burst row, of the newest file that was
    measured by the same method; None, None."""
    found = []
    for cases in files.values():
        key = (burst["dtype"], tuple(burst[name] for name in LINE), burst["q_len"])
        row = cases.get((*key, burst["impl"]))
        if row and row.get("tflops_sustained") is not None and row.get("method") == burst.get("method"):
            found.append((newest(cases), row, cases.get((*key, "fa3"))))
    return max(found, key=lambda entry: entry[0])[1:] if found else (None, None)


def speed_over(row, impl):
    """The row's speed over another implementation of the same rounds; None where the record does not have it."""
    words = dict(word.split("=") for word in row.get("speedups", "").split())
    if impl in words:
        return float(words[impl])
    return row.get("speedup_vs_peer") if row.get("peer") == impl else None


def joules_over(ours, theirs):
    if not ours or not theirs or not ours.get("energy_j") or not theirs.get("energy_j"):
        return None
    return ours["energy_j"] / theirs["energy_j"]


def table_lines(cases, files):
    """One dict for each line of the table: its name, and its figures as numbers or None."""
    lines = sorted({key[1] for key in cases if key[0] == TABLE_DTYPE}, key=lambda line: (line[0] != "fwd", *line[1:]))
    for line in lines:
        row = fastest(cases, TABLE_DTYPE, line, TABLE_LENGTH)
        if row is None:
            continue
        sustained, peers_sustained = sustained_rows(files, row)
        errors = [other.get("err_used") for key, other in cases.items()
                  if key[0] == TABLE_DTYPE and key[1] == line and other["impl"] == row["impl"]]
        errors = [error for error in errors if error is not None]
        yield {
            "rows": [row] + [sustained] * bool(sustained),
            "name": f"{line[0]} {'causal' if line[1] else 'full'} d{line[2]}",
            "burst TFLOPS": ("{:.0f}", row["tflops"]),
            "sustained TFLOPS": ("{:.0f}", sustained and sustained["tflops_sustained"]),
            "% GEMM": ("{:.0f}", row.get("pct_of_gemm")),
            "x FA3": ("{:.2f}", speed_over(row, "fa3")),
            "x cuDNN": ("{:.2f}", speed_over(row, "cudnn")),
            "joules x FA3": ("{:.2f}", joules_over(sustained, peers_sustained)),
            "error / bound": ("{:.2f}", max(errors, default=None)),
        }


def over_all_lengths(files):
    """"1.14 x FA3 (least 1.04) in bf16": the speeds over the peers at every length, as geometric means."""
    texts = []
    for impl, name in PEERS.items():
        for dtype in DTYPES:
            cases = burst_record(files, dtype)
            best = [fastest(cases, *point) for point in sorted({key[:3] for key in cases if key[0] == dtype})]
            ratios = [speed_over(row, impl) for row in best if row]
            ratios = [ratio for ratio in ratios if ratio]
            if ratios:
                mean = math.exp(statistics.fmean(map(math.log, ratios)))
                texts.append(f"{mean:.2f} x {name} in {dtype} (least {min(ratios):.2f} of {len(ratios)} points)")
    return texts


def joined(rows, column):
    """The values of a column, newest first, as one text."""
    rows = sorted(rows, key=lambda row: row.get("time_utc", ""), reverse=True)
    return ", ".join(dict.fromkeys(str(row[column]) for row in rows if row.get(column)))


def sentences(lines, files):
    used = [row for line in lines for row in line["rows"]]
    lengths = sorted({key[2] for key in burst_record(files, TABLE_DTYPE)})
    seconds = sorted({round(row["sustain_s"]) for row in used if row.get("sustain_s")})
    means = over_all_lengths(files)
    joules = " and joules below 1 less" if any(line["joules x FA3"][1] for line in lines) else ""
    first = (f"Speeds above 1 are faster{joules} than those of the other in the same rounds" +
             (f"; in geometric means over {lengths[0] // 1024}k to {lengths[-1] // 1024}k, forward and backward, it is " +
              ", ".join(means) if means else "") + ".")
    load = f", sustained ones of {' or '.join(map(str, seconds))} s of load each" if seconds else ""
    second = (f"Burst figures are of short launches{load}; % GEMM is the share of what cuBLAS reaches in the same rounds, "
              "error / bound the largest share of an error bound that was used at any length, and every row passed its "
              "check.")
    versions = [joined(used, "device")] + [f"{label} {joined(used, column)}" for label, column in
                                           (("driver", "driver"), ("CUDA", "cuda"), ("cuDNN", "cudnn")) if
                                           joined(used, column)]
    records = [f"[{path.rsplit('-', 1)[-1].removesuffix('.jsonl')}]({path}) of commit "
               f"{joined([row for row in used if row['file'] == path], 'commit')}"
               for path in sorted({row["file"] for row in used}, reverse=True)]
    third = (f"{', '.join(versions)}; {joined(used, 'impl')}; {TOKENS} tokens, heads x head_dim = {HIDDEN}, cold L2, inputs "
             f"N(0,1); records: {', '.join(records)}.")
    return [first, second, third]


def render(rows):
    rows = [row for row in rows if is_of_convention(row)]
    files = last_measured(rows)
    lines = list(table_lines(burst_record(files, TABLE_DTYPE), files))
    if not lines:
        raise Refused(f"no checked fused {TABLE_DTYPE} row of {TABLE_LENGTH} tokens with heads x head_dim = {HIDDEN}")
    devices = sorted({row.get("device", "") for row in rows})
    if len(devices) != 1:
        raise Refused("records of more than one device: " + ", ".join(devices))
    columns = [name for name in lines[0] if name not in ("rows", "name") and any(line[name][1] for line in lines)]
    title = f"{devices[0].replace('NVIDIA ', '')}, {TABLE_DTYPE}, {TABLE_LENGTH // 1024}k"
    text = [f"| {title} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for line in lines:
        cells = [form.format(value) if value is not None else "" for form, value in (line[name] for name in columns)]
        text.append("| " + " | ".join([line["name"]] + cells) + " |")
    for sentence in sentences(lines, files):
        text += ["", textwrap.fill(sentence, 120, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(text)


def parts(readme):
    """README's text before, between and behind the markers, which must be there once, in order."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        raise Refused(f"README must hold {BEGIN} and, behind it, {END}, once each")
    head, rest = readme.split(BEGIN)
    table, tail = rest.split(END)
    return head, table, tail


def figures_elsewhere(head, tail):
    """Figures that no record is behind. Commands and names in code are none."""
    prose = re.sub(r"^    .*$|`[^`]*`|\]\([^)]*\)", "", head + tail, flags=re.MULTILINE)
    return [figure for figure in FIGURE.findall(prose) if figure not in NO_RESULT]


def check(path, before, after, elsewhere):
    wrong = []
    if before != after:
        wrong.append(f"{path} is not up to date: run scripts/readme_table.py")
    if elsewhere:
        wrong.append(f"{path} has figures outside the table, which no record is behind: {', '.join(elsewhere)}")
    for sentence in wrong:
        print(f"readme_table: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


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
        head, _, tail = parts(before)
        after = f"{head}{BEGIN}\n{render(rows)}\n{END}{tail}"
        if arguments.check:
            return check(arguments.readme, before, after, figures_elsewhere(head, tail))
        if before != after:
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
