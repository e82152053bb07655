#===- corrections.py - Steps that sites correct, in numpy -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What sites do that know how their gradients differ, written from the papers, with the
variates and trackers that these have. Weights are arrays by name, in double precision.
`train` takes such a method or one of local_steps.py."""

import numpy

import local_steps


def combine(weights, arrays: list[dict]) -> list[dict]:
    """Of each row of a matrix, the sum of so much of each site's arrays."""
    return [
        {
            name: sum(w * array[name] for w, array in zip(row, arrays))
            for name in arrays[0]
        }
        for row in weights
    ]


def add(one: dict, other: dict, factor: float = 1.0) -> dict:
    return {name: one[name] + factor * other[name] for name in one}


def zeros(like: dict) -> dict:
    return {name: numpy.zeros_like(values) for name, values in like.items()}


class Plain:
    """A scheme of local_steps.py: what sites do between agreements is their own."""

    def __init__(self, scheme: local_steps.Scheme, start: dict, count: int):
        self.every, self.outer = scheme.every, scheme.begin(start)

    def move(self, site: int, weights: dict, gradient: dict, rate: float) -> dict:
        return add(weights, gradient, -rate)

    def agree(self, sites: list[dict], rate: float) -> list[dict]:
        self.outer.agree(sites)
        return sites


class Scaffold:
    """Karimireddy et al. 2020, algorithm 1 with option II, where all clients take part
    and the global rate is 1."""

    def __init__(self, scheme: local_steps.Scheme, start: dict, count: int):
        self.every, self.server = scheme.every, dict(start)
        self.variates = [zeros(start) for _ in range(count)]
        self.variate = zeros(start)

    def move(self, site: int, weights: dict, gradient: dict, rate: float) -> dict:
        direction = add(add(gradient, self.variates[site], -1), self.variate)
        return add(weights, direction, -rate)

    def agree(self, sites: list[dict], rate: float) -> list[dict]:
        count, renewed = len(sites), []
        for own, weights in zip(self.variates, sites):
            moved = add(self.server, weights, -1)
            renewed.append(
                add(add(own, self.variate, -1), moved, 1 / (self.every * rate))
            )
        for own, new in zip(self.variates, renewed):
            self.variate = add(self.variate, add(new, own, -1), 1 / count)
        self.variates = renewed
        moved = [add(weights, self.server, -1) for weights in sites]
        for own in moved:
            self.server = add(self.server, own, 1 / count)
        return [dict(self.server) for _ in sites]


class Tracking:
    """With one step between agreements DIGing in its adapt-then-combine form (Nedić,
    Olshevsky, Shi 2017; Xu et al. 2015): yᵢ = Σ wᵢⱼ yⱼ + gᵢ − gᵢ of the last step. With
    more of them K-GT (Liu et al. 2024, algorithm 1) of global rate 1."""

    def __init__(self, scheme: local_steps.Scheme, start: dict, count: int):
        self.every = int(scheme.options.get("every", 1))
        self.w = local_steps.make_graph(scheme.subject, count)
        self.begins = [dict(start) for _ in range(count)]
        self.trackers: list = [None] * count
        self.last: list = [None] * count
        self.corrections = [zeros(start) for _ in range(count)]
        self.rounds = 0

    def move(self, site: int, weights: dict, gradient: dict, rate: float) -> dict:
        if self.every > 1:
            return add(weights, add(gradient, self.corrections[site]), -rate)
        if self.last[site] is None:
            self.trackers[site] = gradient
        else:
            change = add(gradient, self.last[site], -1)
            self.trackers[site] = add(self.trackers[site], change)
        self.last[site] = gradient
        return add(weights, self.trackers[site], -rate)

    def agree(self, sites: list[dict], rate: float) -> list[dict]:
        w = self.w[self.rounds % len(self.w)]
        self.rounds += 1
        if self.every == 1:
            self.trackers = combine(w, self.trackers)
            return combine(w, sites)
        steps = [
            {name: x / (self.every * rate) for name, x in add(begin, end, -1).items()}
            for begin, end in zip(self.begins, sites)
        ]
        mixed = combine(w, steps)
        self.corrections = [
            add(add(own, step, -1), mean)
            for own, step, mean in zip(self.corrections, steps, mixed)
        ]
        ends = [
            add(begin, step, -self.every * rate)
            for begin, step in zip(self.begins, steps)
        ]
        self.begins = combine(w, ends)
        return [dict(own) for own in self.begins]


class AdaptWhileCommunicate:
    """θᵢ = Σ wᵢⱼ θⱼ less the steps that were taken from θᵢ (Lian et al. 2017)."""

    def __init__(self, scheme: local_steps.Scheme, start: dict, count: int):
        self.every = int(scheme.options.get("every", 1))
        self.w = local_steps.make_graph(scheme.subject, count)
        self.begins = [dict(start) for _ in range(count)]
        self.taken = [zeros(start) for _ in range(count)]
        self.rounds = 0

    def move(self, site: int, weights: dict, gradient: dict, rate: float) -> dict:
        self.taken[site] = add(self.taken[site], gradient, rate)
        return add(weights, gradient, -rate)

    def agree(self, sites: list[dict], rate: float) -> list[dict]:
        w = self.w[self.rounds % len(self.w)]
        self.rounds += 1
        mixed = combine(w, self.begins)
        self.begins = [add(x, taken, -1) for x, taken in zip(mixed, self.taken)]
        self.taken = [zeros(x) for x in self.taken]
        return [dict(x) for x in self.begins]


METHODS = {"scaffold": Scaffold, "tracking": Tracking, "awc": AdaptWhileCommunicate}


def train(outer: str, gradient, start: dict, count: int, steps: int, rate, beta=0.0):
    """The weights of each site after so many steps; `gradient(site, step, weights)`
    counts steps from 1, and so does `rate(step)`. With `beta` a step goes along the
    momentum of gradients, as PyTorch's SGD does."""
    scheme = local_steps.parse(outer)
    method = METHODS.get(scheme.name, Plain)(scheme, start, count)
    sites = [dict(start) for _ in range(count)]
    momenta: list = [None] * count
    for step in range(1, steps + 1):
        for site, weights in enumerate(sites):
            direction = gradient(site, step, weights)
            if momenta[site] is not None:
                direction = add(direction, momenta[site], beta)
            momenta[site] = direction
            sites[site] = method.move(site, weights, direction, rate(step))
        if step % method.every == 0:
            sites = method.agree(sites, rate(step))
    return sites
