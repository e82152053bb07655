# ===- lint.py - What GPUs would be slow at in a plan -------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Assembles the PTX of a CUDA plan, disassembles it with `nvdisasm`, and prints
a table of the kernels that move the most bytes in a training step. Fails where
one of them, or another that moves 100 MB in a call, spills, divides in a loop,
accesses global memory in other units than 16 bytes, or has too few loads in
flight; and where an operand of a matmul in bf16 begins, or its rows lie, at no
multiple of 16 bytes. Needs ptxas, nvdisasm and flatc; no GPU.

  lint.py [--arch sm_90] [--top 10] PLAN|PTX

What is said of a kernel is the worst of its innermost loops that access global
memory; of a kernel without one, of all its code."""

import argparse
import collections
import dataclasses
import glob
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import ptxas

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The plan's tables follow a header of so many bytes (plait/Plan/Container.h).
HEADER_BYTES = 64
# Of the bytes of a loop. The rest are numbers that all threads of a warp share,
# such as a row's mean or the learning rate, which one access serves, and the
# copy in bf16 beside four numbers in f32.
LEAST_WIDE = 0.66
# Little's law: 3.35 TB/s and a latency of 400 cycles at 1.755 GHz (H100, table 3 of
# doi:10.1016/j.ultsonch.2023.106546) are 5.8 KB for each of 132 multiprocessors;
# twice that, since a busy memory takes longer than an idle one.
LEAST_IN_FLIGHT = 11600
MOST_THREADS, MOST_BLOCKS = 2048, 32
# Of a call: what takes an H100 30 us.
HEAVY_BYTES = 100e6


@dataclasses.dataclass
class Loop:
    """A loop's instructions, or those of a kernel that has none."""

    code: list[str]
    repeats: bool

    def accesses(self) -> list[tuple[str, int]]:
        found = []
        for line in self.code:
            match = re.search(r"\b(LDG|STG)\.E(?:\.\w+)*", line)
            if match:
                width = re.search(r"\.(64|128|U16|S16|U8|S8)\b", match.group(0))
                name = width.group(1) if width else "32"
                bits = int(re.sub(r"\D", "", name))
                found.append((match.group(1), bits // 8))
        return found

    def loads(self) -> bool:
        return any(kind == "LDG" for kind, _ in self.accesses())

    def wide(self) -> float:
        """The share of bytes that are accessed 16 at a time."""
        sizes = [size for _, size in self.accesses()]
        return sum(size for size in sizes if size == 16) / sum(sizes)

    def divisions(self) -> int:
        if not self.repeats:
            return 0
        return sum(
            bool(re.search(r"MUFU\.(RCP|RSQ|SQRT)|CALL", line))
            for line in self.code
        )

    def loads_in_flight(self) -> int:
        """The most loads of 16 bytes that a thread waits for at once. A load is
        over where its registers are named next; a loop is walked twice, since
        what one iteration loads may be for the next."""
        waiting, most = [], 0
        for line in self.code * (1 + self.repeats):
            named = {int(number) for number in re.findall(r"\bR(\d+)\b", line)}
            waiting = [registers for registers in waiting if not registers & named]
            if match := re.search(r"LDG\.E(?:\.\w+)*\.128(?:\.\w+)* R(\d+)", line):
                first = int(match.group(1))
                waiting.append(set(range(first, first + 4)))
            most = max(most, len(waiting))
        return most


def find_disassembler() -> str:
    wheel = ROOT / "build/venv/lib/*/site-packages/nvidia/*/bin/nvdisasm"
    found = (
        shutil.which("nvdisasm")
        or shutil.which("nvdisasm", path="/usr/local/cuda/bin")
        or next(iter(sorted(glob.glob(str(wheel)))), None)
    )
    if not found:
        sys.exit("lint.py: no nvdisasm on the path or in build/venv")
    return found


def disassemble(ptx: str, arch: str) -> dict[str, list[Loop]]:
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = (pathlib.Path(folder, n) for n in ("k.ptx", "k.cubin"))
        source.write_text(ptx)
        assembler = [ptxas.find_assembler(), "-arch", arch, "-o", cubin, source]
        subprocess.run(assembler, check=True)
        text = subprocess.run(
            [find_disassembler(), "-c", cubin],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    parts = re.split(r"//-+ \.text\.(\w+) +-+", text)
    return {name: find_loops(code) for name, code in zip(parts[1::2], parts[2::2])}


def find_loops(text: str) -> list[Loop]:
    """The innermost loops that access global memory, or else all there is. A
    loop is what lies between a label and a jump back to it."""
    labels, code = {}, []
    for line in text.splitlines():
        if match := re.match(r"(\.?[\w$]+):$", line):
            labels[match.group(1)] = len(code)
        elif match := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+([^;]*)", line):
            code.append(match.group(1).strip())
    spans = []
    for last, line in enumerate(code):
        if match := re.search(r"\bBRA\b.*`\((\S+)\)", line):
            first = labels.get(match.group(1), last)
            if first < last:
                spans.append((first, last + 1))
    loops = [(span, Loop(code[span[0] : span[1]], True)) for span in spans]
    loops = [(span, loop) for span, loop in loops if loop.accesses()]
    inner = [
        loop
        for (first, last), loop in loops
        if not any(
            first <= other[0] and other[1] <= last and other != (first, last)
            for other, _ in loops
        )
    ]
    return inner or [Loop(code, False)]


@dataclasses.dataclass
class Use:
    """What a training step does with a kernel."""

    calls: int = 0
    bytes: int = 0
    location: str = ""

    def note(self) -> str:
        return f" ({self.location})" if self.location else ""


def read_plan(path: pathlib.Path) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        tables = pathlib.Path(folder, "plan.bin")
        tables.write_bytes(path.read_bytes()[HEADER_BYTES:])
        words = ["flatc", "--raw-binary", "-t", "--strict-json", "-o", folder]
        schema = ROOT / "lib/Plan/Plan.fbs"
        subprocess.run([*words, schema, "--", tables], check=True)
        return json.loads(pathlib.Path(folder, "plan.json").read_text())


def list_calls(plan: dict, kind: str):
    """Each step of a kind, with the call that it is part of and its location."""
    for program in plan["programs"]:
        for action in program["actions"]:
            function = program["functions"][action.get("function", 0)]
            for step in function.get("steps", []):
                if step["step_type"] == kind:
                    location = plan["locations"][step.get("location", 0)]
                    yield action, step["step"], location.split(" ")[0]


def count_uses(plan: dict) -> dict[str, Use]:
    """Of the kernels, by all programs together."""
    uses = collections.defaultdict(Use)
    for _, step, location in list_calls(plan, "KernelStep"):
        use = uses[plan["kernels"][step.get("kernel", 0)]["symbol"]]
        use.calls += 1
        use.bytes += step["traffic"]
        use.location = use.location or location
    return uses


def find_misaligned(plan: dict) -> list[str]:
    """Operands of matmuls in bf16 that no kernel of 16 bytes can read."""
    faults = {}
    for action, step, location in list_calls(plan, "GemmStep"):
        if step.get("dtype") != "BF16":
            continue
        for name in "abc":
            size = 2 if name != "c" or step.get("c_dtype") == "BF16" else 4
            place = step[name].get("offset", 0)
            slot = step[name].get("slot", -1)
            if slot >= 0:
                place += action["bindings"][slot]
            pitch = max(step.get(f"{name}_row", 1), step.get(f"{name}_col", 1))
            if place % 16 or pitch * size % 16:
                text = f"{location}: operand {name} lies at {place}, its rows "
                faults[location, name] = text + f"{pitch * size} bytes apart"
    return list(faults.values())


def resident_threads(kernel: ptxas.Kernel) -> int:
    """Of a multiprocessor. Registers are given out to warps, 256 at a time."""
    warps = kernel.threads // 32
    per_warp = -(-kernel.registers * 32 // 256) * 256
    blocks = ptxas.REGISTERS // (per_warp * warps)
    return kernel.threads * min(blocks, MOST_THREADS // kernel.threads, MOST_BLOCKS)


@dataclasses.dataclass
class Row:
    """What is said of a kernel: the worst of its loops."""

    symbol: str
    use: Use
    kernel: ptxas.Kernel
    loops: list[Loop]

    @property
    def wide(self) -> float:
        return min(loop.wide() for loop in self.loops)

    @property
    def divisions(self) -> int:
        return sum(loop.divisions() for loop in self.loops)

    @property
    def loads(self) -> int:
        """In flight; -1 where no loop loads, as where zeros are written."""
        counts = [loop.loads_in_flight() for loop in self.loops if loop.loads()]
        return min(counts, default=-1)

    @property
    def in_flight(self) -> int:
        return 16 * self.loads * resident_threads(self.kernel)

    def print(self) -> None:
        kernel, use = self.kernel, self.use
        repeated = sum(loop.repeats for loop in self.loops)
        print(
            f"| {use.location} | {use.calls} | {use.bytes / 1e9:.1f} "
            f"| {kernel.registers} | {kernel.spills} | {repeated} "
            f"| {100 * self.wide:.0f} % | {self.divisions} | {self.loads} "
            f"| {self.in_flight / 1000:.0f} |"
        )

    def find_faults(self) -> list[str]:
        faults = []
        if self.kernel.spills or self.kernel.local:
            faults.append(f"spills {self.kernel.spills} bytes")
        if self.wide < LEAST_WIDE:
            faults.append(f"accesses {100 * self.wide:.0f} % of bytes by 16")
        if self.divisions:
            faults.append(f"divides {self.divisions} times in a loop")
        if self.loads >= 0 and self.in_flight < LEAST_IN_FLIGHT:
            faults.append(f"has {self.in_flight} bytes of loads in flight")
        return [f"{self.symbol}{self.use.note()} {f}" for f in faults]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", help="default: what the plan is for")
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("path", type=pathlib.Path, help="a plan, or PTX")
    options = parser.parse_args()
    if options.path.suffix == ".ptx":
        ptx, faults = options.path.read_text(), []
        uses = {name: Use() for name in ptxas.list_kernels(ptx)}
    else:
        ptx, plan = ptxas.find_ptx(options.path)[0], read_plan(options.path)
        uses, faults = count_uses(plan), find_misaligned(plan)
    arch = options.arch or re.search(r"^\.target (\w+)", ptx, re.M).group(1)
    kernels, loops = ptxas.assemble(ptx, arch), disassemble(ptx, arch)
    order = sorted(uses.items(), key=lambda use: -use[1].bytes)
    rows = [Row(name, use, kernels[name], loops[name]) for name, use in order]
    print(
        "| first used in | calls | GB | registers | spills | loops | by 16 bytes "
        "| divisions | loads in flight | KB in flight |"
    )
    print("|---|" + "--:|" * 9)
    for number, row in enumerate(rows):
        if number < options.top:
            row.print()
        if number < options.top or row.use.bytes >= HEAVY_BYTES * row.use.calls:
            faults += row.find_faults()
    return ptxas.finish(faults)


if __name__ == "__main__":
    sys.exit(main())
