#!/usr/bin/env python3
#===- diagnostics.py - Which messages no test knows -------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Lists the messages of lib that no test mentions. A message is known where a
test has a piece of its text, of eight letters or more. That is less than that a
test provokes it, and cheap: nothing runs. Some cannot be provoked, as what the
system refuses for want of memory; the others are what is left to do, counted by
room, and may only become less.

  python3 test/Docs/diagnostics.py [ROOM]    lists them, with their places"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "Execute"))

from harness import Reporter, require  # noqa: E402

MAKERS = "fail|failure|emitError|emitOpError|emitWarning|warn|note|error"
CALL = re.compile(rf"\b(?:{MAKERS})\(")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
SUFFIXES = {".py", ".c", ".cpp", ".h", ".mlir", ".test", ".txt", ".json", ".csv"}
SHORTEST = 8

# How many are left. A room that is not here has none.
LEFT = {
    "lib/Analysis": 12,
    "lib/CAPI": 18,
    "lib/Codegen": 8,
    "lib/Configuration": 2,
    "lib/Conversion": 2,
    "lib/Dialect": 10,
    "lib/Driver": 8,
    "lib/Import": 12,
    "lib/Plan": 33,
    "lib/Planner": 70,
    "lib/Proof": 1,
    "lib/RunOptions": 1,
    "lib/Runtime": 110,
    "lib/Transforms": 6,
}


def normalize(text: str) -> str:
    """Blanks and escapes as one blank; options as on a command line."""
    return re.sub(r"`([a-z][a-z0-9-]*)`", r"--\1", re.sub(r"[\s\\]+", " ", text))


def join_literals(text: str) -> str:
    """Neighbours as one, as compilers read them."""
    return re.sub(r'"\s*\n\s*f?r?"', "", text)


def find_statement(text: str, start: int) -> str:
    """From `start` to where the call ends, or what is streamed into it."""
    depth, inside, i = 0, False, start
    while i < len(text):
        letter = text[i]
        if inside and letter == "\\":
            i += 1
        elif letter == '"':
            inside = not inside
        elif not inside and letter in "([{":
            depth += 1
        elif not inside and letter in ")]}":
            depth -= 1
            if depth < 0:
                break
        elif not inside and letter == ";" and depth <= 0:
            break
        i += 1
    return text[start:i]


def find_messages(text: str) -> list[tuple[int, list[str]]]:
    """Line and pieces of each message; those in pieces too short to look for are
    left out."""
    found = []
    for call in CALL.finditer(text):
        statement = join_literals(find_statement(text, call.start()))
        pieces = [
            normalize(piece.replace('\\"', '"')).strip()
            for piece in LITERAL.findall(statement)
        ]
        pieces = [piece for piece in pieces if len(piece) >= SHORTEST]
        if pieces:
            found.append((text.count("\n", 0, call.start()) + 1, pieces))
    return found


def read_tests() -> str:
    texts = [
        join_literals(path.read_text(errors="ignore"))
        for path in sorted((ROOT / "test").rglob("*"))
        if path.is_file() and path.suffix in SUFFIXES
    ]
    return normalize("\n".join(texts))


def find_unknown() -> tuple[dict[str, list[str]], int]:
    """Places and texts by room, and how many messages there are."""
    tests, count = read_tests(), 0
    rooms = collections.defaultdict(list)
    for path in sorted((ROOT / "lib").rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        name = path.relative_to(ROOT)
        text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE)
        for line, pieces in find_messages(text):
            count += 1
            if not any(piece in tests for piece in pieces):
                place = f"{name}:{line}: {max(pieces, key=len)}"
                rooms["/".join(name.parts[:2])].append(place)
    return rooms, count


def check_room(found: list[str], most: int) -> str:
    require(
        len(found) <= most,
        f"no test knows {len(found)} messages, {most} were left:\n"
        + "\n".join(found),
    )
    return f"{most} left" if most else ""


def check_finding() -> None:
    text = 'fail("is `micro-batch` ",\n n, " too "\n "large"); note("short");'
    found = find_messages(text)
    require(found == [(1, ["is --micro-batch", "too large"])], str(found))


def check(report: Reporter) -> None:
    report.case("diagnostics", check_finding)
    rooms, _ = find_unknown()
    for room in sorted(rooms.keys() | LEFT.keys()):
        report.case(
            f"diagnostics/{room}",
            lambda r=room: check_room(rooms.get(r, []), LEFT.get(r, 0)),
        )


def main() -> None:
    rooms, count = find_unknown()
    for room, lines in rooms.items():
        if len(sys.argv) < 2 or room == sys.argv[1]:
            print("\n".join(lines))
    unknown = {room: len(lines) for room, lines in sorted(rooms.items())}
    print(f"of {count} messages no test knows {sum(unknown.values())}: {unknown}")


if __name__ == "__main__":
    main()
