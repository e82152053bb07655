#===- dispatch.py - Where ops are told by their names -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Passes and planner ask an op by interface, trait or role what it is. Each place
outside lib/Dialect that tells an op of nn by its name is one that an op like it has
to find. They are counted by file, with the reason, and may only become less.
Declarations, `nn.parameter` and `nn.pack`, are no ops to tell apart. Nor is a role
of kernels named but where one is defined, or gives loops: all else asks its facts."""

import collections
import re

from harness import ROOT, Reporter, require

NAME = r"nn::(?!Parameter|Pack)\w+Op\b"
CASTS = r"isa\w*|cast\w*|dyn_cast\w*|getDefiningOp|getOps|getParentOfType|IsaPred|lookup\w*|Case"
TELLS = re.compile(rf"\b(?:{CASTS})<[^;()]*?{NAME}|\]\({NAME}")
ROLE = re.compile(r"\bFusionRole::\w")

# How many there are; a file that is not here has none. Folders count as a whole.
LEFT = {
    # Rules are by op, and trust no op to say what it means.
    "lib/Proof/": 76,
    # What a model may be, and edits of the op that an option names.
    "lib/Import/": 10,
    "lib/Transforms/Import/": 11,
    # Patterns of several ops, and the step that one op becomes.
    "lib/Codegen/Kernel/OnlineSums.cpp": 7,
    "lib/Transforms/Lowering/FuseEpilogues.cpp": 4,
    "lib/Transforms/Steps/LowerToSteps.cpp": 6,
    # What no interface says.
    "lib/Planner/Profile/Profile.cpp": 1,
    "lib/Transforms/Precision/LowerPrecision.cpp": 1,
    "lib/Transforms/Steps/KernelRows.cpp": 2,
}
ROLES = (
    "include/plait/Interfaces/OpInterfaces.h",
    "lib/Analysis/IterationSpace.cpp",
    "lib/Codegen/",
    "lib/Dialect/",
    "lib/Interfaces/Padding.cpp",
)


def find_sources() -> dict[str, str]:
    """Texts without comments, by name."""
    found = {}
    for folder in ("include", "lib", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                text = re.sub(r"//[^\n]*", "", path.read_text())
                found[str(path.relative_to(ROOT))] = text
    return found


def find_places(pattern: re.Pattern[str], name: str, text: str) -> list[str]:
    found = []
    for match in pattern.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found.append(f"{name}:{line}: {match[0]}")
    return found


def place_of(name: str) -> str:
    return next((place for place in LEFT if name.startswith(place)), name)


def check_place(found: list[str], most: int) -> str:
    require(
        len(found) <= most,
        f"{len(found)} ops are told by name, {most} were: ask them by interface "
        "(docs/Developing.md)\n" + "\n".join(found),
    )
    require(
        len(found) == most,
        f"{len(found)} are left and not {most}: say so in dispatch.py",
    )
    return f"{most} left"


def check_finding() -> None:
    text = (
        "isa<nn::AddOp>(op);\n  x.Case([&](nn::FillOp op) {});\n"
        "dyn_cast<nn::ParameterOp>(op);\nnn.unary<nn::SqrtOp>(x);\n"
        "getOps<\n  SlotOpInterface, nn::MetricOp>();\n"
    )
    found = [int(place.split(":")[1]) for place in find_places(TELLS, "a", text)]
    require(found == [1, 2, 5], f"found in lines {found}")


def check(report: Reporter) -> None:
    report.case("dispatch", check_finding)
    places: dict[str, list[str]] = collections.defaultdict(list)
    roles = []
    for name, text in find_sources().items():
        if not name.startswith(("include/plait/Dialect/", "lib/Dialect/")):
            places[place_of(name)] += find_places(TELLS, name, text)
        if not name.startswith(ROLES):
            roles += find_places(ROLE, name, text)
    for place in sorted(LEFT.keys() | {name for name in places if places[name]}):
        report.case(
            f"dispatch/{place}",
            lambda p=place: check_place(places[p], LEFT.get(p, 0)),
        )
    report.case(
        "dispatch/roles",
        lambda: require(not roles, "ask getFacts():\n" + "\n".join(roles)),
    )
