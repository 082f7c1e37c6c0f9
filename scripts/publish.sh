#!/usr/bin/env bash
# Puts the records of finished runs under results/ and renews what is made of them, README.md's table and
# results/report/:
#
#   scripts/publish.sh [--what NAME] DIR...
#
# DIR is what a run wrote (run.jsonl, or run.jsonl.xz). The record becomes
# results/<device>/<utcdate>-<commit>-<what>.jsonl in the form of scripts/published_record.py. <what> is the preset
# unless --what says otherwise. An older record of the same device and kind is removed: git history keeps it.
#
# Refused: a record that is synthetic, cut, without a commit, older than the published one, or with a row that failed,
# was not checked, or ended in an error or a timeout. Nothing is published unless every record passes. FABENCH names the
# program (build/release/fabench), FABENCH_RESULTS the folder (results).
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
started_in=$PWD
cd "$(dirname "$0")/.."
# shellcheck source=scripts/functions.bash
. scripts/functions.bash
fabench=${FABENCH:-build/release/fabench}
results=${FABENCH_RESULTS:-results}
what=

refuse() { echo "publish: $*" >&2; exit 1; }
usage() { echo "usage: scripts/publish.sh [--what NAME] DIR..." >&2; exit 2; }

if [ "${1:-}" = --what ]; then
    what=${2:-}
    [[ $what =~ ^[a-z0-9][a-z0-9_-]*$ ]] || {
        echo "publish: --what $what: must be made of a-z, 0-9, - and _" >&2
        exit 2
    }
    shift 2
fi
[ $# -gt 0 ] || usage
[ -x "$fabench" ] || refuse "no program at $fabench to make the report; build it first"

# text KEY: the first text of that name on stdin, a line of JSON.
text() { grep -oE "\"$1\": *\"[^\"]*\"" | head -n 1 | sed -E 's/^"[^"]*": *"//; s/"$//'; }

# name_of RECORD: "<device>/<utcdate>-<commit>-<what>" from the header of a record that is fit to be published.
name_of() {
    local record=$1 header bad device date commit
    [ -s "$record" ] || refuse "$record: no such record"
    header=$(head -n 1 "$record")
    grep -qE '^\{"type": *"header"' <<<"$header" || refuse "$record: not a record file: its first line is no header"
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

published() { python3 scripts/published_record.py "$1"; }

# same_kind TARGET: the records of the same device and kind in results/, by path without .jsonl.
same_kind() {
    local folder=${1%/*} what=${1##*/}
    what=${what#*-*-}
    [ ! -d "$folder" ] || find "$folder" -maxdepth 1 -name "[0-9]*-*-$what.jsonl" |
        grep -E "/[0-9]{8}-[0-9a-f]+-$what\.jsonl$" | sed 's/\.jsonl$//' || true
}

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT

# record_in FOLDER: the path of its record, which is unpacked where it is packed.
record_in() {
    local target
    if [ ! -e "$1/run.jsonl" ] && [ -e "$1/run.jsonl.xz" ]; then
        target=$(mktemp "$unpacked/XXXXXX.jsonl")
        xz -dc "$1/run.jsonl.xz" >"$target" || refuse "$1/run.jsonl.xz cannot be unpacked"
        echo "$target"
    else
        echo "$1/run.jsonl"
    fi
}

# Every record is examined before anything is written.
records=() targets=()
for argument in "$@"; do
    [[ $argument == /* ]] || argument=$started_in/$argument
    [ ! -d "$argument" ] || argument=$(record_in "$argument")
    name=$(name_of "$argument")
    target=$results/$name
    for other in "${targets[@]}"; do
        [ "${other%/*}/${other##*/*-*-}" != "${target%/*}/${target##*/*-*-}" ] ||
            refuse "$argument: two records of one device and kind ($name); name one of them with --what"
    done
    if [ -e "$target.jsonl" ] && ! cmp -s <(published "$argument") "$target.jsonl"; then
        refuse "$argument: $target.jsonl is there already and differs; remove it, or choose another name with --what"
    fi
    for old in $(same_kind "$target"); do
        [[ $(basename "$old" | cut -c1-8) -le $(basename "$target" | cut -c1-8) ]] ||
            refuse "$argument: $old.jsonl is newer"
    done
    records+=("$argument")
    targets+=("$target")
done

for i in "${!records[@]}"; do
    target=${targets[i]}
    for old in $(same_kind "$target"); do
        rm -f "$old.jsonl"
    done
    mkdir -p "${target%/*}"
    published "${records[i]}" >"$target.jsonl.new"
    mv "$target.jsonl.new" "$target.jsonl"
    echo "$target.jsonl: $(grep -cE '"type": *"row"' "$target.jsonl") rows"
done
if [ "$results" = results ] && compgen -G 'results/h200/*.jsonl' >/dev/null; then # the README's table is the H200's
    python3 scripts/readme_table.py
fi
FABENCH=$fabench FABENCH_RESULTS=$results scripts/report.sh
