#!/usr/bin/env python3
#===- documents.py - Attention within documents ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains GPT-2 and Llama on samples that hold several documents, over meshes and
options, and in PyTorch in fp64: by scaled_dot_product_attention with a mask that is
written out, and, since rotary positions count differences, Llama on each document
alone. Loss and gradient norm agree for three steps. Other masks would not pass.

Runs under an interpreter with PyTorch and NumPy, Debian's."""

import functools
import pathlib
import random
import struct
import sys
import tempfile

import torch

import covering
from harness import Reporter, Tools, arguments, require
from masks import models, training
from masks.runs import (
    BATCH,
    BF16,
    FLASH,
    FULL,
    HEADS,
    SEQUENCE,
    SP,
    STEPS,
    TOLERANCE,
    VOCABULARY,
    ZIGZAG,
    Run,
    RunSuite,
)
from masks.training import draw_weights, excess

END = 5
MODELS = models.WITHOUT_DROPOUT


RUNS = (
    *(
        Run(model, mesh, options)
        for model in MODELS
        for mesh, options in (
            ("pp=1", ()),
            ("pp=1", FLASH),
            ("pp=1", FULL + FLASH + BF16),
            ("pp=2", FULL),
            ("dp=2", FLASH),
            ("tp=2", SP),
            ("cp=2", ()),
            ("cp=4", FLASH),
            ("pp=2,dp=2,tp=2", SP + ("--zero", "2")),
        )
    ),
    Run("gpt2", "pp=1", BF16),
    Run("gpt2", "pp=2", FLASH + ("--schedule", "zb-v", "--chunks", "2")),
    Run("gpt2", "pp=1", ("--micro-batch", "4", "--recompute", "selective")),
    Run("gpt2", "tp=4", FLASH),
    Run("llama", "dp=2,cp=2,tp=2", FLASH + FULL),
    Run("gpt2", "cp=4", HEADS),
    Run("llama", "dp=2,cp=2", HEADS + FLASH + FULL),
    Run("llama", "cp=2,tp=2", HEADS),
    Run("gpt2", "cp=4", ZIGZAG),
    Run("gpt2", "pp=2,cp=2", ZIGZAG + FLASH),
    Run("llama", "dp=2,cp=2", ZIGZAG + FLASH + FULL),
    Run("llama", "cp=2,tp=2", ZIGZAG + SP),
)


def find_starts(tokens: list[int]) -> list[int]:
    """Where the document of each token begins."""
    starts, start = [], 0
    for position, token in enumerate(tokens):
        starts.append(start)
        if token == END:
            start = position + 1
    return starts


def attention(q, k, v, seen):
    """PyTorch's own, which had another name before PyTorch 2."""
    functional = torch.nn.functional
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return functional._scaled_dot_product_attention(q, k, v, attn_mask=seen)[0]


def attend_within(starts: torch.Tensor):
    """An attention whose queries see no key before `starts` [batch, position]."""
    position = torch.arange(starts.shape[1])
    seen = position <= position[:, None]
    seen = seen & (position >= starts[:, :, None])

    def attend(q, k, v, probability, drop):
        k, v = (x[:, :, None].expand_as(q) for x in (k, v))
        mask = seen[:, None, None].expand(*q.shape[:3], -1, -1)
        out = drop(attention(q, k, v, mask), probability)
        batch, groups, shared, length, size = out.shape
        heads = out.reshape(batch, groups * shared, length, size)
        return heads.transpose(1, 2).reshape(batch, length, -1)

    return attend


def masked(config: dict, find=find_starts):
    def forward(weights: dict, step: int, tokens) -> torch.Tensor:
        starts = torch.tensor([find(row.tolist()) for row in tokens])
        attend = attend_within(starts)
        return models.logits(config, weights, tokens, models.keep, attend)

    return forward


def alone(config: dict):
    """Each document is a sequence of its own."""

    def forward(weights: dict, step: int, tokens) -> torch.Tensor:
        rows = []
        for row in tokens:
            parts = []
            starts = find_starts(row.tolist())
            for start in sorted(set(starts)):
                end = start + starts.count(start)
                attend = attend_within(torch.zeros(1, end - start))
                document = row[None, start:end]
                parts.append(models.logits(config, weights, document, models.keep, attend))
            rows.append(torch.cat(parts, 1))
        return torch.cat(rows)

    return forward


# Starts that are not what they are to be.
MISTAKES = {
    "none": lambda tokens: [0] * len(tokens),
    "the end begins": lambda tokens: [
        position if token == END else start
        for position, (token, start) in enumerate(
            zip(tokens, find_starts(tokens[1:] + [0]))
        )
    ],
    "the row before": lambda tokens: find_starts(tokens[::-1]),
}


class Suite(RunSuite):
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        super().__init__(tools, report, folder, MODELS)
        # Documents of 5 tokens on average, some of their end alone.
        source = random.Random(5)
        self.tokens = [
            END if source.random() < 0.2 else source.randrange(VOCABULARY)
            for _ in range(STEPS * BATCH * SEQUENCE + 1)
        ]
        packed = struct.pack(f"<{len(self.tokens)}H", *self.tokens)
        (folder / "tokens.bin").write_bytes(packed)

    def train(self, model: str, forward) -> list[dict]:
        batches = training.cut(self.tokens, STEPS, BATCH, SEQUENCE)
        return training.train(draw_weights(MODELS[model]), batches, forward)

    @functools.cache
    def expected(self, model: str) -> list[dict]:
        return self.train(model, masked(MODELS[model]))

    #===-- Cases ----------------------------------------------------------===#

    def check_run(self, run: Run) -> str:
        plan = self.compile(run, "--document-mask", "--no-reference")
        found = self.steps(run, plan, "--document-end", END)
        return self.compare(run, found)

    def check_alone(self) -> str:
        """Packed, a document trains as it does alone."""
        found = self.train("llama", alone(MODELS["llama"]))
        off = excess(found, self.expected("llama"), TOLERANCE)
        # Both in fp64.
        require(off <= 1e-6, f"{off:.3g} of what is allowed")
        return f"{off:.2g} of what is allowed"

    def check_mistake(self, model: str, mistake: str) -> str:
        """The least that a mistake makes, over what is allowed."""
        wrong = self.train(model, masked(MODELS[model], MISTAKES[mistake]))
        off = excess(wrong, self.expected(model), TOLERANCE)
        require(off > 10, f"only {off:.3g} times what is allowed")
        return f"{off:.0f} times what is allowed"

    def check_against_reference(self, run: Run) -> str:
        """plait-run --check compares with one rank, which masks the same."""
        plan = self.compile(run, "--document-mask")
        text = self.tools.run(
            "plait-run", *self.start(run, plan), "--check", "--document-end", END
        ).stdout
        return text.splitlines()[-1]

    def check_one_document(self) -> None:
        """Where no token ends one, the mask is the causal one, to the bit."""
        run = Run("gpt2", "pp=1", FLASH)
        unused = next(t for t in range(VOCABULARY) if t not in self.tokens)
        mask = self.compile(run, "--document-mask")
        found = self.steps(run, mask, "--document-end", unused)
        plain = self.steps(run, self.compile(run))
        for name in TOLERANCE:
            require(
                [step[name] for step in found] == [step[name] for step in plain],
                f"{name} differs: {found} and {plain}",
            )

    def check_evaluation(self) -> str:
        run = Run("llama", "pp=2,tp=2")
        lines = self.evaluate(
            run,
            self.compile(run, "--document-mask"),
            *("--document-end", END, "--eval-tokens", self.folder / "tokens.bin"),
            *("--eval-steps", 1),
        )
        return f"off by {self.check_held_out(run, lines):.2g}"

    def check_errors(self) -> None:
        run = Run("gpt2", "pp=1")
        masked, plain = (
            self.compile(run, *more).rename(self.folder / f"{name}.plan")
            for name, more in (("masked", ("--document-mask",)), ("plain", ()))
        )
        for plan, words, message in (
            (masked, (), "--document-end has to say which token ends one"),
            (plain, (END,), "compile it with --document-mask"),
            (masked, (VOCABULARY,), "--document-end is 97, the vocabulary has 97"),
            (masked, (-1,), "--document-end: Value -1 not in range"),
        ):
            options = [w for word in words for w in ("--document-end", word)]
            for mode in ((), ("--check",)):
                outcome = self.tools.call(
                    "plait-run", *self.start(run, plan), *options, *mode
                )
                require(
                    outcome.code != 0 and message in outcome.stderr,
                    f"{options} ended with {outcome.code}: {outcome.stderr}",
                )

    def check_gpu(self) -> None:
        """What cuDNN is not asked for is refused, or done otherwise with a note."""
        command = (
            *(self.folder / "gpt2" / "config.json", "--seq", SEQUENCE, *BF16),
            *("--document-mask", "--target", "sm_90", "--backend", "cuda"),
            *("-o", self.folder / "gpu.plan"),
        )
        outcome = self.tools.call("plaitc", *command, *FLASH)
        require(
            outcome.code == 1
            and "it has a document mask"
            in outcome.stderr,
            f"ended with {outcome.code}: {outcome.stderr}",
        )
        outcome = self.tools.run("plaitc", *command)
        note = "note: attention is unfused, because it has a document mask"
        require(outcome.stderr.count(note) == 1, f"told: {outcome.stderr}")

    def check_phases(self) -> None:
        """IR that is no model any more gets no mask; a mask is not added twice."""
        imported, sharded = (self.folder / f"{p}.mlir" for p in ("import", "shard"))
        config = self.folder / "gpt2" / "config.json"
        for phase, path in (("import", imported), ("shard", sharded)):
            self.tools.run(
                "plaitc",
                *(config, "--seq", SEQUENCE, "--document-mask"),
                *("--compile-to", phase, "-o", path),
            )
        again = self.folder / "again.mlir"
        self.tools.run(
            "plaitc",
            *(imported, "--document-mask", "--compile-to", "import", "-o", again),
        )
        require(again.read_text() == imported.read_text(), "the mask was added twice")
        outcome = self.tools.call("plaitc", sharded, "--document-mask", "-o", again)
        require(
            outcome.code == 1 and "documents are not masked any more" in outcome.stderr,
            f"ended with {outcome.code}: {outcome.stderr}",
        )

    def check_proof(self) -> None:
        """A stage that takes its tokens for starts is not what was asked for."""
        folder = self.folder / "phases"
        self.compile(
            Run("gpt2", "pp=2", FLASH),
            *("--document-mask", "--no-reference", "--dump-phases-to", folder),
        )
        text = (folder / "5-partition.mlir").read_text()
        edited = text.replace("#pipe.port<starts>", "#pipe.port<tokens>", 1)
        require(edited != text, "no stage takes starts")
        for content, proves in ((text, True), (edited, False)):
            (folder / "edited.mlir").write_text(content)
            outcome = self.tools.call(
                "plait-opt",
                *(folder / "edited.mlir", "-o", "/dev/null"),
                f"--plait-prove-meaning=claim={folder / '0-import.mlir'}",
            )
            require(
                (outcome.code == 0) == proves and outcome.code in (0, 1),
                f"ended with {outcome.code}: {outcome.stderr[-2000:]}",
            )

    def run(self, options) -> None:
        for run in covering.chosen(RUNS, Run.choices, options):
            self.report.case(run.name, functools.partial(self.check_run, run))
        for run in (
            Run("gpt2", "pp=2,dp=2,tp=2", FLASH),
            Run("llama", "dp=2,cp=2,tp=2", BF16 + FULL),
        ):
            check = functools.partial(self.check_against_reference, run)
            self.report.case("check/" + run.name, check)
        for model in MODELS:
            for mistake in MISTAKES:
                self.report.case(
                    f"{model}/mistake/{mistake}",
                    functools.partial(self.check_mistake, model, mistake),
                )
        self.report.case("alone", self.check_alone)
        self.report.case("one-document", self.check_one_document)
        self.report.case("evaluation", self.check_evaluation)
        self.report.case("errors", self.check_errors)
        self.report.case("gpu", self.check_gpu)
        self.report.case("phases", self.check_phases)
        self.report.case("proof", self.check_proof)


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    covering.add_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = Reporter("Documents", options.filter)
    tools = Tools(options.bin, options.timeout)
    with tempfile.TemporaryDirectory() as folder:
        Suite(tools, report, pathlib.Path(folder)).run(options)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
