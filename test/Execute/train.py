#!/usr/bin/env python3
#===- train.py - Runs the training tests that are data -----*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Compiles and trains what the files of test/Training say, each layout under a choice
of the configurations below, which may not change what is computed beyond the bounds of
the file; how a plan is run may change no bit. A default run takes the layouts that
cover the choices of a file, and for each the one of a few drawn choices of configurations
that adds most pairs to those before; --all takes each layout as it is and under each
configuration alone. What is wrong with a file is told as FILE:LINE."""

import dataclasses
import itertools
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile

import covering
import training_checks
from harness import (
    GOLDEN,
    ROOT,
    Failure,
    Reporter,
    Tools,
    all_anew,
    arguments,
    require,
    write_tokens,
)
from processes import Suite as Processes
from processes import metrics
from training_files import Layout, Test, read_test

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

FOLDER = ROOT / "test" / "Training"
DEFAULTS = {"--global-batch": 8, "--seq": 32}
STEPS = 3
DRAWS = 3  # choices of configurations to take one from


@dataclasses.dataclass(frozen=True)
class Axis:
    """Choices that a layout leaves open: options of plaitc, or how a plan is run."""

    values: dict[str, tuple]
    needs: tuple[str, ...] = ()  # more than one rank along one of these axes
    unless: tuple[str, ...] = ()  # an option that a layout has itself
    runs: bool = False
    more: int = 0  # so many times more often is the first value drawn


AXES = {
    "schedule": Axis(
        {name: ("--schedule", name) for name in ("gpipe", "1f1b", "zb-h1", "zb-v")}
        | {"interleaved": ("--schedule", "interleaved-1f1b", "--chunks", 2)},
        ("pp",), ("--schedule", "--schedule-file", "--chunks", "--layers"),
    ),
    "zero": Axis({str(x): ("--zero", x) for x in range(4)}, ("dp", "ep"), ("--zero",)),
    "recompute": Axis(
        {name: ("--recompute", name) for name in ("none", "full", "selective")},
        (), ("--recompute",),
    ),
    "sequence": Axis(
        {"whole": (), "split": ("--sequence-parallel",)}, ("tp",),
        ("--sequence-parallel",),
    ),
    "processes": Axis({str(x): () for x in (1, 2, 3, 4)}, runs=True, more=3),
    "check": Axis({"no": (), "yes": ()}, runs=True, more=4),
    # Compiled a second time with all its kernels, to the same bytes; the weights loaded
    # by one rank.
    "again": Axis({"no": (), "yes": ()}, runs=True, more=4),
    "loaded": Axis({"no": (), "yes": ()}, runs=True, more=4),
    "stress": Axis(
        {"none": (), "memory": ("--overlap", "off", "--stress", "memory"),
         "messages": ("--stress", "messages"),
         "overlap": ("--overlap", "on", "--stress", "messages")}, runs=True, more=2,
    ),
}  # fmt: skip
CHOICES = {name: tuple(axis.values) for name, axis in AXES.items()}


@dataclasses.dataclass(frozen=True)
class Case:
    """A layout of a file's model under a choice of configurations."""

    test: Test
    model: int
    layout: Layout
    chosen: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        model = self.test.models[self.model]
        model = model.stem if isinstance(model, pathlib.Path) else ""
        words = [f"{axis}={value}" for axis, value in self.chosen]
        return "/".join(filter(None, (self.test.name, model, self.layout.name, *words)))

    @property
    def choices(self) -> dict:
        """Of covering.py."""
        found = covering.split_options(self.layout.mesh, self.layout.options)
        own = {"model": self.model, "error": self.layout.error}
        return found | {kind: value for kind, value in own.items() if value}

    def get_options(self, runs: bool) -> list:
        return [
            word
            for axis, value in self.chosen
            if AXES[axis].runs == runs
            for word in AXES[axis].values[value]
        ]

    @property
    def processes(self) -> int:
        return int(dict(self.chosen).get("processes", 1))

    def does(self, axis: str) -> bool:
        return dict(self.chosen).get(axis) == "yes"

    @property
    def is_checked(self) -> bool:
        """Whether the plan has a reference, and `plait-run --check` agrees with it."""
        return "check" in self.test.also or self.does("check")


def find_open(test: Test, layout: Layout) -> dict[str, list[str]]:
    """The configurations that a layout leaves open, with their values."""
    found, ranks = {}, 1
    for size in layout.axes.values():
        ranks *= size
    given = {*test.compile, *layout.options}
    for name, axis in AXES.items():
        if layout.error or given & set(axis.unless):
            continue
        if axis.needs and all(layout.axes[x] == 1 for x in axis.needs):
            continue
        values = list(test.vary.get(name, axis.values))
        # A model of four layers can be cut into six stages.
        if name == "schedule" and layout.axes["pp"] > 2:
            values = [x for x in values if x not in ("zb-v", "interleaved")]
        if name == "processes":
            values = [x for x in values if int(x) <= ranks]
        if name == "check" and "check" in test.also:
            continue
        if len(values) > 1 or (values and not axis.runs):
            found[name] = values
    return found


def draw_choices(cases: list[Case]) -> list[Case]:
    """For each case of a file, of a few choices that are drawn by its name the one with
    most pairs of values that no case of the file before it has."""
    seen, taken = set(), []
    for case in cases:
        open_axes = find_open(case.test, case.layout)
        chance, best = random.Random(case.name), (-1, (), set())
        for _ in range(DRAWS):
            chosen = tuple(
                (axis, chance.choice(x + x[:1] * AXES[axis].more))
                for axis, x in open_axes.items()
            )
            pairs = set(itertools.combinations(chosen, 2))
            best = max(best, (len(pairs - seen), chosen, pairs), key=lambda x: x[0])
        seen |= best[2]
        taken.append(dataclasses.replace(case, chosen=best[1]))
    return taken


def all_choices(case: Case):
    """As it is, and under choices in which each value of each configuration is once."""
    yield case
    open_axes = find_open(case.test, case.layout)
    chance = random.Random(case.name)
    orders = {axis: chance.sample(x, len(x)) for axis, x in open_axes.items()}
    for turn in range(max(map(len, orders.values()), default=0)):
        chosen = ((axis, order[turn % len(order)]) for axis, order in orders.items())
        yield dataclasses.replace(case, chosen=tuple(chosen))


def cases_of(test: Test, options) -> list[Case]:
    cases = [
        Case(test, model, layout)
        for model in range(len(test.models))
        for layout in test.layouts
        if layout.every or options.all
    ]
    if options.all:
        return [x for case in cases for x in all_choices(case)]
    cases = covering.cover(cases, lambda case: case.choices)
    return cases if options.as_is else draw_choices(cases)


def find_cases(tests: list[Test], options, report: Reporter) -> list[Case]:
    cases = (case for test in tests for case in cases_of(test, options))
    return [case for case in cases if report.wants(case.name)]


class Suite:
    """Plans and runs of one file. What one rank does is kept by what it depends on."""

    def __init__(self, tools: Tools, test: Test, folder: pathlib.Path, compiled=None):
        """`compiled`: what had all kernels compiled anew, which is then enough."""
        self.tools, self.test, self.folder = tools, test, folder
        self.compiled = compiled
        self.processes = Processes(tools, None, folder)
        self.references: dict[tuple, training_checks.Result] = {}
        for name, text in test.files.items():
            (folder / name).write_text(text)
        self.models = list(map(self.prepare, range(len(test.models)), test.models))
        for tool, *words in test.before:
            tools.run(tool, *words, cwd=folder)

    def prepare(self, index: int, model) -> pathlib.Path:
        """The folder or file that plaitc takes."""
        if isinstance(model, str):
            path = self.folder / f"model-{index}.mlir"
            path.write_text(model)
            return path
        if "pytorch" in self.test.against:
            model = training_checks.read_golden(model).inputs
        if not self.test.config:
            return model
        path = self.folder / f"model-{index}"
        path.mkdir()
        config = json.loads((model / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | self.test.config))
        return path

    def get_options(self, case: Case, alone=False) -> list:
        """Of plaitc; alone: of the one rank that computes the same."""
        golden = training_checks.golden_of(case)
        given = list(self.test.compile)
        own = [*case.layout.options, *case.get_options(runs=False)]
        mesh = case.layout.mesh
        if alone:
            # What is computed, and no way to spread it.
            kept = ("--precision", "--attention", "--global-batch", "--optimizer")
            own = [x for at, x in enumerate(own) if x in kept or (at and own[at - 1] in kept)]
            mesh = "1"
        defaults = DEFAULTS | (golden.options if golden else {})
        words = ["--mesh", mesh, *given, *own]
        for name, value in defaults.items():
            words += [] if name in words else [name, value]
        if "--micro-batch" not in words:
            batch = int(words[words.index("--global-batch") + 1])
            axes = {} if alone else case.layout.axes
            words += ["--micro-batch", training_checks.choose_micro_batch(batch, axes)]
        return words + [x for term in (golden.balance if golden else ())
                        for x in ("--balance", term)]

    def compile(self, case: Case, plan: pathlib.Path, alone=False, env=None) -> None:
        words = self.get_options(case, alone)
        reference = () if case.is_checked and not alone else ("--no-reference",)
        self.tools.run(
            "plaitc", self.models[case.model], *words, *reference, "-o", plan,
            cwd=self.folder, env=env,
        )  # fmt: skip

    def data_of(self, case: Case) -> list:
        golden = training_checks.golden_of(case)
        if golden:
            return golden.data
        bound, seed = self.test.data
        words = self.get_options(case)
        size = [int(words[words.index(x) + 1]) for x in ("--global-batch", "--seq")]
        count = STEPS * size[0] * size[1] + 1
        path = self.folder / f"{count}.bin"
        if not path.exists():
            write_tokens(path, seed, count, bound)
        return ["--tokens", path, "--seed", 3, "--token-type", "uint16"]

    def train(self, case: Case, plan, processes=1, more=()) -> training_checks.Result:
        golden = training_checks.golden_of(case)
        log, saved = self.folder / "steps.jsonl", self.folder / "saved"
        log.unlink(missing_ok=True)
        shutil.rmtree(saved, ignore_errors=True)
        words = [
            plan, *self.data_of(case), *(golden.run if golden else ("--steps", STEPS)),
            *self.test.run, "--log", log, "--save", saved, *more,
        ]  # fmt: skip
        if processes > 1:
            done = self.processes.mpirun(processes, *words)
            require(done.code == 0, f"{processes} processes: {done.stderr}")
            require(done.stdout.count(" steps, loss") == 1, f"not one summary: {done.stdout}")
        else:
            done = self.tools.run("plait-run", *words)
        weights = saved / "model.safetensors"
        return training_checks.Result(
            compare.read_steps(str(log)), metrics(log), weights, weights.read_bytes(),
            done.stdout,
        )

    def get_alone(self, case: Case, more=()) -> training_checks.Result:
        key = (case.model, *map(str, self.get_options(case, alone=True)), *more)
        if key not in self.references:
            plan = self.folder / "alone.plan"
            self.compile(case, plan, alone=True)
            self.references[key] = self.train(case, plan, more=more)
        return self.references[key]

    def check(self, case: Case) -> str:
        plan = self.folder / "a.plan"
        if case.layout.error:
            return self.check_refused(case)
        self.compile(case, plan)
        more = case.get_options(runs=True)
        remarks = []
        if more or case.processes > 1:
            other = self.train(case, plan, case.processes, more)
        found = self.train(case, plan)
        if more or case.processes > 1:
            require(other.lines == found.lines, f"metrics {other.lines}, as it is {found.lines}")
            require(other.content == found.content, "other weights than as it is")
            remarks.append("same bits")
        if case.does("again"):
            again = self.folder / "again.plan"
            self.compile(case, again, env=self.get_environment(case))
            require(again.read_bytes() == plan.read_bytes(), "a second plan differs")
        checks = training_checks.Checks(self, case, plan, found)
        remarks += checks.run()
        if case.does("loaded"):
            remarks.append(checks.check_loaded())
        return ", ".join(remarks)

    def get_environment(self, case: Case) -> dict[str, str] | None:
        """Of a second compilation: all kernels are made anew, or those of the first
        case of a model and its precision."""
        if self.compiled is None:
            return all_anew()
        key = (self.test.models[case.model], "bf16" in self.get_options(case))
        known = key in self.compiled
        self.compiled.add(key)
        return None if known else all_anew()

    def check_refused(self, case: Case) -> str:
        plan = self.folder / "refused.plan"
        done = self.tools.call(
            "plaitc", self.models[case.model], *self.get_options(case), "-o", plan,
            cwd=self.folder,
        )  # fmt: skip
        require(done.code == 1, f"ended with {done.code}: {done.stderr}")
        require(case.layout.error in done.stderr, done.stderr.strip())
        require(not plan.exists(), "there is a plan all the same")
        return case.layout.error


def check_wrong(report: Reporter) -> None:
    """What test/Training/wrong.txt has are pieces of files, each with its one error."""
    text = (FOLDER / "wrong.txt").read_text()
    for number, piece in enumerate(re.split(r"^=== ", text, flags=re.MULTILINE)[1:]):
        expected, _, content = piece.partition("\n")

        def body(expected=expected, content=content) -> str:
            try:
                read_test(pathlib.Path("a.train"), CHOICES, content)
            except Failure as failure:
                require(str(failure) == expected, f"{failure}, expected {expected}")
                return expected
            raise Failure(f"nothing is wrong, expected {expected}")

        report.case(f"wrong/{number}", body)


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    parser.add_argument("--list", action="store_true", help="only tell the cases")
    parser.add_argument("--as-is", action="store_true", help="no configurations")
    parser.add_argument("--without", metavar="NAME", help="a file that is left out")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="else all")
    options = parser.parse_args()
    report = Reporter("train", options.filter)
    tests = []
    for path in options.files or sorted(FOLDER.glob("*.train")):
        if path.stem == options.without:
            continue
        try:
            tests.append(read_test(path, CHOICES))
        except (Failure, OSError) as failure:
            text = str(failure)  # of another name by the next file
            report.case(path.stem, lambda text=text: require(False, text))
    cases = find_cases(tests, options, report)
    if not cases and not options.all:  # what is named is run, in any case
        options.all = True
        cases = find_cases(tests, options, report)
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    if not options.files:
        check_wrong(report)
    compiled = None if covering.takes_all(options) else set()
    for test, group in itertools.groupby(cases, key=lambda case: case.test):
        with tempfile.TemporaryDirectory() as folder:
            suite = None

            def body(case: Case) -> str:
                nonlocal suite
                suite = suite or Suite(Tools(options.bin, options.timeout), test,
                                       pathlib.Path(folder), compiled)
                return suite.check(case)

            for case in group:
                report.case(case.name, lambda case=case: body(case))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
