#!/usr/bin/env bash
# scripts/family_bars.py: what it asks a program for, what it does not repeat, and what it says of made-up records.
. "$(dirname "$0")/lib.sh"

command -v python3 >/dev/null || skip "no python3"
bars=$root/scripts/family_bars.py

# A program whose fused_sm90 takes 1 ms where fa3 takes 1.25; a window of 256 fails its check.
cat >program <<'E'
#!/usr/bin/env python3
import json, sys
words = dict(zip(sys.argv[1:], sys.argv[2:]))
with open(words["--jsonl"], "w") as file:
    print('{"type": "header"}', file=file)
    for left in (-1, 255, 1023, 4095):
        for head_dim in (64, 128):
            for impl in words["--impl"].split(","):
                time_ms = 1.0 if impl == "fused_sm90" else 1.25
                print(json.dumps({
                    "type": "row", "status": "ok", "check": "fail" if left == 255 else "pass", "impl": impl,
                    "asked": impl, "mode": words["--mode"], "head_dim": head_dim, "window_left": left, "flops": 1e9,
                    "time_ms": time_ms, "samples_ms": [time_ms] * 6, "pct_of_gemm": 50 if left == -1 else 40}),
                    file=file)
E
chmod +x program
measure() {
    what="measure $*"
    code=0
    FABENCH=$PWD/program "$bars" measure records "$@" >out 2>err || code=$?
}
FABENCH_FA3_PLUGIN=fa3.so measure --processes 2 --only windows
expect_code 0
expect "four processes" test "$(wc -l <out)" -eq 4
expect "no part is left" test -z "$(find records -name '*.part')"
FABENCH_FA3_PLUGIN=fa3.so measure --processes 3 --only windows
expect "only what is missing" test "$(cut -d: -f1 out | tr '\n' ';')" = "3 windows fwd;3 windows bwd;"
measure --processes 1 --only deterministic --limit-s 5
expect_code 130

what="table"
code=0
"$bars" table records --csv table.csv >out 2>err || code=$?
expect_code 1
says() { expect "\"$1\" to be $2" grep -qE "^$1,$2," table.csv; }
says "window 1024 bwd d64 / fa3" "1.250,least 1.1,met"
says "window 1024 fwd d64 / fa3" "1.250,least 1.3,short"
says "window 256 fwd d64 / fa3" "-,least 1.6,missing"
says "window 1024 fwd d128 / dense by GEMM" "0.800,least 0.78,met"
says "softcap 30 fwd d64 full: time / without by GEMM" "-,most 1.5,missing"
expect_stdout "^[0-9]+ of 92 bars are met; medians of up to 3 processes$"
"$bars" table nothing >out 2>err || code=$?
expect_code 5
finish
