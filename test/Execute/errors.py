#!/usr/bin/env python3
#===- errors.py - Bad input -------------------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Gives plaitc and plait-run bad input. Each case must end with an exit code
that is 1, with one line of error that contains the expected fragments (regular
expressions), and with no file written or changed."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from harness import GOLDEN, Outcome, Reporter, Tools, arguments
from harness import read_safetensors, require, write_safetensors

GPT2 = GOLDEN / "gpt2-small-test"
LLAMA = GOLDEN / "llama-small-test"


def snapshot(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def check_refused(outcome: Outcome, fragments, before, after) -> str:
    shown = f"stderr: {outcome.stderr.strip()[-1500:]}"
    require(outcome.code != 0, f"accepted\n{shown}")
    require(outcome.code == 1, f"ended with {outcome.code}\n{shown}")
    lines = [x for x in outcome.stderr.splitlines() if x.strip()]
    errors = [re.match(r"plait[a-z-]*: error: ", x) for x in lines]
    # A note or a warning may be beside it.
    require(
        len(lines) <= 3 and sum(map(bool, errors)) == 1,
        f"not one clear error\n{shown}",
    )
    for fragment in fragments:
        found = re.search(fragment, outcome.stderr)
        require(found is not None, f"no '{fragment}' in the message\n{shown}")
    changed = [k for k in before if before[k] != after.get(k)]
    added = [k for k in after if k not in before]
    require(not changed and not added, f"files written: {added + changed}")
    return lines[0]


class Compiler:
    """Cases of plaitc: a model (edited), the usual options (replaced)."""

    def __init__(self, tools: Tools, report: Reporter):
        self.tools = tools
        self.report = report

    def refuse(self, name, fragments, edit=None, source=GPT2, **options):
        """`edit` changes the parsed config; an option's "_" stands for "-"."""
        usual = {
            "mesh": "pp=1",
            "schedule": "1f1b",
            "global-batch": 8,
            "micro-batch": 2,
            "seq": 32,
            "o": "out.plan",
        }
        usual |= {k.replace("_", "-"): v for k, v in options.items()}
        flags = []
        for key, value in usual.items():
            flags += [f"--{key}" if len(key) > 1 else f"-{key}", str(value)]

        def body():
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                config = json.loads((source / "config.json").read_text())
                text = json.dumps(config | (edit or {}))
                (folder / "config.json").write_text(text)
                before = snapshot(folder)
                outcome = self.tools.call("plaitc", ".", *flags, cwd=folder)
                after = snapshot(folder)
                return check_refused(outcome, fragments, before, after)

        self.report.case(f"plaitc/{name}", body)

    def refuse_file(self, name, fragments, content: str | None):
        """A config.json of arbitrary content; None: there is none."""

        def body():
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                if content is not None:
                    (folder / "config.json").write_text(content)
                before = snapshot(folder)
                outcome = self.tools.call(
                    "plaitc",
                    *(".", "--mesh", "pp=1", "--global-batch", "8"),
                    *("--micro-batch", "2", "--seq", "32", "-o", "out.plan"),
                    cwd=folder,
                )
                after = snapshot(folder)
                return check_refused(outcome, fragments, before, after)

        self.report.case(f"plaitc/{name}", body)


def config_cases(compiler: Compiler) -> None:
    refuse = compiler.refuse
    refuse("model-type", ["model_type", "bert"], {"model_type": "bert"})
    refuse("config-without-layers", ["n_layer"], {"n_layer": None})
    refuse("config-wrong-kind", ["n_layer"], {"n_layer": "four"})
    refuse("config-negative", ["n_embd", "-64"], {"n_embd": -64})
    refuse("heads-do-not-divide", ["n_head", "64", "5"], {"n_head": 5})
    refuse(
        "activation",
        ["activation_function", "relu6"],
        {"activation_function": "relu6"},
    )
    refuse(
        "attention-scaling",
        ["scale_attn_by_inverse_layer_idx"],
        {"scale_attn_by_inverse_layer_idx": True},
    )
    refuse(
        "rope-scaling",
        ["rope_scaling", "yarn"],
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        source=LLAMA,
    )
    refuse("hidden-act", ["hidden_act", "tanh"], {"hidden_act": "tanh"}, LLAMA)
    compiler.refuse_file("config-missing", ["config.json"], None)
    compiler.refuse_file("config-truncated", ["config.json"], '{"model_type')
    compiler.refuse_file("config-a-list", ["config.json"], "[1, 2]")
    compiler.refuse_file("config-empty", ["model_type"], "{}")


def option_cases(compiler: Compiler) -> None:
    refuse = compiler.refuse
    refuse("sequence-too-long", ["n_positions", "64", "65"], seq=65)
    refuse("tp-kv-heads", ["tp", "8", r"1, 2|1,2|4"], source=LLAMA, mesh="tp=8")
    refuse("tp-three", ["tp", "3"], source=LLAMA, mesh="tp=3")
    refuse("pp-too-large", ["pp", "64", "most|largest"], mesh="pp=64")
    refuse("batch-over-dp", ["10", "dp|micro"], global_batch=10, mesh="dp=4")
    refuse("batch-over-micro", ["micro", "3"], micro_batch=3)
    refuse("batch-zero", ["batch", "0"], global_batch=0)
    refuse("micro-batch-negative", ["micro-batch"], micro_batch=-1)
    refuse("zero-4", ["zero is \"4\", expected 0 to 3"], zero=4, mesh="dp=2")
    refuse("pieces", ["tp-comm-overlap is \"65\", expected 1 to 64"], tp_comm_overlap=65)
    refuse("mesh-zero", ["pp", "0"], mesh="pp=0")
    refuse("mesh-axis", ["xx"], mesh="xx=2")
    refuse("mesh-twice", ["tp"], mesh="tp=2,tp=2")
    refuse("mesh-text", ["mesh"], mesh="tp")
    refuse("schedule", ["zigzag"], schedule="zigzag")
    refuse("recompute", ["some"], recompute="some")
    refuse("recompute-auto", ["auto", "--cluster"], recompute="auto")
    refuse("recompute-stages", ["2 virtual stages", "has 1"], recompute="full/none")
    refuse("phase", ["nowhere"], compile_to="nowhere")
    refuse("output-folder-missing", ["absent"], o="absent/out.plan")
    refuse("output-is-folder", ["/tmp"], o="/tmp")
    refuse("precision-alone", ["int8", "bf16"], precision="int8")
    refuse("attention", ["sparse", "flash"], attention="sparse")
    refuse("attention-of-gpu", ["f32", "bf16"], backend="cuda", attention="flash")
    refuse("shard-form", [r"error: --shard: \"wte\" is not NAME=AXES"], shard="wte")
    refuse("shard-text", [r"--shard \*=\[\{\"tp\"\}: "], shard='*=[{"tp"}')
    refuse("empty-value", ["error: --mesh is empty"], mesh="")
    refuse("leading-zero", ["--global-batch is '010'"], global_batch="010")
    same = "--output and model are the same file, 'config.json'"
    refuse("output-over-model", [same], o="config.json")


def planner_cases(compiler: Compiler) -> None:
    refuse = compiler.refuse
    cpu = {"cluster": "cpu:4"}
    refuse("cluster-unknown", ["h999", "h100"], cluster="h999:2x8")
    refuse("cluster-empty", ["h100:0x8", "nodes"], cluster="h100:0x8")
    refuse("cluster-file", ["no.json"], cluster="no.json")
    refuse("pin-mesh", ["tp 3", "4 ranks"], **cpu, mesh="tp=3")
    refuse("pin-unknown", ["sixteen"], **cpu, pin="sixteen=1")
    refuse("pin-range", ["zero", "9", "0 to 3"], **cpu, pin="zero=9")
    refuse("pin-twice", ["pp"], **cpu, pin="pp=2")
    refuse("pin-sharding", ["c_fc.weight"], **cpu, shard="*.c_fc.weight=[{}]")
    refuse("pin-layers", ["3", "2"], **cpu, mesh="pp=2", layers="1,2,1")
    refuse("precision", ["int8", "bf16"], **cpu, precision="int8")
    refuse("precision-of-plan", ["fp16", "bf16"], **cpu, precision="fp16")
    refuse("reduce-precision", ["reduce-precision", "int8", "bf16"], reduce_precision="int8")
    refuse("reduce-precision-of-plan", ["reduce-precision", "fp16", "bf16"],
           reduce_precision="fp16")
    refuse("framework", ["jax", "plait"], **cpu, framework="jax")
    refuse("why-not", ["tp"], **cpu, why_not="tp=0")
    refuse("report", ["absent"], **cpu, report="absent/plan.html")
    refuse("planner-alone", ["--pin", "--cluster"], pin="zero=1")
    refuse("cluster-without-name", ["--cluster is empty"], cluster="")
    same = "--output and --json are the same file, 'out.plan'"
    refuse("two-outputs", [same], **cpu, json="./out.plan")


class Runner:
    """Cases of plait-run: a folder with out.plan, model.safetensors and
    tokens.bin, one of which the case spoils."""

    def __init__(self, tools: Tools, report: Reporter):
        self.tools = tools
        self.report = report
        self.plan = b""

    def compile(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            plan = pathlib.Path(folder) / "out.plan"
            self.tools.run(
                "plaitc",
                *(GPT2, "--mesh", "pp=2,tp=2", "--schedule", "1f1b"),
                *("--global-batch", "8", "--micro-batch", "2"),
                *("--seq", "32", "-o", plan),
            )
            self.plan = plan.read_bytes()
        return f"{len(self.plan)} bytes"

    def refuse(self, name, fragments, spoil, *more, options=None) -> None:
        """`spoil` edits the folder; `options` replaces the usual ones."""
        if options is None:
            options = ("--weights", "model.safetensors")
            options += ("--tokens", "tokens.bin", "--steps", "1")

        def body():
            require(bool(self.plan), "no plan: compilation failed")
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                (folder / "out.plan").write_bytes(self.plan)
                for file in ("model.safetensors", "tokens.bin"):
                    shutil.copy(GPT2 / file, folder / file)
                spoil(folder)
                before = snapshot(folder)
                outcome = self.tools.call(
                    "plait-run", "out.plan", *options, *more, cwd=folder
                )
                after = snapshot(folder)
                return check_refused(outcome, fragments, before, after)

        self.report.case(f"plait-run/{name}", body)


def cut(file: str, length: int):
    """Keeps the first `length` bytes; a negative one drops from the end."""

    def spoil(folder):
        path = folder / file
        path.write_bytes(path.read_bytes()[:length])

    return spoil


def flip(file: str, position: float):
    """Flips one bit at the fraction `position` of the file."""

    def spoil(folder):
        path = folder / file
        content = bytearray(path.read_bytes())
        offset = int(position * (len(content) - 1))
        content[offset] ^= 1 << (offset % 8)
        path.write_bytes(content)

    return spoil


def overwrite(file: str, offset: int, data: bytes):
    def spoil(folder):
        path = folder / file
        content = bytearray(path.read_bytes())
        content[offset : offset + len(data)] = data
        path.write_bytes(content)

    return spoil


def edit_header(change):
    """Rewrites the header of model.safetensors through `change`."""

    def spoil(folder):
        path = folder / "model.safetensors"
        header, data = read_safetensors(path)
        change(header)
        write_safetensors(path, header, data)

    return spoil


def untouched(folder) -> None:
    pass


LAYER_NORM = "transformer.h.1.ln_1.weight"
FUSED = "transformer.h.2.attn.c_attn.weight"


def reshape(header):
    header[FUSED]["shape"] = [192, 64]


def shrink(header):
    header[FUSED]["shape"] = [64, 191]


def remove(header):
    del header[LAYER_NORM]


def retype(header):
    header[LAYER_NORM]["dtype"] = "I32"


def overlap(header):
    """The bytes of another tensor of the same shape."""
    other = header[LAYER_NORM.replace("h.1", "h.0")]
    header[LAYER_NORM]["data_offsets"] = other["data_offsets"]


def break_up(header):
    """Whole bytes are what there is."""
    header[LAYER_NORM]["data_offsets"][0] += 0.5


def overrun(header):
    header[LAYER_NORM]["data_offsets"][1] += 1 << 40


def weight_cases(runner: Runner) -> None:
    file = "model.safetensors"
    for name, length in (
        ("empty", 0),
        ("in-length", 5),
        ("in-header", 100),
        ("in-data", 400000),
        ("last-byte", -1),
    ):
        runner.refuse(f"weights-cut-{name}", [file], cut(file, length))
    huge = (1 << 62).to_bytes(8, "little")
    runner.refuse("weights-huge-header", [file], overwrite(file, 0, huge))
    runner.refuse("weights-no-json", [file], overwrite(file, 8, b"]]]]"))
    expected = ["c_attn.weight", r"64\D+192", r"192\D+64"]
    runner.refuse("weights-shape", expected, edit_header(reshape))
    runner.refuse("weights-size", ["c_attn.weight"], edit_header(shrink))
    runner.refuse(
        "weights-tensor-missing", [r"h\.1\.ln_1\.weight"], edit_header(remove)
    )
    runner.refuse("weights-dtype", ["ln_1", "I32"], edit_header(retype))
    runner.refuse("weights-offsets", [file], edit_header(overrun))
    both = [r"h\.0\.ln_1\.weight.*h\.1\.ln_1\.weight", "same bytes"]
    runner.refuse("weights-overlap", both, edit_header(overlap))
    runner.refuse("weights-fraction", ["ln_1"], edit_header(break_up))
    runner.refuse(
        "weights-missing",
        ["absent"],
        untouched,
        options=("--weights", "absent", "--tokens", "tokens.bin"),
    )


def data_cases(runner: Runner) -> None:
    file = "tokens.bin"
    beyond = (321).to_bytes(2, "little")
    runner.refuse(
        "token-beyond-vocabulary",
        [file, r"\b321\b", r"\b100\b"],
        overwrite(file, 200, beyond),
    )
    wide = b"".join(x.to_bytes(4, "little") for x in range(1, 100))
    runner.refuse(
        "tokens-of-four-bytes",
        [file, "looks like int32", "--token-type"],
        lambda folder: (folder / file).write_bytes(wide),
    )
    runner.refuse("tokens-odd-size", [file], cut(file, 1001))
    runner.refuse("tokens-too-few", [file, "33"], cut(file, 64))
    runner.refuse("tokens-empty", [file], cut(file, 0))
    runner.refuse(
        "tokens-missing", ["absent"], untouched, options=("--tokens", "absent")
    )
    runner.refuse("no-data", ["--tokens|--text"], untouched, options=())
    runner.refuse(
        "two-data",
        ["--text"],
        untouched,
        options=("--tokens", file, "--text", file),
    )


def plan_cases(runner: Runner) -> None:
    file = "out.plan"
    for position in (0.0, 0.001, 0.1, 0.5, 0.9, 0.999):
        length = int(position * len(runner.plan))
        runner.refuse(f"plan-cut-at-{position}", [file], cut(file, length))
    runner.refuse("plan-cut-last-byte", [file], cut(file, -1))
    for count in range(20):
        position = count / 19
        name = f"plan-bit-flipped-at-{position:.2f}"
        runner.refuse(name, [file], flip(file, position))
    for offset in range(0, 32, 4):
        runner.refuse(
            f"plan-header-byte-{offset}",
            [file],
            overwrite(file, offset, b"\xa5"),
        )
    other_processor_case(runner)
    runner.refuse("plan-missing", [file], lambda x: (x / file).unlink())


def other_processor_case(runner: Runner) -> None:
    """A plan for a processor with more than this machine has."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    # The message names one; without 512-bit registers it is another.
    missing = {"avx512f", "avx512_vnni", "avx512_bf16"} - set(flags)

    def compile_for_another(folder):
        outcome = runner.tools.call(
            "plaitc",
            *(GPT2, "--target-cpu", "sapphirerapids"),
            *("--global-batch", "2", "--seq", "32"),
            *("-o", folder / "out.plan"),
        )
        require(outcome.code == 0, outcome.stderr)

    if missing:
        runner.refuse(
            "plan-for-another-cpu",
            ["needs cpu feature (" + "|".join(missing) + ")"],
            compile_for_another,
        )
    else:
        print("this machine has all that sapphirerapids has: case left out")


def output_cases(runner: Runner) -> None:
    runner.refuse(
        "log-unwritable", ["absent"], untouched, "--log", "absent/steps.jsonl"
    )
    runner.refuse(
        "save-unwritable", ["tokens"], untouched, "--save", "tokens.bin/saved"
    )
    for option, value in (
        ("--steps", "-1"),
        ("--lr", "nan"),
        ("--grad-clip", "-1"),
        ("--beta1", "1.5"),
        ("--eps", "x"),
        ("--eps", "0"),  # padding is divided by it
        ("--seed", "-3"),
        ("--token-type", "int8"),
        # Neither the largest seed that there is, nor 8, nor random weights.
        ("--seed", str(1 << 64)),
        ("--warmup-steps", "010"),
        ("--threads", "0x2"),
        ("--checkpoint", ""),
        ("--log", ""),
    ):
        name = f"option{option[1:]}" + (f"={value}" if value[:1] != "-" else "")
        runner.refuse(name, [option[2:]], untouched, option, value)
    for name, file in (("plan", "out.plan"), ("tokens", "./tokens.bin")):
        for option in ("--log", "--dashboard"):
            runner.refuse(
                f"{option[2:]}-over-{name}",
                [f"{option} and (--)?{name} are the same file, '{file}'"],
                untouched,
                *(option, file),
            )
    runner.refuse(
        "two-outputs",
        ["--log and --log-samples are the same file, 'x'"],
        untouched,
        *("--log", "x", "--log-samples", "./x"),
    )
    for option in ("--save", "--log", "--profile"):
        runner.refuse(
            f"check-with{option[1:]}",
            ["--check", option],
            untouched,
            *("--check", option, "x"),
            options=(),
        )
    runner.refuse(
        "check-with-steps",
        ["--check", "--steps"],
        untouched,
        options=("--check", "--steps", "5"),
    )
    runner.refuse(
        "two-standard-outputs",
        ["--log and --profile are both standard output"],
        untouched,
        *("--log", "-", "--profile", "-"),
    )


def usage_cases(tools: Tools, report: Reporter) -> None:
    """The argument that is wrong is blamed, in one line."""
    cases = (
        ("plait-run x.plan --rewind y", "unknown option '--rewind'"),
        ("plait-run --rewind=y", "unknown option '--rewind'"),
        ("plait-run x.plan y", "unexpected argument 'y'"),
        ("plait-run", "plan is required"),
        ("plait-plan frobnicate", "unknown command 'frobnicate', expected .*"),
        ("plait-plan show x.plan --deep", "unknown option '--deep'"),
        ("plait-plan", "a subcommand is required"),
        ("plaitc x --frob", "unknown option '--frob'"),
        ("plaitc", "model is required"),
        ("plait-data", "the following arguments are required: .*"),
        ("plait-data x --tokenizer y -o z --workers 0", "--workers 0 is not .*"),
    )
    for command, expected in cases:
        tool, *given = command.split()

        def body():
            outcome = tools.call(tool, *given)
            message = f"{tool}: error: {expected}\n"
            require(outcome.code == 1, f"ended with {outcome.code}")
            require(outcome.stdout == "", outcome.stdout)
            require(
                re.fullmatch(message, outcome.stderr) is not None,
                outcome.stderr,
            )

        report.case(f"usage/{command.replace(' ', '_')}", body)


def json_cases(compiler: Compiler, tools: Tools, report: Reporter) -> None:
    """Files that are not JSON are told where they are not."""
    compiler.refuse_file("config-position", [r" 2:14: "], '{\n"model_type" 1}')
    compiler.refuse_file("config-twice", ['"a" twice'], '{"a": 1, "a": 1}')

    def refuse(name, content, fragment):
        def body():
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "x.json"
                path.write_text(content)
                words = [GPT2, "--global-batch", 8, "--seq", 64, "--cluster"]
                outcome = tools.call("plaitc", *words, path)
                return check_refused(outcome, [fragment], {}, {})

        report.case(f"plaitc/json-{name}", body)

    refuse("position", '{\n  "a": 1,,\n}\n', r"2:1[01]: ")
    refuse("twice", '{"a": 1, "b": {"a": 2, "a": 2}}', '"a" twice')

    def bench(name, content):
        def body():
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "x.json"
                path.write_text(content)
                outcome = tools.call(name, path)
                return check_refused(outcome, ["x.json"], {}, {})

        report.case(f"{name}/json-{content}", body)

    for content in ("null", "[", '{"sources": 3}'):
        for name in ("plait-bench-published", "plait-bench-better"):
            bench(name, content)


def terminal_cases(tools: Tools, report: Reporter) -> None:
    """Names may come from a damaged file: what they would do to a terminal is
    shown instead."""

    def refuse(*words):
        def body():
            outcome = tools.call(*words)
            require("\x1b" not in outcome.stderr, repr(outcome.stderr))
            return check_refused(outcome, [r"no\\x1b\[31m\.plan"], {}, {})

        report.case(f"{words[0]}/control-characters", body)

    refuse("plait-run", "no\x1b[31m.plan", "--check")
    refuse("plait-plan", "show", "no\x1b[31m.plan")


def endless_cases(tools: Tools, report: Reporter) -> None:
    """Devices and pipes have no size, and may have no end: where a file is needed
    they are refused at once, and a text that a pipe brings has a bound."""
    MODEL = GPT2 / "config.json"

    def make_zero(path):
        path.symlink_to("/dev/zero")

    def refuse(name, words, expected="not a regular file", make=os.mkfifo, file="x"):
        def body():
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / file
                path.parent.mkdir(exist_ok=True)
                make(path)
                (pathlib.Path(folder) / "empty.plan").touch()
                begin = time.monotonic()
                outcome = tools.call(*words, cwd=folder)
                took = time.monotonic() - begin
                remark = check_refused(outcome, [expected], {}, {})
                require(took < 10, f"{took} s")
                return remark

        report.case(f"endless/{name}", body)

    for kind, make in (("zero", make_zero), ("pipe", os.mkfifo)):
        for name, file, words in (
            ("config", "x", ("plaitc", "x", "-o", "out.plan")),
            ("folder", "m/config.json", ("plaitc", "m", "-o", "out.plan")),
            ("mlir", "x.mlir", ("plaitc", "x.mlir", "-o", "out.plan")),
            ("opt", "x.mlir", ("plait-opt", "x.mlir")),
            ("plan", "x", ("plait-run", "x", "--check")),
            ("show", "x", ("plait-plan", "show", "x")),
            ("hosts", "x", ("plait-run", "empty.plan", "--supervise", "--hosts", "x",
                            "--checkpoint", "c", "--text", MODEL)),
            ("options", "x", ("plait-run", "--config", "x")),
        ):
            refuse(f"{name}-{kind}", words, make=make, file=file)
    # Texts: a pipe will do, but not for ever.
    for name, words in (
        ("schedule", ("plait-plan", "schedule", "--file", "x")),
        ("costs", ("plait-plan", "schedule", "--kind", "1f1b", "--stages", "2",
                   "--microbatches", "4", "--costs", "x")),
        ("cluster", ("plaitc", MODEL, "--predict", "--global-batch", "8", "--seq", "64", "--cluster", "./x")),
    ):
        refuse(f"{name}-zero", words, "no file and has more than 67108864 bytes",
               make_zero)
        refuse(f"{name}-pipe", words, "a pipe to which nobody writes")

    def text_of_a_pipe():
        program = tools.folder / "plait-plan"
        command = f"{program} schedule --kind 1f1b --stages 2 --microbatches 4"
        script = (f"{command} --csv - > /dev/null || exit; "
                  f"{command} --csv x.csv > /dev/null || exit; "
                  f"{program} schedule --file <(sleep 0.3; cat x.csv)")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["bash", "-c", script], cwd=folder,
                                  capture_output=True, text=True, timeout=60)
        require(done.returncode == 0 and "rank 1" in done.stdout, done.stderr)

    report.case("endless/text-of-a-pipe", text_of_a_pipe)


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("errors", options.filter)
    compiler = Compiler(tools, report)
    for cases in (config_cases, option_cases, planner_cases):
        cases(compiler)
    usage_cases(tools, report)
    json_cases(compiler, tools, report)
    terminal_cases(tools, report)
    endless_cases(tools, report)
    runner = Runner(tools, report)
    # Not through case(): a filter for one of the others must not skip it.
    compiled = Reporter("errors", "")
    compiled.case("plait-run/compile", runner.compile)
    report.passed += compiled.passed
    report.failed += compiled.failed
    for cases in (weight_cases, data_cases, plan_cases, output_cases):
        cases(runner)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
