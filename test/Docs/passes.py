#===- passes.py - Examples in the descriptions of passes --*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Every pass of a Passes.td says in which phase it runs and shows an example,
and running the pass gives what the example shows.

The first fenced block after "Example:" is what the pass is given, a whole
module, and the second one, if any, lines of what it makes of it, as blocks.py
compares them. A first line `// plait-opt OPTIONS` says how, where that is not
just the pass; `%s` is the file. A last line `// error: TEXT` says that the pass
fails, and how, and `// remark: TEXT` what it says."""

import pathlib
import re
import shlex
import tempfile

import blocks
import reference
from harness import ROOT, Reporter, Tools, require

PHASES_PAGE = ROOT / "docs" / "Phases.md"
FIELDS = reference.INCLUDE / "plait" / "Configuration" / "Configuration.h"

# Passes whose example is the same afterwards.
UNCHANGED = {
    "plait-check-kernels": "it runs kernels, and remarks what it has found",
    "plait-prove-meaning": "it proves, and a proof leaves no trace",
}


def read_command(given: str, name: str) -> list[str]:
    """The options that the example says, or just the pass."""
    line = given.split("\n")[0]
    start = "// plait-opt "
    if not line.startswith(start):
        return [f"--{name}"]
    options = shlex.split(line.removeprefix(start))
    is_pass = [re.match(rf"--{name}(=|$)", x) is not None for x in options]
    require(is_pass[-1:] == [True], f"'{line}' does not end with --{name}")
    return options


def check_run(tools: Tools, file: pathlib.Path, given: str, name: str) -> str:
    """What the pass prints of the example, which it changes."""
    options = [x.replace("%s", str(file)) for x in read_command(given, name)]
    outcome = tools.call("plait-opt", file, *options)
    error = re.search(r"^// error: (.*)$", given, re.MULTILINE)
    if error:
        require(
            outcome.code == 1 and error[1] in outcome.stderr,
            f"ended with {outcome.code}, not with '{error[1]}'\n"
            f"{outcome.stderr.strip()}",
        )
        return ""
    shown = f"ended with {outcome.code}\n{outcome.stderr.strip()}\n{given}"
    require(outcome.code == 0, shown)
    remark = re.search(r"^// remark: (.*)$", given, re.MULTILINE)
    if remark:
        require(f"remark: {remark[1]}" in outcome.stderr, shown)
    without = tools.run("plait-opt", file, *options[:-1]).stdout
    if name in UNCHANGED:
        require(outcome.stdout == without, "changes its example")
    else:
        require(outcome.stdout != without, f"changes nothing of\n{given}")
    return outcome.stdout


def check_example(tools: Tools, name: str, examples: list[str]) -> str:
    require(bool(examples), "has no example")
    require(len(examples) <= 2, "has more than what it is given and makes")
    # TableGen ends a description at "}]", so they write "} ]".
    examples = [example.replace("} ]", "}]") for example in examples]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "example.mlir"
        file.write_text(examples[0] + "\n")
        output = check_run(tools, file, examples[0], name)
    if len(examples) == 1:
        return UNCHANGED.get(name, "")
    blocks.compare_output(examples[1], output)
    return "shows what it makes"


def read_phases(tools: Tools) -> dict[str, list[str]]:
    """The passes of each phase with a row in the table of docs/Phases.md, as
    plait-opt runs them, without those that every phase has."""
    # The page has other tables, of which this is the first.
    text = PHASES_PAGE.read_text()
    table = re.search(r"^\| phase \|.*\n(?:\|.*\n)+", text, re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \|", table[0] if table else "", re.MULTILINE)
    require("shard" in rows, f"{PHASES_PAGE} has no table of phases")
    everywhere = (
        "plait-begin-phase", "plait-end-phase", "canonicalize", "plait-merge-equal",
    )  # fmt: skip
    phases = {}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "empty.mlir"
        file.write_text("module {}\n")
        for phase in rows:
            if phase == "plan":  # makes a file, no IR
                continue
            outcome = tools.call(
                "plait-opt", file, f"--plait-{phase}", "--dump-pass-pipeline"
            )
            _, _, passes = outcome.stderr.partition("builtin.module(")
            found = re.findall(r"^  ([a-z-]+)", passes, re.MULTILINE)
            phases[phase] = [x for x in found if x not in everywhere]
    return phases


def check_phase(phases: dict, name: str, description: str) -> None:
    """The phases that the description says are those that run the pass, and
    what it says to be read are fields of the configuration."""
    said = set(re.findall(r"[Pp]hase `(\w+)`", description)) & set(phases)
    runs = {phase for phase, passes in phases.items() if name in passes}
    require(
        not runs or said == runs,
        f"says phases {sorted(said)}, but runs in {sorted(runs)}",
    )
    line = re.search(r"Phase `[^.]*; reads ([^.]*)", description)
    require(not runs or line is not None, "does not say what it reads")
    table = FIELDS.read_text()
    fields = re.findall(r'^  X\([^"]*"([a-z-]+)"', table, re.MULTILINE)
    for word in re.findall(r"`([a-z_]+)`", line[1]) if line else []:
        is_field = word.replace("_", "-") in fields
        require(is_field, f"the configuration has no {word}")


def check_page(phases: dict) -> str:
    """The table in docs/Phases.md has the passes of each phase, in order."""
    for phase, passes in phases.items():
        row = re.search(
            rf"^\| `{phase}` \|([^|]*)\|", PHASES_PAGE.read_text(), re.MULTILINE
        )
        shown = re.findall(r"`([a-z-]+)(?:\{\w+\})?`", row[1])
        require(shown == passes, f"{phase} runs {passes}, but shows {shown}")
    return f"{len(phases)} phases"


def check_pass(tools: Tools, phases: dict, record: dict) -> str:
    reference.check_described(record)
    check_phase(phases, record["argument"], record["description"])
    examples = reference.find_examples(record["description"])
    return check_example(tools, record["argument"], examples)


def check(report: Reporter, tools: Tools) -> None:
    phases = read_phases(tools)
    report.case("phases", lambda: check_page(phases))
    for path in sorted(reference.INCLUDE.rglob("Passes.td")):
        found = reference.instances(reference.read_records(path), "PassBase")
        require(bool(found), f"{path} has no passes")
        for record in found:
            report.case(
                f"pass/{record['argument']}",
                lambda r=record: check_pass(tools, phases, r),
            )
