#!/usr/bin/env bash
# --counters: on the CPU one sentence and empty columns; with a made-up GPU and CUPTI what was counted goes to the
# record, and where nothing can be counted the row is timed, one line says why, and the exit code is 0.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
real=$fabench
sweep=(--impl naive,fused --dtype fp32 --seqlen 64 --counters --plot none)

# column ROW NAME VALUE: a cell of a.csv.
column() { expect "$2 = '$3'" test "$(csv_cell a.csv "$1" "$2")" = "$3"; }

run_small --device cpu "${sweep[@]}" --csv a.csv
expect_code 0
expect_stderr "a CPU has none of these counters; its columns stay empty"
for name in dram_read_gb flop_done flop_types model_dram_gb model_flop; do
    column 1 $name ""
done
column 1 check pass
refused "--counters: cannot be used with --profile" --device cpu --counters --profile --impl fused

# Boards that are the CPU under the names of GPUs.
fabench=${FABENCH_BOARDS:-$(dirname "$real")/tests/fake/fabench_boards}
[ -x "$fabench" ] || { echo "no program at $fabench"; exit 1; }
export FAKE_BOARDS=ok FABENCH_LOCK_DIR=$tmp FABENCH_NVML=${FABENCH_FAKE_NVML:-$(dirname "$fabench")/libfake_nvml.so} \
    FABENCH_CUPTI=${FABENCH_FAKE_CUPTI:-$(dirname "$fabench")/libfake_cupti.so}
export FAKE_CUPTI_VALUES=dram__bytes_read.sum=5e9,lts__t_bytes.sum=7e9
run_small --device cuda:0 "${sweep[@]}" --csv a.csv
expect_code 0
column 2 l2_gb 7
# What is counted with the launch and behind it, less what emptying the L2 alone reads: here each the same.
column 2 dram_read_gb 5
# A board that is a CPU has no GEMM: FLOPs are not believed.
expect_stderr "no GEMM of known FLOPs could be counted: no flop_done"
column 2 flop_done ""
expect "--counters in the command that makes the row again" grep -q -- --counters <<<"$(csv_cell a.csv 1 repro)"

# Reads of a known size that are not counted: the bytes are not believed, and not 0.
FAKE_CUPTI_VALUES=lts__t_bytes.sum=7e9 run_small --device cuda:0 "${sweep[@]}" --csv a.csv
expect_code 0
expect_stderr "MB that were read from device memory 0 were counted: no dram_read_gb and dram_write_gb"
column 2 dram_read_gb ""
column 2 l2_gb 7

FAKE_CUPTI_FAILS=cuptiRangeProfilerEnable:35 run_small --device cuda:0 "${sweep[@]}" --csv a.csv
expect_code 0
expect_stderr "--counters: the counters: not permitted: the driver lets an administrator alone read the counters"
expect "said once" test "$(grep -c 'not permitted' "$tmp/err")" = 1
column 1 l2_gb ""
column 1 check pass

FABENCH_CUPTI=/nowhere/libcupti.so run_small --device cuda:0 "${sweep[@]}" --csv a.csv
expect_code 0
expect_stderr "FABENCH_CUPTI=/nowhere/libcupti.so cannot be loaded"

# Without the option nothing is loaded and nothing said.
FAKE_CUPTI_FAILS=cuptiProfilerInitialize:999 run_small --device cuda:0 --dtype fp32 --impl naive,fused --csv a.csv
expect_code 0
expect "no word of counters" test "$(grep -c counters "$tmp/err")" = 0
finish
