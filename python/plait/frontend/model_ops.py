# ===- model_ops.py - Embeddings, norms, the loss -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""PyTorch's operations that nn has, too: lookups, norms, cross-entropy."""

import torch

from ..errors import NotExpressible
from . import slices
from .arithmetic import vector_norm
from .axes import Axis, extent, flat, leaves, make, reshape, unify
from .graph import Graph, Value
from .lazy import repeat
from .walk import aten, handles


@handles(aten.embedding.default)
def embedding(walker, table, ids, padding_idx=-1, scale_grad_by_freq=False, *more):
    if scale_grad_by_freq:
        raise NotExpressible("a lookup with scale_grad_by_freq")
    table = walker.tensor(table)
    if isinstance(ids, torch.Tensor):
        rows = _constant_rows(walker, table, ids)
        if not bool((ids == padding_idx).any()):
            return rows
        mask = walker.constant((ids != padding_idx).float().unsqueeze(-1))
        return _without_gradient(walker.graph, rows, mask)
    rows = look_up(walker, table, ids)
    if padding_idx < 0:
        return rows
    mask = walker.graph.add("valid", [ids], ids.dims, ids.op.order, ignore=padding_idx)
    return _without_gradient(walker.graph, rows, mask.seen([*mask.dims, []]))


def look_up(walker, table: Value, ids) -> Value:
    if not isinstance(ids, Value) or ids.op.kind not in ("tokens", "targets"):
        raise NotExpressible("a lookup by anything but tokens and positions")
    return walker.graph.embedding(table, ids)


def _without_gradient(graph: Graph, rows: Value, mask: Value) -> Value:
    """The rows of padding, where the mask is 0, are used, but not trained: the difference
    from rows without a gradient, which is 0, counts only for the others."""
    fixed = graph.unary("stop_gradient", rows)
    return graph.binary(
        "add", fixed, graph.binary("mul", graph.binary("sub", rows, fixed), mask)
    )


def _constant_rows(walker, table: Value, ids: torch.Tensor) -> Value:
    """Rows by positions, 0, 1, 2, …, are a lookup of these; neighbours are a slice; others
    are picked."""
    shape = walker.shape
    if int(ids.min()) < 0 or int(ids.max()) >= table.shape[0]:
        raise NotExpressible(
            f"a lookup of row {int(ids.max())} in a table of {table.shape[0]}"
        )
    while ids.dim() > 1 and all(torch.equal(row, ids[0]) for row in ids):
        ids = ids[0]
    if ids.dim() != 1:
        rows = slices.pick(walker, table, 0, ids.flatten())
        return repeat(
            walker.graph, rows.seen(reshape(rows.dims, [*ids.shape, shape[-1]])), shape
        )
    graph = walker.graph
    if (
        torch.equal(ids, torch.arange(len(ids)))
        and len(ids) == graph.sequence.root().extent
    ):
        positions = graph.add("iota", [], [[Axis(graph.sequence)]])
        value = graph.embedding(table, positions)
    elif bool((ids == ids[0]).all()):
        value = slices.cut(walker, table, 0, int(ids[0]), int(ids[0]) + 1)
    elif torch.equal(ids, ids[0] + torch.arange(len(ids))):
        value = slices.cut(walker, table, 0, int(ids[0]), int(ids[-1]) + 1)
    else:
        value = slices.pick(walker, table, 0, ids)
    return repeat(graph, value, shape)


# Norms.


@handles(aten.layer_norm.default)
def layer_norm(walker, x, shape, weight=None, bias=None, eps=1e-5, *more):
    return _norm(walker, "layer_norm", walker.tensor(x), shape, (weight, bias), eps)


@handles(aten.rms_norm.default)
def rms_norm(walker, x, shape, weight=None, eps=None):
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    return _norm(walker, "rms_norm", walker.tensor(x), shape, (weight,), eps)


def _norm(walker, kind: str, x: Value, shape, weights, eps: float) -> Value:
    """A weight that is left out is 1, a bias 0."""
    if len(shape) != 1:
        raise NotExpressible(f"a norm over {len(shape)} dimensions")
    if eps <= 0:
        raise NotExpressible(f"a norm with an epsilon of {eps:g}: nn has positive ones")
    graph = walker.graph
    operands = [
        _weight(walker, x, amount) if w is None else walker.tensor(w)
        for w, amount in zip(weights, (1.0, 0.0))
    ]
    return norm(graph, kind, x, operands, eps)


def norm(graph: Graph, kind: str, x: Value, weights: list[Value], eps: float) -> Value:
    """Over the last dimension, which the result has last in memory."""
    for weight in weights:
        unify(x.dims[-1], weight.dims[-1])
    last = leaves(x.dims[-1])
    order = [a for a in leaves(x.op.order) if a not in last] + last
    return graph.add(kind, [x, *weights], x.dims, order, eps=eps)


def _weight(walker, x: Value, amount: float) -> Value:
    dims = [make(x.shape[-1])]
    return walker.graph.add("fill", [], dims, amount=amount)


@handles(aten._weight_norm.default)
def weight_norm(walker, direction, size, dim=0):
    """size · direction / |direction|, of each slice along `dim`."""
    value = walker.tensor(direction)
    others = [i for i in range(len(value.dims)) if i != dim]
    scaled = walker.graph.binary("mul", value, walker.tensor(size))
    return walker.graph.binary("div", scaled, vector_norm(walker, value, 2, others, True))


@handles(aten.native_layer_norm.default)
def native_layer_norm(walker, x, shape, weight=None, bias=None, eps=1e-5):
    return [layer_norm(walker, x, shape, weight, bias, eps), None, None]
