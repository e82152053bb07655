#!/usr/bin/env python3
#===- errors.py - Bad input -------------------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Gives the tools bad input. Each case must end with an exit code that is 1, with
one line of error that contains the expected fragments (regular expressions), and
with no file written or changed. compile_errors.py has those of plaitc, run_errors.py
those of plait-run; here is what all tools do."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import compile_errors
import run_errors
from harness import LONG, Reporter, Tools, arguments, require
from refusals import GPT2, Compiler, Runner, check_refused


def usage_cases(tools: Tools, report: Reporter) -> None:
    """The argument that is wrong is blamed, in one line."""
    cases = (
        ("plait-run x.plan --rewind y", "unknown option '--rewind'"),
        ("plait-run --rewind=y", "unknown option '--rewind'"),
        ("plait-run x.plan y", "unexpected argument 'y'"),
        ("plait-run", "plan is required"),
        ("plait-plan frobnicate", "unknown command 'frobnicate', expected .*"),
        ("plait-plan show x.plan --deep", "unknown option '--deep'"),
        ("plait-plan", "a subcommand is required"),
        ("plaitc x --frobnicate", "unknown option '--frobnicate'"),
        ("plaitc", "model is required"),
        ("plait-data", "the following arguments are required: .*"),
        ("plait-data x --tokenizer y -o z --workers 0", "--workers 0 is not .*"),
    )
    for command, expected in cases:
        tool, *given = command.split()

        def body():
            outcome = tools.call(tool, *given)
            message = f"{tool}: error: {expected}\n"
            require(outcome.code == 1, f"ended with {outcome.code}")
            require(outcome.stdout == "", outcome.stdout)
            require(
                re.fullmatch(message, outcome.stderr) is not None,
                outcome.stderr,
            )

        report.case(f"usage/{command.replace(' ', '_')}", body)


def json_cases(compiler: Compiler, tools: Tools, report: Reporter) -> None:
    """Files that are not JSON are told where they are not."""
    compiler.refuse_file("config-position", [r" 2:14: "], '{\n"model_type" 1}')
    compiler.refuse_file("config-twice", ['"a" twice'], '{"a": 1, "a": 1}')

    def refuse(name, content, fragment):
        def body():
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "x.json"
                path.write_text(content)
                words = [GPT2, "--global-batch", 8, "--seq", 64, "--cluster"]
                outcome = tools.call("plaitc", *words, path)
                return check_refused(outcome, [fragment], {}, {})

        report.case(f"plaitc/json-{name}", body)

    refuse("position", '{\n  "a": 1,,\n}\n', r"2:1[01]: ")
    refuse("twice", '{"a": 1, "b": {"a": 2, "a": 2}}', '"a" twice')

    def bench(name, content):
        def body():
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "x.json"
                path.write_text(content)
                outcome = tools.call(name, path)
                return check_refused(outcome, ["x.json"], {}, {})

        report.case(f"{name}/json-{content}", body)

    for content in ("null", "[", '{"sources": 3}'):
        for name in ("plait-bench-published", "plait-bench-better"):
            bench(name, content)


def terminal_cases(tools: Tools, report: Reporter) -> None:
    """Names may come from a damaged file: what they would do to a terminal is
    shown instead."""

    def refuse(*words):
        def body():
            outcome = tools.call(*words)
            require("\x1b" not in outcome.stderr, repr(outcome.stderr))
            return check_refused(outcome, [r"no\\x1b\[31m\.plan"], {}, {})

        report.case(f"{words[0]}/control-characters", body)

    refuse("plait-run", "no\x1b[31m.plan", "--check")
    refuse("plait-plan", "show", "no\x1b[31m.plan")


def endless_cases(tools: Tools, report: Reporter, plan: bytes) -> None:
    """Devices and pipes have no size, and may have no end: where a file is needed
    they are refused at once, and a text that a pipe brings has a bound."""
    MODEL = GPT2 / "config.json"

    def make_zero(path):
        path.symlink_to("/dev/zero")

    def refuse(name, words, expected="not a regular file", make=os.mkfifo, file="x"):
        """`file` is what `make` makes, and words name it; a plan is beside it."""

        def body():
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / file
                path.parent.mkdir(exist_ok=True)
                make(path)
                (pathlib.Path(folder) / "out.plan").write_bytes(plan)
                begin = time.monotonic()
                outcome = tools.call(*words, cwd=folder)
                took = time.monotonic() - begin
                remark = check_refused(outcome, [expected], {}, {})
                require(took < 10, f"{took} s")
                return remark

        report.case(f"endless/{name}", body)

    for kind, make in (("zero", make_zero), ("pipe", os.mkfifo)):
        for name, file, words in (
            ("config", "x", ("plaitc", "x", "-o", "out.plan")),
            ("folder", "m/config.json", ("plaitc", "m", "-o", "out.plan")),
            ("mlir", "x.mlir", ("plaitc", "x.mlir", "-o", "out.plan")),
            ("opt", "x.mlir", ("plait-opt", "x.mlir")),
            ("plan", "x", ("plait-run", "x", "--check")),
            ("show", "x", ("plait-plan", "show", "x")),
            ("hosts", "x", ("plait-run", "out.plan", "--supervise", "--hosts", "x",
                            "--checkpoint", "c", "--text", MODEL)),
            ("options", "x", ("plait-run", "--config", "x")),
        ):
            refuse(f"{name}-{kind}", words, make=make, file=file)
    # Texts: a pipe will do, but not for ever.
    for name, file, words in (
        ("schedule", "x", ("plait-plan", "schedule", "--file", "x")),
        ("costs", "x", ("plait-plan", "schedule", "--kind", "1f1b", "--costs", "x")),
        # A name that ends otherwise is that of a device.
        ("cluster", "x.json", ("plaitc", MODEL, "--predict", "--global-batch", "8",
                               "--seq", "64", "--cluster", "x.json")),
    ):
        refuse(f"{name}-zero", words, "no file and has more than 67108864 bytes",
               make_zero, file)
        refuse(f"{name}-pipe", words, "a pipe to which nobody writes", file=file)

    def text_of_a_pipe():
        program = tools.folder / "plait-plan"
        command = f"{program} schedule --kind 1f1b --stages 2 --microbatches 4"
        script = (f"{command} --csv - > /dev/null || exit; "
                  f"{command} --csv x.csv > /dev/null || exit; "
                  f"{program} schedule --file <(sleep 0.3; cat x.csv)")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["bash", "-c", script], cwd=folder,
                                  capture_output=True, text=True, timeout=LONG)
        require(done.returncode == 0 and "rank 1" in done.stdout, done.stderr)

    report.case("endless/text-of-a-pipe", text_of_a_pipe)


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("errors", options.filter)
    compiler = Compiler(tools, report)
    compile_errors.check(compiler)
    usage_cases(tools, report)
    json_cases(compiler, tools, report)
    terminal_cases(tools, report)
    runner = Runner(tools, report)
    # Not through case(): a filter for one of the others must not skip it.
    compiled = Reporter("errors", "")
    compiled.case("plait-run/compile", runner.compile)
    report.passed += compiled.passed
    report.failed += compiled.failed
    endless_cases(tools, report, runner.plan)
    run_errors.check(runner)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
