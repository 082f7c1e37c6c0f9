#!/usr/bin/env bash
# What operators of clusters read: --exit-style, the line fabench-drain:, --verdict (docs/fleet.md). The device is
# the CPU, or a made-up host of several boards.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
real=$fabench
boards=${FABENCH_BOARDS:-$(dirname "$real")/tests/fake/fabench_boards}
export FABENCH_NVML=${FABENCH_FAKE_NVML:-$(dirname "$real")/tests/fake/libfake_nvml.so} FABENCH_LOCK_DIR=$tmp
verdict() {
    tr -d '\n' <verdict.json | grep -oE "\"$1\": ?(\"[^\"]*\"|[^,}]*)" | head -1 | sed -E 's/^[^:]*: ?//; s/"//g'
}
host=$(uname -n)

# codes ARGUMENT...: the exit codes of the three styles, in the order plain nagios slurm.
codes() {
    all=
    for style in plain nagios slurm; do
        run "$@" --exit-style "$style"
        all+="$code "
    done
}

small
codes "${small[@]}"
expect "0 in all styles" test "$all" = "0 0 0 "
run_small --exit-style nagios --verdict verdict.json --quiet
expect "one line" test "$(cat out)" = "FABENCH OK: every result checked (exit 0)"
expect "the verdict" test "$(verdict state) $(verdict exit) $(verdict host) $(verdict rows)" = "OK 0 $host 1"

export FABENCH_HOST=gpu07
run_small --verdict verdict.json --jsonl named.jsonl
expect "another name of the host" test "$(verdict host) $(grep -c '"host":{"name":"gpu07"' named.jsonl)" = "gpu07 1"
unset FABENCH_HOST

# A wrong result: the only thing that slurm hears of, beside a slow board.
run list --impl-lib "$plugins/libwrong_cpu.so"
name=$(grep -oE '^wrong_[a-z0-9_]+' out | head -1)
small
wrong=("${small[@]}" --impl-lib "$plugins/libwrong_cpu.so" --impl "$name")
codes "${wrong[@]}"
expect "1 is critical" test "$all" = "1 2 1 "
line="^fabench-drain: host=$host pci=none measured=\"[0-9.e+]+ of the bound .[a-z]+.\" expected=\"at most 1\" "
expect_stdout "$line.*$name"
run "${wrong[@]}" --exit-style slurm --verdict verdict.json --jsonl -
expect "no line among the records" test "$(grep -c fabench-drain out)" = 0
expect_stderr '^fabench-drain: '
expect "the verdict" test "$(verdict state) $(verdict nagios) $(verdict slurm)" = "CRITICAL 2 1"
expect "what failed" grep -q "\"cause\":\"$name .* failed its check\"" verdict.json
run "${wrong[@]}"
expect "no line without a style" test "$(grep -c fabench-drain out)" = 0

# Usage errors, also of the style itself; no device; a file; a time limit; an interrupt: never 1 for slurm.
codes --device gpu
expect "2 drains nothing" test "$all" = "2 3 0 "
codes --no-such-option
expect "2 of an unknown option" test "$all" = "2 3 0 "
codes selftest --device all
expect "2 of other commands" test "$all" = "2 3 0 "
refused '--exit-style sl: must be plain, nagios or slurm' --exit-style sl
codes gate --baseline "$root/README.md" --current "$root/README.md"
expect "5 drains nothing" test "$all" = "5 3 0 "
fabench=$boards
export FAKE_BOARDS=exclusive
codes --device all --preset ci --out none
expect "6 drains nothing" test "$all" = "6 3 0 "
run --device all --preset ci --out none --verdict verdict.json --exit-style slurm
expect "a verdict without a device" test "$(verdict state) $(verdict exit)" = "UNKNOWN 6"
expect "no drain line" test "$(grep -c fabench-drain out)" = 0
fabench=$real
run_small --jsonl /dev/full --exit-style slurm
expect_code 0
run_small --jsonl /dev/full
expect_code 7
run_small --impl-lib "$plugins/libbad_hang.so" --impl bad --timeout-s 1 --exit-style slurm
expect_code 0
run_small --seqlen 128,256,512 --min-time-ms 200 --max-time-s 0.1 --exit-style nagios
expect_code 3

# A slow board.
fabench=$boards
export FAKE_BOARDS=ok,slow=5,ok
small --device all --max-board-spread 4% --dtype fp32
codes "${small[@]}"
expect "3 is critical" test "$all" = "3 2 1 "
run "${small[@]}" --exit-style slurm --verdict verdict.json
expect "one line" test "$(grep -c '^fabench-drain: ' out)" = 1
line="^fabench-drain: host=$host pci=0000:20:00.0 measured=\"speed 95\.[0-9] % of the other boards' median\" "
line+='expected="100 %" limit="96 %" cause="clock 1400 MHz, others 1500 MHz, PCIe x8 of x16"$'
expect_stdout "$line"
expect "boards in the verdict" test "$(grep -o '"name":"cuda:' verdict.json | wc -l)" = 3
expect "the slow one" grep -qE '"name":"cuda:1"[^}]*"slow":true' verdict.json
expect "its finding" grep -qE '"pci":"0000:20:00.0","measured":"speed 95' verdict.json

# Slow in some cases alone: two of eight.
FAKE_BOARDS=ok,slow_long=40,ok
small --device all --max-board-spread 4% --dtype fp32 --seqlen 32,64,96,128,160,192,256,288
run "${small[@]}" --exit-style slurm
expect_code 1
line="^fabench-drain: host=$host pci=0000:20:00.0 measured=\"2 of 8 cases 28\.[0-9] to 28\.[0-9] % slower than .*fwd "
expect_stdout "$line.*\" expected=\"100 %\" limit=\"88\.00 %\" cause=\"not in its telemetry"

# The file of the verdict.
fabench=$real
refused '--verdict -: must be a file' --verdict -
refused '--verdict /no/such/v.json' --verdict /no/such/v.json
run_small --verdict /dev/full
expect_code 7
expect_stderr '--verdict /dev/full: '

finish
