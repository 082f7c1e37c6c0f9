#!/usr/bin/env bash
# docs/reference.md is what the program prints, and has every preset, column, term, build option and exit code.
. "$(dirname "$0")/lib.sh"

run help reference
expect_code 0
expect_no_stderr
cp out page
if ! cmp -s page "$root/docs/reference.md"; then
    fail "docs/reference.md is not what the program says: FABENCH=$fabench scripts/cli_docs.sh renews it"
    diff "$root/docs/reference.md" page | cut -c1-200 | head -8
fi
what="the reference page"
: >out
: >err

# section TITLE: the first and the following cells of its rows, without backslashes, with tabs between them.
section() {
    awk -v title="$1" '/^#/ { inside = $0 ~ "^#+ " title } inside && /^\|/ { print }' page | sed 's/\\|/!/g; s/\\//g' |
        awk -F ' *[|] *' 'NR > 2 && !/^\|-/ { for (i = 2; i < NF; i++) printf "%s%s", $i, i < NF - 1 ? "\t" : "\n" }'
}
# same WHAT A B: two lists of words are equal.
same() { expect "the same $1: $(diff <(sort "$2") <(sort "$3") | grep '^[<>]' | tr '\n' ' ')" \
    test "$(sort "$2")" = "$(sort "$3")"; }

# Columns: those of the CSV, those of the JSONL; each with a meaning and with when it is empty.
section "Of a row" >columns
run_small --csv run.csv --jsonl run.jsonl --verbose
expect_code 0
what="the columns of the reference page"
head -1 run.csv | tr -d '\r' | tr ',' '\n' >csv
awk -F '\t' '$5 ~ /CSV/ { print $1 }' columns >csv_of_page
same "columns of the CSV" csv csv_of_page
rows run.jsonl | sed 's/"tensors": *\[.*//' | grep -oE '"[a-z_0-9]+":' | tr -d '":' |
    grep -vE '^(type|samples_ms|passes)$' >jsonl
expect "many keys in a row" test "$(wc -l <jsonl)" -gt 30
cut -f 1 columns >named
expect "each key of a row: $(grep -vxFf named jsonl | tr '\n' ' ')" test -z "$(grep -vxFf named jsonl)"
for table in "Of a row" "Of each tensor" "Of each pass"; do
    expect "a meaning and 'empty when' for each column: $table" \
        test -z "$(section "$table" | awk -F '\t' 'NF != 5 || $3 == "" || $4 == "" || $5 == ""')"
done
rows run.jsonl | grep -oE '"tensors": *\[.*' | sed 's/\].*//' | grep -oE '"[a-z_0-9]+":' | tr -d '":' | sort -u |
    grep -v tensors >keys
section "Of each tensor" | cut -f 1 >named
expect "keys of a tensor" test -s keys
expect "each key of a tensor" test -z "$(grep -vxFf named keys)"
expect "the unit in the name, too" test -z "$(awk -F '\t' '$1 ~ /_ms/ && $2 != "ms" || $1 ~ /_mhz/ && $2 != "MHz" ||
    $1 ~ /_pct/ && $2 != "%" || $1 ~ /^power.*_w$/ && $2 != "W"' columns)"

# Presets: all that --preset takes, with as many problems as the plan has.
run --preset nonsense
sed 's/.*must be //; s/ or /, /; s/;.*//' err | tr -d ' ' | tr ',' '\n' >presets
section "On a GPU" | cut -f 1 >presets_of_page
expect "six presets" test "$(wc -l <presets)" -eq 6
what="the presets of the reference page"
same presets presets presets_of_page
for preset in quick paper full; do
    run --device cpu --preset $preset --dry-run
    count=$(sed -n 's/^\([0-9]*\) problems .*/\1/p' out)
    expect "$count problems" test "$(section "On the CPU" | awk -F '\t' -v p=$preset '$1 == p { print $3 }')" = "$count"
done
expect "a time for each" test -z "$(section "On a GPU" | awk -F '\t' '$NF !~ /[0-9]+ (s|min) /')"
what="the reference page"

# Terms: the words of the contract, and those of the table on the terminal.
section Terms | cut -f 1 | tr ',' '\n' | sed 's/^ *//' >terms
awk '/^## /{ inside = /^## 2\. Words/ } inside && /^\| [a-zA-Z]/ { print }' "$root/docs/design.md" |
    sed 's/^| *//; s/ *|.*//' | grep -vx word | sed 's/^GEMM //' >words
expect "words of docs/design.md" test "$(wc -l <words)" -ge 8
printf '%s\n' burst sustained capped throttled cold hot err/bound '+-95%' noise ceiling control round >>words
expect "each word: $(grep -vxFf terms words | tr '\n' ' ')" test -z "$(grep -vxFf terms words)"
expect "each explained" test -z "$(section Terms | awk -F '\t' '$2 == ""')"

# Build options: those of CMakeLists.txt.
grep -oE '^(option|set)\(FABENCH_[A-Z_]+ .*' "$root/CMakeLists.txt" | grep -E '^option|CACHE' |
    sed 's/^[a-z]*(//; s/ .*//' >cmake
grep -oE '^set\(FABENCH_[A-Z_]+$|^set\(FABENCH_[A-Z_]+ CACHE' "$root/CMakeLists.txt" | sed 's/^set(//; s/ .*//' >>cmake
section "Build options" | cut -f 1 >cmake_of_page
sort -u cmake -o cmake
expect "build options" test -s cmake
same "build options" cmake cmake_of_page

# Exit codes: those of the program.
sed -n 's/^ *EXIT_[A-Z_]* = \([0-9]*\),*$/\1/p' "$root/cmd/base/log.h" >codes
section "Exit codes" | cut -f 1 >codes_of_page
expect "nine exit codes" test "$(wc -l <codes)" -eq 9
same "exit codes" codes codes_of_page
finish
