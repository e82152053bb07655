#===- refusals.py - What bad input must end with ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What a tool does with bad input, and the tools that are given it: plaitc a model
and options, plait-run a folder with a plan, weights and tokens."""

import json
import pathlib
import re
import shutil
import tempfile

from harness import GOLDEN, Outcome, Reporter, Tools, require

GPT2 = GOLDEN / "gpt2-small-test"
LLAMA = GOLDEN / "llama-small-test"


def snapshot(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def check_refused(outcome: Outcome, fragments, before, after) -> str:
    shown = f"stderr: {outcome.stderr.strip()[-1500:]}"
    require(outcome.code != 0, f"accepted\n{shown}")
    require(outcome.code == 1, f"ended with {outcome.code}\n{shown}")
    lines = [x for x in outcome.stderr.splitlines() if x.strip()]
    errors = [re.match(r"plait[a-z-]*: error: ", x) for x in lines]
    # A note or a warning may be beside it.
    require(
        len(lines) <= 3 and sum(map(bool, errors)) == 1,
        f"not one clear error\n{shown}",
    )
    for fragment in fragments:
        found = re.search(fragment, outcome.stderr)
        require(found is not None, f"no '{fragment}' in the message\n{shown}")
    changed = [k for k in before if before[k] != after.get(k)]
    added = [k for k in after if k not in before]
    require(not changed and not added, f"files written: {added + changed}")
    return lines[0]


class Compiler:
    """Cases of plaitc: a model (edited), the usual options (replaced)."""

    def __init__(self, tools: Tools, report: Reporter):
        self.tools = tools
        self.report = report

    def refuse(self, name, fragments, edit=None, source=GPT2, **options):
        """`edit` changes the parsed config; an option's "_" stands for "-"."""
        usual = {
            "mesh": "pp=1",
            "schedule": "1f1b",
            "global-batch": 8,
            "micro-batch": 2,
            "seq": 32,
            "o": "out.plan",
        }
        usual |= {k.replace("_", "-"): v for k, v in options.items()}
        flags = []
        for key, value in usual.items():
            flags += [f"--{key}" if len(key) > 1 else f"-{key}", str(value)]

        def body():
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                config = json.loads((source / "config.json").read_text())
                text = json.dumps(config | (edit or {}))
                (folder / "config.json").write_text(text)
                before = snapshot(folder)
                outcome = self.tools.call("plaitc", ".", *flags, cwd=folder)
                after = snapshot(folder)
                return check_refused(outcome, fragments, before, after)

        self.report.case(f"plaitc/{name}", body)

    def refuse_file(self, name, fragments, content: str | None):
        """A config.json of arbitrary content; None: there is none."""

        def body():
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                if content is not None:
                    (folder / "config.json").write_text(content)
                before = snapshot(folder)
                outcome = self.tools.call(
                    "plaitc",
                    *(".", "--mesh", "pp=1", "--global-batch", "8"),
                    *("--micro-batch", "2", "--seq", "32", "-o", "out.plan"),
                    cwd=folder,
                )
                after = snapshot(folder)
                return check_refused(outcome, fragments, before, after)

        self.report.case(f"plaitc/{name}", body)


class Runner:
    """Cases of plait-run: a folder with out.plan, model.safetensors and
    tokens.bin, one of which the case spoils."""

    def __init__(self, tools: Tools, report: Reporter):
        self.tools = tools
        self.report = report
        self.plan = b""

    def compile(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            plan = pathlib.Path(folder) / "out.plan"
            self.tools.run(
                "plaitc",
                *(GPT2, "--mesh", "pp=2,tp=2", "--schedule", "1f1b"),
                *("--global-batch", "8", "--micro-batch", "2"),
                *("--seq", "32", "-o", plan),
            )
            self.plan = plan.read_bytes()
        return f"{len(self.plan)} bytes"

    def refuse(self, name, fragments, spoil, *more, options=None) -> None:
        """`spoil` edits the folder; `options` replaces the usual ones."""
        if options is None:
            options = ("--weights", "model.safetensors")
            options += ("--tokens", "tokens.bin", "--steps", "1")

        def body():
            require(bool(self.plan), "no plan: compilation failed")
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                (folder / "out.plan").write_bytes(self.plan)
                for file in ("model.safetensors", "tokens.bin"):
                    shutil.copy(GPT2 / file, folder / file)
                spoil(folder)
                before = snapshot(folder)
                outcome = self.tools.call(
                    "plait-run", "out.plan", *options, *more, cwd=folder
                )
                after = snapshot(folder)
                return check_refused(outcome, fragments, before, after)

        self.report.case(f"plait-run/{name}", body)
