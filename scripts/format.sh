#!/usr/bin/env bash
# Lays out the C, C++ and CUDA files that git tracks as .clang-format says. clang-format leaves comments and long texts
# as they are, and knows nothing of shell scripts: --check also looks for lines of more than 120 columns in both.
#
#   scripts/format.sh           formats them in place
#   scripts/format.sh --check   changes nothing; lists the files that differ and the lines that are too long; exit 1
#                               where there is one
#
# Major versions of clang-format differ in what they do with the same settings: only 14 is used. Where there is none,
# one line says so and the exit code is 77.
set -euo pipefail
version=14
columns=120
check=
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
--check) check=1 ;;
?*)
    echo "format: $1: no such option; --check or none" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."

# Lines that are too long, as "FILE:LINE: N columns"; fails where there is one.
lines_fit() {
    git ls-files -z -- '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.sh' | xargs -0 awk -v most=$columns '
        length($0) > most { printf "%s:%d: %d columns\n", FILENAME, FNR, length($0); bad = 1 }
        END { exit bad }'
}
code=0
if [ -n "$check" ] && ! lines_fit; then
    echo "format: lines of more than $columns columns" >&2
    code=1
fi

tool=
for name in clang-format-$version clang-format; do
    if [[ $("$name" --version 2>/dev/null || true) =~ version\ $version\. ]]; then
        tool=$name
        break
    fi
done
if [ -z "$tool" ]; then
    echo "format: no clang-format $version here: the layout was not checked or changed" >&2
    [ $code -ne 0 ] || code=77
    exit $code
fi
files() { git ls-files -z -- '*.c' '*.h' '*.cu' '*.cuh' '*.cpp'; }
if [ -z "$check" ]; then
    files | xargs -0 -n 16 -P "$(nproc)" "$tool" --style=file -i
    exit
fi
# Each line "FILE:1:2: error: code should be clang-formatted".
differing=$({ files | xargs -0 -n 16 -P "$(nproc)" "$tool" --style=file --dry-run --Werror 2>&1 || true; } |
    sed -n 's/^\(.*\):[0-9]*:[0-9]*: error: .*/\1/p' | sort -u)
if [ -n "$differing" ]; then
    echo "$differing"
    echo "format: $(wc -l <<<"$differing") files differ; scripts/format.sh formats them" >&2
    code=1
fi
exit $code
