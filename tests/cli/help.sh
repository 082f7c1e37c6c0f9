#!/usr/bin/env bash
# Help that starts no work, options given twice, and hints that work as they stand.
. "$(dirname "$0")/lib.sh"

# fabench help.
run help
expect_code 0
cp out help.out
run --help
expect "the page of --help" cmp -s out help.out
for command in verify gate ab report plot info list selftest sweep; do
    run "$command" --help
    cp out help.out
    run help "$command"
    expect_code 0
    expect_no_stderr
    expect "the page of $command --help" cmp -s out help.out
done
run --help=measure
cp out help.out
run help measure
expect "the page of a group" cmp -s out help.out
run help verfy
expect_code 2
expect_sentence 'help verfy: no such command; did you mean verify'
run help nonsense
expect_code 2
expect_sentence 'must be sweep, .* or help'
run help ab gate
expect_code 2

# scripts/*.sh --help: in a copy of the folder alone, where nothing could be built; it answers and leaves nothing.
mkdir -p copy/home
cp -r "$root/scripts" copy/
cp -r "$root/examples/ci" copy/
chmod -R a-w copy
for script in copy/scripts/*.sh copy/ci/check.sh copy/ci/gate.sh; do
    for option in --help -h; do
        what="$script $option"
        code=0
        HOME=$tmp/copy/home "$script" "$option" >out 2>err </dev/null || code=$?
        expect_code 0
        expect_no_stderr
        expect "its name and what it does" grep -qF "$(basename "$script")" out
    done
done
chmod -R u+w copy
what="scripts/*.sh --help"
expect "nothing new" diff -r "$root/scripts" copy/scripts
expect "no home used" test -z "$(ls -A copy/home)"

# The last one of two holds, which --verbose says.
run_small --seqlen 64 --verbose --csv - --seqlen 192
expect_code 0
expect "the last length" test "$(csv_cell out 1 q_len)" = 192
expect_stderr '^fabench: --seqlen was given more than once: the last one holds, 192$'
run --device cpu --seqlen 64 --seqlen 128 --dry-run
expect_code 0
expect_no_stderr
expect_stdout ' n=128 '
expect "the first one is not planned" sh -c '! grep -q n=64 out'

# Hints name the program as it was called: a path, or the script that called it.
unset FABENCH_CALLED_AS
mkdir 'my tools'
ln -s "$fabench" 'my tools/fabench'
small --out run --plot none
what="./my tools/fabench ${small[*]}"
./my\ tools/fabench "${small[@]}" >out 2>err
hint=$(sed -n 's/^next: //p' out)
expect "the path in it, not: $hint" test "$hint" = "'./my tools/fabench' plot run/run.jsonl --plot term"
expect "a command that works" bash -c "$hint >plot.out"
run_small --frobnicate
expect_sentence "see $fabench --help"
FABENCH_CALLED_AS=./scripts/run.sh run_small --out run --overwrite --plot none
expect_stdout '^next: ./scripts/run.sh plot run/run.jsonl --plot term$'
run_small --impl-lib "$plugins/libwrong_cpu.so" --impl wrong_scale
expect_code 1
expect_stdout "^  $fabench --device cpu .*"
finish
