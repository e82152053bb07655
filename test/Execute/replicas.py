#!/usr/bin/env python3
#===- replicas.py - Checkpoints in the memory of hosts ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs with --replica on hosts that are UTS namespaces of this machine, each with
its name and so its folder. Hosts are lost with what they have in memory; those
that are left go on from there, on the same mesh with the bits of an undisturbed
run. Damaged, missing and old copies, and memory that is full."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import checkpoint_suite
from checkpoint_suite import (
    MEMORY,
    TOLERANCE,
    fast_folder,
    read_checkpoint,
    read_log,
    steps_in,
)
from checkpoints import PEAK
from harness import (
    Reporter,
    Tools,
    arguments,
    attend_to_signals,
    mounted,
    require,
)
from processes import ENVIRONMENT, NANO, children_of, wait_for

MESH, OTHER, SMALL = "pp=2,dp=2,tp=2", "dp=4", "dp=2"
# Of process $OMPI_COMM_WORLD_RANK, in a namespace of its own.
NAMED = 'set -- $HOSTS -- "$@"; shift $OMPI_COMM_WORLD_RANK; hostname $1\n' \
    'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'


def can_name_hosts() -> bool:
    done = subprocess.run(
        ("unshare", "--uts", "hostname", "other"), stderr=subprocess.DEVNULL
    )
    return done.returncode == 0


class Suite(checkpoint_suite.Suite):
    def straight(self, mesh: str, steps: int) -> pathlib.Path:
        """Folder and log of an undisturbed run of so many steps."""
        if (mesh, steps) not in self.straight_runs:
            folder = self.folder / f"straight-{len(self.straight_runs)}"
            self.train(
                self.plan(mesh), steps,
                "--save", folder, "--log", folder.with_suffix(".log"),
            )
            self.straight_runs[mesh, steps] = folder
        return self.straight_runs[mesh, steps]


class Run:
    """One directory, and what hosts keep of it in memory. The disk has a checkpoint
    of step 4 and, while the run lives, no other; memory has one of each step."""

    DISK = 4

    def __init__(self, suite: Suite):
        self.suite = suite
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        self.checkpoints, self.memory = self.folder / "c", self.folder / "m"
        self.log, self.saved = self.folder / "log", self.folder / "saved"
        self.steps = self.DISK

    def words(self, mesh: str, *more, steps=None):
        return self.suite.command(
            self.suite.plan(mesh), steps or self.steps, "--log", self.log,
            *("--checkpoint", self.checkpoints, "--resume", self.checkpoints),
            *("--replica", self.memory, "--replica-every", 1, "--timeout", 60),
            *("--save", self.saved, *more),
        )

    def start(self, hosts: str, words, before=()) -> subprocess.Popen:
        """A process for each word of `hosts`, on the host of that name."""
        program = (*before, self.suite.tools.folder / "plait-run", *words)
        return subprocess.Popen(
            ["mpirun", "-n", str(len(hosts.split())), "unshare", "--uts", "sh", "-c",
             NAMED, "sh", *map(str, program)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=ENVIRONMENT | {"HOSTS": hosts},
        )

    def finish(self, hosts: str, mesh: str, *more, before=()) -> str:
        process = self.start(hosts, self.words(mesh, *more), before)
        said = process.communicate(timeout=self.suite.tools.timeout)[1]
        require(process.returncode == 0, f"{process.returncode}: {said}")
        return said

    def last_step(self) -> int:
        return max(read_log(self.log), default=0) if self.log.exists() else 0

    def kill(self, hosts: str, mesh: str = MESH) -> None:
        """The checkpoint on the disk, and newer ones in memory; then all processes
        are killed. `steps` is beyond what they have reached."""
        self.suite.tools.run("plait-run", *self.words(mesh))
        process = self.start(hosts, self.words(mesh, steps=10**6))
        count = len(set(hosts.split()))

        def is_there() -> bool:
            newest = [self.newest_step(x) for x in self.folders()]
            return len(newest) == count and min(newest) > self.DISK

        wait_for(lambda: is_there() or process.poll() is not None, "copies")
        for rank in children_of(process.pid):
            os.kill(rank, signal.SIGKILL)
        said = process.communicate()[1]
        require(process.returncode != 0, f"it has ended: {said}")
        self.steps = self.last_step() + 2

    def settle(self) -> int:
        """Lets the newest copies be those that all hosts have; their step."""
        step = min(map(self.newest_step, self.folders()))
        for folder in self.folders():
            for name in steps_in(folder):
                if int(name[5:13]) > step:
                    shutil.rmtree(folder / name)
        return step

    def folders(self, host: str = "*") -> list[pathlib.Path]:
        return sorted(self.memory.glob(f"plait-*-{host}"))

    def newest_step(self, folder: pathlib.Path) -> int:
        return max((int(x.name[5:]) for x in folder.glob("step-????????")), default=0)

    def copies(self, step: int, name: str) -> list[pathlib.Path]:
        return [x / f"step-{step:08}" / name for x in self.folders()]

    def lose(self, host: str) -> None:
        (folder,) = self.folders(host)
        shutil.rmtree(folder)

    def require_bits(self, mesh: str = MESH) -> None:
        straight = self.suite.straight(mesh, self.steps)
        found, expected = (
            (x / "model.safetensors").read_bytes() for x in (self.saved, straight)
        )
        require(found == expected, "other weights than without interruption")
        require(not self.folders(), "memory is not given back")


def flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def warnings_of(said: str) -> list[str]:
    return [x for x in said.splitlines() if x.startswith("plait-run: warning")]


def resumed_from(said: str) -> tuple[int, str]:
    found = re.search(r"resumed step (\d+) from (memory)?", said)
    require(found is not None, said)
    return int(found[1]), found[2] or "disk"


#===-----------------------------------------------------------------------===#
# Lost hosts
#===-----------------------------------------------------------------------===#


def host_cases(suite: Suite) -> None:
    def same_mesh():
        """Of three hosts, with one or two processes each, one is lost."""
        run = Run(suite)
        run.kill("a a b c")
        run.lose("b")
        said = run.finish("a c", MESH)
        step, place = resumed_from(said)
        require(place == "memory" and step > run.DISK, said)
        run.require_bits()
        index, _ = read_checkpoint(run.checkpoints / f"step-{run.steps:08}")
        require(index["run"]["step"] == run.steps, str(index["run"]))
        return f"step {step} of {run.steps}"

    def other_mesh():
        """Half of the hosts are lost; a new one comes, and another plan."""
        run = Run(suite)
        run.kill("a b")
        run.lose("a")
        said = run.finish("new b", OTHER)
        step, place = resumed_from(said)
        require(place == "memory" and step > run.DISK, said)
        found = read_log(run.log)[run.steps][0]
        log = suite.straight(MESH, run.steps).with_suffix(".log")
        off = abs(found - read_log(log)[run.steps][0]) / found
        require(off <= TOLERANCE, f"loss is off by {off:.2g}")
        return f"step {step} of {run.steps}, loss is off by {off:.2g}"

    def too_many():
        """Two neighbours are lost, and what one had for the other."""
        run = Run(suite)
        run.kill("a b c")
        run.lose("b")
        run.lose("c")
        said = run.finish("a", MESH)
        warned = warnings_of(said)[0]
        require("no host has 'rank-0000" in warned and "in memory" in warned, said)
        require(resumed_from(said) == (run.DISK, "disk"), said)
        run.require_bits()
        return warned

    def supervised():
        """Copies count as progress, and restarts go on from them."""
        run = Run(suite)
        run.steps = 24
        words = [str(x) for x in run.words(SMALL, "--supervise", "--max-restarts", 1)]
        at = words.index("--resume")
        del words[at : at + 2]
        errors = run.folder / "errors"
        with errors.open("w") as file:
            process = subprocess.Popen(
                [suite.tools.folder / "plait-run", *words],
                stdout=subprocess.DEVNULL, stderr=file, env=ENVIRONMENT,
            )
        kills = 0
        for step in (4, 12):
            wait_for(lambda s=step: run.last_step() >= s or process.poll() is not None,
                     f"step {step}")
            for launcher in children_of(process.pid):
                for rank in children_of(launcher)[:1]:
                    os.kill(rank, signal.SIGKILL)
                    kills += 1
        process.wait(suite.tools.timeout)
        said = errors.read_text()
        require(process.returncode == 0, said)
        require(kills and "in memory, on the disk none" in said, said)
        run.require_bits(SMALL)
        return f"{kills} kills, {said.count('from memory, ')} resumes from memory"

    def memory():
        """A rank that gets all it needs from another host."""
        model = suite.folder / "large"
        model.mkdir()
        config = json.loads((NANO / "config.json").read_text())
        config |= {"n_embd": 768, "n_layer": 2, "vocab_size": 16384}
        (model / "config.json").write_text(json.dumps(config))
        plan = suite.compile(
            "large", "--mesh", "tp=2", "--global-batch", 2, model=model
        )

        def peak(run: Run, hosts: str, *words) -> int:
            with tempfile.TemporaryDirectory(dir=suite.folder) as peaks:
                process = run.start(hosts, words, (sys.executable, "-c", PEAK, peaks))
                said = process.communicate(timeout=suite.tools.timeout)[1]
                require(process.returncode == 0, said)
                return max(
                    int(x.read_text()) for x in pathlib.Path(peaks).iterdir()) * 1024

        run = Run(suite)
        run.DISK = run.steps = 1
        bare = peak(run, "a b", *suite.command(plan, 1))
        run.kill("a b", "large")
        run.lose("a")
        run.settle()
        loading = peak(run, "new b", *run.words("large"))
        worst = loading - bare
        require(worst <= MEMORY, f"{worst >> 20} MiB more")
        return f"{bare >> 20} MiB without, +{worst >> 20} resuming from another host"

    suite.report.case("lost/same-mesh", same_mesh)
    suite.report.case("lost/other-mesh", other_mesh)
    suite.report.case("lost/too-many", too_many)
    suite.report.case("lost/memory", memory)
    suite.report.case("supervised", supervised)


#===-----------------------------------------------------------------------===#
# What can be wrong with copies
#===-----------------------------------------------------------------------===#


def damage_cases(suite: Suite) -> None:
    def killed(hosts: str = "a b") -> tuple[Run, int]:
        run = Run(suite)
        run.kill(hosts)
        return run, run.settle()

    def expect(run: Run, hosts: str, resumed: tuple, *words: str) -> str:
        """It goes on from there with one warning, which has `words`."""
        said = run.finish(hosts, MESH)
        warned = [x for x in warnings_of(said) if "are on one host" not in x]
        require(len(warned) == 1, said)
        for word in words:
            require(word in warned[0], f"'{word}' is not in {warned[0]}")
        require(resumed_from(said) == resumed, said)
        run.require_bits()
        return warned[0].split(": ", 2)[2]

    DISK = (Run.DISK, "disk")

    def one_damaged():
        run, step = killed()
        flip(run.copies(step, "rank-00002.safetensors")[0])
        return expect(run, "a b", (step, "memory"), "rank-00002.safetensors",
                      "its checksum does not hold; another host has it")

    def all_damaged():
        run, step = killed()
        for path in run.copies(step, "rank-00002.safetensors"):
            flip(path)
        return expect(run, "a b", DISK, "rank-00002.safetensors",
                      "its checksum does not hold; trying the one before")

    def missing():
        run, step = killed()
        for path in run.copies(step, "rank-00005.safetensors"):
            path.unlink()
        return expect(run, "a b", DISK, "no host has 'rank-00005.safetensors' of")

    def index_damaged():
        run, step = killed()
        path = run.copies(step, "index.json")[1]
        path.write_text(path.read_text().replace('"seed":3', '"seed":4'))
        return expect(run, "a b", (step, "memory"), "index.json",
                      "its checksum does not hold")

    def stale():
        """The directory is another run's by now."""
        run, _ = killed("a")
        shutil.rmtree(run.checkpoints)
        (old,) = run.folders()
        said = run.finish("a", MESH)
        require("resumed" not in said, said)
        require(f"removed '{old}', copies of an earlier run" in said, said)
        run.require_bits()

    def forgotten():
        """A run without copies in between makes those that there are old."""
        run, _ = killed("a")
        words = [str(x) for x in run.words(MESH, steps=Run.DISK)]
        at = words.index("--replica")
        suite.tools.run("plait-run", *words[:at], *words[at + 4 :])
        return expect(run, "a", DISK, "removed '", "copies of an earlier run")

    def full():
        run = Run(suite)
        with mounted(run.memory, "size=1m"):
            warned = warnings_of(run.finish("a b", MESH))
            require(len(warned) == run.steps, warned)
            for step, line in enumerate(warned, 1):
                require(
                    f"no checkpoint of step {step} in memory: cannot write '" in line
                    and line.endswith("No space left on device"), line)
            run.require_bits()
        return warned[0]

    def read_only():
        """Directories in which nothing can be written are refused at once."""
        run = Run(suite)
        for folder in (run.checkpoints, run.memory):
            with mounted(folder, "ro"):
                suite.fail("Read-only file system", *run.words(MESH))

    def one_host():
        run = Run(suite)
        done = suite.tools.run("plait-run", *run.words(MESH))
        require("all ranks are on one host" in done.stderr, done.stderr)
        run.require_bits()

    def refuses():
        run = Run(suite)
        words = [*run.words(MESH)]
        at = words.index("--replica-every")
        suite.fail("--replica needs --replica-every, or --checkpoint-every",
                   *words[:at], *words[at + 2 :])
        suite.fail("--replica requires --checkpoint", *suite.command(
            suite.plan(MESH), 1, "--replica", run.memory))
        run.memory = pathlib.Path("/proc/none")
        suite.fail("cannot make directory '/proc/none/plait-", *run.words(MESH))

    for case in (
        one_damaged, all_damaged, missing, index_damaged, stale, forgotten, full,
        one_host, read_only, refuses,
    ):
        suite.report.case(case.__name__.replace("_", "-"), case)


def main() -> int:
    attend_to_signals()
    options = arguments(__doc__).parse_args()
    report = Reporter("replicas", options.filter)
    if not can_name_hosts():
        report.case("hosts", lambda: "skipped: only root can name hosts")
        return report.finish()
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        tools = Tools(options.bin, options.timeout)
        suite = Suite(tools, report, pathlib.Path(folder))
        host_cases(suite)
        damage_cases(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
