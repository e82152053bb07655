# ===- rows.py - Rows of tokens -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Data that a program gives, as the batches of a run: rows of seq + 1 tokens, of which
the first seq are the inputs and the last seq the targets, and of floats that a plan takes
beside them."""

from __future__ import annotations

import array
import ctypes
import dataclasses
import itertools
import math
import operator
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import labels, options
from .errors import CallError, OptionError, kind_of

ORDERS = ("given", "shuffled")
BYTES = 4  # of a token, int32
_LISTS = (list, tuple, array.array)


# ===-----------------------------------------------------------------------===#
# Tokens
# ===-----------------------------------------------------------------------===#


def to_tokens(block: Any, what: str) -> tuple[tuple[int, ...], bytes]:
    """The shape of an array, tensor or list of whole numbers, and they as int32."""
    if hasattr(block, "data_ptr"):
        return _from_torch(block, what)
    if isinstance(block, _LISTS):
        return _from_list(block, what)
    try:
        import numpy

        return _from_numpy(numpy.asarray(block), what)
    except ImportError:
        raise CallError(f"{what} is {kind_of(block)}, which needs NumPy") from None


def _refuse_kind(kind: object, what: str) -> CallError:
    return CallError(f"{what} has elements of {kind}, expected whole numbers")


def _from_torch(block: Any, what: str) -> tuple[tuple[int, ...], bytes]:
    import torch

    if block.is_floating_point() or block.is_complex() or block.dtype == torch.bool:
        raise _refuse_kind(block.dtype, what)
    if block.numel():
        labels.check_tokens(int(block.min()), int(block.max()), what)
    kept = block.detach().to("cpu", torch.int32).contiguous()
    return tuple(block.shape), ctypes.string_at(kept.data_ptr(), kept.numel() * BYTES)


def _from_numpy(block: Any, what: str) -> tuple[tuple[int, ...], bytes]:
    if block.dtype.kind not in "iu":
        raise _refuse_kind(block.dtype, what)
    if block.size:
        labels.check_tokens(int(block.min()), int(block.max()), what)
    return block.shape, block.astype("<i4").tobytes()


def _from_list(block: Any, what: str) -> tuple[tuple[int, ...], bytes]:
    """Of numbers, or of rows, which may be anything."""
    if block and (isinstance(block[0], _LISTS) or getattr(block[0], "ndim", 0) > 0):
        parts = [to_tokens(row, f"row {i} of {what}") for i, row in enumerate(block)]
        shapes = {shape for shape, _ in parts}
        if len(shapes) > 1:
            lengths = sorted({shape[0] if shape else 0 for shape in shapes})
            raise CallError(
                f"{what} has rows of {lengths[0]} and of {lengths[-1]} tokens"
            )
        return (len(parts), *shapes.pop()), b"".join(data for _, data in parts)
    numbers = []
    for number in block:
        try:
            numbers.append(operator.index(number))
        except TypeError:
            raise _refuse_kind(type(number).__name__, what) from None
    if numbers:
        labels.check_tokens(min(numbers), max(numbers), what)
    return (len(numbers),), array.array("i", numbers).tobytes()


def to_floats(block: Any, what: str) -> tuple[tuple[int, ...], bytes]:
    """The shape of an array, tensor or list of floats, and they as float32."""
    if hasattr(block, "data_ptr"):
        import torch

        if not block.is_floating_point():
            raise _refuse_floats(block.dtype, what)
        kept = block.detach().to("cpu", torch.float32).contiguous()
        data = ctypes.string_at(kept.data_ptr(), kept.numel() * BYTES)
        return tuple(block.shape), data
    try:
        import numpy
    except ImportError:
        raise CallError(f"{what} is {kind_of(block)}, which needs NumPy") from None
    try:
        found = numpy.asarray(block)
    except ValueError as error:
        raise CallError(f"{what} is no array: {error}") from None
    if found.dtype.kind != "f":
        raise _refuse_floats(found.dtype, what)
    return found.shape, found.astype("<f4").tobytes()


def _refuse_floats(kind: object, what: str) -> CallError:
    return CallError(f"{what} has elements of {kind}, expected floats")


@dataclasses.dataclass(frozen=True)
class FloatInput:
    """What a plan takes with tokens: of each row floats of the shape `shape`, in which
    dimensions may be in factors."""

    name: str
    shape: tuple[int, ...]

    def read(self, block: Any, what: str) -> list[bytes]:
        """Rows of a block that has some."""
        what = f"'{self.name}' of {what}"
        shape, data = to_floats(block, what)
        if not shape or not _joins(self.shape, shape[1:]):
            raise CallError(
                f"{what} is of shape {list(shape)}, expected rows of {list(self.shape)}"
            )
        row = math.prod(self.shape) * BYTES
        return [data[i : i + row] for i in range(0, len(data), row)]


def _joins(factors: Iterable[int], shape: Iterable[int]) -> bool:
    """Whether each extent is the product of the factors that are next."""
    rest = [x for x in factors if x != 1]
    for extent in shape:
        product = 1
        while rest and product < extent:
            product *= rest.pop(0)
        if product != extent:
            return False
    return not rest


def _extents(value: Any) -> tuple[int, ...]:
    """Those of an array, or of lists by the first in each."""
    if hasattr(value, "shape"):
        return tuple(value.shape)
    if isinstance(value, _LISTS):
        return (len(value), *(_extents(value[0]) if len(value) else ()))
    return ()


def _as_block(row: Mapping) -> dict[str, Any]:
    """A row with names as a block of one."""
    return {
        name: value[None] if hasattr(value, "ndim") else [value]
        for name, value in row.items()
    }


class Shape:
    """What a batch has to be: `rows` of `seq` + 1 tokens, and of floats. Where a plan
    takes floats, a block is a mapping: of "tokens", or of "targets" alone, and of each
    input by its name. What a plan has no use for may be left out."""

    def __init__(self, rows: int, seq: int, floats: Iterable[FloatInput] = ()):
        self.rows = rows
        self.width = seq + 1
        self.floats = tuple(floats)

    @staticmethod
    def of(plan: Any) -> Shape:
        """The shape that a plan takes."""
        inputs = [
            FloatInput(
                x["name"],
                (*([plan.seq] if x["of_positions"] else []), *x["shape"]),
            )
            for x in plan.facts["float_inputs"]
        ]
        return Shape(plan.global_batch, plan.seq, inputs)

    def read(self, block: Any, what: str, column: str | None = None) -> list[bytes]:
        """Rows of a block that is a row or has some."""
        if self.floats:
            return self._read_columns(block, what, column)
        shape, data = to_tokens(take_column(block, column, what), what)
        if len(shape) == 3 and shape[0] == 1:  # the tuple of a TensorDataset
            shape = shape[1:]
        if len(shape) not in (1, 2) or shape[-1] != self.width:
            raise CallError(
                f"{what} is of shape {list(shape)}, expected rows of {self.width} tokens: "
                f"seq, {self.width - 1}, and one more"
            )
        row = self.width * BYTES
        return [data[i : i + row] for i in range(0, len(data), row)]

    def read_item(self, item: Any, what: str, column: str | None) -> list[bytes]:
        """Rows of what a stream gives: a row or a block."""
        return self.read(_as_block(item) if self._is_row(item) else item, what, column)

    def _is_row(self, item: Any) -> bool:
        """Whether names are of what a row has, and not of columns of a block."""
        if not self.floats or not isinstance(item, Mapping):
            return False
        if labels.has_labels(item):
            return len(_extents(item[labels.LABELS])) == 1
        own = self.floats[0]
        extents = _extents(item.get(own.name))
        is_block = len(extents) > 0 and _joins(own.shape, extents[1:])
        return not is_block and _joins(own.shape, extents)

    def _read_columns(self, block: Any, what: str, column: str | None) -> list[bytes]:
        names = [own.name for own in self.floats]
        if labels.WEIGHTS in names and labels.has_labels(block):
            block, column = labels.weigh(block, self.width, column, what), None
        if not isinstance(block, Mapping):
            raise CallError(
                f"{what} is {kind_of(block)}, expected a mapping with {', '.join(names)}: "
                "the plan takes these with tokens"
            )
        for name in names:
            if name not in block:
                raise CallError(f"{what} has no '{name}', which the plan takes")
        parts = [own.read(block[own.name], what) for own in self.floats]
        ids = self._read_ids(block, what, column, len(parts[0]))
        for name, part in zip(["tokens", *names], [ids, *parts]):
            if len(part) != len(parts[0]):
                raise CallError(
                    f"{what} has {len(part)} rows of '{name}' and {len(parts[0])} of "
                    f"'{names[0]}'"
                )
        return [b"".join(row) for row in zip(ids, *parts)]

    def _read_ids(
        self, block: Any, what: str, column: str | None, rows: int
    ) -> list[bytes]:
        """Tokens with one more behind them, or targets alone, or zeros."""
        name = column or ("tokens" if "tokens" in block else "targets")
        if name not in block:
            if column:
                raise OptionError(f"{what} has no column '{column}'", option="column")
            return [bytes(self.width * BYTES)] * rows
        shape, data = to_tokens(block[name], f"'{name}' of {what}")
        width = self.width - (name == "targets")
        if width == 1 and len(shape) == 1:
            shape = (*shape, 1)
        if len(shape) != 2 or shape[1] != width:
            raise CallError(
                f"'{name}' of {what} is of shape {list(shape)}, expected rows of {width}"
            )
        row = shape[1] * BYTES
        first = bytes((self.width - shape[1]) * BYTES)
        return [first + data[i : i + row] for i in range(0, len(data), row)]

    def batch(self, block: Any) -> bytes:
        """All rows of a step, which a program gives."""
        rows = self.read(block, "the batch")
        if len(rows) != self.rows:
            raise CallError(f"the batch has {len(rows)} rows, expected {self.rows}")
        return b"".join(rows)


# ===-----------------------------------------------------------------------===#
# Sources
# ===-----------------------------------------------------------------------===#


class Table:
    """Rows that are found by number. `order` is of each pass over them."""

    def __init__(self, rows: Any, number: int, order: str, seed: int):
        self.rows = rows  # the bytes of a row by its number
        self.number = number
        self.order = order
        self.seed = seed

    def read(self, first: int) -> Iterator[bytes]:
        """Rows without end, from the one called `first`."""
        for row in itertools.count(first):
            turn, place = divmod(row, self.number)
            if self.order == "shuffled":
                place = self._shuffle(turn)[place]
            yield self.rows(place)

    read_on = read

    def _shuffle(self, turn: int) -> list[int]:
        """Another order in each pass, the same on every machine."""
        if getattr(self, "_shuffled", (None,))[0] != turn:
            order = list(range(self.number))
            random.Random(f"{self.seed} {turn}").shuffle(order)
            self._shuffled = (turn, order)
        return self._shuffled[1]


class Stream:
    """Rows and batches as they come. What can be iterated again is, at its end."""

    number = None

    def __init__(self, data: Iterable[Any], shape: Shape, column: str | None):
        self.data = data
        self.shape = shape
        self.column = column

    def read(self, first: int) -> Iterator[bytes]:
        return itertools.islice(self._read_all(), first, None)

    def read_on(self, first: int) -> Iterator[bytes]:
        """The same where another reader has read the rows before. What gives rows only
        once has given those."""
        return self._read_all() if hasattr(self.data, "__next__") else self.read(first)

    def _read_all(self) -> Iterator[bytes]:
        number = 0
        while True:
            before = number
            again = iter(self.data)
            for item in again:
                what = f"item {number} of the data"
                yield from self.shape.read_item(item, what, self.column)
                number += 1
            if number == before or again is self.data:
                return


def take_column(item: Any, column: str | None, what: str) -> Any:
    """Of an item that has columns the one that is asked for."""
    if not isinstance(item, Mapping):
        if column is not None:
            raise OptionError(
                f"{what} is {kind_of(item)} without columns", option="column"
            )
        return item
    if column is None:
        raise OptionError(
            f"{what} has columns {', '.join(map(str, item))}",
            hint="name one with `column`",
            option="column",
        )
    if column not in item:
        raise OptionError(
            f"{what} has no column '{column}', it has {', '.join(map(str, item))}",
            option="column",
        )
    labels.check_unused(item, column, what)
    return item[column]


def open_data(
    data: Any, shape: Shape, column: str | None, order: str, seed: int
) -> Table | Stream:
    """What `data` is: an array [n, seq + 1] or a long one of tokens, anything with a
    length and items, or anything that can be iterated."""
    if order not in ORDERS:
        raise OptionError(
            f"order is '{order}', expected {' or '.join(ORDERS)}", option="order"
        )
    if isinstance(data, (str, bytes)) or hasattr(data, "__fspath__"):
        raise CallError(
            "the data is a path",
            hint="tokens= names files of tokens, text= files of text",
        )
    source = _find_source(data, shape, column, order, seed)
    if source is None:
        raise CallError(f"the data is {kind_of(data)}, which has no rows")
    if isinstance(source, Stream) and order == "shuffled":
        raise OptionError(
            f"order is 'shuffled', but {kind_of(data)} has no rows by number",
            option="order",
        )
    return source


def _find_source(
    data: Any, shape: Shape, column: str | None, order: str, seed: int
) -> Table | Stream | None:
    if shape.floats:
        return _find_columns(data, shape, column, order, seed)
    extents = tuple(getattr(data, "shape", ()))
    is_list = isinstance(data, _LISTS) and len(data) > 0
    if is_list and hasattr(data[0], "__index__") and not getattr(data[0], "ndim", 0):
        extents = (len(data),)
    if len(extents) == 1:
        return _open_tokens(data, extents[0], shape, order, seed)
    if isinstance(data, Mapping):
        return None
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return Stream(data, shape, column) if isinstance(data, Iterable) else None
    if len(data) == 0:
        raise CallError("the data has no rows")
    what = "row 0 of the data"
    first = take_column(data[0], column, what)
    if len(to_tokens(first, what)[0]) == 2 and isinstance(data, Iterable):
        return Stream(data, shape, column)  # of batches
    shape.read(first, what)

    def read(number: int) -> bytes:
        what = f"row {number} of the data"
        (row,) = shape.read(take_column(data[number], column, what), what)
        return row

    return Table(read, len(data), order, seed)


def _find_columns(
    data: Any, shape: Shape, column: str | None, order: str, seed: int
) -> Table | Stream | None:
    """Arrays by name, a sequence of rows with names, or anything that gives batches."""
    if isinstance(data, Mapping):
        rows = shape.read(data, "the data", column)
        if not rows:
            raise CallError("the data has no rows")
        return Table(rows.__getitem__, len(rows), order, seed)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return Stream(data, shape, column) if isinstance(data, Iterable) else None
    if len(data) == 0:
        raise CallError("the data has no rows")

    def read(number: int) -> bytes:
        what = f"row {number} of the data"
        item = data[number]
        if not isinstance(item, Mapping):
            raise CallError(f"{what} is {kind_of(item)}, expected a mapping")
        (row,) = shape.read(_as_block(item), what, column)
        return row

    read(0)
    return Table(read, len(data), order, seed)


def write_rows(
    path: options.PathLike, plan: Any, data: Any, column: str | None = None
) -> int:
    """Writes the file of rows that plait-run takes as --tokens for a plan that takes
    floats: `data` once, as plait.train takes it. Returns their number."""
    from .plans import Plan, load

    shape = Shape.of(plan if isinstance(plan, Plan) else load(plan))
    if not shape.floats:
        raise CallError(
            "the plan takes no floats, so that its data is files of tokens, and not of rows"
        )
    source = open_data(data, shape, column, "given", 0)
    if source.number is None:
        rows = (row for item in data for row in shape.read_item(item, "an item", column))
    else:
        rows = itertools.islice(source.read(0), source.number)
    number = 0
    part = f"{os.fspath(path)}.part"
    try:
        with open(part, "wb") as file:
            for row in rows:
                file.write(row)
                number += 1
        os.replace(part, path)
    except OSError as error:
        raise CallError(f"cannot write '{os.fspath(path)}': {error.strerror}") from None
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return number


def _open_tokens(data: Any, length: int, shape: Shape, order: str, seed: int) -> Table:
    """Rows one after the other, as plait-run reads a file: the last token of a row is
    the first of the next."""
    seq = shape.width - 1
    if length < shape.width:
        raise CallError(f"the data has {length} tokens, expected at least {shape.width}")

    def read(number: int) -> bytes:
        part = data[number * seq : number * seq + shape.width]
        (row,) = shape.read(part, f"row {number} of the data")
        return row

    return Table(read, (length - 1) // seq, order, seed)
