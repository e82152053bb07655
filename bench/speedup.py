#!/usr/bin/env python3
# ===- speedup.py - What more sites gain ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Prints, and with --draw FILE draws, how many times as many samples a second n sites
train as one, by the planner: GPT-2 124M, one A100 and eight sequences a site, all
weights exchanged in each step, by a ring of all and with one neighbour. Links are such
that a ring takes a fifth of the time of computing, or five times that. A server that
all send to and receive from is told for comparison, by the bytes of its link. Standard
library only.

  speedup.py [--bin build/bin] [--draw docs/images/sites-speedup.svg]"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test" / "Execute"))

from pictures import Line, draw  # noqa: E402

COUNTS = [2**k for k in range(8)]
EACH, LATENCY = 8, 20e-6  # sequences; seconds
BYTES = 124_439_808 * 4  # of all weights in fp32
RATIOS = (0.2, 5)
SCHEMES = {"ring": "average:1", "neighbour": "gossip:one-peer"}


def predict(options, folder, count, outer="", rate=0.0) -> float:
    """Seconds of a step."""
    cluster = "a100-40g:1x1"
    more = []
    if count > 1:
        cluster = folder / "cluster.json"
        sites = [{"cluster": "a100-40g:1x1", "count": count}]
        link = {"bandwidth": rate, "latency": LATENCY}
        cluster.write_text(json.dumps({"name": "sites", "sites": sites, "link": link}))
        more = ["--mesh", f"sites={count}", "--outer", outer]
    report = folder / "report.json"
    subprocess.run(
        [options.bin / "plaitc", ROOT / "examples/models/gpt2", "--cluster", cluster,
         "--global-batch", str(EACH * count), "--seq", "1024", "--predict", "--json", report,
         *more],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return json.loads(report.read_text())["iteration_seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--draw", type=pathlib.Path, help="write a picture")
    options = parser.parse_args()
    lines = {"as many": Line([float(count) for count in COUNTS], "#999999", dashed=True)}
    colors = {"ring": "#c0392b", "neighbour": "#2471a3", "server": "#b7950b"}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        alone = predict(options, folder, 1)
        for ratio in RATIOS:
            rate = 2 * BYTES / (ratio * alone)
            for scheme, outer in SCHEMES.items():
                seconds = [alone] + [
                    predict(options, folder, count, outer, rate) for count in COUNTS[1:]
                ]
                gains = [n * alone / t for n, t in zip(COUNTS, seconds)]
                lines[f"{scheme}, {ratio:g} of computing"] = Line(gains, colors[scheme], ratio > 1)
            server = [n / (1 + (n > 1) * 2 * n * BYTES / rate / alone) for n in COUNTS]
            lines[f"server, {ratio:g} of computing"] = Line(server, colors["server"], ratio > 1)
    print("| sites | " + " | ".join(lines) + " |")
    print("|--:|" + "--:|" * len(lines))
    for index, count in enumerate(COUNTS):
        values = (f"{line.values[index]:.1f}" for line in lines.values())
        print(f"| {count} | " + " | ".join(values) + " |")
    if options.draw:
        marks = [2**k for k in range(-3, 8)]
        options.draw.write_text(draw(lines, marks, every=1, axis=1, numbers=COUNTS))


if __name__ == "__main__":
    main()
