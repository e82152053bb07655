# ===- graph.py - Operations over axes -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""What a module is turned into: operations on tensors whose dimensions are axes.
They are nearly those of the nn dialect, but for what only the final factors of
dimensions can tell (emit.py): how operands lie in memory."""

import dataclasses
import math
from collections.abc import Callable

from ..errors import NotExpressible, Place
from .axes import Axis, Dim, Size, copy, extent, flat, leaves, make, pairs, unify


# What a model is given that selects, and the operations that it selects in.
IDS = ("tokens", "targets")
_TAKES_IDS = ("embedding", "pick", "valid")


@dataclasses.dataclass(frozen=True)
class Box:
    """A part of a parameter of the module: a box of its tensor."""

    name: str
    shape: tuple[int, ...]
    begin: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.shape == self.extents

    def cut(self, dim: int, low: int, high: int) -> "Box":
        begin, extents = list(self.begin), list(self.extents)
        begin[dim] += low
        extents[dim] = high - low
        return dataclasses.replace(self, begin=tuple(begin), extents=tuple(extents))


@dataclasses.dataclass(eq=False)
class Op:
    """An operation. `dims` are the dimensions of its result as PyTorch has them, and
    `order` the axes that it has in memory: the others are repeated along.
    `calls` are the calls of modules that it is in, outermost first, each by a name of
    its own and the module's path and class."""

    kind: str
    operands: list["Value"]
    dims: list[Dim]
    order: Dim
    attrs: dict = dataclasses.field(default_factory=dict)
    place: Place = Place()
    calls: tuple[tuple[str, str, str], ...] = ()
    layer: int | None = None

    def value(self) -> "Value":
        return Value(self, self.dims)


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """What an op gives, seen with the dimensions `dims`."""

    op: Op
    dims: list[Dim]

    def seen(self, dims: list[Dim]) -> "Value":
        return Value(self.op, dims)

    @property
    def shape(self) -> list[int]:
        return [math.prod(axis.extent for axis in dim) for dim in self.dims]

    def has(self, dim: Dim) -> bool:
        """Whether memory has all of a dimension, instead of repeating it."""
        stored = set(leaves(self.op.order))
        return all(axis in stored for axis in leaves(dim))

    def stored(self, dim: Dim) -> Dim:
        """The factors of a dimension that memory has."""
        stored = set(leaves(self.op.order))
        return [axis for axis in leaves(dim) if axis in stored]


class Graph:
    """The operations of a model, in the order of the program. `place`, `calls` and
    `layer` are those of what is being added. `whole` are names of parameters that are
    read as they are, since their parts would overlap."""

    def __init__(self, batch: int, sequence: int, whole=()):
        self.ops: list[Op] = []
        self.whole = whole
        self.place = Place()
        self.calls: tuple = ()
        self.layer: int | None = None
        self.notes: list[str] = []
        self.batch = Size(batch, kept=True, whole="the batch")
        self.sequence = Size(sequence, kept=True, whole="the sequence")
        self._reads: dict[Box, list[Dim]] = {}
        # Gives a value with one dimension as a whole (slices.join).
        self.join: Callable[[Value, int], Value]

    def note(self, text: str) -> None:
        """Says what the user should know, once."""
        if text not in self.notes:
            self.notes.append(text)

    def add(self, kind, operands, dims, order=None, **attrs) -> Value:
        if kind not in _TAKES_IDS and any(x.op.kind in IDS for x in operands):
            raise NotExpressible("arithmetic with tokens or targets, which are no numbers")
        order = flat(dims) if order is None else order
        op = Op(kind, operands, dims, order, attrs, self.place, self.calls, self.layer)
        self.ops.append(op)
        return op.value()

    def input(self, kind: str) -> Value:
        return self.add(kind, [], [[Axis(self.batch)], [Axis(self.sequence)]])

    def float_input(self, given) -> Value:
        """What is given beside tokens (export.FloatInput)."""
        lead = [self.batch, self.sequence] if given.of_positions else [self.batch]
        dims = [*([Axis(x)] for x in lead), *map(make, given.shape)]
        return self.add("float", [], dims, given=given)

    def read(self, box: Box, trained: bool = True, dims=None) -> Value:
        """All reads of a box see it with the same factors: they are one parameter."""
        dims = dims or [make(x) for x in box.extents]
        known = self._reads.setdefault(box, dims)
        for one, other in zip(known, dims):
            unify(one, other)
        value = self.add("read", [], [copy(leaves(x)) for x in known], box=box)
        return value if trained else self.unary("stop_gradient", value)

    def unary(self, kind: str, x: Value, **attrs) -> Value:
        """The result has the axes of x."""
        return self.add(kind, [x], x.dims, [a for a in x.op.order], **attrs)

    def fill(self, amount: float) -> Value:
        """One number."""
        return self.add("fill", [], [], amount=amount)

    def reduce(self, kind: str, x: Value, dims: list[int], keep: bool) -> Value:
        """Over dimensions of PyTorch's."""
        gone = {axis for i in dims for axis in leaves(x.dims[i])}
        rest = [
            ([] if i in dims else dim)
            for i, dim in enumerate(x.dims)
            if keep or i not in dims
        ]
        order = [axis for axis in leaves(x.op.order) if axis not in gone]
        over = [x.dims[i] for i in dims]
        return self.add("reduce", [x], rest, order, reduction=kind, over=over)

    def embedding(self, table: Value, ids: Value) -> Value:
        dims = [*ids.dims, table.dims[1]]
        order = [*ids.op.order, *table.stored(table.dims[1])]
        return self.add("embedding", [table, ids], dims, order)

    def binary(self, kind: str, x: Value, y: Value) -> Value:
        """Dimensions of 1 are repeated. The result lies in memory as the operand
        with more axes does, if that has all. An axis that the other has elsewhere, as
        where a tensor meets its own columns, is one of its own."""
        rank = max(len(x.dims), len(y.dims))
        operands = [v.seen([[]] * (rank - len(v.dims)) + list(v.dims)) for v in (x, y)]
        for i in range(rank):
            if all(extent(v.dims[i]) != 1 for v in operands):
                operands[1] = self._met(*operands, i, i)
        big, small = sorted(operands, key=lambda v: -len(leaves(v.op.order)))
        dims, order = [], []
        for a, b in zip(big.dims, small.dims):
            taken, dim = big, a
            if extent(a) == 1 and leaves(b):
                taken, dim = (small, b) if extent(b) > 1 or not leaves(a) else (big, a)
            elif extent(b) != 1:
                unify(a, b)
                if small.has(b) and not big.has(a):
                    taken, dim = small, b
            stored = taken.stored(dim)
            if taken is small and set(leaves(dim)) & set(leaves(flat(big.dims))):
                own = dict(zip(leaves(dim), copy(leaves(dim))))
                dim, stored = list(own.values()), [own[axis] for axis in stored]
            dims.append(dim)
            order += stored
            if taken is big and extent(b) != 1:
                order += [p for p, q in pairs(a, b) if p not in order and small.stored([q])]
        if set(leaves(order)) == set(leaves(big.op.order)):
            order = big.op.order
        return self.add(kind, operands, dims, list(order))

    def _met(self, x: Value, y: Value, i: int, j: int) -> Value:
        """`y`, dimension j of which has the factors of dimension i of x: where there are
        none in common it is joined before."""
        try:
            unify(x.dims[i], y.dims[j])
        except NotExpressible:
            y = self.join(y, j)
            unify(x.dims[i], y.dims[j])
        return y

    def contract(self, x: Value, y: Value, spec: str) -> Value:
        """As einsum, with a letter a dimension. What comes from y alone gets axes of
        its own: both may be made of one tensor, and have the same."""
        left, right, out = spec.replace("->", ",").split(",")
        for i, letter in enumerate(left):
            if letter in right:
                y = self._met(x, y, i, right.index(letter))
        xs, ys = dict(zip(left, x.dims)), dict(zip(right, y.dims))
        dims, order = [], []
        for letter in out:
            if letter in xs and (x.has(xs[letter]) or letter not in ys):
                dims.append(xs[letter])
                order += x.stored(xs[letter])
                continue
            dims.append(copy(leaves(ys[letter])))
            stored = set(y.stored(ys[letter]))
            if letter in xs:
                stored |= {q for p, q in pairs(xs[letter], ys[letter]) if x.stored([p])}
            order += [
                new for new, old in zip(dims[-1], leaves(ys[letter])) if old in stored
            ]
        return self.add("contract", [x, y], dims, order, spec=spec)
