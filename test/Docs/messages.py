#===- messages.py - What lib says, and how ----------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""A library prints nothing, ends no process, spells no option of a command line,
and tells no failure by its text: messages name options in backquotes, and callers
ask codes. The codes are those of docs/Errors.md."""

import pathlib
import re

from harness import ROOT, Reporter, require

LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
PRINTS = re.compile(
    r"\b(?:outs|errs|dbgs)\(\)|std::c(?:out|err|log)\b"
    r"|std::(?:printf|puts|putchar)\(|std::f\w+\((?:[^;]*, )?std(?:err|out)\b"
)
# Children that were forked end by `_exit`.
ENDS = re.compile(r"\b(?:_Exit|quick_exit|exit)\(")
MATCHES = re.compile(r"\bmessage\(\)\s*\.\s*(?:find|starts_with|ends_with|compare|rfind)\b")

# Command lines of other programs, and flags of theirs that messages are about.
COMMANDS = {
    "lib/Codegen/CPU/LinkObjects.cpp",
    "lib/Import/HuggingFace/HuggingFace.cpp",
    "lib/Planner/Export/Export.cpp",
    "lib/Planner/Export/Megatron.cpp",
    "lib/Planner/Export/MegatronFlags.cpp",
    "lib/Planner/Export/ReadMegatron.cpp",
    "lib/Planner/Export/Torchtitan.cpp",
    "include/plait/Support/OtherPrograms.h",
    "lib/Runtime/Supervisor/Hosts.cpp",
    "lib/Runtime/Supervisor/Supervisor.cpp",
}

# What tools share of their command lines, which programs may give as JSON.
COMMAND_LINES = ("include/plait/Support/CommandLine.h", "lib/RunOptions/")

ERRORS = ROOT / "docs" / "Errors.md"
CODES = ROOT / "include" / "plait" / "Support" / "Status.h"


def without_comments(text: str) -> str:
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)


def find_sources() -> list[tuple[str, str]]:
    """Names and texts of what the libraries are made of."""
    found = []
    for folder in ("lib", "include/plait"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu"):
                name = str(path.relative_to(ROOT))
                if name.startswith(COMMAND_LINES):
                    continue
                found.append((name, without_comments(path.read_text())))
    return found


def find_all(pattern: re.Pattern, sources: list[tuple[str, str]]) -> list[str]:
    return [
        f"{name}: {match[0]}"
        for name, text in sources
        for match in pattern.finditer(text)
    ]


def check_none(found: list[str]) -> str:
    require(not found, "\n".join(found))
    return ""


def check_options(sources: list[tuple[str, str]]) -> str:
    found = [
        f"{name}: {literal[0]}"
        for name, text in sources
        if name not in COMMANDS
        for literal in LITERAL.finditer(text)
        if OPTION.search(literal[0])
    ]
    return check_none(found)


def check_codes() -> str:
    """Numbers and names of the page are those of the enumeration, in order."""
    text = CODES.read_text()
    body = re.search(r"enum class Code : uint16_t \{(.*?)\};", text, re.DOTALL)
    codes = re.findall(r"^\s*(\w+) = (\d+),", body[1], re.MULTILINE)
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", ERRORS.read_text(), re.MULTILINE)
    shown = [(name, number) for number, name in rows]
    require(bool(codes) and codes == shown, f"{codes}, but the page has {shown}")
    return f"{len(codes)} codes"


def check(report: Reporter) -> None:
    sources = find_sources()
    report.case("messages: spell no option", lambda: check_options(sources))
    report.case(
        "messages: nothing prints",
        lambda: check_none(find_all(PRINTS, sources)),
    )
    report.case(
        "messages: no process is ended",
        lambda: check_none(find_all(ENDS, sources)),
    )
    report.case(
        "messages: texts tell no failure",
        lambda: check_none(find_all(MATCHES, sources)),
    )
    report.case("messages: codes", check_codes)
