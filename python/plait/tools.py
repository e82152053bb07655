# ===- tools.py - The programs of plait -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""The programs that a wheel has, as commands, and what plait-plan tells of a plan."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from . import _library
from .errors import Error

NAMES = ("plaitc", "plait-run", "plait-plan", "plait-opt", "plait-data")
# plait-plan reads a plan in a moment; none is worth waiting longer for.
PATIENCE = 60


def find_tool(name: str) -> pathlib.Path | None:
    """The program: of this package, beside the library, or on the path."""
    folders = [_library.NATIVE]
    try:
        folders.append(_library.find_library().parent)
    except Error:
        pass
    for folder in folders:
        for place in (folder / name, folder.parent / "bin" / name):
            if place.is_file() and os.access(place, os.X_OK):
                return place
    found = shutil.which(name)
    return pathlib.Path(found) if found else None


def run_tool(name: str) -> None:
    """Becomes the program of the wheel, with the arguments of this one."""
    program = _library.NATIVE / name
    if not program.is_file():
        print(f"{name}: error: this package has no programs", file=sys.stderr)
        sys.exit(1)
    words = [str(program), *sys.argv[1:]]
    if name == "plait-data":  # a Python program, whose packages are here
        words.insert(0, sys.executable)
    os.execv(words[0], words)


def plaitc() -> None:
    """The command of that name, as those below."""
    run_tool("plaitc")


def plait_run() -> None:
    """Runs plans."""
    run_tool("plait-run")


def plait_plan() -> None:
    """Shows and compares plans."""
    run_tool("plait-plan")


def plait_opt() -> None:
    """Runs passes on IR."""
    run_tool("plait-opt")


def plait_data() -> None:
    """Prepares tokens."""
    run_tool("plait-data")


@dataclasses.dataclass(frozen=True)
class Replay:
    """A step as plait-plan replays it: its facts, and what each rank of the pipeline
    does when, as (kind, begin, end) in seconds."""

    facts: dict
    lines: list[list[tuple[str, float, float]]]


def replay(plan: pathlib.Path) -> Replay | None:
    """None where there is no plait-plan, or it knows no times for the plan."""
    tool = find_tool("plait-plan")
    if tool is None:
        return None
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        facts, trace = (pathlib.Path(folder) / name for name in ("facts", "trace"))
        words = (tool, "simulate", plan, "--json", facts, "--trace", trace)
        try:
            done = subprocess.run(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:
            return None
        events = json.loads(trace.read_text())["traceEvents"]
        return Replay(json.loads(facts.read_text()), _read_lines(events))


def _read_lines(events: list[dict]) -> list[list[tuple[str, float, float]]]:
    lines: dict[int, list[tuple[str, float, float]]] = {}
    for event in events:
        if event.get("ph") == "X" and event["dur"] > 0:
            begin, length = event["ts"] / 1e6, event["dur"] / 1e6
            lines.setdefault(event["tid"], []).append(
                (event["cat"], begin, begin + length)
            )
    return [lines[number] for number in sorted(lines)]
