#!/usr/bin/env bash
# fabench gate: stored records against stored records (synthetic rows of the stand-in), then real ones on the CPU.
. "$(dirname "$0")/lib.sh"

export FABENCH_LOCK_DIR=$tmp
unset GITHUB_ACTIONS
copy_fake fake

# record FILE SETTINGS [IMPL]: what the stand-in writes when it is asked for IMPL (fused), checked in full.
record() {
    echo "noise=0; control_share=20; $2" >fake.conf
    ./fake --check=full "--impl=${3:-fused},naive" >"$1"
}
# verdict N IMPL: of the last run with --out verdicts.
verdict() {
    awk -F, -v n="$1" -v impl="$2" '{ split($2, word, " "); if (word[4] == n && $3 == impl) print $1 }' \
        verdicts/verdicts.csv
}
gate() { run gate --out verdicts "$@"; }

record base.jsonl ''
record same.jsonl ''
gate --baseline base.jsonl --current same.jsonl
expect_code 0
expect_stdout '^PASS: all 6 pass; GEMM time [+-]0\.0 %'
expect_no_stderr

record slow.jsonl 'times=(1.0 2.2 3.0) shares=(50 36.4 30)'
gate --baseline base.jsonl --current slow.jsonl --junit junit.xml
expect_code 3
expect_stdout '^REGRESS +fwd full +d64 +256 fp16 +fused_fake .*\+10\.0 %'
expect_stdout '^REGRESSION: 1 slower of 6'
expect "the others pass" test "$(grep -c ^pass verdicts/verdicts.csv)" -eq 5
expect "worst first" test "$(sed -n 2p verdicts/verdicts.csv | cut -d, -f1)" = REGRESS
expect "well-formed XML" python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("junit.xml")'
gate --baseline base.jsonl --current slow.jsonl --delta 12%
expect_code 0

# A run that ends early removes the verdicts of an earlier run; what is not a regular file stays.
gate --baseline base.jsonl --current same.jsonl --junit green.xml
expect_code 0
gate --baseline base.jsonl --current same.jsonl --junit /dev/null
expect_code 0
expect "still a device" test -c /dev/null
ln -s green.xml link.xml
gate --baseline absent.jsonl --current same.jsonl --junit link.xml
expect_code 5
expect "the link's file says so" grep -q 'errors="1"' green.xml
expect "still a link" test -L link.xml
# Usage that only the measuring process can refuse: no verdicts at all.
gate --baseline same.jsonl --device cpu --seqlen 128 --impl nonsense --junit green.xml
expect_code 2
expect "no stale JUnit" test ! -e green.xml
expect "no stale table" test ! -e verdicts/verdicts.csv
rm -f link.xml
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && touch closed/green.xml && chmod a-w closed
    gate --baseline base.jsonl --current same.jsonl --junit closed/green.xml
    expect_code 7
    expect_stderr 'cannot be removed'
    chmod u+w closed
fi
# An output must not be one of the inputs.
cp base.jsonl verdicts/current.jsonl
refused_output() { # refused_output REGEX ARGUMENT...
    run gate "${@:2}"
    expect_code 2
    expect_sentence "$1"
}
refused_output '--out verdicts: its current.jsonl is the file of --baseline' \
    --baseline verdicts/../verdicts/current.jsonl --device cpu --out verdicts
refused_output '--out verdicts: its verdicts.csv is the file of --floors' --floors verdicts/verdicts.csv --out verdicts
refused_output '--junit base.jsonl: is the file of --baseline' --baseline base.jsonl --junit base.jsonl
refused_output '--junit ./same.jsonl: is the file of --current' \
    --baseline base.jsonl --current same.jsonl --junit ./same.jsonl
expect "inputs as they were" cmp base.jsonl verdicts/current.jsonl
rm verdicts/current.jsonl
run ab ./fake "$fabench" --device cpu --junit fake
expect_code 2
expect_sentence '--junit fake: is the file of OLD'
GITHUB_ACTIONS=true gate --baseline base.jsonl --current slow.jsonl
expect_stdout '^::error title=fabench gate%3A REGRESS fwd full d64 256 fp16::fused_fake '

# Slower in plain time only: caused by the device, while the GEMM changed by 3 % at most.
record warm.jsonl 'clock=1.029; times=(1.0 2.05 3.0) shares=(50 39.03 30)'
gate --baseline base.jsonl --current warm.jsonl
expect_code 0
expect_stdout 'the device was slower'
record cold.jsonl 'clock=1.2'
gate --baseline base.jsonl --current cold.jsonl
expect_code 4
expect_stdout 'the GEMM changed by'
gate --baseline base.jsonl --current cold.jsonl --soft 4
expect_code 0
expect_stdout 'replaced 4'
record throttled.jsonl 'times=(1.0 2.2 3.0) shares=(50 36.4 30) throttled=20'
gate --baseline base.jsonl --current throttled.jsonl
expect_code 4
expect_stdout 'thermal slowdown'

# `fused` by another kernel than then is still `fused`; under a name of its own it is another implementation.
record heir.jsonl 'impl=fused_newer'
gate --baseline base.jsonl --current heir.jsonl
expect_code 0
expect_stdout 'was fused_fake'
expect "all six" test "$(grep -c ^pass verdicts/verdicts.csv)" -eq 6
record stranger.jsonl 'impl=other' other
gate --baseline base.jsonl --current stranger.jsonl
expect_code 5
expect "absent" test "$(verdict 128 fused_fake)" = ABSENT

# Without a GEMM by time alone.
record base_cpu.jsonl 'shares=()'
record slow_cpu.jsonl 'shares=() times=(1.0 2.2 3.0)'
gate --baseline base_cpu.jsonl --current slow_cpu.jsonl
expect_code 3
expect_stdout 'by its time alone'

# On the CPU the time relative to naive decides, whatever the load does to both; both loads are printed.
cpu='arch=cpu shares=() overs=(2.5 2.5 2.5)'
for n in 1 2 3; do
    record "calm$n.jsonl" "$cpu load=0.2"
    record "busy$n.jsonl" "$cpu load=10.5 clock=6"
    record "slow$n.jsonl" "$cpu load=0.2 clock=0.5 overs=(2.5 1.5625 2.5)" # 60 % slower, on a calmer machine
done
several() { # several BASELINE CURRENT: three records of each
    gate --baseline "$1"1.jsonl --baseline "$1"2.jsonl --baseline "$1"3.jsonl \
        --current "$2"1.jsonl --current "$2"2.jsonl --current "$2"3.jsonl
}
several calm busy
expect_code 0
expect_stdout 'was ms +is ms +time +against naive'
expect_stdout '^pass .*\+500\.0 % +\+0\.0 %'
expect_stdout '^control +naive, not judged, the others are compared with it: time \+500\.0 %'
what="the loads"
expect "both loads" test "$(tr -s ' \n' ' ' <out | grep -c 'load of the machine 0.2 in the baseline, 10.5 now')" -eq 1
expect "naive is not judged" test "$(grep -c naive, verdicts/verdicts.csv)" -eq 0
several busy slow
expect_code 3
expect "60 % slower than naive says" test "$(verdict 256 fused_fake)" = REGRESS
expect "the others pass" test "$(verdict 128 fused_fake) $(verdict 512 fused_fake)" = "pass pass"
several slow busy
expect_code 0
expect "faster" test "$(verdict 256 fused_fake)" = IMPROVE
# Time in which threads waited for a CPU tells more than a load, which is that of all CPUs.
for n in 1 2 3; do
    record "crowded$n.jsonl" "$cpu load=0.2 cpus=64 wait=61.5 overs=(2.5 1.5625 2.5)"
    record "apart$n.jsonl" "$cpu load=10.5 cpus=2 wait=3 overs=(2.5 1.5625 2.5)"
done
several calm crowded
expect_code 4
expect "61 %, not: $(cat out)" test "$(tr -s ' \n' ' ' <out | grep -c 'threads waited for a CPU for 6[12] % of')" -eq 1
expect_stdout '^INCONCLUSIVE: 1 undecided of 3.*; others used the machine: measure the records again'
several calm apart
expect_code 3
expect "60 % slower than naive says" test "$(verdict 256 fused_fake)" = REGRESS
# Without a control neither slower nor faster is said, and nothing passes.
for n in 1 2 3; do
    record "lone$n.jsonl" 'arch=cpu shares=()'
    record "lone_slow$n.jsonl" 'arch=cpu shares=() clock=3'
done
for pair in "lone lone_slow" "lone_slow lone" "lone_slow lone_slow"; do
    gate --baseline "${pair% *}1.jsonl" --current "${pair#* }2.jsonl"
    expect_code 4
    expect_stdout 'no control: on the CPU a time alone says nothing'
    expect "nothing passes" test "$(grep -cE '^(pass|IMPROVE|REGRESS)' verdicts/verdicts.csv)" -eq 0
done
# On the CPU one record of the baseline decides nothing, whatever the limit, and one of the current build no change.
for pair in "calm1 calm2" "calm1 slow1" "slow1 calm1"; do
    gate --baseline "${pair% *}.jsonl" --current "${pair#* }.jsonl" --delta 15%
    expect_code 4
    expect_stdout 'one record of the baseline: on the CPU'
    expect_stdout '^INCONCLUSIVE: 3 undecided of 3; give more records \(--baseline; five are better\)'
    expect "nothing passes" test "$(grep -cE '^(pass|IMPROVE|REGRESS)' verdicts/verdicts.csv)" -eq 0
done
for pair in "calm slow" "slow calm"; do
    gate --baseline "${pair% *}1.jsonl" --baseline "${pair% *}2.jsonl" --current "${pair#* }3.jsonl"
    expect_code 4
    expect_stdout '(slower|faster) in the one process of the current build'
    expect "the others pass" test "$(verdict 128 fused_fake) $(verdict 256 fused_fake)" = "pass INCONCLUSIVE"
done
# Nor while others used the machine: a load above 2 for each CPU.
for n in 1 2 3; do
    record "full$n.jsonl" "$cpu load=4.5 cpus=2"
    record "quiet$n.jsonl" "$cpu load=3.9 cpus=2"
done
several full slow
expect_code 4
expect_stdout 'slower while others used the machine'
expect "nothing slower" test "$(verdict 256 fused_fake)" = INCONCLUSIVE
several full calm
expect_code 0
several quiet slow
expect_code 3

# Several processes of the baseline: what they differ by is the noise, and a limit below it is not accepted.
for n in 1 2 3 4 5; do
    record "quiet$n.jsonl" "shares=() times=(1.00$n 2.00$n 3.00$n)"
    record "wild$n.jsonl" "shares=() times=(1.00$n 2.${n}2 3.00$n)"
done
baselines() { printf -- '--baseline %s.jsonl ' "$1"{1..5}; }
record faster.jsonl 'shares=() times=(1.003 2.35 3.003)'
# shellcheck disable=SC2046 # words
{
    gate $(baselines quiet) --current faster.jsonl
    expect_code 3
    expect "17 % is slower than five quiet ones" test "$(verdict 256 fused_fake)" = REGRESS
    gate $(baselines wild) --current faster.jsonl
    expect_code 4
    expect "and not than five wild ones" test "$(verdict 256 fused_fake)" = INCONCLUSIVE
    expect "the quiet cases pass" test "$(verdict 128 fused_fake) $(verdict 512 fused_fake)" = "pass pass"
    expect_stdout '^INCONCLUSIVE: 1 undecided of 6; the noise allows a limit of [0-9.]+ % \(--delta\)'
}
gate --baseline quiet1.jsonl --baseline quiet1.jsonl --current quiet2.jsonl
expect_code 5
expect_sentence '--baseline quiet1.jsonl: is the same run as quiet1.jsonl; each must be a process of its own'
record otherwise.jsonl 'device="Another GPU"'
gate --baseline base.jsonl --baseline otherwise.jsonl --current same.jsonl
expect_code 5
expect_sentence 'otherwise.jsonl: the baseline.s device is "Fake GPU"'

# Rows that failed or did not run.
record wrong.jsonl 'checks=(pass fail pass)'
gate --baseline base.jsonl --current wrong.jsonl
expect_code 1
expect "wrong" test "$(verdict 256 fused_fake)" = FAIL
gate --baseline wrong.jsonl --current base.jsonl
expect_code 0
expect "fixed" test "$(verdict 256 fused_fake)" = FIXED
record lost.jsonl 'statuses=(ok unsupported ok)'
gate --baseline base.jsonl --current lost.jsonl
expect_code 3
expect "lost" test "$(verdict 256 fused_fake)" = LOST
gate --baseline lost.jsonl --current base.jsonl
expect_code 0
record error.jsonl 'statuses=(ok error ok)'
gate --baseline base.jsonl --current error.jsonl
expect_code 6
# Also where the baseline has no such case, or only floors are given; refused there is no loss.
head -3 base.jsonl >first.jsonl
gate --baseline first.jsonl --current wrong.jsonl
expect_code 1
expect_stdout '^CHECK FAILED: 1 wrong'
expect "wrong" test "$(verdict 256 fused_fake)" = FAIL
expect "not in the baseline" test "$(verdict 512 fused_fake)" = NEW
gate --baseline first.jsonl --current error.jsonl
expect_code 6
expect "an error" test "$(verdict 256 fused_fake)" = ERROR
gate --baseline first.jsonl --current lost.jsonl
expect_code 0
expect "no line" test -z "$(verdict 256 fused_fake)"
printf 'q_len,impl,min_time_ms\n128,fused,0.001\n' >one.csv
gate --floors one.csv --current wrong.jsonl
expect_code 1
gate --floors one.csv --current same.jsonl
expect_code 0
expect "its one line" test "$(wc -l <verdicts/verdicts.csv)" -eq 2
sed 's/"impl":"fused_fake","asked":"fused"/"impl":"cudnn","asked":"cudnn"/' wrong.jsonl >control.jsonl
gate --baseline first.jsonl --current control.jsonl --subset # the control is not judged
expect_code 0
# A row without a time is no verdict, a record without any no baseline.
sed '4s/"time_ms":[^,]*,//' base.jsonl >untimed.jsonl
gate --baseline untimed.jsonl --current same.jsonl
expect_code 4
expect "open" test "$(verdict 256 fused_fake)" = INCONCLUSIVE
expect_stdout 'it has no time in the baseline'
gate --baseline same.jsonl --current untimed.jsonl
expect_code 4
expect_stdout 'it has no time in the current record'
# Runs that were put together must be of one policy.
sed 's/"l2":"cold","round_members"/"l2":"hot","round_members"/; /"type":"row"/d' base.jsonl | cat base.jsonl - \
    >policies.jsonl
gate --baseline policies.jsonl --current same.jsonl
expect_code 5
expect_sentence 'policies.jsonl is mixed: the cache policy of its first run is "cold", that of another run is "hot"'
grep '"type":"header"' base.jsonl | cat base.jsonl - >again.jsonl
gate --baseline again.jsonl --current same.jsonl
expect_code 0
sed 's/"time_ms":[^,]*,//' base.jsonl >timeless.jsonl
gate --baseline timeless.jsonl --current same.jsonl
expect_code 5
expect_sentence 'timeless.jsonl: none of its rows has a time'
head -3 same.jsonl >short.jsonl
gate --baseline base.jsonl --current short.jsonl
expect_code 5
expect "absent" test "$(verdict 512 fused_fake)" = ABSENT
gate --baseline base.jsonl --current short.jsonl --subset
expect_code 0
expect_stdout '4 more of the baseline are not in this record'
other_run='s/"run_id":"fake/"run_id":"other/' # a record beside itself is refused
sed "s/\"check\":\"pass\"/\"check\":\"off\"/; $other_run" same.jsonl >unchecked.jsonl
gate --baseline base.jsonl --current unchecked.jsonl
expect_code 5
expect_stdout '^NOT COMPARABLE: 6 not checked of 6'
expect "not checked" test "$(verdict 256 fused_fake)" = UNCHECKED
gate --baseline unchecked.jsonl --current same.jsonl
expect_code 5
expect_stdout 'not checked in the baseline'
printf 'q_len,impl,min_time_ms\n128,fused,0.001\n' >any.csv
gate --floors any.csv --current unchecked.jsonl
expect_code 5

# Too few samples for an interval decide nothing, whatever the times say.
alone='s/"samples":30/"samples":1/; s/"time_ms_ci_lo":[^,]*,"time_ms_ci_hi":[^,]*,//'
sed -E "$alone" same.jsonl >single.jsonl
sed "$other_run" single.jsonl >single2.jsonl
sed -E "$alone" slow.jsonl >single_slow.jsonl
for pair in "base single" "single base" "single single2" "base single_slow"; do
    gate --baseline "${pair% *}.jsonl" --current "${pair#* }.jsonl"
    expect_code 4
    expect "undecided" test "$(verdict 256 fused_fake)" = UNDECIDED
    expect "no pass" test "$(grep -c ^pass verdicts/verdicts.csv)" -eq 0
done
gate --floors any.csv --current single.jsonl
expect_code 4
expect_stdout '^UNDECIDED '
expect_stdout 'too few samples for an interval'

# ---- records that contradict themselves: 5 and a sentence with the file, the row and both figures ----
forged() { # forged REGEX SED-SCRIPT: as the current record, as the baseline, and under floors alone
    sed -E "$2" base.jsonl >forged.jsonl
    expect "an edited record" sh -c '! cmp -s base.jsonl forged.jsonl'
    for files in "--baseline base.jsonl --current forged.jsonl" "--baseline forged.jsonl --current base.jsonl" \
        "--floors any.csv --current forged.jsonl"; do
        # shellcheck disable=SC2086 # words
        gate $files
        expect_code 5
        expect_sentence "forged.jsonl.*$1"
        expect_stdout '^NOT COMPARABLE: nothing was compared'
    done
}
of_row=', row 3 \(fwd full +d64 +256 fp16 of fused_fake\): '
forged "$of_row"'it has no check' '4s/"check":"pass",//'
forged "$of_row"'it has no check' '4s/"check":"pass"/"check":null/'
forged 'line 4: "check" must be one of the words' '4s/"check":"pass"/"check":"PASS"/'
forged 'line 4: "check" must be one of the words' '4s/"check":"pass"/"check":"ok"/'
forged "$of_row"'it has no status' '4s/"status":"ok",//'
forged 'line 4: "status" must be one of the words' '4s/"status":"ok"/"status":"fine"/'
forged ', row 3 \( full .*it has no mode' '4s/"mode":"fwd",//'
forged 'line 4: "dtype" must be one of the words' '4s/"dtype":"fp16"/"dtype":"fp99"/'
forged "$of_row"'its check is pass, without an err_used' '4s/,"err_used":[^,}]*//'
forged "$of_row"'its check is pass, its err_used 1.5;' '4s/("err_used":)[^,}]*/\11.5/'
times='("time_ms":)[^,]*(,"time_ms_ci_lo":)[^,]*(,"time_ms_ci_hi":)[^,]*'
twice='\14\23.99\34.01' # 2 ms before
forged "$of_row"'its tflops is 0.00838861, its shape and its time_ms 4 make 0.0041943' "4s/$times/$twice/"
forged "$of_row"'its pct_of_gemm is 40, its shape, its time_ms 4 and gemm_tflops 0.02097.. make 20$' \
    "4s/$times/$twice/; 4s/(\"tflops\":)[^,]*/\10.004194304/"
forged "$of_row"'its pct_of_gemm is 40, its shape, its time_ms 4 and' "4s/$times/$twice/; 4s/,\"tflops\":[^,]*//"
forged "$of_row"'its time_ms is 1e\+308' '4s/("time_ms":)[^,]*/\11e308/'
forged "$of_row"'its time_ms is 0;' '4s/("time_ms":)[^,]*/\10/'
forged "$of_row"'its time_ms is -2;' '4s/("time_ms":)[^,]*/\1-2/'
forged 'line 4: ' '4s/("time_ms":)[^,]*/\1inf/'
forged 'line 4: ' '4s/("time_ms":)[^,]*/\1NaN/'
forged 'line 4: ' '4s/("time_ms":)[^,]*/\11e400/'
forged "$of_row"'its time_ms is 2, outside of its interval' \
    '4s/("time_ms_ci_lo":)[^,]*/\13/; 4s/("time_ms_ci_hi":)[^,]*/\14/'

# Escape sequences of a record are shown as spaces, in verdicts, messages and files.
escape='\\u001b]0;x\\u0007\\u009b31m'
sed "s/fused_fake/fused_$escape/; s/\"run_id\":\"[^\"]*\"/\"run_id\":\"$escape\"/" error.jsonl |
    sed "s/on purpose/$escape/; s/\"command_line\":\"[^\"]*\"/\"command_line\":\"$escape\"/" >hostile.jsonl
sed "s/\"Fake GPU\"/\"$escape\"/" hostile.jsonl >hostile_device.jsonl
cat hostile.jsonl <(sed 1d hostile.jsonl) >hostile_twice.jsonl
control='[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]'
for pair in "base hostile" "hostile base" "hostile hostile" "hostile_device base" "hostile_twice base" \
    "hostile stranger"; do
    GITHUB_ACTIONS=true gate --baseline "${pair% *}.jsonl" --current "${pair#* }.jsonl" \
        --junit hostile.xml --color always
    sed -i -E 's/\x1b\[[0-9]+m//g' out # the colours of the program itself
    for file in out err hostile.xml verdicts/verdicts.csv; do
        [ -e "$file" ] || continue
        expect "no control byte in $file of $pair" sh -c "! LC_ALL=C grep -qP '$control' $file"
    done
done
expect "the text itself" grep -q 'fused_ \]0;x' out verdicts/verdicts.csv

# ---- what cannot be compared: 5 and a sentence ----
refused() { # refused REGEX BASELINE CURRENT
    gate --baseline "$2" --current "$3"
    expect_code 5
    expect_sentence "$1"
    expect_stdout '^NOT COMPARABLE: nothing was compared'
}
: >empty.jsonl
head -c 700 base.jsonl >cut.jsonl
head -1 base.jsonl >header.jsonl
cat base.jsonl <(sed 1d base.jsonl) >twice.jsonl
record other.jsonl 'device="Another GPU"'
cat base.jsonl <(sed 1d other.jsonl) >mixed.jsonl
sed 's/"schema":1/"schema":999/' base.jsonl >schema.jsonl
sed 's/"driver":"1.2"/"driver":"2.0"/' base.jsonl >driver.jsonl
sed "s/\"driver\":\"1.2\"/\"driver\":\"1.3\"/; $other_run" base.jsonl >minor.jsonl
sed 's/"round_members":\["fused"\]/"round_members":["fused","naive"]/' base.jsonl >members.jsonl
record method.jsonl 'method=2'
echo garbage >garbage.jsonl
for file in empty cut header twice mixed schema garbage absent; do
    words="empty|cut|no rows|twice|is mixed|schema|not a record file|No such file"
    refused "$words" $file.jsonl base.jsonl
    refused "$words" base.jsonl $file.jsonl
done
refused "device is \"Fake GPU\", the current one's \"Another GPU\"" base.jsonl other.jsonl
refused 'driver is "1.2"' base.jsonl driver.jsonl
refused 'members of the rounds' base.jsonl members.jsonl
refused 'timing method' base.jsonl method.jsonl
gate --baseline base.jsonl --current minor.jsonl # the same major version
expect_code 0
gate --baseline method.jsonl --current base.jsonl --soft 5
expect_code 0
expect_stdout 'replaced 5'
for absent in "--baseline absent.jsonl --current base.jsonl" "--baseline base.jsonl --current absent.jsonl" \
    "--floors absent.csv --current base.jsonl"; do
    # shellcheck disable=SC2086 # words
    gate $absent --soft 5 # another device is soft, a file that is not there is not
    expect_code 5
    expect_sentence 'absent\.[a-z]*: No such file'
done

# ---- floors ----
cat >floors.csv <<'EOF'
# least values
mode,q_len,impl,min_pct_of_gemm,min_time_ms

fwd,128,fused,49,
fwd,256,fused,40,
EOF
gate --floors floors.csv --current base.jsonl
expect_code 0
sed -i 's/fused,40/fused,41/' floors.csv
gate --floors floors.csv --current base.jsonl
expect_code 3
expect_stdout '^FLOOR +fwd full +d64 +256 '
expect_stdout 'pct_of_gemm 40 is below 41 \(line 5\)'
expect_stdout '^REGRESSION: 1 below a floor of 2'
gate --baseline base.jsonl --floors floors.csv --current same.jsonl
expect_code 3
expect_stdout '^REGRESSION: 1 below a floor of 6'
bad_floors() { # bad_floors REGEX TEXT
    printf '%b' "$2" >bad.csv
    gate --floors bad.csv --current base.jsonl --soft 5
    expect_code "${3:-2}"
    expect_sentence "--floors: $1"
}
bad_floors 'bad.csv: has no floors' ''
bad_floors "bad.csv, line 1: 'min_speed'" 'mode,min_speed\nfwd,1\n'
bad_floors "bad.csv, line 1: must name columns" 'mode,q_len\nfwd,1\n'
bad_floors 'bad.csv, line 2: has 1 cells, its first line 2' 'mode,min_tflops\nfwd\n'
bad_floors "bad.csv, line 2: 'fast' is no number" 'mode,min_tflops\nfwd,fast\n'
bad_floors "bad.csv, line 2: 'both' is no mode" 'mode,min_tflops\nboth,1\n'
bad_floors "bad.csv, line 2: 'ok' is no check" 'check,min_tflops\nok,1\n'
bad_floors 'bad.csv, line 2: has no minimum' 'mode,min_tflops\nfwd,\n'
bad_floors 'bad.csv, line 2: no row' 'mode,min_time_ms\nbwd,1\n' 0 # --soft 5 replaced it
gate --floors absent.csv --current base.jsonl
expect_code 5

# ---- measuring now, on the CPU; only that it runs, not how fast ----
small --seqlen 64,128 --mode fwd,bwd --jsonl "$tmp/now.jsonl"
run "${small[@]}"
expect_code 0
gate --baseline now.jsonl --device cpu --preheat-s 0 --mode bwd --delta 50% # narrower than the baseline
expect "a verdict" test "$code" -eq 0 -o "$code" -eq 3 -o "$code" -eq 4
expect "its two cases of backward" test "$(wc -l <verdicts/verdicts.csv)" -eq 3
expect_stdout '2 more of the baseline were not asked for'
gate --baseline now.jsonl --device cpu --delta 50% # the baseline's own options
expect "a verdict" test "$code" -eq 0 -o "$code" -eq 3 -o "$code" -eq 4
expect "its four cases" test "$(wc -l <verdicts/verdicts.csv)" -eq 5
expect "the record kept" test "$(grep -c '"type":"row"' verdicts/current.jsonl)" -eq 4
expect "3 s of load before it" grep -q '"preheat_ms":3000' verdicts/current.jsonl
if [ -r /proc/self/schedstat ]; then
    expect "how long threads waited" test "$(grep -cE '"cpu_wait_pct":[0-9]' verdicts/current.jsonl)" -eq 4
fi
gate --baseline now.jsonl --device cpu --impl nonsense # what was typed is wrong, not the baseline
expect_code 2
expect_stderr 'unknown implementation'
sed 's/"command_line":"[^"]*"/"command_line":"fabench --impl-lib absent.so"/' now.jsonl >line.jsonl
gate --baseline line.jsonl --device cpu
expect_code 5
expect_stderr 'cannot be used here'
# With a control, which the command of a line has, too; each process that asks for another is a line.
for n in 1 2; do
    small --seqlen 64 --impl naive,fused --jsonl "$tmp/both$n.jsonl"
    run "${small[@]}"
done
gate --baseline both1.jsonl --device cpu --preheat-s 0
expect_code 4
expect_stderr '^fabench: warning: gate: one record of the baseline decides nothing on the CPU'
expect "naive in the command" test "$(tr -s ' \\\n' ' ' <out | grep -c -- ' --impl fused_cpu,naive --mode fwd ')" -eq 1
for n in 1 2; do # so far apart that nothing measured now can be decided
    sed -i -E "s/\"speedup_vs_naive\":[^,}]*/\"speedup_vs_naive\":0.0${n}/" both$n.jsonl
done
gate --baseline both1.jsonl --baseline both2.jsonl --device cpu --preheat-s 0 --runs 2
expect_code 4
expect_stderr '^fabench: gate: process 1 of at most 2 took [0-9]+ s; noise, or a change to be confirmed'
# Words that choose no problem excuse no case that is missing.
line="fabench --device cpu --impl fused --seqlen 64 --d 64 --batch 1 --heads 1 --causal --samples 6 --min-time-ms 1"
sed "s/\"command_line\":\"[^\"]*\"/\"command_line\":\"$line --warmup-ms 0 --max-noise 100% --l2 hot\"/" \
    now.jsonl >shrunk.jsonl
gate --baseline shrunk.jsonl --device cpu --timeout-s 30 --preheat-s 0 --delta 50%
expect_code 5
expect "the two of length 128" test "$(grep -c '^ABSENT,.* 128 ' verdicts/verdicts.csv)" -eq 2
gate --baseline now.jsonl --device cpu --seqlen 32 --preheat-s 0
expect_code 5
expect_stderr 'no configuration of the baseline is in the current record'
if ! "$fabench" info --device cuda:0 >/dev/null 2>&1; then
    gate --baseline now.jsonl # never the CPU instead
    expect_code 6
    expect_stderr 'gate needs a GPU'
fi

# ---- scripts/gate_under_load.sh: its bars, with a program that knows the plugins by their names ----

cat >knowing <<'END'
#!/bin/sh
[ -d "$FABENCH_LOCK_DIR" ] || exit 9 # of its own: parts side by side do not wait for each other
case "$*" in
gate*paced_20*) echo 'REGRESS: 1 slower of 1'; exit 3 ;;
gate*paced_8*) echo 'INCONCLUSIVE: 1 undecided of 1'; exit 4 ;;
gate*) echo 'PASS: 1 unchanged of 1'; exit 0 ;;
esac
END
sed 's/exit 4/exit 0/' knowing >lax
sed 's/exit 0/exit 3/' knowing >strict
chmod +x knowing lax strict
under_load() { # under_load CODE PROGRAM MISSED
    what="gate_under_load.sh with $2"
    code=0
    FABENCH=$tmp/$2 PACED=$tmp "$root/scripts/gate_under_load.sh" 2 0 1 >out 2>err || code=$?
    expect_code "$1"
    expect "8 gates" test "$(grep -c ': exit' out)" -eq 8
    expect "$3" test "$(grep '^MISSED' out)" = "$3"
}
for cpus in '' '0 0'; do
    [ -z "$cpus" ] || command -v taskset >/dev/null || continue
    export CPUS=$cpus
    under_load 0 knowing ''
    under_load 1 lax 'MISSED: 8 % slower never passes'
    under_load 1 strict "$(printf 'MISSED: %s\n' 'the same plugin at load 0 is never slower' \
        'at load 0 eight of ten pass' 'the same plugin at load 1 is never slower')"
done
finish
