# ===- sizes.py - Which extents are the batch's and the sequence's -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Checks that a model is the same at another batch and sequence.

A trace has numbers only. That a dimension is the sequence follows from where it comes
from, but a program may also compute with its length, or branch on it. So a small form of
the module, with two of its layers, is traced at two sizes, and both are compared."""

import contextlib
import re

from torch import nn

from ..errors import Error


def check(module, found, call, built, batch: int, sequence: int) -> None:
    """Notes in `built` what depends on the size."""
    from .model import build

    if call.has_tensors:
        built.notes.append(
            "the module is called with constant tensors, so its sizes are those given"
        )
        return
    # What has no positions is one.
    other = batch + 1, 1 if sequence == 1 else sequence - 1 if sequence > 2 else 3
    try:
        with two_layers(module, built.layers) as is_cut:
            first = build(module, found, call, batch, sequence) if is_cut else built
            second = build(module, found, call, *other)
    except Error as error:
        built.notes.append(
            f"the module is for this size alone: at {other[0]} sequences of {other[1]} "
            f"tokens, {error}"
        )
        return
    difference = compare(first.text, second.text, (batch, sequence), other)
    if difference:
        built.notes.append(f"the module depends on its size: {difference}")


def compare(first: str, second: str, sizes, others) -> str | None:
    """The first line in which two texts differ by more than the sizes."""
    lines = [_body(x) for x in (first, second)]
    if len(lines[0]) != len(lines[1]):
        return f"{len(lines[0])} operations, and {len(lines[1])} at {list(others)}"
    for a, b in zip(*lines):
        if a != b and not _is_resized(a, b, sizes, others):
            return f"'{a.strip()}', and '{b.strip()}' at {list(others)}"
    return None


def _body(text: str) -> list[str]:
    return [
        re.sub(r" loc\(#p\d+\)", "", line)
        for line in text.split("\n")
        if line.startswith("    %")
    ]


def _is_resized(a: str, b: str, sizes, others) -> bool:
    """Whether two lines are alike but for extents in types, which may be the sizes."""
    pattern = re.compile(r"tensor<[0-9x]*")
    if pattern.sub("tensor<", a) != pattern.sub("tensor<", b):
        return False
    expected = set(zip(sizes, others))
    for x, y in zip(pattern.findall(a), pattern.findall(b)):
        for m, n in zip(re.findall(r"\d+", x), re.findall(r"\d+", y)):
            if m != n and (int(m), int(n)) not in expected:
                return False
    return True


@contextlib.contextmanager
def two_layers(module: nn.Module, paths: list[str]):
    """The module with the first two of its layers, if they are a list of modules."""
    holder = _find_list(module, paths)
    if holder is None:
        yield False
        return
    parent, name, blocks = holder
    setattr(parent, name, nn.ModuleList(list(blocks)[:2]))
    try:
        yield True
    finally:
        setattr(parent, name, blocks)


def _find_list(module: nn.Module, paths: list[str]):
    if len(paths) <= 2:
        return None
    heads = {path.rpartition(".")[0] for path in paths}
    head = heads.pop()
    if heads or not head:
        return None
    parent, _, name = head.rpartition(".")
    owner = module.get_submodule(parent)
    blocks = getattr(owner, name, None)
    if type(blocks) is not nn.ModuleList or len(blocks) != len(paths):
        return None
    return owner, name, blocks
