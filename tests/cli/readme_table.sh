#!/usr/bin/env bash
# scripts/readme_table.py: the columns come from the records that have them, the newest and most complete one; --check
# finds a table that is not theirs and figures of results elsewhere. The records here are made up.
. "$(dirname "$0")/lib.sh"

command -v python3 >/dev/null || skip "no python3"
# record FILE DAY LENGTH IMPL TFLOPS [KEYS]: appends a row, forward, causal, head dim 128.
record() {
    [ -e "$1" ] || echo '{"type":"header","schema":1}' >"$1"
    {
        printf '{"type":"row","time_utc":"2026-11-%sT00:00:00Z","commit":"c%s","device":"NVIDIA H200",' "$2" "$2"
        printf '"impl":"%s",' "$4"
        printf '"mode":"fwd","dtype":"bf16","causal":1,"batch":%s,"q_heads":16,"kv_heads":16,' $((16384 / $3))
        printf '"q_len":%s,"kv_len":%s,"head_dim":128,"layout":"bshd","dist":"normal","l2":"cold",' "$3" "$3"
        printf '"status":"ok","check":"pass","err_used":0.5,"tflops":%s%s}\n' "$5" "${6:-}"
    } >>"$1"
}
table() {
    what="readme_table.py $*"
    code=0
    python3 -B "$root/scripts/readme_table.py" --readme page.md "$@" >out 2>err </dev/null || code=$?
}
page() { printf '# A page\n%s\n<!-- results:begin -->\nold\n<!-- results:end -->\nend\n' "${1:-}" >page.md; }

# Burst alone, beside cuDNN.
page
record one.jsonl 01 16384 fused_a 600 ',"pct_of_gemm":80.4,"speedups":"cudnn=1.25"'
record one.jsonl 01 4096 fused_a 500 ',"err_used":0.7,"speedups":"cudnn=1.5"'
table one.jsonl
expect_code 0
line() { grep -qxF -- "$1" page.md; }
expect "the columns that it has" line '| H200, bf16, 16k | burst TFLOPS | % GEMM | x cuDNN | error / bound |'
expect "the figures" line '| fwd causal d128 | 600 | 80 | 1.25 | 0.70 |'
expect "the mean and the least over all lengths" grep -q '1\.37 x cuDNN in bf16 (least 1\.25 of 2 points)' page.md
expect "what stands around it" sh -c "head -n 1 page.md | grep -qx '# A page' && tail -n 1 page.md | grep -qx end"
table --check one.jsonl
expect_code 0

# FlashAttention-3 and sustained figures come from a newer record of one length; the burst figures stay.
load='"sustain_s":10.01,"tflops_sustained"'
record two.jsonl 02 16384 fused_a 590 ",$load"':550,"energy_j":0.9,"speedups":"cudnn=1.24 fa3=1.12"'
record two.jsonl 02 16384 fa3 520 ",$load"':500,"energy_j":1.2'
table one.jsonl two.jsonl
expect_code 0
expect "sustained figures and joules" line '| fwd causal d128 | 600 | 550 | 80 | 1.25 | 0.75 | 0.70 |'
expect "their seconds" grep -q '10 s of load each' page.md
record one.jsonl 03 16384 fused_a 610 ',"speedups":"cudnn=1.25 fa3=1.10"' # measured again: the last one counts
table one.jsonl two.jsonl
expect "x FA3 of the same rounds" line '| fwd causal d128 | 610 | 550 | 1.10 | 1.25 | 0.75 | 0.70 |'
expect "both records" sh -c "tr '\n' ' ' <page.md | grep -q 'two.jsonl) of commit c02, .*one.jsonl) of commit c03'"

# Sustained figures of another timing method do not stand beside these.
sed 's/"type":"row",/&"method":"4",/' two.jsonl >older.jsonl
page
table one.jsonl older.jsonl
expect_code 0
expect "no figure of another method" line '| fwd causal d128 | 610 | 1.10 | 1.25 | 0.70 |'
table one.jsonl two.jsonl

# A row that failed is not used; nor another convention.
record bad.jsonl 04 16384 fused_a 999 ',"check":"fail"'
record bad.jsonl 04 16384 fused_a 998 ',"dist":"ones"'
table bad.jsonl
expect_code 1
expect_stderr 'no checked fused bf16 row'

# --check: another figure in the table, and figures that no record is behind.
table --check one.jsonl two.jsonl
expect_code 0
sed -i 's/| 610 |/| 611 |/' page.md
table --check one.jsonl two.jsonl
expect_code 1
expect_stderr 'not up to date'
for figure in '1.15 as fast' 'a gain of 5 %' '700 TFLOPS' '3 times'; do
    page "$figure"
    table one.jsonl
    expect_code 0 # it writes the table
    table --check one.jsonl
    expect_code 1
    expect_stderr 'no record is behind'
done
page 'CUDA 12.4, `--x 1.5`, [a link](results/1.5.csv), the 95 % interval'
table one.jsonl
table --check one.jsonl
expect_code 0
echo nothing >page.md
table one.jsonl
expect_code 1
expect_stderr 'must hold'
finish
