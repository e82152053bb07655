#!/usr/bin/env python3
# ===- edit.py - Edits of a configuration, phase by phase ------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""usage: edit.py [--bin FOLDER] OUT

Compiles a model, and edits every field of the configuration, the mesh and the target
in the dump of every phase. Either what the edited dump goes on to is what compiling with that option
gives, or the edit is refused with a line that names the phase that has read the
field.

That phase is the one to name: behind the phase before it the edit is accepted, and
behind itself it would have come too late, as the dump without the record of what
was read shows. Fields that the types of the model have to agree with are refused
behind every phase. docs/Phases.md says the same of each field.

IR after the last phase is compared and not plans: they follow from it."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PHASES = ["import", "shard", "stage", "differentiate", "checkpoint",
          "partition", "schedule", "lower", "steps"]

# For GPUs in bf16, or `deterministic` and `attention` had nothing to decide; on
# all axes, in a shape in which each field decides something.
BASE = {"mesh": "pp=2,dp=2,cp=2,tp=2", "schedule": "interleaved-1f1b",
        "chunks": "2", "seq": "32", "micro-batch": "2", "global-batch": "16",
        "precision": "bf16", "sequence-parallel": "true", "backend": "cuda",
        "target": "sm_90"}

# Of each field another value than that of BASE.
OTHERS = {
    "schedule": "zb-v", "chunks": "3", "layers": "2,1,1,0", "micro-batch": "4",
    "recompute": "full", "zero": "3", "sequence-parallel": "false",
    "tp-comm-overlap": "2", "loss-chunks": "2",
    "context-parallel": "heads", "offload": "optimizer", "global-batch": "32",
    "seq": "64", "precision": "fp32", "reduce-precision": "bf16", "compress": "int8:32",
    "outer": "average:2+sites:2",
    "attention": "unfused", "epilogues": "none", "optimizer": "muon", "deterministic": "true",
}
# This model has no experts: test/Proof/expert-rows.test.
LEFT_OUT = {"expert-exchange"}
# Beside the configuration: what stands in IR, and the options. A target is that of
# this machine.
BESIDE = {
    "mesh": (r"(dist\.mesh @mesh .*)", {"mesh": "pp=2,dp=4,cp=2,tp=2"}),
    "target": (r"plait\.target = (#plait\.target<[^>]*>)",
               {"backend": "cpu", "target": "", "epilogues": "all",
                "tp-comm-overlap": "4"}),
}
# As messages call them; fields by their name.
CALLED = {"mesh": "the mesh", "target": "plait.target"}
# What the types of @loss say as well.
OF_TYPES = ("micro-batch", "seq", "mesh")


def plaitc(*arguments):
    return subprocess.run(["plaitc", *map(str, arguments)],
                          capture_output=True, text=True)


def compile_model(options, *arguments):
    """By the options of a dictionary; true stands for a flag, false and "" for
    none."""
    words = [word for name, value in options.items() if value not in ("", "false")
             for word in [f"--{name}"] + [value] * (value != "true")]
    return plaitc(ROOT / "examples/models/gpt2-nano", "--no-plan", *words, *arguments)


def find_fields():
    """The names of all fields: the options of plait-configure."""
    text = subprocess.run(["plait-opt", "--help"], capture_output=True,
                          text=True, check=True).stdout
    options = re.search(r"--plait-configure .*\n((?: {8}.*\n)+)", text)
    return re.findall(r"^ {8}--([a-z-]+)", options.group(1), re.MULTILINE)


def find_beside(field, text):
    return re.search(BESIDE[field][0], text).group(1)


def edit(text, field, value):
    """IR that says `value`."""
    if field in BESIDE:
        return text.replace(find_beside(field, text), value, 1)
    if field == "layers":
        value = f"[{value}]"
    elif field in ("schedule", "optimizer", "compress", "outer"):
        value = f'"{value}"'
    key = field.replace("-", "_")

    def replace(match):
        kept = [entry for entry in re.findall(r'\w+ = (?:"[^"]*"|[^,">]+)',
                                              match.group(1))
                if not entry.startswith(key + " ")]
        return ("plait.configuration = #plait.configuration<"
                + ", ".join([*kept, f"{key} = {value}"]) + ">")
    return re.sub("plait.configuration = #plait.configuration<([^>]*)>",
                  replace, text, count=1)


def forget(text):
    """IR without the record of what was read."""
    return re.sub(r"(#plait\.phase<\w+)(?:, \w+ = (?:<[^>]*>|\"[^\"]*\"))*", r"\1", text)


def find_documented():
    """Of each field the phase that the page names."""
    page = (ROOT / "docs/Phases.md").read_text()
    table = page.split("| is the first to read |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in table.splitlines()]
    return {field.replace("_", "-"): phase for phase, *fields in rows
            for field in fields}


def check_field(field, documented, dumps, out):
    value = OTHERS.get(field)
    options = BESIDE[field][1] if field in BESIDE else {field: value}
    direct = out / f"{field}.mlir"
    done = compile_model({**BASE, **options}, "--compile-to", "steps", "-o", direct)
    if done.returncode:
        return f"{field}: {done.stderr}"
    if field in BESIDE:
        value = find_beside(field, direct.read_text())

    def compile_on(text, name, last="steps"):
        """What is said, and whether the result is that of the option."""
        edited, result = out / f"{field}-{name}.mlir", out / f"{field}-out.mlir"
        edited.write_text(text)
        done = plaitc(edited, "--compile-to", last, "-o", result, "--no-prove",
                      "--no-reference")
        if done.returncode:
            return done.stderr, False
        return "", last == "steps" and (forget(result.read_text())
                                        == forget(direct.read_text()))

    reader = None
    for phase, dump in zip(PHASES, dumps):
        # Behind the last phase it is the plan that finds it.
        said, same = compile_on(edit(dump, field, value), phase,
                                "plan" if phase == "steps" else "steps")
        if not said:
            if reader or not same:
                return f"{field} edited after {phase}: accepted, of no effect"
            continue
        if phase == "import" and field in OF_TYPES:
            if "@loss is for 4 sequences of 32 tokens, but" not in said:
                return f"{field} edited after {phase}: {said}"
            continue
        named = re.fullmatch(
            r"plaitc: error: \S+: " + CALLED.get(field, field.replace("-", "_"))
            + r" is (.+), but phase (\w+) has read (.+): it can [^\n]*\n", said)
        told = options[field] if field == "mesh" else value
        if not named or named.group(1) != told or named.group(3) == told:
            return f"{field} edited after {phase}: {said}"
        if not reader and named.group(2) != phase:
            return (f"{field} edited after {phase}: refused too soon or too late,"
                    f" {said}")
        reader = reader or phase
        if named.group(2) != reader:
            return f"{field} edited after {phase}: not {reader}, but {said}"
    if reader != documented:
        return f"{field}: {reader} reads it, docs/Phases.md has {documented}"
    # Without the record nothing is refused, and the phase has already read it.
    unrecorded = forget(dumps[PHASES.index(reader)])
    if compile_on(edit(unrecorded, field, value), "unrecorded")[1]:
        return f"{field}: phase {reader} does not read it"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    given = parser.parse_args()
    if given.bin:
        os.environ["PATH"] = f"{given.bin.resolve()}:{os.environ['PATH']}"
    if set(find_fields()) != {*OTHERS, *LEFT_OUT}:
        sys.exit(f"plait-configure has {find_fields()}, this test "
                 f"{list(OTHERS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    documented = find_documented()
    done = compile_model(BASE, "--compile-to", "steps", "--dump-phases-to",
                         given.out / "base", "-o", given.out / "base.mlir")
    if done.returncode:
        sys.exit(done.stderr)
    dumps = [(given.out / "base" / f"{i}-{phase}.mlir").read_text()
             for i, phase in enumerate(PHASES)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        problems = [text for text in pool.map(
            lambda field: check_field(field, documented.get(field), dumps,
                                      given.out), [*OTHERS, *BESIDE]) if text]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(OTHERS)} fields, mesh and target edited after each of {len(PHASES)} phases: "
          "refused, or as the option")


if __name__ == "__main__":
    main()
