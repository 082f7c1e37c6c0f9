#!/usr/bin/env bash
# examples/slurm with a real Slurm on this host: slurmctld and three slurmd -N, without systemd, accounting, control
# groups and munge (auth/none), with the CPU as the device. Started and ended here.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
for program in slurmctld slurmd srun sbatch scontrol; do
    command -v "$program" >/dev/null || skip "no $program (Debian: slurmctld slurmd slurm-client)"
done
port=$((20000 + $$ % 20000))
mkdir state spool log spool/node1 spool/node2 spool/node3 bin
export SLURM_CONF=$tmp/slurm.conf
cat >"$SLURM_CONF" <<END
ClusterName=fabench
SlurmctldHost=$(uname -n)(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=$port
StateSaveLocation=$tmp/state
SlurmdSpoolDir=$tmp/spool/%n
SlurmctldPidFile=$tmp/ctld.pid
SlurmdPidFile=$tmp/slurmd-%n.pid
SlurmctldLogFile=$tmp/log/ctld.log
SlurmdLogFile=$tmp/log/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
NodeName=node[1-3] NodeHostname=$(uname -n) NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 3))] CPUs=1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
daemons=()
end_slurm() {
    scancel --user="$(id -un)" 2>/dev/null
    kill -9 "${daemons[@]}" 2>/dev/null
    wait 2>/dev/null
    rm -rf "$tmp"
}
trap end_slurm EXIT
start_node() {
    slurmd -D -N "$1" >"log/$1.out" 2>&1 </dev/null &
    daemons+=($!)
    echo $! >"$1.daemon"
}
# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    local i tenths=$((10 * $1))
    shift
    for ((i = 0; i < tenths; i++)); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}
idle() { [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 3 ]; }
slurmctld -D >log/ctld.out 2>&1 </dev/null &
daemons+=($!)
for node in node1 node2 node3; do start_node "$node"; done
wait_for 60 idle ||
    skip "Slurm does not start here: $(tail -qn 1 log/ctld.log log/*.out 2>/dev/null | tr '\n' ' ' | cut -c1-300)"

# submit: the job of the page, until it has ended; its output is in job.log.
submit() {
    what="sbatch fleet.sbatch"
    code=0
    export FABENCH=$1
    timeout 300 sbatch --wait --nodes=3 --output="$tmp/job.log" "$root/examples/slurm/fleet.sbatch" "$tmp/records" \
        "${small[@]:2}" --seqlen 128,256,512 >out 2>err </dev/null || code=$?
    cp job.log out
}
small
small=("${small[@]:0:2}" --d 64 --batch 1 --heads 1 --causal --mode fwd --impl fused --warmup-ms 0 --min-time-ms 1
    --samples 6 --max-noise 100% --l2 hot)

# Node 3 dies in the middle: its program behind the first row, and its daemon.
cat >bin/dying <<END
#!/usr/bin/env bash
if [ "\${FABENCH_HOST:-}" != node3 ] || [ "\${1:-}" = report ]; then exec "$fabench" "\$@"; fi
"$fabench" "\$@" >/dev/null 2>&1
# As the record was after its first row.
head -n 2 "$tmp/records/node3.jsonl" >"$tmp/cut" && cat "$tmp/cut" >"$tmp/records/node3.jsonl"
kill -9 "\$(cat "$tmp/node3.daemon")"
kill -9 \$\$
END
chmod +x bin/dying
submit "$tmp/bin/dying"
expect "a job that failed" test "$code" -ne 0
expect "the lost node by name" grep -q 'node3' out
expect_stdout 'node3 cpu: 1 of 3 cases, its record ends early'
expect "the others are not named" sh -c "! grep -q 'node[12] cpu: ' out"
expect "the others are whole" \
    test "$(rows records/node1.jsonl | wc -l) $(rows records/node2.jsonl | wc -l)" = "3 3"
expect "its row so far" test "$(rows records/node3.jsonl | wc -l)" -eq 1
expect "names of nodes in the headers" grep -q '"host":{"name":"node2"' records/node2.jsonl
expect "a heat map" grep -q node3 records/report/boards.svg

# The node is back, and the same job goes on where it was.
start_node node3
wait_for 120 idle || fail "node3 does not come back: $(sinfo -h 2>&1 | tr '\n' ' ')"
submit "$fabench"
expect_code 0
expect "whole" test "$(rows records/node3.jsonl | wc -l)" -eq 3
expect "its first row kept" test "$(head -n 2 records/node3.jsonl | tail -n 1)" = "$(tail -n 1 cut)"
expect "the others as they were" test "$(rows records/node1.jsonl | wc -l)" -eq 3
expect "nobody is missing" grep -qx 'None\.' records/report/boards.md

# A node with GPUs, here made-up ones: one record of them all, continued.
printf '#!/bin/sh\necho "GPU 0: made up"\n' >bin/nvidia-smi && chmod +x bin/nvidia-smi
export FAKE_BOARDS=ok,ok FABENCH_NVML=${FABENCH_FAKE_NVML:-$(dirname "$fabench")/tests/fake/libfake_nvml.so}
export FABENCH=${FABENCH_BOARDS:-$(dirname "$fabench")/tests/fake/fabench_boards} FABENCH_LOCK_DIR=$tmp
mkdir gpus
for lines in 9 3; do
    what="fleet.sbatch --node" code=0
    PATH=$tmp/bin:$PATH SLURMD_NODENAME=gpu01 bash "$root/examples/slurm/fleet.sbatch" --node gpus "${small[@]:2}" \
        --dtype fp32 --seqlen 128,256 || code=$?
    expect_code 0
    expect "both boards' rows" test "$(rows gpus/gpu01.jsonl '"pci":"0000:[12]0' | wc -l)" -eq 4
    head -n "$lines" gpus/gpu01.jsonl >cut && cat cut >gpus/gpu01.jsonl
done

# An empty allocation: without Slurm's variables.
what="fleet.sbatch without an allocation"
code=0
bash "$root/examples/slurm/fleet.sbatch" records >out 2>err || code=$?
expect_code 2
expect_stderr 'submit it with sbatch'

finish
