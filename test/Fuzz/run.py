#!/usr/bin/env python3
#===- run.py - Fuzzes the readers of outside data ---------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs the fuzz targets of build-fuzz (preset "fuzz") one after another, from seeds
that the tools of --bin write: real files of each kind. What a target finds is left in
build-fuzz/found, and its exit code is not 0."""

import argparse
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = 64  # bytes of a plan file, in front of the plan
SMALL = ["--schedule", "1f1b", "--mesh", "dp=2", "--global-batch", "2", "--seq", "8", "--no-reference"]

MODEL = """module attributes {plait.model = {layers = 1 : i64, model_type = "m", name = "m", vocab = 256 : i64}} {
  nn.parameter @embed : tensor<256x4xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<2x8xi32>, %targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {
    %w = nn.read @embed value : tensor<256x4xf32>
    %x = nn.embedding %w, %tokens : (tensor<256x4xf32>, tensor<2x8xi32>) -> tensor<2x8x4xf32>
    %y = nn.matmul %x, %w "bsh,vh->bsv" : (tensor<2x8x4xf32>, tensor<256x4xf32>) -> tensor<2x8x256xf32>
    %l, %n = nn.softmax_cross_entropy %y, %targets ignore -100 : (tensor<2x8x256xf32>, tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>)
    return %l, %n : tensor<f32>, tensor<f32>
  }
}
"""

COSTS = """{"stages": 2, "microbatches": 4, "tcomm": 0.5, "memory_limit": null, "weight_share": 0.5,
"layers": [{"name": "embed", "f": 2.7, "b": 4.3, "w": 1.8, "activation": 1.0}, {"f": 1, "b": 1, "w": 1}]}"""


def write_seeds(tools: pathlib.Path, folder: pathlib.Path) -> dict:
    """Files by target."""

    def run(tool, *words):
        done = subprocess.run([tools / tool, *map(str, words)], capture_output=True,
                              text=True, cwd=folder, timeout=120)
        if done.returncode:
            sys.exit(f"{tool}: {done.stderr}")

    (folder / "model.mlir").write_text(MODEL)
    (folder / "text").write_text("a text of a few words, again and again. " * 20)
    run("plait-plan", "schedule", "--kind", "zb-h1", "--stages", 2, "--microbatches", 3, "--csv",
        "order.csv")
    run("plaitc", "model.mlir", *SMALL, "--dump-phases-to", "phases", "-o", "m.plan")
    run("plait-run", "m.plan", "--text", "text", "--steps", 2, "--save", "saved",
        "--checkpoint", "checkpoints")
    run("plait-run", "m.plan", "--text", "text", "--steps", 2, "--profile", "profile.json")
    (folder / "costs.json").write_text(COSTS)
    plan = (folder / "m.plan").read_bytes()
    (folder / "payload").write_bytes(plan[HEADER:])
    (folder / "tokens").write_bytes(bytes([1]) + bytes(range(64)))
    # Two sequences of uint16 in two documents, as Megatron's writer lays them out.
    (folder / "index").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
        + struct.pack("<2i2q3q", 10, 8, 0, 20, 0, 1, 2))
    return {
        "Plan": [folder / "payload"],
        "PlanFile": [folder / "m.plan"],
        "Safetensors": [folder / "saved" / "model.safetensors"],
        "CheckpointIndex": list(folder.glob("checkpoints/*/index.json")),
        "Tokens": [folder / "tokens"],
        "TokenIndex": [folder / "index"],
        "ScheduleCsv": [folder / "order.csv"],
        "Cluster": [*ROOT.glob("examples/clusters/*.json"),
                    *ROOT.glob("lib/Planner/Cluster/hardware/*.json")],
        "Profile": [folder / "profile.json"],
        "Costs": [folder / "costs.json"],
        "Config": list(ROOT.glob("examples/models/*/config.json")),
        "Model": [folder / "model.mlir", *folder.glob("phases/*.mlir")],
    }


def fuzz(target: str, seeds: list, seconds: int, build: pathlib.Path,
         folder: pathlib.Path) -> bool:
    corpus, found = folder / target, build / "found"
    corpus.mkdir()
    found.mkdir(exist_ok=True)
    for index, seed in enumerate(seeds):
        shutil.copy(seed, corpus / str(index))
    done = subprocess.run(
        [build / "bin" / f"fuzz-{target}", corpus, f"-max_total_time={seconds}",
         "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1",
         f"-artifact_prefix={found}/{target}-"],
        capture_output=True, text=True, errors="replace", timeout=seconds + 300,
        # LLVM's allocators poison in code that is instrumented what MLIR's library,
        # which is not, then uses.
        env={**os.environ, "ASAN_OPTIONS": "allow_user_poisoning=0"})
    runs = next((x.split()[-1] for x in done.stderr.splitlines()
                 if "number_of_executed_units" in x), "?")
    if done.returncode == 0:
        print(f"PASS fuzz/{target}: {runs} inputs, {len(list(corpus.iterdir()))} kept",
              flush=True)
        return True
    lines = [x for x in done.stderr.splitlines()
             if "ERROR" in x or "runtime error" in x or re.match(r" +#\d+ 0x", x)]
    print(f"FAIL fuzz/{target}", *lines[:12], sep="\n     ", flush=True)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--filter", default="", help="part of a target's name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        results = [fuzz(target, seeds, options.seconds, options.build, folder)
                   for target, seeds in write_seeds(options.bin.resolve(), folder).items()
                   if options.filter in target]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) and results else 1


if __name__ == "__main__":
    sys.exit(main())
