#!/usr/bin/env bash
# A compiler launcher: runs a compiler and saves its stderr in OBJECT.report, next to the object file, so that the
# report remains when a later build does not compile the object again. tests/cli/built_kernels.sh reads it.
#
#   scripts/keep_compiler_report.sh COMPILER ARGUMENT... -o OBJECT ARGUMENT...
set -u
case ${1:-} in
--help | -h | '')
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
object=
previous=
for word in "$@"; do
    [ "$previous" != -o ] || object=$word
    previous=$word
done
[ -n "$object" ] || exec "$@" # it makes no file: there is nothing to keep
rm -f "$object.report"
code=0
"$@" 2>"$object.report.part" || code=$?
cat "$object.report.part" >&2
if [ $code -eq 0 ]; then
    touch "$object.report.part" # never older than the object
    mv "$object.report.part" "$object.report"
else
    rm -f "$object.report.part"
fi
exit $code
