#!/usr/bin/env python3
#===- config_files.py - Options of a run from a file ------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What `plait-run --config` takes from a TOML file and what it refuses.
Standard library only."""

import json
import pathlib
import re
import sys
import tempfile

from harness import GOLDEN, Reporter, Tools, arguments, require
from training import Suite, read_log


def config_cases(suite: Suite) -> None:
    case = "gpt2-small-test"
    tokens = GOLDEN / case / "tokens.bin"

    def write(text: str) -> pathlib.Path:
        path = suite.folder / "run.toml"
        path.write_text(text)
        return path

    def is_read():
        plan = suite.compile(case, ("1",))
        path = write(
            "# A run.\n"
            f'plan = "{plan}"\ntokens = "{tokens}"\ntoken-type = "uint16"\n'
            'lr = 2e-3\nlr-schedule = "linear"\nsteps = 4\nshuffle = true\n'
        )
        log, saved = suite.folder / "log", suite.folder / "checkpoints"
        log.unlink(missing_ok=True)
        outcome = suite.tools.run(
            *("plait-run", "--config", path, "--steps", "2", "--log", log),
            *("--checkpoint", saved),
        )
        rates = [x["lr"] for x in read_log(log)]
        require(rates == [2e-3, 1e-3], rates)
        lines = re.findall(r"^settings: ([^:]*): (.*)$", outcome.stderr, re.MULTILINE)
        shown = [x for title, text in lines if title != "plan" for x in text.split(", ")]
        require(lines[0][0] == "plan" and "adamw" in lines[0][1], lines)
        require(len(lines) < 24, f"{len(lines)} lines are more than a screen")
        index = json.loads((saved / "step-00000002" / "index.json").read_text())
        settings = index["run"]["settings"]
        # All that has a value is stored, and shown where the plan's target has a
        # use for it.
        expected = [
            name if value is True else f"{name} {value}"
            for name, value in settings.items()
            if value is not False
            and name not in (
                "plan", "devices", "collective-blocks", "cuda-graph", "time-matmuls"
            )
        ]
        expected.append("decay-steps 2")  # of --steps
        require(sorted(shown) == sorted(expected), f"{shown}\n{expected}")
        for name, value in {
            "plan": str(plan), "lr": 2e-3, "steps": 2, "shuffle": True,
            "tf32": False, "lr-schedule": "linear", "beta1": 0.9,
        }.items():
            require(settings[name] == value, f"{name}: {settings}")

    def refuses(text, message):
        def body():
            plan = suite.compile(case, ("1",))
            error = suite.fail(
                plan, "--tokens", tokens, "--config", write(text)
            )
            require(re.search(message, error) is not None, error)

        return body

    def refuses_file(path, message):
        def body():
            plan = suite.compile(case, ("1",))
            error = suite.fail(plan, "--tokens", tokens, "--config", path)
            require(re.search(message, error) is not None, error)

        return body

    def is_unset():
        """A flag that is false is one that nobody has given."""
        plan = suite.compile(case, ("1",))
        given = ("--tokens", tokens, "--token-type", "uint16", "--steps", 1)
        path = write("check = false\nsupervise = false\nshuffle = false\n")
        ways = (("--config", path), ("--config", path, "--supervise=false"),
                ("--shuffle=false", "--check=false"))  # fmt: skip
        for i, way in enumerate(ways):
            saved = suite.folder / f"unset-{i}"
            outcome = suite.tools.run(
                "plait-run", plan, *given, *way, "--checkpoint", saved
            )
            index = json.loads((saved / "step-00000001" / "index.json").read_text())
            settings = index["run"]["settings"]
            for name in ("check", "shuffle"):
                require(settings[name] is False, f"{way}: {settings}")
            require("shuffle" not in outcome.stderr, outcome.stderr)
        # Of flags that exclude each other one may be false: this goes on.
        path = write("supervise = false\n")
        error = suite.fail(plan, "--check", "--config", path)
        require("the plan has no reference to check against" in error, error)

    def is_number():
        """Numbers are texts too, where an option takes either."""
        plan = suite.compile(case, ("1",))
        saved = suite.folder / "numbered"
        path = write(
            f'tokens = "{tokens}"\ntoken-type = "uint16"\nsteps = 3\n'
            f'checkpoint = "{saved}"\ncheckpoint-every = 2\n'
        )
        suite.tools.run("plait-run", plan, "--config", path)
        found = sorted(x.name for x in saved.iterdir())
        require(found == ["step-00000002", "step-00000003"], found)

    def is_count():
        """Counts are written as on the command line."""
        plan = suite.compile(case, ("1",))
        given = f'tokens = "{tokens}"\ntoken-type = "uint16"\n'
        for count, steps in (("2e0", 2), ('"0.002k"', 2), ('"k2"', None)):
            path = write(f"{given}steps = {count}\n")
            outcome = suite.tools.call("plait-run", plan, "--config", path)
            word = "no whole number" if steps is None else f"steps {steps},"
            require(word in outcome.stderr, f"{count}: {outcome.stderr}")

    def is_replaced():
        """What excludes an option of the command line gives way to it."""
        plan = suite.compile(case, ("1",))
        path = write('text = "none.txt"\nepochs = 1\n')
        outcome = suite.tools.run(
            *("plait-run", plan, "--config", path, "--tokens", tokens),
            *("--token-type", "uint16", "--steps", 1),
        )
        require("steps 1" in outcome.stderr, outcome.stderr)
        for unwanted in ("none.txt", "epochs"):
            require(unwanted not in outcome.stderr, outcome.stderr)

    def is_no_output():
        """Steps are not added to the options of the run."""
        plan = suite.compile(case, ("1",))
        path = write("steps = 1\n")
        error = suite.fail(plan, "--tokens", tokens, "--config", path, "--log", path)
        message = "--log and --config are the same file, '.*run.toml'"
        require(re.search(message, error) is not None, error)
        require(path.read_text() == "steps = 1\n", path.read_text())

    suite.report.case("is-read", is_read)
    suite.report.case("is-unset", is_unset)
    suite.report.case("is-number", is_number)
    suite.report.case("is-count", is_count)
    suite.report.case("is-replaced", is_replaced)
    suite.report.case("is-no-output", is_no_output)
    for name, text, message in (
        ("unknown", "lrr = 1\n", "run.toml' sets 'lrr', which is no option"),
        ("section", "[train]\nlr = 1\n", "sets 'train', which is no option"),
        ("no-value", "steps = 1\nlr\n", "'.*run.toml' is not TOML: 2:3: "),
        ("no-number", 'lr = "high"\n', "sets 'lr' to what is no number"),
        ("truth", "steps = true\n", "sets 'steps' to what is no whole number"),
        ("number", "shuffle = 1\n", "sets 'shuffle' to what is no truth value"),
        ("list", "lr = [1, 2]\n", "sets 'lr' to what is no number"),
        ("beyond", "beta2 = 2\n", "--beta2.*2"),
        ("fraction", "steps = 1.5\n", "sets 'steps' to what is no whole number"),
        ("word", 'on-nan = "no"\n', "--on-nan.*no"),
        ("both", 'steps = 1\nepochs = 1\n', "--(steps|epochs) excludes --"),
        ("text", "resume = 1.5\n", "sets 'resume' to what is no string"),
        ("itself", 'config = "x"\n', "sets 'config', which is no option"),
    ):
        suite.report.case(f"refuses/{name}", refuses(text, message))
    suite.report.case(
        "refuses/missing", refuses_file("none.toml", "does not exist: none.toml")
    )
    suite.report.case("refuses/folder", refuses_file(GOLDEN, "directory: .*golden"))
    suite.report.case("refuses/pipe", refuses_file("/dev/stdin", "not a regular file"))


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("config-files", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        config_cases(Suite(tools, report, pathlib.Path(folder)))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
