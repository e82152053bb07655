#===- training.py - The reference training loop -----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a Hugging Face model with PyTorch the way a plait step is defined."""

import dataclasses
import json
import pathlib

import numpy
import torch
import transformers

MODEL_CLASSES = {
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The run-time inputs of a training run, as `plait-run` takes them."""

    steps: int = 5
    seq: int = 32
    global_batch: int = 8
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    grad_clip: float = 1.0


def build_model(config_path: pathlib.Path) -> torch.nn.Module:
    """The model of a config.json, in fp32, without dropout, eager attention."""
    fields = json.loads(config_path.read_text())
    config_class, model_class = MODEL_CLASSES[fields["model_type"]]
    config = config_class(**fields)
    config._attn_implementation = "eager"
    model = model_class(config).to(torch.float32)
    # Dropout is off; nothing else depends on the mode.
    return model.eval()


def trainable_names(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters under their file names, each once (a tied head is skipped)."""
    return dict(model.named_parameters(remove_duplicate=True))


def batch(tokens: numpy.ndarray, recipe: Recipe, step: int):
    """Inputs and targets of `step`, from 1: S+1 tokens a sample, stride S."""
    seq, size = recipe.seq, recipe.global_batch
    samples = (len(tokens) - 1) // seq
    first = (step - 1) * size
    rows = [
        tokens[k * seq : k * seq + seq + 1]
        for k in ((first + row) % samples for row in range(size))
    ]
    block = torch.from_numpy(numpy.stack(rows).astype(numpy.int64))
    return block[:, :-1], block[:, 1:]


def clip(parameters, limit: float) -> torch.Tensor:
    """torch.nn.utils.clip_grad_norm_, with the squares summed in fp64: its own
    fp32 sum over GPT-2's 38 M embedding gradients is off by up to 3e-3."""
    gradients = [p.grad for p in parameters]
    total = sum(g.double().square().sum() for g in gradients).sqrt()
    scale = min(1.0, limit / (total.item() + 1e-6))
    for gradient in gradients:
        gradient.mul_(scale)
    return total


def train(model: torch.nn.Module, tokens: numpy.ndarray, recipe: Recipe):
    """Returns a record of every step; the norm is the one before clipping."""
    parameters = list(trainable_names(model).values())
    groups = [
        {
            "params": [p for p in parameters if p.dim() >= 2],
            "weight_decay": recipe.weight_decay,
        },
        {
            "params": [p for p in parameters if p.dim() < 2],
            "weight_decay": 0.0,
        },
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=recipe.lr,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.eps,
    )
    limit = recipe.grad_clip if recipe.grad_clip > 0 else float("inf")
    records = []
    for step in range(1, recipe.steps + 1):
        inputs, targets = batch(tokens, recipe, step)
        logits = model(input_ids=inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
        )
        optimizer.zero_grad()
        loss.backward()
        norm = clip(parameters, limit)
        optimizer.step()
        records.append(
            {"step": step, "loss": loss.item(), "grad_norm": norm.item()}
        )
    return records
