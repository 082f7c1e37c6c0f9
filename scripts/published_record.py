#!/usr/bin/env python3
"""Prints a record as it is published: scripts/published_record.py RUN.jsonl > PUBLISHED.jsonl

Left out: single samples (their number, median, interval, minimum and noise stay), the command of each row (`repro`; the
header has that of the run), of each tensor all but its name, relative RMS error and share of the bound, and what names
one machine and no measurement depends on: folders of the command line, the host's name, the suffix of the kernel's
version, the board's UUID and PCI address (the column `board` tells boards apart). So are columns that say what a problem
has not (ABSENT): readers take a column that is not there for that. Figures have 6 significant digits. Every reader of
records reads the result.
"""

import json
import re
import sys

from ratios import ATTRIBUTES

ROW_WITHOUT = ("samples_ms", "repro", "pci")
ABSENT = {name: absent for name, (absent, _) in ATTRIBUTES.items() if "window" not in name and name != "dropout"}
ABSENT |= {"dropout_seed": 0, "quant_in_time": 0}
TENSOR_WITH = ("name", "rel_rms_err", "used")
DIGITS = 6
FOLDER_OPTION = re.compile(r"(--(?:out|csv|jsonl|impl-lib|input|dump)[ =])/[^ ]*/")


def rounded(value):
    """The value with DIGITS significant digits in all its fractions; whole numbers stay as they are."""
    if isinstance(value, float) and not value.is_integer():
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def published_header(header):
    command = header.get("command_line", "")
    header["command_line"] = FOLDER_OPTION.sub(r"\1", re.sub(r"^[^ ]*/", "", command))
    policy = header.get("policy", {})
    if "options" in policy:
        policy["options"] = FOLDER_OPTION.sub(r"\1", policy["options"])
    if "kernel" in header.get("host", {}):
        header["host"]["kernel"] = re.match(r"[0-9.]*", header["host"]["kernel"]).group()
    header.get("host", {}).pop("name", None)
    header.get("device", {}).pop("uuid", None)
    return header


def published_row(row):
    row = {key: value for key, value in row.items()
           if key not in ROW_WITHOUT and not (key in ABSENT and value == ABSENT[key])}
    if "tensors" in row:
        row["tensors"] = [{key: tensor[key] for key in TENSOR_WITH if key in tensor} for tensor in row["tensors"]]
    return rounded(row)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, end="")
        return 2
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            entries = [json.loads(line) for line in file if line.strip()]
        for entry in entries:
            entry = published_row(entry) if entry.get("type") == "row" else published_header(entry)
            print(json.dumps(entry, separators=(",", ":"), ensure_ascii=False))
    except (OSError, ValueError) as error:
        print(f"published_record: {sys.argv[1]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
