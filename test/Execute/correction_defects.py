#===- correction_defects.py - Wrong corrections of sites --*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Defects in plans whose sites correct their steps or mix the weights of before, each of
which the checker has to refuse (see site_defects.py)."""

import copy

from gossip_defects import actions, list_of, remove, step
from site_defects import drop_slot, find, function, program, put, slot, steps


def lose_copy(plan) -> None:
    """A mean would be learned from without what the site had."""
    del steps(plan)[0]


def lose_learning(plan) -> None:
    """The first range becomes its mean only."""
    own = steps(plan)
    del own[3], own[0]


def learn_twice(plan) -> None:
    own = steps(plan)
    own[4:4] = copy.deepcopy(own[:4])


def copy_another(plan) -> None:
    steps(plan)[0]["step"]["source"]["offset"] += 64


def work_on_weights(plan) -> None:
    """What the site had is kept where weights are."""
    offset = find(plan, "Sum")[1]["input"]["offset"]
    steps(plan)[0]["step"]["target"]["offset"] = offset
    steps(plan)[3]["step"]["mixed"]["offset"] = offset


def swap_corrections(plan, name="correct") -> None:
    """Of two weights."""
    first, second = find(plan, "Correct", name)[:2]
    first["correction"], second["correction"] = second["correction"], first["correction"]


def leave_uncorrected(plan) -> None:
    del steps(plan, "correct")[0]


def correct_rarely(plan) -> None:
    plan["lists"][list_of(plan, "correct")]["every"] = 2


def share_correction(plan) -> None:
    slot(plan, "correction").pop("own_axis")


def begin_as_weight(plan) -> None:
    slot(plan, "correction")["from_weight"] = True


def move_operand(kind: str, field: str, name="mix 1"):
    def edit(plan) -> None:
        step(plan, kind, name)[field]["offset"] += 64

    return edit


def track_weights(plan) -> None:
    """Weights are sent in place of what they have moved by."""
    first = actions(plan, "Send")[0]["buffer"]
    weights = step(plan, "Part")["value"]["offset"]
    for kind in ("Send", "WaitSend"):
        for own in actions(plan, kind):
            if own["buffer"] == first and own.get("tensor", 0) == 0:
                own["buffer"] = weights


# By scheme, of four sites.
DEFECTS = {
    "scaffold:2": {
        "nothing is copied": (
            lose_copy, "is a Learn without what belongs to it"),
        "nothing is divided": (
            lambda plan: steps(plan).pop(2),
            "is a copy without a mean behind it that is learned from"),
        "nothing is learned": (
            lose_learning, "gets a sum over sites, expected a learning mean"),
        "it is learned twice": (
            learn_twice, "gets a learning mean, expected nothing more"),
        "what is copied is another one": (copy_another, "does not fit the mean behind it"),
        "the copy is where weights are": (work_on_weights, "which is not its own"),
        "another mean is learned from": (
            put(lambda plan: (find(plan, "Learn")[0]["value"], "offset",
                              find(plan, "Learn")[1]["value"]["offset"])),
            "does not fit the mean behind it"),
        "a correction is of another weight": (
            swap_corrections, "uses the correction of another parameter"),
        "what is learned goes to another weight": (
            lambda plan: find(plan, "Learn")[0]["correction"].__setitem__(
                "offset", find(plan, "Learn")[1]["correction"]["offset"]),
            "correction of another parameter"),
        "a weight is not corrected": (leave_uncorrected, "lacks a correction"),
        "steps are not corrected each time": (correct_rarely, "'correct' each 2 steps, expected"),
        "corrections are one": (share_correction, "correction of '"),
        "a correction begins as the weight": (begin_as_weight, "does not begin as it has to"),
        "a correction is missing": (
            drop_slot("correction"), "has 0 corrections in scheme scaffold, expected 1"),
        "H is another one": (
            put(lambda plan: (plan["outer"], "every", 3)), "each 2 steps, expected"),
    },
    "tracking:ring": {
        "nothing is learned": (remove("Learn"), "is not the Learn"),
        "what moved is not written down": (
            remove("Part"), "is not the Take that has to follow"),
        "weights are not written down": (remove("Keep"), "is not the Keep"),
        "weights are sent in place of it": (track_weights, "of it behind it"),
        "it is learned from something else": (
            move_operand("Learn", "mixed"), "does not take what was added up"),
        "something else is mixed": (
            lambda plan: step(plan, "Learn")["value"].__setitem__("offset", 0),
            "is of another range"),
        "the weights of before are others": (
            move_operand("Part", "anchor"), "before of another parameter"),
        "they are kept elsewhere": (
            move_operand("Keep", "anchor"), "before of another parameter"),
        "what is learned goes elsewhere": (
            move_operand("Learn", "correction"), "correction of another parameter"),
        "the weights of before are missing": (
            drop_slot("before"), "has 0 weights of before in scheme tracking, expected 1"),
    },
    "awc:ring": {
        "weights are not written down": (remove("Keep"), "is not the Keep"),
        "mixed weights are not joined": (remove("Join"), "is not the Join"),
        "others are joined": (move_operand("Join", "anchor"), "joins other weights"),
        "something else is joined": (
            move_operand("Join", "mixed"), "does not take what was added up"),
        "corrections are not of it": (
            put(lambda plan: (plan["outer"], "scheme", "tracking")), "list 2 is"),
    },
}  # fmt: skip
