#===- models.py - Whole models out of draw.py's pieces ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Side values of every kind of op that a model may hold, layers, head, loss."""

import random

from .draw import Drawing
from .graph import KEYS, TARGETS, TOKENS, Graph, f32
from .layout import Layout

STREAM = ("b", "s", "h")


class Model(Drawing):
    #===-- Side values: one step away from the pool -----------------------===#

    def side_project(self):
        x = self.value()
        dims = [d for d in self.dims(x) if d == "b" or self.chance(0.6)]
        dims += [d for d in "hfeks" if d not in dims and self.chance(0.2)]
        dims = self.order(d for d in dims if d != "b" or "b" in self.dims(x))
        weights = set(self.dims(x)) ^ set(dims)
        if dims and self.fits(dims) and self.graph.size(weights) <= 2000:
            return self.project(x, dims)
        return None

    def side_product(self):
        """Two values of the pool, over any of the dimensions they share."""
        x = self.value()
        y = self.value(lambda dims: set(dims) & set(self.dims(x)))
        shared = set(self.dims(x)) & set(self.dims(y))
        summed = {d for d in sorted(shared) if self.chance(0.5)}
        joint = set(self.dims(x)) | set(self.dims(y))
        dims = self.order(joint - summed)
        if not dims or not self.fits(dims) or self.graph.size(joint) > 200000:
            return None
        return self.bound(self.matmul(x, y, dims))

    def side_reduce(self):
        x = self.value(lambda dims: len(dims) > 1)
        if x is None:
            return None
        kept = [d for d in self.dims(x) if self.chance(0.6)]
        if len(kept) in (0, len(self.dims(x))):
            return None
        takes_max = x in self.exact or (self.precise and self.chance(0.4))
        return self.maximum(x, kept) if takes_max else self.reduce(x, kept)

    def side_broadcast(self):
        x = self.value()
        new = [d for d in "shfek" if d not in self.dims(x) and self.chance(0.3)]
        dims = list(self.dims(x))
        for dim in new:
            dims.insert(self.rng.randint(0, len(dims)), dim)
        if not new or not self.fits(dims):
            return None
        found = self.add("broadcast", [x], tuple(dims))
        if x in self.exact:
            self.exact.add(found)
        return found

    def side_unary(self):
        x = self.value()
        kind = self.rng.choice(
            ("neg", "tanh", "erf", "sigmoid", "exp", "log", "sqrt", "rsqrt",
             "scale", "shift", "gelu", "silu", "stop_gradient")
        )  # fmt: skip
        if kind in ("scale", "shift"):
            return self.add(kind, [x], by=f32(self.rng.uniform(-1.5, 1.5)))
        if kind == "exp":
            x = self.bound(x)
        if kind in ("log", "sqrt", "rsqrt"):
            x = self.add("shift", [self.add("mul", [x, x])], by=0.5)
        if kind == "gelu":
            return self.activation(x)
        return self.add(kind, [x])

    def side_binary(self):
        x = self.value()
        y = self.value(lambda dims: dims == self.dims(x))
        kind = self.rng.choice(("add", "sub", "mul", "div", "min"))
        if kind == "min" and not self.precise and {x, y} - self.exact:
            kind = "add"
        if kind == "div":
            y = self.add("shift", [self.add("mul", [y, y])], by=1.0)
        found = self.add(kind, [x, y])
        return self.bound(found) if kind == "mul" else found

    def side_norm(self):
        x = self.value(lambda dims: len(dims) > 1)
        return None if x is None else self.norm(x)

    def side_rope(self):
        def turns(dims):
            return len(dims) > 2 and self.graph.extents[dims[-1]] % 2 == 0

        x = self.value(turns)
        return None if x is None else self.add("rope", [x], theta=100.0)

    def ids(self):
        """Ids, and how many rows of a table they may ask for."""
        extents = self.graph.extents
        kind = self.rng.choice((TOKENS, TOKENS, TARGETS, "iota"))
        if kind != "iota":
            return kind, extents["v"]
        dims = self.rng.choice((("b", "s"), ("s",), ("s",), ("h",)))
        along = self.rng.randrange(len(dims))
        value = self.graph.add("iota", [], dims, self.layer, along=along)
        return value, extents[dims[along]]

    def side_embedding(self):
        ids, count = self.ids()
        fits = [d for d in "vvsk" if self.graph.extents[d] >= count]
        if not fits:
            return None
        rows = self.rng.choice(fits)
        free = [d for d in "hfe" if d not in self.dims(ids) and d != rows]
        column = self.rng.choice(free)
        table = self.parameter((rows, column))
        found = self.add("embedding", [table, ids], (*self.dims(ids), column))
        self.exact.add(found)
        return found

    def side_pick(self):
        ids = self.rng.choice((TOKENS, TARGETS))
        extents = self.graph.extents
        x = self.value(
            lambda dims: len(dims) == 3
            and dims[:2] == ("b", "s")
            and extents[dims[2]] >= extents["v"]
        )
        if x is None:
            return None
        found = self.add("pick", [x, ids])
        if x in self.exact:
            self.exact.add(found)
        return found

    def side_valid(self):
        ids = self.rng.choice((TOKENS, TARGETS))
        ignored = self.rng.choice((0, 1, -100))
        found = self.add("valid", [ids], ("b", "s"), ignore=ignored)
        self.exact.add(found)
        return found

    def side_is_zero(self):
        """Of what is zero whoever computes it."""
        known = [x for x in self.pool if x in self.exact]
        if not known:
            return None
        found = self.add("is_zero", [self.rng.choice(known)])
        self.exact.add(found)
        return found

    def side_equal(self):
        """Where a maximum is, mostly; of what everybody agrees on."""
        known = [x for x in self.pool if x in self.exact and len(self.dims(x)) > 1]
        if not known:
            return None
        x = self.rng.choice(known)
        kept = [d for d in self.dims(x)[:-1] if self.chance(0.7)]
        if not kept:
            return None
        top = self.spread(self.maximum(x, kept), x)
        found = self.add("equal", [x, top])
        self.exact.add(found)
        return found

    def side_number(self):
        """One number of all, which all elements of another value take."""
        x = self.value()
        total = self.reduce(x, ())
        return self.spread(self.bound(total), self.value())

    def side_dropout(self):
        x = self.value(lambda dims: dims[0] == "b")
        if x is None:
            return None
        site = sum(op.kind == "dropout" for op in self.graph.ops)
        probability = self.rng.choice((0.1, 0.25, 0.5))
        return self.add("dropout", [x, KEYS], probability=probability, site=site)

    def side_softmax(self):
        """By hand, over the last dimension."""
        x = self.value(lambda dims: len(dims) > 1)
        if x is None:
            return None
        rows = self.dims(x)[:-1]
        top = self.add("reduce", [x], rows, of="max")
        if self.chance(0.5):
            top = self.add("stop_gradient", [top])
        e = self.add("exp", [self.add("sub", [x, self.spread(top, x)])])
        total = self.add("reduce", [e], rows, of="sum")
        return self.add("div", [e, self.spread(total, x)])

    def side_parameter(self):
        dims = [d for d in "shfek" if self.chance(0.35)] or ["h"]
        return self.parameter(self.order(dims)) if self.fits(dims) else None

    SIDES = (
        (5, side_project),
        (5, side_product),
        (5, side_reduce),
        (2, side_broadcast),
        (5, side_unary),
        (4, side_binary),
        (2, side_norm),
        (1, side_rope),
        (2, side_embedding),
        (1, side_pick),
        (1, side_valid),
        (1, side_is_zero),
        (1, side_equal),
        (1, side_number),
        (1, side_dropout),
        (1, side_softmax),
        (2, side_parameter),
    )

    def side(self) -> None:
        weights, kinds = zip(*self.SIDES)
        found = self.rng.choices(kinds, weights)[0](self)
        if found is not None:
            self.pool.append(found)

    #===-- The whole ------------------------------------------------------===#

    def merge(self, x: int, side: int) -> int:
        """The stream and a side value, in one of the ways they can meet."""
        other = self.to_stream(side)
        kind = self.rng.choice(("add", "add", "add", "sub", "mul"))
        if kind == "mul":
            other = self.add("shift", [self.bound(other)], by=1.0)
        return self.add(kind, [x, other])

    def run_layer(self, x: int, layer: int) -> int:
        self.layer = layer
        for _ in range(self.rng.choice((0, 1, 2, 3, 4))):
            self.side()
        block = self.rng.choice((self.mlp, self.attention, None, None))
        if block:
            normed = self.norm(x) if self.chance(0.4) else x
            found = block(normed)
            x = found if self.chance(0.1) else self.add("add", [x, found])
            self.pool.append(x)
        for _ in range(self.rng.choice((0, 1, 2))):
            self.side()
        for _ in range(self.rng.choice((0, 1, 1, 2, 2))):
            x = self.merge(x, self.value())
        # Something must be left to cut off.
        if not any(op.layer == layer for op in self.graph.ops):
            x = self.bound(x)
        self.pool.append(x)
        self.layer = None if self.chance(0.1) else layer
        return x

    def first(self) -> int:
        self.table = self.parameter(("v", "h"))
        x = self.add("embedding", [self.table, TOKENS], STREAM)
        self.exact.add(x)
        self.pool.append(x)
        for _ in range(self.rng.choice((0, 0, 1))):
            self.side()
        return x

    def head(self, x: int) -> None:
        self.layer = None
        if self.chance(0.5):
            x = self.norm(x)
        if self.chance(0.5):
            table = self.table
        else:
            table = self.parameter(self.rng.choice((("v", "h"), ("h", "v"))))
        logits = self.matmul(x, table, ("b", "s", "v"))
        ignore = self.rng.choice((-100, -100, 0, 1))
        results = self.graph.add_all(
            "softmax_cross_entropy", [logits, TARGETS], [(), ()], None,
            ignore=ignore,
        )  # fmt: skip
        self.graph.loss, self.graph.count = results
        if self.precise and self.chance(0.2):
            self.add_auxiliary_loss()

    def add_auxiliary_loss(self) -> None:
        """Something of the batch, so that more sequences are more loss."""
        x = self.value(lambda dims: "b" in dims)
        square = self.add("mul", [x, x])
        total = self.add("reduce", [square], (), of="sum")
        share = self.scale(total, 1 / self.graph.size(self.dims(x)))
        self.graph.loss = self.add("add", [self.graph.loss, share])


def draw_graph(rng: random.Random, layout: Layout) -> Graph:
    """With as many layers as there are stages, at least."""
    while True:
        model = Model(rng, layout)
        x = model.first()
        for layer in range(max(layout.stages, rng.choice((1, 1, 2, 2, 3)))):
            x = model.run_layer(x, layer)
        model.head(x)
        model.graph.prune()
        model.graph.renumber_layers()
        if len(model.graph.layers) >= layout.stages:
            return model.graph
