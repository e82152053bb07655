#===- processes.py - Runs of several processes ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What suites that start mpirun share: its environment, plans and runs, and what
the system knows of processes."""

import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import time

from harness import LONG, ROOT, Outcome, Reporter, Skipped, Tools, require, write_tokens

NANO = ROOT / "examples" / "models" / "gpt2-nano"
MIXTURE = ROOT / "test" / "golden" / "qwen3-moe-small-test"
# In containers tests run as root, and on fewer cores than processes.
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 3, 4096, 256)

    def compile(self, name: str, *options, model=NANO) -> pathlib.Path:
        plan = self.folder / f"{name}.plan"
        if not plan.exists():
            self.tools.run("plaitc", model, *options, "-o", plan)
        return plan

    def small(self) -> pathlib.Path:
        return self.compile(
            "small",
            *("--mesh", "pp=2,dp=2,tp=2", "--global-batch", 8),
            *("--micro-batch", 2, "--seq", 32),
        )

    def command(self, processes: int, *words) -> list[str]:
        program = [str(self.tools.folder / "plait-run"), *map(str, words)]
        return ["mpirun", "-n", str(processes), *program]

    def call(self, command: list[str], timeout: float | None = None) -> Outcome:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeout or self.tools.timeout,
            env=ENVIRONMENT,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def mpirun(self, processes: int, *words) -> Outcome:
        return self.call(self.command(processes, *words))

    def preload(self, name: str) -> pathlib.Path:
        """A library of this folder's file of that name, which counts what processes do."""
        library = self.folder / f"{name}.so"
        if library.exists():
            return library
        compiler = shutil.which("mpicc")
        if not compiler or not shutil.which("mpirun"):
            raise Skipped("no mpicc, or no mpirun")
        source = pathlib.Path(__file__).with_name(f"{name}.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        return library

    def mpirun_counted(self, processes: int, libraries, given: dict, *words) -> Outcome:
        """With libraries loaded first, and what they are given of the environment."""
        command = self.command(processes, *words)
        given = {"LD_PRELOAD": ":".join(map(str, libraries))} | given
        preload = [x for pair in given.items() for x in ("-x", "=".join(map(str, pair)))]
        return self.call([*command[:3], *preload, *command[3:]])


def metrics(log: pathlib.Path) -> list[str]:
    """What does not depend on time."""
    return [
        re.sub(r', "step_seconds".*', "", line)
        for line in log.read_text().splitlines()
    ]


def children_of(parent: int) -> list[int]:
    """In the order in which they were started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        if stat and int(stat.rpartition(")")[2].split()[1]) == parent:
            found.append(int(entry.name))
    return sorted(found)


def is_running(process: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition, what: str) -> None:
    end = time.monotonic() + LONG
    while not condition():
        require(time.monotonic() < end, f"waited {LONG} s for {what}")
        time.sleep(0.02)


def free_port() -> int:
    """One for a process that is about to be started. It is none of those that the
    system gives to who wants any: another connection would get it in between. And it
    is free at all addresses, since processes listen at all."""
    borders = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    any_from = int(borders.split()[0])
    least = 1024 if any_from < 12_000 else 10_000
    for port in random.SystemRandom().sample(range(least, any_from), 1000):
        with socket.socket() as one:
            try:
                one.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError("no port is free")
