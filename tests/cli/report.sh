#!/usr/bin/env bash
# `report`: one page from record files, what it compares and what it refuses, prices, labels, bad files, --overlay.
. "$(dirname "$0")/lib.sh"

run_small --impl naive,fused --mode fwd,bwd --seqlen 64,96,128,256 --jsonl a.jsonl
expect_code 0
run_small --impl naive,fused --mode fwd,bwd --seqlen 64,96,128,256 --jsonl b.jsonl
expect_code 0
run_small --impl fused --mode fwd --seqlen 96 --d 32 --jsonl other.jsonl
expect_code 0

# The page, its table, its charts.
run report One=a.jsonl Two=b.jsonl --price One=1000EUR --price Two=2500.50EUR --out page
expect_code 0
expect_no_stderr
for file in report.md report.html report.csv; do expect_file page/$file; done
expect_stdout '^Comparable\?$'
expect_stdout 'Yes: they share problems and conditions \(2 labels, boards not recorded, 2 records\)'
expect_stdout '0 of 16 points'
expect "no wider sentence than 110" test "$(wc -L <out)" -le 110
expect "16 lines of figures" test "$(wc -l <page/report.csv)" -eq 17
expect "one width" test "$(csv_widths page/report.csv | wc -l)" -eq 1
expect "the label" test "$(csv_cell page/report.csv 1 label)" = One
expect "an implementation that ran" grep -qE '^(fused_cpu|naive)$' <<<"$(csv_cell page/report.csv 1 impl)"
expect "the price" test "$(csv_cell page/report.csv 2 price)" = 2500.5
expect "the currency" test "$(csv_cell page/report.csv 1 currency)" = EUR
expect "a rank" grep -qE '^[12]$' <<<"$(csv_cell page/report.csv 1 rank)"
expect "a figure that is a row's" sh -c \
    "grep -q '\"tflops\": *$(csv_cell page/report.csv 1 tflops | cut -c1-8)' a.jsonl"
expect "the page to need no other file" sh -c \
    "! grep -qE '<(script|link|img|iframe)|src=|url\((.http|http)' page/report.html"
expect "the labels in it" grep -q '<th>Two</th>' page/report.html
if command -v gnuplot >/dev/null; then
    expect "svg charts in the page" test "$(grep -c '<svg' page/report.html)" -eq 3
    expect "names of each chart of their own" test \
        "$(grep -oE "id=['\"][^'\"]*" page/report.html | sort | uniq -d | wc -l)" -eq 0
    expect "the charts beside it" test "$(find page -name '*.svg' | wc -l)" -eq 3
fi
expect "nothing half-written" test -z "$(find page -name '*.new')"

run report a.jsonl --out none
expect_code 0
expect_stdout '^# Attention'
expect_stdout 'One device'
run report a.jsonl --plot none --out bare
expect_code 0
expect "no chart" sh -c "! grep -q '<svg' bare/report.html && test -z \"\$(find bare -name '*.gp')\""
run report a.jsonl --quiet --out quiet
expect_code 0
expect_no_stdout
FABENCH_OUT_ROOT=$tmp/root run report a.jsonl
expect "a folder of its own" test -n "$(find root -path '*/report-*/report.html')"

# Several files of one label: the spread between them.
run report X=a.jsonl X=b.jsonl --out spread
expect_code 0
expect_stdout '2 record files, which may be of one board or of several'
expect "two files a figure" test "$(csv_cell spread/report.csv 1 files)" = 2
expect "a spread" grep -qE '^[0-9.e-]+$' <<<"$(csv_cell spread/report.csv 1 spread_between_files_pct)"

# gnuplot absent: the page stands and says so.
mkdir empty_path
what="fabench report without gnuplot"
code=0
PATH=$tmp/empty_path "$fabench" report a.jsonl --out page_bare >out 2>err </dev/null || code=$?
expect_code 0
expect_stderr 'gnuplot is not installed'
expect "the page to say so" grep -q 'gnuplot was not installed' page_bare/report.html
expect "scripts" test -n "$(find page_bare -name '*.gp')"

# gnuplot fails: the page stands without the chart, and the exit code says so.
mkdir fake
printf '#!/bin/sh\necho boom >&2\nexit 3\n' >fake/gnuplot
chmod +x fake/gnuplot
what="fabench report with a gnuplot that fails"
code=0
PATH=$tmp/fake:$PATH "$fabench" report a.jsonl --out page_failed >out 2>err </dev/null || code=$?
expect_code 7
expect_stderr 'gnuplot \(tflops-fp32\): boom'
expect_file page_failed/report.html
expect "no chart in it" sh -c "! grep -q '<svg' page_failed/report.html"

# What shares no problem is on one page, in groups, and not compared: 5.
run report A=a.jsonl B=other.jsonl --out groups
expect_code 5
expect_sentence 'not comparable'
expect "the banner" grep -q 'NOT COMPARABLE' groups/report.html
expect "why" grep -q 'head dim 64 against 32' groups/report.md
expect "no rank" test -z "$(csv_cell groups/report.csv 1 rank)"
expect "nothing side by side" sh -c "! grep -q 'Side by side' groups/report.md"

# A row that failed is no figure, and its device says so.
sed -E 's/("impl": *"fused_cpu".*)"check": *"pass"/\1"check":"fail"/' a.jsonl >failed.jsonl
run report failed.jsonl --out failed
expect_code 0
expect_stdout '8 of 16 rows FAILED their'
expect "naive everywhere" test "$(tail -n +2 failed/report.csv | grep -c ',naive,')" -eq 8

# Bad files: nothing is written.
refused() { # refused CODE REGEX ARGUMENT...
    local want=$1 sentence=$2
    shift 2
    rm -rf bad
    run report "$@" --out bad
    expect_code "$want"
    expect_sentence "$sentence"
    expect_no_stdout
    expect "nothing written" test ! -e bad
}
: >empty.jsonl
echo 'not json' >garbage.jsonl
head -1 a.jsonl >header.jsonl
sed 's/"schema": *1/"schema": 999/' a.jsonl >schema.jsonl
sed -E 's/"check": *"pass"/"check":"off"/' a.jsonl >unchecked.jsonl
(cat a.jsonl; tail -n +2 b.jsonl | sed -E 's/"device": *"[^"]*"/"device":"Another"/') >mixed.jsonl
(cat a.jsonl; tail -n +2 b.jsonl | sed -E 's/"method": *"[^"]*"/"method":"0"/') >methods.jsonl
cp a.jsonl copy.jsonl
sed -E 's/"device": *"[^"]*"/"device":"Another"/; s/"run_id": *"[^"]*"/"run_id":"x"/' a.jsonl >another.jsonl
refused 5 'empty.jsonl: not a record file: it is empty' empty.jsonl
refused 5 'garbage.jsonl' a.jsonl garbage.jsonl
refused 5 'header.jsonl: holds no row that was timed and passed' header.jsonl
refused 5 'schema 999' schema.jsonl
refused 5 'unchecked.jsonl: .*0 failed, 16 not checked' unchecked.jsonl
# Figures that contradict one another; the other rows do not help.
forged() { # forged REGEX SED-SCRIPT: the third line, which is the second row
    sed -E "3{$2}" a.jsonl >forged.jsonl
    expect "an edited record" sh -c '! cmp -s a.jsonl forged.jsonl'
    refused 5 "forged.jsonl.*$1" forged.jsonl
    refused 5 "forged.jsonl.*$1" A=b.jsonl B=forged.jsonl
}
forged ', row 2 \(.*: it has no check' 's/"check": *"pass",//'
forged ', row 2 \(.*: it has no check' 's/"check": *"pass"/"check":null/'
forged 'line 3: "check" must be' 's/"check": *"pass"/"check":"PASS"/'
forged ', row 2 \(.*: it has no status' 's/"status": *"ok",//'
forged ', row 2 \(.*: its check is pass, without an err_used' 's/"err_used": *[^,]*,//'
forged ', row 2 \(.*: its tflops is .*, its shape and its time_ms .* make' 's/("tflops": *)[^,]*/\17/'
forged ', row 2 \(.*: its flops are .*, its shape makes' 's/("flops": *)[^,]*/\17/'
forged ', row 2 \(.*: its time_ms is 1e\+308; must be from' 's/("time_ms": *)[^,]*/\11e308/'
forged ', row 2 \(.*: its time_ms is 0; must be from' 's/("time_ms": *)[^,]*/\10/'
forged 'line 3' 's/("time_ms": *)[^,]*/\1inf/'
refused 5 'mixed.jsonl: holds rows of .* and of Another' mixed.jsonl
refused 5 'methods.jsonl: holds rows of timing method' methods.jsonl
refused 5 'copy.jsonl: holds run .*in a.jsonl too' a.jsonl copy.jsonl
refused 5 'X: a.jsonl is of .*, another.jsonl of Another' X=a.jsonl X=another.jsonl
refused 5 'absent.jsonl: No such file' H=absent.jsonl
refused 2 'given twice' a.jsonl X=a.jsonl
refused 2 'needs a record file behind the =' X=
refused 2 'no label before the =' =a.jsonl
refused 2 'a label has at most' 'a<b=a.jsonl'
refused 2 'no such label; there is X' X=a.jsonl --price Y=1EUR
refused 2 'must be LABEL=AMOUNT' X=a.jsonl --price 31000EUR
for price in X=EUR X=0EUR X=-1EUR X=1 X=1e4EUR X=10,000EUR X=1eur X=nanEUR; do
    refused 2 "$price: must end in an amount above 0" X=a.jsonl --price "$price"
done
refused 2 'already has a price' X=a.jsonl --price X=1EUR --price X=2EUR
refused 2 'all must be in one currency' X=a.jsonl Y=b.jsonl --price X=1EUR --price Y=1USD
size=$(wc -c <a.jsonl)
head -c $((size - 40)) a.jsonl >cut.jsonl # what is whole is reported, in a warning and on the page
run report cut.jsonl --out cut
expect_code 0
expect_stderr 'cut.jsonl: its last line is cut'
expect "the page to say so" grep -q 'ends in a cut line' cut/report.md
(cat a.jsonl; tail -n +2 a.jsonl) >twice.jsonl
run report twice.jsonl --out twice
expect_code 0
expect_stdout '16 rows were measured again later'
expect "each once" test "$(wc -l <twice/report.csv)" -eq 9
touch file
run report a.jsonl --out file/x
expect "exit 2 or 7, not $code" test "$code" -eq 2 -o "$code" -eq 7
if [ -e /dev/full ]; then
    code=0
    "$fabench" report a.jsonl --out none >/dev/full 2>err </dev/null || code=$?
    expect_code 7
fi

# Text of a record stays text.
sed -E 's/"device": *"[^"]*"/"device":"<script>alert(1)<\/script>|*x*"/g' a.jsonl >hostile.jsonl
run report hostile.jsonl --out hostile
expect_code 0
expect "no element out of a name" sh -c "! grep -q '<script' hostile/report.html"

# --overlay: published points in charts of report, plot and sweeps, in no table.
names='impl,mode,dtype,causal,q_len,head_dim,tflops'
printf '# a table in a paper\n%s\nfa3,fwd,fp32,1,128,64,0.5\nfa3,fwd,fp32,1,4096,64,0.75\n' $names >points.csv
run report A=a.jsonl --overlay points.csv --out overlaid
expect_code 0
expect_no_stderr
expect "the point in the data" grep -q '^128,500$' overlaid/tflops-fp32.dat
expect "not the one of a length that no row has" sh -c "! grep -q '^4096,' overlaid/tflops-fp32.dat"
expect "its source" grep -q 'a table in a paper' overlaid/report.html
expect "no rank for it" sh -c "! grep -q fa3 overlaid/report.csv"
run plot a.jsonl --overlay points.csv --out plotted
expect_code 0
expect "the point in the data" grep -q '^128,500$' plotted/tflops-fp32.dat
run_small --seqlen 128 --out swept --overlay points.csv
expect_code 0
expect "the point in the data" grep -q '^128,500$' swept/tflops-fp32.dat
printf '%s\nfa3,fwd,fp32,1,5,64,0.5\n' $names >elsewhere.csv
run plot a.jsonl --overlay elsewhere.csv --out plotted
expect_code 0
expect_sentence 'none of its 1 points'
printf '%s\nfa3,fwd,fp32,1,x,64,0.5\n' $names >bad.csv
for command in "plot a.jsonl" "report a.jsonl" "--device cpu --seqlen 64"; do
    # shellcheck disable=SC2086 # words
    run $command --overlay bad.csv --out nowhere
    expect_code 5
    expect_sentence '^fabench: --overlay bad.csv, line 2: q_len "x"'
    expect "nothing begun" test ! -e nowhere
done

# scripts/report.sh: each device is a label with its newest record of each kind; a CPU's where there are no others.
renew() {
    what="scripts/report.sh"
    code=0
    FABENCH=$fabench FABENCH_RESULTS=$tmp/published "$root/scripts/report.sh" >out 2>err </dev/null || code=$?
    expect_code 0
    label=$(sed -n 's/^| \*\*\([^*]*\)\*\* .*/\1/p' published/report/report.md | head -n 1)
}
mkdir -p published/cpu published/some-gpu
cp a.jsonl published/cpu/20260102-0123456789-quick.jsonl
renew
expect "the CPU's record" test "$label" = CPU
cp other.jsonl published/some-gpu/20260101-0123456789-paper.jsonl
cp b.jsonl published/some-gpu/20260102-0123456789-paper.jsonl
renew
expect "the other device's" test "$label" = SOME-GPU
expect "without the CPU's" sh -c "! grep -q '[*]CPU[*]' published/report/report.md"
expect "the newest of the two" grep -q '^| records.*20260102-0123456789-paper.jsonl' published/report/report.md
expect "no chart that is not there" sh -c "! grep -q '](memory' published/report/report.md"
charts=$(find published/report -name 'tflops*.svg' | wc -l)
expect "its charts" test "$(grep -c '^!\[tflops' published/report/report.md)" = "$charts"
expect "nothing but page and charts of speed" test -z \
    "$(find published/report -type f ! -name 'report.*' ! -name 'tflops-*.svg' ! -name 'sustained-*.svg')"
expect "the page in Markdown alone" test "$(echo published/report/report.*)" = published/report/report.md

finish
