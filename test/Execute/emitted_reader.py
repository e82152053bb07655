#!/usr/bin/env python3
#===- emitted_reader.py - Objects of other programs --------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Reads what emitted.py asks from standard input, has the named program's own objects
make a layout of it, and compares that with the plan. Ends with 3 where the program is
not installed. Imports what takes long where it is needed."""

import importlib.util
import json
import math
import sys

PACKAGES = {"megatron": "megatron", "torchtitan": "torchtitan", "deepspeed": "deepspeed"}


def get_groups(c, axis):
    """Groups of ranks along an axis of the plan, where pp is outermost and tp innermost,
    sorted."""
    order = ("pp", "replicate", "dp", "cp", "tp")
    sizes = [c[name] for name in order]
    groups = {}
    for rank in range(math.prod(sizes)):
        rest, place = rank, []
        for size in reversed(sizes):
            rest, index = divmod(rest, size)
            place.insert(0, index)
        place[order.index(axis)] = 0
        groups.setdefault(tuple(place), []).append(rank)
    return sorted(groups.values())


def equal(what, got, wanted):
    assert got == wanted, f"{what} is {got}, planned is {wanted}"


def read_megatron(asked):
    from megatron.core import num_microbatches_calculator
    from megatron.core.parallel_state import RankGenerator
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import (
        PipelineParallelLayerLayout,
    )

    c, options = asked["configuration"], asked["options"]
    sizes = {axis: int(options[f"{name}-parallel-size"]) for axis, name in
             (("tp", "tensor-model"), ("pp", "pipeline-model"), ("cp", "context"))}
    world = c["pp"] * c["dp"] * c["cp"] * c["tp"]
    sizes["dp"] = world // (sizes["tp"] * sizes["pp"] * sizes["cp"])
    ranks = RankGenerator(ep=1, order="tp-cp-ep-dp-pp", **sizes)
    for axis in ("tp", "pp", "cp", "dp"):
        equal(f"groups of {axis}", sorted(map(list, ranks.get_ranks(axis))), get_groups(c, axis))
    calculator = num_microbatches_calculator.ConstantNumMicroBatchesCalculator(
        int(options["global-batch-size"]), int(options["micro-batch-size"]), sizes["dp"],
        decrease_batch_size_if_needed=False, rank=0)
    equal("microbatches", calculator.get(), c["microbatches"])
    stages = [[] for _ in range(c["pp"])]
    if layout := options.get("pipeline-model-parallel-layout"):
        read = PipelineParallelLayerLayout(layout, c["pp"])
        read.validate_layer_layout(int(options["num-layers"]), None)
        stages = [[part.count(LayerType.decoder) for part in row] for row in read.layout]
    else:
        each = int(options.get("num-layers-per-virtual-pipeline-stage",
                               int(options["num-layers"]) // c["pp"]))
        chunks = int(options["num-layers"]) // c["pp"] // each
        stages = [[each] * chunks for _ in range(c["pp"])]
    layers = c["layers"] or [int(options["num-layers"])]
    equal("layers", stages, [layers[rank :: c["pp"]] for rank in range(c["pp"])])
    return f"{world} ranks, {calculator.get()} microbatches, layers {stages}"


def read_torchtitan(asked):
    import torch.distributed as dist
    from torch.distributed.pipelining.schedules import _Action, _validate_schedule
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed.pipeline_parallel import (
        _get_pp_rank_to_stage_indices_mapping,
    )

    c, words = asked["configuration"], asked["words"]
    config = ConfigManager().parse_args(words[words.index("--module"):])
    axes = ("pp", "replicate", "dp", "cp", "tp")
    world = math.prod(c[axis] for axis in axes)
    dims = ParallelDims.from_config(config.parallelism, world)
    equal("degrees", (dims.pp, dims.dp_replicate, dims.dp_shard, dims.cp, dims.tp),
          tuple(c[axis] for axis in axes))
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    dims.build_mesh()
    for axis, name in (("tp", "tp"), ("pp", "pp"), ("cp", "cp"), ("replicate", "dp_replicate")):
        if c[axis] > 1:
            equal(f"group of {axis}", dims.get_mesh(name).mesh.tolist(), get_groups(c, axis)[0])
    training = config.training
    equal("global batch", training.global_batch_size, c["global_batch"])
    policy = config.parallelism.fsdp_reshard_after_forward
    equal("ZeRO 3", policy == "always", c["zero"] == 3)
    if c["pp"] == 1:
        steps = training.global_batch_size // training.local_batch_size // (
            c["replicate"] * c["dp"])
        equal("accumulations", steps, c["microbatches"])
        return f"{world} ranks, {steps} accumulations"
    parallelism = config.parallelism
    equal("microbatches", training.local_batch_size //
          parallelism.pipeline_parallel_microbatch_size, c["microbatches"])
    parts = parallelism.module_fqns_per_model_part
    equal("layers", [sum(name.startswith("layers.") for name in part) for part in parts],
          c["layers"])
    order = {rank: [_Action.from_str(cell) for cell in line.split(",")]
             for rank, line in enumerate(asked["csv"].splitlines())}
    mapping = _validate_schedule(order, c["pp"], len(parts), c["microbatches"])
    for rank in range(c["pp"]):
        mine = _get_pp_rank_to_stage_indices_mapping(
            rank, c["pp"], parallelism.pipeline_parallel_schedule, len(parts))
        equal(f"stages of rank {rank}", sorted({a.stage_index for a in order[rank]}),
              sorted(mine))
        assert all(mapping[stage] == rank for stage in mine), mapping
    return f"{world} ranks, {c['microbatches']} microbatches, {len(parts)} stages"


def read_deepspeed(asked):
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

    comm.get_rank = lambda: 0  # no group is made: without one, the unit is not asked
    c, text = asked["configuration"], json.loads(asked["text"])

    class Unit:
        """The model-parallel unit that an engine makes of tp and sequence parallelism."""

        def get_data_parallel_world_size(self):
            return c["dp"]

    config = DeepSpeedConfig(text, mpu=Unit())
    equal("batch", config.train_batch_size, c["global_batch"])
    equal("micro-batch", config.train_micro_batch_size_per_gpu, c["micro_batch"])
    equal("accumulations", config.gradient_accumulation_steps, c["microbatches"])
    equal("ZeRO", int(config.zero_optimization_stage), c["zero"])
    equal("tp", max(config.tensor_parallel_config.autotp_size, 1), c["tp"])
    equal("bf16", config.bfloat16_config.enabled, c["precision"] == "bf16")
    offloads = config.zero_config.offload_optimizer
    equal("offload", bool(offloads), c["offload"] == "optimizer")
    return f"dp {c['dp']}, {c['microbatches']} accumulations, ZeRO {c['zero']}"


def main():
    asked = json.load(sys.stdin)
    program = asked["program"]
    if not importlib.util.find_spec(PACKAGES[program]):
        return 3
    print({"megatron": read_megatron, "torchtitan": read_torchtitan,
           "deepspeed": read_deepspeed}[program](asked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
