#!/usr/bin/env python3
#===- golden_runs.py - Runs that files of test/Training lack -*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Training runs whose point is not how a step is spread: weights of other names or in
several files, state that is divided with the bits of state that is not, a sequence of
8,192 tokens in a part of the memory, and a model that knows its data by heart."""

import json
import pathlib
import re
import sys
import tempfile

from harness import GOLDEN, Reporter, Tools, arguments, require
from tensors import read_safetensors, split_weights, write_safetensors
from train import CHOICES, Case, Suite
from training_files import read_test

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

# Of losses beside PyTorch's: sums in another order.
TOLERANCE = 1e-4
# Of one rank's loss: the same sums of other parts of a sequence.
ONE_RANK_TOLERANCE = 1e-6
TEXT = """
model test/golden/{}
against pytorch
layout {}
"""


class Runs:
    def __init__(self, tools: Tools, report: Reporter):
        self.tools, self.report = tools, report

    def add(self, name: str, model: str, layouts: tuple[str, ...], body) -> None:
        """A case, whose `body` takes what trains and the case of each layout."""

        def run() -> str | None:
            text = TEXT.format(model, "\nlayout ".join(layouts))
            test = read_test(pathlib.Path(name), CHOICES, text)
            with tempfile.TemporaryDirectory() as folder:
                suite = Suite(self.tools, test, pathlib.Path(folder))
                return body(suite, [Case(test, 0, layout) for layout in test.layouts])

        self.report.case(f"{model}/{name}", run)

    def add_weights(self, name: str, model: str, write) -> None:
        """PyTorch's losses from weights that `write` leaves in a folder."""

        def body(suite: Suite, cases: list[Case]) -> str:
            inputs = suite.models[0] / "model.safetensors"
            weights = write(inputs, suite.folder)
            plan = suite.folder / "a.plan"
            suite.compile(cases[0], plan)
            found = suite.train(cases[0], plan, more=("--weights", weights))
            golden = json.loads((GOLDEN / model / "golden.json").read_text())
            rows = compare.differences(golden["steps"], found.steps)
            off = max(row[key] for row in rows for key in compare.KEYS)
            require(off <= TOLERANCE, f"off {off:.2g}")
            return f"off {off:.2g}"

        self.add(name, model, ("1",), body)


def write_without_prefix(weights: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """GPT-2 files name tensors h.0… as well as transformer.h.0…"""
    header, data = read_safetensors(weights)
    header = {key.removeprefix("transformer."): value for key, value in header.items()}
    write_safetensors(folder / "short.safetensors", header, data)
    return folder / "short.safetensors"


def write_several(weights: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Weights in two files with an index, given as their folder."""
    parts = folder / "parts"
    parts.mkdir()
    split_weights(weights, parts)
    return parts


def check_divided_alike(suite: Suite, cases: list[Case]) -> None:
    """All reductions add in the order of the ranks, and what is done to an element is
    the same. (The norm adds up squares in another order: nothing is clipped here.)"""
    saved = []
    for case in cases:
        plan = suite.folder / "a.plan"
        suite.compile(case, plan)
        saved.append(suite.train(case, plan, more=("--grad-clip", 0)).content)
    require(saved[0] == saved[1], "fp32 weights differ")
    require(saved[2] == saved[3], "bf16 weights differ")


def check_long_sequence(tools: Tools, kind: str, heads: int, groups: int) -> str:
    """One layer of Llama on a sequence of 8,192 tokens: eight ranks of cp have the loss
    of one rank in less than a quarter of its memory. (Of 65,536 tokens with four heads
    in two groups, gathered, in 90,607,872 instead of 515,707,136 bytes.)"""
    length = 8192
    config = json.loads((GOLDEN / "llama-small-test" / "config.json").read_text()) | {
        "num_attention_heads": heads, "num_key_value_heads": groups,
        "intermediate_size": 128, "num_hidden_layers": 1, "vocab_size": 256,
        "max_position_embeddings": length,
    }  # fmt: skip
    losses, arenas = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "text").write_bytes(bytes(x * x % 251 for x in range(length + 1)))
        for size in (1, 8):
            plan, log = folder / f"{size}.plan", folder / f"{size}.jsonl"
            tools.run(
                "plaitc", folder, "--mesh", f"cp={size}", "--attention", "flash",
                "--no-reference", "--context-parallel", kind,
                "--global-batch", 1, "--seq", length, "-o", plan,
            )  # fmt: skip
            tools.run("plait-run", plan, "--text", folder / "text", "--steps", 1, "--log", log)
            shown = tools.run("plait-plan", "show", plan).stdout
            match = re.search(r"^ +arena .* (\d+) bytes$", shown, re.MULTILINE)
            arenas.append(int(match[1]))
            losses.append(compare.read_steps(str(log))[0]["loss"])
    require(4 * arenas[1] < arenas[0], f"arenas of {arenas} bytes a rank")
    off = compare.relative(losses[1], losses[0])
    require(off <= ONE_RANK_TOLERANCE, f"losses {losses}")
    return f"arenas {arenas}, one rank off {off:.2g}"


def check_certain(tools: Tools) -> str:
    """A model that knows its data by heart: what is left of probabilities next to 1 is
    rounded at the size of 1, which is no difference; a loss of zero is nothing to
    compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan, data = folder / "out.plan", folder / "same.bin"
        tools.run(
            "plaitc", GOLDEN / "gpt2-small-test", "--mesh", "dp=2,tp=2", "--seq", 32,
            "--global-batch", 4, "--dropout", "off", "-o", plan,
        )  # fmt: skip
        data.write_bytes(bytes(4096))
        options = ["--tokens", data, "--token-type", "uint16"]

        def check(steps: int):
            weights = folder / f"after-{steps}"
            tools.run("plait-run", plan, *options, "--steps", steps,
                      "--lr", "0.01", "--save", weights)  # fmt: skip
            return tools.call("plait-run", plan, *options, "--weights", weights, "--check")

        known = [check(steps) for steps in (11, 14)]
        for outcome in known:
            require(outcome.code == 0, outcome.stdout + outcome.stderr)
        certain = check(40)
        require(certain.code != 0, certain.stdout)
        require("nothing to compare" in certain.stderr, certain.stderr)
        return known[0].stdout.strip().split("\n")[-1]


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("golden-runs", options.filter)
    runs = Runs(tools, report)
    runs.add_weights("weights-without-prefix", "gpt2-small-test", write_without_prefix)
    runs.add_weights("weights-in-two-files", "llama-small-test", write_several)
    layouts = [f"dp=4 --zero {zero}" for zero in (0, 1)]
    layouts += [f"{layout} --precision bf16" for layout in layouts]
    for model in ("gpt2-small-test", "llama-small-test"):
        runs.add("zero-1-and-zero-0-alike", model, tuple(layouts), check_divided_alike)
    for kind, heads, groups in (("gather", 4, 2), ("heads", 8, 8), ("zigzag", 4, 2)):
        report.case(
            f"8192-tokens/{kind}",
            lambda given=(kind, heads, groups): check_long_sequence(tools, *given),
        )
    report.case("certain", lambda: check_certain(tools))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
