#===- layouts.py - How a training run is spread -----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The meshes, schedules and options that run.py varies."""

import dataclasses
import itertools

MESHES = (
    {},
    {"tp": 2},
    {"tp": 4},
    {"dp": 2},
    {"dp": 4},
    {"pp": 2},
    {"pp": 4},
    {"pp": 2, "dp": 2, "tp": 2},
)
RECOMPUTE = ("none", "full")


@dataclasses.dataclass(frozen=True)
class Layout:
    """How one run is spread: the options of plaitc that may not matter."""

    mesh: tuple
    schedule: str
    recompute: str
    sequence_parallel: bool = False
    tensor_overlap: int = 1
    precision: str = "fp32"
    attention: str = ""
    epilogues: str = ""
    zero: int = 0
    context_parallel: str = ""
    loss_chunks: int = 1
    expert_chunks: int = 1
    expert_exchange: str = "tokens"

    @property
    def alone(self) -> "Layout":
        """One rank that computes the same way."""
        return dataclasses.replace(
            ONE_RANK, precision=self.precision, attention=self.attention
        )

    @property
    def axes(self) -> dict[str, int]:
        plain = {"pp": 1, "replicate": 1, "dp": 1, "ep": 1, "cp": 1, "tp": 1}
        return plain | dict(self.mesh)

    @property
    def replicas(self) -> int:
        """Ranks that have sequences of their own."""
        return self.axes["replicate"] * self.axes["dp"] * self.axes["ep"]

    @property
    def choices(self) -> dict:
        """What is not as on one rank, by kind."""
        plain = dataclasses.asdict(ONE_RANK)
        own = {k: v for k, v in dataclasses.asdict(self).items() if v != plain[k]}
        own.pop("mesh", None)
        return own | {axis: size for axis, size in self.axes.items() if size > 1}

    @property
    def mesh_text(self) -> str:
        mesh = dict(self.mesh) or {"pp": 1}
        return ",".join(f"{axis}={size}" for axis, size in mesh.items())

    @property
    def name(self) -> str:
        sequence = "/sequence-parallel" if self.sequence_parallel else ""
        if self.tensor_overlap > 1:
            sequence += f"/{self.tensor_overlap}-pieces"
        precision = "/bf16" if self.precision == "bf16" else ""
        attention = f"/{self.attention}" if self.attention else ""
        epilogues = f"/epilogues-{self.epilogues}" if self.epilogues else ""
        zero = f"/zero-{self.zero}" if self.zero else ""
        context = f"/{self.context_parallel}" if self.context_parallel else ""
        if self.loss_chunks > 1:
            context += f"/loss-in-{self.loss_chunks}"
        if self.expert_chunks > 1:
            context += f"/experts-in-{self.expert_chunks}"
        if self.expert_exchange != "tokens":
            context += f"/experts-by-{self.expert_exchange}"
        return (
            f"{self.mesh_text}/{self.schedule}/{self.recompute}"
            f"{sequence}{precision}{attention}{epilogues}{zero}{context}"
        )


ONE_RANK = Layout((), "1f1b", "none")
WHOLE = Layout((("pp", 2), ("dp", 2), ("tp", 2)), "1f1b", "full")


def layouts(meshes=MESHES):
    for mesh in meshes:
        schedules = ("gpipe", "1f1b") if mesh.get("pp", 1) > 1 else ("1f1b",)
        for schedule, recompute in itertools.product(schedules, RECOMPUTE):
            yield Layout(tuple(mesh.items()), schedule, recompute)


def sequence_parallel(meshes=({"tp": 2}, {"tp": 4}, dict(WHOLE.mesh))):
    """The same with the sequence split over tp between the matmuls."""
    for layout in layouts(meshes):
        yield dataclasses.replace(layout, sequence_parallel=True)


def in_pieces():
    """The same with what ranks of tp exchange cut into pieces, which deals
    sequences out to them in rounds where they split them: once more often than
    a microbatch has sequences, and as often as there is a position for each."""
    for mesh, recompute, pieces, more in (
        ({"tp": 2}, "none", 2, {"sequence_parallel": False}),
        ({"tp": 2}, "none", 4, {}),
        ({"tp": 4}, "full", 3, {}),
        ({"tp": 4}, "none", 16, {"attention": "flash"}),
        ({"cp": 2, "tp": 2}, "none", 4, {"attention": "flash"}),
        (dict(WHOLE.mesh), "full", 4, {"zero": 1, "precision": "bf16"}),
        (dict(WHOLE.mesh), "selective", 8, {}),
        (dict(WHOLE.mesh), "none", 4, {"sequence_parallel": False}),
    ):
        options = {"sequence_parallel": True} | more
        yield Layout(
            tuple(mesh.items()), "1f1b", recompute, tensor_overlap=pieces,
            **options
        )


def mixed(meshes=({}, {"tp": 2}, {"dp": 2}, {"pp": 2}, dict(WHOLE.mesh))):
    """The same in bf16."""
    for layout in layouts(meshes):
        yield dataclasses.replace(layout, precision="bf16")


def flash():
    """The same with attention in one step."""
    for layout in layouts(({}, {"tp": 2}, dict(WHOLE.mesh))):
        yield dataclasses.replace(layout, attention="flash")
    for layout in (ONE_RANK, WHOLE):
        yield dataclasses.replace(
            layout, attention="flash", precision="bf16"
        )


def fused():
    """The same with biases and GELU in the matmuls, as GPUs have them. One rank
    that computes without is what the losses are held against."""
    meshes = ({}, {"tp": 2}, {"dp": 2}, {"pp": 2}, dict(WHOLE.mesh))
    for layout in layouts(meshes):
        yield dataclasses.replace(layout, epilogues="all")
    for layout in (ONE_RANK, WHOLE):
        yield dataclasses.replace(layout, epilogues="bias")
        yield dataclasses.replace(
            layout, precision="bf16", epilogues="all", attention="flash"
        )


def divided():
    """The same with the optimizer's state, gradients, parameters divided over
    dp."""
    for layout in layouts(({"dp": 2}, {"dp": 4}, dict(WHOLE.mesh))):
        yield dataclasses.replace(layout, zero=1)
    for zero in (2, 3):
        yield dataclasses.replace(WHOLE, zero=zero)
    yield dataclasses.replace(WHOLE, zero=1, sequence_parallel=True)
    yield dataclasses.replace(ONE_RANK, zero=1)
    for layout in mixed(({"dp": 4}, dict(WHOLE.mesh))):
        yield dataclasses.replace(layout, zero=1)


def chunked():
    """The same with logits, loss and their gradients a chunk of rows at a time: the
    sequences of a microbatch, or of one the tokens; also where the vocabulary is
    split, where rows are in zig-zag order, and where gradients are divided."""
    whole, context = dict(WHOLE.mesh), {"cp": 2, "tp": 2}
    for mesh, schedule, chunks, more in (
        ({}, "1f1b", 2, {}),
        ({}, "1f1b", 16, {"recompute": "full"}),
        ({}, "1f1b", 2, {"precision": "bf16", "attention": "flash"}),
        ({"tp": 2}, "1f1b", 2, {"sequence_parallel": True, "tensor_overlap": 2}),
        ({"tp": 4}, "1f1b", 4, {"precision": "bf16"}),
        ({"dp": 4}, "1f1b", 2, {"zero": 3}),
        ({"dp": 2}, "1f1b", 4, {"zero": 2}),
        ({"cp": 4}, "1f1b", 4, {"context_parallel": "zigzag"}),
        (context, "1f1b", 2, {"context_parallel": "heads", "attention": "flash"}),
        ({"pp": 4}, "gpipe", 2, {}),
        ({"pp": 2, "tp": 2}, "zb-h1", 4, {}),
        (whole, "1f1b", 2, {"zero": 1, "precision": "bf16"}),
    ):
        layout = Layout(tuple(mesh.items()), schedule, "none", loss_chunks=chunks)
        yield dataclasses.replace(layout, **more)


def grouped():
    """The same in groups of replicas that have a copy of the state each."""
    groups = {"replicate": 2, "dp": 2}
    for axes, recompute, more in (
        (groups, "none", {"zero": 1}),
        (groups, "full", {"zero": 3, "precision": "bf16"}),
        (groups | {"tp": 2}, "none", {"zero": 2, "sequence_parallel": True}),
        (groups | {"cp": 2}, "none", {"zero": 3}),
        ({"pp": 2} | groups, "full", {"zero": 3}),
        ({"pp": 2} | groups | {"tp": 2}, "none", {"zero": 1, "precision": "bf16"}),
        ({"replicate": 4}, "none", {}),
    ):
        yield Layout(tuple(axes.items()), "1f1b", recompute, **more)


def selective():
    """Cheap values computed again: all of a layer this small but what it takes
    them from."""
    for layout in (ONE_RANK, WHOLE):
        yield dataclasses.replace(layout, recompute="selective")
    yield dataclasses.replace(
        WHOLE, schedule="gpipe", recompute="selective", precision="bf16"
    )
    # Layers that differ, and virtual stages.
    yield dataclasses.replace(ONE_RANK, recompute="full:1+selective")
    for kinds in ("selective:1", "full:1/selective:1"):
        yield dataclasses.replace(WHOLE, recompute=kinds)


def context():
    """The same with the sequence split over cp, in every company. Ranks of cp
    that do not hold the first positions mask, rotate and look up by what they
    hold; gradients that are scaled by cp fail here by a factor."""
    axes = ({"cp": 2}, {"cp": 4}, {"dp": 2, "cp": 2}, {"cp": 2, "tp": 2})
    for layout in layouts(axes):
        if layout.recompute == "none" or layout.axes["cp"] == 4:
            yield layout
            yield dataclasses.replace(layout, attention="flash")
    whole = Layout(
        (("pp", 2), ("dp", 2), ("cp", 2), ("tp", 2)), "1f1b", "full"
    )
    yield dataclasses.replace(whole, attention="flash")
    whole = dataclasses.replace(whole, recompute="none", zero=1)
    yield whole
    yield dataclasses.replace(whole, precision="bf16")
    yield dataclasses.replace(whole, precision="bf16", attention="flash")
    both = Layout((("cp", 2), ("tp", 2)), "1f1b", "none", True)
    yield both
    yield dataclasses.replace(both, attention="flash", recompute="full")
    yield Layout((("pp", 4), ("cp", 2)), "gpipe", "none")


def by_heads():
    """The same with attention split by heads over cp."""
    none, full = "none", "full"
    for axes, recompute, attention, more in (
        ({"cp": 2}, none, "", {}),
        ({"cp": 2}, full, "flash", {}),
        ({"cp": 2}, "selective", "flash", {"precision": "bf16"}),
        ({"dp": 2, "cp": 2}, none, "flash", {"zero": 3}),
        ({"pp": 2, "cp": 2}, full, "", {"zero": 1}),
        ({"cp": 2, "tp": 2}, none, "flash", {"sequence_parallel": True}),
        ({"cp": 2, "tp": 2}, full, "", {}),
        (WHOLE_CONTEXT, none, "flash", {"zero": 2}),
        (WHOLE_CONTEXT, none, "", {"precision": "bf16"}),
    ):
        yield Layout(
            tuple(axes.items()), "1f1b", recompute, attention=attention,
            context_parallel="heads", **more
        )


def zigzag():
    """The same with the sequence in zig-zag order over cp."""
    none, full = "none", "full"
    for axes, recompute, attention, more in (
        ({"cp": 2}, none, "", {}),
        ({"cp": 2}, full, "flash", {}),
        ({"cp": 4}, none, "flash", {}),
        ({"cp": 4}, "selective", "", {"precision": "bf16"}),
        ({"dp": 2, "cp": 2}, none, "flash", {"zero": 3}),
        ({"pp": 2, "cp": 2}, full, "", {"zero": 1}),
        ({"pp": 2, "cp": 2}, none, "flash", {}),
        ({"cp": 2, "tp": 2}, none, "flash", {"sequence_parallel": True}),
        ({"cp": 2, "tp": 2}, full, "", {"sequence_parallel": True}),
        ({"cp": 2, "tp": 2}, none, "", {}),
        (WHOLE_CONTEXT, none, "flash", {"zero": 2, "precision": "bf16"}),
    ):
        yield Layout(
            tuple(axes.items()), "1f1b", recompute, attention=attention,
            context_parallel="zigzag", **more
        )


# Beside four ranks of tp there are too few key/value heads of Llama's four: keys
# and values are gathered, and ranks have one of the two query heads of each.
FEW_HEADS = Layout(
    (("cp", 2), ("tp", 4)), "1f1b", "none", context_parallel="heads"
)
WHOLE_CONTEXT = {"pp": 2, "dp": 2, "cp": 2, "tp": 2}
CONTEXT = Layout((("dp", 2), ("cp", 2), ("tp", 2)), "1f1b", "none")


def families():
    """One layout of each kind: what a family has beside Llama's lies in its layers,
    which all of them split."""
    yield from (ONE_RANK, WHOLE, CONTEXT)
    yield dataclasses.replace(ONE_RANK, attention="flash")
    yield dataclasses.replace(CONTEXT, attention="flash", recompute="full")
    for kind in ("heads", "zigzag"):
        yield dataclasses.replace(CONTEXT, attention="flash", context_parallel=kind)
    yield dataclasses.replace(WHOLE, attention="flash", zero=3)
    yield dataclasses.replace(WHOLE, sequence_parallel=True, recompute="selective")
    yield dataclasses.replace(ONE_RANK, precision="bf16")
    yield dataclasses.replace(WHOLE, precision="bf16", attention="flash", zero=1)


def experts():
    """Experts over ranks, in every company: gradients of experts that are summed
    over ep, or others' that are not, fail here."""
    none, full = "none", "full"
    for axes, recompute, more in (
        ({"ep": 2}, none, {}),
        ({"ep": 4}, full, {}),
        ({"ep": 2}, "selective", {"precision": "bf16"}),
        ({"dp": 2, "ep": 2}, none, {"zero": 1}),
        ({"dp": 2, "ep": 2}, full, {"zero": 2}),
        ({"dp": 2, "ep": 4}, none, {"zero": 3}),
        ({"ep": 2, "tp": 2}, none, {}),
        ({"ep": 2, "tp": 2}, full, {"sequence_parallel": True}),
        ({"ep": 2, "cp": 2}, none, {"attention": "flash"}),
        ({"ep": 2, "cp": 2}, full, {"context_parallel": "zigzag"}),
        ({"pp": 2, "ep": 2}, full, {}),
        # State of what all ranks of ep have, divided over them; of experts over others.
        ({"ep": 4}, none, {"zero": 1}),
        ({"ep": 2, "tp": 2}, full, {"zero": 2}),
        ({"dp": 2, "ep": 2, "cp": 2}, "selective", {"zero": 3, "attention": "flash"}),
        ({"pp": 2, "ep": 4}, none, {"zero": 3, "precision": "bf16"}),
        (dict(WHOLE.mesh) | {"ep": 2}, none, {"zero": 3}),
        (dict(WHOLE.mesh) | {"ep": 2}, full, {"precision": "bf16", "zero": 1}),
        # A chunk of tokens at a time.
        ({}, none, {"expert_chunks": 2}),
        ({"ep": 4}, none, {"expert_chunks": 3}),
        ({"dp": 2, "ep": 2}, "selective", {"expert_chunks": 32, "zero": 3}),
        ({"ep": 4, "cp": 2}, none, {"expert_chunks": 2, "attention": "flash"}),
        ({"ep": 4, "tp": 2}, full, {"expert_chunks": 4, "loss_chunks": 2}),
        ({"pp": 2, "ep": 2}, none, {"expert_chunks": 8, "precision": "bf16"}),
        (dict(WHOLE.mesh) | {"ep": 2}, full, {"expert_chunks": 2, "zero": 2}),
        # Rows of the experts that are chosen, in place of all tokens.
        ({"dp": 2, "ep": 2}, full, {"expert_exchange": "rows", "zero": 2}),
        ({"ep": 4}, full, {"expert_exchange": "rows", "precision": "bf16"}),
        (
            {"pp": 2, "ep": 2, "cp": 2}, "selective",
            {"expert_exchange": "rows", "expert_chunks": 3},
        ),
    ):
        mesh = {axis: axes[axis] for axis in ("pp", "dp", "ep", "cp", "tp") if axis in axes}
        yield Layout(tuple(mesh.items()), "1f1b", recompute, **more)
