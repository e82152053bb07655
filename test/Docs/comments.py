#===- comments.py - How comments on declarations begin ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""A comment on a declaration begins with a verb or a noun, and is a sentence.
One that begins as below is a fragment, whose subject a reader has to guess. What
is older than the rule is counted, by room, and may only become less: whoever
writes one more, or mends some and leaves the number, is told."""

import collections
import pathlib
import re

from harness import ROOT, Reporter, require

FRAGMENTS = "As At By For From In Of On To What Where With".split()
COMMENT = re.compile(r"\s*///\s*(.*)")

# How many there are. A room that is not here has none.
LEFT = {
    "lib/Conversion": 5,
    "lib/Dialect": 9,
    "lib/Driver": 19,
    "lib/Import": 2,
    "lib/Planner": 74,
    "lib/Proof": 102,
    "lib/Transforms": 49,
    "tools/plaitc": 2,
}


def find_fragments(text: str) -> list[tuple[int, str]]:
    """Line and words of each comment that begins so."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.match(line)
        if comment and not inside and comment[1].partition(" ")[0] in FRAGMENTS:
            found.append((number, comment[1]))
        inside = comment is not None
    return found


def room_of(path: pathlib.Path) -> str:
    """include/plait/Plan, lib/Plan, tools/plait-plan."""
    folders = path.relative_to(ROOT).parent.parts
    return "/".join(folders[: 3 if folders[0] == "include" else 2])


def count_rooms() -> dict[str, list[str]]:
    rooms = collections.defaultdict(list)
    for folder in ("include", "lib", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu"):
                continue
            for number, words in find_fragments(path.read_text()):
                place = f"{path.relative_to(ROOT)}:{number}: {words}"
                rooms[room_of(path)].append(place)
    return rooms


def check_room(found: list[str], most: int) -> str:
    require(
        len(found) <= most,
        f"{len(found)} comments begin with a fragment, {most} were left:\n"
        + "\n".join(found),
    )
    require(
        len(found) == most,
        f"{len(found)} are left and not {most}: say so in comments.py",
    )
    return f"{most} left" if most else ""


def check_finding() -> None:
    text = (
        "/// Of this.\nint a;\n  /// What that is\n  /// Of these.\nint b;\n"
        "/// Whatever.\n/// As before.\n// With one.\n///\n/// From here.\n"
    )
    found = [number for number, _ in find_fragments(text)]
    require(found == [1, 3], f"found in lines {found}")


def check(report: Reporter) -> None:
    report.case("comments", check_finding)
    rooms = count_rooms()
    for room in sorted(rooms.keys() | LEFT.keys()):
        report.case(
            f"comments/{room}",
            lambda r=room: check_room(rooms.get(r, []), LEFT.get(r, 0)),
        )
