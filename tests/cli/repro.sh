#!/usr/bin/env bash
# `repro` is the whole command: 200 rows of random sweeps, and some of verify, are made again by the command that they
# name. The new row must have the same key and the same verdict. Its errors need not be the same: a part of the check
# runs on values that are drawn anew in each run.
#
#   repro.sh [SEED]    of the random options; 1 where not given
. "$(dirname "$0")/lib.sh"

RANDOM=${1:-1}
rows_wanted=200
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 # the problems are tiny

mkdir bin "a folder" again
ln -s "$fabench" bin/fabench
cp "$plugins/libwrong_cpu.so" "a folder/wrong 'cpu'.so"
PATH=$tmp/bin:$PATH
library="a folder/wrong 'cpu'.so"

# pick WORD...: one of them, in $picked.
pick() {
    local -i at=$((RANDOM % $# + 1))
    picked=${!at}
}
# maybe PERCENT OPTION VALUE...: adds the option, with one of the values, to the array `line`; an empty value stands for
# an option without one.
maybe() {
    local percent=$1 option=$2
    shift 2
    [ $((RANDOM % 100)) -lt "$percent" ] || return 0
    pick "$@"
    line+=("$option")
    [ -z "$picked" ] || line+=("$picked")
}

# The options of a sweep with a few rows, in the array `line`.
random_sweep() {
    line=()
    maybe 80 --mode fwd bwd bwd fwd,bwd
    pick --causal --causal=yes --no-causal --causal=no --causal=both
    line+=("$picked")
    maybe 100 --d 8 16 24 64 72 128 256 8,64
    maybe 100 --seqlen 1 2 7 33 64 65 5,40
    maybe 30 --kv-len 1 3 50 66
    pick heads hidden
    if [ "$picked" = heads ]; then
        maybe 100 --heads 2 4 6
        maybe 50 --kv-heads 1 2
    else
        maybe 100 --hidden 64 100 300
    fi
    pick --batch --total-tokens
    maybe 100 "$picked" 1 2 3
    maybe 50 --layout bshd bhsd
    maybe 30 --scale 1e-6 0.1 0.123456789 2 0.333333333333
    maybe 50 --dist normal uniform zeros sharp huge peak constant tiny
    maybe 50 --seed 0 77 9223372036854775807 "$RANDOM"
    maybe 90 --dtype fp32 fp32 fp32 fp16,fp32
    maybe 50 --check full sample off
    if [ "$picked" != off ]; then
        maybe 20 --atol 0.1 0.5
        maybe 20 --rtol 0.1 0.5
    fi
    maybe 20 --deterministic ""
    maybe 15 --variant avx2 portable no_such_tile
    maybe 10 --preset quick
    maybe 50 --timeout-s 20 33.5
    maybe 100 --samples 1 2 3
    maybe 100 --impl naive fused naive,fused fused,null right_cpu unordered_cpu:deterministic,unordered_cpu \
        naive,wrong_scale wrong_diagonal,naive,right_cpu wrong_nan_row,fused naive,wrong_dk,wrong_heads wrong_past_end \
        naive,wrong_lse fused,wrong_last_tile
    picked=hot
    [ $((RANDOM % 40)) -gt 0 ] || picked=cold # to empty a cache of 320 MB takes longer than all else
    line+=(--device cpu --impl-lib "$library" --warmup-ms 0 --min-time-ms 0 --max-noise 100% --l2 "$picked")
}

# What must be as before: every field but those of time, of the errors, of this run and of its other implementations.
lasting() {
    sed -E 's/"(run_id|time_utc|stop|launch|asked|repro|only|err_tensor|worst|speedups|peer)":"([^"\\]|\\.)*",?//g
        s/"(samples|time_ms|time_ms_ci_lo|time_ms_ci_hi|time_ms_min|noise_pct|tflops|cpu_wait_pct)":[^,}]*,?//g
        s/"(speedup_vs_naive|speedup_vs_peer)":[^,}]*,?//g
        s/"(max_abs_err|rel_rms_err|err_ratio|err_used)":[^,}]*,?//g
        s/"(tensors|samples_ms)":\[.*/}/; s/,+\}/}/g'
}

# keep FILE: adds its rows to the list of those that are made again.
keep() { rows "$1" >>all.jsonl; }

# ---- the rows ----
: >all.jsonl
refused=0
while [ "$(wc -l <all.jsonl)" -lt $rows_wanted ]; do
    random_sweep
    run "${line[@]}" --out none --plot none --jsonl run.jsonl
    case $code in
    0 | 1 | 6) keep run.jsonl ;; # 6: an implementation that was named refused all problems
    *)
        fail "exit code $code"
        refused=$((refused + 1))
        [ $refused -lt 5 ] || break
        ;;
    esac
done
# With inputs from files.
shape=(--device cpu --d 16 --seqlen 20 --kv-len 30 --batch 1 --heads 2 --warmup-ms 0 --min-time-ms 0 --samples 1
    --l2 hot --out none --plot none)
run "${shape[@]}" --mode bwd --causal --impl fused --dump "a folder/dump"
expect_code 0
inputs=("a folder/dump"/*)
run "${shape[@]}" --mode fwd,bwd --causal=both --impl naive,fused --jsonl run.jsonl --input "${inputs[0]}"
expect_code 0
keep run.jsonl
# Shapes of verify, which a sweep makes again, and broken promises, which verify alone finds.
run verify --device cpu --preset quick --d 8,64 --mode fwd --no-causal --seed 9223372036854775807 --scale 0.3 \
    --impl fused --out none --jsonl run.jsonl
expect_code 0
rows run.jsonl | sed -n '1~4p' >>all.jsonl
run verify --device cpu --preset quick --d 8 --mode bwd --causal --seed 5 --scale 1e-6 --repeats 2 \
    --impl-lib "$library" --impl naive,wrong_nondeterministic --out none --jsonl run.jsonl
expect_code 1
rows run.jsonl '"rule":"repeat"' | sed -n '1~3p' >>all.jsonl
expect "rows whose bits differed" grep -q '"rule":"repeat"' all.jsonl

# ---- their commands ----
count=0
sed -nE 's/.*"repro":"(([^"\\]|\\.)*)".*/\1/p' all.jsonl | sed -E 's/\\(.)/\1/g' >commands
while read -r command; do
    count=$((count + 1))
    charts="--plot none"
    [[ $command != "fabench verify"* ]] || charts=
    printf '%s --out none %s --quiet --jsonl again/%d.jsonl\n' "$command" "$charts" $count >again/$count.sh
done <commands
expect "a command for each row" test "$count" -eq "$(wc -l <all.jsonl)"
seq $count | xargs -P 2 -I@ sh -c 'timeout 60 bash again/@.sh >again/@.out 2>&1 </dev/null'

# ---- the rows again: "again/NUMBER.jsonl:ROW" ----
lasting <all.jsonl | awk '{ print "again/" NR ".jsonl:" $0 }' >wanted
grep -H '"type":"row"' again/*.jsonl | lasting >got
checks=$((checks + count))
grep -vxFf got wanted >missing
while IFS=: read -r file row; do
    what=$(cat "${file%.jsonl}.sh")
    echo "$row" >out
    (cat "${file%.jsonl}.out"; grep -F "$file:" got) >err
    fail "another row than before"
done <missing

# The choice was wide enough, and a row that failed beside naive brings it along.
for word in '"check":"fail"' '"check":"off"' '"status":"unsupported"' '"status":"ok"' '"mode":"bwd"' \
    '"layout":"bhsd"' '"dist":"peak"' '"l2":"cold"' '"scale":9.99' '"seed":9223372036854775807' \
    '"check_scope":"sample"'; do
    expect "a row with $word" grep -q "$word" all.jsonl
done
brings='--impl [a-z_:]*,naive[ "]'
grep '"check":"fail".*"err_ratio"' all.jsonl | grep -v '"impl":"naive"' >compared
expect "failed rows that were compared with naive" test -s compared
expect "naive in each of their commands" test "$(grep -cv -- "$brings" compared)" -eq 0
expect "naive in no other command" test "$(grep -v '"check":"fail"' all.jsonl | grep -c -- "$brings")" -eq 0
finish
