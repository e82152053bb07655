# ===- check_simulation.py - A simulation against a run ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""check_simulation.py SIMULATION.json OUTPUT_OF_PLAIT_RUN TRACE.json"""

import json
import re
import sys

simulation, output, trace = (open(path).read() for path in sys.argv[1:])
simulation = json.loads(simulation)
programs = simulation["programs"]

# The last thing that plait-run prints: "… memory of ranks 7.28 MB to 9.58 MB".
allocated = re.findall(r"([0-9.]+) MB", output.split("memory of ranks")[1])
peaks = [program["peak_bytes"] / 1e6 for program in programs]
assert [f"{min(peaks):.2f}", f"{max(peaks):.2f}"] == allocated

for program in programs:
    times = [program[f"{what}_seconds"]
             for what in ("computing", "communicating", "idle")]
    step = simulation["step_seconds"] - simulation["overhead_seconds"]
    assert abs(sum(times) - step) <= 1e-9 * step, (times, step)
    assert 0 <= program["bubble_seconds"] <= program["idle_seconds"] <= step
    live = [sum(sample["bytes"].values()) for sample in program["memory"]]
    assert max(live) == program["peak_live_bytes"] <= program["peak_bytes"]
    seconds = [sample["seconds"] for sample in program["memory"]]
    assert seconds == sorted(seconds)

# One definition: idle in the pipeline, on average over ranks, of its time.
bubble = sum(program["bubble_seconds"] for program in programs) / len(programs)
assert bubble / step <= simulation["bubble_fraction"] <= 1

events = json.loads(trace)["traceEvents"]
rows = {event["tid"] for event in events if event["ph"] == "X"}
# Ranks of one process communicate between computing, in the same row.
assert rows == set(range(len(programs)))
