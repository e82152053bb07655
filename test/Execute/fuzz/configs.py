#===- configs.py - Draws for the planner ------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Small models of the families that plaitc imports, trained in combinations of
everything that can be chosen, or in what the planner chooses. What such a model
computes is tested elsewhere: here plaitc must compile it, one step of the plan
must be that of one rank, and the plan must pass its check."""

import dataclasses
import json
import pathlib
import random
import re
import shlex
import struct

from harness import Failure, Tools, write_tokens

from . import trial
from .families import (
    count_experts,
    draw_balance,
    draw_config,
    draw_experts,
    get_heads,
)

# One step in fp32 against one rank in fp32: the same products, added up in
# another order. The farthest of 400 draws were off by 4.6e-7 and 1.3e-6.
TOLERANCE = {"loss": 1e-6, "gradient norm": 5e-6}
# So few that documents end all over a sequence.
DIFFERENT_TOKENS = 5
# (name, virtual stages of a rank)
JOINT_SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b", "breadth-first")
SCHEDULES = (
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved-1f1b", 2),
    ("interleaved-1f1b", 3),
    ("zb-h1", 1),
    ("zb-h2", 1),
    ("zb-auto", 1),
    ("zb-auto", 2),
    ("zb-v", 2),
    ("v-half", 2),
    ("v-min", 2),
    ("dualpipe-v", 2),
    ("breadth-first", 2),
    ("breadth-first", 3),
)

@dataclasses.dataclass
class ConfigTrial:
    config: dict
    options: list[str]

    def write(self, folder: pathlib.Path) -> None:
        text = json.dumps(self.config, indent=2) + "\n"
        (folder / "config.json").write_text(text)
        if "--target-weights" in self.options:
            self.write_rows(folder / "tokens.bin")
        elif "--document-mask" in self.options:
            write_tokens(folder / "tokens.bin", 5, 2000, DIFFERENT_TOKENS)

    def checking(self, folder) -> list[str]:
        """Arguments of plait-run behind the plan."""
        masked = "--document-mask" in self.options
        given = masked or "--target-weights" in self.options
        return [
            "--check",
            *(("--tokens", f"{folder}/tokens.bin") if given else ()),
            *(("--document-end", "0") if masked else ()),
        ]

    def write_rows(self, path: pathlib.Path) -> None:
        """Tokens with a loss mask, of which some rows have no target at all."""
        rng = random.Random(5)
        size = int(self.options[self.options.index("--seq") + 1])
        rows = int(self.options[self.options.index("--global-batch") + 1])
        with path.open("wb") as file:
            for row in range(rows):
                tokens = [rng.randrange(DIFFERENT_TOKENS) for _ in range(size + 1)]
                begin = rng.randint(0, size) if row else 0
                mask = [float(k >= begin) for k in range(size)]
                file.write(struct.pack(f"<{size + 1}i{size}f", *tokens, *mask))

    def arguments(self, folder) -> list[str]:
        plan = ["-o", f"{folder}/out.plan"]
        return [f"{folder}/config.json", *self.options, *plan]

    def commands(self) -> str:
        lines = [
            ["plaitc", *self.arguments(".")],
            ["plait-run", "./out.plan", *self.checking(".")],
        ]
        return "".join(shlex.join(line) + "\n" for line in lines)

    def run(self, tools: Tools, folder: pathlib.Path, trains=True) -> trial.Verdict:
        try:
            self.write(folder)
            compiled = tools.call("plaitc", *self.arguments(folder))
            if compiled.code:
                return trial.refused("plaitc", compiled)
            options = " ".join(map(str, self.arguments(folder)))
            if found := trial.unproven(compiled, options):
                return found
            return self.train(tools, folder) if trains else trial.Verdict("passed")
        except Failure as failure:
            return self.judge_failure(failure)

    def judge_failure(self, failure: Failure) -> trial.Verdict:
        """Judges a tool that does not end."""
        return trial.Verdict("hang", str(failure))

    def train(self, tools: Tools, folder: pathlib.Path) -> trial.Verdict:
        """Trains the plan in `folder`, and compares."""
        plan = f"{folder}/out.plan"
        for tool, *words in (
            ("plait-plan", "check", plan),
            ("plait-run", plan, *self.checking(folder)),
        ):
            outcome = tools.call(tool, *words)
            if outcome.code:
                return trial.refused(tool, outcome)
        return self.compare(outcome.stdout)

    def compare(self, text: str) -> trial.Verdict:
        if "bf16" in self.options:  # --check has judged it
            return trial.Verdict("passed")
        for name, bound in TOLERANCE.items():
            found = re.search(rf"{name} (\S+), reference ([^\s;]+)", text)
            if not found:
                return trial.Verdict(f"--check tells no {name}", text[-500:])
            off = trial.relative(float(found[1]), float(found[2]), 0.1)
            if not off <= bound:
                return trial.Verdict(f"{name} differs", f"by {off:.3g}: {found[0]}")
        return trial.Verdict("passed")


def draw_planned(rng: random.Random) -> ConfigTrial:
    """The planner chooses all that is not pinned."""
    devices, mesh = rng.choice(
        (
            (2, ()),
            (4, ()),
            (2, ("tp=2",)),
            (2, ("pp=2",)),
            (4, ("pp=2,tp=2",)),
            (4, ("pp=2,dp=2",)),
            (4, ("dp=2,tp=2",)),
            (8, ("pp=2,dp=2,tp=2",)),
        )
    )
    batch = rng.choice((8, 16))
    options = ["--cluster", f"cpu:{devices}"]
    options += ["--global-batch", str(batch)]
    options += ["--seq", rng.choice(("16", "19", "32"))]
    options += ["--mesh", mesh[0]] if mesh else []
    for name, values in (
        ("--micro-batch", ("1", "2")),
        ("--schedule", ("gpipe", "1f1b", "zb-h1")),
        ("--recompute", ("none", "selective", "full", "auto", "full:1")),
        ("--zero", ("0", "1")),
        ("--precision", ("fp32", "bf16")),
    ):
        if rng.random() < 0.4:
            options += [name, rng.choice(values)]
    if rng.random() < 0.4:
        options.append("--sequence-parallel")
    if rng.random() < 0.2:
        options.append("--target-weights")
    return ConfigTrial(draw_config(rng), options)


def draw_axes(rng: random.Random, ranks: int, config: dict) -> dict[str, int]:
    """Powers of two, up to `ranks` in all; tp as the heads allow, and ep as the
    experts do."""
    axes = {"pp": 1, "replicate": 1, "dp": 1, "ep": 1, "cp": 1, "tp": 1}
    experts = count_experts(config)
    names = ("ep", "ep", "ep") if experts else ("pp",)
    while ranks > 1:
        axis = rng.choice((*names, "pp", "replicate", "dp", "dp", "cp", "tp"))
        parts = 2 * axes["tp"]
        if {
            "tp": any(n % parts == 0 for n in get_heads(config)),
            "ep": 2 * axes["ep"] <= experts,
        }.get(axis, True):
            axes[axis] *= 2
        ranks //= 2
    return axes


def list_ways(sequence: int, axes: dict[str, int], config: dict) -> list[str]:
    """How ranks of cp may have attention; some more often than others."""
    parts = axes["cp"] * axes["tp"]
    # Dropout's masks go by the heads of keys and values.
    divided = get_heads(config)[: 1 if config.get("attention_dropout") else 2]
    ways = ["gather"]
    if sequence % (2 * axes["cp"]) == 0:
        ways.append("zigzag")
    if any(n % parts == 0 for n in divided):
        ways += ["heads", "heads"]
    return ways


def draw_combination(rng: random.Random, config: dict) -> ConfigTrial:
    axes = draw_axes(rng, rng.choice((2, 4, 4, 8)), config)
    schedule, chunks = rng.choice(SCHEDULES)
    layers = "n_layer" if "n_layer" in config else "num_hidden_layers"
    stages = axes["pp"] * chunks
    # Embedding and head may be stages of their own.
    config[layers] = rng.randint(max(1, stages - 2), stages + 3)
    if config[layers] == 1 and "first_k_dense_replace" in config:
        config["first_k_dense_replace"] = 0
    micro, microbatches = rng.choice((1, 1, 2)), rng.randint(1, 7)
    options = ["--mesh", ",".join(f"{k}={v}" for k, v in axes.items())]
    options += ["--schedule", schedule, "--chunks", str(chunks)]
    options += ["--micro-batch", str(micro)]
    replicas = axes["replicate"] * axes["dp"] * axes["ep"]
    options += ["--global-batch", str(micro * microbatches * replicas)]
    # Ranks of cp hold equal parts of a sequence.
    sequence = rng.choice((8, 13, 16) if axes["cp"] == 1 else (8, 24))
    options += ["--seq", str(sequence)]
    # Of each virtual stage its own.
    kinds = ("none", "selective", "full", "full:1", "full:1+selective")
    by_stage = "/".join(rng.choice(kinds) for _ in range(stages))
    # In bf16 another order of roundings sends a token of few to another expert, whose
    # gradients are then others, by half of what they are in models as small as these.
    # Golden runs of mixtures have bf16.
    few = "fp32" if count_experts(config) else "bf16"
    for name, values in (
        ("--recompute", ("none", "selective", "full", "full:1+selective:1", by_stage)),
        ("--zero", ("0", "1", "2", "3")),
        ("--precision", ("fp32", "fp32", "fp32", few)),
        ("--attention", ("flash", "unfused")),
        ("--epilogues", ("none", "bias", "all")),
        ("--dropout", ("config", "config", "off")),
    ):
        options += [name, rng.choice(values)]
    if rng.random() < 0.4:
        options.append("--sequence-parallel")
    if rng.random() < 0.3:
        options.append("--document-mask")
    if axes["cp"] > 1:
        ways = list_ways(sequence, axes, config)
        options += ["--context-parallel", rng.choice(ways)]
    if rng.random() < 0.3:
        kinds = ("optimizer", "activations", "optimizer,activations")
        options += ["--offload", rng.choice(kinds)]
    if rng.random() < 0.2:
        options += ["--reduce-precision", "bf16"]
    # What is gathered is of one sequence, and all of it; rows are not kept.
    whole = micro == 1 and "--sequence-parallel" not in options
    # Some of GPT-OSS are.
    whole = whole and config["model_type"] != "gpt_oss"
    if count_experts(config) and whole and schedule in JOINT_SCHEDULES:
        options += ["--expert-chunks", rng.choice(("1", "2", "3", "8"))]
        options += ["--expert-exchange", rng.choice(("tokens", "rows"))]
    if count_experts(config):
        counts = "--reduce-precision" not in options
        options += draw_balance(rng, config, counts)
    if axes["tp"] > 1:
        options += ["--tp-comm-overlap", rng.choice(("1", "2", "4", "8"))]
    if rng.random() < 0.2:
        options.append("--target-weights")
    if rng.random() < 0.15:
        options += ["--lora", rng.choice(("1", "2", "5"))]
    return ConfigTrial(config, options)


def draw_trial(seed: str) -> ConfigTrial:
    rng = random.Random(seed)
    kind = rng.random()
    if kind < 0.2:
        return draw_planned(rng)
    return draw_combination(rng, (draw_experts if kind < 0.4 else draw_config)(rng))
