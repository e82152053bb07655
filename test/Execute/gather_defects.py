#===- gather_defects.py - Defects in how steps begin ------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Kinds of defects, as those of defect_kinds.py, in the functions that gather copies
of parameters where a step begins."""

import re
from collections.abc import Iterator

from defect_kinds import actions
from defect_text import Change, Lines, each, kind, replaced


def in_gathers(lines: Lines, pattern: str) -> Iterator[tuple[int, re.Match]]:
    """In the functions that begin a step."""
    inside = False
    heads = re.compile(r"func\.func @(\w+?)_\d+\(")
    for at, line in enumerate(lines):
        if head := heads.search(line):
            inside = head[1] == "gather"
        if inside and (match := re.search(pattern, line)):
            yield at, match


@kind("late-gather", "parameters are gathered after the first forward pass")
def late_gather(lines: Lines) -> Iterator[Change]:
    for at, _ in actions(lines, r"gather "):
        # What the pass takes lives from the beginning, as if it were the first.
        new = [line.replace(" live [1, ", " live [0, ") for line in lines]
        new.insert(at + 1, new.pop(at))
        yield at, new


@kind("gather-other", "copies are made of another state than the values")
def gather_other(lines: Lines) -> Iterator[Change]:
    for at, match in in_gathers(lines, r"^( *%\S+ = nn\.read @\S+) +value "):
        yield replaced(lines, at, lines[at].replace(" value ", " moment1 ", 1))


@kind("gather-ranks", "copies are gathered from ranks that have others")
def gather_ranks(lines: Lines) -> Iterator[Change]:
    for at, _ in in_gathers(lines, r"dist\.all_gather "):
        yield replaced(lines, at, re.sub(r'"dp"', '"tp"', lines[at], count=1))


@kind("no-gather", "parameters are never gathered")
def no_gather(lines: Lines) -> Iterator[Change]:
    def earlier(match: re.Match) -> str:
        first, last = (max(0, int(number) - 1) for number in match.groups())
        return f" live [{first}, {last}]"

    for at, _ in actions(lines, r"gather "):
        begin = max(n for n in range(at) if "plan.program " in lines[n])
        own = [re.sub(r" live \[(\d+), (\d+)\]", earlier, line) for line in lines[begin:at]]
        yield at, lines[:begin] + own + lines[at + 1 :]
