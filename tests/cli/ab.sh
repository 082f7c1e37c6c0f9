#!/usr/bin/env bash
# fabench ab: verdicts and exit codes with stand-ins that write synthetic records, then with real programs on the CPU:
# this build against itself, and libraries. Nothing here depends on the speed of this machine.
. "$(dirname "$0")/lib.sh"

paced=$(find "$(dirname "$fabench")" -name libpaced_0.so -printf '%h\n' | head -1)
export FABENCH_LOCK_DIR=$tmp
unset GITHUB_ACTIONS
copy_fake old new
# A program that does not answer: `ab` waits 20 s, in which the rest of this test goes on.
copy_fake answers silent
echo 'sleep_s=60' >silent.conf
mkdir silent_lock
(FABENCH_LOCK_DIR=$tmp/silent_lock
    timeout --kill-after=5 60 "$fabench" ab ./answers ./silent --device cpu >silent.out 2>silent.err </dev/null
    echo $? >silent.code) &
silent=$!

# fakes OLD-SETTINGS NEW-SETTINGS ARGUMENT...: ab of the two stand-ins.
fakes() {
    rm -f old.log new.log
    echo "$1" >old.conf
    echo "$2" >new.conf
    shift 2
    run ab ./old ./new --device cpu --out runs "$@"
}
# verdict N: the verdict of the configuration of length N in the last run.
verdict() { awk -F, -v n="$1" '{ split($2, word, " "); if (word[4] == n) print $1 }' runs/verdicts.csv; }

# ---- verdicts ----
fakes '' ''
expect_code 0
expect_stdout '^PASS: all 3 pass'
expect_stdout '^control .*naive.*stable'
expect "one check and six processes of OLD" test "$(wc -l <old.log)" -eq 7
expect "one check and six processes of NEW" test "$(wc -l <new.log)" -eq 7
expect "a line for each pair" test "$(grep -cE '^pair +[0-9]+: +[0-9]+ s, [0-9] of 3 decided' out)" -eq 6
expect "the first process of each to check" grep -q -- --check=full <(head -1 old.log; head -1 new.log)
expect "nobody after it to check" test "$(sed 1d old.log new.log | grep -c -- --check=full)" -eq 1
expect "the preset of the CPU where none was typed" grep -q -- --preset=quick old.log
expect "3 s of load before the first problem" grep -q -- --preheat-s=3 old.log
# The order: two of each in four processes, another one for another seed, the same one again for the same.
order() { (cd runs && printf '%s\n' *.jsonl) | sed 's/.*[0-9]-//; s/.jsonl//' | grep -v check | tr '\n' ' '; }
seen=
for seed in 1 2 3 4 5 6 1; do
    rm -rf runs
    fakes '' '' --order-seed $seed
    expect_code 0
    expect_stdout "random order \(--order-seed $seed\)"
    expect "two of each in each block" test -z "$(order | xargs -n 4 | while read -r a b c d; do
        [ "$(printf '%s\n' "$a" "$b" "$c" "$d" | grep -c OLD)" -eq 2 ] || echo no; done)"
    seen+="$(order)
"
done
expect "several orders" test "$(sort -u <<<"$seen" | grep -c OLD)" -ge 4
expect "the first again" test "$(sed -n 1p <<<"$seen")" = "$(sed -n 7p <<<"$seen")"
fakes '' ''
expect_stdout 'random order \(--order-seed [0-9]+\)'

fakes '' 'times=(1.0 2.06 3.0) shares=(50 38.83 30)'
expect_code 3
expect_stdout '^REGRESS +fwd full +d64 +256 '
expect_stdout '^REGRESSION: 1 slower of 3'
expect_stdout 'to measure the first line again'
expect "the other ones to pass" test "$(verdict 128) $(verdict 512)" = "pass pass"
expect "the worst first" test "$(sed -n 2p runs/verdicts.csv | cut -d, -f1)" = REGRESS

fakes '' 'times=(0.9 2.0 3.0) shares=(55.5 40 30)'
expect_code 0
expect_stdout '^IMPROVE +fwd full +d64 +128 '

# Slower in plain time, the same against the GEMM and for the control: the clock.
fakes '' 'clock=1.04'
expect_code 0

# As fast as before beside the control, while the GEMM's time changes from process to process; then slower beside it.
shifting='overs=(2.5 2.0 1.5) gemm_shift=0.05'
fakes "$shifting" "$shifting"
expect_code 0
expect "no more pairs for it" test "$(wc -l <old.log)" -eq 7
fakes 'overs=(2.5 2.0 1.5)' 'overs=(2.5 1.94 1.5) shares=(50 38.83 30)'
expect_code 3
expect "the slow one to be named" test "$(verdict 256)" = REGRESS
# The control alone moved at one length: no verdict there.
fakes 'overs=(2.5 2.0 1.5)' 'overs=(2.5 1.9 1.5) shares=(50 40 30)'
expect_code 4
expect "undecided" test "$(verdict 256)" = INCONCLUSIVE
expect_stdout 'relative to the GEMM it is [+-]0.[01] %'
# A figure that only one build has is not used.
fakes 'overs=(2.5 2.0 1.5)' 'times=(1.0 2.06 3.0) shares=(50 38.83 30)'
expect_code 3
expect "judged by the GEMM" test "$(verdict 256)" = REGRESS

# Without a GEMM the times decide.
fakes 'shares=()' 'shares=() times=(1.0 2.06 3.0)'
expect_code 3
expect "the slow one to be named" test "$(verdict 256)" = REGRESS

# The control changed: no verdict.
fakes '' 'control_share=19 times=(1.0 2.1 3.0) shares=(50 38 30)'
expect_code 4
expect_stdout '^control .*CHANGED'
expect "no regression" test "$(verdict 256)" = INCONCLUSIVE

# Noise: up to sixteen pairs, of the open ones only.
noisy='shares=() times=(1.0 2.1 3.0) shifts=(0 0.6 0)'
fakes 'shares=()' "$noisy"
expect_code 4
expect_stdout '^INCONCLUSIVE +fwd full +d64 +256 .* 16 *$'
expect_stdout '^INCONCLUSIVE: 1 undecided of 3'
expect "the open one alone in the later processes" test "$(grep -c -- '--points=1' old.log)" -eq 10
fakes 'shares=()' "$noisy" --pairs 3,4 --soft 4,5
expect_code 0
expect_stdout 'replaced 4'
expect_stdout '^INCONCLUSIVE: '
expect "four pairs" test "$(wc -l <new.log)" -eq 5

# Checked once on each side.
fakes 'checks=(pass fail pass)' ''
expect_code 0
expect "fixed" test "$(verdict 256)" = FIXED
fakes '' 'checks=(pass fail pass)'
expect_code 1
expect "wrong" test "$(verdict 256)" = FAIL
fakes 'checks=(pass fail pass)' 'checks=(pass fail pass)'
expect_code 1
fakes '' 'statuses=(ok unsupported ok)'
expect_code 3
expect "lost" test "$(verdict 256)" = LOST
expect_stdout 'unsupported on purpose'
fakes 'statuses=(ok unsupported ok)' ''
expect_code 0
expect "new" test "$(verdict 256)" = NEW
fakes '' 'statuses=(ok error ok)'
expect_code 6
fakes 'statuses=(unsupported unsupported unsupported)' 'statuses=(unsupported unsupported unsupported)'
expect_code 6
expect_stderr 'neither OLD nor NEW runs'

# `fused` may be another kernel on the other side.
fakes 'impl=fused_ancient' 'impl=fused_modern'
expect_code 0
# A build without the control: the GEMM alone.
fakes '' 'control='
expect_code 0
expect_stdout '^control .*gemm'

# Thermal slowdown: three pairs are repeated, then it gives up.
fakes '' 'throttled=7'
expect_code 4
expect_stderr 'thermal slowdown'
expect_stdout '3 times pairs were repeated'

# ---- programs that cannot be compared ----
fakes '' 'schema=999'
expect_code 5
expect_stderr 'schema'
fakes '' 'method=2'
expect_code 5
expect_stderr "timing method '2'"
fakes '' 'device="Another GPU"'
expect_code 5
expect_stderr 'Another GPU'
fakes '' 'method=2' --soft 5
expect_code 0
expect_stdout 'replaced 5'
fakes '' 'always_instead="echo no record"'
expect_code 5
fakes '' 'run="echo fabench: the device has vanished >&2; exit 6"'
expect_code 6
expect_stderr 'NEW .*process [345] ended with code 6: the device has vanished'
fakes '' 'run="kill -SEGV $$"'
expect_code 6
expect_stderr 'signal 11'
fakes '' 'run_instead="head -c 300 runs/01-OLD-check.jsonl"'
expect_code 5
# A record that contradicts itself, of the checking process and of a measuring one; one that was not checked.
edited() { # edited SED-SCRIPT: the stand-in's own record, edited
    printf '#!/bin/sh\n./fake_new "$@" | sed -E '"'%s'"'\n' "$1" >edited
    chmod +x edited
}
copy_fake fake_new
for script in 's/("tflops":)[^,]*/\1999/' 's/("err_used":)[^,}]*/\17/' 's/"check":"pass",//' \
    's/("time_ms":)[^,]*/\11e308/'; do
    edited "$script"
    echo 'noise=0' >fake_new.conf
    run ab ./old ./edited --device cpu --pairs 2,2
    expect_code 5
    expect_stderr 'NEW ./edited: the record of process 2 is not used: .*02-NEW-check.jsonl, row 1 \(fwd full .*\): it'
done
edited 's/"check":"pass"/"check":"off"/'
run ab ./old ./edited --device cpu --pairs 2,2
expect_code 5
expect_stderr 'ab ./edited: its record says nothing about the results of fused fwd full .*: they were not checked'
edited '/"check":"off"/s/("tflops":)[^,]*/\1999/'
run ab ./old ./edited --device cpu --pairs 2,2
expect_code 5
expect_stderr 'the record of process [345] is not used: .*its tflops is 999'
fakes 'always_instead="echo fabench: --points: no such option >&2; exit 2"' ''
expect_code 5
expect_stderr 'OLD .*refuses these options: --points'
fakes 'always_instead="exit 2"' 'always_instead="exit 2"'
expect_code 2
echo 'echo something else' >other
chmod +x other
run ab ./other ./new --device cpu
expect_code 2
expect_sentence 'ab OLD ./other: (is no fabench|.*cannot be started)'
run ab /bin/true ./new --device cpu
expect_code 2
expect_sentence '/bin/true: is no fabench program'
echo text >plain
run ab plain ./new --device cpu
expect_code 2
run ab ./absent ./new --device cpu
expect_code 2
expect_sentence 'absent: must be a file that exists'
run ab "$plugins/libwrong_cpu.so" ./new --device cpu
expect_code 2
expect_sentence 'one kind'
run ab "$plugins/libbad_empty.so" "$plugins/libwrong_cpu.so" --device cpu
expect_code 2
: >new.conf
printf '#!/bin/sh\nexec yes "fabench 0.1"\n' >endless
chmod +x endless
limit_s=40 run ab --device cpu ./endless ./endless # output shows that a process is alive
expect_code 6
expect_sentence 'ab OLD ./endless: does not answer to --version: wrote more than 1 MB'
if ! "$fabench" info --device cuda:0 >/dev/null 2>&1; then
    run ab ./old ./new # no GPU: never the CPU instead
    expect_code 6
    expect_sentence 'ab needs a GPU.*--device cpu'
fi

wait $silent
what="ab with a program that does not answer"
cp silent.out out
cp silent.err err
code=$(cat silent.code)
expect_code 6
expect_sentence 'does not answer to --version'

# ---- CI ----
GITHUB_ACTIONS=true fakes '' 'times=(1.0 2.06 3.0) shares=(50 38.83 30)' --junit junit.xml
expect_code 3
expect_stdout '^::error title=fabench ab%3A REGRESS fwd full d64 256 fp16::fused vs GEMM \+3\.0.*raw time \+3\.0'
expect_file junit.xml
expect "well-formed XML" python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse("junit.xml")'
expect "one failure of three tests" grep -q 'tests="3" failures="1" errors="0"' junit.xml
fakes '' 'method=2' --junit junit.xml
expect_stdout '^NOT COMPARABLE: nothing was compared'
expect "an error where nothing was compared" grep -q 'tests="1" failures="0" errors="1"' junit.xml
# A run that ends without verdicts removes the verdicts of an earlier run.
fakes '' '' --junit junit.xml
expect_code 0
expect_file runs/verdicts.csv
run ab ./old ./absent --device cpu --out runs --junit junit.xml
expect_code 2
expect "no stale verdicts" test ! -e junit.xml -a ! -e runs/verdicts.csv

# ---- one at a time ----
echo 'run="touch started; sleep 1"' >old.conf
: >new.conf
"$fabench" ab ./old ./new --device cpu --pairs 2 >first.out 2>&1 &
first=$!
for _ in $(seq 200); do [ ! -e started ] || break; sleep 0.05; done
run ab ./new ./new --device cpu --pairs 2
expect_code 0
expect_stderr "device cpu is being measured by process $first: waiting"
wait "$first"
expect "the first to end well" test $? -eq 0

# Ctrl-C: no process is left.
rm -f started
echo 'run="echo $$ >child; touch started; exec sleep 61"' >old.conf
"$fabench" ab ./old ./new --device cpu >interrupted.out 2>interrupted.err &
first=$!
for _ in $(seq 200); do [ ! -e started ] || break; sleep 0.05; done
kill -TERM "$first"
code=0
wait "$first" || code=$?
what="ab, interrupted"
expect_code 130
for _ in $(seq 200); do ! is_running "$(cat child)" || sleep 0.05; done
expect "its process gone" is_gone "$(cat child)"

# ---- real ones ----
rm -f old.conf
tiny=(--device cpu --seqlen 64,128 --batch 1 --heads 1 --d 64 --causal --mode fwd --samples 3 --min-time-ms 1
    --warmup-ms 0 --preheat-s 0 --pairs 2,3 --delta 50% --l2 hot --max-noise 100%)
run ab "$fabench" "$fabench" "${tiny[@]}" --out real --soft 4
expect "a verdict: 0 or 3" test "$code" -eq 0 -o "$code" -eq 3
expect "two configurations" test "$(wc -l <real/verdicts.csv)" -eq 3
expect "the kernel under its own name in the records" grep -q '"impl":"fused_cpu"' real/0[3-5]-OLD.jsonl
tiny+=(--mode fwd,bwd) # instead of the earlier one
run ab "$paced/libpaced_0.so" "$paced/libpaced_lost.so" "${tiny[@]}" --out libraries
expect_code 3
expect "backward is lost" test "$(grep -c '^LOST,bwd' libraries/verdicts.csv)" -eq 2
closer=$(sed '1,/to measure the first line again:/d' out | tr -d '\n\\' | tr -s ' ')
for words in "--impl paced_cpu" "--mode bwd" "--causal=yes" "--d 64" "--seqlen (64|128)" "--layout bshd" "--seed 1" \
    "--l2 hot" "--device cpu"; do
    expect "a command that compares that case again, with $words" grep -qE -- " $words( |\$)" <<<"$closer"
done
eval "run ${closer#*fabench } --pairs 2,3"
expect_code 3
expect_stdout '^LOST +bwd causal'
expect "the library's own name" grep -q 'paced_cpu' libraries/verdicts.csv
run ab "$paced/libpaced_0.so" "$plugins/libwrong_cpu.so" $(printf '%s ' "${tiny[@]}")
expect_code 3
expect_stdout '^LOST +all .*not in NEW'
finish
