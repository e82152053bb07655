#!/usr/bin/env python3
# ===- python_package.py - plait as a Python package -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Plans, compiles and trains from Python, without PyTorch. Losses and weights have the
bits of plait-run on the same plan and data, in whatever form the data comes; options are
those of the tools; what has to fail does so with an exception that names the option.
python_package_torch.py is about PyTorch and transformers."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import package_data
import package_errors
import package_programs
import package_shown
from harness import ROOT, Reporter, Tools, arguments, attend_to_signals, require
from package_suite import MODEL, RECIPE, Suite
from processes import ENVIRONMENT

# Programs that are started beside this one.
RANKS = """
import json, sys, array
import plait
plan, tokens = sys.argv[1:]
stream = array.array("i", array.array("H", open(tokens, "rb").read()))
run = plait.train(plan, stream, lr=0.01, seed=3)
steps = [(step.loss, step.gradient_norm) for step in run]
names = ["model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"]
weights = [run.weights[name] for name in names]
if run.leads:
    print(json.dumps([steps, [x.tolist() for x in weights]]), flush=True)
else:
    assert weights == [None, None]
run.save_pretrained(sys.argv[2] + ".saved")
"""
INTERRUPTED = """
import sys, time
import plait
plan, tokens = sys.argv[1:]
run = plait.train(plan, tokens=tokens, steps=1000000000)
try:
    for step in run:
        print(step.step, flush=True)
except KeyboardInterrupt:
    print("interrupted", run.step, len(run.history), flush=True)
    run.save_pretrained(tokens + ".left")
    print("goes on", next(run).step, flush=True)
"""
AGAIN = """
import sys
import plait
run = plait.train(sys.argv[1], tokens=sys.argv[2], steps=2)
next(run)
for mesh in "tp=2", "pp=2":
    plan = plait.compile(sys.argv[3], mesh=mesh, global_batch=4, micro_batch=2, seq=24)
    plait.train(plan, tokens=sys.argv[2], steps=1).complete()
print(next(run).step)
"""
BARE = """
import sys
import plait, plait.doctor
heavy = {"torch", "numpy", "transformers", "IPython"} & set(sys.modules)
assert not heavy, heavy
run = plait.train(sys.argv[1], tokens=sys.argv[2], steps=1)
print(next(run).loss, run.weights["model.norm.weight"].tolist()[:2])
assert not {"torch", "numpy"} & set(sys.modules)
"""


def start(suite: Suite, program: str, *words, before=(), **more):
    file = suite.folder / "program.py"
    file.write_text(program)
    environment = ENVIRONMENT | {
        "PYTHONPATH": str(ROOT / "python"),
        "PLAIT_LIBRARY": os.environ["PLAIT_LIBRARY"],
    }
    command = [*before, sys.executable, file, *words]
    return subprocess.Popen(
        list(map(str, command)), env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


def finish(child, timeout: float) -> str:
    output, errors = child.communicate(timeout=timeout)
    require(child.returncode == 0, f"ended with {child.returncode}: {output}{errors}")
    require(errors == "", f"says {errors}")
    return output


def check_ranks_of(suite: Suite) -> str:
    """Two processes of mpirun against one."""
    words = (suite.parts.path, suite.tokens)
    limit = suite.tools.timeout
    alone = finish(start(suite, RANKS, *words), limit)
    saved = pathlib.Path(f"{suite.tokens}.saved") / "model.safetensors"
    expected = saved.read_bytes()
    saved.unlink()
    before = ("mpirun", "-n", 2)
    together = finish(start(suite, RANKS, *words, before=before), limit)
    require(together == alone, f"{together[:300]}, alone {alone[:300]}")
    require(saved.read_bytes() == expected, "other weights are saved")
    return "the same bits"


def check_interrupt(suite: Suite) -> str:
    child = start(suite, INTERRUPTED, suite.plan.path, suite.tokens)
    for line in child.stdout:
        if line == "3\n":
            break
    child.send_signal(signal.SIGINT)
    *steps, told, more = finish(child, suite.tools.timeout).splitlines()
    last = int(steps[-1]) if steps else 3
    words = told.split()
    # A step that was not told was done all the same.
    require(words[0] == "interrupted" and int(words[1]) in (last, last + 1), told)
    require(words[1] == words[2], f"{told}: not all steps are known")
    require(more == f"goes on {int(words[1]) + 1}", more)
    saved = pathlib.Path(f"{suite.tokens}.left") / "model.safetensors"
    require(saved.is_file(), "nothing was saved")
    return told


def check_again(suite: Suite) -> str:
    """Kernels of a plan that is compiled while others run are tried themselves, and not
    those that the process has loaded before."""
    model = ROOT / "examples" / "models" / "gpt2-nano"
    words = (suite.plan.path, suite.tokens, model)
    return finish(start(suite, AGAIN, *words), suite.tools.timeout).strip()


def check_bare(suite: Suite) -> str:
    return finish(
        start(suite, BARE, suite.plan.path, suite.tokens), suite.tools.timeout
    ).strip()


WHEEL = """
import pathlib, sys
import plait
from plait import _library
assert _library.find_library().parent == _library.NATIVE, _library.find_library()
plan = plait.compile(sys.argv[1], sys.argv[2], mesh="dp=2", global_batch=4, seq=16,
                     no_reference=True)
print([step.loss for step in plait.train(plan, tokens=sys.argv[3], steps=3, lr=0.01, seed=3)])
"""


def check_wheel(suite: Suite, wheel: pathlib.Path) -> str:
    """Installed alone, with nothing of this build on its way: the same plan, and a
    program that runs it."""
    folder = suite.folder / "installed"
    limit = suite.tools.timeout

    def run(*words) -> str:
        alone = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(suite.folder)}
        done = subprocess.run(
            list(map(str, words)), env=alone, capture_output=True, text=True, timeout=limit
        )
        require(done.returncode == 0, done.stdout + done.stderr)
        return done.stdout

    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin/pip", "install", "--quiet", "--no-index", wheel.resolve())
    plan = suite.folder / "wheel.plan"
    found = run(folder / "bin/python", "-c", WHEEL, MODEL, plan, suite.tokens)
    require(plan.read_bytes() == suite.plan.path.read_bytes(), "another plan")
    expected = [step.loss for step in suite.plait.train(suite.plan, suite.rows, **RECIPE)]
    require(found.strip() == str(expected), f"{found}, expected {expected}")
    for tool in ("plaitc", "plait-run", "plait-plan", "plait-opt"):
        require(f"{tool} " in run(folder / "bin" / tool, "--version"), tool)
    shown = run(folder / "bin/plait-plan", "show", plan)
    require("dp=2" in shown, shown)
    run(folder / "bin/plait-run", plan, "--tokens", suite.tokens, "--steps", 1)
    run(folder / "bin/plait-data", "--help")
    return f"{wheel.stat().st_size / 1e6:.0f} MB"


def run_cases(suite: Suite, report: Reporter) -> None:
    for name in ("plan", "parts"):
        plan = getattr(suite, name)
        report.case(
            f"same/{name}", lambda plan=plan: package_data.check_same(suite, plan)
        )
    report.case("data/forms", lambda: package_data.check_forms(suite))
    report.case("data/order", lambda: package_data.check_order(suite))
    report.case("data/resume", lambda: package_data.check_resume(suite))
    report.case("data/interrupted", lambda: package_data.check_interrupted(suite))
    report.case("data/nested", lambda: package_data.check_nested(suite))
    report.case("data/weighed", lambda: package_data.check_weighed(suite))
    report.case("data/told", lambda: package_data.check_told(suite))
    report.case("data/steps", lambda: package_data.check_steps(suite))
    report.case("tensors", lambda: package_data.check_tensors(suite))
    report.case("tensors/ranks", lambda: package_data.check_ranks(suite))
    for table, tool, calls in (
        (
            "CompileOptions",
            "plaitc",
            lambda given: package_errors.try_compile(suite, given),
        ),
        ("RunOptions", "plait-run", lambda given: package_errors.try_run(suite, given)),
    ):
        report.case(
            f"names/{tool}", lambda: package_errors.check_names(suite, table, tool, calls)
        )
    for name, case in package_errors.list_errors(suite).items():
        report.case(f"errors/{name}", lambda case=case: package_errors.check_error(case))
    report.case("errors/pickled", lambda: package_errors.check_pickled(suite))
    report.case("options/sets", lambda: package_errors.check_sets(suite))
    report.case("errors/forked", lambda: package_errors.check_forked(suite))
    report.case("heard", lambda: package_errors.check_heard(suite))
    report.case("shown/choice", lambda: package_shown.check_choice(suite))
    report.case("shown/experts", lambda: package_shown.check_experts(suite))
    report.case("shown/plan", lambda: package_shown.check_plan(suite))
    report.case("shown/run", lambda: package_shown.check_run_shown(suite))
    for program in package_programs.PROGRAMS:
        report.case(
            f"emit/{program}",
            lambda program=program: package_programs.check_emit(suite, program),
        )
    report.case("audit", lambda: package_programs.check_audit(suite))
    report.case("programs/refused", lambda: package_programs.check_refusals(suite))
    report.case("losses", lambda: package_programs.check_losses(suite))
    report.case("callbacks", lambda: package_shown.check_callbacks(suite))
    report.case("mpirun", lambda: check_ranks_of(suite))
    report.case("interrupt", lambda: check_interrupt(suite))
    report.case("again", lambda: check_again(suite))
    report.case("bare", lambda: check_bare(suite))
    report.case("library", lambda: package_errors.check_library(suite))
    report.case("doctor", lambda: package_shown.check_doctor(suite))
    report.case("header", package_errors.check_header)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--wheel", type=pathlib.Path, help="that scripts/wheel.sh wrote")
    options = parser.parse_args()
    attend_to_signals()
    os.environ["PLAIT_LIBRARY"] = str(options.bin.resolve())
    report = Reporter("python-package", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(options.bin, options.timeout)
        suite = Suite(tools, pathlib.Path(folder))
        run_cases(suite, report)
        if options.wheel:
            report.case("wheel", lambda: check_wheel(suite, options.wheel))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
