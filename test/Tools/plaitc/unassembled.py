# ===- unassembled.py - plaitc without the time of ptxas -------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Plans for GPUs whose kernels nobody looks at: assembling them takes as long as all
else together."""

import os
import pathlib


def make_environment(folder: pathlib.Path) -> dict[str, str]:
    """One in which a program that does nothing stands in ptxas's place."""
    tools = folder.absolute() / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    if not (tools / "ptxas").exists():
        (tools / "ptxas").symlink_to("/bin/true")
    return os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
