#===- compression_runs.py - Compressed sums to try --------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs whose gradients are compressed: compressors on meshes, listed and drawn."""

import dataclasses
import math
import random
import re

import compressors
import covering


@dataclasses.dataclass(frozen=True)
class Run:
    scheme: str  # as --compress has it
    mesh: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = [x.removeprefix("--") for x in self.options]
        return "/".join((self.scheme, self.mesh, *words))

    @property
    def replicas(self) -> int:
        found = re.search(r"dp=(\d+)", self.mesh)
        return int(found[1]) if found else 1

    def get_choices(self) -> dict:
        """Sizes of blocks are no choice here; positions are sent where few elements
        are kept, as usual."""
        first, *parts = self.scheme.split("+")
        name = first.partition(":")[0]
        isFed = {"feedback": name} if "feedback" in parts else {}
        isFed |= {"rounds": "several"} if "rounds" in self.scheme else {}
        isUsual = compressors.SCHEMES[name].share and "keep" not in self.scheme
        share = {"share": name} if isUsual else {}
        share |= {"both": name} if "both" in parts else {}
        choices = covering.split_options(self.mesh, self.options)
        return {"scheme": name} | isFed | share | choices


RUNS = (
    Run("int8", "dp=2"),
    Run("int8+feedback", "dp=2"),
    Run("int8:32+feedback", "dp=4", ("--micro-batch", "2")),
    Run("int8:64", "1"),
    Run("int4+feedback", "dp=2"),
    Run("int4:32", "pp=2,dp=2"),
    Run("int4:32+feedback", "dp=2,tp=2"),
    # A tied table's gradient is the sum of two stages'.
    Run("int8+feedback", "pp=2,dp=2"),
    Run("int8+feedback", "pp=2,dp=2", ("--schedule", "zb-h1")),
    Run("int8:32+feedback", "dp=2,tp=2"),
    Run("int8:32+feedback", "dp=2,tp=2", ("--sequence-parallel",)),
    Run("int8+feedback", "dp=2,cp=2"),
    Run("sign", "dp=2"),
    Run("sign+feedback", "pp=2,dp=2", ("--schedule", "zb-h1")),
    Run("sign:32+feedback", "dp=4", ("--micro-batch", "2")),
    Run("sign:64+feedback", "dp=2,tp=2"),
    Run("topk", "dp=2"),
    Run("topk+feedback", "dp=2,cp=2"),
    # A replica updates its part of the sum, and has not sent parts of all of it.
    Run("int8+feedback", "dp=2", ("--zero", "1")),
    Run("sign+feedback", "dp=4", ("--zero", "1")),
    Run("topk:64+keep:2+feedback", "dp=2,tp=2", ("--zero", "1")),
    # Micro-batches add gradients to what is fed back.
    Run("int8+feedback", "dp=2", ("--zero", "2", "--micro-batch", "1")),
    Run("sign:32+feedback", "dp=4", ("--zero", "2", "--micro-batch", "1")),
    Run("topk:64+keep:2+feedback", "dp=2,tp=2", ("--zero", "2", "--sequence-parallel")),
    Run("qsgd2:64+feedback+rounds:3", "dp=2,cp=2", ("--zero", "2")),
    Run("randk:64+keep:16+feedback", "pp=2,dp=2", ("--zero", "2", "--schedule", "zb-h1")),
    Run("sign:64+feedback", "pp=2,dp=2", ("--zero", "2", "--schedule", "interleaved-1f1b")),
    Run("int4:32+feedback", "pp=2,dp=2", ("--zero", "2", "--micro-batch", "1")),
    Run("int8+feedback", "dp=2", ("--zero", "2", "--precision", "bf16")),
    # And have parts of what has whole blocks for each.
    Run("int8:64+feedback", "dp=2", ("--zero", "3", "--micro-batch", "1")),
    Run("sign:32+feedback", "dp=4", ("--zero", "3", "--recompute", "full")),
    Run("topk:64+keep:2+feedback", "dp=2,tp=2", ("--zero", "3")),
    Run("int8:32+feedback", "dp=2,tp=2", ("--zero", "3", "--sequence-parallel")),
    Run("qsgd2:64+feedback+rounds:3", "dp=2,cp=2", ("--zero", "3")),
    Run("qsgd4:32+feedback", "dp=2,tp=2", ("--zero", "3", "--micro-batch", "1")),
    Run("randk:64+keep:16+feedback", "pp=2,dp=2", ("--zero", "3", "--schedule", "zb-h1")),
    Run("int8:32+feedback", "pp=2,dp=2", ("--zero", "3", "--schedule", "interleaved-1f1b")),
    Run("int8:32+feedback", "dp=2", ("--zero", "3", "--precision", "bf16")),
    # Bits and not columns say what is kept.
    Run("topk:32+keep:5+feedback", "dp=2,tp=2", ("--sequence-parallel",)),
    Run("topk:128+keep:3+feedback", "pp=2,dp=2"),
    Run("topk:256+keep:256+feedback", "dp=4"),
    # The same random numbers on every mesh.
    Run("qsgd8", "dp=2"),
    Run("qsgd8", "dp=4", ("--zero", "1", "--micro-batch", "2")),
    Run("qsgd4:32", "dp=2,tp=2"),
    Run("qsgd2:64+feedback", "pp=2,dp=2", ("--schedule", "zb-h1")),
    Run("randk", "dp=2"),
    Run("randk:32+keep:5+feedback", "dp=2,tp=2", ("--sequence-parallel",)),
    Run("randk:128+keep:32", "pp=2,dp=2"),
    Run("randk:64+keep:16+feedback", "dp=4", ("--zero", "1", "--micro-batch", "2")),
    Run("qsgd8:64", "1"),
    # Differences from what was sent before.
    Run("ef21-topk", "dp=2"),
    Run("ef21-topk:32+keep:8", "dp=2,tp=2", ("--zero", "1")),
    Run("ef21-topk:128+keep:16", "pp=2,dp=2", ("--micro-batch", "2")),
    # What is left of a message is sent in the next one.
    Run("topk+rounds:2", "dp=2"),
    Run("topk:64+keep:2+feedback+rounds:3", "dp=2,tp=2", ("--zero", "1")),
    Run("sign:32+feedback+rounds:4", "pp=2,dp=2", ("--schedule", "zb-h1")),
    Run("int4:32+rounds:2", "dp=4", ("--micro-batch", "2")),
    Run("qsgd2:64+feedback+rounds:3", "dp=2,cp=2", ("--zero", "1")),
    Run("randk:64+keep:4+feedback+rounds:2", "dp=2,tp=2", ("--sequence-parallel",)),
    # Replicas add up other blocks, and send sums again.
    Run("int8+feedback+both", "dp=2"),
    Run("int8:32+feedback+both", "dp=2,tp=2", ("--sequence-parallel",)),
    Run("int8+both", "dp=4", ("--micro-batch", "2")),
    Run("sign:32+feedback+both", "dp=4"),
    Run("sign:64+feedback+both", "pp=2,dp=2", ("--schedule", "zb-h1")),
    Run("topk:64+keep:3+feedback+both", "dp=2,cp=2"),
    Run("topk:128+keep:3+both", "pp=2,dp=2"),
    Run("qsgd8:64+both", "dp=2,tp=2"),
    Run("qsgd2:64+feedback+both", "dp=4", ("--micro-batch", "2")),
    Run("randk:32+keep:5+feedback+both", "dp=2,tp=2"),
    Run("int4:32+feedback+rounds:2+both", "dp=2,cp=2"),
    Run("int8+feedback+both", "1"),
    Run("int8+feedback+both", "dp=2", ("--precision", "bf16")),
    Run("topk:64+keep:3+feedback+both", "dp=4", ("--precision", "bf16")),
)


def draw_scheme(choose: random.Random) -> str:
    """Blocks that no split of the model cuts."""
    name = choose.choice(sorted(x for x in compressors.SCHEMES if x != "onebit-adam"))
    block = choose.choice((32, 64))
    text = f"{name}:{block}"
    if compressors.SCHEMES[name].share:
        kept = choose.randint(1, block)
        text += f"+keep:{kept}" if kept > 1 else ""  # which is not told of
    if name.startswith("ef21"):
        return text
    text += choose.choice(("", "+feedback"))
    isDrawn = name.startswith(("qsgd", "randk"))
    if not isDrawn or text.endswith("feedback"):
        text += choose.choice(("", "", "+rounds:2", "+rounds:3"))
    return text + choose.choice(("", "", "+both"))


def draw_run(choose: random.Random) -> Run:
    """Compressor, mesh, schedule, accumulation and ZeRO."""
    axes = {"pp": 1, "dp": choose.choice((1, 2, 2, 4))}
    axes[choose.choice(("pp", "tp", "cp"))] = choose.choice((1, 2))
    if math.prod(axes.values()) <= 4:
        axes[choose.choice(("pp", "tp"))] = 2
    mesh = ",".join(f"{axis}={n}" for axis, n in axes.items() if n > 1) or "1"
    scheme = draw_scheme(choose)
    isFed = "+feedback" in scheme and not scheme.startswith("powersgd")
    zeros = "0" if scheme.endswith("both") else "0123" if isFed else "01"
    options = [
        "--zero", choose.choice(zeros),
        "--micro-batch", str(choose.choice([n for n in (1, 2, 4) if n * axes["dp"] <= 8])),
    ]  # fmt: skip
    if axes["pp"] > 1:
        options += ["--schedule", choose.choice(("gpipe", "1f1b", "zb-h1"))]
    if axes.get("tp", 1) > 1 and choose.random() < 0.5:
        options += ["--sequence-parallel"]
    return Run(scheme, mesh, tuple(options))
