#===- reference.py - Descriptions in the .td files --------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Every op and attribute has a summary and a description, every op has an
example, and the examples parse and verify. Passes: passes.py."""

import json
import pathlib
import re
import subprocess
import tempfile
import textwrap

from harness import ROOT, Reporter, Tools, require

LLVM = pathlib.Path("/usr/lib/llvm-22")
INCLUDE = ROOT / "include"

# What examples may refer to without saying so.
PRELUDE = (
    'dist.mesh @mesh ["pp", "dp", "tp"] = [2, 2, 2]',
    "nn.parameter @w : tensor<4x6xf32> init<mean = 0.0, std = 0.02>",
    "nn.parameter @b : tensor<6xf32> init<mean = 0.0, std = 0.0>",
    "nn.accumulator @loss_sum : tensor<f32>",
)
ALIASES = """
#partial = #dist.sharding<@mesh, [{}, {}], partial = {"tp"}>
#replicated = #dist.sharding<@mesh, [{}, {}]>
"""
# Attributes that ops print without their name, by an op that does.
NAMELESS = {"#nn.slot": "nn.read"}
PROGRAM = "plan.program @example rank 0 bytes 128"


def read_records(path: pathlib.Path) -> dict:
    """All records of a .td file, by name."""
    done = subprocess.run(
        [
            str(LLVM / "bin" / "llvm-tblgen"),
            *("--dump-json", "-I", str(LLVM / "include"), "-I", str(INCLUDE)),
            str(path),
        ],
        capture_output=True,
        text=True,
    )
    require(done.returncode == 0, f"llvm-tblgen {path}:\n{done.stderr}")
    return json.loads(done.stdout)


def instances(records: dict, kind: str) -> list[dict]:
    """The project's own records of one class, in the order of their names."""
    own = {path.name for path in INCLUDE.rglob("*.td")}
    found = [records[name] for name in records["!instanceof"].get(kind, [])]
    return [x for x in found if x["!locs"][-1].split(":")[0] in own]


def find_examples(description: str) -> list[str]:
    """The code after the word "Example": fenced, or between backticks."""
    _, found, rest = description.partition("Example:")
    if not found:
        return []
    fenced = re.findall(r"```mlir\n(.*?)```", rest, re.DOTALL)
    inline = re.findall(r"(?<!`)`([^`]+)`(?!`)", rest)
    return [textwrap.dedent(x).strip("\n") for x in fenced or inline]


def split_types(text: str) -> list[str]:
    """Cuts "A, B" at the commas outside of brackets."""
    types, depth = [""], 0
    for letter in text:
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and depth == 0:
            types.append("")
        else:
            types[-1] += letter
    return [x.strip() for x in types if x.strip()]


def operand_types(example: str) -> dict[str, str]:
    """The operands of an example's ops, up to the first region, that no op before
    makes."""
    found, made = {}, set()
    for line in example.split("\n"):
        found |= {k: v for k, v in types_of_line(line).items() if k not in made}
        made |= set(re.findall(r"%\w+", line.partition("=")[0]))
        if line.endswith("{"):
            break
    return found


def types_of_line(line: str) -> dict[str, str]:
    """The operands of a line's op, with the types that its signature gives them:
    "(A, B) -> C", "A -> C", or one type for all."""
    line = line.removesuffix("{")
    use, _, signature = line.rpartition(" : ")
    names = re.findall(r"%\w+", use.partition("=")[2] if "=" in use else use)
    types = split_types(signature.split("->")[0].strip().strip("()"))
    if len(types) == 1:
        types *= len(names)
    require(len(types) == len(names), f"cannot tell the types of: {line}")
    return dict(zip(names, types))


def wrap(example: str) -> str:
    """A module around an example, with what it refers to."""
    op = example.split()[0]
    prelude = [text for text in PRELUDE if text.split()[0] != op]
    if example.startswith("#"):
        body = f'"test.attribute"() {{value = {example}}} : () -> ()'
    elif op == "plan.buffer":
        action = 'plan.action send stage 0 microbatch 0 peer 1 tensor 0 [@x]'
        body = f"{PROGRAM} {{\n{example}\n{action}\n{action}\n}}"
    elif op == "plan.action":
        buffer = "plan.buffer @y activations at 0 bytes 64 live [0, 0]"
        body = f"{PROGRAM} {{\n{buffer}\n{example}\n}}"
    elif "%" in example:
        sources = [
            f'{name} = "test.source"() : () -> {type}'
            for name, type in operand_types(example).items()
        ]
        lines = "\n".join([*sources, example])
        body = f"func.func @example() {{\n{lines}\nreturn\n}}"
    else:
        body = example
    return ALIASES + "module {\n" + "\n".join([*prelude, body]) + "\n}\n"


def check_described(record: dict) -> None:
    for field in ("summary", "description"):
        text = record.get(field)
        require(bool(text and text.strip()), f"has no {field}")
    # mlir-tblgen writes the first letter large, also of a name in a formula.
    first = record["summary"].strip().split()[0]
    require(not re.fullmatch(r"[a-z]\W?", first), f"summary begins with {first}")


def check_op(record: dict, tools: Tools, others: str, word: str) -> str:
    """An op that has no example of its own stands in another one's."""
    remark = check_examples(record, tools, word)
    if not find_examples(record["description"]):
        require(word in others, "has no example")
        return "in the example of another op"
    return remark


def check_examples(record: dict, tools: Tools, word: str) -> str:
    """All examples of a description parse and verify."""
    check_described(record)
    examples = find_examples(record["description"])
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "example.mlir"
        for example in examples:
            text = wrap(example)
            file.write_text(text)
            outcome = tools.call(
                "plait-opt", "--allow-unregistered-dialect", file
            )
            require(
                outcome.code == 0 and word in outcome.stdout,
                f"example does not parse\n{outcome.stderr.strip()}\n{text}",
            )
    return f"{len(examples)} examples" if len(examples) > 1 else ""


def check_dialect(report: Reporter, tools: Tools, path: pathlib.Path) -> None:
    records = read_records(path)
    ops = instances(records, "Op")
    attributes = instances(records, "AttrDef")
    require(bool(ops + attributes), f"{path} has no ops and no attributes")
    texts = [x["description"] for x in ops if x.get("description")]
    fenced = "\n".join("\n".join(find_examples(text)) for text in texts)
    for record in ops:
        dialect = records[record["opDialect"]["def"]]["name"]
        word = f"{dialect}.{record['opName']}"
        report.case(
            f"op/{word}",
            lambda r=record, w=word: check_op(r, tools, fenced, w),
        )
    enumerations = records["!instanceof"].get("EnumAttr", [])
    for record in attributes:
        if record["!name"] in enumerations:
            continue  # described by the enumeration
        dialect = records[record["dialect"]["def"]]["name"]
        word = f"#{dialect}.{record['mnemonic']}"
        shown = NAMELESS.get(word, word)
        report.case(
            f"attribute/{word}",
            lambda r=record, w=shown: check_examples(r, tools, w),
        )


def check_generated(folder: pathlib.Path) -> str:
    """scripts/docs.sh writes a page for every dialect, with all of its ops."""
    done = subprocess.run(
        [str(ROOT / "scripts" / "docs.sh"), str(folder)],
        capture_output=True,
        text=True,
    )
    require(done.returncode == 0, f"scripts/docs.sh:\n{done.stderr}")
    pages = {x.name: x.read_text() for x in folder.iterdir()}
    for word in ("nn.matmul", "dist.reshard", "pipe.schedule", "plan.program"):
        page = f"{word.split('.')[0]}.md"
        require(f"`{word}`" in pages.get(page, ""), f"{page} lacks {word}")
    for word, page in (
        ("### `-dist-partition`", "Passes.md"),
        ("%1 = dist.all_reduce", "Passes.md"),
        ("### `-plait-prove-meaning`", "ProofPasses.md"),
    ):
        require(word in pages.get(page, ""), f"{page} lacks {word}")
    # Readers of the repository have no build.
    kept = ROOT / "docs" / "reference" / "nn.md"
    require(
        kept.read_text() == pages["nn.md"],
        f"{kept} is out of date: scripts/docs.sh && cp build/docs/nn.md {kept}",
    )
    interfaces = pages.get("Interfaces.md", "")
    require("ShardableOpInterface" in interfaces, "Interfaces.md")
    return f"{len(pages)} pages"


def check(report: Reporter, tools: Tools) -> None:
    def generated():
        with tempfile.TemporaryDirectory() as folder:
            return check_generated(pathlib.Path(folder))

    report.case("generate", generated)
    dialects = INCLUDE / "plait" / "Dialect"
    for path in sorted(dialects.glob("*/IR/CMakeLists.txt")):
        root = re.search(r"LLVM_TARGET_DEFINITIONS (\S+)\)", path.read_text())
        check_dialect(report, tools, path.parent / root[1])
