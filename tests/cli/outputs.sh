#!/usr/bin/env bash
# Output paths that cannot be written: exit 2 before any work where it can be known, else 7 when it happens.
# stdout carries the table or one record stream and nothing else; files are complete; a good run ends with 0.
# `plot` reads what was written, a file that was cut included, and says in a sentence what it cannot read.
. "$(dirname "$0")/lib.sh"

mkdir folder
refused_by=run_small
refused '--csv .*folder.*directory' --csv folder
refused '--jsonl .*folder.*directory' --jsonl folder
refused '--csv .*absent' --csv absent/x.csv
refused '--csv' --csv ''
refused '--jsonl' --csv same --jsonl same
: >file
refused '--out .*file' --out file
refused '--dump .*file' --dump file
if [ "$(id -u)" -ne 0 ]; then # nothing is forbidden to root
    mkdir locked
    chmod 555 locked
    refused '--csv .*locked' --csv locked/x.csv
    refused '--out .*locked' --out locked/run
    : >frozen
    chmod 444 frozen
    refused '--jsonl .*frozen' --jsonl frozen
fi
refused '/proc' --csv /proc/absent/x.csv

# A full disk.
if [ -c /dev/full ]; then
    run_small --csv /dev/full
    expect_code 7
    expect_stderr '^fabench: .*(/dev/full|No space)'
    run_small --jsonl /dev/full
    expect_code 7
    expect_stderr '^fabench: .*(/dev/full|No space)'
    # The other file is whole.
    run_small --csv good.csv --jsonl /dev/full
    expect_code 7
    for stream in --csv --jsonl; do
        what="fabench $stream - >/dev/full"
        code=0
        small $stream -
        "$fabench" "${small[@]}" >/dev/full 2>err </dev/null || code=$?
        : >out
        expect_code 7
        expect_stderr '^fabench: '
    done
    what="fabench >/dev/full"
    code=0
    small
    "$fabench" "${small[@]}" >/dev/full 2>err </dev/null || code=$?
    expect_code 7
    code=0
    "$fabench" --help >/dev/full 2>err || code=$?
    expect_code 7
fi

# A file at the limit of its size is a full disk: the rows before it are whole, and --resume runs the rest.
limited=(--seqlen 16,32,48,64,80,96,112,128 --mode fwd,bwd --plot none --out limited)
what="ulimit -f 8; fabench ${limited[*]}"
small "${limited[@]}"
code=0
(ulimit -f 8; exec "$fabench" "${small[@]}") >out 2>err </dev/null || code=$?
expect_code 7
expect_stderr '^fabench: a record could not be written: File too large$'
kept=$(rows limited/run.jsonl | wc -l)
expect "some rows of 16, not $kept" test "$kept" -gt 0 -a "$kept" -lt 16
expect "every line of the record whole" test "$(grep -cvE '^\{"type":"(header|row)".*\}$' limited/run.jsonl)" -eq 0
run_small "${limited[@]}" --resume
expect_code 0
expect_stderr "$kept of 16 rows are there"
expect "16 rows" test "$(rows limited/run.jsonl | wc -l)" -eq 16
for stream in --csv --jsonl; do # a limit that is met on stdout
    what="ulimit -f 1; fabench $stream - >file"
    code=0
    small --seqlen 16,32,48,64 $stream -
    (ulimit -f 1; exec "$fabench" "${small[@]}") >file.out 2>err </dev/null || code=$?
    expect_code 7
    expect_stderr '^fabench: '
done
code=0
what="ulimit -f 1; fabench --help=all >file"
(ulimit -f 1; exec "$fabench" --help=all) >file.out 2>err </dev/null || code=$?
expect_code 7

# When the reader of stdout ends, the run fails with a message.
what="fabench --csv - | head -1"
code=0
small --seqlen 64,128,256 --csv -
"$fabench" "${small[@]}" 2>err </dev/null | head -c 1 >out
code=${PIPESTATUS[0]}
expect "a documented exit code, not $code" test "$code" -eq 0 -o "$code" -eq 7

# ---- streams ----
next_part
columns=schema,run_id,time_utc,commit,method,device,arch,driver,cuda,cudnn,impl,variant,mode,dtype,causal,batch,q_heads
columns+=,kv_heads,q_len,kv_len,head_dim,layout,window_left,window_right,dropout,scale,dist,seed,l2,status,check
columns+=,check_scope
columns+=,reason,samples,stop,time_ms,time_ms_ci_lo,time_ms_ci_hi,time_ms_min,noise_pct,flops,tflops,tflops_sustained
columns+=,gemm_tflops,pct_of_gemm,speedup_vs_naive,peer,speedup_vs_peer,min_gb,workspace_mb,max_abs_err,rel_rms_err
columns+=,err_ratio
columns+=,err_used,err_tensor,worst,atol,rtol,sm_clock_mhz,temp_c,power_capped_pct,throttled_pct,power_w,energy_j
columns+=,tflops_per_w,power_limit_w,repro,logit_std,lengths,total_q,block_mask,mask_block,dropout_seed,softcap
columns+=,page_size,out_dtype,quant_scale,scale_block,hadamard,v_head_dim,sink,alibi,logit_mean,bias,cache_dtype
columns+=,quant_in_time,quant_ms,quant_rms_err,splits,gb_per_s
columns+=,pct_of_read,board,read_gb_per_s,pci,batch_invariant
columns+=,dram_read_gb,dram_write_gb,l2_gb,tensor_active_pct,flop_done,flop_types,model_dram_gb,model_l2_gb,model_flop

run_small --impl naive,fused --mode fwd,bwd
expect_code 0
expect_stdout '^.*fused.*pass'
expect_stdout '4 of 4 rows checked.*all pass'
expect "no file in the current folder" test -z "$(find . -mindepth 1 ! -name out ! -name err)"
expect "no table row on stderr" sh -c "! grep -qE 'fused +[0-9]' '$tmp/err'"
expect "a table of at most 110 columns" test "$(wc -L <"$tmp/out")" -le 110

run_small --impl naive,fused --csv -
expect_code 0
expect "the contract's columns first" test "$(head -1 out | tr -d '\r')" = "$columns"
expect "two rows" test "$(wc -l <out)" -eq 3
expect "as many cells in each line" test "$(csv_widths out)" = "$(tr "," "\n" <<<"$columns" | wc -l)"
expect "status ok" test "$(csv_cell out 1 status)" = ok
expect "check pass" test "$(csv_cell out 2 check)" = pass
expect "the implementation's own name" test "$(csv_cell out 1 impl)" = naive
expect "an empty cell where nothing was measured" test -z "$(csv_cell out 1 power_w)"
expect "no nan or inf" sh -c "! grep -qiE '(^|,)-?(nan|inf)(,|$)' out"
flops=$(csv_cell out 1 flops)
expect "the contract's FLOPs, half of 4 n^2 d" awk -v f="$flops" 'BEGIN { exit !(f == 4 * 128 * 128 * 64 / 2) }'
repro=$(csv_cell out 2 repro)
expect "a repro command" sh -c "echo '$repro' | grep -q '^fabench .*--seqlen 128'"
what="the repro command: $repro"
expect "the repro command to run" sh -c "cd '$tmp' && $fabench ${repro#fabench} --out none >repro.out 2>&1"

run_small --jsonl -
expect_code 0
expect "a header, then one row" test "$(grep -cE '^\{"type": *"(header|row)"' out)" -eq 2
expect "nothing else" test "$(wc -l <out)" -eq 2
expect "a header first" sh -c "head -1 out | grep -q '\"type\": *\"header\"'"
expect "6 samples or more" test "$(rows out | grep -oE '"samples_ms": *\[[^]]*' | tr ',' '\n' | wc -l)" -ge 6

run_small --csv - --columns impl,check,time_ms
expect_code 0
expect "the asked columns" test "$(head -1 out | tr -d '\r')" = impl,check,time_ms
expect "three cells" test "$(csv_widths out)" = 3

run_small --quiet --csv -
expect_code 0
expect_no_stderr

run_small --check off
expect_code 0
expect "NOT CHECKED in the last lines" sh -c "cat '$tmp/out' '$tmp/err' | tail -n 3 | grep -q 'NOT CHECKED'"
run_small --check off --csv -
expect "no error figures without a check" test -z "$(csv_cell out 1 max_abs_err)$(csv_cell out 1 err_used)"
expect "check off" test "$(csv_cell out 1 check)" = off

run_small --check sample --heads 4 --batch 2 --csv -
expect_code 0
expect "scope sample" test "$(csv_cell out 1 check_scope)" = sample

# Files: by --out, by name, and by the default name under $FABENCH_OUT_ROOT.
rm -rf here
run_small --out here --plot svg --impl naive,fused
expect_code 0
expect_file here/run.jsonl
expect_file here/run.csv
expect "a chart's script and data" test -n "$(find here -name '*.gp')" -a -n "$(find here -name '*.dat')"
if command -v gnuplot >/dev/null; then
    expect "a chart" test -n "$(find here -name '*.svg' -size +1k)"
fi
expect_stdout 'here'
run_small --csv a.csv --jsonl a.jsonl
expect_code 0
expect_file a.csv
expect_file a.jsonl
expect "one CSV row" test "$(wc -l <a.csv)" -eq 2
what="FABENCH_OUT_ROOT"
mkdir root_dir
export FABENCH_OUT_ROOT=$tmp/root_dir
run_small --plot none default-out
expect_code 0
expect "records in <device>-<utc>" test -n "$(find root_dir -path '*-20*Z/run.jsonl')"

# ---- records ----
next_part
run_small --impl naive,fused --mode fwd,bwd --seqlen 64,128,256 --jsonl a.jsonl
expect_code 0
expect "12 rows" test "$(rows a.jsonl | wc -l)" -eq 12

run plot a.jsonl --out charts
expect_code 0
expect "a script and data for each mode" test "$(find charts -name 'tflops-*-causal-d64-fp32.gp' | wc -l)" -eq 2 -a \
    "$(find charts -name 'tflops-*-causal-d64-fp32.dat' | wc -l)" -eq 2
if command -v gnuplot >/dev/null; then
    expect "images" test "$(find charts -name 'tflops-*-causal-d64-fp32.svg' -size +1k | wc -l)" -eq 2
    script=$(find charts -name 'tflops-*.gp' | head -1)
    expect "a script that runs by itself" sh -c \
        "cd charts && rm -f *.svg && gnuplot '$(basename "$script")' && ls *.svg >/dev/null"
    run plot a.jsonl --plot png --out charts
    expect_code 0
    expect "a PNG" test -n "$(find charts -name '*.png' -size +1k)"
fi
run plot a.jsonl --plot term
expect_code 0
expect_stdout 'fused'
expect "nothing wider than 110" test "$(wc -L <out)" -le 110

# gnuplot absent: script and data stay, one line says so.
mkdir empty_path
what="fabench plot without gnuplot"
code=0
PATH=$tmp/empty_path "$fabench" plot a.jsonl --out charts_bare >out 2>err </dev/null || code=$?
expect_code 0
expect_stderr 'gnuplot'
expect "one line about it" test "$(grep -c gnuplot err)" -eq 1
expect "the script" test -n "$(find charts_bare -name 'tflops-*.gp')"
code=0
PATH=$tmp/empty_path "$fabench" plot a.jsonl --plot term >out 2>err </dev/null || code=$?
expect_code 0
expect_stdout 'fused'

# A cut last line is dropped, in a warning; the rows before it are drawn.
size=$(wc -c <a.jsonl)
head -c $((size - 40)) a.jsonl >cut.jsonl
run plot cut.jsonl --out charts_cut
expect_code 0
expect_stderr 'cut'
expect "charts of the rows before" test -n "$(find charts_cut -name 'tflops-*.gp')"
head -1 a.jsonl >header.jsonl # a run that ended before its first row
run plot header.jsonl --out charts_header
expect "a documented exit code" test "$code" -eq 0 -o "$code" -eq 5
expect "a sentence" test "$(wc -l <err)" -le 1

# What is not a record file.
unreadable() {
    run plot "$1" --out charts_bad
    expect "exit 5 or 7, not $code" test "$code" -eq 5 -o "$code" -eq 7
    expect_sentence "$1"
}
unreadable absent.jsonl
echo 'not json' >garbage.jsonl
unreadable garbage.jsonl
: >empty.jsonl
unreadable empty.jsonl
printf '{"type": "row", "schema": 1}\n' >headless.jsonl
unreadable headless.jsonl
sed 's/"schema": *1/"schema": 999/' a.jsonl >schema.jsonl
unreadable schema.jsonl
head -c 3000 /dev/urandom >random.jsonl
unreadable random.jsonl
mkdir folder.jsonl
unreadable folder.jsonl
(sed -n 1p a.jsonl; echo '{"type": "row", "broken'; sed -n 2p a.jsonl) >middle.jsonl
run plot middle.jsonl --out charts_bad
expect "a broken line in the middle to be said" test -s err

# Escape sequences in every text of a record: nothing of them reaches the terminal, a page, a chart or its script.
python3 - a.jsonl >hostile.jsonl <<'EOF'
import json
import sys

ESCAPE = "\x1b]0;x\x07\x9bm"

def hostile(value, key=""):
    if isinstance(value, dict):
        return {k: hostile(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v, key) for v in value]
    words = ("type", "status", "check", "check_scope", "mode", "dtype", "layout", "dist", "l2", "method")
    words += ("out_dtype", "quant_scale", "bias")
    if not isinstance(value, str) or key in words:
        return value
    short = {"driver": 24, "time_utc": 24, "launch": 8, "err_tensor": 8, "name": 8}
    room = short.get(key, 16 if key in ("arch", "cuda", "cudnn", "stop") else 40)
    return (ESCAPE + value)[: room - 2]  # ESCAPE has a character of two bytes

for line in open(sys.argv[1]):
    print(json.dumps(hostile(json.loads(line))))
EOF
expect "escapes in the record" grep -q '\\u001b' hostile.jsonl
clean() { # clean FILE...
    local file
    for file in "$@"; do
        expect "no control byte in $file" sh -c "! LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' '$file'"
    done
}
run plot hostile.jsonl --plot term --color never
expect_code 0
expect_stdout ' \]0;x'
clean out err
run plot hostile.jsonl --out charts_hostile
expect_code 0
clean out err charts_hostile/*.gp charts_hostile/*.dat
[ -z "$(find charts_hostile -name '*.svg')" ] || clean charts_hostile/*.svg
run report hostile.jsonl --out page_hostile --color never
expect_code 0
clean out err page_hostile/*.md page_hostile/*.csv page_hostile/*.html
sed 's/"status": *"[a-z]*"/"status": "\\u001b]0;x\\u0007"/' hostile.jsonl >hostile_word.jsonl
run plot hostile_word.jsonl --plot term
expect_code 5
clean out err
printf '{"type":"header","schema":1}\n{"type":"row" \033]0;x\007}\n' >hostile_json.jsonl
run plot hostile_json.jsonl --plot term
expect_code 5
clean out err

finish
