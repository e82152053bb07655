#!/usr/bin/env python3
#===- outputs.py - Where outputs go, and signals ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Outputs go to files, links, pipes and standard output, text for people never
where a program's output goes; signals end a run in order and leave nothing
behind."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time

from harness import (
    GOLDEN,
    LONG,
    ROOT,
    Reporter,
    Tools,
    arguments,
    attend_to_signals,
    read_safetensors,
    require,
    write_safetensors,
)

GPT2 = GOLDEN / "gpt2-small-test"
NANO = ROOT / "examples" / "models" / "gpt2-nano"
COMPILE = ("--mesh", "dp=2", "--no-plan", "--global-batch", "4", "--seq", "32")
PLAN = ("--cluster", "cpu:2", "--global-batch", "4", "--seq", "32")
DATA = ("--weights", GPT2, "--tokens", GPT2 / "tokens.bin")
# What every run says first on standard error.
AT_START = ("proof of the plan: ", "settings: ")
# The line that a run off a terminal prints at some of its steps.
PROGRESS = re.compile(r"step \d+/\d+, loss ")


class Suite:
    def __init__(self, tools: Tools, report: Reporter):
        self.tools = tools
        self.report = report
        with tempfile.TemporaryDirectory() as folder:
            plan = pathlib.Path(folder) / "a.plan"
            tools.run("plaitc", GPT2, *COMPILE, "-o", plan)
            self.plan = plan.read_bytes()

    def case(self, name: str, body) -> None:
        """`body` takes a folder with a plan, `a.plan`."""

        def run():
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                (folder / "a.plan").write_bytes(self.plan)
                return body(folder)

        self.report.case(name, run)

    def start(self, name: str, *arguments, **more) -> subprocess.Popen:
        command = [str(self.tools.folder / name), *map(str, arguments)]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            preexec_fn=attend_to_signals,
            **more,
        )


def names(folder: pathlib.Path) -> list[str]:
    return sorted(str(x.relative_to(folder)) for x in folder.rglob("*"))


def wait_for(condition, seconds: float = LONG) -> None:
    end = time.monotonic() + seconds
    while not condition():
        require(time.monotonic() < end, f"nothing happened for {seconds} s")
        time.sleep(0.01)


#===-----------------------------------------------------------------------===#
# Where outputs go
#===-----------------------------------------------------------------------===#


def output_cases(suite: Suite) -> None:
    tools = suite.tools

    def plan_to_standard_output(folder):
        with open(folder / "b.plan", "wb") as file:
            done = subprocess.run(
                [tools.folder / "plaitc", GPT2, *COMPILE, "-o", "-"],
                stdout=file,
                stderr=subprocess.PIPE,
            )
        require(done.returncode == 0, done.stderr.decode())
        require((folder / "b.plan").read_bytes() == suite.plan, "another plan")
        require(names(folder) == ["a.plan", "b.plan"], names(folder))

    def plan_to_terminal(folder):
        terminal, name = pty.openpty()
        done = subprocess.run(
            [tools.folder / "plaitc", GPT2, *COMPILE, "-o", "-"],
            stdout=name,
            stderr=subprocess.PIPE,
        )
        os.close(name)
        os.close(terminal)
        error = done.stderr.decode().splitlines()[-1]
        require(done.returncode == 1 and "terminal" in error, error)

    def plan_over_link(folder):
        (folder / "link").symlink_to("b.plan")
        outcome = tools.run("plaitc", GPT2, *COMPILE, "-o", folder / "link")
        require((folder / "link").is_symlink(), "the link is gone")
        require((folder / "b.plan").is_file(), "nothing where it leads")
        wrote = [x for x in outcome.stdout.splitlines() if "wrote" in x]
        require(len(wrote) == 1 and "link: " in wrote[0], outcome.stdout)

    def plan_to_pipe(folder):
        os.mkfifo(folder / "pipe")
        with open(folder / "b.plan", "wb") as file:
            reader = subprocess.Popen(["cat", folder / "pipe"], stdout=file)
        try:
            tools.run("plaitc", GPT2, *COMPILE, "-o", folder / "pipe")
            reader.wait(timeout=LONG)
        finally:
            reader.kill()
        require((folder / "b.plan").read_bytes() == suite.plan, "another plan")
        require(names(folder) == ["a.plan", "b.plan", "pipe"], names(folder))

    def predict_and_explain(folder):
        outcome = tools.run("plaitc", NANO, *PLAN, "--json", "-", "--explain")
        require("pp" in json.loads(outcome.stdout)["configuration"], "no pick")
        require("memory" in outcome.stderr, "not explained")
        path = folder / "p.json"
        outcome = tools.run("plaitc", NANO, *PLAN, "--json", path, "--explain")
        require("memory" in outcome.stdout, "not explained")
        require("pp" in json.loads(path.read_text())["configuration"], "no pick")

    def report(folder):
        outcome = tools.run("plaitc", NANO.resolve(), *PLAN, "--report", "-")
        require("<title>Training gpt2-nano on cpu:2</title>" in outcome.stdout, "another title")
        outcome = tools.call(
            "plaitc", NANO, *PLAN, "--report", "-", "--trace", "-"
        )
        message = "plaitc: error: --report and --trace are both standard output"
        require(outcome.stderr.strip() == message, outcome.stderr)

    def log_to_standard_output(folder):
        outcome = tools.run(
            "plait-run", folder / "a.plan", *DATA, "--steps", "2", "--log", "-"
        )
        steps = [json.loads(x)["step"] for x in outcome.stdout.splitlines()]
        require(steps == [1, 2], outcome.stdout)
        require("2 steps, loss" in outcome.stderr, outcome.stderr)

    def measured_to_folder(folder):
        """What cannot be written is said before the training, not after it."""
        for option in ("--profile", "--trace"):
            for path in (folder, folder / "absent" / "file"):
                done = tools.call(
                    *("plait-run", folder / "a.plan", *DATA, "--steps", "1000000"),
                    *(option, path, "--timeout", "60"),
                )
                error = done.stderr.splitlines()[-1]
                expected = f"plait-run: error: cannot write '{path}': "
                require(done.code == 1 and error.startswith(expected), error)
        require(names(folder) == ["a.plan"], names(folder))

    def log_is_of_one_run(folder):
        """A run that is resumed goes on in it, another one has a new one."""
        log, other = folder / "log", folder / "log.1"
        run = ("plait-run", folder / "a.plan", *DATA, "--log", log, "--steps")
        saves = ("--checkpoint", folder / "run")
        tools.run(*run, "1")
        done = tools.run(*run, "2", *saves)
        require(f"'{log}' is of another run, and is now '{other}'" in done.stderr, done.stderr)
        tools.run(*run, "3", *saves, "--resume", folder / "run")

        def steps(path):
            return [json.loads(x)["step"] for x in path.read_text().splitlines()]

        require(steps(other) == [1], steps(other))
        require(steps(log) == [1, 2, 3], steps(log))

    def lost_text(folder):
        """What is printed counts: a full disk is no success."""
        commands = (
            ("plait-plan", "show", folder / "a.plan"),
            ("plait-plan", "diff", folder / "a.plan", folder / "a.plan"),
            ("plait-run", folder / "a.plan", *DATA, "--steps", "1"),
            ("plaitc", GPT2, *COMPILE, "-o", folder / "b.plan"),
            ("plaitc", "--help"),
        )
        for name, *given in commands:
            with open("/dev/full", "w") as full:
                done = subprocess.run(
                    [tools.folder / name, *given],
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            *begin, line = done.stderr.splitlines()
            reason = "cannot write standard output: No space left on device"
            require(line == f"{name}: error: {reason}", done.stderr)
            notes = (*AT_START, f"{name}: note: ")
            require(all(x.startswith(notes) for x in begin), begin)
            code = 2 if "diff" in given else 1
            require(done.returncode == code, f"{name}: {done.returncode}")

    def file_size_limit(folder):
        """A file that may not become as long is as one on a full disk. The shell
        counts in KiB: 4 are too few for the kernels, which are linked in files, and
        200 are enough for these (34) and too few for the plan (270)."""

        def fails(limit, name, *words) -> str:
            done = subprocess.run(
                ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "limited",
                 tools.folder / name, *map(str, words)],
                capture_output=True,
                text=True,
            )
            require(done.returncode == 1, f"{done.returncode}: {done.stderr}")
            require(names(folder) == before, names(folder))
            return done.stderr

        for part in ("c", "saved"):
            (folder / part).mkdir()
        before = names(folder)
        training = (folder / "a.plan", *DATA, "--steps", "4")
        compilation = (GPT2, *COMPILE, "-o", folder / "b.plan")
        errors = fails(4, "plaitc", *compilation)
        require("cannot link the kernels" in errors, errors)
        errors += fails(200, "plaitc", *compilation)
        errors += fails(300, "plait-run", *training, "--save", folder / "saved")
        checkpoints = ("--checkpoint", folder / "c", "--checkpoint-every", "2")
        said = fails(300, "plait-run", *training, *checkpoints)
        held = ("--eval-tokens", DATA[3], "--eval-every", "2", "--best", folder / "saved")
        missing = fails(300, "plait-run", *training, *held)
        require("warning: no weights of step 2, the best so far: " in missing, missing)
        last = missing.strip().splitlines()[-1]
        require("error: '" in last and "lacks the best weights" in last, last)
        ends = [x for x in (errors + said).splitlines() if "too large" in x]
        require(
            len(ends) == 5 and all(x.endswith(": File too large") for x in ends),
            errors + said,
        )
        require("warning: no checkpoint of step 2: " in said, said)
        last = said.strip().splitlines()[-1]
        require("checkpoint of step 4, the last one" in last, said)

    suite.case("lost-text", lost_text)
    suite.case("file-size-limit", file_size_limit)
    suite.case("plan-to-standard-output", plan_to_standard_output)
    suite.case("plan-to-terminal", plan_to_terminal)
    suite.case("plan-over-link", plan_over_link)
    suite.case("plan-to-pipe", plan_to_pipe)
    suite.case("predict-and-explain", predict_and_explain)
    suite.case("report", report)
    suite.case("log-to-standard-output", log_to_standard_output)
    suite.case("measured-to-folder", measured_to_folder)
    suite.case("log-is-of-one-run", log_is_of_one_run)


#===-----------------------------------------------------------------------===#
# Weights
#===-----------------------------------------------------------------------===#


def weight_cases(suite: Suite) -> None:
    tools = suite.tools

    def config_is_saved(folder):
        tools.run(
            "plait-run",
            *(folder / "a.plan", *DATA, "--steps", "1"),
            *("--save", folder / "saved"),
        )
        saved = (folder / "saved" / "config.json").read_bytes()
        require(saved == (GPT2 / "config.json").read_bytes(), "another config")

    def unknown_tensors_are_named(folder):
        header, data = read_safetensors(GPT2 / "model.safetensors")
        embedding = next(x for x in header if x.endswith("wte.weight"))
        begin, end = header[embedding]["data_offsets"]

        def train(head: bytes) -> str:
            entry = header[embedding] | {
                "data_offsets": [len(data), len(data) + len(head)]
            }
            weights = folder / "more.safetensors"
            write_safetensors(
                weights, header | {"lm_head.weight": entry}, data + head
            )
            options = ("--weights", weights, *DATA[2:], "--steps", "1")
            outcome = tools.run("plait-run", folder / "a.plan", *options)
            lines = outcome.stderr.splitlines(keepends=True)
            return "".join(x for x in lines if not x.startswith(AT_START))

        same = train(data[begin:end])
        require(same == "", f"a copy of the embedding: {same}")
        other = train(bytes(end - begin))
        warnings = other.splitlines()
        require(
            len(warnings) == 1
            and warnings[0].startswith("plait-run: warning: ")
            and "lm_head.weight" in warnings[0],
            other,
        )

    suite.case("config-is-saved", config_is_saved)
    suite.case("unknown-tensors-are-named", unknown_tensors_are_named)


#===-----------------------------------------------------------------------===#
# Signals
#===-----------------------------------------------------------------------===#


def interrupt_run(suite: Suite, folder, number, times: int):
    """Sends a signal after the first step of a long run; the process's code,
    output and errors."""
    log = folder / "log"
    process = suite.start(
        "plait-run",
        *(folder / "a.plan", *DATA, "--steps", "1000000", "--log", log),
        *("--save", folder / "saved", "--profile", folder / "profile"),
    )
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 3)
    for _ in range(times):
        process.send_signal(number)
    out, errors = process.communicate(timeout=suite.tools.timeout)
    return process.returncode, out.decode(), errors.decode()


def signal_cases(suite: Suite) -> None:
    def stops_after_the_step(number):
        def body(folder):
            code, out, errors = interrupt_run(suite, folder, number, 1)
            require(code == 128 + number, f"{code}: {errors}")
            # A step that is worth a line may end before or behind the signal.
            said = [x for x in errors.splitlines() if not PROGRESS.match(x)]
            *begin, line = said
            require(all(x.startswith(AT_START) for x in begin), errors)
            require(line.startswith(f"plait-run: {number.name}: "), errors)
            steps = len((folder / "log").read_text().splitlines())
            require(f"{steps} of 1000000 steps, loss" in out, out)
            require(
                names(folder)
                == [
                    *("a.plan", "log", "profile", "saved"),
                    *("saved/config.json", "saved/model.safetensors"),
                ],
                names(folder),
            )
            profile = json.loads((folder / "profile").read_text())
            require(profile["steps"] == steps - 1, profile["steps"])
            return f"{steps} steps"

        return body

    def ends_at_the_second(folder):
        code, _, errors = interrupt_run(suite, folder, signal.SIGINT, 2)
        require(code == 130, f"{code}: {errors}")
        left = [x for x in names(folder) if "tmp" in x]
        require(not left, left)

    def leaves_nothing_of_a_compilation(folder):
        temporary = folder / "tmp"
        temporary.mkdir()
        process = suite.start(
            *("plaitc", GPT2, *COMPILE, "-o", folder / "b.plan"),
            env=os.environ | {"TMPDIR": str(temporary)},
        )
        wait_for(lambda: names(temporary) or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=suite.tools.timeout)
        # It may have been quicker than the signal.
        require(process.returncode in (-signal.SIGTERM, 0), process.returncode)
        require(not names(temporary), names(temporary))

    suite.case("interrupt", stops_after_the_step(signal.SIGINT))
    suite.case("terminate", stops_after_the_step(signal.SIGTERM))
    suite.case("interrupt-twice", ends_at_the_second)
    suite.case("interrupt-plaitc", leaves_nothing_of_a_compilation)


def main() -> int:
    options = arguments(__doc__).parse_args()
    report = Reporter("outputs", options.filter)
    suite = Suite(Tools(options.bin, options.timeout), report)
    for cases in (output_cases, weight_cases, signal_cases):
        cases(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
