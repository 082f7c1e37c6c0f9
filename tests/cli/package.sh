#!/usr/bin/env bash
# scripts/package.sh: the package, unpacked in an empty folder, runs without this checkout and packs its results in one
# archive.
#
#   package.sh [whole]    whole: the sums of libraries over 50 MB are compared too (nightly_package)
. "$(dirname "$0")/lib.sh"
export FABENCH_BUILD
FABENCH_BUILD=$(dirname "$fabench")
command -v cmake >/dev/null || skip "no cmake to install with"
[ -e "$FABENCH_BUILD/cmake_install.cmake" ] || skip "$FABENCH_BUILD is no build folder"
limit_s=600

run_package() {
    what="package.sh $*"
    code=0
    "$root/scripts/package.sh" "$@" >out 2>err </dev/null || code=$?
}
run_package --frob
expect_code 2
expect_stderr '^package: --frob: no such option'
run_package --out
expect_code 2
FABENCH_BUILD=$tmp run_package
expect_code 1
expect_stderr '^package: no program at '

if "$fabench" --version | grep -q '; no CUDA;'; then
    run_package --out "$tmp/made"
    expect_code 1
    expect_stderr 'built without CUDA'
    expect "nothing left" test -z "$(ls made 2>/dev/null)"
    run_package --out "made here" --without-cuda # a relative path with a blank
    expect_code 0
    archive=$(echo "$tmp/made here"/fabench-*.tar.gz)
    expect_file "$archive"
    expect "no folder beside it" test "$(find "made here" | wc -l)" -eq 2
    mkdir "an empty folder"
    tar -C "an empty folder" -xzf "$archive"
else # the libraries are a gigabyte: no archive of them
    run_package --out "an empty folder" --stage
    expect_code 0
    for library in libcublas libcublasLt libcudart libnvrtc; do
        expect "$library" test -n "$(find "an empty folder" -name "$library.so.*" -size +100k)"
    done
    expect "nothing of a driver" test -z "$(find "an empty folder" -name 'libcuda.so*' -o -name 'libnvidia-*')"
fi
unpacked=$(echo "$tmp/an empty folder"/fabench-*)
expect "one folder in it" test -d "$unpacked"
cd "$unpacked" || exit 1
for file in acceptance.sh fabench bin/fabench README.txt PACKAGE.txt LICENSES/NOTICE.txt SHA256SUMS; do
    expect_file $file
done
expect "a sum of every other file" test "$(wc -l <SHA256SUMS)" -eq $(($(find . -type f | wc -l) - 1))
large=none
[ "${1:-}" = whole ] || large=$(find . -type f -size +50M -printf '%f|')none
expect "sums that are right" sh -c "grep -vE '/($large)\$' SHA256SUMS | sha256sum --quiet -c -"
expect "a README without gaps" sh -c "! grep -q '@' README.txt && grep -qE 'glibc 2\.[0-9]+ or' README.txt"
expect "no path of this machine in the program's search path" sh -c \
    "! command -v readelf >/dev/null || readelf -d bin/fabench | grep -E 'R(UN)?PATH' | grep -qF '[\$ORIGIN/../lib'"

mkdir "$tmp/vendor"
cd "$tmp/vendor" || exit 1
vendor() { # an environment with nothing of ours
    what="acceptance.sh $*"
    code=0
    env -i PATH=/usr/bin:/bin HOME=/nonexistent OMP_WAIT_POLICY=$OMP_WAIT_POLICY ASAN_OPTIONS="${ASAN_OPTIONS:-}" \
        "$unpacked/acceptance.sh" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || code=$?
}
vendor --preset quick --device cpu --seqlen 64 --d 64 --l2 hot --min-time-ms 1 --warmup-ms 0 --samples 6
expect_code 0
expect_stdout 'send back: .*/fabench-acceptance-[0-9TZ]*\.tar\.gz \(exit 0\)'
archive=$(echo fabench-acceptance-*.tar.gz)
for file in run.jsonl run.csv report/report.html report/report.csv info.txt PACKAGE.txt; do
    expect "$file in the archive" sh -c "tar -tzf '$archive' | grep -q '^fabench-acceptance-[0-9TZ]*/$file\$'"
done
rm -rf fabench-acceptance-*
vendor --out elsewhere
expect_code 2
expect_stderr '^acceptance: --out: '
vendor --seqlen 63k --frob
expect_code 2
expect_stderr 'nothing was measured \(exit 2\)'
if [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
    vendor
    expect_code 6
    expect_stderr 'nothing was measured'
    expect "no archive" test -z "$(find . -name '*.tar.gz')"
fi
finish
