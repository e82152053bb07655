# ===- report.py - Tables of what a test bed has measured -------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Predicted beside measured, and what says how well they agree."""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from ranking import find_errors, find_regret, kendall, mean_error  # noqa: E402


def measured(entry):
    """The fastest round's median: what disturbs a machine makes steps longer, and
    a median is not one lucky step."""
    return min(statistics.median(run["seconds"]) for run in entry["runs"])


def spread(entry):
    """How far rounds are apart, of the fastest."""
    medians = [statistics.median(run["seconds"]) for run in entry["runs"]]
    return max(medians) / min(medians) - 1


def summarise(case):
    """Figures of a case, or nothing before two layouts were measured. The planner's
    own pick, and the repetition, are no layouts."""
    entries = {name: entry for name, entry in case["layouts"].items()
               if entry["runs"] and name not in ("pick", "again")}
    if len(entries) < 2:
        return None
    seconds = [measured(entry) for entry in entries.values()]
    told = [entry["predicted"] for entry in entries.values()]
    errors = dict(zip(entries, find_errors(told, seconds)))
    summary = {
        "layouts": len(entries),
        "tau": kendall(told, seconds),
        "regret": find_regret(told, seconds),
        "mean_error": mean_error(told, seconds),
        "worst": max(errors, key=lambda name: abs(errors[name])),
        "noise": max(spread(entry) for entry in entries.values()),
        "load": max(run["load"] for entry in entries.values() for run in entry["runs"]),
    }
    summary["worst_error"] = errors[summary["worst"]]
    pick, again = (case["layouts"].get(name) for name in ("pick", "again"))
    if pick and pick["runs"]:
        summary["pick_regret"] = measured(pick) / min(*seconds, measured(pick)) - 1
    if again and again["runs"]:
        summary["again"] = measured(again) / seconds[0] - 1
    return summary


def percent(value):
    return f"{100 * value:+.1f} %"


def table(case):
    print(f"{'layout':34}{'measured':>10}{'predicted':>11}{'error':>10}"
          f"{'replayed':>10}{'spread':>8}{'load':>6}")
    rows = [(name, entry) for name, entry in case["layouts"].items() if entry["runs"]]
    for name, entry in sorted(rows, key=lambda row: measured(row[1])):
        seconds = measured(entry)
        print(f"{name:34}{seconds:10.3f}{entry['predicted']:11.3f}"
              f"{percent(entry['predicted'] / seconds - 1):>10}"
              f"{entry['simulated']:10.3f}{100 * spread(entry):7.0f}%"
              f"{max(run['load'] for run in entry['runs']):6.1f}")
    for name, entry in case["layouts"].items():
        if "error" in entry:
            print(f"{name:34}{entry['error']}")


def report(results):
    for name, case in results["cases"].items():
        summary = summarise(case)
        print(f"\n{name}")
        table(case)
        if not summary:
            continue
        print(f"tau {summary['tau']:.2f}, regret {percent(summary['regret'])}, mean "
              f"error {percent(summary['mean_error'])}, worst "
              f"{percent(summary['worst_error'])} ({summary['worst']}), rounds apart "
              f"by {percent(summary['noise'])} at most, load {summary['load']}")
        if "pick_regret" in summary:
            print(f"the planner's own pick is {percent(summary['pick_regret'])} from "
                  "the fastest")
        if "again" in summary:
            print(f"the first layout once more: {percent(summary['again'])}")
