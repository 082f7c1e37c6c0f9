#!/usr/bin/env bash
# When a worker dies during a case, only that case fails: its row has status error, later cases run, exit 6.
. "$(dirname "$0")/lib.sh"

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
