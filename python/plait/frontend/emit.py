# ===- emit.py - Operations over axes as text -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Prints the nn dialect. Each factor of a dimension is a dimension now, so it is known
how tensors lie in memory; where an operand lies otherwise, or lacks dimensions along
which it repeats, an operation that arranges it is put before its user."""

import re

from ..errors import NotExpressible, Place
from .axes import Axis, leaves, pairs
from .graph import Graph, Op, Value

# For each dimension of what is wanted: the operand's axis, or None where it repeats,
# and the extent.
Wanted = list[tuple[Axis | None, int]]


def tensor_type(extents, element: str = "f32") -> str:
    return "tensor<" + "".join(f"{x}x" for x in extents) + element + ">"


def number(x: float) -> str:
    """As MLIR reads it: with a point."""
    text = repr(float(x))
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    if text in ("inf", "-inf", "nan"):
        raise NotExpressible(f"a constant of {text}")
    return text


def quoted(text: str) -> str:
    """A string as MLIR reads it."""
    parts = []
    for byte in text.encode():
        plain = 32 <= byte < 127 and byte not in b'"\\'
        parts.append(chr(byte) if plain else f"\\{byte:02X}")
    return '"' + "".join(parts) + '"'


def symbol(name: str) -> str:
    """A reference to a parameter; a name such as `0.weight` needs quotes."""
    return "@" + (
        name if re.fullmatch(r"[A-Za-z_][\w$.]*", name, re.ASCII) else quoted(name)
    )


class Emitter:
    """Writes the body of @loss."""

    def __init__(self, graph: Graph, symbols: dict, floats=()):
        self.graph = graph
        self.symbols = symbols
        self.lines: list[str] = []
        self.names: dict[Op, str] = {}
        self.places: dict[Place, int] = {}
        self.uses_keys = False
        self._taken = {"%tokens", "%targets", "%keys", *(f"%{x.name}" for x in floats)}
        self._fitted: dict = {}
        self._layer: int | None = None
        self._path = ""

    # Names and lines.

    def name(self, op: Op, word: str = "") -> str:
        """After the module, and unlike all others."""
        path = op.place.module.split(".")
        parts = [p for p in path if p and not p.isdigit()][-1:] or [op.kind]
        layer = [] if op.layer is None else [f"l{op.layer}"]
        stem = "_".join([*layer, *parts, *([word] if word else [])])
        stem = re.sub(r"\W", "_", stem, flags=re.ASCII)
        stem = f"v{stem}" if stem[0].isdigit() else stem
        name, count = f"%{stem}", 1
        while name in self._taken:
            count += 1
            name = f"%{stem}_{count}"
        self._taken.add(name)
        return name

    def line(self, op: Op, results: str, text: str, types: str) -> None:
        layer = "" if op.layer is None else f" {{nn.layer = {op.layer}}}"
        where = ""
        if op.place.file:
            where = f" loc(#p{self.places.setdefault(op.place, len(self.places))})"
        if op.place.module != self._path:
            self._path = op.place.module
            self.lines.append(f"    // {self._path or 'the loss'}")
        self.lines.append(f"    {results} = nn.{text}{layer} : {types}{where}")

    def locations(self) -> list[str]:
        """What the lines refer to, to be printed behind the module."""
        result = []
        for place, index in self.places.items():
            line = f"loc({quoted(place.file)}:{place.line}:1)"
            if place.module:
                line = f"loc({quoted(place.module)}({line[4:-1]}))"
            result.append(f"#p{index} = {line}")
        return result

    # Operands.

    def type_of(self, op: Op) -> str:
        element = "i32" if op.kind in ("tokens", "targets", "iota") else "f32"
        return tensor_type([a.extent for a in leaves(op.order)], element)

    def fit(self, user: Op, value: Value, wanted: Wanted) -> tuple[str, str]:
        """Name and type of `value` with the dimensions `wanted`. Sums over what is not
        wanted."""
        stored = leaves(value.op.order)
        have = [axis for axis, _ in wanted if axis in stored]
        # Within a layer alone: another may be on another rank.
        if user.layer != self._layer:
            self._layer = user.layer
            self._fitted.clear()
        placed = ((axis if axis in have else None, x) for axis, x in wanted)
        key = (value.op, *placed)
        if key in self._fitted:
            return self._fitted[key]
        name, order = self.names[value.op], stored
        element = "i32" if value.op.kind in ("tokens", "targets", "iota") else "f32"
        extra = [i for i, axis in enumerate(stored) if axis not in have]
        if extra:
            order = [axis for axis in stored if axis in have]
            name = self._sum(user, name, stored, extra, order)
        if order != have:
            name = self._transpose(user, name, order, have)
        result = tensor_type([x for _, x in wanted], element)
        if len(wanted) != len(have):
            dims = [i for i, (axis, _) in enumerate(wanted) if axis in have]
            given = tensor_type([a.extent for a in have], element)
            new = self.name(user, "repeated")
            self.line(user, new, f"broadcast {name} dims {dims}", f"{given} -> {result}")
            name = new
        self._fitted[key] = name, result
        return name, result

    def _sum(self, user: Op, name: str, stored, extra, order) -> str:
        new = self.name(user, "sum")
        types = (tensor_type([a.extent for a in x]) for x in (stored, order))
        self.line(user, new, f"reduce sum {name} dims {extra}", " -> ".join(types))
        return new

    def _transpose(self, user: Op, name: str, order, have) -> str:
        """nn has no transposition; a product with one is one."""
        letters = {axis: chr(ord("a") + i) for i, axis in enumerate(order)}
        one, new = self.name(user, "one"), self.name(user, "turned")
        self.line(user, one, "fill 1.0", "tensor<f32>")
        left, out = ("".join(letters[a] for a in x) for x in (order, have))
        types = [tensor_type([a.extent for a in x]) for x in (order, have)]
        text = f'matmul {name}, {one} "{left},->{out}"'
        self.line(user, new, text, f"({types[0]}, tensor<f32>) -> {types[1]}")
        return new

    def fit_like(self, op: Op, value: Value) -> tuple[str, str]:
        """An operand of an elementwise operation, with the dimensions of its result."""
        partner: dict[Axis, Axis] = {}
        for mine, theirs in zip(op.dims, value.dims):
            partner |= dict(pairs(mine, theirs))
        wanted = [(partner.get(a), a.extent) for a in leaves(op.order)]
        return self.fit(op, value, wanted)

    # The operations.

    def emit(self, op: Op) -> None:
        from . import emit_ops

        if op.kind in ("tokens", "targets"):
            self.names[op] = f"%{op.kind}"
            return
        if op.kind == "float":
            self.names[op] = f"%{op.attrs['given'].name}"
            return
        emit_ops.EMITTERS.get(op.kind, emit_ops.emit_unary)(self, op)


def live_ops(graph: Graph, roots: list[Op]) -> list[Op]:
    """Those that the roots need, in the order of the program."""
    needed, stack = set(), list(roots)
    while stack:
        op = stack.pop()
        if op not in needed:
            needed.add(op)
            stack += [x.op for x in op.operands]
    return [op for op in graph.ops if op in needed]
