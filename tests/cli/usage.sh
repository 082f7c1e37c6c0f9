#!/usr/bin/env bash
# What the command line refuses: exit 2, one sentence that names the option, the value and what would be legal.
# The program starts with the C library alone: what a GPU path needs (cuBLAS, cuDNN, the driver) is opened when used.
# docs/reference.md is what the program prints, and has every preset, column, term, build option and exit code.
# list, info, verify, plot and --dry-run on a machine without a GPU, and what happens when a GPU is asked for there.
# Help that starts no work, options given twice, and hints that work as they stand.
. "$(dirname "$0")/lib.sh"

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
refused '--columns: tflop: no such column, did you mean tflops\? All columns: schema, .* model_flop$' \
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

# ---- start ----
next_part
if command -v readelf >/dev/null; then
    readelf -d "$fabench" >dynamic
    sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' dynamic >needed
    expect "the C library among what is needed" grep -qx 'libc\.so\.6' needed
    # The last ones are of systems that bring no archives of them, and of sanitizer builds.
    tolerated='gomp|jansson|asan|ubsan|gcc_s|stdc\+\+'
    others=$(grep -vxE "ld-linux.*|lib(c|m|dl|rt|pthread|$tolerated)\.so\.[0-9]+" needed)
    expect "nothing else needed at the start, not: $others" test -z "$others"
    # An empty part would be the current folder, from where a library could be loaded by accident.
    expect "no current folder in the search path" sh -c "! grep -E 'R(UN)?PATH' dynamic | grep -qE '\[:|::|:\]|\[\]'"
fi

LD_DEBUG=files run --version
expect_code 0
expect "the loader's log" grep -q 'libc\.so' err
expect "no library of CUDA loaded" sh -c "! grep -iE 'libcu(da|blas|dnn|dart)|libnv' err"

# ---- reference ----
next_part
run help reference
expect_code 0
expect_no_stderr
cp out page
if ! cmp -s page "$root/docs/reference.md"; then
    fail "docs/reference.md is not what the program says: FABENCH=$fabench scripts/cli_docs.sh renews it"
    diff "$root/docs/reference.md" page | cut -c1-200 | head -8
fi
what="the reference page"
: >out
: >err

# section TITLE: the first and the following cells of its rows, without backslashes, with tabs between them.
section() {
    awk -v title="$1" '/^#/ { inside = $0 ~ "^#+ " title } inside && /^\|/ { print }' page | sed 's/\\|/!/g; s/\\//g' |
        awk -F ' *[|] *' 'NR > 2 && !/^\|-/ { for (i = 2; i < NF; i++) printf "%s%s", $i, i < NF - 1 ? "\t" : "\n" }'
}
# same WHAT A B: two lists of words are equal.
same() { expect "the same $1: $(diff <(sort "$2") <(sort "$3") | grep '^[<>]' | tr '\n' ' ')" \
    test "$(sort "$2")" = "$(sort "$3")"; }

# Columns: those of the CSV, those of the JSONL; each with a meaning and with when it is empty.
section "Of a row" >columns
run_small --csv run.csv --jsonl run.jsonl --verbose
expect_code 0
what="the columns of the reference page"
head -1 run.csv | tr -d '\r' | tr ',' '\n' >csv
awk -F '\t' '$5 ~ /CSV/ { print $1 }' columns >csv_of_page
same "columns of the CSV" csv csv_of_page
rows run.jsonl | sed 's/"tensors": *\[.*//' | grep -oE '"[a-z_0-9]+":' | tr -d '":' |
    grep -vE '^(type|samples_ms|passes)$' >jsonl
expect "many keys in a row" test "$(wc -l <jsonl)" -gt 30
cut -f 1 columns >named
expect "each key of a row: $(grep -vxFf named jsonl | tr '\n' ' ')" test -z "$(grep -vxFf named jsonl)"
for table in "Of a row" "Of each tensor" "Of each pass"; do
    expect "a meaning and 'empty when' for each column: $table" \
        test -z "$(section "$table" | awk -F '\t' 'NF != 5 || $3 == "" || $4 == "" || $5 == ""')"
done
rows run.jsonl | grep -oE '"tensors": *\[.*' | sed 's/\].*//' | grep -oE '"[a-z_0-9]+":' | tr -d '":' | sort -u |
    grep -v tensors >keys
section "Of each tensor" | cut -f 1 >named
expect "keys of a tensor" test -s keys
expect "each key of a tensor" test -z "$(grep -vxFf named keys)"
expect "the unit in the name, too" test -z "$(awk -F '\t' '$1 ~ /_ms/ && $2 != "ms" || $1 ~ /_mhz/ && $2 != "MHz" ||
    $1 ~ /_pct/ && $2 != "%" || $1 ~ /^power.*_w$/ && $2 != "W"' columns)"

# Presets: all that --preset takes, with as many problems as the plan has.
run --preset nonsense
sed 's/.*must be //; s/ or /, /; s/;.*//' err | tr -d ' ' | tr ',' '\n' >presets
section "On a GPU" | cut -f 1 >presets_of_page
expect "nine presets" test "$(wc -l <presets)" -eq 9
what="the presets of the reference page"
same presets presets presets_of_page
for preset in quick paper full decode; do
    run --device cpu --preset $preset --dry-run
    count=$(sed -n 's/^\([0-9]*\) problems .*/\1/p' out)
    expect "$count problems" test "$(section "On the CPU" | awk -F '\t' -v p=$preset '$1 == p { print $3 }')" = "$count"
done
expect "a time for each" test -z "$(section "On a GPU" | awk -F '\t' '$NF !~ /[0-9]+ (s|min) /')"
what="the reference page"

# Terms: the words of the contract, and those of the table on the terminal.
section Terms | cut -f 1 | tr ',' '\n' | sed 's/^ *//' >terms
awk '/^## /{ inside = /^## 2\. Words/ } inside && /^\| [a-zA-Z]/ { print }' "$root/docs/design.md" |
    sed 's/^| *//; s/ *|.*//' | grep -vx word | sed 's/^GEMM //' >words
expect "words of docs/design.md" test "$(wc -l <words)" -ge 8
printf '%s\n' burst sustained capped throttled cold hot err/bound '+-95%' noise ceiling control round >>words
expect "each word: $(grep -vxFf terms words | tr '\n' ' ')" test -z "$(grep -vxFf terms words)"
expect "each explained" test -z "$( (section Terms; section "Words of") | awk -F '\t' '$2 == ""')"
expect "words of the kernel pages" test "$(section "Words of" | wc -l)" -ge 8

# Build options: those of CMakeLists.txt.
grep -oE '^(option|set)\(FABENCH_[A-Z_]+ .*' "$root/CMakeLists.txt" | grep -E '^option|CACHE' |
    sed 's/^[a-z]*(//; s/ .*//' >cmake
grep -oE '^set\(FABENCH_[A-Z_]+$|^set\(FABENCH_[A-Z_]+ CACHE' "$root/CMakeLists.txt" | sed 's/^set(//; s/ .*//' >>cmake
section "Build options" | cut -f 1 >cmake_of_page
sort -u cmake -o cmake
expect "build options" test -s cmake
same "build options" cmake cmake_of_page

# Exit codes: those of the program.
sed -n 's/^ *EXIT_[A-Z_]* = \([0-9]*\),*$/\1/p' "$root/cmd/base/log.h" >codes
section "Exit codes" | cut -f 1 >codes_of_page
expect "nine exit codes" test "$(wc -l <codes)" -eq 9
same "exit codes" codes codes_of_page

# ---- commands ----
next_part
run list --device cpu
expect_code 0
for implementation in naive fused; do
    expect_stdout "(^| )$implementation"
done
expect_no_stderr
run info --device cpu
expect_code 0
expect_stdout '[Cc][Pp][Uu]'

run_small --dry-run --seqlen 64,128 --mode fwd,bwd --impl naive,fused --jsonl planned.jsonl
expect_code 0
expect_stdout '[0-9]'
expect "no record of a run that was not" sh -c "test ! -s planned.jsonl || ! grep -q '\"row\"' planned.jsonl"
# A plan is made even for problems that are too large for any memory.
run --device cpu --dry-run --seqlen 1m --batch 64 --heads 64 --d 128 --impl naive
expect "a plan or a sentence, not exit $code" test "$code" -eq 0 -o "$code" -eq 2
run verify --device cpu --dry-run --preset quick
expect_code 0
expect_stdout 'problems x [0-9]+ implementations, untimed'

run_small --profile --impl fused
expect_code 0

# Variants of one implementation are separate members of the rounds, with different names in every output.
run list --device cpu
variant=$(awk '/^fused_cpu /{ours = 1} ours && $1 == "variant" {last = $2} END {print last}' out)
run_small --impl "fused_cpu:$variant,fused_cpu" --csv -
expect_code 0
expect "a row named fused_cpu:$variant" test "$(csv_cell out 1 impl)" = "fused_cpu:$variant"
expect "that variant, not '$(csv_cell out 1 variant)'" test "$(csv_cell out 1 variant)" = "$variant"
expect "a command that makes it again" grep -qF -- "--impl fused_cpu:$variant " <<<"$(csv_cell out 1 repro)"
expect "another row named fused_cpu" test "$(csv_cell out 2 impl)" = fused_cpu
run_small --impl "fused_cpu:$variant,fused_cpu" --dump dumped
expect_code 0
expect "a folder of each" test "$(find dumped -name o.npy | wc -l)" -eq 2
run_small --impl fused_cpu:"${variant}x"
expect_code 2
expect_sentence "unknown variant, did you mean fused_cpu:$variant"
run_small --impl fused:"$variant"
expect_code 2
expect_sentence 'what follows the colon belongs to a kernel'
run_small --impl "naive:$variant"
expect_code 2
expect_sentence 'naive has no variants'
run selftest --device cpu --seqlen 256 --impl "fused_cpu:$variant"
expect_code 2
expect_sentence 'not their variants'

# fp16 on the CPU: a named implementation that runs on no problem gives exit 6.
run --device cpu --seqlen 64 --d 64 --dtype fp16 --impl fused --out none --plot none
expect_code 6
expect "a reason" grep -qiE 'fp32|fp16' out err

# Out of memory: a row that says how much it would need.
run --device cpu --seqlen 256k --d 64 --batch 1 --heads 1 --causal --mode fwd --impl naive --check off --out none \
    --csv -
expect_code 6
expect "status oom, not '$(csv_cell out 1 status)'" test "$(csv_cell out 1 status)" = oom
expect "the bytes in the reason, not '$(csv_cell out 1 reason)'" grep -qE '[0-9].*(B|byte)' \
    <<<"$(csv_cell out 1 reason)"
# The same of a bias alone, of 1.3 TiB.
run --device cpu --seqlen 600000 --d 8 --batch 1 --heads 1 --causal=no --bias full --impl fused --check off --out none \
    --csv -
expect_code 6
expect "status oom, not '$(csv_cell out 1 status)'" test "$(csv_cell out 1 status)" = oom

run verify --device cpu --preset quick
expect_code 0
expect_stdout 'pass'
run verify --device cpu --preset quick --mode bwd --causal --d 64 --impl fused --jsonl v.jsonl
expect_code 0
expect "rows without a time" sh -c "! grep -q '\"time_ms\"' v.jsonl"
expect "all of them pass" sh -c "! grep -E '\"type\": *\"row\"' v.jsonl | grep -vqE '\"check\": *\"pass\"'"

if [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]; then
    echo "a GPU is here: its absence is not tried"
else
    for device in cuda:0 cuda:7; do
        run --device $device --seqlen 64 --out none --plot none
        expect_code 6
        expect_sentence 'device|CUDA|driver'
        expect_no_stdout
    done
    run verify --device cuda:0
    expect_code 6
    run info --device cuda:0
    expect_code 6
    # Without an option it falls back to the CPU and says so in one line.
    run --preset quick --dry-run
    expect_code 0
    expect "one line about the CPU" test "$(grep -ciE 'cpu' err)" -eq 1
    for preset in ci acceptance node generations; do # these never fall back
        run --preset $preset --samples 1 --out none
        expect_code 6
        expect_sentence "preset $preset needs a GPU"
    done
    # Their plan needs none.
    run --preset ci --dry-run
    expect_code 0
    expect_stderr 'the plan of a GPU; no implementation was asked'
    expect "12 problems" test "$(grep -cE '^(fwd|bwd) .* bf16 +batch ' out)" -eq 12
    expect_stdout '^12 problems x 3 implementations, about [0-9]+ s '
    run --preset acceptance --dry-run --impl fused --mode fwd
    expect_code 0
    expect_stdout '^8 problems x 1 implementation, about [0-9]+ s '
    run --preset ci --dry-run --device cuda:0
    expect_code 6
fi

# ---- help ----
next_part
# fabench help.
run help
expect_code 0
cp out help.out
run --help
expect "the page of --help" cmp -s out help.out
for command in verify gate ab report plot info list selftest sweep; do
    run "$command" --help
    cp out help.out
    run help "$command"
    expect_code 0
    expect_no_stderr
    expect "the page of $command --help" cmp -s out help.out
done
run --help=measure
cp out help.out
run help measure
expect "the page of a group" cmp -s out help.out
run help verfy
expect_code 2
expect_sentence 'help verfy: no such command; did you mean verify'
run help nonsense
expect_code 2
expect_sentence 'must be sweep, .* or help'
run help ab gate
expect_code 2

# scripts/*.sh --help: in a copy of the folder alone, where nothing could be built; it answers and leaves nothing.
mkdir -p copy/home
cp -r "$root/scripts" copy/
cp -r "$root/examples/ci" copy/
chmod -R a-w copy
for script in copy/scripts/*.sh copy/ci/check.sh copy/ci/gate.sh; do
    for option in --help -h; do
        what="$script $option"
        code=0
        HOME=$tmp/copy/home "$script" "$option" >out 2>err </dev/null || code=$?
        expect_code 0
        expect_no_stderr
        expect "its name and what it does" grep -qF "$(basename "$script")" out
    done
done
chmod -R u+w copy
what="scripts/*.sh --help"
expect "nothing new" diff -r "$root/scripts" copy/scripts
expect "no home used" test -z "$(ls -A copy/home)"

# The last one of two holds, which --verbose says.
run_small --seqlen 64 --verbose --csv - --seqlen 192
expect_code 0
expect "the last length" test "$(csv_cell out 1 q_len)" = 192
expect_stderr '^fabench: --seqlen was given more than once: the last one holds, 192$'
run --device cpu --seqlen 64 --seqlen 128 --dry-run
expect_code 0
expect_no_stderr
expect_stdout ' n=128 '
expect "the first one is not planned" sh -c '! grep -q n=64 out'

# Hints name the program as it was called: a path, or the script that called it.
unset FABENCH_CALLED_AS
mkdir 'my tools'
ln -s "$fabench" 'my tools/fabench'
small --out run --plot none
what="./my tools/fabench ${small[*]}"
./my\ tools/fabench "${small[@]}" >out 2>err
hint=$(sed -n 's/^next: //p' out)
expect "the path in it, not: $hint" test "$hint" = "'./my tools/fabench' plot run/run.jsonl --plot term"
expect "a command that works" bash -c "$hint >plot.out"
run_small --frobnicate
expect_sentence "see $fabench --help"
FABENCH_CALLED_AS=./scripts/run.sh run_small --out run --overwrite --plot none
expect_stdout '^next: ./scripts/run.sh plot run/run.jsonl --plot term$'
run_small --impl-lib "$plugins/libwrong_cpu.so" --impl wrong_scale
expect_code 1
expect_stdout "^  $fabench --device cpu .*"

finish
