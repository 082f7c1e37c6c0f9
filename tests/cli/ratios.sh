#!/usr/bin/env bash
# --peer and scripts/ratios.py: whose speed a row is compared with, and speed and error between implementations.
# scripts/beside_dense.py: windows and masks beside dense problems. scripts/speed_by_data.py: speed on other data beside
# that on N(0,1). scripts/judge_cost.py: a program with the judge's defences beside it without. The records are made up.
. "$(dirname "$0")/lib.sh"

command -v python3 >/dev/null || skip "no python3"

# A peer that --impl does not name runs beside, and both rows say so.
run --device cpu --mode fwd --causal --d 64 --seqlen 64 --batch 1 --heads 1 --samples 6 --min-time-ms 1 --warmup-ms 0 \
    --l2 hot --out none --plot none --impl naive --peer fused_cpu --jsonl peer.jsonl
expect_code 0
expect_stdout 'x peer|x fused_cpu'
expect "two rows" test "$(rows peer.jsonl | wc -l)" -eq 2
expect "the peer in each" test "$(rows peer.jsonl | row_value peer | sort -u)" = fused_cpu
expect "its own ratio is 1" test "$(rows peer.jsonl '"impl": *"fused_cpu"' | row_value speedup_vs_peer)" = 1.0
expect "speedups name the other" grep -q '"speedups": *"fused_cpu=' peer.jsonl
# Of each pair of rows one has the inverse of the other's ratio, whichever row was sent first.
expect "ratios of a pair are inverse" awk '
    match($0, /"speedups": *"[a-z_]+=[0-9.e+-]+/) {
        split(substr($0, RSTART, RLENGTH), word, "=")
        ratio[++rows] = word[2]
    }
    END { product = ratio[1] * ratio[2]; exit !(rows >= 2 && product > 0.999 && product < 1.001) }' peer.jsonl
run --device cpu --seqlen 64 --impl naive,fused_cpu --peer naive --mode fwd --causal --d 64 --samples 2 --out none \
    --min-time-ms 0 --warmup-ms 0 --l2 hot --jsonl naive.jsonl
expect_code 0
expect "both rows over naive" test "$(rows naive.jsonl '"peer": *"naive"' | wc -l)" -eq 2

# record FILE: a header; row FILE IMPL SAMPLES ERROR [MORE]: a row of one problem.
record() { echo '{"type":"header","schema":1}' >"$1"; }
row() {
    printf '{"type":"row","impl":"%s","status":"ok","check":"pass","mode":"fwd","dtype":"bf16","causal":1,' "$2" >>"$1"
    printf '"batch":1,"q_heads":1,"kv_heads":1,"q_len":4096,"kv_len":4096,"head_dim":64,"layout":"bshd",' >>"$1"
    printf '"dist":"normal","logit_std":4,"l2":"cold","tensors":[{"name":"o","rel_rms_err":%s},' "$4" >>"$1"
    printf '{"name":"lse","rel_rms_err":7}]%s}\n' "${3:+,\"samples_ms\":[$3]}${5-}" >>"$1"
}
ratios() {
    what="ratios.py $*"
    code=0
    python3 "$root/scripts/ratios.py" "$@" >out 2>err </dev/null || code=$?
}

# Within rounds: 2, 2, 8 times as fast; over the fastest of two; medians over records.
record one.jsonl
row one.jsonl a 1,2,1 1e-3
row one.jsonl b 2,4,8 2e-3
row one.jsonl c 8,8,8 5e-4
ratios one.jsonl --of a --over b
expect_code 0
expect_stdout '^fwd causal d64  bf16 n=4096 batch 1 heads 1/1 std 4 +3\.175 +b +1 +0\.500 o$'
ratios one.jsonl --of a --over b,c
expect_stdout ' 3\.175 +b +1 +2\.000 o$'
expect_stdout '^fwd: 1 points, speed: geometric mean 3\.175, least 3\.175; error ratio: geometric mean 2\.000'
for speed in 5 7; do
    record "$speed.jsonl"
    row "$speed.jsonl" a '' 1e-3 ",\"speedups\":\"c=9 b=$speed\""
    row "$speed.jsonl" b '' 1e-3
done
ratios one.jsonl 5.jsonl 7.jsonl --of a --over b
expect_stdout ' 5\.000 +b +3 '
ratios one.jsonl 5.jsonl 7.jsonl --of a --over b --csv points.csv
expect_code 0
expect "the table" grep -qx 'a,b,fwd causal d64 bf16 n=4096 batch 1 heads 1/1 std 4,5\.0000,b,3,o,1\.0000' points.csv
record variants.jsonl
row variants.jsonl a 1,1,1 1e-3 ',"asked":"a:one"'
row variants.jsonl a 2,2,2 1e-3 ',"asked":"a:two"'
row variants.jsonl b 2,2,2 1e-3
ratios variants.jsonl --of a:one --over b
expect_stdout ' 2\.000 +b +1 '
ratios variants.jsonl --of a:two --over b
expect_stdout ' 1\.000 +b +1 '
record sink.jsonl # problems that differ in what is added to scores are two
for sink in 0 1; do
    row sink.jsonl a "$((sink + 1)),$((sink + 1)),$((sink + 1))" 1e-3 ",\"sink\":$sink"
    row sink.jsonl b 4,4,4 1e-3 ",\"sink\":$sink"
done
ratios sink.jsonl --of a --over b
expect_stdout ' std 4 +4\.000 +b +1 '
expect_stdout ' std 4 sink 1 +2\.000 +b +1 '
record dropout.jsonl # a fp32 number in a point's name is the one that was asked for
row dropout.jsonl a 1,1,1 1e-3 ',"dropout":0.10000000149011612'
row dropout.jsonl b 2,2,2 1e-3 ',"dropout":0.10000000149011612'
ratios dropout.jsonl --of a --over b
expect_stdout ' std 4 dropout 0\.1 +2\.000 '
ratios one.jsonl --of a --over b --csv no/points.csv
expect_code 6
expect_stderr 'no/points.csv: No such file'
ratios one.jsonl --of a --over b --least 4
expect_code 1
expect_stdout 'limit: speed'
ratios one.jsonl --of a --over c --error 1.9
expect_code 1
expect_stdout 'limit: error'
ratios one.jsonl --of a --over b --mean 3.2
expect_code 1
ratios one.jsonl --of a --over absent
expect_code 5
expect_stderr '^ratios: no point where a and one of absent passed'
ratios absent.jsonl --of a --over b
expect_code 5
echo '{' >broken.jsonl
ratios broken.jsonl --of a --over b
expect_code 5

# Attributes make other problems; a record from before there was a column has none of it.
record masks.jsonl
row masks.jsonl a 1,1,1 1e-3
row masks.jsonl b 2,2,2 1e-3 ',"block_mask":"none","window_left":-1,"lengths":"fixed"'
row masks.jsonl a 1,1,1 1e-3 ',"block_mask":"random:0.5","mask_block":128'
row masks.jsonl b 3,3,3 1e-3 ',"block_mask":"random:0.5","mask_block":128'
row masks.jsonl b 9,9,9 1e-3 ',"block_mask":"random:0.1","mask_block":128'
ratios masks.jsonl --of a --over b
expect_code 0
expect_stdout '^fwd causal d64  bf16 n=4096 batch 1 heads 1/1 std 4 +2\.000 '
expect_stdout '^fwd causal .* mask random:0\.5 of 128 +3\.000 '
expect_stdout '^fwd: 2 points'

# The sustained regions: speed and joules, not of the rounds.
record sustained.jsonl
row sustained.jsonl a 1,1,1 1e-3 ',"tflops_sustained":600,"energy_j":0.9'
row sustained.jsonl b 9,9,9 1e-3 ',"tflops_sustained":500,"energy_j":1.2'
row sustained.jsonl c 9,9,9 1e-3 ',"tflops_sustained":400,"energy_j":1.0'
ratios sustained.jsonl --of a --over b --sustained --least 1.2 --energy 1 --csv energy.csv
expect_code 0
expect_stdout ' 1\.200 +b +1 +0\.750$'
expect "the table of joules" grep -qE '^a,b,fwd .*,1\.2000,b,1,energy,0\.7500$' energy.csv
ratios sustained.jsonl --of a --over b,c --sustained --energy 0.8
expect_code 1
expect_stdout ' 1\.200 +b +1 +0\.900   limit: joules$'
ratios one.jsonl --of a --over b --sustained
expect_code 5
expect_stderr 'with sustained regions$'

# ---- beside_dense: 40 % of the pairs are visible and take half the time: 0.8 of the dense speed ----
dense() {
    what="beside_dense.py $*"
    code=0
    python3 "$root/scripts/beside_dense.py" "$@" >out 2>err </dev/null || code=$?
}
record dense.jsonl
row dense.jsonl a 1,1,1 1e-3 ',"flops":1000,"time_ms":10,"tflops":100'
row dense.jsonl b 1,1,1 1e-3 ',"flops":1000,"time_ms":2,"tflops":500'
row dense.jsonl a 1,1,1 1e-3 ',"flops":400,"time_ms":5,"tflops":80,"window_left":64'
dense dense.jsonl --of a --bars --csv dense.csv
expect_code 0
expect_stdout '^fwd causal .* left 64 +0\.4000 +5\.000 +10\.000 +5\.000 +1\.000 +0\.800$'
expect "the table" grep -q ' std 4 left 64,0.4000,5.0000,10.0000,5.0000,1.0000,80.0,0.8000,,,,1$' dense.csv
row dense.jsonl a 1,1,1 1e-3 ',"flops":450,"time_ms":5.03,"tflops":80,"block_mask":"random:0.45","mask_block":64'
dense dense.jsonl --of a --bars
expect_code 1
expect_stdout 'mask random:0\.45 of 64 .* 5\.020 +1\.002 .*above$'
dense dense.jsonl --of a
expect_code 0
row dense.jsonl a 1,1,1 1e-3 ',"flops":1000,"time_ms":10.2,"tflops":98,"block_mask":"random:1","mask_block":64'
dense dense.jsonl --of a
expect_stdout 'mask random:1 of 64 .* 10\.300 +0\.990 '
record gemm.jsonl
row gemm.jsonl a 1,1,1 1e-3 ',"flops":1000,"time_ms":10,"tflops":100,"pct_of_gemm":40'
row gemm.jsonl a 1,1,1 1e-3 ',"flops":400,"time_ms":5,"tflops":80,"window_left":64,"pct_of_gemm":36,"sm_clock_mhz":1500'
dense gemm.jsonl --of a --csv gemm.csv
expect_code 0
expect_stdout ' left 64 .* 0\.800 +0\.900$'
expect "the share by GEMM, the clock" grep -q ',0.8000,0.9000,1500,,1$' gemm.csv
dense dense.jsonl --of b
expect_code 5
expect_stderr '^beside_dense: no window or block mask of b'
dense one.jsonl
expect_code 2

# ---- speed_by_data: row() has a standard deviation of 4; usual() the same problem with 1 ----
usual() {
    row other.jsonl "$2" 1,1,1 1e-3 "${3-}"
    sed 's/"logit_std":4/"logit_std":1/' other.jsonl | tail -n 1 >>"$1"
}
by_data() {
    what="speed_by_data.py $*"
    code=0
    python3 "$root/scripts/speed_by_data.py" "$@" >out 2>err </dev/null || code=$?
}
record data.jsonl
usual data.jsonl a ',"time_ms":9,"sm_clock_mhz":1500'
usual data.jsonl b ',"time_ms":8'
row data.jsonl a 1,1,1 1e-3 ',"time_ms":10,"sm_clock_mhz":1800'
row data.jsonl b 1,1,1 1e-3 ',"time_ms":10'
by_data data.jsonl --of a --over b --least 0.9 --csv share.csv
expect_code 0
expect_stdout '^fwd causal .* std 4 +0\.900 +0\.800 +1\.200 +1$'
expect "the table of shares" grep -qE '^a,b,fwd .* std 4,0\.9000,0\.8000,1\.2000,1$' share.csv
by_data data.jsonl --of a --over b --least 0.95 # the other one has less
expect_code 0
by_data data.jsonl --of b --over a --least 0.81
expect_code 1
expect_stdout ' 0\.800 +0\.900 +- +1   limit$'
record again.jsonl # the median of 0.9 and 0.7
usual again.jsonl a ',"time_ms":7'
usual again.jsonl b ',"time_ms":8'
row again.jsonl a 1,1,1 1e-3 ',"time_ms":10'
row again.jsonl b 1,1,1 1e-3 ',"time_ms":10'
by_data data.jsonl again.jsonl --of a --over b
expect_code 0
expect_stdout ' 0\.800 +0\.800 +1\.200 +2$'
by_data data.jsonl --of a --over b --csv missing/share.csv
expect_code 6
record timeless.jsonl
usual timeless.jsonl a ',"time_ms":9'
usual timeless.jsonl b ',"time_ms":9'
row timeless.jsonl a 1,1,1 1e-3
row timeless.jsonl b 1,1,1 1e-3
by_data timeless.jsonl --of a --over b
expect_code 5
by_data one.jsonl --of a --over b
expect_code 5
expect_stderr '^speed_by_data: no point where a and b passed'
by_data data.jsonl --of a
expect_code 2

# What the judge costs: medians over the records of each side, ratios within rounds, the bars.
cost() {
    what="judge_cost.py $*"
    code=0
    python3 "$root/scripts/judge_cost.py" "$@" >out 2>err </dev/null || code=$?
}
judged() { # judged FILE MS-OF-A SAMPLES
    record "$1"
    row "$1" a "$2,$2" 1e-3 ",\"time_ms\":$2,\"samples\":$3"
    row "$1" b 2,2 1e-3 ",\"time_ms\":2,\"samples\":$3"
}
judged before.jsonl 1 100
judged after.jsonl 1.001 96
judged slow.jsonl 1.02 96
cost --with after.jsonl --without before.jsonl --bars --seconds 104 100 --csv cost.csv
expect_code 0
expect_stdout '^fwd causal .* a +1\.0010 +1\.0000 +\+0\.10%'
expect_stdout '^samples: -4\.00 %.*: met'
expect_stdout '^medians, longer: \+0\.05 %.*: met'
expect_stdout '^ratios between implementations: -0\.10 %.*: met'
expect_stdout '^wall time: \+4\.00 %.*: met'
expect "the table" grep -qE '^fwd causal .*,a,1\.001,1,1\.001,' cost.csv
cost --with after.jsonl --without before.jsonl --bars --seconds 106 100
expect_code 1
expect_stdout '^wall time: \+6\.00 %.*NOT MET'
cost --with slow.jsonl --without before.jsonl --bars
expect_code 1
expect_stdout '^medians, longer: \+1\.00 %.*NOT MET'
expect_stdout '^ratios between implementations: -1\.96 %.*NOT MET'
cost --with slow.jsonl after.jsonl after.jsonl --without before.jsonl --bars
expect_code 0
judged few.jsonl 1 94
cost --with few.jsonl --without before.jsonl --bars
expect_code 1
expect_stdout '^samples: -6\.00 %.*NOT MET'
cost --with few.jsonl --without before.jsonl
expect_code 0
cost --with after.jsonl --without one.jsonl
expect_code 5
finish
