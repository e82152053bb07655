#===- bad_steps.py - Steps that are skipped, and runs that go back ----------===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""A skipped step leaves a run as it would be without the step, to the bit; so
does a run that goes back to a checkpoint. Called by training.py."""

import json
import math
import re
import struct

from harness import GOLDEN, read_safetensors, require, write_safetensors
from training_suite import (
    BATCH,
    SEQUENCE,
    SETTINGS,
    Suite,
    read_page,
    write_list,
)


class Poison:
    """Weights with one token whose embedding is no number, and data with that
    token in some batches."""

    TOKEN = 7

    def __init__(self, suite: Suite):
        self.suite = suite
        folder = GOLDEN / "llama-small-test"
        header, data = read_safetensors(folder / "model.safetensors")
        entry = header["model.embed_tokens.weight"]
        require(entry["dtype"] == "F32", entry["dtype"])
        width = 4 * entry["shape"][1]
        row = entry["data_offsets"][0] + self.TOKEN * width
        nan = struct.pack("<f", math.nan) * (width // 4)
        self.weights = suite.folder / "poison.safetensors"
        write_safetensors(
            self.weights, header, data[:row] + nan + data[row + width :]
        )

    def batches(self, bad: set[int], count: int, without=False):
        """A file of batches, counted from 1, those in `bad` with the token, or
        without these batches."""
        size = BATCH * SEQUENCE
        # A batch's last target is the next one's first input: always 1.
        tokens = []
        for batch in range(1, count + 1):
            if batch in bad and without:
                continue
            part = [1] + [10 + (7 * batch + i * i) % 90 for i in range(1, size)]
            if batch in bad:
                part[size // 2] = self.TOKEN
            tokens += part
        path = self.suite.folder / f"batches-{without}.bin"
        return write_list(path, tokens + [1])

    def options(self, tokens, steps):
        return (
            *("--tokens", tokens, "--token-type", "uint16"),
            *("--weights", self.weights, "--steps", steps),
        )


def bad_step_cases(suite: Suite) -> None:
    poison = Poison(suite)
    case = "llama-small-test"

    def skip_is_exact(setting):
        plan = suite.compile(case, setting)
        bad = {1, 4}
        tokens = poison.batches(bad, 6)
        log, weights, outcome = suite.train(
            plan, *poison.options(tokens, 6), "--on-nan", "skip"
        )
        fewer = poison.batches(bad, 6, without=True)
        plain, expected, _ = suite.train(plan, *poison.options(fewer, 4))
        skipped = {x["step"] for x in log if x.get("skipped")}
        require(skipped == bad, f"skipped {skipped}")
        require(all(x["loss"] is None for x in log if x.get("skipped")), log)
        losses = [x["loss"] for x in log if not x.get("skipped")]
        require(losses == [x["loss"] for x in plain], f"{losses}, {plain}")
        require(weights == expected, "other weights")
        warning = "plait-run: warning: step 4: the loss is nan, the step is skipped"
        require(warning in outcome.stderr, outcome.stderr)

    def stops():
        plan = suite.compile(case, ("1",))
        tokens = poison.batches({3}, 4)
        error = suite.fail(plan, *poison.options(tokens, 4))
        require(
            re.fullmatch("step 3: the loss is -?nan; try a lower --lr", error)
            is not None,
            error,
        )

    def does_not_skip_for_ever():
        plan = suite.compile(case, ("1",))
        tokens = poison.batches(set(range(2, 16)), 15)
        error = suite.fail(
            plan, *poison.options(tokens, 15), "--on-nan", "skip"
        )
        require("step 12: the loss is" in error, error)
        require("10 steps before it were skipped" in error, error)

    def roll_back_is_exact(setting, options, bad, undone):
        """As a run without the bad batches and those since the checkpoint."""
        plan = suite.compile(case, setting)
        folder = suite.folder / f"back-{len(list(suite.folder.iterdir()))}"
        samples = folder.with_suffix(".samples")
        log, weights, outcome = suite.train(
            plan, *options(bad, 9), *("--checkpoint", folder),
            *("--checkpoint-every", 2, "--log-samples", samples),
        )
        plain, expected, _ = suite.train(plan, *options(undone, 9, without=True))
        last = {x["step"]: x for x in log}
        found = [last[x["step"]]["loss"] for x in plain]
        require(found == [x["loss"] for x in plain], f"{log}, {plain}")
        require(weights == expected, "other weights")
        again = [x["step"] for x in log if x.get("rolled_back")]
        require(len(again) == len(bad), log)
        require(outcome.stderr.count("went back to step ") == len(bad), outcome)
        read = {}
        for line in map(json.loads, samples.read_text().splitlines()):
            read[line["step"]] = [x[1] for x in line["samples"]]
        good = [x for x in range(1, 20) if x not in undone][: len(read)]
        expected = [[BATCH * (x - 1) + i for i in range(BATCH)] for x in good]
        require(list(read.values()) == expected, read)

    def poisoned(bad, steps, without=False):
        tokens = poison.batches(bad, 14, without=without)
        more = () if without else ("--on-nan", "rollback")
        return (*poison.options(tokens, steps), "--threads", 1, *more)

    def ends_with_the_data(setting):
        """An epoch has fewer steps where batches are left out, and the learning
        rate comes to its end with them."""
        plan = suite.compile(case, setting)
        folder = suite.folder / f"epoch-{setting[0]}"
        samples = folder.with_suffix(".samples")
        log, _, outcome = suite.train(
            plan, *("--tokens", poison.batches({4}, 9), "--token-type", "uint16"),
            *("--weights", poison.weights, "--epochs", 1, "--threads", 1),
            *("--on-nan", "rollback", "--lr-schedule", "linear"),
            *("--checkpoint", folder, "--checkpoint-every", 2),
            *("--log-samples", samples),
        )
        # Without batches 3, which the checkpoint lacks, and 4.
        steps = [x["step"] for x in log]
        require(steps == [1, 2, 3, 4, 3, 4, 5, 6, 7], steps)
        rates = [x["lr"] for x in log[-5:]]
        close = [1e-3 * (1 - step / 7) for step in range(2, 7)]
        require(all(math.isclose(*x, rel_tol=1e-6) for x in zip(rates, close)), rates)
        lines = samples.read_text().splitlines()
        read = [x[1] for line in lines for x in json.loads(line)["samples"]]
        require(read == list(range(9 * BATCH)), read)
        require(outcome.stderr.count(" end with step 7\n") == 1, outcome.stderr)

    def decays_in_what_is_left():
        """Warm-up and decay were all of the epoch, until batches were left out."""
        plan = suite.compile(case, ("1",))
        log, _, _ = suite.train(
            plan, *("--tokens", poison.batches({4}, 9), "--token-type", "uint16"),
            *("--weights", poison.weights, "--epochs", 1, "--threads", 1),
            *("--lr-schedule", "wsd", "--warmup-steps", 2, "--decay-steps", 7),
            *("--on-nan", "rollback", "--checkpoint", suite.folder / "left"),
            *("--checkpoint-every", 2),
        )
        rates = [x["lr"] for x in log[4:]]
        left = [(1 + math.cos(math.pi * step / 5)) / 2e3 for step in range(5)]
        require(len(rates) == 5, rates)
        require(all(math.isclose(*x, rel_tol=1e-6) for x in zip(rates, left)), rates)

    def ends_where_it_went_back_to():
        """With the last batches undone nothing is left to do. What is said and
        shown at the end is not of the steps that were undone."""
        plan = suite.compile(case, ("1",))
        page = suite.folder / "went-back.html"
        log, _, outcome = suite.train(
            plan, *("--tokens", poison.batches({3}, 3), "--token-type", "uint16"),
            *("--weights", poison.weights, "--epochs", 1, "--threads", 1),
            *("--on-nan", "rollback", "--checkpoint", suite.folder / "went-back"),
            *("--checkpoint-every", 2, "--dashboard", page),
        )
        require([x["step"] for x in log] == [1, 2, 3], log)
        require(outcome.stdout.startswith("2 steps, "), outcome.stdout)
        require("loss" not in outcome.stdout, outcome.stdout)
        shown = read_page(page)
        require((shown["step"], shown["steps"]) == (2, 2), shown["step"])

    def spiking(bad, steps, without=False):
        size, tokens = BATCH * SEQUENCE, []
        for batch in range(1, 15):
            part = [1] + [3] * (size - 1)
            if batch in bad:
                part[1:] = [i * i % 90 for i in range(1, size)]
            if not (without and batch in bad):
                tokens += part
        path = write_list(suite.folder / f"spiking-{without}.bin", tokens + [1])
        more = ("--on-spike", "rollback", "--spike-steps", 4)
        return (
            *("--tokens", path, "--token-type", "uint16", "--steps", steps),
            *("--weights", GOLDEN / case / "model.safetensors", "--threads", 1),
            *(() if without else more),
        )

    def does_not_roll_back(bad, message):
        def body():
            plan = suite.compile(case, ("1",))
            folder = suite.folder / f"never-{len(list(suite.folder.iterdir()))}"
            error = suite.fail(
                plan, *poisoned(bad, 14), *("--checkpoint", folder),
                *("--checkpoint-every", 2),
            )
            require(re.search(message, error) is not None, error)

        return body

    def spiky():
        """A token over and over, then others."""
        size = BATCH * SEQUENCE
        tokens = [3] * (10 * size) + [i * i % 90 for i in range(size)]
        return write_list(suite.folder / "spiky.bin", tokens + [3] * (2 * size + 1))

    def spikes():
        plan = suite.compile(case, ("1",))
        weights = GOLDEN / case / "model.safetensors"
        options = (
            *("--tokens", spiky(), "--token-type", "uint16"),
            *("--weights", weights, "--steps", "12"),
            *("--spike-steps", "5", "--spike-deviations", "4"),
        )
        log, _, outcome = suite.train(
            plan, *options, "--on-spike", "report", save=False
        )
        losses = [x["loss"] for x in log]
        expected = []
        for step in range(6, 13):
            before = losses[step - 6 : step - 1]
            mean = sum(before) / 5
            deviation = math.sqrt(sum((x - mean) ** 2 for x in before) / 5)
            if losses[step - 1] > mean + 4 * deviation:
                expected.append(step)
        found = [int(x) for x in re.findall(r"step (\d+): the loss", outcome.stderr)]
        require(found == expected and 11 in found, f"{found}, {expected}")
        error = suite.fail(plan, *options, "--on-spike", "stop")
        require(error.startswith("step 11: the loss is "), error)
        return f"reported {found}"

    for setting in SETTINGS:
        name = "/".join(x.lstrip("-") for x in setting)
        suite.report.case(f"skip/{name}", lambda s=setting: skip_is_exact(s))
    for setting in (SETTINGS[0], SETTINGS[3], SETTINGS[6]):
        # With the bad batches those that go with them: there are checkpoints
        # after every second step, of those that count.
        for kind, *more in (
            ("nan", poisoned, {4}, {3, 4}),
            ("twice", poisoned, {3, 9}, {3, 8, 9}),
            ("spike", spiking, {8}, {7, 8}),
        ):
            suite.report.case(
                f"roll-back/{kind}/{setting[0]}",
                lambda x=(setting, *more): roll_back_is_exact(*x),
            )
        suite.report.case(
            f"roll-back/epoch/{setting[0]}", lambda s=setting: ends_with_the_data(s)
        )
    suite.report.case("roll-back/short-decay", decays_in_what_is_left)
    suite.report.case("roll-back/to-the-end", ends_where_it_went_back_to)
    suite.report.case(
        "roll-back/too-early",
        does_not_roll_back({1}, "step 1: there is no checkpoint in .* yet$"),
    )
    suite.report.case(
        "roll-back/for-ever",
        does_not_roll_back(
            set(range(3, 15)),
            "step 3: the run has gone back to step 2 10 times, in vain$",
        ),
    )
    suite.report.case("stop", stops)
    suite.report.case("skip-for-ever", does_not_skip_for_ever)
    suite.report.case("spikes", spikes)
