#!/usr/bin/env python3
"""Compares the machine code of two CUDA builds, function by function.

    scripts/compare_sass.py OLD_BUILD NEW_BUILD [--only REGEX] [--parameters-may-move]

A build is a program, a library or an object file, or a folder: then every *.cu.o below it. The code is what
`cuobjdump -sass` and `cuobjdump -res-usage` print for each architecture in them: instructions with their encodings
(so the scheduling information in them, too), and registers, stack, shared and local memory (spills show in these, and
as instructions).

What may differ without a change of the code is left out: the position of a function in its file, the order of the
functions, line information, the file's name and hash in the names of an unnamed namespace, and the addresses of other
symbols (operands like c[0x4][...] and 32@lo(...), whose encodings the linker fills in). Functions are paired by name
(with c++filt without their parameters' types); those that are left are paired by their code, so that a function may
have a new name. What the host passes at a launch, dynamic shared memory above all, is not in the machine code.

--parameters-may-move: a kernel's parameters, operands like c[0x0][0x210], may lie at other offsets, as after a change of
the order of fields in its parameter struct. That each is the right one is then not seen here, but by tests of results.

Prints a line for every function that differs, is missing or was added, then `N kernels compared, M differ`.

Exit codes: 0 all are equal, 1 some differ, are missing or were added, 2 usage, or no cuobjdump, or it cannot read a
file. cuobjdump and nvdisasm come with the CUDA toolkit; $CUOBJDUMP names another one.
"""

import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

ARCH = re.compile(r"^arch = (\S+)")
FUNCTION = re.compile(r"^\s*Function : (\S+)")
RESOURCES_OF = re.compile(r"^ Function (\S+):$")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;?\s*/\* (0x[0-9a-f]+) \*/\s*$")
ENCODING = re.compile(r"^\s*/\* (0x[0-9a-f]+) \*/\s*$")
# The hash and the name of the file in the name of an unnamed namespace: _GLOBAL__N__<hash>_<length>_<file>_<hash>
UNNAMED = re.compile(r"\d+_GLOBAL__N__[0-9a-f]{8}_\d+_\w+?_[0-9a-f]{8}")
# Operands that the linker sets: an entry of the table of addresses, a part of an address, a function's address.
RELOCATED = re.compile(r"c\[0x4\]\[[^\]]*\]|(?:32|abs|fun)@(?:lo|hi)?\(?[\w$.]*\)?|`\([^)]*\)")

# A kernel's parameter.
PARAMETER = re.compile(r"c\[0x0\]\[[^\]]*\]")

# A namespace in a readable name.
QUALIFIER = re.compile(r"(?:\(anonymous namespace\)|\b[A-Za-z_]\w*)::")


class Failure(Exception):
    """An error, as a sentence for the user."""


# One function of one architecture: what is compared is `code` (a tuple of lines) and `resources`.
Function = collections.namedtuple("Function", "arch name code resources")


def plain_name(name):
    """A mangled name without the parts that depend on the source file's name and path."""
    return UNNAMED.sub("_GLOBAL_", name)


def plain_line(text, encodings, parameters_move):
    """An instruction as it is compared: without its address, and without an encoding that the linker fills in or that
    says where a parameter is."""
    if RELOCATED.search(text):
        return RELOCATED.sub("@", text)
    if parameters_move and PARAMETER.search(text):
        return PARAMETER.sub("c[0x0][]", re.sub(r"\s+", " ", text))
    return " ".join([re.sub(r"\s+", " ", text)] + encodings)


def parse_sass(lines, parameters_move):
    """[(arch, name, code)] of the output of cuobjdump -sass."""
    functions, arch, name, code, pending = [], "", None, [], None

    def end_instruction():
        nonlocal pending
        if pending:
            code.append(plain_line(*pending, parameters_move))
        pending = None

    def end_function():
        nonlocal name, code
        end_instruction()
        if name is not None:
            functions.append((arch, name, tuple(code)))
        name, code = None, []

    for line in lines:
        if match := INSTRUCTION.match(line):
            end_instruction()
            pending = (match.group(1), [match.group(2)])
        elif match := ENCODING.match(line):
            if pending:
                pending[1].append(match.group(1))
        elif match := FUNCTION.match(line):
            end_function()
            name = match.group(1)
        elif match := ARCH.match(line):
            end_function()
            arch = match.group(1)
    end_function()
    return functions


def parse_resources(lines):
    """{(arch, name): 'REG:43 STACK:0 ...'} of the output of cuobjdump -res-usage."""
    resources, arch, name = {}, "", None
    for line in lines:
        if match := ARCH.match(line):
            arch = match.group(1)
        elif match := RESOURCES_OF.match(line):
            name = match.group(1)
        elif name is not None and "REG:" in line:
            resources[arch, name] = line.strip()
            name = None
    return resources


def find_tool():
    tool = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump"
    if not shutil.which(tool):
        raise Failure("no cuobjdump: it comes with the CUDA toolkit; put it on PATH or name it in CUOBJDUMP")
    return tool


def dump(tool, option, path):
    done = subprocess.run([tool, option, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Failure(f"{tool} {option} {path}: {done.stderr.strip() or 'exit code %d' % done.returncode}")
    return done.stdout.splitlines()


def read_file(tool, path, parameters_move=False):
    resources = parse_resources(dump(tool, "-res-usage", path))
    return [Function(arch, name, code, resources.get((arch, name), "resources unknown"))
            for arch, name, code in parse_sass(dump(tool, "-sass", path), parameters_move)]


def files_of(build, only):
    if os.path.isfile(build):
        return [build]
    if not os.path.isdir(build):
        raise Failure(f"{build}: no such file or folder")
    found = [os.path.join(folder, name) for folder, _, names in os.walk(build) for name in names if name.endswith(".cu.o")]
    found = sorted(path for path in found if only.search(os.path.relpath(path, build)))
    if not found:
        raise Failure(f"{build}: no object file *.cu.o below it" + (" that --only takes" if only.pattern else ""))
    return found


def read_build(tool, build, only, parameters_move):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [function for functions in pool.map(lambda path: read_file(tool, path, parameters_move), files_of(build, only))
                for function in functions]


def readable_names(names):
    """{mangled: as the source writes it, without parameters}; without a c++filt the plain mangled names."""
    plain = {name: plain_name(name) for name in names}
    tool = shutil.which("c++filt")
    if not tool or not plain:
        return plain
    done = subprocess.run([tool, "-p"], input="\n".join(plain), stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    return dict(zip(plain, lines)) if len(lines) == len(plain) else plain


def take_pairs(old, new, key):
    """Takes from both lists, in place, what has the same key; returns the pairs."""
    waiting, pairs, unpaired = collections.defaultdict(collections.deque), [], []
    for function in new:
        waiting[key(function)].append(function)
    for function in old:
        if waiting[key(function)]:
            pairs.append((function, waiting[key(function)].popleft()))
        else:
            unpaired.append(function)
    old[:] = unpaired
    new[:] = [function for queue in waiting.values() for function in queue]
    return pairs


def short_name(readable):
    """A readable name without its namespaces."""
    return QUALIFIER.sub("", readable)


def pair_up(old, new, names):
    """Pairs of functions, then what is left of either side. Pairs have the same name, with or without namespaces; those
    whose code is the same, too, first. What has no namesake is paired by its code."""
    old, new = list(old), list(new)
    pairs = []
    for key in (lambda f: (names[f.name], f.code, f.resources), lambda f: names[f.name],
                lambda f: (short_name(names[f.name]), f.code, f.resources), lambda f: short_name(names[f.name]),
                lambda f: (f.code, f.resources)):
        pairs += take_pairs(old, new, lambda f, key=key: (f.arch, key(f)))
    return pairs, old, new


def difference(old, new):
    """A sentence on how two functions differ, or None."""
    said = []
    if old.resources != new.resources:
        before, after = old.resources.split(), new.resources.split()
        changed = [f"{a} -> {b}" for a, b in zip(before, after) if a != b] if len(before) == len(after) else [
            f"{old.resources} -> {new.resources}"]
        said.append(", ".join(changed))
    if old.code != new.code:
        first = next((i for i, (a, b) in enumerate(zip(old.code, new.code)) if a != b),
                     min(len(old.code), len(new.code)))
        said.append(f"{len(old.code)} -> {len(new.code)} instructions, the first that differs is number {first}")
    return "; ".join(said) or None


def report(old, new, out):
    """Writes the comparison of two lists of functions; returns whether they are equal."""
    names = readable_names({function.name for function in old + new})
    pairs, missing, added = pair_up(old, new, names)
    lines = [(a, f"differs: {text}") for a, b in pairs if (text := difference(a, b))]
    lines += [(function, "missing in the new build") for function in missing]
    lines += [(function, "only in the new build") for function in added]
    for function, text in sorted(lines, key=lambda line: (line[0].arch, names[line[0].name])):
        out.write(f"{function.arch} {names[function.name]}: {text}\n")
    out.write(f"{len(pairs)} kernels compared, {len(lines)} differ\n")
    return not lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD_BUILD")
    parser.add_argument("new", metavar="NEW_BUILD")
    parser.add_argument("--only", metavar="REGEX", default="", help="of a folder, only object files whose path matches")
    parser.add_argument("--parameters-may-move", action="store_true", help="offsets of kernel parameters may differ")
    arguments = parser.parse_args()
    try:
        only = re.compile(arguments.only)
        tool = find_tool()
        old, new = (read_build(tool, build, only, arguments.parameters_may_move) for build in (arguments.old, arguments.new))
        if not old:
            raise Failure(f"{arguments.old}: holds no CUDA machine code")
        return 0 if report(old, new, sys.stdout) else 1
    except re.error as error:
        print(f"compare_sass: --only {arguments.only}: {error}", file=sys.stderr)
    except (Failure, OSError) as error:
        print(f"compare_sass: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
