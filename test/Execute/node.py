#!/usr/bin/env python3
#===- node.py - Checks a node of several GPUs -------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Ten steps on a node of 2 to 8 GPUs: a process a GPU, which reach one another as in
a run (gpu.py has ranks share one GPU, over sockets). Each step says what it found,
what is expected, and what that decides; the first that fails ends it, since what
follows would fail for the same reason. Leaves one JSON, with the profiles that
`plait-plan calibrate` reads.

On one GPU it says what it cannot tell. Called by scripts/gpu-check.sh; standard
library only.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from gpu import PATIENCE, TOLERANCE, farthest, losses_of
from harness import Failure, arguments, require

NEEDS_SEVERAL = "needs two GPUs"
# nccl-tests: bytes at most, and what 8 H100 with NVSwitch reach on the bus, GB/s.
LINKS = {"all_reduce_perf": 360, "all_gather_perf": 330, "reduce_scatter_perf": 330}
# Of as many times one GPU's speed, with one gradient reduction a step.
SCALING = 0.9


class Unknown(Exception):
    """A step that cannot tell here; the text says why."""


def call(*command, **more) -> str:
    """The output of a program of the machine."""
    if not shutil.which(command[0]):
        raise Unknown(f"{command[0]} is not installed")
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=300, **more
    )
    require(done.returncode == 0, (done.stdout + done.stderr).strip()[-500:])
    return done.stdout


def count_gpus() -> int:
    return call("nvidia-smi", "-L").count("GPU ")


class Node:
    def __init__(self, binary: pathlib.Path, bundle: pathlib.Path, timeout: float):
        self.binary, self.bundle, self.timeout = binary, bundle, timeout
        # Of a rank for another, and of the check for all of them.
        self.patience = min(PATIENCE, timeout / 4)
        self.gpus = count_gpus()
        entries = json.loads((bundle / "manifest.json").read_text())
        trained = [entry for entry in entries if "losses" in entry]
        self.several = [e for e in trained if 2 <= e["ranks"] <= self.gpus]
        self.speed = [e for e in entries if e.get("node") in (1, self.gpus)]
        self.walked, self.profiles, self.tokens = {}, [], {}

    def need_several(self) -> None:
        if self.gpus < 2:
            raise Unknown(NEEDS_SEVERAL)

    # Processes.

    def start(self, entry, given, **environment) -> list[subprocess.Popen]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        ranks = entry["ranks"]

        def place(rank: int) -> dict:
            return {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }

        return [
            subprocess.Popen(
                [str(self.binary / "plait-run"), *map(str, given)],
                cwd=self.bundle,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | place(rank) | environment,
            )
            for rank in range(ranks)
        ]

    def launch(self, entry, *more, options=None, **environment):
        """Losses, and what the processes said."""
        with tempfile.TemporaryDirectory() as scratch:
            log = pathlib.Path(scratch) / "log"
            given = [entry["plan"], *(options or entry["options"]), "--log", log, *more]
            processes = self.start(entry, given, **environment)
            texts, until = [], time.monotonic() + self.timeout
            try:
                for process in processes:
                    left = max(0.1, until - time.monotonic())
                    texts.append(process.communicate(timeout=left)[0])
            except subprocess.TimeoutExpired:
                raise Failure(
                    f"{entry['name']}: no end in {self.timeout:g} s"
                ) from None
            finally:
                for process in processes:
                    if process.poll() is None:
                        process.kill()
                        process.communicate()
            for process, text in zip(processes, texts):
                require(
                    process.returncode == 0, f"{entry['name']}: {text.strip()[-500:]}"
                )
            return losses_of(log), "".join(texts)

    def compare(self, entry, losses) -> float:
        off = farthest(losses, entry["losses"])
        bound = TOLERANCE[entry["precision"]]
        require(off <= bound, f"{entry['name']}: loss off by {off:.3g}")
        return off

    # Steps. Each returns what it has found.

    def check_machine(self):
        """Links, fabric manager, limits."""
        topology = call("nvidia-smi", "topo", "-m")
        links = sorted(set(re.findall(r"\b(NV\d+|PIX|PXB|PHB|NODE|SYS)\b", topology)))
        fabric = re.findall(r"^\s*(?:State|Status)\s*: (\w+)$", call("nvidia-smi", "-q"),
                            re.MULTILINE)
        shared = shutil.disk_usage("/dev/shm").total
        require(shared >= 1 << 28, f"/dev/shm has {shared} bytes, NCCL wants more")
        version = call(str(self.binary / "plait-run"), "--version").strip()
        return {"links": links, "fabric": fabric, "shared_bytes": shared,
                "version": version}

    def check_links(self):
        """nccl-tests, a process a GPU; bandwidths on the bus."""
        self.need_several()
        found = {}
        for program, expected in LINKS.items():
            text = call(program, "-b", "8", "-e", "1G", "-f", "8", "-g", str(self.gpus))
            rows = [line.split() for line in text.splitlines() if re.match(r"\s+\d", line)]
            require(bool(rows), f"{program} prints no figures")
            found[program] = {
                "latency_us": float(rows[0][5]), "bus_gbs": float(rows[-1][7]),
                "expected_gbs": expected,
            }
        return found

    def check_conformance(self):
        """Every collective and message, and what a failed rank leaves."""
        text = call(str(self.binary / "plait-gpu-conformance"))
        failed = re.findall(r"\[  FAILED  \] (\S+)", text)
        require(not failed, f"failed: {', '.join(failed)}")
        return {"tests": len(re.findall(r"\[       OK \]", text))}

    def check_pair(self):
        """Two processes, operation by operation, with what NCCL says it does."""
        self.need_several()
        found = {}
        for entry in [e for e in self.several if e["ranks"] == 2]:
            losses, text = self.launch(
                entry, "--cuda-graph", "off",
                NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,REG,TUNING",
            )
            found[entry["name"]] = self.compare(entry, losses)
            found["windows"] = "Symmetric memory is not supported" not in text
        require(bool(found), "the bundle has no plan of two ranks")
        return found

    def check_walked(self):
        """All meshes that the node has GPUs for, operation by operation."""
        self.need_several()
        found = {}
        for entry in self.several:
            losses, _ = self.launch(entry, "--cuda-graph", "off")
            self.walked[entry["name"]] = losses
            found[entry["name"]] = self.compare(entry, losses)
        return found

    def check_recorded(self):
        """The same as recorded steps: the same bits, or it is said without what."""
        self.need_several()
        found = {}
        for entry in self.several:
            name = entry["name"]
            losses, _ = self.launch(entry, "--cuda-graph", "on")
            found[name] = "same bits"
            if losses == self.walked[name]:
                continue
            off = {"NCCL_NVLS_ENABLE": "0"}
            first, _ = self.launch(entry, "--cuda-graph", "off", **off)
            second, _ = self.launch(entry, "--cuda-graph", "on", **off)
            require(first == second, f"{name}: recorded {losses}, walked "
                    f"{self.walked[name]}, and {second}, {first} without NVLS")
            found[name] = "same bits without NVLS"
        return found

    def check_killed(self):
        """One process is killed, then one stopped: the others end, and say why."""
        self.need_several()
        entry = max(self.several, key=lambda e: e["ranks"])
        options = list(entry["options"])
        options[options.index("--steps") + 1] = "100000"
        return {kind.name: self.end_without_last(entry, options, kind)
                for kind in (signal.SIGKILL, signal.SIGSTOP)}

    def end_without_last(self, entry, options, kind) -> float:
        with tempfile.TemporaryDirectory() as scratch:
            log = pathlib.Path(scratch) / "log"
            given = [entry["plan"], *options, "--log", log, "--timeout", max(1, int(self.patience))]
            processes = self.start(entry, given)
            try:
                until = time.monotonic() + self.timeout
                while not log.exists() or len(log.read_text().splitlines()) < 3:
                    require(time.monotonic() < until, "step 3 does not end")
                    ended = [p for p in processes if p.poll() is not None]
                    require(not ended, "a process ends before it is stopped")
                    time.sleep(0.05)
                processes[-1].send_signal(kind)
                since = time.monotonic()
                for process in processes[:-1]:
                    try:
                        text, _ = process.communicate(timeout=3 * self.patience)
                    except subprocess.TimeoutExpired:
                        raise Failure(f"no end in {3 * self.patience:g} s") from None
                    require(process.returncode != 0, "the others go on")
                    require("error: " in text, f"it does not say why: {text[-500:]}")
                return time.monotonic() - since
            finally:
                for process in processes:
                    process.kill()
                    process.communicate()

    def measure(self, entry, *options, **environment) -> float:
        """Tokens a second of a step, the median of those behind the third."""
        with tempfile.TemporaryDirectory() as scratch:
            profile = pathlib.Path(scratch) / "profile.json"
            self.launch(entry, "--profile", profile, *options, **environment)
            found = json.loads(profile.read_text())
        if not environment and not options:
            self.profiles.append(found)
        return entry["tokens"] / found["step_seconds"]

    def find_speed(self, gpus: int, tensor: int = 1):
        for entry in self.speed:
            if entry["node"] == gpus and entry["tensor"] == tensor:
                return entry
        raise Unknown(f"the bundle has no plan to measure on {gpus} GPUs")

    def check_scaling(self):
        """One model on all GPUs beside the same on one."""
        for gpus in {1, self.gpus}:
            entry = self.find_speed(gpus)
            runs = [self.measure(entry) for _ in range(3)]
            self.tokens[gpus] = statistics.median(runs)
        self.need_several()
        part = self.tokens[self.gpus] / (self.gpus * self.tokens[1])
        return {"tokens_per_second": self.tokens, "of_ideal": part, "expected": SCALING}

    def check_windows(self):
        """The same without windows of NCCL's, and without sums in switches."""
        self.need_several()
        entry = self.find_speed(self.gpus)
        return {
            name: self.measure(entry, **{name: "0"}) / self.tokens[self.gpus]
            for name in ("NCCL_WIN_ENABLE", "NCCL_NVLS_ENABLE")
        }

    def check_blocks(self):
        """Matmuls that leave room for collectives of tp beside those that do not."""
        self.need_several()
        entry = self.find_speed(self.gpus, tensor=2)
        plain = self.measure(entry)
        return {
            blocks: self.measure(entry, "--collective-blocks", blocks) / plain
            for blocks in BLOCKS
        }

    def check_profiles(self):
        """What plait-plan calibrate reads."""
        if not self.profiles:
            raise Unknown("nothing was measured")
        return {"profiles": len(self.profiles)}


# What --collective-blocks is tried with.
BLOCKS = (4, 8, 16)

# Name, what is expected, what it decides.
STEPS = (
    ("machine", "NV18 between all, fabric Completed and Success",
     "whether windows and sums in switches are possible"),
    ("links", "8 H100: 1 GB above 330 to 360 GB/s, 8 bytes below 25 us",
     "hardware or plait; figures of the hardware file's rings"),
    ("conformance", "no failed test", "the host's logic; messages inside of a process"),
    ("pair", "losses of the CPU; windows are there",
     "memory of another process: if not, NCCL_NVLS_ENABLE=0, NCCL_WIN_ENABLE=0 and "
     "NCCL_P2P_DISABLE=1, in turn"),
    ("walked", "losses of the CPU; the first step ends",
     "whether all kinds of collectives connect"),
    ("recorded", "the bits of walked steps", "order of a graph's branches; determinism"),
    ("killed", "the others end within --timeout, and say why", "abort with windows"),
    ("scaling", f"above {SCALING:g} of as many times one GPU", "overlap; memory of NCCL"),
    ("windows", "2 to 4 % less without", "what a window is worth"),
    ("blocks", "more than without with one of them",
     "--collective-blocks: whether matmuls leave room for collectives"),
    ("profiles", "one or more", "plait-plan calibrate"),
)


def run(node: Node) -> dict:
    steps, failed = [], False
    for number, (name, expected, decides) in enumerate(STEPS, 1):
        step = {"number": number, "name": name, "expected": expected, "decides": decides}
        if failed:
            step |= {"state": "left out", "why": "a step before it failed"}
        else:
            try:
                step |= {"state": "passed", "found": getattr(node, f"check_{name}")()}
            except Unknown as unknown:
                step |= {"state": "unknown", "why": str(unknown)}
            except (Failure, subprocess.TimeoutExpired, OSError) as failure:
                step |= {"state": "failed", "why": str(failure)}
                failed = True
        steps.append(step)
        shown = step.get("why") or json.dumps(step["found"])
        print(f"{number:2} {name:12} {step['state']:9} {shown}", flush=True)
        print(f"   expected: {expected}; decides: {decides}", flush=True)
    return {"node": {"gpus": node.gpus, "steps": steps}, "profiles": node.profiles}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--bundle", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    given = parser.parse_args()
    try:
        node = Node(given.bin.resolve(), given.bundle.resolve(), given.timeout)
    except (Unknown, Failure) as unknown:
        print(f"node: error: {unknown}", file=sys.stderr)
        return 2
    results = run(node)
    given.results.write_text(json.dumps(results, indent=1) + "\n")
    unknown = [s["name"] for s in results["node"]["steps"] if s["state"] == "unknown"]
    if unknown:
        print(f"on {node.gpus} GPU{'s' * (node.gpus != 1)} it cannot tell: "
              + ", ".join(unknown))
    return any(s["state"] == "failed" for s in results["node"]["steps"])


if __name__ == "__main__":
    sys.exit(main())
