#===- weights.py - Parameters and their files -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Parameters of a model: their declarations in nn, and the safetensors file that
plait-run reads them from."""

import dataclasses
import math
import pathlib

import torch
from safetensors.torch import save_file

from ..errors import NotExpressible
from .axes import leaves
from .emit import number, tensor_type
from .export import Weight
from .graph import Box, Op

# Of a large tensor the first elements tell how it is initialised.
SAMPLE = 2**20
# How a matrix starts of which there are no numbers.
USUAL_DEVIATION = 0.02


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An nn.parameter: a view of the shape `view` of a box of a tensor."""

    symbol: str
    box: Box
    view: tuple[int, ...]
    mean: float
    deviation: float
    decays: bool

    def declaration(self) -> str:
        box = self.box
        file = (
            f'name = "{box.name}", shape = {list(box.shape)}, '
            f"begin = {list(box.begin)}, box = {list(box.extents)}"
        )
        init = f"mean = {number(self.mean)}, std = {number(self.deviation)}"
        decay = " decay" if self.decays else ""
        return (
            f"  nn.parameter @{self.symbol} : {tensor_type(self.view)} "
            f"init<{init}>{decay} file<{file}>"
        )


def name_boxes(boxes: list[Box]) -> dict[Box, str]:
    """Symbols: the parameter's name, and for a part of it where it begins."""
    result = {}
    for box in boxes:
        cut = [b for b, n, s in zip(box.begin, box.extents, box.shape) if n != s]
        result[box] = ".".join([box.name, *map(str, cut)])
    return result


def check_boxes(boxes: list[Box]) -> None:
    """Parts of one parameter are parameters of their own: they must not overlap."""
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            if a.name == b.name and (a.shape != b.shape or _overlap(a, b)):
                raise NotExpressible(
                    f"parameter '{a.name}' is used in parts that overlap, {_show(b)} and "
                    f"{_show(a)}"
                )


def _show(box: Box) -> str:
    ranges = (f"{b}:{b + n}" for b, n in zip(box.begin, box.extents))
    return f"[{', '.join(ranges)}]"


def _overlap(a: Box, b: Box) -> bool:
    return all(
        max(x, y) < min(x + m, y + n)
        for x, m, y, n in zip(a.begin, a.extents, b.begin, b.extents)
    )


def unused(boxes: list[Box], weights: list[Weight]) -> list[str]:
    """What the loss does not depend on, and so is not trained."""
    used: dict[str, int] = {}
    for box in boxes:
        used[box.name] = used.get(box.name, 0) + math.prod(box.extents)
    result = []
    for weight in weights:
        count = used.get(weight.name, 0)
        if count < weight.tensor.numel():
            part = "" if not count else f"{weight.tensor.numel() - count} elements of "
            result.append(f"{part}'{weight.name}'")
    return result


def make_parameter(op: Op, symbol: str, tensor: torch.Tensor, scales: bool) -> Parameter:
    """`scales`: it is what a norm multiplies by."""
    box: Box = op.attrs["box"]
    mean, deviation = _initial(tensor, scales)
    view = tuple(axis.extent for axis in leaves(op.order))
    return Parameter(symbol, box, view, mean, deviation, tensor.dim() > 1)


def _initial(tensor: torch.Tensor, scales: bool) -> tuple[float, float]:
    if not has_numbers(tensor):
        return (0.0, USUAL_DEVIATION) if tensor.dim() > 1 else (float(scales), 0.0)
    sample = tensor.detach().flatten()[:SAMPLE].double()
    deviation = float(sample.std(correction=0))
    return tuple(float(f"{x:.4g}") for x in (float(sample.mean()), deviation))


def has_numbers(tensor: torch.Tensor) -> bool:
    """Whether it has storage, rather than being a promise or one number repeated."""
    return not tensor.is_meta and not (tensor.numel() > 1 and not any(tensor.stride()))


def save(path: pathlib.Path, tensors: dict[str, tuple[torch.Tensor, tuple]]) -> None:
    """Tensors by name, each in the shape that the model says its file has."""
    save_file(
        {
            name: tensor.detach().cpu().reshape(shape).contiguous().clone()
            for name, (tensor, shape) in tensors.items()
        },
        path,
        {"format": "pt"},
    )
