#===- mixtures.py - Draws of mixtures of experts ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Small mixtures of experts, trained for two steps on drawn meshes and by drawn
options, and by one rank. Draws that follow each other share a model, and so what
one rank makes of it: it is trained once in each precision. The second step's loss
tells whether all parameters were updated, each by its own gradient."""

import dataclasses
import functools
import json
import math
import pathlib
import random
import shlex
import tempfile

from harness import Failure, Tools, write_tokens

from . import trial
from .configs import JOINT_SCHEDULES, SCHEDULES, ConfigTrial, draw_axes, list_ways
from .families import draw_balance, draw_experts

SHARED = 10  # draws of one model
STEPS = 2
# By how much a step may be off what one rank does in the same precision and by the
# same attention, relative. Of fp32: sums in another order. Of bf16: a token whose best
# experts are as near to each other as roundings may take another one, which of a few
# tokens moves a loss by more than 2^-8.
TOLERANCE = {
    "fp32": {"loss": 1e-6, "grad_norm": 5e-6},
    "bf16": {"loss": 2.0**-7, "grad_norm": 2.0**-3},
}


@dataclasses.dataclass(frozen=True)
class Model:
    """What is trained, however it is spread."""

    config: str  # JSON
    options: tuple[str, ...]

    @property
    def layers(self) -> int:
        return json.loads(self.config)["num_hidden_layers"]

    def get(self, option: str) -> int:
        return int(self.options[self.options.index(option) + 1])


def draw_model(seed: str) -> Model:
    rng = random.Random(seed)
    config = draw_experts(rng)
    config["num_hidden_layers"] = rng.randint(1, 4)
    if config["num_hidden_layers"] == 1 and "first_k_dense_replace" in config:
        config["first_k_dense_replace"] = 0
    sequence = rng.choice((8, 13, 16, 24))
    options = ["--global-batch", str(rng.choice((8, 16))), "--seq", str(sequence)]
    options += draw_balance(rng, config, counts=True)
    return Model(json.dumps(config), tuple(options))


def write_data(folder: pathlib.Path) -> None:
    write_tokens(folder / "tokens.bin", 5, 2000, 97)


def train(tools: Tools, folder: pathlib.Path) -> list[dict]:
    """The steps of the log of a plan; raises Failure."""
    tools.run("plait-run", *run_words(folder), "--log", folder / "steps.jsonl")
    log = (folder / "steps.jsonl").read_text()
    return [json.loads(x) for x in log.splitlines()]


def run_words(folder) -> list[str]:
    data = ["--tokens", f"{folder}/tokens.bin", "--token-type", "uint16"]
    return [f"{folder}/out.plan", *data, "--threads", "1", "--steps", str(STEPS)]


@functools.lru_cache(maxsize=4)
def train_alone(tools: Tools, model: Model, arithmetic: tuple[str, ...]) -> list[dict]:
    """Steps of one rank, which each process that draws computes by itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        alone = ConfigTrial(json.loads(model.config), [
            "--mesh", "1", "--micro-batch", "1", "--no-reference", *arithmetic,
            *model.options,
        ])  # fmt: skip
        alone.write(folder)
        write_data(folder)
        tools.run("plaitc", *alone.arguments(folder))
        return train(tools, folder)


class MixtureTrial(ConfigTrial):
    def __init__(self, model: Model, options: list[str]):
        super().__init__(json.loads(model.config), [*model.options, *options])
        self.model = model

    def get(self, option: str) -> str:
        return self.options[self.options.index(option) + 1]

    @property
    def precision(self) -> str:
        return self.get("--precision")

    def write(self, folder: pathlib.Path) -> None:
        super().write(folder)
        write_data(folder)

    def train(self, tools: Tools, folder: pathlib.Path) -> trial.Verdict:
        arithmetic = ("--precision", "--attention")
        words = [word for x in arithmetic for word in (x, self.get(x))]
        expected = train_alone(tools, self.model, tuple(words))
        return self.judge(train(tools, folder), expected)

    def judge_failure(self, failure: Failure) -> trial.Verdict:
        return trial.Verdict(trial.normalised(str(failure)), str(failure)[-1500:])

    def judge(self, found: list[dict], expected: list[dict]) -> trial.Verdict:
        """Each step by each bound."""
        measures = {}
        for name, bound in TOLERANCE[self.precision].items():
            off = max(
                trial.relative(a[name], b[name], 0.1)
                for a, b in zip(found, expected, strict=True)
            )
            measures[f"{self.precision} {name}"] = off
            if not off <= bound:
                values = [(a[name], b[name]) for a, b in zip(found, expected)]
                text = f"by {off:.3g}, with and without a mesh: {values}"
                return trial.Verdict(f"{name} differs", text, measures)
        return trial.Verdict("passed", measures=measures)

    def commands(self) -> str:
        lines = ["plaitc", *self.arguments(".")], ["plait-run", *run_words(".")]
        return "".join(shlex.join(line) + "\n" for line in lines)


def draw_mesh(rng: random.Random, model: Model) -> dict[str, int]:
    """Ranks of ep in most of them, where sequences and tokens divide."""
    config = json.loads(model.config)
    while True:
        axes = draw_axes(rng, rng.choice((2, 4, 4, 8, 8)), config)
        replicas = math.prod(axes[x] for x in ("replicate", "dp", "ep"))
        has_experts = axes["ep"] > 1 or rng.random() < 0.1
        divides = model.get("--seq") % axes["cp"] == 0
        fits = model.get("--global-batch") % replicas == 0
        if has_experts and divides and fits and axes["pp"] <= model.layers + 2:
            return axes


def draw_trial(seed: str) -> MixtureTrial:
    """`seed` ends in "/" and a number."""
    name, _, index = seed.rpartition("/")
    model = draw_model(f"{name}/model-{int(index) // SHARED}")
    rng = random.Random(seed)
    axes = draw_mesh(rng, model)
    # Embedding and head may be stages of their own.
    schedule, chunks = rng.choice(
        [x for x in SCHEDULES if x[1] * axes["pp"] <= model.layers + 2]
    )
    each = model.get("--global-batch") // math.prod(
        axes[x] for x in ("replicate", "dp", "ep")
    )
    micro = rng.choice([x for x in (1, 1, 2, 4) if each % x == 0])
    stages = axes["pp"] * chunks
    kinds = ("none", "selective", "full", "full:1", "full:1+selective")
    by_stage = "/".join(rng.choice(kinds) for _ in range(stages))
    options = ["--mesh", ",".join(f"{k}={v}" for k, v in axes.items())]
    options += ["--schedule", schedule, "--chunks", str(chunks)]
    options += ["--micro-batch", str(micro), "--no-reference"]
    for name, values in (
        ("--recompute", ("none", "selective", "full", by_stage)),
        ("--zero", ("0", "1", "2", "3")),
        ("--precision", ("fp32", "fp32", "fp32", "bf16")),
        ("--attention", ("flash", "unfused")),
        ("--expert-exchange", ("tokens", "rows")),
    ):
        options += [name, rng.choice(values)]
    if axes["cp"] > 1:
        ways = list_ways(model.get("--seq"), axes, json.loads(model.config))
        options += ["--context-parallel", rng.choice(ways)]
    is_split = axes["tp"] > 1 and rng.random() < 0.4
    options += ["--sequence-parallel"] if is_split else []
    # What is gathered is of one sequence, and all of it; rows are not kept, of which
    # GPT-OSS keeps some.
    if (
        micro == 1 and not is_split and schedule in JOINT_SCHEDULES
        and json.loads(model.config)["model_type"] != "gpt_oss"
    ):  # fmt: skip
        options += ["--expert-chunks", rng.choice(("1", "2", "3", "8"))]
    return MixtureTrial(model, options)
