#===- tensors.py - Safetensors files as arrays ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""For the suites that have NumPy."""

import pathlib

import numpy

from harness import read_safetensors


def read_tensors(path: pathlib.Path) -> dict[str, numpy.ndarray]:
    """The tensors of a file of F32, by name."""
    header, data = read_safetensors(path)
    return {
        name: numpy.frombuffer(
            data[slice(*entry["data_offsets"])], numpy.float32
        ).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }
