#!/usr/bin/env python3
#===- check.py - One step of model.mlir in numpy ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""check.py PLAIT-RUN PLAN TEXT: runs one step of a plan of model.mlir with a
learning rate of 0, and compares its loss and gradient norm with those of the
same model written in numpy in fp64. They may differ by 1e-5 (relative), some
hundred roundings of fp32."""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

BATCH, SEQUENCE, LAYERS = 16, 32, 2


def softmax(x):
    power = np.exp(x - x.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)


def loss_and_gradients(weights, tokens, targets):
    """The mean cross-entropy, and its gradient for every parameter."""
    embed = weights["embed"]
    x, saved = embed[tokens], []
    for i in range(LAYERS):
        relu = np.maximum(x @ weights[f"up.{i}"], 0)
        saved.append((x, relu))
        x = x + relu**2 @ weights[f"down.{i}"]
    probability = softmax(x @ embed.T)
    picked = np.take_along_axis(probability, targets[..., None], -1)
    loss = -np.log(picked).mean()

    slope = (probability - np.eye(len(embed))[targets]) / targets.size
    gradients = {"embed": np.einsum("bsv,bsh->vh", slope, x)}
    slope = slope @ embed
    for i in reversed(range(LAYERS)):
        x, relu = saved[i]
        up, down = weights[f"up.{i}"], weights[f"down.{i}"]
        gradients[f"down.{i}"] = np.einsum("bsf,bsh->fh", relu**2, slope)
        inner = slope @ down.T * 2 * relu
        gradients[f"up.{i}"] = np.einsum("bsh,bsf->hf", x, inner)
        slope = slope + inner @ up.T
    np.add.at(gradients["embed"], tokens, slope)
    return loss, gradients


def run_step(plait_run, plan, text, folder):
    """The log of one step, and the weights, which it has not changed."""
    log = pathlib.Path(folder) / "log.jsonl"
    subprocess.run(
        [plait_run, plan, "--text", text, "--steps", "1", "--lr", "0"]
        + ["--log", log, "--save", folder],
        check=True,
    )
    weights = load_file(pathlib.Path(folder) / "model.safetensors")
    return json.loads(log.read_text()), weights


def main() -> int:
    plait_run, plan, text = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        record, weights = run_step(plait_run, plan, text, folder)
    weights = {k: v.astype(np.float64) for k, v in weights.items()}
    data = np.fromfile(text, np.uint8, BATCH * SEQUENCE + 1)
    tokens = data[:-1].reshape(BATCH, SEQUENCE)
    targets = data[1:].reshape(BATCH, SEQUENCE)
    loss, gradients = loss_and_gradients(weights, tokens, targets)
    norm = np.sqrt(sum((x**2).sum() for x in gradients.values()))
    good = True
    for name, found, expected in (
        ("loss", record["loss"], loss),
        ("gradient norm", record["grad_norm"], norm),
    ):
        print(f"{name} {found:.7g}, numpy {expected:.7g}")
        good &= abs(found - expected) <= 1e-5 * expected
    print("they agree" if good else "they differ")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
