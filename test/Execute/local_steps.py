#===- local_steps.py - What sites do, in numpy ------------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Optimizers of a site and what sites do every so many steps, written from the papers,
in double precision. Weights are arrays by name; they are changed where they are."""

import dataclasses
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


@dataclasses.dataclass
class Scheme:
    name: str
    every: int
    rate: float = 0.7
    momentum: float = 0.9

    def begin(self, start: dict):
        if self.name == "average":
            return Average()
        return DiLoCo(start, self.rate, self.momentum)


def parse(text: str) -> Scheme:
    """As --outer has it."""
    name, rest = text.split(":")
    every, *options = rest.split(",")
    given = dict(option.split("=") for option in options)
    return Scheme(name, int(every), **{key: float(x) for key, x in given.items()})


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
