# ===- lit.cfg.py - FileCheck tests of the compiler ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""`lit test` finds the tools in build/bin, or where `--param plait_bin=DIR` or
the environment variable PLAIT_BUILD (a build folder) says. `--param long=1` has
the feature `long`, which tests name in `%if long`, and `%all` stand for --all,
which their programs take: both are for what a default run leaves out."""

import glob
import os
import shutil
import subprocess
import sys

import lit.formats

LLVM = "/usr/lib/llvm-22/bin"

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build = os.environ.get("PLAIT_BUILD", os.path.join(root, "build"))
tools = os.path.abspath(
    lit_config.params.get("plait_bin", os.path.join(build, "bin"))
)
if not os.path.exists(os.path.join(tools, "plait-opt")):
    lit_config.fatal(f"no plait-opt in '{tools}': build it first")

config.name = "plait"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir", ".test"]
config.excludes = ["golden", "Execute", "Unit"]
config.test_source_root = os.path.join(root, "test")
config.test_exec_root = os.path.join(os.path.dirname(tools), "lit")
config.environment["PATH"] = os.pathsep.join(
    [tools, LLVM, os.environ["PATH"]]
)
# Kernels that other tests have compiled, where scripts/test.sh keeps them.
if "PLAIT_KERNEL_CACHE" in os.environ:
    config.environment["PLAIT_KERNEL_CACHE"] = os.environ["PLAIT_KERNEL_CACHE"]
# One answer whatever the user's terminal is.
config.environment["TERM"] = "dumb"
config.substitutions.append(("%models", os.path.join(root, "examples/models")))
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%{root}", root))

is_long = lit_config.params.get("long", "0") != "0"
if is_long:
    config.available_features.add("long")
config.substitutions.append(("%all", "--all" if is_long else ""))

# What the tests of GPU kernels need: a code generator, the toolkit's assembler.
targets = subprocess.run(
    [os.path.join(LLVM, "llc"), "--version"], capture_output=True, text=True
)
if "nvptx64" in targets.stdout:
    config.available_features.add("nvptx")
path = os.pathsep.join([os.environ["PATH"], "/usr/local/cuda/bin"])
if shutil.which("ptxas", path=path):
    config.available_features.add("ptxas")
wheel = "venv/lib/*/site-packages/nvidia/*/bin/nvdisasm"
if shutil.which("nvdisasm", path=path) or glob.glob(
    os.path.join(root, "build", wheel)
):
    config.available_features.add("nvdisasm")
if shutil.which("flatc"):
    config.available_features.add("flatc")
