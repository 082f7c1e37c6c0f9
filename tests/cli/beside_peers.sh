#!/usr/bin/env bash
# scripts/beside_peers.py: ratios to cuDNN against published ones. The records here are made up.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "no python3"

cat >peers.csv <<'CSV'
# made up
impl,device,mode,dtype,causal,batch,q_heads,kv_heads,q_len,kv_len,head_dim,layout,dist,l2,tflops,gemm_tflops
fa3,X,fwd,bf16,1,4,16,16,4096,4096,128,bshd,normal,cold,120,200
cudnn,X,fwd,bf16,1,4,16,16,4096,4096,128,bshd,normal,cold,100,200
fa3,X,fwd,bf16,0,4,16,16,4096,4096,128,bshd,normal,cold,90,200
cudnn,X,fwd,bf16,0,4,16,16,4096,4096,128,bshd,normal,cold,100,200
fa3,X,fwd,bf16,0,1,16,16,8192,8192,128,bshd,normal,cold,90,200
CSV
# record FILE CAUSAL RATIO [CHECK]: appends a row.
record() {
    {
        printf '{"type":"row","impl":"mine","mode":"fwd","dtype":"bf16","causal":%s,"batch":4,"q_heads":16,' "$2"
        printf '"kv_heads":16,"q_len":4096,"kv_len":4096,"head_dim":128,"layout":"bshd","dist":"normal","l2":"cold",'
        printf '"check":"%s","peer":"cudnn","speedup_vs_peer":%s}\n' "${4:-pass}" "$3"
    } >>"$1"
}
beside() {
    what="beside_peers.py $*"
    code=0
    python3 "$root/scripts/beside_peers.py" --peers peers.csv --impl mine "$@" >out 2>err </dev/null || code=$?
}

record ahead.jsonl 1 1.25
record ahead.jsonl 0 1.01
beside ahead.jsonl
expect_code 0
expect_stdout 'causal d128 bf16 n=4096 +1\.250 +1\.200 +1\.042 +fa3'
expect_stdout 'full +d128 bf16 n=4096 +1\.010 +1\.000 +1\.010 +cudnn' # the best peer is cuDNN itself
expect_stdout '^fwd: 2 points'

# Of three runs the median counts; one that is behind is named with its bar.
for ratio in 1.30 1.10 1.12; do
    record "run$ratio.jsonl" 1 "$ratio"
done
beside run*.jsonl
expect_code 1
expect_stdout '1\.120 +1\.200 +0\.933 +fa3 +below: r / t'
record slow.jsonl 0 0.99
beside slow.jsonl
expect_code 1
expect_stdout 'below: r$'

# A row that failed has no ratio; a cut record is read up to there; nothing to compare is 5.
record failed.jsonl 1 1.5 fail
beside failed.jsonl
expect_code 5
expect_stderr '^beside_peers: no checked row of mine'
record cut.jsonl 1 1.25
printf '{"type":"row","impl":"mi' >>cut.jsonl
beside cut.jsonl
expect_code 0
beside none.jsonl
expect_code 5
expect_stderr '^beside_peers: none.jsonl: '
finish
