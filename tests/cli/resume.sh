#!/usr/bin/env bash
# --resume: complete rows are kept and not run again, missing cases are run once; files of other runs are refused.
. "$(dirname "$0")/lib.sh"

sweep=(--impl naive,fused --mode fwd,bwd --seqlen 64,128,192 --plot none) # 12 rows
# key FILE: what identifies each row, sorted.
keys() { rows "$1" | grep -oE '"impl":.*"seed": *[0-9]+' | sort; }

run_small "${sweep[@]}" --out whole
expect_code 0
expect "12 rows" test "$(rows whole/run.jsonl | wc -l)" -eq 12
run_id=$(head -1 whole/run.jsonl | row_value run_id)

# resumed LINES BYTES: continues a record that has the first LINES lines of the complete one and BYTES bytes of the
# next.
resumed() {
    rm -rf part
    mkdir part
    head -n "$1" whole/run.jsonl >part/run.jsonl
    sed -n "$(($1 + 1))p" whole/run.jsonl | head -c "$2" >>part/run.jsonl
    head -n "$1" whole/run.jsonl >before.jsonl
    head -n 3 whole/run.csv >part/run.csv # the CSV is made anew, whatever is in it
    run_small "${sweep[@]}" --out part --resume
    expect_code 0
    expect "the same cases, each once" test "$(keys part/run.jsonl)" = "$(keys whole/run.jsonl)"
    expect "the kept lines as they were" cmp -s before.jsonl <(head -n "$1" part/run.jsonl)
    expect "every line to be whole" test "$(grep -cvE '^\{"type": *"(header|row|resumed)".*\}$' part/run.jsonl)" -eq 0
    expect "one run_id" test "$(rows part/run.jsonl "\"run_id\": *\"$run_id\"" | wc -l)" -eq 12
    expect "one header" test "$(grep -c '"type": *"header"' part/run.jsonl)" -eq 1
    expect "a CSV of as many rows" test "$(wc -l <part/run.csv)" -eq 13
    expect "the CSV's rows as wide as its first line" test "$(csv_widths part/run.csv | wc -l)" -eq 1
    [ "$1" -eq 1 ] || expect "the kept rows in the CSV as they were" test "$(sed -n "2,$1p" part/run.csv)" = \
        "$(sed -n "2,$1p" whole/run.csv)"
    expect_stderr "$(($1 - 1)) of 12 rows are there"
    expect_stdout '12 of 12 rows checked'
    # A row is still compared with implementations whose rows were lost by the cut.
    expect "ratios over naive everywhere" test "$(rows part/run.jsonl '"speedup_vs_naive"' | wc -l)" -eq 12
}
resumed 1 0   # a header alone
resumed 7 0   # between two problems
resumed 8 0   # in the middle of a problem
resumed 8 100 # and of a row
expect_stderr 'a cut line is dropped'
resumed 12 40
rm -rf part
mkdir part
head -c -1 whole/run.jsonl >part/run.jsonl # only the last newline is missing: that row is whole
run_small "${sweep[@]}" --out part --resume
expect_code 0
expect_stderr '12 of 12 rows are there'
expect "12 rows" test "$(rows part/run.jsonl | wc -l)" -eq 12
expect "the last row as it was" cmp -s <(rows whole/run.jsonl | tail -1) <(rows part/run.jsonl | tail -1)

# Complete already: nothing is run, twice.
for _ in 1 2; do
    run_small "${sweep[@]}" --out part --resume
    expect_code 0
    expect "12 rows" test "$(rows part/run.jsonl | wc -l)" -eq 12
done

# By --jsonl, without a folder; where the output goes and how much is said may differ.
head -n 6 whole/run.jsonl >by_name.jsonl
run_small "${sweep[@]}" --jsonl by_name.jsonl --quiet --resume
expect_code 0
expect "12 rows" test "$(rows by_name.jsonl | wc -l)" -eq 12

# A row from the middle that is missing is filled in.
sed 5d whole/run.jsonl >hole.jsonl
run_small "${sweep[@]}" --jsonl hole.jsonl --resume
expect_code 0
expect "the same cases" test "$(keys hole.jsonl)" = "$(keys whole/run.jsonl)"

# A record without a header yet is begun anew: an empty file, or one whose first line was cut.
for bytes in 0 3 100 400; do
    rm -rf new
    mkdir new
    head -c $bytes whole/run.jsonl >new/run.jsonl
    run_small "${sweep[@]}" --out new --resume
    expect_code 0
    expect_stderr 'no header yet; the run begins anew'
    expect "the same cases" test "$(keys new/run.jsonl)" = "$(keys whole/run.jsonl)"
    expect "a header, first" test "$(grep -n '"type": *"header"' new/run.jsonl | cut -d: -f1)" = 1
    expect "no line but this and the rows" test "$(wc -l <new/run.jsonl)" -eq 13
done

# Rows whose process was killed from outside are run again, once for each --resume; their lines become old ones.
killed=(--impl-lib "$plugins/libbad_killed.so" --impl bad_killed,fused --seqlen 64,128 --plot none --out killed)
: >kill-me
run_small "${killed[@]}"
expect_code 6
cp killed/run.jsonl first.jsonl
expect "two rows that were killed" test "$(rows killed/run.jsonl '"status":"error".*"worker_signal":9' | wc -l)" -eq 2
run_small "${killed[@]}" --resume
expect_code 6
expect_stderr '2 rows whose process was killed are run again'
expect "two rows that were killed" test "$(rows killed/run.jsonl '"worker_signal":9' | wc -l)" -eq 2
rm kill-me
run_small "${killed[@]}" --resume
expect_code 1 # it writes nothing
expect_stderr '2 of 4 rows are there; the rest is run'
expect "four rows" test "$(rows killed/run.jsonl | wc -l)" -eq 4
expect "all ok" test "$(rows killed/run.jsonl '"status":"ok"' | wc -l)" -eq 4
expect "four old lines" test "$(grep -c '^{"type":"old",.*"worker_signal":9' killed/run.jsonl)" -eq 4
head -n "$(wc -l <first.jsonl)" killed/run.jsonl | sed 's/"type":"old"/"type":"row"/' >kept.jsonl
expect "the first lines as they were, but for that word" cmp -s first.jsonl kept.jsonl
cp killed/run.jsonl last.jsonl
run_small "${killed[@]}" --resume
expect_code 1
expect "nothing to run again" test "$(rows killed/run.jsonl)" = "$(rows last.jsonl)"

# Rows of a crash and of a hang are kept: they would only crash and hang again.
for fault in fault hang; do
    crashed=(--impl-lib "$plugins/libbad_$fault.so" --impl "bad_$fault,fused" --timeout-s 1 --plot none --out $fault)
    run_small "${crashed[@]}"
    expect_code 6
    cp $fault/run.jsonl last.jsonl
    run_small "${crashed[@]}" --resume
    expect_code 6
    expect "the rows as they were" test "$(rows $fault/run.jsonl)" = "$(rows last.jsonl)"
done

# A failed row stays, and so does its exit code.
sed '3s/"check":"pass"/"check":"fail"/' whole/run.jsonl | head -n 5 >failed.jsonl
run_small "${sweep[@]}" --jsonl failed.jsonl --resume
expect_code 1
expect "12 rows" test "$(rows failed.jsonl | wc -l)" -eq 12

# After Ctrl-C.
long=(--device cpu --seqlen 64:640:+64 --d 64 --batch 1 --heads 1 --causal --mode fwd --impl naive,fused --warmup-ms 0
    --min-time-ms 100 --samples 6 --max-noise 100% --l2 hot --plot none --out stopped)
what="fabench ${long[*]}, then SIGINT"
"$fabench" "${long[@]}" >out 2>err </dev/null &
pid=$! waited=0
while [ "$(rows stopped/run.jsonl 2>/dev/null | wc -l)" -lt 4 ] && [ $waited -lt 300 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
# A second --resume of the same file at the same time is refused and changes nothing. The first stands still meanwhile,
# so that it cannot end before.
mapfile -t family < <(echo $pid; pgrep -P $pid)
kill -STOP "${family[@]}"
run "${long[@]}" --resume
expect_code 5
expect_sentence 'another run is writing it'
run "${long[@]}" --overwrite
expect_code 7
expect_stderr 'another run is writing it'
kill -INT $pid
kill -CONT "${family[@]}"
code=0
wait $pid || code=$?
expect_code 130
run "${long[@]}" --resume
expect_code 0
expect "20 rows" test "$(rows stopped/run.jsonl | wc -l)" -eq 20
expect "each once" test "$(keys stopped/run.jsonl | uniq -d | wc -l)" -eq 0
expect "a table of them" test "$(wc -l <stopped/run.csv)" -eq 21

# --max-time-s: each command runs a part, at least one problem of it, and prints the command that goes on.
full=(--device cpu --preset full --mode fwd --causal --impl naive,fused --warmup-ms 0 --min-time-ms 150 --samples 6
    --max-noise 100% --l2 hot --plot none)
run "${full[@]}" --out parts --max-time-s 0.1
expect_code 130
expect_stderr 'stopped at --max-time-s; the rows so far are complete'
expect_stdout '^INTERRUPTED: 2 rows are whole'
first=$(sed -n '/^next: /,/[^\\]$/p' out | sed 's/^next: //; s/\\$//' | tr -s '\n ' ' ' | sed 's/ $//')
expect "the command that goes on" test "$first" = "fabench ${full[*]} --out parts --max-time-s 0.1 --resume"
run "${full[@]}" --out parts --max-time-s 0.1 --resume
expect_code 130
expect "one problem more" test "$(rows parts/run.jsonl | wc -l)" -eq 4
run "${full[@]}" --out parts --resume # the limit is no part of the record
expect_code 0
expect_stdout '28 of 28 rows checked.*all pass'
expect_stderr '4 of 28 rows are there'
expect "each once" test "$(grep -oE '"repro": *"[^"]*"' parts/run.jsonl | sort | uniq | wc -l)" -eq 28
for slice in head_dim=96 window_left=64 lengths=lognormal:100:1 block_mask=random:0.5 dropout=0.1 softcap=30 \
    kv_heads=1; do
    expect "rows of $slice" grep -qE "\"${slice%=*}\": *\"?${slice#*=}" parts/run.jsonl
done
run "${full[@]}" --out parts --max-time-s 0.1 --resume # nothing is left: no part, no 130
expect_code 0
sed '3s/"check":"pass"/"check":"fail"/' parts/run.jsonl | head -n 5 >failed.jsonl
run "${full[@]}" --jsonl failed.jsonl --max-time-s 0.1 --resume # 130 while there is more to run, then 1
expect_code 130
expect_stdout '^FAILED: 1 of '

# A file that cannot be continued: exit 5, one sentence, and the file does not change.
refused() { # refused REGEX FILE ARGUMENT...
    local regex=$1 file=$2
    shift 2
    if [ -e "$file" ]; then cp "$file" copy; fi
    run_small "$@" --plot none --jsonl "$file" --resume
    expect_code 5
    expect_sentence "$regex"
    expect_no_stdout
    if [ -e "$file" ]; then expect "the file untouched" cmp -s copy "$file"; fi
}
head -n 6 whole/run.jsonl >half.jsonl
same=(--impl naive,fused --mode fwd,bwd --seqlen 64,128,192)
refused 'absent.jsonl: No such file' absent.jsonl "${same[@]}"
echo 'not json' >garbage.jsonl
refused 'not a record file' garbage.jsonl "${same[@]}"
printf '{"type":"head of a letter' >letter.json
refused 'not a record file' letter.json "${same[@]}"
printf '\n' >blank.jsonl
refused 'empty' blank.jsonl "${same[@]}"
sed 's/"schema":1/"schema":999/' half.jsonl >schema.jsonl
refused 'schema 999' schema.jsonl "${same[@]}"
refused 'policy.options is .*64,128,192.* here it is .*64,128' half.jsonl --impl naive,fused --mode fwd,bwd \
    --seqlen 64,128
refused 'policy.options' half.jsonl "${same[@]}" --seed 2
refused 'policy.(options|sustain)' half.jsonl "${same[@]}" --sustain-s 2
sed '1s/"commit":"[^"]*"/"commit":"0123456789ab"/' half.jsonl >commit.jsonl
refused 'tool.commit is "0123456789ab"' commit.jsonl "${same[@]}"
sed '1s/"arch":"cpu"/"arch":"sm_90"/' half.jsonl >device.jsonl # the device is gone, another is there
refused 'device.arch is "sm_90", here it is "cpu"' device.jsonl "${same[@]}"
sed '1s/"threads":[0-9]*/"threads":77/' half.jsonl >threads.jsonl
refused 'device.threads is 77' threads.jsonl "${same[@]}"
(cat half.jsonl; sed -n 3p half.jsonl) >duplicated.jsonl
refused 'row 6 .*occurs twice' duplicated.jsonl "${same[@]}"
(cat half.jsonl; sed -n 7p whole/run.jsonl | sed 's/"run_id":"[^"]*"/"run_id":"other"/') >mixed.jsonl
refused 'another run than the header' mixed.jsonl "${same[@]}"
(cat half.jsonl; sed -n 7p whole/run.jsonl | sed 's/"q_len":[0-9]*/"q_len":77/') >foreign.jsonl
refused 'not part of what these options run' foreign.jsonl "${same[@]}"
(cat half.jsonl; sed -n 7p whole/run.jsonl | sed 's/"asked":"[a-z]*"/"asked":"cudnn"/') >asked.jsonl
refused 'not asked for' asked.jsonl "${same[@]}"
(sed -n 1,2p half.jsonl; echo '{"type":"row","broken'; sed -n 3p half.jsonl) >broken.jsonl
refused 'line 3' broken.jsonl "${same[@]}"
export OMP_NUM_THREADS=1
refused 'device.threads|OMP_NUM_THREADS' half.jsonl "${same[@]}"
unset OMP_NUM_THREADS

usage() { # usage REGEX ARGUMENT...
    local regex=$1
    shift
    run_small "$@" --resume
    expect_code 2
    expect_sentence "$regex"
}
usage '--resume: needs the record'
usage '--resume: needs the record' --jsonl -
usage '--resume: cannot be used with --dry-run' --jsonl half.jsonl --dry-run
run verify --resume
expect_code 2
finish
