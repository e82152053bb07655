#===- site_messages.py - Compressed messages in numpy -----*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What is left of a chunk by each compressor between sites, and what one agreement makes
of weights, anchors and errors: SparseLoCo (Sarfi et al. 2025), DiLoCo (Douillard et al.
2023) and its streaming form (2025), with the error feedback of Stich et al. 2018. In
fp32, in the order in which the papers write it."""

import math

import numpy

F = numpy.float32
# Elements of a chunk, and of how many one is sent, where nothing is given.
USUAL = {
    "int8": (256, 0), "int4": (256, 0), "e3m0": (256, 0), "sign": (4096, 0),
    "topk": (4096, 64), "topk2": (4096, 64),
}  # fmt: skip
BITS = {"int8": 8, "int4": 4, "e3m0": 4, "sign": 1, "topk": 32, "topk2": 2}


def levels(x, scale):
    """The nearest of 0 and scale · 2^-6 … scale, halfway the one closer to 0."""
    steps = numpy.array([0] + [2.0 ** (e - 7) for e in range(1, 8)], F)
    middles = numpy.array([2.0**-7] + [1.5 * 2.0 ** (e - 7) for e in range(1, 7)], F)
    above = numpy.abs(x)[:, None] > scale * middles
    return numpy.sign(x) * scale * steps[above.sum(axis=1)]


def largest(x, k):
    """Those of largest magnitude, of equal ones the first; no zeros."""
    order = sorted(numpy.flatnonzero(x), key=lambda i: (-abs(x[i]), i))
    return sorted(order[:k])


def said(name: str, x, k: int):
    """What a message says of a chunk."""
    m = numpy.abs(x).max()
    if name in ("int8", "int4"):
        most = F(2 ** (BITS[name] - 1) - 1)
        return numpy.rint(x * (most / (m + F(2.0**-100)))) * (m / most)
    if name == "e3m0":
        return levels(x, m)
    if name == "sign":
        mean = F(numpy.abs(x).astype(float).sum() / len(x))
        return numpy.where(x < 0, -mean, mean)
    kept, result = largest(x, k), numpy.zeros_like(x)
    if not kept:
        return result
    values = x[kept]
    if name == "topk2":
        size = numpy.where(numpy.abs(values) * F(3) > m * F(2), m, m / F(3))
        values = numpy.copysign(size, values)
    result[kept] = values
    return result


class Compression:
    def __init__(self, scheme: str, options: dict):
        usual = "topk2" if scheme == "sparseloco" else None
        self.name = options.get("compress", usual)
        self.chunk = int(options.get("chunk", USUAL[self.name][0]))
        share = USUAL[self.name][1]
        self.keep = int(options.get("k", max(1, self.chunk // share) if share else 0))
        self.decay = F(options.get("decay", 0.95 if scheme == "sparseloco" else 1))

    def send(self, x):
        """A parameter's numbers in row-major order, chunk by chunk."""
        flat, result = x.reshape(-1), numpy.empty(x.size, F)
        for begin in range(0, flat.size, self.chunk):
            part = slice(begin, begin + self.chunk)
            result[part] = said(self.name, flat[part], self.keep)
        return result.reshape(x.shape)

    def words(self, elements: int) -> int:
        """Of 32 bits: a whole number of chunks, each of a whole number of words."""
        sent, places = self.chunk, 0
        if self.keep:
            sent = self.keep
            position = math.ceil(self.keep * math.log2(self.chunk) / 32)
            places = min(position, self.chunk // 32)
        scale = self.name != "topk"
        codes = math.ceil(sent * BITS[self.name] / 32)
        return math.ceil(elements / self.chunk) * (places + scale + codes)


def add_up(compression, differences, errors):
    """The sum of what sites say of their differences; errors are changed."""
    total = F(0)
    for i, difference in enumerate(differences):
        v = difference + compression.decay * errors[i] if errors else difference
        told = compression.send(v)
        if errors:
            errors[i] = v - told
        total = total + told
    return total


def move(anchor, moved, total, count, rate, momentum):
    """The outer step: SGD with Nesterov's momentum."""
    gradient = total / F(count)
    if momentum:
        moved = F(momentum) * moved + gradient
        gradient = gradient + F(momentum) * moved
    return anchor - F(rate) * gradient, moved
