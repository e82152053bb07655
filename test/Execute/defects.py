#!/usr/bin/env python3
#===- defects.py - Whether seeded defects are refused -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Compiles small plans, proves them, and seeds each kind of defect
(defect_kinds.py) into the IR after phases `partition` and `lower`. A case is one kind: every one of
its modules must be refused: by the proof, as wrong or as not proven, or before by the
verifiers of the ops. Kinds of code are compiled, and the kernels held against the
right ops. `--table` prints what refused how many, and how one of them is
told, as Markdown.

A message is at the right place if it, or a note of it, is at a line that was changed,
at one that uses what such a line defines or comes from the same part of the model in
the same function, or names a symbol or buffer of it."""

import collections
import concurrent.futures
import pathlib
import random
import re
import sys
import tempfile
from collections.abc import Callable

import defect_kinds
import gather_defects  # noqa: F401
import memory_defects  # noqa: F401, kinds come in the order of imports
import shipped_defects  # noqa: F401
import kernel_defects
from harness import GOLDEN, ROOT, Failure, Outcome, Reporter, Tools, arguments

MODELS = ROOT / "examples" / "models"
MLP = [MODELS / "mlp.mlir", "--global-batch=16", "--micro-batch=2", "--seq=32"]
SMALL = ["--seq=32", "--global-batch=8"]
GPT2 = [MODELS / "gpt2-nano", *SMALL]
# Written where the plans are: the same with dropout, and twelve layers of Llama, of
# which only the late ones have defects.
DROPOUT, DEEP = "gpt2-dropout", "llama-deep"
LATE = re.compile(r"\.layers\.(?:9|11)\.|nn\.layer = (?:9|11)\b")
# Of the plan with copies, what is about those.
MOVED = re.compile(r"plan\.move| host at ")
# And of the plan that sums gradients in bf16.
SUMMED = re.compile(r"xbf16>")
# Of the plan that compresses them, what becomes of its packs.
SENT = re.compile(r"x256xf32>.*pack|x256x|over \"dp\"| error ")
# Of the plan whose sequences are dealt out, what deals them.
DEALT = re.compile(r" rounds \d")
ONLY = {"deep": LATE, "pieces": DEALT, "offload": MOVED, "rounded-partitioned": SUMMED,
        "sent-partitioned": SENT}
LLAMA = [GOLDEN / "llama-small-test", "--seq=32", "--global-batch=8"]
PLANS = {
    "mlp": [*MLP, "--mesh=pp=2,dp=2,tp=2"],
    "mlp-zero": [*MLP, "--mesh=pp=2,dp=2", "--zero=1"],
    "gpt2": [*GPT2, "--mesh=pp=2,dp=2,tp=2", "--zero=2", "--schedule=zb-h1",
             "--sequence-parallel"],
    "gpt2-bf16": [*GPT2, "--mesh=dp=2,tp=2", "--precision=bf16", "--zero=1",
                  "--epilogues=all", "--attention=flash"],
    "uneven": [GOLDEN / "gpt2-small-test", "--seq=32", "--global-batch=4",
               "--micro-batch=2", "--mesh=pp=2,tp=2",
               "--shard", 'transformer.wte.weight=[{"tp"},{}]'],
    "dropout": [DROPOUT, *SMALL, "--mesh=pp=2,dp=2,tp=2", "--zero=1"],
    "dropout-flash": [DROPOUT, *SMALL, "--mesh=dp=2,cp=2,tp=2", "--zero=3",
                      "--attention=flash", "--recompute=full", "--optimizer=sgd"],
    "llama": [*LLAMA, "--mesh=dp=2,cp=2,tp=2", "--micro-batch=2"],
    "zigzag": [DROPOUT, *SMALL, "--mesh=cp=2,tp=2", "--context-parallel=zigzag"],
    "pieces": [*GPT2, "--mesh=dp=2,tp=2", "--sequence-parallel", "--tp-comm-overlap=4"],
    "deep": [DEEP, *SMALL, "--mesh=pp=2,dp=2,tp=2", "--layers=5,7", "--recompute=full:1"],
    "llama-heads": [*LLAMA, "--mesh=dp=2,cp=2,tp=2", "--context-parallel=heads",
                    "--attention=flash"],
    "offload": [*GPT2, "--mesh=pp=2,dp=2", "--micro-batch=1", "--precision=bf16",
                "--offload=optimizer,activations"],
}
# After another phase than `lower`.
PLANS |= {f"{name}-partitioned": PLANS[name] for name in ("mlp-zero", "gpt2")}
PLANS["rounded-partitioned"] = [*PLANS["mlp-zero"], "--reduce-precision=bf16"]
PLANS["sent-partitioned"] = [*MLP, "--mesh=pp=2,dp=2", "--compress=int8+feedback"]
PROOF = "computes something else than the model asks for"
UNPROVEN = "cannot be proven"
KERNEL = "is computed wrongly"
MOST_OF_CODE = 4  # defects of a kind in the code of kernels, each in another plan

Counts = collections.Counter


class Row:
    """What became of the defects of a kind."""

    def __init__(self):
        self.counts = Counts()
        self.example = ""  # the message of one, rather of one at the right place
        self.is_placed = False

    def add(self, verdict: str, message: str) -> None:
        self.counts[verdict] += 1
        is_placed = verdict == "proof"
        if not self.example or (is_placed and not self.is_placed):
            text = message.split(PROOF + ": ")[-1].split(KERNEL + ": ")[-1].split("error: ")[-1]
            self.example, self.is_placed = text, is_placed


def find_changed(old: list[str], new: list[str]) -> set[int]:
    """The lines of `new` that `old` does not have there, or those around what it has
    and `new` does not."""
    if len(old) == len(new):
        return {at for at, (one, other) in enumerate(zip(old, new)) if one != other}
    first = next(at for at, (one, other) in enumerate(zip(old, new)) if one != other)
    return {first - 1, first, first + 1}


def told(verdict: str, outcome: Outcome) -> str:
    text = outcome.stderr.strip()
    return text if verdict == "crashed" else text.split("\n")[0]


class Plan:
    """A plan's IR before the first and after the last phase."""

    def __init__(self, tools: Tools, name: str, options: list, folder: pathlib.Path):
        self.tools, self.name, self.folder = tools, name, folder / name
        options = [folder / option if option in (DROPOUT, DEEP) else option
                   for option in options]
        tools.run("plaitc", *options, "--no-reference", "--dump-phases-to",
                  self.folder, "-o", folder / f"{name}.plan")
        phase = "5-partition" if name.endswith("-partitioned") else "7-lower"
        self.path = self.folder / f"{phase}.mlir"
        self.lines = self.path.read_text().splitlines()
        self.proof = f"--plait-prove-meaning=claim={self.folder / '0-import.mlir'}"

    def is_at_place(self, lines: list[str], path: pathlib.Path, stderr: str) -> bool:
        """Whether what the proof says of `lines` is about what was changed."""
        changed = find_changed(self.lines, lines)
        text = " ".join(lines[at] + " " + self.lines[at] for at in changed)
        names = set(re.findall(r'@"[^"]*"|@[\w.]+|"[A-Z]\w+"', text)) - {"@mesh"}
        found = re.findall(re.escape(str(path)) + r":(\d+):\d+: \w+: (.*)", stderr)
        for number, message in found:
            at = int(number) - 1
            if at in changed or any(name.strip('@"') in message for name in names):
                return True
            first = max(n for n in range(at + 1) if lines[n].startswith("  ") and
                        not lines[n].startswith("   ") or n == 0)
            defined = {match[1] for n in changed if n >= first
                       if (match := re.match(r" *(%\w+)(?::\d+)? = ", lines[n]))}
            # Or what a kernel takes, if the line is in its body.
            body = next((n for n in range(at, first, -1) if "^bb0" in lines[n]), at)
            uses = lines[at] + (lines[body - 1] if "plan.cluster" in lines[body - 1] else "")
            if any(re.search(re.escape(value) + r"\b", uses) for value in defined):
                return True
            last = next((n for n in range(first + 1, len(lines))
                         if lines[n].startswith("  }")), len(lines))
            part = re.search(r'plait\.origin = "[^"]*"', lines[at])
            if part and any(part[0] in lines[n] for n in changed if first < n < last):
                return True
        return False

    def find_places(self, generate: defect_kinds.Kind) -> list[defect_kinds.Change]:
        """Where `generate` may seed a defect."""
        changes = generate(self.lines)
        if self.name not in ONLY:
            return list(changes)
        meant = {at for at, line in enumerate(self.lines) if ONLY[self.name].search(line)}
        return [(at, new) for at, new in changes if meant & find_changed(self.lines, new)]

    def refuse(self, lines: list[str], words: Callable[[pathlib.Path], list],
               number: str) -> tuple[str, Outcome, pathlib.Path]:
        """What plait-opt makes of `words`, which take the file of the changed module:
        "survived", "crashed" or "refused"."""
        path = self.folder / f"{number}.mlir"
        path.write_text("\n".join(lines) + "\n")
        outcome = self.tools.call("plait-opt", *words(path), "-o", "/dev/null")
        path.unlink()
        return {0: "survived", 1: "refused"}.get(outcome.code, "crashed"), outcome, path

    def judge(self, lines: list[str], number: str) -> tuple[str, str]:
        """What refuses the module, and how it says so."""
        verdict, outcome, path = self.refuse(lines, lambda path: [self.proof, path], number)
        if verdict == "refused" and PROOF in outcome.stderr:
            placed = self.is_at_place(lines, path, outcome.stderr)
            verdict = "proof" if placed else "elsewhere"
        elif verdict == "refused":
            verdict = "unproven" if UNPROVEN in outcome.stderr else "verifier"
        return verdict, told(verdict, outcome)

    def judge_code(self, lines: list[str], number: str) -> tuple[str, str]:
        """The same of kernels that are made of the module, and held against the ops
        of the plan's."""
        verdict, outcome, _ = self.refuse(
            lines, lambda path: [f"--plait-check-kernels=code-of={path}", self.path], number)
        if verdict == "refused" and KERNEL not in outcome.stderr:
            verdict = "verifier"
        elif verdict == "refused":
            at = min(find_changed(self.lines, lines))
            found = re.search(re.escape(str(self.path)) + r":(\d+):\d+: error", outcome.stderr)
            kernel = kernel_defects.kernel_of(self.lines, at)
            verdict = "proof" if found and int(found[1]) - 1 in kernel else "elsewhere"
        return verdict, told(verdict, outcome)


def write_model(folder: pathlib.Path, like: pathlib.Path, old: str, new: str) -> None:
    config = (like / "config.json").read_text()
    folder.mkdir()
    (folder / "config.json").write_text(config.replace(old, new))


def seed_kind(plans: list[Plan], name: str, most: int, enough: int,
              chance: random.Random, table: dict[str, Row], pool) -> str:
    _, generate = defect_kinds.KINDS[name]
    row, bad = table[name], []
    counts = row.counts
    is_code = name in kernel_defects.KERNELS
    for plan in chance.sample(plans, len(plans)):
        if sum(counts.values()) >= (MOST_OF_CODE if is_code else enough):
            break
        changes = plan.find_places(generate)
        chosen = chance.sample(changes, min(1 if is_code else most, len(changes)))
        judge = plan.judge_code if is_code else plan.judge
        judged = pool.map(lambda item: judge(item[1][1], f"{name}-{item[0]}"),
                          enumerate(chosen))
        for (at, lines), (verdict, message) in zip(chosen, judged):
            row.add(verdict, message)
            if verdict in ("survived", "crashed"):
                bad.append(f"{verdict}: {plan.name}, line {at + 1}: "
                           f"{plan.lines[at].strip()[:200]}\n"
                           f"  -> {lines[at].strip()[:200]}\n  {message[:300]}")
            elif verdict == "elsewhere":
                print(f"     elsewhere: {plan.name}, line {at + 1}: "
                      f"{plan.lines[at].strip()[:120]}\n       {message[:300]}")
    if not counts and len(plans) == len(PLANS):
        raise Failure("there is no place for it in any plan")
    if bad:
        raise Failure("\n".join([f"{len(bad)} of {sum(counts.values())}"] + bad[:6]))
    return ", ".join(f"{n} {v}" for v, n in counts.items() if n) + f": {row.example[:160]}"


def shorten(message: str) -> str:
    """Of a message what fits a table."""
    text = message.replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= 120 else text[:text.rfind(" ", 0, 118)] + " …"


def print_table(table: dict[str, Row]) -> None:
    print("| defect | seeded | wrong | of these there | not proven | verifiers | "
          "not refused | one is told so |")
    print("|---|---|---|---|---|---|---|---|")
    for name, row in table.items():
        counts = row.counts
        total = sum(counts.values())
        rest = counts["survived"] + counts["crashed"]
        wrong = counts["proof"] + counts["elsewhere"]
        print(f"| {defect_kinds.KINDS[name][0]} | {total} | {wrong} | "
              f"{counts['proof']} | {counts['unproven']} | {counts['verifier']} | "
              f"{rest} | {shorten(row.example)} |")


def print_share(table: dict[str, Row]) -> None:
    total = sum((row.counts for row in table.values()), Counts())
    wrong = total["proof"] + total["elsewhere"]
    if wrong:
        print(f"{sum(total.values())} defects of {len(table)} kinds; of {wrong} that "
              f"the proof calls wrong it names the right place for "
              f"{100 * total['proof'] / wrong:.1f} %")


def main() -> int:
    parser = arguments(__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=3, help="of a kind in a plan")
    parser.add_argument("--enough", type=int, default=10**9, help="of a kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plans", default="", help="part of their name")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    reporter = Reporter("defects", options.filter)
    table = {name: Row() for name in defect_kinds.KINDS}
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        plans = []
        write_model(pathlib.Path(folder) / DROPOUT, MODELS / "gpt2-nano",
                    '_pdrop": 0.0', '_pdrop": 0.1')
        write_model(pathlib.Path(folder) / DEEP, GOLDEN / "llama-small-test",
                    '"num_hidden_layers": 4', '"num_hidden_layers": 12')

        def prove(name: str, given: list) -> str:
            plan = Plan(tools, name, given, pathlib.Path(folder))
            verdict, message = plan.judge(plan.lines, "plan")
            if verdict != "survived":
                raise Failure(f"{verdict}: {message}")
            plans.append(plan)
            return "proven"

        for name, given in PLANS.items():
            if options.plans not in name:
                continue
            if reporter.wants(name):
                reporter.case(name, lambda: prove(name, given))
            else:
                prove(name, given)  # the kinds need it
        for name in defect_kinds.KINDS:
            chance = random.Random(f"{options.seed} {name}")
            reporter.case(name, lambda: seed_kind(
                plans, name, options.most, options.enough, chance, table, pool))
    print_share(table)
    if options.table:
        print_table(table)
    return reporter.finish()


if __name__ == "__main__":
    sys.exit(main())
