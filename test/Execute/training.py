#!/usr/bin/env python3
#===- training.py - Evaluations, bad steps and what is told of a run -------===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Evaluations have PyTorch's losses on every mesh and leave a run as it was, to
the bit. A skipped step leaves one as it would be without the step, to the bit. The
log, TensorBoard's files, read by TensorBoard, and the page say the same."""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from bad_steps import bad_step_cases
from harness import (
    GOLDEN,
    LONG,
    Failure,
    Reporter,
    Tools,
    arguments,
    attend_to_signals,
    require,
)
from training_suite import (
    BATCH,
    SEQUENCE,
    SETTINGS,
    Suite,
    is_near,
    read_log,
    read_page,
    read_state,
    read_tokens,
    write_list,
)

# Of losses beside PyTorch's, as in test/golden.
TOLERANCE = 1e-4
# And in bf16, whose distance from PyTorch train.py bounds more closely.
BF16_TOLERANCE = 1e-2
# TensorBoard has numbers in fp32, the log nine digits.
FLOAT_TOLERANCE = 1e-6


#===-----------------------------------------------------------------------===#
# Evaluations
#===-----------------------------------------------------------------------===#


def evaluation_cases(suite: Suite) -> None:
    case = "gpt2-small-test"
    tokens = GOLDEN / case / "tokens.bin"
    data = (
        *("--tokens", tokens, "--token-type", "uint16"),
        *("--weights", GOLDEN / case / "model.safetensors"),
    )
    golden = json.loads((GOLDEN / case / "golden.json").read_text())["steps"]

    def is_pytorchs(setting):
        """A step's batch, evaluated before it, has the step's loss. Optimizers
        that PyTorch was not run with stay at the first weights."""
        plan = suite.compile(case, setting)
        all_tokens = read_tokens(tokens)
        worst = 0.0
        last = 1 if "--optimizer" in setting else 3
        for step in range(1, last + 1):
            size = BATCH * SEQUENCE
            held = write_list(
                suite.folder / "held.bin",
                all_tokens[step * size : (step + 1) * size + 1],
            )
            evaluate = ("--eval-tokens", held, "--eval-every", "1")
            rate = "1e-3"
            if "--optimizer" in setting:
                rate = "0"
                plain, _, _ = suite.train(
                    plan, *data, "--steps", "2", rate=rate, save=False
                )
                expected, tolerance = plain[1]["loss"], 1e-6
            else:
                expected = golden[step]["loss"]
                tolerance = BF16_TOLERANCE if "bf16" in setting else TOLERANCE
            log, _, _ = suite.train(
                plan, *data, *evaluate, "--steps", step, rate=rate, save=False
            )
            found = log[-1]["eval_loss"]
            worst = max(worst, abs(found / expected - 1))
            require(
                is_near(found, expected, tolerance),
                f"step {step}: {found}, PyTorch has {expected}",
            )
        return f"off {worst:.1e}"

    def changes_nothing(setting):
        plan = suite.compile(case, setting)
        plain, weights, _ = suite.train(plan, *data, "--steps", "5")
        evaluate = ("--eval-tokens", tokens, "--eval-every", "2")
        log, same, outcome = suite.train(
            plan, *data, "--steps", "5", *evaluate
        )
        keys = ("step", "loss", "grad_norm", "lr", "tokens")
        for found, expected in zip(log, plain, strict=True):
            for key in keys:
                require(found[key] == expected[key], f"{found}, {expected}")
        require(same == weights, "other weights")
        steps = [x["step"] for x in log if "eval_loss" in x]
        require(steps == [2, 4, 5], f"evaluated after {steps}")
        require(outcome.stderr.count("held-out") == 3, outcome.stderr)

    def mean_is_over_tokens():
        """Of several batches, against each alone."""
        plan = suite.compile(case, ("dp=2", "--zero", "1"))
        size, all_tokens = BATCH * SEQUENCE, read_tokens(tokens)

        def evaluate(path, *more):
            log, _, _ = suite.train(
                plan, *data, "--steps", "1",
                "--eval-tokens", path, *more, rate="0", save=False,
            )
            return log[-1]["eval_loss"]

        single = [
            evaluate(
                write_list(
                    suite.folder / "one.bin",
                    all_tokens[i * size : (i + 1) * size + 1],
                )
            )
            for i in range(3)
        ]
        together = evaluate(tokens, "--eval-steps", "3")
        expected = sum(single) / 3
        require(is_near(together, expected, 1e-7), f"{together}, {single}")
        first = evaluate(tokens, "--eval-steps", "1")
        require(first == single[0], f"{first}, {single[0]}")

    def refuses(options, message):
        def body():
            plan = suite.compile(case, ("1",))
            error = suite.fail(plan, *data, "--steps", "1", *options())
            require(re.search(message, error) is not None, error)

        return body

    def short():
        path = write_list(suite.folder / "short.bin", [1] * (BATCH * SEQUENCE))
        return ("--eval-tokens", path)

    def refuses_dropout():
        folder = suite.folder / "drops"
        folder.mkdir(exist_ok=True)
        config = json.loads((GOLDEN / case / "config.json").read_text())
        config["resid_pdrop"] = 0.1
        (folder / "config.json").write_text(json.dumps(config))
        plan = suite.compile(folder, ("1",))
        error = suite.fail(plan, *data, "--eval-tokens", tokens)
        require("compile with --dropout off" in error, error)

    for setting in SETTINGS:
        name = "/".join(x.lstrip("-") for x in setting)
        suite.report.case(
            f"evaluation/{name}", lambda s=setting: is_pytorchs(s)
        )
        suite.report.case(
            f"evaluation-changes-nothing/{name}",
            lambda s=setting: changes_nothing(s),
        )
    suite.report.case("evaluation-mean", mean_is_over_tokens)
    for name, options, message in (
        ("short", short, r"'.*short.bin' has 7 samples, a batch needs 8$"),
        ("missing", lambda: ("--eval-tokens", "none"), "cannot open tokens 'none'"),
        ("folder", lambda: ("--eval-tokens", GOLDEN), "not a regular file|directory"),
        (
            "many",
            lambda: ("--eval-tokens", tokens, "--eval-steps", "9"),
            r"--eval-steps is 9, '.*' has 4 batches$",
        ),
        (
            "no-data",
            lambda: ("--eval-every", "9"),
            "--eval-every needs --eval-tokens or --eval-text",
        ),
    ):
        suite.report.case(
            f"evaluation-refuses/{name}", refuses(options, message)
        )
    suite.report.case("evaluation-refuses/dropout", refuses_dropout)


#===-----------------------------------------------------------------------===#
# What is told
#===-----------------------------------------------------------------------===#


def watching_cases(suite: Suite) -> None:
    case = "gpt2-small-test"
    tokens = GOLDEN / case / "tokens.bin"
    data = ("--tokens", tokens, "--token-type", "uint16")

    def tensorboard():
        from tensorboard.backend.event_processing import event_accumulator

        plan = suite.compile(case, ("dp=2", "--zero", "1"))
        events = suite.folder / "events" / "run"
        evaluate = ("--eval-tokens", tokens, "--eval-every", "2")
        log, _, _ = suite.train(
            plan, *data, *evaluate, "--steps", "5", "--lr-schedule", "linear",
            "--tensorboard", events, save=False,
        )
        read = event_accumulator.EventAccumulator(str(events))
        read.Reload()
        for tag, key in (
            ("train/loss", "loss"), ("train/grad_norm", "grad_norm"),
            ("train/learning_rate", "lr"), ("eval/loss", "eval_loss"),
            ("train/tokens_per_second", "tokens_per_second"),
        ):
            found = {x.step: x.value for x in read.Scalars(tag)}
            expected = {x["step"]: x[key] for x in log if key in x}
            require(found.keys() == expected.keys(), f"{tag}: {found}")
            for step, value in expected.items():
                require(
                    is_near(found[step], value, FLOAT_TOLERANCE),
                    f"{tag}: {found[step]} in step {step}, {value} in the log",
                )
        clock = read.Scalars("train/loss")[0].wall_time
        require(abs(clock - time.time()) < 3600, f"written at {clock}")

    def metrics():
        from prometheus_client.parser import text_string_to_metric_families

        plan, log = suite.compile(case, ("dp=2", "--zero", "1")), suite.folder / "m"
        process = subprocess.Popen(
            [suite.tools.folder / "plait-run", plan, *map(str, data), "--log",
             log, "--steps", "1000000", "--metrics-port", "0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        try:
            said = next(x for x in process.stderr if "metrics at" in x)
            place = re.search(r"http://127\.0\.0\.1:\d+", said)[0]
            end = time.monotonic() + LONG
            found = {}
            while found.get("plait_step", 0) < 3:
                require(time.monotonic() < end, f"no third step: {found}")
                with urllib.request.urlopen(f"{place}/metrics") as reply:
                    text = reply.read().decode()
                    kind = reply.headers["Content-Type"]
                found = {
                    sample.name: sample.value
                    for family in text_string_to_metric_families(text)
                    for sample in family.samples
                }
            require(kind.startswith("text/plain; version=0.0.4"), kind)
            try:
                urllib.request.urlopen(f"{place}/other")
                raise Failure("/other is there")
            except urllib.error.HTTPError as error:
                require(error.code == 404, f"{error.code}")
            port = place.rpartition(":")[2]
            error = suite.fail(plan, *data, "--metrics-port", port)
            require("Address already in use" in error, error)
        finally:
            process.kill()
            process.communicate()
        row = read_log(log)[int(found["plait_step"]) - 1]
        for name, key in (
            ("loss", "loss"), ("gradient_norm", "grad_norm"),
            ("learning_rate", "lr"), ("tokens_per_second", "tokens_per_second"),
            ("step_seconds", "step_seconds"),
        ):
            require(found[f"plait_{name}"] == row[key], f"{name}: {found}, {row}")
        tokens_seen = row["tokens"] * row["step"]
        require(found["plait_tokens_total"] == tokens_seen, str(found))
        require(found["plait_resident_memory_bytes"] > 1 << 20, str(found))
        return f"{len(found)} metrics of step {row['step']}"

    def serves_version_6(host):
        """What is said to be the place can be opened."""
        plan = suite.compile(case, ("1",))
        process = subprocess.Popen(
            [suite.tools.folder / "plait-run", plan, *map(str, data), "--steps",
             "1000000", "--metrics-port", f"{host}:0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        try:
            said = next(x for x in process.stderr if re.search("metrics at|error", x))
            require("metrics at http://[::1]:" in said, said)
            with urllib.request.urlopen(said.split()[-1]) as reply:
                require(b"plait_run_info" in reply.read(), said)
        finally:
            process.kill()
            process.communicate()

    def page():
        plan = suite.compile(case, ("pp=2,tp=2", "--schedule", "zb-v"))
        path = suite.folder / "run.html"
        evaluate = ("--eval-tokens", tokens, "--eval-every", "2")
        log, _, _ = suite.train(
            plan, *data, *evaluate, "--steps", "5", "--dashboard", path,
            save=False,
        )
        shown = read_page(path)
        require(shown["outcome"] == "done" and shown["step"] == 5, shown)
        require(read_state(path) in (None, "step 5 of 5, done"), read_state(path))
        for row, line in zip(shown["curves"], log, strict=True):
            keys = ("step", "loss", "grad_norm", "lr", "tokens_per_second")
            for value, key in zip(row, keys):
                require(is_near(value, line[key], FLOAT_TOLERANCE), f"{row}")
        evaluations = {x["step"]: x["eval_loss"] for x in log if "eval_loss" in x}
        require(
            all(
                is_near(loss, evaluations.pop(step), FLOAT_TOLERANCE)
                for step, loss in shown["evaluations"]
            )
            and not evaluations,
            shown["evaluations"],
        )
        require([x["first"] for x in shown["ranks"]] == [0, 2], shown["ranks"])
        settings = shown["settings"]
        require(settings["eval-every"] == 2, settings)
        # What has no meaning for this plan, and flags that are not set.
        for name in ("tf32", "devices", "cuda-graph", "version", "shuffle"):
            require(name not in settings, settings)

    def page_of_a_resumed_run():
        """Curves go on; those of steps that were lost are drawn anew, and those of
        another model, or of a page that was edited, are left out."""
        plan = suite.compile(case, ("1",))
        path, folder = suite.folder / "resumed.html", suite.folder / "resumed"
        options = (
            *data, "--eval-tokens", tokens, "--eval-every", "2",
            *("--dashboard", path, "--resume", folder, "--checkpoint", folder),
        )
        suite.train(plan, *options, "--steps", "4", save=False)
        first = read_page(path)
        suite.train(plan, *options, "--steps", "7", save=False)
        shown = read_page(path)
        require([x[0] for x in shown["curves"]] == list(range(1, 8)), shown["curves"])
        require(shown["curves"][:4] == first["curves"], shown["curves"])
        require([x[0] for x in shown["evaluations"]] == [2, 4, 6, 7], shown["evaluations"])
        require(shown["earlier"] == first["elapsed"] > 0, shown["earlier"])
        text = path.read_text()
        for old, new in (('"model":"', '"model":"x'), ('"curves":[[', '"curves":[[{},'),
                         ('"curves"', '"curve"'), ('id="data">{', 'id="data">')):
            require(old in text, old)
            path.write_text(text.replace(old, new))
            shutil.rmtree(folder / "step-00000007", ignore_errors=True)
            suite.train(plan, *options, "--steps", "7", save=False)
            steps = [x[0] for x in read_page(path)["curves"]]
            require(steps == [5, 6, 7], f"{new}: {steps}")

    def page_of_a_run():
        """While it goes on, and when it is interrupted."""
        plan = suite.compile(case, ("1",))
        path = suite.folder / "live.html"
        process = subprocess.Popen(
            [
                str(suite.tools.folder / "plait-run"), str(plan),
                *map(str, data), "--steps", "1000000", "--dashboard", str(path),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=attend_to_signals,
        )
        end = time.monotonic() + suite.tools.timeout
        while time.monotonic() < end and process.poll() is None:
            if path.exists() and read_page(path)["step"] > 0:
                break
            time.sleep(0.1)
        shown, says = read_page(path), read_state(path)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=suite.tools.timeout)
        require(process.returncode == 130, process.returncode)
        require(shown["outcome"] == "running", shown["outcome"])
        require(not says or re.fullmatch(r"step \d+ of 1000000, running, .* left", says), says)
        ended, says = read_page(path), read_state(path)
        require(ended["outcome"] == "interrupted", ended["outcome"])
        require(not says or says.endswith(" of 1000000, interrupted"), says)
        require(len(ended["curves"]) <= 1024, len(ended["curves"]))

    def page_of_a_failure():
        plan = suite.compile(case, ("1",))
        path = suite.folder / "failed.html"
        suite.fail(
            plan, *data, "--steps", "9", "--lr", "1e9", "--grad-clip", "0",
            "--dashboard", path,
        )
        outcome, says = read_page(path)["outcome"], read_state(path)
        require(outcome.startswith("failed: step "), outcome)
        require(not says or says.endswith(outcome), says)

    def refuses(*options, message):
        def body():
            plan = suite.compile(case, ("1",))
            error = suite.fail(plan, *data, "--steps", "1", *options)
            require(re.search(message, error) is not None, error)

        return body

    suite.report.case("tensorboard", tensorboard)
    suite.report.case("metrics", metrics)
    addresses = pathlib.Path("/proc/net/if_inet6")
    if addresses.exists() and f"{1:032}" in addresses.read_text():
        for host in ("[::1]", "::1"):
            suite.report.case(f"metrics/{host}", lambda h=host: serves_version_6(h))
    suite.report.case(
        "refuses/metrics-port",
        refuses("--metrics-port", "70000", message="'70000' is neither a port"),
    )
    suite.report.case("page", page)
    suite.report.case("page-of-a-resumed-run", page_of_a_resumed_run)
    suite.report.case("page-of-a-run", page_of_a_run)
    suite.report.case("page-of-a-failure", page_of_a_failure)
    suite.report.case(
        "refuses/tensorboard-file",
        refuses(
            "--tensorboard", tokens / "x", message="cannot make directory '.*x'"
        ),
    )
    suite.report.case(
        "refuses/page-folder",
        refuses("--dashboard", GOLDEN, message=f"'{GOLDEN}'.*irectory"),
    )
    suite.report.case(
        "refuses/page-to-standard-output",
        refuses("--dashboard", "-", message="--dashboard is written again"),
    )


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("training", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        evaluation_cases(suite)
        bad_step_cases(suite)
        watching_cases(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
