#!/usr/bin/env bash
# How often `ab` and `gate` raise a false alarm, find a loss and decide nothing, under many kinds of made-up noise:
# scripts/simulate_gates.sh [RUNS [SEED]]
#
# Builds the preset release and writes results/gates/simulated.md from tests/simulate/simulate_gates.c, which calls the
# code that decides; nothing is measured. 2000 runs (the default) take about ten minutes. Exit 1 where a bar is missed.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
esac
cd "$(dirname "$0")/.."
# shellcheck source=scripts/functions.bash
. scripts/functions.bash
runs=${1:-2000} seed=${2:-1}
program=${SIMULATE_GATES:-}
if [ -z "$program" ]; then
    scripts/setup.sh
    build_preset release simulate_gates
    program=build/release/tests/simulate_gates
fi
mkdir -p results/gates
new=$(mktemp)
trap 'rm -f "$new"' EXIT
code=0
"$program" "$runs" "$seed" >"$new" || code=$?
{
    echo "# ab and gate under made-up noise"
    echo
    echo "$runs runs of each kind, seed $seed, 12 configurations, one of which is slower where a loss is asked for; in"
    echo "per cent of the runs. What the kinds of noise are: \`tests/simulate/simulate_gates.c\`; what the figures say:"
    echo "[docs/gates.md](../../docs/gates.md). Made by \`scripts/simulate_gates.sh $runs $seed\`; nothing is measured."
    echo
    cat "$new"
} >results/gates/simulated.md
echo "simulate_gates: results/gates/simulated.md, $([ $code -eq 0 ] && echo "all bars met" || echo "BARS MISSED")"
exit $code
