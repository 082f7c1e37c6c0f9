#!/usr/bin/env bash
# Measures, on a Hopper GPU, the records that scripts/publish.sh publishes, beside FlashAttention-3 and cuDNN:
#
#   scripts/publish_run.sh [--limit-s S] [--from DIR] [--impl LIST] OUT
#
# OUT/paper and OUT/acceptance get run.jsonl.xz (the record with all samples, below 16 MiB) and log.txt. Where one call
# may last S seconds only, the records are made in parts: the exit code is 130 until both are whole, and the same
# command goes on. Its own folder is results/local/publish; where that is lost between two calls, --from names the OUT
# of the call before. The exit code is 0 when both are whole, else that of `fabench`.
#
#   --limit-s S  seconds for this call (no limit); a part ends before them
#   --impl LIST  what is measured (fused,cudnn,fa3)
#
# Needs build/release/fabench (FABENCH) of a commit without local changes, and the plugin of
# examples/peers/flash_attention_3 (FABENCH_FA3_PLUGIN; its build/fa3.so), whose library may lie beside it as .xz.
# Two calls of 600 s are enough on an H100 or H200: `--limit-s 580`.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
started_in=$PWD
cd "$(dirname "$0")/.."

limit_s='' from='' impl=fused,cudnn,fa3 out=''
usage() { echo "publish_run: $*; see --help" >&2; exit 2; }
refuse() { echo "publish_run: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
    case $1 in
    --limit-s | --from | --impl)
        [ $# -ge 2 ] || usage "$1 needs a value"
        case $1 in
        --limit-s) limit_s=$2 ;;
        --from) from=$2 ;;
        *) impl=$2 ;;
        esac
        shift 2
        ;;
    -*) usage "$1: unknown option" ;;
    *)
        [ -z "$out" ] || usage "one folder only"
        out=$1
        shift
        ;;
    esac
done
[ -n "$out" ] || usage "no folder named"
[[ -z $limit_s || $limit_s =~ ^[0-9]+$ ]] || usage "--limit-s $limit_s: must be a whole number"
[[ $out == /* ]] || out=$started_in/$out
[[ -z $from || $from == /* ]] || from=$started_in/$from

fabench=${FABENCH:-build/release/fabench}
plugin=${FABENCH_FA3_PLUGIN:-examples/peers/flash_attention_3/build/fa3.so}
work=results/local/publish
[ -x "$fabench" ] || refuse "no program at $fabench; build it first"
! "$fabench" --version | grep -qE 'dirty|unknown' || refuse "$fabench is of no commit, or of one with changes"
[ -z "$from" ] || [ -d "$from" ] || refuse "--from $from: no such folder"
peer=()
if [[ ",$impl," == *,fa3,* ]]; then
    [ -e "$plugin" ] || refuse "no $plugin: examples/peers/flash_attention_3/build.sh makes it"
    while read -r packed; do
        [ -e "${packed%.xz}" ] || xz -dk "$packed"
    done < <(find "$(dirname "$plugin")" -name '*.so*.xz')
    peer=(--impl-lib "$plugin" --peer fa3)
fi
mkdir -p "$out"

# measure NAME RESERVE-S ARGUMENT...: begins a record or goes on with it; no problem is begun in the last RESERVE-S s.
measure() {
    local name=$1 reserve_s=$2 left_s code=0 folder=$work/$1 options=()
    shift 2
    if [ ! -e "$folder/run.jsonl" ] && [ -n "$from" ] && [ -e "$from/$name/run.jsonl.xz" ]; then
        mkdir -p "$folder"
        xz -dc "$from/$name/run.jsonl.xz" >"$folder/run.jsonl"
    fi
    if [ -n "$limit_s" ]; then
        left_s=$((limit_s - SECONDS - reserve_s))
        if [ $left_s -lt 1 ]; then
            echo "publish_run: $name: no time left in this call"
            return 130
        fi
        options=(--max-time-s "$left_s")
    fi
    [ ! -e "$folder/run.jsonl" ] || options+=(--resume)
    mkdir -p "$folder" "$out/$name"
    "$fabench" "$@" --impl "$impl" "${peer[@]}" --plot none --out "$folder" "${options[@]}" >>"$folder/log.txt" 2>&1 ||
        code=$?
    tail -n 3 "$folder/log.txt"
    cp "$folder/log.txt" "$out/$name/log.txt"
    [ ! -s "$folder/run.jsonl" ] || xz -6 -c "$folder/run.jsonl" >"$out/$name/run.jsonl.xz"
    echo "publish_run: $name: exit code $code, $(grep -c '"type": *"row"' "$folder/run.jsonl" || true) rows"
    return $code
}

code=0
measure paper 20 --preset paper --dtype bf16,fp16 --warmup-ms 150 --min-time-ms 150 || code=$?
if [ $code -eq 0 ]; then
    measure acceptance 70 --preset acceptance || code=$?
fi
if [ $code -eq 130 ]; then
    echo "publish_run: not whole yet; the same command goes on"
elif [ $code -eq 0 ]; then
    echo "publish_run: both records are whole; publish them with: scripts/publish.sh $out/paper $out/acceptance"
fi
exit $code
