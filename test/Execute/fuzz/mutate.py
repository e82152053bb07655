#===- mutate.py - Drawn models with one thing changed -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Changes one thing in the IR of a drawn model after phase `partition`: a number, a
dimension, an axis, an operand, an op. What the proof then still proves has to
train as PyTorch does: a change that changes nothing, or a rule that sees too
little. No defect is known beforehand, as those of defects.py are."""

import dataclasses
import pathlib
import random
import re

from harness import Tools

from .trial import Trial, Verdict

PHASE = "5-partition.mlir"
OP = re.compile(r"^ +%[\w#:]+ = (?:nn|dist)\.\w+|^ +nn\.(?:write|accumulate|metric)")
# What an op says behind its operands: types are not changed.
INTEGER = re.compile(r"(?<![\w.%+-])\d+(?![\w.])")
REAL = re.compile(r"(?<![\w%])-?\d\.\d+(?:e[+-]\d+)?(?!\w)")
OPERAND = re.compile(r"%[\w#]+")
# Ops of one shape for another one.
ALIKE = (
    ("add", "sub", "mul", "div", "min"),
    ("exp", "tanh", "erf", "sigmoid", "neg", "sqrt", "rsqrt", "is_zero"),
)


def split_types(line: str) -> tuple[str, str]:
    """What an op says, and the types behind."""
    at = line.rfind(" : ")
    return (line[:at], line[at:]) if at >= 0 else (line, "")


def replaced(line: str, match: re.Match, new: str) -> str:
    return line[: match.start()] + new + line[match.end() :]


def change_integer(rng, lines, at):
    head, types = split_types(lines[at])
    found = list(INTEGER.finditer(re.sub(r"\{.*\}", lambda m: " " * len(m[0]), head)))
    if not found:
        return None
    match = rng.choice(found)
    old = int(match[0])
    new = rng.choice([x for x in (0, 1, 2, old - 1, old + 1, 2 * old) if x != old])
    return replaced(head, match, str(new)) + types if new >= 0 else None


def change_real(rng, lines, at):
    head, types = split_types(lines[at])
    found = list(REAL.finditer(re.sub(r"\{.*\}", lambda m: " " * len(m[0]), head)))
    if not found:
        return None
    match = rng.choice(found)
    new = rng.choice((0.0, 1.0, 2 * float(match[0]), -float(match[0])))
    return replaced(head, match, f"{new:.6e}") + types


def change_axis(rng, lines, at):
    axes = [m for m in re.finditer(r'"(?:tp|dp)"', lines[at])]
    if not axes:
        return None
    match = rng.choice(axes)
    return replaced(lines[at], match, {'"tp"': '"dp"', '"dp"': '"tp"'}[match[0]])


def operands_of(line: str) -> list[re.Match]:
    begin = line.find("= ") + 1
    return list(OPERAND.finditer(split_types(line)[0], begin))


def swap_operands(rng, lines, at):
    found = operands_of(lines[at])
    if len(found) < 2:
        return None
    a, b = sorted(rng.sample(range(len(found)), 2))
    line = replaced(lines[at], found[b], found[a][0])
    return replaced(line, found[a], found[b][0])


def first_line(lines, at: int) -> int:
    return max(n for n in range(at + 1) if lines[n].lstrip().startswith("func.func"))


def change_operand(rng, lines, at):
    """For another value that was computed before."""
    found = operands_of(lines[at])
    before = lines[first_line(lines, at) : at]
    known = [m[1] for x in before if (m := re.match(r" +(%\w+) = ", x))]
    if not found or not known:
        return None
    return replaced(lines[at], rng.choice(found), rng.choice(known[-12:]))


def change_op(rng, lines, at):
    match = re.search(r"(?<= = nn\.)\w+", lines[at])
    for kinds in ALIKE:
        if match and match[0] in kinds:
            return replaced(lines[at], match, rng.choice(kinds))
    for one, other in ((" sum", " max"), (" max", " sum"), (" inverse", ""),
                       ("dist.reduce_scatter", "dist.slice")):  # fmt: skip
        if one in lines[at]:
            return lines[at].replace(one, other, 1)
    return None


def drop(rng, lines, at):
    """The op gives what it takes."""
    found = operands_of(lines[at])
    match = re.match(r"( +%\w+ = )", lines[at])
    if not found or not match:
        return None
    types = re.findall(r"tensor<[^>]*>", split_types(lines[at])[1])
    if not types or types[-1].endswith("i32>"):
        return None
    return f"{match[1]}nn.scale {found[0][0]} by 1.0 : {types[-1]}"


def swap_letters(rng, lines, at):
    match = re.search(r'"[a-z]*,[a-z]*->[a-z]*"', lines[at])
    letters = sorted({x for x in match[0] if x.isalpha()}) if match else []
    if len(letters) < 2:
        return None
    a, b = rng.sample(letters, 2)
    places = [i for i in range(match.start(), match.end()) if lines[at][i] in (a, b)]
    place = rng.choice(places)
    other = b if lines[at][place] == a else a
    return lines[at][:place] + other + lines[at][place + 1 :]


CHANGES = (
    (3, change_integer),
    (1, change_real),
    (2, change_axis),
    (2, swap_operands),
    (2, change_operand),
    (2, change_op),
    (2, drop),
    (1, swap_letters),
)


def change(rng: random.Random, lines: list[str]) -> tuple[list[str], str] | None:
    """The lines with one changed, and which; null: nothing came of it."""
    places = [at for at, line in enumerate(lines) if OP.match(line)]
    # What is about slices and padding is rare, and what rules are about.
    about = [at for at in places if "begin" in lines[at] or "dist." in lines[at]]
    at = rng.choice(about if about and rng.random() < 0.5 else places)
    weights, kinds = zip(*CHANGES)
    new = rng.choices(kinds, weights)[0](rng, lines, at)
    if new is None or new == lines[at]:
        return None
    told = f"{lines[at].strip()}\n{new.strip()}"
    return lines[:at] + [new] + lines[at + 1 :], told


@dataclasses.dataclass
class Mutants:
    """Some changes of one drawn model."""

    drawn: Trial
    seed: str
    count: int

    def write(self, folder: pathlib.Path) -> None:
        self.drawn.write(folder)

    def commands(self) -> str:
        return self.drawn.commands()

    def run(self, tools: Tools, folder: pathlib.Path, trains=True) -> list[Verdict]:
        """Of each change: "refused", "passed" where it changes nothing, or what is
        wrong though it is proven."""
        drawn = self.drawn
        drawn.layout.reference = False
        drawn.write(folder)
        phases = folder / "phases"
        compiled = tools.call(
            "plaitc", *drawn.compile_arguments(folder), "--dump-phases-to", phases
        )
        if compiled.code or "cannot be proven" in compiled.stderr:
            return []
        lines = (phases / PHASE).read_text().splitlines()
        rng = random.Random(self.seed)
        verdicts = []
        for _ in range(self.count):
            found = None
            while found is None:
                found = change(rng, lines)
            (folder / "changed.mlir").write_text("\n".join(found[0]) + "\n")
            verdict = self.judge(tools, folder, phases / "0-import.mlir")
            verdict.text = f"{found[1]}\n{verdict.text}"
            verdicts.append(verdict)
        return verdicts

    def judge(self, tools: Tools, folder: pathlib.Path, claim) -> Verdict:
        changed = folder / "changed.mlir"
        proof = f"--plait-prove-meaning=claim={claim}"
        proven = tools.call("plait-opt", proof, changed, "-o", "/dev/null")
        if proven.code < 0 or proven.code >= 128:
            return Verdict("plait-opt crashed", proven.stderr[-1500:])
        if proven.code:
            return Verdict("refused", proven.stderr.strip().splitlines()[0])
        plan = ["--claim", claim, "-o", folder / "out.plan"]
        compiled = tools.call("plaitc", changed, *plan)
        if compiled.code > 0:  # by a later phase
            return Verdict("refused", compiled.stderr.strip().splitlines()[0])
        return self.drawn.execute(tools, folder, compiled)
