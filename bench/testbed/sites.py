#!/usr/bin/env python3
# ===- sites.py - Schemes of sites on a test bed -----------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""What do schemes save over a slow link, and is that what was predicted?

Four nodes of one rank, 100 Mbit/s between them (bed.py). Figures of the cluster are
fitted to runs of all-reduce and of a pipeline, as run.py does; then each scheme is
predicted and measured over whole rounds of H steps. What has been measured is kept."""

import argparse
import hashlib
import os
import signal
import statistics
import sys

import layouts
from bed import SIGNALS, BedError
from run import Case, Results, interrupt

# Bytes/s inside of a node, which has one rank, and between nodes.
RATES = (1e8, 12.5e6)
EVERY = 8
SCHEMES = {
    "all-reduce": ("dp=4", []),
    "int8": ("dp=4", ["--compress", "int8+feedback"]),
    "diloco": ("sites=4", ["--outer", f"diloco:{EVERY}"]),
    "diloco int8": ("sites=4", ["--outer", f"diloco:{EVERY},compress=int8"]),
    "streaming": ("sites=4", ["--outer", f"streaming:{EVERY},delay=2"]),
    "streaming e3m0": ("sites=4", ["--outer", f"streaming:{EVERY},delay=2,compress=e3m0"]),
    "sparseloco": ("sites=4", ["--outer", f"sparseloco:{EVERY}"]),
}


class Form:
    nodes, devices = 4, 1
    calibrated = {4: [layouts.make("dp4", 4), layouts.make("pp4", 8)]}


def measure(case, rounds):
    """Each scheme in each round, as one may disturb the other."""
    entries = case.kept["layouts"]
    # All that is not the scheme is as with replicas.
    layout = layouts.make("dp4", 4).options(case.model)
    for name, (mesh, options) in SCHEMES.items():
        entry = entries.setdefault(name, {"runs": []})
        layout[layout.index("--mesh") + 1] = mesh
        told = case.plan(name, [*layout, *options], case.path("cluster.json"))
        entry.update(plan=name, predicted=told["iteration_seconds"])
    for number in range(rounds):
        with case.bed(case.form.nodes, case.form.devices) as bed:
            for name, entry in entries.items():
                if len(entry["runs"]) > number:
                    continue
                entry["runs"].append(case.step(bed, name, range(bed.ranks)))
                case.explain(entry)
                case.results.save()


def report(case):
    """Means, as steps in which sites agree take longer than others."""
    print(f"{'scheme':16}{'measured':>10}{'predicted':>11}{'replayed':>10}{'off':>7}")
    for name, entry in case.kept["layouts"].items():
        means = [statistics.mean(run["seconds"]) for run in entry["runs"]]
        if not means:
            continue
        mean = statistics.median(means)
        off = entry["predicted"] / mean - 1
        print(f"{name:16}{mean:10.3f}{entry['predicted']:11.3f}"
              f"{entry['simulated']:10.3f}{off:+7.0%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--folder", required=True, help="for results.json and plans")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cores", type=float, default=0.2,
                        help="part of a core that a rank has")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of a run")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, interrupt)
    arguments.bin = os.path.abspath(arguments.bin)
    arguments.folder = os.path.abspath(arguments.folder)
    arguments.steps = 2 * EVERY
    os.makedirs(arguments.folder, exist_ok=True)
    with open(os.path.join(arguments.bin, "plait-run"), "rb") as file:
        runtime = hashlib.sha256(file.read()).hexdigest()[:16]
    layouts.SPEEDS["sites"] = RATES
    results = Results(os.path.join(arguments.folder, "results.json"),
                      {"cores": arguments.cores, "plait-run": runtime},
                      not arguments.report)
    case = Case(arguments, Form(), results, "gpt2", "sites")
    if not arguments.report:
        if "calibration" not in case.kept:
            case.calibrate()
        measure(case, arguments.rounds)
    report(case)


if __name__ == "__main__":
    try:
        main()
    except (BedError, OSError, ValueError) as error:
        sys.exit(f"sites.py: error: {error}")
    except KeyboardInterrupt:
        sys.exit("sites.py: interrupted; the same command goes on")
