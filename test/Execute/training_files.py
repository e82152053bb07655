#===- training_files.py - Tests of training as data -------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Reads the files of test/Training. A line begins with one of WORDS; what is indented
belongs to the line above it; `#` begins a line of comment."""

import dataclasses
import pathlib
import re
import shlex

from harness import ROOT, Failure

AXES = ("sites", "pp", "replicate", "dp", "ep", "cp", "tp")
METRICS = ("loss", "grad_norm")
REFERENCES = ("pytorch", "one-rank")
ALSO = ("check", "initial-weights", "memory")
# Each word, and whether a file may have it several times.
WORDS = {
    "model": True, "config": False, "file": True, "before": True, "data": False,
    "compile": False, "run": False, "against": True, "also": False,
    "layout": True, "more": True, "vary": True,
}  # fmt: skip
# Words that take indented lines.
BLOCKS = ("model", "file", "against", "layout", "more")


@dataclasses.dataclass
class Line:
    """A line with its indented ones."""

    number: int
    word: str
    rest: str
    block: list[tuple[int, str]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh with options, and what is to be found of them."""

    mesh: str
    options: tuple[str, ...]
    every: bool  # in a default run, too
    error: str = ""
    shows: tuple[str, ...] = ()  # in what plait-plan shows
    has: tuple[tuple[str, str], ...] = ()  # a phase, and an op of its IR

    @property
    def axes(self) -> dict[str, int]:
        return dict.fromkeys(AXES, 1) | read_mesh(self.mesh)

    @property
    def name(self) -> str:
        words = [x.lstrip("-").replace('"', "").split("/")[-1] for x in self.options]
        return "/".join((self.mesh, *words))


@dataclasses.dataclass(frozen=True)
class Bound:
    metric: str
    most: float
    only: frozenset  # what a layout has, where the bound is for such alone


@dataclasses.dataclass
class Test:
    path: pathlib.Path
    models: list = dataclasses.field(default_factory=list)  # paths, or IR
    config: dict = dataclasses.field(default_factory=dict)
    files: dict = dataclasses.field(default_factory=dict)
    before: list = dataclasses.field(default_factory=list)
    data: tuple[int, int] = (0, 0)  # bound of tokens, seed; of golden models theirs
    compile: tuple = ()
    run: tuple = ()
    against: dict = dataclasses.field(default_factory=dict)  # reference: bounds
    also: tuple = ()
    layouts: list = dataclasses.field(default_factory=list)
    vary: dict = dataclasses.field(default_factory=dict)  # axis: values, where not all

    @property
    def name(self) -> str:
        return self.path.stem


def read_mesh(text: str) -> dict[str, int]:
    pairs = [x.partition("=") for x in text.split(",") if x != "1"]
    return {axis: int(size) for axis, _, size in pairs}


class Reader:
    """Of one file. What is wrong is a Failure: FILE:LINE, what, and the bound."""

    def __init__(self, path: pathlib.Path, text: str, axes: dict):
        self.test, self.axes = Test(path), axes
        self.at = 0
        for line in self.split(text):
            self.at = line.number
            getattr(self, f"read_{line.word}")(line)
        self.at = text.count("\n")
        self.require_whole()

    def require_whole(self) -> None:
        """What a file has to have."""
        test = self.test
        for word, there in (("model", test.models), ("layout", test.layouts)):
            self.require(there, f"the file has no line '{word}'")
        compared = test.against or all(x.error for x in test.layouts)
        self.require(compared, "the file has no line 'against'")
        if "pytorch" not in test.against:
            self.require(test.data[0] or not test.against, "the file has no line 'data'")
            return
        for model in test.models:
            there = isinstance(model, pathlib.Path) and (model / "golden.json").exists()
            name = model.name if isinstance(model, pathlib.Path) else "in the file"
            self.require(there, f"model '{name}' has no golden.json to be held against")

    def require(self, condition, text: str) -> None:
        if not condition:
            raise Failure(f"{self.test.path.name}:{self.at}: {text}")

    def one_of(self, what: str, word: str, known) -> None:
        known = list(known)
        listed = ", ".join(known[:-1]) + f" and {known[-1]}"
        self.require(word in known, f"{what} '{word}' is none of {listed}")

    def split(self, text: str) -> list[Line]:
        found: list[Line] = []
        for self.at, line in enumerate(text.splitlines(), 1):
            if line[:1] == " " and line.strip():
                self.require(found, "an indented line belongs to one above it")
                takes = found[-1].word in BLOCKS
                self.require(takes, f"'{found[-1].word}' has no indented lines")
                found[-1].block.append((self.at, line))
            elif line.strip() and line[0] != "#":
                word, _, rest = line.partition(" ")
                self.one_of("word", word, WORDS)
                again = not WORDS[word] and any(x.word == word for x in found)
                self.require(not again, f"a file has one line '{word}', this is the second")
                found.append(Line(self.at, word, rest.strip()))
        return found

    def words(self, text: str) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            self.require(False, f"{error}".lower())

    def number(self, text: str, least: int = 0) -> int:
        good = text.isdigit() and int(text) >= least
        self.require(good, f"'{text}' is no number of at least {least}")
        return int(text)

    def text_of(self, line: Line) -> str:
        self.require(line.block, f"'{line.word}' has no indented lines")
        return "\n".join(x[2:] for _, x in line.block) + "\n"

    def read_model(self, line: Line) -> None:
        for name in line.rest.split():
            self.require((ROOT / name).exists(), f"model '{name}' is not there")
            self.test.models.append(ROOT / name)
        if not line.rest:
            self.test.models.append(self.text_of(line))

    def read_config(self, line: Line) -> None:
        for pair in line.rest.split():
            name, equals, value = pair.partition("=")
            self.require(equals, f"'{pair}' is no NAME=NUMBER")
            self.test.config[name] = self.number(value)

    def read_file(self, line: Line) -> None:
        name, _, path = line.rest.partition(" ")
        self.require(re.fullmatch(r"[\w.-]+", name), f"'{name}' is no file name")
        self.require(not path or (ROOT / path).is_file(), f"file '{path}' is not there")
        text = (ROOT / path).read_text() if path else self.text_of(line)
        self.test.files[name] = text

    def read_before(self, line: Line) -> None:
        words = self.words(line.rest)
        self.one_of("tool", words[0] if words else "", ("plaitc", "plait-plan", "plait-opt"))
        self.test.before.append(words)

    def read_data(self, line: Line) -> None:
        match = re.fullmatch(r"(\S+) seed (\S+)", line.rest)
        self.require(match, f"'{line.rest}' is not 'BOUND seed SEED'")
        self.test.data = (self.number(match[1], 2), self.number(match[2]))

    def read_compile(self, line: Line) -> None:
        self.test.compile = self.words(line.rest)

    def read_run(self, line: Line) -> None:
        self.test.run = self.words(line.rest)

    def read_also(self, line: Line) -> None:
        for word in line.rest.split():
            self.one_of("check", word, ALSO)
        self.test.also = tuple(line.rest.split())

    def read_against(self, line: Line) -> None:
        self.one_of("reference", line.rest, REFERENCES)
        bounds = []
        for self.at, text in line.block:
            head, colon, reason = text.strip().partition(":")
            self.require(colon and reason.strip(), f"bound '{text.strip()}' has no reason")
            bounds.append(self.bound(*head.split()))
        has_own = line.rest == "pytorch"
        self.require(bounds or has_own, f"'against {line.rest}' has no bounds")
        self.test.against[line.rest] = bounds

    def bound(self, metric="", most="", *only: str) -> Bound:
        self.one_of("metric", metric, METRICS)
        match = re.fullmatch(r"(2\^-)?(\d+(?:\.\d+)?(?:e-?\d+)?)", most)
        self.require(match, f"bound '{most}' is no number of at least 0")
        value = 2.0 ** -float(match[2]) if match[1] else float(match[2])
        good = not only or (only[0] == "for" and len(only) > 1)
        self.require(good, f"'{' '.join(only)}' is not 'for WORD…'")
        return Bound(metric, value, frozenset(only[1:]))

    def read_layout(self, line: Line) -> None:
        words = self.words(line.rest)
        self.require(words, f"'{line.word}' has no mesh")
        for pair in words[0].split(",") if words[0] != "1" else ():
            axis, _, size = pair.partition("=")
            self.one_of("axis", axis, AXES)
            self.number(size, 1)
            self.require(words[0].count(f"{axis}=") == 1, f"axis '{axis}' is there twice")
        found = {"error": "", "shows": (), "has": ()}
        for self.at, text in line.block:
            word, _, rest = text.strip().partition(" ")
            self.one_of("word", word, found)
            self.require(rest, f"'{word}' has no text")
            if word == "error":
                found[word] = rest
            elif word == "shows":
                found[word] += (rest,)
            else:
                phase, _, op = rest.partition(" ")
                self.require(op, f"'{rest}' is not 'PHASE OP'")
                found[word] += ((phase, op),)
        self.test.layouts.append(
            Layout(words[0], words[1:], line.word == "layout", **found)
        )

    read_more = read_layout

    def read_vary(self, line: Line) -> None:
        axis, *values = line.rest.split() or [""]
        self.one_of("configuration", axis, self.axes)
        for value in values:
            self.one_of(f"{axis}", value, self.axes[axis])
        self.require(axis not in self.test.vary, f"configuration '{axis}' is there twice")
        self.test.vary[axis] = values


def read_test(path: pathlib.Path, axes: dict, text: str | None = None) -> Test:
    """`axes`: of configurations, by name their values."""
    return Reader(path, path.read_text() if text is None else text, axes).test
