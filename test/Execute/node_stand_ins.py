#!/usr/bin/env python3
#===- node_stand_ins.py - The check of a node, on stand-ins -*- Python -*--===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""node.py against programs that answer as a node's do: of 8 GPUs, of one, and with
faults of which each has to show in its step. Standard library only."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from harness import Reporter, arguments, require

HERE = pathlib.Path(__file__).parent
LOSSES = [5.5, 5.25, 5.0]

# A stand-in for plait-run: losses of the plan by rank 0, as FAULT says.
PLAIT_RUN = r'''
import json, os, pathlib, sys, time
if "--version" in sys.argv:
    print("plait-run 0.1.0"); sys.exit()
fault, options = os.environ.get("FAULT", ""), sys.argv[2:]
def get(name):
    return options[options.index(name) + 1] if name in options else None
rank, began = int(os.environ["RANK"]), time.time()
log, steps = pathlib.Path(get("--log")), int(get("--steps"))
recorded = get("--cuda-graph") == "on"
def write(losses):
    if rank == 0:
        log.write_text("".join(json.dumps({"loss": x}) + "\n" for x in losses))
if get("--profile"):
    ranks = int(os.environ["WORLD_SIZE"])
    seconds = 1.0 if ranks == 1 or fault != "slow" else 2.0
    if fault == "room" and get("--collective-blocks") == "8": seconds = 0.5
    if rank == 0:
        pathlib.Path(get("--profile")).write_text(json.dumps({"step_seconds": seconds}))
    write(LOSSES); sys.exit()
if steps > 3:
    write(LOSSES)
    if fault == "hangs": time.sleep(1000)
    for _ in range(4000):
        parts = [log.parent / f"alive{r}" for r in range(int(os.environ["WORLD_SIZE"]))]
        parts[rank].write_text(str(time.time())); time.sleep(0.05)
        ages = [time.time() - p.stat().st_mtime if p.exists() else time.time() - began
                for p in parts]
        if max(ages) > 3:
            print("error: a rank is gone"); sys.exit(1)
if fault == "wrong" and not recorded: write([x + 0.1 for x in LOSSES])
elif fault == "branches" and recorded: write([x * (1 + 1e-7) for x in LOSSES])
elif fault == "switch" and recorded and "NCCL_NVLS_ENABLE" not in os.environ:
    write([x * (1 + 1e-7) for x in LOSSES])
else: write(LOSSES)
if fault == "dies" and rank == 1:
    print("error: no window"); sys.exit(1)
print("NCCL INFO Symmetric memory is not supported" if fault == "sockets" else "")
'''

NVIDIA_SMI = r'''
import os, sys
gpus = int(os.environ["GPUS"])
if sys.argv[1] == "-L":
    for i in range(gpus): print(f"GPU {i}: NVIDIA H100 80GB HBM3")
elif sys.argv[1] == "topo": print(" GPU0\tGPU1\nGPU0\t X \tNV18")
else: print("    Fabric\n        State                 : Completed\n"
            "        Status                : Success")
'''

LINKS = r'''
print("#       size  count  type  redop  root  time  algbw  busbw  #wrong")
print("           8      2 float    sum    -1  14.2   0.00   0.00      0")
print("  1073741824 268435456 float sum    -1  4000  268.4  470.1      0")
'''

CONFORMANCE = r'''
import os
print("[       OK ] Nccl.AllReduce (3 ms)")
if os.environ.get("FAULT") == "conformance": print("[  FAILED  ] Nccl.Broadcast")
'''


def make_programs(folder: pathlib.Path) -> None:
    programs = {"plait-run": f"LOSSES = {LOSSES}\n{PLAIT_RUN}", "nvidia-smi": NVIDIA_SMI,
                "plait-gpu-conformance": CONFORMANCE}
    programs |= {f"{x}_perf": LINKS for x in ("all_reduce", "all_gather",
                                              "reduce_scatter")}
    for name, text in programs.items():
        (folder / name).write_text(f"#!{sys.executable}\n{text}")
        (folder / name).chmod(0o755)


def make_bundle(folder: pathlib.Path) -> None:
    options = ["--steps", "3"]
    entries = [
        {"name": f"dp{n}", "plan": f"dp{n}.plan", "ranks": n, "options": options,
         "precision": "fp32", "losses": LOSSES}
        for n in (1, 2, 8)
    ] + [
        {"name": f"gpt2-{n}-{tensor}", "plan": f"gpt2-{n}-{tensor}.plan", "ranks": n,
         "node": n, "tensor": tensor, "options": options, "tokens": 65536 * n // tensor}
        for n in (1, 2, 8) for tensor in (1, 2) if tensor <= n
    ]
    (folder / "manifest.json").write_text(json.dumps(entries))


def check(gpus: int, fault: str = ""):
    """The exit code, the steps by name, and the whole file."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        make_programs(scratch)
        make_bundle(scratch)
        results = scratch / "node.json"
        done = subprocess.run(
            [sys.executable, str(HERE / "node.py"), "--bin", str(scratch), "--bundle",
             str(scratch), "--results", str(results), "--timeout", "20"],
            capture_output=True, text=True,
            env=os.environ | {"PATH": f"{scratch}:{os.environ['PATH']}",
                              "GPUS": str(gpus), "FAULT": fault},
        )
        require(results.exists(), done.stdout + done.stderr)
        found = json.loads(results.read_text())
        steps = {step["name"]: step for step in found["node"]["steps"]}
        return done, steps, found


def expect_states(steps, expected: dict) -> None:
    states = {name: step["state"] for name, step in steps.items()}
    wrong = {n: states[n] for n, state in expected.items() if states[n] != state}
    require(not wrong, f"{wrong}, expected {expected}: {steps}")


def all_pass(gpus: int) -> str:
    done, steps, found = check(gpus)
    require(done.returncode == 0, done.stdout + done.stderr)
    expect_states(steps, dict.fromkeys(steps, "passed"))
    require(len(steps) == 11, f"{len(steps)} steps")
    require(steps["scaling"]["found"]["of_ideal"] == 1, str(steps["scaling"]))
    require(steps["machine"]["found"]["links"] == ["NV18"], str(steps["machine"]))
    bus = steps["links"]["found"]["all_reduce_perf"]["bus_gbs"]
    require(bus == 470.1, f"bus {bus}")
    require(len(found["profiles"]) == 7, f"{len(found['profiles'])} profiles")
    for step in steps.values():
        require(bool(step["expected"] and step["decides"]), str(step))
    return f"{len(steps)} steps"


def one_gpu() -> str:
    done, steps, found = check(1)
    require(done.returncode == 0, done.stdout + done.stderr)
    unknown = ("links", "pair", "walked", "recorded", "killed", "scaling", "windows",
               "blocks")
    expect_states(steps, dict.fromkeys(unknown, "unknown"))
    expect_states(steps, {"machine": "passed", "conformance": "passed"})
    require("on 1 GPU it cannot tell: " + ", ".join(unknown) in done.stdout, done.stdout)
    return f"{len(unknown)} unknown"


def fault(name: str, step: str, words: str) -> str:
    """It fails in its step, and none follows."""
    done, steps, _ = check(2, name)
    require(done.returncode == 1, done.stdout + done.stderr)
    require(steps[step]["state"] == "failed", f"{step}: {steps[step]}")
    require(words in steps[step]["why"], steps[step]["why"])
    names = list(steps)
    expect_states(steps, dict.fromkeys(names[names.index(step) + 1:], "left out"))
    return steps[step]["why"].split("\n")[0][:60]


def found(name: str, step: str, words: str) -> str:
    """It passes, and says so."""
    done, steps, _ = check(2, name)
    require(done.returncode == 0, done.stdout + done.stderr)
    require(words in json.dumps(steps[step]["found"]), str(steps[step]))
    return words


def main() -> int:
    given = arguments(__doc__).parse_args()
    reporter = Reporter("node", given.filter)
    reporter.case("all-8", lambda: all_pass(8))
    reporter.case("all-2", lambda: all_pass(2))
    reporter.case("one", one_gpu)
    for name, step, words in (
        ("conformance", "conformance", "Nccl.Broadcast"),
        ("wrong", "pair", "dp2: loss off by"),
        ("dies", "pair", "error: no window"),
        ("branches", "recorded", "without NVLS"),
        ("hangs", "killed", "no end in"),
    ):
        reporter.case(f"fails-{name}", lambda: fault(name, step, words))
    for name, step, words in (
        ("switch", "recorded", "same bits without NVLS"),
        ("sockets", "pair", '"windows": false'),
        ("slow", "scaling", '"of_ideal": 0.5'),
        ("room", "blocks", '{"4": 1.0, "8": 2.0, "16": 1.0}'),
    ):
        reporter.case(f"says-{name}", lambda: found(name, step, words))
    return reporter.finish()


if __name__ == "__main__":
    sys.exit(main())
