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
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys

import layouts
from bed import Bed, BedError
from report import report


def load():
    with open("/proc/loadavg") as file:
        return float(file.read().split()[0])


def interrupt(number, _):
    """Any signal leaves by the same way as Ctrl-C: the bed is removed."""
    raise KeyboardInterrupt(signal.strsignal(number))


class Results:
    """One JSON file, whole after each change."""

    def __init__(self, path, setting):
        self.path = path
        self.data = {"setting": setting, "cases": {}}
        if os.path.exists(path):
            with open(path) as file:
                self.data = json.load(file)
            if self.data["setting"] != setting:
                sys.exit(f"run.py: error: '{path}' is of another setting, "
                         f"{self.data['setting']}: name another --folder")

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
        """Predicts and compiles with one command, so that it is the same plan."""
        plan, predicted = self.path(name + ".plan"), self.path(name + ".json")
        if not (os.path.exists(plan) and os.path.exists(predicted)):
            self.tool("plaitc", self.path("config.json"), *options, "--attention",
                      "flash", "--global-batch", str(self.model.batch), "--seq",
                      str(self.model.sequence), "--cluster", cluster, "--no-reference",
                      "--no-prove", "--json", predicted, "-o", plan)
        with open(predicted) as file:
            return json.load(file)

    def step(self, bed, name, ranks):
        """Seconds of the steps but two, in which libraries connect and processes
        get their part of a core. Leaves a profile."""
        log = self.path("log")
        if os.path.exists(log):
            os.remove(log)  # a run adds to it
        before = load()
        bed.launch(ranks, [
            os.path.join(self.arguments.bin, "plait-run"), self.path(name + ".plan"),
            "--text", self.path("text"), "--steps", str(self.arguments.steps + 2),
            "--threads", "1", "--log", log, "--profile",
            self.path(name + ".profile.json")], self.folder, self.arguments.timeout)
        with open(log) as file:
            seconds = [json.loads(line)["step_seconds"] for line in file][2:]
        return {"seconds": seconds, "load": max(before, load())}

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
            }, file)
        return path

    def fit(self, bed, name, ranks):
        """What `plait-plan calibrate` makes of runs of one node's ranks."""
        plans, profiles = [], []
        for i, layout in enumerate(self.form.calibrated):
            plan = f"calibrate-{i}"
            self.plan(plan, layout.options(self.model),
                      f"{self.base()}:{self.form.devices}")
            self.step(bed, plan, ranks)
            plans.append(self.path(plan + ".plan"))
            profiles.append(self.path(f"{name}-{i}.profile.json"))
            mend(self.path(plan + ".profile.json"), profiles[-1], len(ranks))
        fitted = self.path(name + ".json")
        text = self.tool("plait-plan", "calibrate", *profiles, "--plans", *plans,
                         "--hardware", self.base(), "-o", fitted)
        with open(fitted) as file:
            return json.load(file), text

    def calibrate(self):
        """Writes the cluster file. Calibration knows links inside of a node alone:
        those between nodes are measured by ranks that are each a node of their own,
        and moved."""
        form = self.form
        with self.bed(1, form.devices) as bed:
            _, inside = self.fit(bed, "node", range(form.devices))
        with self.bed(form.devices, 1) as bed:
            outer, outside = self.fit(bed, "nodes", range(form.devices))
        with open(self.path("cluster.json"), "w") as file:
            json.dump({"name": self.name, "device": "node.json", "nodes": form.nodes,
                       "devicesPerNode": form.devices, "inter": outer["intra"]}, file,
                      indent=1)
        self.kept["calibration"] = {"node": inside, "between nodes": outside}
        self.results.save()

    def bed(self, nodes, devices):
        return Bed(nodes, devices, self.arguments.cores, *self.rates)

    # The layouts.

    def predict(self):
        """All layouts, and what the planner takes when nothing is pinned."""
        wanted = {layout.name: layout.options(self.model)
                  for layout in self.form.layouts}
        for name, options in [*wanted.items(), ("pick", [])]:
            entry = self.kept["layouts"].setdefault(name, {"runs": []})
            if "predicted" in entry or "error" in entry:
                continue
            try:
                told = self.plan(name, options, self.path("cluster.json"))
            except BedError as error:
                entry["error"] = str(error)
                print(f"{self.name}, {name}: {error}", flush=True)
                continue
            entry["predicted"] = told["iteration_seconds"]
            entry["breakdown"] = told["breakdown_seconds"]
            entry["exposed"] = told["exposed_comm_seconds"]
            entry["configuration"] = told["configuration"]
        self.results.save()

    def measure(self, number):
        """Round `number` of all layouts, and of the first one a second time at the
        end, which tells how much of a difference is noise."""
        names = [name for name, entry in self.kept["layouts"].items()
                 if "predicted" in entry]
        again = self.kept["layouts"].setdefault("again", {"runs": []})
        again.update({key: value for key, value in
                      self.kept["layouts"][names[0]].items() if key != "runs"})
        todo = [name for name in dict.fromkeys([*names, "again"])
                if len(self.kept["layouts"][name]["runs"]) <= number]
        if not todo:
            return
        with self.bed(self.form.nodes, self.form.devices) as bed:
            for name in todo:
                entry = self.kept["layouts"][name]
                plan = names[0] if name == "again" else name
                entry["runs"].append(self.step(bed, plan, range(bed.ranks)))
                self.explain(plan, entry)
                self.results.save()
                run = entry["runs"][-1]
                print(f"{self.name}, round {number + 1}, {name}: predicted "
                      f"{entry['predicted']:.3f} s, measured "
                      f"{statistics.median(run['seconds']):.3f} s, load "
                      f"{run['load']}", flush=True)

    def explain(self, name, entry):
        """The same plan, replayed with the model's figures and with what its steps
        took, by kind of step."""
        profile = self.path(name + ".mended.json")
        mend(self.path(name + ".profile.json"), profile, self.arguments.ranks)
        options = [self.path(name + ".plan"), "--cluster", self.path("cluster.json")]
        entry["simulated"] = json.loads(
            self.tool("plait-plan", "simulate", *options, "--json", "-"))["step_seconds"]
        entry["steps"] = self.tool("plait-plan", "simulate", *options, "--profile",
                                   profile)


def mend(source, target, ranks):
    """Profiles of one thread a host make calibration count processor time as often
    as there are hosts; and an overhead that noise has made negative is refused."""
    with open(source) as file:
        profile = json.load(file)
    profile["threads"] = ranks
    profile["overhead_seconds"] = max(0, profile["overhead_seconds"])
    with open(target, "w") as file:
        json.dump(profile, file)


class Form:
    """Which bed and which layouts: the whole or a few minutes of it."""

    def __init__(self, arguments):
        short = arguments.short
        self.nodes, self.devices = 2, 2 if short else 4
        self.layouts = layouts.SHORT if short else layouts.LAYOUTS
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
    parser.add_argument("--fresh", action="store_true", help="forget results there")
    arguments = parser.parse_args()
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


def main():
    arguments = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    if arguments.fresh and os.path.isdir(arguments.folder):
        shutil.rmtree(arguments.folder)
    os.makedirs(arguments.folder, exist_ok=True)
    results = Results(os.path.join(arguments.folder, "results.json"),
                      {"ranks": arguments.ranks, "cores": arguments.cores})
    if not arguments.report:
        form = Form(arguments)
        cases = [Case(arguments, form, results, model, speed)
                 for model in arguments.models for speed in arguments.speeds]
        for case in cases:
            if "calibration" not in case.kept:
                case.calibrate()
            case.predict()
        for number in range(arguments.rounds):
            for case in cases:
                case.measure(number)
    report(results.data)


if __name__ == "__main__":
    try:
        main()
    except BedError as error:
        sys.exit(f"run.py: error: {error}")
    except KeyboardInterrupt:
        sys.exit("run.py: interrupted; the same command goes on")
