# ===- norms.py - Norms found and written out -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""nn has norms over one dimension. One that is written in PyTorch's arithmetic is
found, and one over several factors of a dimension is written out."""

import math

from .axes import extent, leaves
from .graph import Graph, Op, Value


def find_rms_norms(graph: Graph) -> None:
    """weight · x / sqrt(mean(x²) + epsilon) becomes nn.rms_norm."""
    for op in graph.ops:
        if op.kind != "mul":
            continue
        for normal, weight in (op.operands, op.operands[::-1]):
            found = _find_normal(normal)
            if found and _is_weight(weight, found[0]):
                x, epsilon = found
                last = leaves(x.dims[-1])
                order = [a for a in leaves(x.op.order) if a not in last] + last
                if set(order) == set(leaves(op.order)):
                    op.kind, op.order = "rms_norm", order
                    op.operands = [x, weight.seen([weight.dims[-1]])]
                    op.attrs = {"eps": epsilon}
                break


def _is_weight(weight: Value, x: Value) -> bool:
    if not weight.dims or extent(weight.dims[-1]) != extent(x.dims[-1]):
        return False
    return set(leaves(weight.op.order)) <= set(leaves(weight.dims[-1]))


def _find_normal(value: Value) -> tuple[Value, float] | None:
    """x and epsilon of x · rsqrt(mean(x²) + epsilon), or of the quotient."""
    op = value.op
    if op.kind == "div":
        return _find_root(*op.operands, "sqrt")
    if op.kind != "mul":
        return None
    first, second = op.operands
    return _find_root(first, second, "rsqrt") or _find_root(second, first, "rsqrt")


def _find_root(x: Value, root: Value, kind: str) -> tuple[Value, float] | None:
    chain = []
    value = root
    for expected in (kind, "shift", "scale", "reduce", "mul"):
        if value.op.kind != expected:
            return None
        chain.append(value.op)
        value = value.op.operands[0]
    _, shift, scale, total, square = chain
    over = leaves([axis for dim in total.attrs["over"] for axis in dim])
    is_mean = math.isclose(scale.attrs["by"] * extent(over), 1.0, rel_tol=1e-6)
    same = all(v.op is x.op for v in square.operands) and over == leaves(x.dims[-1])
    if not is_mean or not same or total.attrs["reduction"] != "sum":
        return None
    return (x, shift.attrs["by"]) if shift.attrs["by"] > 0 else None


def write_out(graph: Graph) -> None:
    """What nn's norms cannot take: those over several factors."""
    ops, graph.ops = graph.ops, []
    for op in ops:
        if op.kind in ("rms_norm", "layer_norm") and len(leaves(op.dims[-1])) != 1:
            graph.place, graph.calls, graph.layer = op.place, op.calls, op.layer
            value = _written(graph, op)
            last = graph.ops.pop()
            op.kind, op.operands = last.kind, last.operands
            op.attrs, op.order = last.attrs, last.order
            assert [leaves(d) for d in value.dims] == [leaves(d) for d in op.dims]
        graph.ops.append(op)
    graph.layer = None


def _written(graph: Graph, op: Op) -> Value:
    x, *weights = op.operands
    if op.kind == "layer_norm":
        x = graph.binary("sub", x, _mean(graph, x))
    squares = graph.binary("mul", x, x)
    shifted = graph.unary("shift", _mean(graph, squares), by=op.attrs["eps"])
    result = graph.binary("mul", x, graph.unary("rsqrt", shifted))
    for kind, weight in zip(("mul", "add"), weights):
        result = graph.binary(kind, result, weight)
    return result


def _mean(graph: Graph, x: Value) -> Value:
    total = graph.reduce("sum", x, [len(x.dims) - 1], True)
    return graph.unary("scale", total, by=1.0 / extent(x.dims[-1]))
