#!/usr/bin/env python3
#===- random_models.py - Random models against PyTorch ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Draws small models in the nn dialect, and meshes and options to train them
with; compiles and trains each, and compares with the same model in PyTorch. With
--configs the models are of Hugging Face's families, in combinations of all that
can be chosen, and are compared with one rank; with --mixtures they are mixtures of
experts, and one rank trains each for several draws.

A draw fails when loss, gradient norm or weights differ, when --check does not
agree, when plaitc refuses what is not refused for its mesh, or when a plan is not
proven. It is then made as small as it still fails, and left in
build/random-failures. With --proofs no plan is trained that is proven.

With --mutants each model has its IR changed in as many ways, one at a time: what is
proven of these, and trains otherwise than PyTorch, fails."""

import collections
import concurrent.futures
import multiprocessing
import pathlib
import shutil
import sys
import tempfile
import time

from fuzz import configs, mixtures, mutate, trial
from fuzz.shrink import shrink
from harness import ROOT, Tools, arguments

FAILURES = ROOT / "build" / "random-failures"
SHOWN = 50  # draws from one line of progress to the next


def draw(options, index: int):
    kind = mixtures if options.mixtures else configs if options.configs else trial
    drawn = kind.draw_trial(f"{options.seed}/{index}")
    if options.mutants:
        return mutate.Mutants(drawn, f"{options.seed}/{index}", options.mutants)
    return drawn


def run(tools: Tools, drawn, trains: bool):
    with tempfile.TemporaryDirectory() as folder:
        return drawn.run(tools, pathlib.Path(folder), trains)


def work(tools: Tools, options, index: int):
    """Verdicts: of the draw, or of what it was changed to."""
    try:
        found = run(tools, draw(options, index), not options.proofs)
        return index, found if options.mutants else [found]
    except Exception as error:  # the others go on: this one has failed
        text = f"{type(error).__name__}: {error}"
        return index, [trial.Verdict(f"the test itself: {text}", text)]


def keep(tools: Tools, index: int, verdict, options) -> str:
    """Shrinks a failure and writes it down; says where."""
    seed, seconds = options.seed, options.shrink_seconds
    folder = FAILURES / f"{seed}-{index}"
    shutil.rmtree(folder, ignore_errors=True)
    drawn = draw(options, index)
    small, seen = drawn, verdict
    if isinstance(drawn, trial.Trial):
        trains = not options.proofs
        small, seen = shrink(drawn, verdict, lambda x: run(tools, x, trains), seconds)
    for part, which in (("drawn", drawn), ("", small)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        which.write(folder / part)
        (folder / part / "commands.sh").write_text(which.commands())
    (folder / "verdict.txt").write_text(f"{seen.kind}\n{seen.text}\n")
    return str(folder.relative_to(ROOT))


class Report:
    """Counts, and one line a failure."""

    def __init__(self, tools: Tools, options):
        self.tools = tools
        self.options = options
        self.passed = 0
        self.failed = 0
        self.refused = collections.Counter()
        self.kinds = collections.defaultdict(list)
        self.farthest = collections.defaultdict(float)  # of what has passed

    def add(self, index: int, verdict) -> None:
        if verdict.kind == "passed":
            self.passed += 1
            for name, off in verdict.measures.items():
                self.farthest[name] = max(self.farthest[name], off)
        elif verdict.kind == "refused":
            mutant = self.options.mutants and "a change that is not proven"
            self.refused[mutant or verdict.text] += 1
        else:
            self.failed += 1
            self.fail(index, verdict)

    def fail(self, index: int, verdict) -> None:
        known = self.kinds[verdict.kind]
        known.append(index)
        print(f"FAIL random/{self.options.seed}-{index} {verdict.kind}")
        if len(known) > 1 or len(self.kinds) > self.options.shrink:
            return
        where = keep(self.tools, index, verdict, self.options)
        for line in verdict.text.splitlines():
            print(f"     {line}")
        print(f"     {where}", flush=True)

    def finish(self) -> int:
        for kind, indices in self.kinds.items():
            shown = ", ".join(map(str, indices[:10]))
            print(f"{len(indices)} failed by {kind}: {shown}")
        for reason, count in sorted(self.refused.items()):
            print(f"{count} refused: {reason}")
        for name, off in sorted(self.farthest.items()):
            print(f"farthest {name}: {off:.2g}")
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0


def indices_of(options) -> list[int]:
    if options.only is not None:
        return [options.only]
    draws = options.draws * (25 if options.long else 1)
    return list(range(options.first, options.first + draws))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="draw")
    parser.add_argument("--only", type=int, help="this draw alone")
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--configs", action="store_true", help="families and all options"
    )
    parser.add_argument("--mixtures", action="store_true", help="mixtures of experts")
    parser.add_argument(
        "--proofs", action="store_true", help="compile and prove, and do not train"
    )
    parser.add_argument("--mutants", type=int, default=0, help="of each draw")
    parser.add_argument("--long", action="store_true", help="25 times as many")
    parser.add_argument("--jobs", type=int, default=2, help="at a time")
    parser.add_argument(
        "--shrink", type=int, default=3, help="how many kinds of failures"
    )
    parser.add_argument("--shrink-seconds", type=float, default=60)
    options = parser.parse_args()
    for kind in ("configs", "mixtures"):
        if getattr(options, kind):
            options.seed = f"{kind}-{options.seed}"
    tools = Tools(options.bin, options.timeout)
    indices = indices_of(options)
    print(f"{len(indices)} draws of seed {options.seed}", flush=True)
    report = Report(tools, options)
    start = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(
        options.jobs, multiprocessing.get_context("fork")
    ) as pool:
        jobs = [pool.submit(work, tools, options, x) for x in indices]
        for done, job in enumerate(jobs, 1):
            index, verdicts = job.result()
            for verdict in verdicts:
                report.add(index, verdict)
            if done % SHOWN == 0:
                print(f"{done} of {len(jobs)} draws, {report.failed} failed", flush=True)
    print(f"{time.monotonic() - start:.0f} s")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
