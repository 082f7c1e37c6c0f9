#!/usr/bin/env bash
# All checks of a GPU machine, without a network and without gnuplot, in stages of under 8 minutes each on an idle
# machine:
#
#   scripts/gpu_check.sh [--out DIR] [STAGE...|all]
#
#   build     builds the release preset (skipped where FABENCH_BUILD names a folder that is built already)
#   test      the GPU tests and `fabench selftest`
#   verify    `fabench verify`, also --deterministic, with every tile and with 99 KB of shared memory for a block
#   sanitize  compute-sanitizer memcheck and synccheck over `fabench verify --preset quick`, also --deterministic
#             and with every tile of the forward and of fused_sm90's backward, over its decode, and over a launch of
#             fused_sm80's backward with a block mask; racecheck over the rings of gpu_test_blocks
#   racecheck      racecheck over `fabench verify --preset quick` of our fused kernels in bf16, and over that launch
#   racecheck-fwd  racecheck over every tile of their forward
#   racecheck-bwd  racecheck over every tile of fused_sm90's backward
#   racecheck-det  racecheck over their deterministic backward
#             four stages, because a launch under racecheck takes seconds
#   sweep     the paper sweep in fp16 and bf16: naive, fused, cudnn
#   repeat    sixteen points at 4K and 16K twice, in fresh processes: % of GEMM must agree within 1 %
#   energy    one sustained region of 60 s: the device's energy counter and the integrated power must agree within 5 %
#
# The output and the files of a stage are in DIR/gpu-check/<stage>/ (DIR is build/ unless given), and those of all
# stages in DIR/gpu-check-<utc>.tar.gz. Stages may be run in separate calls with one DIR. The exit code is the worst of
# the stages in fabench's order: 7, 6, 1, then any other.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."

stage_limit_s=470
all_stages=(build test verify sanitize racecheck racecheck-fwd racecheck-bwd racecheck-det sweep repeat energy)
out=build
if [ "${1:-}" = --out ]; then
    [ $# -ge 2 ] || { echo "gpu_check: --out needs a folder" >&2; exit 2; }
    out=$2
    shift 2
fi
[ $# -gt 0 ] || set -- all
stages=()
for stage in "$@"; do
    case $stage in
    all) stages+=("${all_stages[@]}") ;;
    *)
        [[ " ${all_stages[*]} " == *" $stage "* ]] || {
            echo "gpu_check: $stage: no such stage; ${all_stages[*]}, or all" >&2
            exit 2
        }
        stages+=("$stage")
        ;;
    esac
done

folder=${FABENCH_BUILD:-build/release}
fabench=$folder/fabench
mkdir -p "$out"
report=$(cd "$out" && pwd)/gpu-check
worst=0

# keep CODE: keeps the worse of CODE and the code so far.
keep() {
    local code
    for code in 7 6 1; do
        if [ "$1" -eq $code ] || [ "$worst" -eq $code ]; then
            worst=$code
            return
        fi
    done
    [ "$1" -eq 0 ] || worst=$1
}

# step NAME COMMAND...: runs the command within the remaining time of the stage, output to NAME.log.
step() {
    local name=$1 code=0 left=$((stage_limit_s - SECONDS + stage_started)) began=$SECONDS
    shift
    [ "$left" -gt 1 ] || left=1
    if [ "$(type -t "$1")" = function ]; then
        "$@" >"$here/$name.log" 2>&1 || code=$?
    else
        timeout --kill-after=10 --signal=INT "$left" "$@" >"$here/$name.log" 2>&1 </dev/null || code=$?
    fi
    printf '%-10s %-16s exit %-3d %4d s\n' "$stage" "$name" "$code" $((SECONDS - began)) | tee -a "$report/summary.txt"
    [ "$code" -eq 0 ] || tail -n 15 "$here/$name.log"
    keep "$code"
}

build_stage() {
    if [ -n "${FABENCH_BUILD:-}" ]; then
        echo "build      using $FABENCH_BUILD" | tee -a "$report/summary.txt"
    else
        step build env FABENCH_LINEINFO=ON bash -euo pipefail -c '. scripts/functions.bash; build_preset release'
    fi
}

# Our fused kernels that run on this device, separated by commas.
fused_here() {
    "$fabench" list --device cuda:0 | awk '/^fused_[a-z0-9]+ +cuda/ { name = $1 }
        / runs here/ && name != "" { printf "%s%s", sep, name; sep = ","; name = "" }
        /^[a-z]/ && $1 != name { name = "" }'
}

# Their tiles, as --impl takes them, a line each; with "dense" those that take dense attention without a cache.
tiles_here() {
    "$fabench" list --device cuda:0 | awk -v ours=",$(fused_here)," -v which="${1:-all}" '/^[a-z]/ { impl = $1 }
        $1 == "variant" && index(ours, "," impl ",") &&
            (which == "all" || (!/not dense attention/ && $2 !~ /^(decode|fp8)_/)) { print impl ":" $2 }'
}

test_stage() {
    local program
    if command -v nvidia-smi >/dev/null; then
        step nvidia-smi nvidia-smi -q
    fi
    step info "$fabench" info --device cuda:0
    step list "$fabench" list --device cuda:0
    # ctest knows the tests by the path they were built at.
    if command -v ctest >/dev/null && grep -qs "Source directory: $PWD\$" "$folder/CTestTestfile.cmake"; then
        # Those that are nightly too (long lengths on the device) are among them.
        step gpu-tests ctest --test-dir "$folder" -L gpu --no-tests=error --output-on-failure
    else
        while read -r program; do
            step "$(basename "$program")" "$program"
        done < <(find "$folder" -type f -executable -name 'gpu_test_*' | sort)
        step wrong-kernels env FABENCH="$fabench" FABENCH_PLUGINS="$folder/tests/wrong" \
            bash tests/cli/wrong_kernels.sh cuda 1024 16384
    fi
    step selftest "$fabench" selftest --device cuda:0 --jsonl "$here/selftest.jsonl"
}

# checked NAME OPTION...: a sweep with these options for its checks; it is timed as briefly as can be.
checked() {
    local name=$1
    shift
    step "$name" "$fabench" --device cuda:0 "$@" --warmup-ms 1 --min-time-ms 1 --samples 3 --max-noise 100% \
        --plot none --out none
}

verify_stage() {
    local variant head_dim tiles forward_tiles inputs steps data lengths score
    step verify "$fabench" verify --device cuda:0 --out "$here/verify"
    step deterministic "$fabench" verify --device cuda:0 --mode bwd --deterministic --impl "$(fused_here)" --out none
    # Every tile configuration, not only those that the shapes of verify select.
    tiles=$(tiles_here || true)
    if [ -z "$tiles" ]; then
        echo "$stage     no tile listed" | tee -a "$report/summary.txt"
        keep 6
    fi
    for variant in $tiles; do
        head_dim=${variant##*[:_]d} # ...:d64_kv128q64, ...:fwd_d64_m128n128
        if [[ $variant == *:fp8_* ]]; then
            step "${variant#*:}" "$fabench" verify --device cuda:0 --preset quick --d "${head_dim%%_*}" \
                --dtype e4m3,e5m2 --fp8-scale tensor,head,block --impl "$variant,$variant:fast" --out none
            continue
        fi
        step "${variant#*:}" "$fabench" verify --device cuda:0 --preset quick --d "${head_dim%%_*}" --impl "$variant" \
            --out none
        # Pairs of blocks, blocks that keep their queries, those of masks and loops of ranges have no such kernels.
        [[ $variant != *:bwd_* || $variant == *_pair || $variant == *_few || $variant == *:bwd_lists_* ||
            $variant == *:bwd_ranges_*_loop ]] ||
            step "${variant#*:}-det" "$fabench" verify --device cuda:0 --preset quick --mode bwd --deterministic \
                --d "${head_dim%%_*}" --impl "$variant" --out none
    done
    if [[ ,$(fused_here), == *,fused_sm90,* ]]; then
        # Packed sequences whose lengths are beside the edges of tiles, or 0 on either side; the same with windows.
        lengths=list:0x128:128x0:127x129:128:129x127:1:300x700:700x300:0:64:65x63:1x1000
        checked packed --d 64,128 --dtype fp16,bf16 --causal=both --mode fwd,bwd --heads 8 --kv-heads 2 \
            --lengths "$lengths" --impl fused_sm90
        checked packed-windows --d 64,128 --dtype bf16 --mode fwd,bwd --heads 4 --window-left 100 --window-right 0,30 \
            --causal=no --lengths "$lengths" --impl fused_sm90
        checked packed-windows-det --d 64,128 --dtype bf16 --mode bwd --heads 4 --window-left 100 --window-right 0,30 \
            --causal=no --lengths "$lengths" --impl fused_sm90 --deterministic
        checked packed-sink --d 64,128 --dtype fp16,bf16 --causal=both --mode fwd --heads 4 --sink \
            --lengths "$lengths" --impl fused_sm90
        # Softcaps far above the scores, where tanh is a polynomial, among them, and far below; and a few large scores
        # among small ones.
        for data in 30 5 0.5 0.01; do
            checked "softcap-$data" --d 64,128 --dtype fp16,bf16 --causal=both --mode fwd,bwd --heads 4 \
                --seqlen 129,1650 --softcap "$data" --dist normal,outliers --impl fused_sm90
        done
        # Caches: random problems; numbers of splits, of which some are more than a short cache has tiles.
        step random-decode "$fabench" verify --device cuda:0 --random 1500 --seed 1 --mode decode --d 64,128,256 \
            --dtype fp16,bf16 --impl fused_sm90,fused_sm90:invariant --out none
        step invariant-decode "$fabench" verify --device cuda:0 --invariance --random 500 --seed 2 --mode decode \
            --d 64,128,256 --dtype fp16,bf16 --impl fused_sm90 --out none
        # 8-bit caches and chunks of a prefill, with caches as long as those that are timed.
        checked decode-8-bit --mode decode --d 64,128,256 --dtype fp16,bf16 --cache-dtype e4m3,e5m2 --heads 8 \
            --kv-heads 2 --lengths uniform:20:9000 --batch 5 --seqlen 1,5 --page-size 16 \
            --impl fused_sm90,fused_sm90:invariant
        checked decode-chunks --mode decode --d 64,128,256 --dtype fp16,bf16 --cache-dtype none,e4m3 --heads 8 \
            --kv-heads 2 --lengths list:1x9000:300x4000:0x700:16x16:5x1000 --page-size 64 \
            --impl fused_sm90,fused_sm90:invariant
        for steps in 1 2 7 40 256; do
            checked "decode-splits-$steps" --mode decode --d 64,128,256 --dtype fp16,bf16 --heads 8 --kv-heads 2 \
                --lengths uniform:20:6000 --batch 5 --seqlen 1,5 --page-size 16 --splits "$steps" --impl fused_sm90
        done
    fi
    if [[ ,$(fused_here), == *,fused_sm80,* ]]; then
        # Sinks, ALiBi and biases: widths of every tile, rows without keys, alone and beside what else changes a score.
        score=(--impl fused_sm80 --d 8,32,64,96,128,192,256 --dtype fp16,bf16 --heads 4 --kv-heads 2 --mode fwd,bwd)
        for data in sink alibi "bias full" "bias heads" "bias batch"; do
            # shellcheck disable=SC2086 # an option and its value
            checked "score-${data// /-}" "${score[@]}" --seqlen 129,1650 --kv-len 1025 --causal=both --$data
            # shellcheck disable=SC2086
            checked "score-${data// /-}-packed" "${score[@]}" --causal=yes --dropout 0.1 --$data \
                --lengths list:0x128:128x0:127x129:128:129x127:1:300x700:700x300:0:64:65x63:1x1000
        done
        for data in sink alibi "bias full"; do
            # shellcheck disable=SC2086
            checked "score-${data// /-}-det" "${score[@]}" --seqlen 1650 --window-left none,100 --deterministic --$data
        done
        checked score-softcap "${score[@]}" --seqlen 700 --softcap 30 --alibi --sink --causal=both
        checked score-mask "${score[@]}" --seqlen 700 --block-mask random:0.5 --alibi --sink --causal=both
        # V of another head dim: rows without keys, windows, packed sequences, masks; every length beside a tile's.
        score=(--impl fused_sm80 --d 64x128,192x128 --dtype fp16,bf16 --heads 4 --kv-heads 2 --mode fwd,bwd)
        checked v-lengths "${score[@]}" --seqlen 129,1650 --kv-len 1025 --causal=both --window-left none,100
        checked v-packed "${score[@]}" --causal=both \
            --lengths list:0x128:128x0:127x129:128:129x127:1:300x700:700x300:0:64:65x63:1x1000
        checked v-mask "${score[@]}" --seqlen 700 --block-mask random:0.5 --causal=both
        step v-random "$fabench" verify --device cuda:0 --random 1000 --seed 1 --d 64x128,192x128 --mode fwd,bwd \
            --impl fused_sm80,fused_sm80:smem_99kb --out none
    fi
    step random-decode-sm80 "$fabench" verify --device cuda:0 --random 1000 --seed 1 --mode decode --d 64,128,256 \
        --impl fused_sm80,fused_sm80:smem_99kb --out none
    # Sequences in other batches: who promises the same bits is held to it.
    step invariance "$fabench" verify --device cuda:0 --invariance --random 500 --seed 1 --repeats 0 \
        --impl naive,fused --out none
    # What runs where thread blocks have less shared memory.
    step smem-99kb "$fabench" verify --device cuda:0 --impl fused_sm80:smem_99kb --out none
    # And at the measured lengths, where a block computes many tiles; at a length that no tile divides, where the second
    # block of a head's last pair has no rows.
    for head_dim in 64 128; do
        tiles=$(tiles_here dense | grep "d${head_dim}_" | grep -v _few | paste -sd, || true)
        forward_tiles=$(tiles_here dense | grep ":fwd_d${head_dim}_" | paste -sd, || true)
        checked "lengths-d$head_dim" --d "$head_dim" --seqlen 1k,4k --dtype bf16 --impl "$tiles"
        checked "odd-length-d$head_dim" --d "$head_dim" --seqlen 1650 --batch 1 --heads 24 --dtype bf16 --impl "$tiles"
        # Block masks as large as tiles: empty rows and keys, many work tiles, lists of several hundred tiles.
        tiles=$(tiles_here | grep "_lists_d${head_dim}_" | paste -sd, || true)
        [ -z "$tiles" ] || for steps in 1000,4k 40k; do
            checked "masks-d$head_dim-${steps%,*}" --d "$head_dim" --seqlen "$steps" --batch 1 --heads 4 --kv-heads 2 \
                --dtype bf16 --block-mask random:0.05,random:0.5,local:0 --mask-block 128 --impl "$tiles"
        done
        # Row maxima that lag far behind, in rows with many keys of the largest weight.
        inputs=$(mktemp -d)
        for steps in two one; do
            step "$steps-step-inputs-d$head_dim" python3 scripts/stepped_logits.py "$inputs" 2 4096 "$head_dim" \
                "$steps"
            checked "$steps-step-logits-d$head_dim" --d "$head_dim" --seqlen 4k --batch 1 --heads 2 --mode fwd \
                --dtype fp16,bf16 --input "$inputs" --impl "$forward_tiles"
        done
        rm -rf "$inputs"
        # Widely spread scores, with which fused_sm90's forward takes rounding errors out of O on the way.
        checked "wide-logits-d$head_dim" --d "$head_dim" --seqlen 1650,5k --batch 1 --heads 4 --mode fwd \
            --dtype fp16,bf16 --logit-std 2,4,8,32 --impl "$forward_tiles"
        # Causal problems with rows that see a key only behind the first block of their tile.
        for data in logit-std=4,16 dist=falling; do
            checked "late-rows-d$head_dim-${data%=*}" --d "$head_dim" --seqlen 1650 --kv-len 1653,1682,1777 --causal \
                --batch 1 --heads 4 --mode fwd --dtype fp16,bf16 "--$data" --impl "$forward_tiles"
        done
        tiles=$(tiles_here | grep ":fp8_d${head_dim}_" | sed 's/.*/&,&:fast/' | paste -sd, || true)
        [ -z "$tiles" ] || checked "8-bit-lengths-d$head_dim" --d "$head_dim" --seqlen 1650,4k --dtype e4m3,e5m2 \
            --fp8-scale block --mode fwd --impl "$tiles"
        # Random problems of the forward. One of d128's has huge logits, which a row max that is too low makes NaN of.
        step "random-forward-d$head_dim" "$fabench" verify --device cuda:0 --random 1500 --seed 1 --mode fwd \
            --d "$head_dim" --impl "$(fused_here)" --out none
        # Deterministic, with so many heads that fused_sm90's backward staggers them.
        checked "lengths-det-d$head_dim" --d "$head_dim" --seqlen 1000,2k --total-tokens 16000 --mode bwd \
            --deterministic --dtype bf16 --impl "$(fused_here)"
        # Queries that do not stay in the L2, for one key head: fused_sm90's backward shares them out in turns.
        checked "one-key-head-d$head_dim" --d "$head_dim" --seqlen 8k --batch 1 --heads 32 --kv-heads 1 --mode bwd \
            --causal --dtype bf16 --impl "$(fused_here)"
    done
}

# Counts racecheck's reports of the kind that docs/kernels/sm90_bwd.md explains, what one lane gives back for its warp:
# there the slots of statistics (load_shared_float2, for which the tool names it or the function that it is inlined
# into: by its lines; a read of which the tool knows no line counts where its report names another of these), in the
# forward which work tile a stage of Q holds and which part of its keys (`smem.work_tile`, `smem.key_part`, by their
# lines in the sources), in either order. Fails where there is any other, or no closing line. (A wait for work_tile_full
# or q_empty left out, or a stage of Q given back before the last read of its key_part, would be the same pair: that the
# tests of results have to find, as both say where O belongs.)
reports_explained() {
    local places statistics
    statistics=$(awk '/ load_shared_float2\(/ { inside = 1 } inside { printf "%s%d", sep, FNR; sep = "|" }
        inside && /^}/ { exit }' kernels/device/memory.cuh)
    places=$(grep -n 'smem\.\(work_tile\|key_part\)\[' kernels/sm90/fwd/consumer.cuh kernels/sm90/fwd/producer.cuh |
        sed 's|.*/\([^/:]*\):\([0-9]*\):.*|\1:\2|' | paste -sd'|')
    awk -v place="in ($places)( |\$)" -v statistics="in memory.cuh:($statistics)( |\$)" '
        function end_report() { if (nowhere && !known) { printf "%s", lines; others += nowhere }
            nowhere = known = 0; lines = "" }
        function is_read() { return /Read access at .*::consume</ && $0 ~ place }
        function is_write() { return /Write access at .*::publish_work_tile</ && $0 ~ place }
        / Race reported between/ { end_report(); reports++; mine = is_read() ? "read" : is_write() ? "write" : ""
            if (!mine && !/Write access at device::bulk_load(_multicast)?\(/) { print; others++ } }
        /^=+ +and .* access at / {
            if (mine) { if (mine == "read" ? !is_write() : !is_read()) { print; others++ } }
            else if (/Read access at device::load_shared_float2\(/ ||
                /Read access at void sm90_bwd::/ && $0 ~ statistics) known = 1
            else if (/Read access at void sm90_bwd::/ && !/ in [^ ]+:[0-9]+/) { lines = lines $0 "\n"; nowhere++ }
            else { print; others++ } }
        /RACECHECK SUMMARY/ { end_report(); print; ended = 1 }
        END { end_report()
            printf "%d reports, %d lines of another kind than the explained one\n", reports, others
            exit others > 0 || !ended }' "$1"
}

# Racecheck over gpu_test_blocks, which has such patterns alone: of the rings it reports those that one lane gives back
# for its warp, plain stores or copy engine. The ping-pong of warpgroups is not judged: racecheck reports it with
# bar.arrive and, as was tried, with bar.sync, for a reason that is not known. The test's values show that it is
# correct, as a warp is late at each step. Any other report is a failure.
rings_explained() {
    awk '/Race reported between/ { reports++; ping_pong = /::ping_pong\(/
            if (!ping_pong && !/ring<\(bool\)[01], \(bool\)1>/) { print; others++ } }
        /^=+ +and .* access at / && ping_pong && !/::ping_pong\(/ { print; others++ }
        /^=+ +and .* access at / && !ping_pong &&
            !/(ring<\(bool\)0, \(bool\)1>|device::bulk_load)\(/ { print; others++ }
        /RACECHECK SUMMARY/ { print; ended = 1 }
        END { printf "%d reports, %d lines of another kind than the explained one\n", reports, others
            exit others > 0 || !ended }' "$1"
}

# Sets `sanitizer`, or fails.
find_sanitizer() {
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    if [ ! -x "$sanitizer" ]; then
        echo "$stage compute-sanitizer not found" | tee -a "$report/summary.txt"
        keep 6
        return 1
    fi
}

# Racecheck stops printing after 100 reports unless told otherwise.
every_report=(--print-limit 1000000)

# sanitized TOOL NAME OPTION...: `fabench verify --preset quick` with these options under the tool.
sanitized() {
    local tool=$1 name=$2 options=(--target-processes all)
    shift 2
    case $tool in
    racecheck) options+=("${every_report[@]}") ;; # its reports are read
    *) options+=(--error-exitcode 99) ;;
    esac
    if [ -e "tests/gpu/$tool.xml" ]; then # each entry says why
        options+=(--suppressions "tests/gpu/$tool.xml")
    fi
    step "$name" "$sanitizer" --tool "$tool" "${options[@]}" \
        "$fabench" verify --device cuda:0 --preset quick --timeout-s 400 --out none "$@"
}

# pieces_sanitized TOOL: a launch of fused_sm80's sparse backward that has pieces (kernels/sm80/bwd/places.h), for which
# shapes of `verify --preset quick` are too small.
pieces_sanitized() {
    local head_dim
    for head_dim in 64 128; do
        step "$1-pieces-d$head_dim" "$sanitizer" --tool "$1" --target-processes all --error-exitcode 99 \
            --kernel-regex kns=backward_main "$fabench" --profile --device cuda:0 --impl fused_sm80 --mode bwd \
            --dtype bf16 --d "$head_dim" --batch 1 --heads 32 --seqlen 3999 --causal=no --block-mask random:0.1
    done
}

# kernels WHICH: sets `options` to those of verify that choose our fused kernels; in one dtype, because these tools see
# no difference between dtypes.
kernels() {
    options=(--dtype bf16)
    case $1 in
    chosen) options+=(--impl "$(fused_here)") ;;
    fp8) # scales of blocks, which need the most
        options=(--dtype e4m3 --fp8-scale block --d 64,128
            --impl "$(tiles_here | grep ':fp8_' | sed 's/.*/&,&:fast/' | paste -sd, || true)")
        ;;
    fwd | bwd) # small shapes choose only a few of the tiles; those of fused_sm90's backward begin with bwd_
        local tiles
        [ "$1" = fwd ] || options=(--dtype fp16,bf16) # which load keys in different orders
        tiles=$(tiles_here | grep ":$1_" || true)
        options+=(--mode "$1" --impl "$(paste -sd, <<<"$tiles")"
            --d "$(sed 's/.*_d\([0-9x]*\)_.*/\1/' <<<"$tiles" | sort -u | paste -sd,)")
        ;;
    det) options+=(--mode bwd --deterministic --impl "$(fused_here)") ;; # kernels of its own
    decode) options+=(--mode decode --d 64,128,256 --impl "$(fused_here),fused_sm90:invariant") ;;
    esac
}

sanitize_stage() {
    local sanitizer tool blocks options
    find_sanitizer || return 0
    for tool in memcheck synccheck; do
        sanitized "$tool" "$tool" --impl "naive,$(fused_here)"
        kernels det
        sanitized "$tool" "$tool-det" "${options[@]}"
        kernels fwd
        sanitized "$tool" "$tool-fwd" "${options[@]}"
        kernels bwd
        sanitized "$tool" "$tool-bwd" "${options[@]}"
        kernels decode
        sanitized "$tool" "$tool-decode" "${options[@]}"
        if [[ ,$(fused_here), == *,fused_sm90,* ]]; then
            kernels fp8
            sanitized "$tool" "$tool-fp8" "${options[@]}"
        fi
        pieces_sanitized "$tool"
    done
    blocks=$(find "$folder" -type f -executable -name gpu_test_blocks | head -n 1)
    if [ -z "$blocks" ]; then
        echo "sanitize   gpu_test_blocks not found" | tee -a "$report/summary.txt"
        keep 7
        return
    fi
    step rings "$sanitizer" --tool racecheck "${every_report[@]}" "$blocks"
    step ring-reports rings_explained "$here/rings.log"
}

# racecheck_stage WHICH: as for kernels.
racecheck_stage() {
    local sanitizer options
    find_sanitizer || return 0
    kernels "$1"
    sanitized racecheck "$stage" "${options[@]}"
    step reports reports_explained "$here/$stage.log"
    [ "$1" != chosen ] || pieces_sanitized racecheck
}

sweep_stage() {
    step sweep "$fabench" --device cuda:0 --preset paper --dtype fp16,bf16 --impl naive,fused,cudnn \
        --out "$here/records"
}

# Prints the difference in % of GEMM of every point between two CSV files; fails where it is 1 % or more.
differences() {
    awk -F, 'FNR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        { point = $column["impl"] " " $column["mode"] " causal=" $column["causal"] " d=" $column["head_dim"] \
                " n=" $column["q_len"]; share = $column["pct_of_gemm"] }
        NR == FNR { first[point] = share; next }
        first[point] > 0 && share > 0 { compared++; change = 100 * (share / first[point] - 1)
            if (change >= 1 || change <= -1) { apart++ }
            printf "%-44s %+.2f %%\n", point, change }
        END { printf "%d points compared, %d apart by 1 %% or more\n", compared, apart
            exit compared == 0 || apart > 0 }' "$1" "$2"
}

repeat_stage() {
    local run
    for run in first second; do
        step "$run" "$fabench" --device cuda:0 --seqlen 4k,16k --dtype bf16 --impl naive,fused,cudnn \
            --out "$here/$run" --plot none
    done
    step differences differences "$here/first/run.csv" "$here/second/run.csv"
}

# Prints both energies of every row of a record; fails where one is absent or they differ by more than 5 %.
energies_agree() {
    grep -E '"type": *"row"' "$1" | awk '
        function value(name) {
            if (!match($0, "\"" name "\": *[0-9.e+-]+")) return 0
            return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
        }
        { counter = value("energy_counter_j"); integral = value("energy_integral_j"); rows++
            if (counter <= 0 || integral <= 0) { print "a row without both energies"; bad++; next }
            change = 100 * (counter / integral - 1)
            if (change > 5 || change < -5) bad++
            printf "counter %.1f J, integrated power %.1f J, %+.2f %%, over %.1f s\n", counter, integral, change,
                value("sustain_s") }
        END { exit rows == 0 || bad > 0 }'
}

energy_stage() {
    step sustained "$fabench" --device cuda:0 --mode fwd --causal --d 128 --seqlen 16k --dtype bf16 --impl fused \
        --sustain-s 60 --out "$here/records" --plot none
    step agreement energies_agree "$here/records/run.jsonl"
}

mkdir -p "$report"
for stage in "${stages[@]}"; do
    here=$report/$stage
    rm -rf "$here"
    mkdir -p "$here"
    stage_started=$SECONDS
    if [ "$stage" != build ] && [ ! -x "$fabench" ]; then
        echo "$stage      no program at $fabench; run the build stage" | tee -a "$report/summary.txt"
        keep 7
        continue
    fi
    case $stage in
    racecheck) racecheck_stage chosen ;;
    racecheck-*) racecheck_stage "${stage#racecheck-}" ;;
    *) "${stage}_stage" ;;
    esac
done
archive=$out/gpu-check-$(date -u +%Y%m%dT%H%M%SZ).tar.gz
tar -C "$out" -czf "$archive" gpu-check
echo "archive: $archive, exit $worst"
exit "$worst"
