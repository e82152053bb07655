#===- tensors.py - Safetensors files as arrays ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""For the suites that have NumPy."""

import json
import pathlib

import numpy

from harness import read_safetensors, write_safetensors


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


def split_weights(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes `path` as two files and model.safetensors.index.json."""
    header, data = read_safetensors(path)
    header.pop("__metadata__", None)
    parts = ({}, {})
    contents = [b"", b""]
    weight_map = {}
    for number, (name, entry) in enumerate(sorted(header.items())):
        part = number % 2
        begin, end = entry["data_offsets"]
        start = len(contents[part])
        contents[part] += data[begin:end]
        offsets = [start, len(contents[part])]
        parts[part][name] = entry | {"data_offsets": offsets}
        weight_map[name] = f"model-{part + 1:05}-of-00002.safetensors"
    for part, (entries, content) in enumerate(zip(parts, contents)):
        file = folder / f"model-{part + 1:05}-of-00002.safetensors"
        write_safetensors(file, entries, content)
    index = {"metadata": {"total_size": len(data)}, "weight_map": weight_map}
    text = json.dumps(index)
    (folder / "model.safetensors.index.json").write_text(text)
