#!/usr/bin/env python3
"""What --counters counted, beside its model: a CSV of the rows of records, and below it on stderr the bars.

    fabench --preset paper --dtype bf16 --impl naive,fused_sm90,cudnn,fa3 --impl-lib fa3.so --counters --out DIR
    scripts/counters_bars.py DIR/run.jsonl >results/h200/bars/counters.csv

Bars, of rows with 4096 keys and more: device memory of naive within 10 % of its model, of fused_sm90 within 15 %; of
any length: FLOPs of our kernels within 0.5 % of those of their tiles, of others no fewer than those of the visible
pairs; no row fails. Exit code 1 where one is missed."""

import json
import math
import sys

LIMITS = {"naive memory": 0.10, "fused_sm90 memory": 0.15, "tiles": 0.005, "visible pairs": 0.0005}


def rows(paths):
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            yield from (row for row in map(json.loads, lines) if row.get("type") == "row")


def number(row, name):
    return row[name] if isinstance(row.get(name), (int, float)) else math.nan


def point(row):
    mask = "causal" if row["causal"] else "full"
    return f"{row['mode']} {mask} d{row['head_dim']} {row['dtype']} n={row['q_len']}"


def main(paths):
    bars = {}  # by name: rows, missed, the farthest off, where
    failed = 0
    print("commit,of,tile,point,dram_read_gb,dram_write_gb,dram_over_model,l2_gb,l2_over_model,tensor_active_pct,"
          "flop_over_visible,flop_over_tiles,flop_types,check")
    for row in rows(paths):
        memory = (number(row, "dram_read_gb") + number(row, "dram_write_gb")) / number(row, "model_dram_gb")
        flops = number(row, "flop_done")
        tiles, visible = flops / number(row, "model_flop"), flops / number(row, "flops")
        l2 = number(row, "l2_gb") / number(row, "model_l2_gb")
        figures = [number(row, "dram_read_gb"), number(row, "dram_write_gb"), memory, number(row, "l2_gb"), l2,
                   number(row, "tensor_active_pct"), visible, tiles]
        print(",".join([row["commit"][:7], row["impl"], row.get("variant") or "", point(row)] +
                       ["" if math.isnan(figure) else f"{figure:.4g}" for figure in figures] +
                       [row.get("flop_types") or "", row["check"]]))
        failed += row["check"] != "pass"
        impl, off = row["impl"], {}
        if row["kv_len"] >= 4096 and impl in ("naive", "fused_sm90"):
            off[f"{impl} memory"] = abs(memory - 1)
        if impl in ("naive", "fused_sm90", "fused_sm80"):
            off["tiles"] = abs(tiles - 1)
        else:
            off["visible pairs"] = max(0.0, 1 - visible) if visible == visible else math.nan
        for name, value in off.items():
            bar = bars.setdefault(name, [0, 0, -1.0, ""])
            bar[0] += 1
            bar[1] += not value <= LIMITS[name]
            if not value <= bar[2]:
                bar[2:] = [value, f"{impl} {point(row)}"]
    for name, (count, missed, off, where) in sorted(bars.items()):
        print(f"{name}: {count} rows, {missed} beyond {LIMITS[name]:g}, farthest {off:.4f} ({where})", file=sys.stderr)
    print(f"{failed} rows failed", file=sys.stderr)
    return 1 if failed or not bars or any(bar[1] for bar in bars.values()) else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
