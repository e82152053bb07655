#!/usr/bin/env python3
# ===- growth.py - What twice as much costs --------------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""usage: growth.py [--bin FOLDER] [--filter TEXT] [--long]

Gives each tool inputs of n, 3n and 5n layers, names, messages or the like, and
counts what it executes: the second 2n have to cost what the first 2n cost. Of
work that grows with the square they would cost twice as much.

Counted are blocks of instructions, as valgrind comes by them: the same number in
every run, whatever else the machine does, and without the counters of the
processor, which containers do not have. --long takes larger inputs and adds cases
that start the compiler once more."""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import harness

# Sorting n things costs n log n, of which the second half is up to a tenth more
# at these sizes; allocators and hash tables grow by leaps.
BOUND = 1.3
COUNT = re.compile(r"scheduler: ([\d,]+) event checks")


class Counter:
    def __init__(self, options):
        self.bin = options.bin.resolve()
        self.timeout = options.timeout

    def run(self, tool, *arguments):
        """Makes an input."""
        harness.Tools(self.bin, self.timeout).run(tool, *arguments)

    def count(self, tool, *arguments) -> int:
        """What the tool itself executes, and not what it starts."""
        command = ["valgrind", "--tool=none", "--stats=yes", "--trace-children=no",
                   "--child-silent-after-fork=yes"]
        done = subprocess.run(
            [*command, str(self.bin / tool), *map(str, arguments)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=self.timeout)
        found = COUNT.findall(done.stderr)
        if done.returncode or not found:
            raise harness.Failure(f"{tool} ended with {done.returncode}: "
                                  f"{done.stderr[-1000:]}")
        return int(found[-1].replace(",", ""))


# ===----------------------------------------------------------------------===#
# Inputs
# ===----------------------------------------------------------------------===#


def write_gpt2(folder, layers):
    config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": layers,
              "n_positions": 8, "vocab_size": 16, "resid_pdrop": 0.0,
              "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    path = folder / f"gpt2-{layers}"
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def write_names(folder, names):
    """A model of one layer that adds so many vectors, one after the other."""
    hidden = "tensor<2x8x8xf32>"
    lines = ["module attributes {plait.model = {layers = 1 : i64, model_type = "
             '"names", name = "names", vocab = 16 : i64}} {',
             "nn.parameter @table : tensor<16x8xf32> init<mean = 0.0, std = 1.0>",
             "nn.parameter @w : tensor<8x8xf32> init<mean = 0.0, std = 1.0>"]
    lines += [f"nn.parameter @p.{i} : tensor<8xf32> init<mean = 0.0, std = 1.0>"
              for i in range(names)]
    lines += ["func.func @loss(%tokens: tensor<2x8xi32>, "
              "%targets: tensor<2x8xi32>) -> (tensor<f32>, tensor<f32>) {",
              "%table = nn.read @table value : tensor<16x8xf32>",
              "%w = nn.read @w value : tensor<8x8xf32>",
              "%x0 = nn.embedding %table, %tokens {nn.layer = 0 : i64} : "
              f"(tensor<16x8xf32>, tensor<2x8xi32>) -> {hidden}"]
    for i in range(names):
        lines += [f"%p{i} = nn.read @p.{i} value : tensor<8xf32>",
                  f"%b{i} = nn.broadcast %p{i} dims [2] : "
                  f"tensor<8xf32> -> {hidden}",
                  f"%y{i} = nn.add %x{i}, %b{i} : {hidden}",
                  f'%x{i + 1} = nn.matmul %y{i}, %w "bsh,hf->bsf" : '
                  f"({hidden}, tensor<8x8xf32>) -> {hidden}"]
    lines += [f'%logits = nn.matmul %x{names}, %table "bsh,vh->bsv" : '
              f"({hidden}, tensor<16x8xf32>) -> tensor<2x8x16xf32>",
              "%sum, %count = nn.softmax_cross_entropy %logits, %targets "
              "ignore -100 : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> "
              "(tensor<f32>, tensor<f32>)",
              "return %sum, %count : tensor<f32>, tensor<f32>", "}", "}"]
    path = folder / f"names-{names}.mlir"
    path.write_text("\n".join(lines))
    return path


def write_weights(path, shapes):
    """Tensors by name, no two alike."""
    header, numbers, begin = {}, [], 0
    for i, (name, shape) in enumerate(shapes.items()):
        count = 1
        for size in shape:
            count *= size
        end = begin + 4 * count
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [begin, end]}
        numbers += [i * 1e-6] * count
        begin = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text +
                     struct.pack(f"<{len(numbers)}f", *numbers))


# ===----------------------------------------------------------------------===#
# Cases
# ===----------------------------------------------------------------------===#

GPT2 = ["--seq", 8, "--micro-batch", 1, "--schedule", "1f1b", "--no-reference"]
FEW = ["--no-prove", *GPT2]


def compile_layers(tools, folder, n):
    """All phases."""
    return tools.count("plaitc", write_gpt2(folder, n), "--global-batch", 4,
                       "--mesh", "pp=2", *FEW, "--compile-to", "steps",
                       "-o", folder / "layers.mlir")


def compile_stages(tools, folder, n):
    return tools.count("plaitc", write_gpt2(folder, n), "--global-batch", 4,
                       "--mesh", f"pp={n}", *FEW, "--compile-to", "steps",
                       "-o", folder / "stages.mlir")


def compile_microbatches(tools, folder, n):
    return tools.count("plaitc", write_gpt2(folder, 2), "--global-batch", n,
                       "--mesh", "pp=2", *FEW, "--compile-to", "steps",
                       "-o", folder / "microbatches.mlir")


def optimize_names(tools, folder, n):
    passes = ["shard", "stage", "differentiate", "checkpoint", "partition",
              "schedule", "lower", "steps"]
    tools.run("plaitc", write_names(folder, n), "--seq", 8, "--micro-batch", 2,
              "--global-batch", 2, "--no-reference", "--compile-to", "import",
              "-o", folder / "names.mlir")
    return tools.count("plait-opt", folder / "names.mlir", "-o",
                       folder / "steps.mlir", *(f"--plait-{p}" for p in passes))


def plan_of(tools, folder, microbatches):
    path = folder / f"m{microbatches}.plan"
    if not path.exists():
        tools.run("plaitc", write_gpt2(folder, 4), "--global-batch", microbatches,
                  "--mesh", "pp=4", *FEW, "-o", path)
    return path


def check_messages(tools, folder, n):
    return tools.count("plait-plan", "check", plan_of(tools, folder, n))


def simulate_messages(tools, folder, n):
    return tools.count("plait-plan", "simulate", plan_of(tools, folder, n),
                       "--json", folder / "simulated.json")


def diff_messages(tools, folder, n):
    plan = plan_of(tools, folder, n)
    return tools.count("plait-plan", "diff", plan, plan)


def read_schedule(tools, folder, n):
    tools.run("plait-plan", "schedule", "--kind", "zb-h1", "--stages", 4,
              "--microbatches", n, "--csv", folder / "order.csv")
    return tools.count("plait-plan", "schedule", "--file", folder / "order.csv")


def run_names(tools, folder, n):
    """As many tensors of a file are the model's as are not; weights and a
    checkpoint are written."""
    plan, weights = folder / "names.plan", folder / "names.safetensors"
    tools.run("plaitc", write_names(folder, n), "--seq", 8, "--micro-batch", 2,
              "--global-batch", 2, "--no-reference", "--no-prove",
              # Which valgrind knows all instructions of.
              "--target-cpu", "x86-64-v3", "-o", plan)
    shapes = {"table": [16, 8], "w": [8, 8]}
    for kind in ("p", "other"):
        shapes |= {f"{kind}.{i}": [8] for i in range(n)}
    write_weights(weights, shapes)
    (folder / "text").write_bytes(bytes(64))
    return tools.count("plait-run", plan, "--text", folder / "text", "--steps", 1,
                       "--weights", weights, "--save", folder / f"saved-{n}",
                       "--checkpoint", folder / f"checkpoints-{n}")


# By name: what is counted, the least size, that of --long.
CASES = {
    "plaitc/layers": (compile_layers, 6, 40),
    "plait-plan/check": (check_messages, 100, 800),
    "plait-plan/simulate": (simulate_messages, 50, 400),
    "plait-plan/schedule": (read_schedule, 500, 5000),
    "plait-run/names": (run_names, 100, 1000),
}
LONG = {
    "plait-plan/diff": (diff_messages, 100, 800),
    "plaitc/stages": (compile_stages, 6, 40),
    "plaitc/microbatches": (compile_microbatches, 50, 500),
    "plait-opt/names": (optimize_names, 50, 500),
}


def compare(tools, measure, n):
    with tempfile.TemporaryDirectory() as folder:
        first, second, third = (measure(tools, pathlib.Path(folder), size)
                                for size in (n, 3 * n, 5 * n))
    growth = (third - second) / (second - first)
    remark = f"{first:,}, {second:,}, {third:,} blocks: {growth:.2f}"
    if growth > BOUND:
        raise harness.Failure(f"{remark}, expected at most {BOUND}")
    return remark


def main():
    parser = harness.arguments(__doc__)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    report = harness.Reporter("growth", options.filter)
    cases = {**CASES, **(LONG if options.long else {})}
    for name, (measure, few, many) in cases.items():
        report.case(name, lambda: compare(Counter(options), measure,
                                          many if options.long else few))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
