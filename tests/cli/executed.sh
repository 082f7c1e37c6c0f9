#!/usr/bin/env bash
# The rule "executed": each kernel that does less than it is asked to, or in fewer bits, fails by it under --counters,
# and the same kernel that does all, passes. Needs an H100 or H200 whose counters can be read.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
library=$plugins/libcheats_cuda.so
[ -e "$library" ] || skip "this build has no kernels for sm_90"
"$fabench" info --device cuda:0 >/dev/null 2>&1 || skip "no GPU"

cheats=(cheat_blocks cheat_keys cheat_heads cheat_rows cheat_fp8 cheat_sums)
for dtype in bf16 fp16; do
    run --device cuda:0 --impl-lib "$library" --impl "$(IFS=,; echo "cheat_none,${cheats[*]}")" --counters --mode fwd \
        --causal=no --d 128 --seqlen 2k --dtype $dtype --warmup-ms 1 --min-time-ms 1 --samples 3 --max-noise 100% \
        --plot none --out none --jsonl run.jsonl
    grep -q -- "--counters: " "$tmp/err" && skip "$(grep -- '--counters: ' "$tmp/err" | head -1)"
    expect_code 1
    what="cheat_none, $dtype"
    expect "pass" test "$(rows run.jsonl '"impl": *"cheat_none"' | row_value check)" = pass
    for cheat in "${cheats[@]}"; do
        what="$cheat, $dtype"
        row=$(rows run.jsonl "\"impl\": *\"$cheat\"")
        expect "fail" test "$(row_value check <<<"$row")" = fail
        expect "the rule executed" grep -qE '"rule": *"executed"' <<<"$row"
    done
done
finish
