# ===- layers.py - Which blocks repeat -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Finds a model's layers, the units of pipeline stages and of recomputation.

They are the calls of sibling modules that hold most of the operations: the members of
one list, or modules of one class, or one module that is called again and again. In a
model without such modules they are a sequence of operations that repeats."""

import collections

from .axes import leaves
from .graph import Graph, Op

# Below this share of all operations, what repeats are parts of the model, not it.
LEAST_SHARE = 0.3


def assign(graph: Graph) -> list[str]:
    """Writes the layer of each op, and returns the paths of the layers."""
    paths = _by_modules(graph.ops)
    if not paths:
        paths = _by_shapes(graph.ops)
    _close_gaps(graph.ops)
    return paths


def _family(parent: tuple, call: tuple):
    """What the siblings that may be layers have in common."""
    _, path, kind = call
    head, _, tail = path.rpartition(".")
    return parent, head if tail.isdigit() else kind


def _by_modules(ops: list[Op]) -> list[str]:
    members = collections.defaultdict(dict)
    weight = collections.Counter()
    for op in ops:
        for depth, call in enumerate(op.calls):
            family = _family(op.calls[:depth], call)
            members[family].setdefault(call[:2], len(members[family]))
            weight[family] += 1
    good = [
        family
        for family, calls in members.items()
        if weight[family] >= LEAST_SHARE * len(ops)
        and (len(calls) > 1 or next(iter(calls))[1].rpartition(".")[2].isdigit())
    ]
    if not good:
        return []
    chosen = max(good, key=lambda family: (weight[family], -len(family[0])))
    calls = members[chosen]
    depth = len(chosen[0])
    for op in ops:
        if len(op.calls) > depth and op.calls[:depth] == chosen[0]:
            op.layer = calls.get(op.calls[depth][:2])
    return [path for _, path in calls]


def _by_shapes(ops: list[Op]) -> list[str]:
    """The longest run of operations that repeat those a fixed number before."""
    signs = [_sign(op) for op in ops]
    best = (0, 0, 0)
    for period in range(4, len(ops) // 2 + 1):
        begin = 0
        for i in range(len(ops) - period + 1):
            if i == len(ops) - period or signs[i] != signs[i + period]:
                length = i - begin
                if length >= period and length + period > best[0]:
                    best = (length + period, begin, period)
                begin = i + 1
    covered, begin, period = best
    if covered < LEAST_SHARE * len(ops):
        return []
    count = covered // period
    for i in range(count * period):
        ops[begin + i].layer = i // period
    return [f"operations {begin + i * period}…" for i in range(count)]


def _sign(op: Op) -> tuple:
    kinds = tuple(x.op.kind for x in op.operands)
    return op.kind, tuple(a.extent for a in leaves(op.order)), kinds


def _close_gaps(ops: list[Op]) -> None:
    """Operations between two layers go with the first of them, and numbers ascend in
    the order of the program: stages are cut between numbers."""
    labelled = [i for i, op in enumerate(ops) if op.layer is not None]
    current = 0
    for op in ops[labelled[0] : labelled[-1] + 1] if labelled else ():
        current = max(current, op.layer or 0)
        op.layer = current
