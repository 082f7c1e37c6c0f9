#!/usr/bin/env python3
"""The rooms of cmd/ and what lies below them, held against the includes.

    rooms.py ROOT            exit 0 when every include is allowed, else 1 and a line for each that is not
    rooms.py ROOT --self-test    the same after a forbidden include, a circle and a hidden header were added to a copy

cmd/CMakeLists.txt says for each room which others it uses. A file of a room may include headers of its own room and of the
rooms on that line; `contract` stands for kernels/attention.h, `kernels` and `reference` for the folders of that name. Beside
cmd/: kernels/ includes nothing of reference/ or cmd/, reference/ nothing of cmd/. In kernels/, common/ and device/ are below
family/ (what the kernels of all architectures share beyond dense attention), family/ is below the architectures' folders,
and no architecture's folder includes another one's. Below an architecture fwd/ and bwd/ do not include each other.
The lines must not form a circle, nor may the files of one room include each other's headers in a circle.
"""
import os
import re
import shutil
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
SOURCES = (".c", ".h", ".cu", ".cuh", ".cpp")
# Which folders of kernels/ a folder there may include beside its own; "" is kernels/ itself.
KERNEL_FOLDERS = {"common": {""}, "device": {"", "common"}, "family": {"", "common", "device"}}
ARCHITECTURE_USES = {"", "common", "device", "family"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def room_lines(root):
    """{room: [rooms it uses]} from cmd/CMakeLists.txt."""
    rooms = {}
    for match in re.finditer(r"^room\((\w+)([^)]*)\)", read(os.path.join(root, "cmd/CMakeLists.txt")), re.M):
        words = match.group(2).split()
        rooms[match.group(1)] = words[1:] if words and words[0] == "USES" else []
    return rooms


def sources(root, folder):
    for path, _, names in os.walk(os.path.join(root, folder)):
        for name in sorted(names):
            if name.endswith(SOURCES):
                yield os.path.relpath(os.path.join(path, name), root)


def find_circle(graph):
    """A list of names that form a circle, or None."""
    state, stack = {}, []

    def visit(name):
        state[name] = "open"
        stack.append(name)
        for below in sorted(graph.get(name, ())):
            if state.get(below) == "open":
                return stack[stack.index(below):] + [below]
            if below not in state:
                circle = visit(below)
                if circle:
                    return circle
        state[name] = "done"
        stack.pop()
        return None

    for name in sorted(graph):
        if name not in state:
            circle = visit(name)
            if circle:
                return circle
    return None


def room_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "cmd" and len(parts) == 3 else None


def is_allowed(path, header, rooms):
    """None, or why `path` may not include `header`."""
    top, target = path.split("/")[0], header.split("/")
    if header == "build_facts.h":
        return None if path == "cmd/base/program.c" else "only cmd/base/program.c includes what the build wrote down"
    if top == "kernels":
        if target[0] != "kernels":
            return "kernels/ includes nothing but kernels/"
        mine, theirs = path.split("/")[1:-1] or [""], target[1:-1] or [""]
        if mine == [""]:
            return None
        if theirs[0] != mine[0] and theirs[0] not in KERNEL_FOLDERS.get(mine[0], ARCHITECTURE_USES):
            return "no kernel includes another kernel's folder" if mine[0] not in KERNEL_FOLDERS else (
                f"kernels/{mine[0]}/ is below kernels/{theirs[0]}/")
        if len(mine) > 1 and len(theirs) > 1 and mine[0] == theirs[0] and mine[1] != theirs[1]:
            return "the directions of a kernel do not include each other"
        return None
    if top == "reference":
        return None if target[0] in ("kernels", "reference") else "reference/ includes nothing of cmd/"
    if path.startswith("cmd/") and path.count("/") == 1:  # main.c and commands.c may include everything
        return None
    room = room_of(path)
    if room not in rooms:
        return "the folder has no line in cmd/CMakeLists.txt"
    uses = rooms[room]
    if target[0] == "cmd":
        other = room_of(header)
        if other != room and other not in uses:
            return f"room {room} does not use room {other}"
    elif header == "kernels/attention.h":
        return None if room != "base" else "room base knows nothing of attention"
    elif target[0] in ("kernels", "reference") and target[0] not in uses:
        return f"room {room} does not use {target[0]}"
    return None


def module(path):
    return os.path.splitext(path)[0]


def problems(root):
    rooms, found = room_lines(root), []
    if not rooms:
        return ["cmd/CMakeLists.txt names no room"]
    for room, uses in rooms.items():
        found += [f"cmd/CMakeLists.txt: room {room} uses {name}, which is no room"
                  for name in uses if name not in rooms and name not in ("contract", "kernels", "reference")]
    circle = find_circle(rooms)
    if circle:
        found.append("cmd/CMakeLists.txt: a circle of rooms: " + " -> ".join(circle))
    graph, used = {}, {}
    for folder in ("cmd", "kernels", "reference"):
        for path in sources(root, folder):
            for header in INCLUDE.findall(read(os.path.join(root, path))):
                why = is_allowed(path, header, rooms)
                if why:
                    found.append(f"{path}: includes {header}: {why}")
                if header != "build_facts.h" and not os.path.exists(os.path.join(root, header)):
                    found.append(f"{path}: includes {header}, which is not there")
                if module(header) != module(path):
                    graph.setdefault(module(path), set()).add(module(header))
                if room_of(path) and header.split("/")[0] in ("cmd", "reference") and room_of(header) != room_of(path):
                    used.setdefault(room_of(path), set()).add(room_of(header) or header.split("/")[0])
    circle = find_circle(graph)
    if circle:
        found.append("a circle of modules: " + " -> ".join(circle))
    for room, uses in rooms.items():
        for name in uses:
            if name in rooms and name not in used.get(room, ()):
                found.append(f"cmd/CMakeLists.txt: room {room} says that it uses {name}, and does not")
    return found


def add_line(root, path, line):
    with open(os.path.join(root, path), "a", encoding="utf-8") as file:
        file.write(line + "\n")


def self_test(root):
    """Each of these must be found; the tree itself must be clean."""
    attempts = [
        ("cmd/base/text.c", '#include "cmd/problem/problem.h"', "room base does not use room problem"),
        ("cmd/record/record.c", '#include "cmd/device/backend.h"', "room record does not use room device"),
        ("cmd/base/text.h", '#include "kernels/attention.h"', "knows nothing of attention"),
        ("kernels/sm80/fused_sm80.c", '#include "kernels/sm90/fused_sm90.h"', "another kernel's folder"),
        ("kernels/sm90/fwd/params.h", '#include "kernels/sm90/bwd/params.h"', "do not include each other"),
        ("kernels/family/lengths.cuh", '#include "kernels/sm80/family.h"', "kernels/family/ is below kernels/sm80/"),
        ("kernels/device/memory.cuh", '#include "kernels/family/lengths.h"', "kernels/device/ is below kernels/family/"),
        ("reference/oracle.c", '#include "cmd/base/log.h"', "reference/ includes nothing of cmd/"),
        ("cmd/base/text.h", '#include "cmd/base/log.h"', None),
        ("cmd/CMakeLists.txt", "room(extra USES report)\nroom(report USES base options record chart extra)", "circle of rooms"),
        ("cmd/options/options_table.h", '#include "cmd/options/no_such.h"', "which is not there"),
    ]
    failed = [f"the tree itself: {line}" for line in problems(root)]
    for path, line, expected in attempts:
        with tempfile.TemporaryDirectory() as copy:
            for folder in ("cmd", "kernels", "reference"):
                shutil.copytree(os.path.join(root, folder), os.path.join(copy, folder))
            add_line(copy, path, line)
            found = problems(copy)
            if expected and not any(expected in one for one in found):
                failed.append(f"{path} + {line!r}: not found ({found})")
            if not expected and found:
                failed.append(f"{path} + {line!r}: is allowed, but: {found}")
    with tempfile.TemporaryDirectory() as copy:  # two headers of one room that include each other
        for folder in ("cmd", "kernels", "reference"):
            shutil.copytree(os.path.join(root, folder), os.path.join(copy, folder))
        add_line(copy, "cmd/base/text.h", '#include "cmd/base/log.h"')
        add_line(copy, "cmd/base/log.h", '#include "cmd/base/text.h"')
        if not any("circle of modules" in one for one in problems(copy)):
            failed.append("two headers that include each other: not found")
    return failed


def main():
    root = sys.argv[1]
    found = self_test(root) if "--self-test" in sys.argv[2:] else problems(root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
