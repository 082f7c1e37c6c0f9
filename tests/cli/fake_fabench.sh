#!/usr/bin/env bash
# Not fabench: a stand-in that speaks its record format, for the tests of `ab` and `gate`. SYNTHETIC rows; nothing is
# measured. What it answers is set in <this script>.conf, a shell file:
#
#   times=(1.0 2.0 3.0)   milliseconds of each problem of its plan (lengths 128, 256, 512, ...)
#   shares=(50 40 30)     pct_of_gemm of each; empty = a device without a GEMM
#   overs=(2.5 2.5 2.5)   times as fast as the control, naive; empty = the record does not say
#   statuses=(ok ok ok)   or unsupported, error
#   checks=(pass pass pass)
#   noise=0.2             largest deviation of a process, per cent; a fixed sequence
#   device method schema gemm throttled impl control   facts of the record; control "" = refused
#   clock=1.0             factor of the times that shares do not show
#   run=...               any command, run before a measuring process
# Each process adds a line to <this script>.log.
set -u
self=$(realpath "$0")
times=(1.0 2.0 3.0) shares=(50 40 30) overs=() statuses=(ok ok ok) checks=(pass pass pass)
noise=0.2 device="Fake GPU" method=1 schema=1 gemm=700 throttled=0 clock=1.0 control=naive run=: version="fabench 9.9 (fake)"
control_share=20 impl=fused_fake
# shellcheck source=/dev/null
[ ! -e "$self.conf" ] || . "$self.conf"
if [ "${1:-}" = --version ]; then
    echo "$version"
    exit 0
fi
check=off points= asked=fused
for word in "$@"; do
    case $word in
    --check=*) check=${word#*=} ;;
    --points=*) points=${word#*=} ;;
    --impl=*)
        asked=${word#*=} asked=${asked%%,*}
        [ -n "$control" ] || [[ $word != *,* ]] || { echo "fabench: --impl ${word##*,}: unknown implementation" >&2; exit 2; }
        ;;
    esac
done
echo "$*" >>"$self.log"
count=$(wc -l <"$self.log")
[ "$check" = full ] || eval "$run"
[ -n "$points" ] || points=$(seq -s, 0 $((${#times[@]} - 1)))
echo "{\"type\":\"header\",\"schema\":$schema,\"run_id\":\"fake$count\",\"command_line\":\"fabench --seqlen 128\",\"device\":{\"name\":\"$device\",\"driver\":\"1.2\"},\"policy\":{\"method\":\"$method\",\"l2\":\"cold\",\"round_members\":[\"fused\"]}}"
code=0
# row IMPL ASKED TIME SHARE STATUS CHECK LENGTH OVER: one line of the record.
row() {
    awk -v impl="$1" -v asked="$2" -v time="$3" -v share="$4" -v status="$5" -v check="$6" -v n="$7" -v over="$8" -v count="$count" -v noise="$noise" \
        -v device="$device" -v method="$method" -v gemm="$gemm" -v throttled="$throttled" -v clock="$clock" \
        -v schema="$schema" 'BEGIN {
        wobble = 1 + noise / 100 * ((count * 7919 + n * 31 + length(impl)) % 13 - 6) / 6
        printf "{\"type\":\"row\",\"schema\":%s,\"run_id\":\"fake%d\",\"method\":\"%s\",\"device\":\"%s\",\"driver\":\"1.2\",", schema, count, method, device
        printf "\"impl\":\"%s\",\"asked\":\"%s\",\"mode\":\"fwd\",\"dtype\":\"fp16\",\"causal\":0,\"batch\":1,\"q_heads\":1,\"kv_heads\":1,", impl, asked
        printf "\"q_len\":%d,\"kv_len\":%d,\"head_dim\":64,\"layout\":\"bshd\",\"dist\":\"normal\",\"seed\":1,\"l2\":\"cold\",", n, n
        printf "\"status\":\"%s\"", status
        if (status == "ok") {
            ms = time * clock * wobble
            printf ",\"check\":\"%s\",\"samples\":30,\"time_ms\":%.9g,\"time_ms_ci_lo\":%.9g,\"time_ms_ci_hi\":%.9g,\"throttled_pct\":%s,\"sm_clock_mhz\":1500", check, ms, ms * 0.999, ms * 1.001, throttled
            if (share != "") printf ",\"pct_of_gemm\":%.9g,\"gemm_tflops\":%.9g", share / wobble, gemm / clock
            if (over != "") printf ",\"speedup_vs_naive\":%.9g", over / wobble
            if (check == "fail") printf ",\"err_tensor\":\"o\",\"err_used\":7.5"
        } else {
            printf ",\"check\":\"off\",\"reason\":\"%s on purpose\"", status
        }
        print "}"
    }'
}
for p in ${points//,/ }; do
    n=$((128 << p))
    verdict=${checks[p]}
    [ "$check" = full ] || verdict=off
    row "$impl" "$asked" "${times[p]}" "${shares[p]:-}" "${statuses[p]}" "$verdict" $n "${overs[p]:-}"
    [ -z "$control" ] || row "$control" "$control" 5 "${shares[p]:+$control_share}" ok "${verdict/fail/pass}" $n ""
    [ "$verdict" != fail ] || code=1
    [ "${statuses[p]}" != error ] || code=6
done
exit $code
