#!/usr/bin/env python3
#===- tcp.py - Runs of processes that meet without MPI ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs plans in processes that only variables tell of each other, as torchrun sets
them: they meet over TCP, and send messages by UCX. What they compute has the bits of
one process; whoever ends is named; strangers neither join nor hold up."""

import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from harness import Failure, Outcome, Reporter, Tools, arguments, require
from mpi import PATIENCE, errors_of
from processes import Suite, free_port, metrics, wait_for

STEPS = 3


def train(suite: Suite, plan: pathlib.Path) -> tuple:
    """The steps in one process, and the weights after them."""
    log, saved = suite.folder / "log", suite.folder / "saved"
    log.unlink(missing_ok=True)
    data = ("--tokens", suite.tokens, "--steps", STEPS, "--lr", 0.01)
    suite.tools.run("plait-run", plan, *data, "--log", log, "--save", saved)
    return metrics(log), (saved / "model.safetensors").read_bytes()


def sockets_of(process: int) -> int:
    found = 0
    for entry in pathlib.Path(f"/proc/{process}/fd").iterdir():
        try:
            found += os.readlink(entry).startswith("socket:")
        except OSError:
            continue  # it was closed
    return found


def listening_ports(process: int) -> list[int]:
    """Of TCP, at any address."""
    listens, inodes = "0A", set()
    for entry in pathlib.Path(f"/proc/{process}/fd").iterdir():
        try:
            inodes.add(os.readlink(entry).removeprefix("socket:[").rstrip("]"))
        except OSError:
            continue  # it was closed
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == listens and words[9] in inodes:
                found.append(int(words[1].rpartition(":")[2], 16))
    return found


def start(suite: Suite, ranks, count, port, *words, more=None, program=None) -> list:
    """What torchrun does: it sets variables, `more` for one, and nothing else."""
    program = program or suite.tools.folder / "plait-run"
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [program, *map(str, words)],
            env=os.environ | place | {
                "RANK": str(rank), "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
            } | (more(rank) if more else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]


def end(suite: Suite, processes) -> list[Outcome]:
    outputs = [x.communicate(timeout=suite.tools.timeout) for x in processes]
    return [Outcome(x.returncode, *y) for x, y in zip(processes, outputs)]


def start_steps(suite: Suite, count: int, plan, *more) -> list:
    """Processes that have done some steps, and would do many."""
    log = pathlib.Path(tempfile.mkdtemp(dir=suite.folder)) / "log"
    words = (plan, "--tokens", suite.tokens, "--steps", 10**6, "--log", log)
    processes = start(suite, range(count), count, free_port(), *words, *more)

    def has_begun() -> bool:
        if any(x.poll() is not None for x in processes):
            for process in processes:
                process.kill()
            said = [(x.code, x.stderr[-2000:]) for x in end(suite, processes)]
            raise Failure(f"a process has ended before any step: {said}")
        return log.exists() and len(log.read_text().splitlines()) > 3

    wait_for(has_begun, "steps")
    return processes


def number_cases(suite: Suite) -> None:
    def same_bits(count):
        def body():
            plan = suite.small()
            data = ("--tokens", suite.tokens, "--steps", STEPS, "--lr", 0.01)
            expected = train(suite, plan)
            log, saved = suite.folder / "log", suite.folder / "saved"
            log.unlink()
            words = (plan, *data, "--log", log, "--save", saved)
            words += ("--timeout", 60)
            done = end(suite, start(suite, range(count), count, free_port(), *words))
            require(not any(x.code for x in done), done[0].stderr)
            require(metrics(log) == expected[0], "another log")
            weights = (saved / "model.safetensors").read_bytes()
            require(weights == expected[1], "other weights")

        return body

    def links():
        """Sockets of a process are those of its groups and of the tree in which
        processes meet, however many processes there are. What process 0 saves of all
        ranks needs one more."""
        dp = pp = 4
        plan = suite.compile(
            "links",
            *("--mesh", f"pp={pp},dp={dp}", "--global-batch", 16, "--seq", 16),
            *("--micro-batch", 1, "--no-reference"),
            *("--zero", 1, "--precision", "bf16"),  # all have something to save
        )
        saved = suite.folder / "links-saved"
        processes = start_steps(suite, 16, plan, "--threads", 1, "--save", saved)
        counts = [sockets_of(x.pid) for x in processes]
        # Of a file, its folder, and the connection; nine processes are none of its
        # groups'.
        more = 6
        most = more + len(os.listdir(f"/proc/{processes[0].pid}/fd"))
        resource.prlimit(processes[0].pid, resource.RLIMIT_NOFILE, (most, most))
        processes[5].terminate()
        done = end(suite, processes)
        codes = [x.code for x in done]
        errors = [line for x in done for line in errors_of(x)]
        require(sorted(codes) == [0] * 15 + [128 + signal.SIGTERM], (codes, errors))
        require((saved / "model.safetensors").exists(), "no weights")
        fan_out, ports = 8, 2
        for rank, count in enumerate(counts):
            below = max(0, min(16, fan_out * rank + 9) - (fan_out * rank + 1))
            most = (dp - 1) + (pp - 1) + below + 1 + ports
            require(count <= most, f"rank {rank}: {count} sockets, not {most}")
        return f"{min(counts)} to {max(counts)} sockets in each of 16 processes"

    for count in (3, 8):
        suite.report.case(f"bits-{count}", same_bits(count))
    suite.report.case("links", links)


def failure_cases(suite: Suite) -> None:
    def killed():
        processes = start_steps(suite, 4, suite.small(), "--timeout", 60)
        processes[2].kill()
        done = end(suite, processes)
        errors = [line for x in done for line in errors_of(x)]
        require([x.code for x in done] == [1, 1, -9, 1], errors)
        require(
            len(errors) == 1
            and re.search(r"connection to process 2 on \S+ is lost", errors[0]),
            errors,
        )

    def stopped():
        processes = start_steps(suite, 4, suite.small(), "--timeout", PATIENCE)
        processes[2].send_signal(signal.SIGSTOP)
        try:
            done = end(suite, processes[:2] + processes[3:])
        finally:
            processes[2].kill()
        errors = [line for x in done for line in errors_of(x)]
        require([x.code for x in done] == [1, 1, 1], errors)
        named = r"; process 2 on \S+ with ranks 4 to 5 does not answer$"
        require(len(errors) == 1 and re.search(named, errors[0]), errors)

    def missing():
        port = free_port()
        words = (suite.small(), "--tokens", suite.tokens, "--timeout", 4)
        first, other = end(
            suite,
            start(suite, (0,), 3, port, *words)
            + start(suite, (1,), 2, free_port(), *words),
        )
        require("rank 0 waits for the processes of ranks 1, 2, of 3, for 3 s now"
                in first.stderr, first.stderr)
        require("seconds for the processes of ranks 1, 2, of 3" in first.stderr,
                first.stderr)
        require("rank 1 waits for rank 0 to listen at 127.0.0.1:" in other.stderr,
                other.stderr)
        require(first.code == 1 and other.code == 1, "no failure")

    def port_in_use():
        with socket.socket() as one:
            one.bind(("", 0))
            one.listen()
            port = one.getsockname()[1]
            words = (suite.small(), "--tokens", suite.tokens, "--timeout", 4)
            (done,) = end(suite, start(suite, (0,), 2, port, *words))
        require(done.code == 1, done.stderr)
        errors = errors_of(done)
        require(
            f"cannot listen on port {port}: Address already in use" in errors[-1],
            errors,
        )

    def no_module():
        """Where plait-run lies alone."""
        program = suite.folder / "alone" / "plait-run"
        program.parent.mkdir()
        shutil.copy(suite.tools.folder / "plait-run", program)
        words = (suite.small(), "--tokens", suite.tokens, "--timeout", 10)
        done = end(suite, start(
            suite, range(2), 2, free_port(), *words, program=program))
        errors = [line for x in done for line in errors_of(x)]
        require([x.code for x in done] == [1, 1] and len(errors) == 1, errors)
        require("cannot open the module for ucx" in errors[0], errors)

    suite.report.case("killed", killed)
    suite.report.case("stopped", stopped)
    suite.report.case("missing", missing)
    suite.report.case("port-in-use", port_in_use)
    suite.report.case("no-module", no_module)


#===-----------------------------------------------------------------------===#
# Strangers
#===-----------------------------------------------------------------------===#


def greeting(purpose: int, rank: int, ranks: int) -> bytes:
    """As a process of the run begins (Reception.h), but for the secret."""
    return struct.pack(
        "<IIIIQQQI64s65s3x", 0x506C6172, purpose, rank, ranks, 0, 0, 0, 1, b"", b"x"
    )


def stranger_cases(suite: Suite) -> None:
    secret = "what strangers do not know"
    path = suite.folder / "secret"
    path.write_text(secret + "\n")

    def tell(rank):
        """Half of them by a file."""
        return ({"PLAIT_SECRET_FILE": str(path)} if rank % 2
                else {"PLAIT_SECRET": secret})

    def call(port: int, words: bytes) -> socket.socket:
        """Who listens may not do so yet, or may hang up."""
        def connects():
            try:
                found.append(socket.create_connection(("127.0.0.1", port), 5))
            except OSError:
                return False
            return True

        found: list[socket.socket] = []
        wait_for(connects, "a listener")
        try:
            found[0].sendall(words)
        except OSError:
            pass
        return found[0]

    def at_the_meeting():
        """Process 0 waits for the others when they come: those who greet like one of
        its own, those who say half a word, and more who say nothing than it has seats
        for."""
        expected = train(suite, suite.small())
        log, port = suite.folder / "log", free_port()
        log.unlink()
        words = (suite.small(), "--tokens", suite.tokens, "--steps", STEPS,
                 "--lr", 0.01, "--log", log, "--timeout", 30)
        processes = start(suite, (0,), 3, port, *words, more=tell)
        said = [greeting(purpose, rank, ranks) for purpose in range(5)
                for rank, ranks in ((0, 3), (1, 3), (7, 3), (1, 2**32 - 1))]
        strangers = [call(port, x) for x in (*said, b"GET / ", *[b""] * 40)]
        began = time.monotonic()
        processes += start(suite, (1, 2), 3, port, *words, more=tell)
        done = end(suite, processes)
        taken = time.monotonic() - began
        for stranger in strangers:
            stranger.close()
        require(not any(x.code for x in done), "\n".join(x.stderr for x in done))
        require(metrics(log) == expected[0], "another log")
        require(taken < 20, f"{taken:.1f} s, the strangers held them up")

    def during_the_run():
        """At all ports that processes listen at, those of messages included."""
        processes = start_steps(suite, 3, suite.small(), "--timeout", 30)
        ports = [y for x in processes for y in listening_ports(x.pid)]
        require(ports, "nobody listens")
        strangers = [
            call(port, words) for port in ports
            for words in (b"", b"GET / HTTP/1.1\r\n\r\n", greeting(2, 1, 3), bytes(4096))
        ]
        time.sleep(1)
        processes[1].terminate()
        done = end(suite, processes)
        for stranger in strangers:
            stranger.close()
        codes = sorted(x.code for x in done)
        require(codes == [0, 0, 128 + signal.SIGTERM], [x.stderr for x in done])
        return f"{len(strangers)} strangers at {len(ports)} ports"

    def fails(name, more, expected):
        def body():
            done = end(suite, start(
                suite, range(2), 2, free_port(), suite.small(),
                *("--tokens", suite.tokens, "--timeout", 3), more=more,
            ))
            said = "\n".join(x.stderr for x in done)
            require([x.code for x in done] == [1, 1], said)
            require(re.search(expected, said), said)

        suite.report.case(f"secret-{name}", body)

    suite.report.case("strangers-at-the-meeting", at_the_meeting)
    suite.report.case("strangers-during-the-run", during_the_run)
    fails("differs", lambda rank: {"PLAIT_SECRET": f"{rank} and a dozen more"},
          "no process of this run listens there, with this one's secret")
    fails("missing", lambda rank: tell(0) if rank else {},
          "no process of this run listens there, with this one's secret")
    fails("short", lambda rank: {"PLAIT_SECRET": "short"},
          "the secret of PLAIT_SECRET has 5 bytes, allowed are 16 to 4096")
    fails("both", lambda rank: tell(0) | tell(1),
          "PLAIT_SECRET and PLAIT_SECRET_FILE are both set")
    fails("no-file", lambda rank: {"PLAIT_SECRET_FILE": "nothing"},
          "cannot read 'nothing', which PLAIT_SECRET_FILE names")


def main() -> int:
    options = arguments(__doc__).parse_args()
    report = Reporter("tcp", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(
            Tools(options.bin, options.timeout), report, pathlib.Path(folder)
        )
        for cases in (number_cases, failure_cases, stranger_cases):
            cases(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
