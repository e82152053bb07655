# ===- package_programs.py - Other programs from Python -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Cases of python_package.py: layouts for other programs, jobs of theirs, and losses that
a model names, as plaitc and plait-run have them on the same command line."""

import array
import json
import pathlib

from harness import ROOT, require
from package_suite import MODEL, Suite, refuse

PROGRAMS = ("megatron", "torchtitan", "deepspeed")
# torchtitan has no GPT-2.
MODELS = {"torchtitan": ROOT / "examples/models/llama-3.2-1b"}


def check_emit(suite: Suite, program: str) -> str:
    """The text of plaitc, and that of a choice which the program can run."""
    plait, model = suite.plait, MODELS.get(program, ROOT / "examples/models/gpt2")
    sizes = {"cluster": "h100:4", "global_batch": 32, "seq": 1024}
    path = suite.folder / f"{program}.txt"
    words = ("--cluster", "h100:4", "--global-batch", 32, "--seq", 1024)
    suite.tools.run("plaitc", model, *words, "--emit", program, "-o", path)
    emitted = plait.emit(model, program, **sizes)
    require(emitted == path.read_text(), f"{emitted}, plaitc has {path.read_text()}")
    again = getattr(emitted.choice, f"to_{program}")()
    require(again == emitted, f"{again}, before {emitted}")
    return f"{len(emitted.splitlines())} lines"


def check_audit(suite: Suite) -> str:
    """A script that was written, against plaitc's prediction of them."""
    plait = suite.plait
    model = ROOT / "examples/models/gpt2"
    emitted = plait.emit(
        model, "megatron", cluster="h100:4", mesh="tp=2", global_batch=32, seq=1024
    )
    script, told = suite.folder / "run.sh", suite.folder / "audit.json"
    script.write_text(emitted)
    words = ("--cluster", "h100:4", "--from", f"megatron:{script}", "--json", told)
    suite.tools.run("plaitc", *words)
    audit = plait.audit(script, cluster="h100:4")
    require(audit.job.prediction == json.loads(told.read_text()), "another prediction")
    require(audit.job.mesh == emitted.choice.mesh, f"{audit.job.mesh}")
    best = plait.emit(model, "megatron", cluster="h100:4", global_batch=32, seq=1024)
    require(audit.best.mesh == best.choice.mesh, f"{audit.best.mesh}")
    require(audit.gain >= 1, f"gain {audit.gain}")
    # The job's model is one that can be gone on with.
    audit.best.to_megatron()
    json.loads(audit.to_json())
    return f"{audit!r}"


def check_refusals(suite: Suite) -> str:
    plait, size = suite.plait, {"cluster": "h100:4"}
    missing = pathlib.Path("/no/run.sh")
    cases = (
        (plait.OptionError, lambda: plait.emit(MODEL, 3, **size), "an int"),
        (plait.Error, lambda: plait.emit(MODEL, "megatro", **size), "megatron"),
        (plait.OptionError, lambda: plait.emit(MODEL, "megatron"), "cluster"),
        (plait.OptionError, lambda: plait.audit("", clustr="x"), "clustr"),
        (plait.OptionError, lambda: plait.audit("x"), "cluster"),
        (plait.OptionError, lambda: plait.audit("", "deepspeed", **size), "no jobs"),
        (plait.CallError, lambda: plait.audit(3, **size), "an int"),
        (plait.FileError, lambda: plait.audit(missing, **size), "/no/run.sh"),
        (plait.Error, lambda: plait.audit(["--no-such", "1"], **size), "no-such"),
    )
    for kind, call, part in cases:
        error = refuse(kind, call)
        require(part in str(error), f"{error}, expected {part}")
    return f"{len(cases)} calls"


def check_losses(suite: Suite) -> str:
    """Those of a model with two heads, beside plait-run's log."""
    plait = suite.plait
    plan = plait.compile(
        ROOT / "test/Execute/models/heads.mlir", mesh="dp=2", global_batch=4,
        no_reference=True,
    )  # fmt: skip
    log, tokens = suite.folder / "heads.jsonl", suite.folder / "heads.bin"
    tokens.write_bytes(array.array("H", [x % 16 for x in suite.stream]).tobytes())
    given = {"seed": 3, "lr": 0.01, "steps": 2, "eval_every": 2, "eval_steps": 1}
    words = [x for n, v in given.items() for x in (f"--{n.replace('_', '-')}", v)]
    files = ("--tokens", tokens, "--eval-tokens", tokens)
    suite.tools.run("plait-run", plan.path, *files, *words, "--log", log)
    run = plait.train(plan, tokens=tokens, eval_tokens=tokens, **given)

    def as_logged(losses: dict) -> dict:
        # All digits that a float has.
        return {name: float(f"{x:.9g}") for name, x in losses.items()}

    steps = [(as_logged(x.losses), as_logged(x.evaluation_losses)) for x in run]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    logged = [line["losses"] for line in lines if "losses" in line]
    held_out = [line["eval_losses"] for line in lines if "eval_losses" in line]
    require(logged and [x[0] for x in steps] == logged, f"{steps}, logged {logged}")
    found = [x[1] for x in steps if x[1]]
    require(held_out and found == held_out, f"{found}, logged {held_out}")
    return ", ".join(logged[0])
