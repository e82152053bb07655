#===- graph.py - A model as data, and as text -------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""A drawn model: a list of operations whose tensors have named dimensions.

A dimension is a letter, and `extents` has its size: `b` is the batch of @loss,
`s` the sequence. So sizes, batch and mesh can change without touching the
operations, which is what drawing and shrinking live on. What an operation
computes is in mirror.py, how it is written is here."""

import copy
import dataclasses
import struct

TOKENS, TARGETS, KEYS = 0, 1, 2  # the arguments of @loss, dropout's if used


def f32(number: float) -> float:
    """What is left of a number in an f32 attribute."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


@dataclasses.dataclass
class Parameter:
    name: str
    dims: tuple[str, ...]
    mean: float
    std: float
    decay: bool
    # The share of its elements that are exactly zero, for nn.is_zero.
    zeros: float = 0.0


@dataclasses.dataclass
class Op:
    kind: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attrs: dict
    layer: int | None


@dataclasses.dataclass
class Graph:
    extents: dict[str, int]
    vocabulary: str = "v"  # the dimension of ids
    parameters: dict[str, Parameter] = dataclasses.field(default_factory=dict)
    ops: list[Op] = dataclasses.field(default_factory=list)
    dims: dict[int, tuple[str, ...]] = dataclasses.field(
        default_factory=lambda: {
            TOKENS: ("b", "s"),
            TARGETS: ("b", "s"),
            KEYS: ("b",),
        }
    )
    ids: set[int] = dataclasses.field(
        default_factory=lambda: {TOKENS, TARGETS, KEYS}
    )
    loss: int = -1
    count: int = -1

    def copy(self) -> "Graph":
        return copy.deepcopy(self)

    def add(self, kind, operands, dims, layer=None, **attrs) -> int:
        """Appends an op; `dims` are its first result's. Returns that result."""
        return self.add_all(kind, operands, [dims], layer, **attrs)[0]

    def add_all(self, kind, operands, all_dims, layer=None, **attrs):
        first = max(self.dims) + 1
        results = tuple(range(first, first + len(all_dims)))
        self.dims.update(zip(results, map(tuple, all_dims)))
        if kind == "iota":
            self.ids.update(results)
        self.ops.append(Op(kind, tuple(operands), results, attrs, layer))
        return results

    def shape(self, dims) -> list[int]:
        return [self.extents[dim] for dim in dims]

    def size(self, dims) -> int:
        total = 1
        for extent in self.shape(dims):
            total *= extent
        return total

    @property
    def layers(self) -> list[int]:
        return sorted({op.layer for op in self.ops if op.layer is not None})

    def renumber_layers(self) -> None:
        """Layers become 0, 1, …; those that have lost their ops vanish."""
        number = {layer: index for index, layer in enumerate(self.layers)}
        for op in self.ops:
            op.layer = number.get(op.layer)

    def prune(self) -> None:
        """Drops what the loss does not need."""
        live = {self.loss, self.count}
        kept = []
        for op in reversed(self.ops):
            if live.intersection(op.results):
                live.update(op.operands)
                kept.append(op)
        self.ops = kept[::-1]
        read = {op.attrs["symbol"] for op in self.ops if op.kind == "read"}
        self.parameters = {
            name: parameter
            for name, parameter in self.parameters.items()
            if name in read
        }

    @property
    def drops(self) -> bool:
        return any(KEYS in op.operands for op in self.ops)

    def type(self, value: int) -> str:
        element = "i32" if value in self.ids else "f32"
        return f"tensor<{self.type_of_shape(self.dims[value])}{element}>"

    def type_of_shape(self, dims) -> str:
        return "".join(f"{extent}x" for extent in self.shape(dims))

    def types(self, values) -> str:
        return ", ".join(self.type(value) for value in values)


#===-----------------------------------------------------------------------===#
# Text
#===-----------------------------------------------------------------------===#


def number(value: float) -> str:
    return f"{value:.9e}"


def name(value: int) -> str:
    known = {TOKENS: "%tokens", TARGETS: "%targets", KEYS: "%keys"}
    return known.get(value, f"%t{value}")


def names(values) -> str:
    return ", ".join(map(name, values))


def functional(graph: Graph, op: Op) -> str:
    results = graph.types(op.results)
    if len(op.results) > 1:
        results = f"({results})"
    return f"({graph.types(op.operands)}) -> {results}"


def broadcast_dims(graph: Graph, op: Op) -> str:
    result = graph.dims[op.results[0]]
    where = [result.index(dim) for dim in graph.dims[op.operands[0]]]
    return f"dims {where}"


def reduce_dims(graph: Graph, op: Op) -> str:
    source = graph.dims[op.operands[0]]
    kept = graph.dims[op.results[0]]
    where = [index for index, dim in enumerate(source) if dim not in kept]
    return f"dims {where}"


def spec(graph: Graph, op: Op) -> str:
    lhs, rhs = ("".join(graph.dims[value]) for value in op.operands)
    return f"{lhs},{rhs}->{''.join(graph.dims[op.results[0]])}"


def window(attrs) -> str:
    return f" window {attrs['window']}" if attrs.get("window") else ""


# Per kind: what stands between the operands and the attributes, and the types.
# A kind that is not here is elementwise.
BODIES = {
    "read": lambda g, op: f"@{op.attrs['symbol']} value",
    "fill": lambda g, op: number(op.attrs["by"]),
    "iota": lambda g, op: f"along {op.attrs['along']}",
    "matmul": lambda g, op: f'"{spec(g, op)}"',
    "attention": lambda g, op: f"scale {number(op.attrs['scale'])}"
    + window(op.attrs),
    "layer_norm": lambda g, op: f"epsilon {number(op.attrs['epsilon'])}",
    "rms_norm": lambda g, op: f"epsilon {number(op.attrs['epsilon'])}",
    "rope": lambda g, op: f"theta {number(op.attrs['theta'])}",
    "broadcast": broadcast_dims,
    "reduce": reduce_dims,
    "valid": lambda g, op: f"ignore {op.attrs['ignore']}",
    "softmax_cross_entropy": lambda g, op: f"ignore {op.attrs['ignore']}",
    "scale": lambda g, op: f"by {number(op.attrs['by'])}",
    "shift": lambda g, op: f"by {number(op.attrs['by'])}",
    "gelu": lambda g, op: "tanh" if op.attrs.get("tanh") else "",
    "dropout": lambda g, op: f"probability {number(op.attrs['probability'])} "
    f"site {op.attrs['site']}",
}
FUNCTIONAL = {
    "matmul",
    "embedding",
    "attention",
    "layer_norm",
    "rms_norm",
    "softmax_cross_entropy",
}
ARROW = {"broadcast", "reduce", "pick", "valid"}


def type_text(graph: Graph, op: Op) -> str:
    if op.kind in FUNCTIONAL:
        return functional(graph, op)
    if op.kind == "equal":
        return f"{graph.type(op.operands[0])} -> {graph.types(op.results)}"
    if op.kind == "dropout":
        return graph.types(op.operands)
    if op.kind in ARROW:
        return f"{graph.types(op.operands)} -> {graph.types(op.results)}"
    return graph.type(op.results[0])


def line(graph: Graph, op: Op) -> str:
    words = [f"{names(op.results)} = nn.{op.kind}"]
    if op.kind == "reduce":
        words.append(op.attrs["of"])
    words += [names(op.operands)] if op.operands else []
    words.append(BODIES.get(op.kind, lambda g, op: "")(graph, op))
    if op.layer is not None:
        words.append(f"{{nn.layer = {op.layer} : i64}}")
    text = " ".join(word for word in words if word)
    return f"    {text} : {type_text(graph, op)}\n"


def parameter_line(graph: Graph, parameter: Parameter) -> str:
    init = f"mean = {number(parameter.mean)}, std = {number(parameter.std)}"
    decay = " decay" if parameter.decay else ""
    shape = graph.type_of_shape(parameter.dims)
    return (
        f"  nn.parameter @{parameter.name} : tensor<{shape}f32> "
        f"init<{init}>{decay}\n"
    )


def to_text(graph: Graph) -> str:
    layers = len(graph.layers) or 1
    vocabulary = graph.extents[graph.vocabulary]
    ids = graph.type(TOKENS)
    keys = f", %keys: {graph.type(KEYS)} {{nn.keys}}" if graph.drops else ""
    return "".join(
        [
            f"module attributes {{plait.model = {{layers = {layers} : i64, "
            f'model_type = "drawn", name = "drawn", vocab = {vocabulary} '
            ": i64}} {\n",
            *(parameter_line(graph, p) for p in graph.parameters.values()),
            f"  func.func @loss(%tokens: {ids}, %targets: {ids}{keys}) -> "
            "(tensor<f32>, tensor<f32>) {\n",
            *(line(graph, op) for op in graph.ops),
            f"    return {names((graph.loss, graph.count))} : "
            "tensor<f32>, tensor<f32>\n  }\n}\n",
        ]
    )
