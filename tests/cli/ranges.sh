#!/usr/bin/env bash
# No right kernel fails, whatever the size of its logits: random problems over the whole ranges of --scale and
# --logit-std, softcaps from 1e-4 to 1e3 and common parts of up to 20000, alone and together, both directions, in fp32.
#
#   ranges.sh [RUNS]    of eight problems each; default 12, ctest's nightly_ranges has 250
. "$(dirname "$0")/lib.sh"

export OMP_NUM_THREADS=1
limit_s=300
# drawn SEED N: the options of run N.
drawn() {
    awk -v seed="$1" -v n="$2" '
        function size(low, high) { return sprintf("%.4g", exp(log(low) + rand() * log(high / low))) }
        function one_of(text,    words) { return words[int(rand() * split(text, words, " ")) + 1] }
        BEGIN {
            srand(1000 * seed + n); rand(); kind = int(rand() * 5)
            text = "--d " one_of("8 32 64 128 216") " --seqlen " one_of("33,64 65,129 96,257 7,200")
            if (kind == 0 || kind == 4) text = text " --scale " size(1e-6, 1e4)
            if (kind == 1 || kind == 4) text = text " --logit-std " size(1e-3, 1e3)
            if (kind == 2) text = text " --logit-mean=" one_of("- +") size(1, 2e4)
            if (kind == 3 || rand() < 0.3) text = text " --softcap " size(1e-4, 1e3)
            sub(/=\+/, "=", text)
            print text
        }'
}
for ((n = 0; n < ${1:-12}; n++)); do
    read -r -a options < <(drawn 1 $n)
    run --device cpu --dtype fp32 --batch 1 --heads 2 --mode fwd,bwd --causal=both --impl fused --samples 1 \
        --warmup-ms 0 --min-time-ms 0 --max-noise 100% --l2 hot --out none "${options[@]}"
    expect_code 0
    expect_stdout '^PASS: 8 of 8 rows'
done
finish
