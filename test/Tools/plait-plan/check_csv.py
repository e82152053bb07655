# ===- check_csv.py - Schedules as PyTorch reads and writes them -*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""check_csv.py GOLDEN: reads with plait-plan what PyTorch has written of its own
schedules, with and without communication, and compares what it writes with what
PyTorch wrote after reading it. See test/golden/README.md."""

import pathlib
import subprocess
import sys

NOT_WORK = ("SEND", "RECV", "UNSHARD", "RESHARD", "REDUCE_GRAD")


def export(*arguments) -> list[list[str]]:
    command = ["plait-plan", "schedule", *map(str, arguments), "--csv", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return [line.split(",") for line in done.stdout.splitlines()]


def read_work(path: pathlib.Path) -> list[list[str]]:
    """The work of a file, overlapped pairs one after the other."""
    text = path.read_text().replace(")OVERLAP_F_B", "")
    text = text.replace("(", "").replace(";", ",")
    return [
        [
            cell
            for cell in line.split(",")
            if cell and not any(word in cell for word in NOT_WORK)
        ]
        for line in text.splitlines()
    ]


def main() -> None:
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.csv"))
    for path in files:
        expected = read_work(path)
        if export("--file", path) != expected:
            sys.exit(f"{path.name}: read and written, it is another order")
        if path.name.startswith("plait-") and "comms" not in path.name:
            *kind, stages, chunks, microbatches = path.stem.split("-")[1:]
            ours = export(
                *("--kind", "-".join(kind), "--stages", stages),
                *("--chunks", chunks, "--microbatches", microbatches),
            )
            if ours != expected:
                sys.exit(f"{path.name}: PyTorch has read another order")
    print(f"{len(files)} files agree")


main()
