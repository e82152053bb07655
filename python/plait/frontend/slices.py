# ===- slices.py - Parts of tensors -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Slices and concatenations, which the nn dialect does not have.

A slice of a linear layer is a linear layer of a slice of its weight, which is a box of
the weight's tensor; so a slice goes through the operations until it meets parameters.
Where it cannot, what is picked is a product with a constant matrix of zeros and ones."""

import dataclasses

import torch

from .axes import Axis, Dim, Size, extent, leaves, make, reshape
from .graph import Box, Op, Value

# Operations of one operand and of two, element by element.
_UNARY = {"neg", "exp", "log", "tanh", "erf", "sqrt", "rsqrt", "sigmoid", "gelu", "silu"}
_UNARY |= {"scale", "shift", "stop_gradient"}
_BINARY = {"add", "sub", "mul", "div", "min", "greater", "equal"}


class _Stuck(Exception):
    """A slice that goes no further."""


def cut(walker, value: Value, dim: int, low: int, high: int) -> Value:
    """The elements from `low` up to `high` of a dimension of PyTorch's."""
    axes = leaves(value.dims[dim])
    if (low, high) == (0, extent(axes)):
        return value
    inner = extent(axes[1:])
    first, last = low // inner, (high - 1) // inner
    try:
        if low % inner == 0 and high % inner == 0:
            return _cut_value(walker.graph, value, axes[0], low // inner, high // inner)
        if first == last:
            outer = _cut_value(walker.graph, value, axes[0], first, first + 1)
            return cut(walker, outer, dim, low - first * inner, high - first * inner)
    except _Stuck:
        pass
    return pick(walker, value, dim, torch.arange(low, high))


def take_every(walker, value: Value, index: torch.Tensor) -> Value | None:
    """One of each `step` neighbours of the last dimension is a row of a matrix."""
    total, count = value.shape[-1], len(index)
    step = total // count
    first = int(index[0])
    if total % count or first >= step:
        return None
    if not torch.equal(index, first + step * torch.arange(count)):
        return None
    matrix = value.seen([*value.dims[:-1], *reshape(value.dims[-1:], [count, step])])
    row = cut(walker, matrix, len(matrix.dims) - 1, first, first + 1)
    return row.seen(row.dims[:-1])


def pick(walker, value: Value, dim: int, index: torch.Tensor) -> Value:
    """The elements `index` of a dimension."""
    walker.check_size(value.shape[dim] * len(index))
    matrix = torch.zeros(value.shape[dim], len(index))
    matrix[index, torch.arange(len(index))] = 1
    return multiply(walker, value, dim, matrix)


def multiply(walker, value: Value, dim: int, matrix: torch.Tensor) -> Value:
    """A dimension times a constant matrix."""
    return multiply_by(walker, value, dim, walker.constant(matrix))


def multiply_by(walker, value: Value, dim: int, matrix: Value) -> Value:
    letters = "abcdefghijklmnop"[: len(value.dims)]
    spec = f"{letters},{letters[dim]}z->{letters.replace(letters[dim], 'z')}"
    return walker.graph.contract(value, matrix, spec)


def join(walker, value: Value, dim: int) -> Value:
    """A dimension without its factors, by a product with an identity matrix."""
    walker.check_size(value.shape[dim] ** 2)
    one = walker.constant(torch.eye(value.shape[dim]), own=True)
    return multiply_by(walker, value, dim, one)


def concatenate(walker, values: list[Value], dim: int) -> Value:
    """Each put at its place among zeros, and added up. What is zero is there already."""
    total = sum(value.shape[dim] for value in values)
    begin, result = 0, None
    zero = [x.op.kind == "fill" and not x.op.attrs["amount"] for x in values]
    for value, is_zero in zip(values, zero):
        count = value.shape[dim]
        if is_zero and not all(zero):
            begin += count
            continue
        walker.check_size(count * total)
        matrix = torch.zeros(count, total)
        matrix[torch.arange(count), begin + torch.arange(count)] = 1
        placed = multiply(walker, value, dim, matrix)
        result = walker.graph.binary("add", result, placed) if result else placed
        begin += count
    return result


def _cut_value(graph, value: Value, leaf: Axis, low: int, high: int) -> Value:
    if leaf not in leaves(value.op.order):
        new, mapping = value.op, {x: x for x in leaves(value.op.order)}
        mapping |= {x: x for dim in value.dims for x in leaves(dim)}
        mapping[leaf] = Axis(Size(high - low)) if high - low > 1 else None
    else:
        new, mapping = _cut_op(graph, value.op, leaf, low, high)
    dims = [
        [mapping.get(x, x) for x in leaves(dim) if mapping.get(x, x) is not None]
        for dim in value.dims
    ]
    return Value(new, dims)


def _cut_op(graph, op: Op, leaf: Axis, low: int, high: int):
    """The op that gives a part of what `op` gives, and its axes by those of `op`."""
    where = next((i for i, dim in enumerate(op.dims) if leaf in leaves(dim)), None)
    if where is None:
        raise _Stuck
    at = leaves(op.dims[where]).index(leaf)
    place, calls = graph.place, graph.calls
    graph.place, graph.calls = op.place, op.calls
    try:
        new = _rebuild(graph, op, where, at, low, high)
    finally:
        graph.place, graph.calls = place, calls
    mapping: dict[Axis, Axis | None] = {}
    for i, (old, dim) in enumerate(zip(op.dims, new.dims)):
        olds, news = leaves(old), leaves(dim)
        if i == where and high - low == 1:
            mapping[olds.pop(at)] = None
        if len(olds) != len(news):
            raise _Stuck
        mapping |= dict(zip(olds, news))
    return new.op, mapping


def _rebuild(graph, op: Op, where: int, at: int, low: int, high: int) -> Value:
    if op.kind == "read":
        return _cut_read(graph, op, where, at, low, high)
    if op.kind in _UNARY:
        (x,) = op.operands
        return graph.unary(op.kind, _cut_dim(graph, x, where, at, low, high), **op.attrs)
    if op.kind in _BINARY:
        parts = [
            x if extent(x.dims[where]) == 1 else _cut_dim(graph, x, where, at, low, high)
            for x in op.operands
        ]
        return graph.binary(op.kind, *parts)
    if op.kind == "embedding" and where == len(op.dims) - 1:
        table, ids = op.operands
        return graph.embedding(_cut_dim(graph, table, 1, at, low, high), ids)
    if op.kind == "contract":
        return _cut_contraction(graph, op, where, at, low, high)
    raise _Stuck


def _cut_dim(graph, x: Value, where: int, at: int, low: int, high: int) -> Value:
    axes = leaves(x.dims[where])
    if at >= len(axes):
        raise _Stuck
    return _cut_value(graph, x, axes[at], low, high)


def _cut_contraction(graph, op: Op, where: int, at: int, low: int, high: int) -> Value:
    left, right, out = op.attrs["spec"].replace("->", ",").split(",")
    parts = []
    for x, letters in zip(op.operands, (left, right)):
        if out[where] in letters:
            x = _cut_dim(graph, x, letters.index(out[where]), at, low, high)
        parts.append(x)
    return graph.contract(*parts, op.attrs["spec"])


def _cut_read(graph, op: Op, where: int, at: int, low: int, high: int) -> Value:
    """A box of the tensor. Where the cut is not along the outermost factor of one of
    its dimensions, the tensor is seen with these factors as dimensions."""
    axes = leaves(op.dims[where])
    box: Box = op.attrs["box"]
    if box.name in graph.whole:
        raise _Stuck
    dims: list[Dim] = [[Axis(Size(x.extent)) for x in leaves(dim)] for dim in op.dims]
    new = make(high - low)
    if at == 0:
        inner = extent(axes[1:])
        box = box.cut(where, low * inner, high * inner)
        dims[where][:1] = new
        return graph.read(box, dims=dims)
    if box.shape[where] != box.extents[where]:
        raise _Stuck
    factors = [axis.extent for axis in axes]
    box = dataclasses.replace(
        box,
        shape=(*box.shape[:where], *factors, *box.shape[where + 1 :]),
        begin=(*box.begin[:where], *(0 for _ in factors), *box.begin[where + 1 :]),
        extents=(*box.extents[:where], *factors, *box.extents[where + 1 :]),
    ).cut(where + at, low, high)
    before, parts, after = dims[:where], dims[where], dims[where + 1 :]
    parts[at : at + 1] = new
    shown = [[x] for x in parts[:at]] + [new] + [[x] for x in parts[at + len(new) :]]
    value = graph.read(box, dims=[*before, *shown, *after])
    inside = value.dims[where : where + len(factors)]
    joined = [axis for dim in inside for axis in dim]
    seen = [*value.dims[:where], joined, *value.dims[where + len(factors) :]]
    return value.seen(seen)
