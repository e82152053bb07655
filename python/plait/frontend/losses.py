# ===- losses.py - What is trained for -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Losses. In nn a loss is a sum and the number that it is a mean over, of each
microbatch, and both are added up: so a mean is taken apart, and only what is a quotient
of sums over the batch is a loss."""

from ..errors import NotExpressible
from .arithmetic import (
    absolute,
    mean_of,
    mul,
    neg,
    scale,
    smaller,
    softplus,
    sub,
    total,
)
from .axes import extent, flat, leaves, pairs, unify
from .export import IGNORED
from .graph import Graph, Value
from .lazy import Loss, LogWeights, Mean, Shifted
from .walk import Walker, aten, handles

_NO_LOSS = (
    "the loss is neither a mean over the targets, of cross-entropies, squares or others, "
    "nor a sum of such means, nor a quotient of two sums"
)

# Cross-entropies.


@handles(aten.cross_entropy_loss.default)
def cross_entropy(
    walker, logits, targets, weight=None, reduction=1, ignore_index=IGNORED, smoothing=0.0
):
    if smoothing:
        raise NotExpressible(f"a cross-entropy with label smoothing of {smoothing:g}")
    if isinstance(logits, Value) and len(logits.dims) > 2:
        # Classes are the second dimension.
        logits = logits.seen([logits.dims[0], *logits.dims[2:], logits.dims[1]])
    kind = getattr(getattr(targets, "op", None), "kind", "tokens")
    if isinstance(targets, Value) and kind not in ("tokens", "targets"):
        return _soft_cross_entropy(walker, logits, targets, weight, reduction)
    return nll(walker, LogWeights(logits), targets, weight, reduction, ignore_index)


def _soft_cross_entropy(walker, logits, targets: Value, weight, reduction: int):
    """Targets are probabilities of classes."""
    if weight is not None:
        raise NotExpressible("a cross-entropy with weights of classes")
    if len(targets.dims) > 2:
        targets = targets.seen([targets.dims[0], *targets.dims[2:], targets.dims[1]])
    likely = walker.tensor(LogWeights(logits))
    products = walker.graph.binary("mul", likely, targets)
    each = neg(walker, total(walker, products, [len(products.dims) - 1]))
    return _reduced(walker, each, reduction)


@handles(aten.nll_loss_nd.default, aten.nll_loss.default)
def nll(walker, x, targets, weight=None, reduction=1, ignore_index=IGNORED):
    if weight is not None or not isinstance(x, LogWeights):
        raise NotExpressible(
            "a cross-entropy with weights of classes, or of what is no log softmax"
        )
    logits, targets = _unshifted(walker, x.logits, targets)
    if not isinstance(targets, Value) or targets.op.kind not in ("tokens", "targets"):
        raise NotExpressible("a cross-entropy with other targets than those given")
    lead = [axis for axis in flat(logits.dims) if axis not in logits.dims[-1]]
    if extent(lead) != extent(flat(targets.dims)):
        raise NotExpressible("a cross-entropy over another dimension than the last")
    unify(lead, flat(targets.dims))
    if reduction == 1:
        return Loss(((logits, targets, ignore_index, 1.0),))
    return _reduced(walker, _of_each(walker, logits, targets, ignore_index), reduction)


def _of_each(walker, logits: Value, targets: Value, ignored: int) -> Value:
    """The cross-entropy of each target, 0 of those that are ignored."""
    graph = walker.graph
    likely = walker.tensor(LogWeights(logits))
    *lead, classes = likely.dims
    own = dict(pairs(flat(targets.dims), flat(lead)))
    if any(axis not in own for axis in leaves(flat(targets.dims))):
        raise NotExpressible("logits that are not of each position of each sequence")
    dims = [[own[axis] for axis in leaves(dim)] for dim in targets.dims]
    order = [own[axis] for axis in leaves(targets.op.order)] + leaves(classes)
    picked = graph.add("pick", [likely, targets], [*dims, classes], order)
    each = neg(walker, graph.reduce("sum", picked, [len(picked.dims) - 1], False))
    valid = graph.add("valid", [targets], targets.dims, targets.op.order, ignore=ignored)
    return graph.binary("mul", each, valid)


def _unshifted(walker, logits, targets):
    """Where a module shifts the targets itself, it gets them as they are: in plait
    targets are those of each position already. Where it shifts some it means others, as
    a second head that predicts the token after the next."""
    walker.shifts.add(isinstance(targets, Shifted))
    if len(walker.shifts) > 1:
        raise NotExpressible("targets that are shifted, and others that are not")
    if not isinstance(targets, Shifted):
        return walker.tensor(logits), targets
    last = targets.value.shape[targets.dim]
    fits = (targets.low, targets.high) == (1, last)
    cut = isinstance(logits, Shifted)
    if not fits or (cut and (logits.low, logits.high) != (0, last - 1)):
        raise NotExpressible("targets that are shifted by more than one position")
    walker.graph.note(
        "the module shifts its targets by one; plait's are those of each position, the "
        "last one included"
    )
    logits = logits.value if cut else walker.tensor(logits)
    return logits, walker.graph.input("targets")


# Others.


def _reduced(walker, each: Value, reduction: int):
    """As PyTorch's functions number it."""
    if reduction == 1:
        return mean_of(walker, each)
    return total(walker, each) if reduction == 2 else each


@handles(aten.mse_loss.default)
def mse(walker, x, y, reduction=1):
    apart = walker.tensor(sub(walker, x, y))
    return _reduced(walker, walker.graph.binary("mul", apart, apart), reduction)


@handles(aten.l1_loss.default)
def l1(walker, x, y, reduction=1):
    return _reduced(walker, absolute(walker, sub(walker, x, y)), reduction)


@handles(aten.huber_loss.default)
def huber(walker, x, y, reduction=1, delta=1.0):
    """a · (|d| - a / 2) of a = min(|d|, delta)."""
    apart = absolute(walker, sub(walker, x, y))
    least = smaller(walker, apart, delta)
    rest = walker.graph.binary("sub", apart, scale(walker, least, 0.5))
    return _reduced(walker, walker.graph.binary("mul", least, rest), reduction)


@handles(aten.smooth_l1_loss.default)
def smooth_l1(walker, x, y, reduction=1, beta=1.0):
    if not beta:
        return l1(walker, x, y, reduction)
    return mul(walker, huber(walker, x, y, reduction, beta), 1.0 / beta)


@handles(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy(walker, x, y, weight=None, positive=None, reduction=1):
    """max(x, 0) - x y + log(1 + exp(-|x|))."""
    if weight is not None or positive is not None:
        raise NotExpressible("a binary cross-entropy with weights")
    value = walker.tensor(x)
    both = walker.tensor(mul(walker, value, y))
    each = walker.graph.binary("sub", softplus(walker, value), both)
    return _reduced(walker, each, reduction)


# What is returned.


def settle(walker: Walker, result) -> Loss:
    """What a module returns as its loss, with the ops that it needs in the graph."""
    if isinstance(result, (Mean, Loss)):
        return _count(walker, Loss.of(result))
    if isinstance(result, Value) and not flat(result.dims) and result.op.kind == "div":
        number, count = result.op.operands
        if _is_sum(number) and _is_sum(count):
            return Loss(ratio=(number, count))
    raise NotExpressible(_NO_LOSS)


def _is_sum(value: Value) -> bool:
    """Whether that of two halves of a batch is the sum of theirs."""
    op = value.op
    if op.kind == "reduce":
        return op.attrs["reduction"] == "sum"
    if op.kind in ("scale", "neg"):
        return _is_sum(op.operands[0])
    return op.kind in ("add", "sub") and all(map(_is_sum, op.operands))


def _count(walker: Walker, loss: Loss) -> Loss:
    """Adds up the means that are no cross-entropies, as sums of each target."""
    if not loss.means:
        return loss
    if any(ignored >= 0 for _, _, ignored, _ in loss.terms):
        raise NotExpressible("a sum of losses that ignore different targets")
    graph = walker.graph
    has_positions = [_has(graph, x.value, graph.sequence) for x in loss.means]
    targets = graph.input("targets")
    valid = graph.add("valid", [targets], targets.dims, targets.op.order, ignore=IGNORED)
    if not loss.terms and not any(has_positions):
        # One of each sequence.
        valid = graph.reduce("max", valid, [1], False)
    sums = []
    for own, is_of_positions in zip(loss.means, has_positions):
        sums.append(_sum_up(walker, own, valid, is_of_positions))
    added = sums[0]
    for value in sums[1:]:
        added = graph.binary("add", added, value)
    count = graph.reduce("sum", valid, list(range(len(valid.dims))), False)
    return Loss(loss.terms, ratio=(added, count))


def _has(graph: Graph, value: Value, size) -> bool:
    return any(axis.size.root() is size.root() for axis in leaves(flat(value.dims)))


def _sum_up(walker: Walker, own: Mean, valid: Value, is_of_positions: bool) -> Value:
    """Of a mean of each sequence its number for each of its targets."""
    graph = walker.graph
    kinds = [graph.batch, graph.sequence] if is_of_positions else [graph.batch]
    counted = 1
    for size in kinds:
        counted *= size.root().extent
    factor = own.factor * counted / extent(flat(own.value.dims))
    if is_of_positions or len(valid.dims) == 1:
        return scale(walker, total(walker, own.value), factor)
    batch = graph.batch.root()
    rest = [
        i for i, dim in enumerate(own.value.dims)
        if not any(axis.size.root() is batch for axis in leaves(dim))
    ]
    each = total(walker, own.value, rest) if rest else own.value
    each = scale(walker, each, factor)
    if len(each.dims) != 1 or extent(each.dims[0]) != batch.extent:
        raise NotExpressible("a mean over a dimension that the batch is a part of")
    columns = each.seen([each.dims[0], []])
    return total(walker, graph.binary("mul", columns, valid))
