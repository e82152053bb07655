#!/usr/bin/env python3
#===- megatron-errors.py - Jobs that cannot be read -------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Gives plaitc flags of Megatron-LM that make no job, one fault at a time, and
models of which Megatron has no flags; compares what it says. Standard library only.

  megatron-errors.py MODELS OUT"""

import json
import pathlib
import subprocess
import sys

MODELS, OUT = map(pathlib.Path, sys.argv[1:])

# A job on eight devices that has nothing wrong.
JOB = {
    "num-layers": 8, "hidden-size": 1024, "num-attention-heads": 16,
    "max-position-embeddings": 1024, "vocab-size": 50257, "seq-length": 1024,
    "micro-batch-size": 1, "global-batch-size": 64, "bf16": True, "optimizer": "adam",
    "tensor-model-parallel-size": 2, "pipeline-model-parallel-size": 2,
}
LAYOUT = "pipeline-model-parallel-layout"
FULL = {"recompute-granularity": "full"}
# What is given beside that, and the end of what is said.
JOBS = [
    ({"seq-length": None},
     "--seq-length is missing: a step is not known without it"),
    ({"tensor-model-parallel-size": 2**24, "pipeline-model-parallel-size": 2**24},
     "tensor, pipeline and context parallel sizes have more than"),
    ({"cp-comm-type": "allgather"},
     "--cp-comm-type is allgather, which is not modelled, expected p2p or a2a"),
    ({LAYOUT: "Ett|ttt|tttL"},
     " has 3 stages, which is no multiple of --pipeline-model-parallel-size 2"),
    ({LAYOUT: "Ett|ttL"},
     "--pipeline-model-parallel-layout has 4 layers, --num-layers is 8"),
    ({LAYOUT: "Etttt)|ttttL"}, "bracket 6 closes nothing"),
    ({LAYOUT: "(" * 40 + "t" + ")" * 40}, "brackets are too deep"),
    ({LAYOUT: "E(tttt|ttttL"}, "a bracket is not closed"),
    ({LAYOUT: "Ettxt|ttttL"}, "' is no E, t, L or |"),
    ({LAYOUT: "((t)*60000)*60000"}, "it has more than"),
    ({LAYOUT: "Etttt|ttttL", "num-virtual-stages-per-pipeline-rank": 2},
     "of --num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank "
     "and --pipeline-model-parallel-layout one can be given"),
    ({"pipeline-model-parallel-size": 1, "num-virtual-stages-per-pipeline-rank": 2},
     "virtual stages need a --pipeline-model-parallel-size above 1"),
    ({"optimizer-cpu-offload": True},
     "--optimizer-cpu-offload needs --use-distributed-optimizer"),
    ({"recompute-activations": True, **FULL},
     "--recompute-activations is selective, but --recompute-granularity is full"),
    ({"recompute-granularity": "most"},
     "--recompute-granularity is 'most', expected full or selective"),
    ({"recompute-method": "odd", **FULL},
     "--recompute-method is 'odd', expected uniform or block"),
    ({"recompute-method": "uniform", "recompute-num-layers": 2, **FULL},
     "is 2 with --recompute-method uniform, of which 1 is modelled"),
    ({"optimizer": "adafactor"},
     "--optimizer is adafactor, which is not modelled, expected adam, sgd or lion"),
    ({"attention-backend": "slow"},
     "--attention-backend is 'slow', expected flash, fused, unfused, local or auto"),
    ({"swiglu": True},
     "the flags describe neither Llama (--swiglu, --normalization RMSNorm, "
     "--position-embedding-type rope, --disable-bias-linear) nor GPT-2 (none of these)"
     ": give the model's config.json"),
    ({"swiglu": True, "normalization": "RMSNorm", "position-embedding-type": "rope",
      "disable-bias-linear": True, "qk-layernorm": True, "add-qkv-bias": True},
     "--qk-layernorm and --add-qkv-bias are of no model that plait knows: give the "
     "model's config.json"),
    ({"hidden-size": "many"}, '--hidden-size is "many", expected 1 to 16777216'),
    ({"norm-epsilon": "small"}, "--norm-epsilon is 'small', expected a number from 0"),
    ({"frobnicate": 1}, "unknown flag '--frobnicate' of Megatron-LM"),
    ({"bf16": "stray"}, "' is no flag of Megatron-LM, expected one such as --num-layers"),
]
LLAMA = json.loads((MODELS / "llama-3-8b" / "config.json").read_text())
GPT2 = json.loads((MODELS / "gpt2" / "config.json").read_text())
# What a model has that Megatron's flags cannot say.
SHAPES = [
    (LLAMA, {"rope_theta": 10000.5}, "rope_theta is no whole number up to 1e15"),
    (LLAMA, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 2.0,
                              "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 8192}},
     "rope_scaling is not that of Llama 3.1"),
    (LLAMA, {"model_type": "mistral", "sliding_window": 128}, "sliding_window is 128"),
    (GPT2, {"resid_pdrop": 0.25}, "resid_pdrop and embd_pdrop differ"),
]


def ask(*words):
    return subprocess.run(["plaitc", "--cluster", "h100:8", *map(str, words)],
                          capture_output=True, text=True)


def spell(flags):
    words = []
    for flag, value in {**JOB, **flags}.items():
        if value is not None:
            words += [f"--{flag}"] if value is True else [f"--{flag}", value]
    return words


def check_job(flags, expected):
    made = ask("--from", "megatron", "--", *spell(flags))
    said = made.stderr.strip()
    return made.returncode == 1 and said.count("error:") == 1 and expected in said, said


def check_shape(config, fields, expected):
    """What the flags cannot say is a remark in the script, which has no model then."""
    folder = OUT / "model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    made = ask(folder, "--global-batch", 64, "--seq", 512, "--emit", "megatron")
    said = made.stdout + made.stderr
    return made.returncode == 0 and f"yours to add: {expected}" in said, said


def main():
    accepted = ask("--from", "megatron", "--", *spell({}))
    checks = [(accepted.returncode == 0, accepted.stderr, "a job with nothing wrong")]
    checks += [(*check_job(*job), job[1]) for job in JOBS]
    checks += [(*check_shape(*shape), shape[2]) for shape in SHAPES]
    wrong = [(said, expected) for good, said, expected in checks if not good]
    for said, expected in wrong:
        print(f"expected: {expected}\nsaid: {said[:600]}\n")
    print(f"{len(checks) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
