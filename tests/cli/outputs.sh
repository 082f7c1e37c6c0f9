#!/usr/bin/env bash
# Output paths that cannot be written: exit 2 before any work where it can be known, else 7 when it happens.
. "$(dirname "$0")/lib.sh"

mkdir folder
refused() { # refused REGEX ARGUMENT...
    local regex=$1
    shift
    run_small "$@"
    expect_code 2
    expect_sentence "$regex"
    expect_no_stdout
}
refused '--csv .*folder.*directory' --csv folder
refused '--jsonl .*folder.*directory' --jsonl folder
refused '--csv .*absent' --csv absent/x.csv
refused '--csv' --csv ''
refused '--jsonl' --csv same --jsonl same
: >file
refused '--out .*file' --out file
refused '--dump .*file' --dump file
if [ "$(id -u)" -ne 0 ]; then # nothing is forbidden to root
    mkdir locked
    chmod 555 locked
    refused '--csv .*locked' --csv locked/x.csv
    refused '--out .*locked' --out locked/run
    : >frozen
    chmod 444 frozen
    refused '--jsonl .*frozen' --jsonl frozen
fi
refused '/proc' --csv /proc/absent/x.csv

# A full disk.
if [ -c /dev/full ]; then
    run_small --csv /dev/full
    expect_code 7
    expect_stderr '^fabench: .*(/dev/full|No space)'
    run_small --jsonl /dev/full
    expect_code 7
    expect_stderr '^fabench: .*(/dev/full|No space)'
    # The other file is whole.
    run_small --csv good.csv --jsonl /dev/full
    expect_code 7
    for stream in --csv --jsonl; do
        what="fabench $stream - >/dev/full"
        code=0
        small $stream -
        "$fabench" "${small[@]}" >/dev/full 2>err </dev/null || code=$?
        : >out
        expect_code 7
        expect_stderr '^fabench: '
    done
    what="fabench >/dev/full"
    code=0
    small
    "$fabench" "${small[@]}" >/dev/full 2>err </dev/null || code=$?
    expect_code 7
    code=0
    "$fabench" --help >/dev/full 2>err || code=$?
    expect_code 7
fi

# A file at the limit of its size is a full disk: the rows before it are whole, and --resume runs the rest.
limited=(--seqlen 16,32,48,64,80,96,112,128 --mode fwd,bwd --plot none --out limited)
what="ulimit -f 8; fabench ${limited[*]}"
small "${limited[@]}"
code=0
(ulimit -f 8; exec "$fabench" "${small[@]}") >out 2>err </dev/null || code=$?
expect_code 7
expect_stderr '^fabench: a record could not be written: File too large$'
kept=$(rows limited/run.jsonl | wc -l)
expect "some rows of 16, not $kept" test "$kept" -gt 0 -a "$kept" -lt 16
expect "every line of the record whole" test "$(grep -cvE '^\{"type":"(header|row)".*\}$' limited/run.jsonl)" -eq 0
run_small "${limited[@]}" --resume
expect_code 0
expect_stderr "$kept of 16 rows are there"
expect "16 rows" test "$(rows limited/run.jsonl | wc -l)" -eq 16
for stream in --csv --jsonl; do # a limit that is met on stdout
    what="ulimit -f 1; fabench $stream - >file"
    code=0
    small --seqlen 16,32,48,64 $stream -
    (ulimit -f 1; exec "$fabench" "${small[@]}") >file.out 2>err </dev/null || code=$?
    expect_code 7
    expect_stderr '^fabench: '
done
code=0
what="ulimit -f 1; fabench --help=all >file"
(ulimit -f 1; exec "$fabench" --help=all) >file.out 2>err </dev/null || code=$?
expect_code 7

# When the reader of stdout ends, the run fails with a message.
what="fabench --csv - | head -1"
code=0
small --seqlen 64,128,256 --csv -
"$fabench" "${small[@]}" 2>err </dev/null | head -c 1 >out
code=${PIPESTATUS[0]}
expect "a documented exit code, not $code" test "$code" -eq 0 -o "$code" -eq 7
finish
