#!/usr/bin/env bash
# examples/peers/flash_attention_3: its build script takes the pinned wheels only and says what is missing; the plugin
# compiles without them, and the program says why it cannot run here. How it calls the library: tests/unit/peers.
. "$(dirname "$0")/lib.sh"

peer=$root/examples/peers/flash_attention_3
build() { # build ARGUMENT...: the script, with no registry in reach
    what="build.sh $*"
    code=0
    PIP_NO_INDEX=1 PIP_CONFIG_FILE=/dev/null "$peer/build.sh" "$@" >out 2>err </dev/null || code=$?
}
# says REGEX: the last line on stderr is a sentence like this.
says() { expect "a sentence like: $1" grep -qE "^flash_attention_3: .*$1" <(tail -n 1 err); }

build --help
expect_code 0
expect_stdout '--wheels DIR'
build --unknown
expect_code 2
says 'unknown option'
build --wheels
expect_code 2
says 'needs a folder'
build a b
expect_code 2
build --include "$tmp" made
expect_code 1
says 'no attention\.h'
build made
expect_code 1
says 'cannot download dew-flash-attn-cu13==0\.3\.6'
mkdir wheels
echo another >wheels/dew_flash_attn_cu13-0.3.6-py3-none-manylinux_2_28_x86_64.whl
build --wheels wheels made
expect_code 1
says 'another file than the plugin was made for: SHA-256 [0-9a-f]{64}, not 6a2a593f'
expect "no plugin" test ! -e made/fa3.so

# One compile of a few seconds, by the header alone.
cp "$root/kernels/attention.h" .
"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -I . -o fa3.so "$peer/plugin.c" \
    "$peer/library.c" -ldl 2>err || fail "the plugin does not compile"
run list --device cpu --impl-lib ./fa3.so
expect_code 0
expect_stdout '^fa3 +cuda FlashAttention-3 of the wheel dew-flash-attn-cu13 0\.3\.6'
expect_stdout 'not on this device'
run_small --impl-lib ./fa3.so --impl fa3,fused
expect_code 2
expect_sentence 'fa3: does not run on the CPU'
finish
