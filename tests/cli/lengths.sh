#!/usr/bin/env bash
# Sequences of their own lengths and block masks: run, checked, recorded, repeated from `repro`, continued, drawn; and
# records from before there were such columns.
. "$(dirname "$0")/lib.sh"

refused_by="run --device cpu"

printf '5\n-3\n' >negative.txt
printf '' >empty.txt
printf '600\n500\n' >long.txt
refused '--lengths uniform:1:8.*--seqlen' --lengths uniform:1:8 --seqlen 64
refused '--lengths uniform:1:8.*--kv-len' --lengths uniform:1:8 --kv-len 64
refused '--lengths uniform:1:8.*--batch' --lengths uniform:1:8 --batch 2
refused '--lengths.*empty' --lengths uniform:1:8,
refused '--lengths zipf:2.*uniform:LO:HI' --lengths zipf:2
refused '--lengths @negative.txt.*line 2' --lengths @negative.txt
refused '--lengths @empty.txt.*no sequence' --lengths @empty.txt
refused '--lengths @long.txt.*1100.*--total-tokens 1000' --lengths @long.txt --total-tokens 1000
refused '--lengths @absent.txt' --lengths @absent.txt
refused '--mask-block 64.*--block-mask' --mask-block 64
refused '--mask-block 0' --block-mask local:1 --mask-block 0
refused '--mask-block 7.*8' --block-mask local:1 --mask-block 7
refused '--block-mask random:2' --block-mask random:2
refused '--block-mask @absent.npy' --block-mask @absent.npy
refused '--window-left -2' --window-left -2
refused '--window-left 1000000000000000000' --window-left 1000000000000000000
refused '--window-right 5.*--causal' --window-right 5 --causal
refused '--dropout 1' --dropout 1
refused '--dropout -0.1' --dropout -0.1
refused '--dropout nan' --dropout nan

common=(--device cpu --d 64 --heads 2 --kv-heads 1 --warmup-ms 0 --min-time-ms 1 --samples 6 --max-noise 100% --l2 hot
    --impl naive,fused)
problems=(--lengths uniform:1:100,list:0x5:7x0:70x130 --total-tokens 240 --block-mask none,random:0.5 --mask-block 32)
run "${common[@]}" "${problems[@]}" --out none --jsonl a.jsonl --csv a.csv
expect_code 0
expect_stdout '32 of 32 rows checked.*all pass'
expect_stdout 'lengths uniform:1:100 mask random:0.5 of 32'
expect_stdout '~26 +3 '
expect "lengths in the record" test "$(csv_cell a.csv 1 lengths)" = uniform:1:100
expect "their tokens" test "$(csv_cell a.csv 1 total_q)" = 240
expect "the mask" test "$(csv_cell a.csv 3 block_mask)" = random:0.5
expect "its blocks" test "$(csv_cell a.csv 3 mask_block)" = 32
expect "no mask" test "$(csv_cell a.csv 1 block_mask)" = none

# A mask of a dense problem, where each head has its own blocks; some rows of some heads are checked, and all.
for scope in full sample; do
    run "${common[@]}" --heads 6 --kv-heads 3 --batch 2 --seqlen 100 --kv-len 130 --block-mask random:0.3,strided:3 \
        --mask-block 16 --check $scope --out none
    expect_code 0
    expect_stdout '16 of 16 rows checked.*all pass'
done

# The repro of a row makes the same row.
eval "set -- $(csv_cell a.csv 3 repro)"
shift
run "$@" --device cpu --out none --csv again.csv --samples 6
expect_code 0
for name in mode causal batch q_len kv_len lengths total_q block_mask mask_block flops seed; do
    expect "the same $name" test "$(csv_cell again.csv 1 $name)" = "$(csv_cell a.csv 3 $name)"
done

# A record of these rows is continued, judged, drawn.
record_serves 27 32 "${common[@]}" "${problems[@]}"

# FLOPs that the lengths do not have.
false_figure flops 123456789

# Records from before these columns have fixed lengths and no mask.
run "${common[@]}" --seqlen 64 --batch 1 --out none --jsonl new.jsonl
expect_code 0
sed -E 's/, ?"(lengths|block_mask|mask_block|dropout_seed|softcap)": ?("[^"]*"|[0-9.e+-]+)//g' new.jsonl >old.jsonl
expect "an older record" sh -c "! grep -q block_mask old.jsonl"
run gate --baseline old.jsonl --current new.jsonl --soft 4 # comparable; one record on each side decides nothing
expect_code 0
run report old.jsonl --out older
expect_code 0
run plot old.jsonl --plot term
expect_code 0
expect_no_stderr
cp old.jsonl resumed.jsonl
run "${common[@]}" --seqlen 64 --batch 1 --out none --jsonl resumed.jsonl --resume
expect_code 0

# A dump is the problem again.
run "${common[@]}" --lengths list:3:0x5:40x60 --out none --dump d --mode bwd --causal
expect_code 0
run --device cpu --input d --out none --impl naive --csv dumped.csv --samples 6 --min-time-ms 1
expect_code 0
expect "its lengths" test "$(csv_cell dumped.csv 1 lengths)" = list:3:0x5:40x60

finish
