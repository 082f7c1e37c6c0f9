#!/usr/bin/env bash
# `selftest` finds the loss of each defence against work left out by itself: the program with one of them taken out
# (tests/fake/lost_defence.c) ends with 7 and names the lie that gets through. And what the look at the reference finds.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fabench=${FABENCH_LOST:-$(dirname "$fabench")/tests/fake/fabench_lost}
[ -x "$fabench" ] || { echo "no program at $fabench"; exit 1; }

limit_s=300

# loses DEFENCE LIE: exactly this lie gets through, forward and backward.
loses() {
    LOST_DEFENCE=$1 run selftest --device cpu --seqlen 128 --dtype fp32 --causal --jsonl lost.jsonl
    expect_code 7
    expect_stdout "^NOT CAUGHT: $2: "
    expect_stdout "^FAILED: "
    lies=$(grep '"caught": *false' lost.jsonl | grep '"without_work"') # without a stale output, which is no lie
    expect "no other lie" test "$(grep -vcF "\"$2\"" <<<"$lies")" -eq 0
    expect "in both directions" test "$(wc -l <<<"$lies")" -eq 2
}

run selftest --device cpu --seqlen 128 --dtype fp32 --causal
expect_code 0
loses pattern "lazy on valid output"
loses new_values "first result, right signs"
loses signs "the same, inputs of files"
loses witness "a slow clock"

# A plugin that sets the reference, which it finds in memory, and its own outputs to 0: it fails alone, and the honest
# one that is judged behind it fails, too, where nobody looks at the reference.
found=(--device cpu --mode fwd --causal --d 32 --seqlen 32 --batch 1 --heads 2 --l2 hot --warmup-ms 0 --min-time-ms 0
    --samples 7 --max-noise 100% --out none --impl-lib "$plugins/libliars.so" --impl liar_scan_zeros,liar_honest)
run "${found[@]}"
expect_code 1
expect_stderr 'liar_scan_zeros: the reference was changed'
expect_stdout '^2 of 2 rows checked .full., 1 pass, 1 FAIL'
LOST_DEFENCE=reference run "${found[@]}"
expect_code 1
expect_stdout '^2 of 2 rows checked .full., 0 pass, 2 FAIL'
finish
