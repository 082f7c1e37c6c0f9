#!/usr/bin/env bash
# Faults that ordinary inputs do not show (tests/wrong/hidden_cpu.c): `verify` has a problem that finds each, and one
# that does not have what the fault needs passes.
. "$(dirname "$0")/lib.sh"

export OMP_NUM_THREADS=1
common=(verify --device cpu --dtype fp32 --d 64 --impl-lib "$plugins/libhidden_cpu.so")

# finds NAME RULE ARGUMENT...: exit 1, and this rule names an output.
finds() {
    local name=$1 rule=$2
    shift 2
    run "${common[@]}" --impl "hidden_$name" --jsonl run.jsonl "$@"
    expect_code 1
    expect "the rule $rule" grep -q "\"rule\": *\"$rule\"" run.jsonl
    rm -f run.jsonl
}
# passes NAME ARGUMENT...
passes() {
    run "${common[@]}" --impl "hidden_$1" "${@:2}"
    expect_code 0
}

finds zeroed_workspace element --mode fwd --causal=no --only n-65
finds strides_of_v nonfinite --mode fwd --causal=no --only own_strides
passes strides_of_v --mode fwd --causal=no --only n-65
finds strides_of_dout nonfinite --mode bwd --causal=no --only own_strides
finds strides_of_dv nonfinite --mode bwd --causal=no --only own_strides
finds strides_of_dq element --mode bwd --causal=no --only own_strides
for name in dout dv dq; do
    passes strides_of_$name --mode bwd --causal=no --only n-65
done
finds seventh_dq element --mode bwd --causal=no --repeats 8 --only n-65
passes seventh_dq --mode bwd --causal=no --repeats 3 --only n-65
finds low_max nonfinite --mode fwd --causal=no --only mean--20000
passes low_max --mode fwd --causal=no --only mean--500

# Right kernels keep their bounds where all logits have a part in common: dBias is made of the same P.
for mean in -20000 20000; do
    run --device cpu --seqlen 64,256 --batch 1 --heads 2 --d 216 --dtype fp32 --mode bwd --causal=no --bias full \
        --logit-mean=$mean --impl fused --samples 1 --warmup-ms 0 --min-time-ms 0 --max-noise 100% --l2 hot --out none
    expect_code 0
done

# Whose inputs are the user's, is told what is not looked for then; not beside the program's own implementations.
problem=(--device cpu --seqlen 64 --batch 1 --heads 1 --d 32 --dtype fp32 --mode fwd --causal --samples 1
    --warmup-ms 0 --min-time-ms 0 --max-noise 100% --l2 hot --out none)
run "${problem[@]}" --impl fused --dump dumped
expect_code 0
for folder in dumped/*/; do
    run "${problem[@]}" --input "$folder" --impl fused
    expect_code 0
    expect "no word of it" test "$(grep -c 'not new ones' "$tmp/err")" -eq 0
    run "${problem[@]}" --input "$folder" --impl right_cpu --impl-lib "$plugins/libwrong_cpu.so"
    expect_code 0
    expect "what is off" grep -q 'not new ones' <(tr '\n' ' ' <"$tmp/err" | tr -s ' ')
done
finish
