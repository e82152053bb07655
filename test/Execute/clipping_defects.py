#===- clipping_defects.py - Wrong centred clipping -------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Defects in plans whose sites clip what they have moved by, each of which the checker
has to refuse (see site_defects.py). The plan is of clip:2 over pp=2, tp=2, sites=2."""

import copy

from site_defects import find, program, put, remove, steps, swap


def place_of(plan, kind: str) -> int:
    """The first step of a kind in the list."""
    return next(
        i for i, step in enumerate(steps(plan))
        if step["step_type"] == kind or step["step"].get("kind", "Mean") == kind
        and step["step_type"] == "OuterStep"
    )  # fmt: skip


def norm_sums(plan) -> list:
    """The steps that add the norm up over axes of a site."""
    return [
        step for step in steps(plan)
        if step["step_type"] == "CollectiveStep" and step["step"]["chunk"] == 1
    ]  # fmt: skip


def remove_norm_sum(axis: int):
    def edit(plan) -> None:
        gone = next(x for x in norm_sums(plan) if x["step"].get("axis", 0) == axis)
        steps(plan).remove(gone)

    return edit


def forget_stages(plan) -> None:
    """No stage adds up what the others have."""
    for own in plan["programs"]:
        steps(dict(plan, programs=[own])).remove(norm_sums(dict(plan, programs=[own]))[0])


def put_norm_sum(key: str, value):
    return put(lambda plan: (norm_sums(plan)[-1]["step"], key, value))


def repeat(kind: str):
    """A step of the list comes twice."""

    def edit(plan) -> None:
        place = place_of(plan, kind)
        steps(plan).insert(place, copy.deepcopy(steps(plan)[place]))

    return edit


def repeat_norm(plan) -> None:
    last = steps(plan).index(norm_sums(plan)[-1])
    again = copy.deepcopy(steps(plan)[place_of(plan, "FillStep")])
    steps(plan).insert(last + 1, again)


def count_twice(plan) -> None:
    """A weight that both ranks of tp have counts once for each."""
    step = next(x for x in find(plan, "Squares") if x["copies"] > 1)
    step["copies"] = 1


def shrink_squares(plan) -> None:
    find(plan, "Squares")[0]["elements"] -= 16


def clip_first(plan) -> None:
    """A weight is clipped before the norm is known."""
    own = steps(plan)
    clip = own.pop(place_of(plan, "Clip"))
    own.insert(place_of(plan, "FillStep"), clip)


def use_weights(plan) -> None:
    """The norm lies where a weight is."""
    place = find(plan, "Difference")[0]["value"]["offset"]
    for step in find(plan, "Squares"):
        step["mixed"]["offset"] = place
    for step in norm_sums(plan):
        step["step"]["input"]["offset"] = step["step"]["output"]["offset"] = place
    for step in find(plan, "Clip"):
        step["others"]["offset"] = place
    steps(plan)[place_of(plan, "FillStep")]["step"]["target"]["offset"] = place


def move_operand(kind: str, field: str):
    """Four bytes on, to another number."""

    def edit(plan) -> None:
        find(plan, kind)[0][field]["offset"] += 4

    return edit


def without_division(plan) -> None:
    """Sums over sites are taken as they are, and so not divided by their number."""
    for update in find(plan, "Update"):
        update["kind"] = "Keep"


def forget_sum(plan) -> None:
    gone = next(
        step for step in steps(plan)
        if step["step_type"] == "CollectiveStep" and step["step"]["chunk"] > 1
    )  # fmt: skip
    steps(plan).remove(gone)


def clear_more(plan) -> None:
    steps(plan)[place_of(plan, "FillStep")]["step"]["bytes"] = 8


DEFECTS = {
    "the norm is of a part of the weights": (
        lambda plan: remove(plan, "Squares"), "gets a clipping, expected squares"),
    "a part of a weight is left out of the norm": (
        shrink_squares, "is left out of squares"),
    "the norm is of one rank of tp": (
        remove_norm_sum(2), "does not add the norm up over axis 'tp'"),
    "the norm is of one stage": (
        forget_stages, "does not add the norm up over axis 'pp'"),
    "one stage does not take part in the norm": (
        remove_norm_sum(0), "is not entered by all 2 members"),
    "the norm is of all sites": (
        put_norm_sum("axis", 3), "does not add the norm up over axis 'tp'"),
    "the norm is the largest of the ranks'": (
        put_norm_sum("reduction", "Max"), "does not add the norm up over axis 'tp'"),
    "what both ranks of tp have counts twice": (
        count_twice, "count for 1 of 1 ranks, but 2 of a site have it"),
    "a weight counts twice": (
        repeat("Squares"), "gets squares, expected a clipping"),
    "squares are added to another number": (
        move_operand("Squares", "mixed"), "adds squares to another number"),
    "the norm is not cleared": (
        lambda plan: steps(plan).pop(place_of(plan, "FillStep")),
        "is a Squares without what belongs to it"),
    "more than the norm is cleared": (
        clear_more, "is not the beginning of a norm, which is one"),
    "it is cleared twice": (
        repeat("FillStep"), "step 5 does not add the norm up"),
    "there are two norms": (
        repeat_norm, "is not the beginning of a norm, which is one"),
    "the norm lies where a weight is": (use_weights, "which is not its own"),
    "the factor is missing": (
        lambda plan: remove(plan, "Clip"), "gets a sum over sites, expected a clipping"),
    "a weight is clipped twice": (
        repeat("Clip"), "gets a clipping, expected a sum over sites"),
    "a weight is clipped by another number": (
        move_operand("Clip", "others"), "scales by what is not the norm"),
    "a weight is clipped before the norm is known": (
        clip_first, "scales by what is not the norm"),
    "the centre is another parameter's": (
        swap("Difference", "anchor"), "uses the anchor of another parameter"),
    "the centre is not subtracted": (
        lambda plan: remove(plan, "Difference"), "gets squares, expected a difference"),
    "another centre moves": (
        swap("Update", "anchor"), "uses the anchor of another parameter"),
    "sites are not divided by their number": (
        without_division, "is a Keep without what belongs to it"),
    "sites are not added up": (
        forget_sum, "gets an update, expected a sum over sites"),
    "the radius is 0": (
        put(lambda plan: (plan["outer"], "radius", 0)),
        "has radius 0, expected above 0 and at most 1e30"),
    "there is no radius": (
        lambda plan: plan["outer"].pop("radius"), "has radius 0, expected above 0"),
    "the scheme is another one": (
        put(lambda plan: (plan["outer"], "scheme", "diloco")),
        "has radius 1, which diloco has not"),
    "an anchor is missing": (
        lambda plan: program(plan)["shards"][0]["state"].pop(),
        "has 0 anchors in scheme clip, expected 1"),
}  # fmt: skip
