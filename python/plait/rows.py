# ===- rows.py - Rows of tokens -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Data that a program gives, as the batches of a run: rows of seq + 1 tokens, of which
the first seq are the inputs and the last seq the targets."""

from __future__ import annotations

import array
import ctypes
import itertools
import operator
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .errors import CallError, OptionError, kind_of

ORDERS = ("given", "shuffled")
BYTES = 4  # of a token, int32
MOST = 2**31 - 1
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


def _check_range(least: int, most: int, what: str) -> None:
    if least < 0 or most > MOST:
        bad = least if least < 0 else most
        raise CallError(f"{what} has token {bad}, expected 0 to {MOST}")


def _from_torch(block: Any, what: str) -> tuple[tuple[int, ...], bytes]:
    import torch

    if block.is_floating_point() or block.is_complex() or block.dtype == torch.bool:
        raise _refuse_kind(block.dtype, what)
    if block.numel():
        _check_range(int(block.min()), int(block.max()), what)
    kept = block.detach().to("cpu", torch.int32).contiguous()
    return tuple(block.shape), ctypes.string_at(kept.data_ptr(), kept.numel() * BYTES)


def _from_numpy(block: Any, what: str) -> tuple[tuple[int, ...], bytes]:
    if block.dtype.kind not in "iu":
        raise _refuse_kind(block.dtype, what)
    if block.size:
        _check_range(int(block.min()), int(block.max()), what)
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
    try:
        numbers = [operator.index(x) for x in block]
    except TypeError:
        bad = next(type(x).__name__ for x in block if not hasattr(x, "__index__"))
        raise _refuse_kind(bad, what) from None
    if numbers:
        _check_range(min(numbers), max(numbers), what)
    return (len(numbers),), array.array("i", numbers).tobytes()


class Shape:
    """What a batch has to be: `rows` of `seq` + 1 tokens."""

    def __init__(self, rows: int, seq: int):
        self.rows = rows
        self.width = seq + 1

    def read(self, block: Any, what: str) -> list[bytes]:
        """Rows of a block that is a row or has some."""
        shape, data = to_tokens(block, what)
        if len(shape) not in (1, 2) or shape[-1] != self.width:
            raise CallError(
                f"{what} is of shape {list(shape)}, expected rows of {self.width} tokens: "
                f"seq, {self.width - 1}, and one more"
            )
        row = self.width * BYTES
        return [data[i : i + row] for i in range(0, len(data), row)]

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

    def _read_all(self) -> Iterator[bytes]:
        number = 0
        while True:
            before = number
            again = iter(self.data)
            for item in again:
                what = f"item {number} of the data"
                yield from self.shape.read(take_column(item, self.column, what), what)
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
    extents = tuple(getattr(data, "shape", ()))
    if isinstance(data, array.array):
        extents = (len(data),)
    if len(extents) == 1:
        return _open_tokens(data, extents[0], shape, order, seed)
    is_sized = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if not is_sized or isinstance(data, Mapping):
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
