#!/usr/bin/env python3
#===- feedback.py - What compression does to training -----*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The textbook's example of error feedback (Karimireddy et al. 2019; Stich et al.
2018): softmax regression in the nn dialect, which is convex, on two replicas whose
samples differ. All samples are in each step, so that the uncompressed gradient
vanishes at the minimum, and those of the replicas do not. What is compressed alone
then stays away from it, and with error feedback goes where SGD goes.

Then the same on eight replicas with one sequence each in a step, so that gradients are
noisy (Huang et al. 2022, where NEOLITHIC is from, compare so): with error feedback,
compressed both ways, or in rounds, noise averages out over replicas as in SGD, and EF21's
does not, unless batches are larger. Losses are numpy's there, of weights that were saved.

--draw FOLDER writes pictures of it: docs/images/feedback.svg and feedback-noise.svg are
`test/Execute/feedback.py --draw docs/images`."""

import json
import pathlib
import random
import struct
import sys
import tempfile

import numpy

from checkpoint_suite import read_checkpoint
from harness import Reporter, Tools, arguments, require
from pictures import Line, draw

FEATURES, CLASSES, BATCH, SEQUENCE = 16, 64, 8, 32
RATE, STEPS, LONG = 1.0, 300, 3000
MODEL = f"""
module attributes {{plait.model = {{layers = 1 : i64, model_type = "regression",
    name = "regression", vocab = {CLASSES} : i64}}}} {{
  nn.parameter @features : tensor<{CLASSES}x{FEATURES}xf32> init<mean = 0.0, std = 1.0>
  nn.parameter @weights : tensor<{FEATURES}x{CLASSES}xf32> init<mean = 0.0, std = 0.0>

  func.func @loss(%tokens: tensor<8x32xi32>, %targets: tensor<8x32xi32>)
      -> (tensor<f32>, tensor<f32>) {{
    %table = nn.read @features value : tensor<{CLASSES}x{FEATURES}xf32>
    %given = nn.stop_gradient %table : tensor<{CLASSES}x{FEATURES}xf32>
    %x = nn.embedding %given, %tokens : (tensor<{CLASSES}x{FEATURES}xf32>, tensor<8x32xi32>) -> tensor<8x32x{FEATURES}xf32>
    %w = nn.read @weights value {{nn.layer = 0}} : tensor<{FEATURES}x{CLASSES}xf32>
    %logits = nn.matmul %x, %w "bsh,hv->bsv" {{nn.layer = 0}} : (tensor<8x32x{FEATURES}xf32>, tensor<{FEATURES}x{CLASSES}xf32>) -> tensor<8x32x{CLASSES}xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<8x32x{CLASSES}xf32>, tensor<8x32xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }}
}}
"""
# Of 64 elements 3 are sent, 5 %.
SCHEMES = ("sign:64", "topk:64+keep:3", "int4:64")
# Sums are sent so as well: "+both".
BOTH = ("sign:64", "topk:64+keep:3")
# These need no feedback, or repair what is divided so that errors do not grow.
ALONE = ("ef21-topk:64+keep:3", "qsgd4:64", "qsgd2:64+feedback")
# In rounds, of as many bytes as one of 3 elements, and of more.
ROUNDS = ("topk:64+keep:1+feedback+rounds:3", "topk:64+keep:3+feedback+rounds:3",
          "sign:64+feedback+rounds:2")  # fmt: skip
# Schemes that are as good as SGD with small batches, and one that is not.
AVERAGING = ("topk:64+keep:3+feedback", "topk:64+keep:3+feedback+both",
             "topk:64+keep:1+feedback+rounds:3")  # fmt: skip
EF21 = "ef21-topk:64+keep:3"
SAMPLES, SMALL, LARGE, SMALL_STEPS, SMALL_RATE, EACH = 256, 8, 256, 400, 0.5, 10
COLORS = {
    "none": "#444444",
    "sign:64": "#c0392b",
    "topk:64+keep:3": "#2471a3",
    "int4:64": "#1e8449",
}


def train(tools: Tools, folder: pathlib.Path, scheme: str, mesh: str, batch: int, *options):
    """Trains the model of the folder, on the tokens that are there."""
    plan = folder / "run.plan"
    tools.run(
        "plaitc", folder / "model.mlir", "--mesh", mesh, "--no-reference",
        "--global-batch", batch, "--seq", SEQUENCE, "--optimizer", "sgd",
        "--compress", scheme, "-o", plan,
    )  # fmt: skip
    tools.run(
        "plait-run", plan, "--tokens", folder / "tokens.bin", "--token-type", "uint16",
        "--beta1", 0, "--weight-decay", 0, "--grad-clip", 0, "--threads", 1, *options,
    )  # fmt: skip


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        (folder / "model.mlir").write_text(MODEL)
        # The first replica has no token of the upper half.
        draw = random.Random(1)
        half = BATCH // 2 * SEQUENCE
        tokens = [draw.randrange(CLASSES // 2) for _ in range(half)]
        tokens += [draw.randrange(CLASSES) for _ in range(half + 1)]
        data = struct.pack(f"<{len(tokens)}H", *tokens)
        (folder / "tokens.bin").write_bytes(data)
        self.known: dict[tuple[str, int], list[float]] = {}

    def train(self, scheme: str, steps: int = STEPS) -> list[float]:
        """The loss before each step."""
        if (scheme, steps) in self.known:
            return self.known[scheme, steps]
        log = self.folder / "log"
        train(
            self.tools, self.folder, scheme, "dp=2", BATCH,
            "--lr", RATE, "--steps", steps, "--log", log,
        )  # fmt: skip
        lines = log.read_text().splitlines()
        log.unlink()
        records = [json.loads(line) for line in lines]
        losses = [record["loss"] for record in records if "loss" in record]
        require(len(losses) == steps, f"{len(losses)} losses of {steps} steps")
        self.known[scheme, steps] = losses
        return losses

    def get_gaps(self, scheme: str) -> list[float]:
        """How far each loss is from the least one that SGD has found."""
        least = self.train("none", LONG)[-1]
        return [loss - least for loss in self.train(scheme)]

    def check(self, scheme: str, both: str = "") -> str:
        """With feedback within a tenth of SGD's gap, and closer than without."""
        plain = self.get_gaps("none")[-1]
        alone, repaired = (
            self.get_gaps(scheme + more + both)[-1] for more in ("", "+feedback")
        )
        text = f"off by {alone:.3f} alone, {repaired:.3f} repaired, {plain:.3f} as it is"
        require(abs(repaired - plain) < 0.1 * plain, text)
        # Nearly all of a gradient is in four bits.
        require(alone > 2 * plain or scheme.startswith("int"), text)
        return text

    def check_alone(self, scheme: str) -> str:
        plain, alone = self.get_gaps("none")[-1], self.get_gaps(scheme)[-1]
        text = f"off by {alone:.3f}, {plain:.3f} as it is"
        require(abs(alone - plain) < 0.1 * plain, text)
        return text

    def draw(self, folder: pathlib.Path) -> None:
        """Dashed without feedback."""
        lines = {"none": Line(self.get_gaps("none"), COLORS["none"])}
        for scheme in SCHEMES:
            for more in ("", "+feedback"):
                gaps = self.get_gaps(scheme + more)
                lines[scheme + more] = Line(gaps, COLORS[scheme], dashed=not more)
        text = draw(lines, (0.25, 0.5, 1, 2, 4), every=3, axis=100)
        (folder / "feedback.svg").write_text(text)


class SmallBatches:
    """Tokens follow each other by chance, and samples are shuffled."""

    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        folder.mkdir()
        (folder / "model.mlir").write_text(MODEL)
        draw = numpy.random.RandomState(3)
        odds = numpy.exp(1.5 * draw.standard_normal((CLASSES, CLASSES)))
        odds = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
        tokens = [0]
        for chance in draw.random_sample(SAMPLES * SEQUENCE):
            tokens.append(min(int((chance > odds[tokens[-1]]).sum()), CLASSES - 1))
        numpy.array(tokens, "<u2").tofile(folder / "tokens.bin")
        # How often one token follows another.
        self.pairs = numpy.zeros((CLASSES, CLASSES))
        numpy.add.at(self.pairs, (tokens[:-1], tokens[1:]), 1 / (len(tokens) - 1))
        self.least: float | None = None
        self.known: dict[tuple[str, int], list[float]] = {}

    def measure(self, features, weights):
        """The loss of all samples, and its gradient."""
        scores = features @ weights
        scores = scores - scores.max(axis=1, keepdims=True)
        scores = scores - numpy.log(numpy.exp(scores).sum(axis=1, keepdims=True))
        often = self.pairs.sum(axis=1, keepdims=True)
        gradient = features.T @ (often * numpy.exp(scores) - self.pairs)
        return -(self.pairs * scores).sum(), gradient

    def find_least(self, features) -> float:
        """Descends by gradients of all samples, with momentum: it is convex."""
        weights, momentum = numpy.zeros((FEATURES, CLASSES)), 0.0
        for _ in range(6000):
            loss, gradient = self.measure(features, weights)
            momentum = 0.9 * momentum + gradient
            weights = weights - momentum
        return loss

    def get_gaps(self, scheme: str, batch: int = SMALL) -> list[float]:
        """How far the loss of all samples is from the least one, at the beginning and
        every few steps."""
        if (scheme, batch) in self.known:
            return self.known[scheme, batch]
        kept = self.folder / f"kept-{len(self.known)}"
        train(
            self.tools, self.folder, scheme, "dp=8", batch, "--shuffle",
            "--lr", SMALL_RATE, "--steps", SMALL_STEPS, "--checkpoint", kept,
            "--checkpoint-every", EACH,
        )  # fmt: skip
        gaps = []
        for step in range(EACH, SMALL_STEPS + 1, EACH):
            _, slots = read_checkpoint(kept / f"step-{step:08}")
            features, weights = (
                slots[name, "weight"].astype(float) for name in ("features", "weights")
            )
            if self.least is None:
                self.least = self.find_least(features)
            if not gaps:
                gaps.append(self.measure(features, 0 * weights)[0] - self.least)
            gaps.append(self.measure(features, weights)[0] - self.least)
        self.known[scheme, batch] = gaps
        return gaps

    def check(self, scheme: str) -> str:
        """Within a tenth of SGD's gap on the same samples."""
        plain, compressed = (self.get_gaps(x)[-1] for x in ("none", scheme))
        text = f"off by {compressed:.4f}, {plain:.4f} as it is"
        require(abs(compressed - plain) < 0.1 * plain, text)
        return text

    def check_ef21(self) -> str:
        """Its noise is for the batch to average, not for replicas."""
        plain, small = (self.get_gaps(x)[-1] for x in ("none", EF21))
        large = self.get_gaps(EF21, LARGE)[-1]
        text = f"off by {small:.4f}, of larger batches {large:.4f}, {plain:.4f} as it is"
        require(small > 4 * plain and large < small / 2, text)
        return text

    def draw(self, folder: pathlib.Path) -> None:
        colors = ("#444444", "#2471a3", "#1e8449", "#b7950b")
        lines = {
            scheme: Line(self.get_gaps(scheme), color)
            for scheme, color in zip(("none", *AVERAGING), colors)
        }
        lines[EF21] = Line(self.get_gaps(EF21), "#c0392b")
        lines[f"{EF21}, batch {LARGE}"] = Line(self.get_gaps(EF21, LARGE), "#c0392b", dashed=True)
        text = draw(lines, (0.03, 0.1, 0.3), every=1, axis=10, unit=EACH)
        (folder / "feedback-noise.svg").write_text(text)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--draw", type=pathlib.Path, help="write pictures and end")
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("feedback", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, pathlib.Path(folder))
        noisy = SmallBatches(tools, pathlib.Path(folder) / "small")
        if options.draw:
            suite.draw(options.draw)
            noisy.draw(options.draw)
            return 0
        for scheme in SCHEMES:
            report.case(scheme, lambda scheme=scheme: suite.check(scheme))
        for scheme in BOTH:
            report.case(
                scheme + "+both", lambda scheme=scheme: suite.check(scheme, "+both")
            )
        for scheme in ALONE + ROUNDS:
            report.case(scheme, lambda scheme=scheme: suite.check_alone(scheme))
        for scheme in AVERAGING:
            report.case(f"small/{scheme}", lambda scheme=scheme: noisy.check(scheme))
        report.case("small/ef21", noisy.check_ef21)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
