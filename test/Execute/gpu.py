#!/usr/bin/env python3
#===- gpu.py - Executes a bundle of plans on a GPU --------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs what bundle.py has made, several ranks on one GPU where a plan has them.

First what has never run: two stages of GPT-2 124M over NCCL, with messages that
fit no buffer, and what is left of a run when one of its processes is killed. Then
losses are within 1e-5 (relative) of the CPU's; a recorded step gives the same
bits as a walked one; one and two processes over NCCL give the same losses, save
the same weights as one process, and agree with the reference; a profile can be
taken. Then compute-sanitizer's four tools, where it is installed. Prints a table
and leaves RESULTS (JSON). Called by scripts/gpu-check.sh; standard library only.
"""

import filecmp
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from harness import Failure, Reporter, Tools, arguments, require

# f32 matmuls in another order; see docs/Accuracy.md. In bf16 that moves what is
# rounded to eight bits, and GPUs round attention's weights too.
TOLERANCE = {"fp32": 1e-5, "bf16": 3e-3}

# Seconds after which a rank gives up waiting for another.
PATIENCE = 30


def losses_of(log: pathlib.Path) -> list[float]:
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def farthest(found: list[float], expected: list[float]) -> float:
    require(len(found) == len(expected), f"{len(found)} steps were run")
    return max(abs(x - y) / abs(y) for x, y in zip(found, expected))


class Runner:
    def __init__(self, tools: Tools, bundle: pathlib.Path):
        self.tools = tools
        self.bundle = bundle
        self.results = []

    def command(self, entry, log, *more) -> list[str]:
        return [entry["plan"], *entry["options"], "--log", str(log), *more]

    def train(self, entry, *more) -> list[float]:
        with tempfile.TemporaryDirectory() as scratch:
            log = pathlib.Path(scratch) / "log"
            self.tools.run(
                "plait-run", *self.command(entry, log, *more), cwd=self.bundle
            )
            return losses_of(log)

    def record(self, entry, what: str, **values) -> str:
        self.results.append({"plan": entry["name"], "check": what, **values})
        return " ".join(f"{key} {value:.3g}" for key, value in values.items())

    def check_losses(self, entry) -> str:
        walked = self.train(entry, "--devices", "1", "--cuda-graph", "off")
        entry["walked"] = walked
        off = farthest(walked, entry["losses"])
        bound = TOLERANCE[entry["precision"]]
        require(off <= bound, f"loss off by {off:.3g}, CPU {entry['losses']}"
                f", GPU {walked}")
        return self.record(entry, "losses", off=off)

    def check_graph(self, entry) -> str:
        recorded = self.train(entry, "--devices", "1", "--cuda-graph", "on")
        require(recorded == entry.get("walked"),
                f"recorded {recorded}, walked {entry.get('walked')}")
        return self.record(entry, "graph")

    def start(self, entry, *given) -> list[subprocess.Popen]:
        """A process a rank on the first GPU, as if on machines of their own:
        NCCL refuses two ranks of one machine on one GPU."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        binary = str(self.tools.folder / "plait-run")
        command = [binary, *map(str, given), "--devices", "1"]
        return [
            subprocess.Popen(
                command,
                cwd=self.bundle,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ
                | {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(entry["ranks"]),
                    "LOCAL_RANK": "0",
                    # All say that they are the first of their host.
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "NCCL_HOSTID": f"rank{rank}",
                    "NCCL_SOCKET_IFNAME": "lo",
                    "NCCL_NET": "Socket",
                },
            )
            for rank in range(entry["ranks"])
        ]

    def launch(self, entry, *given) -> None:
        processes = self.start(entry, *given)
        try:
            ended = [p.communicate(timeout=self.tools.timeout)
                     for p in processes]
        except subprocess.TimeoutExpired:
            for process in processes:
                process.kill()
            raise Failure(f"no end in {self.tools.timeout:g} s") from None
        for process, (text, _) in zip(processes, ended):
            require(process.returncode == 0, text.strip()[-1000:])

    def check_pipeline(self, entry) -> str:
        """Losses of a process a stage against those of one process, which
        copies messages in memory."""
        expected = self.train(entry, "--devices", "1")
        with tempfile.TemporaryDirectory() as scratch:
            log = pathlib.Path(scratch) / "log"
            self.launch(entry, *self.command(entry, log))
            off = farthest(losses_of(log), expected)
        require(off <= TOLERANCE[entry["precision"]], f"loss off by {off:.3g}")
        return self.record(entry, "pipeline", off=off)

    def check_killed(self, entry) -> str:
        """The others end by themselves, and soon, when a process is killed
        after a step was recorded."""
        options = list(entry["options"])
        options[options.index("--steps") + 1] = "100000"
        with tempfile.TemporaryDirectory() as scratch:
            log = pathlib.Path(scratch) / "log"
            endless = entry | {"options": options}
            given = self.command(endless, log, "--timeout", str(PATIENCE))
            processes = self.start(entry, *given)
            try:
                seconds = self.end_without_last(processes, log)
            finally:
                for process in processes:
                    process.kill()
                    process.communicate()
        return self.record(entry, "killed", seconds=seconds)

    def end_without_last(self, processes, log: pathlib.Path) -> float:
        until = time.monotonic() + self.tools.timeout
        while not log.exists() or len(log.read_text().splitlines()) < 3:
            require(time.monotonic() < until, "step 3 does not end")
            ended = [p for p in processes if p.poll() is not None]
            require(not ended, "a process ends before it is killed")
            time.sleep(0.05)
        processes[-1].kill()
        since = time.monotonic()
        for process in processes[:-1]:
            try:
                text, _ = process.communicate(timeout=2 * PATIENCE)
            except subprocess.TimeoutExpired:
                raise Failure(f"no end in {2 * PATIENCE} s") from None
            require(process.returncode != 0, "the others go on")
            require("error: " in text, f"it does not say why: {text[-500:]}")
        return time.monotonic() - since

    def check_nccl(self, entry) -> str:
        with tempfile.TemporaryDirectory() as scratch:
            log = pathlib.Path(scratch) / "log"
            self.launch(entry, *self.command(entry, log))
            off = farthest(losses_of(log), entry["losses"])
        require(
            off <= TOLERANCE[entry["precision"]], f"loss off by {off:.3g}"
        )
        return self.record(entry, "nccl", off=off)

    def check_saved(self, entry) -> str:
        """With one and with two ranks NCCL adds as the runtime does: the same
        bytes from a process a rank as from one."""
        with tempfile.TemporaryDirectory() as scratch:
            one, several = (pathlib.Path(scratch) / x for x in ("a", "b"))
            self.train(entry, "--devices", "1", "--save", one)
            log = pathlib.Path(scratch) / "log"
            self.launch(entry, *self.command(entry, log, "--save", several))
            names = sorted(path.name for path in several.iterdir())
            require("model.safetensors" in names, f"it has left {names}")
            _, *others = filecmp.cmpfiles(one, several, names, shallow=False)
        require(not any(others), f"other files than one process: {others}")
        return self.record(entry, "saved")

    def check_reference(self, entry) -> str:
        self.launch(entry, entry["plan"], "--check")
        return self.record(entry, "reference")

    def check_profile(self, entry) -> str:
        with tempfile.TemporaryDirectory() as scratch:
            profile = pathlib.Path(scratch) / "profile.json"
            self.train(entry, "--devices", "1", "--profile", profile)
            found = json.loads(profile.read_text())
        require(found["step_seconds"] > 0, "a step took no time")
        return self.record(entry, "profile", step_seconds=found["step_seconds"])

    def check_memory(self, entry, sanitizer: str, tool: str) -> str:
        with tempfile.TemporaryDirectory() as scratch:
            log = pathlib.Path(scratch) / "log"
            # Two steps: one is walked, one recorded and replayed.
            options = list(entry["options"])
            options[options.index("--steps") + 1] = "2"
            short = entry | {"options": options}
            command = self.command(short, log, "--devices", "1")
            done = subprocess.run(
                # Libraries ask the driver for what it may not have: no error.
                [sanitizer, "--tool", tool, "--error-exitcode", "9",
                 *(("--report-api-errors", "no") if tool == "memcheck" else ()),
                 str(self.tools.folder / "plait-run"), *command],
                cwd=self.bundle, capture_output=True, text=True,
                timeout=self.tools.timeout,
            )
        text = (done.stdout + done.stderr).strip()
        require(done.returncode == 0, text[-1500:])
        return self.record(entry, tool)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--bundle", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    given = parser.parse_args()
    reporter = Reporter("gpu", given.filter)
    runner = Runner(Tools(given.bin, given.timeout), given.bundle)
    entries = json.loads((given.bundle / "manifest.json").read_text())
    for entry in entries:
        if entry.get("pipeline"):
            name = entry["name"]
            reporter.case(name, lambda: runner.check_pipeline(entry))
            reporter.case(f"{name}/killed", lambda: runner.check_killed(entry))
    trained = [entry for entry in entries if "losses" in entry]
    for entry in trained:
        name = entry["name"]
        reporter.case(f"{name}/losses", lambda: runner.check_losses(entry))
        reporter.case(f"{name}/graph", lambda: runner.check_graph(entry))
        reporter.case(f"{name}/profile", lambda: runner.check_profile(entry))
    for entry in trained:
        if entry["ranks"] <= 2:
            name = entry["name"]
            reporter.case(f"{name}/nccl", lambda: runner.check_nccl(entry))
            reporter.case(f"{name}/saved", lambda: runner.check_saved(entry))
            reporter.case(
                f"{name}/reference", lambda: runner.check_reference(entry)
            )
    sanitizer = shutil.which("compute-sanitizer")
    for entry in trained if sanitizer else ():
        if entry["name"].startswith("gpt2") and entry["ranks"] in (1, 8):
            tools = ["memcheck", "initcheck"]
            # Of cuDNN's kernels, which order what they do by other means than
            # these two look at, they report hundreds of errors (H200, 9.19).
            if "flash" not in entry["name"]:
                tools += ["racecheck", "synccheck"]
            for tool in tools:
                reporter.case(
                    f"{entry['name']}/{tool}",
                    lambda: runner.check_memory(entry, sanitizer, tool),
                )
    if not sanitizer:
        print("compute-sanitizer is not installed: memory is not checked")
    text = json.dumps(
        {
            "passed": reporter.passed,
            "failed": reporter.failed,
            "results": runner.results,
        },
        indent=1,
    )
    given.results.write_text(text + "\n")
    return reporter.finish()


if __name__ == "__main__":
    sys.exit(main())
