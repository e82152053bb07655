#!/usr/bin/env python3
#===- launchers.py - Runs that launchers start ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Plans under torchrun, in each form that it has, under what srun sets, and under
launchers whose processes plait-run cannot join. Losses have the bits that they have
in one process, or there is one error and no output. mpi.py has mpirun.

torchrun is that of PyTorch 2 or later: --torch names an interpreter that has it, or
PLAIT_TORCH does, else it is looked for in build/venv-torch, in this one and those on
the path. Where none
has it (Debian's PyTorch is 1.13) those cases say so and are left out. A stand-in is
always tested: an agent that holds MASTER_PORT, as torchrun does since 2.4 in every
form, and sets what it sets."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

from harness import (
    LONG,
    TORCH,
    Failure,
    Outcome,
    Reporter,
    Skipped,
    Tools,
    arguments,
    require,
)
from processes import Suite, free_port, metrics

STEPS = 3
# What this process may have inherited.
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_",
             "SLURM_", "PMI", "FLUX_")
BARE = {k: v for k, v in os.environ.items()
        if k == "SLURM_CONF" or not k.startswith(LAUNCHERS)}
TORCHRUN = (
    # Name, options of each agent, what its processes do in place of plait-run.
    ("plain", ((),), "exec"),
    ("c10d", (("--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:{port}"),),
     "exec"),
    # Its processes end when they are started first.
    ("restart", (("--max_restarts", "1"),),
     "test $TORCHELASTIC_RESTART_COUNT = 1 || exit 1; exec"),
)
MORE_OF_TORCHRUN = (
    ("standalone", (("--standalone",),), "exec"),
    ("port", (("--master_port", "{port}"),), "exec"),
    ("named", (("--rdzv_backend", "c10d", "--rdzv_id", "a job",
                "--rdzv_endpoint", "127.0.0.1:{port}"),), "exec"),
    ("nodes", tuple(
        ("--nnodes", "2", "--node_rank", str(node), "--master_addr", "127.0.0.1",
         "--master_port", "{port}")
        for node in range(2)
    ), "exec"),
    ("nodes-c10d", (
        ("--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_id", "job",
         "--rdzv_endpoint", "127.0.0.1:{port}"),
    ) * 2, "exec"),
    # The agents count their restarts by themselves.
    ("nodes-restart", (
        ("--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_id", "job",
         "--rdzv_endpoint", "127.0.0.1:{port}", "--max_restarts", "2"),
    ) * 2,
     'test "$GROUP_RANK" != 1 -o $TORCHELASTIC_RESTART_COUNT = 1 || exit 1; exec'),
)


def has_torchrun(interpreter: str) -> bool:
    """Whether an interpreter has PyTorch 2 or later."""
    asks = "from importlib.metadata import version; print(version('torch'))"
    try:
        found = subprocess.run(
            [interpreter, "-c", asks], capture_output=True, text=True, timeout=LONG
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    major, dot, _ = found.partition(".")
    return bool(dot) and int(major) >= 2


def find_torchrun(given: str | None) -> list[str]:
    """The words that run it; none: it is not here. What is given must have it."""
    if given:
        require(has_torchrun(given), f"{given} has no PyTorch 2 or later")
    others = [shutil.which("python3"), "/usr/bin/python3"]
    candidates = [given] if given else [sys.executable, *filter(None, others)]
    chosen = next(filter(has_torchrun, candidates), None)
    return [chosen, "-m", "torch.distributed.run"] if chosen else []


class Launchers:
    def __init__(self, suite: Suite, torchrun: list[str]):
        self.suite, self.torchrun = suite, torchrun
        self.log = suite.folder / "log"

    def words(self) -> list[str]:
        return [
            str(self.suite.tools.folder / "plait-run"), str(self.suite.small()),
            *("--tokens", str(self.suite.tokens), "--steps", str(STEPS)),
            *("--threads", "2", "--timeout", "60", "--log", str(self.log)),
        ]

    def expected(self) -> list[str]:
        self.log.unlink(missing_ok=True)
        self.call([(self.words(), {})])
        steps = metrics(self.log)
        require(len(steps) == STEPS, steps)
        self.log.unlink()
        return steps

    def call(self, commands) -> list[Outcome]:
        """Commands with variables, all at once."""
        processes = [
            subprocess.Popen(
                words, env=BARE | variables, text=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for words, variables in commands
        ]
        try:
            outputs = [x.communicate(timeout=self.suite.tools.timeout)
                       for x in processes]
        finally:
            for one in processes:
                one.kill()
        return [Outcome(x.returncode, *y) for x, y in zip(processes, outputs)]

    def has_bits(self, commands) -> None:
        expected = self.expected()
        done = self.call(commands)
        require(not any(x.code for x in done), "\n".join(x.stderr for x in done))
        require(metrics(self.log) == expected, f"{metrics(self.log)}, {expected}")

    def has_one_error(self, commands, expected: str) -> None:
        self.log.unlink(missing_ok=True)
        done = self.call(commands)
        require(all(x.code == 1 for x in done), [x.code for x in done])
        said = [y for x in done for y in x.stderr.splitlines()]
        require(len(said) == 1 and expected in said[0], said)
        require(not self.log.exists(), "a log")


def torchrun_cases(launchers: Launchers, more: bool) -> None:
    def runs(agents, script):
        def body():
            if not launchers.torchrun:
                raise Skipped("no interpreter has PyTorch 2 or later; see --torch")
            port = free_port()
            # "--": it takes --log for one of its own.
            launchers.has_bits([
                ([*launchers.torchrun, *(x.format(port=port) for x in options),
                  "--nproc_per_node", "2", "--no_python", "--",
                  "sh", "-c", f'{script} "$@"', "sh", *launchers.words()], {})
                for options in agents
            ])

        return body

    for name, agents, script in TORCHRUN + (MORE_OF_TORCHRUN if more else ()):
        launchers.suite.report.case(f"torchrun/{name}", runs(agents, script))


def variables_of(rank: int, count: int, port: int) -> dict[str, str]:
    """What torchrun sets since PyTorch 2.4."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0",
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def agent_cases(launchers: Launchers) -> None:
    def holds_the_port():
        with socket.socket() as agent:
            agent.bind(("", 0))
            agent.listen()
            port = agent.getsockname()[1]
            launchers.has_bits([
                (launchers.words(), variables_of(rank, 3, port)) for rank in range(3)
            ])

    launchers.suite.report.case("agent-holds-the-port", holds_the_port)


def srun_cases(launchers: Launchers) -> None:
    """Without PMIx; SLURM itself is not needed."""

    def variables(rank, count):
        return {
            "SLURM_JOB_ID": "7", "SLURM_NTASKS": str(count),
            "SLURM_STEP_NUM_TASKS": str(count), "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank), "SLURM_STEP_NODELIST": "localhost",
            "MASTER_PORT": str(port),
        }

    port = free_port()
    launchers.suite.report.case("srun", lambda: launchers.has_bits(
        [(launchers.words(), variables(rank, 2)) for rank in range(2)]))

    def starts_them():
        """That of a cluster, without PMIx and with it, where there is one."""
        if not shutil.which("srun") or subprocess.run(
            ["srun", "-n", "2", "--immediate=10", "true"], capture_output=True
        ).returncode:
            raise Skipped("no srun starts two tasks here")
        for kind in ("none", "pmix"):
            launchers.has_bits([
                (["srun", "-n", "2", f"--mpi={kind}", *launchers.words()], {})])

    launchers.suite.report.case("srun/real", starts_them)
    # The shell of a job is one process.
    launchers.suite.report.case("srun-shell", lambda: launchers.has_bits(
        [(launchers.words(),
          {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"})]))


def other_cases(launchers: Launchers) -> None:
    def refuses(name, rank, size, also=None):
        launchers.suite.report.case(f"refuses/{name}", lambda: launchers.has_one_error(
            [(launchers.words(), {rank: str(i), size: "3"} | (also or {}))
             for i in range(3)],
            f"environment variable {size} is 3, so this is one of several"))

    refuses("mpich", "PMI_RANK", "PMI_SIZE")
    refuses("mpich-in-slurm", "PMI_RANK", "PMI_SIZE",
            {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"})
    refuses("mvapich", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE")
    refuses("flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE")
    # What mpirun of Open MPI says, without its MPI.
    launchers.suite.report.case("refuses/another-mpi", lambda: launchers.has_one_error(
        [(launchers.words(), {"OMPI_COMM_WORLD_RANK": "0",
                              "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                              "OMPI_COMM_WORLD_SIZE": "2"})],
        "MPI knows of 1: is it another MPI's launcher?"))
    for variable in ("PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE"):
        launchers.suite.report.case(
            f"refuses/{variable}",
            lambda variable=variable: launchers.has_one_error(
                [(launchers.words(), {variable: "0"})], variable),
        )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--torch", default=os.environ.get("PLAIT_TORCH") or next(map(str, TORCH), None),
        help="an interpreter with PyTorch 2 or later",
    )
    parser.add_argument("--all", action="store_true", help="all forms of torchrun")
    options = parser.parse_args()
    report = Reporter("launchers", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(options.bin, options.timeout)
        launchers = Launchers(
            Suite(tools, report, pathlib.Path(folder)), find_torchrun(options.torch)
        )
        agent_cases(launchers)
        srun_cases(launchers)
        other_cases(launchers)
        torchrun_cases(launchers, options.all)
    return report.finish()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"error: {failure}")
