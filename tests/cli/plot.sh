#!/usr/bin/env bash
# `plot` beside pages of lines: slides of grouped bars, kinds of charts, tables in Markdown.
. "$(dirname "$0")/lib.sh"

run_small --impl naive,fused --mode fwd,bwd --seqlen 64,128 --jsonl a.jsonl
expect_code 0
python3 - <<'END'
import json
with open("a.jsonl") as old, open("b.jsonl", "w") as new:
    for line in old:
        row = json.loads(line)
        if row["type"] == "row":
            row |= {"pct_of_gemm": 25.0, "gemm_tflops": row["flops"] / row["time_ms"] * 4e-9, "energy_j": 0.5}
            if row["impl"] == "naive" and row["q_len"] == 64 and row["mode"] == "fwd":
                row |= {"check": "fail", "tflops": None}
        new.write(json.dumps(row) + "\n")
END

# ---- slides ----
run plot b.jsonl --plot-layout slide --plot-kind tflops,gemm,ms,joules --out slides
expect_code 0
for kind in tflops gemm ms joules; do
    for mode in fwd bwd; do
        name=slides/$kind-$mode-fp32-slide
        expect_file $name.gp
        expect "16:9 in $name" grep -q '^set terminal svg size 1280,720 ' $name.gp
        expect "one axis in $name" test "$(grep -c '^set yrange' $name.gp)" -eq 1
        expect "no second one" sh -c "! grep -q 'y2' $name.gp"
        expect "a bar and a value for each row that ran: $name" test \
            "$(grep -cE '^[0-9.]+,[0-9.e-]+,[0-9.e-]+,[0-9.e-]+,([0-9.e-]+|FAILED),(64|128)$' $name.dat)" -eq 4
    done
done
expect "values" grep -qE ",25\.0,128$" slides/gemm-bwd-fp32-slide.dat
expect "a failed bar says so" test "$(grep -c ',FAILED,64$' slides/ms-fwd-fp32-slide.dat)" -eq 1
expect "what the groups are" grep -q 'Below the bars: sequence length n\.' slides/ms-fwd-fp32-slide.gp
expect "the ceiling" grep -q '^# GEMM ceiling' slides/tflops-fwd-fp32-slide.dat
expect "no other kind" test -z "$(find slides -name 'memory*' -o -name 'error*' -o -name 'speedup*')"
if command -v gnuplot >/dev/null; then
    expect_stdout '^8 charts in slides/'
    expect "eight images" test "$(find slides -name '*.svg' | wc -l)" -eq 8
fi

# Where a slide would have too many bars each panel has one of its own.
run_small --impl naive,fused --seqlen 8:160:+8 --d 8,16 --jsonl many.jsonl
run plot many.jsonl --plot-layout slide --plot-kind ms --out many
expect_code 0
for d in 8 16; do expect_file many/ms-fwd-causal-d$d-fp32-slide.gp; done
expect "none of both" test ! -e many/ms-fwd-fp32-slide.gp

# A kind without figures is left out; pages take the kinds too.
run plot a.jsonl --plot-layout slide --plot-kind joules --out none_there
expect_code 0
expect "no chart" test -z "$(find none_there -name '*.gp')"
run plot b.jsonl --plot-kind joules --out page
expect_code 0
expect "one page" test "$(find page -name '*.gp')" = page/joules-fp32.gp

# ---- Markdown ----
run plot b.jsonl --plot md
expect_code 0
expect_no_stderr
expect "a table for each panel" test "$(grep -c '^### ' out)" -eq 2
expect_stdout '^\| n \| by \| ms \| ± \| [GT]FLOPS \| % of GEMM \| J \| relative \|$'
expect "as many cells in each line" test "$(grep '^|' out | tr -cd '|\n' | sort -u | wc -l)" -eq 1
expect "a line a row" test "$(grep -c '^| \(64\|128\) |' out)" -eq 8
expect_stdout '^\| 64 \| naive \| [0-9.]+ \| ([0-9.]+ %)? ?\| FAILED \| FAILED \| 0.500 \|  \|$'
expect_stdout '\| 1.000 \|$'
run plot a.jsonl --plot md
expect "columns without figures are left out" sh -c "! grep -qE ' J \||GEMM' out"

# ---- what is refused ----
refused '--plot-layout: is for charts in files' plot a.jsonl --plot-layout slide --plot md
refused '--plot-kind: is for charts in files' plot a.jsonl --plot-kind ms --plot term
printf 'impl,mode,dtype,causal,q_len,head_dim,tflops\nx,fwd,fp32,1,64,64,1\n' >points.csv
refused '--overlay points.csv: is drawn in charts over the length alone' plot a.jsonl --plot md --overlay points.csv
refused '--plot md: must be svg, png, term or none' --plot md
finish
