#!/usr/bin/env python3
#===- site_faults.py - What faults of sites cost a run -----*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What faults cost a run of sites that are runs of their own (docs/Faults.md): the
samples that are counted in a second, over those of a run in which nothing fails, with
the same checkpoints. Faults are drawn by --seed, as many a minute as in 30 minutes
62: a site is killed, and started again some seconds later, or stopped for some
seconds. Each process has a share of a core by a cgroup, if those may be made; the
first line says so.

The model is gpt2-nano on 8 sites, DiLoCo with H=20; a run is --steps long."""

import argparse
import contextlib
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test" / "Execute"))

from harness import write_tokens  # noqa: E402

GROUPS = pathlib.Path("/sys/fs/cgroup/cpu/plait-site-faults")
PERIOD = 20_000  # microseconds
EVERY = 20


def limit(process: subprocess.Popen, name: str, share: float) -> None:
    """Gives the process, and what it starts, a share of a core."""
    folder = GROUPS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
    (folder / "cpu.cfs_quota_us").write_text(str(int(PERIOD * share)))
    (folder / "cgroup.procs").write_text(str(process.pid))


def remove_groups() -> None:
    with contextlib.suppress(OSError):
        for folder in [*GROUPS.iterdir(), GROUPS]:
            folder.rmdir()


class Job:
    """A coordinator and its sites, once."""

    def __init__(self, options, folder: pathlib.Path, checkpoints: bool):
        self.options, self.folder, self.checkpoints = options, folder, checkpoints
        folder.mkdir()
        self.log = folder / "coordinator"
        with self.log.open("w") as log:
            self.coordinator = subprocess.Popen(
                [options.bin / "plait-run", options.plan, "--coordinate", "127.0.0.1:0",
                 "--round-timeout", str(options.round_timeout)],
                stdout=log, stderr=log,
            )  # fmt: skip
        while not (found := re.search(r"at port (\d+)", self.log.read_text())):
            time.sleep(0.05)
        self.port = found[1]
        self.sites = [self.start(site) for site in range(options.sites)]

    def start(self, site: int) -> subprocess.Popen:
        own = self.folder / f"own-{site}"
        more = ["--checkpoint", own, "--checkpoint-every", EVERY, "--keep", 1, "--resume", own]
        words = [
            self.options.bin / "plait-run", self.options.plan, "--tokens", self.options.tokens,
            "--steps", self.options.steps, "--threads", 1, "--site", site,
            "--meet", f"127.0.0.1:{self.port}", *(more if self.checkpoints else ()),
        ]  # fmt: skip
        with (self.folder / f"site-{site}").open("a") as log:
            process = subprocess.Popen([*map(str, words)], stdout=log, stderr=log)
        if self.options.limited:
            limit(process, str(site), self.options.share)
        return process

    def disturb(self, over: threading.Event) -> int:
        """Draws faults until the run is over; returns how many there were."""
        draw = random.Random(self.options.seed)
        count = 0
        while not over.wait(draw.expovariate(self.options.faults / 60)):
            site = draw.randrange(self.options.sites)
            kill, away = draw.random() < 0.5, draw.uniform(1, 10)
            if self.sites[site].poll() is not None:
                continue
            count += 1
            self.sites[site].send_signal(signal.SIGKILL if kill else signal.SIGSTOP)
            over.wait(away)
            if kill:
                self.sites[site].wait()
                self.sites[site] = self.start(site)
            else:
                self.sites[site].send_signal(signal.SIGCONT)
        return count

    def run(self, disturbed: bool) -> tuple[float, float, int]:
        """Parts of rounds that were counted a second, their share, and faults."""
        over = threading.Event()
        counts = [0]

        def work():
            counts[0] = self.disturb(over)

        thread = threading.Thread(target=work)
        while "begins after" not in self.log.read_text():
            time.sleep(0.05)
        begin = time.monotonic()
        if disturbed:
            thread.start()
        self.coordinator.wait()
        seconds = time.monotonic() - begin
        over.set()
        if disturbed:
            thread.join()
        for process in self.sites:
            process.kill()
            process.wait()
        found = re.search(r"with (\d+) of (\d+) parts", self.log.read_text())
        if self.coordinator.returncode or not found:
            sys.exit(self.log.read_text())
        return int(found[1]) / seconds, int(found[1]) / int(found[2]), counts[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4000, help="a multiple of 20")
    parser.add_argument("--faults", type=float, default=62 / 30, help="a minute")
    parser.add_argument("--round-timeout", type=float, default=2)
    parser.add_argument("--share", type=float, default=0.2, help="of a core, a process")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        options.plan, options.tokens = folder / "sites.plan", folder / "tokens.bin"
        write_tokens(options.tokens, 5, 1_000_000, 256)
        subprocess.run(
            [options.bin / "plaitc", ROOT / "examples" / "models" / "gpt2-nano", "--mesh",
             f"sites={options.sites}", "--outer", f"diloco:{EVERY}", "--global-batch",
             str(options.sites), "--seq", "64", "--no-reference", "-o", options.plan],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            GROUPS.mkdir(exist_ok=True)
            options.limited = True
        except OSError:
            options.limited = False
        print("share of a core a process:", options.share if options.limited else "any")
        try:
            plain, _, _ = Job(options, folder / "plain", False).run(False)
            saved, _, _ = Job(options, folder / "saved", True).run(False)
            faulty, share, faults = Job(options, folder / "faulty", True).run(True)
        finally:
            remove_groups()
        print(f"checkpoints: {saved / plain:.3f} of the samples a second without any")
        print(f"{faults} faults: {faulty / saved:.3f} of the samples a second without any,")
        print(f"{share:.3f} of all parts of rounds were counted")


if __name__ == "__main__":
    main()
