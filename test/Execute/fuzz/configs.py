#===- configs.py - Draws for the planner ------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Small models of the families that plaitc imports, whose mesh and options the
planner chooses but for some. What such a model computes is tested elsewhere:
here plaitc must find a plan, and --check must agree with it."""

import dataclasses
import json
import pathlib
import random
import shlex

from harness import Failure, Tools

from . import trial

@dataclasses.dataclass
class ConfigTrial:
    config: dict
    options: list[str]

    def write(self, folder: pathlib.Path) -> None:
        text = json.dumps(self.config, indent=2) + "\n"
        (folder / "config.json").write_text(text)

    def arguments(self, folder) -> list[str]:
        plan = ["-o", f"{folder}/out.plan"]
        return [f"{folder}/config.json", *self.options, *plan]

    def commands(self) -> str:
        lines = [
            ["plaitc", *self.arguments(".")],
            ["plait-run", "./out.plan", "--check"],
        ]
        return "".join(shlex.join(line) + "\n" for line in lines)

    def run(self, tools: Tools, folder: pathlib.Path) -> trial.Verdict:
        try:
            self.write(folder)
            for tool, given in (
                ("plaitc", self.arguments(folder)),
                ("plait-run", [f"{folder}/out.plan", "--check"]),
            ):
                outcome = tools.call(tool, *given)
                if outcome.code:
                    return trial.refused(tool, outcome)
        except Failure as failure:  # a tool that does not end
            return trial.Verdict("hang", str(failure))
        return trial.Verdict("passed")


def draw_config(rng: random.Random) -> dict:
    heads = rng.choice((2, 4))
    layers = rng.choice((2, 3, 4))
    hidden = heads * rng.choice((4, 8))
    vocabulary = rng.choice((97, 128, 256))
    if rng.random() < 0.5:
        return {
            "model_type": "gpt2",
            "n_embd": hidden,
            "n_head": heads,
            "n_layer": layers,
            "n_positions": 64,
            "vocab_size": vocabulary,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "initializer_range": 0.02,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "resid_pdrop": 0.0,
        }
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": rng.choice((24, 33, 40)),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice((heads, 2)),
        "num_hidden_layers": layers,
        "max_position_embeddings": 64,
        "vocab_size": vocabulary,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": rng.random() < 0.5,
    }


def draw_trial(seed: str) -> ConfigTrial:
    rng = random.Random(seed)
    config = draw_config(rng)
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
        ("--schedule", ("gpipe", "1f1b")),
        ("--recompute", ("none", "full")),
        ("--zero", ("0", "1")),
        ("--precision", ("fp32", "bf16")),
    ):
        if rng.random() < 0.4:
            options += [name, rng.choice(values)]
    if rng.random() < 0.4:
        options.append("--sequence-parallel")
    return ConfigTrial(config, options)
