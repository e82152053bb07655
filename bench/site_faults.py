#!/usr/bin/env python3
#===- site_faults.py - What faults of sites cost a run -----*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What faults cost a run of sites that are runs of their own (docs/Faults.md): the
samples that are counted in a second, over those of a run in which nothing fails, with
the same checkpoints. A fault comes at equal intervals, as often as 62 in 30 minutes,
to a process drawn by --seed: it is killed, and its site started again as soon as all
of its processes have ended, as a loop of the shell would; or it is stopped for some
seconds. Each process has a share of a core by a cgroup, if those may be made; the
first line says so.

Where a machine does other work, too, runs one after another do not compare. So the run
with faults is also held against itself: the last third of the time between two faults,
in which all sites are back, tells how fast it is without any.

The model is gpt2-nano on 8 sites of one process or, with --mesh pp=2,sites=4
--processes 2, on 4 of two, DiLoCo with H=20. --both measures one after the other, of
which each needs 1.6 cores: with --minutes 30, some 70 minutes."""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test" / "Execute"))

from harness import write_tokens  # noqa: E402
from processes import wait_for  # noqa: E402
from site_runs import SiteRun, SiteRuns  # noqa: E402

GROUPS = pathlib.Path(f"/sys/fs/cgroup/cpu/plait-site-faults-{os.getpid()}")
PERIOD = 20_000  # microseconds
EVERY = 20
FORMS = (("sites=8", 1), ("pp=2,sites=4", 2))


def limit(process: subprocess.Popen, name: str, share: float) -> None:
    """Gives the process, and what it starts, a share of a core."""
    folder = GROUPS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
    (folder / "cpu.cfs_quota_us").write_text(str(int(PERIOD * share)))
    (folder / "cgroup.procs").write_text(str(process.pid))


def make_groups() -> bool:
    """Their shares are what limits, whatever else the machine does."""
    try:
        GROUPS.mkdir(exist_ok=True)
        (GROUPS / "cpu.shares").write_text(str(1 << 16))
    except OSError:
        return False
    return True


def remove_groups() -> None:
    with contextlib.suppress(OSError):
        for folder in [*filter(pathlib.Path.is_dir, GROUPS.iterdir()), GROUPS]:
            folder.rmdir()


def last_step(log: pathlib.Path) -> int:
    """The number of the last step that a log has whole."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    whole = [line for line in lines[-2:] if line.endswith("\n")]
    return json.loads(whole[-1])["step"] if whole else 0


class Job:
    """A coordinator and its sites, once."""

    def __init__(self, options, name: str, steps: int, checkpoints: bool = True):
        self.options, self.steps, self.checkpoints = options, steps, checkpoints
        self.folder = options.folder / name
        self.folder.mkdir()
        self.runs = SiteRuns(options.bin, self.folder, options.plan, options.processes)
        self.coordinator = self.runs.coordinate(
            0, "--round-timeout", options.round_timeout
        )
        self.logs: list[pathlib.Path] = []
        self.sites = [self.start(site) for site in range(options.sites)]

    def start(self, site: int) -> SiteRun:
        own = self.folder / f"own-{site}"
        more = ["--checkpoint", own, "--checkpoint-every", EVERY, "--keep", 1, "--resume", own]
        self.logs.append(self.folder / f"steps-{len(self.logs)}.jsonl")
        run = self.runs.site(
            site, "--tokens", self.options.tokens, "--steps", self.steps,
            "--threads", 1, "--log", self.logs[-1], *(more if self.checkpoints else ()),
        )  # fmt: skip
        if self.options.limited:
            for index, process in enumerate(run.processes):
                limit(process, f"{self.folder.name}-{site}-{index}", self.options.share)
        return run

    def count_steps(self) -> int:
        """Steps of the site that has done most."""
        return max(map(last_step, self.logs), default=0)

    def disturb(self, over: threading.Event) -> tuple[int, int]:
        """Makes faults until the run is over; returns how many kills and stops."""
        draw = random.Random(self.options.seed)
        begin, kills, stops = time.monotonic(), 0, 0
        every = 60 / self.options.faults
        while True:
            due = begin + (kills + stops + 1) * every
            if over.wait(max(0, due - every / 3 - time.monotonic())):
                return kills, stops
            quiet, steps = time.monotonic(), self.count_steps()
            if over.wait(max(0, due - time.monotonic())):
                return kills, stops
            self.quiet_seconds += time.monotonic() - quiet
            self.quiet_steps += self.count_steps() - steps
            site = draw.randrange(self.options.sites)
            process = self.sites[site].processes[
                draw.randrange(self.options.processes)]  # fmt: skip
            away = draw.uniform(1, self.options.longest_stop)
            kills_it = draw.random() < 0.5
            if process.poll() == 0:  # it has done all of its steps
                return kills, stops
            if kills_it:
                process.kill()
                self.sites[site].wait_for_all(60)
                self.sites[site] = self.start(site)
                kills += 1
                continue
            process.send_signal(signal.SIGSTOP)
            over.wait(away)
            process.send_signal(signal.SIGCONT)
            stops += 1

    def run(self, disturbed: bool = False) -> float:
        """Parts of rounds that were counted a second."""
        over = threading.Event()
        self.quiet_seconds, self.quiet_steps = 0.0, 0

        def work():
            self.faults = self.disturb(over)

        thread = threading.Thread(target=work)
        wait_for(lambda: "begins after" in self.runs.said("coordinator"), "sites")
        begin = time.monotonic()
        if disturbed:
            thread.start()
        self.coordinator.wait()
        seconds = time.monotonic() - begin
        over.set()
        if disturbed:
            thread.join()
        self.runs.close()
        if self.coordinator.returncode:
            sys.exit(self.runs.said("coordinator"))
        self.counted, self.parts = self.runs.counted()
        return self.counted / seconds


def measure(options) -> None:
    """Of one form: checkpoints alone, the run with faults, and before and behind it one
    without."""
    print(f"{options.sites} sites, {options.processes} processes each", flush=True)
    plain = Job(options, "plain", options.steps, checkpoints=False).run()
    saved = Job(options, "saved", options.steps).run()
    print(f"checkpoints: {saved / plain:.3f} of the samples a second without any",
          flush=True)  # fmt: skip
    rounds = saved / options.sites * 60 * options.minutes
    job = Job(options, "faulty", EVERY * max(1, round(rounds)))
    faulty = job.run(disturbed=True)
    kills, stops = job.faults
    print(f"{kills} kills and {stops} stops in {job.counted / faulty / 60:.1f} minutes: "
          f"{faulty / saved:.3f} of the samples a second without any,")  # fmt: skip
    print(f"{job.counted / job.parts:.3f} of all parts of rounds were counted")
    if job.quiet_seconds:  # it was long enough for a fault
        itself = job.quiet_steps / EVERY * options.sites / job.quiet_seconds
        print(f"{faulty / itself:.3f} of its own samples a second while nothing failed",
              flush=True)  # fmt: skip
    again = Job(options, "again", options.steps).run()
    print(f"{faulty / again:.3f} of those after the run, without any", flush=True)


def measure_form(options, mesh: str, processes: int) -> None:
    options.mesh, options.processes = mesh, processes
    options.sites = int(mesh.rpartition("sites=")[2])
    with tempfile.TemporaryDirectory() as name:
        options.folder = pathlib.Path(name)
        options.plan = options.folder / "sites.plan"
        options.tokens = options.folder / "tokens.bin"
        write_tokens(options.tokens, 5, 1_000_000, 256)
        subprocess.run(
            [options.bin / "plaitc", ROOT / "examples" / "models" / "gpt2-nano", "--mesh",
             mesh, "--no-plan", "--outer", f"diloco:{EVERY}", "--global-batch",
             str(options.sites), "--seq", "64", "--no-reference", "-o", options.plan],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        options.limited = make_groups()
        print("share of a core a process:", options.share if options.limited else "any")
        try:
            measure(options)
        finally:
            remove_groups()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--mesh", default="sites=8", help="with sites=S at its end")
    parser.add_argument("--processes", type=int, default=1, help="of a site")
    parser.add_argument("--both", action="store_true",
                        help="8 sites of one process, and then 4 of two")  # fmt: skip
    parser.add_argument("--steps", type=int, default=2000,
                        help="of the runs without faults, a multiple of 20")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=2, help="of the one with faults")
    parser.add_argument("--faults", type=float, default=62 / 30, help="a minute")
    parser.add_argument("--longest-stop", type=float, default=5, help="seconds")
    parser.add_argument("--round-timeout", type=float, default=0.3)
    parser.add_argument("--share", type=float, default=0.2, help="of a core, a process")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    forms = FORMS if options.both else ((options.mesh, options.processes),)
    for mesh, processes in forms:
        measure_form(options, mesh, processes)


if __name__ == "__main__":
    main()
