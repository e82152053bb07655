#!/usr/bin/env python3
#===- elastic.py - Runs that survive what befalls them ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""A small Llama on real text (the pages of docs/) in 4 MPI processes, with --long 8,
under `plait-run --supervise`, to which everything happens: ranks, launcher and
supervisor are killed, ranks are stopped, the disk is full, the newest checkpoint
is damaged, hosts come and go. On one mesh the weights are those of the
undisturbed run, to the bit; over several, the last loss is within 1e-5 of it. Each
step has read the samples that it reads in the undisturbed run."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checkpoint_suite import TOLERANCE, fast_folder, read_checkpoint
from harness import (
    GOLDEN,
    ROOT,
    Failure,
    Reporter,
    Tools,
    arguments,
    attend_to_signals,
    mounted,
    require,
)
from processes import ENVIRONMENT, children_of, is_running, wait_for

BATCH, SEQUENCE = 8, 64


@dataclasses.dataclass
class Meshes:
    main: str
    half: str  # of its family, for half of its ranks
    more: str  # and for one less than all
    last: str  # another plan with as many


SHORT = Meshes("pp=2,dp=2", "dp=2", "pp=3", "pp=2,tp=2")
LONG = Meshes("pp=2,dp=2,tp=2", "dp=4", "pp=7", "pp=4,tp=2")


def ranks_of(mesh: str) -> int:
    return math.prod(int(x) for x in re.findall(r"\d+", mesh))


class Suite:
    def __init__(self, tools, report, folder: pathlib.Path, meshes: Meshes):
        self.tools, self.report, self.folder = tools, report, folder
        self.meshes, self.ranks = meshes, ranks_of(meshes.main)
        self.text = folder / "text"
        pages = sorted((ROOT / "docs").glob("*.md"))
        self.text.write_bytes(b"".join(x.read_bytes() for x in pages))
        self.model = folder / "model"
        self.model.mkdir()
        config = json.loads((GOLDEN / "llama-small-test/config.json").read_text())
        config["num_hidden_layers"] = 8
        config["vocab_size"] = 256  # text has no other tokens
        (self.model / "config.json").write_text(json.dumps(config))
        self.straight_runs = {}
        self.jobs: list[Job] = []

    def close(self) -> None:
        """Those that a failed case has left: a supervisor goes on for ever."""
        for job in self.jobs:
            if not job.has_ended():
                job.process.terminate()
                job.end()

    def compile(self, path: pathlib.Path, mesh: str, *more):
        return self.tools.run(
            "plaitc", self.model, "--mesh", mesh, "--schedule", "1f1b",
            *("--global-batch", BATCH, "--micro-batch", 1, "--seq", SEQUENCE),
            *("--no-reference", "-o", path, *more),
        )

    def family(self) -> pathlib.Path:
        plan = self.folder / "model.plan"
        if not plan.exists():
            meshes = self.meshes
            self.compile(
                plan, meshes.main, "--zero", 1,
                *("--also", meshes.half, "--also", meshes.more),
            )
        return plan

    def options(self, steps: int, log, *more) -> list[str]:
        words = ("--text", self.text, "--shuffle", "--steps", steps)
        words += ("--lr", 1e-3, "--seed", 3, "--log", log, "--threads", 1)
        words += ("--log-samples", pathlib.Path(log).with_suffix(".samples"))
        return [str(x) for x in (*words, *more)]

    def straight(self, steps: int) -> pathlib.Path:
        """Folder and log of an undisturbed run, in one process."""
        if steps not in self.straight_runs:
            folder = self.folder / f"straight-{steps}"
            log = folder.with_suffix(".log")
            self.tools.run(
                "plait-run", self.family(),
                *self.options(steps, log, "--save", folder),
            )
            self.straight_runs[steps] = folder
        return self.straight_runs[steps]


def read_samples(path: pathlib.Path) -> dict[int, list]:
    found = {}
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # a kill has cut it
        found[row["step"]] = row["samples"]
    return found


class Job:
    """A supervisor, what it has started and what it has left."""

    def __init__(
        self, suite: Suite, steps: int, *more, folder=None, plan=None, every=3
    ):
        self.suite, self.steps, self.every = suite, steps, every
        self.folder = folder or pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        self.checkpoints = self.folder / "checkpoints"
        self.log, self.saved = self.folder / "log", self.folder / "saved"
        self.errors = self.folder / "errors"
        self.plan = plan or suite.family()
        self.more = more
        self.start()
        suite.jobs.append(self)

    def start(self) -> None:
        options = self.suite.options(
            self.steps, self.log, "--save", self.saved, "--supervise",
            *("--checkpoint", self.checkpoints),
            *("--checkpoint-every", self.every, "--keep", 3),
            *("--timeout", 3, *self.more),
        )
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [self.suite.tools.folder / "plait-run", self.plan, *options],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=ENVIRONMENT,
            )

    def said(self) -> str:
        return self.errors.read_text()

    def launcher(self) -> int | None:
        return next(iter(children_of(self.process.pid)), None)

    def ranks(self) -> list[int]:
        launcher = self.launcher()
        return children_of(launcher) if launcher else []

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def last_step(self) -> int:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        for line in reversed(lines):
            try:
                return json.loads(line)["step"]
            except json.JSONDecodeError:
                continue  # a kill has cut it
        return 0

    def wait_for_step(self, step: int) -> None:
        wait_for(
            lambda: self.last_step() >= step or self.has_ended(), f"step {step}"
        )

    def end(self, seconds: float = 0) -> int:
        """Its exit code. `seconds`: what is left for it to do takes so long."""
        try:
            return self.process.wait(seconds + self.suite.tools.timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure(f"does not end: {self.said()[-2000:]}") from None

    def require_samples(self) -> None:
        """None was skipped or read twice; the last line of a step counts."""
        expected = self.suite.straight(self.steps).with_suffix(".samples")
        found = read_samples(self.log.with_suffix(".samples"))
        require(found == read_samples(expected), "other samples")

    def loss(self) -> float:
        return json.loads(self.log.read_text().splitlines()[-1])["loss"]

    def require_bits(self) -> None:
        straight = self.suite.straight(self.steps)
        found, expected = (
            (x / "model.safetensors").read_bytes() for x in (self.saved, straight)
        )
        require(found == expected, f"other weights\n{self.said()[-2000:]}")
        self.require_samples()

    def require_whole(self) -> None:
        """What has the name of a checkpoint is one."""
        for entry in self.checkpoints.glob("step-????????"):
            try:
                read_checkpoint(entry)
            except FileNotFoundError:
                require(not entry.exists(), f"{entry.name} lacks a file")


#===-----------------------------------------------------------------------===#
# What happens to a run
#===-----------------------------------------------------------------------===#


def kill_rank(job: Job, draw) -> str:
    os.kill(draw.choice(job.ranks()), signal.SIGKILL)
    return "rank"


def kill_all(job: Job, draw) -> str:
    for rank in job.ranks():
        os.kill(rank, signal.SIGKILL)
    return "all"


def kill_launcher(job: Job, draw) -> str:
    os.kill(job.launcher(), signal.SIGKILL)
    return "launcher"


def stop_rank(job: Job, draw) -> str:
    os.kill(draw.choice(job.ranks()), signal.SIGSTOP)
    return "stopped"


def kill_supervisor(job: Job, draw) -> str:
    ranks = job.ranks()
    job.process.kill()
    job.process.wait()
    wait_for(lambda: not any(map(is_running, ranks)), "orphans' end")
    job.start()
    return "supervisor"


def damage_newest(job: Job, draw) -> str:
    """All are killed, and what they go on from has a wrong bit."""
    os.kill(job.process.pid, signal.SIGSTOP)
    kill_all(job, draw)
    time.sleep(0.5)
    job.require_whole()
    newest = sorted(job.checkpoints.glob("step-????????"))[-1:]
    for entry in newest:
        path = draw.choice(sorted(entry.glob("rank-*")))
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1
        path.write_bytes(content)
    os.kill(job.process.pid, signal.SIGCONT)
    return "damaged"


EVENTS = (
    kill_rank, damage_newest, stop_rank, kill_all, kill_launcher, kill_supervisor,
)


def happen(job: Job, event, draw, spread: float) -> str:
    """Lets it happen at an instant while ranks run; "" where they are done."""
    wait_for(lambda: len(job.ranks()) > 1 or job.has_ended(), "processes")
    time.sleep(draw.uniform(0, spread))
    try:
        return event(job, draw)
    except (IndexError, ProcessLookupError, TypeError):
        return ""  # the run was between two starts, or at its end


def fault_cases(suite: Suite, faults: int) -> None:
    steps = 8 + 8 * faults

    def disturbed():
        draw = random.Random(17)
        job = Job(suite, steps)
        happened = []
        for i in range(faults):
            step = job.last_step()
            if job.has_ended():
                break
            # So that it gets somewhere; the instant within a step is random.
            job.wait_for_step(step + 4)
            happened.append(happen(job, EVENTS[i % len(EVENTS)], draw, 0.5))
            job.require_whole()
        code = job.end()
        require(code == 0, f"ended with {code}: {job.said()[-2000:]}")
        job.require_bits()
        restarts = job.said().count(f"starts {suite.ranks} processes") - 1
        require(restarts >= len([x for x in happened if x]) // 2, job.said())
        return f"{', '.join(happened)}; {restarts} restarts"

    def at_once():
        """What has got somewhere waits for nothing when a rank is killed: not for
        ranks that miss it to end their step, as mpirun would, and not to be
        started again. Other work on the machine may delay one restart, a wait
        would delay all of them."""
        job, taken = Job(suite, 10**6), []
        for count in (2, 3, 4):
            # Far enough for a checkpoint since the last start.
            job.wait_for_step(job.last_step() + 3 * job.every)
            start = time.monotonic()
            os.kill(job.ranks()[1], signal.SIGKILL)
            again = f"starts {suite.ranks} processes for"
            wait_for(lambda: job.said().count(again) == count, "a restart")
            taken.append(time.monotonic() - start)
        job.process.send_signal(signal.SIGTERM)
        require(job.end() == 128 + signal.SIGTERM, job.said())
        require("without a new one" not in job.said(), job.said())
        times = ", ".join(f"{x:.2f}" for x in taken)
        require(min(taken) < 1.5, f"{times} s")
        return f"{times} s from a kill to the next start"

    def meshes():
        """Fewer ranks after a kill, more of them when a host is back, and another
        plan after an order to end."""
        hosts, meshes = suite.folder / "hosts", suite.meshes
        half, more = ranks_of(meshes.half), ranks_of(meshes.more)
        hosts.write_text(f"localhost slots={suite.ranks}\n")
        # As many steps as it takes to notice: a host file is read once a second.
        job = Job(suite, 100000, "--hosts", hosts)
        job.wait_for_step(5)
        hosts.write_text(f"localhost slots={half} # half of it is gone\n")
        os.kill(job.ranks()[1], signal.SIGKILL)
        wait_for(lambda: f"starts {half} processes" in job.said(), "half of them")
        job.wait_for_step(9)
        # A host that is back: the run ends its step and goes on larger.
        hosts.write_text(f"localhost slots={more}\n")
        wait_for(lambda: f"starts {more} processes" in job.said(), "more of them")
        job.wait_for_step(job.last_step() + 4)
        job.process.send_signal(signal.SIGTERM)
        code = job.end()
        require(code == 128 + signal.SIGTERM, f"{code}: {job.said()}")
        steps = job.last_step() + 5
        last = suite.folder / "last.plan"
        suite.compile(last, meshes.last)
        job = Job(suite, steps, folder=job.folder, plan=last)
        code = job.end()
        require(code == 0, f"ended with {code}: {job.said()[-2000:]}")
        straight = suite.straight(steps).with_suffix(".log").read_text()
        expected = json.loads(straight.splitlines()[-1])["loss"]
        off = abs(job.loss() - expected) / expected
        require(off <= TOLERANCE, f"{job.loss()}, not {expected}")
        job.require_samples()
        return f"{steps} steps: loss {job.loss()}, undisturbed {expected}: off by {off:.2g}"

    suite.report.case("faults", disturbed)
    suite.report.case("at-once", at_once)
    suite.report.case("meshes", meshes)


def disk_case(suite: Suite) -> None:
    def full():
        folder = suite.folder / "disk"
        with mounted(folder, "size=32m"):
            job = Job(suite, 30, folder=folder)
            job.wait_for_step(5)
            free = shutil.disk_usage(folder).free
            (folder / "filler").write_bytes(bytes(max(0, free - (1 << 17))))
            wait_for(lambda: "No space left" in job.said(), "a full disk")
            os.kill(job.ranks()[2], signal.SIGKILL)
            (folder / "filler").unlink()
            code = job.end()
            require(code == 0, f"ended with {code}: {job.said()[-2000:]}")
            job.require_bits()

    suite.report.case("full-disk", full)


#===-----------------------------------------------------------------------===#
# What a supervisor refuses
#===-----------------------------------------------------------------------===#


def refusal_cases(suite: Suite) -> None:
    def refuses(expected, *words, plan=None, code=1):
        done = suite.tools.call(
            "plait-run", plan or suite.family(), "--text", suite.text,
            "--supervise", *words,
        )
        line = done.stderr.strip().splitlines()[-1]
        require(done.code == code and expected in line, f"{done.code}: {line}")
        return line

    def wrong():
        new = ("--checkpoint", suite.folder / "new")
        hosts = suite.folder / "wrong-hosts"
        refuses("--supervise requires --checkpoint")
        refuses("cannot start 'no-such'", *new, "--launcher", "no-such")
        refuses("--launcher is empty", *new, "--launcher", " ")
        refuses("cannot open hosts", *new, "--hosts", suite.folder / "none")
        hosts.write_text("a slots=2\nb slots=x\n")
        refuses("line 2: 'slots=x' is not slots=N, N from 0 to", *new, "--hosts", hosts)
        hosts.write_text("localhost slots=1\n")
        refuses(
            "is for 1 slots", *new, "--hosts", hosts, "--max-restarts", 0
        )
        hosts.write_text("no-such-host.invalid slots=8\n")
        line = refuses(
            "is for 0 slots", *new, "--hosts", hosts, "--max-restarts", 0
        )
        # Every attempt fails: there is no such text.
        done = suite.tools.call(
            "plait-run", suite.family(), "--text", "/none", "--supervise",
            *new, "--max-restarts", 1,
        )
        require(done.code == 1, done.stderr)
        require("gives up after 1 restarts without" in done.stderr, done.stderr)
        # Also where the parent wants to know of no child's end, as children do then.
        words = (
            suite.tools.folder / "plait-run", suite.family(), "--text", "/none",
            "--supervise", *new, "--max-restarts", 0,
        )
        done = subprocess.run(
            ["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh", *map(str, words)],
            capture_output=True, text=True, env=ENVIRONMENT,
        )
        require(done.returncode == 1, f"{done.returncode}: {done.stderr}")
        return line

    def other_plans():
        folder = suite.folder / "kin"
        folder.mkdir()
        new = ("--checkpoint", suite.folder / "new")
        plan = folder / "model.plan"
        suite.compile(plan, "dp=2")
        suite.compile(folder / "model-3.plan", "dp=4")
        refuses("has 4 ranks, its name says 3", *new, plan=plan)
        suite.compile(folder / "model-3.plan", "dp=2", "--optimizer", "lion")
        refuses("it has optimizer lion", *new, plan=plan)
        (folder / "model-3.plan").unlink()
        done = suite.tools.run(
            "plait-run", plan, "--text", suite.text, "--steps", 1,
            "--checkpoint", folder / "c",
        )
        lion = folder / "lion.plan"
        suite.compile(lion, "dp=2", "--optimizer", "lion")
        refuses("is of optimizer adamw", "--checkpoint", folder / "c", plan=lion)
        return done.stdout.strip().splitlines()[-1]

    def two():
        job = Job(suite, 10**6)
        job.wait_for_step(2)
        line = refuses("has a supervisor already", "--checkpoint", job.checkpoints)
        job.process.send_signal(signal.SIGINT)
        code = job.end()
        require(code == 128 + signal.SIGINT, f"{code}: {job.said()}")
        newest = sorted(x.name for x in job.checkpoints.glob("step-????????"))[-1]
        require(int(newest[5:]) == job.last_step(), f"{newest} is the last one")
        return line

    def lost_host():
        """What mpirun is told, so that it has given up a host that is silent before
        --timeout seconds are over; what the user says goes first."""
        script, found = suite.folder / "launcher", suite.folder / "environment"
        script.write_text(f"#!/bin/sh\nenv > {found}\nexit 1\n")
        script.chmod(0o755)
        keepalive = "OMPI_MCA_oob_tcp_keepalive_"
        for own, expected in ({}, "40 10 3"), ({keepalive + "time": "5"}, "5 10 3"):
            subprocess.run(
                [
                    *(suite.tools.folder / "plait-run", suite.family(), "--supervise"),
                    *("--text", suite.text, "--checkpoint", suite.folder / "new"),
                    *("--launcher", script, "--max-restarts", "0", "--timeout", "80"),
                ],
                capture_output=True, env=ENVIRONMENT | own,
            )
            told = dict(x.partition("=")[::2] for x in found.read_text().splitlines())
            words = (told.get(keepalive + x) for x in ("time", "intvl", "probes"))
            values = " ".join(map(str, words))
            require(values == expected, f"{values}, not {expected}")

    def outlived():
        """A launcher that goes on after its only process, as mpirun does now and then."""
        script = suite.folder / "launcher"
        script.write_text("#!/bin/sh\nsleep 2\nexec sleep 1000\n")
        script.chmod(0o755)
        line = refuses(
            "the run has ended with 137 after", "--checkpoint", suite.folder / "new",
            "--launcher", script, "--max-restarts", 0,
        )
        return line

    suite.report.case("lost-host", lost_host)
    suite.report.case("outlived", outlived)
    suite.report.case("refuses/wrong", wrong)
    suite.report.case("refuses/other-plans", other_plans)
    suite.report.case("refuses/two", two)


def family_cases(suite: Suite) -> None:
    """What plaitc --also writes, and that it writes all or nothing."""
    base = (
        suite.model, "--global-batch", BATCH, "--micro-batch", 1, "--seq", SEQUENCE,
        "--no-reference",
    )

    def sizes():
        """The planner picks each plan; all are proven."""
        folder = suite.folder / "sizes"
        folder.mkdir()
        done = suite.tools.run(
            "plaitc", *base, "--cluster", "cpu:4", "--also", "2,1",
            "-o", folder / "a.plan",
        )
        names = sorted(x.name for x in folder.iterdir())
        require(names == ["a-1.plan", "a-2.plan", "a.plan"], names)
        for name in names:
            shown = suite.tools.run("plait-plan", "show", folder / name).stdout
            require("proven" in shown, shown)
        return done.stdout.strip().splitlines()[-1]

    def refuses(expected, *words):
        folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        done = suite.tools.call("plaitc", *base, "-o", folder / "a.plan", *words)
        line = done.stderr.strip().splitlines()[-1]
        require(done.code == 1 and expected in line, f"{done.code}: {line}")
        left = [x.name for x in folder.iterdir()]
        require(not left, f"{left} are left")

    def wrong():
        mesh = ("--mesh", "dp=4", "--schedule", "1f1b")
        refuses("--also dp=2: with --cluster it takes sizes",
                "--cluster", "cpu:4", "--also", "dp=2")
        refuses("--also x: ", "--cluster", "cpu:4", "--also", "2,x")
        refuses("--also qq=2: ", *mesh, "--also", "qq=2")
        refuses("-2.plan' is for 2 ranks already",
                *mesh, "--also", "dp=2", "--also", "tp=2")
        refuses("--also has a plan for 4 ranks, as many as", *mesh, "--also", "pp=4")
        refuses("error", *mesh, "--also", "dp=2", "--also", "pp=100")
        refuses("--also excludes --compile-to",
                *mesh, "--also", "dp=2", "--compile-to", "shard")
        done = suite.tools.call("plaitc", *base, *mesh, "--also", "dp=2")
        require("which has to be a file" in done.stderr, done.stderr)

    def kept():
        """A family of which one plan fails is as it was, and none is told of."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        for name in ("a.plan", "a-2.plan"):
            (folder / name).write_text("before")
        done = suite.tools.call(
            "plaitc", *base, "--mesh", "dp=4", "--also", "dp=2", "--also", "pp=100",
            "-o", folder / "a.plan",
        )
        require(done.code == 1 and "wrote" not in done.stdout, done.stdout)
        texts = {x.name: x.read_bytes() for x in folder.iterdir()}
        require(texts == dict.fromkeys(("a.plan", "a-2.plan"), b"before"), list(texts))

    suite.report.case("family/sizes", sizes)
    suite.report.case("family/kept", kept)
    suite.report.case("family/refuses", wrong)


def main() -> int:
    attend_to_signals()
    parser = arguments(__doc__)
    parser.add_argument(
        "--long", action="store_true", help="more faults, and a full disk"
    )
    options = parser.parse_args()
    report = Reporter("elastic", options.filter)
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        suite = Suite(
            Tools(options.bin, options.timeout), report, pathlib.Path(folder),
            LONG if options.long else SHORT,
        )
        with contextlib.closing(suite):
            fault_cases(suite, 12 if options.long else 2)
            family_cases(suite)
            refusal_cases(suite)
            if options.long:
                disk_case(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
