# What check.sh and gate.sh share. shellcheck shell=bash

# must_build DIR: runs build_in; exit code 5 when it fails, because a build tool's own code could be taken for one of
# fabench's (1 = a wrong result). It runs in a subshell and not before `||`, where `set -e` has no effect on the lines
# of build_in.
must_build() {
    local code
    set +e
    (set -e; build_in "$1")
    code=$?
    set -e
    [ "$code" -eq 0 ] || { echo "${0##*/}: $1 does not build (code $code)" >&2; exit 5; }
}

# shown COMMAND...: runs it; under GitHub Actions its output and its messages are also the summary of the job, without
# the lines that make annotations.
shown() {
    [ -n "${GITHUB_STEP_SUMMARY:-}" ] || { "$@"; return; }
    local code=0 said
    said=$(mktemp)
    { echo "#### $1 $2"; echo '```'; } >>"$GITHUB_STEP_SUMMARY"
    "$@" 2>&1 | tee "$said" || code=$?
    grep -v -E '^::(error|warning|notice) ' "$said" >>"$GITHUB_STEP_SUMMARY" || true
    rm -f "$said"
    echo '```' >>"$GITHUB_STEP_SUMMARY"
    return $code
}
