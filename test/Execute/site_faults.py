#!/usr/bin/env python3
#===- site_faults.py - Sites that end, sleep and return ---*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs the sites of a plan as runs of their own, and does to them what happens to
machines. Where nothing happens, weights have the bits of the same plan in one
process; and whatever does, all sites that reach the end have the same."""

import contextlib
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from harness import (
    ROOT, Reporter, Tools, arguments, attend_to_signals, require, write_tokens,
)  # fmt: skip
from processes import ENVIRONMENT, wait_for

NANO = ROOT / "examples" / "models" / "gpt2-nano"
# Of one training: the layout inside of a site, the scheme, and further options.
LAYOUTS = {
    "diloco": ("sites=3", "diloco:2", ()),
    # Of equal weights of a power of two of them the mean that is saved has the bits.
    "four": ("sites=4", "diloco:2", ()),
    "average": ("sites=2", "average:2", ()),
    "tensor": ("tp=2,sites=2", "diloco:2", ()),
    "stages": ("pp=2,sites=2", "average:2", ()),
    "zero": ("dp=2,sites=2", "diloco:2,momentum=0",
             ("--zero", "1", "--precision", "bf16")),
    "rounded": ("sites=2", "diloco:2", ("--precision", "bf16")),
}  # fmt: skip


class Run:
    """A coordinator and the sites of a plan, each with a log of what it has said."""

    def __init__(self, suite, plan, steps: int, *options):
        self.suite, self.plan, self.steps = suite, plan, steps
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        self.processes: list[subprocess.Popen] = []
        self.coordinator = self.coordinate(0, *options)

    def start(self, name: str, *words) -> subprocess.Popen:
        with open(self.folder / name, "w") as output:
            process = subprocess.Popen(
                [str(self.suite.tools.folder / "plait-run"), *map(str, words)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def coordinate(self, port: int, *options) -> subprocess.Popen:
        process = self.start(
            "coordinator", self.plan, "--coordinate", f"127.0.0.1:{port}",
            "--round-timeout", 60, *options,
        )  # fmt: skip
        wait_for(lambda: " at port " in self.said("coordinator"), "the coordinator")
        self.port = int(re.search(r"at port (\d+)", self.said("coordinator"))[1])
        return process

    def site(self, site: int, *options, plan=None) -> subprocess.Popen:
        return self.start(
            f"site-{site}", plan or self.plan, "--tokens", self.suite.tokens,
            "--steps", self.steps, "--threads", 1, "--timeout", 60, "--save",
            self.folder / f"model-{site}", "--site", site, "--meet",
            f"127.0.0.1:{self.port}", *options,
        )  # fmt: skip

    def said(self, name: str) -> str:
        return (self.folder / name).read_text()

    def await_text(self, text: str, name="coordinator") -> None:
        wait_for(lambda: text in self.said(name), f"{name} to say '{text}'")

    def finish(self, sites) -> None:
        """All of them end well, with the same weights, and so does the coordinator."""
        for process in self.processes:
            if process.returncode is None:
                process.wait(timeout=self.suite.tools.timeout)
        require(self.coordinator.returncode == 0, self.said("coordinator"))
        for site in sites:
            require(self.weights(site) == self.weights(sites[0]), f"site {site} differs")

    def weights(self, site: int) -> bytes:
        path = self.folder / f"model-{site}" / "model.safetensors"
        require(path.exists(), self.said(f"site-{site}"))
        return path.read_bytes()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 5, 100_000, 256)

    def compile(self, name: str, *more) -> pathlib.Path:
        mesh, outer, options = LAYOUTS[name]
        plan = self.folder / f"{name}{len(more)}.plan"
        if not plan.exists():
            self.tools.run(
                "plaitc", NANO, "--mesh", mesh, "--outer", outer, "--global-batch", 24,
                "--seq", 32, "--no-reference", *options, *more, "-o", plan,
            )  # fmt: skip
        return plan

    def run(self, name: str, steps: int, *options):
        return contextlib.closing(Run(self, self.compile(name), steps, *options))


def undisturbed(suite: Suite, name: str) -> None:
    sites = int(re.search(r"sites=(\d+)", LAYOUTS[name][0])[1])
    plan = suite.compile(name)
    whole = suite.folder / f"{name}-whole"
    suite.tools.run(
        "plait-run", plan, "--tokens", suite.tokens, "--steps", 6, "--threads", 1,
        "--save", whole,
    )  # fmt: skip
    with suite.run(name, 6) as run:
        for site in range(sites):
            run.site(site)
        run.finish(range(sites))
        require(
            run.weights(0) == (whole / "model.safetensors").read_bytes(),
            "other weights than in one process",
        )
        require(f"with {3 * sites} of {3 * sites} parts" in run.said("coordinator"),
                run.said("coordinator"))  # fmt: skip


# So many that there is time for something to happen.
MANY = 300


def killed(suite: Suite, options=()) -> str:
    with suite.run("diloco", MANY) as run:
        victim = run.site(1, *options)
        run.site(0), run.site(2)
        run.await_text("begins after")
        run.await_text("step 10/", "site-1")
        victim.kill()
        run.await_text("is of 2 of 3 sites: site 1 is not there")
        run.site(1, *options)
        run.await_text("site 1 continues after round")
        run.finish((0, 1, 2))
        return re.search(r"with (\d+ of \d+) parts", run.said("coordinator"))[1]


def returns_from_checkpoint(suite: Suite) -> str:
    folder = suite.folder / "own"
    own = ("--checkpoint", folder, "--checkpoint-every", 20, "--resume", folder)
    return killed(suite, own)


def stopped(suite: Suite, name: str) -> str:
    sites = int(re.search(r"sites=(\d+)", LAYOUTS[name][0])[1])
    with suite.run(name, MANY, "--round-timeout=0.5") as run:
        asleep = run.site(1)
        for site in range(sites):
            if site != 1:
                run.site(site)
        run.await_text("begins after")
        run.await_text("step 10/", "site-1")
        asleep.send_signal(signal.SIGSTOP)
        run.await_text("site 1 is late")
        time.sleep(0.3)
        asleep.send_signal(signal.SIGCONT)
        run.await_text("site 1 continues after round")
        run.finish(range(sites))
        return re.search(r"with (\d+ of \d+) parts", run.said("coordinator"))[1]


def joins_later(suite: Suite) -> None:
    with suite.run("diloco", MANY, "--timeout", 2) as run:
        run.site(0), run.site(2)
        run.await_text("begins after round 0 with 2 of 3 sites")
        run.await_text("step 10/", "site-0")
        run.site(1)
        run.await_text("site 1 continues after round")
        run.finish((0, 1, 2))


def coordinator_killed(suite: Suite) -> None:
    with suite.run("diloco", MANY) as run:
        for site in range(3):
            run.site(site)
        run.await_text("begins after")
        run.await_text("step 10/", "site-1")
        run.coordinator.kill()
        run.await_text("it is looked for", "site-0")
        run.coordinator = run.coordinate(run.port)
        run.await_text("begins after")
        run.finish((0, 1, 2))
        require("begins after round 0" not in run.said("coordinator"), "began anew")


def refused(suite: Suite, expected: str, site=1, options=(), more=()) -> None:
    with suite.run("diloco", 4) as run:
        other = suite.compile("diloco", *more)
        run.site(0)
        run.await_text("site 0 is there")
        wrong = run.site(site, *options, plan=other)
        require(wrong.wait(timeout=60) == 1, "it has not failed")
        require(re.search(expected, run.said(f"site-{site}")), run.said(f"site-{site}"))
        require(run.processes[1].poll() is None, run.said("site-0"))


def twice(suite: Suite) -> None:
    with suite.run("diloco", 4) as run:
        run.site(0)
        run.await_text("site 0 is there")
        again = run.site(0, "--lr", 3e-4)
        require(again.wait(timeout=60) == 1, "it has not failed")
        said = run.said("site-0")
        require("refuses this site: site 0 takes part already" in said, said)


def talk(port: int, kind: int, payload: bytes) -> bytes:
    """What the coordinator answers to a frame (Frames.h), until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(struct.pack("<IHHQQQ", kind, 0, 0, 0, 0, len(payload)) + payload)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(4096):
                answer += part
        return answer


def strangers(suite: Suite) -> None:
    """Whatever connects, it is refused or dropped, and sites go on."""
    with suite.run("diloco", 4) as run:
        for payload in (b"GET / HTTP/1.1\r\n", b'{"protocol": -1}', b"[]", b"\xff"):
            answer = talk(run.port, 1, payload)
            require(b"what has connected is no site of this version" in answer, answer)
        require(talk(run.port, 4, b"x" * 100) == b"", "an offer of nobody is answered")
        require(talk(run.port, 99, b"") == b"", "no kind of frame is answered")
        for site in range(3):
            run.site(site)
        run.finish((0, 1, 2))


def launched(suite: Suite) -> None:
    """A site is one process."""
    plan = suite.compile("diloco")
    outcome = subprocess.run(
        ["mpirun", "-n", "2", suite.tools.folder / "plait-run", plan, "--tokens",
         suite.tokens, "--site", "0", "--meet", "127.0.0.1:1", "--steps", "4"],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    require(outcome.returncode != 0, outcome.stdout + outcome.stderr)
    require("one process a site: start each site without" in outcome.stderr, outcome.stderr)


def bad_options(suite: Suite, expected: str, *words) -> None:
    outcome = suite.tools.call("plait-run", *words)
    text = outcome.stdout + outcome.stderr
    require(outcome.code != 0 and re.search(expected, text), text)
    require(text.count("error:") <= 1, text)


def option_cases(suite: Suite, report: Reporter) -> None:
    plan = suite.compile("diloco")
    plain = suite.folder / "plain.plan"
    gossip = suite.folder / "gossip.plan"
    for target, words in (
        (plain, ("--mesh", "dp=2")),
        (gossip, ("--mesh", "sites=4", "--outer", "gossip:ring")),
    ):
        suite.tools.run(
            "plaitc", NANO, *words, "--global-batch", 8, "--seq", 32, "--no-reference",
            "-o", target,
        )  # fmt: skip
    site = ("--tokens", suite.tokens, "--site", 0, "--meet", "127.0.0.1:1")
    cases = {
        "no-sites": ("the plan has no sites: compile it with", plain, *site),
        "scheme": ("by average or diloco", gossip, *site),
        "coordinator": ("by average or diloco", gossip, "--coordinate", "0"),
        "needs": ("--meet requires --site", plan, *site[:2], "--meet", "a:1"),
        "site": ("is 3, the plan has 3: 0 to 2", plan, *site[:2], "--site", 3,
                 "--meet", "a:1"),
        "steps": ("multiple of 2", plan, *site, "--steps", 3),
        "place": ("is no HOST:PORT", plan, *site[:4], "--meet", "7000"),
        "absent": ("cannot reach the coordinator", plan, *site, "--steps", 4,
                   "--timeout", 0.2),
        "rollback": ("cannot go back by itself", plan, *site, "--on-nan", "rollback",
                     "--checkpoint", suite.folder / "no", "--checkpoint-every", 2),
        "excludes": ("--coordinate excludes --steps", plan, "--coordinate", "0",
                     "--steps", 3),
        "nobody": ("waited longer than 0.2 seconds for a site", plan,
                   "--coordinate", "127.0.0.1:0", "--timeout", 0.2),
        "port": ("neither|is no port", plan, "--coordinate", "127.0.0.1:99999"),
    }  # fmt: skip
    for name, (expected, *words) in cases.items():
        report.case(f"option/{name}", lambda e=expected, w=words: bad_options(suite, e, *w))


def main() -> int:
    attend_to_signals()
    parser = arguments(__doc__)
    parser.add_argument("--all", action="store_true", help="every layout and fault")
    options = parser.parse_args()
    report = Reporter("site_faults", options.filter)
    is_whole = options.all or bool(options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(Tools(options.bin, options.timeout), pathlib.Path(folder))
        for name in list(LAYOUTS)[1:] if is_whole else ("four", "tensor", "zero"):
            report.case(f"same/{name}", lambda n=name: undisturbed(suite, n))
        report.case("killed", lambda: killed(suite))
        for name in ("diloco", "average", "zero", "rounded") if is_whole else ("zero",):
            report.case(f"stopped/{name}", lambda n=name: stopped(suite, n))
        if is_whole:
            report.case("killed/checkpoint", lambda: returns_from_checkpoint(suite))
            report.case("joins", lambda: joins_later(suite))
        report.case("coordinator", lambda: coordinator_killed(suite))
        report.case("refused/plan", lambda: refused(
            suite, "its plan is .*, the coordinator has", more=("--seq", 64)))
        report.case("refused/settings", lambda: refused(
            suite, "site 1 has lr 0.5, site 0 has lr 0.0003", options=("--lr", 0.5)))
        report.case("refused/twice", lambda: twice(suite))
        report.case("refused/strangers", lambda: strangers(suite))
        report.case("refused/launcher", lambda: launched(suite))
        option_cases(suite, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
