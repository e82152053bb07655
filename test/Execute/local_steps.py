#===- local_steps.py - What sites do, in numpy ------------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Optimizers of a site and what sites do every so many steps, written from the papers,
in double precision. Weights are arrays by name; they are changed where they are."""

import dataclasses
import functools
import pathlib

import numpy

from harness import write_safetensors


class Sgd:
    """Without momentum."""

    def __init__(self, rate: float):
        self.rate = rate

    def step(self, weights, gradients) -> None:
        for name, gradient in gradients.items():
            weights[name] = weights[name] - self.rate * gradient


class AdamW:
    """Kingma, Ba 2015, algorithm 1; no decay (Loshchilov, Hutter 2019)."""

    def __init__(self, rate: float, epsilon: float, beta1=0.9, beta2=0.999):
        self.rate, self.epsilon = rate, epsilon
        self.beta1, self.beta2 = beta1, beta2
        self.count = 0
        self.first: dict = {}
        self.second: dict = {}

    def step(self, weights, gradients) -> None:
        self.count += 1
        for name, g in gradients.items():
            m = self.first.get(name, 0.0) * self.beta1 + (1 - self.beta1) * g
            v = self.second.get(name, 0.0) * self.beta2 + (1 - self.beta2) * g * g
            self.first[name], self.second[name] = m, v
            m = m / (1 - self.beta1**self.count)
            v = v / (1 - self.beta2**self.count)
            weights[name] = weights[name] - self.rate * m / (
                numpy.sqrt(v) + self.epsilon
            )


def mean(sites: list[dict]) -> dict:
    return {name: sum(site[name] for site in sites) / len(sites) for name in sites[0]}


class Average:
    """Local SGD (Stich 2019): each site goes on from the mean of all."""

    def agree(self, sites: list[dict]) -> None:
        agreed = mean(sites)
        for site in sites:
            site.update(agreed)


class DiLoCo:
    """Douillard et al. 2023, algorithm 1, whose outer optimizer is SGD with
    Nesterov's momentum; that is PyTorch's formula."""

    def __init__(self, start: dict, rate: float, momentum: float):
        self.anchor = dict(start)
        self.rate, self.momentum = rate, momentum
        self.moved: dict = {}

    def agree(self, sites: list[dict]) -> None:
        for name, anchor in self.anchor.items():
            gradient = sum(anchor - site[name] for site in sites) / len(sites)
            moved = self.momentum * self.moved.get(name, 0.0) + gradient
            self.moved[name] = moved
            self.anchor[name] = anchor - self.rate * (gradient + self.momentum * moved)
        for site in sites:
            site.update(self.anchor)


class Streaming:
    """Douillard et al. 2025, algorithm 2: fragments of layers in strides, each with an
    outer optimizer of its own. Of `every` steps, fragment p is sent in the p-th of equal
    parts of all but the last `delay`, is taken `delay` steps later, and is mixed with
    what a site has come to by then. Called after each step."""

    def __init__(self, start: dict, every, fragments, delay, mix, rate, momentum):
        self.every, self.fragments, self.delay = every, fragments, delay
        self.mix, self.rate, self.momentum = mix, rate, momentum
        self.anchor, self.moved = dict(start), {}
        self.sent: dict[int, dict] = {}  # by fragment: the sums that are on their way
        self.step = 0

    def fragment(self, name: str) -> int:
        layers = [int(word) for word in name.split(".") if word.isdigit()]
        return layers[0] % self.fragments if layers else self.fragments - 1

    def agree(self, sites: list[dict]) -> None:
        self.step += 1
        for p in range(self.fragments):
            sends = (p + 1) * (self.every - self.delay) // self.fragments
            if self.step % self.every == sends % self.every:
                self.sent[p] = {
                    name: sum(anchor - site[name] for site in sites) / len(sites)
                    for name, anchor in self.anchor.items()
                    if self.fragment(name) == p
                }
            if self.step % self.every == (sends + self.delay) % self.every:
                self.take(self.sent.pop(p), sites)

    def take(self, sums: dict, sites: list[dict]) -> None:
        for name, gradient in sums.items():
            moved = self.momentum * self.moved.get(name, 0.0) + gradient
            self.moved[name] = moved
            anchor = self.anchor[name] - self.rate * (gradient + self.momentum * moved)
            self.anchor[name] = anchor
            for site in sites:
                site[name] = self.mix * site[name] + (1 - self.mix) * anchor


class Middle:
    """The mean of each element without the `drop` largest and smallest values: the
    trimmed mean and, with as many as there can be, the coordinate-wise median (Yin et
    al. 2018)."""

    def __init__(self, drop: int | None):
        self.drop = drop

    def agree(self, sites: list[dict]) -> None:
        drop = (len(sites) - 1) // 2 if self.drop is None else self.drop
        for name in sites[0]:
            ordered = numpy.sort([site[name] for site in sites], axis=0)
            middle = ordered[drop : len(sites) - drop].mean(axis=0)
            for site in sites:
                site[name] = middle.copy()


class Clipping:
    """Centred clipping (Karimireddy, He, Jaggi 2021, equation CC): what a site has come
    to goes into the mean at most `radius` away from what all had before. One iteration
    from there, as the paper does it. What is no number is left out."""

    def __init__(self, start: dict, radius: float, rate: float):
        self.anchor, self.radius, self.rate = dict(start), radius, rate
        self.norms: list[list[float]] = []  # of each call

    def agree(self, sites: list[dict]) -> None:
        moved = [{k: site[k] - v for k, v in self.anchor.items()} for site in sites]
        with numpy.errstate(invalid="ignore", over="ignore"):
            norms = [
                float(numpy.sqrt(sum((x.astype(float) ** 2).sum() for x in own.values())))
                for own in moved
            ]
        self.norms.append(norms)
        factors = [min(1.0, self.radius / norm) for norm in norms]
        for name, anchor in self.anchor.items():
            kept = [
                factor * own[name]
                for factor, own, norm in zip(factors, moved, norms)
                if numpy.isfinite(norm)
            ]
            self.anchor[name] = anchor + self.rate * sum(kept, 0 * anchor) / len(sites)
        for site in sites:
            site.update(self.anchor)


def make_graph(name: str, count: int) -> list[numpy.ndarray]:
    """The mixing matrices of a period, from the definitions."""
    hops = max(0, (count - 1).bit_length())
    eye, index = numpy.eye(count), numpy.arange(count)

    def shift(distance: int) -> numpy.ndarray:
        """Row i takes from i - distance."""
        return eye[(index - distance) % count]

    if name == "ring":
        return [(eye + shift(1) + shift(-1)) / 3]
    if name == "exponential":
        return [(eye + sum(shift(2**k) for k in range(hops))) / (hops + 1)]
    if name == "one-peer":
        return [(eye + shift(2**k)) / 2 for k in range(max(1, hops))]
    if name == "complete":
        return [numpy.full((count, count), 1 / count)]
    if name == "grid":
        rows = max(x for x in range(1, count + 1) if count % x == 0 and x * x <= count)
        row, column = numpy.divmod(index, count // rows)
        apart = abs(row[:, None] - row) + abs(column[:, None] - column)
        near = apart == 1
        degree = near.sum(axis=1)
        w = near / (1 + numpy.maximum(degree[:, None], degree))
        return [w + numpy.diag(1 - w.sum(axis=1))]
    parts = pathlib.Path(name).read_text().strip().split("\n\n")
    return [numpy.loadtxt(part.splitlines()) for part in parts]


def contraction(period: list[numpy.ndarray]) -> float:
    """The second largest singular value of what a period does."""
    product = functools.reduce(lambda whole, w: w @ whole, period)
    values = numpy.linalg.svd(product - 1 / len(product), compute_uv=False)
    return float(values[0])


class Gossip:
    """Adapt then combine: D-PSGD (Lian et al. 2017) with the matrices of a period in
    turn, and now and then the mean over all (Chen et al. 2021, "Gossip-PGA")."""

    def __init__(self, graph: str, average: int):
        self.graph, self.average = graph, average
        self.count = 0

    def agree(self, sites: list[dict]) -> None:
        self.count += 1
        if self.average and self.count % self.average == 0:
            return Average().agree(sites)
        period = make_graph(self.graph, len(sites))
        w = period[(self.count - 1) % len(period)]
        for name in sites[0]:
            mixed = numpy.tensordot(w, numpy.stack([x[name] for x in sites]), axes=1)
            for site, values in zip(sites, mixed):
                site[name] = values


@dataclasses.dataclass
class Scheme:
    name: str
    subject: str  # behind the colon: steps, or a graph
    options: dict[str, float]

    @property
    def every(self) -> int:
        """Steps from one call to the next."""
        if self.name == "streaming":
            return 1
        return int(self.options.get("every", 1) if self.name == "gossip" else self.subject)

    def begin(self, start: dict):
        if self.name == "average":
            return Average()
        if self.name == "gossip":
            return Gossip(self.subject, int(self.options.get("average", 0)))
        if self.name in ("median", "trimmed"):
            drop = int(self.options.get("drop", 1)) if self.name == "trimmed" else None
            return Middle(drop)
        if self.name == "clip":
            return Clipping(start, self.options["radius"], self.options.get("rate", 1.0))
        rate, momentum = self.options.get("rate", 0.7), self.options.get("momentum", 0.9)
        if self.name == "streaming":
            fragments = int(self.options.get("fragments", 2))
            delay = int(self.options.get("delay", 1))
            mix = self.options.get("mix", 0.5)
            every = int(self.subject)
            return Streaming(start, every, fragments, delay, mix, rate, momentum)
        return DiLoCo(start, rate, momentum)


def parse(text: str) -> Scheme:
    """As --outer has it."""
    name, rest = text.split(":", 1)
    subject, *options = rest.split(",")
    given = dict(option.split("=") for option in options)
    return Scheme(name, subject, {key: float(x) for key, x in given.items()})


def write(path: pathlib.Path, weights: dict) -> None:
    """As fp32."""
    header, data = {}, b""
    for name, values in weights.items():
        content = values.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    write_safetensors(path, header, data)
