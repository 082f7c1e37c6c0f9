#!/usr/bin/env bash
# docs/ci.md, word for word where no GPU is needed: the blocks between its markers are run in order in a home of their
# own, with this build installed as the page says. And the scripts of examples/ci against bad use.
#
#   ci_example.sh [whole]
#
# whole: with the problems that examples/ci/settings.sh names, which take minutes (nightly_ci_example). Else the test
# edits that file as a user does: fewer and shorter problems, a hot cache, no CUDA library beside the one for the CPU.
. "$(dirname "$0")/lib.sh"

command -v cmake >/dev/null && command -v git >/dev/null || skip "no cmake or no git"
build=${FABENCH_BUILD:-$(dirname "$fabench")}
export HOME=$tmp/home GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@example.org GIT_COMMITTER_NAME=test \
    GIT_COMMITTER_EMAIL=test@example.org
unset FABENCH_PREFIX FABENCH_CI_OUT FABENCH_DEVICE CI
mkdir -p "$HOME/src"
ln -s "$root" "$HOME/src/fabench"
what="cmake --install"
checks=$((checks + 1))
cmake --install "$build" --prefix "$HOME/fabench" >"$tmp/out" 2>"$tmp/err" || fail "it does not install"

# block N: the N-th block of commands between the markers.
block() {
    awk -v want="$1" '/^<!-- tried -->/ { n++; on = 1; next } /^<!-- \/tried -->/ { on = 0 }
        on && n == want && /^    / { print substr($0, 5) }' "$root/docs/ci.md"
}
# run_block N DIR: runs it as a user's shell would, output to $tmp/out and $tmp/err.
run_block() {
    what="block $1 of docs/ci.md"
    code=0
    (cd "$2" && bash -e -c "$(block "$1")") >"$tmp/out" 2>"$tmp/err" </dev/null || code=$?
}
expect "three blocks" test "$(grep -c '^<!-- tried -->' "$root/docs/ci.md")" -eq 3

run_block 1 "$HOME"
expect_code 0
cd "$HOME/mykernel" || exit 1
if [ "${1:-}" != whole ]; then
    problems='--seqlen 512 --d 64 --batch 1 --heads 2'
    sed -i -e "s/^cpu_options=($problems)/cpu_options=($problems --l2 hot --min-time-ms 20)/" \
        -e 's/^cpu_verify=()/cpu_verify=(--d 64 --mode fwd)/' \
        -e 's/-DCMAKE_PREFIX_PATH/-DCMAKE_CUDA_COMPILER=NOTFOUND &/' ci/settings.sh
    git commit --quiet --all --amend --no-edit
    expect "three other lines" test "$(diff "$root/examples/ci/settings.sh" ci/settings.sh | grep -c '^>')" -eq 3
fi
expect "a clean repository" test -z "$(git status --porcelain)"
expect "two commits, which step 4 compares" git cat-file -e HEAD~1

run_block 2 .
expect_code 0
expect_stdout '^PASS: ([0-9]{3}) of \1 faults and ([0-9]+) of \2 lies about work caught'
expect_stdout '^PASS: [0-9]+ rows, [0-9]+ refused'
expect_stdout 'plugin_cpu .* pass '
expect_file fabench-ci/selftest.jsonl
expect_file fabench-ci/selftest.xml
expect_file fabench-ci/verify.xml
expect_file fabench-ci/sweep/run.csv
expect_file fabench-ci/verify/run.jsonl

# The rows that ran were written down; a kernel that begins to refuse one of them fails, although nothing is wrong.
expect_file ci/accepted-cpu.txt
expect "a line for each row" test "$(grep -c '^plugin_cpu ' ci/accepted-cpu.txt)" -eq \
    "$(sed -n 's/^PASS: \([0-9]*\) rows, .*/\1/p' "$tmp/out" | head -1)"
git add -A && git commit --quiet -m "Rows that must run"
refuse='    if (request->problem->causal) {\n        snprintf(why->text, sizeof why->text, "takes no mask");\n'
refuse+='        return ATTN_UNSUPPORTED;\n    }'
sed -i "s/    if (status != ATTN_OK || request->problem->dtype == ATTN_FP32)/$refuse\n&/" plugin.c
expect "an edited kernel" sh -c '! git diff --quiet plugin.c'
what="ci/check.sh, a kernel that refuses the causal mask"
code=0
GITHUB_ACTIONS=true GITHUB_STEP_SUMMARY=$tmp/summary.md ci/check.sh >"$tmp/out" 2>"$tmp/err" || code=$?
expect_code 1
expect_stdout '^fabench: plugin_cpu fwd-causal-[^ ]*: accepted before, now unsupported: takes no mask'
expect_stdout 'rows of --accepted ci/accepted-cpu.txt did not run'
expect_stdout '^::error title=fabench verify%3A plugin_cpu fwd-causal-[^ ]*::accepted before, now unsupported'
expect "no annotations in the summary" test "$(grep -c '^::' "$tmp/summary.md")" -eq 0
expect_stdout '^INCOMPLETE: [0-9]+ of [0-9]+ rows ran'
expect "failures in the JUnit file" grep -q '<failure message="accepted before, now unsupported: takes no mask"' \
    fabench-ci/verify.xml
expect "a summary of the job" grep -q '^#### fabench verify' "$tmp/summary.md"
expect "with what was printed" grep -q '^INCOMPLETE' "$tmp/summary.md"
expect "with the messages" grep -q 'accepted before, now unsupported' "$tmp/summary.md"
expect "with the reason at the end" grep -q '^REFUSED: [0-9]* accepted rows did not run (ci/accepted-cpu.txt)' \
    "$tmp/summary.md"
git checkout --quiet plugin.c
what="ci/check.sh under CI without the list"
mv ci/accepted-cpu.txt "$tmp/accepted"
code=0
CI=true ci/check.sh >"$tmp/out" 2>"$tmp/err" || code=$?
mv "$tmp/accepted" ci/accepted-cpu.txt
expect_code 5
expect_stderr '^check.sh: ci/accepted-cpu.txt is missing'

run_block 3 .
expect_code 0
expect_stdout '^exit 1$'
expect_stdout '^FAIL plugin_cpu '
expect "20 failures at most" test "$(grep -c '^FAIL plugin_cpu ' "$tmp/out")" -eq 20
expect_stdout '^[0-9]+ failures, the first 20 are shown \(--max-failures\); the record has all of them$'
expect "the kernel to be as it was" git diff --quiet

# The workflow files call what is there, and nothing else of ours; fabench is built only where it is missing.
what="examples/ci/*.yml"
for script in $(grep -ohE 'ci/[a-z]+\.sh' .github/workflows/*.yml | sort -u); do
    expect "$script, executable" test -x "$script"
done
for file in .github/workflows/*.yml; do
    builds=$(grep -c 'name: Build fabench' "$file")
    conditions=$(grep -A1 'name: Build fabench' "$file" | grep -c 'if: steps.fabench.outputs.')
    expect "no build without a condition in $file" test "$builds" -eq "$conditions"
done
for word in ab gate; do
    expect "gate.sh to know $word, which a workflow asks for" grep -q "^$word)" ci/gate.sh
done

for arguments in "" "ab" "ab HEAD extra" "gates" "baseline now"; do
    what="ci/gate.sh $arguments"
    code=0
    # shellcheck disable=SC2086 # words
    ci/gate.sh $arguments >"$tmp/out" 2>"$tmp/err" || code=$?
    expect_code 2
    expect_stderr 'ci/gate.sh ab REVISION'
done
what="ci/gate.sh ab nothing"
code=0
ci/gate.sh ab nothing >"$tmp/out" 2>"$tmp/err" || code=$?
expect_code 2
expect_stderr 'nothing: no such revision'
# Step 4 with the two commits of step 2; a stand-in measures, because that takes minutes.
cp -r "$HOME/fabench" "$HOME/stand-in"
cat >"$HOME/stand-in/bin/fabench" <<'END'
#!/bin/sh
echo "$*"
[ "$1" != ab ] || { [ -e "$2" ] && [ -e "$3" ]; }
END
what="FABENCH_DEVICE=cpu ci/gate.sh ab HEAD~1"
code=0
FABENCH_PREFIX=$HOME/stand-in FABENCH_DEVICE=cpu ci/gate.sh ab HEAD~1 >"$tmp/out" 2>"$tmp/err" || code=$?
expect_code 0
expect_stdout '^verify .*--junit fabench-ci/verify.xml$'
expect_stdout '^verify .*--impl-lib [^ ]*/build/plugin_cpu.so .*--accepted fabench-ci/accepted-old.txt .*--quiet$'
expect_stdout '^ab fabench-ci/old/plugin_cpu.so build/plugin_cpu.so '
what="FABENCH_DEVICE=cpu ci/gate.sh baseline"
code=0
FABENCH_BASELINES=2 FABENCH_DEVICE=cpu ci/gate.sh baseline >"$tmp/out" 2>"$tmp/err" || code=$?
expect_code 0
expect_file ci/baseline-1.jsonl
expect_file ci/baseline-2.jsonl
expect "rows of the kernel that pass" grep -qE '"impl": *"plugin_cpu".*"check": *"pass"' ci/baseline-2.jsonl
what="FABENCH_DEVICE=cpu ci/gate.sh gate"
code=0
FABENCH_DEVICE=cpu ci/gate.sh gate >"$tmp/out" 2>"$tmp/err" || code=$?
expect "a verdict (0, 3 or 4), not $code" test "$code" -eq 0 -o "$code" -eq 3 -o "$code" -eq 4 # the machine may be busy
expect_stdout '^(pass|REGRESS|IMPROVE|INCONCLUSIVE) .* 512 fp32'
expect_file fabench-ci/gate.xml
expect_file fabench-ci/gate/verdicts.csv

# A kernel that does not build is no wrong result, whatever code the build tool has.
echo 'not C' >>plugin.c
for arguments in check.sh "gate.sh gate" "gate.sh ab HEAD"; do
    what="ci/$arguments, a compiler error"
    code=0
    # shellcheck disable=SC2086 # words
    FABENCH_DEVICE=cpu ci/$arguments >"$tmp/out" 2>"$tmp/err" || code=$?
    expect_code 5
    expect_stderr '(check|gate).sh: \. does not build'
done
git checkout --quiet plugin.c
echo 'build_in() { false; true; }' >>ci/settings.sh # any line of it may fail
what="ci/check.sh, a line of build_in that fails"
code=0
ci/check.sh >"$tmp/out" 2>"$tmp/err" || code=$?
expect_code 5
git checkout --quiet ci/settings.sh
finish
