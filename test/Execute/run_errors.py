#===- run_errors.py - Bad weights, data and plans ---------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What errors.py gives plait-run: weights, tokens, plans and options."""

import pathlib

from harness import read_safetensors, require, write_safetensors
from refusals import GPT2, Runner


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
    runner.refuse(
        "best-over-save",
        ["--best and --save are the same folder, './x'"],
        untouched,
        *("--best", "x/", "--save", "./x", "--eval-tokens", "tokens.bin"),
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
        "trace-with-evaluation",
        ["--trace measures steps that train: leave out --eval-tokens, --eval-text"],
        untouched,
        *("--trace", "t.json", "--eval-tokens", "tokens.bin"),
    )
    runner.refuse(
        "two-standard-outputs",
        ["--log and --profile are both standard output"],
        untouched,
        *("--log", "-", "--profile", "-"),
    )


def check(runner: Runner) -> None:
    for cases in (weight_cases, data_cases, plan_cases, output_cases):
        cases(runner)
