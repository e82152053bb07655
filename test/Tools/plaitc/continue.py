#!/usr/bin/env python3
# ===- continue.py - Every dump compiles on to the same plan ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""usage: continue.py [--all] [--bin FOLDER] OUT

Compiles models with several sets of options, dumps the IR after each phase, and
goes on from each dump, with plaitc and with plait-opt: all plans and all IR after
the last phase are the same bytes. So nothing that decides about a plan is kept
anywhere but in the IR.

Without --all, the options are taken in turn by one of three models; the phases of
a compilation are followed by plaitc and by plait-opt in turn, one of them by a
plan, and the last one always. With --all, every phase is followed by all three,
for all example models, of which four layers are kept, and all options."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PHASES = ["import", "shard", "stage", "differentiate", "checkpoint",
          "partition", "schedule", "lower", "steps"]

# Each makes microbatches of 4 sequences over all ranks, as mlp.mlir wants them,
# and names the layers of its stages where that is not left to the compiler.
OPTIONS = {
    "3d": "--mesh pp=2,dp=2,tp=2 --no-plan --micro-batch 2 --schedule 1f1b --epilogues all",
    "gpipe": "--mesh pp=2 --no-plan --micro-batch 4 --schedule gpipe --recompute full",
    "zero1": "--mesh dp=4 --no-plan --micro-batch 1 --zero 1 --precision bf16"
             " --optimizer lion",
    "zero3": "--mesh dp=2,cp=2 --no-plan --micro-batch 2 --zero 3 --schedule 1f1b",
    "flash": "--mesh tp=2 --no-plan --micro-batch 4 --sequence-parallel --attention flash",
    "zigzag": "--mesh pp=2,cp=2 --no-plan --micro-batch 4 --context-parallel zigzag",
    "offload": "--mesh pp=2,dp=2 --no-plan --micro-batch 2 --zero 1"
               " --offload optimizer,activations",
    "split": "--mesh pp=2 --no-plan --micro-batch 4 --schedule zb-v --zero 2",
    "cuda": "--mesh dp=2 --no-plan --micro-batch 2 --backend cuda --precision bf16"
            " --target sm_90 --deterministic",
}
# Cuts that nobody would make by cost, by layers of the model.
CUTS = {2: "--mesh pp=2 --no-plan --micro-batch 4 --layers 2,0",
        4: "--mesh pp=2 --no-plan --micro-batch 4 --layers 1,3"}


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")


def check(first, second):
    if first.read_bytes() != second.read_bytes():
        sys.exit(f"{first} and {second} differ")


def compile_all(number, model, name, options, out, every):
    folder = out / f"{model.stem}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    direct = folder / "direct.plan"
    run("plaitc", model, *options.split(), "--seq", 32, "--global-batch", 16,
        "--no-reference", "--no-prove", "--dump-phases-to", folder, "-o", direct)
    dumps = [folder / f"{i}-{phase}.mlir" for i, phase in enumerate(PHASES)]
    for index, (phase, dump) in enumerate(zip(PHASES, dumps)):
        if every or phase == "steps" or index == number % len(PHASES):
            plan = folder / f"{phase}.plan"
            run("plaitc", dump, "--no-reference", "--no-prove", "-o", plan)
            check(direct, plan)
        if phase == "steps":
            continue
        passes = [f"--plait-{later}" for later in PHASES[index + 1:]]
        tools = [("plaitc", "--compile-to", "steps"), ("plait-opt", *passes)]
        for tool, *words in tools if every else [tools[(number + index) % 2]]:
            lowered = folder / f"{phase}-{tool}.mlir"
            run(tool, dump, *words, "-o", lowered)
            check(dumps[-1], lowered)


def shorten(model, out):
    """Folder of the same model with four layers."""
    config = json.loads((model / "config.json").read_text())
    for key in ("n_layer", "num_hidden_layers"):
        if key in config:
            config[key] = 4
    short = out / "models" / model.name
    short.mkdir(parents=True, exist_ok=True)
    (short / "config.json").write_text(json.dumps(config))
    return short


def find_models(every, out):
    """The models and how many layers each has."""
    examples = ROOT / "examples" / "models"
    models = [(examples / "gpt2-nano", 4), (examples / "mlp.mlir", 2),
              (ROOT / "test" / "golden" / "llama-small-test", 4)]
    if every:
        models += [(shorten(path.parent, out), 4)
                   for path in sorted(examples.glob("*/config.json"))
                   if path.parent.name != "gpt2-nano"]
    return models


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    given = parser.parse_args()
    if given.bin:
        os.environ["PATH"] = f"{given.bin.resolve()}:{os.environ['PATH']}"
    jobs = [(model, name, options)
            for model, layers in find_models(given.all, given.out)
            for name, options in [*OPTIONS.items(), ("cut", CUTS[layers])]]
    if not given.all:
        # Ten compilations of each of three models: every third is kept, which is
        # another option of each, since ten is no multiple of three.
        jobs = jobs[::3]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(compile_all, number, *job, given.out, given.all)
                     for number, job in enumerate(jobs)]:
            done.result()
    print(f"{len(jobs)} compilations, {len(PHASES)} dumps each: identical")


if __name__ == "__main__":
    main()
