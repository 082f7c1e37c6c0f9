#!/usr/bin/env bash
# verify --random: random problems pass, the same seed draws the same, one runs alone, failures alone are printed with a
# command that makes them again, refusals are counted by their reason.
. "$(dirname "$0")/lib.sh"

limit_s=300
run verify --device cpu --random 40 --seed 5 --repeats 1 --jsonl a.jsonl --out none
expect_code 0
expect_no_stderr
expect_stdout '^79 of 80 rows checked \(full\), all pass, 1 unsupported\.$'
expect_stdout '^ +1 x naive unsupported: takes no number of splits$'
expect_stdout '^PASS: 79 rows, 1 refused'
expect "no row of a pass" test "$(grep -c ' pass ' "$tmp/out")" -eq 0
expect "a row in the record for each" test "$(grep -c '"impl": *"[a-z_]*"' a.jsonl)" -eq 80
expect "several attributes" sh -c "grep -q '\"softcap\": *[1-9]' a.jsonl && grep -q '\"dropout\": *0\.[1-9]' a.jsonl"

# Caches and 8-bit inputs: the command of a row makes the same problem again, which passes again.
run verify --device cpu --random 60 --seed 7 --repeats 0 --impl fused --jsonl b.jsonl --csv b.csv --out none
expect_code 0
expect_stdout '^60 of 60 rows checked \(full\), all pass\.$'
count=0
for row in $(seq 60); do
    repro=$(csv_cell b.csv "$row" repro)
    case $repro in
    *verify*) continue ;; # tested below
    *"--page-size"*"--fp8-scale"* | *"--mode decode"*"--splits"* | *"--mode decode"*"--lengths"* | *"--hadamard"*) ;;
    *) continue ;;
    esac
    [ $count -lt 6 ] || break
    count=$((count + 1))
    eval "words=($repro)"
    run "${words[@]:1}" --warmup-ms 0 --min-time-ms 0 --samples 1 --max-noise 100% --l2 hot --out none --csv again.csv
    expect_code 0
    for name in mode dtype causal batch q_heads kv_heads q_len kv_len head_dim layout window_left window_right dropout \
        scale dist seed logit_std lengths dropout_seed softcap page_size out_dtype quant_scale scale_block hadamard \
        splits check flops min_gb; do
        expect "the same $name" test "$(csv_cell again.csv 1 $name)" = "$(csv_cell b.csv "$row" $name)"
    done
done
expect "several of them" test $count -gt 3
expect "8 bits" grep -q '"quant_scale": *"block"' b.jsonl
run verify --device cpu --random 5 --mode decode --dtype e5m2 --fp8-scale head --out-dtype fp16 --repeats 0 \
    --impl fused --out none --csv b.csv
expect_code 0
for row in $(seq 5); do
    expect "decode" test "$(csv_cell b.csv "$row" mode)" = decode
    expect "a scale for each head" test "$(csv_cell b.csv "$row" quant_scale)" = head
    expect "O in fp16" test "$(csv_cell b.csv "$row" out_dtype)" = fp16
done

# One problem alone, by the first word of its key; the others of the plan do not change it.
run verify --device cpu --random 40 --seed 5 --dry-run
expect_code 0
key=$(grep -oE '\br17-[^ ]+' "$tmp/out" | head -1)
expect "a key" test -n "$key"
inputs() { grep -oE '"seed": *[0-9]+' "$1" | sort -u; }
for words in "--random 40 --only r17" "--random 99 --only $key"; do
    # shellcheck disable=SC2086 # words
    run verify --device cpu --seed 5 --repeats 1 --jsonl one.jsonl --out none --verbose $words
    expect_code 0
    expect_stdout '^PASS: 2 of 2 rows'
    expect_stdout ' pass ' # --verbose prints what passes
    expect "its inputs are those of the run with 40" grep -qF "$(inputs one.jsonl)" a.jsonl
done

# Failures: printed with a command that makes one again, which fails the same way.
run verify --device cpu --random 12 --seed 5 --repeats 0 --dtype fp32 --mode bwd --d 32 --impl-lib \
    "$plugins/libwrong_cpu.so" --impl wrong_dk --out none --max-failures 100
expect_code 1
expect_stdout '^FAIL wrong_dk bwd .*dk fails'
expect_stdout '^ *[0-9]+ x wrong_dk unsupported: takes no '
# Each command in one line, wherever its words were wrapped.
commands=$(sed -n '/Again, with the tensors/,/bad\//p' "$tmp/out" | grep -v Again | sed 's/\\$//' | tr -s ' \n' ' ' |
    sed 's/--dump bad\//\n/g' | sed 's/^ *//')
command=$(grep -m 1 -- '--only r' <<<"$commands")
expect "a command" test -n "$command"
words=()
eval "words=($command)"
run "${words[@]:1}" --out none
expect_code 1
expect_stdout '^FAILED: 1 of 1 rows'
# Refusals, in a few lines.
run verify --device cpu --random 30 --seed 2 --repeats 0 --dtype fp16,fp32 --impl naive --out none
expect_code 0
expect_stdout '^ +[0-9]+ x naive unsupported: computes in fp32 only$'
expect "few lines" test "$(wc -l <"$tmp/out")" -le 8

for arguments in "--random 0" "--random -1" "--random x" "--random 100001" "--random 5 --preset quick" \
    "--random 5 --outputs $tmp" "--random 5 --only r5"; do
    # shellcheck disable=SC2086 # words
    run verify --device cpu $arguments
    expect_code 2
done
run verify --device cpu --random 5 --preset quick
expect_sentence '--random 5: cannot be used with --preset quick'
run --random 5
expect_code 2
finish
