#!/usr/bin/env bash
# examples/plugin builds against the installed header alone and runs in the installed program.
. "$(dirname "$0")/lib.sh"

build=${FABENCH_BUILD:-$(dirname "$fabench")}
command -v cmake >/dev/null || skip "no cmake"
what="cmake --install $build"
checks=$((checks + 1))
cmake --install "$build" --prefix "$tmp/prefix" >out 2>err || fail "cmake --install failed"
expect_file prefix/include/fabench/attention.h
expect_file prefix/bin/fabench

# No other header of the checkout is in reach.
what="building examples/plugin"
cp -r "$root/examples/plugin" source
checks=$((checks + 1))
{ cmake -S source -B plugin_build -DCMAKE_PREFIX_PATH="$tmp/prefix" -DCMAKE_CUDA_COMPILER=NOTFOUND &&
    cmake --build plugin_build; } >out 2>err || fail "it does not build"
expect_file plugin_build/plugin_cpu.so

fabench=$tmp/prefix/bin/fabench
run --version
expect_code 0
run --device cpu --impl-lib plugin_build/plugin_cpu.so --impl plugin_cpu,fused --seqlen 200 --kv-len 300 --d 64 \
    --batch 2 --heads 4 --kv-heads 2 --warmup-ms 0 --min-time-ms 1 --samples 3 --max-noise 100% \
    --out none --plot none --csv -
expect_code 0
expect "fwd and bwd, full and causal, both implementations" test "$(wc -l <out)" -eq 9
expect "all of them pass" test "$(for i in 1 2 3 4 5 6 7 8; do csv_cell out $i check; done | sort -u)" = pass
run list --device cpu --impl-lib plugin_build/plugin_cpu.so
expect_stdout 'plugin_cpu'
run verify --device cpu --invariance --impl-lib plugin_build/plugin_cpu.so --impl plugin_cpu --preset quick --d 64 \
    --repeats 0 --out none
expect_code 0
expect_stdout '^plugin_cpu:invariant: the same bits in all batches, ([0-9]+) of \1 rows$'
finish
