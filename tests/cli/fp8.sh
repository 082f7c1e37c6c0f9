#!/usr/bin/env bash
# 8-bit inputs: run, checked, recorded, repeated from `repro`, continued, dumped and read again; wrong input; records
# from before there were such columns.
. "$(dirname "$0")/lib.sh"

refused_by="run --device cpu"

refused '--out-dtype e4m3.*bf16 or fp16' --dtype e4m3 --out-dtype e4m3
refused '--out-dtype fp16.*--dtype bf16' --dtype bf16 --out-dtype fp16
refused '--fp8-scale head.*--dtype fp16' --dtype fp16,e4m3 --fp8-scale head
refused '--fp8-scale head.*--dtype e4m3' --fp8-scale head
refused '--scale-block 64.*--dtype bf16' --dtype bf16 --scale-block 64
refused '--scale-block 64.*--fp8-scale block' --dtype e4m3 --scale-block 64
refused '--hadamard.*--dtype fp32' --dtype fp32 --hadamard
refused '--hadamard.*--d 96' --dtype e4m3 --hadamard --d 64,96
refused '--quant-in-time: cannot be used with --input' --dtype e4m3 --quant-in-time --input .
refused '--mode bwd.*--dtype e4m3' --dtype e4m3 --mode bwd
refused '--mode bwd.*--dtype e5m2' --dtype bf16,e5m2 --mode bwd

common=(--device cpu --d 64 --heads 4 --kv-heads 2 --warmup-ms 0 --min-time-ms 1 --samples 6 --max-noise 100% --l2 hot
    --impl naive,fused)
run "${common[@]}" --seqlen 130 --batch 2 --dtype e4m3,e5m2 --fp8-scale tensor,head,block --scale-block 48 --causal \
    --out none --jsonl a.jsonl --csv a.csv
expect_code 0
expect_stdout '12 of 12 rows checked.*all pass'
expect_stdout 'e4m3.*scale block of 48'
expect_stdout 'quantising the inputs changes O by a relative RMS of 0\.0'
expect "the mode" test "$(csv_cell a.csv 1 mode)" = fwd
expect "the dtype" test "$(csv_cell a.csv 1 dtype)" = e4m3
expect "the type of O" test "$(csv_cell a.csv 1 out_dtype)" = bf16
expect "one scale each" test "$(csv_cell a.csv 1 quant_scale)" = tensor
expect "no blocks" test "$(csv_cell a.csv 1 scale_block)" = 0
expect "blocks" test "$(csv_cell a.csv 5 scale_block)" = 48
error=$(csv_cell a.csv 2 rel_rms_err)
expect "its error is that of bf16" test "$(awk -v x="$error" 'BEGIN { print (x < 0.004) }')" = 1
expect "e4m3 keeps 3 bits" \
    test "$(awk -v x="$(csv_cell a.csv 1 quant_rms_err)" 'BEGIN { print (x > 0.02 && x < 0.06) }')" = 1
expect "e5m2 keeps 2 bits" \
    test "$(awk -v x="$(csv_cell a.csv 7 quant_rms_err)" 'BEGIN { print (x > 0.04 && x < 0.12) }')" = 1
expect "its time" test "$(awk -v x="$(csv_cell a.csv 1 quant_ms)" 'BEGIN { print (x > 0) }')" = 1

# A list with 16 or 32 bits, without those options: both are run.
run "${common[@]}" --seqlen 64 --batch 1 --dtype fp32,e4m3 --causal --out none --csv both.csv
expect_code 0
expect_stdout '6 of 6 rows checked.*all pass'
expect "no type of O of its own" test -z "$(csv_cell both.csv 1 out_dtype)"
expect "no scales" test "$(csv_cell both.csv 1 quant_scale)" = none
expect "nothing quantised" test -z "$(csv_cell both.csv 1 quant_rms_err)"

# Packed sequences, another output, a rotation; some heads of them.
for scope in full sample; do
    run "${common[@]}" --lengths list:70:0x5:90x100 --dtype e4m3 --out-dtype fp16 --fp8-scale tensor,head,block \
        --scale-block 32 --hadamard --check $scope --out none --csv packed.csv
    expect_code 0
    expect_stdout '12 of 12 rows checked.*all pass'
    expect "the rotation" test "$(csv_cell packed.csv 1 hadamard)" = 1
done

# Every kind of inputs.
run "${common[@]}" --seqlen 100 --batch 1 --dtype e4m3,e5m2 --no-causal \
    --dist uniform,zeros,sharp,peak,rising,constant,outliers,channels,drift \
    --fp8-scale block --scale-block 16 --out none
expect_code 0
expect_stdout '36 of 36 rows checked.*all pass'

# Quantising in the time of a launch: a member of the rounds, and a case of its own; from which length it pays.
run "${common[@]}" --seqlen 64,200 --batch 1 --dtype fp32,e4m3 --quant-in-time --causal --mode fwd --out none \
    --csv in_time.csv
expect_code 0
expect_stdout '8 of 8 rows checked.*all pass'
expect_stdout 'e4m3.*quantised in time'
expect_stdout '^(naive|fused_cpu) fwd causal d64 e4m3 quantised in time: (faster|slower) than wider inputs'
expect "not in fp32" test "$(csv_cell in_time.csv 1 quant_in_time)" = 0
expect "in e4m3" test "$(csv_cell in_time.csv 5 quant_in_time)" = 1
expect "it is in the time" \
    test "$(awk -v t="$(csv_cell in_time.csv 5 time_ms)" -v q="$(csv_cell in_time.csv 5 quant_ms)" \
        'BEGIN { print (q > 0 && t >= 0.999 * q) }')" = 1
expect_same_row in_time.csv 5 mode dtype quant_in_time quant_rms_err rel_rms_err seed
run --device cpu --dtype bf16 --quant-in-time
expect_code 2

# The repro of a row makes the same row.
run "${common[@]}" --seqlen 100 --batch 2 --dtype e5m2 --out-dtype fp16 --fp8-scale block --scale-block 24 --hadamard \
    --causal --out none --csv row.csv
expect_code 0
expect_same_row row.csv 2 mode dtype out_dtype quant_scale scale_block hadamard quant_rms_err rel_rms_err seed

# A record of these rows is continued, judged, drawn.
record_serves 5 12 "${common[@]}" --seqlen 130 --batch 2 --dtype e4m3,e5m2 --fp8-scale tensor,head,block \
    --scale-block 48 --causal

# Hard shapes.
run verify --device cpu --preset quick --dtype e4m3 --fp8-scale block --scale-block 32 --impl fused --d 64 --out none
expect_code 0
expect_stdout 'all pass'

# A dump has the 8 bits and the scales; it is the problem again, and what is wrong in it is said.
run "${common[@]}" --seqlen 70 --batch 2 --dtype e4m3 --fp8-scale block --scale-block 32 --hadamard --causal \
    --out none \
    --dump d --csv dumping.csv
expect_code 0
folder=d/fwd-causal-d-64-n-70-e4m3-scale-block-of-32-hadamard
expect "8-bit integers" grep -q "'|u1'" "$folder/q.npy"
expect "their name" grep -q '"stored_as": "uint8: e4m3 bits"' "$folder/tensors.json"
expect "their scales" test -s "$folder/scale_v.npy"
run --device cpu --input d --out none --impl fused --csv dumped.csv --samples 6 --min-time-ms 1
expect_code 0
expect "the same result" test "$(csv_cell dumped.csv 1 rel_rms_err)" = "$(csv_cell dumping.csv 2 rel_rms_err)"
expect "the rotation of the dump" test "$(csv_cell dumped.csv 1 hadamard)" = 1
expect "nothing was quantised" test -z "$(csv_cell dumped.csv 1 quant_rms_err)"
run --device cpu --input d --fp8-scale head --dtype e4m3 --out none --impl fused
expect_code 2
expect_stderr 'none of its 1 problems'

bad() { # bad REGEX: the folder `bad` is refused
    run --device cpu --input bad --out none --impl fused
    expect_code 7
    expect_stderr "$1"
    rm -r bad
}
bytes() { # bytes FILE OFFSET ESCAPES: overwrites a few bytes
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
cp -r "$folder" bad
bytes bad/k.npy 200 '\177' # NaN of e4m3
bad 'k.npy: element 72 is not finite in e4m3'
cp -r "$folder" bad
bytes bad/scale_q.npy 132 '\000\000\000\000'
bad 'scale_q.npy: element 1 is 0; a scale must be above 0'
cp -r "$folder" bad
bytes bad/scale_v.npy 128 '\000\000\300\177'
bad 'scale_v.npy: element 0 is nan; a scale'
cp -r "$folder" bad
bytes bad/scale_v.npy 128 '\000\000\000\170' # 2^113
bad 'scale_v.npy: the scales .* of V are more than 2\^90 apart'
cp -r "$folder" bad
rm bad/scale_k.npy
bad 'scale_k.npy'
cp -r "$folder" bad
cp bad/scale_v.npy bad/scale_q.npy
bad 'scale_q.npy: must be 24 numbers in fp32, the scales of Q'

# Floats in a folder are quantised.
run "${common[@]}" --seqlen 70 --batch 2 --dtype fp32 --mode fwd --causal --out none --dump wide
expect_code 0
mkdir floats
cp wide/*/[qkv].npy floats
run --device cpu --input floats --dtype e4m3 --seqlen 70 --batch 2 --heads 4 --kv-heads 2 --d 64 --causal --impl fused \
    --out none --csv floats.csv --samples 6 --min-time-ms 1
expect_code 0
expect "they were quantised" test -n "$(csv_cell floats.csv 1 quant_rms_err)"
run --device cpu --input "$folder" --dtype bf16 --mode fwd --seqlen 70 --batch 2 --heads 4 --kv-heads 2 --d 64 \
    --causal \
    --impl fused --out none
expect_code 7
expect_stderr 'q.npy: has 8-bit integers'

# Records from before these columns have 16 or 32 bits.
run "${common[@]}" --seqlen 64 --batch 1 --out none --jsonl new.jsonl
expect_code 0
sed -E 's/, ?"(out_dtype|quant_scale|scale_block|hadamard|quant_ms|quant_rms_err)": ?("[^"]*"|[0-9.e+-]+)//g' \
    new.jsonl >old.jsonl
expect "an older record" sh -c "! grep -q quant_scale old.jsonl"
run gate --baseline old.jsonl --current new.jsonl --soft 4 # comparable; one record on each side decides nothing
expect_code 0
run report old.jsonl --out older
expect_code 0
cp old.jsonl resumed.jsonl
run "${common[@]}" --seqlen 64 --batch 1 --out none --jsonl resumed.jsonl --resume
expect_code 0

finish
