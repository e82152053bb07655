# ===- weights.py - Parameters and their files -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Parameters of a model: their declarations in nn, and the safetensors file that
plait-run reads them from."""

import dataclasses
import math
import pathlib

import torch
from safetensors.torch import save_file

from ..errors import Error, NotExpressible, Place
from .emit import number, quoted, symbol, tensor_type
from .export import Weight
from .graph import Box, Op

# Of a large tensor the first elements tell how it is initialised.
SAMPLE = 2**20
# What constants are called that have no name in the module.
CONSTANT = "constant."
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
        # nn's files have no tensors without dimensions.
        shape, begin, extents = (
            list(x) or [y]
            for x, y in zip((box.shape, box.begin, box.extents), (1, 0, 1))
        )
        file = (
            f"name = {quoted(box.name)}, shape = {shape}, "
            f"begin = {begin}, box = {extents}"
        )
        init = f"mean = {number(self.mean)}, std = {number(self.deviation)}"
        decay = " decay" if self.decays else ""
        return (
            f"  nn.parameter {symbol(self.symbol)} : {tensor_type(self.view)} "
            f"init<{init}>{decay} file<{file}>"
        )


def shapes_of(parameters: list[Parameter], tensors: dict[str, torch.Tensor]) -> str:
    """The shapes that the module has of tensors of which plait sees factors: files are
    written in them."""
    shapes = {
        p.box.name: list(tensors[p.box.name].shape)
        for p in parameters
        if tuple(tensors[p.box.name].shape) not in (p.box.shape, ())
    }
    entries = (
        f"{quoted(name)} = array<i64: {', '.join(map(str, shape))}>"
        for name, shape in sorted(shapes.items())
    )
    return f"shapes = {{{', '.join(entries)}}}, " if shapes else ""


def name_boxes(boxes: list[Box]) -> dict[Box, str]:
    """Symbols: the parameter's name, and for a part of it where it begins."""
    result = {}
    for box in boxes:
        cut = [b for b, n, s in zip(box.begin, box.extents, box.shape) if n != s]
        result[box] = ".".join([box.name, *map(str, cut)])
    return result


class Overlap(NotExpressible):
    """Parts of the parameter `name` that have elements in common."""

    def __init__(self, name: str, place: Place):
        super().__init__(f"parameter '{name}' is used in parts that overlap", place)
        self.name = name


def check_boxes(reads: dict[Box, Op]) -> None:
    """Parts of one parameter are parameters of their own: they must not overlap."""
    known: dict[str, list[Box]] = {}
    for a, op in reads.items():
        for b in known.setdefault(a.name, []):
            if a.shape != b.shape or _overlap(a, b):
                raise Overlap(a.name, op.place)
        known[a.name].append(a)


def _overlap(a: Box, b: Box) -> bool:
    return all(
        max(x, y) < min(x + m, y + n)
        for x, m, y, n in zip(a.begin, a.extents, b.begin, b.extents)
    )


def remainders(boxes: list[Box], weight: Weight) -> list[Box]:
    """What of a parameter no box has. It is a parameter that nobody reads, so that what
    a run saves is complete."""
    own = [box for box in boxes if box.name == weight.name]
    shape = own[0].shape if own else tuple(weight.tensor.shape)
    rest = [Box(weight.name, shape, (0,) * len(shape), shape)]
    for box in own:
        rest = [piece for whole in rest for piece in _subtract(whole, box)]
    return rest


def _subtract(whole: Box, box: Box) -> list[Box]:
    """Dimension by dimension what lies before and behind `box`."""
    if not _overlap(whole, box):
        return [whole]
    pieces = []
    for dim, (begin, count) in enumerate(zip(box.begin, box.extents)):
        first = whole.begin[dim]
        low = max(begin - first, 0)
        high = min(begin + count - first, whole.extents[dim])
        if low:
            pieces.append(whole.cut(dim, 0, low))
        if high < whole.extents[dim]:
            pieces.append(whole.cut(dim, high, whole.extents[dim]))
        whole = whole.cut(dim, low, high)
    return pieces


def make_parameter(box: Box, view, symbol: str, tensor, scales: bool) -> Parameter:
    """`scales`: it is what a norm multiplies by."""
    mean, deviation = _initial(tensor, scales)
    if not math.isfinite(mean + deviation):
        raise Error(f"parameter '{symbol}' has numbers that are not finite")
    return Parameter(symbol, box, tuple(view), mean, deviation, tensor.dim() > 1)


def _initial(tensor: torch.Tensor, scales: bool) -> tuple[float, float]:
    if not has_numbers(tensor):
        return (0.0, USUAL_DEVIATION) if tensor.dim() > 1 else (float(scales), 0.0)
    sample = tensor.detach().flatten()[:SAMPLE].double()
    deviation = float(sample.std(correction=0))
    return tuple(float(f"{x:.4g}") for x in (float(sample.mean()), deviation))


def has_numbers(tensor: torch.Tensor) -> bool:
    """Whether it has storage, rather than being a promise or one number repeated."""
    return not tensor.is_meta and not (tensor.numel() > 1 and not any(tensor.stride()))


def save(path: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    """Tensors by name, each in its own shape."""
    data = {}
    for name, tensor in tensors.items():
        # plait-run reads no wider types.
        kept = tensor.float() if tensor.dtype == torch.float64 else tensor
        data[name] = kept.detach().cpu().contiguous().clone()
    replace(path, lambda part: save_file(data, part, {"format": "pt"}))


def replace(path: pathlib.Path, write) -> None:
    """Writes a file beside, which takes its place when it is complete."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        part.replace(path)
    except OSError as error:
        raise Error(f"cannot write '{path}': {error.strerror}") from None
    finally:
        if part.parent.is_dir():
            part.unlink(missing_ok=True)
