#!/bin/sh
# The acceptance run: measures and checks this machine's GPU, makes a report of it, and packs both to be sent back.
#
#   ./acceptance.sh [--device cuda:1] [other options of fabench]
#
# Takes about ten minutes. Everything lies in fabench-acceptance-<utc>/ in the folder where it is started, and in
# fabench-acceptance-<utc>.tar.gz. The exit code is fabench's: 0 measured and every result checked, 1 a result was
# wrong, 2 options, 6 no usable GPU, 7 files.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 7
preset="--preset acceptance"
device= # of info: the device that is measured
last=
for word in "$@"; do
    [ "$last" != --device ] || device=$word
    last=$word
    case $word in
    --device=*) device=${word#--device=} ;;
    --out | --out=* | --jsonl | --jsonl=* | --plot | --plot=*)
        echo "acceptance: $word: where the results go is fixed; move fabench-acceptance-<utc>/ afterwards" >&2
        exit 2
        ;;
    --preset | --preset=*) preset= ;;
    esac
done

if ! "$here/fabench" --version >/dev/null 2>&1; then
    echo "acceptance: the program does not start here:" >&2
    "$here/fabench" --version >&2
    exit 6
fi

out=fabench-acceptance-$(date -u +%Y%m%dT%H%M%SZ)
if [ -e "$out" ]; then
    echo "acceptance: $out is there already; start again in a second" >&2
    exit 7
fi
# shellcheck disable=SC2086 # two words or none
"$here/fabench" $preset "$@" --out "$out" --plot none
code=$?
if [ ! -s "$out/run.jsonl" ] || ! grep -q '"type": *"row"' "$out/run.jsonl"; then
    echo "acceptance: nothing was measured (exit $code)" >&2
    [ "$code" -ne 0 ] || code=7
    exit "$code"
fi
"$here/fabench" report "$out/run.jsonl" --out "$out/report" --quiet ||
    echo "acceptance: the report could not be made; the record is whole" >&2
# `info` only describes the device, so its exit code is ignored.
"$here/fabench" info ${device:+--device "$device"} >"$out/info.txt" 2>&1 || true
cp "$here/PACKAGE.txt" "$out/" 2>/dev/null
if tar -czf "$out.tar.gz" "$out"; then
    echo "send back: $PWD/$out.tar.gz (exit $code)"
else
    echo "acceptance: $out.tar.gz could not be written; send the folder $PWD/$out (exit $code)" >&2
    [ "$code" -ne 0 ] || code=7
fi
exit "$code"
