# ===- floats.py - Modules that take floats -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Modules whose inputs, targets or weights of targets are floats, as people train them
on images, signals, teachers' outputs and noise."""

import dataclasses
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, CHANNELS, CLASSES = 64, 32, 4, 6, 10


class Block(nn.Module):
    def __init__(self, causal: bool = False):
        super().__init__()
        self.causal = causal
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def attend(self, x):
        b, s, _ = x.shape
        parts = self.qkv(x).view(b, s, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=self.causal)
        return self.out(seen.transpose(1, 2).reshape(b, s, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Signal(nn.Module):
    """A signal to another one, position by position."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, signal):
        x = self.embed(signal)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Images(nn.Module):
    """A ViT: patches by a convolution, a token for the class, learned positions."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, kernel_size=4, stride=4)
        self.token = nn.Parameter(0.1 * torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(0.1 * torch.randn(1, 5, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(pixels), -1, -1), x), dim=1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Tokens(nn.Module):
    """A model of language, of which the loss takes floats."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(causal=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Prompted(Tokens):
    """Beside tokens it gets what another model has made of an image."""

    def __init__(self):
        super().__init__()
        self.bridge = nn.Linear(CHANNELS, WIDTH)

    def forward(self, ids, seen, weight=None):
        x = self.embed(ids) + self.bridge(seen)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Denoiser(nn.Module):
    """A diffusion transformer: time changes scale and shift of every norm."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, WIDTH)
        self.time = nn.Sequential(nn.Linear(8, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.change = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, CHANNELS)
        self.register_buffer("rates", torch.exp(-torch.arange(4) / 2.0))

    def forward(self, noisy, time):
        angles = time[:, None] * self.rates
        c = F.silu(self.time(torch.cat((angles.sin(), angles.cos()), dim=-1)))
        x = self.embed(noisy)
        for block, change in zip(self.blocks, self.change):
            shift, scale, gate = change(c)[:, None].chunk(3, dim=-1)
            x = x + gate * block(x * (1 + scale) + shift)
        return self.head(x)


def weighted(logits, targets, weight):
    each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (each * weight.flatten()).sum() / weight.sum()


def distilled(logits, targets, teacher):
    hard = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    soft = F.cross_entropy(logits.flatten(0, 1), teacher.flatten(0, 1))
    return 0.5 * hard + 0.5 * soft


@dataclasses.dataclass(frozen=True)
class Case:
    """`draw` makes floats of a shape from a generator, by name; plain ones are normal."""

    make: Callable[[], nn.Module]
    loss: Callable
    features: dict = dataclasses.field(default_factory=dict)
    context: dict = dataclasses.field(default_factory=dict)
    tokens: bool = True
    seq: int = 16
    draw: dict = dataclasses.field(default_factory=dict)


def anchored(logits, targets, anchor):
    """A cross-entropy, and a mean that is none."""
    hard = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return hard + 0.1 * F.smooth_l1_loss(logits, anchor, beta=0.5)


def on_both(output, targets, wanted, whole):
    """A mean over positions, and one over sequences."""
    return F.mse_loss(output, wanted) + 0.5 * F.mse_loss(output.mean(1), whole)


def positive(shape, generator):
    return torch.rand(shape, generator=generator) + 0.1


def likely(shape, generator):
    return torch.randn(shape, generator=generator).softmax(-1)


def embedded():
    """A model of transformers that gets what embeddings give."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2, n_head=HEADS, n_embd=WIDTH, vocab_size=VOCABULARY, n_positions=32,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        )
    )


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS,
            intermediate_size=64, image_size=16, patch_size=8, num_labels=CLASSES,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )


def of_class(output, targets):
    return F.cross_entropy(getattr(output, "logits", output), targets[:, 0])


def of_each(output, targets):
    return F.cross_entropy(output.logits.flatten(0, 1), targets.flatten())


CASES = {
    "signal": Case(
        Signal, lambda output, targets, wanted: F.mse_loss(output, wanted),
        features={"signal": CHANNELS, "wanted": 3}, tokens=False,
    ),
    "huber": Case(
        Signal, lambda output, targets, wanted: F.huber_loss(output, wanted, delta=0.5),
        features={"signal": CHANNELS, "wanted": 3}, tokens=False,
    ),
    "absolute": Case(
        Signal, lambda output, targets, wanted: F.l1_loss(output, wanted),
        features={"signal": CHANNELS, "wanted": 3}, tokens=False,
    ),
    "labels": Case(
        Signal,
        lambda output, targets, wanted: F.binary_cross_entropy_with_logits(output, wanted),
        features={"signal": CHANNELS, "wanted": 3}, tokens=False,
        draw={"wanted": lambda shape, g: (torch.rand(shape, generator=g) > 0.5).float()},
    ),
    "pooled": Case(
        Signal, lambda output, targets, wanted: ((output.mean(1) - wanted) ** 2).mean(),
        features={"signal": CHANNELS}, context={"wanted": 3}, tokens=False,
    ),
    "both": Case(
        Signal, on_both, features={"signal": CHANNELS, "wanted": 3}, context={"whole": 3},
        tokens=False,
    ),
    "anchored": Case(Tokens, anchored, features={"anchor": VOCABULARY}),
    "images": Case(Images, of_class, context={"pixels": (3, 8, 8)}, tokens=False, seq=1),
    "weighted": Case(Tokens, weighted, features={"weight": ()}, draw={"weight": positive}),
    "distilled": Case(
        Tokens, distilled, features={"teacher": VOCABULARY}, draw={"teacher": likely}
    ),
    "prompted": Case(
        Prompted, weighted, features={"seen": CHANNELS, "weight": ()},
        draw={"weight": positive},
    ),
    "denoiser": Case(
        Denoiser, lambda output, targets, noise: F.mse_loss(output, noise),
        features={"noisy": CHANNELS, "noise": CHANNELS}, context={"time": ()}, tokens=False,
    ),
    "embedded": Case(embedded, of_each, features={"inputs_embeds": WIDTH}, tokens=False),
    "vit": Case(vit, of_class, context={"pixel_values": (3, 16, 16)}, tokens=False, seq=1),
}
