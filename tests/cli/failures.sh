#!/usr/bin/env bash
# What a broken kernel leaves: a limited number of printed failures, JUnit files of verify and selftest, and a self-test
# of a kernel that has one direction alone.
. "$(dirname "$0")/lib.sh"

wrong=(--device cpu --impl-lib "$plugins/libwrong_cpu.so")
shapes=(--preset quick --dtype fp32 --mode fwd --repeats 0)
is_xml() { python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$1"; }
count() { grep -c -- "$1" "$2"; }

# A list of rows that must run is read before anything runs, and a place for it that takes no file is refused.
# refused_list SENTENCE TEXT
refused_list() {
    printf "$2" >list.txt
    refused "$1" verify "${shapes[@]}" --device cpu --impl fused --out none --accepted list.txt
}
refused_list 'list.txt: names no row; remove the file' '# a comment\n\n'
refused_list 'line 2: junk line: must be an implementation and a key' 'fused fwd-full-d-64\njunk line\n'
refused_list 'line 1: fused: must be' 'fused\n'
refused_list 'line 1: fused r1-fwde: must be' 'fused r1-fwde\n'
refused '--accepted absent/list.txt: ' verify "${shapes[@]}" --device cpu --impl fused --accepted absent/list.txt

# verify: every row fails; three are printed, all are in the record and in the JUnit file.
GITHUB_ACTIONS=true run verify "${shapes[@]}" "${wrong[@]}" --impl wrong_scale --out run --junit verify.xml \
    --max-failures 3
expect_code 1
annotation='^::error title=fabench verify%3A wrong_scale fwd-[^ ]*::(o|lse) b=.*%0Aagain: fabench verify .* --only fwd-'
expect "three annotations" test "$(grep -cE "$annotation" out)" -eq 3
failed=$(rows run/run.jsonl '"check": *"fail"' | wc -l)
expect "more than three failures" test "$failed" -gt 3
expect "three of them printed" test "$(count '^FAIL wrong_scale' out)" -eq 3
expect "three rows that fail in the table" test "$(count ' FAIL ' out)" -eq 3
expect_stdout "^$failed failures, the first 3 are shown \(--max-failures\); the record has all of them\$"
expect_stdout "^FAILED: $failed of "
expect "well-formed XML" is_xml verify.xml
expect "a command without the limit" sh -c '! grep -q -- --max-failures verify.xml'
expect "a failure for each" test "$(count '<failure message=' verify.xml)" -eq "$failed"
head="<testsuite name=\"fabench verify\" tests=\"$(rows run/run.jsonl | wc -l)\" failures=\"$failed\" "
expect "the numbers in the head" grep -qF "$head" verify.xml
expect "where it fails" grep -qE '<failure message="o b=.* rule [^"]*">' verify.xml
expect "the command in the body" grep -qE '">.*$|^again: fabench verify .* --only ' verify.xml
tests=$(rows run/run.jsonl | wc -l)
expect "a time for each" test "$(grep -cE 'name="fwd-[^"]*" time="[0-9.]+">' verify.xml)" -eq "$tests"
expect "the keys as names" test "$(grep -oE 'name="fwd-[^"]*"' verify.xml | sort -u | wc -l)" -eq "$tests"
names=$(grep -o 'classname=.* name="[^"]*"' verify.xml | sort | uniq -d)
expect "test cases with different names, not twice: $names" test -z "$names"

# A failure has its key, and a command that judges it alone and leaves its tensors; --only takes the table too.
key=$(sed -n 's/^  key: //p' out | head -1)
expect "a key" test -n "$key"
command=$(awk '/Again, with the tensors/ { on = 1; next } on { print } on && /bad\// { exit }' out |
    sed 's/\\$//' | tr -s ' \n' ' ')
expect "verify, this key, a dump" grep -qE "fabench verify .* --only $key .*--dump bad/" <<<"$command"
words=()
eval "words=($command)"
shape=$(grep -E ' FAIL ' out | head -1 | awk '{ print $1 }')
cp out first.out
run "${words[@]:1}" --out none
expect_code 1
expect_stdout '^FAILED: 1 of [12] rows'
expect_file "bad/$key/q.npy"
run verify "${shapes[@]}" "${wrong[@]}" --impl wrong_scale --out none --only "$shape"
expect_code 1
shapes_of() { grep -E ' (FAIL|pass) ' out | awk '{ print $1 }' | sort -u; }
expect "rows of that shape alone" test "$(shapes_of)" = "$shape"
mask=$(grep -E ' FAIL ' first.out | head -1 | grep -oE '(full|causal)' | head -1)
run verify "${shapes[@]}" "${wrong[@]}" --impl wrong_scale --out none --only "$shape $mask"
expect "of that mask alone" test -z "$(grep -E ' (FAIL|pass) ' out | grep -v " $mask ")"
run verify "${shapes[@]}" "${wrong[@]}" --impl wrong_scale --out none --only '9x9/9x9x9x9'
expect_code 2
# What failures have in common and passes have not.
run verify --device cpu --preset quick --dtype fp32 --repeats 0 "${wrong[@]}" --impl wrong_dk --out none
expect_code 1
expect_stdout '^all [0-9]+ failures: .*bwd.*, dK$'

# The default limit; none at all; a kernel that passes.
run verify "${shapes[@]}" --d 64 "${wrong[@]}" --impl wrong_scale --csv none.csv --out none --max-failures 0
expect_code 1
failed=$(grep -c ',fail,' none.csv)
expect "failures that could be printed" test "$failed" -gt 0
expect "no failure printed" test "$(count '^FAIL ' out)" -eq 0
expect_stdout "^$failed failures, the first 0 are shown \(--max-failures\); all of them are counted\$"
run verify "${shapes[@]}" --d 64 "${wrong[@]}" --impl right_cpu --out none --junit verify.xml
expect_code 0
expect "no failure, no error" grep -qE 'failures="0" errors="0"' verify.xml
expect "no count of failures" sh -c '! grep -q max-failures out'

# A sweep keeps the rows, whose times count, and limits what is said below them and on stderr.
run_small "${wrong[@]}" --impl wrong_scale --seqlen 64,128,192 --max-failures 1
expect_code 1
expect "three rows" test "$(count ' FAIL ' out)" -eq 3
expect "one failure in full" test "$(count '^FAIL wrong_scale' out)" -eq 1
run_small --impl-lib "$plugins/libbad_fault.so" --impl bad_fault --seqlen 64,128,192 --max-failures 1
expect_code 6
expect_stderr '2 more rows ended in an error or a timeout'

# A file of an earlier run is gone when a run ends before its first result.
run verify --device cuda:1000 --junit verify.xml --out none
expect_code 6
expect "no file of the earlier run" test ! -e verify.xml
run verify --device cpu --junit -
expect_code 2
expect_sentence '--junit -: must be a file'
run verify --device cpu --junit same --jsonl same
expect_code 2
expect_sentence '--junit same: is the file of --jsonl'
run --device cpu --junit x.xml
expect_code 2
expect_sentence '--junit: is not an option of sweep, only of verify, gate, ab, selftest'

# selftest: a test case for each fault, each lie about work and each right result.
one=(--device cpu --seqlen 256 --dtype fp32 --causal)
run selftest "${one[@]}" --mode fwd --junit selftest.xml
expect_code 0
expect "well-formed XML" is_xml selftest.xml
suite='<testsuite name="fabench selftest" tests="[1-9][0-9]*" failures="0" errors="0"'
expect "no failure" grep -qE "$suite" selftest.xml
expect "a fault by its name" grep -q 'name="fwd causal d=64 n=256 fp32: stale output in lse"' selftest.xml
expect "a lie by its name" grep -q 'name="fwd causal d=64 n=256 fp32: every second call"' selftest.xml
run selftest "${one[@]}" --mode fwd --dist zeros --junit selftest.xml --max-failures 2
expect_code 7
expect "two of them printed" test "$(count '^NOT CAUGHT' out)" -eq 2
expect_stdout '^[0-9]+ failures, the first 2 are shown'
expect "all of them in the file" test "$(count '<failure message="not caught' selftest.xml)" -eq \
    "$(grep -oE '^[0-9]+ failures' out | cut -d' ' -f1)"

# A kernel without a backward: its forward is tested, which is said; asked for the backward, it is an error.
run selftest "${one[@]}" "${wrong[@]:2}" --impl forward_cpu --junit selftest.xml
expect_code 0
expect_no_stderr
expect_stdout '^bwd causal d=64 n=256 fp32 +not run: forward_cpu: has no backward'
expect_stdout '^forward_cpu: the backward was not tested: '
expect_stdout '^PASS: [1-9]'
expect "a test that was left out" test "$(count '<skipped message=' selftest.xml)" -eq "$(grep -c 'not run: ' out)"
run selftest "${one[@]}" "${wrong[@]:2}" --impl forward_cpu --mode bwd
expect_code 6
expect_stderr 'selftest: .*has no backward'
finish
