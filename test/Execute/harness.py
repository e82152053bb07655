#===- harness.py - Runs the tools and counts --------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What the suites share: calling a tool, editing safetensors files,
and one PASS or FAIL line a case. Standard library only."""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "test" / "golden"
# The interpreters that may have PyTorch 2, which Debian does not: docs/Developing.md.
TORCH = [
    python
    for python in (os.environ.get("PLAIT_TORCH"), ROOT / "build/venv-torch/bin/python")
    if python and pathlib.Path(python).is_file()
]
# Seconds after which what takes a moment is given up, on a machine that does much else.
LONG = 300
# Options that plait-run refuses with plans of other optimizers.
MUON = ("muon", "muon-match-rms")
READ_BY = {
    "beta1": ("adamw", "sgd", "lion", *MUON),
    "beta2": ("adamw", "lion", *MUON),
    "eps": ("adamw", *MUON),
    "momentum": MUON,
    "adamw_lr_factor": MUON,
}


def all_anew() -> dict[str, str]:
    """An environment in which plaitc compiles each kernel, also those that are kept."""
    return {k: v for k, v in os.environ.items() if k != "PLAIT_KERNEL_CACHE"}


class Failure(Exception):
    """A case that did not do what it must; the text says how."""


class Skipped(Exception):
    """A case that cannot run here; the text says why."""


@dataclasses.dataclass
class Outcome:
    code: int
    stdout: str
    stderr: str


# With one of these the planner is asked, or not asked already.
PLANNING = {
    *("--cluster", "--pin", "--json", "--explain", "--why-not", "--report", "--trace"),
    *("--predict", "--framework", "--from", "--emit", "--compare", "--no-plan"),
}


def as_told(name: str, arguments) -> tuple:
    """What a suite asks for. A mesh without a cluster is planned for; suites mean
    what they say, and defaults for the rest."""
    options = {text.split("=")[0] for text in arguments}
    plans = name != "plaitc" or "--mesh" not in options or PLANNING & options
    return arguments if plans else (*arguments, "--no-plan")


class Tools:
    """The installed programs, by name."""

    def __init__(self, folder: pathlib.Path, timeout: float):
        self.folder = folder.resolve()
        self.timeout = timeout

    def call(self, name: str, *arguments, cwd=None, env=None) -> Outcome:
        command = [
            str(self.folder / name), *as_told(name, tuple(map(str, arguments)))
        ]
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout,
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"{name} did not end in {self.timeout:g} s") from None
        except OSError as error:
            raise Failure(f"cannot run {command[0]}: {error}") from None
        return Outcome(done.returncode, done.stdout, done.stderr)

    def run(self, name: str, *arguments, cwd=None, env=None) -> Outcome:
        """Like call, but the tool must succeed."""
        outcome = self.call(name, *arguments, cwd=cwd, env=env)
        if outcome.code != 0:
            shown = " ".join(map(str, arguments))
            text = (outcome.stdout + outcome.stderr).strip()
            raise Failure(
                f"{name} {shown}\nended with {outcome.code}:\n{text[-2000:]}"
            )
        return outcome


def attend_to_signals() -> None:
    """To be called before a tool starts that gets signals. A shell that starts
    the tests in the background has interrupts ignored, which tools inherit and
    respect."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def limited(seconds: float):
    """Ends what the main thread does in Python after so many seconds; within a
    library it is ended when that returns."""

    def end(*_):
        raise Failure(f"did not end in {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Reporter:
    """Runs named cases, prints a line each, counts. A case that takes longer than
    `limit` seconds has failed, where there is one (0: none)."""

    def __init__(self, suite: str, pattern: str, limit: float = 0):
        self.suite = suite
        self.pattern = pattern
        self.limit = limit
        self.passed = 0
        self.failed = 0

    def wants(self, name: str) -> bool:
        return self.pattern in f"{self.suite}/{name}"

    def case(self, name: str, body) -> None:
        """`body` returns a remark for the line, or raises Failure."""
        if not self.wants(name):
            return
        start = time.monotonic()
        try:
            with limited(self.limit) if self.limit else contextlib.nullcontext():
                remark, good = body() or "", True
        except Skipped as reason:
            remark, good = f"skipped: {reason}", True
        except Failure as failure:
            remark, good = str(failure), False
        except Exception as error:  # the suite goes on: a case has failed
            remark, good = f"{type(error).__name__}: {error}", False
        seconds = time.monotonic() - start
        head, *more = remark.split("\n")
        word = "PASS" if good else "FAIL"
        print(f"{word} {self.suite}/{name} ({seconds:.1f} s) {head}".rstrip())
        for line in more:
            print(f"     {line}")
        sys.stdout.flush()
        if good:
            self.passed += 1
        else:
            self.failed += 1

    def finish(self) -> int:
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--bin", type=pathlib.Path, default=ROOT / "build" / "bin"
    )
    parser.add_argument("--filter", default="", help="part of the case name")
    parser.add_argument(
        "--timeout", type=float, default=300, help="seconds, for one tool"
    )
    return parser


@contextlib.contextmanager
def mounted(folder: pathlib.Path, options: str):
    """A file system of its own in `folder`, with `options` as "size=9m"."""
    folder.mkdir(exist_ok=True)
    mount = ("mount", "-t", "tmpfs", "-o", options, "plait", folder)
    if os.geteuid() != 0 or subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        raise Skipped("cannot mount here")
    try:
        yield
    finally:
        subprocess.run(("umount", "-l", folder))


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Failure(message)


def read_safetensors(path: pathlib.Path):
    """(header, data bytes) of a safetensors file."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def write_safetensors(path: pathlib.Path, header: dict, data: bytes) -> None:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_floats(path: pathlib.Path, tensors: dict) -> None:
    """PyTorch's tensors by name, as fp32."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        numbers = tensor.flatten().tolist()
        begin = len(data)
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [begin, len(data)],
        }
    write_safetensors(path, header, data)


def write_tokens(path: pathlib.Path, seed: int, count: int, bound: int) -> None:
    """`count` numbers below `bound`, uint16."""
    draw = random.Random(seed)
    tokens = [draw.randrange(bound) for _ in range(count)]
    path.write_bytes(struct.pack(f"<{count}H", *tokens))
