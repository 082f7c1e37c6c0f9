#!/usr/bin/env python3
"""How much the files weigh that git has of this checkout: all of them, and the golden vectors; how long the pages are that
must stay short; whether a page names each of the results, and no page one that is not there.

    tests/rooms/weight.py CHECKOUT

Exit code 1 when a limit is exceeded, or a result is on no page, 77 where there is no git or no repository.
"""

import os
import re
import subprocess
import sys

# Bytes below a folder; all files: 9 MiB. Records, vectors and pages are what grows by itself.
LIMITS = {"": 9216 * 1024, "tests/golden/": 1_400_000, "results/": 1_250_000, "docs/": 350_000}
LINES = {"README.md": 160, "docs/changelog.md": 60, "docs/kernels/sm90_fwd.md": 250, "docs/kernels/sm90_bwd.md": 250,
         "docs/kernels/sm80.md": 250, "docs/kernels/sm80_decode.md": 120, "docs/kernels/sm90_decode.md": 120,
         "docs/kernels/sm90_masks.md": 120, "docs/kernels/sm90_fp8.md": 120}
RESULT = re.compile(r"\bresults/[a-z0-9][\w./-]*\.(?:jsonl|csv|svg|txt)\b")
HEAVIEST = 8  # files that are shown when a limit is exceeded


def files_of(checkout):
    """{path: bytes} of the files that git has, as they lie in the checkout."""
    done = subprocess.run(["git", "-C", checkout, "ls-files", "-z"], capture_output=True, text=True, check=True)
    paths = [path for path in done.stdout.split("\0") if path]
    return {path: os.lstat(os.path.join(checkout, path)).st_size for path in paths
            if os.path.lexists(os.path.join(checkout, path))}


def too_heavy(files):
    """Sentences."""
    for folder, limit in LIMITS.items():
        inside = {path: size for path, size in files.items() if path.startswith(folder)}
        total = sum(inside.values())
        print(f"{folder or 'all files'}: {total / 1024:.0f} KiB of {limit / 1024:.0f} KiB")
        if total > limit:
            heaviest = sorted(inside, key=inside.get, reverse=True)[:HEAVIEST]
            yield (f"{folder or 'the checkout'}: {total} bytes, above {limit}; the largest files: " +
                   ", ".join(f"{path} ({inside[path]})" for path in heaviest))


def too_long(checkout):
    for path, limit in LINES.items():
        with open(os.path.join(checkout, path), encoding="utf-8") as file:
            lines = len(file.readlines())
        print(f"{path}: {lines} lines of {limit}")
        if lines > limit:
            yield f"{path}: {lines} lines, above {limit}"


def named_nowhere(checkout, files):
    """Records and tables in results/ whose name is on no page."""
    text = ""
    for path in files:
        if path.endswith((".md", ".py", ".sh")) and path != "results/README.md":
            with open(os.path.join(checkout, path), encoding="utf-8") as file:
                text += file.read()
    for path in files:
        if path.startswith("results/") and not path.endswith("README.md") and os.path.basename(path) not in text:
            yield f"{path}: no page names it"


def absent(checkout, files):
    """Files of results/ that a page names and that are not there."""
    for path in files:
        if path.endswith(".md"):
            with open(os.path.join(checkout, path), encoding="utf-8") as file:
                for named in sorted(set(RESULT.findall(file.read()))):
                    if named not in files:
                        yield f"{path}: names {named}, which is not there"


def main():
    if len(sys.argv) != 2:
        print(__doc__, end="")
        return 2
    try:
        files = files_of(sys.argv[1])
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: {error}")
        return 77
    wrong = list(too_heavy(files)) + list(too_long(sys.argv[1])) + list(named_nowhere(sys.argv[1], files)) + list(
        absent(sys.argv[1], files))
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
