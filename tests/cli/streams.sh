#!/usr/bin/env bash
# stdout carries the table or one record stream and nothing else; files are complete; a good run ends with 0.
. "$(dirname "$0")/lib.sh"

columns=schema,run_id,time_utc,commit,method,device,arch,driver,cuda,cudnn,impl,variant,mode,dtype,causal,batch,q_heads
columns+=,kv_heads,q_len,kv_len,head_dim,layout,window_left,window_right,dropout,scale,dist,seed,l2,status,check
columns+=,check_scope
columns+=,reason,samples,stop,time_ms,time_ms_ci_lo,time_ms_ci_hi,time_ms_min,noise_pct,flops,tflops,tflops_sustained
columns+=,gemm_tflops,pct_of_gemm,speedup_vs_naive,peer,speedup_vs_peer,min_gb,workspace_mb,max_abs_err,rel_rms_err
columns+=,err_ratio
columns+=,err_used,err_tensor,worst,atol,rtol,sm_clock_mhz,temp_c,power_capped_pct,throttled_pct,power_w,energy_j
columns+=,tflops_per_w,power_limit_w,repro,logit_std,lengths,total_q,block_mask,mask_block,dropout_seed,softcap

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
finish
