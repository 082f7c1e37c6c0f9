#!/usr/bin/env bash
# Wrong kernels must fail their check on inputs with large and sloping logits too, where the judge has floors for the
# rounding of sums that cancel (docs/judging.md), in bf16 and fp32; and the right one must pass.
#
#   wrong_data.sh [LENGTH]    256 where not given; nightly_wrong_data: 512
. "$(dirname "$0")/lib.sh"

limit_s=300
length=${1:-256}
common=(--device cpu --d 64 --batch 1 --heads 2 --causal --seqlen "$length" --samples 1 --warmup-ms 0 --min-time-ms 0
    --l2 hot --out none --plot none --impl-lib "$plugins/libwrong_cpu.so" --jsonl run.jsonl)

# verdicts DTYPE MODE DATA FAULT...: right_cpu passes, and every fault fails.
verdicts() {
    local dtype=$1 mode=$2 data=$3 fault names=right_cpu
    shift 3
    for fault; do names+=,wrong_$fault; done
    # shellcheck disable=SC2086 # DATA is an option and its value
    run "${common[@]}" --dtype "$dtype" --mode "$mode" $data --impl "$names"
    expect_code 1
    expect "a row for each of $names" test "$(rows run.jsonl | wc -l)" -eq $(($# + 1))
    expect "right_cpu passes" test "$(rows run.jsonl '"impl": *"right_cpu"' | row_value check)" = pass
    for fault; do
        expect "wrong_$fault fails" test "$(rows run.jsonl "\"impl\": *\"wrong_$fault\"" | row_value check)" = fail
    done
}

fwd=(inverted_mask diagonal diagonal_short scale scale_permille head_dim_tail heads stale_rows sign_row lse_max)
bwd=(inverted_mask diagonal diagonal_short scale heads delta_row delta_none dq_no_scale dk_no_scale dkdv_tile)
for dtype in bf16 fp32; do
    verdicts $dtype fwd "--dist rising" "${fwd[@]}" last_key last_tile no_rescale sum_no_rescale
    verdicts $dtype fwd "--dist falling" "${fwd[@]}"
    verdicts $dtype fwd "--logit-std 16" scale head_dim_tail heads stale_rows no_rescale sum_no_rescale lse_max
    verdicts $dtype bwd "--dist rising" "${bwd[@]}" dq_tile sign_row dk
    verdicts $dtype bwd "--dist falling" "${bwd[@]}" sign_row
    verdicts $dtype bwd "--logit-std 16" scale heads delta_row delta_none dkdv_tile dq_tile
done
finish
