#!/usr/bin/env bash
# What a user may trust: noise is said, --quiet is quiet, a record is not overwritten, and hints name what is there.
. "$(dirname "$0")/lib.sh"

# --- Noise. No run reaches 0.001 %, so that its rows are noisy on every machine.
noisy=(--max-noise 0.001% --samples 20 --impl naive,fused --timeout-s 10)
run_small "${noisy[@]}" --verbose
expect_code 0
noise='(up to [0-9.]+|over 999) % \(asked: 0.001 %\)'
expect_stdout "^PASS: 2 of 2 rows; NOISY: [12] of 2, $noise; load [0-9.]+ -> [0-9.]+ on [0-9]+ CPUs"
expect_stdout '^ .* !(>999|[0-9.]+)% '
expect_stdout 'naive: [0-9]+ samples, stop: limit'
run_small --impl naive,fused # asked for 100 %
expect_code 0
run_small --impl naive,fused --samples 3 --max-noise 100% --min-time-ms 0
expect "samples and stop to need --verbose" sh -c '! grep -q "stop:" out'
run_small "${noisy[@]}" --quiet
expect_code 0
expect_no_stdout
expect_sentence '^fabench: warning: NOISY: [12] of 2, '

# --- --quiet: nothing but warnings and errors.
calm=(--max-noise 100% --samples 20 --impl naive,fused)
silent() { # silent ARGUMENT...: it ends with 0 and says nothing at all, but for noise
    run "$@" --quiet
    expect_code 0
    expect_no_stdout
    expect "no word on stderr but NOISY" test "$(grep -cv 'warning: NOISY' err)" -eq 0
}
small "${calm[@]}" --out sweep
silent "${small[@]}"
expect_file sweep/run.jsonl
silent verify --preset quick --device cpu --impl fused --d 64 --mode fwd --dtype fp32 --out verified
silent plot sweep/run.jsonl --out charts
silent report sweep/run.jsonl --out page
silent selftest --device cpu --seqlen 256 --dtype fp32 --mode fwd
printf 'mode,impl,min_tflops\nfwd,fused_cpu,1e-9\n' >floors.csv # one record a side decides nothing on a CPU
silent gate --floors floors.csv --current sweep/run.jsonl --device cpu
# What failed is said, on stderr alone.
run_small --impl-lib "$plugins/libwrong_cpu.so" --impl wrong_scale --quiet
expect_code 1
expect_no_stdout
expect_stderr '^FAIL wrong_scale '
expect_stderr '^fabench: FAILED: 1 of 1 rows; exit 1$'
sed -E 's/"check":"pass"/"check":"off"/' sweep/run.jsonl >unchecked.jsonl
run gate --baseline unchecked.jsonl --current sweep/run.jsonl --device cpu --quiet
expect_code 5
expect_no_stdout
expect_stderr '^fabench: UNCHECKED '
expect_stderr '^fabench: NOT COMPARABLE: '
# What was asked for by name is printed.
run_small --quiet --csv -
expect_code 0
expect "the CSV" test "$(wc -l <out)" -eq 2
run list --device cpu --quiet
expect_stdout 'fused_cpu'

# --- A folder with a record.
small "${calm[@]}" --out sweep
cp sweep/run.jsonl kept.jsonl
run "${small[@]}"
expect_code 2
expect_sentence '--out sweep: holds the run.jsonl of an earlier run; must be another folder, or --resume .*--overwrite'
expect_no_stdout
expect "the record untouched" cmp -s kept.jsonl sweep/run.jsonl
run "${small[@]}" --resume
expect_code 0
run "${small[@]}" --overwrite
expect_code 0
expect "a new record" sh -c '! cmp -s kept.jsonl sweep/run.jsonl'
expect "of as many rows" test "$(rows sweep/run.jsonl | wc -l)" -eq "$(rows kept.jsonl | wc -l)"
run verify --preset quick --device cpu --impl fused --d 64 --out verified
expect_code 2
expect_sentence '--out verified: holds the run.jsonl'
# Without --out each run has a folder of its own, even in the same second.
export FABENCH_OUT_ROOT=$tmp/root_dir
small default-out --plot none
for i in 1 2 3; do
    "$fabench" "${small[@]}" >"out.$i" 2>&1 </dev/null &
done
wait
expect "three folders" test "$(find root_dir -name run.jsonl | wc -l)" -eq 3
unset FABENCH_OUT_ROOT

# --- plot says where it wrote, and that is where its help says: the working folder.
mkdir here
cd here || exit 1
run plot ../sweep/run.jsonl
cd .. || exit 1
expect_code 0
if command -v gnuplot >/dev/null; then
    expect_stdout '^[0-9]+ charts in \./ \(\*\.svg'
    expect "as many as it says" test "$(sed -n 's/ charts in.*//p' out)" -eq "$(find here -name '*.svg' | wc -l)"
    run plot sweep/run.jsonl --out one --plot png
    expect_stdout '^[0-9]+ charts in one/ \(\*\.png'
fi

# --- "next:" only where there is something to draw, and only what this run wrote.
run_small --out drawn --plot none
expect_stdout '^records: drawn/ run.csv run.jsonl$'
expect_stdout '^next: fabench plot drawn/run.jsonl --plot term$'
run_small --plot none --jsonl loose.jsonl
expect_stdout '^records: loose.jsonl$'
expect_stdout '^next: fabench plot loose.jsonl --plot term$'
run verify --preset quick --device cpu --impl fused --d 64 --mode fwd --dtype fp32 --out verified2
expect_stdout '^records: verified2/ run.csv run.jsonl$'
expect "no times, so nothing to draw" sh -c '! grep -q ^next: out'
run_small --impl null --out empty --plot none
expect "null is not drawn" sh -c '! grep -q ^next: out'
run_small --jsonl /dev/null --plot none
expect "nothing is left in /dev/null" sh -c '! grep -qE "^(next|records):" out'

# --- ab: the change that decides has its own name, beside the raw one and the bound.
run ab "$fabench" "$fabench" --device cpu --seqlen 128 --d 64 --batch 1 --heads 1 --causal --mode fwd --warmup-ms 0 \
    --min-time-ms 1 --samples 20 --preheat-s 0 --max-noise 100% --l2 hot --pairs 2,3 --soft 4
expect_stdout 'OLD ms +NEW ms +raw +vs naive +decided by, % +pairs +why$'
expect_stdout ' (<=|>=) [+-][0-9.]+ \((95|99)%\) | \.\. [+-][0-9.]+ \(99%\) '
expect_stdout ', 1 configuration, OLD and NEW checked once each'
expect "its spread, wherever the line is broken" grep -qE 'spread [0-9.]+ %' <<<"$(tr -s '\n ' '  ' <out)"
run ab "$fabench" "$fabench" --device cpu --seqlen 128 --d 64 --batch 1 --heads 1 --causal --mode fwd --warmup-ms 0 \
    --min-time-ms 1 --samples 20 --preheat-s 0 --max-noise 100% --l2 hot --pairs 2,2 --delta 50% --soft 4 --quiet
expect_no_stdout
finish
