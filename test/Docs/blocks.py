#===- blocks.py - Fenced code blocks of the docs ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Reads the fenced code blocks of a Markdown page, runs them, and holds shown
output against real output.

The word after the fence says what a block is:

  ```sh                     commands; they must succeed
  ```sh skip="why"          commands that are not run
  ```sh slow="why"          commands that are run with --slow only
  ```python                 statements; they must succeed
  ```python needs="torch"   the same, where there is an interpreter with PyTorch 2
  ```LANG from="COMMAND"    what COMMAND prints, here or on standard error
  ```LANG from="python"     what the Python block before it has printed
  ```mlir                   IR that plait-opt reads
  ```mlir skip="why"        IR that is not complete
  anything else             not looked at

The blocks of a page run in order in one folder, which looks like the root of
the repository with a finished build: what one block writes, the next reads, and
Python blocks know what those before them have defined.
In shown output a line `…` stands for any number of lines and `…` within a line
for any text; spaces count as one.
"""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess

from harness import ROOT, TORCH, Failure, require
from interpreter import Interpreter

FENCE = re.compile(r"^```(\w*)[ \t]*(.*)$")
OPTION = re.compile(r'(\w+)="([^"]*)"')
GAP = "…"
KNOWN = {"skip", "slow", "from", "needs"}


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int  # of the opening fence, from 1
    language: str
    options: dict[str, str]
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page: pathlib.Path) -> list[Block]:
    """The blocks of a page, in order."""
    blocks, block, lines = [], None, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        match = FENCE.match(line)
        if block is None and match:
            options = dict(OPTION.findall(match[2]))
            block = Block(page, number, match[1], options, "")
            rest = OPTION.sub("", match[2]).strip()
            require(not rest, f"{block.name}: cannot read '{rest}'")
            lines = []
        elif block is not None and line.rstrip() == "```":
            block.text = "\n".join(lines) + "\n"
            blocks.append(block)
            block = None
        elif block is not None:
            lines.append(line)
    require(block is None, f"{page}: a block is not closed")
    return blocks


class Scratch:
    """A folder like the repository's root, for the blocks of one page."""

    def __init__(self, folder: pathlib.Path, tools: pathlib.Path):
        self.folder = folder
        self.outputs: dict[str, str] = {}
        for entry in ROOT.iterdir():
            if entry.name != "build" and not entry.name.startswith("."):
                (folder / entry.name).symlink_to(entry)
        # Links to the tools, not to their folder: nothing is written there.
        (folder / "build" / "bin").mkdir(parents=True)
        for tool in tools.iterdir():
            (folder / "build" / "bin" / tool.name).symlink_to(tool)
        (folder / "build" / "venv").symlink_to(tools.parent / "venv")
        # What find_package and cmake --install read.
        for pattern in ("Plait*.cmake", "cmake_install.cmake"):
            for file in tools.parent.glob(pattern):
                (folder / "build" / file.name).symlink_to(file)
        path = [str(folder / "build" / "bin"), os.environ["PATH"]]
        self.environment = os.environ | {
            "PATH": os.pathsep.join(path),
            "TERM": "dumb",
            "TMPDIR": str(folder / "build"),
            "PYTHONPATH": str(ROOT / "python"),
            "PLAIT_LIBRARY": str(folder / "build" / "bin"),
        }
        self.interpreters: dict[pathlib.Path, Interpreter] = {}

    def run_python(self, block: Block, timeout: float) -> None:
        """Keeps what it prints as the output of "python"."""
        python = self.folder / "build" / "venv" / "bin" / "python"
        if "needs" in block.options:
            python = pathlib.Path(TORCH[0])
        if python not in self.interpreters:
            started = Interpreter(python, self.folder, self.environment)
            self.interpreters[python] = started
        self.outputs["python"] = self.interpreters[python].run(block.text, timeout)

    def close(self) -> None:
        for interpreter in self.interpreters.values():
            interpreter.close()

    def run(self, command: str, timeout: float) -> str:
        """What a command prints; it must succeed."""
        child = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise Failure(f"did not end in {timeout:g} s") from None
        shown = f"ended with {child.returncode}\n{output.strip()[-1000:]}"
        require(child.returncode == 0, shown)
        return output

    def output_of(self, command: str, timeout: float) -> str:
        """What a command of `from` prints; the same command runs once, and
        may fail: pages show errors too."""
        if command not in self.outputs:
            tolerant = f"{{ {command}; }} || true"
            self.outputs[command] = self.run(tolerant, timeout)
        return self.outputs[command]


def normalise(line: str) -> str:
    return " ".join(line.split())


def matches(shown: str, line: str) -> bool:
    parts = [re.escape(part.strip()) for part in shown.split(GAP)]
    return re.fullmatch(".*".join(parts), line) is not None


def compare_output(shown: str, output: str) -> None:
    """Fails unless the lines of `shown` stand in `output`, in that order."""
    lines = [normalise(line) for line in output.splitlines()]
    runs: list[list[str]] = [[]]
    for line in map(normalise, shown.strip("\n").splitlines()):
        if line == GAP:
            runs.append([])
        else:
            runs[-1].append(line)
    position = 0
    for run in filter(None, runs):
        # The first place after the last run at which all of its lines match.
        for start in range(position, len(lines) - len(run) + 1):
            window = lines[start : start + len(run)]
            if all(map(matches, run, window)):
                position = start + len(run)
                break
        else:
            absent = [x for x in run if not any(matches(x, y) for y in lines)]
            what = "" if absent else " in this order"
            head = "\n".join(lines[:40])
            raise Failure(
                f"the output lacks{what}: {(absent or run)[0]}\n{head}"
            )
