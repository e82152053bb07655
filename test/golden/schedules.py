#!/usr/bin/env python3
#===- schedules.py - PyTorch's pipeline schedules as CSV ----*- Python -*--===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Writes test/golden/schedules: what torch.distributed.pipelining's own CSV
writer says of its schedules, with and without communication, and what it writes
after its reader has read plait's. Needs PyTorch 2.6 or later and plait-plan. With
--waits, which needs PyTorch 2.15, it writes what is new there alone."""

import argparse
import pathlib
import subprocess
import tempfile

import torch
from torch.distributed.pipelining import schedules

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "test" / "golden" / "schedules"

# Class, placement, then ranks, chunks and microbatches.
THEIRS = (
    ("LoopedBFS", "loop", 2, 2, 4),
    ("LoopedBFS", "loop", 4, 3, 8),
    ("Interleaved1F1B", "loop", 2, 2, 4),
    ("Interleaved1F1B", "loop", 4, 2, 8),
    ("InterleavedZeroBubble", "loop", 2, 2, 4),
    ("InterleavedZeroBubble", "loop", 4, 2, 8),
    ("ZBVZeroBubble", "v", 2, 2, 4),
    ("ZBVZeroBubble", "v", 4, 2, 8),
    ("DualPipeV", "v", 4, 2, 8),
)
# Kind, then ranks, chunks and microbatches.
OURS = (
    ("gpipe", 4, 1, 8),
    ("1f1b", 4, 1, 8),
    ("interleaved-1f1b", 4, 2, 7),
    ("breadth-first", 2, 3, 4),
    ("zb-h1", 4, 1, 8),
    ("zb-h2", 4, 1, 8),
    ("zb-v", 4, 2, 8),
    ("v-half", 4, 2, 8),
    ("v-min", 4, 2, 8),
    ("dualpipe-v", 4, 2, 8),
    ("zb-auto", 4, 1, 8),
)
# What 2.15 writes: class and shape, what is said in the file's name, options.
WAITS = (
    ("LoopedBFS", "loop", 2, 2, 4, "", {}),
    ("Interleaved1F1B", "loop", 4, 2, 8, "", {}),
    ("InterleavedZeroBubble", "loop", 4, 2, 8, "", {}),
    ("ZBVZeroBubble", "v", 4, 2, 8, "", {}),
    ("DualPipeV", "v", 4, 2, 8, "", {}),
    (
        "Interleaved1F1B", "loop", 2, 2, 4, "-deferred",
        {"defer_pp_recv": True, "max_active_stages": 1, "defer_reduce_grad_wait": True},
    ),
    (
        "ZBVZeroBubble", "v", 2, 2, 4, "-budget",
        {"max_outstanding_sends": 1, "unshard_lookahead": "auto"},
    ),
)  # fmt: skip


class Stage(schedules._PipelineStageBase):
    """As much of a stage as an order is made from."""

    def __init__(self, index: int, count: int, ranks: int):
        self.stage_index, self.num_stages = index, count
        self.group_size, self.group_rank = ranks, 0
        self.is_first, self.is_last = index == 0, index == count - 1
        self.has_backward = True
        self.submod = None
        self.stage_index_to_group_rank = {}

    def _prepare_forward_infra(self, *unused):
        raise NotImplementedError

    def _create_grad_recv_info(self, *unused):
        raise NotImplementedError


def stages_of_first_rank(style: str, ranks: int, chunks: int) -> list[Stage]:
    count = ranks * chunks
    indices = range(0, count, ranks) if style == "loop" else (0, count - 1)
    return [Stage(index, count, ranks) for index in indices]


def loss(output, target):
    return output


def add_communication(schedule, path: pathlib.Path) -> None:
    count = schedule._num_stages
    where = schedule.stage_index_to_group_rank
    # The functions below take their argument apart.
    order = {rank: list(row) for rank, row in schedule.pipeline_order.items()}
    lowered = {
        rank: schedules._add_unshard_reshard(row) for rank, row in order.items()
    }
    runtime = schedules._PipelineScheduleRuntime(
        schedule._stages, schedule._n_microbatches, loss
    )
    runtime.pipeline_order_with_comms = schedules._add_send_recv(
        lowered, stage_to_rank=lambda stage: where[stage], num_stages=count
    )
    runtime._dump_csv(path, format="compute_comms")


def write_theirs(name: str, style: str, ranks: int, chunks: int, m: int) -> None:
    stages = stages_of_first_rank(style, ranks, chunks)
    schedule = getattr(schedules, "Schedule" + name)(stages, m, loss)
    stem = f"pytorch-{name}-{ranks}-{chunks}-{m}"
    compute = FOLDER / f"{stem}.csv"
    if isinstance(schedule, schedules._PipelineScheduleRuntime):
        schedule._dump_csv(compute, format="compute_only")
        schedule._dump_csv(FOLDER / f"{stem}-comms.csv", format="compute_comms")
        return
    schedule._dump_csv(compute)
    add_communication(schedule, FOLDER / f"{stem}-comms.csv")


def write_waits(
    name: str, style: str, ranks: int, chunks: int, m: int, what: str, options: dict
) -> None:
    stages = stages_of_first_rank(style, ranks, chunks)
    schedule = getattr(schedules, "Schedule" + name)(stages, m, loss, **options)
    stem = f"pytorch-2.15-{name}-{ranks}-{chunks}-{m}{what}"
    schedule._dump_csv(FOLDER / f"{stem}-comms.csv")


def write_ours(tool: str, kind: str, ranks: int, chunks: int, m: int) -> None:
    style = "v" if kind in ("zb-v", "v-half", "v-min", "dualpipe-v") else "loop"
    runtime = schedules._PipelineScheduleRuntime(
        stages_of_first_rank(style, ranks, chunks), m, loss
    )
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ours.csv"
        command = [tool, "schedule", "--kind", kind, "--stages", str(ranks)]
        command += ["--chunks", str(chunks), "--microbatches", str(m)]
        subprocess.run([*command, "--csv", str(path)], check=True)
        # Validates the order and adds communication, or raises.
        runtime._load_csv(str(path))
    name = f"plait-{kind}-{ranks}-{chunks}-{m}"
    runtime._dump_csv(FOLDER / f"{name}.csv", format="compute_only")
    runtime._dump_csv(FOLDER / f"{name}-comms.csv", format="compute_comms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plait-plan", default=ROOT / "build/bin/plait-plan")
    parser.add_argument("--waits", action="store_true")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    if options.waits:
        for arguments in WAITS:
            write_waits(*arguments)
        return
    for arguments in THEIRS:
        write_theirs(*arguments)
    for arguments in OURS:
        write_ours(str(options.plait_plan), *arguments)
    print(f"torch {torch.__version__}: {len(list(FOLDER.iterdir()))} files")


if __name__ == "__main__":
    main()
