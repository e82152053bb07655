#!/usr/bin/env python3
#===- checkpoints.py - Runs that are interrupted and go on -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Kills runs at random instants and lets them go on, on the same plan and on
others. On the same plan losses and weights are those of an undisturbed run, to
the bit; on others the last loss is, but for roundings. What checkpoints hold is
read with numpy. Damaged, incomplete and wrong checkpoints, full disks, and how
much memory it takes."""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from checkpoint_suite import (
    BATCH,
    BIT_EQUAL,
    MEMORY,
    PLANS,
    SEQUENCE,
    STEPS,
    TOLERANCE,
    Suite,
    fast_folder,
    read_checkpoint,
    read_log,
    steps_in,
)
from harness import LONG, Reporter, Tools, arguments, mounted, require
from processes import ENVIRONMENT, MIXTURE, NANO, children_of, is_running, wait_for
from tensors import read_tensors

#===-----------------------------------------------------------------------===#
# Kills
#===-----------------------------------------------------------------------===#


def kill_cases(suite: Suite, kills: int) -> None:
    def check(mesh: str, seed: int):
        draw = random.Random(seed)
        straight = suite.straight(mesh)
        expected = read_log(straight.with_suffix(".log"))
        folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        log, saved = folder / "log", folder / "saved"
        command = suite.command(
            suite.plan(mesh), STEPS, "--log", log, "--save", saved,
            *("--checkpoint", folder / "ckpt", "--checkpoint-every", 1),
            *("--keep", 3, "--resume", folder / "ckpt"),
        )
        whole = suite.timed(mesh)
        done = killed = 0
        while killed < kills:
            process = subprocess.Popen(
                [suite.tools.folder / "plait-run", *map(str, command)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            try:
                process.wait(draw.uniform(0, whole))
                error = process.stderr.read().decode()
                require(process.returncode == 0, error)
                # All steps are done: once more from the beginning.
                shutil.rmtree(folder / "ckpt")
                done += 1
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
            # What has a name is whole.
            for entry in (folder / "ckpt").glob("step-????????"):
                index, _ = read_checkpoint(entry)
                require(int(entry.name[5:]) == index["run"]["step"], entry.name)
        suite.tools.run("plait-run", *command)
        suite.compare(mesh, saved)
        require(read_log(log) == expected, "another log")
        index, slots = read_checkpoint(folder / "ckpt" / f"step-{STEPS:08}")
        for name, weight in read_tensors(saved / "model.safetensors").items():
            require((slots[name, "weight"] == weight).all(), f"other {name}")
        require(index["run"]["samples"] == STEPS * BATCH, str(index["run"]))
        left = [x for x in steps_in(folder / "ckpt") if len(x) != 13]
        require(not left, f"left {left}")
        return f"{killed} kills, {done} ends between them"

    for seed, mesh in enumerate(BIT_EQUAL):
        suite.report.case(f"kills/{mesh}", lambda m=mesh, s=seed: check(m, s))


def process_cases(suite: Suite, kills: int) -> None:
    """The ranks of a plan in several processes, which are killed together."""
    mesh = BIT_EQUAL[0]

    def mpirun(folder, processes: int) -> subprocess.Popen:
        command = suite.command(
            suite.plan(mesh), STEPS, "--save", folder / "saved",
            *("--checkpoint", folder / "ckpt", "--checkpoint-every", 2),
            *("--resume", folder / "ckpt"),
        )
        return subprocess.Popen(
            ["mpirun", "-n", str(processes), suite.tools.folder / "plait-run",
             *map(str, command)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            start_new_session=True,
        )

    def check():
        draw = random.Random(11)
        folder = pathlib.Path(tempfile.mkdtemp(dir=suite.folder))
        whole = suite.timed(mesh)
        for _ in range(max(1, kills // 3)):
            process = mpirun(folder, draw.choice((2, 3, 8)))
            time.sleep(draw.uniform(0.5, 1) + draw.uniform(0, 3 * whole))
            ranks = children_of(process.pid)
            # Some of the processes notice, the others are gone.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            wait_for(lambda r=ranks: not any(map(is_running, r)), "orphans' end")
            for entry in (folder / "ckpt").glob("step-????????"):
                read_checkpoint(entry)
        newest = sorted((folder / "ckpt").glob("step-????????"))[-1:]
        for entry in newest:
            os.truncate(entry / "rank-00005.safetensors", 1000)
        process = mpirun(folder, 3)
        error = process.communicate()[1].decode()
        require(process.returncode == 0, error)
        require(error.count("trying the one before") <= 1, error)
        suite.compare(mesh, folder / "saved")
        return f"cut {[x.name for x in newest]}"

    suite.report.case("processes", check)


#===-----------------------------------------------------------------------===#
# Other plans
#===-----------------------------------------------------------------------===#


def plan_cases(suite: Suite) -> None:
    def chain():
        folder = suite.folder / "chain"
        log = folder.with_suffix(".log")
        for i, mesh in enumerate(PLANS):
            suite.train(
                suite.plan(mesh), STEPS * (i + 1) // len(PLANS), "--log", log,
                *("--checkpoint", folder, "--resume", folder),
            )
        found = read_log(log)
        worst = 0.0
        expected = read_log(suite.straight("1").with_suffix(".log"))
        require(sorted(found) == sorted(expected), "steps are missing")
        for step, (loss, _, tokens) in expected.items():
            worst = max(worst, abs(found[step][0] - loss) / loss)
            require(found[step][2] == tokens, f"tokens of step {step}")
        require(worst <= TOLERANCE, f"losses are off by {worst:.2g}")
        return f"{' -> '.join(PLANS)}: losses are off by {worst:.2g}"

    def reshard():
        source = suite.make("pp=2,dp=2,tp=2", 10, every=10)
        target, plan = suite.folder / "resharded", suite.plan("dp=2,tp=3")
        outcome = suite.tools.run(
            "plait-plan", "reshard", source, "--to", plan, "-o", target
        )
        last = outcome.stdout.strip().splitlines()[-1]
        _, slots = read_checkpoint(source / "step-00000010")
        elements = sum(x.size for x in slots.values())
        require(f"each of {elements} elements is in one place" in last, last)
        _, moved = read_checkpoint(target / "step-00000010")
        require(slots.keys() == moved.keys(), "other slots")
        for key, value in slots.items():
            require((value == moved[key]).all(), f"other {key}")
        saved = []
        for folder in (source, target):
            saved.append(folder / "saved")
            suite.train(plan, 14, "--resume", folder, "--save", saved[-1])
        first, second = ((x / "model.safetensors").read_bytes() for x in saved)
        require(first == second, "other weights than from the first one")
        refused = suite.tools.call(
            "plait-plan", "reshard", source, "--to", plan, "-o", target
        )
        require(refused.code == 1 and "there already" in refused.stderr, "")
        return last

    def experts():
        """Whatever experts a rank has, the files have those of all."""
        plans = [
            suite.compile(f"experts on {mesh}", "--mesh", mesh, *more, model=MIXTURE)
            for mesh, *more in (
                ("1",),
                ("dp=2,ep=2", "--zero", "1"),
                ("ep=4,tp=2", "--expert-chunks", "4", "--zero", "2"),
                ("ep=2,cp=2", "--zero", "3"),
                ("ep=8",),
            )
        ]
        logs = [suite.folder / f"experts-{name}.log" for name in ("whole", "chain")]
        suite.train(plans[0], STEPS, "--log", logs[0])
        folder = suite.folder / "experts"
        for i, plan in enumerate(plans):
            suite.train(
                plan, STEPS * (i + 1) // len(plans), "--log", logs[1],
                *("--checkpoint", folder, "--resume", folder),
            )
        expected, found = map(read_log, logs)
        require(sorted(found) == sorted(expected), "steps are missing")
        worst = max(abs(found[k][0] - x[0]) / x[0] for k, x in expected.items())
        require(worst <= TOLERANCE, f"losses are off by {worst:.2g}")
        target = suite.folder / "experts-resharded"
        suite.tools.run("plait-plan", "reshard", folder, "--to", plans[1], "-o", target)
        before, after = (
            read_checkpoint(x / f"step-{STEPS:08}")[1] for x in (folder, target)
        )
        require(before.keys() == after.keys(), "other slots")
        for key, value in before.items():
            require((value == after[key]).all(), f"other {key}")
        return f"losses are off by {worst:.2g}"

    def optimizers():
        """Lion keeps one tensor, in bf16 plans with a copy of the weights."""
        names = []
        for i, more in enumerate((
            ("--mesh", "dp=4", "--zero", "1", "--precision", "bf16"),
            ("--mesh", "pp=2,tp=2", "--precision", "bf16"),
        )):
            plan = suite.compile(f"lion{i}", *more, "--optimizer", "lion")
            names.append(plan)
        folder = suite.folder / "lion"
        for i, plan in enumerate(names):
            suite.train(
                plan, 3 * (i + 1),
                *("--checkpoint", folder, "--resume", folder),
            )
        index, slots = read_checkpoint(folder / "step-00000006")
        require(index["plan"]["optimizer"] == "lion", str(index["plan"]))
        require({slot for _, slot in slots} == {"weight", "momentum"}, "slots")
        suite.fail(
            "keeps momentum of",
            *suite.command(suite.plan("1"), 9, "--resume", folder),
        )

    def batch():
        """The data goes on at the sample where it was."""
        sgd = ("--optimizer", "sgd")
        plain = NANO
        first = suite.compile("sgd8", "--mesh", "dp=2", *sgd, model=plain)
        second = suite.compile(
            "sgd4", "--mesh", "dp=2", "--global-batch", 4, *sgd, model=plain
        )
        # Without momentum the weights are all there is to go on from.
        rest = ("--beta1", 0, "--weight-decay", 0, "--lr", 0.1)
        folder = suite.folder / "batch"
        tokens = ("--tokens", suite.tokens, "--token-type", "uint16")
        suite.tools.run(
            "plait-run", first, *tokens, *rest, "--steps", 4,
            *("--checkpoint", folder / "c", "--save", folder / "a"),
        )
        suite.tools.run(
            "plait-run", second, *tokens, *rest, "--steps", 9,
            *("--resume", folder / "c", "--save", folder / "b"),
        )
        later = suite.folder / "later.bin"
        later.write_bytes(suite.tokens.read_bytes()[8 * BATCH * SEQUENCE :])
        suite.tools.run(
            "plait-run", second, "--tokens", later, "--token-type", "uint16",
            *rest, "--steps", 5,
            *("--weights", folder / "a", "--save", folder / "d"),
        )
        found, expected = (
            (folder / x / "model.safetensors").read_bytes() for x in "bd"
        )
        require(found == expected, "other weights than from there on")
        outcome = suite.tools.run(
            "plait-run", second, "--tokens", later, "--token-type", "uint16",
            *rest, "--steps", 5, "--resume", folder / "c",
        )
        require("is read from its beginning" in outcome.stderr, outcome.stderr)

    suite.report.case("plans/chain", chain)
    suite.report.case("plans/reshard", reshard)
    suite.report.case("plans/experts", experts)
    suite.report.case("plans/optimizers", optimizers)
    suite.report.case("plans/batch", batch)


#===-----------------------------------------------------------------------===#
# What can be wrong
#===-----------------------------------------------------------------------===#


def damage_cases(suite: Suite) -> None:
    mesh = "pp=2,dp=2,tp=2"

    def truncate(newest):
        os.truncate(newest / "rank-00001.safetensors", 1000)
        return "rank-00001.safetensors"

    def flip(newest):
        path = newest / "rank-00002.safetensors"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        return "rank-00002.safetensors"

    def remove(newest):
        (newest / "rank-00000.safetensors").unlink()
        return "rank-00000.safetensors"

    def edit(newest):
        path = newest / "index.json"
        path.write_text(path.read_text().replace('"step":6', '"step":7'))
        return "index.json"

    def check(damage):
        folder = suite.make(mesh, 6)
        name = damage(folder / "step-00000006")
        outcome = suite.train(
            suite.plan(mesh), STEPS, "--resume", folder,
            *("--checkpoint", folder, "--save", folder / "saved"),
        )
        warned = [x for x in outcome.stderr.splitlines() if "warning" in x]
        require(len(warned) == 1 and name in warned[0], outcome.stderr)
        require("resumed step 4 " in outcome.stderr, outcome.stderr)
        suite.compare(mesh, folder / "saved")
        require("step-00000006.damaged" in steps_in(folder), "not set aside")
        return warned[0].split(": ", 2)[2]

    for damage in (truncate, flip, remove, edit):
        suite.report.case(
            f"damaged/{damage.__name__}", lambda d=damage: check(d)
        )

    def wrong():
        folder = suite.make(mesh, 2)
        newest = folder / "step-00000002"
        plan = suite.plan("1")
        go_on = lambda *more: suite.command(plan, 9, *more)  # noqa: E731
        config = json.loads((suite.model / "config.json").read_text())
        for key, value, expected in (
            ("n_layer", 3, "which the plan's model lacks"),
            ("n_layer", 5, "has no tensor"),
            ("n_embd", 48, "has shape"),
        ):
            model = suite.folder / f"{key}-{value}"
            model.mkdir()
            (model / "config.json").write_text(json.dumps(config | {key: value}))
            other = suite.compile(model.name, "--mesh", "1", model=model)
            suite.fail(expected, *suite.command(other, 9, "--resume", folder))
        suite.fail("has no checkpoint", *go_on("--resume", suite.model))
        suite.fail("No such file", *go_on("--resume", folder / "x"))
        suite.fail("--steps is 1", *suite.command(plan, 1, "--resume", newest))
        suite.fail("has seed 3, --seed is 4", *suite.command(
            plan, 9, "--resume", folder, seed=4))
        suite.fail("of another run", *go_on("--checkpoint", folder))
        suite.fail("neither a number of steps", *go_on(
            "--checkpoint", folder, "--checkpoint-every", "1d"))
        suite.fail("--checkpoint-every requires --checkpoint",
                   *go_on("--checkpoint-every", 1))
        (newest / "index.json").write_text("{}")
        suite.fail("its checksum does not hold", *go_on("--resume", newest))

    suite.report.case("damaged/wrong", wrong)

    def keep():
        folder = suite.folder / "keep"
        suite.train(
            suite.plan("1"), 11,
            *("--checkpoint", folder, "--checkpoint-every", 2, "--keep", 2),
        )
        expected = ["step-00000010", "step-00000011"]
        require(steps_in(folder) == expected, steps_in(folder))

    suite.report.case("keep", keep)

    def pruned_while_read():
        """Another run keeps the newest alone, and writes one after each step."""
        folder = suite.folder / "pruned"
        program = str(suite.tools.folder / "plait-run")

        def start(steps, *more):
            words = suite.command(suite.plan("1"), steps, *more)
            return subprocess.Popen([program, *map(str, words)], text=True,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

        writer = start(
            10**6, *("--checkpoint", folder, "--checkpoint-every", 1, "--keep", 1)
        )
        try:
            end = time.monotonic() + LONG
            while not list(folder.glob("step-????????")):
                require(time.monotonic() < end, "no checkpoint in a minute")
                time.sleep(0.01)
            for i in range(12):
                reader = start(10**7, "--resume", folder)
                said = []
                for line in reader.stderr:
                    said.append(line)
                    if "resumed step" in line or "error" in line:
                        break
                reader.kill()
                reader.wait()
                require("resumed step" in said[-1], "".join(said))
                require(not any("warning" in x for x in said), "".join(said))
            for i in range(4):
                suite.tools.run(
                    "plait-plan", "reshard", folder, "--to", suite.plan("1"),
                    *("-o", suite.folder / f"pruned-{i}"),
                )
            require(writer.poll() is None, "the writer has ended")
        finally:
            writer.kill()
            writer.wait()

    suite.report.case("pruned-while-read", pruned_while_read)

    def full_disk():
        folder, saved = suite.folder / "disk", suite.folder / "disk-saved"
        with mounted(folder, "size=9m"):
            outcome = suite.tools.call(
                "plait-run",
                *suite.command(
                    suite.plan("1"), STEPS, "--save", saved,
                    *("--checkpoint", folder / "c", "--checkpoint-every", 6),
                ),
            )
            require(outcome.code == 1, f"ended with {outcome.code}")
            require(
                outcome.stderr.count("No space left on device") == 3,
                outcome.stderr,
            )
            require(outcome.stderr.count("with --keep N the newest N") == 3,
                    outcome.stderr)
            last = outcome.stderr.strip().splitlines()[-1]
            require("checkpoint of step 20, the last one: cannot write" in last, last)
            require(steps_in(folder / "c") == ["step-00000006"], "folders")
            suite.compare("1", saved)
            suite.train(
                suite.plan("1"), STEPS, "--resume", folder / "c",
                *("--save", saved),
            )
            suite.compare("1", saved)
            return last

    suite.report.case("full-disk", full_disk)

    def full_at_the_end():
        """Where the last step was due by itself, its failure is told once."""
        folder = suite.folder / "end"
        with mounted(folder, "size=9m"):
            outcome = suite.tools.call(
                "plait-run",
                *suite.command(suite.plan("1"), STEPS, "--checkpoint", folder / "c",
                               *("--checkpoint-every", STEPS // 2, "--keep", 2)),
            )
        require(outcome.code == 1, f"ended with {outcome.code}")
        require(outcome.stderr.count("No space left on device") == 1, outcome.stderr)
        require("--keep N" not in outcome.stderr, outcome.stderr)

    suite.report.case("full-at-the-end", full_at_the_end)


#===-- Memory -------------------------------------------------------------===#


# Runs what follows its first argument, a folder, and writes the most KiB that it
# took into a file there: lines of two processes may join on their way out.
PEAK = """import os, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(child.pid, 0)
open(f"{sys.argv[1]}/{child.pid}", "w").write(str(usage.ru_maxrss))
sys.exit(status != 0)"""


def memory_cases(suite: Suite) -> None:
    def check(mesh: str, processes: int, *launcher):
        model = suite.folder / "large"
        model.mkdir(exist_ok=True)
        config = json.loads((NANO / "config.json").read_text())
        config |= {"n_embd": 768, "n_layer": 2, "vocab_size": 16384}
        (model / "config.json").write_text(json.dumps(config))
        plan = suite.compile(
            f"large-{mesh}", "--mesh", mesh, "--global-batch", 2, model=model
        )
        folder = suite.folder / f"large-run-{mesh}"

        def peak(*more) -> int:
            """Of the process that takes most."""
            with tempfile.TemporaryDirectory(dir=suite.folder) as peaks:
                done = subprocess.run(
                    [*launcher, sys.executable, "-c", PEAK, peaks,
                     suite.tools.folder / "plait-run",
                     *map(str, suite.command(plan, *more))],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True,
                    env=ENVIRONMENT, timeout=suite.tools.timeout,
                )
                require(done.returncode == 0, done.stderr)
                found = [int(x.read_text()) for x in pathlib.Path(peaks).iterdir()]
                require(len(found) == processes, f"{len(found)} peaks")
                return max(found) * 1024

        bare = peak(1)
        saving = peak(1, "--checkpoint", folder, "--save", folder / "saved")
        loading = peak(2, "--resume", folder)
        weights = peak(1, "--weights", folder / "saved")
        size = (folder / "saved" / "model.safetensors").stat().st_size
        require(2 * MEMORY < 3 * size, "too small to show anything")
        worst = max(saving, loading, weights) - bare
        require(worst <= MEMORY, f"{worst >> 20} MiB more")
        return (
            f"{3 * size >> 20} MiB of state, {bare >> 20} MiB without, saving "
            f"+{saving - bare >> 20}, resuming +{loading - bare >> 20}, "
            f"--weights +{weights - bare >> 20}"
        )

    suite.report.case("memory", lambda: check("1", 1))
    two = "tp=2", 2, "mpirun", "-n", "2"
    suite.report.case("memory-of-processes", lambda: check(*two))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--long", type=int, default=5, metavar="N", help="kills of each plan"
    )
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("checkpoints", options.filter)
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        kill_cases(suite, options.long)
        process_cases(suite, options.long)
        plan_cases(suite)
        damage_cases(suite)
        memory_cases(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
