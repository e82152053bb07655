#!/usr/bin/env python3
# ===- sources.py - The same plan from a config and from IR ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""usage: sources.py CONFIG CLUSTER BATCH SEQUENCE OUT

Writes the model of a config.json as IR, for another batch and sequence than those
that are planned for. From that the planner has to make the same plan, byte for
byte, as from the config: with the labels of layers, and where layers have to be
found. So it knows the same costs of either, and the types are those of an import."""

import pathlib
import re
import subprocess
import sys


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stderr


def plan(model, strategy, out):
    run("plaitc", model, *strategy, "--no-prove", "-o", out)
    return out.read_bytes()


def main():
    config, cluster, batch, sequence, out = sys.argv[1:]
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    strategy = ("--cluster", cluster, "--global-batch", batch, "--seq", sequence)
    expected = plan(config, strategy, out / "config.plan")
    exported = out / "exported.mlir"
    run("plaitc", config, *"--mesh dp=3 --global-batch 3 --seq 5".split(),
        "--schedule", "1f1b", "--compile-to", "import", "-o", exported)
    found = out / "found.mlir"
    text = exported.read_text()
    bare = re.sub(r"nn\.layer = \d+ : i64(, )?", "", text).replace(" {}", "")
    if bare == text or "nn.layer =" in bare:
        sys.exit("the labels of layers are written otherwise")
    found.write_text(bare)
    for model in (exported, found):
        if plan(model, strategy, model.with_suffix(".plan")) != expected:
            sys.exit(f"{model} and {config} have other plans")
    print("the same plan from a config, from IR, and without its layers")


if __name__ == "__main__":
    main()
