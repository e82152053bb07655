#===- lint.py - Check what plait-plan lint writes ---------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Holds the sums of a lint's JSON against its entries, and the matmuls' floor
against what GPT-2 nano's matmuls have to compute."""

import json
import math
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    content = json.load(file)
(program,) = content["programs"]
for key in ("steps", "predicted_seconds", "floor_seconds", "launch_seconds"):
    parts = sum(part[key] for part in program["parts"].values())
    steps = sum(step[key] for step in program["steps"])
    assert math.isclose(parts, steps, rel_tol=1e-9), (key, parts, steps)
for step in program["steps"]:
    floor = step["floor_seconds"] + step["launch_seconds"]
    assert floor <= step["predicted_seconds"] * (1 + 1e-9), step
# Each weight of a matmul takes 6 operations a token: 4 layers of 12 h^2, the head.
hidden, vocabulary, tokens = 128, 256, 4 * 128
flops = 6 * tokens * (4 * 12 * hidden * hidden + vocabulary * hidden)
floor = program["parts"]["matmuls"]["floor_seconds"]
assert floor > flops / 989e12, (floor, flops / 989e12)
rules = {sign["rule"] for sign in program["signs"]}
assert rules <= {
    "below-a-wave", "few-blocks", "traffic", "written-once", "packed", "many-nodes"
}, rules
