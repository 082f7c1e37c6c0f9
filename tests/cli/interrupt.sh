#!/usr/bin/env bash
# Ctrl-C in mid sweep: exit 130 after the sample in flight, every row so far whole on disk, no process left.
# When a worker dies during a case, only that case fails: its row has status error, later cases run, exit 6.
. "$(dirname "$0")/lib.sh"

# Many cases of some tenths of a second each.
long=(--device cpu --seqlen 64:4096:+64 --d 64 --batch 1 --heads 1 --impl fused --warmup-ms 10 --min-time-ms 200
    --samples 6 --max-noise 100%)

# interrupted SIGNAL: starts the sweep, waits for the third row on disk, signals the program (not its children).
interrupted() {
    rm -rf out_dir
    what="fabench ${long[*]} --out out_dir, then SIG$1"
    "$fabench" "${long[@]}" --plot none --out out_dir >out 2>err </dev/null &
    local pid=$! waited=0
    while [ "$(rows out_dir/run.jsonl 2>/dev/null | wc -l)" -lt 3 ] && [ $waited -lt 300 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    expect "three rows within 30 s" test $waited -lt 300
    worker=$(pgrep -P $pid | head -1)
    kill -s "$1" $pid
    local began=$SECONDS
    code=0
    wait $pid || code=$?
    expect "the prompt back within 5 s" test $((SECONDS - began)) -le 5
    expect_code 130
    expect "no worker left" is_gone "$worker"
    expect "the last line of the JSONL whole" sh -c "tail -c 1 out_dir/run.jsonl | od -An -c | grep -q '\\\\n'"
    expect "every line a header or a row" test "$(grep -cvE '^\{"type": *"(header|row)".*\}$' out_dir/run.jsonl)" -eq 0
    expect "as many rows in the CSV" test "$(wc -l <out_dir/run.csv)" -eq "$(wc -l <out_dir/run.jsonl)"
    expect "only whole rows in the CSV" test "$(csv_widths out_dir/run.csv | wc -l)" -eq 1
    expect "fewer rows than cases" test "$(rows out_dir/run.jsonl | wc -l)" -lt 128
    expect_stderr '[Ii]nterrupted'
    local rest="fabench ${long[*]} --plot none --out out_dir --resume"
    expect "the command that runs the rest" test "$(joined_next)" = "$rest"
}

# The command behind "next:", which may have several lines.
joined_next() { sed -n '/^next: /,/[^\\]$/p' out | sed 's/^next: //; s/\\$//' | tr -s '\n ' ' ' | sed 's/ $//'; }

interrupted INT
interrupted TERM

# That command, of a run that chose its folder itself: it takes up that folder's record.
what="the command that runs the rest"
export FABENCH_OUT_ROOT="$tmp/my runs"
# shellcheck disable=SC2034 # the next command reads it
FABENCH_CALLED_AS=$fabench "$fabench" "${long[@]}" --plot none >out 2>err </dev/null &
pid=$!
for ((waited = 0; waited < 300; waited++)); do
    [ "$(cat my\ runs/*/run.jsonl 2>/dev/null | wc -l)" -lt 3 ] || break
    sleep 0.1
done
kill -s INT $pid
wait $pid
eval "$(joined_next) >out 2>err </dev/null &"
pid=$!
for ((waited = 0; waited < 300; waited++)); do
    ! grep -q 'rows are there' err || break
    sleep 0.1
done
expect_stderr 'my runs/.*/run.jsonl: [2-9] of [0-9]+ rows are there; the rest is run'
kill -s INT $pid
wait $pid
unset FABENCH_OUT_ROOT

# The file of an interrupted run draws.
run plot out_dir/run.jsonl --plot term
expect_code 0

# ---- worker ----
next_part
# A case that takes seconds between two quick ones.
"$fabench" --device cpu --seqlen 64,8192,128 --d 64 --batch 1 --heads 4 --causal --mode bwd --impl fused --warmup-ms 0 \
    --min-time-ms 100 --samples 6 --max-noise 100% --plot none --csv run.csv --jsonl run.jsonl --out none >out 2>err \
    </dev/null &
supervisor=$!
what="killing the worker of fabench --seqlen 64,8192,128"
waited=0
while [ "$(rows run.jsonl 2>/dev/null | wc -l)" -lt 1 ] && [ $waited -lt 300 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
sleep 0.7
workers=$(pgrep -P $supervisor)
expect "one worker" test "$(wc -w <<<"$workers")" -eq 1
# shellcheck disable=SC2086
kill -KILL $workers
code=0
wait $supervisor || code=$?
expect_code 6
expect "three rows" test "$(rows run.jsonl | wc -l)" -eq 3
expect "the first ok" test "$(rows run.jsonl | sed -n 1p | row_value status)" = ok
expect "the second an error" test "$(rows run.jsonl | sed -n 2p | row_value status)" = error
expect "the second with a reason" sh -c \
    "grep -E '\"status\": *\"error\"' run.jsonl | grep -qiE '\"reason\": *\"[^\"]*(signal|killed)'"
expect "no time in a row that ended so" test -z "$(csv_cell run.csv 2 time_ms)$(csv_cell run.csv 2 tflops)"
expect "the third ok" test "$(rows run.jsonl | sed -n 3p | row_value status)" = ok
expect "the third checked" test "$(rows run.jsonl | sed -n 3p | row_value check)" = pass

# Killing the supervisor does not leave its worker behind.
"$fabench" --device cpu --seqlen 8192 --d 64 --batch 1 --heads 4 --mode bwd --impl fused --out none --plot none \
    >out 2>err </dev/null &
supervisor=$!
what="killing the supervisor"
waited=0
while [ -z "$(pgrep -P $supervisor)" ] && [ $waited -lt 100 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
worker=$(pgrep -P $supervisor | head -1)
expect "a worker" test -n "$worker"
disown $supervisor # without a word about its end
kill -KILL $supervisor
sleep 1
expect "the worker gone with it" is_gone "$worker"
! is_running "$worker" || kill -KILL "$worker"

finish
