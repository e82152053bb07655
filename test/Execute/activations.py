#!/usr/bin/env python3
#===- activations.py - What a layer keeps, against theory --*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Table 2 of Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
Transformer Models", read from plans: the bytes that a layer of the paper's models
keeps of a microbatch, which are those of a plan of three layers less those of one
of two. The paper's figure, less what plans do not keep, has to be there to the byte;
beside it are only weights of norms that ranks of tp have gathered and what the paper
neglects, the statistics of norms and attention, less than 1 % of the row."""

import json
import pathlib
import re
import sys
import tempfile

from harness import ROOT, Reporter, Tools, arguments, require

NANO = ROOT / "examples" / "models" / "gpt2-nano" / "config.json"
RESIDUAL = re.compile(
    r'plan\.buffer @"residuals \d+ of stage \d+, microbatch 0"\s+'
    r"activations at \d+ bytes (\d+)"
)
TENSOR = 8
# Table 3: hidden size, heads, sequences of a microbatch.
MODELS = {
    "22B": (6144, 64, 4),
    "175B": (12288, 96, 1),
    "530B": (20480, 128, 1),
    "1T": (25600, 160, 1),
}
SEQUENCE = 2048


class Layer:
    """The formulas of a layer, in bytes. With `parallel` the ranks of tp divide the
    sequence where they do not divide anything else: `t` is 1 there without."""

    def __init__(self, model: str, parallel: bool):
        self.hidden, self.heads, self.batch = MODELS[model]
        self.sbh = SEQUENCE * self.batch * self.hidden
        self.apart = TENSOR if parallel else 1

    def scores(self) -> float:
        """Softmax and dropout of the scores: 2 bytes each, and a mask of 1."""
        square = self.heads * SEQUENCE * SEQUENCE * self.batch
        return 5 * square / TENSOR

    def whole(self) -> float:
        """Between the products: inputs of both norms, of both blocks, and two
        masks of a byte."""
        return 10 * self.sbh / self.apart

    def divided(self) -> float:
        """Q, K, V, what attention returns, in front of GELU and behind it."""
        return 24 * self.sbh / TENSOR

    def statistics(self, norms: int) -> float:
        """In 4 bytes: mean and deviation of a token, one number of a row of
        scores."""
        tokens = SEQUENCE * self.batch
        return 4 * (
            2 * norms * tokens / self.apart + tokens * self.heads / TENSOR
        )

    def masks(self) -> float:
        return 2 * self.sbh / self.apart

    def norms(self) -> float:
        return 4 * self.sbh / self.apart

    def gelu(self) -> float:
        return 8 * self.sbh / TENSOR


# Row: options, the paper's bytes, what a plan does without, the rest.
# Masks are drawn again from the position of an element, and what has a dropout
# behind it is computed again with them; scores are computed again from one number a
# row. What "selective" computes again is all that is cheap, not the scores alone.
ROWS = {
    "tensor": (
        (),
        lambda x: x.whole() + x.divided() + x.scores(),
        lambda x: x.masks() + x.scores(),
        lambda x: x.statistics(2),
    ),
    "selective": (
        ("--recompute", "selective"),
        lambda x: x.whole() + x.divided(),
        lambda x: x.masks() + x.norms() + x.gelu(),
        lambda x: x.statistics(0),
    ),
    "full": (
        ("--recompute", "full"),
        # The paper keeps the input whole on each rank of tp.
        lambda x: 2 * x.sbh,
        lambda x: 2 * x.sbh * (1 - 1 / x.apart),
        lambda x: 0,
    ),
}


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder

    def count(self, layer: Layer, layers: int, options) -> tuple[int, int]:
        """Bytes that a microbatch keeps on a rank, and those of weights among
        them."""
        config = json.loads(NANO.read_text()) | {
            "n_layer": layers,
            "n_embd": layer.hidden,
            "n_head": layer.heads,
            "n_positions": SEQUENCE,
            "vocab_size": 51200,
            "attn_pdrop": 0.1,
            "resid_pdrop": 0.1,
            "embd_pdrop": 0.1,
        }
        (self.folder / "config.json").write_text(json.dumps(config))
        self.tools.run(
            *("plaitc", self.folder, "--mesh", f"tp={TENSOR}", *options),
            *("--backend", "cuda", "--precision", "bf16"),
            *("--attention", "unfused", "--global-batch", layer.batch),
            *("--micro-batch", layer.batch, "--seq", SEQUENCE),
            *("--compile-to", "lower", "-o", self.folder / "x.mlir"),
        )
        text = (self.folder / "x.mlir").read_text()
        weight = rf"tensor<{layer.hidden}xbf16> {{pipe.port = #pipe.port<residual"
        backward = text[text.index("func.func @backward_0") :].split("\n")[0]
        return (
            sum(map(int, RESIDUAL.findall(text))),
            2 * layer.hidden * backward.count(weight),
        )

    def check(self, model: str, row: str, parallel: bool) -> str:
        options, paper, without, beside = ROWS[row]
        if parallel:
            options = (*options, "--sequence-parallel")
        layer = Layer(model, parallel)
        two, three = (self.count(layer, n, options) for n in (2, 3))
        kept, weights = three[0] - two[0], three[1] - two[1]
        rest = kept - (paper(layer) - without(layer))
        require(
            rest == beside(layer) + weights,
            f"keeps {kept}, {rest:g} more than the paper's {paper(layer):g} less "
            f"{without(layer):g}; expected {beside(layer):g}",
        )
        require(
            rest < 0.01 * paper(layer),
            f"what the paper neglects is {100 * rest / paper(layer):.2f} %",
        )
        return (
            f"{kept / 2**20:.1f} MiB of {paper(layer) / 2**20:.1f}, without "
            f"{without(layer) / 2**20:.1f}"
        )


def main() -> int:
    options = arguments(__doc__).parse_args()
    report = Reporter("activations", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(Tools(options.bin, options.timeout), pathlib.Path(folder))
        for model in MODELS:
            for row in ROWS:
                for parallel in (False, True):
                    name = f"{model}/{row}{'+sequence' if parallel else ''}"
                    report.case(
                        name, lambda: suite.check(model, row, parallel)
                    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
