#===- covering.py - Few cases that cover pairs ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Of cases that combine choices, those of a default run: each choice that some case
makes (--zero 3, cp=4, a model) is kept at least once, and so is each kind of choice
(precision, schedule, offload) beside each other kind that it is combined with
anywhere. The same cases in any run."""

import itertools


def split_options(mesh: str, options) -> dict[str, str]:
    """The choices of a mesh such as "pp=2,dp=2" and of flags with their values."""
    sizes = [x.split("=") for x in mesh.split(",") if "=" in x]
    choices = {axis: size for axis, size in sizes if size != "1"}
    name = ""
    for word in map(str, options):
        if word.startswith("--"):
            name = word
        choices[name] = word if word == name else f"{choices[name]} {word}"
    return choices


def cover(cases: list, choose) -> list:
    """`choose` gives the choices of a case by kind, without those that are a
    default. The case that adds most is kept first, the first one of several. A case
    of one choice, or of none, is the plain one of its kind, and is kept."""

    def find(choices: dict) -> set:
        """What a case covers: its choices, and its pairs of kinds."""
        found = set(choices.items()) | set(itertools.combinations(sorted(choices), 2))
        return found | ({tuple(choices.items())} if len(choices) < 2 else set())

    has = [find(choose(case)) for case in cases]
    left, kept = set().union(*has), set()
    while left:
        best = max(range(len(cases)), key=lambda index: len(has[index] & left))
        kept.add(best)
        left -= has[best]
    return [case for index, case in enumerate(cases) if index in kept]


def add_option(parser) -> None:
    parser.add_argument(
        "--all", action="store_true", help="more than covers all choices"
    )


def takes_all(options) -> bool:
    """Whether a run takes all cases: what --filter names is run."""
    return options.all or bool(options.filter)


def chosen(cases, choose, options) -> list:
    """What a run with these options takes: all, or what covers."""
    return list(cases) if takes_all(options) else cover(list(cases), choose)
