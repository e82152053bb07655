#!/usr/bin/env python3
#===- run.py - Training runs against PyTorch's numbers ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Compiles and runs the golden cases over meshes, schedules and recomputation.

For every plan: loss and gradient norm of each step within 1e-4 (relative) of
PyTorch's, saved weights within 1e-4 (whole attention: 2e-4), of mixtures of experts
both within bounds that fp64 has measured; on meshes without tensor
parallelism the losses are also within 1e-6 (relative) of the one-rank run with
the same attention. The plan's own numbers are checked too: bytes allocated are
the stated peak, and microbatches in flight keep the schedule's bound. The
schedule is varied only where pp > 1: elsewhere it changes nothing but that
bound.

bf16 runs are held against PyTorch's fp32 and bf16 runs of the same case: see
check_drift.
"""

import dataclasses
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable

import bounds
import covering
from harness import (
    GOLDEN,
    Failure,
    Reporter,
    Tools,
    arguments,
    read_safetensors,
    require,
    write_safetensors,
)
from layouts import (
    FEW_HEADS,
    CONTEXT,
    ONE_RANK,
    WHOLE,
    Layout,
    by_heads,
    chunked,
    context,
    divided,
    experts,
    families,
    flash,
    fused,
    grouped,
    in_pieces,
    layouts,
    mixed,
    selective,
    sequence_parallel,
    zigzag,
)
from tensors import split_weights

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

ONE_RANK_TOLERANCE = 1e-6
# Both are single draws of what rounding to eight bits does to five steps; the
# farthest of 28 runs was 1.7 times as far off as PyTorch's.
DRIFT_FACTOR = 3
# A mesh rounds partial sums and what stages exchange, one rank does not. Each
# rounding is off by up to 2**-9 and the loss averages over many; half of that.
BF16_ONE_RANK_TOLERANCE = 2**-10


class Case:
    """A folder of test/golden."""

    def __init__(self, name: str):
        self.name = name
        self.golden_path = GOLDEN / name / "golden.json"
        golden = json.loads(self.golden_path.read_text())
        self.recipe = golden["recipe"]
        self.balance = golden.get("balance", ())
        self.seed = golden["seed"]
        self.steps = golden["steps"]
        self.bf16_steps = golden["bf16_steps"]
        self.tolerance, self.weight_tolerance = bounds.of_case(golden)
        self.inputs = GOLDEN / golden["inputs"]
        self.final = GOLDEN / name / "final.safetensors"

    def micro_batch(self, layout: Layout) -> int:
        """Several microbatches wherever the batch allows it."""
        sequences = self.recipe["global_batch"] // layout.replicas
        return max(1, sequences // (2 * layout.axes["pp"]))

    def microbatches(self, layout: Layout) -> int:
        size = self.micro_batch(layout) * layout.replicas
        return self.recipe["global_batch"] // size

    def compile(self, tools: Tools, layout: Layout, plan, reference=False):
        """A reference is for --check alone, and takes as long as the rest."""
        tools.run(
            "plaitc",
            self.inputs,
            *("--mesh", layout.mesh_text),
            *("--schedule", layout.schedule),
            *("--global-batch", self.recipe["global_batch"]),
            *("--micro-batch", self.micro_batch(layout)),
            *("--seq", self.recipe["seq"]),
            *("--recompute", layout.recompute),
            *("--precision", layout.precision),
            *(["--sequence-parallel"] if layout.sequence_parallel else []),
            *("--tp-comm-overlap", layout.tensor_overlap),
            *(["--attention", layout.attention] if layout.attention else []),
            *(["--epilogues", layout.epilogues] if layout.epilogues else []),
            *(["--zero", layout.zero] if layout.zero else []),
            *("--loss-chunks", layout.loss_chunks),
            *("--expert-chunks", layout.expert_chunks),
            *("--expert-exchange", layout.expert_exchange),
            *(word for term in self.balance for word in ("--balance", term)),
            *(
                ["--context-parallel", layout.context_parallel]
                if layout.context_parallel
                else []
            ),
            *(() if reference else ("--no-reference",)),
            *("-o", plan),
        )

    def data_options(self, weights: pathlib.Path | None = None) -> list:
        weights = weights or self.inputs / "model.safetensors"
        options = ["--tokens", self.inputs / "tokens.bin", "--seed", self.seed]
        return options + (["--weights", weights] if weights.exists() else [])

    def train(
        self, tools: Tools, plan, folder, *more, weights=None, clip=None
    ):
        """Runs the golden steps; returns the log's records and the output."""
        recipe = self.recipe
        clip = recipe["grad_clip"] if clip is None else clip
        log = folder / "steps.jsonl"
        log.unlink(missing_ok=True)  # a run adds to the log of an earlier one
        outcome = tools.run(
            "plait-run",
            plan,
            *self.data_options(weights),
            *("--steps", recipe["steps"]),
            *("--lr", recipe["lr"]),
            *("--beta1", recipe["beta1"]),
            *("--beta2", recipe["beta2"]),
            *("--eps", recipe["eps"]),
            *("--weight-decay", recipe["weight_decay"]),
            *("--grad-clip", clip),
            *("--log", log),
            *more,
        )
        return compare.read_steps(str(log)), outcome.stdout


def worst(rows: list[dict], key: str) -> float:
    return max(row[key] for row in rows)


def check_golden(case: Case, records: list[dict]) -> str:
    rows = compare.differences(case.steps, records)
    loss, norm = worst(rows, "loss"), worst(rows, "grad_norm")
    remark = f"loss off {loss:.2g}, norm off {norm:.2g}"
    require(max(loss, norm) <= case.tolerance, f"PyTorch: {remark}")
    return remark


def check_drift(case: Case, records: list[dict]) -> str:
    """A bf16 run is about as far from PyTorch's fp32 run as PyTorch's own bf16
    run of the same parameters, optimizer and data."""
    own = compare.differences(case.steps, records)
    theirs = compare.differences(case.steps, case.bf16_steps)
    remarks = []
    for key in compare.KEYS:
        off, bound = worst(own, key), DRIFT_FACTOR * worst(theirs, key)
        remarks.append(f"{key} drifts {off:.2g} of {bound:.2g}")
        require(off <= bound, ", ".join(remarks))
    return ", ".join(remarks)


def check_weights(case: Case, layout: Layout, saved: pathlib.Path) -> str:
    flash = layout.attention == "flash"
    tolerance = bounds.FLASH_WEIGHTS if flash else case.weight_tolerance
    done = subprocess.run(
        [
            sys.executable,
            str(GOLDEN / "compare_weights.py"),
            str(case.final),
            str(saved / "model.safetensors"),
            *("--tolerance", str(tolerance)),
            "--except-key-bias",
        ],
        capture_output=True,
        text=True,
    )
    require(done.returncode == 0, f"weights:\n{done.stdout}{done.stderr}")
    return done.stdout.strip().rsplit("farthest ", 1)[-1]


def check_plan(case: Case, layout: Layout, shown: str, ran: str) -> None:
    """Peak memory and microbatches in flight, as plait-plan shows them."""
    peaks = re.findall(r"^ +arena +(\S+ \S+) +(\d+) bytes$", shown, re.MULTILINE)
    order = sorted(peaks, key=lambda x: int(x[1]))
    least, most = order[0], order[-1]
    said = f"a rank {most[0]}" if least == most else f"ranks {least[0]} to {most[0]}"
    require(f", memory of {said}\n" in ran, f"peaks {peaks}, but: {ran}")
    stages, held = layout.axes["pp"], case.microbatches(layout)
    bounds = [
        min(held, stages - stage) if layout.schedule == "1f1b" else held
        for stage in range(stages)
    ]
    require(
        ("with an epilogue" in shown) == bool(layout.epilogues),
        f"epilogues: {layout.epilogues or 'none'}, but the plan says:\n{shown}",
    )
    divides = layout.zero and any(layout.axes[x] > 1 for x in ("dp", "ep", "cp"))
    require(
        bool(re.search(f", zero {layout.zero}[,\n]", shown)) == bool(divides),
        f"zero {layout.zero}, but the plan says:\n{shown}",
    )
    found = re.findall(r"(\d+) microbatch(?:es)? in flight", shown)
    require(
        len(found) == stages
        and all(int(x) <= bound for x, bound in zip(found, bounds)),
        f"{found} microbatches in flight, at most {bounds} expected",
    )


class Matrix:
    """The cases, and the one-rank losses that later ones are held against."""

    def __init__(self, tools: Tools, report: Reporter):
        self.tools = tools
        self.report = report
        self.layouts: dict[tuple[Case, Layout], None] = {}  # in order
        self.others: list[tuple[dict, str, Callable]] = []  # choices, name, body
        self.one_rank: dict[tuple[str, Layout], list[dict]] = {}

    def one_rank_records(self, case: Case, layout: Layout) -> list[dict]:
        key = (case.name, layout)
        if key not in self.one_rank:
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                plan = folder / "out.plan"
                case.compile(self.tools, layout, plan)
                records, _ = case.train(self.tools, plan, folder)
            self.one_rank[key] = records
        return self.one_rank[key]

    def check_layout(self, case: Case, layout: Layout, folder) -> str:
        plan = folder / "out.plan"
        exact = layout.precision == "fp32"
        saves = exact and case.final.exists()
        save = ["--save", folder / "saved"] if saves else []
        case.compile(self.tools, layout, plan)
        records, ran = case.train(self.tools, plan, folder, *save)
        check = check_golden if exact else check_drift
        remarks = [check(case, records)]
        shown = self.tools.run("plait-plan", "show", plan).stdout
        check_plan(case, layout, shown, ran)
        if layout == layout.alone:
            self.one_rank[case.name, layout] = records
        if layout.axes["tp"] == 1 or not exact:
            alone = self.one_rank_records(case, layout.alone)
            rows = compare.differences(alone, records, ("loss",))
            off = worst(rows, "loss")
            remarks.append(f"one rank off {off:.2g}")
            bound = ONE_RANK_TOLERANCE if exact else BF16_ONE_RANK_TOLERANCE
            require(off <= bound, ", ".join(remarks))
        if save:
            off = check_weights(case, layout, folder / "saved")
            remarks.append(f"weights off {off}")
        return ", ".join(remarks)

    def add(self, name: str, body) -> None:
        """A case with a folder of its own; `body` takes the folder."""

        def wrapped():
            with tempfile.TemporaryDirectory() as folder:
                return body(pathlib.Path(folder))

        self.report.case(name, wrapped)

    def add_layouts(self, case: Case, added) -> None:
        self.layouts |= {(case, layout): None for layout in added}

    def check_layouts(self, options) -> None:
        """Those that were added, or what covers their choices."""

        def choose(one):
            case, layout = one
            return {"case": case.name} | layout.choices

        for case, layout in covering.chosen(self.layouts, choose, options):
            self.add(
                f"{case.name}/{layout.name}",
                lambda folder, case=case, layout=layout: self.check_layout(
                    case, layout, folder
                ),
            )

    def offer(self, what: str, case: Case, layout: Layout, name: str, body) -> None:
        """Adds a case with a folder of its own that is no training run against
        PyTorch's numbers but `what`; which of them are run is chosen apart."""
        choices = {"what": what, "case": case.name} | layout.choices
        self.others.append((choices, f"{case.name}/{name}", body))

    def check_others(self, options) -> None:
        """Those that were offered, or what covers their choices."""
        for _, name, body in covering.chosen(self.others, lambda x: x[0], options):
            self.add(name, body)

    def add_weights_without_prefix(self, case: Case) -> None:
        """GPT-2 files name tensors h.0… as well as transformer.h.0…"""

        def body(folder):
            header, data = read_safetensors(case.inputs / "model.safetensors")
            header = {
                key.removeprefix("transformer."): value
                for key, value in header.items()
            }
            weights = folder / "short.safetensors"
            write_safetensors(weights, header, data)
            plan = folder / "out.plan"
            case.compile(self.tools, ONE_RANK, plan)
            return check_golden(
                case, case.train(self.tools, plan, folder, weights=weights)[0]
            )

        self.add(f"{case.name}/weights-without-prefix", body)

    def add_several_files(self, case: Case) -> None:
        """Weights in two files with an index, given as their folder."""

        def body(folder):
            split_weights(case.inputs / "model.safetensors", folder)
            plan = folder / "out.plan"
            case.compile(self.tools, ONE_RANK, plan)
            return check_golden(
                case, case.train(self.tools, plan, folder, weights=folder)[0]
            )

        self.add(f"{case.name}/weights-in-two-files", body)

    def add_repeatable(self, case: Case, layout: Layout) -> None:
        """The same command twice gives the same bytes: plan, log, weights."""

        def body(folder):
            results = []
            for name in ("a", "b"):
                part = folder / name
                part.mkdir()
                plan = part / "out.plan"
                case.compile(self.tools, layout, plan)
                save = ("--save", part / "saved")
                records, _ = case.train(self.tools, plan, part, *save)
                weights = part / "saved" / "model.safetensors"
                results.append((plan.read_bytes(), weights.read_bytes()))
                results[-1] += ([(r["loss"], r["grad_norm"]) for r in records],)
            for what, a, b in zip(("plan", "weights", "log"), *results):
                require(a == b, f"the {what} differs between two runs")

        self.offer("repeatable", case, layout, f"{layout.name}/repeatable", body)

    def add_divided_alike(self, case: Case) -> None:
        """Ranks that divide the optimizer's state save the same weights, to the
        bit, as ranks that do not: all reductions add in the order of the ranks,
        and what is done to an element is the same. (The norm adds up squares in
        another order: nothing is clipped here.)"""

        def body(folder):
            saved = []
            for zero, precision in itertools.product((0, 1), ("fp32", "bf16")):
                layout = Layout(
                    (("dp", 4),), "1f1b", "none", zero=zero, precision=precision
                )
                part = folder / f"{zero}-{precision}"
                part.mkdir()
                plan = part / "out.plan"
                case.compile(self.tools, layout, plan)
                save = ("--save", part / "saved")
                case.train(self.tools, plan, part, *save, clip=0)
                weights = part / "saved" / "model.safetensors"
                saved.append(weights.read_bytes())
            require(saved[0] == saved[2], "fp32 weights differ")
            require(saved[1] == saved[3], "bf16 weights differ")

        layout = Layout((("dp", 4),), "1f1b", "none", zero=1)
        name = "dp=4/zero-1-and-zero-0-alike"
        self.offer("divided-alike", case, layout, name, body)

    def add_resumed(self, case: Case, first: Layout, second: Layout) -> None:
        """What one mesh saves, another loads: its first loss is that of the
        first mesh loading the same file, both computing in one precision."""

        def body(folder):
            plan = folder / "a.plan"
            case.compile(self.tools, first, plan)
            case.train(self.tools, plan, folder, "--save", folder / "saved")
            other = folder / "b.plan"
            case.compile(self.tools, second, other)
            losses = []
            for path in (plan, other):
                records, _ = case.train(
                    self.tools, path, folder, weights=folder / "saved"
                )
                losses.append(records[0]["loss"])
            off = compare.relative(losses[1], losses[0])
            exact = first.precision == second.precision == "fp32"
            bound = 1e-5 if exact else BF16_ONE_RANK_TOLERANCE
            require(off <= bound, f"losses {losses} after loading")
            return f"first losses off {off:.2g}"

        name = f"{first.name}/loaded-by/{second.name}"
        self.offer("resumed", case, first, name, body)

    def add_long_sequence(self, kind: str, heads: int, groups: int) -> None:
        """One layer of Llama on a sequence of 8,192 tokens: eight ranks of cp
        have the loss of one rank in less than a quarter of its memory. (Of
        65,536 tokens with four heads in two groups, gathered, in 90,607,872
        instead of 515,707,136 bytes.)"""
        length, vocabulary = 8192, 256

        def body(folder):
            config = json.loads((Case("llama-small-test").inputs
                                 / "config.json").read_text())
            config |= {
                "num_attention_heads": heads,
                "num_key_value_heads": groups,
                "intermediate_size": 128,
                "num_hidden_layers": 1,
                "vocab_size": vocabulary,
                "max_position_embeddings": length,
            }
            (folder / "config.json").write_text(json.dumps(config))
            ids = bytes(x * x % 251 for x in range(length + 1))
            (folder / "text").write_bytes(ids)
            losses, arenas = [], []
            for size in (1, 8):
                plan = folder / f"{size}.plan"
                self.tools.run(
                    "plaitc", folder, "--mesh", f"cp={size}",
                    *("--attention", "flash", "--no-reference"),
                    *("--context-parallel", kind),
                    *("--global-batch", 1, "--seq", length, "-o", plan),
                )
                log = folder / f"{size}.jsonl"
                self.tools.run(
                    "plait-run", plan, "--text", folder / "text",
                    *("--steps", 1, "--log", log),
                )
                shown = self.tools.run("plait-plan", "show", plan).stdout
                match = re.search(r"^ +arena .* (\d+) bytes$", shown, re.MULTILINE)
                arenas.append(int(match[1]))
                losses.append(compare.read_steps(str(log))[0]["loss"])
            require(
                4 * arenas[1] < arenas[0], f"arenas of {arenas} bytes a rank"
            )
            off = compare.relative(losses[1], losses[0])
            require(off <= ONE_RANK_TOLERANCE, f"losses {losses}")
            return f"arenas {arenas}, one rank off {off:.2g}"

        self.add(f"llama/cp=8/{kind}/{length}-tokens", body)

    def add_check(self, case: Case, layout: Layout) -> None:
        """plait-run --check agrees that the gradients are right."""

        def body(folder):
            plan = folder / "out.plan"
            case.compile(self.tools, layout, plan, reference=True)
            self.tools.run("plait-run", plan, "--check", *case.data_options())

        self.offer("check", case, layout, f"{layout.name}/check", body)

    def add_certain(self, case: Case) -> None:
        """A model that knows its data by heart: what is left of probabilities
        next to 1 is rounded at the size of 1, which is no difference; a loss
        of zero is nothing to compare."""

        def body(folder):
            plan, data = folder / "out.plan", folder / "same.bin"
            self.tools.run(
                "plaitc", case.inputs, "--mesh", "dp=2,tp=2", "--seq", "32",
                "--global-batch", "4", "--dropout", "off", "-o", plan,
            )  # fmt: skip
            data.write_bytes(bytes(4096))
            options = ["--tokens", data, "--token-type", "uint16"]

            def check(steps: int):
                weights = folder / f"after-{steps}"
                self.tools.run(
                    "plait-run", plan, *options, "--steps", steps,
                    "--lr", "0.01", "--save", weights,
                )  # fmt: skip
                return self.tools.call(
                    "plait-run", plan, *options, "--weights", weights, "--check"
                )

            known = [check(steps) for steps in (11, 14)]
            for outcome in known:
                require(outcome.code == 0, outcome.stdout + outcome.stderr)
            certain = check(40)
            require(certain.code != 0, certain.stdout)
            require("nothing to compare" in certain.stderr, certain.stderr)
            return known[0].stdout.strip().split("\n")[-1]

        self.add(f"{case.name}/certain", body)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--large",
        choices=("none", "few", "all"),
        default="few",
        help="meshes of the GPT-2 124M shape (minutes when all)",
    )
    covering.add_option(parser)
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    matrix = Matrix(tools, Reporter("execute", options.filter))
    gpt2, llama = Case("gpt2-small-test"), Case("llama-small-test")
    llama3 = Case("llama3-small-test")
    for case in (gpt2, llama):
        matrix.add_layouts(case, layouts())
        matrix.add_layouts(case, sequence_parallel())
        matrix.add_layouts(case, in_pieces())
        matrix.add_layouts(case, mixed())
        matrix.add_layouts(case, flash())
        matrix.add_layouts(case, divided())
        matrix.add_layouts(case, grouped())
        matrix.add_layouts(case, selective())
        matrix.add_layouts(case, chunked())
        matrix.add_layouts(case, context())
        matrix.add_layouts(case, by_heads())
        matrix.add_layouts(case, zigzag())
        matrix.add_repeatable(case, CONTEXT)
        matrix.add_check(case, CONTEXT)
        matrix.add_check(case, dataclasses.replace(CONTEXT, attention="flash"))
        matrix.add_resumed(case, CONTEXT, ONE_RANK)
        reordered = dataclasses.replace(CONTEXT, context_parallel="zigzag")
        matrix.add_check(case, reordered)
        matrix.add_resumed(case, reordered, CONTEXT)
        matrix.add_divided_alike(case)
        matrix.add_repeatable(case, WHOLE)
        for precision in ("fp32", "bf16"):
            layout = dataclasses.replace(WHOLE, zero=1, precision=precision)
            matrix.add_repeatable(case, layout)
            matrix.add_check(case, layout)
            matrix.add_resumed(case, layout, layout.alone)
        matrix.add_check(case, WHOLE)
        matrix.add_check(case, dataclasses.replace(WHOLE, precision="bf16"))
        matrix.add_check(case, dataclasses.replace(WHOLE, attention="flash"))
    few = dataclasses.replace(FEW_HEADS, attention="flash", recompute="full")
    matrix.add_layouts(llama, (FEW_HEADS, few))
    # Llama has neither biases nor GELU.
    matrix.add_layouts(gpt2, fused())
    matrix.add_check(gpt2, dataclasses.replace(WHOLE, epilogues="all"))
    matrix.add_check(gpt2, dataclasses.replace(WHOLE, loss_chunks=2))
    matrix.add_certain(gpt2)
    matrix.add_layouts(llama3, layouts(({}, {"pp": 2, "tp": 2}, {"cp": 4})))
    for name in (
        "deepseek-v3", "gpt-oss", "mistral", "mixtral", "olmo2", "olmoe", "phi3", "qwen2",
        "qwen3", "qwen3-moe",
    ):  # fmt: skip
        family = Case(f"{name}-small-test")
        matrix.add_layouts(family, families())
        matrix.add_check(family, WHOLE)
        if name in ("mixtral", "olmoe", "qwen3-moe"):
            matrix.add_layouts(family, experts())
    # Some rows of all tokens are kept: these experts have no chunks.
    whole = [x for x in experts() if x.expert_chunks == 1]
    matrix.add_layouts(Case("gpt-oss-small-test"), whole)
    # Of groups of experts a token may be between two, and in bf16 go to either.
    exact = [x for x in (*families(), *experts()) if x.precision == "fp32"]
    matrix.add_layouts(Case("deepseek-v3-small-test"), exact)
    for name in ("deepseek-v3", "qwen3-moe"):
        balanced = Case(f"{name}-balanced-test")
        matrix.add_layouts(balanced, exact)
        matrix.add_check(balanced, WHOLE)
    matrix.add_resumed(Case("deepseek-v3-balanced-test"), WHOLE, ONE_RANK)
    matrix.add_layouts(Case("qwen2-yarn-small-test"), (ONE_RANK, CONTEXT, WHOLE))
    matrix.add_resumed(Case("phi3-small-test"), WHOLE, ONE_RANK)
    matrix.add_layouts(Case("gpt2-small-test-plain"), (ONE_RANK, WHOLE))
    matrix.add_long_sequence("gather", 4, 2)
    matrix.add_long_sequence("heads", 8, 8)
    matrix.add_long_sequence("zigzag", 4, 2)
    matrix.add_weights_without_prefix(gpt2)
    matrix.add_several_files(llama)
    matrix.add_resumed(gpt2, WHOLE, ONE_RANK)
    matrix.add_resumed(llama, Layout((("pp", 4),), "gpipe", "none"), WHOLE)
    large = {"none": (), "few": (WHOLE,), "all": tuple(layouts())}
    if options.large != "none":
        matrix.add_layouts(Case("gpt2-124m"), large[options.large])
    matrix.check_layouts(options)
    matrix.check_others(options)
    return matrix.report.finish()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"error: {failure}")
