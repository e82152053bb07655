# ===- rotary.py - Rotary embedding, by its numbers -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Recognises rotary embedding (Su et al. 2021) in a sum of elements times constants.

However it is written, it is x · C + (the halves of x exchanged) · D with two tables of
numbers. From the second position the frequencies are read, from these theta, and then
all numbers of both tables are compared."""

import dataclasses
import hashlib
import math

import torch

from . import slices
from .axes import leaves
from .graph import Value
from .lazy import Mix, Term

# Tables are computed in fp32: a product of position and frequency is off by 2^-24 of
# itself, cosine and sine by as much as that, and by 2^-24 of 1.
_RELATIVE = 2.0**-22
_ABSOLUTE = 1e-6


def settle(walker, value):
    """`nn.rope` as soon as it is one: what follows is about all of it."""
    if not isinstance(value, Mix) or len(value.terms) != 2:
        return value
    return make(walker, value) or make(walker, narrow(walker, value)) or value


def narrow(walker, mix: Mix) -> Mix:
    """Of the part of the tensor alone that it has all elements of."""
    indices = torch.cat([t.index.flatten() for t in mix.terms])
    low, high = int(indices.min()), int(indices.max()) + 1
    if (low, high) == (0, mix.base.shape[-1]) or len(indices.unique()) < high - low:
        return mix
    base = slices.cut(walker, mix.base, len(mix.base.dims) - 1, low, high)
    terms = (dataclasses.replace(t, index=t.index - low) for t in mix.terms)
    return Mix(base, tuple(terms))


def make(walker, mix: Mix) -> Value | None:
    """`nn.rope`, if that is what `mix` is."""
    tables = _find_tables(walker, mix)
    if tables is None:
        return None
    cosines, sines = tables
    half = cosines.shape[1] // 2
    factor = math.hypot(float(cosines[1, 0]), float(sines[1, half]))
    if not factor:
        return None
    cosines, sines = cosines / factor, sines / factor
    key = tuple(
        hashlib.sha256(t.contiguous().numpy().tobytes()).digest() for t in (cosines, sines)
    )
    found = walker.remember(("rope", *key), None, lambda: _find(cosines, sines))
    if found is None:
        return None
    value = mix.base
    if abs(factor - 1) > _ABSOLUTE:
        value = walker.graph.unary("scale", value, by=factor)
    theta, scaling = found
    return rotate(walker.graph, value, theta, scaling)


def rotate(graph, value: Value, theta: float, scaling) -> Value:
    """The dimension after the batch has to be the position, and the last is rotated."""
    order = leaves(value.op.order)
    ends = [graph.batch.root(), graph.sequence.root()]
    head = [axis for end in ends for axis in order if axis.size.root() is end]
    last = leaves(value.dims[-1])
    rest = [axis for axis in order if axis not in head and axis not in last]
    attrs = {"theta": theta, "scaling": scaling}
    return graph.add("rope", [value], value.dims, [*head, *rest, *last], **attrs)


def _find_tables(walker, mix: Mix):
    """The factors of an element itself and of its counterpart in the other half, by
    position and element."""
    size = mix.base.shape[-1]
    place = _sequence_dim(walker.graph, mix.base)
    if place is None or len(mix.terms) != 2 or mix.tail != [size] or size % 2:
        return None
    own = torch.arange(size)
    other = own.roll(size // 2)
    terms = {tuple(t.index.tolist()): t for t in mix.terms}
    found = [terms.get(tuple(x.tolist())) for x in (own, other)]
    if None in found:
        found = _exchanged(mix.terms, own, other)
    if found is None:
        return None
    tables = [_table(t, mix.shape, place) for t in found]
    return None if any(t is None for t in tables) else tables


def _exchanged(terms, own: torch.Tensor, other: torch.Tensor):
    """Where terms take elements of both kinds, the one the first half as the other
    the second, they are sorted by kind."""
    a, b = terms
    first = a.index == own
    if not torch.equal(torch.where(first, a.index, b.index), own):
        return None
    if not torch.equal(torch.where(first, b.index, a.index), other):
        return None
    x, y = torch.broadcast_tensors(a.factor.double(), b.factor.double())
    return (
        Term(own, torch.where(first, x, y)),
        Term(other, torch.where(first, y, x)),
    )


def _sequence_dim(graph, value: Value) -> int | None:
    wanted = graph.sequence.root()
    for i, dim in enumerate(value.dims):
        if [axis.size.root() for axis in leaves(dim)] == [wanted]:
            return i
    return None


def _table(term: Term, shape: list[int], place: int) -> torch.Tensor | None:
    """[position, element], if it is the same along all other dimensions."""
    factor = term.factor.double()
    factor = factor.reshape(*[1] * (len(shape) - factor.dim()), *factor.shape)
    for dim in range(len(shape) - 1):
        if dim != place and factor.shape[dim] > 1:
            first = factor.narrow(dim, 0, 1)
            if not torch.equal(first.expand_as(factor), factor):
                return None
            factor = first
    factor = factor.expand(
        *[shape[i] if i in (place, len(shape) - 1) else 1 for i in range(len(shape))]
    )
    table = factor.reshape(shape[place], shape[-1])
    return None if len(table) < 2 or torch.equal(table[0], table[1]) else table


def _find(cosines: torch.Tensor, sines: torch.Tensor):
    """Theta and scaling of tables [position, element]."""
    half = cosines.shape[1] // 2
    halves = torch.equal(cosines[:, :half], cosines[:, half:])
    if not halves or not torch.equal(sines[:, :half], -sines[:, half:]):
        return None
    return _recognise(cosines[:, :half], sines[:, half:])


def _recognise(cosines: torch.Tensor, sines: torch.Tensor):
    """Theta and scaling of tables [position, frequency]."""
    frequencies = torch.atan2(sines[1], cosines[1])
    if bool((frequencies <= 0).any()):
        return None
    for theta, scaling in _candidates(frequencies):
        if _agrees(_frequencies(theta, scaling, len(frequencies)), cosines, sines):
            return theta, scaling
    return None


def _candidates(frequencies: torch.Tensor):
    """Plain ones, then all divided by a factor, then as in Llama 3."""
    count = len(frequencies)
    if count == 1:
        # Of one frequency theta is any number, and the frequency 1 / factor.
        first = float(frequencies[0])
        yield 10000.0, None if abs(first - 1) < _ABSOLUTE else _linear(1 / first)
        return
    first, second, last = (float(frequencies[i]) for i in (0, 1, -1))
    for theta in _nice((first / last) ** (count / (count - 1))):
        yield theta, None if abs(first - 1) < 1e-5 else _linear(next(_nice(1 / first)))
    for theta in _nice((first / second) ** count):
        scaling = _llama3(theta, frequencies)
        if scaling:
            yield theta, scaling


def _nice(number: float):
    """What a person would have written, then the number itself."""
    for digits in (1, 2, 3, 4, 6):
        rounded = float(f"{number:.{digits - 1}e}")
        if abs(rounded - number) < 1e-3 * number:
            yield rounded
    yield number


def _linear(factor: float) -> dict:
    """All waves are longer than two positions, and so count as long."""
    return {"factor": factor, "low": 1.0, "high": 2.0, "original": 1}


def _llama3(theta: float, frequencies: torch.Tensor) -> dict | None:
    """Long waves are divided by a factor, short ones kept, those between blended by
    their length. Two of these tell how; where there are none, any bounds will do."""
    count = len(frequencies)
    plain = _frequencies(theta, None, count)
    ratios = frequencies / plain
    factor = next(_nice(1 / float(ratios[-1])))
    if factor <= 1 or abs(float(ratios[0]) - 1) > 1e-4:
        return None
    low = 1.0
    between = [
        (float(p), (float(r) - 1 / factor) / (1 - 1 / factor))
        for p, r in zip(plain, ratios)
        if 1 / factor * (1 + 1e-3) < r < 1 - 1e-4
    ]
    if len(between) >= 2:
        (p, x), (q, y) = between[0], between[-1]
        slope = (x - y) / (p - q)
        high = low + 1 / (slope * p - x)
        original = slope * 2 * math.pi * (high - low)
    else:
        kept = float(plain[ratios > 1 - 1e-4][-1])
        divided = float(plain[ratios < 1 / factor * (1 + 1e-3)][0])
        if between:
            return None
        original = 2 * math.pi / math.sqrt(kept * divided)
        high = low * (1 + 1e-6)
    high, original = next(_nice(high)), round(original)
    return {"factor": factor, "low": low, "high": high, "original": original}


def _frequencies(theta: float, scaling: dict | None, count: int) -> torch.Tensor:
    plain = theta ** (-torch.arange(count, dtype=torch.float64) / count)
    if scaling is None:
        return plain
    span = scaling["high"] - scaling["low"]
    blend = (scaling["original"] * plain / (2 * math.pi) - scaling["low"]) / span
    blend = blend.clamp(0, 1)
    return plain * (blend + (1 - blend) / scaling["factor"])


def _agrees(frequencies, cosines, sines) -> bool:
    positions = torch.arange(len(cosines), dtype=torch.float64)[:, None]
    angles = positions * frequencies
    bound = _ABSOLUTE + _RELATIVE * angles
    worst = torch.maximum((angles.cos() - cosines).abs(), (angles.sin() - sines).abs())
    return bool((worst <= bound).all())
