#===- gossip_defects.py - Wrong averages with neighbours --*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Defects in plans whose sites average with their neighbours or take what is in the
middle, each of which the checker has to refuse (see site_defects.py)."""

import copy

from site_defects import program, put


def list_of(plan, name: str) -> int:
    return next(i for i, own in enumerate(plan["lists"]) if own["name"] == name)


def actions(plan, kind: str, name="mix 1") -> list:
    """Those of a list, of one kind or "Mix", "Take", "Round"."""
    index, found = list_of(plan, name), []
    for action in program(plan)["actions"]:
        if action.get("list", 0) != index:
            continue
        own = action["kind"]
        if own == "Outer":
            steps = program(plan)["functions"][action["function"]]["steps"]
            own = steps[0]["step"].get("kind", "Mean")
        if own == kind:
            found.append(action)
    return found


def step(plan, kind: str, name="mix 1") -> dict:
    action = actions(plan, kind, name)[0]
    return program(plan)["functions"][action["function"]]["steps"][0]["step"]


def exchange(plan, index=0) -> dict:
    return plan["outer"]["mixings"][0]["exchanges"][index]


def transpose(plan) -> None:
    """Each site sends to those that it has received from."""
    for own in plan["outer"]["mixings"][0]["exchanges"]:
        targets = own["targets"]
        own["targets"] = [targets.index(i) for i in range(len(targets))]


def swap(kind: str):
    """Two actions of a kind change places."""

    def edit(plan) -> None:
        own = program(plan)["actions"]
        first, second = actions(plan, kind)[:2]
        i, j = (next(k for k, x in enumerate(own) if x is y) for y in (first, second))
        own[i], own[j] = own[j], own[i]

    return edit


def move_behind(kind: str, last: str):
    """The first action of a kind comes behind the first one of another."""

    def edit(plan) -> None:
        own, gone = program(plan)["actions"], actions(plan, kind)[0]
        own[:] = [x for x in own if x is not gone]
        place = next(i for i, x in enumerate(own) if x is actions(plan, last)[0])
        own.insert(place + 1, gone)

    return edit


def remove(*kinds: str):
    def edit(plan) -> None:
        own = program(plan)["actions"]
        gone = [actions(plan, kind)[0] for kind in kinds]
        own[:] = [x for x in own if not any(x is y for y in gone)]
        for region in program(plan)["regions"]:
            region["last_action"] = min(region["last_action"], len(own) - 1)
            region["first_action"] = min(region["first_action"], len(own) - 1)

    return edit


def mix_twice(plan) -> None:
    """All of a list once more, as further ranges."""
    own, index = program(plan)["actions"], list_of(plan, "mix 1")
    more = copy.deepcopy([x for x in own if x.get("list", 0) == index])
    count = 1 + max(x.get("tensor", 0) for x in more)
    for action in more:
        if "exchange" in action:
            action["tensor"] = action.get("tensor", 0) + count
    own.extend(more)
    extend_regions(plan, len(own) - 1)


def extend_regions(plan, last: int) -> None:
    for region in program(plan)["regions"]:
        if region.get("last_action", 0) >= last // 2:
            region["last_action"] = last


def receive_another_range(plan) -> None:
    """Names of two ranges' messages are exchanged where they are received."""
    first, second = [x for x in actions(plan, "Recv") if x["exchange"] == 1][:2]
    first["tensor"], second["tensor"] = second["tensor"], first.get("tensor", 0)
    size = min(x["bytes"] for x in actions(plan, "Send"))
    for kind in ("Send", "Recv", "WaitSend"):
        for own in actions(plan, kind):
            own["bytes"] = size


def lose_message(plan) -> None:
    for own in plan["outer"]["mixings"][0]["exchanges"]:
        if own["targets"][0] == 1:
            own["targets"][0], own["weights"][1] = -1, 0.0


def share_weights(plan) -> None:
    """What is received overwrites the weights."""
    buffer = actions(plan, "Send")[0]["buffer"]
    for own in actions(plan, "Recv"):
        own["buffer"] = buffer
    for own in actions(plan, "Mix"):
        steps = program(plan)["functions"][own["function"]]["steps"]
        steps[0]["step"]["others"]["offset"] = buffer


def send_within(plan) -> None:
    """A message between sites in the step of one."""
    actions(plan, "Send")[0]["list"] = 0


# Of gossip:exponential,every=2,average=2 of four sites.
DEFECTS = {
    "the matrix is transposed": (transpose, "exchange 1 gives site "),
    "a weight is another one": (
        lambda plan: exchange(plan)["weights"].__setitem__(2, 0.5),
        "mixing 1: exchange 1 gives site 2 weight 0.5 of what it receives, the graph"),
    "a neighbour is another one": (
        lambda plan: exchange(plan)["targets"].reverse(), "mixing 1: exchange 1"),
    "a site sends to itself": (
        lambda plan: exchange(plan)["targets"].__setitem__(0, 0),
        "sends to site 0 what it has itself"),
    "two sites send to one": (
        lambda plan: exchange(plan)["targets"].__setitem__(0, exchange(plan)["targets"][1]),
        " twice"),
    "a site is not there": (
        lambda plan: exchange(plan)["targets"].__setitem__(0, 4), "with site 4, there are 4"),
    "an exchange is of other sites": (
        lambda plan: exchange(plan)["targets"].append(0), "of 5 sites, there are 4"),
    "an exchange is missing in the matrix": (
        lambda plan: plan["outer"]["mixings"][0]["exchanges"].pop(),
        "is of exchange 2, there are 1"),
    "a message is missing in the matrix": (
        lose_message, "mixing 1: site 1 receives nothing of site 0"),
    "the graph is another one": (
        put(lambda plan: (plan["outer"], "graph", "ring")), "mixing 1: "),
    "the graph is unknown": (
        put(lambda plan: (plan["outer"], "graph", "star")),
        "has graph \"star\", which is unknown"),
    "there is no graph": (lambda plan: plan["outer"].pop("graph"), "has graph ''"),
    "sites mix one step later": (
        put(lambda plan: (plan["lists"][3], "every", 3)), "list 3 is 'mix 1' each 3 steps"),
    "sites mix where they average": (
        put(lambda plan: (plan["lists"][3], "except", 0)), "but for each 4 by mixing 1"),
    "sites average at another time": (
        put(lambda plan: (plan["outer"], "average", 3)), "list 2 is 'outer' each 4 steps"),
    "sites mix at another time": (
        put(lambda plan: (plan["lists"][3], "phase", 1)), "from 1 on"),
    "an exchange comes twice": (swap("Mix"), "is not the Mix of exchange 1"),
    "what is sent goes to another neighbour": (
        swap("Send"), "is not the Send of exchange 1"),
    "what is received is not added": (
        remove("Mix"), "is not the Mix of exchange 1 that has to follow"),
    "something else is taken": (
        put(lambda plan: (step(plan, "Take")["mixed"], "offset", 64)),
        "does not take what was added up"),
    "the sum is not taken": (remove("Take"), "is not the Take that has to follow"),
    "the weight changes while it is sent": (
        move_behind("WaitSend", "Take"), "is not the WaitSend of exchange 1"),
    "sites wait for each other": (
        move_behind("Send", "Recv"), "deadlock: waits for program 0 for ever"),
    "a message is not received": (
        remove("Recv"), "is sent 1, received 0 and waited for 1 times"),
    "a range gets it twice": (mix_twice, "gets a mixing, expected nothing more"),
    "what is received is of another range": (
        receive_another_range, "deadlock: waits for program 0 for ever"),
    "another weight is mixed": (
        put(lambda plan: (step(plan, "Mix")["value"], "offset", 64)),
        "is of another range than those around it"),
    "a part is left out": (
        put(lambda plan: (step(plan, "Mix"), "elements", 64)),
        "is of another range than those around it"),
    "something else is added": (
        put(lambda plan: (step(plan, "Mix"), "others", dict(step(plan, "Mix")["value"]))),
        "does not add what was received"),
    "what is received overwrites weights": (share_weights, "which is not its own"),
    "a step of a site sends": (send_within, ", which has none"),
    "an exchange is not there": (
        put(lambda plan: (actions(plan, "Send")[0], "exchange", 9)),
        "is of exchange 9, there are 2"),
    "a message is of another program": (
        put(lambda plan: (actions(plan, "Send")[0], "peer", 3)),
        "and is between ranks of one program"),
    "a list has another mixing": (
        put(lambda plan: (plan["lists"][3], "mixing", 2)), ", which has none"),
}  # fmt: skip

# In bf16.
COPY_DEFECTS = {
    "a copy is not renewed": (remove("Round"), "lacks a rounding"),
}

# Of trimmed:2 of four sites: five steps a range.


def own_steps(plan) -> list:
    return next(x for x in program(plan)["functions"] if x["name"] == "outer")["steps"]


def put_step(index: int, *path_and_value):
    *path, key, value = path_and_value

    def edit(plan) -> None:
        owner = own_steps(plan)[index]["step"]
        for name in path:
            owner = owner[name]
        owner[key] = value

    return edit


MIDDLE_DEFECTS = {
    "more is dropped": (
        put(lambda plan: (plan["outer"], "drop", 2)), "drop 2, which takes more than 4"),
    "nothing is dropped": (
        put(lambda plan: (plan["outer"], "drop", 0)), "has drop 0, expected 1 or more"),
    "it is a median": (
        put(lambda plan: (plan["outer"], "scheme", "average")),
        "has drop 1, which average has not"),
    "blocks are not exchanged": (
        lambda plan: own_steps(plan).pop(1), "is a copy without a middle behind it"),
    "blocks are gathered over another axis": (
        put_step(3, "axis", 1), "is a copy that does not fit the middle behind it"),
    "the result is not gathered": (
        lambda plan: own_steps(plan).pop(3), "is a copy"),
    "the result goes elsewhere": (
        put_step(4, "target", "offset", 64), "is a copy that does not fit"),
    "a part is left out": (
        put_step(2, "elements", 64), "is a copy that does not fit"),
    "a weight is left out": (lambda plan: own_steps(plan).__delitem__(slice(5)), "lacks a middle"),
    "a middle is alone": (
        lambda plan: own_steps(plan).__delitem__(slice(2)),
        "is a Middle without what belongs to it"),
}  # fmt: skip
