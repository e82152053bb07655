#===- site_runs.py - Sites that are runs of their own -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""A coordinator and the sites of a plan, of one process each or of several, which
meet as torchrun's do: what the test of their faults and its measurement share."""

import json
import os
import pathlib
import re
import socket
import struct
import subprocess

from processes import free_port, wait_for


class SiteRun:
    """The processes of a site, the first of which speaks for it."""

    def __init__(self, processes: list[subprocess.Popen]):
        self.processes = processes

    def __getattr__(self, name: str):
        return getattr(self.processes[0], name)

    def wait_for_all(self, timeout: float) -> list[int]:
        return [process.wait(timeout=timeout) for process in self.processes]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


HEADER = "<IHHQQQ"  # of a frame, see Frames.h
HELLO, START, OFFER, VERDICT, STATE, PING, MISSED = 1, 3, 4, 5, 6, 7, 9


class FakeSite:
    """Speaks with a coordinator as a site does, at times that a test decides."""

    def __init__(self, port: int, site: int, plan: int, rounds: int):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        words = {"protocol": "plait-sites 2", "site": site, "plan": plan, "settings": {}}
        self.send(HELLO, rounds, json.dumps(words).encode())

    def send(self, kind: int, rounds: int, payload: bytes) -> None:
        header = struct.pack(HEADER, kind, 0, 0, rounds, 0, len(payload))
        self.connection.sendall(header + payload)

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.connection.recv(count - len(data))
            if not part:
                raise ConnectionError("the coordinator has hung up")
            data += part
        return data

    def await_frame(self, kind: int) -> tuple[int, int]:
        """The header's two numbers of the next frame but pings, which is of a kind."""
        found = PING
        while found == PING:
            header = self.receive(struct.calcsize(HEADER))
            found, info, flag, _, _, count = struct.unpack(HEADER, header)
            payload = self.receive(count)
        if found != kind:
            raise ValueError(f"a frame of kind {found}, expected {kind}: {payload[:99]}")
        return info, flag


class SiteRuns:
    """Each has a log in `folder` of what it has said."""

    def __init__(self, programs: pathlib.Path, folder, plan, processes: int = 1):
        self.program, self.folder, self.plan = programs / "plait-run", folder, plan
        self.of_site = processes
        self.started: list[SiteRun] = []

    def start(self, name: str, *of_processes) -> SiteRun:
        """A process for each of the lists of words. What the first one says goes to
        the log of that name, what the others say to logs of their own."""
        run = SiteRun([])
        self.started.append(run)
        count, port = len(of_processes), free_port() if len(of_processes) > 1 else 0
        for index, words in enumerate(of_processes):
            place = {
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "RANK": str(index), "LOCAL_RANK": str(index),
                "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
            } if count > 1 else {}  # fmt: skip
            path = self.folder / (f"{name}.{index}" if index else name)
            with path.open("a") as output:
                run.processes.append(subprocess.Popen(
                    [str(self.program), *map(str, words)], env=os.environ | place,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                ))  # fmt: skip
        return run

    def coordinate(self, port: int, *options) -> SiteRun:
        (self.folder / "coordinator").unlink(missing_ok=True)
        run = self.start(
            "coordinator", (self.plan, "--coordinate", f"127.0.0.1:{port}", *options)
        )
        wait_for(lambda: " at port " in self.said("coordinator"), "the coordinator")
        self.port = int(re.search(r"at port (\d+)", self.said("coordinator"))[1])
        return run

    def site(self, site: int, *options, plan=None) -> SiteRun:
        words = (plan or self.plan, "--site", site, "--meet", f"127.0.0.1:{self.port}")
        return self.start(f"site-{site}", *[(*words, *options)] * self.of_site)

    def said(self, name: str) -> str:
        return (self.folder / name).read_text()

    def counted(self) -> tuple[int, int]:
        """The parts of rounds that were counted, and all; the job has ended."""
        found = re.search(r"with (\d+) of (\d+) parts", self.said("coordinator"))
        return int(found[1]), int(found[2])

    def close(self) -> None:
        for run in self.started:
            run.end()
