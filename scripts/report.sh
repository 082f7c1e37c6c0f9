#!/usr/bin/env bash
# Renews results/report/ from the published records: each device is a label, with the newest record of each kind
# (results/<device>/<date>-<commit>-<what>.jsonl). What is kept is the page in Markdown and, as SVG, the charts of
# speed in bf16 (of a CPU in fp32); the same figures as CSV, and the charts of fp16, memory and speed over naive, are
# written by `fabench report`.
#
#   scripts/report.sh
#
# FABENCH names the program (build/release/fabench), FABENCH_RESULTS the folder (results). When devices cannot be
# compared (exit 5 of fabench), the page is written and says so.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
?*)
    echo "report: $1: takes no arguments but --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."
# shellcheck source=scripts/functions.bash
. scripts/functions.bash
fabench=${FABENCH:-build/release/fabench}
results=${FABENCH_RESULTS:-results}
[ -x "$fabench" ] || { echo "report: no program at $fabench; build it first" >&2; exit 1; }

arguments=()

# newest FOLDER: adds the newest record of each kind there, all under the label of the device.
newest() {
    local folder=$1 what record
    while read -r what; do
        [ "$what" != selftest ] || continue # times nothing
        record=$(find "$folder" -maxdepth 1 -name "[0-9]*-*-$what.jsonl" | sort | tail -n 1)
        arguments+=("$(basename "${folder^^}")=$record")
    done < <(find "$folder" -maxdepth 1 -name '[0-9]*-*-*.jsonl' -printf '%f\n' |
        sed 's/^[0-9]*-[^-]*-//; s/\.jsonl$//' | sort -ru)
}

for folder in "$results"/*/; do
    [ "$folder" = "$results/cpu/" ] || newest "$folder"
done
# A CPU's record is used only where there is no other, because it has no problem in common with a GPU's.
[ ${#arguments[@]} -gt 0 ] || [ ! -d "$results/cpu" ] || newest "$results/cpu/"
[ ${#arguments[@]} -gt 0 ] || { echo "report: no published record under $results" >&2; exit 1; }

rm -rf "$results/report.new"
code=0
"$fabench" report "${arguments[@]}" --out "$results/report.new" --quiet || code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 5 ]; then
    rm -rf "$results/report.new"
    exit "$code"
fi
[ -s "$results/report.new/report.md" ] || { rm -rf "$results/report.new"; exit 5; }
rm -f "$results/report.new/report.html" "$results/report.new/report.csv"
keep_charts "$results/report.new" 'tflops-bf16-*.svg' 'tflops-fp32-*.svg' 'sustained-bf16-*.svg'
without_absent_charts "$results/report.new/report.md"
# Tenths of a pixel are enough, spaces before the end of a path say nothing, and colours have short names.
for chart in "$results"/report.new/*.svg; do
    [ ! -e "$chart" ] || sed -i -E "s/([0-9]\.[0-9])[0-9]\b/\1/g; s/ +'\/>/'\/>/g; s/rgb\(85,85,85\)/#555/g; \
        s/rgb\(221,221,221\)/#ddd/g; s/ class=\"gridline\" +/ /g; s/(stroke='[^']*')  +d=/\1 d=/g" "$chart"
done
rm -rf "$results/report"
mv "$results/report.new" "$results/report"
echo "$results/report/report.md"
