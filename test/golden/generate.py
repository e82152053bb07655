#!/usr/bin/env python3
#===- generate.py - Golden training runs ------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Writes the golden cases of test/golden from PyTorch and transformers.

A case is a folder with config.json, tokens.bin, model.safetensors (absent when
plait's own initialisation is used), golden.json and final.safetensors. Every
case is also trained in fp64; the distance between the two runs, printed and
kept in golden.json, says how much of a tolerance rounding alone uses up.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil

import numpy
import safetensors.torch
import torch

import plait_init
from configs import (
    COHERE_PLUS_SMALL,
    COHERE_SMALL,
    DEEPSEEK_V2_SMALL,
    DEEPSEEK_V3_SMALL,
    GEMMA2_SMALL,
    GEMMA3_SMALL,
    GEMMA_SMALL,
    GLM4_SMALL,
    GLM_SMALL,
    GPT2_SMALL,
    GPT_OSS_SMALL,
    GRANITE_SMALL,
    LLAMA3_SMALL,
    LLAMA_SMALL,
    MISTRAL_SMALL,
    MIXTRAL_SMALL,
    NEOX_SMALL,
    OLMO2_SMALL,
    OLMO3_SMALL,
    OLMOE_SMALL,
    OLMO_SMALL,
    PHI3_SMALL,
    PHI_SMALL,
    QWEN2_MOE_SMALL,
    QWEN2_SMALL,
    QWEN3_MOE_SMALL,
    QWEN3_SMALL,
    SMOLLM3_SMALL,
    STABLELM2_SMALL,
    STABLELM_SMALL,
    STARCODER2_SMALL,
    YARN_SMALL,
)
from key_bias import clear_key_bias
from training import (
    Recipe,
    RoutingMargin,
    biases,
    build_model,
    file_tensors,
    train,
    trainable_names,
)

HERE = pathlib.Path(__file__).resolve().parent
GPT2_CONFIG = HERE.parents[1] / "examples" / "models" / "gpt2" / "config.json"

# Scores that are nearer than this may be ordered by rounding.
LEAST_MARGIN = 1e-5


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    recipe: Recipe
    seed: int = 0
    config: dict | None = None
    # Another case whose config, tokens and weights this one trains.
    inputs: str | None = None
    keep_final: bool = True
    # What balances experts, as plaitc --balance has it.
    balance: tuple[str, ...] = ()


CASES = [
    Case("deepseek-v2-small-test", Recipe(), seed=37, config=DEEPSEEK_V2_SMALL),
    Case("qwen2-moe-small-test", Recipe(), seed=39, config=QWEN2_MOE_SMALL),
    Case("deepseek-v3-small-test", Recipe(), seed=21, config=DEEPSEEK_V3_SMALL),
    Case(
        "deepseek-v3-balanced-test",
        Recipe(),
        inputs="deepseek-v3-small-test",
        balance=("bias=0.01", "sequence=0.02", "z=0.0001"),
    ),
    Case(
        "qwen3-moe-balanced-test",
        Recipe(),
        inputs="qwen3-moe-small-test",
        keep_final=False,
        balance=("sequence=0.25", "z=0.02"),
    ),
    Case("qwen2-yarn-small-test", Recipe(), seed=22, config=YARN_SMALL),
    Case("gemma-small-test", Recipe(), seed=31, config=GEMMA_SMALL),
    Case("gemma2-small-test", Recipe(), seed=32, config=GEMMA2_SMALL),
    Case("gemma3-small-test", Recipe(), seed=33, config=GEMMA3_SMALL),
    Case("granite-small-test", Recipe(), seed=34, config=GRANITE_SMALL),
    Case("neox-small-test", Recipe(), seed=51, config=NEOX_SMALL),
    Case("phi-small-test", Recipe(), seed=52, config=PHI_SMALL),
    Case("starcoder2-small-test", Recipe(), seed=53, config=STARCODER2_SMALL),
    Case("stablelm-small-test", Recipe(), seed=54, config=STABLELM_SMALL),
    Case("cohere-small-test", Recipe(), seed=55, config=COHERE_SMALL),
    Case("cohere-plus-small-test", Recipe(), seed=58, config=COHERE_PLUS_SMALL),
    Case("stablelm2-small-test", Recipe(), seed=59, config=STABLELM2_SMALL),
    Case("olmo-small-test", Recipe(), seed=64, config=OLMO_SMALL),
    Case("glm-small-test", Recipe(), seed=56, config=GLM_SMALL),
    Case("glm4-small-test", Recipe(), seed=57, config=GLM4_SMALL),
    Case("smollm3-small-test", Recipe(), seed=47, config=SMOLLM3_SMALL),
    Case("olmo3-small-test", Recipe(), seed=36, config=OLMO3_SMALL),
    Case("gpt-oss-small-test", Recipe(), seed=26, config=GPT_OSS_SMALL),
    Case("gpt2-small-test", Recipe(), seed=1, config=GPT2_SMALL),
    Case("llama-small-test", Recipe(), seed=12, config=LLAMA_SMALL),
    Case("llama3-small-test", Recipe(), seed=3, config=LLAMA3_SMALL),
    Case("mistral-small-test", Recipe(), seed=4, config=MISTRAL_SMALL),
    Case("mixtral-small-test", Recipe(), seed=14, config=MIXTRAL_SMALL),
    Case("olmo2-small-test", Recipe(), seed=10, config=OLMO2_SMALL),
    Case("olmoe-small-test", Recipe(), seed=17, config=OLMOE_SMALL),
    Case("phi3-small-test", Recipe(), seed=5, config=PHI3_SMALL),
    Case("qwen2-small-test", Recipe(), seed=6, config=QWEN2_SMALL),
    Case("qwen3-small-test", Recipe(), seed=7, config=QWEN3_SMALL),
    Case("qwen3-moe-small-test", Recipe(), seed=9, config=QWEN3_MOE_SMALL),
    Case(
        "gpt2-small-test-plain",
        Recipe(weight_decay=0.0, grad_clip=0.0),
        inputs="gpt2-small-test",
        keep_final=False,
    ),
    Case("gpt2-124m", Recipe(seq=64, global_batch=4), keep_final=False),
]


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Random weights in which every term matters, norms and biases too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(trainable_names(model).items()):
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() >= 2:
                p.copy_(0.1 * noise)
            elif name.endswith("bias"):
                p.copy_(0.1 * noise)
            else:  # Gemma's norms begin at 0
                p.copy_((1.0 if p.any() else 0.0) + 0.2 * noise)
        for buffer in biases(model).values():
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))


def random_tokens(vocab: int, samples: int, seq: int, seed: int):
    """Skewed towards small numbers, so that there is something to learn. A
    few tokens past the last whole sample must be ignored."""
    uniform = numpy.random.default_rng(seed).random(samples * seq + 6)
    return (vocab * uniform**2).astype("<u2")


def save_weights(path: pathlib.Path, tensors: dict) -> None:
    tensors = {
        name: p.detach().to(torch.float32).contiguous()
        for name, p in tensors.items()
    }
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def write_inputs(case: Case, folder: pathlib.Path) -> None:
    """config.json, tokens.bin and model.safetensors of a case of its own."""
    recipe = case.recipe
    samples = recipe.steps * recipe.global_batch
    if case.config is None:
        shutil.copy(GPT2_CONFIG, folder / "config.json")
    else:
        text = json.dumps(case.config, indent=2) + "\n"
        (folder / "config.json").write_text(text)
        samples -= recipe.global_batch // 2  # the last step wraps
        model = build_model(folder / "config.json")
        randomise(model, case.seed)
        save_weights(folder / "model.safetensors", file_tensors(model))
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokens = random_tokens(vocab, samples, recipe.seq, case.seed)
    (folder / "tokens.bin").write_bytes(tokens.tobytes())


def load_model(case: Case, source: pathlib.Path) -> torch.nn.Module:
    model = build_model(source / "config.json")
    if (source / "model.safetensors").exists():
        values = safetensors.torch.load_file(source / "model.safetensors")
    else:
        config = json.loads((source / "config.json").read_text())
        shapes = {n: p.shape for n, p in trainable_names(model).items()}
        values = {
            name: torch.from_numpy(value)
            for name, value in plait_init.initialise(
                config, shapes, case.seed
            ).items()
        }
    parameters = trainable_names(model)
    if parameters.keys() != values.keys():
        # A tensor for each expert, which transformers puts together, or names that
        # it changes.
        loaded = type(model).from_pretrained(source, dtype=torch.float32)
        assert file_tensors(loaded).keys() == values.keys()
        values = trainable_names(loaded)
        for name, buffer in biases(model).items():
            buffer.copy_(biases(loaded)[name])
    assert parameters.keys() == values.keys()
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(value)
    return model


def as_steps(records) -> list[dict]:
    steps = [
        {key: float(f"{value:.9g}") for key, value in record.items()}
        for record in records
    ]
    for step in steps:
        step["step"] = int(step["step"])
    return steps


def rounding(records, records64) -> float:
    """The largest relative distance of a run from one of more precision."""
    return max(
        abs(a[key] - b[key]) / abs(b[key])
        for a, b in zip(records, records64)
        for key in ("loss", "grad_norm")
    )


def weight_rounding(model, model64, folder: pathlib.Path) -> float:
    """Largest absolute difference of the weights; biases of keys whose true
    gradient is zero are left out."""
    worst = 0.0
    others = trainable_names(model64)
    for name, p in trainable_names(model).items():
        difference = (p.detach() - others[name].detach()).abs()
        clear_key_bias(name, difference, folder)
        worst = max(worst, difference.max().item())
    return worst


def generate(case: Case) -> None:
    folder = HERE / case.name
    folder.mkdir(exist_ok=True)
    source = HERE / (case.inputs or case.name)
    if case.inputs is None:
        write_inputs(case, folder)
    tokens = numpy.frombuffer((source / "tokens.bin").read_bytes(), "<u2")
    model = load_model(case, source)
    margin = RoutingMargin(model)
    records = train(model, tokens, case.recipe, balance=case.balance)
    if margin.least < LEAST_MARGIN:
        raise SystemExit(
            f"{case.name}: two experts have scores {margin.least:.2g} apart, "
            "expected another seed"
        )
    model64 = load_model(case, source).to(torch.float64)
    records64 = train(model64, tokens, case.recipe, balance=case.balance)
    mixed = train(
        load_model(case, source), tokens, case.recipe, True, case.balance
    )
    golden = {
        "case": case.name,
        "inputs": case.inputs or case.name,
        "seed": case.seed,
        "recipe": dataclasses.asdict(case.recipe),
        **({"balance": case.balance} if case.balance else {}),
        "rounding": float(f"{rounding(records, records64):.3g}"),
        "steps": as_steps(records),
        "bf16_steps": as_steps(mixed),
    }
    if margin.least < float("inf"):  # a mixture of experts
        off = weight_rounding(model, model64, source)
        golden["weight_rounding"] = float(f"{off:.3g}")
    (folder / "golden.json").write_text(json.dumps(golden, indent=2) + "\n")
    if case.keep_final:
        save_weights(folder / "final.safetensors", file_tensors(model))
    print(
        f"{case.name}: loss {records[0]['loss']:.6f} -> "
        f"{records[-1]['loss']:.6f}, fp32 to fp64: records "
        f"{rounding(records, records64):.2g}, weights "
        f"{weight_rounding(model, model64, source):.2g}; bf16 to fp32: records "
        f"{rounding(mixed, records):.2g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="part of the case name")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    for case in CASES:
        if arguments.filter in case.name:
            generate(case)


if __name__ == "__main__":
    main()
