#!/usr/bin/env bash
# What the assembler says about the sm_90a kernels: no register spills, no products of wgmma that it serialises, no
# setmaxnreg that it ignores. These are silent losses of speed, not errors, and another compiler may decide otherwise: they
# fail with the compiler that the kernels were measured with and are shown with any other.
. "$(dirname "$0")/lib.sh"
measured_with="release 13.0"

commands=$(dirname "$fabench")/compile_commands.json
[ -e "$commands" ] || skip "no $commands"
# A line "folder<TAB>command" for each source.
mapfile -t kernels < <(sed -n -e 's/^ *"directory": "\(.*\)",$/\1/' -e T -e N -e \
    's/\n *"command": "\(.*arch=compute_90a.*\)",$/\t\1/p' "$commands")
[ ${#kernels[@]} -gt 0 ] || skip "built without CUDA"

for kernel in "${kernels[@]}"; do
    IFS=$'\t' read -r folder command <<<"$kernel"
    compiler=${command%% *}
    what=$(grep -oE '[^ /]+\.cu' <<<"$command" | tail -n 1)
    command=$(sed 's/\\"/"/g' <<<"${command% -o *}")
    expect "the assembler's report of $what" sh -c "cd '$folder' && $command -o '$tmp/kernel.o' >'$tmp/report' 2>&1"
    reported=$(grep -c 'bytes spill stores' "$tmp/report")
    expect "a line for each kernel" test "$reported" -gt 0
    # C7508: setmaxnreg ignored; C7510 to C7519: products serialised, or waits and fences put in.
    losses=$(grep -E 'C75[0-9][0-9]' "$tmp/report"
        grep -E 'bytes spill stores' "$tmp/report" | grep -v ' 0 bytes spill stores, 0 bytes spill loads')
    if "$compiler" --version | grep -q "$measured_with"; then
        expect "no losses: $losses" test -z "$losses"
    elif [ -n "$losses" ]; then
        printf '%s, other compiler than measured with (%s):\n%s\n' "$what" "$measured_with" "$losses"
    fi
done
finish
