#!/usr/bin/env python3
# ===- float_inputs.py - Models that take floats -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Trains modules that take floats beside tokens, or in their place
(torch_models/floats.py), for five steps of AdamW over meshes, and in PyTorch: loss,
gradient norm and weights agree. Rows are a file that numpy has written, and in one case
arrays that the Python package packs. What is wrong with data is refused with one error.

Needs what from_torch.py needs, and says so where it is not there. By default each kind
of input on one mesh, with --all every module on several."""

import functools
import pathlib
import re
import sys
import tempfile

import from_torch
from from_torch import BATCH, STEPS, Suite, lacks_torch, spell
from harness import Reporter, Tools, arguments, require

ONE, SPLIT, ZERO, CONTEXT = "pp=1", "pp=2,tp=2", "dp=2 --zero 3", "cp=2"
FEW = [
    ("signal", SPLIT), ("images", ZERO), ("weighted", CONTEXT), ("distilled", ONE),
    ("denoiser", "dp=2,cp=2"),
]
MANY = (ONE, "dp=2", SPLIT, ZERO, CONTEXT)


class Floats(Suite):
    """The suite of from_torch with rows in the place of tokens."""

    def __init__(self, tools: Tools, folder: pathlib.Path):
        super().__init__(tools, folder)
        from torch_models import floats

        self.cases = floats.CASES

    def make(self, name: str):
        import torch

        torch.manual_seed(7)
        return self.cases[name].make()

    @functools.cache
    def export(self, name: str):
        import plait

        case = self.cases[name]
        model = plait.from_torch(
            self.make(name),
            batch=BATCH,
            seq=case.seq,
            loss=case.loss,
            features=case.features,
            context=case.context,
            tokens=None if case.tokens else False,
        )
        model.save(self.folder / name)
        return model

    def select(self, name: str) -> None:
        """Has the steps of the other suite read this model's rows."""
        self.tokens = self.folder / f"{name}.rows"
        from_torch.SEQUENCE = self.cases[name].seq
        if not self.tokens.exists():
            self.write_rows(name)

    @functools.cache
    def draw(self, name: str) -> dict:
        """Of all steps: tokens [n, seq + 1], and floats by name."""
        import torch

        case = self.cases[name]
        generator = torch.Generator().manual_seed(11)
        rows = STEPS * BATCH
        shape = (rows, case.seq + 1)
        most = int(re.search(r"vocab = (\d+)", self.export(name).text)[1])
        found = {"tokens": torch.randint(0, most, shape, generator=generator)}
        for given, lead in ((case.features, (rows, case.seq)), (case.context, (rows,))):
            for key, own in given.items():
                own = (own,) if isinstance(own, int) else own
                make = case.draw.get(key, lambda s, g: torch.randn(s, generator=g))
                found[key] = make((*lead, *own), generator)
        return found

    def write_rows(self, name: str) -> None:
        import numpy

        drawn = dict(self.draw(name))
        parts = [drawn.pop("tokens").numpy().astype("<i4").view("<f4")]
        parts += [x.reshape(len(x), -1).numpy().astype("<f4") for x in drawn.values()]
        numpy.concatenate(parts, axis=1).tofile(self.tokens)

    @functools.cache
    def train_there(self, name: str, kind: str = "adamw"):
        import torch

        case, module = self.cases[name], self.make(name)
        (optimizer,) = self.optimizers(module, kind)
        loss_takes = set(case.loss.__code__.co_varnames)
        records = []
        for step in range(STEPS):
            now = slice(step * BATCH, (step + 1) * BATCH)
            rows = {k: v[now] for k, v in self.draw(name).items()}
            ids = rows.pop("tokens")
            of_loss = {k: v for k, v in rows.items() if k in loss_takes}
            named = {k: v for k, v in rows.items() if k not in loss_takes}
            output = module(*([ids[:, :-1]] if case.tokens else []), **named)
            loss = case.loss(output, ids[:, 1:], **of_loss)
            module.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(module.parameters(), from_torch.CLIP)
            optimizer.step()
            record = {"loss": loss.item(), "grad_norm": norm.item()}
            records.append({"step": step + 1, **record})
        return records, module

    def check(self, name: str, mesh: str, kind: str = "adamw") -> str:
        self.select(name)
        return super().check(name, mesh, kind)


def check_errors(suite: Floats) -> str:
    """Of rows and of options: one line that names what is wrong, and no plan or weights
    are written."""
    name = "prompted"
    suite.select(name)
    suite.export(name)
    data = suite.tokens.read_bytes()
    number = (16 + 1) * 4
    broken = {
        "short": (data[:-4], "bytes, which are no rows of"),
        "nan": (data[:number] + b"\x00\x00\xc0\x7f" + data[number + 4 :], "is nan"),
        "token": (b"\xff\xff\x00\x00" + data[4:], "the vocabulary has"),
    }
    texts = []
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        plan = out / "a.plan"
        model = suite.folder / name / "model.mlir"
        sizes = ("--global-batch", BATCH, "--micro-batch", BATCH, "--seq", 16)
        suite.tools.run("plaitc", model, "--mesh", "pp=1", *sizes, "-o", plan)
        for label, (content, words) in broken.items():
            rows = out / f"{label}.rows"
            rows.write_bytes(content)
            options = ("--tokens", rows, "--save", out / "saved")
            texts.append(refuse(suite, plan, words, *options))
            saved = out / "saved" / "model.safetensors"
            require(not saved.exists(), "weights are there")
        text = out / "a.txt"
        text.write_text("no numbers " * 100)
        texts.append(refuse(suite, plan, "give files of rows as", "--text", text))
    return texts[1]


def refuse(suite: Floats, plan: pathlib.Path, words: str, *options) -> str:
    done = suite.tools.call("plait-run", plan, "--steps", 2, *options)
    require(done.code > 0, f"ended with {done.code}")
    lines = [line for line in done.stderr.split("\n") if "error" in line]
    require(len(lines) == 1, f"{len(lines)} errors: {done.stderr}")
    require(words in lines[0], f"'{lines[0]}' does not say '{words}'")
    return lines[0]


def check_arguments(suite: Floats) -> str:
    """What from_torch is told wrongly."""
    import plait
    import torch
    from torch_models import floats

    def loss(output, targets, wanted):
        return torch.nn.functional.mse_loss(output, wanted)

    signal = {"signal": 6, "wanted": 3}
    wrong = [
        (dict(features={**signal, "other": 3}), "neither forward() nor loss()"),
        (dict(features={"signal": 6.5, "wanted": 3}), "expected the extents of"),
        (dict(features={"signal": (6, 0), "wanted": 3}), "expected the extents of"),
        (dict(features=["signal"]), "expected names with shapes"),
        (dict(features=signal, context={"wanted": 3}), "both in features and in context"),
        (dict(features={"signal": 6}, context={"targets": 3}), "something else"),
        (dict(features={"signal": 5, "wanted": 3}), "cannot trace"),
    ]
    for named, words in wrong:
        try:
            plait.from_torch(floats.Signal(), batch=2, seq=8, loss=loss, **named)
        except plait.Error as error:
            require(words in str(error), f"'{error}' does not say '{words}'")
            require("\n" not in str(error), "several lines")
        else:
            raise AssertionError(f"{named} was not refused")
    return f"{len(wrong)} errors"


def run_cases(suite: Floats, report: Reporter, every: bool) -> None:
    report.case("arguments", lambda: check_arguments(suite))
    report.case("errors", lambda: check_errors(suite))
    cases = FEW
    if every:
        cases = [
            (name, mesh)
            for name, case in suite.cases.items()
            for mesh in MANY
            if case.features or mesh != CONTEXT
        ]
    for name, mesh in cases:
        label = f"{name}/{spell(mesh)}"
        report.case(label, lambda n=name, m=mesh: suite.check(n, m))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--all", action="store_true", help="every module")
    options = parser.parse_args()
    report = Reporter("float_inputs", options.filter)
    if lacks_torch(report):
        return report.finish()
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(options.bin, options.timeout)
        run_cases(Floats(tools, pathlib.Path(folder)), report, options.all)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
