#===- site_defects.py - Wrong agreements of sites ---------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Defects in the lists of plans with sites, each of which the checker has to refuse.
Certificates are taken out, which would give any edit away."""

import copy
import itertools
import pathlib
import sys

from harness import ROOT, Tools, require

sys.path.insert(0, str(ROOT / "test" / "Tools" / "plaitc"))
import fields  # noqa: E402


def program(plan) -> dict:
    return plan["programs"][0]


def function(plan, name="outer") -> dict:
    return next(x for x in program(plan)["functions"] if x["name"] == name)


def steps(plan, name="outer") -> list:
    return function(plan, name)["steps"]


def find(plan, kind: str, name="outer") -> list:
    """The steps of a kind, "Sum" or one of an OuterStep."""
    return [
        step["step"]
        for step in steps(plan, name)
        if (step["step_type"] == "CollectiveStep" and kind == "Sum")
        or (step["step_type"] == "OuterStep" and step["step"]["kind"] == kind)
    ]


def remove(plan, kind: str, name="outer") -> None:
    gone = find(plan, kind, name)[0]
    own = steps(plan, name)
    own.remove(next(step for step in own if step["step"] is gone))


def put(change):
    """An edit that is one assignment."""

    def edit(plan) -> None:
        owner, key, value = change(plan)
        require(owner[key] != value, f"{key} is {value} already")
        owner[key] = value

    return edit


def swap(kind: str, field: str):
    def edit(plan) -> None:
        first, second = find(plan, kind)[:2]
        first[field], second[field] = second[field], first[field]

    return edit


def make_mean(plan, offset: int, name: str, elements=1) -> None:
    """One more step of a list."""
    value = {"offset": offset, "slot": -1}
    mean = {"kind": "Mean", "elements": elements, "value": value}
    steps(plan, name).append({"step_type": "OuterStep", "step": mean, "location": 0})


def leave_out_parameter(plan) -> None:
    """All that is done to the first range."""
    del steps(plan)[:3]


def do_twice(plan) -> None:
    own = steps(plan)
    own[3:3] = copy.deepcopy(own[:3])


def sum_twice(plan) -> None:
    own = steps(plan)
    own.insert(2, copy.deepcopy(own[1]))


def shrink(plan) -> None:
    find(plan, "Sum")[0]["chunk"] -= 1024


def extend(plan) -> None:
    """The last range, by what lies behind it."""
    for kind, begin, size in (("Sum", "input", "chunk"), ("Mean", "value", "elements")):
        max(find(plan, kind), key=lambda x: x[begin]["offset"])[size] += 16


def slot(plan, name: str, index=0) -> dict:
    state = program(plan)["shards"][index]["state"]
    return next(x for x in state if x["name"] == name)


def drop_slot(name: str):
    def edit(plan) -> None:
        program(plan)["shards"][0]["state"].remove(slot(plan, name))

    return edit


def exchange_slots(name: str):
    """Exchanges the state `name` of two weights of one size."""

    def edit(plan) -> None:
        shards = program(plan)["shards"]
        one, other = next(
            (i, j)
            for i, j in itertools.combinations(range(len(shards)), 2)
            if shards[i]["local_shape"] == shards[j]["local_shape"]
        )
        first, second = slot(plan, name, one), slot(plan, name, other)
        first["offset"], second["offset"] = second["offset"], first["offset"]

    return edit


def split_over_sites(plan) -> None:
    shard = next(x for x in program(plan)["shards"] if len(x["local_shape"]) == 1)
    shard["dims"][0]["axes"] = [len(plan["mesh"]) - 1]
    shard["local_shape"][0] //= 2


def lose_list(plan) -> None:
    own = program(plan)
    own["actions"].pop()
    for region in own["regions"]:
        region["last_action"] = min(region["last_action"], len(own["actions"]) - 1)


def exchange_lists(plan) -> None:
    actions = program(plan)["actions"]
    actions[-1]["list"], actions[-2]["list"] = actions[-2]["list"], actions[-1]["list"]


def give_slots(plan) -> None:
    function(plan)["slots"], function(plan)["slot_bytes"] = ["one"], [64]
    program(plan)["actions"][-1]["bindings"] = [0]


def fill(plan) -> None:
    target = {"offset": find(plan, "Sum")[0]["input"]["offset"], "slot": -1}
    step = {"target": target, "bytes": 4}
    steps(plan).append({"step_type": "FillStep", "step": step, "location": 0})


def meet_within(plan) -> None:
    """A step of a site adds up over all of them."""
    steps(plan, "backward_0").append(copy.deepcopy(steps(plan)[1]))


def without_momentum(plan) -> None:
    for update in find(plan, "Update"):
        update.pop("momentum")


def agree_never(plan) -> None:
    plan["outer"]["every"] = plan["lists"][2]["every"] = 0


def move(plan) -> None:
    plan["backend"] = "cuda"
    for kernel in plan["kernels"]:
        kernel["block_threads"], kernel["indices_per_block"] = 32, 1


# What is wrong, and words of the message.
DEFECTS = {
    "division by the sites is missing in reports": (
        lambda plan: remove(plan, "Mean", "report"), "metric 0 lacks a mean"),
    "tokens are a mean": (
        lambda plan: make_mean(plan, program(plan)["metrics"] + 8, "report"),
        "metric 2 gets a mean, expected nothing more"),
    "reports change a weight": (
        lambda plan: make_mean(plan, find(plan, "Sum")[0]["input"]["offset"], "report"),
        "changes what is no metric"),
    "the update, which divides, is a mean": (
        put(lambda plan: (find(plan, "Update")[0], "kind", "Mean")),
        "has other operands than Mean names"),
    "a step has an operand in a slot": (
        put(lambda plan: (find(plan, "Update")[0]["value"], "slot", 0)),
        "has an operand in a slot"),
    "the update is missing": (
        lambda plan: remove(plan, "Update"), "lacks an update"),
    "the difference is missing": (
        lambda plan: remove(plan, "Difference"), "expected a difference"),
    "the sum over sites is missing": (
        lambda plan: remove(plan, "Sum"), "gets an update, expected a sum over sites"),
    "the sum is over another group": (
        put(lambda plan: (find(plan, "Sum")[0], "axis", 1)),
        "goes over axis 'dp', expected 'sites'"),
    "the sum is a maximum": (
        put(lambda plan: (find(plan, "Sum")[0], "reduction", "Max")),
        "is no sum in f32 and in place"),
    "sites agree one step later": (
        put(lambda plan: (plan["lists"][2], "every", 3)),
        "list 2 is 'outer' each 3 steps, expected 'outer' each 2 steps"),
    "the rule says another number of steps": (
        put(lambda plan: (plan["outer"], "every", 3)),
        "list 2 is 'outer' each 2 steps, expected 'outer' each 3 steps"),
    "sites agree never": (agree_never, "has sites agree every 0 steps"),
    "sites agree in each step": (
        put(lambda plan: (program(plan)["actions"][-1], "list", 0)),
        ", expected a step, and what sites do in the lists behind it"),
    "lists are exchanged": (
        exchange_lists, ", expected a step, and what sites do in the lists behind it"),
    "a list is not called": (
        lose_list, "has 0 actions in list 'outer', expected one"),
    "a list has slots": (give_slots, "calls 'outer', which has slots"),
    "there is one more list": (
        lambda plan: plan["lists"].append({"name": "more", "every": 1}),
        "has 4 lists, expected 3"),
    "there are no lists": (lambda plan: plan.pop("lists"), "list 0 is missing"),
    "a weight is cleared": (
        fill, "sites: program 0: list 'outer': step 9 is no step of sites"),
    "a parameter is left out": (leave_out_parameter, "lacks a difference"),
    "a parameter gets it twice": (do_twice, "expected nothing more"),
    "a parameter is summed twice": (sum_twice, "expected an update"),
    "a part of a parameter is left out": (shrink, "is left out of a sum over sites"),
    "another parameter's momentum": (
        swap("Update", "momentum"), "uses the outer_momentum of another parameter"),
    "another parameter's anchor": (
        swap("Update", "anchor"), "uses the anchor of another parameter"),
    "another parameter's anchor in the difference": (
        swap("Difference", "anchor"), "uses the anchor of another parameter"),
    "anchors of two parameters are exchanged": (
        exchange_slots("anchor"), "uses the anchor of another parameter"),
    "the momentum is not used": (
        without_momentum, "is an update without momentum, which is 0.9"),
    "an anchor begins with zeros": (
        put(lambda plan: (slot(plan, "anchor"), "from_weight", False)),
        "does not begin as it has to"),
    "an anchor is a site's own": (
        put(lambda plan: (slot(plan, "anchor"), "own_axis", 3)), "is one of each site"),
    "moments are stored once": (
        put(lambda plan: (slot(plan, "moment1"), "own_axis", 0)),
        "is the same on all sites"),
    "an anchor is missing": (drop_slot("anchor"), "has 0 anchors in scheme diloco, expected 1"),
    "a momentum is missing": (
        drop_slot("outer_momentum"), "has 0 outer momenta in scheme diloco, expected 1"),
    "a weight is split over sites": (
        split_over_sites, "is split over sites, each of which has all of it"),
    "a step of a site meets others": (
        meet_within, ": a step of one site knows of others"),
    "the scheme is another one": (
        put(lambda plan: (plan["outer"], "scheme", "average")),
        "has rate 0.7, which average has not"),
    "the scheme is unknown": (
        put(lambda plan: (plan["outer"], "scheme", "rumour")),
        "has scheme 'rumour', expected average, diloco, median, trimmed, clip, "
        "gossip, streaming, sparseloco, scaffold, tracking or awc"),
    "the rate is too high": (
        put(lambda plan: (plan["outer"], "rate", 11)),
        "has rate 11, expected above 0 and at most 10"),
    "the momentum is too high": (
        put(lambda plan: (plan["outer"], "momentum", 1)),
        "has momentum 1, expected 0 or more, and below 1"),
    "the plan is for GPUs": (move, "sites are for processors, the plan is for GPUs"),
    "there is no rule": (
        lambda plan: plan.pop("outer"), "the mesh has 1 axes of sites"),
    "the axis has another name": (
        put(lambda plan: (plan["mesh"][-1], "name", "dp")),
        "the mesh has 0 axes of sites"),
}  # fmt: skip


def rename_gather(plan) -> None:
    """Copies of divided weights stay as they were."""
    actions = program(plan)["actions"]
    next(x for x in actions if x["kind"] == "Gather")["kind"] = "Reduce"


def average_copy(plan) -> None:
    make_mean(plan, program(plan)["shards"][0]["compute_weight"] // 4 * 4, "outer")


# Of averages.
AVERAGE_DEFECTS = {
    "division by the sites is missing": (
        lambda plan: remove(plan, "Mean"), "lacks a mean"),
    "division comes twice": (
        lambda plan: steps(plan).append(copy.deepcopy(steps(plan)[-1])),
        "gets a mean, expected nothing more"),
    "more than parameters is changed": (
        extend, "goes beyond the region that it is in"),
    "another scheme's update": (
        put(lambda plan: (plan["outer"], "scheme", "diloco")), "has rate 0, expected"),
}  # fmt: skip

# In bf16.
COPY_DEFECTS = {
    "a copy is not renewed": (lambda plan: remove(plan, "Round"), "lacks a rounding"),
    "another parameter's copy": (
        swap("Round", "copy"), "is not where it is rounded to"),
    "a copy is averaged": (average_copy, " of what is no weight that is trained"),
}

# In bf16 with ZeRO 1.
DIVIDED_DEFECTS = {
    "copies are not gathered": (rename_gather, "nothing renews the copy of '"),
}

# Without sites.
PLAIN_DEFECTS = {
    "there are lists": (
        lambda plan: plan.update(lists=[{"name": "step", "every": 1}]),
        "there are lists of actions, but no sites"),
    "an action is of sites": (
        put(lambda plan: (program(plan)["actions"][-1], "kind", "Outer")),
        " is about sites, but there are none"),
    "a step is of sites": (
        lambda plan: make_mean(plan, program(plan)["metrics"], "optimizer_0"),
        " is about sites, but there are none"),
    "state begins as a weight": (
        put(lambda plan: (slot(plan, "moment1"), "from_weight", True)),
        " begins as a weight, as for sites, but there are none"),
}  # fmt: skip


def check_defects(tools: Tools, path: pathlib.Path, defects: dict, target) -> int:
    fields.CHECKER = tools.folder / "plait-plan"
    plan = fields.read(path)
    plan.pop("certificate", None)
    fields.write_plan(plan, target)
    tools.run("plait-plan", "check", target)
    for name, (edit, words) in defects.items():
        other = copy.deepcopy(plan)
        edit(other)
        require(other != plan, f"{name}: nothing has changed")
        fields.write_plan(other, target)
        outcome = tools.call("plait-plan", "check", target)
        said = outcome.stderr.strip()
        require(outcome.code == 1, f"{name}: {outcome.code}, {said or 'accepted'}")
        require(words in said, f"{name}: {said}, expected '{words}'")
    return len(defects)
