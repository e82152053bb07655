#===- layout.py - How a drawn model is trained ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Options of plaitc and plait-run, drawn so that none of them is refused for
what the user guide says about meshes and batches."""

import dataclasses
import random

from harness import READ_BY

from .graph import Graph
from .recipe import Batch, Recipe

# (weight, axes)
MESHES = (
    (14, {}),
    (12, {"dp": 2}),
    (4, {"dp": 3}),
    (2, {"dp": 4}),
    (16, {"tp": 2}),
    (6, {"tp": 3}),
    (6, {"tp": 4}),
    (12, {"pp": 2}),
    (3, {"pp": 3}),
    (1, {"pp": 4}),
    (8, {"dp": 2, "tp": 2}),
    (6, {"pp": 2, "tp": 2}),
    (6, {"pp": 2, "dp": 2}),
    (1, {"pp": 3, "tp": 2}),
    (2, {"dp": 2, "tp": 3}),
    (1, {"dp": 2, "tp": 4}),
    (5, {"pp": 2, "dp": 2, "tp": 2}),
)
# (name, virtual stages of a rank)
SCHEDULES = (
    ("1f1b", 1),
    ("gpipe", 1),
    ("zb-h1", 1),
    ("zb-h2", 1),
    ("zb-v", 2),
    ("v-half", 2),
    ("dualpipe-v", 2),
    ("interleaved-1f1b", 2),
    ("breadth-first", 2),
)
OFFLOADS = ("optimizer", "activations")


@dataclasses.dataclass
class Layout:
    pp: int = 1
    dp: int = 1
    tp: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    recompute: str = "none"
    zero: int = 0
    offload: str = "none"
    sequence_parallel: bool = False
    tensor_overlap: int = 1
    micro: int = 1
    microbatches: int = 1
    attention: str = ""
    epilogues: str = ""
    precision: str = "fp32"
    optimizer: str = "adamw"
    layers: tuple[int, ...] = ()  # of each stage; empty: plaitc cuts
    shards: tuple[tuple[str, int], ...] = ()  # dimension of a parameter on tp
    groups: tuple[tuple[str, str], ...] = ()  # a parameter and its own optimizer
    reference: bool = True

    @property
    def batch(self) -> Batch:
        return Batch(self.micro, self.dp, self.microbatches)

    @property
    def stages(self) -> int:
        return self.pp * self.chunks

    @property
    def mesh(self) -> str:
        axes = {"pp": self.pp, "dp": self.dp, "tp": self.tp}
        named = [f"{k}={v}" for k, v in axes.items() if v > 1]
        return ",".join(named) or "pp=1"

    def options(self, graph: Graph) -> list[str]:
        """Of plaitc."""
        found = ["--mesh", self.mesh, "--schedule", self.schedule]
        found += ["--chunks", str(self.chunks)]
        found += ["--recompute", self.recompute, "--zero", str(self.zero)]
        found += ["--micro-batch", str(self.micro)]
        found += ["--global-batch", str(self.batch.size)]
        found += ["--seq", str(graph.extents["s"])]
        found += ["--precision", self.precision, "--offload", self.offload]
        found += ["--optimizer", self.optimizer]
        found += ["--sequence-parallel"] if self.sequence_parallel else []
        found += ["--tp-comm-overlap", str(self.tensor_overlap)]
        found += ["--attention", self.attention] if self.attention else []
        found += ["--epilogues", self.epilogues] if self.epilogues else []
        if self.layers:
            found += ["--layers", ",".join(map(str, self.layers))]
        for name, dim in self.shards:
            if name in graph.parameters:
                entries = ["{}"] * len(graph.parameters[name].dims)
                entries[dim] = '{"tp"}'
                found += ["--shard", f"{name}=[{','.join(entries)}]"]
        for name, own in self.groups:
            if name in graph.parameters:
                found += ["--optimizer-of", f"{name}={own}"]
        return found + ([] if self.reference else ["--no-reference"])


def run_options(recipe: Recipe, layout: Layout, graph: Graph) -> list[str]:
    """Of plait-run. Muon of a group has no AdamW beside it, and AdamW of one has its
    factor of the rate."""
    groups = {own for name, own in layout.groups if name in graph.parameters}
    groups -= {layout.optimizer}

    def is_read(name: str) -> bool:
        readers = READ_BY.get(name, (layout.optimizer,))
        if name == "adamw_lr_factor" and "adamw" in groups:
            return True
        in_group = groups & set(readers) - {"muon" if name != "momentum" else ""}
        return layout.optimizer in readers or (bool(in_group) and name in READ_BY)

    found = []
    for field in dataclasses.fields(recipe):
        if is_read(field.name):
            option = "--" + field.name.replace("_", "-")
            found += [option, str(getattr(recipe, field.name))]
    return found


def draw_layout(rng: random.Random) -> Layout:
    """All that must be known before the model; finish_layout does the rest."""
    weights, meshes = zip(*MESHES)
    layout = Layout(**rng.choices(meshes, weights)[0])
    layout.micro = rng.choice((1, 1, 2, 2, 3))
    layout.microbatches = rng.choice((1, 1, 2, 2, 3, 4))
    if layout.pp > 1:
        layout.microbatches = rng.choice((1, 2, 3, 4, 5))
    layout.schedule, layout.chunks = rng.choice(SCHEDULES)
    if layout.pp * layout.chunks > 4:
        layout.schedule, layout.chunks = "zb-h1", 1
    layout.recompute = rng.choice(("none", "none", "selective", "full"))
    layout.zero = rng.choice((0, 0, 1, 1, 2, 3)) if layout.dp > 1 else 0
    layout.offload = rng.choice((*(("none",) * 6), *OFFLOADS))
    layout.sequence_parallel = layout.tp > 1 and rng.random() < 0.5
    layout.tensor_overlap = rng.choice((1, 2, 2, 3, 4)) if layout.tp > 1 else 1
    layout.attention = rng.choice(("", "unfused", "flash"))
    layout.epilogues = rng.choice(("", "", "", "bias", "all"))
    layout.precision = rng.choice(("fp32",) * 4 + ("bf16",))
    # Not Lion: the sign of what is nothing but rounding is anything.
    layout.optimizer = rng.choice(("adamw", "adamw", "sgd", "muon"))
    # What --check compares with is half of what there is to compile.
    layout.reference = rng.random() < 0.4
    return layout


def cut(rng: random.Random, layers: int, stages: int) -> tuple[int, ...]:
    """`layers` as a sum of `stages` positive numbers."""
    ends = sorted(rng.sample(range(1, layers), stages - 1)) + [layers]
    return tuple(b - a for a, b in zip([0] + ends, ends))


def draw_groups(rng: random.Random, layout: Layout, graph: Graph, matrices) -> None:
    """Optimizers of single parameters, Muon of matrices alone."""
    if rng.random() < 0.7:
        return
    layout.groups = tuple(
        (name, rng.choice(("adamw", "sgd") + ("muon",) * (name in matrices)))
        for name in graph.parameters
        if rng.random() < 0.4
    )


def finish_layout(rng: random.Random, layout: Layout, graph: Graph) -> None:
    layers = len(graph.layers)
    if layout.stages > 1 and rng.random() < 0.3:
        layout.layers = cut(rng, layers, layout.stages)
    if layout.tp > 1:
        pins = [
            (p.name, dim)
            for p in graph.parameters.values()
            for dim, extent in enumerate(graph.shape(p.dims))
            if extent >= layout.tp and rng.random() < 0.06
        ]
        layout.shards = tuple(dict(pins).items())
