#!/usr/bin/env bash
# Measures how much results differ between fresh processes. The rules of `fabench ab` (cmd/gate/decide.c) were set from
# this spread, and their test simulates it:
#
#   scripts/measure_spread.sh [--processes N] [--out FILE.csv] [options of fabench ab]
#   scripts/measure_spread.sh --records DIR [--out FILE.csv]
#
# Runs `fabench ab` of the program against itself with N processes (10 unless given; even), so that a process is exactly
# what ab measures with (preset ci unless other options are given); or takes the records of such a run, which
# `fabench ab --out DIR` left. Prints for each configuration the standard deviation between processes, in per cent, of
# the logarithm of: its time; its ratio to the control within rounds, which is what ab compares; the control's to the
# GEMM. Writes them to FILE.csv (build/spread.csv unless given). To make the simulation use it:
#
#   scripts/measure_spread.sh --out tests/unit/data/spread.csv && build/release/tests/test_decide
#
# FABENCH names the program (build/release/fabench unless set).
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."

processes=10
out=build/spread.csv
records=
while [ $# -gt 0 ]; do
    case $1 in
    --processes) processes=${2:?measure_spread: --processes needs a number}; shift 2 ;;
    --records) records=${2:?measure_spread: --records needs a folder}; shift 2 ;;
    --out) out=${2:?measure_spread: --out needs a file}; shift 2 ;;
    *) break ;;
    esac
done
[[ $processes =~ ^[0-9]+$ ]] && [ $((processes % 2)) -eq 0 ] && [ "$processes" -ge 4 ] && [ "$processes" -le 128 ] ||
    { echo "measure_spread: --processes $processes: must be even, from 4 to 128" >&2; exit 2; }

if [ -z "$records" ]; then
    fabench=$(realpath "${FABENCH:-build/release/fabench}")
    pairs=$((processes / 2))
    records=$(mktemp -d)
    trap 'rm -rf "$records"' EXIT
    code=0
    "$fabench" ab "$fabench" "$fabench" --pairs "$pairs,$pairs" --out "$records" "$@" || code=$?
    case $code in
    0 | 3 | 4) ;; # whatever it thinks of the differences: they are what is asked for
    *) exit "$code" ;;
    esac
elif [ $# -gt 0 ]; then
    echo "measure_spread: $1: nothing is measured with --records" >&2
    exit 2
fi
shopt -s nullglob
files=("$records"/[0-9]*-OLD.jsonl "$records"/[0-9]*-NEW.jsonl)
[ ${#files[@]} -gt 0 ] || { echo "measure_spread: $records: no records of fabench ab" >&2; exit 6; }

# The control of ab: cudnn where it runs, else naive.
control=naive
! grep -qs '"impl":"cudnn"' "${files[@]}" || control=cudnn

mkdir -p "$(dirname "$out")"
# One line of a record is one JSON object; its plain columns stand before its tensors and samples.
cat "${files[@]}" | awk -v out="$out" -v control="$control" '
    function value(key,    at) {
        if (!match($0, "\"" key "\":(\"[^\"]*\"|[^,}]*)"))
            return ""
        at = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
        gsub(/"/, "", at)
        return at
    }
    # Sums of differences from the first value, so that squares do not lose precision.
    function add(name, x) {
        if (x == "" || x <= 0)
            return
        x = log(x)
        if (!(name in n))
            first[name] = x
        n[name]++
        sum[name] += x - first[name]
        squares[name] += (x - first[name]) ^ 2
    }
    function deviation(name,    s) {
        if (n[name] < 2)
            return ""
        s = squares[name] - sum[name] ^ 2 / n[name]
        return sprintf("%.4f", 100 * sqrt((s > 0 ? s : 0) / (n[name] - 1)))
    }
    { sub(/"tensors":.*/, "") ; sub(/"samples_ms":.*/, "") }
    value("type") == "header" { next }
    value("type") == "row" && value("status") == "ok" {
        device = value("device"); driver = value("driver"); commit = value("commit"); method = value("method")
        day = substr(value("time_utc"), 1, 10)
        impl = value("impl")
        problem = value("mode") (value("causal") == 1 ? " causal" : " full") " d" value("head_dim") " " value("q_len") \
            " " value("dtype")
        share = value("pct_of_gemm")
        if (impl == control) {
            add("control " problem, share != "" ? share : 1 / value("time_ms"))
            next
        }
        if (!((impl " " problem) in problems))
            names[++configurations] = impl " " problem
        problems[impl " " problem] = problem
        add("time " impl " " problem, value("time_ms"))
        add("ratio " impl " " problem, control == "cudnn" ? value("speedup_vs_peer") : value("speedup_vs_naive"))
    }
    END {
        if (!configurations) { print "measure_spread: nothing was measured" > "/dev/stderr"; exit 6 }
        print "# Spread between fresh processes of fabench ab: standard deviations in per cent." > out
        print "# " device ", driver " driver ", commit " commit ", timing method " method ", " day \
            "; scripts/measure_spread.sh" > out
        print "configuration,processes,sd_log_time_pct,sd_log_ratio_pct,sd_log_control_pct" > out
        printf "%-40s %9s %12s %13s %15s\n", "configuration", "processes", "sd time, %", "sd ratio, %", "sd control, %"
        for (i = 1; i <= configurations; i++) {
            name = names[i]
            raw = deviation("time " name); ratio = deviation("ratio " name)
            beside = deviation("control " problems[name])
            printf "%-40s %9d %12s %13s %15s\n", name, n["time " name], raw, ratio, beside
            if (raw == "" || ratio == "" || beside == "") {
                print "measure_spread: " name ": not measured beside " control " in two processes" > "/dev/stderr"
                failed = 1
                continue
            }
            print name "," n["time " name] "," raw "," ratio "," beside > out
        }
        print "written: " out
        if (failed) exit 6
    }'
