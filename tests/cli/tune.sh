#!/usr/bin/env bash
# fabench tune and --tuned, with the variants of fused_cpu on a board with made-up times (tests/fake/fake_boards.c): the
# fastest variant that wins the race is written and taken again; a file of another device or build is refused; a
# stopped run goes on.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
real=$fabench
fabench=${FABENCH_BOARDS:-$(dirname "$real")/tests/fake/fabench_boards}
export FABENCH_NVML=${FABENCH_FAKE_NVML:-$(dirname "$real")/tests/fake/libfake_nvml.so} FABENCH_LOCK_DIR=$tmp/locks
export FAKE_BOARDS=ok FAKE_VARIANTS="portable=0.80"
[ -x "$fabench" ] || { echo "no program at $fabench"; exit 1; }
mkdir "$FABENCH_LOCK_DIR"
problem=(--device cuda:0 --dtype fp32 --mode fwd --d 64 --batch 1 --heads 1 --warmup-ms 0 --min-time-ms 1 --samples 6
    --max-noise 100% --l2 hot)
tune() { run tune "${problem[@]}" --impl fused_cpu "$@"; }
sweep() { run "${problem[@]}" --plot none --out none "$@"; }
choice() { sed -n "$1p" "$2" | row_value "$3"; }

# The fastest one in rounds of all, raced against the own choice.
tune --seqlen 128 --write a.jsonl
expect_code 0
own=$(choice 2 a.jsonl built_in)
[ "$own" != portable ] || skip_rest "the variant portable is this machine's own choice"
expect "a header and two choices" test "$(wc -l <a.jsonl)" -eq 3
expect "the device" test "$(choice 1 a.jsonl device)" = "NVIDIA Fake 100"
expect "the fastest" test "$(choice 2 a.jsonl variant) $(choice 3 a.jsonl variant)" = "portable portable"
expect_stdout "$own of [23]  \\+25\\.0 % in the race with portable, written\$"
expect_stdout '^2 problems, 2 with another variant .* more than 3 % at 2 \(100\.0 %\), more than 10 % at 2; .* 25\.[01]'
sweep --impl fused_cpu --seqlen 128 --causal=yes --tuned a.jsonl --csv b.csv
expect_code 0
expect "the written variant is taken" test "$(csv_cell b.csv 1 variant)" = portable
sweep --impl fused --seqlen 128 --causal=yes --seed 7 --tuned a.jsonl --csv b.csv
expect "by fused and on other data, too" test "$(csv_cell b.csv 1 variant)" = portable
sweep --impl fused_cpu --seqlen 256 --causal=yes --tuned a.jsonl --csv b.csv
expect "other problems keep the own choice" test "$(csv_cell b.csv 1 variant)" = "$own"
sweep --impl "fused_cpu:$own" --seqlen 128 --causal=yes --tuned a.jsonl --csv b.csv
expect "a variant that was asked for" test "$(csv_cell b.csv 1 variant)" = "$own"

# What gains less than 1 % in the race is not written.
FAKE_VARIANTS="portable=0.995" tune --seqlen 128 --causal=yes --write near.jsonl
expect_code 0
expect "no gain worth it" test "$(choice 2 near.jsonl variant) $(choice 2 near.jsonl fastest)" = "$own portable"
expect_stdout "$own of [23]  \\+0\\.5 % in the race with portable\$"

# Stopped, cut, and continued; there is no second file by accident.
tune --seqlen 128,192,256 --max-time-s 0.1 --write c.jsonl
expect_code 130
expect_stderr 'stopped at --max-time-s with [1-5] of 6 problems done; the same command with --resume goes on'
truncate -s -9 c.jsonl
tune --seqlen 128,192,256 --write c.jsonl
expect_code 2
expect_stderr '^fabench: --write c.jsonl: there is such a file; --resume'
tune --seqlen 128,192,256 --write c.jsonl --resume
expect_code 0
expect "each problem once" test "$(wc -l <c.jsonl)" -eq 7
cp c.jsonl whole.jsonl
tune --seqlen 128,192,256 --write c.jsonl --resume
expect_code 0
expect "nothing was left" cmp c.jsonl whole.jsonl

# Another device, another build, another file.
for change in 's/Fake 100/Fake 200/' 's/"commit":"/&x/'; do
    sed "$change" a.jsonl >other.jsonl
    sweep --impl fused_cpu --seqlen 128 --tuned other.jsonl
    expect_code 5
    devices='"NVIDIA Fake 200", here it is "NVIDIA Fake 100"'
    expect_stderr "^fabench: --tuned other.jsonl was tuned with (device $devices|commit \"x)"
    tune --seqlen 128 --write other.jsonl --resume
    expect_code 5
done
echo '{"type":"header"}' >none.jsonl
sweep --seqlen 128 --tuned none.jsonl
expect_code 5

# The problems of a record.
sweep --impl fused_cpu --seqlen 128 --causal=yes --jsonl record.jsonl
tune record.jsonl --write d.jsonl
expect_code 0
expect "the record's problem" test "$(wc -l <d.jsonl) $(choice 2 d.jsonl variant)" = "2 portable"

# What cannot be tuned.
run tune --device cpu --impl naive --write g.jsonl
expect_code 2
expect_stderr 'tune: --impl naive: has no variants to choose from'
run tune --device cpu --impl fused --write g.jsonl
expect_code 2
expect_stderr 'must be the name of one implementation alone'
run tune --write g.jsonl
expect_code 2
expect_stderr 'needs one implementation, whose variants it tries: --impl NAME'
run tune --impl naive
expect_code 2
expect_stderr 'needs a file for its choices: --write FILE'
finish
