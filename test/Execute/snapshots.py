#!/usr/bin/env python3
#===- snapshots.py - What checkpoints hold ----------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Checkpoints are written while the next step runs. Here writing takes several times
as long as a step, and what they hold must be of their step all the same: the bits of a
run that ends with it."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import checkpoint_suite
from harness import Reporter, Skipped, Tools, arguments, require
from processes import ENVIRONMENT

# Every write of a block takes longer than a step of this model, some 10 ms (those of
# one process alone 1.5 s, where it is named), and a rank has more blocks than its writer takes before any of them is written.
SLOW = """
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t write(int file, const void *bytes, size_t count) {
  const char *one = getenv("SLOW_PROCESS"), *mine = getenv("OMPI_COMM_WORLD_RANK");
  if (count >= 1 << 19)
    usleep(!one ? 60000 : mine && !strcmp(one, mine) ? 1500000 : 0);
  return syscall(SYS_write, file, bytes, count);
}
"""
STEPS = 4
# One rank; ranks that share a step's end; two threads a rank; what follows bad steps.
RUNS = {
    "one": ("1", (), 1),
    "ranks": ("dp=2", ("--zero", "1"), 1),
    "threads": ("dp=2", ("--overlap", "on"), 1),
    "skips": ("1", ("--on-nan", "skip"), 1),
    "processes": ("dp=2", (), 2),
}


def snapshot_cases(suite: checkpoint_suite.Suite) -> None:
    compiler = next(filter(None, map(shutil.which, ("clang-22", "cc"))), None)
    library = suite.folder / "slow.so"

    def run(launcher, command, **environment):
        if not compiler:
            raise Skipped("no C compiler")
        if not library.exists():
            subprocess.run(
                [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", library],
                input=SLOW, text=True, check=True,
            )
        return subprocess.run(
            [*launcher, suite.tools.folder / "plait-run", *map(str, command)],
            capture_output=True, text=True, timeout=suite.tools.timeout,
            env=ENVIRONMENT | {"LD_PRELOAD": str(library)} | environment,
        )

    def slow_disk():
        """A process writes for longer than --timeout, while the others have long
        done so: nobody takes that for a process that has stopped."""
        plan = suite.compile("dp=2/zero", "--mesh", "dp=2", "--zero", "1")
        folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        command = suite.command(
            plan, 3, "--checkpoint", folder, "--checkpoint-every", 1, "--timeout", 2
        )
        start = time.monotonic()
        done = run(("mpirun", "-n", "2"), command, SLOW_PROCESS="1")
        require(done.returncode == 0, done.stderr)
        # Of three checkpoints the last is waited for in any case.
        taken = time.monotonic() - start
        require(taken > 3 * 2 * 1.5, f"{taken:.1f} s: nothing was slow")
        names = sorted(x.name for x in folder.iterdir())
        require(names == [f"step-{x:08}" for x in (1, 2, 3)], names)

    def check(mesh, more, processes):
        compiling = more if more[:1] == ("--zero",) else ()
        plan = suite.compile("/".join((mesh, *compiling)), "--mesh", mesh, *compiling)
        running = () if compiling else more
        folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        command = suite.command(
            plan, STEPS, *running, "--checkpoint", folder, "--checkpoint-every", 1
        )
        launcher = ("mpirun", "-n", "2") if processes > 1 else ()
        done = run(launcher, command)
        require(done.returncode == 0, done.stderr)
        for step in range(1, STEPS + 1):
            alone = folder / f"ends-{step}"
            suite.train(plan, step, *running, "--checkpoint", alone)
            name = f"step-{step:08}"
            found, expected = (
                checkpoint_suite.read_checkpoint(x / name)[1] for x in (folder, alone)
            )
            require(found.keys() == expected.keys(), f"{name}: other slots")
            for key, value in expected.items():
                require((found[key] == value).all(), f"{name}: other {key}")
        largest = max(x.stat().st_size for x in (folder / name).iterdir())
        require(largest > 6 << 19, f"files of {largest} bytes do not wait")

    for name, what in RUNS.items():
        suite.report.case(name, lambda r=what: check(*r))
    suite.report.case("slow-disk", slow_disk)


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("snapshots", options.filter)
    with tempfile.TemporaryDirectory(dir=checkpoint_suite.fast_folder()) as folder:
        snapshot_cases(checkpoint_suite.Suite(tools, report, pathlib.Path(folder)))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
