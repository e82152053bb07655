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
from processes import wait_for
from site_runs import (
    MISSED, OFFER, START, STATE, VERDICT, FakeSite, SiteRun, SiteRuns,
)  # fmt: skip

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


class Run(SiteRuns):
    """The sites of a plan, which save what they come to."""

    def __init__(self, suite, plan, steps: int, *options, processes: int = 1):
        folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        super().__init__(suite.tools.folder, folder, plan, processes)
        self.suite, self.steps = suite, steps
        self.coordinator = self.coordinate(0, "--round-timeout", 60, *options)

    def site(self, site: int, *options, plan=None) -> SiteRun:
        return super().site(
            site, "--tokens", self.suite.tokens, "--steps", self.steps, "--threads", 1,
            "--timeout", 60, "--save", self.folder / f"model-{site}", *options, plan=plan,
        )  # fmt: skip

    def await_text(self, text: str, name="coordinator") -> None:
        wait_for(lambda: text in self.said(name), f"{name} to say '{text}'")

    def await_text_again(self, text: str, times: int) -> None:
        """What the coordinator says so many times."""
        wait_for(lambda: self.said("coordinator").count(text) == times, f"'{text}'")

    def finish(self, sites) -> None:
        """All of them end well, with the same weights, and so does the coordinator."""
        for run in self.started:
            run.wait_for_all(self.suite.tools.timeout)
        require(self.coordinator.returncode == 0, self.said("coordinator"))
        for site in sites:
            require(self.weights(site) == self.weights(sites[0]), f"site {site} differs")

    def weights(self, site: int) -> bytes:
        path = self.folder / f"model-{site}" / "model.safetensors"
        require(path.exists(), self.said(f"site-{site}"))
        return path.read_bytes()

    def share_counted(self) -> str:
        return "{} of {}".format(*self.counted())


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

    def run(self, name: str, steps: int, *options, processes: int = 1):
        return contextlib.closing(
            Run(self, self.compile(name), steps, *options, processes=processes)
        )


def sites_of(name: str) -> int:
    return int(LAYOUTS[name][0].rpartition("sites=")[2])


def undisturbed(suite: Suite, name: str, processes: int = 1) -> None:
    sites = sites_of(name)
    plan = suite.compile(name)
    whole = suite.folder / f"{name}-whole"
    suite.tools.run(
        "plait-run", plan, "--tokens", suite.tokens, "--steps", 6, "--threads", 1,
        "--save", whole,
    )  # fmt: skip
    with suite.run(name, 6, processes=processes) as run:
        for site in range(sites):
            run.site(site)
            run.of_site = 1  # sites need not have as many
        run.finish(range(sites))
        require(
            run.weights(0) == (whole / "model.safetensors").read_bytes(),
            "other weights than in one process",
        )
        require(run.counted() == (3 * sites, 3 * sites), run.said("coordinator"))


# So many that there is time for something to happen: who returns misses three rounds of two
# steps, also where processes start slowly, for then steps are slow, too.
MANY = 120


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
        return run.share_counted()


def returns_from_checkpoint(suite: Suite) -> str:
    folder = suite.folder / "own"
    own = ("--checkpoint", folder, "--checkpoint-every", 20, "--resume", folder)
    return killed(suite, own)


def part_killed(suite: Suite, name: str, victim: int) -> str:
    """A site of which one process is gone is gone: the others of it end, too."""
    with suite.run(name, MANY, processes=2) as run:
        run.site(0)
        site = run.site(1)
        run.await_text("begins after")
        run.await_text("step 10/", "site-1")
        site.processes[victim].kill()
        codes = site.wait_for_all(60)
        require(sorted(codes) == [-signal.SIGKILL, 1], codes)
        said = run.said("site-1.1" if victim == 0 else "site-1")
        require(said.count("error:") == 1 and "is lost" in said, said)
        run.await_text("is of 1 of 2 sites: site 1 is not there")
        run.site(1)
        run.await_text("site 1 continues after round")
        run.finish((0, 1))
        return run.share_counted()


def part_ends_at_a_meeting(suite: Suite) -> None:
    """While the first process of a site waits for other sites, whose round takes
    long, or for the coordinator, which is asleep."""
    with suite.run("tensor", MANY, processes=2) as run:
        site = run.site(1)
        run.await_text("site 1 is there")
        site.processes[1].kill()
        codes = site.wait_for_all(30)
        require(codes == [1, -signal.SIGKILL], codes)
        run.await_text("site 1 is gone")
        site = run.site(1)
        run.site(0)
        run.await_text("step 10/", "site-1")
        run.coordinator.send_signal(signal.SIGSTOP)
        time.sleep(1)
        site.processes[1].kill()
        codes = site.wait_for_all(30)
        require(codes == [1, -signal.SIGKILL], codes)
        run.coordinator.send_signal(signal.SIGCONT)
        run.await_text("site 1 is gone after round", "coordinator")


def parts_end_at_once(suite: Suite) -> str:
    """A process that is left knows that nobody will answer it: it ends in less than the
    second for which it would wait for that. The best of some, on a machine that does
    other things."""
    seconds = []
    with suite.run("tensor", MANY, processes=2) as run:
        for victim in (1, 0, 1):
            site = run.site(1)
            run.await_text("site 1 is there")
            site.processes[victim].kill()
            begin = time.monotonic()
            site.wait_for_all(30)
            seconds.append(time.monotonic() - begin)
            run.await_text("site 1 is gone")
            (run.folder / "coordinator").write_text("")
    require(min(seconds) < 0.8, f"{seconds} s")
    return f"{min(seconds):.2f} s"


def returns_too_late(suite: Suite) -> None:
    """A site that comes back when the others have done their last round has nobody to
    get a state from: it is told so, and the coordinator does not wait for more."""
    with suite.run("diloco", 2, "--timeout", 3) as run:
        slow = run.site(0)
        run.await_text("site 0 is there")
        slow.send_signal(signal.SIGSTOP)
        log = run.folder / "log"
        last = run.site(2, "--log", log)
        run.await_text("begins after round 0 with 2 of 3 sites")
        wait_for(lambda: log.exists() and log.read_text(), "a step")
        time.sleep(1)  # until it has done the other one, and offered
        last.send_signal(signal.SIGSTOP)
        slow.send_signal(signal.SIGCONT)
        require(slow.wait(timeout=60) == 0, run.said("site-0"))
        late = run.site(1)
        run.await_text("site 1 joins after round 1")
        last.send_signal(signal.SIGCONT)
        require(last.wait(timeout=60) == 0, run.said("site-2"))
        require(late.wait(timeout=30) == 1, "it has not failed")
        said = "refuses this site: site 1 is behind the others, which have done all"
        require(said in run.said("site-1"), run.said("site-1"))
        require(run.coordinator.wait(timeout=30) == 0, run.said("coordinator"))


def catches_up(suite: Suite) -> None:
    """In the round after a site got a state, it may be as much later than the others as
    that took: three sites whose every word the test says."""
    with suite.run("diloco", 4, "--round-timeout", 0.5, "--timeout", 1) as run:
        FakeSite(run.port, 0, 0, 0)
        run.await_text("the coordinator has ")
        plan = int(re.search(r"coordinator has ([0-9a-f]+)", run.said("coordinator"))[1], 16)
        # Sizes are what it says of wrong ones.
        sizes = []
        for kind in (OFFER, STATE):
            site = FakeSite(run.port, 2, plan, 0)
            site.send(kind, 0, b"x")
            run.await_text_again("bytes, expected ", len(sizes) + 1)
            found = re.findall(r"bytes, expected (\d+)", run.said("coordinator"))
            sizes.append(int(found[-1]))
        offer, state = sizes
        giver, other = (FakeSite(run.port, site, plan, 0) for site in (0, 1))
        for site in (giver, other):
            site.await_frame(START)
        for site in (giver, other):
            site.send(OFFER, 0, bytes(offer))
        require([x.await_frame(VERDICT) for x in (giver, other)][1] == (2, 0), "a verdict")
        later = FakeSite(run.port, 2, plan, 0)
        run.await_text("site 2 joins after round 1")
        for site in (giver, other):
            site.send(OFFER, 1, bytes(offer))
        require(giver.await_frame(VERDICT) == (2, 1), "nobody gives")
        other.await_frame(VERDICT)
        time.sleep(1)
        giver.send(STATE, 2, bytes(state))
        later.await_frame(STATE)
        for site in (giver, other):
            site.send(OFFER, 2, bytes(offer))
        time.sleep(1.2)  # more than twice as late as a round waits
        later.send(OFFER, 2, bytes(offer))
        require([x.await_frame(VERDICT)[0] for x in (giver, other, later)] == [3] * 3,
                run.said("coordinator"))  # fmt: skip
        # And in the next one no more, for which it would be 2 seconds.
        begin = time.monotonic()
        for site in (giver, other):
            site.send(OFFER, 3, bytes(offer))
        require(giver.await_frame(VERDICT)[0] == 2, run.said("coordinator"))
        require(time.monotonic() - begin < 2, "a round waits for ever")
        # Back from its second round, it gets the sums of the two that it has missed.
        later = FakeSite(run.port, 2, plan, 2)
        other.await_frame(VERDICT)
        run.await_text("site 2 joins after round 4")
        for site in (giver, other):
            site.send(OFFER, 4, bytes(offer))
        found = [later.await_frame(MISSED) for _ in range(2)]
        require(found == [(3, 0), (2, 0)], found)


def parts_differ(suite: Suite) -> None:
    """Processes of one site say different ones."""
    with suite.run("tensor", 4) as run:
        words = (run.plan, "--tokens", suite.tokens, "--steps", 4, "--meet",
                 f"127.0.0.1:{run.port}", "--site")  # fmt: skip
        site = run.start("site-0", (*words, 0), (*words, 1))
        require(site.wait_for_all(60) == [1, 1], "it has not failed")
        said = run.said("site-0")
        require(re.search(r"error: .* has site 1, .* has site 0", said), said)


def stopped(suite: Suite, name: str, processes: int = 1) -> str:
    sites = sites_of(name)
    with suite.run(name, MANY, "--round-timeout=0.5", processes=processes) as run:
        asleep = run.site(1)
        for site in range(sites):
            if site != 1:
                run.site(site)
        run.await_text("begins after")
        run.await_text("step 10/", "site-1")
        asleep.processes[-1].send_signal(signal.SIGSTOP)
        run.await_text("site 1 is late")
        time.sleep(0.3)
        asleep.processes[-1].send_signal(signal.SIGCONT)
        run.await_text("site 1 continues after round")
        run.finish(range(sites))
        return run.share_counted()


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
        run.coordinator = run.coordinate(run.port, "--round-timeout", 60)
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
        require(run.started[1].poll() is None, run.said("site-0"))


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


def process_cases(suite: Suite, report: Reporter, is_whole: bool) -> None:
    """Of sites of two processes."""
    for name in ("tensor", "stages", "zero") if is_whole else ("tensor",):
        report.case(f"processes/same/{name}", lambda n=name: undisturbed(suite, n, 2))
    for name, victim in (
        (("zero", 1), ("tensor", 0), ("stages", 1)) if is_whole else (("zero", 1),)
    ):
        report.case(f"processes/killed/{name}-{victim}",
                    lambda n=name, v=victim: part_killed(suite, n, v))  # fmt: skip
    if is_whole:
        report.case("processes/stopped", lambda: stopped(suite, "tensor", 2))
    report.case("processes/meeting", lambda: part_ends_at_a_meeting(suite))
    report.case("processes/at-once", lambda: parts_end_at_once(suite))
    report.case("processes/differ", lambda: parts_differ(suite))


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
        report.case("returns-too-late", lambda: returns_too_late(suite))
        report.case("catches-up", lambda: catches_up(suite))
        report.case("coordinator", lambda: coordinator_killed(suite))
        report.case("refused/plan", lambda: refused(
            suite, "its plan is .*, the coordinator has", more=("--seq", 64)))
        report.case("refused/settings", lambda: refused(
            suite, "site 1 has lr 0.5, site 0 has lr 0.0003", options=("--lr", 0.5)))
        report.case("refused/twice", lambda: twice(suite))
        report.case("refused/strangers", lambda: strangers(suite))
        process_cases(suite, report, is_whole)
        option_cases(suite, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
