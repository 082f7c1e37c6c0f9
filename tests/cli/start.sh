#!/usr/bin/env bash
# The program starts with the C library alone: what a GPU path needs (cuBLAS, cuDNN, the driver) is opened when used.
. "$(dirname "$0")/lib.sh"

if command -v readelf >/dev/null; then
    readelf -d "$fabench" >dynamic
    sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' dynamic >needed
    expect "the C library among what is needed" grep -qx 'libc\.so\.6' needed
    # The last ones are of systems that bring no archives of them, and of sanitizer builds.
    tolerated='gomp|jansson|asan|ubsan|gcc_s|stdc\+\+'
    others=$(grep -vxE "ld-linux.*|lib(c|m|dl|rt|pthread|$tolerated)\.so\.[0-9]+" needed)
    expect "nothing else needed at the start, not: $others" test -z "$others"
    # An empty part would be the current folder, from where a library could be loaded by accident.
    expect "no current folder in the search path" sh -c "! grep -E 'R(UN)?PATH' dynamic | grep -qE '\[:|::|:\]|\[\]'"
fi

LD_DEBUG=files run --version
expect_code 0
expect "the loader's log" grep -q 'libc\.so' err
expect "no library of CUDA loaded" sh -c "! grep -iE 'libcu(da|blas|dnn|dart)|libnv' err"
finish
