#!/usr/bin/env python3
# ===- guards.py - What guards each attribute -------------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""usage: guards.py [--bin FOLDER] [--draws N] [--all [--jobs N]] [--page FILE] OUT

Compiles small models, edits every attribute of every op after every phase, one at a
time, and compiles on with the model as the claim. Of each edit either
- it is refused, with one error; or
- the plan is the same, byte for byte; or
- the plan says that it is not proven; or
- the plan is another, is proven, and says of model, parameters and arithmetic what
  the plan of the unedited module says.
What is accepted has its reason in ACCEPTED.

Without --all, some edits are drawn, of each plan and phase others, and held against
the page (docs/Guards.md), as is the list of all attributes. --page writes it."""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import attributes
import fields

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "Guards.md"
PHASES = ["import", "shard", "stage", "differentiate", "checkpoint",
          "partition", "schedule", "lower"]
SMALL = ["--seq", "16", "--global-batch", "8", "--no-reference"]
# Together they have every op of the step.
PLANS = {
    "gpt2": ["gpt2", "--mesh", "pp=2,dp=2,tp=2,sites=2", "--outer", "diloco:2",
             "--micro-batch", "1", "--zero", "1", "--cluster", "cpu:16"],
    "llama": ["llama", "--mesh", "dp=2,cp=2", "--no-plan", "--micro-batch", "2", "--precision",
              "bf16", "--zero", "3", "--context-parallel", "zigzag", "--recompute",
              "full", "--attention", "flash", "--lr-factor", "*norm*=0.5",
              "--optimizer-of", "*norm*=sgd"],
    "dropout": ["dropout", "--mesh", "pp=2,tp=2", "--no-plan", "--micro-batch", "4", "--schedule",
                "zb-h1", "--offload", "optimizer,activations", "--document-mask",
                "--optimizer", "lion", "--epilogues", "all", "--sequence-parallel",
                "--tp-comm-overlap", "2"],
    "compressed": ["llama", "--mesh", "dp=2", "--no-plan", "--micro-batch", "2", "--compress",
                   "int8:32+feedback"],
    "gossip": ["gpt2", "--mesh", "sites=2", "--no-plan", "--micro-batch", "4", "--outer",
               "gossip:ring,average=2"],
    "clip": ["gpt2", "--mesh", "tp=2,sites=2", "--no-plan", "--micro-batch", "4",
             "--outer", "clip:2,radius=1"],
    "streaming": ["gpt2", "--mesh", "sites=2", "--no-plan", "--micro-batch", "4", "--outer",
                  "streaming:4"],
    "tracking": ["gpt2", "--mesh", "sites=2", "--no-plan", "--micro-batch", "4",
                 "--optimizer", "sgd", "--outer", "tracking:ring"],
    "sinks": ["sinks", "--mesh", "tp=2", "--no-plan", "--global-batch", "2",
              "--micro-batch", "2", "--seq", "4", "--attention", "flash"],
    "encoder": ["encoder", "--mesh", "cp=2,tp=2", "--no-plan", "--global-batch", "2",
                "--micro-batch", "2", "--seq", "4"],
}
# Sizes that differ from each other, so that one is not taken for another.
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "activation_function": "gelu_new", "attn_pdrop": 0.0, "embd_pdrop": 0.0,
        "resid_pdrop": 0.0, "n_embd": 24, "n_head": 2, "n_layer": 2,
        "n_positions": 20, "vocab_size": 60, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "tie_word_embeddings": True}
MODELS = {
    "gpt2": GPT2,
    "dropout": {**GPT2, "attn_pdrop": 0.1, "embd_pdrop": 0.2, "resid_pdrop": 0.3},
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
              "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2,
              "max_position_embeddings": 32, "vocab_size": 60, "rms_norm_eps": 1e-05,
              "rope_theta": 10000.0, "hidden_act": "silu", "initializer_range": 0.02,
              "tie_word_embeddings": False},
    # Attention to both sides, with a window and without.
    "encoder": ROOT / "test" / "Proof" / "both-sides.mlir",
    "sinks": ROOT / "test" / "Execute" / "models" / "sinks.mlir",
}

# What an edit may change: the reason by the beginnings of places. Each is of a
# decision, after which the plan is another and is proven, or of what nothing reads
# after some phase.
ACCEPTED = {
    r"(any op|func\.func) plait\.origin": "a name in messages and profiles",
    r"dist\.mesh sym_name|pipe\.schedule sym_name|plan\.program sym_name|"
    r"func\.func sym_name": "a name that nothing goes by",
    r"pipe\.schedule kind": "a name for reports",
    r"func\.func plan\.slot_names.*": "names for messages",
    r"builtin\.module plait\.cluster.*": "read by phase shard; before it a decision",
    r"builtin\.module plait\.target.*": "read by phase lower; before it a decision",
    r"builtin\.module plait\.configuration.*":
        "read by the phase that docs/Phases.md names; before it a decision",
    r"builtin\.module plait\.phase.*": "what is left out is at its default",
    r"any op nn\.(layer|backward)": "where stages and recomputation cut",
    r"nn\.embedding limit": "of rows that no id names",
    r"nn\.matmul spec": "other letters for the same product",
    r"plan\.buffer (first|last|bytes)": "room and time that are not used",
    r"plan\.program (bytes|host_bytes)": "room that is not used",
    r"plan\.buffer category": "whose memory it is, in reports",
    r"dist\.mesh sizes": "a decision before phase shard",
    r"dist\.\w+ rounds": "a default that is spelt out",
    r"dist\.all_reduce members": "all ranks, listed or not",
    r"dist\.all_reduce ordered": "for equal ones that merging would drop",
    r"(nn\.(pack|accumulator)|plan\.buffer) sym_name": "a name that is changed everywhere",
    r"nn\.embedding_grad limit": "a default that is spelt out",
    r"nn\.attention(_grad)? begin": "without a mask positions do not matter",
    r"nn\.reduce kind": "the plan is told as not proven",
    r"builtin\.module plait\.model\.(layers|vocab)":
        "recounted from the model where it is left out",
    r"builtin\.module pipe\.placement.*":
        "one stage a rank is the same placement under each name",
    r"any op plan\.places": "a place of what is computed nowhere",
    r"any op plan\.places\[\]|plan\.buffer offset": "room that nothing else uses meanwhile",
    r"func\.func plan\.slot_bytes": "room that is not used",
    r"nn\.pack type": "phase lower has placed its buffers",
    r"(plan\.cluster |any op plan\.)accumulate":
        "adding is replacing in a function that runs once a step",
}

# What may become of an edit. Of those that are refused, who does it.
KINDS = {"proof": "refused", "record": "refused", "verifier": "refused",
         "checker": "refused", "unproven": "not proven", "same": "no effect",
         "another": "another plan"}
TOLD = {"proof": "the proof refused", "record": "the record of what phases have read",
        "verifier": "verifiers and parsers", "checker": "the plan checker",
        "unproven": "are told as not proven", "same": "had no effect",
        "another": "gave another plan that is proven"}

# What a plan says of the model, of its parameters and of the arithmetic.
CARRIED = ("model_type", "model_name", "vocab_size", "sequence", "global_batch",
           "config", "model_flops", "optimizer", "precision", "reduce_precision",
           "compress", "outer", "parameters")


@dataclasses.dataclass(frozen=True)
class Outcome:
    kind: str  # "proof", "record", "verifier", "checker"; "unproven", "same", "another"
    told: str = ""

    @property
    def is_refused(self):
        return KINDS.get(self.kind) == "refused"


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True,
                          text=True, timeout=120, check=False)


def must(*command):
    done = run(*command)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done


def read_plan(path):
    """The plan as JSON, without its code."""
    payload = path.with_suffix(".payload")
    payload.write_bytes(path.read_bytes()[64:])
    must("flatc", "--json", "--raw-binary", "--strict-json", "--defaults-json", "-o",
         path.parent, ROOT / "lib/Plan/Plan.fbs", "--", payload)
    plan = json.loads(path.with_suffix(".json").read_text())
    plan.pop("code", None)
    return plan


class Subject:
    """A plan, and the IR that it is made of, phase by phase."""

    def __init__(self, name, out):
        self.name, self.out = name, out / name
        self.out.mkdir(parents=True, exist_ok=True)
        model, *options = PLANS[name]
        must("plaitc", self.write_model(model), *SMALL, *options, "--dump-phases-to",
             self.out, "-o", self.out / "direct.plan")
        self.plan = (self.out / "direct.plan").read_bytes()
        self.claim = self.out / "0-import.mlir"
        self.text, self.edits = {}, {}
        for number, phase in enumerate(PHASES):
            generic = self.out / f"{phase}.mlir"
            must("plait-opt", "--mlir-print-op-generic",
                 self.out / f"{number}-{phase}.mlir", "-o", generic)
            self.text[phase] = generic.read_text()
            self.edits[phase] = attributes.find_edits(self.text[phase])
        self.carried = read_plan(self.out / "direct.plan")

    def write_model(self, name):
        """A folder, or a file of IR."""
        if isinstance(MODELS[name], pathlib.Path):
            return MODELS[name]
        folder = self.out / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(MODELS[name]))
        return folder

    def try_edit(self, number, phase, edit):
        """What becomes of it; a message where it is none of what it may be."""
        source = self.out / f"edit-{number}.mlir"
        plan = source.with_suffix(".plan")
        plan.unlink(missing_ok=True)
        source.write_text(edit.apply(self.text[phase]))
        done = run("plaitc", source, "--claim", self.claim, "--no-reference", "-o", plan)
        try:
            return self.judge(done, plan, phase, edit)
        finally:
            for path in self.out.glob(f"edit-{number}.*"):
                path.unlink()

    def judge(self, done, plan, phase, edit):
        what = f"{self.name} after {phase}: {edit.place}, {edit.label}"
        told = next((line for line in done.stderr.splitlines() if "error:" in line), "")
        told = re.sub(r"\S*edit-\d+\.mlir:\d+:\d+: ", "", told.removeprefix("plaitc: "))
        if done.returncode:
            if done.returncode != 1 or not told or plan.exists():
                return Outcome("none", f"{what}: ends with {done.returncode}, "
                               f"{done.stderr[-400:]}")
            kind = ("proof" if "computes something else" in told else
                    "record" if "has read" in told else
                    "checker" if re.search(r"error: program \d", told) else "verifier")
            return Outcome(kind, told)
        if "not proven" in done.stderr or "cannot be proven" in done.stderr:
            return Outcome("unproven", done.stderr)
        if plan.read_bytes() == self.plan:
            return Outcome("same")
        now = read_plan(plan)
        for field in CARRIED:
            if now.get(field) != self.carried.get(field):
                return Outcome("none", f"{what}: accepted, with another {field}: "
                               f"{str(now.get(field))[:200]}")
        return Outcome("another", ", ".join(sorted(
            field for field in {*now, *self.carried} - {"certificate"}
            if now.get(field) != self.carried.get(field))))


# ===----------------------------------------------------------------------===#
# What became of all edits
# ===----------------------------------------------------------------------===#


def find_reason(name, reasons):
    return next((reason for pattern, reason in reasons.items()
                 if re.fullmatch(pattern, name)), "")


@dataclasses.dataclass
class Row:
    """Of one attribute: the phases that leave it, and the edits by outcome."""
    phases: set = dataclasses.field(default_factory=set)
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def show_phases(self):
        first, *_, last = sorted(self.phases, key=PHASES.index) * 2
        return first if first == last else f"{first} … {last}"

    def show(self, place):
        kinds = [kind for kind in KINDS if self.counts[kind]]
        refused = ", ".join(kind for kind in kinds if KINDS[kind] == "refused")
        accepted = ", ".join(KINDS[kind] for kind in kinds if KINDS[kind] != "refused")
        reason = find_reason(place, ACCEPTED) if accepted else ""
        return (f"| `{place}` | {self.show_phases()} | {refused} | "
                f"{accepted}{': ' * bool(reason)}{reason} |")


def judge_all(jobs, number, log):
    """Rows by place, and what is wrong with the outcomes."""
    rows, problems = collections.defaultdict(Row), []
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        outcomes = pool.map(lambda job: job[1][0].try_edit(job[0], *job[1][1:]),
                            enumerate(jobs))
        for (subject, phase, edit), outcome in zip(jobs, outcomes):
            rows[edit.place].counts[outcome.kind] += 1
            what = f"{subject.name} after {phase}: {edit.place}, {edit.label}"
            if outcome.kind == "none":
                problems.append(f"{what}: {outcome.told}")
            elif not outcome.is_refused and not find_reason(edit.place, ACCEPTED):
                problems.append(f"{what}: accepted ({outcome.kind} {outcome.told}), "
                                "and ACCEPTED has no reason")
            if log:
                print(what, subject.text[phase][edit.start:edit.end][:60],
                      edit.text[:60], outcome.kind,
                      outcome.told[:300].replace("\n", " | "), sep="\t", file=log,
                      flush=True)
    return rows, problems


def find_places(subjects):
    """The phases behind which there is each attribute."""
    found = collections.defaultdict(set)
    for subject in subjects:
        for phase, edits in subject.edits.items():
            for place, _ in edits:
                found[place].add(phase)
    return found


def read_page():
    """The outcomes that it has, by attribute and by field."""
    text = PAGE.read_text()
    return {name: cells for name, cells in
            re.findall(r"^\| `([^`]+)` \|(.*) \|$", text, re.MULTILINE)}


def compare_page(rows, places):
    """What the page does not say, or says of what there is not."""
    page = read_page()
    known = {name for name in page if " " in name}
    problems = [f"docs/Guards.md has no {place}" for place in sorted({*places} - known)]
    problems += [f"docs/Guards.md has {place}, which there is not"
                 for place in sorted(known - {*places})]
    for place, row in rows.items():
        for kind in row.counts:
            word = kind if KINDS.get(kind) == "refused" else KINDS.get(kind)
            if word and word not in page.get(place, ""):
                problems.append(f"docs/Guards.md has no {word} for {place}")
    return problems


def write_page(path, rows, places, fields):
    """Rows of attributes that this run did not edit (--only) stay as they are."""
    text = path.read_text() if path.exists() else ""
    head, *_ = text.partition("<!-- generated -->")
    kept = {place: line for line, place in
            re.findall(r"^(\| `([^`]+)` \|.*)$", text, re.MULTILINE)}
    lines = [head + "<!-- generated -->", "", "## Attributes of the IR", "",
             "| attribute | after | refused by | accepted |", "|---|---|---|---|"]
    for place in sorted(places):
        rows[place].phases = places[place]
        lines.append(rows[place].show(place) if rows[place].counts
                     else kept.get(place, rows[place].show(place)))
    total = sum((row.counts for row in rows.values()), collections.Counter())
    summary = (f"Of {total.total()} edits of {len(places)} attributes "
               + ", ".join(f"{total[kind]} {told}" for kind, told in TOLD.items()) + ".")
    if not all(rows[place].counts for place in places):
        summary = "\n".join(re.findall(r"^Of \d+ edits .*$", text, re.MULTILINE))
    lines += ["", summary, "", "## Fields of a plan", "",
              "| field | refused without a certificate | accepted |", "|---|---|---|",
              *fields, ""]
    path.write_text("\n".join(lines))


def draw(subjects, given):
    """Of each attribute and way to edit it one place; without --all few of these."""
    drawn = random.Random(given.seed)
    jobs = []
    for subject in subjects:
        for phase in PHASES:
            edits = [drawn.choice(group)
                     for (place, label), group in subject.edits[phase].items()
                     if re.search(given.only, place)]
            if not given.all:
                edits = drawn.sample(edits, min(given.draws, len(edits)))
            jobs += [(subject, phase, edit) for edit in edits]
    return jobs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--draws", type=int, default=3, help="of each plan and phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="attributes, a regular expression")
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--log", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    given = parser.parse_args()
    if given.bin:
        os.environ["PATH"] = f"{given.bin.resolve()}:{os.environ['PATH']}"
    given.out.mkdir(parents=True, exist_ok=True)
    subjects = [Subject(name, given.out) for name in PLANS]
    places = find_places(subjects)
    jobs = draw(subjects, given)
    log = given.log.open("w") if given.log else None
    rows, problems = judge_all(jobs, given.jobs, log)
    table, count, more = fields.judge([subject.out for subject in subjects], given)
    problems += more
    if given.page:
        write_page(given.page, rows, places, table)
    else:
        problems += compare_page(rows, places)
        problems += fields.compare(table, read_page())
    total = sum((row.counts for row in rows.values()), collections.Counter())
    print(", ".join(f"{total[kind]} {told}" for kind, told in TOLD.items()))
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(places)} attributes, {len(jobs)} edits; {count} fields: guarded")


if __name__ == "__main__":
    main()
