# ===- fuzz/module_text.py - What drawn modules have in common -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""The beginning of each drawn file, the classes and functions that its modules use, and
how a class is written."""

HEAD = """import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, HIDDEN, HEADS, SIZE = {vocabulary}, {hidden}, {heads}, {size}
POSITIONS = {positions}
"""


def write_class(name: str, base: str, init: list[str], arguments: str, body: list[str]) -> str:
    lines = [
        "", "", f"class {name}({base}):", "    def __init__(self):",
        "        super().__init__()", *(f"        {x}" for x in init), "",
        f"    def forward(self, {arguments}):", *(f"        {x}" for x in body),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


HELPERS = '''

class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class UnitNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        scale = torch.sqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-6)
        return (x / scale).float() * (1 + self.weight)


class OwnNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.gain * (x - mean) / torch.sqrt(var + 1e-5) + self.bias


def turn(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def rotate_pairs(x, angles):
    a, b = x[..., ::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


def rotate_complex(x, angles):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def sines(length):
    table = torch.zeros(length, HIDDEN)
    steps = torch.exp(torch.arange(0, HIDDEN, 2) * (-math.log(10000.0) / HIDDEN))
    angles = torch.arange(length)[:, None] * steps
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles[:, : HIDDEN // 2].cos()
    return table
'''
