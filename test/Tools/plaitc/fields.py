# ===- fields.py - What guards each field of a plan's file ------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Edits fields of plan files by way of flatc, which writes them as JSON and packs
that again, and asks `plait-plan check`."""

import collections
import copy
import ctypes
import json
import pathlib
import random
import re
import struct
import subprocess
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "lib" / "Plan" / "Plan.fbs"
CHECKER = "plait-plan"  # or where it is, if it is not on the path
FLATC = ["flatc", "--raw-binary", "--strict-json", "--defaults-json"]


def read_schema():
    """Of each table its fields with their types, of each enumeration its words, and
    the fields, as `Table.field`, that a file must have to be read."""
    text = re.sub(r"//.*", "", SCHEMA.read_text())
    tables, required = {}, set()
    for name, body in re.findall(r"(?:table|struct) (\w+) \{(.*?)\}", text, re.DOTALL):
        rows = re.findall(
            r"(\w+)\s*:\s*([\[\]\w ]+?)\s*(=[^;()]*|\([^;]*\))?\s*;", body)
        tables[name] = {field: kind.strip() for field, kind, rest in rows
                        if "deprecated" not in rest}
        required |= {f"{name}.{field}" for field, _, rest in rows if "required" in rest}
    enumerations = {name: re.findall(r"(\w+)\s*=", body) for name, body in re.findall(
        r"enum (\w+) : \w+ \{(.*?)\}", text, re.DOTALL)}
    return tables, enumerations, required


TABLES, ENUMERATIONS, REQUIRED = read_schema()


def write_plan(plan, path):
    """The file of a plan that is JSON: packed, behind the header. That has the level
    which the plan needs, as an edit may change it."""
    write_packed(plan, path, 0)
    if found := re.search(r"what it has needs level (\d+)", run_check(path).stderr):
        write_packed(plan, path, int(found[1]))


def write_packed(plan, path, level):
    folder = path.parent
    source = path.with_suffix(".json")
    source.write_text(json.dumps(plan))
    subprocess.run([*FLATC, "--binary", "-o", folder, SCHEMA, source], check=True,
                   capture_output=True)
    payload = path.with_suffix(".bin").read_bytes()
    hashes = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    hashes.restype, hashes.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    path.write_bytes(struct.pack("<8sIIQQ32x", b"PLAITPLN", 2, level, len(payload),
                                 hashes(payload, len(payload))) + payload)


def find_places(value, table="Plan", way=()):
    """Each field that there is: `Table.field`, and the way to it."""
    for field, kind in TABLES[table].items():
        if field not in value:
            continue
        inner, here = kind.strip("[]"), (*way, field)
        yield f"{table}.{field}", here
        if inner == "StepKind":
            inner = value[f"{field}_type"]
        if inner not in TABLES:
            continue
        elements = (enumerate(value[field]) if kind.startswith("[")
                    else [(None, value[field])])
        for index, element in elements:
            yield from find_places(element, inner,
                                   here if index is None else (*here, index))


def change(value, kind, field):
    """Other values of a field: each of them, or None to leave it out."""
    if kind.startswith("["):
        if not value:
            return [None]
        inner = kind.strip("[]")
        changed = change(value[0], inner, field)[0] if inner not in TABLES else None
        return [value[:-1]] + ([[changed, *value[1:]]] if changed is not None else [])
    if kind in ENUMERATIONS:
        words = ENUMERATIONS[kind]
        return [word for word in words if word != value][:2]
    if kind == "bool":
        return [not value]
    if kind == "string":
        digit = re.search(r"[1-9]", value)
        return [value + "x"] if not digit else [
            value[:digit.start()] + str(int(digit.group()) % 9 + 1)
            + value[digit.end():]]
    if kind in ("float", "double"):
        return [value * 1.5 + (value == 0)]
    if kind in TABLES or kind == "StepKind":
        return [None]
    # A hash has all 64 bits, and its double has one more.
    return [value + 1, (value * 2 + 64) % 2**63] + [value - 1] * (value > 0)


def find_edits(plan):
    """By field the edits of all its places: the way, and what stands there then."""
    edits = collections.defaultdict(list)
    for name, way in find_places(plan):
        table, field = name.split(".")
        value = plan
        for part in way:
            value = value[part]
        edits[name] += [(way, other) for other in change(value, TABLES[table][field], field)
                        if other is not None or name not in REQUIRED]
    return edits


def apply(plan, way, value):
    edited = copy.deepcopy(plan)
    holder = edited
    for part in way[:-1]:
        holder = holder[part]
    if value is None:
        del holder[way[-1]]
        holder.pop(f"{way[-1]}_type", None)
    else:
        holder[way[-1]] = value
    return edited


def run_check(path):
    return subprocess.run([CHECKER, "check", path], capture_output=True, text=True,
                          timeout=60, check=False)


def check(path):
    """What `plait-plan check` says of a file; empty: ok."""
    done = run_check(path)
    if done.returncode not in (0, 1) or (done.returncode == 1) != bool(done.stderr):
        raise RuntimeError(f"{path}: ends with {done.returncode}: {done.stderr}")
    return done.stderr


# What a plan without a certificate may say. The checker proves of such a plan that it
# ends and stays within its memory. What is computed it cannot know: who drops the
# certificate is trusted like whoever compiles. The first that matches counts.
COMPUTED = "what is computed: the certificate's"
TRUSTED = {
    r"Plan\.deterministic": "how libraries are asked to add",
    r"KernelStep\.(traffic|flops|grain)|Cluster\..*|Plan\.(cluster|model_flops|"
    r"device_reserve)|Kernel\.(block_threads|indices_per_block)":
        "for predictions, and how kernels are launched",
    r"(Parameter|Function|Region|StateSlot|MeshAxis)\.name|Parameter\.(file|saved)_.*|"
    r"Function\.slots|Step\.location|Plan\.(model_type|model_name|config|locations)":
        "a name in files and messages",
    r"Parameter\.rate": "a rate as reports name it; kernels have it",
    r"Plan\.(schedule|recompute|zero|optimizer|offload|precision|reduce_precision|"
    r"context_parallel|compress|sequence_parallel)|Parameter\.optimizer":
        "a choice as reports name it",
    r"Program\.(arena_bytes|host_bytes|regions|library_workspace.*)|Region\..*|"
    r"Function\.(workspace_bytes|slot_bytes)|KernelStep\.arg_bytes":
        "room that is not used, or which nothing else needs then",
    r"Plan\.(vocab_size|mesh|code|kernels|data|options|parameters|programs|"
    r"named_losses|outer|lists|float_inputs)|"
    r"(OuterRule|OuterStep|ActionList|OptimizerOption|FloatInput)\..*|"
    r"Parameter\.(init.*|frozen|box_.*|shape)":
        COMPUTED,
    r"(Kernel|KernelStep|GemmStep|GroupedGemmStep|CollectiveStep|CopyStep|FillStep|"
    r"AttentionStep|AttentionDropout|RankScalar|Ref|CodeObject|Constant|Data|Input|"
    r"Division|DimSharding|Action|Step|Function|Shard|StateSlot|Program|Certificate)"
    r"\..*": COMPUTED,
}
# Where each field of the schema has its reader.
READERS = [path for folder in ("include", "lib", "tools")
           for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".h")]


def find_unread():
    """The fields of the schema that no source reads."""
    text = "\n".join(path.read_text() for path in READERS)
    return sorted({f"{table}.{field}" for table, kinds in TABLES.items()
                   for field in kinds
                   if not re.search(rf"(->|\.|::){field}\b", text)})


def read(path):
    """A plan's file as JSON."""
    payload = path.with_suffix(".payload")
    payload.write_bytes(path.read_bytes()[64:])
    subprocess.run([*FLATC, "--json", "-o", path.parent, SCHEMA, "--", payload],
                   check=True, capture_output=True)
    return json.loads(path.with_suffix(".json").read_text())


def find_reason(name):
    return next((reason for pattern, reason in TRUSTED.items()
                 if re.fullmatch(pattern, name)), "")


def judge(folders, given):
    """Rows of the page, how many fields there are, and problems."""
    drawn = random.Random(given.seed)
    told, edited, problems = collections.defaultdict(set), set(), []
    for folder in folders:
        plan = read(folder / "direct.plan")
        bare = {key: value for key, value in plan.items() if key != "certificate"}
        target = folder / "field.plan"
        for name, edits in find_edits(plan).items():
            if name == "Plan.certificate":
                continue  # who takes it out is trusted
            edited.add(name)
            if not given.all and drawn.random() > 0.1:
                continue
            ways = {}
            for way, other in edits:
                ways.setdefault(repr(other)[:20], (way, other))
            for way, other in list(ways.values())[:3]:
                problems += try_field(name, plan, bare, way, other, target, told)
    table = [f"| `{name}` | {'; '.join(sorted(told[name] - {''}))} | "
             f"{find_reason(name) if '' in told[name] else ''} |"
             for name in sorted(edited)]
    problems += [f"{name} is a field that nothing reads" for name in find_unread()]
    return table, len(edited), problems


def try_field(name, plan, bare, way, other, target, told):
    """One edit, with the certificate and without."""
    if not name.startswith("Certificate."):
        tell(apply(bare, way, other), target, name, told)
        if "" in told[name] and not find_reason(name):
            return [f"{name} as {other!r}: accepted, and TRUSTED has no reason"]
    write_plan(apply(plan, way, other), target)
    said = check(target)
    if not said:
        return [f"{name} as {other!r}: accepted under the certificate"]
    return []


def tell(plan, target, name, told):
    """Notes the words of the checker, without numbers and names."""
    write_plan(plan, target)
    said = check(target)
    said = re.sub(r"^.*? is unsound: ", "", said.strip())
    said = re.sub(r"'[^']*'", "'…'", re.sub(r"\d+", "…", said))
    told[name].add(textwrap.shorten(said, 90, placeholder=" …"))


def compare(table, page):
    names = [row.split("`")[1] for row in table]
    known = {name for name in page if re.fullmatch(r"[A-Z]\w*\.\w+", name)}
    return [f"docs/Guards.md has no {name}" for name in names if name not in known] + [
        f"docs/Guards.md has {name}, which no plan has" for name in known - {*names}]
