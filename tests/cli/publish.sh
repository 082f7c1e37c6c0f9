#!/usr/bin/env bash
# scripts/publish.sh takes good records, names them by device, date and commit, and refuses the others in a sentence.
. "$(dirname "$0")/lib.sh"
publish=$root/scripts/publish.sh
export FABENCH=$fabench FABENCH_RESULTS=$tmp/results

run_small --impl naive,fused --out run_dir --plot none
expect_code 0
# A build of a checkout with changes, or of none, is refused; the rest needs a record with a commit.
sed -i -E 's/"commit": *"[^"]*"/"commit": "0123456789abcdef"/g' run_dir/run.jsonl

run_publish() {
    what="publish.sh $*"
    code=0
    "$publish" "$@" >out 2>err </dev/null || code=$?
}
run_publish run_dir
expect_code 0
record=$(find results -name '*.jsonl')
expect "results/cpu/<date>-<commit>-<what>.jsonl, not $record" grep \
    -qE '^results/cpu/20[0-9]{6}-0123456789-[a-z0-9]+\.jsonl$' <<<"$record"
expect "nothing but the charts of speed" test -z "$(find "${record%.jsonl}" -type f ! -name 'tflops-fp32.svg')"
if command -v gnuplot >/dev/null; then
    expect_file "${record%.jsonl}/tflops-fp32.svg"
    expect "a whole chart" grep -q '</svg>' "${record%.jsonl}/tflops-fp32.svg"
fi
run_publish run_dir # again: the same record is no conflict
expect_code 0
run_publish --what other run_dir
expect_code 0
expect_file "$(echo results/cpu/*-other.jsonl)"
expect_file "$record" # another kind: it stays
without_samples() { sed -E 's/, *"samples_ms": *\[[^]]*\]//' "$1" | tail -n +2; }
expect "samples in the run's record" grep -q samples_ms run_dir/run.jsonl
expect "the rows as they were, without samples" cmp -s <(without_samples run_dir/run.jsonl) <(tail -n +2 "$record")
expect "no samples" sh -c "! grep -q samples_ms '$record'"
run plot "$record" --out again # it is still a record
expect_code 0
expect "no folder of this machine in the header" sh -c "! head -n 1 '$record' | grep -qF '$tmp'"

# An older record of the same device and kind is replaced, with its charts; a newer one is not; nor one of the same
# name.
kind=${record##*-}
old=results/cpu/20200101-abcdef0123-$kind new=results/cpu/20990101-abcdef0123-$kind
cp "$record" "$old"
mkdir "${old%.jsonl}"
run_publish run_dir
expect_code 0
expect_file "$record"
expect "the older one gone" test ! -e "$old" -a ! -e "${old%.jsonl}"
cp "$record" "$new"
run_publish run_dir
expect_code 1
expect_stderr '^publish: .* is newer'
rm "$new"
run_publish run_dir run_dir
expect_code 1
expect_stderr '^publish: .*two records of one device and kind'
echo '{"type":"row","impl":"added"}' >>"$record"
run_publish run_dir
expect_code 1
expect_stderr '^publish: .* is there already and differs'

refused() { # refused REGEX: bad/run.jsonl is not published
    rm -rf results
    run_publish bad
    expect_code 1
    expect "one sentence" test "$(wc -l <err)" -eq 1
    expect_stderr "^publish: .*$1"
    expect "nothing written" test ! -e results
}
mkdir bad
edit() { sed -E "$1" run_dir/run.jsonl >bad/run.jsonl; }
edit '3s/"check": *"pass"/"check": "fail"/'; refused '1 rows failed'
edit '2s/"check": *"pass"/"check": "off"/'; refused 'not checked'
edit '2s/"status": *"ok"/"status": "error"/'; refused 'error'
edit '2s/"status": *"ok"/"status": "timeout"/'; refused 'timeout'
edit 's/"commit": *"[^"]*"/"commit": "0123456789-dirty"/'; refused 'changes'
edit 's/"commit": *"[^"]*"/"commit": "unknown"/'; refused 'commit'
edit '1s/"type": *"header"/"type": "header", "synthetic": true/'; refused 'synthetic'
edit '1d'; refused 'header'
edit '2,$d'; refused 'no row'
head -c -5 run_dir/run.jsonl >bad/run.jsonl; refused 'cut'
rm bad/run.jsonl; refused 'no such record'
edit '3s/"check": *"pass"/"check": "fail"/'
rm -rf results
run_publish run_dir bad # one refused record: nothing is published
expect_code 1
expect "nothing written" test ! -e results
run_publish
expect_code 2
finish
