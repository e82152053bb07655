#!/usr/bin/env python3
#===- mpi.py - Runs over several processes ----------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs plans under mpirun; that losses and weights have the bits that they have in
one process is seen by train.py. Whatever goes wrong ends all processes
with one message: bad input, a killed process, one that does not go on. The
communicators' conformance suite runs over MPI as well."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from harness import LONG, Outcome, Reporter, Tools, arguments, require
from processes import (
    ENVIRONMENT,
    Suite,
    children_of,
    is_running,
    wait_for,
)

# Seconds after which one that has stopped is missed. Starting MPI, too, may take no
# longer: on a busy machine that is several.
PATIENCE = 8
WAITED = f"waited longer than {PATIENCE} seconds for another rank"


def errors_of(outcome: Outcome) -> list[str]:
    return [x for x in outcome.stderr.splitlines() if x.startswith("plait-run: error")]


def notes_of(outcome: Outcome) -> list[str]:
    """Where ranks of the other processes waited: all notes but the one with which
    a run without --weights begins."""
    return [
        line
        for line in outcome.stderr.splitlines()
        if line.startswith("plait-run: note: ") and "weights are random" not in line
    ]


#===-----------------------------------------------------------------------===#
# Numbers
#===-----------------------------------------------------------------------===#


def number_cases(suite: Suite) -> None:
    def check_passes():
        plan = suite.small()
        done = suite.mpirun(3, plan, "--tokens", suite.tokens, "--check")
        require(done.code == 0, done.stderr)
        require(done.stdout.count("differ by more than") == 1, done.stdout)

    def profile():
        """Of all ranks, on one clock: the parts are there, and make up a step."""
        plan, path = suite.small(), suite.folder / "profile.json"
        log = suite.folder / "profile.log"
        words = (plan, "--tokens", suite.tokens, "--steps", 6, "--profile", path)
        done = suite.mpirun(3, *words, "--log", log)
        require(done.code == 0, done.stderr)
        found = json.loads(path.read_text())
        suite.tools.run("plait-run", *words)
        alone = json.loads(path.read_text())

        def shape(profile):
            """All but times."""
            return [
                [(f["name"], f["calls"], len(f["steps"])) for f in p["functions"]]
                for p in profile["programs"]
            ]

        require(shape(found) == shape(alone), "other parts than in one process")
        # Parts are means, without the first step: one that had to wait for a core
        # is in all of them.
        steps = [json.loads(line)["step_seconds"] for line in log.read_text().splitlines()]
        step = sum(steps[1:]) / (len(steps) - 1)
        for program in found["programs"]:
            rank = sum(
                f["calls"] * (s["seconds"] + s["waiting_seconds"])
                for f in program["functions"] for s in f["steps"]
            )
            require(0 < rank < 1.5 * step, f"{rank} of {step} s")
        shown = suite.tools.run("plait-plan", "simulate", plan, "--profile", path)
        return shown.stdout.strip().splitlines()[-1]

    suite.report.case("profile", profile)
    suite.report.case("check", check_passes)


#===-----------------------------------------------------------------------===#
# Failures
#===-----------------------------------------------------------------------===#


def failure_cases(suite: Suite) -> None:
    data = ("--tokens", suite.tokens)

    def has_one_error(done, expected):
        require(done.code == 1, f"{done.code}: {done.stderr}")
        errors = errors_of(done)
        require(len(errors) == 1, "\n".join(errors))
        require(re.search(expected, errors[0]) is not None, errors[0])

    def fails(name, processes, expected, words):
        def body():
            has_one_error(suite.mpirun(processes, *words()), expected)

        suite.report.case(name, body)

    def differs(what, words, found):
        def body():
            program = suite.tools.folder / "plait-run"
            line = f"exec {program} {words()}"
            done = suite.call(["mpirun", "-n", "2", "sh", "-c", line])
            one, other = found
            has_one_error(done, f"process 1 on .* has {one}, process 0 on .* has {other}$")

        suite.report.case(f"differs/{what}", body)

    def either(first, second):
        return f"$(test $OMPI_COMM_WORLD_RANK = 0 && echo {first} || echo {second})"

    def plans():
        mesh = ("--mesh", "dp=8", "--global-batch", 8, "--seq", 32)
        other = suite.compile("another", *mesh)
        return f"{either(suite.small(), other)} --tokens {suite.tokens}"

    def fewer():
        path = suite.folder / "fewer.bin"
        path.write_bytes(suite.tokens.read_bytes()[:-2])
        return path

    def huge():
        plan = suite.compile(
            "huge",
            *("--mesh", "dp=4", "--global-batch", 1 << 17, "--seq", 128),
            *("--micro-batch", 1 << 15, "--no-reference"),
        )
        return (plan, *data)

    def memory_of_one_process():
        done = suite.tools.call("plait-run", *huge())
        require(done.code == 1, done.stdout)
        require(
            re.search(r"4 ranks on this host need \d+ bytes", done.stderr),
            done.stderr,
        )

    fails(
        "too-many-processes",
        9,
        "the plan has 8 ranks, mpirun started 9 processes",
        lambda: (suite.small(), *data),
    )
    fails("no-plan", 3, "nothing.plan", lambda: ("nothing.plan", *data))
    fails("no-option", 3, "unknown option '--nothing'", lambda: ("--nothing",))
    fails(
        "no-tokens",
        3,
        "cannot open tokens 'nothing'",
        lambda: (suite.small(), "--tokens", "nothing"),
    )
    fails(
        "cannot-save",
        3,
        "cannot make directory",
        lambda: (suite.small(), *data, "--save", "/dev/null/x"),
    )
    fails("memory", 3, r"4 ranks on \S+ need \d+ bytes of memory, \d+ are", huge)
    suite.report.case("memory-of-one-process", memory_of_one_process)
    hashed = r"xxh3-\w+"
    differs("plan", plans, (
        rf"plan '.*another.plan' \(dp=8\), {hashed}",
        rf"plan '.*small.plan' \(pp=2,dp=2,tp=2\), {hashed}",
    ))
    tokens = r"data {} tokens of hash .*"
    differs(
        "data",
        lambda: f"{suite.small()} --tokens {either(suite.tokens, fewer())}",
        (tokens.format(4095), tokens.format(4096)),
    )
    same = f"--tokens {suite.tokens}"
    rate = f"{same} --lr 1e-{either(3, 4)}"
    differs("rate", lambda: f"{suite.small()} {rate}", ("lr 0.0001", "lr 0.001"))
    flag = f"{same} $(test $OMPI_COMM_WORLD_RANK = 0 || echo --shuffle)"
    differs("flag", lambda: f"{suite.small()} {flag}", ("shuffle", "no shuffle"))


#===-----------------------------------------------------------------------===#
# Signals
#===-----------------------------------------------------------------------===#


def signal_run(
    suite: Suite, number, index: int, *words, steps: int = 1000000, mercy: int = 1
) -> Outcome:
    """A run of four processes, one of which gets a signal after some steps; none is
    left. Where one has failed, mpirun kills the others after `mercy` seconds."""
    log = suite.folder / "signal-log"
    log.unlink(missing_ok=True)
    command = suite.command(
        *(4, suite.small(), "--tokens", suite.tokens, "--steps", steps),
        *("--log", log, *words),
    )
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | {"OMPI_MCA_odls_base_sigkill_timeout": str(mercy)},
    )
    wait_for(
        lambda: log.exists() and len(log.read_text().splitlines()) > 3, "steps"
    )
    ranks = children_of(process.pid)
    require(len(ranks) == 4, ranks)
    os.kill(ranks[index], number)
    try:
        out, errors = process.communicate(timeout=LONG)
    finally:
        process.kill()
    wait_for(lambda: not any(map(is_running, ranks)), "the processes' end")
    return Outcome(process.returncode, out, errors)


def signal_cases(suite: Suite) -> None:
    def killed():
        saved = suite.folder / "killed"
        done = signal_run(suite, signal.SIGKILL, 2, "--save", saved, mercy=5)
        require(done.code not in (0, None), done.code)
        require("exited on signal 9" in done.stderr, done.stderr)
        # Of the process beside it, which need not wait for mpirun.
        errors = errors_of(done)
        named = r"process 2 on \S+ has ended$"
        require(len(errors) == 1 and re.search(named, errors[0]), done.stderr)
        left = list(saved.iterdir())
        require(not left, f"{left}")

    def stopped(index):
        def body():
            # On a busy machine a process takes a while for its last word.
            words = ("--timeout", PATIENCE)
            done = signal_run(suite, signal.SIGSTOP, index, *words, mercy=5)
            require(done.code == 1, f"{done.code}: {done.stderr}")
            errors = errors_of(done)
            require(len(errors) == 1, "\n".join(errors))
            first = 2 * index
            silent = rf"process {index} on \S+ with ranks {first} to {first + 1}"
            expected = f"{WAITED}; {silent} does not answer$"
            require(re.search(expected, errors[0]), errors[0])
            # One has said the above, and one is stopped, which mpirun wakes
            # before it ends it: there may be time for a word.
            notes = notes_of(done)
            where = r"rank (\d): step \d+, .*: (?:another rank|waited longer)"
            told = [match[1] for x in notes if (match := re.search(where, x))]
            # Between steps, where processes tell each other of signals, none of
            # the ranks of one waits.
            released = "another rank has failed", WAITED
            others = [x for x in notes if x.endswith(tuple(f"note: {y}" for y in released))]
            require(2 <= len(notes) == len(told) + len(others) <= 3, done.stderr)
            require(len(told) == len(set(told)), done.stderr)

        return body

    def stops_after_the_step():
        saved = suite.folder / "terminated"
        done = signal_run(suite, signal.SIGTERM, 1, "--save", saved)
        require(done.code == 128 + signal.SIGTERM, f"{done.code}: {done.stderr}")
        require(not errors_of(done), done.stderr)
        steps = len((suite.folder / "signal-log").read_text().splitlines())
        require(f"{steps} of 1000000 steps, loss" in done.stdout, done.stdout)
        require((saved / "model.safetensors").exists(), "no weights")

    def goes_on():
        """Killed, and taken up by fewer processes: the bits of one that was not."""
        steps, folder = 40, suite.folder / "checkpoints"
        options = ("--checkpoint", folder, "--resume", folder)
        options += ("--checkpoint-every", 2)
        done = signal_run(suite, signal.SIGKILL, 1, *options, steps=steps)
        require("exited on signal 9" in done.stderr, done.stderr)
        data = (suite.small(), "--tokens", suite.tokens, "--steps", steps)
        saved = [suite.folder / name for name in ("undisturbed", "resumed")]
        suite.tools.run("plait-run", *data, "--save", saved[0])
        done = suite.mpirun(3, *data, *options, "--save", saved[1])
        require(done.code == 0, done.stderr)
        undisturbed, resumed = (
            (x / "model.safetensors").read_bytes() for x in saved
        )
        require(undisturbed == resumed, "other weights")
        return done.stderr.replace("\n", "; ")

    def stopped_while_writing():
        """A process is stopped where the others wait for its part of a checkpoint.
        All are kept: one that is written over another one lacks no file."""
        folder = suite.folder / "stopped"
        process = subprocess.Popen(
            suite.command(
                4, suite.small(), "--tokens", suite.tokens, "--steps", 10**6,
                *("--checkpoint", folder, "--checkpoint-every", 1, "--timeout", PATIENCE),
            ),
            stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )

        def stop_in_time() -> bool:
            if process.poll() is not None:
                return True
            if not any(folder.glob("*.partial")):
                return False
            victim = children_of(process.pid)[2]  # it has ranks 4 and 5
            os.kill(victim, signal.SIGSTOP)
            time.sleep(0.01)
            begun = next(folder.glob("*.partial"), None)
            lacks = begun is not None and not any(begun.glob("rank-00004*"))
            os.kill(victim, 0 if lacks else signal.SIGCONT)
            return lacks

        try:
            wait_for(stop_in_time, "a checkpoint that is being written")
            errors = process.communicate(timeout=LONG)[1]
        finally:
            process.terminate()
        require(WAITED in errors, errors)

    suite.report.case("killed", killed)
    suite.report.case("stopped-while-writing", stopped_while_writing)
    suite.report.case("killed-and-resumed", goes_on)
    suite.report.case("stopped", stopped(2))
    suite.report.case("stopped-first", stopped(0))
    suite.report.case("terminated", stops_after_the_step)


#===-----------------------------------------------------------------------===#
# Conformance
#===-----------------------------------------------------------------------===#


def conformance_cases(suite: Suite) -> None:
    # After these MPI is not called any more: each needs processes of its own.
    ends = {"AbortReleasesEverybody": 5, "WaitingEnds": 5, "WaitingForRowsEnds": 3}

    def run_ending(command) -> tuple[int, str]:
        """Of processes that MPI_Abort ends at once, which mpirun now and then waits
        for without end: what they have said, and -1 where it did."""
        try:
            done = suite.call(command, timeout=60)
        except subprocess.TimeoutExpired as late:
            said = b"".join(x for x in (late.stdout, late.stderr) if x)
            return -1, said.decode(errors="replace")
        return done.code, done.stdout + done.stderr

    def conforms(processes, pattern, ends=False):
        def body():
            tests = suite.tools.folder / "plait-runtime-tests"
            options = ("--gtest_brief=1", "--gtest_color=no")
            command = ["mpirun", "-n", str(processes), str(tests), *options]
            command.append(f"--gtest_filter={pattern}")
            if ends:
                code, text = run_ending(command)
            else:
                done = suite.call(command)
                code, text = done.code, done.stdout + done.stderr
            passed = re.findall(r"\[  PASSED  \] (\d+) test", text)
            all_passed = len(passed) == processes
            # After a failure nobody takes leave of MPI: mpirun minds, and may end
            # the last ones before they say that they passed. Where it does not end,
            # all of them have said so.
            waits = ends and code == -1
            fine = all_passed if code == 0 or waits else ends and passed
            require(fine, text[-4000:])
            require("Failure" not in text, text[-4000:])
            require("0" not in passed, passed)
            return f"{passed[0]} tests in each of {processes} processes"

        return body

    for processes, counts in ((3, (3, 5, 8)), (4, (4, 7))):
        wanted = ":".join(f"*MpiProcesses{ranks}" for ranks in counts)
        unwanted = ":".join(f"*{name}*" for name in ends)
        suite.report.case(
            f"conformance-{processes}",
            conforms(processes, f"{wanted}-{unwanted}"),
        )
    for name, ranks in ends.items():
        suite.report.case(
            f"conformance-{name}",
            conforms(3, f"*{name}/MpiProcesses{ranks}", ends=True),
        )


def main() -> int:
    options = arguments(__doc__).parse_args()
    report = Reporter("mpi", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(
            Tools(options.bin, options.timeout), report, pathlib.Path(folder)
        )
        for cases in (
            number_cases,
            failure_cases,
            signal_cases,
            conformance_cases,
        ):
            cases(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
