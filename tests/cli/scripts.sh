#!/usr/bin/env bash
# What scripts/setup.sh writes for the build, and what CMake makes of it: CUDA only where there is a driver or it is
# asked for, the folder of a cuDNN that set-up brought, warnings as errors for developers alone. Nothing is downloaded
# or installed: a toolkit and cuDNN are made up, pip has no index, and apt-get is a stand-in that fails.
# scripts/publish.sh takes good records, names them by device, date and commit, and refuses the others in a sentence.
# scripts/gpu_check.sh asks every tile for its own head_dim, and for dense attention only those that take it.
# It fails on a report of racecheck that is not of the explained kind.
. "$(dirname "$0")/lib.sh"

command -v cmake >/dev/null || skip "no cmake"
unset FABENCH_CUDA FABENCH_WERROR CUDACXX CUDA_HOME CUDA_PATH FABENCH_SETUP_PRETEND_DRIVER
has_driver() {
    [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null || [ -e /usr/lib/wsl/lib/libcuda.so.1 ] ||
        PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libcuda\.so\.1'
}
mkdir -p stubs checkout/.deps
for tool in apt-get sudo; do
    printf '#!/bin/sh\nexit 1\n' >stubs/$tool
done
cp -r "$root/scripts" checkout/
# set_up WORDS...: env WORDS... scripts/setup.sh; the arguments for CMake become $arguments.
set_up() {
    what="scripts/setup.sh with $*"
    code=0
    env "PATH=$tmp/stubs:$PATH" PIP_NO_INDEX=1 "$@" checkout/scripts/setup.sh >out 2>err </dev/null || code=$?
    expect_code 0
    arguments=$(sed -n 's/^fabench_cmake_arguments=//p' checkout/.deps/setup.env)
}
expect_argument() { expect "$1 for CMake, not: $arguments" grep -qF -- "'$1'" <<<"$arguments"; }
expect_no_argument() { expect "no $1 for CMake" sh -c "! grep -qF -- '$1' <<'END'
$arguments
END"; }
# a_toolkit FOLDER: a compiler that says its version.
a_toolkit() {
    mkdir -p "$1/bin" "$1/include"
    printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' >"$1/bin/nvcc"
    chmod +x "$1/bin/nvcc"
    touch "$1/include/cudnn.h"
}
chmod +x stubs/*

# A driver, and what set-up brought before: the wheels of the toolkit, the front end's headers, cuDNN.
deps=$tmp/checkout/.deps
a_toolkit "$deps/cuda"
mkdir -p "$deps/cudnn-frontend/include" "$deps/cudnn/lib"
touch "$deps/cudnn-frontend/include/cudnn_frontend.h" "$deps/cudnn/lib/libcudnn.so.9"
set_up FABENCH_SETUP_PRETEND_DRIVER=13000
expect_argument "-DCMAKE_CUDA_COMPILER=$deps/cuda/bin/nvcc"
expect_argument "-DFABENCH_CUDA=ON"
expect_argument "-DFABENCH_CUDNN_DIR=$deps/cudnn"
expect_argument "-DCMAKE_INSTALL_RPATH=$deps/cuda/lib"
expect_argument "-DFABENCH_CUDNN_FRONTEND_DIR=$deps/cudnn-frontend/include"

# A toolkit without a driver: no headers are fetched unless CUDA is asked for.
rm -rf "$deps"
a_toolkit "$tmp/toolkit"
if ! has_driver; then
    set_up CUDACXX="$tmp/toolkit/bin/nvcc"
    expect_stderr 'no GPU driver: building without CUDA \(FABENCH_CUDA=ON builds with it\)'
    expect "nothing fetched" sh -c '! grep -q fetch err'
    expect_no_argument -DFABENCH_CUDNN_DIR
    set_up CUDACXX="$tmp/toolkit/bin/nvcc"
    expect_no_stderr # set up already
    set_up CUDACXX="$tmp/toolkit/bin/nvcc" FABENCH_CUDA=ON
    expect_stderr "could not fetch the headers of cuDNN's frontend"
    expect_argument "-DCMAKE_CUDA_COMPILER=$tmp/toolkit/bin/nvcc"
fi

# CMake by hand. configured NAME ARGUMENT...: configures the sources; NAME is the folder.
configured() {
    local folder=$1
    shift
    what="cmake $*"
    code=0
    (cd "$root" && cmake -B "$tmp/$folder" -DFABENCH_TESTS=OFF "$@") >out 2>err </dev/null || code=$?
}
setting() { sed -n "s/^$2:[A-Z]*=//p" "$1/CMakeCache.txt"; }
if ! has_driver; then
    configured by-hand --preset release
    expect_code 0
    expect_stdout '^-- CUDA: OFF \(no GPU driver here; -DFABENCH_CUDA=ON builds with CUDA\)'
    expect "warnings that are no errors" test "$(setting by-hand FABENCH_WERROR)" = OFF
fi
configured asan --preset asan
expect_code 0
expect_stdout '^-- CUDA: OFF, peer'
expect "warnings that are errors" test "$(setting asan FABENCH_WERROR)" = ON
configured wrong -DFABENCH_CUDA=maybe
expect "a refusal" test "$code" -ne 0
expect_stderr 'FABENCH_CUDA=maybe: must be AUTO, TOOLKIT, ON or OFF'
for preset in debug one-arch; do
    expect "FABENCH_WERROR of the preset $preset" python3 - "$preset" "$root/CMakePresets.json" <<'END'
import json, sys
presets = {p["name"]: p["cacheVariables"] for p in json.load(open(sys.argv[2]))["configurePresets"]}
sys.exit(presets[sys.argv[1]].get("FABENCH_WERROR") != "ON" or presets["one-arch"].get("FABENCH_CUDA") != "TOOLKIT")
END
done

# ---- publish ----
next_part
publish=$root/scripts/publish.sh
export FABENCH=$fabench FABENCH_RESULTS=$tmp/results

run_small --impl naive,fused --out run_dir --plot none
expect_code 0
# A build of a checkout with changes, or of none, is refused; the rest needs a record with a commit.
sed -i -E 's/"commit": *"[^"]*"/"commit": "0123456789abcdef"/g' run_dir/run.jsonl

run_publish() {
    what="publish.sh $*"
    code=0
    "$publish" "$@" >out 2>err </dev/null || code=$?
}
run_publish run_dir
expect_code 0
record=$(find results -name '*.jsonl')
expect "results/cpu/<date>-<commit>-<what>.jsonl, not $record" grep \
    -qE '^results/cpu/20[0-9]{6}-0123456789-[a-z0-9]+\.jsonl$' <<<"$record"
expect "nothing beside the record" test "$(find results/cpu -type f)" = "$record"
expect_file results/report/report.md
run_publish run_dir # again: the same record is no conflict
expect_code 0
mkdir other_dir
sed -E 's/"run_id": *"[^"]*"/"run_id":"another"/' run_dir/run.jsonl >other_dir/run.jsonl
run_publish --what other other_dir
expect_code 0
expect_file "$(echo results/cpu/*-other.jsonl)"
expect_file "$record" # another kind: it stays
expect "samples in the run's record" grep -q samples_ms run_dir/run.jsonl
expect "neither samples nor commands of rows" sh -c "! grep -qE 'samples_ms|repro' '$record'"
expect "the rows, their checked figures and errors, to 6 digits" python3 - run_dir/run.jsonl "$record" <<'PYTHON'
import json, sys
whole, published = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
assert len(whole) == len(published) > 2
for a, b in zip(whole[1:], published[1:]):
    left_out = set(a) - set(b)
    assert {"samples_ms", "repro", "softcap"} <= left_out and not set(b) - set(a)
    assert all(a[key] in ("fixed", "none", 0) for key in left_out - {"samples_ms", "repro", "pci"}), left_out
    for key, value in b.items():
        if isinstance(value, float):
            assert abs(value - a[key]) <= 5e-6 * abs(a[key]), key
        elif key != "tensors":
            assert value == a[key], key
    for full, short in zip(a["tensors"], b["tensors"], strict=True):
        assert set(short) == {"name", "rel_rms_err", "used"} and short["name"] == full["name"]
assert "uuid" not in published[0]["device"] and published[0]["policy"]["samples"] == whole[0]["policy"]["samples"]
PYTHON
run plot "$record" --out again # it is still a record
expect_code 0
expect "no folder of this machine in the header" sh -c "! head -n 1 '$record' | grep -qF '$tmp'"

# A packed record is taken, too.
mkdir packed
xz -c run_dir/run.jsonl >packed/run.jsonl.xz
rm -r results
run_publish packed
expect_code 0
expect_file "$record"

# An older record of the same device and kind is replaced; a newer one is not; nor one of the same
# name.
kind=${record##*-}
old=results/cpu/20200101-abcdef0123-$kind new=results/cpu/20990101-abcdef0123-$kind
cp "$record" "$old"
run_publish run_dir
expect_code 0
expect_file "$record"
expect "the older one gone" test ! -e "$old"
cp "$record" "$new"
run_publish run_dir
expect_code 1
expect_stderr '^publish: .* is newer'
rm "$new"
run_publish run_dir run_dir
expect_code 1
expect_stderr '^publish: .*two records of one device and kind'
echo '{"type":"row","impl":"added"}' >>"$record"
run_publish run_dir
expect_code 1
expect_stderr '^publish: .* is there already and differs'

refused() { # refused REGEX: bad/run.jsonl is not published
    rm -rf results
    run_publish bad
    expect_code 1
    expect "one sentence" test "$(wc -l <err)" -eq 1
    expect_stderr "^publish: .*$1"
    expect "nothing written" test ! -e results
}
mkdir bad
edit() { sed -E "$1" run_dir/run.jsonl >bad/run.jsonl; }
edit '3s/"check": *"pass"/"check": "fail"/'; refused '1 rows failed'
edit '2s/"check": *"pass"/"check": "off"/'; refused 'not checked'
edit '2s/"status": *"ok"/"status": "error"/'; refused 'error'
edit '2s/"status": *"ok"/"status": "timeout"/'; refused 'timeout'
edit 's/"commit": *"[^"]*"/"commit": "0123456789-dirty"/'; refused 'changes'
edit 's/"commit": *"[^"]*"/"commit": "unknown"/'; refused 'commit'
edit '1s/"type": *"header"/"type": "header", "synthetic": true/'; refused 'synthetic'
edit '1d'; refused 'header'
edit '2,$d'; refused 'no row'
head -c -5 run_dir/run.jsonl >bad/run.jsonl; refused 'cut'
rm bad/run.jsonl; refused 'no such record'
edit '3s/"check": *"pass"/"check": "fail"/'
rm -rf results
run_publish run_dir bad # one refused record: nothing is published
expect_code 1
expect "nothing written" test ! -e results
run_publish
expect_code 2

# ---- gpu_check ----

mkdir -p gpu_build
cat >gpu_build/fabench <<'END'
#!/bin/sh
echo "$*" >>"$0.log"
[ "$1" = list ] || exit 0
cat <<'LIST'
fused_new    cuda
             fp16, bf16: runs here
             variant fwd_d96_m128n64  128 x 64 tile
             variant d64_kv128q64     128 keys x 64 queries
             variant d64_kv64q32      64 keys x 32 queries; not dense attention
             variant bwd_d64_k128q64  128 keys x 64 queries
other        cuda
             variant fwd_d64_other    runs nowhere
LIST
END
chmod +x gpu_build/fabench
# gpu_check STAGE...: its exit code is $code.
gpu_check() {
    what="scripts/gpu_check.sh $*"
    code=0
    FABENCH_BUILD=$tmp/gpu_build "$root/scripts/gpu_check.sh" --out "$tmp/gpu_out" "$@" >out 2>err </dev/null || code=$?
}
gpu_check verify
expect_code 0
asked() { expect "asked: $1" grep -qxF -- "$1" gpu_build/fabench.log; }
asked "verify --device cuda:0 --preset quick --d 96 --impl fused_new:fwd_d96_m128n64 --out none"
asked "verify --device cuda:0 --preset quick --d 64 --impl fused_new:d64_kv64q32 --out none"
options="--mode bwd --deterministic --d 64 --impl fused_new:bwd_d64_k128q64 --out none"
asked "verify --device cuda:0 --preset quick $options"
expect "no tile of others" sh -c '! grep -q fwd_d64_other gpu_build/fabench.log'
expect "dense attention of a tile that takes it" \
    grep -q -- '--seqlen 1k,4k .*--impl fused_new:d64_kv128q64,fused_new:bwd_d64_k128q64 ' gpu_build/fabench.log
expect "a step for each tile, two for those named bwd_" \
    [ "$(grep -c 'kv\|fwd_d\|bwd_d' gpu_out/gpu-check/summary.txt)" -eq 5 ]
sed -i '/variant/d' gpu_build/fabench
gpu_check verify
expect_code 6
expect_stdout "no tile listed"
printf '#!/bin/sh\n[ "$1" != list ] || exit 6\n' >gpu_build/fabench
gpu_check verify
expect_code 6
expect_stdout "no tile listed"
expect_stdout "^archive: "
gpu_check verify nothing
expect_code 2

# racecheck's reports, from a stand-in that prints the file `reports`.
mkdir -p tools
cat >tools/compute-sanitizer <<END
#!/bin/sh
cat "$tmp/reports"
END
chmod +x tools/compute-sanitizer
printf '#!/bin/sh\n' >gpu_build/fabench
write='========= Error: Race reported between Write access at device::bulk_load(int)+0xa0 in copy_engine.cuh:99'
known='=========     and Read access at device::load_shared_float2(unsigned int)+0x80 in memory.cuh:46 [8]'
nowhere='=========     and Read access at void sm90_bwd::backward<Tile>(params)+0x38 [8 hazards]'
elsewhere='=========     and Read access at void sm90_bwd::backward<Tile>(params)+0x40 in work.cuh:7 [8 hazards]'
closing='========= RACECHECK SUMMARY: 1 hazard displayed'
# racecheck_ends CODE LINE...: how the stage ends when the tool prints these lines.
racecheck_ends() {
    local expected=$1
    shift
    printf '%s\n' "$@" >reports
    PATH=$tmp/tools:$PATH gpu_check racecheck-bwd
    what="$what with: $*"
    expect_code "$expected"
}
racecheck_ends 0 "$write" "$known" "$closing"
racecheck_ends 0 "$write" "$nowhere" "$known" "$closing"
racecheck_ends 1 "$write" "$nowhere" "$closing"
racecheck_ends 1 "$write" "$known" "$write" "$nowhere" "$closing"
racecheck_ends 1 "$write" "$elsewhere" "$known" "$closing"
racecheck_ends 1 "$write" "$known"
# Which part of the keys a work tile has, in either order; its lines are those of the sources.
line_of() { grep -n 'smem\.key_part\[' "$root/kernels/sm90/$1" | head -n 1 | cut -d: -f1; }
read="Read access at void sm90_fwd::consume<Tile>(int)+0xcb0 in consumer.cuh:$(line_of fwd/consumer.cuh)"
write="Write access at void sm90_fwd::publish_work_tile<Tile>(int)+0x80 in producer.cuh:$(line_of fwd/producer.cuh)"
report='========= Error: Race reported between'
racecheck_ends 0 "$report $read" "=========     and $write [8 hazards]" "$closing"
racecheck_ends 0 "$report $write" "=========     and $read [8 hazards]" "$closing"
racecheck_ends 1 "$report $write" "=========     and ${read%:*}:1 [8 hazards]" "$closing"
racecheck_ends 1 "$report $write" "=========     and $write [8 hazards]" "$closing"

finish
