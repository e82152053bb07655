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

--draw writes the losses as a picture: docs/images/feedback.svg is
`test/Execute/feedback.py --draw docs/images/feedback.svg`."""

import json
import pathlib
import random
import struct
import sys
import tempfile

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
COLORS = {
    "none": "#444444",
    "sign:64": "#c0392b",
    "topk:64+keep:3": "#2471a3",
    "int4:64": "#1e8449",
}


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
        plan, log = self.folder / "run.plan", self.folder / "log"
        self.tools.run(
            "plaitc", self.folder / "model.mlir", "--mesh", "dp=2", "--no-reference",
            "--global-batch", BATCH, "--seq", SEQUENCE, "--optimizer", "sgd",
            "--compress", scheme, "-o", plan,
        )  # fmt: skip
        self.tools.run(
            "plait-run", plan, "--tokens", self.folder / "tokens.bin",
            "--token-type", "uint16", "--lr", RATE, "--beta1", 0,
            "--weight-decay", 0, "--grad-clip", 0, "--steps", steps,
            "--threads", 1, "--log", log,
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

    def draw(self, path: pathlib.Path) -> None:
        """Dashed without feedback."""
        lines = {"none": Line(self.get_gaps("none"), COLORS["none"])}
        for scheme in SCHEMES:
            for more in ("", "+feedback"):
                gaps = self.get_gaps(scheme + more)
                lines[scheme + more] = Line(gaps, COLORS[scheme], dashed=not more)
        path.write_text(draw(lines, (0.25, 0.5, 1, 2, 4), every=3, axis=100))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--draw", type=pathlib.Path, help="write a picture and end")
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("feedback", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, pathlib.Path(folder))
        if options.draw:
            suite.draw(options.draw)
            return 0
        for scheme in SCHEMES:
            report.case(scheme, lambda scheme=scheme: suite.check(scheme))
        for scheme in BOTH:
            report.case(
                scheme + "+both", lambda scheme=scheme: suite.check(scheme, "+both")
            )
        for scheme in ALONE + ROUNDS:
            report.case(scheme, lambda scheme=scheme: suite.check_alone(scheme))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
