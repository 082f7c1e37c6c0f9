#!/usr/bin/env bash
# scripts/generations.py: tables from a record; rows that failed are left out; --check finds a page that differs. The
# preset without a GPU. The records here are made up.
. "$(dirname "$0")/lib.sh"

run --preset generations --dry-run
expect_code 0
expect_stdout '^48 problems x'
command -v python3 >/dev/null || skip "no python3"
row() { # FILE IMPL MODE MS CHECK
    printf '{"type":"row","device":"NVIDIA H200","commit":"abcdef0123456","impl":"%s","mode":"%s","dtype":"fp16",' \
        "$2" "$3"
    printf '"causal":0,"head_dim":64,"q_len":16384,"flops":%s,' "$([ "$3" = fwd ] && echo 2e12 || echo 5e12)"
    printf '"time_ms":%s,"check":"%s"}\n' "$4" "$5"
} >>"$1"
tables() {
    what="generations.py $*"
    code=0
    python3 -B "$root/scripts/generations.py" --page page.md --csv short.csv "$@" >out 2>err </dev/null || code=$?
}
printf '# A page\n<!-- generations:begin -->\nold\n<!-- generations:end -->\nend\n' >page.md
echo '{"type":"header","device":{"name":"NVIDIA H200"}}' >one.jsonl
for impl in naive:20:30:pass fused_v1:12:38:pass fused_sm80:10:15:pass fused_sm90:1:1:fail; do
    IFS=: read -r name fwd bwd check <<<"$impl"
    row one.jsonl "$name" fwd "$fwd" pass
    row one.jsonl "$name" bwd "$bwd" "$check"
done
tables
expect_code 0
line() { grep -qxF -- "$1" page.md; }
expect "no record, no figures" line 'Not measured yet.'
tables one.jsonl
expect_code 0
expect "the rows in short" test "$(wc -l <short.csv)" -eq 9
# shellcheck disable=SC2016 # the page's own quotes
expect "7 TFLOP in 50 ms" line '| `fused_v1` | - | - | - | - | - | 140 |'
expect "of 168 that are published" line '| v1 / published | - | - | - | - | - | 0.83 |'
expect "the next step" line '| sm80 / v1 | - | - | - | - | - | 2.00 |'
# shellcheck disable=SC2016
expect "nothing of a failed row" line '| `fused_sm90` | - | - | - | - | - | - |'
expect "whose figures they are" grep -q 'NVIDIA H200, commit abcdef0123: \[short.csv\]' page.md
tables --check
expect_code 0
sed -i 's/140/150/' page.md
tables --check
expect_code 1
grep -v fused_v1 one.jsonl >other.jsonl
tables other.jsonl
expect_code 2
finish
