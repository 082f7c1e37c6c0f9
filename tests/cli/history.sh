#!/usr/bin/env bash
# `report --history`: a line for each case over commits, its band, and where it became slower.
. "$(dirname "$0")/lib.sh"

run_small --impl naive,fused --seqlen 64,128 --jsonl now.jsonl
expect_code 0
# Records of other days: name, commit, day, and the factor of the time of fused_cpu at 128; every interval is 2 % wide.
make() {
    python3 - "$@" <<'END'
import json, sys
name, commit, day, factor = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
with open("now.jsonl") as old, open(name, "w") as new:
    for line in old:
        row = json.loads(line)
        if row["type"] == "row":
            t = 0.5 * (factor if row["impl"] == "fused_cpu" and row["q_len"] == 128 else 1)
            row |= {"commit": commit * 8, "time_utc": day + "T00:00:00Z", "run_id": name, "time_ms": t,
                    "time_ms_min": t * 0.98, "time_ms_ci_lo": t * 0.99, "time_ms_ci_hi": t * 1.01,
                    "samples_ms": [t * 0.98] * 4 + [t] + [t * 1.02] * 4, "samples": 9,
                    "tflops": row["flops"] / t * 1e-9}
        new.write(json.dumps(row) + "\n")
END
}
make third.jsonl ccccc 2026-03-03 1.25
make first.jsonl aaaaa 2026-01-01 1
make again.jsonl aaaaa 2026-01-02 1.01
make second.jsonl bbbbb 2026-02-02 1.01
make fourth.jsonl ddddd 2026-04-04 1.24

# In the order in which they were measured; two files of a commit are one column, whose band is wider.
run report --history third.jsonl fourth.jsonl again.jsonl first.jsonl second.jsonl --out none
expect_code 0
expect_no_stderr
expect_stdout '^5 records of 4 commits or labels'
expect_stdout 'case +\| by +\| +aaaaaaaaaa 2026-01-01 \| +bbbbbbbbbb 2026-02-02 \| +cccccccccc 2026-03-03 \| +dddd'
expect "a line a case" test "$(grep -c '^| fwd' out)" -eq 4
row=$(grep -E '^\| fwd .*128 .*fused.?.?cpu' out)
expect "the wider band" grep -qE '[0-9.]+ ± 1\.5 %' <<<"$row"
expect "bold where it leaves the band before, only there" test "$(grep -o '\*\*[0-9.]* ± ' <<<"$row" | wc -l)" -eq 1
expect "the first against the last" grep -qE '\*\*-18\.9 %\*\*|\*\*-19\.[0-9] %\*\*' <<<"$row"
expect "where" grep -qE -- '-19\.2 % at cccccccccc' <<<"$row"
row=$(grep -E '^\| fwd .*64 .*fused.?.?cpu' out | grep -v 128)
expect "what did not change" grep -qE '\+0.0 %, within \| +\|$' <<<"$row"

# Labels instead of commits, a failed check, text and a file.
sed 's/"check": *"pass"/"check": "fail"/' second.jsonl | python3 -c 'import json, sys
for line in sys.stdin:
    row = json.loads(line)
    if row["type"] == "row":
        row["tflops"] = None
    print(json.dumps(row))' >failed.jsonl
run report --history old=first.jsonl new=failed.jsonl
expect_code 0
expect_stdout 'old 2026-01-01 +new 2026-02-02'
expect_stdout 'FAILED'
# A column that says FAILED has no speed, also where another of its records passed.
run report --history old=first.jsonl new=failed.jsonl new=second.jsonl --out none
expect_code 0
expect "no change from or to FAILED" test "$(grep -cE '^\| fwd .*FAILED\*{0,2} *\| +\| +\|$' out)" -eq 4
run report --history first.jsonl second.jsonl --out page
expect_code 0
expect_stdout '^history: page/history.md$'
expect "one file" test "$(ls page)" = history.md

# ---- what is refused ----
refused 'first.jsonl: this file is given twice' report --history first.jsonl first.jsonl
refused '--price.*cannot be used with --history' report --history a=first.jsonl --price a=5EUR
echo '{' >bad.jsonl
run report --history first.jsonl bad.jsonl
expect_code 5
expect_sentence 'bad.jsonl'
finish
