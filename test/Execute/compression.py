#!/usr/bin/env python3
#===- compression.py - Compressed sums against numpy ------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 with compressed sums of gradients, and computes in numpy what
each step must have come to. The gradient of each replica is measured on its own: a
step of SGD on one rank, without any compression, from the same weights and on that
replica's samples alone moves them by it. What replicas make of their gradients is
written from the papers (compressors.py); what is fed back is carried in numpy from
step to step. Plans say what they send, and messages have as many bytes. Further runs
are drawn at random (--draws and --seed)."""

import dataclasses
import math
import pathlib
import random
import re
import sys
import tempfile

import numpy

import compressors
import covering
from compression_runs import RUNS, Run, draw_run
from harness import (
    ROOT,
    Reporter,
    Tools,
    arguments,
    require,
    write_tokens,
)
from tensors import read_tensors

MODEL = ROOT / "examples" / "models" / "gpt2-nano"
VOCABULARY, BATCH, SEQUENCE, STEPS = 256, 8, 32, 3
RATE = 0.25
# So large that weights are lost beside the gradient, a power of two.
PROBE = 2.0**20
# Gradients are measured and added up in another order, so that elements which lie
# between two codes may get the other one: of each code 2^-24 · 16 each way.
OTHERS = 16 * 2.0**-23
# Roundings to fp32 of a weight and of what is added to it.
TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A box of a tensor of the file."""

    symbol: str
    tensor: str
    box: tuple[slice, ...]

    def of(self, tensors: dict[str, numpy.ndarray]) -> numpy.ndarray:
        return tensors[self.tensor][self.box]


def numbers(text: str) -> list[int]:
    return [int(x) for x in text.split(",") if x.strip()]


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        self.tokens = folder / "tokens.bin"
        # Of one step: all steps see the same.
        write_tokens(self.tokens, 5, BATCH * SEQUENCE + 1, VOCABULARY)
        self.probes: dict[tuple, pathlib.Path] = {}

    def call(self, *options) -> None:
        self.tools.run(
            "plaitc", MODEL, "--seq", SEQUENCE, "--optimizer", "sgd", "--no-reference",
            *options,
        )  # fmt: skip

    def compile(self, run: Run, name: str = "run") -> pathlib.Path:
        plan = self.folder / f"{name}.plan"
        self.call(
            "--mesh", run.mesh, *run.options, "--global-batch", BATCH,
            "--compress", run.scheme, "-o", plan,
        )  # fmt: skip
        return plan

    def probe(self, run: Run) -> pathlib.Path:
        """One rank, with the samples of one of as many replicas, which computes with
        as many bits."""
        kept = ("--precision", "bf16") if "bf16" in run.options else ()
        known = run.replicas, kept
        if known not in self.probes:
            plan = self.folder / f"probe-{len(self.probes)}.plan"
            batch = BATCH // run.replicas
            self.call("--mesh", "1", *kept, "--global-batch", batch, "-o", plan)
            self.probes[known] = plan
        return self.probes[known]

    def find_parameters(self) -> list[Parameter]:
        ir = self.folder / "import.mlir"
        self.call("--compile-to", "import", "-o", ir)
        found = []
        pattern = r"nn\.parameter @(\S+) .*?file *<(.*?)>"
        for symbol, file in re.findall(pattern, ir.read_text()):
            name = re.search(r'name = "(.*?)"', file)[1]
            begin, box = (
                numbers(re.search(rf"{what} = \[(.*?)\]", file)[1])
                for what in ("begin", "box")
            )
            slices = tuple(slice(b, b + n) for b, n in zip(begin, box))
            found.append(Parameter(symbol, name, slices))
        require(len(found) > 10, f"{len(found)} parameters have a place in files")
        return found

    def words(self, plan, steps, rate, tokens, *options) -> list:
        """Of a run of plain SGD."""
        return [
            "plait-run", plan, "--tokens", tokens, "--token-type", "uint16",
            "--lr", rate, "--beta1", 0, "--weight-decay", 0, "--grad-clip", 0,
            "--steps", steps, "--threads", 1, *options,
        ]  # fmt: skip

    def train(self, plan, start, steps, rate, tokens, *options) -> pathlib.Path:
        saved = self.folder / "saved"
        given = (*(("--weights", start) if start else ()), "--save", saved, *options)
        self.tools.run(*self.words(plan, steps, rate, tokens, *given))
        path = next(saved.rglob("*.safetensors"))
        return path.rename(self.folder / f"{plan.stem}-{steps}.safetensors")

    def read(self, path) -> dict[str, numpy.ndarray]:
        return {name: x.astype(float) for name, x in read_tensors(path).items()}

    def gradients(self, run: Run, start) -> list[dict[str, numpy.ndarray]]:
        """Of each replica, the sum over its targets."""
        probe, count = self.probe(run), BATCH // run.replicas * SEQUENCE
        before, result = self.read(start), []
        for index in range(run.replicas):
            own = self.folder / "own.bin"
            first = 2 * index * count
            own.write_bytes(self.tokens.read_bytes()[first : first + 2 * (count + 1)])
            after = self.read(self.train(probe, start, 1, PROBE, own))
            result.append(
                {name: (before[name] - after[name]) / PROBE * count for name in before}
            )
        return result

    def check_sent(self, run: Run, plan, parameters, tensors) -> int:
        """The bytes that a replica sends, which is told of. Where ranks have whole
        parameters they are those of what each gathers, numbers of chunks included."""
        shown = self.tools.run("plait-plan", "show", plan).stdout
        require(f"gradients sent as {run.scheme}" in shown, f"not told in {shown}")
        compressor = compressors.Compressor.parse(run.scheme)
        expected = sum(
            compressor.count_bytes(parameter.of(tensors).size)
            for parameter in parameters
        )
        if run.mesh != f"dp={run.replicas}":
            return expected
        ir = self.folder / "partition.mlir"
        self.call(
            "--mesh", run.mesh, *run.options, "--global-batch", BATCH,
            "--compress", run.scheme, "--compile-to", "partition", "-o", ir,
        )  # fmt: skip
        partitioned = ir.read_text()

        def count(op: str, shape: str) -> int:
            pattern = rf'dist\.{op} .*@mesh\["dp"\] .*: tensor<({shape})x[if]32>'
            shapes = re.findall(pattern, partitioned)
            return sum(4 * math.prod(map(int, x.split("x"))) for x in shapes)

        # Of one replica each; what replicas have updated of weights has more rows, and
        # what they gather of weights in parts may have one.
        scatters = compressor.both or "3" in run.options
        sends = "all_to_all" if scatters else "(?:all_gather|all_to_all)"
        sent = count(sends, "1x.*?")
        if compressor.both:  # each sends its part of the sum
            back = run.replicas * count("all_gather", ".*?")
            require(back == sent, f"sends {sent} bytes, and {back} of the sum")
        # Rows of what ranks divide are as many for each.
        isDivided = compressor.both or "--zero" in run.options
        most = 1.02 * expected if isDivided else expected
        text = f"sends {sent} bytes, expected {expected}"
        require(expected <= sent <= most, text)
        return sent

    def check(self, run: Run) -> str:
        plan, parameters = self.compile(run), self.find_parameters()
        start = self.train(plan, None, 1, 0.0, self.tokens).rename(
            self.folder / "start.safetensors"
        )
        message = self.check_sent(run, plan, parameters, self.read(start))
        compressor = compressors.Compressor.parse(run.scheme)
        scheme = compressor.scheme
        errors = [[0.0] * len(parameters) for _ in range(run.replicas)]
        sum_errors = [0.0] * len(parameters)
        now, worst, others, count = start, 0.0, 0, 0
        codes_before = [0.0] * len(parameters)
        for step in range(1, STEPS + 1):
            gradients, before = self.gradients(run, now), self.read(now)
            now = self.train(plan, start, step, RATE, self.tokens)
            after = self.read(now)
            for index, parameter in enumerate(parameters):
                total, most = 0.0, 0.0
                for replica, (own, known) in enumerate(zip(gradients, errors)):
                    differs = run.scheme.startswith("ef21")
                    own_part = parameter.of(own)
                    wanted = own_part + (-known[index] if differs else known[index])
                    sent = compressor.compress(
                        wanted, step, parameter.symbol, replica
                    ).astype(float)
                    if differs:  # EF21: what all know of it is what they add up
                        sent = known[index] = known[index] + sent
                    elif compressor.feedback:
                        known[index] = wanted - sent
                    total = total + sent
                    most += float(numpy.abs(wanted).max()) / scheme.limit
                if compressor.both:  # DoubleSqueeze (Tang et al. 2019, Algorithm 1)
                    wanted = total + sum_errors[index]
                    total = compressor.compress_sum(
                        wanted, step, parameter.symbol
                    ).astype(float)
                    if compressor.feedback:
                        sum_errors[index] = wanted - total
                    most += float(numpy.abs(wanted).max()) / scheme.limit
                factor = RATE / (BATCH * SEQUENCE)
                expected = parameter.of(before) - factor * total
                off = numpy.abs(parameter.of(after) - expected)
                bound = TOLERANCE * (numpy.abs(expected) + RATE)
                isOther = off > bound
                others += int(isOther.sum())
                count += off.size
                worst = max(worst, float((off / bound)[~isOther].max(initial=0)))
                # The other one of two codes, of all replicas at once; what it was too
                # much in one step is fed back in the next, by codes of the former.
                codes = 1.01 * (most + codes_before[index])
                if compressor.feedback or differs:
                    codes_before[index] = most
                require(
                    bool((off <= bound + factor * codes).all()),
                    f"step {step}: {parameter.tensor} off {off.max():.3g}, "
                    f"codes are {factor * codes:.3g}",
                )
        text = f"{others} of {count} codes another, {message} bytes a message"
        # Each replica has a code of each element; what is fed back is another one
        # once more.
        rounds = sum(scheme.shrinks**number for number in range(compressor.rounds))
        times = run.replicas * (2 if compressor.feedback else 1) * rounds
        times *= 2 if compressor.both else 1
        require(others <= OTHERS * scheme.jumps * times * count, text)
        return text

    def check_theory(self) -> str:
        """What the oracles do is what their papers prove of them."""
        draws = numpy.random.default_rng(1)
        kinds = {
            "normal": draws.standard_normal,
            "laplace": lambda size: draws.laplace(size=size),
            "few": lambda size: draws.standard_normal(size)
            * numpy.where(draws.random(size) < 0.01, 100, 1),
        }
        rows = {
            kind: draw((64, 256)).astype(numpy.float32) for kind, draw in kinds.items()
        }

        def lost(x, sent):
            return numpy.square(x - sent).sum(axis=1) / numpy.square(x).sum(axis=1)

        for kind, x in rows.items():
            # δ: each element is off by at most a 254th, or a 14th, of the largest.
            int8 = compressors.integer_decode(*compressors.int8_encode(x))
            require(lost(x, int8).max() <= 256 / 254**2, f"int8 of {kind}")
            largest = numpy.abs(x).max(axis=1, keepdims=True)
            int4 = compressors.integer_decode(*compressors.int4_encode(x))
            require((numpy.abs(int4 - x) <= largest / 13.99).all(), f"int4 of {kind}")
            # δ = ‖x‖₁² / (d ‖x‖²) exactly, and k / d at least.
            one = numpy.abs(x).sum(axis=1) ** 2 / 256 / numpy.square(x).sum(axis=1)
            counts = numpy.full(len(x), 256)
            sign = compressors.sign_decode(*compressors.sign_encode(x, counts))
            apart = numpy.abs(1 - lost(x, sign) - one).max()
            require(apart < 1e-5, f"sign of {kind}: {apart}")
            top = compressors.top_k(x, 16)
            require((1 - lost(x, top) >= 16 / 256).all(), f"top-k of {kind}")
        self.check_rounds(rows["normal"])
        # A matrix of rank r is what PowerSGD of rank r makes of it.
        m = draws.standard_normal((64, 4)) @ draws.standard_normal((4, 48))
        out, _ = compressors.power_sgd(m, draws.standard_normal((48, 4)))
        require(numpy.abs(out - m).max() < 1e-10, "PowerSGD of rank 4")
        # Ties go to lower indices.
        tied = compressors.top_k(numpy.ones((1, 8), numpy.float32), 3)
        require(tied[0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0], f"ties: {tied}")
        return self.check_unbiased(draws.standard_normal((1, 16)).astype("f"))

    def check_rounds(self, rows) -> None:
        """R rounds leave at most (1 − δ)^R of the squared norm, and as many rounds of
        one element as there are elements leave nothing."""
        for text, most in (("topk:256+keep:16", 1 - 16 / 256), ("sign:256", 1)):
            before = 1.0
            for rounds in (1, 2, 4, 8):
                name = f"{text}+rounds:{rounds}"
                sent = compressors.Compressor.parse(name).compress(rows[0])
                left = float(numpy.square(rows[0] - sent).sum())
                left /= float(numpy.square(rows[0]).sum())
                require(left <= most**rounds and left < before, f"{name} leaves {left}")
                before = left
        x = rows[0, :32]
        sent = compressors.Compressor.parse("topk:32+keep:2+rounds:16").compress(x)
        require(numpy.array_equal(sent, x), f"{sent} of {x}")

    def check_equal_bytes(self) -> str:
        """The k largest elements in R rounds of k/R are those of one round."""
        weights = []
        for scheme in ("topk:64+keep:6+feedback", "topk:64+keep:2+feedback+rounds:3"):
            plan = self.compile(Run(scheme, "dp=2"), "equal")
            weights.append(self.read(self.train(plan, None, 3, RATE, self.tokens)))
        for name, values in weights[0].items():
            require(numpy.array_equal(values, weights[1][name]), f"{name}: other values")
        return "the same weights"

    def check_unbiased(self, x) -> str:
        """100,000 draws, each with another step: their mean is x within five of its
        own deviations, and their variance at most ω ‖x‖²."""
        count, size = 100_000, float(numpy.square(x).sum())
        all_x = numpy.repeat(x, count, axis=0)
        steps = numpy.arange(count)[:, None]
        draws = compressors.draw(0, steps, 7, 0, 0, numpy.arange(16))
        counts = numpy.full(count, 16)
        kept = compressors.random_k(all_x, counts, 4, draws, True)
        codes, units = compressors.qsgd_encode(all_x, 4, draws)
        seen = []
        for name, sent, omega in (
            ("random-k", kept.astype(float), 16 / 4 - 1),
            ("qsgd", codes * units[:, None].astype(float), min(16 / 4**2, 16**0.5 / 4)),
        ):
            off = numpy.abs(sent.mean(axis=0) - x[0])
            bound = 5 * sent.std(axis=0) / count**0.5 + 1e-6
            require((off <= bound).all(), f"{name} is biased: {off / bound}")
            variance = float(numpy.square(sent - x).sum(axis=1).mean()) / size
            # Divided by 1 + ω, what is lost is less than all.
            lost = numpy.square(sent / (1 + omega) - x).sum(axis=1).mean() / size
            require(lost <= omega / (1 + omega) * 1.01, f"{name} loses {lost:.3f}")
            # The mean of so many is known to a few thousandths.
            require(variance <= omega * 1.01, f"{name}: ω {variance:.3f} of {omega}")
            seen.append(f"{name} ω {variance:.2f} of {omega:g}")
        return ", ".join(seen)

    def check_divided(self) -> str:
        """What a replica has not sent is whole where ZeRO 1 to 3 divide the rest: runs
        are resumed to the bit, from there and from ZeRO 0. By ZeRO 2 micro-batches add
        to it in another order, which gives other bits from the second step on; ZeRO 3
        has the bits of ZeRO 2."""
        plain = Run("sign:32+feedback", "dp=2", ("--micro-batch", "1"))
        one, two, three = (
            dataclasses.replace(plain, options=("--zero", zero, *plain.options))
            for zero in "123"
        )
        pairs = [(one, one), (one, plain), (two, two), (three, three), (three, two)]
        for index, (run, before) in enumerate(pairs):
            plan = self.compile(run, "divided")
            whole = self.read(self.train(plan, None, 4, RATE, self.tokens))
            folder = self.folder / f"divided-{index}"
            self.tools.run(
                *self.words(self.compile(before, "before"), 2, RATE, self.tokens),
                *("--checkpoint", folder, "--checkpoint-every", 2),
            )
            resume = ("--resume", folder)
            resumed = self.read(self.train(plan, None, 4, RATE, self.tokens, *resume))
            for name, values in whole.items():
                require(numpy.array_equal(values, resumed[name]), f"{name}: other bits")
        return "resumed from ZeRO 0 to 3"

    def check_memory(self) -> str:
        """By ZeRO 2 a replica has no gradient but the part of the sum that it updates
        with, by ZeRO 1 all of its own as well; what it feeds back is the same. By ZeRO 3
        it has a part of the values, too, but of what is no whole block for each."""
        held = []
        for zero in "123":
            options = ("--zero", zero, "--micro-batch", "1")
            plan = self.compile(Run("int8:64+feedback", "dp=4", options), "memory")
            shown = self.tools.run("plait-plan", "show", plan).stdout
            require(f"zero {zero}\n" in shown, f"not told in {shown}")
            found = dict(re.findall(r"(parameters|gradients|optimizer) .* (\d+) bytes", shown))
            held.append({name: int(bytes_) for name, bytes_ in found.items()})
        one, two, three = held
        require(one["optimizer"] == two["optimizer"], f"optimizer of {held}")
        require(one["gradients"] == 5 * two["gradients"], f"gradients of {held}")
        # The same is fed back, in as many blocks, but that parts of packs are not filled.
        less = two["optimizer"] - three["optimizer"]
        require(0 <= less <= 0.02 * two["optimizer"], f"optimizer of {held}")
        require(three["gradients"] <= two["gradients"], f"gradients of {held}")
        quarter = two["parameters"] / 4
        require(quarter <= three["parameters"] <= 1.06 * quarter, f"values of {held}")
        return f"{one['gradients']} and {two['gradients']} bytes of gradients"

    def check_resumed(self, scheme: str, kept: str) -> str:
        """Checkpoints have what each replica has not sent: a run that is resumed has
        the same bits, and on other ranks of as many replicas what a whole run there
        has, up to codes that differ. Another number of replicas has other errors."""
        plan = self.compile(Run(scheme, "dp=2"))
        whole = self.read(self.train(plan, None, 4, RATE, self.tokens))
        folder = self.folder / f"checkpoints-{scheme}"
        self.tools.run(
            *self.words(plan, 2, RATE, self.tokens),
            *("--checkpoint", folder, "--checkpoint-every", 2),
        )
        resume = ("--resume", folder)
        resumed = self.read(self.train(plan, None, 4, RATE, self.tokens, *resume))
        for name, values in whole.items():
            require(numpy.array_equal(values, resumed[name]), f"{name} has other bits")
        other = self.compile(Run(scheme, "dp=2,tp=2"), "other")
        moved = self.read(self.train(other, None, 4, RATE, self.tokens, *resume))
        # A run from the third step on without errors would be off by them.
        cold = self.read(self.train(plan, None, 2, RATE, self.tokens))
        off = max(float(numpy.abs(moved[x] - whole[x]).max()) for x in whole)
        moves = max(float(numpy.abs(cold[x] - whole[x]).max()) for x in whole)
        require(off <= moves / 127, f"off {off:.3g}, two steps move {moves:.3g}")
        four = self.compile(Run(scheme, "dp=4"), "four")
        outcome = self.tools.call(*self.words(four, 4, RATE, self.tokens, *resume))
        text = f"keeps error.0, error.1, {kept} of"
        require(outcome.code != 0 and text in outcome.stderr, outcome.stderr)
        return f"moved to tp: off {off:.2g} of {moves:.2g}"

    def check_drawn_on(self) -> str:
        """A run that is resumed draws the numbers of the steps that follow, and knows
        what was sent before."""
        runs = Run("qsgd2:32", "dp=2"), Run("ef21-topk:32", "dp=2", ("--zero", "1"))
        for run in runs:
            plan = self.compile(run, "drawn")
            whole = self.read(self.train(plan, None, 3, RATE, self.tokens))
            folder = self.folder / f"drawn-{run.scheme}"
            self.tools.run(
                *self.words(plan, 2, RATE, self.tokens),
                *("--checkpoint", folder, "--checkpoint-every", 2),
            )
            resumed = self.train(plan, None, 3, RATE, self.tokens, "--resume", folder)
            for name, values in self.read(resumed).items():
                require(numpy.array_equal(values, whole[name]), f"{name}: other bits")
        return "the same bits"

    def check_skipping(self) -> str:
        """What was fed back is gone when a step turns out to be bad."""
        plan = self.compile(Run("int8+feedback", "dp=2"))
        words = self.words(plan, 1, RATE, self.tokens, "--on-nan", "skip")
        outcome = self.tools.call(*words)
        text = (
            "--on-nan is skip, but when a step is skipped, replicas have already fed "
            "back what they did not send (--compress is"
        )
        require(outcome.code != 0 and text in outcome.stderr, outcome.stderr)
        plan = self.compile(Run("int8", "dp=2"))
        self.tools.run(*self.words(plan, 1, RATE, self.tokens, "--on-nan", "skip"))
        return "refused with feedback alone"


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    parser.add_argument("--draws", type=int, default=2, help="runs drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of these")
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("compression", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, pathlib.Path(folder))
        for run in covering.chosen(RUNS, Run.get_choices, options):
            report.case(run.name, lambda run=run: suite.check(run))
        choose = random.Random(options.seed)
        for index in range(options.draws):
            run = draw_run(choose)
            name = f"draw {index}: {run.name}"
            report.case(name, lambda run=run: suite.check(run))
        report.case("theory", suite.check_theory)
        for scheme, kept in (
            ("int8:32+feedback", "momentum"),
            ("int8:32+feedback+both", "momentum, sum_error"),
        ):
            report.case(
                f"resumed: {scheme}",
                lambda scheme=scheme, kept=kept: suite.check_resumed(scheme, kept),
            )
        report.case("divided", suite.check_divided)
        report.case("memory", suite.check_memory)
        report.case("drawn on", suite.check_drawn_on)
        report.case("skip", suite.check_skipping)
        report.case("equal bytes", suite.check_equal_bytes)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
