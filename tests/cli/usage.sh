#!/usr/bin/env bash
# What the command line refuses: exit 2, one sentence that names the option, the value and what would be legal.
. "$(dirname "$0")/lib.sh"

refused() { # refused REGEX ARGUMENT...
    local regex=$1
    shift
    run "$@"
    expect_code 2
    expect_sentence "$regex"
    expect_no_stdout
}

refused '--modee.*--mode' --modee fwd
refused '--causl.*--causal' --causl
refused 'unknown|no such|nearest|did you mean' --frobnicate
refused '--d 63.*(multiple|8)' --d 63
refused '--d 0' --d 0
refused '--d 264' --d 264
refused '--seqlen 1kk' --seqlen 1kk
refused '-n -5' -n -5
refused '--seqlen 0' --seqlen 0
refused '--seqlen' --seqlen ''
refused '--seqlen' --seqlen ,
refused '--seqlen' --seqlen 1k,
refused '--seqlen' --seqlen 1k:16k
refused '--seqlen' --seqlen '1k:16k:*1'
refused '--seqlen' --seqlen '16k:1k:*2'
refused '--seqlen 9223372036854775808' --seqlen 9223372036854775808
refused '--d' --d
refused '--dtype' --dtype fp17
refused '--dtype' --dtype ''
refused '--dtype' --dtype fp8
refused '--impl' --impl ''
refused '--mode' --mode forward
refused '--causal=no' --causal no
refused '--kv-heads 3.*divide.*--heads 8' --heads 8 --kv-heads 3
refused '--kv-heads 5.*divide' --device cpu --kv-heads 5
refused 'too large' --batch 2000000000 --heads 2000000000 --seqlen 2000000000
refused 'too large' --device cpu --heads 1 --seqlen 2147483647 --d 256 --kv-len 2147483647 --batch 4096
refused '--batch.*--total-tokens' --batch 2 --total-tokens 16k
refused '--heads.*--hidden' --heads 2 --hidden 2048
refused '--window-left -2' --window-left -2
refused '--window-left 1000000000000000000' --window-left 1000000000000000000
refused '--window-right 5.*--causal' --window-right 5 --causal
refused '--dropout 1:' --dropout 1
refused '--dropout -0.1' --dropout -0.1
refused '--dropout nan' --dropout nan
refused '--dropout-seed 3.*--dropout' --dropout-seed 3
refused '--softcap -1' --softcap -1
refused '--softcap nan' --softcap nan
refused '--shape 8x3.*divide' --shape 8x3
refused '--shape 8x2.*--heads' --shape 8x2 --heads 4
refused '--max-noise' --max-noise -1%
refused '--samples' --samples 1.5
refused '--timeout-s' --timeout-s nan
refused '--atol' --atol -1
refused '--check' --check maybe
refused '--device' --device gpu
refused '--device' --device cuda:x
refused '--preset' --preset papr
refused '--csv -.*|--jsonl -.*' --csv - --jsonl -
small --csv - --columns tflop
refused '--columns: tflop: no such column, did you mean tflops\? All columns: schema, .* softcap$' \
    "${small[@]}"
refused '--impl.*naive' --device cpu --impl naiv
refused '--sustain-s 1.5: .*from 2' --sustain-s 1.5
refused '--sustain-s -1' --sustain-s=-1
refused '--sustain-s 3:' --sustain-s 3 --profile
refused '--quiet.*--verbose' --quiet --verbose
refused '--atol' --check off --atol 1
refused 'plot' plot
refused 'report' report
refused '--overlay' --overlay "$tmp/absent.csv"
refused 'verif' verfy
refused 'seqlen' verify --seqlen 64
refused 'preset' plot --preset quick x.jsonl
refused '--impl-lib' --impl-lib "$tmp/absent.so"
refused '--profile' --device cpu --profile --impl naive,fused --seqlen 64,128
refused '--input' --device cpu --input "$tmp/absent"

refused '--help grops: .*gates' --help=grops

# --help and --version go to stdout; they are no errors.
run --help
expect_code 0
expect_no_stderr
for word in --mode --causal --d --headdim --seqlen --kv-len --dtype --impl --impl-lib --variant --deterministic \
    --total-tokens --hidden --batch --heads --kv-heads --layout --scale --dist --logit-std --seed --device --check \
    --atol --rtol --peer --warmup-ms --min-time-ms --samples --max-noise --timeout-s --sustain-s --l2 --out \
    --resume --csv --jsonl --plot \
    --columns --preset --input --dump --dump-dtype --profile --dry-run --overlay --verbose --quiet --color --version \
    --help; do
    expect_stdout "(^|[ ,|])$word([ ,|=[]|\$)"
done
expect "at most 60 lines of at most 110 columns" awk 'length > 110 { exit 1 } END { exit NR > 60 }' "$tmp/out"

# Every command has its own help, which has all options in full on request.
for command in sweep verify gate ab report plot info list selftest; do
    run $command --help
    expect_code 0
    expect_stdout '(^|  )--version  --help'
    run $command --help=all
    expect_code 0
    expect_stdout '^Exit codes$'
    expect "the long help of $command within 110 columns" awk 'length > 110 { exit 1 }' "$tmp/out"
done
# A logit-std that is none, inputs that have none, a peer that is not there.
for value in 0 -1 nan 1e9 ''; do refused "--logit-std" --device cpu --logit-std="$value"; done
for dist in zeros constant peak rising; do
    refused "--logit-std 4: cannot be used with --dist $dist" --device cpu --logit-std 4 --dist $dist
done
refused '--logit-std 4: cannot be used with --input' --device cpu --logit-std 4 --input "$tmp"
refused '--peer mine: .*must be one of fused, naive, fused_cpu' --device cpu --peer mine --seqlen 64

run --help=measure
expect_code 0
expect_stdout '^  --max-noise P%$'
expect_no_stderr

# The manual in the repository is the program's.
run --help=markdown
expect_code 0
if ! cmp -s "$tmp/out" "$root/docs/cli.md"; then
    fail "docs/cli.md is not what the program says: FABENCH=$fabench scripts/cli_docs.sh renews it"
    diff "$root/docs/cli.md" "$tmp/out" | cut -c1-200 | head -8
fi
run --help=man
expect_code 0
if command -v man >/dev/null; then
    LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l "$tmp/out" >"$tmp/page" 2>"$tmp/err"
    expect_no_stderr
    expect "--pairs in the man page" grep -q -- '--pairs MIN,MAX' "$tmp/page"
fi
run --help=bash
expect_code 0
expect "a completion that bash takes" bash -n "$tmp/out"
if command -v shellcheck >/dev/null; then
    expect "a completion without findings" shellcheck -s bash "$tmp/out"
fi

run --version
expect_code 0
expect_stdout '^fabench [0-9]+\.[0-9]+'
expect_no_stderr
finish
