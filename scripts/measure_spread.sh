#!/usr/bin/env bash
# How well do fresh processes repeat? The spread that the rules of `fabench ab` were set from (cmd/decide.c) and that
# their test simulates:
#
#   scripts/measure_spread.sh [--processes N] [--out FILE.csv] [options of fabench ab]
#
# Runs `fabench ab` of the program against itself with N processes (10 unless given; even), so that a process is exactly
# what ab measures with, on 6 configurations (preset ci at --d 128 unless other options are given). Prints for each the
# standard deviation between processes of log time and of log pct_of_gemm, in per cent, and writes them to FILE.csv
# (build/spread.csv unless given). To make the simulation use it:
#
#   scripts/measure_spread.sh --out tests/unit/data/spread.csv && build/release/tests/test_decide
#
# FABENCH names the program (build/release/fabench unless set).
set -euo pipefail
cd "$(dirname "$0")/.."

processes=10
out=build/spread.csv
while [ $# -gt 0 ]; do
    case $1 in
    --processes) processes=${2:?measure_spread: --processes needs a number}; shift 2 ;;
    --out) out=${2:?measure_spread: --out needs a file}; shift 2 ;;
    *) break ;;
    esac
done
[[ $processes =~ ^[0-9]+$ ]] && [ $((processes % 2)) -eq 0 ] && [ "$processes" -ge 4 ] && [ "$processes" -le 128 ] ||
    { echo "measure_spread: --processes $processes: must be even, from 4 to 128" >&2; exit 2; }
[ $# -gt 0 ] || set -- --preset ci --d 128
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

mkdir -p "$(dirname "$out")"
# One line of a record is one JSON object; its plain columns stand before its tensors and samples.
cat "$records"/[0-9]*-OLD.jsonl "$records"/[0-9]*-NEW.jsonl | awk -v out="$out" -v when="$(date -u +%Y-%m-%d)" '
    function value(key,    at) {
        if (!match($0, "\"" key "\":(\"[^\"]*\"|[^,}]*)"))
            return ""
        at = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
        gsub(/"/, "", at)
        return at
    }
    function deviation(sum, squares, n) {
        if (n < 2)
            return ""
        return sprintf("%.4f", 100 * sqrt((squares - sum * sum / n > 0 ? squares - sum * sum / n : 0) / (n - 1)))
    }
    { sub(/"tensors":.*/, "") ; sub(/"samples_ms":.*/, "") }
    value("type") == "header" { next }
    value("type") == "row" && value("status") == "ok" {
        device = value("device"); driver = value("driver"); commit = value("commit")
        name = value("impl") " " value("mode") (value("causal") == 1 ? " causal" : " full") " d" value("head_dim") \
            " " value("q_len") " " value("dtype")
        if (!(name in count)) names[++configurations] = name
        t = log(value("time_ms")); share = value("pct_of_gemm")
        # Differences from the first process: the sums of squares keep their digits.
        if (!(name in count)) { t0[name] = t; s0[name] = share == "" ? 0 : log(share) }
        count[name]++
        time[name] += t - t0[name]; time2[name] += (t - t0[name]) ^ 2
        if (share != "") { shared[name]++; s = log(share) - s0[name]; sums[name] += s; sums2[name] += s * s }
    }
    END {
        print "# Spread between fresh processes of fabench ab: standard deviations in per cent." > out
        print "# " device ", driver " driver ", commit " commit ", " when "; scripts/measure_spread.sh" > out
        print "configuration,processes,sd_log_time_pct,sd_log_pct_of_gemm_pct" > out
        printf "\n%-44s %9s %14s %22s\n", "configuration", "processes", "sd log time, %", "sd log pct_of_gemm, %"
        for (i = 1; i <= configurations; i++) {
            name = names[i]
            raw = deviation(time[name], time2[name], count[name])
            paired = deviation(sums[name], sums2[name], shared[name])
            printf "%-44s %9d %14s %22s\n", name, count[name], raw, paired == "" ? "-" : paired
            # The controls are shown; the rules are for what is compared.
            if (name !~ /^(cudnn|naive) /)
                print name "," count[name] "," raw "," paired > out
        }
        if (!configurations) { print "measure_spread: nothing was measured" > "/dev/stderr"; exit 6 }
        print "written: " out
    }'
