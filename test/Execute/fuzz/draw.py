#===- draw.py - Draws models ------------------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Draws small models: a stream of tokens' embeddings through layers of known
blocks (attention, MLPs, norms), and beside it whatever the dialect allows, from
values of any earlier layer, which flows back into the stream. Numbers stay
about 1: what is summed up is scaled down, what grows is bent."""

import math
import random

from .graph import Graph, Parameter, f32
from .layout import Layout

SEQUENCES = (1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 11, 13, 13, 16, 17, 19, 31, 37)
HIDDEN = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 24)
MOST_ELEMENTS = 12000
MOST_DIMS = 5


def draw_sequence(rng: random.Random, layout: Layout) -> int:
    """Few of all sequences can be dealt out to tp in rounds: half of those that
    would be."""
    rounds = -(-layout.tensor_overlap // layout.micro)
    if layout.sequence_parallel and rounds > 1 and rng.random() < 0.5:
        return layout.tp * rounds * rng.choice((1, 1, 2))
    return rng.choice(SEQUENCES)


def draw_extents(rng: random.Random, layout: Layout) -> dict[str, int]:
    return {
        "b": layout.micro * layout.dp,
        "s": draw_sequence(rng, layout),
        "h": rng.choice(HIDDEN),
        "f": rng.choice(HIDDEN),
        "v": rng.choice((2, 3, 5, 7, 11, 16, 17, 23, 33)),
        # Key/value heads; heads of one; size of a head.
        "g": layout.tp * rng.choice((1, 1, 2)),
        "r": rng.choice((1, 1, 2, 3)),
        "d": rng.choice((2, 3, 4, 6, 7, 8)),
        "k": rng.choice((1, 2, 3, 5, 7)),
        "e": rng.choice((1, 2, 4, 6, 9)),
    }


class Drawing:
    """A graph that grows. `pool` has the values that ops may take; `exact` are
    those that every precision and every order of evaluation agrees on."""

    def __init__(self, rng: random.Random, layout: Layout):
        self.rng = rng
        self.graph = Graph(draw_extents(rng, layout))
        self.precise = layout.precision == "fp32"
        self.layer: int | None = None
        self.pool: list[int] = []
        self.exact: set[int] = set()

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def dims(self, value: int):
        return self.graph.dims[value]

    def add(self, kind, operands, dims=None, **attrs) -> int:
        """An op of the layer at hand, by default with its operand's dims."""
        dims = self.dims(operands[0]) if dims is None else dims
        return self.graph.add(kind, operands, dims, self.layer, **attrs)

    def scale(self, x: int, by: float) -> int:
        return x if by == 1 else self.add("scale", [x], by=f32(by))

    def new_parameter(self, dims, mean, std) -> str:
        name = f"p{len(self.graph.parameters)}"
        self.graph.parameters[name] = Parameter(
            name,
            tuple(dims),
            mean,
            std,
            decay=self.chance(0.5) if len(dims) < 2 else self.chance(0.9),
            zeros=0.3 if self.chance(0.15) else 0.0,
        )
        return name

    def parameter(self, dims, mean=0.0, std=0.5) -> int:
        """A read of a new parameter, or of one that has these dimensions."""
        known = [
            p.name
            for p in self.graph.parameters.values()
            if p.dims == tuple(dims) and p.mean == mean
        ]
        if known and self.chance(0.3):
            symbol = self.rng.choice(known)
        else:
            symbol = self.new_parameter(dims, mean, std)
        value = self.add("read", [], dims, symbol=symbol)
        self.exact.add(value)
        if self.chance(0.04):  # frozen, as far as this use goes
            return self.add("stop_gradient", [value])
        return value

    def order(self, dims) -> tuple[str, ...]:
        """Mostly as people write them, sometimes not."""
        canonical = sorted(dims, key="bsgrdhfekv".index)
        if self.chance(0.2):
            self.rng.shuffle(canonical)
        return tuple(canonical)

    def fits(self, dims) -> bool:
        return (
            len(dims) <= MOST_DIMS and self.graph.size(dims) <= MOST_ELEMENTS
        )

    def value(self, accepts=lambda dims: True) -> int | None:
        """Of the pool: later ones are more likely, those that nothing reads
        yet much more."""
        known = [x for x in self.pool if accepts(self.dims(x))]
        if not known:
            return None
        used = {x for op in self.graph.ops for x in op.operands}
        weights = [
            (index + 1) * (1 if x in used else 5)
            for index, x in enumerate(known)
        ]
        return self.rng.choices(known, weights)[0]

    #===-- Contractions ---------------------------------------------------===#

    def matmul(self, lhs, rhs, dims) -> int:
        joint = set(self.dims(lhs)) | set(self.dims(rhs))
        summed = self.graph.size(joint - set(dims))
        found = self.add("matmul", [lhs, rhs], dims)
        if summed < 10 and self.chance(0.4):
            return found
        return self.scale(found, 1 / math.sqrt(summed))

    def project(self, x: int, dims) -> int:
        """`x` times a parameter so that the result has `dims`: what x has and
        they have not is summed over."""
        source = self.dims(x)
        weights = [d for d in source if d not in dims]
        weights += [d for d in dims if d not in source]
        shared = [d for d in source if d in dims and d != "b"]
        weights += [d for d in shared if self.chance(0.1)]
        if not weights:
            return x
        return self.matmul(x, self.parameter(self.order(weights)), dims)

    def to_stream(self, x: int) -> int:
        """`x` with the dimensions of the stream."""
        wanted = ("b", "s", "h")
        dims = self.dims(x)
        missing = [d for d in wanted if d not in dims]
        if not missing and len(dims) > 3 and self.chance(0.5):
            x = self.reduce(x, [d for d in wanted if d in dims])
        elif any(d not in wanted for d in dims) or self.chance(0.2):
            kept = tuple(d for d in wanted if d in dims or d == "h")
            x = self.project(x, kept)
        dims = self.dims(x)
        if tuple(dims) != tuple(d for d in wanted if d in dims):
            # A product with ones is how dimensions change places.
            ones = self.add("fill", [], (dims[0],), by=1.0)
            ordered = tuple(d for d in wanted if d in dims)
            x = self.add("matmul", [x, ones], ordered)
        if len(self.dims(x)) < 3:
            x = self.add("broadcast", [x], wanted)
        return x

    def reduce(self, x: int, kept) -> int:
        kept = tuple(d for d in self.dims(x) if d in kept)
        gone = self.graph.size(set(self.dims(x)) - set(kept))
        found = self.add("reduce", [x], kept, of="sum")
        return self.scale(found, 1 / self.rng.choice((gone, math.sqrt(gone))))

    def maximum(self, x: int, kept) -> int:
        kept = tuple(d for d in self.dims(x) if d in kept)
        found = self.add("reduce", [x], kept, of="max")
        if x in self.exact:
            self.exact.add(found)
        return found

    #===-- Blocks of a layer ----------------------------------------------===#

    def norm(self, x: int) -> int:
        last = self.dims(x)[-1:]
        rows = self.dims(x)[:-1]
        epsilon = f32(1e-2)
        weight = self.parameter(last, 1.0, 0.2)
        if self.chance(0.5):
            results = self.graph.add_all(
                "rms_norm", [x, weight], [self.dims(x), rows], self.layer,
                epsilon=epsilon,
            )  # fmt: skip
        else:
            bias = self.parameter(last, 0.0, 0.2)
            results = self.graph.add_all(
                "layer_norm", [x, weight, bias], [self.dims(x), rows, rows],
                self.layer, epsilon=epsilon,
            )  # fmt: skip
        self.keep_statistic(results)
        return results[0]

    def keep_statistic(self, results) -> None:
        """Other results than the first have no gradient, and stay f32."""
        if self.precise and self.chance(0.1):
            value = self.rng.choice(results[1:])
            self.pool.append(self.add("stop_gradient", [value]))

    def activation(self, x: int) -> int:
        kind = self.rng.choice(("gelu", "gelu", "silu", "tanh", "sigmoid"))
        if kind == "gelu":
            return self.add(kind, [x], tanh=self.chance(0.5))
        return self.add(kind, [x])

    def mlp(self, x: int) -> int:
        wide = self.project(x, ("b", "s", "f"))
        if self.chance(0.3):
            bias = self.parameter(("f",), 0.0, 0.3)
            wide = self.add("add", [wide, self.spread(bias, wide)])
        bent = self.activation(wide)
        if self.chance(0.3):
            gate = self.project(x, ("b", "s", "f"))
            bent = self.add("mul", [bent, gate])
        self.pool += [wide, bent]
        return self.project(bent, ("b", "s", "h"))

    def spread(self, x: int, like: int) -> int:
        return self.add("broadcast", [x], self.dims(like))

    def attention(self, x: int) -> int:
        """Keys and values may come from another value than queries do."""
        stream = ("b", "s", "h")
        other = self.value(lambda d: d == stream) if self.chance(0.2) else x
        query = self.project(x, ("b", "s", "g", "r", "d"))
        key = self.project(other or x, ("b", "s", "g", "d"))
        value = key
        if not self.chance(0.15):
            value = self.project(other or x, ("b", "s", "g", "d"))
        if self.chance(0.2):
            query, key = self.norm(query), self.norm(key)
        if self.graph.extents["d"] % 2 == 0 and self.chance(0.5):
            theta = self.rng.choice((10.0, 10000.0))
            query = self.add("rope", [query], theta=theta)
            key = self.add("rope", [key], theta=theta)
        size = self.graph.extents["d"]
        window = self.rng.choice((None, None, 1, 2, 3, 5, 50))
        results = self.graph.add_all(
            "attention", [query, key, value],
            [self.dims(query), ("b", "g", "r", "s")], self.layer,
            scale=f32(size**-0.5), window=window,
        )  # fmt: skip
        self.pool += [query, value, results[0]]
        self.keep_statistic(results)
        return self.project(results[0], stream)

    def bound(self, x: int) -> int:
        return self.add("tanh", [x])
