#!/usr/bin/env bash
# What the judge must show on a GPU: its tests, its liars, right kernels on inputs that are hard for its floors, and
# what its defences cost (scripts/judge_cost.py). Checks first, times after; every command has a time limit. Exit 0:
# all checks passed and all bars of the cost are met.
#
#   scripts/gpu_judge.sh [PROGRAM]   default build/release/fabench; beside it lies its tests/fake/fabench_lost
set -uo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
-*)
    echo "gpu_judge: $1: no such option; it takes a program" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.." || exit 2
new=${1:-build/release/fabench}
folder=$(dirname "$new") worst=0
out=${FABENCH_OUT_ROOT:-results/local}/gpu-judge
mkdir -p "$out"

# check NAME LIMIT_S COMMAND...: its output goes to NAME.log.
check() {
    local name=$1 limit=$2 code=0 began=$SECONDS
    shift 2
    timeout --signal=INT "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null || code=$?
    printf '%-24s exit %-3d %4d s  %s\n' "$name" "$code" $((SECONDS - began)) \
        "$(tail -n 1 "$out/$name.log" | cut -c1-110)"
    [ "$code" -eq 0 ] || worst=1
}

check tests 300 ctest --test-dir "$folder" -R 'gpu_test_(harness|reference)|gpu_liars' --output-on-failure
check selftest 120 "$new" selftest --device cuda:0 --seqlen 1k
check verify 600 "$new" verify --device cuda:0
for mean in -500 -2000 -20000 20000; do
    check "mean$mean" 120 "$new" --device cuda:0 --seqlen 1k,4k --dtype fp32,fp16,bf16 --mode fwd,bwd \
        --logit-mean=$mean --impl fused,cudnn,naive --samples 3 --min-time-ms 1 --max-noise 100% --out none
done
for seed in 1 2 3 4; do
    check "random-$seed" 600 "$new" verify --device cuda:0 --random 3000 --seed $seed
done
# Those of them with a bias: a reference that is not finite is an error that names its first row.
check random-bias 600 "$new" verify --device cuda:0 --random 30000 --seed 5 --only bias
check random-falling 600 "$new" verify --device cuda:0 --random 30000 --seed 6 --only falling
lost=$folder/tests/fake/fabench_lost seconds_with=0 seconds_without=0
for try in 1 2 3; do # with the defences and without, in turn
    began=$SECONDS
    check "paper-without-$try" 600 env LOST_DEFENCE=new_values "$lost" --device cuda:0 --preset paper --dtype bf16 \
        --impl naive,fused,cudnn --jsonl "$out/without-$try.jsonl" --out none
    seconds_without=$((seconds_without + SECONDS - began)) began=$SECONDS
    check "paper-with-$try" 600 env -u LOST_DEFENCE "$lost" --device cuda:0 --preset paper --dtype bf16 \
        --impl naive,fused,cudnn --jsonl "$out/with-$try.jsonl" --out none
    seconds_with=$((seconds_with + SECONDS - began))
done
check cost 60 scripts/judge_cost.py --bars --seconds $seconds_with $seconds_without \
    --with "$out"/with-?.jsonl --without "$out"/without-?.jsonl
echo "logs and records: $out"
exit $worst
