#!/usr/bin/env python3
#===- adapters.py - Golden runs of adapters ---------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Writes the golden cases of test/golden/adapters from Hugging Face's PEFT: adapters
of models of other golden cases, with their weights and tokens, as PEFT saves them
before and after training, and golden.json."""

import dataclasses
import json
import pathlib

import numpy
import peft
import safetensors.torch
import torch

from generate import HERE, Case, as_steps, load_model, rounding
from training import Recipe, train

# B is no zeros, so that every term matters from the first step on.
DEVIATION = 0.05


@dataclasses.dataclass(frozen=True)
class Adapters:
    name: str
    inputs: str
    rank: int
    alpha: float
    targets: str | list[str] = "all-linear"
    seed: int = 0


CASES = [
    Adapters("llama", "llama-small-test", 4, 8),
    Adapters("gpt2", "gpt2-small-test", 3, 16),
    Adapters("qwen3", "qwen3-small-test", 4, 2, ["q_proj", "v_proj", "down_proj"]),
    Adapters("phi3", "phi3-small-test", 2, 8),
    # The rows of queries, keys and values of each head are together.
    Adapters("neox", "neox-small-test", 3, 8),
]


def make_model(case: Adapters) -> peft.PeftModel:
    torch.manual_seed(case.seed)
    inputs = Case(case.inputs, Recipe())
    config = peft.LoraConfig(
        r=case.rank,
        lora_alpha=case.alpha,
        target_modules=case.targets,
        task_type="CAUSAL_LM",
    )
    model = peft.get_peft_model(load_model(inputs, HERE / case.inputs), config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".lora_B." in name:
                p.normal_(0, DEVIATION)
    return model.eval()


def save(model: peft.PeftModel, folder: pathlib.Path) -> None:
    """As PEFT does, but for the order of targets, which it keeps in a set."""
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2) + "\n")


def generate(case: Adapters) -> None:
    folder = HERE / "adapters" / case.name
    tokens = numpy.fromfile(HERE / case.inputs / "tokens.bin", "<u2")
    model, recipe = make_model(case), Recipe()
    save(model, folder / "start")
    records = train(model, tokens, recipe)
    save(model, folder / "final")
    precise = train(make_model(case).double(), tokens, recipe)
    golden = {
        "inputs": case.inputs,
        "rank": case.rank,
        "alpha": case.alpha,
        "targets": case.targets,
        "recipe": dataclasses.asdict(recipe),
        "rounding": float(f"{rounding(records, precise):.3g}"),
        "steps": as_steps(records),
    }
    (folder / "golden.json").write_text(json.dumps(golden, indent=2) + "\n")
    print(f"{case.name}: {golden['steps'][-1]}, fp32 to fp64: {golden['rounding']}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in CASES:
        generate(case)
