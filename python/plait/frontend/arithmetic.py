# ===- arithmetic.py - Element by element, and sums -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""PyTorch's elementwise operations and reductions, of which nn has a basis."""

import functools
import math

import torch

from ..errors import NotExpressible
from . import lazy, rotary
from .axes import extent, flat, leaves
from .graph import Value
from .lazy import Loss, Mean, Mix
from .layout import wrap
from .walk import LARGE, aten, handles

# Scores below this are hidden: masks have minus infinity or about the least number.
HIDDEN = -1e4
# Powers of integers up to this are products.
MOST_EXPONENT = 1024

_UNARY = {
    aten.silu.default: "silu",
    aten.tanh.default: "tanh",
    aten.exp.default: "exp",
    aten.sigmoid.default: "sigmoid",
    aten.rsqrt.default: "rsqrt",
    aten.sqrt.default: "sqrt",
    aten.log.default: "log",
    aten.erf.default: "erf",
    aten.sin.default: "sin",
    aten.cos.default: "cos",
}


def _add_unary(target, kind: str) -> None:
    @handles(target)
    def unary(walker, x):
        return walker.graph.unary(kind, walker.tensor(x))


for _target, _kind in _UNARY.items():
    _add_unary(_target, _kind)


@handles(aten.gelu.default)
def gelu(walker, x, approximate="none"):
    return walker.graph.unary("gelu", walker.tensor(x), tanh=approximate == "tanh")


@handles(aten.neg.default)
def neg(walker, x):
    if isinstance(x, Mix):
        return x.times(torch.tensor(-1.0))
    return scale(walker, x, -1.0)


def scale(walker, x, by: float):
    if isinstance(x, (Mix, Loss, Mean)):
        return x.times(torch.tensor(by) if isinstance(x, Mix) else by)
    value = walker.tensor(x)
    return value if by == 1 else walker.graph.unary("scale", value, by=by)


def shift(walker, x, by: float) -> Value:
    value = walker.tensor(x)
    return value if by == 0 else walker.graph.unary("shift", value, by=by)


def _sorted(walker, x, y):
    """(what depends on the model, the constant) of two of which one is constant."""
    return (x, y) if not _is_constant(x) else (y, x)


def _is_constant(x) -> bool:
    return not isinstance(x, (Value, lazy.Lazy))


def _keeps_shape(walker, x) -> bool:
    shape = x.shape if isinstance(x, (Value, Mix)) else walker.tensor(x).shape
    return list(shape) == walker.shape


@handles(aten.add.Tensor, aten.add.Scalar)
def add_or_join(walker, x, y, alpha=1):
    """The sum of two truth values is whether either holds."""
    if walker.is_boolean(0) and walker.is_boolean(1):
        return inverted(walker, mul(walker, *(inverted(walker, z) for z in (x, y))))
    return add(walker, x, y, alpha)


def add(walker, x, y, alpha=1):
    if alpha != 1:
        y = mul(walker, y, alpha) if not _is_constant(y) else y * alpha
    if all(isinstance(z, (Loss, Mean)) for z in (x, y)):
        return Loss.of(x).plus(Loss.of(y))
    if _is_constant(x) or _is_constant(y):
        return _add_constant(walker, *_sorted(walker, x, y))
    mixes = [Mix.of(z) if isinstance(z, (Value, Mix)) and z.shape else None for z in (x, y)]
    if any(isinstance(z, Mix) for z in (x, y)) and None not in mixes:
        first, second = mixes
        if first.matches(second) and first.shape == second.shape:
            return rotary.settle(walker, first.plus(second))
    return walker.graph.binary("add", walker.tensor(x), walker.tensor(y))


def _add_constant(walker, x, constant):
    number = walker.scalar(constant)
    if number is not None and _keeps_shape(walker, x):
        return shift(walker, x, number)
    hides = isinstance(constant, torch.Tensor) and bool((constant <= HIDDEN).any())
    if hides and isinstance(x, Value) and _keeps_shape(walker, x):
        return lazy.Masked(x, constant)
    return walker.graph.binary("add", walker.tensor(x), walker.tensor(constant))


@handles(aten.sub.Tensor, aten.sub.Scalar)
def sub(walker, x, y, alpha=1):
    if _is_constant(y):
        return add(walker, x, -y * alpha)
    if _is_constant(x) or isinstance(x, (Mix, Loss, Mean)) or isinstance(y, Mix):
        return add(walker, x, mul(walker, y, -float(alpha)))
    y = mul(walker, y, alpha) if alpha != 1 else y
    return walker.graph.binary("sub", walker.tensor(x), walker.tensor(y))


@handles(aten.rsub.Scalar, aten.rsub.Tensor)
def rsub(walker, x, y, alpha=1):
    return sub(walker, y, x, alpha)


@handles(aten.mul.Tensor, aten.mul.Scalar)
def mul(walker, x, y):
    if not _is_constant(x) and not _is_constant(y):
        return walker.graph.binary("mul", walker.tensor(x), walker.tensor(y))
    x, constant = _sorted(walker, x, y)
    if isinstance(x, lazy.Complex) and torch.is_tensor(constant) and constant.is_complex():
        return x.times(constant)
    number = walker.scalar(constant)
    if number is not None and (isinstance(x, (Loss, Mean)) or _keeps_shape(walker, x)):
        return scale(walker, x, number)
    if isinstance(constant, torch.Tensor) and isinstance(x, (Value, Mix)) and x.shape:
        if _keeps_shape(walker, x) and constant.is_floating_point():
            return Mix.of(x).times(constant)
    return walker.graph.binary("mul", walker.tensor(x), walker.tensor(constant))


@handles(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor)
def div(walker, x, y):
    if _is_constant(y):
        return mul(walker, x, 1.0 / y)
    return walker.graph.binary("div", walker.tensor(x), walker.tensor(y))


@handles(aten.reciprocal.default)
def reciprocal(walker, x):
    return div(walker, torch.ones(()), x)


@handles(aten.square.default)
def square(walker, x):
    value = walker.tensor(x)
    return walker.graph.binary("mul", value, value)


@handles(aten.pow.Tensor_Scalar)
def power(walker, x, exponent):
    value = walker.tensor(x)
    if exponent == 0.5:
        return walker.graph.unary("sqrt", value)
    if exponent == -0.5:
        return walker.graph.unary("rsqrt", value)
    if exponent != int(exponent) or abs(exponent) > MOST_EXPONENT:
        return _real_power(walker, value, float(exponent))
    if exponent == 0:
        return torch.ones(walker.shape)
    result = value
    for bit in bin(int(abs(exponent)))[3:]:
        result = walker.graph.binary("mul", result, result)
        if bit == "1":
            result = walker.graph.binary("mul", result, value)
    return result if exponent > 0 else reciprocal(walker, result)


def _real_power(walker, x: Value, exponent: float) -> Value:
    """exp(exponent · log(x)). Above 1 that of 0 is 0, with the gradient 0."""
    if exponent <= 1:
        return _exponential(walker, x, exponent)
    is_zero = equal_to(walker, x, 0.0)
    positive = walker.graph.binary("add", x, is_zero)
    rest = inverted(walker, is_zero)
    return walker.graph.binary("mul", _exponential(walker, positive, exponent), rest)


def _exponential(walker, x: Value, exponent: float) -> Value:
    logarithm = walker.graph.unary("log", x)
    return walker.graph.unary("exp", scale(walker, logarithm, exponent))


def smaller(walker, x: Value, y) -> Value:
    """`y` may be a number."""
    return walker.graph.binary("min", x, walker.tensor(y))


@handles(aten.minimum.default, aten.min.other)
def minimum(walker, x, y):
    return smaller(walker, walker.tensor(x), y)


@handles(aten.maximum.default, aten.max.other)
def maximum(walker, x, y):
    x, y = (scale(walker, walker.tensor(z), -1.0) for z in (x, y))
    return scale(walker, smaller(walker, x, y), -1.0)


# Activations. Where two pieces of one meet each has the gradient that PyTorch gives it
# there, which equal operands of nn.min would share: layers that begin as zeros are there.


def is_above(walker, x, bound) -> Value:
    """1 where x is larger, else 0; without a gradient."""
    return walker.graph.binary("greater", walker.tensor(x), walker.tensor(bound))


def equal_to(walker, x: Value, number: float) -> Value:
    """1 where x is the number, else 0; without a gradient."""
    return walker.graph.binary("equal", x, walker.tensor(number))


def inverted(walker, x: Value) -> Value:
    """1 - x."""
    return shift(walker, scale(walker, x, -1.0), 1.0)


@functools.cache
def _stops_at_bounds() -> bool:
    """Whether the clamp of this PyTorch has the gradient 0 at its bounds; older ones have
    1 there."""
    x = torch.zeros((), requires_grad=True)
    with torch.enable_grad():
        x.clamp(min=0.0).backward()
    return not x.grad.item()


def _at_most(walker, x: Value, bound: float, stops: bool) -> Value:
    """min(x, bound). Where both are equal one is moved, so that the other has the
    gradient: the bound if it `stops` that of x."""
    is_equal = equal_to(walker, x, bound)
    if stops:
        return smaller(walker, walker.graph.binary("add", x, is_equal), bound)
    return smaller(walker, x, shift(walker, is_equal, bound))


def _bounded(walker, x, low, high, stops: bool) -> Value:
    """Between two numbers, where the gradient is 0 if they are to stop it, else 1."""
    value = walker.tensor(x)
    if high is not None:
        value = _at_most(walker, value, float(high), stops)
    if low is not None:
        negative = _at_most(walker, scale(walker, value, -1.0), -float(low), stops)
        value = scale(walker, negative, -1.0)
    return value


@handles(aten.clamp_max.default)
def clamp_max(walker, x, high):
    return clamp(walker, x, None, high)


@handles(aten.clamp.default, aten.clip.default, aten.clamp_min.default)
def clamp(walker, x, low=None, high=None):
    return _bounded(walker, x, low, high, _stops_at_bounds())


def below(walker, x: Value) -> Value:
    """min(x, 0), with the gradient 1 at 0."""
    return walker.graph.binary("sub", x, relu(walker, x))


@handles(aten.relu.default)
def relu(walker, x):
    value = walker.tensor(x)
    return walker.graph.binary("mul", value, is_above(walker, value, 0.0))


@handles(aten.leaky_relu.default)
def leaky_relu(walker, x, slope=0.01):
    """slope · x + (1 - slope) · max(x, 0)."""
    value = walker.tensor(x)
    rest = scale(walker, relu(walker, value), 1.0 - slope)
    return walker.graph.binary("add", scale(walker, value, slope), rest)


@handles(aten.abs.default)
def absolute(walker, x):
    """x - 2 min(x, 0), with the gradient 0 at 0."""
    value = walker.tensor(x)
    rest = scale(walker, smaller(walker, value, 0.0), 2.0)
    return walker.graph.binary("sub", value, rest)


@handles(aten.hardtanh.default)
def hardtanh(walker, x, low=-1.0, high=1.0):
    return _bounded(walker, x, low, high, stops=True)


@handles(aten.relu6.default)
def relu6(walker, x):
    return hardtanh(walker, x, 0.0, 6.0)


@handles(aten.elu.default)
def elu(walker, x, alpha=1.0, factor=1.0, input_factor=1.0):
    value = walker.tensor(x)
    curve = walker.graph.unary("exp", scale(walker, below(walker, value), input_factor))
    curve = scale(walker, shift(walker, curve, -1.0), alpha)
    return scale(walker, walker.graph.binary("add", relu(walker, value), curve), factor)


# Above it log(1 + exp(x)) and its gradient are x and 1 in fp32: exp(-17) < 2**-24.
LINEAR = 17.0


@handles(aten.softplus.default)
def softplus(walker, x, beta=1, threshold=20):
    """max(x, 0) + log(1 + exp(-|x|)); x above the threshold, which this does not need
    where fp32 has no difference. At 0 the gradients of both sides are 1 / 2 of 1 and 0."""
    value = scale(walker, walker.tensor(x), float(beta))
    small = walker.graph.unary("exp", scale(walker, absolute(walker, value), -1.0))
    curve = walker.graph.unary("log", shift(walker, small, 1.0))
    total = walker.graph.binary("add", maximum(walker, value, 0.0), curve)
    if threshold < LINEAR:
        total = where(walker, is_above(walker, value, float(threshold)), value, total)
    return scale(walker, total, 1.0 / beta)


@handles(aten.log_sigmoid.default)
def log_sigmoid(walker, x):
    return neg(walker, softplus(walker, neg(walker, x)))


@handles(aten.mish.default)
def mish(walker, x):
    value = walker.tensor(x)
    curve = walker.graph.unary("tanh", softplus(walker, value))
    return walker.graph.binary("mul", value, curve)


@handles(aten.glu.default)
def glu(walker, x, dim=-1):
    from .layout import chunk

    value, gate = chunk(walker, x, 2, dim)
    gate = walker.graph.unary("sigmoid", walker.tensor(gate))
    return walker.graph.binary("mul", walker.tensor(value), gate)


def _dims(value: Value, dims) -> list[int]:
    rank = len(value.dims)
    if dims is None or dims == []:
        return list(range(rank))
    dims = [dims] if isinstance(dims, int) else dims
    return sorted(wrap(d, rank) for d in dims)


def _reduce(walker, kind: str, x, dims, keep: bool) -> tuple[Value, int]:
    """With the number of elements in each sum. Of what is repeated each is a term."""
    value = walker.tensor(x)
    dims = _dims(value, dims)
    count = math.prod(value.shape[d] for d in dims)
    return walker.graph.reduce(kind, value, dims, keep), count


@handles(aten.sum.dim_IntList, aten.sum.default)
def total(walker, x, dims=None, keepdim=False, dtype=None):
    value = walker.tensor(x)
    result, _ = _reduce(walker, "sum", value, dims, keepdim)
    times = math.prod(
        extent([axis for axis in value.dims[d]]) // extent(value.stored(value.dims[d]))
        for d in _dims(value, dims)
    )
    return scale(walker, result, float(times))


@handles(aten.mean.dim, aten.mean.default)
def mean_of(walker, x, dims=None, keepdim=False, dtype=None):
    """Of all there is it may be the loss."""
    value = walker.tensor(x)
    batch = walker.graph.batch.root()
    has_batch = any(axis.size.root() is batch for axis in leaves(flat(value.dims)))
    if has_batch and not walker.shape and len(_dims(value, dims)) == len(value.dims):
        return Mean(value)
    return mean(walker, value, dims, keepdim)


def mean(walker, x, dims=None, keepdim=False, dtype=None):
    value = walker.tensor(x)
    result, _ = _reduce(walker, "sum", value, dims, keepdim)
    count = math.prod(extent(value.stored(value.dims[d])) for d in _dims(value, dims))
    return scale(walker, result, 1.0 / count)


@handles(aten.amax.default)
def largest(walker, x, dims=None, keepdim=False):
    return _reduce(walker, "max", x, dims, keepdim)[0]


@handles(aten.amin.default)
def least(walker, x, dims=None, keepdim=False):
    return neg(walker, largest(walker, neg(walker, x), dims, keepdim))


@handles(aten.max.dim)
def max_dim(walker, x, dim, keepdim=False):
    """The second result, where the maximum is, can only be left unused."""
    return [largest(walker, x, dim, keepdim), None]


@handles(aten.var.correction)
def variance(walker, x, dim=None, correction=1, keepdim=False):
    value = walker.tensor(x)
    centred = walker.graph.binary("sub", value, mean(walker, value, dim, True))
    count = math.prod(value.shape[d] for d in _dims(value, dim))
    squares = walker.graph.binary("mul", centred, centred)
    average = mean(walker, squares, dim, keepdim)
    correction = 1 if correction is None else correction
    return scale(walker, average, count / (count - correction))


def root(walker, x) -> Value:
    """The square root of a sum of squares: where all are 0 it has the gradient 0."""
    value = walker.tensor(x)
    is_zero = equal_to(walker, value, 0.0)
    result = walker.graph.unary("sqrt", walker.graph.binary("add", value, is_zero))
    return walker.graph.binary("mul", result, inverted(walker, is_zero))


@handles(aten.std.correction)
def deviation(walker, x, dim=None, correction=1, keepdim=False):
    return root(walker, variance(walker, x, dim, correction, keepdim))


@handles(aten.linalg_vector_norm.default)
def vector_norm(walker, x, order=2, dim=None, keepdim=False, dtype=None):
    if order == 1:
        return total(walker, absolute(walker, x), dim, keepdim)
    if order == math.inf:
        return largest(walker, absolute(walker, x), dim, keepdim)
    if order != 2:
        raise NotExpressible(f"a norm of order {order}")
    return root(walker, total(walker, square(walker, x), dim, keepdim))


@handles(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def where(walker, condition, x, y):
    """Hidden scores are a mask. A choice by computed numbers, which are 0 and 1, is a sum
    of products."""
    if not _is_constant(condition):
        mask = walker.tensor(condition)
        rest = inverted(walker, mask)
        parts = [_finite(walker, z) for z in (x, y)]
        return walker.graph.binary(
            "add",
            walker.graph.binary("mul", mask, parts[0]),
            walker.graph.binary("mul", rest, parts[1]),
        )
    for value, other, kept in ((x, y, condition), (y, x, ~condition)):
        number = walker.scalar(other) if _is_constant(other) else None
        if number is None or number > HIDDEN or not isinstance(value, Value):
            continue
        # A row of which nothing is left has equal scores.
        if bool(kept.any(-1).all()):
            mask = torch.zeros(kept.shape).masked_fill(~kept, number)
            return lazy.Masked(value, mask)
    kept = [_mask(walker, value, mask) for value, mask in ((x, condition), (y, ~condition))]
    return add(walker, *kept)


def _finite(walker, value) -> Value:
    """Infinity times 0 would be no number."""
    number = walker.scalar(value) if _is_constant(value) else None
    if number is None:
        return walker.tensor(value)
    return walker.graph.fill(min(max(number, -LARGE), LARGE))


def _mask(walker, value, mask: torch.Tensor):
    if _is_constant(value):
        value = value if isinstance(value, torch.Tensor) else torch.tensor(value)
        return torch.where(mask, value.to(torch.float32), torch.zeros(()))
    return walker.graph.binary("mul", walker.tensor(value), walker.constant(mask.float()))


@handles(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(walker, x, mask, number):
    if isinstance(mask, torch.Tensor):
        return where(walker, ~mask, x, number)
    return where(walker, mask, number, x)
