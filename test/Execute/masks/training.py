#===- training.py - Steps of training in PyTorch ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains the models of models.py in PyTorch, in fp64, from weights that plait-run
is given as well, with the recipe that it gets as OPTIONS."""

import math

import torch

from masks import models

RECIPE = {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1, "beta2": 0.99}
OPTIONS = (
    *("--grad-clip", 0),
    *(w for k, v in RECIPE.items() for w in (f"--{k.replace('_', '-')}", v)),
)


def draw_weights(config: dict) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    return {
        name: torch.randn(shape, generator=generator) * 0.1
        + (len(shape) == 1 and name.endswith("weight"))
        for name, shape in models.shapes(config).items()
    }


def cut(tokens: list[int], steps: int, batch: int, sequence: int) -> list:
    """What each step trains on, [batch, sequence + 1]: inputs and targets."""
    return [
        torch.tensor(
            [
                tokens[(step * batch + row) * sequence :][: sequence + 1]
                for row in range(batch)
            ]
        )
        for step in range(steps)
    ]


def measure(logits, targets, step: int) -> torch.Tensor:
    """The mean over all targets."""
    return torch.nn.functional.cross_entropy(logits, targets)


def train(weights: dict, batches: list, forward, measure=measure) -> list[dict]:
    """Loss and gradient norm of each step, where `forward(weights, step, tokens)`
    gives the logits, and `measure(logits, targets, step)` the loss of them and the
    targets, row by row. Steps are counted from 1."""
    weights = {
        name: tensor.double().requires_grad_() for name, tensor in weights.items()
    }
    groups = [
        {
            "params": [w for w in weights.values() if (w.dim() > 1) == decays],
            "weight_decay": RECIPE["weight_decay"] * decays,
        }
        for decays in (False, True)
    ]
    update = torch.optim.AdamW(
        groups, RECIPE["lr"], (0.9, RECIPE["beta2"]), RECIPE["eps"]
    )
    steps = []
    for step, rows in enumerate(batches, 1):
        logits = forward(weights, step, rows[:, :-1])
        loss = measure(logits.flatten(0, 1), rows[:, 1:].flatten(), step)
        update.zero_grad()
        loss.backward()
        squares = [w.grad.square().sum().item() for w in weights.values()]
        steps.append({"loss": loss.item(), "grad_norm": math.sqrt(sum(squares))})
        update.step()
    return steps


def excess(found: list[dict], expected: list[dict], tolerance: dict) -> float:
    """The largest relative difference over its tolerance."""
    return max(
        abs(own[name] - other[name]) / abs(other[name]) / bound
        for own, other in zip(found, expected)
        for name, bound in tolerance.items()
    )
