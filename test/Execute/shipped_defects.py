#===- shipped_defects.py - Defects that others have shipped -*- Python -*--===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Kinds of defects (defect_kinds.py) that others have shipped, by the issue that told of
them. That sends and receives may wait for one another (pytorch/pytorch#172668) is the plan
checker's: CheckTest.cpp."""

import re
from collections.abc import Iterator

from defect_kinds import COLLECTIVE, lost
from defect_text import Change, Lines, each, kind, replaced, textual


@kind("norm-gradient", "a norm's gradient is not summed over tp under sequence "
      "parallelism (NVIDIA/Megatron-LM#1446, #7452; Entangle)")
def norm_gradient(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, COLLECTIVE + r'\["tp"\] .*(?:ln_\w+|norm)\.\w+ gradient"'):
        yield replaced(lines, at, lost(lines[at], match))


@kind("replicated-gradient", "the gradient of a parameter that all tp ranks have is not "
      "summed over them (NVIDIA/Megatron-LM#7452)")
def replicated_gradient(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, COLLECTIVE + r'\["tp"\] .*(?:bias|pack\S+) gradient"'):
        yield replaced(lines, at, lost(lines[at], match))


textual("vocabulary-padding", "what tp pads the vocabulary with is a word (NVIDIA/Megatron-LM#1754)", r"nn\.mask_padding (%\w+) .* by 0xFF800000 (?:\{.*\})? ?: (tensor<\S+>)", r"nn.stop_gradient \1 : \2")


@kind("lost-layer", "a stage leaves out a layer (NVIDIA/Megatron-LM#1304, "
      "pytorch/torchtitan#963)")
def lost_layer(lines: Lines) -> Iterator[Change]:
    add = re.compile(r'nn\.add (%\w+), %\w+ (\{.*"[\w.]+\.(?:h|layers)\.(\d+)".*\}) : (tensor<\S+>)$')
    function, last = "", {}
    for at, line in enumerate(lines):
        if found := re.match(r"  func\.func @(\w+)", line):
            function, last = found[1], {}
        match = add.search(line)
        if not match or not function.startswith("forward"):
            continue
        if match[3] in last:
            new = list(lines)
            for place in (last[match[3]], at):
                new[place] = add.sub(r"nn.scale \1 by 1.0 \2 : \4", lines[place])
            yield at, new
        last[match[3]] = at


@kind("swap-layers", "two layers of a stage change places")
def swap_layers(lines: Lines) -> Iterator[Change]:
    read = re.compile(r"(nn\.read @[\w.]+\.(?:h|layers)\.)(\d+)(\.)")
    starts = [at for at, _ in each(lines, r"^  func\.func @forward")] + [len(lines)]
    for first, last in zip(starts, starts[1:]):
        end = next((n for n in range(first, last) if lines[n] == "  }"), last)
        reads = {at: match for at, match in each(lines[:end], read.pattern) if at > first}
        layers = sorted({int(match[2]) for match in reads.values()})
        for one, other in zip(layers, layers[1:]):
            exchanged = {str(one): str(other), str(other): str(one)}
            new = list(lines)
            for at, match in reads.items():
                layer = exchanged.get(match[2], match[2])
                new[at] = read.sub(rf"\g<1>{layer}\g<3>", lines[at])
            yield min(reads), new


@kind("context-mean", "gradients of a loss that counts tokens are averaged over cp, not "
      "summed (NVIDIA/Megatron-LM#673)")
def context_mean(lines: Lines) -> Iterator[Change]:
    for at, match in each(lines, COLLECTIVE + r'\["cp"\] .* gradient"'):
        attrs = re.search(r"\{.*\}", lines[at])
        whole = lines[at].replace(f"{match[2]} = ", "%whole = ", 1)
        mean = (f"{match[1]}{match[2]} = nn.scale %whole by 0.5 "
                f"{attrs[0] if attrs else ''} : {lines[at].rsplit(' -> ', 1)[1]}")
        yield replaced(lines, at, whole, mean)
