#!/usr/bin/env bash
# --sustain-s on the CPU: every row's own region, sustained TFLOPS, and no power, for the reason that the header gives.
. "$(dirname "$0")/lib.sh"
small_l2=cold # as in a run of its own: the length of a region follows from the time of a cold pass

run_small --impl naive,fused,null --sustain-s 2 --out out_dir --plot none
expect_code 0
expect_stdout 'sustained 2\.[0-9] s: [0-9.]+ TFLOPS \([+-][0-9.]+%\), no power figures'
expect "a line for each that computes" test "$(grep -c '^ *sustained' out)" -eq 2
expect "a table of at most 110 columns" test "$(wc -L <out)" -le 110
for impl in naive fused_cpu; do
    row=$(rows out_dir/run.jsonl "\"impl\":\"$impl\"")
    expect "at least 2 s of $impl" awk -v s="$(row_value sustain_s <<<"$row")" 'BEGIN { exit !(s >= 2) }'
    expect "TFLOPS from passes and seconds" awk -v s="$(row_value sustain_s <<<"$row")" \
        -v n="$(row_value sustain_passes <<<"$row")" -v f="$(row_value flops <<<"$row")" \
        -v t="$(row_value tflops_sustained <<<"$row")" \
        'BEGIN { e = f * n / s / 1e12; exit !(t > 0.999 * e && t < 1.001 * e) }'
    for empty in power_w energy_j tflops_per_w energy_source sm_clock_mhz; do
        expect "no $empty of $impl" test -z "$(row_value $empty <<<"$row")"
    done
done
expect "no region of null" test -z "$(rows out_dir/run.jsonl '"impl":"null"' | row_value sustain_s)"
expect "the CSV's column" test -n "$(csv_cell out_dir/run.csv 1 tflops_sustained)" -a \
    -z "$(csv_cell out_dir/run.csv 1 power_w)"
expect "the reason in the header" grep -q '"telemetry":{"absent":{"all":"the device is the CPU"}}' out_dir/run.jsonl
expect "the policy in the header" grep -q '"sustain_s":2.0' out_dir/run.jsonl
expect "a repro that sustains" grep -q -- '--sustain-s 2' out_dir/run.jsonl

# Without it: burst figures alone, and no word about regions on a CPU.
run_small --jsonl burst.jsonl
expect_code 0
expect "no sustained figure" test -z \
    "$(rows burst.jsonl | row_value tflops_sustained)$(rows burst.jsonl | row_value sustain_s)"
expect "nothing about it in the table" sh -c "! grep -q sustain out"

# A wrong kernel gets no sustained region, because its speed is not reported.
run_small --impl-lib "$plugins/libwrong_cpu.so" --impl wrong_scale --sustain-s 2 --jsonl wrong.jsonl
expect_code 1
expect "a failed row without sustained figures" test -z \
    "$(rows wrong.jsonl | row_value tflops_sustained)$(rows wrong.jsonl | row_value sustain_s)"

# Ctrl-C in a region ends it at once; the row in flight is not there.
what="fabench --sustain-s 600, then SIGINT"
small --sustain-s 600 --jsonl stopped.jsonl
"$fabench" "${small[@]}" >out 2>err </dev/null &
pid=$! waited=0
while [ ! -s stopped.jsonl ] && [ $waited -lt 100 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
sleep 1
kill -INT $pid
began=$SECONDS
code=0
wait $pid || code=$?
expect "the prompt back within 5 s" test $((SECONDS - began)) -le 5
expect_code 130
expect "no row" test "$(rows stopped.jsonl | wc -l)" -eq 0

# The plan counts the regions.
run_small --impl naive,fused --dry-run
without=$(grep -oE 'about [0-9]+ s' out | grep -oE '[0-9]+')
run_small --impl naive,fused --dry-run --sustain-s 100
with=$(grep -oE 'about [0-9]+ s' out | grep -oE '[0-9]+')
expect "two regions of 100 s in the plan ($without s, $with s)" test $((with - without)) -ge 200
finish
