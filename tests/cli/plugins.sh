#!/usr/bin/env bash
# --impl-lib: a valid library runs with our kernels. An invalid one or another ABI is refused; a crash or a hang fails
# only the library's row. Each has its exit code.
. "$(dirname "$0")/lib.sh"

run_small --impl-lib "$plugins/libwrong_cpu.so" --impl right_cpu,fused --heads 2 --mode fwd,bwd --csv -
expect_code 0
expect "four rows" test "$(wc -l <out)" -eq 5
expect "the library's own name" test "$(csv_cell out 1 impl)" = right_cpu
expect "it passes" test "$(csv_cell out 1 check)" = pass
expect "its backward passes" test "$(csv_cell out 3 check)" = pass
cp "$plugins/libwrong_cpu.so" copy.so
run_small --impl-lib copy.so --impl right_cpu --csv - # a path without a slash is a file, not a system library
expect_code 0

# One member of the rounds deterministic, another not.
run_small --impl-lib "$plugins/libwrong_cpu.so" --impl unordered_cpu:deterministic,unordered_cpu --mode fwd --csv -
expect_code 6 # that member ran nowhere
expect "a row of the mode" test "$(csv_cell out 1 impl)" = unordered_cpu:deterministic
expect "which refuses, not '$(csv_cell out 1 status)'" test "$(csv_cell out 1 status)" = unsupported
expect "a command that asks for it again" grep -qF -- "--impl unordered_cpu:deterministic " <<<"$(csv_cell out 1 repro)"
expect "the other runs, not '$(csv_cell out 2 status)'" test "$(csv_cell out 2 status)" = ok

run list --device cpu --impl-lib "$plugins/libwrong_cpu.so"
expect_code 0
expect_stdout 'right_cpu.*'

refused() { # refused REGEX LIBRARY
    run_small --impl-lib "$2" --impl fused
    expect_code 2
    expect_sentence "--impl-lib .*$1"
    expect_no_stdout
}
echo 'no library' >text.so
refused 'text\.so' "$tmp/text.so"
refused 'absent\.so' "$tmp/absent.so"
mkdir folder.so
refused 'folder\.so' "$tmp/folder.so"
refused 'fabench_impls' "$plugins/libbad_no_symbol.so"
refused 'ABI' "$plugins/libbad_abi_table.so"
refused 'ABI' "$plugins/libbad_abi_row.so"
refused 'built for ABI 1,.*compile the library again' "$plugins/libbad_abi_1.so"
refused 'built for ABI 2,.*compile the library again' "$plugins/libbad_abi_2.so"
refused 'role' "$plugins/libbad_role.so"
refused 'empty' "$plugins/libbad_empty.so"
run_small --impl-lib "$plugins/libwrong_cpu.so" --impl-lib "$plugins/libwrong_cpu.so" --impl right_cpu
expect_code 2
expect_sentence 'taken|twice'
run_small --impl-lib "$plugins/libwrong_cpu.so" --impl wrong_scal
expect_code 2
expect_sentence 'wrong_scale'

# A failure in a launch: the row has the error, and the other implementation has its row.
breaks() { # breaks NAME STATUS REGEX [TIMEOUT-S]
    rm -f run.jsonl
    run_small --impl-lib "$plugins/lib$1.so" --impl "$1,fused" --seqlen 128,256 --timeout-s "${4:-5}" \
        --jsonl "$tmp/run.jsonl" --csv run.csv
    expect_code 6
    expect "four rows" test "$(rows run.jsonl | wc -l)" -eq 4
    expect "its rows with status $2" test "$(rows run.jsonl "\"impl\": *\"$1\"" | grep -cE "\"status\": *\"$2\"")" -eq 2
    expect "a reason like $3" sh -c "grep -E '\"impl\": *\"$1\"' run.jsonl | grep -qiE '\"reason\": *\"[^\"]*($3)'"
    expect "the other's rows ok and checked" test \
        "$(rows run.jsonl '"impl": *"fused' | grep -E '"status": *"ok"' | grep -cE '"check": *"pass"')" -eq 2
    expect "no time for it" test -z "$(csv_cell run.csv 1 time_ms)"
}
breaks bad_fault error 'signal|segmentation|ended with code' # a code where a sanitizer handles it
breaks bad_exit error 'exit|ended|worker'
breaks bad_error error 'failed on purpose'
began=$SECONDS
breaks bad_hang timeout 'no answer for 2 s' 2
expect "two timeouts of 2 s to take less than 60 s" test $((SECONDS - began)) -lt 60
# What a plugin does not promise its row refuses, and the others run.
for wants in "--sink --mode bwd:takes no sink" "--bias full --mode bwd:takes no bias" "--d 64x32:head_dim is not"; do
    rm -f run.jsonl
    # shellcheck disable=SC2086 # options
    run_small --impl-lib "$plugins/libwrong_cpu.so" --impl right_cpu,fused ${wants%%:*} --jsonl "$tmp/run.jsonl"
    expect_code 6
    expect "a row that refuses: ${wants#*:}" grep -qE \
        "\"impl\": *\"right_cpu\".*\"status\": *\"unsupported\".*${wants#*:}" run.jsonl
    expect "the other's row" grep -qE '"impl": *"fused.*"status": *"ok"' run.jsonl
done
# A workspace of almost 2^64 bytes, whose size with the guards would be a small number again.
rm -f run.jsonl
run_small --impl-lib "$plugins/libbad_workspace.so" --impl bad_workspace,fused --seqlen 1:9:+1 --jsonl "$tmp/run.jsonl"
expect_code 6
expect "nine rows oom" test "$(rows run.jsonl '"impl": *"bad_workspace"' | grep -cE '"status": *"oom"')" -eq 9
for bytes in 18446744073709551615 18446744073709543423; do
    reason="$bytes bytes are more than any memory has; workspace 16384.00 PiB"
    expect "a reason with $bytes" grep -qF "\"reason\":\"$reason\"" run.jsonl
done
expect "the other's rows ok and checked" test "$(rows run.jsonl '"impl": *"fused' | grep -cE '"check": *"pass"')" -eq 9
run_small --impl-lib "$plugins/libbad_workspace.so" --impl bad_workspace --seqlen 1 --dry-run
expect_code 0
expect_stdout 'bad_workspace +workspace 16384.00 PiB'
# A process that ends after its row is complete: reported, and no row is run twice or lost.
rm -f run.jsonl
began=$SECONDS
run_small --impl-lib "$plugins/libbad_release.so" --impl bad_release,fused --seqlen 128,256 --timeout-s 5 \
    --jsonl "$tmp/run.jsonl"
expect_code 6
expect "four rows" test "$(rows run.jsonl | wc -l)" -eq 4
expect "the other's rows ok and checked" test "$(rows run.jsonl '"impl": *"fused' | grep -cE '"check": *"pass"')" -eq 2
expect_stderr 'bad_release: after its row was complete'
expect "an end within 20 s" test $((SECONDS - began)) -lt 20
none_left() { ! pgrep -f "$tmp/run.jsonl"; }
expect "no process left" none_left
finish
