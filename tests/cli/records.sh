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

# Escape sequences in every text of a record: nothing of them reaches the terminal, a page, a chart or its script.
python3 - a.jsonl >hostile.jsonl <<'EOF'
import json
import sys

ESCAPE = "\x1b]0;x\x07\x9bm"


def hostile(value, key=""):
    if isinstance(value, dict):
        return {k: hostile(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v, key) for v in value]
    words = ("type", "status", "check", "check_scope", "mode", "dtype", "layout", "dist", "l2", "method")
    if not isinstance(value, str) or key in words:
        return value
    short = {"driver": 24, "time_utc": 24, "launch": 8, "err_tensor": 8, "name": 8}
    room = short.get(key, 16 if key in ("arch", "cuda", "cudnn", "stop") else 40)
    return (ESCAPE + value)[: room - 2]  # ESCAPE has a character of two bytes


for line in open(sys.argv[1]):
    print(json.dumps(hostile(json.loads(line))))
EOF
expect "escapes in the record" grep -q '\\u001b' hostile.jsonl
clean() { # clean FILE...
    local file
    for file in "$@"; do
        expect "no control byte in $file" sh -c "! LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' '$file'"
    done
}
run plot hostile.jsonl --plot term --color never
expect_code 0
expect_stdout ' \]0;x'
clean out err
run plot hostile.jsonl --out charts_hostile
expect_code 0
clean out err charts_hostile/*.gp charts_hostile/*.dat
[ -z "$(find charts_hostile -name '*.svg')" ] || clean charts_hostile/*.svg
run report hostile.jsonl --out page_hostile --color never
expect_code 0
clean out err page_hostile/*.md page_hostile/*.csv page_hostile/*.html
sed 's/"status": *"[a-z]*"/"status": "\\u001b]0;x\\u0007"/' hostile.jsonl >hostile_word.jsonl
run plot hostile_word.jsonl --plot term
expect_code 5
clean out err
printf '{"type":"header","schema":1}\n{"type":"row" \033]0;x\007}\n' >hostile_json.jsonl
run plot hostile_json.jsonl --plot term
expect_code 5
clean out err
finish
