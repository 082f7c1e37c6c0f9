#!/usr/bin/env bash
# Plugins that lie (tests/liars) and kernels that are wrong (tests/wrong): each has the verdict that its verdicts.txt
# names, an honest one beside them keeps its row, and docs/liars.md shows what was found.
#
#   liars.sh [--write | cold | cuda]
#
# --write: writes the tables of docs/liars.md, between the lines <!-- liars:begin --> and <!-- liars:end -->.
# cold: the same with a cold cache and wrong kernels at 1032 rows; ctest's nightly_liars.
# cuda: those of liars_cuda.cu, on a device, and no page; ctest's gpu_liars.
. "$(dirname "$0")/lib.sh"

action=${1:-}
export OMP_NUM_THREADS=1 # these problems are so short that threads would wait for each other most of the time
l2=hot wrong_rows=72
if [ "$action" = cold ]; then
    l2=cold wrong_rows=1032
fi
declare -A kind verdict lie why forward backward forward16 backward16 fault fault_why
declare -A status check timed rated sustained rules got
lies=() wrongs=()

trimmed() { sed 's/^ *//; s/ *$//' <<<"$1"; }
# read_list FILE ARRAY-OF-NAMES FIELD...: the lines of a verdicts.txt into one associative array for each field.
read_list() {
    local file=$1 fields=("${@:3}") line cells name i
    local -n names=$2
    while read -r line; do
        [[ $line == "#"* || -z $line ]] && continue
        IFS='|' read -r -a cells <<<"${line// | /|} "
        name=${cells[0]}
        names+=("$name")
        for i in "${!fields[@]}"; do
            local -n field=${fields[i]}
            field[$name]=$(trimmed "${cells[i + 1]:-}")
        done
    done <"$file"
}
read_list "$root/tests/liars/verdicts.txt" lies kind verdict lie why
read_list "$root/tests/wrong/verdicts.txt" wrongs forward backward forward16 backward16 fault fault_why

# read_rows FILE [more]: status, check, time, TFLOPS and the rules of the failed tensors of each row; of a name, the
# last row. more: what was read before stays.
read_rows() {
    local name
    [ "${2:-}" = more ] || { status=() check=() timed=() rated=() sustained=() rules=(); }
    while IFS=$'\t' read -r name row_status row_check row_time row_tflops row_sustained row_rules; do
        status[$name]=$row_status check[$name]=$row_check timed[$name]=$row_time rated[$name]=$row_tflops
        sustained[$name]=$row_sustained rules[$name]=$row_rules
    done < <(awk '
        function value(text, key,    rest) {
            if (!match(text, "\"" key "\": *")) return "-"
            rest = substr(text, RSTART + RLENGTH)
            if (substr(rest, 1, 1) == "\"") { rest = substr(rest, 2); sub(/".*/, "", rest) }
            else sub(/[,}].*/, "", rest)
            return rest == "" || rest == "null" ? "-" : rest
        }
        /"type": *"row"/ {
            head = $0; tensors = ""
            if (match(head, /"tensors": *\[/)) { tensors = substr(head, RSTART); head = substr(head, 1, RSTART - 1) }
            count = split(tensors, entries, /\{"name": */)
            found = ""
            for (i = 2; i <= count; i++)
                if (entries[i] ~ /"failure": *"[^"]/) {
                    rule = value(entries[i], "rule")
                    if (index(" " found " ", " " rule " ") == 0) found = found (found == "" ? "" : " ") rule
                }
            printf "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", value(head, "impl"), value(head, "status"), value(head, "check"),
                value($0, "time_ms"), value($0, "tflops"), value($0, "tflops_sustained"), found == "" ? "-" : found
        }' "$1")
}

# verdict_of NAME WANTED: the verdict on a row, in the words of verdicts.txt; the wanted rule if it is among the found.
verdict_of() {
    local name=$1 rule=${2#fail }
    rule=${rule%%,*}
    if [ -z "${status[$name]:-}" ]; then
        echo "no row"
    elif [ "${status[$name]}" != ok ]; then
        [ "${timed[$name]}" = - ] || { echo "${status[$name]} with a time"; return; }
        echo "${status[$name]}"
    elif [ "${check[$name]}" = pass ]; then
        [ "${rated[$name]}" != - ] && echo pass || echo "pass without TFLOPS"
    elif [ "${check[$name]}" = fail ] && [ "${rated[$name]}" = - ]; then
        if [ "$rule" = any ] && [ "${rules[$name]}" != - ]; then
            echo "fail any"
        elif [[ " ${rules[$name]} " == *" $rule "* ]]; then
            echo "fail $rule"
        else
            echo "fail ${rules[$name]}"
        fi
    else
        echo "check ${check[$name]}, TFLOPS ${rated[$name]}"
    fi
}

# settle KEY WHAT VERDICT WANTED: keeps the verdict of the table's cell; a first one that is not as wanted stays.
settle() {
    local what="the verdict on $2"
    checks=$((checks + 1))
    if [ "$3" != "$4" ]; then
        fail "$3; expected: $4"
        got[$1]="**$3** (expected: $4)"
    elif [ -z "${got[$1]:-}" ]; then
        got[$1]=$4
    fi
}

exit_of() { # exit_of VERDICT
    case $1 in
    pass*) echo 0 ;;
    fail*) echo 1 ;;
    refused*) echo 2 ;;
    *) echo 6 ;;
    esac
}

lib=$plugins/libliars.so
device=cpu honest=liar_honest
if [ "$action" = cuda ]; then
    "$fabench" info --device cuda:0 >/dev/null 2>&1 || skip "no GPU"
    lib=$plugins/libliars_cuda.so device=cuda:0 honest=liar_gpu_honest
fi
tiny=(--d 32 --seqlen 32 --batch 1 --heads 2 --samples 7 --mode fwd --impl-lib "$lib")
common=(--device "$device" --causal --warmup-ms 0 --min-time-ms 0 --max-noise 100% --l2 "$l2" --out none)

# ---- lies about the work: all in one run for each direction ----

joined() { local IFS=,; echo "$*"; }
of_kind() { local name; for name in "${lies[@]}"; do [ "${kind[$name]}" != "$1" ] || echo "$name"; done; }

# run_lies MODE NAMES [more]: runs these, names with commas, and reads their rows, beside those of earlier ones.
run_lies() {
    rm -f run.jsonl
    run "${common[@]}" --mode "$1" --d 32 --seqlen 96 --batch 2 --heads 2 --samples 9 --impl-lib "$lib" \
        --jsonl run.jsonl --impl "liar_${2//,/,liar_}"
    read_rows run.jsonl "${3:-}"
}

# Those that pass and should fail by the time of their launches run again, alone, twice at most: on a machine with other
# work to do every launch may take long, so that those which compute do not stand out.
catch_again() { # catch_again MODE NAME...
    local name try
    for name in "${@:2}"; do
        for try in 1 2; do
            [[ ${verdict[$name]} != "fail work"* || ${check[liar_$name]:-} != pass ]] || run_lies "$1" "$name" more
        done
    done
}

work_lies() { # work_lies KIND MODE...
    local mode name names seen
    mapfile -t names < <(of_kind "$1")
    [[ $1 == work || $1 == gpu ]] || names+=("${honest#liar_}")
    for mode in "${@:2}"; do
        run_lies "$mode" "$(joined "${names[@]}")"
        expect_code 1
        cp err first.err
        catch_again "$mode" "${names[@]}"
        cp first.err err
        for name in "${names[@]}"; do
            seen=$(verdict_of "liar_$name" "${verdict[$name]}")
            if [[ ${verdict[$name]} == *", served 0" ]]; then
                grep -qE "liar_$name: 0 of [0-9]+ launches without work" err && seen+=", served 0" ||
                    seen+=", $(grep -oE "liar_$name: [0-9]+ of [0-9]+ launches without work" err | cut -d' ' -f2-)"
            fi
            if [[ ${verdict[$name]} == *", no gain" ]]; then
                awk -v its="${rated[liar_$name]}" -v honest="${rated[$honest]}" 'BEGIN { exit !(its < 10 * honest) }' &&
                    seen+=", no gain" || seen+=" with ${rated[liar_$name]} TFLOPS, honest: ${rated[$honest]}"
            fi
            settle "$name" "$name, $mode" "$seen" "${verdict[$name]}"
        done
    done
}

# Those that need the time in which caches are flushed.
flush_lies() { # flush_lies KIND MODE...
    local warm=("${common[@]}")
    common=("${common[@]/#hot/cold}")
    work_lies "$@"
    common=("${warm[@]}")
}

# ---- the others: each beside the honest one ----

export LIARS_CHILD=liar$$ # the name of the processes that a plugin leaves behind
has_no_escape() { ! LC_ALL=C grep -q $'\033' out err run.jsonl; }

# with_extras NAME VERDICT: the verdict, and what else was wanted and is so.
with_extras() {
    local name=$1 seen=$2 wanted=${verdict[$1]}
    if [[ $wanted == *", told"* ]] && grep -qE "^fabench: .*liar_$name" err; then seen+=", told"; fi
    if [[ $wanted == *", ended"* ]] && ! pgrep -x "$LIARS_CHILD" >/dev/null; then seen+=", ended"; fi
    if [[ $wanted == *", clean"* ]] && has_no_escape; then seen+=", clean"; fi
    echo "$seen"
}

# beside NAME ARGUMENT...: a run of a liar and the honest one; neither exit code nor the other's row may differ. Where
# its two clocks differ although it should pass, its threads waited for a CPU: it runs again, twice at most.
beside() {
    local name=$1 limit=20 seen try
    shift
    [[ ${verdict[$name]} != timeout* ]] || limit=2
    for try in 1 2 3; do
        rm -f run.jsonl
        run "${common[@]}" "${tiny[@]}" --timeout-s $limit \
            --jsonl run.jsonl --impl "liar_$name,$honest" "$@"
        touch run.jsonl
        read_rows run.jsonl
        seen=$(verdict_of "liar_$name" "${verdict[$name]}")
        [[ ${verdict[$name]} == pass* && $seen == "fail witness" ]] || break
    done
    seen=$(with_extras "$name" "$seen")
    [ "$code" -eq "$(exit_of "${verdict[$name]}")" ] || seen+=", exit $code"
    [ "$(verdict_of $honest pass)" = pass ] || seen+=", honest beside it: $(verdict_of $honest pass)"
    settle "$name" "$name" "$seen" "${verdict[$name]}"
    pgrep -x "$LIARS_CHILD" | xargs -r kill -9
}

# Two cases: the first passes, the second does not; the honest one passes both.
later_lies() {
    local name seen
    for name in $(of_kind later); do
        rm -f run.jsonl
        run "${common[@]}" --mode fwd --d 32 --seqlen 32,96 --batch 1 --heads 2 --samples 7 --impl-lib "$lib" \
            --jsonl run.jsonl \
            --impl "liar_$name,liar_honest"
        expect "four rows" test "$(rows run.jsonl | wc -l)" -eq 4
        rows run.jsonl '"impl": *"liar_honest"' >honest.jsonl
        expect "both rows of the honest one to pass" test "$(grep -cE '"check": *"pass"' honest.jsonl)" -eq 2
        rows run.jsonl '"q_len": *96[,.]' >second.jsonl
        rows run.jsonl '"q_len": *32[,.]' >first.jsonl
        read_rows first.jsonl
        seen=$(verdict_of "liar_$name" pass)
        expect "a pass in the first case, not $seen" test "$seen" = pass
        read_rows second.jsonl
        seen="$(verdict_of "liar_$name" "${verdict[$name]}"), tail"
        [ "$code" -eq 6 ] || seen+=", exit $code"
        settle "$name" "$name" "$seen" "${verdict[$name]}"
    done
}

# Alone: a region takes 2.5 s for each, and sustain.sh has those of honest ones. With 128 rows and columns, so that a
# launch takes far more than 20 times as long as one that does nothing.
sustained_lies() {
    local name seen
    for name in $(of_kind sustain); do
        rm -f run.jsonl
        run "${common[@]}" "${tiny[@]/#32/128}" --sustain-s 2 \
            --jsonl run.jsonl --impl "liar_$name"
        read_rows run.jsonl
        seen=$(verdict_of "liar_$name" "${verdict[$name]}")
        [ "${sustained[liar_$name]}" != - ] || seen+=", no sustained"
        [ "$code" -eq "$(exit_of "${verdict[$name]}")" ] || seen+=", exit $code"
        settle "$name" "$name" "$seen" "${verdict[$name]}"
    done
}

# stdout has records and nothing else, whatever a plugin prints.
printing_lies() {
    local name seen
    for name in $(of_kind stdout); do
        run "${common[@]}" "${tiny[@]}" --jsonl - \
            --impl "liar_$name,liar_honest"
        read_rows out
        seen=$(verdict_of "liar_$name" "${verdict[$name]}")
        [ "$code" -eq 0 ] || seen+=", exit $code"
        [ "$(wc -l <out)" -eq 3 ] && [ "$(grep -cE '^\{"type": *"(header|row)"' out)" -eq 3 ] ||
            seen+=", its text among the records"
        settle "$name" "$name" "$seen" "${verdict[$name]}"
    done
}

name_lies() {
    local name seen
    for name in $(of_kind name); do
        LIARS_NAME=$name run "${common[@]}" "${tiny[@]}" \
            --impl fused --jsonl name.jsonl
        case $code in
        2) seen=refused ;;
        6) seen=unopened ;;
        *) seen="exit $code" ;;
        esac
        [ ! -s out ] || seen+=", text on stdout"
        [ "$(grep -c "^fabench: " err)" -gt 0 ] || seen+=", no sentence"
        settle "$name" "$name" "$seen" "${verdict[$name]}"
    done
}

# ---- wrong kernels ----

# wanted_of DTYPE MODE NAME: the verdict that its list names.
wanted_of() {
    local wanted
    case "$1 $2" in
    "fp32 fwd") wanted=${forward[$3]} ;;
    "fp32 bwd") wanted=${backward[$3]} ;;
    "bf16 fwd") wanted=${forward16[$3]} ;;
    *) wanted=${backward16[$3]} ;;
    esac
    [[ $action != cold || $wanted != fail* ]] || wanted="fail any" # at this length another rule may be the first
    echo "$wanted"
}

# wrong_run DTYPE MODE ROWS SAMPLES DIST NAME...: at most 31 of them, beside the right one.
wrong_run() {
    local dtype=$1 mode=$2 length=$3 samples=$4 dist=$5 name wanted
    shift 5
    rm -f run.jsonl
    run "${common[@]}" --dtype "$dtype" --d 64 --mode "$mode" --seqlen "$length" --kv-len $((length + 64)) --batch 2 \
        --heads 4 --kv-heads 2 --samples "$samples" --dist "$dist" --impl-lib "$plugins/libwrong_cpu.so" \
        --jsonl run.jsonl --impl "$(joined "${@/#/wrong_}"),right_cpu"
    expect_code 1
    read_rows run.jsonl
    expect "the right one to pass" test "$(verdict_of right_cpu pass)" = pass
    for name in "$@"; do
        wanted=$(wanted_of "$dtype" "$mode" "$name")
        settle "wrong $name $dtype $mode" "wrong_$name, $dtype $mode" "$(verdict_of "wrong_$name" "$wanted")" "$wanted"
    done
}

wrong_kernels() { # wrong_kernels DTYPE
    local mode name names i
    for mode in fwd bwd; do
        names=()
        for name in "${wrongs[@]}"; do
            [[ $(wanted_of "$1" $mode "$name") == - || $name == no_max || $name == dq_lost ]] || names+=("$name")
        done
        for ((i = 0; i < ${#names[@]}; i += 31)); do
            wrong_run "$1" $mode $wrong_rows 1 normal "${names[@]:i:31}"
        done
    done
    wrong_run "$1" fwd 72 1 huge no_max
    wrong_run "$1" bwd 72 9 normal dq_lost
}

# ---- the page ----

begin='<!-- liars:begin -->' end='<!-- liars:end -->'
page=$root/docs/liars.md

cell() { # cell KEY
    local text=${got[$1]:--}
    echo "${text/fail any/fail}"
}

tables() {
    local name
    echo "$begin"
    echo "Verdicts: pass (exit 0), fail and the rule (exit 1, the time is kept, no TFLOPS), error, timeout, oom,"
    echo "unsupported (exit 6, no time), refused (exit 2), unopened (exit 6, before the first row). Behind a comma:"
    echo "what else was found; tests/liars/verdicts.txt explains these words."
    echo
    echo "| lie | what it does | verdict | why it may pass |"
    echo "|---|---|---|---|"
    for name in "${lies[@]}"; do
        [[ $name == gpu_* ]] || echo "| $name | ${lie[$name]} | $(cell "$name") | ${why[$name]} |"
    done
    echo
    echo "On a device, where \`tests/cli/liars.sh cuda\` must find these verdicts (ctest: gpu_liars):"
    echo
    echo "| lie | what it does | verdict | why it may pass |"
    echo "|---|---|---|---|"
    for name in "${lies[@]}"; do
        [[ $name != gpu_* ]] ||
            echo "| ${name#gpu_} | ${lie[$name]} | ${verdict[$name]/fail any/fail} | ${why[$name]} |"
    done
    echo
    echo "| wrong kernel | what is wrong | fp32 forward | backward | bf16 forward | backward | why it may pass |"
    echo "|---|---|---|---|---|---|---|"
    for name in "${wrongs[@]}"; do
        echo "| $name | ${fault[$name]} | $(cell "wrong $name fp32 fwd") | $(cell "wrong $name fp32 bwd") |" \
            "$(cell "wrong $name bf16 fwd") | $(cell "wrong $name bf16 bwd") | ${fault_why[$name]} |"
    done
    echo "$end"
}

on_page() { sed -n "/^$begin\$/,/^$end\$/p" "$page"; }

write_page() {
    expect "both markers in $page" test "$(grep -cxF -e "$begin" -e "$end" "$page")" -eq 2
    awk -v begin="$begin" -v end="$end" -v tables="$tmp/tables" '
        $0 == begin { while ((getline line < tables) > 0) print line; skips = 1 }
        !skips { print }
        $0 == end { skips = 0 }' "$page" >"$tmp/page" && cp "$tmp/page" "$page"
}

if [ "$action" = cuda ]; then
    work_lies gpu fwd
    flush_lies gpu_flush fwd
    for name in $(of_kind gpu_alone); do beside "$name"; done
    finish
    exit
fi
work_lies work fwd bwd
flush_lies flush fwd bwd
work_lies back bwd
for name in $(of_kind alone); do beside "$name"; done
sustained_lies
later_lies
printing_lies
name_lies
wrong_kernels fp32
[ "$action" = cold ] || wrong_kernels bf16 # the bounds of bf16 at longer lengths: wrong_kernels.sh, on a device
what="the tables of docs/liars.md"
tables >"$tmp/tables"
if [ "$action" = --write ]; then
    write_page
elif [ -z "$action" ]; then
    on_page >"$tmp/on_page"
    differences=$(diff "$tmp/on_page" "$tmp/tables" | head -6)
    expect "them to say what was found; write them with tests/cli/liars.sh --write: $differences" \
        cmp -s "$tmp/on_page" "$tmp/tables"
fi
finish
