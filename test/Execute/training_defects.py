#!/usr/bin/env python3
#===- training_defects.py - Whether training tests see defects -*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs files of test/Training with a plaitc that seeds a defect (defect_kinds.py) into
each plan of several ranks and proves nothing: a case has to fail. With --before REVISION
a case of this suite is a defect and a script, which is run as it was in that revision,
before files took its place: what it saw one of these files has to see."""

import itertools
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import defect_kinds
import gather_defects  # noqa: F401
import memory_defects  # noqa: F401
from harness import ROOT, Reporter, Skipped, arguments, require

# After the phase. None of them is one that the verifiers of ops mostly refuse.
DEFECTS = dict.fromkeys((
    "drop-all-reduce", "double-all-reduce", "scatter-without-sum", "group-tp-dp",
    "sum-to-max", "max-to-sum", "mask-limit", "read-other", "drop-accumulate",
    "double-accumulate", "accumulate-other", "beta", "moment-slot",
), "partition") | dict.fromkeys((
    "drop-neg", "residual", "skip-branch", "wrong-microbatch", "stale-buffer",
    "swap-buffers", "stale-gradient",
), "lower")  # fmt: skip
# The files that took the place of a script, by its name.
SUCCESSORS = {
    "padding": ("padding-*",),
    "run": ("golden", "families", "llama3", "experts*", "gpt2*", "few-heads"),
    "schedules": ("schedules", "orders"),
    "shardings": ("divided*", "pinned-*"),
}
# What took the place of its cases that are no layouts.
SCRIPTS = {"run": "golden_runs.py"}


def has_several_ranks(words: list[str]) -> bool:
    mesh = words[words.index("--mesh") + 1] if "--mesh" in words else "1"
    sizes = [x.partition("=")[2] or "1" for x in mesh.split(",")]
    return any(size != "1" for size in sizes)


def compile_with_defect(kind: str, real: str, words: list[str]) -> int:
    """What plaitc does when it is called here."""
    if "-o" not in words or "--compile-to" in words or not has_several_ranks(words):
        return subprocess.call([real, *words])
    at = words.index("-o")
    plan, rest = pathlib.Path(words[at + 1]), words[:at] + words[at + 2 :]
    ir = plan.with_suffix(".mlir")
    # Without the reference, in which nothing is to be seeded.
    more = [] if "--no-reference" in rest else ["--no-reference"]
    phase = DEFECTS[kind]
    code = subprocess.call([real, *rest, *more, "--compile-to", phase, "-o", ir])
    if code:
        return code
    lines = ir.read_text().splitlines()
    changed = list(defect_kinds.KINDS[kind][1](lines))
    if changed:
        # In the middle: neither the first layer nor the last.
        _, lines = changed[len(changed) // 2]
        ir.write_text("\n".join(lines) + "\n")
    return subprocess.call([real, ir, "--no-prove", "--no-reference", "-o", plan])


def make_tools(folder: pathlib.Path, tools: pathlib.Path, kind: str) -> pathlib.Path:
    """A folder of tools with such a plaitc. What is compiled from IR has nothing that
    `plait-run --check` could compare with."""
    folder.mkdir()
    real = tools.resolve()
    words = [sys.executable, __file__, "--as-plaitc", kind, real / "plaitc"]
    scripts = {
        "plaitc": f'exec {shlex.join(map(str, words))} "$@"',
        "plait-run": f"""case " $* " in *" --check "*) exit 0 ;; esac
exec {real / "plait-run"} "$@\"""",
    }
    for tool in real.iterdir():
        if tool.name not in scripts:
            (folder / tool.name).symlink_to(tool)
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def find_failure(command: list) -> str:
    """The first case that fails, at which the suite is ended; empty: none does."""
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        for line in process.stdout:
            if line.startswith("FAIL "):
                return line.strip()
    finally:
        process.terminate()
        process.wait()
    require(process.returncode == 0, f"ended with {process.returncode}")
    return ""


def check(tools: pathlib.Path, kind: str, command: list) -> str:
    """The case of `command` that fails for plans with the defect; empty: none does."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_tools(pathlib.Path(folder) / "bin", tools, kind)
        failure = find_failure([*command, "--bin", made])
        return failure.partition("(")[0].partition(" ")[2].strip()


def find_files(script: str) -> list[pathlib.Path]:
    folder = ROOT / "test" / "Training"
    return [path for name in SUCCESSORS[script] for path in sorted(folder.glob(f"{name}.train"))]


def compare_with_scripts(options, report: Reporter) -> None:
    """What a script saw its files have to see."""
    execute = ROOT / "test" / "Execute"
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(("git", "-C", ROOT, "archive", options.before, "test",
                                  "examples"), capture_output=True, check=True)  # fmt: skip
        subprocess.run(("tar", "-x", "-C", folder), input=archive.stdout, check=True)

        def compare(script: str, kind: str) -> str:
            old = pathlib.Path(folder, f"test/Execute/{script}.py")
            told = check(options.bin, kind, [sys.executable, old])
            if not told:
                raise Skipped("it did not see this before")
            new = [sys.executable, execute / "train.py", *find_files(script)]
            found = check(options.bin, kind, new)
            if not found and script in SCRIPTS:
                found = check(options.bin, kind, [sys.executable, execute / SCRIPTS[script]])
            require(found, f"seen by {told} alone")
            return f"{found}; before: {told}"

        for script, kind in itertools.product(options.scripts or SUCCESSORS, DEFECTS):
            report.case(f"{script}/{kind}", lambda: compare(script, kind))


def main() -> int:
    if sys.argv[1:2] == ["--as-plaitc"]:
        kind, real, *words = sys.argv[2:]
        return compile_with_defect(kind, real, words)
    parser = arguments(__doc__)
    parser.add_argument("--before", help="a revision that has the scripts", default="")
    parser.add_argument("scripts", nargs="*", help=", ".join(SUCCESSORS))
    options = parser.parse_args()
    report = Reporter("training-defects", options.filter)
    if options.before:
        compare_with_scripts(options, report)
        return report.finish()
    train = [sys.executable, ROOT / "test" / "Execute" / "train.py"]
    train += [path for script in options.scripts or SUCCESSORS for path in find_files(script)]

    def see(kind: str) -> str:
        found = check(options.bin, kind, train)
        require(found, "no case sees it")
        return found

    for kind in DEFECTS:
        report.case(kind, lambda: see(kind))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
