#===- kernel_defects.py - Defects in the code of kernels --*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Kinds of defects (defect_kinds.py) in code that computes something else than the ops
of its kernel: what they make of a kernel is compiled, and held against the ops that are
there without them."""

import re
from collections.abc import Iterator

from defect_kinds import KINDS, Change, Lines, kind

KERNELS: set[str] = set()  # names of kinds


def kernel_of(lines: Lines, at: int) -> range:
    """The lines of the kernel that line `at` is part of; none: it is not in one."""
    first = next((n for n in range(at, 0, -1) if "plan.cluster(" in lines[n] or
                  lines[n].startswith("  func.func")), 0)
    if "plan.cluster(" not in lines[first]:
        return range(0)
    last = next(n for n in range(first + 1, len(lines)) if lines[n].strip() == "}")
    return range(first, last) if at < last else range(0)


def may_cancel(lines: Lines, at: int) -> bool:
    """Whether only products take what line `at` defines. What normalises gives the same
    for -x: its sign counts twice."""
    value = lines[at].split(" = ")[0].strip()
    uses = [lines[n] for n in kernel_of(lines, at) if n != at and
            re.search(re.escape(value) + r"\b", lines[n])]
    return all("nn.mul " in use for use in uses)


def in_kernel(name: str, what: str) -> None:
    """The kind `name`, in the code of kernels."""

    @kind(f"kernel-{name}", f"the code of a kernel: {what}")
    def generate(lines: Lines) -> Iterator[Change]:
        for at, new in KINDS[name][1](lines):
            if len(new) != len(lines) or not kernel_of(lines, at):
                continue
            if name not in ("swap-sub", "drop-neg") or not may_cancel(lines, at):
                yield at, new

    KERNELS.add(f"kernel-{name}")


# Not what makes no difference: any number may be subtracted from the exponents of a
# softmax, no id lies beyond a vocabulary, and the sum of x (x - m) is that of (x - m)^2.
for name in ("swap-sub", "swap-div", "add-to-sub", "mul-to-add", "div-to-mul", "exp-to-tanh",
             "sqrt-to-rsqrt", "drop-neg", "wrong-scale", "wrong-shift", "wrong-fill",
             "reduce-max", "square", "residual", "drop-mask",
             "drop-rotation", "drop-begin", "begin-order", "mask-order", "reorder-again", "mask-probability",
             "overwrite-kernel", "stale-kernel"):
    in_kernel(name, KINDS[name][0])
