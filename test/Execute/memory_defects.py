#===- memory_defects.py - Defects of who uses which memory -*- Python -*--===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Kinds of defects (defect_kinds.py) in which every value is right, and lies where
somebody else's is: numbers of the trainer, tables, and what calls are given besides
what their functions take."""

import re
from collections.abc import Iterator

from defect_text import Change, Lines, each, kind, replaced, textual

textual("scalar-of-slot", "a number of the trainer is read where the step computes", r'(nn\.step_scalar .*#plan\.place<)@scalars, \d+', r'\1slot 0, 0')


@kind("other-scalar", "a number of the trainer is read where another one lies")
def other_scalar(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, r'nn\.step_scalar .*@scalars, (\d+)'):
        other = 8 if match[1] != "8" else 4
        yield replaced(lines, at, re.sub(r'(@scalars, )\d+', rf"\g<1>{other}", lines[at]))


@kind("swap-metrics", "two numbers are told where the other one is looked for")
def swap_metrics(lines: Lines) -> Iterator[Change]:
    found = [(at, match[1]) for at, match in each(lines, r'<@metrics, (\d+)>')]
    for (one, first), (other, second) in zip(found, found[1:]):
        if first == second or one == other:
            continue
        new = list(lines)
        for at, number in ((one, second), (other, first)):
            new[at] = re.sub(r'(<@metrics, )\d+', rf"\g<1>{number}", lines[at])
        yield one, new


@kind("table-elsewhere", "a table lies where a parameter does")
def table_elsewhere(lines: Lines) -> Iterator[Change]:
    for at, _ in each(lines, r' = nn\.rope_table .*plan\.places'):
        for before in range(at, 0, -1):
            if place := re.search(r'nn\.read .*plan\.places = \[(#plan\.place<@"[^"]* value", \d+>)\]', lines[before]):
                new = re.sub(r'(plan\.places = )\[.*>\]\}', lambda own: f"{own[1]}[{place[1]}]}}", lines[at])
                yield replaced(lines, at, new)
                break


textual("short-standing", "a buffer of a parameter, its state or a table is another's at first", r"(plan\.buffer .* (?:parameters|optimizer|gradients|constants)(?: host)? at \d+ bytes \d+ live) \[0, ", r"\1 [1, ")

BUFFER = re.compile(r'plan\.buffer (@"[^"]*") +(\w+) at \d+ bytes (\d+) live \[(\d+), (\d+)\]')


def computing(lines: Lines, categories: str) -> Iterator[tuple[int, str, str]]:
    """Calls, their workspace, and a buffer of one of the categories that is large
    enough, lives then and is nothing that the call is given."""
    buffers: dict[str, tuple] = {}
    action = 0
    for at, line in enumerate(lines):
        if "plan.program" in line:
            buffers, action = {}, 0
        elif match := BUFFER.search(line):
            buffers[match[1]] = (match[2], *map(int, match.groups()[2:]))
        elif "plan.action" in line:
            given = re.findall(r'@"[^"]*"', line)
            size = buffers[given[-1]][1] if given and "workspace" in given[-1] else 0
            for name, (category, room, first, last) in buffers.items() if size else ():
                if (category in categories and name not in given and room >= size
                        and first <= action <= last):
                    yield at, given[-1], name
            action += 1


def work_on(name: str, what: str, categories: str) -> None:
    @kind(name, what)
    def generate(lines: Lines) -> Iterator[Change]:
        for at, own, other in computing(lines, categories):
            yield replaced(lines, at, lines[at].replace(own, other))


work_on("work-on-kept", "a call computes where something lies that another one needs", "activations")
work_on("work-on-sent", "a call computes where something lies that is being sent", "transfers")
work_on("work-on-state", "a call computes where a parameter or its state lies", "parameters gradients optimizer")
textual("wait-elsewhere", "what is sent is waited for in another buffer", r'(plan\.action +wait_send .*)@"activation 0 after', r'\1@"residuals 0 of')
