#!/usr/bin/env bash
# An implementation that harms the worker process which it shares with others: every other row is there, ok and checked,
# under its own name; the row of the one that did it, or a warning, says what it did.
. "$(dirname "$0")/lib.sh"
harmful=${FABENCH_NEIGHBOURS:-$(dirname "$fabench")/tests/liars/libneighbours_cpu.so}
[ -e "$harmful" ] || { echo "no plugin at $harmful"; exit 1; }
# One thread each: with as many threads as cores in several libraries, times on a busy machine vary by a factor of 100.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# beside NAME [ARGUMENT...]: two cases with naive, our kernel and another library's beside bad_NAME; the others' rows.
beside() {
    bad=bad_$1
    rm -f run.jsonl
    run_small --impl-lib "$harmful" --impl-lib "$plugins/libwrong_cpu.so" --impl "naive,$bad,fused,right_cpu" \
        --seqlen 64,128 --min-time-ms 20 --jsonl run.jsonl "${@:2}"
    expect "eight rows, not $(rows run.jsonl | wc -l)" test "$(rows run.jsonl | wc -l)" -eq 8
    for impl in naive fused_cpu right_cpu; do
        expect "two rows of $impl, ok and checked" test \
            "$(rows run.jsonl "\"impl\": *\"$impl\"" | grep -E '"status": *"ok"' | grep -cE '"check": *"pass"')" -eq 2
    done
    row=$(rows run.jsonl "\"impl\": *\"$bad\"" | tail -1)
}
its() { expect "$1 $2 of $bad, not $(row_value "$1" <<<"$row")" test "$(row_value "$1" <<<"$row")" = "$2"; }
says() { expect "its row to say $1: $row" grep -qE -- "$1" <<<"$row"; }

# It fails its check: what surrounds its buffers.
fails() { # fails NAME RULE SENTENCE
    beside "$1"
    expect_code 1
    its status ok
    its check fail
    says "\"rule\": *\"$2\""
    says "$3"
    expect "no TFLOPS" test -z "$(row_value tflops <<<"$row")"
    expect_stderr "from now on in a worker process of its own: .*$bad"
}
fails input input 'changed one of its inputs'
expect "its time kept" test -n "$(row_value time_ms <<<"$row")"
fails far guard 'wrote outside the buffer'
beside input_later # in a timed launch; launches are counted in the process, so that one case has it
expect_code 1
row=$(rows run.jsonl "\"impl\": *\"$bad\"" | head -1)
its check fail
says 'changed one of its inputs'
# Rows in another order than planned can be continued.
what="fabench --resume after input_later"
head -n -1 run.jsonl >cut.jsonl && mv cut.jsonl run.jsonl
"$fabench" "${small[@]}" --resume >out 2>err </dev/null
code=$?
expect "eight rows again" test "$(rows run.jsonl | wc -l)" -eq 8

# It ends its worker, or tries to end more: its case alone.
dies() { # dies NAME REASON
    beside "$1"
    expect_code 6
    its status error
    says "\"reason\": *\"[^\"]*($2)"
}
dies close 'lost its record pipe.*descriptors were closed'
dies close_later 'lost its record pipe while being timed'
dies dies_in_second_case 'signal 9'
dies dies_beside 'signal 9'
dies terminates 'sent the supervisor signal 15'
dies interrupts 'sent the supervisor signal 2'
dies hangs_up 'sent the supervisor signal 1 '
dies user_signal 'sent the supervisor signal 10'
dies ends_group 'signal 15'

# They change what the process shares, and compute right: each gets one warning, and every row passes.
changing=(rounding flushing locale mask handlers timers folder umask environment output child daemon copies_itself)
bad=$(printf ',bad_%s' "${changing[@]}")
rm -f run.jsonl
run_small --impl-lib "$harmful" --impl "naive$bad,fused" --seqlen 64,128 --min-time-ms 20 --jsonl run.jsonl
expect_code 0
expect "all rows ok and checked" test "$(rows run.jsonl '"status": *"ok"' | grep -cE '"check": *"pass"')" -eq 30
warned() { expect "one warning of bad_$1: $2" test "$(grep -cE "warning: bad_$1 $2" err)" -eq 1; }
warned rounding 'changed the floating-point environment .*: put back'
warned flushing 'changed the floating-point environment .*: put back'
warned locale 'changed the locale .*: put back'
warned mask 'changed the signal mask .*: put back'
warned handlers 'changed signal handlers .*: put back'
warned timers 'changed timers .*: put back'
warned folder 'changed the working folder .*: put back'
warned umask 'changed the umask .*: put back'
warned environment 'changed environment variables .*: put back'
warned output 'changed standard input, output or error .*: put back'
warned child 'left 1 child process behind: ended'
warned daemon 'left 1 child process behind: ended'
warned copies_itself 'left 1 child process behind: ended'
expect "no other warning but of handlers: $(grep 'warning: ' err | tail -n +14)" \
    test "$(grep -c 'warning: ' err)" -le 14
beside spins
expect_code 0
expect "one warning of its thread" test "$(grep -cE "warning: $bad: 1 of its threads computed on" err)" -eq 1
none_left() { # of this test: another copy of it may run beside, in a folder of its own
    local pid
    ! pgrep -f "$tmp/run.jsonl" || return 1
    for pid in $(pgrep -f "seqlen 64,128 --min-time-ms 20 --jsonl run.jsonl"); do
        [ "$(readlink "/proc/$pid/cwd")" != "$tmp" ] || return 1
    done
}
expect "no process left" none_left

# What it prints is not among the records.
what="bad_prints with --jsonl -"
run_small --impl-lib "$harmful" --impl bad_prints,fused --jsonl -
expect_code 0
expect "a header and two rows alone" test "$(wc -l <out)" -eq 3
expect "nothing else on stdout" test "$(grep -cvE '^\{"type": *"(header|row)".*\}$' out)" -eq 0
expect_stderr 'a line of a plugin'

# Alone it needs no worker of its own.
run_small --impl-lib "$harmful" --impl bad_input --csv run.csv
expect_code 1
expect "its time kept" test -n "$(csv_cell run.csv 1 time_ms)"
expect "no second worker" test "$(grep -c 'worker process of its own' err)" -eq 0
# verify goes the same way.
run verify --device cpu --preset quick --d 64 --causal --repeats 1 --impl-lib "$harmful" --impl bad_input,fused \
    --mode fwd --csv -
expect_code 1
expect "rows of the other" test "$(grep -c ',fused_cpu,' out)" -gt 4
expect "all of them passed" test "$(grep -c ',fused_cpu,' out)" -eq "$(grep -c ',fused_cpu,.*,pass,' out)"

# Children of the shell that became this program are none of its own.
what="sleep 60 & exec fabench"
small --impl-lib "$harmful" --impl bad_child
code=0
sh -c 'sleep 60 & echo $! >sleeper; exec "$@" >out 2>err' sh "$fabench" "${small[@]}" </dev/null || code=$?
expect_code 0
expect_stderr 'left 1 child process behind: ended'
expect "the shell's child still there" is_running "$(cat sleeper)"
kill "$(cat sleeper)"
finish
