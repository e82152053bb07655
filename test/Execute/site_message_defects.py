#===- site_message_defects.py - Wrong messages of sites ---*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Defects in plans whose sites compress what they send, each of which the checker has to
refuse (see site_defects.py)."""

import copy

from site_defects import (
    exchange_slots, find, function, program, put, remove, slot, steps,
)  # fmt: skip


def first(plan, kind: str, name="outer") -> dict:
    return find(plan, kind, name)[0]


def gather(plan, name="outer") -> dict:
    return next(
        x["step"] for x in steps(plan, name) if x["step_type"] == "CollectiveStep"
    )


def move_error(plan) -> None:
    """What is lost of the first range is kept 64 bytes further."""
    first(plan, "Encode")["error"]["offset"] += 64


def take_fragment_error(plan) -> None:
    """What fragment 1 sends uses the error of fragment 2."""
    other = first(plan, "Encode", "sum 2.1")["error"]["offset"]
    first(plan, "Encode", "sum 1.1")["error"]["offset"] = other


def send_stale(plan) -> None:
    """A site sends before it has found what it has moved by."""
    own = steps(plan)
    own[0], own[1:4] = own[3], [own[0], own[1], own[2]]


def send_weights(plan) -> None:
    remove(plan, "Difference")


def gather_in_place(plan) -> None:
    for ref in (first(plan, "Encode")["mixed"], gather(plan)["input"]):
        ref["offset"] = gather(plan)["output"]["offset"] + 64


def lose_error(plan) -> None:
    program(plan)["shards"][0]["state"].remove(slot(plan, "site_error"))


def both(field: str, change):
    """An edit of a message at both of its ends."""

    def edit(plan) -> None:
        for kind in ("Encode", "Decode"):
            own = max(find(plan, kind), key=lambda x: len(x["pieces"]))
            own[field] = change(own[field])

    return edit


def take_other_fragment(plan) -> None:
    function(plan, "sum 1.1")["steps"] = copy.deepcopy(steps(plan, "sum 2.1"))


def sum_plainly(plan) -> None:
    """Fragment 1 is added up as it is."""
    own, like = steps(plan, "sum 1.1"), gather(plan, "sum 1.1")
    encode = first(plan, "Encode", "sum 1.1")
    like.update(kind=0, dtype="F32", chunk=encode["elements"])
    like["input"] = like["output"] = encode["value"]
    own[:] = [own[1]]


# Of diloco:2,compress=int8.
DEFECTS = {
    "the division by the sites is missing, as is the update": (
        lambda plan: remove(plan, "Update"), "lacks an update"),
    "another parameter's error": (
        exchange_slots("site_error"), "uses the error of another parameter"),
    "the error is somewhere else": (
        move_error, "goes beyond the region that it is in"),
    "the error is not used": (
        lambda plan: first(plan, "Encode").pop("error"),
        "is an Encode without an error, and decay is 1"),
    "the error is not kept": (
        lose_error, "has 0 errors of messages in scheme diloco, expected 1"),
    "the error is the same on all": (
        put(lambda plan: (slot(plan, "site_error"), "own_axis", 0)),
        "is the same on all sites"),
    "the error begins as a weight": (
        put(lambda plan: (slot(plan, "site_error"), "from_weight", True)),
        "does not begin as it has to"),
    "a stale difference is sent": (send_stale, "list 'outer': "),
    "weights are sent in place of differences": (
        send_weights, "gets a compressed sum, expected a difference"),
    "what is received is not read": (
        lambda plan: remove(plan, "Decode"), "is an Encode without a Decode behind it"),
    "nothing is sent": (
        lambda plan: steps(plan).remove(next(
            x for x in steps(plan) if x["step_type"] == "CollectiveStep")),
        "is an Encode without a Decode behind it"),
    "words are read as numbers": (
        put(lambda plan: (gather(plan), "dtype", "F32")),
        "is an Encode that does not fit the Decode behind it"),
    "a message is short": (
        put(lambda plan: (gather(plan), "chunk", gather(plan)["chunk"] - 1)),
        "is an Encode that does not fit the Decode behind it"),
    "a message is long": (
        both("words", lambda words: words + 1),
        "is an Encode that does not fit the Decode behind it"),
    "a parameter is left out of a message": (
        both("pieces", lambda pieces: pieces[2:]), " pieces, expected "),
    "a parameter is cut": (
        both("pieces", lambda pieces: [*pieces[:-1], pieces[-1] - 1]),
        "of a message is not '"),
    "pieces overlap": (
        both("pieces", lambda pieces: [*pieces[:1], pieces[1] + 1, *pieces[2:]]),
        "has a piece of "),
    "a piece has no end": (
        both("pieces", lambda pieces: pieces[:-1]), "numbers of pieces"),
    "an uncompressed step has pieces": (
        lambda plan: first(plan, "Update").update(pieces=[0, 16]),
        "has other operands than Update names"),
    "the message is where others are": (
        put(lambda plan: (first(plan, "Encode"), "mixed", gather(plan)["output"])),
        "is an Encode that does not fit the Decode behind it"),
    "the message is among those of all": (
        gather_in_place, "where other messages are"),
    "the rule says other chunks": (
        put(lambda plan: (plan["outer"], "graph",
                          "compress=int8,chunk=128,decay=1")), "words, expected "),
    "the rule says another compressor": (
        put(lambda plan: (plan["outer"], "graph",
                          "compress=int4,chunk=256,decay=1")), "words, expected "),
    "the rule says no compressor": (
        put(lambda plan: (plan["outer"], "graph", "ring")),
        "has graph 'ring' in scheme 'diloco'"),
    "the rule has chunks of no power of two": (
        put(lambda plan: (plan["outer"], "graph",
                          "compress=int8,chunk=96,decay=1")),
        "chunk 96, expected a power of two"),
    "the rule keeps no error": (
        put(lambda plan: (plan["outer"], "graph",
                          "compress=int8,chunk=256,decay=0")),
        "has 1 errors of messages in scheme diloco, expected 0"),
}  # fmt: skip

# Of sparseloco:2.
SPARSE_DEFECTS = {
    "the rule has no compressor": (
        lambda plan: plan["outer"].pop("graph"),
        "the plan has no compress, which sparseloco has"),
}  # fmt: skip

# Of streaming:4,compress=e3m0.
STREAMING_DEFECTS = {
    "another fragment's error": (
        take_fragment_error, "uses the error of another parameter"),
    "another fragment is sent": (take_other_fragment, "list 'sum 1.1': "),
    "a fragment is sent as it is": (
        sum_plainly, "has a sum over sites, expected a compressed sum"),
    "a fragment is taken without the division": (
        put(lambda plan: (first(plan, "Blend", "blend 1"), "kind", "Part")),
        "has other operands than Part names"),
}  # fmt: skip
