#!/usr/bin/env bash
# Writes docs/cli.md, the manual of the command line, from the program's own tables: scripts/cli_docs.sh
#
# FABENCH is the program (build/release/fabench), which must be built from the sources as they are now.
set -euo pipefail
cd "$(dirname "$0")/.."
page=$("${FABENCH:-build/release/fabench}" --help=markdown)
printf '%s\n' "$page" >docs/cli.md
