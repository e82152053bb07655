# ===- corners.py - Where functions have a corner -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Models whose gradients lie where two pieces of a function meet, and others of what
is rare."""

import torch
import torch.nn.functional as F
from torch import nn

from .custom import HIDDEN, POSITIONS, VOCABULARY, Model, causal, split_heads


class Zeros(nn.Module):
    """Functions where their pieces meet: the layers before them begin as zeros."""

    FUNCTIONS = (
        F.relu, F.relu6, torch.abs, F.selu, F.softplus, F.hardshrink,
        lambda x: x.clamp(min=0) - x.clamp(max=0) / 2,
        lambda x: x.clamp(0, 1) + torch.clamp(x, torch.zeros(HIDDEN), torch.ones(HIDDEN)),
        lambda x: F.leaky_relu(x, 0.1) + F.elu(x, 1.5) + F.celu(x, 0.5),
        lambda x: F.hardtanh(x, 0, 1) + F.hardswish(x + 3) / 4,
        lambda x: F.threshold(x, 0, 0) + F.prelu(x, torch.full((1,), 0.25)),
        lambda x: torch.maximum(x, torch.zeros(())) + F.relu(x) ** 1.5,
        lambda x: x + x.norm(dim=-1, keepdim=True) + x.std(-1, keepdim=True),
        lambda x: x + F.normalize(x, dim=-1) / 9,
    )  # fmt: skip

    def __init__(self):
        super().__init__()
        sizes = (HIDDEN, HIDDEN)
        self.first = nn.ModuleList([nn.Linear(*sizes) for _ in self.FUNCTIONS])
        self.second = nn.ModuleList([nn.Linear(*sizes) for _ in self.FUNCTIONS])
        for layer in self.first:
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        for function, first, second in zip(self.FUNCTIONS, self.first, self.second):
            x = x + second(function(first(x)))
        return x


class Corners(nn.Module):
    """Queries that see no key, scores times 0, powers of 0 and of negative numbers,
    constants of other types, a number that is learned as a product of vectors."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.size = nn.Parameter(torch.randn(2, HIDDEN) / 9)

    def forward(self, x):
        q, k, v = (split_heads(part, 4) for part in self.qkv(x).chunk(3, -1))
        before = torch.ones(x.shape[1], x.shape[1]).tril(-1).bool()
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=before)
        near = (k[..., 0] > 0.3)[:, :, None, :] & before
        seen = seen + F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        seen = seen + F.scaled_dot_product_attention(q, k, v, scale=0.0)
        seen = seen + (q @ k.mT).masked_fill(~before, -1e4).softmax(-1) @ v
        x = x + seen.transpose(1, 2).flatten(2) * (self.size[0] @ self.size[1])
        none = ~torch.ones_like(x, dtype=torch.bool)
        return (x + x**0 / 9 + torch.tanh(x) ** 17).masked_fill(none, 1.0)


class Written(nn.Module):
    """One head of keys and values that attention repeats by itself, tensors that are
    filled in parts, the larger and the smaller of two."""

    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN // 2)
        self.out = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        k, v = (split_heads(part, 1) for part in self.kv(x).chunk(2, -1))
        filled = k.new_empty(k.shape)
        filled[..., :3].copy_(k[..., :3])
        filled[..., 3:] = torch.max(k[..., 3:], torch.tensor(-0.1))
        q = split_heads(self.q(x), 4)
        bias = torch.linspace(0.0, 1.0, x.shape[1])[None]
        seen = F.scaled_dot_product_attention(q, filled, v, attn_mask=bias)
        seen = (seen.transpose(1, 2).flatten(2) + causal(q, filled, v)) / 2
        both = torch.empty_like(seen)
        both[:] = torch.min(seen, x)
        return x + self.out(both)


class Streams(nn.Module):
    """A residual in several streams that begin alike, and are mixed (Zhu et al. 2024,
    "Hyper-Connections")."""

    def __init__(self, count=3):
        super().__init__()
        self.mix = nn.Parameter(torch.eye(count) + torch.randn(count, count) / 9)
        self.take, self.give = (nn.Parameter(torch.rand(count)) for _ in range(2))
        self.inner = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        streams = x.unsqueeze(2).repeat(1, 1, len(self.take), 1)
        made = torch.tanh(self.inner(torch.einsum("n,bsnh->bsh", self.take, streams)))
        mixed = torch.einsum("mn,bsnh->bsmh", self.mix, streams)
        return (mixed + made[:, :, None] * self.give[:, None]).mean(2)


class Pairs(nn.Module):
    """A tensor with itself: all pairs of its positions, and of its columns."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Linear(HIDDEN, HIDDEN) for _ in range(2))

    def forward(self, x):
        y = torch.tanh(self.first(x))
        weights = -(y[:, :, None] - y[:, None]).square().sum(-1)
        z = weights.softmax(-1) @ self.second(x)
        return x + (z[..., None] * torch.sigmoid(z[..., None, :])).mean(-1)


class Tables(nn.Module):
    """A table that is indexed by tokens, and positions of which one is padding, whose row
    is not trained."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(VOCABULARY, HIDDEN) / 9)
        self.positions = nn.Embedding(POSITIONS, HIDDEN, padding_idx=2)
        with torch.no_grad():
            self.positions.weight[2] = 0.5
        self.layers = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(2)])

    def forward(self, tokens):
        x = self.table[tokens] + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x @ self.table.T


MODELS = {
    "pairs-of-itself": lambda: Model(Pairs, layers=2),
    "tables": Tables,
    "streams": lambda: Model(Streams, layers=2),
    "written": lambda: Model(Written, layers=2),
    "zeros": lambda: Model(Zeros, layers=1),
    "corners": lambda: Model(Corners, layers=2),
}
