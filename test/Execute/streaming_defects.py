#===- streaming_defects.py - Wrong fragments of sites -----*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Defects in plans whose sites exchange a fragment of their weights at a time, each of
which the checker has to refuse (see site_defects.py)."""

import copy
import itertools

from site_defects import find, function, program, put, remove, slot, steps


def swap(kind: str, field: str, name="blend 1"):
    """An operand of two ranges of a fragment, which are of one size."""

    def edit(plan) -> None:
        first, second = next(
            pair
            for pair in itertools.combinations(find(plan, kind, name), 2)
            if pair[0]["elements"] == pair[1]["elements"]
        )
        first[field], second[field] = second[field], first[field]

    return edit


def take_of(other: str, kind: str, name: str):
    """The steps of a list become those of another fragment's."""

    def edit(plan) -> None:
        function(plan, name)["steps"] = copy.deepcopy(steps(plan, other))

    return edit


def sum_of(plan, name: str) -> dict:
    return find(plan, "Sum", name)[0]


def send_twice(plan) -> None:
    """The second part is the first one once more."""
    function(plan, "sum 1.2")["steps"] = copy.deepcopy(steps(plan, "sum 1.1"))


def shrink(plan) -> None:
    sum_of(plan, "sum 1.2")["chunk"] -= 16


def overlap(plan) -> None:
    """The second part begins inside of the first one."""
    own = sum_of(plan, "sum 1.2")
    for ref in ("input", "output"):
        own[ref]["offset"] -= 4096
    own["chunk"] += 1024


def sum_anchor(plan) -> None:
    """The anchors of the first range are added up beside."""
    own = copy.deepcopy(steps(plan, "sum 1.1")[0])
    place = find(plan, "Part", "part 1")[0]["anchor"]["offset"]
    for ref in ("input", "output"):
        own["step"][ref]["offset"] = place
    own["step"]["chunk"] = 16
    steps(plan, "sum 1.2").append(own)


def move_sum(plan) -> None:
    """It adds up anchors in place of what has moved."""
    place = find(plan, "Part", "part 1")[0]["anchor"]["offset"]
    for ref in ("input", "output"):
        sum_of(plan, "sum 1.1")[ref]["offset"] = place


def sum_weights(plan) -> None:
    place = find(plan, "Part", "part 1")[0]["value"]["offset"]
    for ref in ("input", "output"):
        sum_of(plan, "sum 1.1")[ref]["offset"] = place


def list_facts(name: str, field: str, value):
    def change(plan):
        own = next(x for x in plan["lists"] if x["name"] == name)
        return own, field, value

    return put(change)


def wait_for_sum(plan) -> None:
    """A sum that goes on beside the step begins behind it."""
    actions = program(plan)["actions"]
    actions.append(actions.pop(0))


def lose_slot(plan) -> None:
    program(plan)["shards"][0]["state"].remove(slot(plan, "difference"))


def without_momentum(plan) -> None:
    for blend in find(plan, "Blend", "blend 1"):
        blend.pop("momentum")


# Of streaming:6,fragments=2,delay=2.
DEFECTS = {
    "the division by the sites is missing, as is what is taken": (
        put(lambda plan: (find(plan, "Blend", "blend 1")[0], "kind", "Part")),
        "has other operands than Part names"),
    "a weight is not sent": (
        lambda plan: remove(plan, "Part", "part 1"), " lacks a part"),
    "a weight is not taken": (
        lambda plan: remove(plan, "Blend", "blend 1"), " lacks a blend"),
    "a weight is sent twice": (
        lambda plan: steps(plan, "part 1").append(
            copy.deepcopy(steps(plan, "part 1")[0])), "gets a part, expected nothing more"),
    "another fragment is sent": (
        take_of("part 2", "Part", "part 1"), "list 'part 1': "),
    "another fragment is taken": (
        take_of("blend 2", "Blend", "blend 1"), "list 'blend 1': "),
    "a part is not added up": (
        lambda plan: remove(plan, "Sum", "sum 1.2"), "is not added up as a whole"),
    "a part is sent twice in place of another": (
        send_twice, "list 'sum 1.2': "),
    "a part is sent in two messages": (overlap, ", which are no state"),
    "a part is short": (shrink, "is not added up as a whole"),
    "another fragment is added up": (
        take_of("sum 2.1", "Sum", "sum 1.1"), "list 'sum 1.1': "),
    "anchors are added up beside": (sum_anchor, "has 2 sums, expected one"),
    "anchors are added up": (move_sum, "list 'sum 1.1': "),
    "weights are added up": (sum_weights, ", which are no state"),
    "a sum is a mean": (
        put(lambda plan: (sum_of(plan, "sum 1.1"), "reduction", "Max")),
        "is no sum in f32 and in place"),
    "another parameter's anchor": (
        swap("Blend", "anchor"), "uses the anchor of another parameter"),
    "another parameter's momentum": (
        swap("Blend", "momentum"), "uses the outer_momentum of another parameter"),
    "what another parameter has moved by": (
        swap("Blend", "mixed"), "uses the difference of another parameter"),
    "another parameter's place to write to": (
        swap("Part", "mixed", "part 1"), "uses the difference of another parameter"),
    "the momentum is not used": (
        without_momentum, "is a blend without momentum, which is 0.9"),
    "a fragment is sent a step later": (
        list_facts("part 1", "phase", 3), "list 2 is 'part 1' each 6 steps from 3 on"),
    "a fragment is taken a step early": (
        list_facts("blend 1", "phase", 3), "list 5 is 'blend 1' each 6 steps from 3 on"),
    "a sum begins behind the step": (
        wait_for_sum, "expected a step, and what sites do in the lists behind it"),
    "H is off by one": (
        list_facts("sum 1.1", "every", 7), "list 3 is 'sum 1.1' each 7 steps"),
    "the rule says another delay": (
        put(lambda plan: (plan["outer"], "delay", 1)),
        "list 4 is 'sum 1.2' each 6 steps from 4 on, expected 'blend 1'"),
    "the rule says more fragments": (
        put(lambda plan: (plan["outer"], "fragments", 3)),
        "list 2 is 'part 1' each 6 steps"),
    "fragments and delay are too long": (
        put(lambda plan: (plan["outer"], "delay", 5)),
        "has fragments 2 and delay 5, expected at most 6 together"),
    "a site keeps all of its own": (
        put(lambda plan: (plan["outer"], "mix", 1)),
        "has mix 1, expected 0 or more, and below 1"),
    "the scheme has no fragments": (
        put(lambda plan: (plan["outer"], "scheme", "diloco")),
        "has fragments 2, which diloco has not"),
    "what a site has moved by is the same on all": (
        put(lambda plan: (slot(plan, "difference"), "own_axis", 0)),
        "is the same on all sites"),
    "what a site has moved by begins as a weight": (
        put(lambda plan: (slot(plan, "difference"), "from_weight", True)),
        "does not begin as it has to"),
    "what a site has moved by is not kept": (
        lose_slot, "has 0 differences in scheme streaming"),
}  # fmt: skip

# In bf16.
COPY_DEFECTS = {
    "a copy is not renewed": (
        lambda plan: remove(plan, "Round", "blend 1"), "lacks a rounding"),
    "a copy is renewed before it is taken": (
        lambda plan: steps(plan, "part 1").append(copy.deepcopy(next(
            x for x in steps(plan, "blend 1") if x["step"].get("kind") == "Round"))),
        "gets a rounding, expected nothing more"),
}  # fmt: skip
