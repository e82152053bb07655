#===- defect_text.py - How kinds of defects are declared --*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The table of all kinds, and what they do to the lines of a module."""

import re
from collections.abc import Callable, Iterator

Lines = list[str]
Change = tuple[int, Lines]  # the first changed line, the new text
Kind = Callable[[Lines], Iterator[Change]]
KINDS: dict[str, tuple[str, Kind]] = {}  # by name: what it is, the generator


def kind(name: str, what: str) -> Callable[[Kind], Kind]:
    def register(function: Kind) -> Kind:
        KINDS[name] = (what, function)
        return function

    return register


def replaced(lines: Lines, at: int, *new: str) -> Change:
    return at, lines[:at] + list(new) + lines[at + 1 :]


def each(lines: Lines, pattern: str) -> Iterator[tuple[int, re.Match]]:
    expression = re.compile(pattern)
    for at, line in enumerate(lines):
        if match := expression.search(line):
            yield at, match


def textual(name: str, what: str, pattern: str, replacement: str) -> None:
    """A kind that replaces what `pattern` matches on one line."""

    @kind(name, what)
    def generate(lines: Lines) -> Iterator[Change]:
        expression = re.compile(pattern)
        for at, match in each(lines, pattern):
            new = expression.sub(replacement, lines[at], count=1)
            if new != lines[at]:
                yield replaced(lines, at, new)
