#!/usr/bin/env python3
# ===- cpu_ground_truth.py - Predicted order against measured ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Does the planner rank plans as this machine does?

Compiles a small GPT-2 for eight CPU ranks in more than twenty ways, runs each
for a few steps, fits a hardware file to the profiles of some of them
(plait-plan calibrate), and predicts all of them twice: `plaitc --predict` from
the model's work, `plait-plan simulate` from the plan's own steps. Prints the
seconds, Kendall's tau between predicted and measured order, and the regret: how
much slower than the fastest plan the one that was predicted fastest is.

Needs an otherwise idle machine. Eight ranks share its cores."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from ranking import find_regret, kendall, mean_error

RANKS = 8
SEQUENCE = 128
GLOBAL_BATCH = 16
CONFIG = {
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_positions": SEQUENCE,
    "n_embd": 256,
    "n_layer": 8,
    "n_head": 8,
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
    "tie_word_embeddings": True,
}
# (pp, dp, tp), schedule, micro-batch, recompute.
PLANS = [
    ((1, 8, 1), "1f1b", 1, "none"),
    ((1, 8, 1), "1f1b", 2, "none"),
    ((1, 8, 1), "1f1b", 2, "full"),
    ((1, 4, 2), "1f1b", 1, "none"),
    ((1, 4, 2), "1f1b", 4, "none"),
    ((1, 4, 2), "1f1b", 4, "full"),
    ((1, 2, 4), "1f1b", 1, "none"),
    ((1, 2, 4), "1f1b", 4, "none"),
    ((1, 2, 4), "1f1b", 4, "full"),
    ((1, 1, 8), "1f1b", 2, "none"),
    ((1, 1, 8), "1f1b", 8, "none"),
    ((2, 4, 1), "1f1b", 1, "none"),
    ((2, 4, 1), "1f1b", 2, "full"),
    ((2, 2, 2), "1f1b", 1, "none"),
    ((2, 2, 2), "1f1b", 2, "none"),
    ((2, 2, 2), "gpipe", 2, "full"),
    ((2, 1, 4), "1f1b", 2, "none"),
    ((2, 1, 4), "gpipe", 4, "none"),
    ((4, 2, 1), "1f1b", 1, "none"),
    ((4, 2, 1), "gpipe", 2, "none"),
    ((4, 2, 1), "1f1b", 1, "full"),
    ((4, 1, 2), "1f1b", 1, "none"),
    ((4, 1, 2), "1f1b", 4, "none"),
    ((8, 1, 1), "1f1b", 1, "none"),
    ((8, 1, 1), "gpipe", 2, "none"),
    ((8, 1, 1), "1f1b", 2, "full"),
]
# Of these plans the profiles are fitted: one of each kind of mesh.
CALIBRATED = [1, 7, 14, 19]


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def describe(plan):
    (pp, dp, tp), schedule, micro, recompute = plan
    return f"pp={pp} dp={dp} tp={tp} {schedule} mb {micro} recompute {recompute}"


def options(plan):
    (pp, dp, tp), schedule, micro, recompute = plan
    return [
        "--mesh", f"pp={pp},dp={dp},tp={tp}", "--schedule", schedule,
        "--micro-batch", str(micro), "--recompute", recompute,
        "--global-batch", str(GLOBAL_BATCH), "--seq", str(SEQUENCE),
    ]


class Bench:
    def __init__(self, tools, folder, steps, threads):
        self.tools, self.folder = tools, folder
        self.steps, self.threads = steps, threads
        self.model = self.path("config.json")
        with open(self.model, "w") as file:
            json.dump(CONFIG, file)
        with open(self.path("text"), "wb") as file:
            file.write(random.Random(0).randbytes(1 << 16))

    def path(self, name):
        return os.path.join(self.folder, name)

    def tool(self, name, *arguments):
        return run(os.path.join(self.tools, name), *arguments)

    def compile(self, index, plan):
        if os.path.exists(self.path(f"{index}.plan")):
            return
        self.tool("plaitc", self.model, *options(plan), "--no-plan", "--no-reference",
                  "-o", self.path(f"{index}.plan"))

    def measure(self, index, best):
        """The seconds of the fastest step but the first, or `best`: what
        disturbs a step only makes it longer. Keeps the fastest run's profile."""
        profile, log = self.path("profile.json"), self.path("log")
        if os.path.exists(log):
            os.remove(log)  # a run adds to it
        self.tool("plait-run", self.path(f"{index}.plan"), "--text",
                  self.path("text"), "--steps", str(self.steps), "--threads",
                  str(self.threads), "--profile", profile, "--log", log)
        with open(log) as file:
            steps = [json.loads(line)["step_seconds"] for line in file]
        seconds = min(steps[1:])
        if seconds < best:
            os.replace(profile, self.path(f"{index}.json"))
        return min(seconds, best)

    def calibrate(self, indices):
        return self.tool(
            "plait-plan", "calibrate",
            *[self.path(f"{i}.json") for i in indices], "--plans",
            *[self.path(f"{i}.plan") for i in indices], "-o",
            self.path("my-cpu.json"))

    def predict(self, plan, cluster):
        text = self.tool("plaitc", self.model, *options(plan), "--cluster",
                         f"{cluster}:{RANKS}", "--json", "-")
        return json.loads(text)["iteration_seconds"]

    def simulate(self, index, cluster):
        text = self.tool("plait-plan", "simulate", self.path(f"{index}.plan"),
                         "--cluster", f"{cluster}:{RANKS}", "--json", "-")
        return json.loads(text)["step_seconds"]


def report(name, predicted, measured):
    print(f"{name:32} tau {kendall(predicted, measured):5.2f}, regret "
          f"{100 * find_regret(predicted, measured):4.1f} %, mean error "
          f"{100 * mean_error(predicted, measured):5.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3,
                        help="runs of every plan, one plan after the other")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--keep", help="folder for plans, profiles and the fit; "
                        "plans that are there are not compiled again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or scratch
        os.makedirs(folder, exist_ok=True)
        bench = Bench(arguments.bin, folder, arguments.steps,
                      arguments.threads)
        for index, plan in enumerate(PLANS):
            bench.compile(index, plan)
        begin = time.monotonic()
        measured = [float("inf")] * len(PLANS)
        for _ in range(arguments.rounds):
            measured = [bench.measure(*entry) for entry in enumerate(measured)]
        print(f"measured {len(PLANS)} plans in "
              f"{time.monotonic() - begin:.0f} s\n")
        print(bench.calibrate(CALIBRATED))
        fitted = bench.path("my-cpu.json")
        predicted = [bench.predict(plan, fitted) for plan in PLANS]
        simulated = [bench.simulate(index, fitted)
                     for index in range(len(PLANS))]
        shipped = [bench.predict(plan, "cpu") for plan in PLANS]
        print(f"{'plan':46}{'measured':>10}{'predicted':>11}{'simulated':>11}"
              f"{'shipped':>10}")
        order = sorted(range(len(PLANS)), key=lambda i: measured[i])
        for i in order:
            print(f"{describe(PLANS[i]):46}{measured[i]:10.3f}"
                  f"{predicted[i]:11.3f}{simulated[i]:11.3f}"
                  f"{shipped[i]:10.3f}")
        print()
        report("plaitc --predict, calibrated", predicted, measured)
        report("plait-plan simulate, calibrated", simulated, measured)
        report("plaitc --predict, cpu as shipped", shipped, measured)


if __name__ == "__main__":
    main()
