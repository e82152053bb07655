# ===- functions.py - What is made of several operations -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""PyTorch's functions that nn has no op for, from those of arithmetic.py: comparisons
and choices, powers, statistics, activations, sums along a dimension."""

import math

import torch

from ..errors import NotExpressible
from . import slices
from .arithmetic import (
    absolute,
    add,
    below,
    div,
    hardtanh,
    inverted,
    largest,
    maximum,
    mean,
    mul,
    neg,
    power,
    relu,
    root,
    scale,
    shift,
    smaller,
    square,
    sub,
    total,
    variance,
    vector_norm,
    where,
)
from .axes import reshape
from .graph import Value
from .layout import wrap
from .walk import aten, handles

# Comparisons: 1 where they hold, else 0, and no gradient.


def _compare(walker, kind: str, x, y) -> Value:
    for z in (x, y):
        if isinstance(z, Value) and z.op.kind in ("tokens", "targets"):
            raise NotExpressible("a comparison of tokens other than == and != a number")
    return walker.graph.binary(kind, walker.tensor(x), walker.tensor(y))


@handles(aten.gt.Scalar, aten.gt.Tensor)
def greater(walker, x, y):
    return _compare(walker, "greater", x, y)


@handles(aten.lt.Scalar, aten.lt.Tensor)
def less(walker, x, y):
    return _compare(walker, "greater", y, x)


@handles(aten.ge.Scalar, aten.ge.Tensor)
def at_least(walker, x, y):
    return inverted(walker, less(walker, x, y))


@handles(aten.le.Scalar, aten.le.Tensor)
def at_most(walker, x, y):
    return inverted(walker, greater(walker, x, y))


@handles(aten.ne.Scalar, aten.ne.Tensor)
def differs(walker, x, y):
    """Of tokens nn has this alone, which paddings are told by."""
    number = walker.scalar(y) if isinstance(y, (int, float, torch.Tensor)) else None
    if isinstance(x, Value) and x.op.kind in ("tokens", "targets") and number is not None:
        attrs = {"ignore": int(number)}
        return walker.graph.add("valid", [x], x.dims, x.op.order, **attrs)
    return inverted(walker, _compare(walker, "equal", x, y))


@handles(aten.eq.Scalar, aten.eq.Tensor)
def equals(walker, x, y):
    return inverted(walker, differs(walker, x, y))


@handles(aten.logical_not.default, aten.bitwise_not.default)
def negated(walker, x):
    return inverted(walker, x)


@handles(aten.logical_and.default, aten.bitwise_and.Tensor, aten.__and__.Tensor)
def both(walker, x, y):
    return mul(walker, x, y)


@handles(aten.logical_or.default, aten.bitwise_or.Tensor, aten.__or__.Tensor)
def either(walker, x, y):
    return inverted(walker, mul(walker, inverted(walker, x), inverted(walker, y)))


@handles(aten.sign.default)
def sign(walker, x):
    return walker.graph.binary("sub", greater(walker, x, 0.0), less(walker, x, 0.0))


@handles(aten.threshold.default)
def threshold(walker, x, bound, other):
    return where(walker, greater(walker, x, bound), x, float(other))


# Powers, logarithms, exponentials.


@handles(aten.log1p.default)
def log1p(walker, x):
    return walker.graph.unary("log", shift(walker, x, 1.0))


@handles(aten.expm1.default)
def expm1(walker, x):
    return shift(walker, walker.graph.unary("exp", walker.tensor(x)), -1.0)


def _log(walker, x, base: float) -> Value:
    return scale(walker, walker.graph.unary("log", walker.tensor(x)), 1 / math.log(base))


@handles(aten.log2.default)
def log2(walker, x):
    return _log(walker, x, 2.0)


@handles(aten.log10.default)
def log10(walker, x):
    return _log(walker, x, 10.0)


@handles(aten.exp2.default)
def exp2(walker, x):
    return power_of(walker, 2.0, x)


@handles(aten.pow.Scalar)
def power_of(walker, base, exponent):
    if base <= 0:
        raise NotExpressible(f"'aten.pow' of {base:g}")
    return walker.graph.unary("exp", scale(walker, exponent, math.log(base)))


@handles(aten.pow.Tensor_Tensor)
def power_by(walker, base, exponent):
    """Of positive numbers; of others it is no number, as in PyTorch where the exponent
    is no integer."""
    number = walker.scalar(exponent) if isinstance(exponent, torch.Tensor) else None
    if number is not None:
        return power(walker, base, number)
    known = walker.scalar(base) if isinstance(base, torch.Tensor) else None
    if known is not None:
        return power_of(walker, known, exponent)
    logarithm = walker.graph.unary("log", walker.tensor(base))
    return walker.graph.unary("exp", mul(walker, logarithm, exponent))


def _halves(walker, x, sign: float) -> Value:
    """(exp(x) ± exp(-x)) / 2."""
    powers = [walker.graph.unary("exp", scale(walker, x, by)) for by in (1.0, -1.0)]
    second = scale(walker, powers[1], sign)
    return scale(walker, walker.graph.binary("add", powers[0], second), 0.5)


@handles(aten.sinh.default)
def sinh(walker, x):
    return _halves(walker, x, -1.0)


@handles(aten.cosh.default)
def cosh(walker, x):
    return _halves(walker, x, 1.0)


@handles(aten.erfc.default)
def erfc(walker, x):
    return inverted(walker, walker.graph.unary("erf", walker.tensor(x)))


@handles(aten.logaddexp.default)
def logaddexp(walker, x, y):
    x, y = walker.tensor(x), walker.tensor(y)
    distance = absolute(walker, walker.graph.binary("sub", x, y))
    rest = walker.graph.unary("exp", scale(walker, distance, -1.0))
    return walker.graph.binary("add", maximum(walker, x, y), log1p(walker, rest))


@handles(aten.hypot.default)
def hypot(walker, x, y):
    squares = walker.graph.binary("add", square(walker, x), square(walker, y))
    return walker.graph.unary("sqrt", squares)


@handles(aten.logsumexp.default)
def logsumexp(walker, x, dims, keepdim=False):
    """With the largest taken off, which has no influence on the gradient."""
    value = walker.tensor(x)
    kept = walker.graph.unary("stop_gradient", largest(walker, value, dims, True))
    powers = walker.graph.unary("exp", walker.graph.binary("sub", value, kept))
    result = walker.graph.unary("log", total(walker, powers, dims, True))
    result = walker.graph.binary("add", result, kept)
    return result if keepdim else total(walker, result, dims, False)


# Activations.


@handles(aten.hardsigmoid.default)
def hard_sigmoid(walker, x):
    """min(max(x / 6 + 1 / 2, 0), 1)."""
    line = shift(walker, scale(walker, walker.tensor(x), 1 / 6), 0.5)
    return hardtanh(walker, line, 0.0, 1.0)


@handles(aten.hardswish.default)
def hard_swish(walker, x):
    value = walker.tensor(x)
    return walker.graph.binary("mul", value, hard_sigmoid(walker, value))


@handles(aten.celu.default)
def celu(walker, x, alpha=1.0):
    value = walker.tensor(x)
    curve = expm1(walker, scale(walker, below(walker, value), 1.0 / alpha))
    return walker.graph.binary("add", relu(walker, value), scale(walker, curve, alpha))


@handles(aten.selu.default)
def selu(walker, x):
    """The constants of Klambauer et al. 2017, with the digits that PyTorch has."""
    alpha, factor = 1.6732632423543772, 1.0507009873554805
    value = walker.tensor(x)
    curve = scale(walker, expm1(walker, below(walker, value)), alpha)
    return scale(walker, walker.graph.binary("add", relu(walker, value), curve), factor)


@handles(aten.prelu.default, aten._prelu_kernel.default)
def prelu(walker, x, slope):
    """Slopes are of the second dimension, or one of all."""
    value, slope = walker.tensor(x), walker.tensor(slope)
    if slope.shape and slope.shape != [1]:
        behind = len(value.dims) - 2 if len(slope.dims) == 1 else 0
        slope = slope.seen([*slope.dims, *[[]] * behind])
    positive = relu(walker, value)
    negative = walker.graph.binary("sub", value, positive)
    return walker.graph.binary("add", positive, walker.graph.binary("mul", slope, negative))


# Sums of products.


@handles(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(walker, x, y, weight):
    return add(walker, x, mul(walker, sub(walker, y, x), weight))


@handles(aten.addcmul.default)
def addcmul(walker, x, y, z, value=1):
    return add(walker, x, scale(walker, mul(walker, y, z), float(value)))


@handles(aten.addcdiv.default)
def addcdiv(walker, x, y, z, value=1):
    return add(walker, x, scale(walker, div(walker, y, z), float(value)))


@handles(aten.cosine_similarity.default)
def cosine_similarity(walker, x, y, dim=1, eps=1e-8):
    lengths = [
        maximum(walker, vector_norm(walker, z, 2, dim, True), eps) for z in (x, y)
    ]
    first, second = (div(walker, z, length) for z, length in zip((x, y), lengths))
    return total(walker, mul(walker, first, second), dim)


@handles(aten.clamp.Tensor, aten.clip.Tensor)
def clamp_between(walker, x, low=None, high=None):
    value = walker.tensor(x)
    value = value if low is None else maximum(walker, value, low)
    return value if high is None else smaller(walker, value, high)


@handles(aten.min.dim)
def min_dim(walker, x, dim, keepdim=False):
    return [neg(walker, largest(walker, neg(walker, x), dim, keepdim)), None]


@handles(aten.cumsum.default)
def cumsum(walker, x, dim, dtype=None):
    """A product with a triangle of ones."""
    value = walker.tensor(x)
    dim = wrap(dim, len(value.dims))
    count = value.shape[dim]
    walker.check_size(count * count)
    return slices.multiply(walker, value, dim, torch.ones(count, count).triu())


@handles(aten.tril.default)
def lower(walker, x, diagonal=0):
    return mul(walker, x, torch.ones(walker.shape[-2:]).tril(diagonal))


@handles(aten.triu.default)
def upper(walker, x, diagonal=0):
    return mul(walker, x, torch.ones(walker.shape[-2:]).triu(diagonal))


# Statistics.


@handles(aten.var.dim, aten.var.default)
def variance_of(walker, x, dim=None, unbiased=True, keepdim=False):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return variance(walker, x, dim, int(unbiased), keepdim)


@handles(aten.std.dim, aten.std.default)
def deviation_of(walker, x, dim=None, unbiased=True, keepdim=False):
    return root(walker, variance_of(walker, x, dim, unbiased, keepdim))


@handles(aten.var_mean.correction)
def variance_and_mean(walker, x, dim=None, correction=1, keepdim=False):
    value = walker.tensor(x)
    found = variance(walker, value, dim, correction, keepdim)
    return [found, mean(walker, value, dim, keepdim)]


@handles(aten.var_mean.dim, aten.var_mean.default)
def variance_of_and_mean(walker, x, dim=None, unbiased=True, keepdim=False):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return variance_and_mean(walker, x, dim, int(unbiased), keepdim)


@handles(aten.std_mean.correction)
def deviation_and_mean(walker, x, dim=None, correction=1, keepdim=False):
    found, average = variance_and_mean(walker, x, dim, correction, keepdim)
    return [root(walker, found), average]


@handles(aten.std_mean.dim, aten.std_mean.default)
def deviation_of_and_mean(walker, x, dim=None, unbiased=True, keepdim=False):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return deviation_and_mean(walker, x, dim, int(unbiased), keepdim)


@handles(aten.group_norm.default)
def group_norm(walker, x, groups, weight=None, bias=None, eps=1e-5, *more):
    """Each sample's channels, dimension 1, are normalised in groups."""
    value = walker.tensor(x)
    samples, channels, *rest = value.shape
    shape = [samples, groups, channels // groups, *rest]
    parts = value.seen(reshape(value.dims, shape))
    dims = list(range(2, len(shape)))
    centred = walker.graph.binary("sub", parts, mean(walker, parts, dims, True))
    spread = mean(walker, square(walker, centred), dims, True)
    factor = walker.graph.unary("rsqrt", shift(walker, spread, eps))
    normal = walker.graph.binary("mul", centred, factor)
    result = normal.seen(reshape(normal.dims, [samples, channels, *rest]))
    for kind, given in (("mul", weight), ("add", bias)):
        if given is not None:
            given = walker.tensor(given)
            given = given.seen([given.dims[0], *[[]] * len(rest)])
            result = walker.graph.binary(kind, result, given)
    return result


# Constants in the shape of what is computed.


def _filled(walker, number) -> torch.Tensor:
    """Of the type that PyTorch's has: what is made of it is computed by PyTorch."""
    kind = walker.node.meta["val"].dtype
    if kind.is_floating_point:
        kind = torch.float32
    return torch.full(walker.shape, number, dtype=kind)


@handles(
    aten.zeros_like.default, aten.new_zeros.default,
    aten.empty_like.default, aten.new_empty.default,
)
def zeros(walker, *arguments, **named):
    """Also what has no values yet: a module writes to it before it reads it."""
    return _filled(walker, 0)


@handles(aten.ones_like.default, aten.new_ones.default)
def ones(walker, *arguments, **named):
    return _filled(walker, 1)


@handles(aten.full_like.default)
def full_like(walker, x, number, **named):
    return _filled(walker, number)


@handles(aten.new_full.default)
def new_full(walker, x, size, number, **named):
    return _filled(walker, number)
