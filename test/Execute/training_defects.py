#!/usr/bin/env python3
#===- training_defects.py - Whether training tests see defects -*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs files of test/Training with a plaitc that seeds a defect (defect_kinds.py) into
each plan of several ranks and proves nothing: a case has to fail. A case of this suite
is a defect and a file. With --before REVISION and a script it is also run as it was in
that revision, before files took its place, and must have failed as well."""

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


def has_several_ranks(words: list[str]) -> bool:
    mesh = words[words.index("--mesh") + 1] if "--mesh" in words else "1"
    sizes = [x.partition("=")[2] or "1" for x in mesh.split(",")]
    return any(size != "1" for size in sizes)


def compile_with_defect(kind: str, marks: pathlib.Path, real: str, words: list[str]) -> int:
    """What plaitc does when it is called here: `marks` has a file for each plan with
    the defect."""
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
        (marks / f"{len(list(marks.iterdir()))}").touch()
    return subprocess.call([real, ir, "--no-prove", "--no-reference", "-o", plan])


def make_tools(folder: pathlib.Path, tools: pathlib.Path, kind: str) -> pathlib.Path:
    """A folder of tools with such a plaitc, and an empty one of marks. What is compiled
    from IR has nothing that `plait-run --check` could compare with."""
    (folder / "marks").mkdir(parents=True)
    real = tools.resolve()
    words = [sys.executable, __file__, "--as-plaitc", kind, folder / "marks", real / "plaitc"]
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
    """What `command` says of plans with the defect."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_tools(pathlib.Path(folder) / "bin", tools, kind)
        failure = find_failure([*command, "--bin", made])
        if not failure and not any((made / "marks").iterdir()):
            return ""
        require(failure, "nothing fails")
        return failure.partition("(")[0].split(" ", 1)[1].strip()


def main() -> int:
    if sys.argv[1:2] == ["--as-plaitc"]:
        kind, marks, real, *words = sys.argv[2:]
        return compile_with_defect(kind, pathlib.Path(marks), real, words)
    parser = arguments(__doc__)
    parser.add_argument("--before", help="a revision that has the scripts", default="")
    parser.add_argument("scripts", nargs="*", help=", ".join(SUCCESSORS))
    options = parser.parse_args()
    report = Reporter("training-defects", options.filter)
    execute = ROOT / "test" / "Execute"
    with tempfile.TemporaryDirectory() as folder:
        if options.before:
            archive = subprocess.run(("git", "-C", ROOT, "archive", options.before, "test",
                                      "examples"), capture_output=True, check=True)  # fmt: skip
            subprocess.run(("tar", "-x", "-C", folder), input=archive.stdout, check=True)
        for script in options.scripts or SUCCESSORS:
            folder_of_files = ROOT / "test" / "Training"
            files = [path for name in SUCCESSORS[script]
                     for path in sorted(folder_of_files.glob(f"{name}.train"))]  # fmt: skip
            new = [sys.executable, execute / "train.py", *files]
            old = [sys.executable, pathlib.Path(folder, f"test/Execute/{script}.py")]

            def body(kind: str) -> str:
                found = check(options.bin, kind, new)
                if not options.before:
                    require(found, "there is no place for it")
                    return found
                told = check(options.bin, kind, old)
                if not found and not told:
                    raise Skipped("there is no place for it")
                return f"{found}; before: {told}"

            for kind in DEFECTS:
                report.case(f"{script}/{kind}", lambda kind=kind: body(kind))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
