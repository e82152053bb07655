#!/usr/bin/env python3
# ===- random_modules.py - Random modules of PyTorch -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Draws modules in PyTorch (fuzz/modules.py), takes each through plait.from_torch, and
trains it for five steps of AdamW on a drawn mesh and in PyTorch: loss, gradient norm and
weights agree. A module that is refused has failed: all that is drawn is documented as
known. A failure's source is left in build/random-failures.

Needs what from_torch.py needs, and says so where it is not there."""

import collections
import importlib.util
import pathlib
import random
import sys
import tempfile
import types

import from_torch
from from_torch import Suite, lacks_torch
from fuzz.modules import Draw
from harness import ROOT, Failure, Reporter, Tools, arguments

FAILURES = ROOT / "build" / "random-failures"
FEW = 4
MESHES = ("pp=1", "tp=2", "pp=2", "pp=2,tp=2", "cp=2", "dp=2 --zero 3", "pp=2,dp=2")


class Drawn(Suite):
    """The suite of from_torch, of modules that are files."""

    def __init__(self, tools: Tools, folder: pathlib.Path):
        super().__init__(tools, folder)
        self.custom = types.SimpleNamespace(MODELS={}, NAMED={})

    def add(self, name: str, text: str, told: dict) -> None:
        path = self.folder / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.custom.MODELS = {name: module.build}
        self.custom.NAMED = {name: told}
        for cached in (Suite.export, Suite.train_there):
            cached.cache_clear()


def choose_mesh(seed: str, draw: Draw, layers: int) -> str:
    """One that the model has: of stages there are as many as layers at most."""
    fits = [
        mesh
        for mesh in MESHES
        if (layers > 1 or "pp=2" not in mesh) and (draw.heads % 2 == 0 or "tp" not in mesh)
    ]
    return random.Random(f"{seed}/mesh").choice(fits)


def check(suite: Drawn, seed: str, counts: collections.Counter, exports: bool) -> str:
    import plait

    draw = Draw(seed)
    text, told = draw.model()
    name = f"drawn_{seed.replace('/', '_')}"
    try:
        suite.add(name, text, told)
        model = suite.export(name)
        if exports:
            remark = f"{len(model._built.layers)} layers"
        else:
            mesh = choose_mesh(seed, draw, len(model._built.layers))
            remark = f"{mesh}: {suite.check(name, mesh)}"
    except Exception as error:
        FAILURES.mkdir(parents=True, exist_ok=True)
        (FAILURES / f"{name}.py").write_text(text)
        if isinstance(error, plait.Error) and f"{name}.py:" not in str(error):
            raise Failure(f"an error without the line of the module: {error}") from error
        raise
    counts.update(draw.kinds)
    return remark


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--draws", type=int, default=FEW, help="how many modules")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--seed", default="1", help="of all draws")
    parser.add_argument("--exports", action="store_true", help="train none of them")
    options = parser.parse_args()
    report = Reporter("random_modules", options.filter)
    if lacks_torch(report):
        return report.finish()
    # Of drawn models some are worse conditioned than those of from_torch.py.
    from_torch.TOLERANCE.update(loss=1e-5, grad_norm=1e-4)
    counts: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        suite = Drawn(Tools(options.bin, options.timeout), pathlib.Path(folder))
        for index in range(options.first, options.first + options.draws):
            seed = f"{options.seed}/{index}"
            report.case(seed, lambda s=seed: check(suite, s, counts, options.exports))
    print(f"{len(counts)} kinds of idioms in what passed")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
