#!/usr/bin/env bash
# `plot` reads what was written, a file that was cut included, and says in a sentence what it cannot read.
. "$(dirname "$0")/lib.sh"

run_small --impl naive,fused --mode fwd,bwd --seqlen 64,128,256 --jsonl a.jsonl
expect_code 0
expect "12 rows" test "$(rows a.jsonl | wc -l)" -eq 12

run plot a.jsonl --out charts
expect_code 0
expect "a script and data for each mode" test "$(find charts -name 'tflops-*-causal-d64-fp32.gp' | wc -l)" -eq 2 -a \
    "$(find charts -name 'tflops-*-causal-d64-fp32.dat' | wc -l)" -eq 2
if command -v gnuplot >/dev/null; then
    expect "images" test "$(find charts -name 'tflops-*-causal-d64-fp32.svg' -size +1k | wc -l)" -eq 2
    script=$(find charts -name 'tflops-*.gp' | head -1)
    expect "a script that runs by itself" sh -c \
        "cd charts && rm -f *.svg && gnuplot '$(basename "$script")' && ls *.svg >/dev/null"
    run plot a.jsonl --plot png --out charts
    expect_code 0
    expect "a PNG" test -n "$(find charts -name '*.png' -size +1k)"
fi
run plot a.jsonl --plot term
expect_code 0
expect_stdout 'fused'
expect "nothing wider than 110" test "$(wc -L <out)" -le 110

# gnuplot absent: script and data stay, one line says so.
mkdir empty_path
what="fabench plot without gnuplot"
code=0
PATH=$tmp/empty_path "$fabench" plot a.jsonl --out charts_bare >out 2>err </dev/null || code=$?
expect_code 0
expect_stderr 'gnuplot'
expect "one line about it" test "$(grep -c gnuplot err)" -eq 1
expect "the script" test -n "$(find charts_bare -name 'tflops-*.gp')"
code=0
PATH=$tmp/empty_path "$fabench" plot a.jsonl --plot term >out 2>err </dev/null || code=$?
expect_code 0
expect_stdout 'fused'

# A cut last line is dropped, in a warning; the rows before it are drawn.
size=$(wc -c <a.jsonl)
head -c $((size - 40)) a.jsonl >cut.jsonl
run plot cut.jsonl --out charts_cut
expect_code 0
expect_stderr 'cut'
expect "charts of the rows before" test -n "$(find charts_cut -name 'tflops-*.gp')"
head -1 a.jsonl >header.jsonl # a run that ended before its first row
run plot header.jsonl --out charts_header
expect "a documented exit code" test "$code" -eq 0 -o "$code" -eq 5
expect "a sentence" test "$(wc -l <err)" -le 1

# What is not a record file.
unreadable() {
    run plot "$1" --out charts_bad
    expect "exit 5 or 7, not $code" test "$code" -eq 5 -o "$code" -eq 7
    expect_sentence "$1"
}
unreadable absent.jsonl
echo 'not json' >garbage.jsonl
unreadable garbage.jsonl
: >empty.jsonl
unreadable empty.jsonl
printf '{"type": "row", "schema": 1}\n' >headless.jsonl
unreadable headless.jsonl
sed 's/"schema": *1/"schema": 999/' a.jsonl >schema.jsonl
unreadable schema.jsonl
head -c 3000 /dev/urandom >random.jsonl
unreadable random.jsonl
mkdir folder.jsonl
unreadable folder.jsonl
(sed -n 1p a.jsonl; echo '{"type": "row", "broken'; sed -n 2p a.jsonl) >middle.jsonl
run plot middle.jsonl --out charts_bad
expect "a broken line in the middle to be said" test -s err
finish
