# ===- lazy.py - Values that wait for what they are part of -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Values that are not made where PyTorch computes them, since what they become depends
on who uses them: a part of a parameter, elements of a tensor times constants (rotary
embedding, in whatever way it is written), scores behind a mask, the loss."""

import dataclasses

import torch

from ..errors import NotExpressible
from . import slices
from .axes import Axis, Size, extent, leaves, reshape
from .graph import Box, Graph, Value


class Lazy:
    """Something that `make` turns into a value."""

    def make(self, walker) -> Value:
        raise NotImplementedError


def repeat(graph: Graph, value: Value, shape: list[int]) -> Value:
    """Along dimensions of 1, and further ones in front; nothing is stored."""
    dims = [[]] * (len(shape) - len(value.dims)) + list(value.dims)
    return value.seen(
        [
            [Axis(Size(count))] if count != 1 and extent(dim) == 1 else dim
            for dim, count in zip(dims, shape)
        ]
    )


@dataclasses.dataclass(frozen=True)
class Part(Lazy):
    """A box of a parameter that nobody has read yet."""

    box: Box
    trained: bool

    def make(self, walker) -> Value:
        return walker.graph.read(self.box, self.trained)


@dataclasses.dataclass(frozen=True)
class Term:
    """For each element of the trailing dimensions which element of the last
    dimension of the base it is, times `factor`, which repeats to all dimensions."""

    index: torch.Tensor
    factor: torch.Tensor

    @property
    def plain(self) -> float | None:
        """The factor, if it is one number."""
        first = self.factor.flatten()[0]
        return float(first) if bool((self.factor == first).all()) else None

    @property
    def is_range(self) -> bool:
        flat = self.index.flatten()
        return bool((flat == flat[0] + torch.arange(len(flat))).all())


@dataclasses.dataclass(frozen=True)
class Mix(Lazy):
    """A sum of terms, each of elements of the last dimension of `base`. The dimensions
    are those of the base but the last, and then those of the indices."""

    base: Value
    terms: tuple[Term, ...]

    @staticmethod
    def of(value) -> "Mix":
        if isinstance(value, Mix):
            return value
        return Mix(value, (Term(torch.arange(value.shape[-1]), torch.ones(())),))

    @property
    def is_slice(self) -> bool:
        """Whether it is neighbours of the last dimension as they are."""
        term, *others = self.terms
        plain = not others and term.is_range and term.plain is not None
        return plain and len(self.tail) == 1 and self.tail[0] > 1

    @property
    def tail(self) -> list[int]:
        return list(self.terms[0].index.shape)

    @property
    def shape(self) -> list[int]:
        return self.base.shape[:-1] + self.tail

    def matches(self, other) -> bool:
        """Whether both are of elements of one tensor."""
        if not isinstance(other, Mix) or self.base.op is not other.base.op:
            return False
        return [leaves(x) for x in self.base.dims] == [leaves(x) for x in other.base.dims]

    def taken(self, function) -> "Mix":
        """Other elements: `function` rearranges a tensor of the tail's shape. Factors
        that vary along the tail go with them."""
        terms = []
        rank = len(self.tail)
        for term in self.terms:
            factor = term.factor
            if rank and factor.dim() and any(x != 1 for x in factor.shape[-rank:]):
                head = factor.shape[: max(factor.dim() - rank, 0)]
                full = factor.expand(*head, *self.tail)
                rows = [function(row) for row in full.reshape(-1, *self.tail)]
                factor = torch.stack(rows).reshape(*head, *rows[0].shape)
            elif factor.dim():
                factor = factor.reshape(factor.shape[: factor.dim() - rank] or ())
                tail = function(term.index).dim()
                factor = (
                    factor.reshape(*factor.shape, *[1] * tail) if factor.dim() else factor
                )
            terms.append(Term(function(term.index), factor))
        return Mix(self.base, tuple(terms))

    def times(self, factor: torch.Tensor) -> "Mix":
        factor = factor.double()
        terms = (
            dataclasses.replace(t, factor=t.factor.double() * factor) for t in self.terms
        )
        return Mix(self.base, tuple(terms))

    def plus(self, other: "Mix") -> "Mix":
        """Terms of the same elements are added up."""
        terms = list(self.terms)
        for term in other.terms:
            for i, known in enumerate(terms):
                if torch.equal(known.index, term.index):
                    terms[i] = Term(known.index, known.factor + term.factor)
                    break
            else:
                terms.append(term)
        return Mix(self.base, tuple(terms))

    def absorbed(self) -> "Mix":
        """The same with the dimension before the trailing ones as one of them."""
        *lead, outer, inner = self.base.dims
        base = self.base.seen([*lead, [*outer, *inner]])
        rows = torch.arange(extent(outer)) * extent(inner)
        terms = (
            Term(rows.reshape(-1, *[1] * t.index.dim()) + t.index, t.factor)
            for t in self.terms
        )
        return Mix(base, tuple(terms))

    def make(self, walker) -> Value:
        from . import rotary

        mix = rotary.narrow(walker, self)
        result = None
        for term in mix.terms:
            part = _select(walker, mix.base, term)
            result = walker.graph.binary("add", result, part) if result else part
        return result


@dataclasses.dataclass(frozen=True)
class Complex(Lazy):
    """Pairs of neighbours as complex numbers: rotary embedding is written so, too."""

    real: Mix
    imaginary: Mix

    @property
    def shape(self) -> list[int]:
        return self.real.shape

    def times(self, factor: torch.Tensor) -> "Complex":
        real, imaginary = factor.real, factor.imag
        return Complex(
            self.real.times(real).plus(self.imaginary.times(-imaginary)),
            self.real.times(imaginary).plus(self.imaginary.times(real)),
        )

    def make(self, walker) -> Value:
        raise NotExpressible("arithmetic with complex numbers but products with constants")


def _select(walker, base: Value, term: Term) -> Value:
    flat = term.index.flatten()
    last = len(base.dims) - 1
    if term.is_range:
        value = slices.cut(walker, base, last, int(flat[0]), int(flat[-1]) + 1)
    else:
        value = slices.take_every(walker, base, flat) or slices.pick(
            walker, base, last, flat
        )
    value = reshape_last(value, list(term.index.shape))
    if term.plain is not None:
        if term.plain == 1:
            return value
        return walker.graph.unary("scale", value, by=term.plain)
    return walker.graph.binary("mul", value, walker.constant(term.factor))


def reshape_last(value: Value, shape: list[int]) -> Value:
    return value.seen([*value.dims[:-1], *reshape([value.dims[-1]], shape)])


def join(walker, parts: list, dim: int):
    """A concatenation along the last dimension: of elements of one tensor these
    elements, else a value."""
    mixes = [Mix.of(x) for x in parts]
    first = mixes[0]
    if not all(first.matches(x) and len(x.tail) == 1 for x in mixes):
        return slices.concatenate(walker, [walker.tensor(x) for x in parts], dim)
    count = max(len(x.terms) for x in mixes)
    terms = []
    for i in range(count):
        of = [x.terms[i] if i < len(x.terms) else _nothing(x) for x in mixes]
        index = torch.cat([t.index for t in of])
        rank = max([1, *(t.factor.dim() for t in of)])
        head = [1] * (rank - 1)
        factors = [
            t.factor.double().expand(
                *torch.broadcast_shapes(t.factor.shape, (*head, len(t.index)))
            )
            for t in of
        ]
        head = torch.broadcast_shapes(*(f.shape[:-1] for f in factors))
        factor = torch.cat([f.expand(*head, f.shape[-1]) for f in factors], -1)
        terms.append(Term(index, factor))
    return Mix(first.base, tuple(terms))


def _nothing(mix: Mix) -> Term:
    return Term(mix.terms[0].index, torch.zeros(()))


@dataclasses.dataclass(frozen=True)
class Shifted(Lazy):
    """Tokens, targets or logits without their first or last positions, in whatever
    shape. Only a loss takes it as it is."""

    value: Value
    dim: int
    low: int
    high: int

    def make(self, walker) -> Value:
        return slices.cut(walker, self.value, self.dim, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class Padded(Lazy):
    """Targets with an ignored one behind the last."""

    value: Value

    def make(self, walker) -> Value:
        raise NotExpressible("padding of anything but targets that are shifted")


@dataclasses.dataclass(frozen=True)
class Masked(Lazy):
    """Scores to which a constant is added that hides some of them."""

    scores: Value
    mask: torch.Tensor

    def make(self, walker) -> Value:
        return walker.graph.binary("add", self.scores, walker.constant(self.mask))


@dataclasses.dataclass(frozen=True)
class Weights(Lazy):
    """A softmax over the last dimension, and the dropout that it goes through."""

    scores: Value | Masked
    dropout: float = 0.0

    def make(self, walker) -> Value:
        from .attention import softmax

        scores = walker.tensor(self.scores)
        value = softmax(walker.graph, scores, len(scores.dims) - 1)
        return walker.dropout(value, self.dropout)


@dataclasses.dataclass(frozen=True)
class LogWeights(Lazy):
    """The logarithm of a softmax over the last dimension."""

    logits: object

    def make(self, walker) -> Value:
        """Not of the softmax, which may be zero."""
        graph, logits = walker.graph, walker.tensor(self.logits)
        last = [len(logits.dims) - 1]
        top = graph.unary("stop_gradient", graph.reduce("max", logits, last, True))
        small = graph.binary("sub", logits, top)
        total = graph.reduce("sum", graph.unary("exp", small), last, True)
        return graph.binary("sub", small, graph.unary("log", total))


@dataclasses.dataclass(frozen=True)
class Mean(Lazy):
    """The mean of all elements of what has a batch, times a factor."""

    value: Value
    factor: float = 1.0

    def times(self, factor: float) -> "Mean":
        return Mean(self.value, self.factor * factor)

    def make(self, walker) -> Value:
        from .arithmetic import mean, scale

        return scale(walker, mean(walker, self.value), self.factor)


@dataclasses.dataclass(frozen=True)
class Loss(Lazy):
    """A sum of means of cross-entropies: logits, targets, the target that is ignored,
    and the factor of each; and of other means. Or `ratio`, a sum by the number that it is
    a mean over."""

    terms: tuple[tuple[Value, Value, int, float], ...] = ()
    means: tuple[Mean, ...] = ()
    ratio: tuple[Value, Value] | None = None

    @staticmethod
    def of(x: "Loss | Mean") -> "Loss":
        return Loss(means=(x,)) if isinstance(x, Mean) else x

    def times(self, factor: float) -> "Loss":
        return Loss(
            tuple((*t[:3], t[3] * factor) for t in self.terms),
            tuple(x.times(factor) for x in self.means),
        )

    def plus(self, other: "Loss") -> "Loss":
        return Loss(self.terms + other.terms, self.means + other.means)

    def make(self, walker) -> Value:
        raise NotExpressible("arithmetic with the loss but sums and factors")
