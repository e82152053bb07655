# ===- doctor.py - What runs here -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""python -m plait doctor: one line for each thing that plait needs or can use, and
whether it is here. Nothing is imported that is only looked for."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from . import _library, display, tools
from .errors import Error

PACKAGES = ("numpy", "torch", "transformers", "safetensors", "datasets", "IPython")
# Instructions that kernels and libraries are written for.
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
# What GPU runs open, beside the driver.
CUDA_LIBRARIES = ("cublasLt", "cudnn", "nccl")

Line = tuple[str, str, bool]  # what, what of it, whether it is here


def check() -> Iterator[Line]:
    """Each line when it is known."""
    yield from _check_plait()
    yield "Python", f"{platform.python_version()}, {sys.executable}", True
    yield _check_processors()
    yield _check_memory()
    yield _check_mpi()
    yield from _check_cuda()
    for name in PACKAGES:
        yield _check_package(name)


def _check_plait() -> Iterator[Line]:
    try:
        library = _library.load_library()
        _library.Session()
        yield "library", f"plait {library.version}, {library.path}", True
    except Error as error:
        yield "library", str(error), False
    found = {name: tools.find_tool(name) for name in tools.NAMES}
    here = [name for name, path in found.items() if path]
    lacking = [name for name, path in found.items() if not path]
    text = ", ".join(here) or "none"
    yield (
        "programs",
        text + (f"; not {', '.join(lacking)}" if lacking else ""),
        bool(here),
    )


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def _check_processors() -> Line:
    text = _read("/proc/cpuinfo")
    name = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*: (.+)$", text, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    features = [one for one in FEATURES if one in known]
    parts = [
        f"{len(os.sched_getaffinity(0))} for this process",
        name[1].strip() if name else platform.machine(),
        " ".join(features) or "without AVX2",
    ]
    return "processors", ", ".join(parts), bool(features)


def _check_memory() -> Line:
    """Of the machine, or what its control group leaves of it."""
    fields = dict(
        re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE)
    )
    free, total = (1024 * int(fields.get(x, 0)) for x in ("MemAvailable", "MemTotal"))
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    text = f"{display.size(free)} of {display.size(total)} free"
    if limit.isdigit() and int(limit) < total:
        text += f", of which this process may use {display.size(int(limit))}"
    return "memory", text, free > 0


def _check_mpi() -> Line:
    program = shutil.which("mpirun")
    if not program:
        return "MPI", "no mpirun; torchrun and srun do without", False
    try:
        words = (program, "--version")
        done = subprocess.run(words, capture_output=True, text=True, timeout=20)
        version = (done.stdout.splitlines() or ["unknown version"])[0]
    except (OSError, subprocess.TimeoutExpired) as error:
        return "MPI", f"{program} does not run: {error}", False
    try:
        has_module = (_library.find_library().parent / "plait-mpi.so").is_file()
    except Error:
        has_module = False
    lacks = "" if has_module else "; plait-mpi.so is not next to the library"
    return "MPI", f"{version}, {program}{lacks}", has_module


def _check_cuda() -> Iterator[Line]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield (
            "CUDA",
            "no driver: plans for GPUs are compiled here, and run elsewhere",
            False,
        )
        return
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        yield "CUDA", "the driver finds no device", False
        return
    for number in range(count.value):
        yield "CUDA", _describe_device(driver, number), True
    for name in CUDA_LIBRARIES:
        yield f"lib{name}", *_find_cuda_library(name)


def _describe_device(driver: ctypes.CDLL, number: int) -> str:
    device, name, memory = (
        ctypes.c_int(),
        ctypes.create_string_buffer(256),
        ctypes.c_size_t(),
    )
    driver.cuDeviceGet(ctypes.byref(device), number)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return f"device {number}, {name.value.decode()}, {display.size(memory.value)}"


def _find_cuda_library(name: str) -> tuple[str, bool]:
    """Of the system, or of a package that has it."""
    listed = subprocess.run(("ldconfig", "-p"), capture_output=True, text=True).stdout
    found = re.search(rf"=> (\S*/lib{name}\.so\S*)", listed)
    if found:
        return found[1], True
    for folder in map(pathlib.Path, sys.path):
        for path in sorted(folder.glob(f"nvidia/*/lib/lib{name}.so.*")):
            return str(path), True
    return "not found", False


def _check_package(name: str) -> Line:
    try:
        return name, importlib.metadata.version(name), True
    except importlib.metadata.PackageNotFoundError:
        return name, "not installed", False


def main() -> int:
    """Prints what was found. Fails without a library: nothing runs then."""
    runs = True
    for what, text, is_here in check():
        print(f"{'ok' if is_here else '--'}  {what:<13} {text}", flush=True)
        runs &= is_here or what != "library"
    return 0 if runs else 1
