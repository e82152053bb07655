#!/usr/bin/env python3
#===- gpu.py - plait against PyTorch on one GPU -----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Tokens per second of bf16 training on one GPU, plait and PyTorch one after
the other, each with the largest microbatch that fits; and which part of the
best measured rate of matmuls that is (MFU: recomputed work does not
count). The plans come from scripts/bundle.sh. Standard library only; PyTorch
runs in an interpreter of its own, and is left out where that has no torch."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "test" / "Execute"))

from harness import Failure, Reporter, Tools, arguments, require  # noqa: E402

WARM_UP = 5  # steps that are not timed: walked, recorded, first replays
STEPS = 20
OUT_OF_MEMORY = 3  # of torch_gpu.py


class Unsupported(Exception):
    """Something that the comparison needs is not here; the text says what."""


class Torch:
    def __init__(self, python: str, device: str, timeout: float):
        self.python, self.device, self.timeout = python, device, timeout

    def run(self, what: str, *options) -> dict | None:
        """The record, or None when the GPU's memory does not do."""
        command = [self.python, HERE / "torch_gpu.py", what]
        command += ["--device", self.device, *options]
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            timeout=self.timeout,
        )
        if done.returncode == OUT_OF_MEMORY:
            return None
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            unsupported = last.startswith("unsupported: ")
            raise (Unsupported if unsupported else Failure)(last)
        return json.loads(done.stdout.splitlines()[-1])


def batches_of(entry) -> list[int]:
    return sorted(map(int, entry["plans"]), reverse=True)


def measure_plait(tools: Tools, bundle: pathlib.Path, entry) -> dict:
    """Of the largest microbatch for which plait-run finds the memory."""
    for batch in batches_of(entry):
        with tempfile.TemporaryDirectory() as scratch:
            log = pathlib.Path(scratch) / "log"
            outcome = tools.call(
                "plait-run",
                entry["plans"][str(batch)],
                *("--tokens", "tokens", "--token-type", "uint16"),
                *("--log", log, "--devices", 1),
                *("--steps", WARM_UP + STEPS, "--lr", "1e-4"),
                cwd=bundle,
            )
            if outcome.code != 0:
                if "are free" in outcome.stderr:
                    continue
                raise Failure(outcome.stderr.strip()[-1000:])
            steps = [json.loads(x) for x in log.read_text().splitlines()]
        # The median, as torch_gpu.py: a mean would count one disturbed step.
        rates = [step["tokens_per_second"] for step in steps[WARM_UP:]]
        return {"batch": batch, "tokens_per_second": statistics.median(rates)}
    raise Failure("not even the smallest microbatch fits")


def measure_torch(torch: Torch, bundle: pathlib.Path, entry) -> dict:
    for batch in batches_of(entry):
        record = torch.run(
            "step",
            *("--model", bundle / entry["config"], "--batch", batch),
            *("--seq", entry["seq"], "--recompute", entry["recompute"]),
            *("--steps", STEPS),
        )
        if record:
            return record | {"batch": batch}
    raise Failure("not even the smallest microbatch fits")


def compare(tools, torch, bundle, entry, flops, results) -> str:
    """`flops`: of the best matmul; None: without PyTorch."""
    found = {"plan": entry["name"], "plait": measure_plait(tools, bundle, entry)}
    results.append(found)
    mine = found["plait"]
    text = f"plait {mine['tokens_per_second']:.0f} tokens/s at {mine['batch']}"
    if flops is None:
        return text
    theirs = found["torch"] = measure_torch(torch, bundle, entry)
    ratio = mine["tokens_per_second"] / theirs["tokens_per_second"]
    for record in (mine, theirs):
        used = record["tokens_per_second"] * theirs["flops_per_token"]
        record["mfu"] = used / flops
    found["ratio"] = ratio
    return (
        f"{text} (MFU {mine['mfu']:.1%}), PyTorch {theirs['torch']} "
        f"{theirs['tokens_per_second']:.0f} at {theirs['batch']} "
        f"(MFU {theirs['mfu']:.1%}): {ratio:.2f}x"
    )


def measure_gemm(torch: Torch) -> dict:
    """{"flops"} of the best matmul, or {"unsupported"} with the reason."""
    try:
        record = torch.run("gemm")
    except Unsupported as reason:
        print(f"PyTorch is left out; {reason}")
        return {"unsupported": str(reason)}
    require(record is not None, "no memory for a matmul")
    print(f"best matmul: {record['flops'] * 1e-12:.1f} TFLOP/s")
    return record


def main() -> int:
    parser: argparse.ArgumentParser = arguments(__doc__)
    parser.add_argument("--bundle", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument(
        "--device", default="cuda", help="of PyTorch, for a rehearsal: cpu"
    )
    given = parser.parse_args()
    bundle = given.bundle.resolve()
    torch = Torch(given.torch_python, given.device, 4 * given.timeout)
    tools = Tools(given.bin, given.timeout)
    entries = json.loads((bundle / "manifest.json").read_text())
    if not any(entry.get("speed") for entry in entries):
        print("the bundle has no plans to be timed")
        return 0
    gemm = measure_gemm(torch)
    reporter = Reporter("speed", given.filter)
    results = []
    for entry in entries:
        if entry.get("speed"):
            reporter.case(
                entry["name"],
                lambda: compare(
                    tools, torch, bundle, entry, gemm.get("flops"), results
                ),
            )
    record = {"gemm": gemm, "results": results}
    given.results.write_text(json.dumps(record, indent=1) + "\n")
    return reporter.finish()


if __name__ == "__main__":
    sys.exit(main())
