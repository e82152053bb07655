#!/usr/bin/env python3
#===- adapters.py - Low-rank adapters against PEFT's -------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains adapters that Hugging Face's PEFT has made over meshes and options, from the
folder that it has saved, and compares losses, gradient norms and the folder that is
saved with PEFT's (test/golden/adapters)."""

import dataclasses
import functools
import json
import pathlib
import re
import shutil
import sys
import tempfile

import numpy
from safetensors.numpy import load_file, save_file

import covering
from harness import GOLDEN, Reporter, Tools, arguments, require

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

# fp32 on both sides; the farthest of these runs were off by a fifth.
TOLERANCE = {"loss": 1e-5, "grad_norm": 1e-5}
WEIGHT_TOLERANCE = 1e-5
# As masks/runs.py has it.
BF16_TOLERANCE = {"loss": 2**-9, "grad_norm": 2**-5}

FULL = ("--recompute", "full")
BF16 = ("--precision", "bf16")
SP = ("--sequence-parallel",)


@dataclasses.dataclass(frozen=True)
class Run:
    case: str
    mesh: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = [word.lstrip("-") for word in self.options]
        return "/".join((self.case, self.mesh, *words))

    def choices(self) -> dict:
        return {"case": self.case} | covering.split_options(self.mesh, self.options)


def zero(stage: int) -> tuple[str, ...]:
    return ("--zero", str(stage))


RUNS = (
    *(Run(case, "pp=1") for case in ("llama", "gpt2", "qwen3", "phi3", "neox")),
    *(Run(case, "tp=2", SP) for case in ("llama", "gpt2", "qwen3", "phi3", "neox")),
    *(Run(case, "pp=2,dp=2", zero(3)) for case in ("llama", "gpt2", "qwen3")),
    Run("llama", "pp=1", FULL + BF16),
    Run("llama", "dp=4", zero(3) + BF16),
    Run("llama", "dp=2", zero(1) + FULL),
    Run("llama", "dp=2", zero(2)),
    Run("gpt2", "cp=2"),
    Run("llama", "pp=2,dp=2,tp=2", SP + zero(1)),
    Run("llama", "pp=2", ("--schedule", "zb-v", "--chunks", "2")),
    Run("gpt2", "pp=2,tp=2", FULL + BF16),
)

# PEFT's adapters may be of kinds that plans do not train.
UNKNOWN = ", which no plan trains"
OTHER_ADAPTERS = (
    ("use_dora", True, UNKNOWN),
    ("peft_type", "IA3", ', the plan "LORA"'),
    ("bias", "all", UNKNOWN),
    ("lora_bias", True, UNKNOWN),
    ("modules_to_save", ["lm_head"], UNKNOWN),
    ("trainable_token_indices", [1], UNKNOWN),
    ("alpha_pattern", {"q_proj": 16}, UNKNOWN),
    ("rank_pattern", {"q_proj": 8}, UNKNOWN),
    (
        "init_lora_weights",
        "pissa_niter_4",
        ": it is of a model that was changed where it began, and not of its files",
    ),
)


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder

    @staticmethod
    def golden(case: str) -> dict:
        return json.loads((GOLDEN / "adapters" / case / "golden.json").read_text())

    def compile(self, run: Run, *more) -> pathlib.Path:
        golden, plan = self.golden(run.case), self.folder / "run.plan"
        words = ["--lora", golden["rank"], "--lora-alpha", golden["alpha"]]
        if golden["targets"] != "all-linear":
            words += ["--lora-targets", ",".join(golden["targets"])]
        recipe = golden["recipe"]
        self.tools.run(
            "plaitc",
            GOLDEN / golden["inputs"] / "config.json",
            *("--mesh", run.mesh, *run.options, *words, "--micro-batch", 1),
            *("--global-batch", recipe["global_batch"], "--seq", recipe["seq"]),
            *("-o", plan, *more),
        )
        return plan

    def start(self, case: str, plan: pathlib.Path) -> list:
        inputs = GOLDEN / self.golden(case)["inputs"]
        return [plan, "--tokens", inputs / "tokens.bin", "--weights", inputs]

    def train(self, run: Run, plan: pathlib.Path, *more) -> list[dict]:
        names = ("steps", "lr", "beta1", "beta2", "eps", "weight_decay", "grad_clip")
        recipe = self.golden(run.case)["recipe"]
        log = self.folder / "steps.jsonl"
        log.unlink(missing_ok=True)
        self.tools.run(
            "plait-run",
            *(*self.start(run.case, plan), "--log", log),
            *(x for n in names for x in ("--" + n.replace("_", "-"), recipe[n])),
            *more,
        )
        return [json.loads(line) for line in log.read_text().splitlines()]

    def check_steps(self, run: Run, found: list[dict]) -> str:
        limits = BF16_TOLERANCE if "bf16" in run.options else TOLERANCE
        rows = compare.differences(self.golden(run.case)["steps"], found)
        off = {key: max(row[key] for row in rows) for key in limits}
        require(all(off[x] <= limits[x] for x in off), f"{off} of {limits}")
        return ", ".join(f"{x} off {off[x]:.2g}" for x in off)

    def check_folder(self, run: Run, saved: pathlib.Path) -> str:
        """The files, the tensors and what is said of them."""
        theirs = GOLDEN / "adapters" / run.case / "final"
        names = sorted(path.name for path in saved.iterdir())
        expected = ["adapter_config.json", "adapter_model.safetensors"]
        require(names == expected, f"wrote {names}")
        ours, theirs = (
            (load_file(x / expected[1]), json.loads((x / expected[0]).read_text()))
            for x in (saved, theirs)
        )
        require(ours[0].keys() == theirs[0].keys(), f"has {sorted(ours[0])}")
        for key in ("peft_type", "r", "lora_alpha", "fan_in_fan_out", "bias"):
            require(ours[1][key] == theirs[1][key], f"{key} is {ours[1][key]}")
        require(ours[1]["target_modules"] == sorted(ours[1]["target_modules"]), "order")
        return max(
            numpy.abs(tensor - theirs[0][name]).max() for name, tensor in ours[0].items()
        )

    #===-- Cases ----------------------------------------------------------===#

    def check_run(self, run: Run) -> str:
        """From PEFT's folder, and the folder that is saved is PEFT's again."""
        plan = self.compile(run, "--no-reference")
        saved = self.folder / "saved"
        shutil.rmtree(saved, ignore_errors=True)
        start = GOLDEN / "adapters" / run.case / "start"
        found = self.train(run, plan, "--adapter", start, "--save", saved)
        text = self.check_steps(run, found)
        off = self.check_folder(run, saved)
        if "bf16" not in run.options:
            require(off <= WEIGHT_TOLERANCE, f"weights off {off:.2g}")
        return f"{text}, weights off {off:.2g}"

    def check_fresh(self) -> str:
        """Without a folder the model begins as it is: its own first loss. So do meshes."""
        expected = json.loads((GOLDEN / "llama-small-test" / "golden.json").read_text())
        both = [
            self.train(run, self.compile(run, "--no-reference"))
            for run in (Run("llama", "pp=1"), Run("llama", "pp=2,dp=2", zero(3)))
        ]
        off = abs(both[0][0]["loss"] / expected["steps"][0]["loss"] - 1)
        require(off < TOLERANCE["loss"], f"the first loss is off {off:.2g}")
        require(both[0][0]["grad_norm"] > 0, "nothing is trained")
        rows = compare.differences(*both)
        off = max(row[key] for row in rows for key in TOLERANCE)
        require(off < TOLERANCE["loss"], f"meshes differ by {off:.2g}")
        return f"meshes differ by {off:.2g}"

    def check_resumed(self) -> str:
        """A checkpoint has the adapters, and the model, which has no master here."""
        run, folder = Run("llama", "dp=2", zero(2) + BF16), self.folder / "checkpoints"
        plan = self.compile(run, "--no-reference")
        start = GOLDEN / "adapters" / run.case / "start"
        whole = self.train(run, plan, "--adapter", start)
        more = ("--checkpoint", folder, "--resume", folder, "--adapter", start)
        self.train(run, plan, *more, "--steps", 2)
        rest = self.train(run, plan, *more)
        keys = ("step", "loss", "grad_norm")
        bits = [[[x[key] for key in keys] for x in steps] for steps in (whole[2:], rest)]
        require(bits[0] == bits[1], f"{bits[1]}, expected {bits[0]}")
        plan = self.compile(run, "--no-reference", "--lora-alpha", 32)
        words = (*self.start(run.case, plan), "--steps", 6, "--resume", folder)
        outcome = self.tools.call("plait-run", *words)
        message = "has adapters of alpha 8, the plan's have 32"
        require(outcome.code == 1 and message in outcome.stderr, outcome.stderr)
        return "the same bits"

    def check_memory(self) -> str:
        """A frozen parameter takes 2 bytes an element where adapters are trained, and 6
        where it is saved."""
        nano = GOLDEN.parents[1] / "examples/models/gpt2-nano"
        sizes = []
        for words in (("--freeze", "*.wte.weight"), ("--lora", 1)):
            plan = self.folder / "memory.plan"
            self.tools.run(
                "plaitc", nano, *BF16, *words, "--mesh", "1", "--no-reference",
                *("--global-batch", 1, "--seq", 8, "-o", plan),
            )  # fmt: skip
            shown = self.tools.run("plait-plan", "show", plan).stdout
            sizes.append(int(re.search(r"parameters .* (\d+) bytes", shown)[1]))
        frozen = sizes[0] / 6  # both master and copy of all
        require(sizes[1] < 2.3 * frozen, f"{sizes[1]} bytes of {frozen:.0f} elements")
        return f"{sizes[1] / frozen:.2f} bytes an element"

    def check_against_reference(self, run: Run) -> str:
        plan = self.compile(run)
        text = self.tools.run("plait-run", *self.start(run.case, plan), "--check").stdout
        return text.splitlines()[-1]

    def other(self, folder: pathlib.Path, field: str, value) -> pathlib.Path:
        """Makes a folder of which the config says something else."""
        other = self.folder / f"{field}-{value}".replace("/", "")
        shutil.copytree(folder, other)
        config = json.loads((folder / "adapter_config.json").read_text())
        require(config[field] != value, f"{field} is {value}")
        (other / "adapter_config.json").write_text(json.dumps(config | {field: value}))
        return other

    def cut(self, folder: pathlib.Path) -> pathlib.Path:
        """Makes a folder without the adapters of down_proj in the first layer."""
        cut = self.folder / "cut"
        shutil.copytree(folder, cut)
        file = cut / "adapter_model.safetensors"
        tensors = load_file(file)
        save_file({k: v for k, v in tensors.items() if ".0.mlp.down" not in k}, file)
        return cut

    def check_dropout(self) -> str:
        """What PEFT applies and plans do not is said, and told apart from none."""
        start = GOLDEN / "adapters" / "llama" / "start"
        plan = self.compile(Run("llama", "pp=1"), "--no-reference")
        told = []
        for folder in (start, self.other(start, "lora_dropout", 0.05)):
            words = (*self.start("llama", plan), "--steps", 1, "--adapter", folder)
            told.append("lora_dropout 0.05, which" in self.tools.run("plait-run", *words).stderr)
        require(told == [False, True], f"told {told}")
        return "told"

    def check_stable(self) -> str:
        """PEFT multiplies adapters of rsLoRA by lora_alpha / √r: other words for the same
        adapters."""
        run = Run("gpt2", "pp=1")
        plan, golden = self.compile(run, "--no-reference"), self.golden(run.case)
        start = GOLDEN / "adapters" / run.case / "start"
        stable = self.other(start, "use_rslora", True)
        message = f"has lora_alpha 16, with use_rslora as {16 * 3**0.5:.4f}"
        words = (*self.start(run.case, plan), "--steps", 1, "--adapter", stable)
        outcome = self.tools.call("plait-run", *words)
        require(outcome.code == 1 and message in outcome.stderr, outcome.stderr)
        alpha = round(golden["alpha"] / golden["rank"] ** 0.5, 8)
        same = self.other(stable, "lora_alpha", alpha)
        saved = self.folder / "plain"
        found = self.train(run, plan, "--adapter", same, "--save", saved)
        off = self.check_folder(run, saved)
        require(off <= WEIGHT_TOLERANCE, f"weights off {off:.2g}")
        return self.check_steps(run, found)

    def check_errors(self) -> None:
        """What is no such adapter, and targets that are none."""
        config = GOLDEN / "llama-small-test" / "config.json"
        sizes = ("--mesh", "1", "--global-batch", 8, "--seq", 32, "-o", "/dev/null")
        start = GOLDEN / "adapters" / "llama" / "start"
        plan = self.compile(Run("llama", "pp=1"), "--no-reference")
        shutil.move(plan, self.folder / "llama.plan")
        plan = self.folder / "llama.plan"
        begin = self.start("llama", plan)
        broken = self.folder / "broken"
        broken.mkdir()
        (broken / "adapter_config.json").write_text("[]")
        part = self.folder / "part.plan"
        words = ("--lora", 4, "--lora-alpha", 8, "--lora-targets", "q_proj")
        self.tools.run("plaitc", config, *sizes[:-1], part, *words, "--no-reference")
        plain = self.folder / "plain.plan"
        self.tools.run("plaitc", config, *sizes[:-1], plain, "--no-reference")
        for words, message in (
            (("plaitc", config, *sizes, "--lora", 0), "--lora"),
            (("plaitc", config, *sizes, "--lora", 2, "--lora-alpha", 0), "--lora-alpha is 0"),
            (("plaitc", config, *sizes, "--lora-alpha", 2), "--lora-alpha requires --lora"),
            (
                ("plaitc", config, *sizes, "--lora", 2, "--lora-targets", "wq,v_proj"),
                "--lora-targets \"wq\" names no linear layer; there are: q_proj, k_proj, "
                "v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head",
            ),
            (
                ("plaitc", config, *sizes, "--lora", 2, "--lora-targets", "embed_tokens"),
                "names 'model.embed_tokens', which is not the matrix of a linear layer",
            ),
            (
                (
                    *("plaitc", config, *sizes[2:-2], "--lora", 2, "--cluster", "h100:8"),
                    *("--emit", "megatron"),
                ),
                "--emit excludes --lora",
            ),
            *(
                (
                    ("plait-run", *begin, "--adapter", self.other(start, field, value)),
                    f"has {field} {json.dumps(value, separators=(',', ':'))}{end}",
                )
                for field, value, end in OTHER_ADAPTERS
            ),
            (
                ("plait-run", *self.start("llama", part), "--adapter", start),
                "has 'base_model.model.model.layers.0.mlp.down_proj.lora_A.weight' and 47 "
                "more, for which the plan has no adapter",
            ),
            (
                ("plait-run", *begin, "--adapter", self.cut(start)),
                "cut/adapter_model.safetensors' has no tensor 'base_model.model.model."
                "layers.0.mlp.down_proj.lora_A.weight'",
            ),
            (
                ("plait-run", *begin, "--adapter", start.parents[1] / "gpt2" / "start"),
                "has r 3, the plan 4",
            ),
            (("plait-run", *begin, "--adapter", broken), "is no JSON object"),
            (("plait-run", *begin, "--adapter", self.folder / "none"), "cannot open adapter"),
            (
                ("plait-run", *self.start("llama", plain), "--adapter", start),
                "is given, but the plan trains none",
            ),
        ):
            outcome = self.tools.call(*words)
            require(
                outcome.code not in (0, -6, -11) and message in outcome.stderr,
                f"{words} ended with {outcome.code}: {outcome.stderr}",
            )

    def run(self, options) -> None:
        case = self.report.case
        for run in covering.chosen(RUNS, Run.choices, options):
            case(run.name, functools.partial(self.check_run, run))
        run = Run("gpt2", "pp=2,dp=2,tp=2", BF16)
        case("check/" + run.name, functools.partial(self.check_against_reference, run))
        for name in ("fresh", "resumed", "memory", "dropout", "stable", "errors"):
            case(name, getattr(self, f"check_{name}"))


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    covering.add_option(parser)
    options = parser.parse_args()
    report = Reporter("Adapters", options.filter)
    tools = Tools(options.bin, options.timeout)
    with tempfile.TemporaryDirectory() as folder:
        Suite(tools, report, pathlib.Path(folder)).run(options)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
