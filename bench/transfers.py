#!/usr/bin/env python3
# ===- transfers.py - Messages between processes -----------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""What messages between the processes of a CPU plan take, over MPI and over what
processes use that torchrun has started.

Processes of one host stand in a ring; each sends to the next and receives from the
one before (transfers.cpp). Launchers, and the folders of tools where several are
given, take turns; what is printed are medians of the rounds.

Standard library only."""

import argparse
import os
import pathlib
import socket
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def read(output: str) -> dict[int, float]:
    """Seconds, by bytes."""
    words = [line.split() for line in output.splitlines()]
    return {int(bytes): float(seconds) for bytes, seconds in words}


def over_mpi(program: pathlib.Path, count: int) -> dict[int, float]:
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(count)]
    done = subprocess.run(
        [*command, program], env=os.environ | allowed, capture_output=True, text=True,
        check=True, timeout=300,
    )
    return read(done.stdout)


def over_sockets(program: pathlib.Path, count: int) -> dict[int, float]:
    """What torchrun sets."""
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            [program], text=True, stdout=subprocess.PIPE,
            env=os.environ | shared | {"RANK": str(i), "LOCAL_RANK": str(i)},
        )
        for i in range(count)
    ]
    outputs = [x.communicate(timeout=300)[0] for x in processes]
    if any(x.returncode for x in processes):
        raise SystemExit(f"{program} has failed")
    return read(outputs[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, action="append",
                        help="a folder of tools; may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    folders = options.bin or [ROOT / "build" / "bin"]
    for count in options.processes:
        found: dict[tuple, list] = {}
        for _ in range(options.rounds):
            for folder in folders:
                program = folder.resolve() / "plait-bench-transfers"
                for name, call in ("mpirun", over_mpi), ("torchrun", over_sockets):
                    found.setdefault((name, folder), []).append(call(program, count))
        for (name, folder), rounds in found.items():
            line = f"{count} processes, {name}, {folder}:"
            for size in rounds[0]:
                seconds = statistics.median(x[size] for x in rounds)
                line += f"  {size} bytes {seconds * 1e6:.1f} us"
                line += f" ({size / seconds / 1e9:.2f} GB/s)" if size > 9999 else ""
            print(line, flush=True)


if __name__ == "__main__":
    main()
