#!/usr/bin/env python3
# ===- run.py - Predicted against measured on a test bed --------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Does the planner rank plans as a cluster does?

Builds a cluster of namespaces on this machine (bed.py), fits its figures to runs of
four ranks (plait-plan calibrate), predicts the layouts of layouts.py and measures
them in rounds. Results are kept after each run: started again, it goes on."""

import argparse
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys

import layouts
from bed import SIGNALS, Bed, BedError
from report import report


def interrupt(number, _):
    """Any signal leaves by the same way as Ctrl-C: the bed is removed."""
    raise KeyboardInterrupt(signal.strsignal(number))


class Results:
    """One JSON file, whole after each change."""

    def __init__(self, path, setting, measures):
        self.path = path
        self.data = {"setting": setting, "cases": {}}
        if os.path.exists(path):
            with open(path) as file:
                self.data = json.load(file)
        kept = self.data["setting"]
        if measures and kept != setting:
            sys.exit(f"run.py: error: '{path}' was measured with {kept}, which "
                     f"{setting} cannot be added to: name another --folder")

    def case(self, model, speed):
        return self.data["cases"].setdefault(
            f"{model} {speed}", {"model": model, "speed": speed, "layouts": {}})

    def save(self):
        with open(self.path + ".new", "w") as file:
            json.dump(self.data, file, indent=1)
        os.replace(self.path + ".new", self.path)


class Case:
    """A model on a cluster of one speed."""

    def __init__(self, arguments, form, results, model, speed):
        self.arguments, self.form, self.results = arguments, form, results
        self.model, self.name = layouts.MODELS[model], f"{model} {speed}"
        self.rates = layouts.SPEEDS[speed]
        self.kept = results.case(model, speed)
        self.folder = os.path.join(arguments.folder, f"{model}-{speed}")
        os.makedirs(self.folder, exist_ok=True)
        with open(self.path("config.json"), "w") as file:
            json.dump(self.model.config, file)
        with open(self.path("text"), "wb") as file:
            file.write(random.Random(0).randbytes(1 << 16))

    def path(self, name):
        return os.path.join(self.folder, name)

    def tool(self, name, *command):
        result = subprocess.run([os.path.join(self.arguments.bin, name), *command],
                                capture_output=True, text=True)
        if result.returncode != 0:
            raise BedError(f"{name} {' '.join(command)}: {result.stderr.strip()}")
        return result.stdout

    def plan(self, name, options, cluster):
        """Predicts and compiles with one command, so that it is the same plan. One
        that is there stays: it may have been measured."""
        plan, predicted = self.path(name + ".plan"), self.path(name + ".json")
        output = [] if os.path.exists(plan) else ["--no-prove", "-o", plan]
        if output or not os.path.exists(predicted):
            self.tool("plaitc", self.path("config.json"), *options, "--attention",
                      "flash", "--global-batch", str(self.model.batch), "--seq",
                      str(self.model.sequence), "--cluster", cluster, "--no-reference",
                      "--json", predicted, *output)
        with open(predicted) as file:
            return json.load(file)

    def step(self, bed, name, ranks):
        """Seconds of the steps but two, in which libraries connect and processes
        get their part of a core. Leaves a profile."""
        log = self.path("log")
        if os.path.exists(log):
            os.remove(log)  # a run adds to it
        before = os.getloadavg()[0]
        bed.launch(ranks, [
            os.path.join(self.arguments.bin, "plait-run"), self.path(name + ".plan"),
            "--text", self.path("text"), "--steps", str(self.arguments.steps + 2),
            "--threads", "1", "--log", log, "--profile",
            self.path(name + ".profile.json")], self.folder, self.arguments.timeout)
        with open(log) as file:
            seconds = [json.loads(line)["step_seconds"] for line in file][2:]
        return {"seconds": seconds, "load": max(before, os.getloadavg()[0])}

    # The cluster.

    def base(self):
        """A node whose figures calibration starts with. Ranks that rest leave
        nothing to others: as many cores as ranks."""
        path = self.path("base.json")
        devices = self.form.devices
        share = devices * self.arguments.cores
        with open(path, "w") as file:
            json.dump({
                "extends": "cpu", "name": "testbed", "cores": devices,
                "devicesPerNode": devices,
                "device": {"fp32Flops": 8e10 * share, "vectorFlops": 2e10 * share,
                           "memoryBytes": 64e9, "memoryBandwidth": 1e10 * share},
                "intra": {"bandwidth": devices * self.rates[0]},
                "inter": {"bandwidth": self.rates[1]},
            }, file)
        return path

    def profile(self, nodes):
        """Runs that calibration sees, on so many nodes."""
        with self.bed(nodes, self.form.devices) as bed:
            for i, layout in enumerate(self.form.calibrated[nodes]):
                plan = f"calibrate-{nodes}-{i}"
                self.plan(plan, layout.options(self.model),
                          f"{self.base()}:{nodes}x{self.form.devices}")
                self.step(bed, plan, range(bed.ranks))

    def calibrate(self):
        """Writes the cluster file, from what `plait-plan calibrate` makes of runs
        inside of a node and of runs on all of them."""
        form = self.form
        if "calibration" not in self.kept:
            for nodes in form.calibrated:
                self.profile(nodes)
        runs = [(nodes, f"calibrate-{nodes}-{i}")
                for nodes, chosen in form.calibrated.items()
                for i in range(len(chosen))]
        text = self.tool(
            "plait-plan", "calibrate",
            *[self.path(f"{plan}.profile.json") for _, plan in runs], "--plans",
            *[self.path(f"{plan}.plan") for _, plan in runs], "--nodes",
            *[str(nodes) for nodes, _ in runs], "--hardware", self.path("base.json"),
            "-o", self.path("device.json"))
        with open(self.path("cluster.json"), "w") as file:
            json.dump({"name": self.name, "device": "device.json",
                       "nodes": form.nodes, "devicesPerNode": form.devices}, file)
        self.kept["calibration"] = text
        self.results.save()

    def bed(self, nodes, devices):
        return Bed(nodes, devices, self.arguments.cores, *self.rates)

    # The layouts.

    def predict(self):
        """All layouts, and what the planner takes when nothing is pinned."""
        wanted = {layout.name: layout.options(self.model)
                  for layout in self.form.layouts}
        entries = self.kept["layouts"]
        for name, options in [*wanted.items(), ("pick", [])]:
            entry = entries.setdefault(name, {"runs": []})
            if "predicted" not in entry and "error" not in entry:
                self.tell(name, options, entry)
        first = next(name for name in wanted if "predicted" in entries[name])
        # Measured at the end of a round: how much of a difference is noise.
        again = entries.setdefault("again", {"runs": []})
        again.update({key: value for key, value in entries[first].items()
                      if key != "runs"}, plan=first)
        self.results.save()

    def tell(self, name, options, entry):
        try:
            told = self.plan(name, options, self.path("cluster.json"))
        except BedError as error:
            entry["error"] = str(error)
            print(f"{self.name}, {name}: {error}", flush=True)
            return
        if entry.setdefault("configuration", told["configuration"]) != \
                told["configuration"]:
            # Another pick, which was not measured.
            entry["runs"] = []
            os.remove(self.path(name + ".plan"))
        entry.update(plan=name, predicted=told["iteration_seconds"],
                     breakdown=told["breakdown_seconds"],
                     exposed=told["exposed_comm_seconds"],
                     configuration=told["configuration"])

    def forget(self):
        """Drops what was predicted, and keeps what was measured."""
        for name, entry in self.kept["layouts"].items():
            for key in ("predicted", "error"):
                entry.pop(key, None)
            if os.path.exists(self.path(name + ".json")):
                os.remove(self.path(name + ".json"))

    def measure(self, number):
        """Round `number` of all layouts."""
        todo = {name: entry for name, entry in self.kept["layouts"].items()
                if "predicted" in entry and len(entry["runs"]) <= number}
        if not todo:
            return
        with self.bed(self.form.nodes, self.form.devices) as bed:
            for name, entry in todo.items():
                run = self.step(bed, entry["plan"], range(bed.ranks))
                entry["runs"].append(run)
                self.explain(entry)
                self.results.save()
                print(f"{self.name}, round {number + 1}, {name}: predicted "
                      f"{entry['predicted']:.3f} s, measured "
                      f"{statistics.median(run['seconds']):.3f} s, load "
                      f"{run['load']}", flush=True)

    def explain(self, entry):
        """The same plan, replayed with the model's figures and with what its steps
        took, by kind of step."""
        name = entry["plan"]
        profile = self.path(name + ".profile.json")
        options = [self.path(name + ".plan"), "--cluster", self.path("cluster.json")]
        entry["simulated"] = json.loads(
            self.tool("plait-plan", "simulate", *options, "--json", "-"))["step_seconds"]
        entry["steps"] = self.tool("plait-plan", "simulate", *options, "--profile",
                                   profile)


class Form:
    """Which bed and which layouts: the whole or a few minutes of it."""

    def __init__(self, arguments):
        short = arguments.short
        self.nodes, self.devices = 2, arguments.ranks // 2
        self.layouts = layouts.SHORT if short else layouts.LAYOUTS
        # By the number of nodes.
        self.calibrated = layouts.SHORT_CALIBRATED if short else layouts.CALIBRATED
        if arguments.layouts:
            self.layouts = [layout for layout in self.layouts
                            if layout.name in arguments.layouts]
            missing = set(arguments.layouts) - {each.name for each in self.layouts}
            if missing:
                sys.exit(f"run.py: error: no layout is called '{missing.pop()}'")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--folder", required=True,
                        help="for results.json, plans and profiles")
    parser.add_argument("--models", nargs="+", choices=layouts.MODELS)
    parser.add_argument("--speeds", nargs="+", choices=layouts.SPEEDS)
    parser.add_argument("--layouts", nargs="+", help="names, as the table has them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="measured in each run")
    parser.add_argument("--cores", type=float, help="part of a core that a rank has")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of a run")
    parser.add_argument("--short", action="store_true",
                        help="four ranks, one model, two speeds, one round")
    parser.add_argument("--report", action="store_true",
                        help="print what has been measured, measure nothing")
    parser.add_argument("--anew", action="store_true",
                        help="fit and predict once more with these tools what has been "
                        "measured, measure nothing")
    arguments = parser.parse_args()
    for name in ("rounds", "steps", "timeout"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is at least 1, not {getattr(arguments, name)}")
    if arguments.short:
        arguments.rounds = 1
    few = arguments.short
    arguments.models = arguments.models or (["gpt2"] if few else list(layouts.MODELS))
    arguments.speeds = arguments.speeds or (["even", "tenth"] if few
                                            else list(layouts.SPEEDS))
    arguments.cores = arguments.cores or (0.2 if few else 0.1)
    arguments.ranks = 4 if few else 8
    arguments.bin = os.path.abspath(arguments.bin)
    arguments.folder = os.path.abspath(arguments.folder)
    return arguments


def predict_anew(case):
    """As another planner sees what was measured."""
    if "calibration" not in case.kept:
        return
    case.forget()
    case.calibrate()
    case.predict()
    for entry in case.kept["layouts"].values():
        if entry["runs"]:
            case.explain(entry)
    case.results.save()


def measure(arguments, cases):
    for case in cases:
        if "calibration" not in case.kept:
            case.calibrate()
        case.predict()
    for number in range(arguments.rounds):
        for case in cases:
            case.measure(number)


def main():
    arguments = parse()
    for number in SIGNALS:
        signal.signal(number, interrupt)
    os.makedirs(arguments.folder, exist_ok=True)
    with open(os.path.join(arguments.bin, "plait-run"), "rb") as file:
        runtime = hashlib.sha256(file.read()).hexdigest()[:16]
    results = Results(os.path.join(arguments.folder, "results.json"),
                      {"ranks": arguments.ranks, "cores": arguments.cores,
                       "plait-run": runtime},
                      not (arguments.report or arguments.anew))
    if not arguments.report:
        form = Form(arguments)
        cases = [Case(arguments, form, results, model, speed)
                 for model in arguments.models for speed in arguments.speeds]
        if arguments.anew:
            for case in cases:
                predict_anew(case)
        else:
            measure(arguments, cases)
    report(results.data)


if __name__ == "__main__":
    try:
        main()
    except (BedError, OSError, ValueError) as error:
        sys.exit(f"run.py: error: {error}")
    except KeyboardInterrupt:
        sys.exit("run.py: interrupted; the same command goes on")
