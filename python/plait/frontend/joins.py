# ===- joins.py - Dimensions that have to be one -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""nn.attention and nn.rope have the elements of a head in one dimension. Where a view
elsewhere has split it, as one of pairs that are turned, and all tensors that share the
size with it, products with an identity matrix join the factors, and split them again."""

import torch

from .axes import leaves, unify
from .graph import Op, Value


def join(walker) -> None:
    """Comes when all factors are known."""
    graph = walker.graph
    ops, graph.ops = graph.ops, []
    for op in ops:
        if op.kind in ("attention", "rope") and any(map(_is_split, op.operands)):
            graph.place, graph.calls, graph.layer = op.place, op.calls, op.layer
            _replace(walker, op)
        graph.ops.append(op)
    graph.layer = None


def _is_split(x: Value) -> bool:
    return len(leaves(x.dims[-1])) > 1


def _replace(walker, op: Op) -> None:
    """`op` becomes the product that splits the dimension again."""
    graph = walker.graph
    joined = [_multiply(walker, x, "y,yz->", "z") for x in op.operands]
    for x in joined[1:]:
        unify(joined[0].dims[-1], x.dims[-1])
    old, new = leaves(op.dims[-1]), joined[-1].dims[-1]
    lead = [axis for axis in leaves(op.order) if axis not in old]
    dims = [*op.dims[:-1], new]
    inner = graph.add(op.kind, joined, dims, [*lead, *new], **op.attrs)
    _multiply(walker, inner, "z,yz->", "y")
    last = graph.ops.pop()
    unify(last.operands[1].dims[0], old)
    op.kind, op.operands, op.attrs = last.kind, last.operands, last.attrs
    op.order = [*lead, *old]


def _multiply(walker, x: Value, inner: str, outer: str) -> Value:
    """With the identity, whose first dimension has the factors, and the second none."""
    letters = "abcdefghijk"[: len(x.dims) - 1]
    matrix = walker.constant(torch.eye(x.shape[-1]))
    return walker.graph.contract(x, matrix, f"{letters}{inner}{letters}{outer}")
