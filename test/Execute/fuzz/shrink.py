#===- shrink.py - The smallest model that still fails -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Greedy: a list of simplifications is tried over and over, and each that fails
in the same way is kept, until none is or the time is up."""

import copy
import dataclasses
import time

from .graph import Graph
from .layout import Layout
from .trial import Trial, Verdict

PLAIN = Layout()


def simpler_layouts(layout: Layout):
    """Every option by itself as it is when nothing is asked for."""
    for field in dataclasses.fields(Layout):
        plain = getattr(PLAIN, field.name)
        found = getattr(layout, field.name)
        if field.name == "reference" or found == plain:
            continue
        both = {"chunks": 1} if field.name == "schedule" else {}
        yield dataclasses.replace(layout, **{field.name: plain, **both})
        if isinstance(found, int) and found > 2:
            yield dataclasses.replace(layout, **{field.name: found - 1})
    for index in range(len(layout.shards) if len(layout.shards) > 1 else 0):
        rest = layout.shards[:index] + layout.shards[index + 1 :]
        yield dataclasses.replace(layout, shards=rest)


def replaced(graph: Graph, old: int, new: int) -> Graph:
    """Everything reads `new` in place of `old`."""
    graph = graph.copy()
    for op in graph.ops:
        op.operands = tuple(new if x == old else x for x in op.operands)
    graph.loss = new if graph.loss == old else graph.loss
    graph.prune()
    return graph


def with_fill(graph: Graph, index: int) -> Graph:
    """Op `index` gives a constant."""
    graph = graph.copy()
    op = graph.ops[index]
    op.kind, op.operands, op.attrs = "fill", (), {"by": 0.5}
    graph.prune()
    return graph


def simpler_graphs(graph: Graph):
    """Without one op, from the end; then with fewer layers; then smaller."""
    pruned = graph.copy()
    pruned.prune()
    if len(pruned.ops) < len(graph.ops):
        yield pruned
    for index in reversed(range(len(graph.ops))):
        op = graph.ops[index]
        value = op.results[0]
        if op.kind in ("read", "fill", "iota", "softmax_cross_entropy"):
            continue
        earlier = [x for other in graph.ops[:index] for x in other.results]
        same = [
            x
            for x in earlier
            if graph.dims[x] == graph.dims[value] and x not in graph.ids
        ]
        direct = [x for x in op.operands if x in same]
        for other in (direct + same[:1] + same[-1:])[:3]:
            yield replaced(graph, value, other)
        if len(op.results) == 1 and op.kind != "fill":
            yield with_fill(graph, index)
    yield from fewer_layers(graph)
    yield from smaller(graph)
    yield from fewer_parameters(graph)


def fewer_layers(graph: Graph):
    for layer in graph.layers[1:]:
        joined = graph.copy()
        for op in joined.ops:
            if op.layer is not None and op.layer >= layer:
                op.layer -= 1
        yield joined


def smaller(graph: Graph):
    used = {dim for dims in graph.dims.values() for dim in dims} - {"b"}
    for dim in sorted(used):
        extent = graph.extents[dim]
        for less in (1, 2, extent // 2, extent - 1):
            if 0 < less < extent:
                found = graph.copy()
                found.extents[dim] = less
                yield found


def fewer_parameters(graph: Graph):
    """A read becomes that of another parameter of the same dimensions."""
    for index, op in enumerate(graph.ops):
        if op.kind != "read":
            continue
        dims = graph.parameters[op.attrs["symbol"]].dims
        first = next(p for p in graph.parameters.values() if p.dims == dims)
        if first.name != op.attrs["symbol"]:
            found = graph.copy()
            found.ops[index].attrs["symbol"] = first.name
            found.prune()
            yield found


def fitted(trial: Trial, graph: Graph, layout: Layout) -> Trial:
    """Weights are cut down to the extents, tokens to the vocabulary."""
    graph.extents["b"] = layout.micro * layout.dp
    if layout.layers and len(graph.layers) != sum(layout.layers):
        layout = dataclasses.replace(layout, layers=())
    weights = {}
    for name, parameter in graph.parameters.items():
        box = tuple(slice(0, x) for x in graph.shape(parameter.dims))
        weights[name] = trial.weights[name][box].contiguous()
    vocabulary = graph.extents[graph.vocabulary]
    tokens = [token % vocabulary for token in trial.tokens]
    shortest = graph.extents["s"] + 1
    while len(tokens) < shortest:
        tokens = tokens + tokens
    return dataclasses.replace(
        trial, graph=graph, layout=layout, tokens=tokens, weights=weights
    )


def candidates(trial: Trial):
    graph, layout = trial.graph, trial.layout
    for simpler in simpler_layouts(layout):
        yield fitted(trial, graph.copy(), simpler)
    if trial.recipe.steps > 1:
        recipe = dataclasses.replace(trial.recipe, steps=1)
        yield dataclasses.replace(trial, recipe=recipe)
    for simpler in simpler_graphs(graph):
        if len(simpler.layers) >= layout.stages:
            simpler.renumber_layers()
            yield fitted(trial, simpler, layout)


def shrink(trial: Trial, verdict: Verdict, run, seconds: float):
    """`run` gives the verdict on a trial. Returns the smallest and its own."""
    end = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for candidate in candidates(trial):
            if time.monotonic() > end:
                return trial, verdict
            try:
                seen = run(candidate)
            except (ValueError, KeyError, RuntimeError):
                continue  # the mirror cannot make sense of it
            if seen.kind == verdict.kind:
                trial, verdict, found = copy.deepcopy(candidate), seen, True
                break
    return trial, verdict
