#!/usr/bin/env python3
#===- goodput.py - What faults cost ----------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The run of elastic.py, whose ranks are killed, one or all of them, at random
instants: how much of its throughput is kept, and where the rest goes. The peer
figure is DiLoCo's: 97.7 % under 62 faults in 30 minutes. It is the machine's as
well, so that this fails only where the run does; what such a run has said is left in
build/goodput-failed."""

import contextlib
import json
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time

from checkpoint_suite import fast_folder
from elastic import LONG, Job, Suite, happen, kill_all, kill_rank
from harness import ROOT, Reporter, Tools, arguments, attend_to_signals, require


class Stamps(threading.Thread):
    """When which lines came to files."""

    def __init__(self, *paths: pathlib.Path):
        super().__init__(daemon=True)
        self.paths, self.lines, self.ended = paths, [], threading.Event()
        self.start()

    def run(self) -> None:
        """Reads what is new only: all of a long log would keep a core busy that the
        run is measured on."""
        places = dict.fromkeys(self.paths, 0)
        while not self.ended.wait(0.005):
            now = time.monotonic()
            for path, place in places.items():
                if not path.exists() or path.stat().st_size == place:
                    continue
                with path.open("rb") as file:
                    file.seek(place)
                    new = file.read()
                whole = new[: new.rfind(b"\n") + 1]
                places[path] += len(whole)
                self.lines += [(now, line) for line in whole.decode().splitlines()]

    def first(self, after: float, word: str) -> tuple[float, str]:
        return next(x for x in self.lines if x[0] >= after and word in x[1])


# What a fault costs, up to the line that ends each part.
PARTS = (
    ("all processes end", "supervisor: the run has ended"),
    ("pause", "supervisor: starts"),
    ("processes start", " ranks in "),
    ("checkpoint is read", "resumed step"),
    ("run begins", "settings: outputs"),
    ("first step", '"step_seconds"'),
)


def parts_of(stamps: Stamps, instant: float, pace: float) -> list[float] | None:
    """Seconds of each part, and those of steps that are done again; None where
    another fault came in between."""
    try:
        ends = [stamps.first(instant, word) for _, word in PARTS]
    except StopIteration:
        return None
    if [x for x, _ in ends] != sorted(x for x, _ in ends):
        return None
    before = [json.loads(y)["step"] for x, y in stamps.lines
              if x < instant and y.startswith('{"step"')]
    first = json.loads(ends[-1][1])["step"]
    seconds = [b - a for a, (b, _) in zip((instant, *(x for x, _ in ends)), ends)]
    # The first one is done again, or would have been done as well.
    seconds[-1] -= pace
    # And half a step on average, in which the fault came.
    return seconds + [(before[-1] - first + 1.5) * pace]


def slow_starts(rows: list[dict]) -> float:
    """Seconds that the second to tenth step after a restart take longer than the
    run's median step, for one restart on average; the first is a part of its own."""
    usual = statistics.median(x["step_seconds"] for x in rows)
    begins = [i for i in range(1, len(rows)) if rows[i]["step"] <= rows[i - 1]["step"]]
    late = [x["step_seconds"] - usual for i in begins for x in rows[i + 1 : i + 10]]
    return sum(late) / max(1, len(begins))


def between_steps(stamps: Stamps) -> float:
    """Seconds from the end of a step's line to the begin of the next step, on
    average, where no fault comes in between."""
    rows = [(x, json.loads(y)) for x, y in stamps.lines if y.startswith('{"step"')]
    gaps = [
        later - sooner - b["step_seconds"]
        for (sooner, a), (later, b) in zip(rows, rows[1:])
        if b["step"] == a["step"] + 1
    ]
    return sum(gaps) / len(gaps)


@contextlib.contextmanager
def kept_where_it_fails(job: Job):
    """What is to be read after half an hour, and is in a temporary folder."""
    try:
        yield
    except BaseException:
        folder = ROOT / "build" / "goodput-failed"
        folder.mkdir(parents=True, exist_ok=True)
        for path in (job.log, job.errors):
            shutil.copy(path, folder)
        raise


def disturb(job: Job, seconds: int, faults: int) -> tuple[list[float], float]:
    """When faults happened, and how long it all took from the first step on."""
    draw = random.Random(5)
    job.wait_for_step(1)
    start = time.monotonic()
    happened = []
    for i, instant in enumerate(
        sorted(draw.uniform(0, 0.9 * seconds) for _ in range(faults))
    ):
        time.sleep(max(0, start + instant - time.monotonic()))
        happen(job, (kill_rank, kill_all)[i % 2], draw, 0)
        happened.append(time.monotonic())
    code = job.end(seconds)
    require(code == 0, f"ended with {code}: {job.said()[-2000:]}")
    return happened, time.monotonic() - start


def describe(stamps: Stamps, happened, taken: float, steps: int, pace: float) -> str:
    ideal, faults = (steps - 1) * pace, len(happened)
    parts = [x for x in (parts_of(stamps, y, pace) for y in happened) if x]
    names = [name for name, _ in PARTS] + ["steps done again"]
    means = [sum(x) / len(x) for x in zip(*parts)]
    rows = [json.loads(y) for _, y in stamps.lines if y.startswith('{"step"')]
    own = statistics.mean(x["step_seconds"] for x in rows)
    return (
        f"{steps} steps, {pace:.3g} s each undisturbed, in {taken:.0f} s "
        f"with {faults} faults: {100 * ideal / taken:.1f} % of the throughput,"
        f" {(taken - ideal) / faults:.2g} s a fault; of {len(parts)} of them: "
        + ", ".join(f"{x} {y:.2f} s" for x, y in zip(names, means))
        + f"; by what all steps took, {own:.3g} s each, {100 * steps * own / taken:.1f} %; "
        f"slow steps after a fault {slow_starts(rows):.2f} s; between two steps "
        f"{1000 * between_steps(stamps):.1f} ms, in all "
        f"{len(rows) * between_steps(stamps):.1f} s"
    )


def goodput_case(suite: Suite, seconds: int, faults: int, every: int) -> None:
    def undisturbed() -> float:
        job = Job(suite, 40)
        job.end()
        log = [json.loads(x) for x in job.log.read_text().splitlines()]
        return sum(x["step_seconds"] for x in log[1:]) / 39

    def measure():
        pace = undisturbed()
        steps = int(seconds / pace)
        # Faults may come closer than checkpoints on a busy machine.
        job = Job(suite, steps, "--max-restarts", 10**6, every=every)
        stamps = Stamps(job.errors, job.log)
        with kept_where_it_fails(job):
            happened, taken = disturb(job, seconds, faults)
            stamps.ended.set()
            return describe(stamps, happened, taken, steps, pace)

    suite.report.case("goodput", measure)


def main() -> int:
    attend_to_signals()
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="of steps")
    parser.add_argument("--faults", type=int, default=4, help="in these")
    parser.add_argument("--every", type=int, default=25, help="steps to a checkpoint")
    options = parser.parse_args()
    report = Reporter("goodput", options.filter)
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        suite = Suite(
            Tools(options.bin, options.timeout), report, pathlib.Path(folder), LONG
        )
        with contextlib.closing(suite):
            goodput_case(suite, options.seconds, options.faults, options.every)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
