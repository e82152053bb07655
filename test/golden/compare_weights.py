#!/usr/bin/env python3
#===- compare_weights.py - Two safetensors files ----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Compares the tensors of two files, read with Hugging Face's `safetensors`:
names (up to GPT-2's "transformer." prefix), shapes, and values by absolute
difference. Prints the tensor that is farthest off."""

import argparse
import pathlib
import sys

import numpy
from safetensors import safe_open

from key_bias import clear_key_bias

PREFIX = "transformer."


def read(path: str) -> dict[str, numpy.ndarray]:
    with safe_open(path, framework="numpy") as file:
        return {
            name.removeprefix(PREFIX): file.get_tensor(name)
            for name in file.keys()
        }


def distance(name, expected, found, folder: pathlib.Path | None) -> float:
    """Largest absolute difference, but for biases of keys without a gradient where
    there is the `folder` of the model."""
    difference = numpy.abs(found.astype("f8") - expected.astype("f8"))
    if folder:
        clear_key_bias(name, difference, folder)
    return float(difference.max(initial=0.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("expected")
    parser.add_argument("found")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--except-key-bias", action="store_true")
    arguments = parser.parse_args()
    expected, found = read(arguments.expected), read(arguments.found)
    if expected.keys() != found.keys():
        missing = sorted(expected.keys() - found.keys())
        extra = sorted(found.keys() - expected.keys())
        print(f"error: tensors missing: {missing}, not expected: {extra}")
        return 1
    folder = None
    if arguments.except_key_bias:
        folder = pathlib.Path(arguments.expected).parent
    worst = ("", 0.0)
    passed = True
    for name, value in sorted(expected.items()):
        if value.shape != found[name].shape:
            print(
                f"error: {name} has shape {found[name].shape}, "
                f"expected {value.shape}"
            )
            return 1
        off = distance(name, value, found[name], folder)
        # Not `off > tolerance`: NaN must fail.
        if not off <= arguments.tolerance:
            passed = False
            print(f"{name}: off by {off:.3g}, at most {arguments.tolerance:g}")
        if not off <= worst[1]:
            worst = (name, off)
    print(f"{len(expected)} tensors, farthest {worst[0]}: {worst[1]:.3g}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
