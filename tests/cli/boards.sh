#!/usr/bin/env bash
# Several devices in one run, on a made-up host: FABENCH_BOARDS is the program with devices that are none, whose times
# are made up too (tests/fake/fake_boards.c), FABENCH_FAKE_NVML the library that knows them. Nothing here was run on
# several GPUs.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
real=$fabench
fabench=${FABENCH_BOARDS:-$(dirname "$real")/tests/fake/fabench_boards}
export FABENCH_NVML=${FABENCH_FAKE_NVML:-$(dirname "$real")/tests/fake/libfake_nvml.so} FABENCH_LOCK_DIR=$tmp/locks
[ -x "$fabench" ] || { echo "no program at $fabench"; exit 1; }
mkdir "$FABENCH_LOCK_DIR"

# boards DESCRIPTION ARGUMENT...: one small problem on each of these boards.
boards() {
    export FAKE_BOARDS=$1
    shift
    run_small --device all --seqlen 128,256 --dtype fp32 "$@"
}
# count PATTERN FILE: its lines that match.
count() { grep -cE -- "$1" "$2"; }
# note KEY N: a value of the Nth board in the last line of a.jsonl.
note() { tail -n 1 a.jsonl | grep -oE '\{"name": ?"cuda[^}]*\}' | sed -n "$2p" | row_value "$1"; }

# One record of all: a header for each board, all boards' rows, a summary; and each row says which board it is of.
boards ok,ok,ok,ok --jsonl a.jsonl --csv a.csv
expect_code 0
expect "a header for each board" test "$(count '"type": ?"header"' a.jsonl)" -eq 4
expect "all rows" test "$(rows a.jsonl | wc -l)" -eq 8
for pci in 10 20 30 40; do
    expect "two rows of 0000:$pci:00.0" test "$(rows a.jsonl "\"pci\": ?\"0000:$pci:00.0\"" | wc -l)" -eq 2
    expect_stdout "^cuda:[0-3]  0000:$pci:00.0 [0-9a-f]{8} +2 +0 "
    expect_stdout "^$pci:00.0 +128 "
    expect_stdout "^0000:$pci:00.0: NVIDIA Fake 100 "
done
expect "one run" test "$(rows a.jsonl | grep -oE '"run_id": ?"[^"]*"' | sort -u | wc -l)" -eq 1
expect "boards of their own" test "$(rows a.jsonl | grep -oE '"board": ?"[^"]*"' | sort -u | wc -l)" -eq 4
expect "a command for each row's own board" \
    test "$(rows a.jsonl '"pci": ?"0000:30:00.0"' | grep -c -- '"repro": *"fabench .*--device cuda:2 ')" -eq 2
expect "the column pci" test "$(csv_cell a.csv 1 pci | grep -cE '^0000:[1-4]0:00.0$')" -eq 1
expect "who was asked for" grep -q '"boards":\["0000:10:00.0","0000:20:00.0","0000:30:00.0","0000:40:00.0"\]' a.jsonl
expect "a name of the host" grep -q '"host":{"name":"' a.jsonl
expect_stdout '^PASS: 8 of 8 rows'
expect "no table of other inputs" sh -c "! grep -q 'on other data' '$tmp/out'"
expect "the last line of the record" test "$(note name 3) $(note rows 3) $(note exit 3)" = "cuda:2 2 0"

# A list, in its order; one by one; one board alone has nothing to be compared with.
boards ok,ok,ok --device cuda:2,cuda:0 --one-by-one --jsonl a.jsonl
expect_code 0
expect "rows of the two in turn" test "$(rows a.jsonl | row_value pci) $(rows a.jsonl | tail -n 1 | row_value pci)" = \
    "0000:30:00.0 0000:10:00.0"
expect_stdout 'measured one by one'
boards ok --jsonl a.jsonl --max-board-spread 1%
expect_code 0
expect_stdout '^cuda:0 +0000:10:00.0 [0-9a-f]{8} +2 +0 +[0-9.]+ +- '

# One stream; --quiet; no record at all.
boards ok,ok --jsonl -
expect_code 0
expect "a record alone on stdout" test "$(grep -cv '^{"type"' "$tmp/out") $(rows "$tmp/out" | wc -l)" = "0 4"
boards ok,ok --quiet
expect_code 0
expect_no_stdout
expect_no_stderr

# A slow board is measured again with the others, then named, with the code of a regression.
# Its second rows are no rows.
boards ok,slow=5,ok,ok --jsonl a.jsonl --max-board-spread 4%
expect_code 3
expect_stdout '^cuda:1 .* -4\.[0-9]+ +-4\.[0-9]+ .* SLOW$'
expect_stdout '^SLOW BOARD: 8 of 8 rows passed .*exit 3$'
expect_stderr 'cuda:1 0000:20:00.0: 4\.[0-9] % slower than .*, 4\.[0-9] % when measured again .limit 4'
expect "rows once" test "$(rows a.jsonl | wc -l) $(count '"type": ?"again"' a.jsonl)" = "8 8"
expect "the board in the last line" test "$(note slow 1) $(note slow 2) $(note slow 3)" = "false true false"
boards ok,slow=5,ok,ok --max-board-spread 6%
expect_code 0
boards ok,slow=5,ok,ok # without the option nothing is named
expect_code 0
expect_stdout '^cuda:1 .* -4\.[0-9]+ '
# Slow once: measured again it is not.
mkdir state
FAKE_STATE=$tmp/state boards ok,slow_once=9,ok --max-board-spread 4% --jsonl a.jsonl
expect_code 0
expect_stderr 'cuda:1 0000:20:00.0: 8\.[0-9] % slower .*: all are measured again'
expect "again" test "$(count '"type": ?"again"' a.jsonl)" -eq 6
expect_stdout '^PASS: 6 of 6 rows'

# Against records: the board's own earlier runs. One run: the limit is 3.7 x 0.6 % x the root of 2.
mkdir records
boards ok,ok --jsonl records/1.jsonl
boards ok,slow=4 --jsonl a.jsonl --board-baseline records --verdict v.json
expect_code 3
expect_stdout '^cuda:1 0000:20:00\.0: -3\.8[0-9] % and -3\.8[0-9] % beside 1 earlier run of its own; slow beyond -3\.1'
expect_stdout 'of 4\.79 % is found in 95 of 100 .repeatability 0\.60 %.$'
expect_stderr 'cuda:1 0000:20:00.0: 3\.8 % slower than its earlier runs, 3\.8 % when .* .limit 3\.14 %.; clock 1'
expect "the slow one alone" test "$(note slow 1) $(note slow 2)" = "false true"
expect "its record" grep -q '"slow":true.*"before":{"than":"board","runs":1,.*"limit_pct":3\.139' v.json
boards ok,slow=2 --board-baseline records
expect_code 0
# More runs, and a smaller loss is found; what cannot be read is left out, in words.
boards ok,ok --jsonl records/2.jsonl
boards ok,ok --jsonl records/3.jsonl
echo '{"type":"header","schema":99}' >records/other.jsonl
boards ok,slow=2 --board-baseline records
expect_code 3
expect_stderr 'warning: records/other.jsonl: .*schema.*: left out'
boards ok,slow=2 --board-baseline records --max-board-spread 4%
expect_code 0
# A board without a record of its own: the fleet's, of 16 boards of its model or more.
boards ok,slow=2,ok --board-baseline records # a board that is named comes before one that is not compared
expect_code 3
boards ok,ok,ok --board-baseline records
expect_code 5
expect_stdout '^NOT COMPARED: 6 of 6 rows passed '
expect_stderr 'cuda:2 0000:30:00.0: cannot be compared .*: no record of .* there are 2 boards .it needs 16'
for host in a b; do
    FABENCH_HOST=$host boards ok,ok,ok,ok,ok,ok,ok,ok --jsonl $host.jsonl
done
mkdir fleet eight && mv a.jsonl b.jsonl fleet
FABENCH_HOST=new boards ok,slow=9 --board-baseline fleet
expect_code 3
expect_stdout '^cuda:0 0000:10:00\.0: .* beside 16 boards of its model; '
expect_stderr 'cuda:1 0000:20:00.0: 8\.[0-9] % slower than the boards of its model, '
# Two of eight cases are slow, as beside a load that takes turns: the median says nothing, these are named.
eight=32,64,96,128,160,192,256,288
for i in 1 2 3; do
    boards ok,ok --seqlen $eight --jsonl eight/$i.jsonl
done
boards ok,slow_long=40 --seqlen $eight --jsonl a.jsonl --board-baseline eight --verdict v.json
expect_code 3
expect_stderr 'cuda:1 0000:20:00.0: a quarter of its cases is at least 28\.[0-9] % slower than the records: '
expect_stderr 'cuda:1 0000:20:00.0: 2 of 8 cases 28\.[0-9] to 28\.[0-9] % slower than its earlier runs: fwd causal d64 '
expect_stdout '^cuda:1 .* SLOW$'
expect "the slow one alone" test "$(note slow 1) $(note slow 2)" = "false true"
expect "its record" grep -qE '"slow":true.*"before":\{.*"quarter_pct":-28\.[0-9]+,.*"cases_limit_pct":5\.54' v.json
boards ok,slow_long=5 --seqlen $eight --board-baseline eight # within what single cases repeat
expect_code 0
boards ok,ok --seqlen $eight --board-baseline eight --max-board-spread 4%
expect_code 0
boards ok,slow_long=40 --seqlen $eight --max-board-spread 4%
expect_code 3
expect_stderr 'cuda:1 0000:20:00.0: 2 of 8 cases 28\.[0-9] to 28\.[0-9] % slower than the median of the others: fwd '
boards ok,slow_long=10 --seqlen $eight --max-board-spread 4% # beyond 3 x 4 % alone
expect_code 0
# Of another build, no record at all, one board.
sed -i 's/"commit":"[^"]*"/"commit":"other"/' records/*.jsonl
boards ok,ok --board-baseline records
expect_code 5
expect_stderr "cuda:0 0000:10:00.0: cannot be compared .*: the records' tool.commit is \"other\", here "
boards ok,ok --board-baseline absent
expect_code 5
expect_stderr 'board-baseline: no record was read'
FABENCH_HOST=a boards ok --board-baseline fleet
expect_code 0
refused '--board-baseline fleet: is for several devices' --board-baseline fleet

# Each board ends its own rows only: one that falls off the bus, one in exclusive use.
rm -r state && mkdir state
FAKE_STATE=$tmp/state boards ok,fails=12,ok --jsonl a.jsonl
expect_code 6
expect "whole rows of the others" \
    test "$(rows a.jsonl '"status": ?"ok"' | grep -cE '"pci": ?"0000:(10|30):00.0"')" -eq 4
expect "an error of its own" test "$(rows a.jsonl '"status": ?"error"' | row_value pci)" = 0000:20:00.0
expect "its exit code" test "$(note exit 1) $(note exit 2) $(note exit 3)" = "0 6 0"
boards ok,exclusive --jsonl a.jsonl
expect_code 6
expect_stderr '^fabench: cuda:1: --device cuda:1: all CUDA-capable devices are busy'
expect "the other's rows" test "$(rows a.jsonl | wc -l) $(note rows 1) $(note rows 2)" = "2 2 0"
boards exclusive,exclusive
expect_code 6
expect_no_stdout

# In use by others: measured, with a warning and a field.
boards ok,others=2 --jsonl a.jsonl
expect_code 0
expect_stderr 'warning: cuda:1 0000:20:00.0: 2 other processes use it; measured beside them'
expect "in its header" grep -q '"pci_bus_id":"0000:20:00.0".*"other_processes":2' a.jsonl

# MIG slices are no GPUs; two boards with one UUID are two.
boards ok,mig+slow=50,ok --max-board-spread 4%
expect_code 0
expect_stderr '1 of the 3 devices is a MIG slice: not compared with whole GPUs'
boards ok,uuid=0 --jsonl a.jsonl
expect_code 0
expect_stderr 'cuda:0 and cuda:1 report one UUID: they are told apart by their PCI addresses'
expect "two boards" test "$(rows a.jsonl | grep -oE '"pci": ?"[^"]*"' | sort -u | wc -l)" -eq 2

# --resume: what each board has is kept, the rest is run; a board whose header was lost, too.
boards ok,ok,ok --seqlen 64,128,192 --out whole
expect_code 0
cases() { rows "$1" | sed -E 's/.*"q_len":([0-9]+).*"pci":"([^"]*)".*/\2 \1/' | sort; }
expect "9 cases" test "$(cases whole/run.jsonl | sort -u | wc -l)" -eq 9
{ grep '"type":"header"' whole/run.jsonl && rows whole/run.jsonl; } >ordered.jsonl # in this order cuts say the same
for lines in 1 2 3 5 8 11 12; do
    rm -rf part && mkdir part
    head -n "$lines" ordered.jsonl >part/run.jsonl
    boards ok,ok,ok --seqlen 64,128,192 --out part --resume
    expect_code 0
    expect "each case once" test "$(cases part/run.jsonl)" = "$(cases whole/run.jsonl)"
    expect "the kept lines as they were" cmp -s <(head -n "$lines" ordered.jsonl) <(head -n "$lines" part/run.jsonl)
    expect "a header of each board" test "$(count '"type": ?"header"' part/run.jsonl)" -eq 3
    expect "one run" test "$(rows part/run.jsonl | row_value run_id | sort -u | wc -l)" -eq 1
    expect "a CSV of all" test "$(wc -l <part/run.csv)" -eq 10
    expect_stdout '^9 of 9 rows checked .full., all pass'
    expect "a summary of all rows" test "$(grep -cE '^cuda:[0-2] +0000:[123]0:00.0 [0-9a-f]{8} +3 +0 ' out)" -eq 3
done
expect_stderr 'cuda:2: .*3 of 3 rows are there; nothing is left to run'
# Cut off by the time limit; the command that is said goes on.
rm -rf part
FAKE_BOARDS=ok,ok,ok
small --device all --dtype fp32 --seqlen 64,128,192 --out part --max-time-s 0.1 --min-time-ms 400
run "${small[@]}"
expect_code 130
expect_stdout '^next: fabench '
expect_stdout ' --resume$'
cp part/run.jsonl before.jsonl
run "${small[@]/0.1/100}" --resume
expect_code 0
expect "each case once" test "$(cases part/run.jsonl)" = "$(cases whole/run.jsonl)"
expect "its first rows kept" test "$(rows part/run.jsonl | head -n 1)" = "$(rows before.jsonl | head -n 1)"
# A row whose process was killed is run again; a slow board is named from kept rows, too.
sed -E '0,/"type":"row"(.*)"status":"ok"/s//"type":"row"\1"status":"error","worker_signal":9/' ordered.jsonl \
    >part/run.jsonl
boards ok,ok,ok --seqlen 64,128,192 --out part --resume
expect_code 0
expect_stderr 'run.jsonl: 1 row whose process was killed is run again'
expect "one old row" test "$(count '"type":"old"' part/run.jsonl) $(cases part/run.jsonl | sort -u | wc -l)" = "1 9"
boards ok,slow=9,ok --seqlen 64,128,192 --jsonl slow.jsonl
head -n 6 slow.jsonl >cut.jsonl
boards ok,slow=9,ok --seqlen 64,128,192 --jsonl cut.jsonl --resume --max-board-spread 4%
expect_code 3
expect "all rows once" test "$(cases cut.jsonl)" = "$(cases whole/run.jsonl)"
# Of other devices, of one device.
boards ok,ok --seqlen 64,128,192 --out part --resume
expect_code 5
expect_stderr 'resume: .*run.jsonl is of 3 devices, here there are 2'
boards ok,ok,ok --device cuda:0,cuda:2,cuda:1 --seqlen 64,128,192 --out part --resume
expect_code 5
expect_stderr 'is of other devices: device 1 was 0000:20:00.0, here it is 0000:30:00.0'
boards ok --device cuda:0 --seqlen 64,128,192 --jsonl single.jsonl
boards ok --seqlen 64,128,192 --jsonl single.jsonl --resume
expect_code 5
expect_stderr 'is of one device'
boards ok,ok,ok --seqlen 64,128 --out part --resume
expect_code 5
expect_stderr 'cuda:[0-2]: .*is of another run'

# verify, info, charts.
FAKE_BOARDS=ok,ok run verify --device all --preset quick --only fwd-full-d-64-n-1-fp32 --impl naive --out none
expect_code 0
expect_stdout '^cuda:1 +0000:20:00.0 [0-9a-f]{8} +[0-9]+ +0$'
FAKE_BOARDS=ok,ok run info --device all
expect_code 0
expect_stdout '^cuda:1 0000:20:00.0$'
expect "both" test "$(count '^device: NVIDIA Fake 100' "$tmp/out")" -eq 2
boards ok,ok default-out --plot svg --out charts
expect_code 0
expect "a line for each board" test "$(grep -c '0000:[12]0:00' charts/tflops-fwd-causal-d64-fp32.gp)" -ge 2

# The device's lock: a run waits for one that holds it, for that board alone; an interrupt ends it.
exec 9>"$FABENCH_LOCK_DIR/fabench-0000-20-00.0.lock"
flock 9
export FAKE_BOARDS=ok,ok
small --device all --seqlen 128,256 --dtype fp32 --jsonl a.jsonl
rm -f a.jsonl
what="a run beside one that holds a board"
"$fabench" "${small[@]}" >"$tmp/out" 2>"$tmp/err" </dev/null 9>&- &
pid=$!
for ((i = 0; i < 600; i++)); do
    [ -s a.jsonl ] && [ "$(rows a.jsonl | wc -l)" -ge 2 ] && grep -q 'is being measured' "$tmp/err" && break
    sleep 0.1
done
kill -INT "$pid"
code=0
wait "$pid" || code=$?
expect_code 130
expect_stderr 'cuda:1: device 0000:20:00.0 is being measured'
expect "the rows of the free board" test "$(rows a.jsonl '"pci": ?"0000:10:00.0"' | wc -l)" -eq 2
expect "none of the other" test "$(rows a.jsonl '"pci": ?"0000:20:00.0"' | wc -l)" -eq 0
exec 9>&-

# What compares records refuses one of several boards in words.
boards ok,ok --jsonl a.jsonl
run gate --baseline a.jsonl --current a.jsonl
expect_code 5
expect_stderr 'twice'

# Bad input.
export FAKE_BOARDS=ok,ok
refused '--device cuda:0,cuda:0: cuda:0 is there twice' --device cuda:0,cuda:0
refused '--device cuda:0,cpu: must be auto, cpu, all, or cuda:0, cuda:1 and so on, several with commas' \
    --device cuda:0,cpu
refused '--device cuda:0,: must be' --device cuda:0,
refused '--device all: must be one device: selftest takes one' selftest --device all
refused '--device all: must be one device: gate takes one' gate --floors "$root/README.md" --device all
refused '--device cuda:0,cuda:1: cannot be used with --profile' --device cuda:0,cuda:1 --profile --impl naive
refused '--device all: cannot be used with --dump' --device all --dump "$tmp/d"
refused '--one-by-one: is for several devices' --one-by-one
refused '--max-board-spread 4%: is for several devices' --device cuda:0 --max-board-spread 4%
run_small --device cuda:0,cuda:7
expect_code 6
expect_sentence '--device cuda:7: there are 2 CUDA devices, numbered from 0'
FAKE_BOARDS='' run_small --device all
expect_code 6
expect_sentence 'no CUDA device'
unset FAKE_BOARDS
fabench=$real
if ! "$fabench" info --device cuda:0 >/dev/null 2>&1; then # without a GPU
    run_small --device all
    expect_code 6
    expect_sentence '--device: (no CUDA device|this build has no CUDA)'
fi

finish
