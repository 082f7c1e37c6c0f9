#!/usr/bin/env bash
# Puts the records of finished runs under results/, draws their charts and renews the README's table:
#
#   scripts/publish.sh [--what NAME] DIR...
#
# DIR is what a run wrote (run.jsonl, run.csv). The record becomes results/<device>/<utcdate>-<commit>-<what>.jsonl, its
# table .csv beside it, its charts in the folder of the same name; <what> is the preset unless --what says otherwise.
# Refused: a record that is synthetic, cut, without a commit, or with a row that failed, was not checked, or ended in an
# error or a timeout. Nothing is published unless everything is fit. FABENCH names the program (build/release/fabench),
# FABENCH_RESULTS the folder (results).
set -euo pipefail
started_in=$PWD
cd "$(dirname "$0")/.."
fabench=${FABENCH:-build/release/fabench}
results=${FABENCH_RESULTS:-results}
what=

refuse() { echo "publish: $*" >&2; exit 1; }
usage() { echo "usage: scripts/publish.sh [--what NAME] DIR..." >&2; exit 2; }

if [ "${1:-}" = --what ]; then
    what=${2:-}
    [[ $what =~ ^[a-z0-9][a-z0-9_-]*$ ]] || { echo "publish: --what $what: must be made of a-z, 0-9, - and _" >&2; exit 2; }
    shift 2
fi
[ $# -gt 0 ] || usage
[ -x "$fabench" ] || refuse "no program at $fabench to draw the charts; build it first"

# text KEY: the first text of that name on stdin, a line of JSON.
text() { grep -oE "\"$1\": *\"[^\"]*\"" | head -n 1 | sed -E 's/^"[^"]*": *"//; s/"$//'; }

# name_of RECORD: "<device>/<utcdate>-<commit>-<what>" from the header of a record that is fit to be published.
name_of() {
    local record=$1 header bad device date commit
    [ -s "$record" ] || refuse "$record: no such record"
    header=$(head -n 1 "$record")
    grep -qE '^\{"type": *"header"' <<<"$header" || refuse "$record: no record file: its first line is no header"
    [ -z "$(tail -c 1 "$record")" ] || refuse "$record: its last line is cut"
    grep -qE '"type": *"row"' "$record" || refuse "$record: holds no row"
    if grep -qiE '"(synthetic|simulated)": *true|"name": *"[^"]*synthetic' <<<"$header" ||
        grep -qiE '"device": *"[^"]*(synthetic|simulated)' "$record"; then
        refuse "$record: synthetic records are not published"
    fi
    bad=$(grep -cE '"status": *"(error|timeout|skipped)"' "$record") || true
    [ "$bad" -eq 0 ] || refuse "$record: $bad rows ended in an error, a timeout, or were skipped"
    bad=$(grep -E '"type": *"row"' "$record" | grep -cE '"check": *"fail"') || true
    [ "$bad" -eq 0 ] || refuse "$record: $bad rows failed their check"
    bad=$(grep -E '"status": *"ok"' "$record" | grep -cvE '"check": *"pass"') || true
    [ "$bad" -eq 0 ] || refuse "$record: $bad rows were not checked"

    device=$(grep -oE '"device": *\{.*' <<<"$header" | text name)
    if grep -qE '"device": *\{[^}]*"threads":' <<<"$header"; then
        device=cpu
    fi
    device=$(tr '[:upper:]' '[:lower:]' <<<"${device#NVIDIA }" | tr -cs 'a-z0-9\n' - | sed 's/^-//; s/-$//')
    date=$(text started_utc <<<"$header" | cut -c1-10 | tr -d -)
    commit=$(text commit <<<"$header")
    [ -n "$device" ] || refuse "$record: its header names no device"
    [[ $date =~ ^[0-9]{8}$ ]] || refuse "$record: its header has no date"
    case $commit in
    '' | unknown) refuse "$record: made by a program without a commit" ;;
    *dirty*) refuse "$record: made by a program with changes that are in no commit ($commit)" ;;
    esac
    echo "$device/$date-${commit:0:10}-${what:-$(text preset <<<"$header")}"
}

# without_machine RECORD: the record, its header without what names one machine and no measurement depends on: the folders
# of the command line, the suffix of the kernel's version, the board's UUID. Rows stay as they are.
without_machine() {
    sed -E '1{
        s#("command_line": *")([^ "]*/)?#\1#
        s#(--(out|csv|jsonl|impl-lib|input|dump)[ =])/[^ "]*/#\1#g
        s#("kernel": *"[0-9.]*)[^"]*"#\1"#
        s#"uuid": *"[^"]*", *##
    }' "$1"
}

# Everything is looked at before anything is written.
records=() names=()
for argument in "$@"; do
    [[ $argument == /* ]] || argument=$started_in/$argument
    [ ! -d "$argument" ] || argument=$argument/run.jsonl
    name=$(name_of "$argument")
    for other in "${names[@]}"; do
        [ "$other" != "$name" ] || refuse "$argument: two records would be $name; publish them apart with --what"
    done
    if [ -e "$results/$name.jsonl" ] && ! cmp -s <(without_machine "$argument") "$results/$name.jsonl"; then
        refuse "$argument: $results/$name.jsonl is there already and differs; give it a name with --what"
    fi
    records+=("$argument")
    names+=("$name")
done

for i in "${!records[@]}"; do
    target=$results/${names[i]}
    mkdir -p "$(dirname "$target")"
    without_machine "${records[i]}" >"$target.jsonl"
    if [ -e "${records[i]%.jsonl}.csv" ]; then
        cp "${records[i]%.jsonl}.csv" "$target.csv"
    fi
    rm -rf "$target"
    mkdir -p "$target"
    "$fabench" plot "$target.jsonl" --out "$target" --quiet
    echo "$target.jsonl: $(grep -cE '"type": *"row"' "$target.jsonl") rows, charts in $target/"
done
if [ "$results" = results ] && compgen -G 'results/h200/*.jsonl' >/dev/null; then # the README's table is the H200's
    python3 scripts/readme_table.py
fi
