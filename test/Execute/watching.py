#!/usr/bin/env python3
#===- watching.py - What is seen of the steps of a run -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The trace of chosen steps is one that Perfetto reads, and has beside what each
rank did what it was predicted to do, as plait-plan simulate has it. A rank that is
slower than those with the same work is named, in a run of equal ranks none is. The
page shows a step and what ranks do, also in a browser, where there is Chromium."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from harness import LONG, Reporter, Tools, arguments, require
from processes import ENVIRONMENT, Suite, children_of, wait_for
from training_suite import read_page

KINDS = {"X": ("ts", "dur", "tid", "name", "cat"), "M": ("name",)}


#===-----------------------------------------------------------------------===#
# Traces
#===-----------------------------------------------------------------------===#


def run(suite: Suite, plan, processes: int, *options):
    words = (plan, "--tokens", suite.tokens, *options)
    if processes == 1:
        return suite.tools.run("plait-run", *words)
    done = suite.mpirun(processes, *words)
    require(done.code == 0, done.stderr)
    return done


def read_trace(path: pathlib.Path) -> tuple[dict, list[dict]]:
    """The names of its processes, and its complete events. Each event has what
    Chrome's "Trace Event Format" demands, and lasts for no less than no time."""
    names, events = {}, []
    for event in json.loads(path.read_text())["traceEvents"]:
        require(event["ph"] in KINDS, event)
        require(isinstance(event["pid"], int), event)
        for field in KINDS[event["ph"]]:
            require(field in event, f"{field} of {event}")
        if event["ph"] == "M":
            if event["name"] == "process_name":
                names[event["pid"]] = event["args"]["name"]
            continue
        require(event["ts"] >= 0 and event["dur"] >= 0, event)
        require(event["pid"] in names, event)
        events.append(event)
    return names, events


def nests(events: list[dict]) -> None:
    """On a thread an event is within another one or beside it. Else Perfetto
    leaves it out."""
    threads: dict[tuple, list[dict]] = {}
    for event in events:
        threads.setdefault((event["pid"], event["tid"]), []).append(event)
    for spans in threads.values():
        spans.sort(key=lambda x: (x["ts"], -x["dur"]))
        ends: list[float] = []
        for span in spans:
            end = span["ts"] + span["dur"]
            # In microseconds: less than the nanosecond that times are given to.
            while ends and ends[-1] <= span["ts"] + 5e-4:
                ends.pop()
            require(not ends or end <= ends[-1] + 5e-4, f"{span} sticks out")
            ends.append(end)


def traced(suite: Suite, processes: int, which: list[int], *options, steps=8):
    plan, path = suite.small(), suite.folder / "trace.json"
    log = suite.folder / "log"
    log.unlink(missing_ok=True)
    run(
        *(suite, plan, processes, "--steps", steps, "--log", log),
        # As plait-plan simulate has it without a profile.
        *("--overlap", "off", "--trace", path, *options),
    )
    names, events = read_trace(path)
    nests(events)
    expected = {"steps"} | {
        f"{what} rank {rank}" for what in ("measured", "predicted") for rank in range(8)
    }
    require(set(names.values()) == expected, names)

    rows = {x["step"]: x for x in map(json.loads, log.read_text().splitlines())}
    simulated = suite.folder / "simulated.json"
    suite.tools.run("plait-plan", "simulate", plan, "--trace", simulated)
    # By the rank of the pipeline, of which each has four of the plan.
    programs: dict[int, list] = {0: [], 1: []}
    for event in json.loads(simulated.read_text())["traceEvents"]:
        if event["ph"] == "X":
            programs[event["tid"]].append(event)

    steps = [x for x in events if names[x["pid"]] == "steps"]
    for row, what in ((0, "measured"), (1, "predicted")):
        found = [x for x in steps if x["tid"] == row]
        require([x["args"]["step"] for x in found] == which, f"{what}: {found}")
    for measured, predicted in zip(steps[::2], steps[1::2], strict=True):
        begin = measured["ts"]
        require(predicted["ts"] == begin, f"{predicted} is not beside {measured}")
        seconds = rows[measured["args"]["step"]]["step_seconds"]
        # What is around the operations of a step belongs to the step. Another
        # process may begin it before that of rank 0.
        require(
            processes > 1 or measured["dur"] <= 1e6 * seconds,
            f"{measured}, {seconds} s",
        )
        compare_step(names, events, begin, measured, programs)
    first = steps[0]
    return f"step {first['args']['step']}: {first['dur'] / steps[1]['dur']:.2f} times"


def compare_step(names, events, begin, measured, programs) -> None:
    """Of all ranks: what they did lies within the step, and what they were to do
    is what plait-plan says, to the nanosecond."""
    end = begin + measured["dur"]
    limit = begin + 1.05 * max(measured["dur"], 1e6)  # before the next step begins
    for process, name in names.items():
        mine = [x for x in events if x["pid"] == process]
        if name.startswith("measured"):
            inside = [x for x in mine if begin <= x["ts"] and x["ts"] + x["dur"] <= end + 1e-3]
            require(len(inside) > 20, f"{name} has {len(inside)} events in the step")
        elif name.startswith("predicted"):
            expected = programs[int(name.split()[-1]) // 4]
            found = [x for x in mine if begin <= x["ts"] <= limit][: len(expected)]
            require(len(found) == len(expected), f"{name}: {len(found)} actions")
            for event, model in zip(found, expected):
                require(event["name"] == model["name"], f"{event}, {model}")
                for field in ("ts", "dur"):
                    value = event[field] - (begin if field == "ts" else 0)
                    require(
                        abs(value - model[field]) < 2e-3,
                        f"{name}, {field}: {event}, {model}",
                    )


def checkpoint_of(suite: Suite, step: int) -> pathlib.Path:
    """Of small() after that step."""
    folder = suite.folder / f"checkpoints-{step}"
    if not folder.exists():
        run(suite, suite.small(), 1, "--steps", step, "--checkpoint", folder)
    return folder


def profiles_resumed(suite: Suite) -> None:
    """Steps that the checkpoint has are not among those that are measured."""
    folder, path = checkpoint_of(suite, 4), suite.folder / "resumed.json"
    run(suite, suite.small(), 1, "--steps", 8, "--resume", folder, "--profile", path)
    steps = json.loads(path.read_text())["steps"]
    require(steps == 3, f"{steps} steps, not 5 to 8 without the first one")
    path.unlink()
    done = suite.tools.call(
        *("plait-run", suite.small(), "--tokens", suite.tokens, "--steps", 5),
        *("--resume", folder, "--profile", path),
    )
    require(done.code == 1 and not path.exists(), f"ended with {done.code}")
    require("the run has 1" in done.stderr, done.stderr)


def refuses(suite: Suite, text: str, message: str, *options) -> None:
    path = suite.folder / "none.json"
    done = suite.tools.call(
        *("plait-run", suite.small(), "--tokens", suite.tokens, "--steps", 8),
        *("--trace", path, "--trace-steps", text, *options),
    )
    require(done.code == 1, f"ended with {done.code}")
    error = done.stderr.strip().splitlines()[-1]
    require(error == f"plait-run: error: --trace-steps: {message}", error)
    require(not path.exists(), "there is a trace")


def trace_cases(suite: Suite) -> None:
    case = suite.report.case
    for processes in (1, 2):
        case(
            f"trace/chosen/processes={processes}",
            lambda: traced(suite, processes, [3, 5, 6], "--trace-steps", "5-6,3,5"),
        )
    case("trace/last", lambda: traced(suite, 1, [8]))
    # Each step is drawn behind the others, where times round in their own way.
    every = range(1, 25)
    case(
        "trace/every",
        lambda: traced(suite, 1, [*every], "--trace-steps", "1-24", steps=len(every)),
    )
    # Of a run that goes on, steps have the numbers of the whole.
    resume = lambda step: ("--resume", checkpoint_of(suite, step))
    case(
        "trace/resumed",
        lambda: traced(suite, 2, [5, 7], "--trace-steps", "5,7", *resume(4)),
    )
    case("trace/resumed/last", lambda: traced(suite, 1, [8], *resume(4)))
    before = "step 3 is before the first one of the run, 5"
    case("trace/resumed/refuses", lambda: refuses(suite, "3,6", before, *resume(4)))
    case("profile/resumed", lambda: profiles_resumed(suite))
    neither = "is neither a step, 1 or more, nor a range, as 10-12"
    for text, message in (
        ("3,9", "step 9 is after the last one of the run, 8"),
        ("0", f"'0' {neither}"),
        ("4-2", f"'4-2' {neither}"),
        ("1,", f"'' {neither}"),
        ("-3", f"'-3' {neither}"),
        ("99999999999999999999", f"'99999999999999999999' {neither}"),
        ("1-101", "'1-101' is more than 100 steps"),
    ):
        case(f"trace/refuses/{text}", lambda: refuses(suite, text, message))


#===-----------------------------------------------------------------------===#
# Stragglers
#===-----------------------------------------------------------------------===#


def busy_plan(suite: Suite) -> pathlib.Path:
    """Mostly computes, for long enough that a rank does not get through between
    two pauses."""
    return suite.compile(
        "busy",
        *("--mesh", "dp=2", "--global-batch", 32, "--micro-batch", 8),
        *("--seq", 128, "--no-reference"),
    )


class Pauses:
    """Lets a process run for a seventh of the time."""

    def __init__(self, process: int):
        self.process, self.ended = process, threading.Event()
        self.thread = threading.Thread(target=self.pulse)

    def pulse(self):
        while not self.ended.wait(0.005):
            os.kill(self.process, signal.SIGSTOP)
            time.sleep(0.03)
            os.kill(self.process, signal.SIGCONT)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def slow_is_named(suite: Suite):
    log, said = suite.folder / "slow.log", suite.folder / "slow.said"
    words = (busy_plan(suite), "--tokens", suite.tokens, "--steps", 1000000)
    command = suite.command(2, *words, "--log", log, "--metrics-port", 0)
    with open(said, "w") as errors:
        launcher = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, env=ENVIRONMENT
        )
    try:
        wait_for(lambda: log.exists() and log.read_text().count("\n") > 5, "steps")
        victim = children_of(launcher.pid)[1]
        with Pauses(victim):
            wait_for(lambda: "warning: rank" in said.read_text(), "a warning")
            place = re.search(r"http://\S+/metrics", said.read_text())[0]
            with urllib.request.urlopen(place) as reply:
                metrics = reply.read().decode()
        wait_for(lambda: "is no longer slower" in said.read_text(), "the end of it")
    finally:
        launcher.terminate()
        launcher.wait(timeout=LONG)
    # Behind that what else the machine does may make the other one slow.
    told = said.read_text().partition("is no longer slower")[0]
    named = set(re.findall(r"(rank \d+) \(host \S+, pp=0 dp=1 tp=0\)", told))
    require(named == {"rank 1"}, told)
    require("rank 0 (" not in told, told)
    rows = [json.loads(x) for x in log.read_text().splitlines()]
    slow = [x["stragglers"] for x in rows if "stragglers" in x]
    require(slow, "the log has no stragglers")
    (entry,) = slow[0]
    require(entry["rank"] == 1 and entry["position"] == "pp=0 dp=1 tp=0", entry)
    require(entry["times"] > 1 and entry["waited_seconds"] > 0, entry)
    for name, least, most in (("straggles", 1, 1), ("waited_for_seconds", 1e-3, 60)):
        values = {
            rank: float(value)
            for rank, value in re.findall(
                rf'plait_rank_{name}{{rank="(\d)",.*}} (\S+)', metrics
            )
        }
        require(values.keys() == {"0", "1"}, metrics)
        require(least <= values["1"] <= most, f"{name}: {values}")
        require(values["0"] < values["1"], f"{name}: {values}")
    return f"{entry['times']:.2f} times"


def equal_are_not(suite: Suite, plan, processes: int, steps: int):
    """For some windows of steps, also where ranks share processors."""
    log = suite.folder / "equal.log"
    log.unlink(missing_ok=True)
    done = run(
        *(suite, plan, processes, "--steps", steps, "--log", log, "--threads", 2)
    )
    require("stragglers" not in log.read_text(), done.stderr)
    require("warning" not in done.stderr, done.stderr)


def straggler_cases(suite: Suite, is_alone: bool) -> None:
    case = suite.report.case
    case("stragglers/slow", lambda: slow_is_named(suite))
    # Others on the machine may take a processor from one rank for as long as a
    # window lasts: it then is slow, and is rightly named. StragglersTest.cpp has
    # the same with times that are set.
    if not is_alone:
        return
    for processes in (1, 2):
        case(
            f"stragglers/equal/processes={processes}",
            lambda: equal_are_not(suite, busy_plan(suite), processes, 60),
        )
        case(
            f"stragglers/equal/ranks=8/processes={2 * processes - 1}",
            lambda: equal_are_not(suite, suite.small(), 2 * processes - 1, 40),
        )


#===-----------------------------------------------------------------------===#
# The page
#===-----------------------------------------------------------------------===#

FORWARD, BACKWARD, WEIGHT, OPTIMIZER, COMMUNICATION, WAITING = range(6)


def write_page(suite: Suite, processes: int) -> pathlib.Path:
    path = suite.folder / "run.html"
    run(suite, suite.small(), processes, "--steps", 5, "--dashboard", path)
    return path


def page(suite: Suite, processes: int):
    shown = read_page(write_page(suite, processes))
    line = shown["timeline"]
    # The first two warm up.
    require(line["step"] >= 3, line["step"])
    rows = [(rank, stream) for rank, stream, _ in line["rows"]]
    streams = 1 if processes == 1 else 2
    expected = [(rank, stream) for rank in range(8) for stream in range(streams)]
    require(rows == expected, rows)
    every = set()
    for rank, stream, bars in line["rows"]:
        end = 0
        for begin, length, kind, name in bars:
            # Both are cut off to microseconds.
            require(end <= begin + 1 and length >= 0, f"rank {rank}: {bars}")
            end = begin + length
            require(name < len(line["names"]), f"no name {name}")
            every.add(kind)
            computes = kind not in (COMMUNICATION, WAITING)
            require(not (stream and computes), f"computes beside: {bars}")
        require(end <= 1e6 * line["seconds"] + 1, f"rank {rank} ends at {end}")
    least = {FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, WAITING}
    require(least <= every, every)
    words = " ".join(line["names"])
    for word in ("Forward 0: transformer.h.0", "nn.matmul", "for rank"):
        require(word in words, f"no {word} among {words[:2000]}")

    watched = shown["watched"]
    require(watched["steps"] >= 1 and watched["slow"] == [], watched)
    for number, (rank, host, position, *seconds, slow) in enumerate(watched["ranks"]):
        pp, dp, tp = number // 4, number // 2 % 2, number % 2
        require(rank == number and host, host)
        require(position == f"pp={pp} dp={dp} tp={tp}", position)
        computing, _, waiting, waited_for = seconds
        require(0 < computing < line["seconds"] and not slow, seconds)
        require(waiting <= line["seconds"] and waited_for >= 0, seconds)
    waits, waited = (sum(x[i] for x in watched["ranks"]) for i in (5, 6))
    require(abs(waits - waited) < 1e-6 + 1e-6 * waits, f"{waits} s, {waited} s")


def page_in_browser(suite: Suite, browser: str):
    """Its script runs to its end, and says what is under the pointer."""
    path = write_page(suite, 1)
    text = path.read_text()
    text = text.replace(
        "</body>",
        """<script>
        const bar = document.querySelector('.row svg'), place = bar.getBoundingClientRect();
        bar.dispatchEvent(new PointerEvent('pointermove',
            {clientX: place.left + place.width / 2, clientY: place.top + 2}));
        </script></body>""",
    )
    path.write_text(text)
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu",
         f"--user-data-dir={suite.folder}/browser", "--dump-dom", str(path)],
        capture_output=True, text=True, timeout=suite.tools.timeout,
    )
    seen = done.stdout
    require(seen.count('<div class="row') == 8, f"{done.stderr[-500:]}{seen[-500:]}")
    require('id="watched">' in seen, "the step is hidden")
    said = re.search(r'id="at">(.*?)</p>', seen)[1]
    require(re.match(r"rank 0, \S+ (ms|µs): ", said) is not None, said)
    # What comes last on the page.
    require("<td>dashboard</td>" in seen, "no settings")
    return said


def page_cases(suite: Suite) -> None:
    for processes in (1, 2):
        suite.report.case(f"page/processes={processes}", lambda: page(suite, processes))
    if browser := shutil.which("chromium"):
        suite.report.case("page/browser", lambda: page_in_browser(suite, browser))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--alone", action="store_true", help="nothing else runs on this machine"
    )
    options = parser.parse_args()
    report = Reporter("watching", options.filter)
    tools = Tools(options.bin, options.timeout)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        trace_cases(suite)
        straggler_cases(suite, options.alone)
        page_cases(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
