#!/usr/bin/env python3
#===- capi.py - plait as a C library ----------------------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Programs in C that plan, compile and train through plait-c/plait.h. Losses and
weights have the bits of plait-run on the same plan and data; calls that have to fail
do so with an error and nothing else; a program is built against an installed tree."""

import os
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from harness import GOLDEN, ROOT, Reporter, Tools, arguments, require, write_tokens
from processes import ENVIRONMENT, MIXTURE

MODEL = GOLDEN / "llama-small-test"
STEPS = 5
# Plans of the calls that have to fail: one rank, ranks that divide parameters by
# dimensions, by ranges (ZeRO 1) and in blocks of blocks (ZeRO 2), stages.
PLANS = {
    "one": ("--mesh", "1"),
    "tp": ("--mesh", "dp=2,tp=2"),
    "zero-1": ("--mesh", "dp=2", "--zero", "1", "--precision", "bf16"),
    "zero-2": ("--mesh", "dp=2", "--zero", "2", "--precision", "bf16"),
    "pp": ("--mesh", "pp=2", "--micro-batch", "1"),
}


class Suite:
    def __init__(self, options, scratch: pathlib.Path):
        self.tools = Tools(options.bin, options.timeout)
        self.timeout = options.timeout
        self.scratch = scratch
        self.build = options.bin.resolve().parent
        self.tokens = scratch / "tokens.bin"
        write_tokens(self.tokens, 3, 8 * 32 * STEPS + 1, 256)

    def call(self, *words, cwd=None, environment=None) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.timeout,
        )

    def run(self, *words, **more) -> str:
        done = self.call(*words, **more)
        text = done.stdout + done.stderr
        require(done.returncode == 0, f"{words[0]} ended with {done.returncode}: {text}")
        return done.stdout

    def compile(self, name: str) -> pathlib.Path:
        path = self.scratch / f"{name}.plan"
        if not path.exists():
            words = (MODEL, "-o", path, "--global-batch", 4, "--seq", 16)
            self.tools.run("plaitc", *words, "--no-reference", *PLANS[name])
        return path

    def calls(self, name: str) -> None:
        """The program says itself what does not hold."""
        folder = self.scratch / f"calls-{name}"
        folder.mkdir()
        # The compiler refuses the same whatever the plan is.
        model = (MODEL, MIXTURE) if name == "one" else ()
        words = (self.compile(name), folder, *model)
        done = self.call(self.tools.folder / "plait-c-calls", *words)
        require(done.returncode == 0, done.stdout + done.stderr)
        require(done.stderr == "", f"prints: {done.stderr}")
        require(done.stdout.count("\n") == 1, f"prints: {done.stdout}")

    def trains(self, program: pathlib.Path, cluster: str) -> None:
        """The example against plait-run on the plan that it has written."""
        output = self.scratch / f"{program.parent.parent.name}-{cluster.replace(':', '-')}"
        output.mkdir()
        printed = self.run(program, MODEL, cluster, self.tokens, output)
        found = re.findall(r"step \d+ loss (\S+) norm (\S+)", printed)
        require(len(found) == STEPS, printed)
        log = output / "log.jsonl"
        words = (output / "model.plan", "--tokens", self.tokens)
        words += ("--steps", STEPS, "--lr", 0.01, "--seed", 7, "--log", log)
        self.tools.run("plait-run", *words, "--save", output / "theirs")
        lines = log.read_text().splitlines()
        expected = re.findall(r'"loss": (\S+), "grad_norm": (\S+),', "\n".join(lines))
        require(found == expected, f"{found}, plait-run has {expected}")
        for name in ("model.safetensors", "config.json"):
            same = (output / name).read_bytes() == (output / "theirs" / name).read_bytes()
            require(same, f"{name} differs from plait-run's")

    def steps(self, name: str) -> None:
        """Rows that are given, and those that the run reads, against plait-run."""
        ranks, plan = self.tools.folder / "plait-c-ranks", self.compile(name)
        log = self.scratch / f"steps-{name}.jsonl"
        words = (plan, "--tokens", self.tokens, "--seed", 3, "--lr", 0.01)
        self.tools.run("plait-run", *words, "--steps", STEPS, "--log", log)
        metrics = r'"loss": (\S+), "grad_norm": (\S+),'
        expected = re.findall(metrics, log.read_text())
        options = {"seed": 3, "lr": 0.01, "steps": STEPS}
        given = self.run(ranks, plan, STEPS, json.dumps(options), self.tokens)
        own = json.dumps({**options, "tokens": str(self.tokens)})
        require(self.run(ranks, plan, STEPS, own) == given, "the run reads other rows")
        found = [tuple(line.split()) for line in given.splitlines()[:STEPS]]
        require(found == expected, f"{found}, plait-run has {expected}")

    def processes(self, name: str, count: int) -> None:
        """The same by processes of mpirun as by this one."""
        ranks = self.tools.folder / "plait-c-ranks"
        words = (ranks, self.compile(name), 3, "{}", self.tokens)
        alone = self.run(*words)
        together = self.run("mpirun", "-n", count, *words, environment=ENVIRONMENT)
        require(together == alone, f"{together}, alone {alone}")

    def installed(self) -> None:
        """The example, built as a project of its own and by pkg-config alone."""
        tree, project = self.scratch / "installed", self.scratch / "project"
        self.run("cmake", "--install", self.build, "--prefix", tree, "--component", "c")
        shutil.copytree(ROOT / "examples/c", project)
        build = project / "build"
        self.run("cmake", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={tree}")
        self.run("cmake", "--build", build)
        self.trains(build / "plait-c-train", "host:1")
        (package,) = tree.glob("**/pkgconfig")
        environment = {"PKG_CONFIG_PATH": str(package)}
        flags = self.run(
            "pkg-config", "--cflags", "--libs", "plait", environment=environment
        ).split()
        program = project / "by-pkg-config"
        self.run("cc", "-std=c11", project / "train.c", "-o", program, *flags, "-lm")
        (library,) = tree.glob("**/libplait.so")
        done = self.call(program, environment={"LD_LIBRARY_PATH": str(library.parent)})
        require("usage:" in done.stderr, done.stderr)

    def exports(self) -> None:
        """Functions of the header and nothing else; the number of the interface."""
        library = self.tools.folder / "libplait.so"
        header = (ROOT / "include/plait-c/plait.h").read_text()
        declared = set(re.findall(r"PLAIT_C_API\s[^;(]*?\b(plait_\w+)\(", header))
        symbols = self.run("nm", "-D", "--defined-only", library).splitlines()
        found = {line.split()[-1].split("@")[0] for line in symbols}
        require(found <= declared, f"also {sorted(found - declared)[:9]}")
        require(found == declared, f"not {sorted(declared - found)}")
        (version,) = re.findall(r"#define PLAIT_C_VERSION (\d+)", header)
        name = self.run("readelf", "-d", library)
        require(f"[libplait.so.{version}]" in name, name)


def main() -> int:
    options = arguments(__doc__).parse_args()
    reporter = Reporter("capi", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(options, pathlib.Path(folder))
        for name in PLANS:
            reporter.case(f"calls/{name}", lambda: suite.calls(name))
            reporter.case(f"steps/{name}", lambda: suite.steps(name))
        example = suite.tools.folder / "plait-c-train"
        for cluster in ("host:1", "host:2"):
            reporter.case(f"trains/{cluster}", lambda: suite.trains(example, cluster))
        for name, count in (("tp", 2), ("zero-2", 2), ("pp", 2)):
            reporter.case(f"mpirun/{name}", lambda: suite.processes(name, count))
        reporter.case("exports", suite.exports)
        reporter.case("installed", suite.installed)
    return reporter.finish()


if __name__ == "__main__":
    sys.exit(main())
