#!/usr/bin/env bash
# Files as users have them: a byte-order mark, figures that contradict each other, names that a spreadsheet takes for
# formulas, links, and a gnuplot that never ends.
. "$(dirname "$0")/lib.sh"

run_small --impl naive,fused --seqlen 64,128 --jsonl a.jsonl
expect_code 0
mark='\xef\xbb\xbf'

# ---- a byte-order mark is passed over ----
{ printf "$mark"; cat a.jsonl; } >b.jsonl
run gate --baseline b.jsonl --current a.jsonl --delta 15% --soft 4 # one record a side decides nothing on a CPU
expect_code 0
expect_stdout '^INCONCLUSIVE: 2 undecided of 2'
run report b.jsonl --out page
expect_code 0
run plot b.jsonl --plot term
expect_code 0
printf "${mark}q_len,impl,min_time_ms\n64,fused,0.000001\n" >floors.csv
run gate --floors floors.csv --current a.jsonl
expect_code 0
printf "${mark}64\n32\n" >lengths.txt
run --device cpu --lengths @lengths.txt --heads 1 --d 64 --mode fwd --impl fused --causal --warmup-ms 0 \
    --min-time-ms 1 --samples 6 --l2 hot --out none
expect_code 0
head -n 3 b.jsonl >c.jsonl # a record that is resumed keeps its mark
run_small --impl naive,fused --seqlen 64,128 --jsonl c.jsonl --resume
expect_code 0
expect "four rows" test "$(grep -c '"type":"row"' c.jsonl)" -eq 4
run report c.jsonl --out page2
expect_code 0

# ---- figures that contradict their samples are refused by every reader, with both ----
python3 - <<'END'
import json
with open("a.jsonl") as old, open("half.jsonl", "w") as new:
    for line in old:
        row = json.loads(line)
        if row["type"] == "row":
            for name in ("time_ms", "time_ms_ci_lo", "time_ms_ci_hi", "time_ms_min"):
                row[name] /= 2
            row["tflops"] *= 2
        new.write(json.dumps(row) + "\n")
END
says='half.jsonl, row 1 .*: its time_ms is [0-9.e-]+, its samples_ms have the median [0-9.e-]+'
run gate --baseline half.jsonl --current a.jsonl
expect_code 5
expect_sentence "$says"
run report half.jsonl --out page3
expect_code 5
expect_stderr "$says"
run plot half.jsonl --plot term
expect_code 5
expect_sentence "$says"
run_small --impl naive,fused --seqlen 64,128 --jsonl half.jsonl --resume
expect_code 5
expect_stderr "$says"

# ---- what a spreadsheet would compute ----
run report '@SUM(1)=a.jsonl' --out page4
expect_code 0
expect "no cell that begins a formula" sh -c "! grep -qE '(^|,)\"?[=@]' page4/report.csv"
expect "the name behind an apostrophe" grep -q "'@SUM(1)" page4/report.csv

# ---- --overwrite through a link says what it overwrites ----
mkdir out_dir
run_small --out out_dir --plot none
expect_code 0
echo precious >precious.csv
rm out_dir/run.csv
ln -s "$tmp/precious.csv" out_dir/run.csv
run_small --out out_dir --overwrite --plot none
expect_code 0
expect_stderr 'out_dir/run.csv is a link: .*/precious.csv is overwritten'

# ---- a loaded implementation beside one of the program's own: that one is the peer ----
paced=$(find "$(dirname "$fabench")" -name libpaced_0.so | head -1)
run_small --impl-lib "$paced" --impl paced_cpu,fused --jsonl peer.jsonl
expect_code 0
expect_stdout '  x fused '
expect "no empty column" sh -c "! grep -q 'x naive' out"
expect_stdout '^paced_cpu: geomean [0-9.]+ x fused over 1 row'
expect "not over itself" sh -c "! grep -q '^fused_cpu: geomean' out"
expect "the peer in the record" test "$(rows peer.jsonl paced_cpu | row_value peer)" = fused_cpu

# ---- a gnuplot that never ends ----
mkdir bin
printf '#!/bin/sh\nsleep 1000 &\nexec sleep 1000\n' >bin/gnuplot
chmod +x bin/gnuplot
export FABENCH_GNUPLOT_LIMIT_S=0.5
limit_s=60 PATH=$tmp/bin:$PATH run plot a.jsonl --out charts
expect_code 7
expect_stderr 'gnuplot \(.*\) took longer than 0.5 s'
expect_stderr 'gnuplot does not end: it was not started again; [0-9]+ chart scripts and their data are in charts'
expect "its scripts" test "$(find charts -name '*.gp' | wc -l)" -gt 3
expect "one attempt" test "$(grep -c 'took longer' err)" -eq 1
limit_s=60 PATH=$tmp/bin:$PATH run_small --impl naive,fused --out swept
expect_code 7
expect "its record" test "$(grep -c '"type":"row"' swept/run.jsonl)" -eq 2
limit_s=60 PATH=$tmp/bin:$PATH run plot a.jsonl --plot term
expect_code 7
expect_stdout '#' # bars of text instead
finish
