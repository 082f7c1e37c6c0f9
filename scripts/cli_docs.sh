#!/usr/bin/env bash
# Writes docs/cli.md, the manual of the command line, and docs/reference.md, presets, columns and terms, from the
# program's own tables: scripts/cli_docs.sh
#
# FABENCH is the program (build/release/fabench), which must be built from the sources as they are now.
set -euo pipefail
case ${1:-} in
--help | -h)
    sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p'
    exit 0
    ;;
?*)
    echo "cli_docs: $1: takes no arguments but --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."
page=$("${FABENCH:-build/release/fabench}" --help=markdown)
printf '%s\n' "$page" >docs/cli.md
page=$("${FABENCH:-build/release/fabench}" help reference)
printf '%s\n' "$page" >docs/reference.md
