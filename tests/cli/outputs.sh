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

# When the reader of stdout ends, the run fails with a message.
what="fabench --csv - | head -1"
code=0
small --seqlen 64,128,256 --csv -
"$fabench" "${small[@]}" 2>err </dev/null | head -c 1 >out
code=${PIPESTATUS[0]}
expect "a documented exit code, not $code" test "$code" -eq 0 -o "$code" -eq 7
finish
