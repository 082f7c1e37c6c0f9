#!/usr/bin/env bash
# A compiler launcher: runs a compiler and keeps what it says on stderr in OBJECT.report, beside the object file. A build
# that has nothing to do so leaves the report of the build that compiled; tests/cli/compiler_report.sh reads it.
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
