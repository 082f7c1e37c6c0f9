# Sourced by every test of the command line: runs the program, stores stdout and stderr separately, reports failed
# expectations. shellcheck shell=bash
#
#   FABENCH             the program; default build/release/fabench
#   FABENCH_PLUGINS     the folder with libwrong_cpu.so and libbad_*.so; default beside the program
#   FABENCH_FAKE        the stand-in for the program (tests/fake/fake_fabench.c); default beside the program
#
# A test ends with `finish`: exit 0, 1 when anything was not as expected, 77 when it was skipped.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fabench=$(realpath "${FABENCH:-$root/build/release/fabench}")
plugins=$(realpath "${FABENCH_PLUGINS:-$(dirname "$fabench")/tests/wrong}")
[ -x "$fabench" ] || { echo "no program at $fabench"; exit 1; }
if [ ! -e "$plugins/libwrong_cpu.so" ]; then # whatever the build calls its folders
    plugins=$(dirname "$(find "$(dirname "$fabench")" -name libwrong_cpu.so | head -1)")
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1 # what a run writes by itself must not land in the checkout
unset FABENCH_OUT_ROOT
export FABENCH_CALLED_AS=fabench # in hints, wherever the program lies
# Sanitizer builds: a refused allocation is tested and must not end the program.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}
# Threads that wait do not spin: tests run side by side, on fewer cores than they have threads together.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
failures=0 checks=0
what=

# copy_fake NAME...: copies of the stand-in for the program; NAME.conf sets what each answers.
copy_fake() {
    local fake=${FABENCH_FAKE:-$(dirname "$fabench")/tests/fake/fake_fabench} name
    for name in "$@"; do
        cp "$fake" "$name" || { echo "no stand-in at $fake"; exit 1; }
    done
}

# small ARGUMENT...: fills the array `small` with one small problem on the CPU, timed briefly, nothing written, where
# the arguments do not say otherwise (the program takes an option once), then the arguments. With a hot cache: emptying
# a cache of 320 MB before each sample takes ten times as long as all else; example_plugin.sh and npy.sh run with a cold
# one, and those that set small_l2=cold.
small() {
    local default name defaults=("--device cpu" "--seqlen 128" "--d 64" "--batch 1" "--heads 1" "--causal" "--mode fwd"
        "--impl fused" "--warmup-ms 0" "--min-time-ms 1" "--samples 6" "--max-noise 100%"
        "--l2 ${small_l2:-hot}" "--out none")
    small=()
    for default in "${defaults[@]}"; do
        name=${default% *}
        [[ " $* " == *" $name "* ]] && continue
        [[ $default == "--out none" && " $* " == *" default-out "* ]] && continue
        # shellcheck disable=SC2206 # two words
        small+=($default)
    done
    for default in "$@"; do
        [ "$default" = default-out ] || small+=("$default")
    done
}
# run_small ARGUMENT...: runs such a problem.
run_small() { small "$@"; run "${small[@]}"; }

skip() { echo "skipped: $*"; exit 77; }
# Between parts of a test: without the files of the part before.
next_part() { rm -rf "${tmp:?}"/*; }
# The rest of a test cannot be run here; what it found so far counts.
skip_rest() { echo "not run: $*"; finish; exit; }

# show_ends NAME FILE: the first and the last 12 lines.
show_ends() {
    [ -s "$2" ] && cut -c1-300 "$2" |
        awk -v name="$1" '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) {
            if (i == 13 && NR > 24) { print "  " name "| ... " NR - 24 " lines"; i = NR - 11 }
            print "  " name "| " line[i] } }'
}

fail() {
    failures=$((failures + 1))
    echo "FAIL: $what"
    echo "  $*"
    show_ends stderr "$tmp/err"
    show_ends stdout "$tmp/out"
}

# run ARGUMENT...: the program with stdout to $tmp/out, stderr to $tmp/err, its exit code in $code.
run() {
    what="fabench $*"
    code=0
    timeout --kill-after=5 "${limit_s:-300}" "$fabench" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || code=$?
}

expect() { # expect CONDITION-SENTENCE COMMAND...
    local sentence=$1
    shift
    checks=$((checks + 1))
    "$@" || fail "expected $sentence"
}

expect_code() {
    checks=$((checks + 1))
    [ "$code" -eq "$1" ] || fail "exit code $code, expected $1"
}

# The whole of stderr is one line "fabench: ..." that matches the extended regular expression.
expect_sentence() {
    checks=$((checks + 1))
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || { fail "expected one sentence on stderr"; return; }
    grep -qE "^fabench: " "$tmp/err" || fail "the sentence does not begin with 'fabench: '"
    grep -qE -- "$1" "$tmp/err" || fail "the sentence does not match: $1"
}

expect_stderr() { checks=$((checks + 1)); grep -qE -- "$1" "$tmp/err" || fail "stderr has no: $1"; }
expect_stdout() { checks=$((checks + 1)); grep -qE -- "$1" "$tmp/out" || fail "stdout has no: $1"; }
expect_no_stdout() { checks=$((checks + 1)); [ ! -s "$tmp/out" ] || fail "expected nothing on stdout"; }
expect_no_stderr() { checks=$((checks + 1)); [ ! -s "$tmp/err" ] || fail "expected nothing on stderr"; }
expect_file() { checks=$((checks + 1)); [ -s "$1" ] || fail "expected a file $1 with something in it"; }

# refused REGEX ARGUMENT...: exit code 2, one sentence that matches, nothing on stdout. `refused_by`: what runs it.
refused_by=run
refused() {
    local regex=$1
    shift
    $refused_by "$@"
    expect_code 2
    expect_sentence "$regex"
    expect_no_stdout
}

# record_serves LINES ROWS ARGUMENT...: a.jsonl, cut after so many lines, is continued by a run with these arguments
# until it has so many rows; gate, report and plot take it.
record_serves() {
    local lines=$1 rows=$2
    shift 2
    head -n "$lines" a.jsonl >cut.jsonl
    run "$@" --out none --jsonl cut.jsonl --resume
    expect_code 0
    expect "every row once" test "$(grep -c '"repro"' cut.jsonl)" = "$rows"
    run gate --baseline a.jsonl --current a.jsonl --soft 4 # on the CPU one record on each side decides nothing
    expect_code 0
    run report a.jsonl --out page
    expect_code 0
    run plot a.jsonl --plot term
    expect_code 0
}

# false_figure COLUMN NUMBER: gate does not compare a.jsonl with a record that has this number in all its rows.
false_figure() {
    sed -E "s/\"$1\": ?[0-9.e+-]+/\"$1\": $2/" a.jsonl >false.jsonl
    run gate --baseline a.jsonl --current false.jsonl
    expect_code 5
    expect_stderr "$1"
}

# True when this process is running; a zombie is not.
is_running() {
    [ -n "${1:-}" ] && [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1)" != Z ] && kill -0 "$1" 2>/dev/null
}
is_gone() { ! is_running "$1"; }

# csv_cell FILE ROW COLUMN: a cell of a CSV file, row 1 being the first under the column names (RFC 4180 quoting).
csv_cell() {
    awk -v want_row="$2" -v want="$3" '
        function cells(line, out,    n, i, c, quoted, cell) {
            n = 0; cell = ""; quoted = 0
            for (i = 1; i <= length(line); i++) {
                c = substr(line, i, 1)
                if (quoted && c == "\"" && substr(line, i + 1, 1) == "\"") { cell = cell c; i++ }
                else if (c == "\"") quoted = !quoted
                else if (c == "," && !quoted) { out[++n] = cell; cell = "" }
                else cell = cell c
            }
            out[++n] = cell
            return n
        }
        { sub(/\r$/, "") }
        NR == 1 { n = cells($0, names); for (i = 1; i <= n; i++) if (names[i] == want) column = i; next }
        NR == want_row + 1 { cells($0, values); print values[column] }' "$1"
}

# expect_same_row FILE ROW COLUMN...: the repro of a row of a CSV file, run, makes a row with the same cells.
expect_same_row() {
    local file=$1 row=$2 name
    local -a words
    shift 2
    eval "words=($(csv_cell "$file" "$row" repro))"
    run "${words[@]:1}" --out none --csv again.csv
    expect_code 0
    for name in "$@"; do
        expect "the same $name" test "$(csv_cell again.csv 1 "$name")" = "$(csv_cell "$file" "$row" "$name")"
    done
}

# Number of cells of each line of a CSV file, each number once.
csv_widths() {
    awk '{ sub(/\r$/, ""); gsub(/"([^"]|"")*"/, "x"); print gsub(/,/, ",") + 1 }' "$1" | sort -u
}

# rows FILE [PATTERN]: the row objects of a JSONL file, those that match the extended regular expression.
rows() { grep -E '"type": *"row"' "$1" | grep -E -- "${2:-.}"; }

# row_value KEY: the value of a key of the row on stdin, without quotes; keys of the row itself, before its tensors.
row_value() {
    sed 's/"tensors": *\[.*//' | grep -oE "\"$1\": *(\"([^\"\\\\]|\\\\.)*\"|[^,}]*)" | head -1 |
        sed -E "s/^\"$1\": *//; s/^\"//; s/\"\$//"
}

# tensor_entry NAME: the object of one tensor of the row on stdin.
tensor_entry() { grep -oE "\{\"name\": *\"$1\"[^{}]*\}"; }

finish() {
    if [ "$failures" -gt 0 ]; then
        echo "$failures of $checks expectations failed"
        exit 1
    fi
    echo "$checks expectations met"
}
