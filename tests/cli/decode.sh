#!/usr/bin/env bash
# Forward against a cache: refusals, run, check, record, `repro`, resume, gate, report, charts, a dump; every split.
. "$(dirname "$0")/lib.sh"

refused_by="run --device cpu"

printf '5\n-3\n' >negative.txt
printf '9,7\n' >pairs.txt
refused '--mode fwd,decode.*decode alone' --mode fwd,decode --kv-len 64
refused '--mode decode.*--kv-len N' --mode decode
refused '--kv-len 8.*shorter than the 9 new tokens' --mode decode --kv-len 8 --seqlen 9
refused '--lengths list:40:3.*shorter than the 4 new tokens' --mode decode --lengths list:40:3 --seqlen 4
refused '--page-size 7.*multiple of 8' --mode decode --kv-len 64 --page-size 7
refused '--page-size -8' --mode decode --kv-len 64 --page-size -8
refused '--page-size 16.*--mode decode' --page-size 16
refused '--splits 2.*--mode decode' --splits 2
refused '--splits 2000.*1024' --mode decode --kv-len 64 --splits 2000
refused '--block-mask local:1.*--mode decode' --mode decode --kv-len 64 --block-mask local:1
refused '--lengths uniform:1:9.*--kv-len' --mode decode --kv-len 64 --lengths uniform:1:9 --batch 2
refused '--lengths uniform:1:9.*--batch N' --mode decode --lengths uniform:1:9
refused '--lengths list:5:6.*--batch 3' --mode decode --lengths list:5:6 --batch 3
refused '--lengths @pairs.txt.*9 new tokens and a cache of 7 keys' --mode decode --lengths @pairs.txt
refused '--lengths list:5x9:1x7.*--seqlen, which it replaces' --mode decode --lengths list:5x9:1x7 --seqlen 5
refused '--lengths list:0x9.*no sequence has a new token' --mode decode --lengths list:0x9
refused '--lengths @negative.txt.*line 2' --mode decode --lengths @negative.txt

common=(--device cpu --mode decode --d 64 --heads 4 --kv-heads 2 --warmup-ms 0 --min-time-ms 1 --samples 6
    --max-noise 100% --l2 hot --impl naive,fused)
paged=("${common[@]}" --lengths uniform:20:200,list:140:7:33 --batch 3 --page-size 16 --seqlen 1,5)
run "${paged[@]}" --out none --jsonl a.jsonl --csv a.csv
expect_code 0
expect_stdout '8 of 8 rows checked.*all pass'
expect_stdout 'decode causal .*lengths list:140:7:33 page_size 16'
expect_stdout 'GB/s'
expect_stdout '5x140 +3 '
expect "the mode" test "$(csv_cell a.csv 1 mode)" = decode
expect "the longest cache" test "$(csv_cell a.csv 5 kv_len)" = 140
expect "pages" test "$(csv_cell a.csv 5 page_size)" = 16
expect "the kernel's splits" test "$(csv_cell a.csv 5 splits)" = 0
expect "no packed tokens" test -z "$(csv_cell a.csv 5 total_q)"
# q and o of 3 sequences, 4 heads, 1 row; LSE; K and V of 140 + 7 + 33 keys and 2 heads.
expect "bytes of the used keys" test "$(csv_cell a.csv 5 min_gb)" = \
    "$(awk 'BEGIN { printf "%.17g", (2 * 3 * 4 * 64 * 4 + 3 * 4 * 4 + 2 * 180 * 2 * 64 * 4) * 1e-9 }')"
expect "GB/s" awk -v a="$(csv_cell a.csv 5 gb_per_s)" -v b="$(csv_cell a.csv 5 min_gb)" \
    -v c="$(csv_cell a.csv 5 time_ms)" 'BEGIN { r = a * c / (b * 1e3); exit !(r > 0.999 && r < 1.001) }'
expect_stdout 'GB/s .*%read'
expect "no GEMM" test -z "$(csv_cell a.csv 5 gemm_tflops)$(csv_cell a.csv 5 pct_of_gemm)"
expect "a member of the rounds" grep -q '"round_members": *\["naive", *"fused", *"read"\]' a.jsonl
for row in 1 5; do
    expect "share of reading" awk -v p="$(csv_cell a.csv $row pct_of_read)" \
        -v r="$(csv_cell a.csv $row read_gb_per_s)" 'BEGIN { exit !(p > 0 && r > 0) }'
done

# The repro of a row makes the same row.
expect_same_row a.csv 4 mode causal batch q_len kv_len lengths page_size splits flops min_gb seed

# A record of these rows is continued, judged, drawn.
record_serves 4 8 "${paged[@]}"
expect "its speed in GB/s" grep -q '| burst GB/s |.*| % of read |' page/report.md
speed=$(sed -nE 's/^\| causal \|  64 \| +1x140 \|[^|]*\| +\**([0-9.]+)\**.*/\1/p' page/report.md | head -1)
best=$(for row in $(seq 8); do
    [ "$(csv_cell a.csv "$row" kv_len),$(csv_cell a.csv "$row" q_len)" = 140,1 ] && csv_cell a.csv "$row" gb_per_s
done | sort -g | tail -1)
expect "the row's GB/s" awk -v a="$speed" -v b="$best" 'BEGIN { exit !(a / b > 0.99 && a / b < 1.01) }'
expect "a chart of it" grep -q "^set ylabel 'GB/s'" page/bandwidth-decode-fp32.gp
false_figure flops 123456789
false_figure gb_per_s 1234
sed -E 's/"read_gb_per_s": ?[0-9.e+-]+,?//' a.jsonl >false.jsonl
run gate --baseline a.jsonl --current false.jsonl
expect_code 5
expect_stderr 'pct_of_read'

# Splits: no part of a problem. naive has none.
for splits in 1 3 64; do
    run --device cpu --mode decode --d 64 --heads 4 --kv-len 777 --batch 1 --splits $splits --warmup-ms 0 \
        --min-time-ms 1 --samples 6 --max-noise 100% --l2 hot --out none --csv s.csv
    expect_code 0
    expect_stdout 'naive +unsupported: takes no number of splits'
    expect "splits" test "$(csv_cell s.csv 2 splits)" = $splits
    expect "passes" test "$(csv_cell s.csv 2 check)" = pass
    expect "in its repro" grep -q -- "--splits $splits" s.csv
done

# Chunks of a prefill beside single new tokens: packed rows. The same by a file; a dump is the problem again.
printf '70,140\n1,7\n0,33\n' >chunks.txt
run "${common[@]}" --lengths list:70x140:1x7:0x33,@chunks.txt --page-size 16 --out none --csv mixed.csv \
    --jsonl mixed.jsonl
expect_code 0
expect_stdout '4 of 4 rows checked.*all pass'
expect_stdout 'decode causal .*71 new tokens.*lengths list:70x140:1x7:0x33'
expect "all new rows" test "$(csv_cell mixed.csv 1 total_q)" = 71
expect "the longest chunk" test "$(csv_cell mixed.csv 1 q_len)" = 70
expect "the longest cache" test "$(csv_cell mixed.csv 3 kv_len)" = 140
expect "bytes of the rows and the used keys" test "$(csv_cell mixed.csv 1 min_gb)" = \
    "$(awk 'BEGIN { printf "%.17g", (2 * 71 * 4 * 64 * 4 + 71 * 4 * 4 + 2 * 180 * 2 * 64 * 4) * 1e-9 }')"
# Rows of the chunk see 71 to 140 keys, the single row 7.
expect "FLOPs of what is visible" test "$(csv_cell mixed.csv 1 flops)" = \
    "$(awk 'BEGIN { print 4 * 64 * 4 * (70 * (71 + 140) / 2 + 7) }')"
expect_same_row mixed.csv 2 mode batch q_len kv_len total_q lengths page_size flops min_gb
run gate --baseline mixed.jsonl --current mixed.jsonl --soft 4,5
expect_code 0
run "${common[@]}" --lengths list:70x140:1x7:0x33 --page-size 16 --out none --dump m --check sample
expect_code 0
run --device cpu --input m --out none --impl naive,fused --csv dumped.csv --samples 6 --min-time-ms 1
expect_code 0
expect "its lengths" test "$(csv_cell dumped.csv 1 lengths)" = list:70x140:1x7:0x33
run verify --device cpu --outputs m --out none
expect_code 0
expect_stdout '2 of 2 rows checked'

# 8-bit caches: scales of the used keys alone.
run "${common[@]}" --dtype e4m3 --fp8-scale tensor,head,block --scale-block 32 --lengths list:140:7:33 --page-size 8 \
    --seqlen 3 --out none
expect_code 0
expect_stdout '6 of 6 rows checked.*all pass'

# 8-bit K and V beside 16-bit Q and O: bytes of each type, the same row by its repro, a dump with its scales.
run "${common[@]}" --cache-dtype e4m3,e5m2 --lengths list:140:7:33 --page-size 16 --out none --csv narrow.csv \
    --jsonl narrow.jsonl
expect_code 0
expect_stdout '4 of 4 rows checked.*all pass'
expect_stdout 'decode causal .*bf16.*cache e5m2'
expect_stdout 'quantising the inputs changes O'
expect "the type of Q" test "$(csv_cell narrow.csv 1 dtype)" = bf16
expect "that of K and V" test "$(csv_cell narrow.csv 1 cache_dtype)" = e4m3
expect "scales of heads" test "$(csv_cell narrow.csv 1 quant_scale)" = head
expect "bytes of two types" awk -v b="$(csv_cell narrow.csv 1 min_gb)" \
    'BEGIN { r = b * 1e9 / (2 * 3 * 4 * 64 * 2 + 3 * 4 * 4 + 2 * 180 * 2 * 64); exit !(r > 0.999999 && r < 1.000001) }'
expect_same_row narrow.csv 4 mode dtype cache_dtype quant_scale lengths page_size flops min_gb
run gate --baseline narrow.jsonl --current narrow.jsonl --soft 4,5
expect_code 0
run "${common[@]}" --cache-dtype e4m3 --lengths list:40:7 --page-size 8 --out none --dump n --check sample
expect_code 0
expect "K in 8 bits" grep -q '"dtype": "e4m3"' n/*/tensors.json
expect "scales of K, not of Q" test -n "$(echo n/*/scale_k.npy)" -a ! -e "$(echo n/*/scale_q.npy)"
run --device cpu --input n --out none --impl naive,fused --csv dumped.csv --samples 6 --min-time-ms 1
expect_code 0
expect "its cache" test "$(csv_cell dumped.csv 1 cache_dtype)" = e4m3
run verify --device cpu --outputs n --out none
expect_code 0
expect_stdout '2 of 2 rows checked'

# A dump is the problem again: its keys in their order, not in pages; results of others are judged with it.
run "${common[@]}" --lengths list:40:7 --page-size 8 --seqlen 3 --out none --dump d --check sample
expect_code 0
run --device cpu --input d --out none --impl naive,fused --csv dumped.csv --samples 6 --min-time-ms 1
expect_code 0
expect "its mode" test "$(csv_cell dumped.csv 1 mode)" = decode
expect "its lengths" test "$(csv_cell dumped.csv 1 lengths)" = list:40:7
expect "its pages" test "$(csv_cell dumped.csv 1 page_size)" = 8
run verify --device cpu --outputs d --out none
expect_code 0
expect_stdout '2 of 2 rows checked'

# The hard shapes of caches.
run verify --device cpu --mode decode --preset quick --out none
expect_code 0
expect_stdout 'all pass'

finish
