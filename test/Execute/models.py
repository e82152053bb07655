#!/usr/bin/env python3
#===- models.py - Small models in the nn dialect ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains the models of test/Execute/models, each of which is about something
that Hugging Face's models do not have, for a few steps under several options,
and compares loss and gradient norm of each step with PyTorch's
(models/expected.json, written by models/mirror.py). Standard library only.

Weights are multiples of 1/16, so that many of them are equal, and exact in
bf16."""

import dataclasses
import json
import math
import pathlib
import re
import struct
import sys
import tempfile
import zlib

from harness import (
    ROOT,
    Reporter,
    Tools,
    arguments,
    read_safetensors,
    require,
    write_safetensors,
)

sys.path.insert(0, str(ROOT / "test" / "golden"))
import compare  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent / "models"
EXPECTED = FOLDER / "expected.json"
# A microbatch of all data-parallel ranks has ROWS sequences, for which all models
# but one are written.
BATCH, ROWS, SEQUENCE, VOCABULARY = 8, 4, 6, 16
RECIPE = {
    "steps": 3,
    "lr": 0.01,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "weight-decay": 0.1,
    "grad-clip": 1.0,
}
# As those of test/Training: fp32 against fp64, over three steps.
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Run:
    """A model under some options of plaitc; `frozen` parameters stay as they
    are, bit for bit. `given` names weights that are not drawn."""

    model: str
    mesh: str = "pp=1"
    options: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    given: str = ""

    @property
    def key(self) -> str:
        """In expected.json."""
        return f"{self.model}-{self.given}" if self.given else self.model

    @property
    def name(self) -> str:
        words = (x.lstrip("-") for x in self.options)
        return "/".join((self.key, self.mesh, *words))

    @property
    def replicas(self) -> int:
        return math.prod(int(size) for size in re.findall(r"[de]p=(\d+)", self.mesh))


FULL = ("--recompute", "full")
ZERO, GRADIENTS, ALL = (("--zero", stage) for stage in "123")
GPIPE = ("--schedule", "gpipe")
FLASH = ("--attention", "flash")
CHUNKS = ("--loss-chunks", "2")
EXPERT_CHUNKS = ("--expert-chunks", "3")
NOT_TRAINED = ("embed", "fixed", "number", "unread")
RUNS = (
    Run("ties"),
    Run("ties", options=FULL),
    Run("ties", "pp=2", FULL),
    Run("ties", "dp=2", FULL),
    Run("ties", "tp=2", FULL),
    Run("ties", "tp=4", ("--sequence-parallel",)),
    Run("ties", "cp=2"),
    Run("ties", "dp=2,cp=3", FULL),
    Run("positions"),
    Run("positions", options=FLASH),
    Run("positions", "cp=2"),
    Run("positions", "cp=2", FLASH + FULL),
    Run("positions", "cp=3", FLASH),
    Run("positions", "cp=3", FULL),
    Run("positions", "pp=2,dp=2,cp=3,tp=2", FLASH + ZERO),
    # Two key/value heads: every rank has one query head of each.
    Run("positions", "tp=4"),
    Run("positions", "tp=4", FLASH + FULL + ("--sequence-parallel",)),
    Run("positions", "dp=2,tp=4", ALL),
    Run("sinks"),
    Run("sinks", options=FLASH),
    Run("sinks", "cp=2", FLASH + FULL),
    Run("sinks", "pp=2,dp=2,cp=3,tp=2", FLASH + ZERO + ("--context-parallel", "zigzag")),
    Run("sinks", "cp=2", FULL),
    Run("sinks", "cp=3", ("--context-parallel", "zigzag")),
    Run("sinks", "cp=2", ("--context-parallel", "heads")),
    Run("sinks", "tp=2", ("--sequence-parallel",)),
    Run("sinks", "tp=4", FULL),
    Run("sinks", "pp=2,dp=2,tp=2", ZERO + FULL),
    Run("sinks", "dp=2,cp=2,tp=2", ALL),
    Run("sinks", "pp=2", ("--recompute", "selective")),
    Run("stopped"),
    Run("stopped", "pp=2"),
    Run("stopped", "pp=3"),
    Run("stopped", "pp=3", FULL + GPIPE),
    Run("stopped", "pp=3,dp=2", ZERO + FULL),
    Run("stopped", "pp=2,dp=2,tp=2"),
    Run("stopped", "cp=2"),
    Run("frozen", frozen=NOT_TRAINED),
    Run("frozen", "dp=2", frozen=NOT_TRAINED),
    Run("frozen", "dp=2", ZERO, NOT_TRAINED),
    Run("frozen", "tp=2", frozen=NOT_TRAINED),
    Run("frozen", "dp=2,cp=2", ZERO, NOT_TRAINED),
    Run("frozen", "pp=2", FULL, NOT_TRAINED),
    Run("frozen", "pp=2,dp=2,tp=2", ZERO, NOT_TRAINED),
    Run("ties", "dp=2", GRADIENTS),
    Run("ties", "dp=2,tp=2", ALL + FULL),
    Run("stopped", "pp=3,dp=2", GRADIENTS + FULL),
    Run("stopped", "pp=2,dp=2,tp=2", ALL),
    Run("frozen", "dp=2", GRADIENTS, NOT_TRAINED),
    Run("frozen", "pp=2,dp=2,tp=2", ALL + FULL, NOT_TRAINED),
    Run("shapes"),
    Run("shapes", "dp=2,tp=2", FULL),
    Run("shapes", "tp=3", ("--sequence-parallel",)),
    Run("heads"),
    Run("heads", "pp=3", FULL),
    Run("heads", "dp=2,cp=3", ALL),
    Run("heads", "pp=2,dp=2,tp=2", FLASH + ZERO + FULL),
    Run("heads", options=CHUNKS),
    Run("heads", "pp=3", FULL + ("--loss-chunks", "4")),
    Run("heads", "dp=2,cp=3", ALL + CHUNKS),
    Run("heads", "pp=2,dp=2,tp=2", FLASH + ZERO + FULL + CHUNKS),
    Run("ties", "tp=2", CHUNKS),
    Run("ties", "dp=2", GRADIENTS + CHUNKS),
    Run("stopped", "pp=3", FULL + GPIPE + CHUNKS),
    Run("frozen", "dp=2", CHUNKS, NOT_TRAINED),
    Run("experts", "pp=2", CHUNKS, ("bias.0",)),
    Run("experts", frozen=("bias.0",)),
    Run("experts", "pp=2", FULL, ("bias.0",)),
    Run("experts", "dp=2,cp=3", ALL, ("bias.0",)),
    Run("experts", "dp=2,tp=2", GRADIENTS, ("bias.0",)),
    Run("experts", "pp=2,dp=2,tp=3", ZERO + FULL, ("bias.0",)),
    # Five experts on two ranks, and on four.
    Run("experts", "ep=2", frozen=("bias.0",)),
    Run("experts", "ep=4", FULL, ("bias.0",)),
    Run("experts", "dp=2,ep=2,tp=2", ALL, ("bias.0",)),
    Run("experts", "pp=2,ep=2,cp=3", ZERO + FULL, ("bias.0",)),
    Run("experts", "dp=2,ep=2", GRADIENTS, ("bias.0",)),
    # All tokens to two experts, on one rank of two, and on two.
    Run("experts", "ep=2", ZERO, ("bias.0",), "one-rank"),
    Run("experts", "dp=2,ep=2", FULL, ("bias.0",), "two-ranks"),
    Run("experts", "ep=4,tp=2", FULL, ("bias.0",), "two-ranks"),
    # The same a third of the tokens at a time.
    Run("experts", "dp=2,ep=2", ALL + EXPERT_CHUNKS, ("bias.0",), "one-rank"),
    Run("experts", "ep=4,tp=2", EXPERT_CHUNKS, ("bias.0",), "two-ranks"),
    Run("experts", "dp=2,ep=2,cp=3", FULL + EXPERT_CHUNKS, ("bias.0",)),
)
# Weights that are not drawn. A bias that decides alone which experts are picked.
GIVEN = {
    "": {},
    "one-rank": {"bias.0": [9, 9, -9, -9, -9]},
    "two-ranks": {"bias.0": [-9, 9, -9, 9, -9]},
}


def read_parameters(model: str) -> dict[str, tuple[list[int], bool]]:
    """The shape of each parameter, and whether weight decay applies."""
    text = (FOLDER / f"{model}.mlir").read_text()
    pattern = r"nn\.parameter @(\S+) : tensor<((?:\d+x)*)f32>.*?( decay)?$"
    return {
        name: ([int(x) for x in shape.split("x")[:-1]], bool(decay))
        for name, shape, decay in re.findall(pattern, text, re.MULTILINE)
    }


def draw(seed: int, count: int, bound: int) -> list[int]:
    """Numbers below `bound` of Knuth's linear congruential generator."""
    numbers = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers.append((seed >> 33) % bound)
    return numbers


def weights(name: str, shape: list[int]) -> list[float]:
    count = 1
    for extent in shape:
        count *= extent
    return [(x - 12) / 16 for x in draw(zlib.crc32(name.encode()), count, 25)]


def tokens() -> list[int]:
    samples = RECIPE["steps"] * BATCH
    return draw(1, samples * SEQUENCE + 1, VOCABULARY)


def write_inputs(model: str, folder: pathlib.Path, given: dict) -> None:
    ids = tokens()
    (folder / "tokens.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids))
    header, data = {}, b""
    for name, (shape, _) in read_parameters(model).items():
        numbers = given.get(name) or weights(name, shape)
        begin = len(data)
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [begin, len(data)],
        }
    write_safetensors(folder / "weights.safetensors", header, data)


def read_tensor(path: pathlib.Path, name: str) -> bytes:
    header, data = read_safetensors(path)
    begin, end = header[name]["data_offsets"]
    return data[begin:end]


def train(tools: Tools, run: Run, folder: pathlib.Path) -> list[dict]:
    write_inputs(run.model, folder, GIVEN[run.given])
    tools.run(
        "plaitc",
        FOLDER / f"{run.model}.mlir",
        *("--mesh", run.mesh),
        *("--global-batch", BATCH),
        *("--micro-batch", ROWS // run.replicas),
        *("--seq", SEQUENCE),
        *run.options,
        *("-o", folder / "out.plan"),
    )
    data = (
        *("--tokens", folder / "tokens.bin"),
        *("--weights", folder / "weights.safetensors"),
    )
    tools.run("plait-run", folder / "out.plan", *data, "--check")
    tools.run(
        "plait-run",
        folder / "out.plan",
        *data,
        *(word for key, value in RECIPE.items() for word in (f"--{key}", value)),
        *("--log", folder / "steps.jsonl"),
        *("--save", folder / "saved"),
    )
    return compare.read_steps(str(folder / "steps.jsonl"))


def check_named(own: dict, expected: dict) -> None:
    require(list(own) == list(expected), f"the log names {list(own)}")
    for name, value in expected.items():
        off = abs(own[name] - value) / abs(value)
        require(off <= TOLERANCE, f"PyTorch: loss {name} off {off:.2g}")


def check(tools: Tools, run: Run, expected: list[dict]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        steps = train(tools, run, folder)[: len(expected)]
        rows = compare.differences(expected, steps)
        remark = ", ".join(
            f"{key} off {max(row[key] for row in rows):.2g}"
            for key in compare.KEYS
        )
        worst = max(row[key] for row in rows for key in compare.KEYS)
        require(worst <= TOLERANCE, f"PyTorch: {remark}")
        for own, other in zip(steps, expected, strict=True):
            check_named(own.get("losses", {}), other.get("losses", {}))
        saved = folder / "saved" / "model.safetensors"
        for name in read_parameters(run.model):
            given = read_tensor(folder / "weights.safetensors", name)
            require(
                (read_tensor(saved, name) == given) == (name in run.frozen),
                f"'{name}' was {'' if name in run.frozen else 'not '}changed",
            )
    return remark


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("models", options.filter)
    expected = json.loads(EXPECTED.read_text())
    for run in RUNS:
        report.case(
            run.name, lambda run=run: check(tools, run, expected[run.key])
        )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
