# ===- labels.py - Which tokens are learned -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Data with labels, as data sets of Hugging Face have it for instruction tuning: tokens,
and of each token itself, or -100 where it is given and not learned. Plans that weigh
their targets take it as weights of 0 and 1."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import CallError, OptionError, kind_of
from .options import to_count

MOST = 2**31 - 1  # of a token, int32
WEIGHTS = "target_weights"  # what nn-weigh-targets calls the input
LABELS = "labels"
IGNORED = -100


def check_tokens(least: int, most: int, what: str) -> None:
    """Refuses tokens from `least` to `most` that int32 or no vocabulary has."""
    if least < 0 or most > MOST:
        bad = least if least < 0 else most
        raise CallError(f"{what} has token {bad}, expected 0 to {MOST}")


def _find_column(item: Mapping, column: str | None, what: str) -> str:
    if column is None:
        column = "tokens" if "tokens" in item else "input_ids"
        if column not in item:
            raise CallError(f"{what} has '{LABELS}' but neither 'tokens' nor 'input_ids'")
    elif column not in item:
        raise OptionError(f"{what} has no column '{column}'", option="column")
    return column


def _read(item: Mapping, column: str, what: str) -> tuple[Any, Any]:
    """Tokens of one row, and the weight of each as a target."""
    import numpy

    ids, labels = numpy.asarray(item[column]), numpy.asarray(item[LABELS])
    for name, own in ((column, ids), (LABELS, labels)):
        if own.ndim != 1 or own.size and own.dtype.kind not in "iu":
            raise CallError(
                f"'{name}' of {what} is of shape {list(own.shape)} and of {own.dtype}, "
                "expected a row of whole numbers"
            )
    if len(ids):
        check_tokens(int(ids.min()), int(ids.max()), f"'{column}' of {what}")
    if len(ids) != len(labels):
        raise CallError(f"{what} has {len(ids)} tokens and {len(labels)} labels")
    wrong = numpy.flatnonzero((labels != IGNORED) & (labels != ids))
    if len(wrong):
        place = int(wrong[0])
        raise CallError(
            f"label {place} of {what} is {labels[place]}, expected its token, "
            f"{ids[place]}, or {IGNORED}"
        )
    return ids, (labels != IGNORED).astype("<f4")


def has_labels(block: Any) -> bool:
    return isinstance(block, Mapping) and LABELS in block and WEIGHTS not in block


def _has_ignored(labels: Any) -> bool:
    if isinstance(labels, (list, tuple)):
        return any(map(_has_ignored, labels))
    found = labels == IGNORED
    return bool(found.any() if hasattr(found, "any") else found)


def check_unused(block: Any, column: str | None, what: str) -> None:
    """Refuses labels of a plan that learns all tokens, where they say otherwise."""
    if has_labels(block) and column != LABELS and _has_ignored(block[LABELS]):
        raise CallError(
            f"{what} has '{LABELS}' with {IGNORED}, but the plan learns all tokens",
            hint="plait.model(…, target_weights=True) makes one that does not",
        )


def weigh(block: Mapping, width: int, column: str | None, what: str) -> dict[str, Any]:
    """A block of rows with labels as one with weights. Rows of fewer than `width` tokens
    are filled with token 0, which is no target and which no token before it sees."""
    import numpy

    column = _find_column(block, column, what)
    rows, labels = block[column], block[LABELS]
    if len(rows) != len(labels):
        raise CallError(f"{what} has {len(rows)} rows of tokens and {len(labels)} of labels")
    tokens = numpy.zeros((len(rows), width), "<i4")
    weights = numpy.zeros((len(rows), width - 1), "<f4")
    for number, (row, own) in enumerate(zip(rows, labels)):
        name = f"row {number} of {what}" if len(rows) > 1 else what
        ids, learned = _read({column: row, LABELS: own}, column, name)
        if len(ids) > width:
            raise CallError(
                f"{name} has {len(ids)} tokens, expected at most {width}: seq, "
                f"{width - 1}, and one more"
            )
        tokens[number, : len(ids)] = ids
        weights[number, : len(learned[1:])] = learned[1:]
    others = {k: v for k, v in block.items() if k not in (column, LABELS)}
    return {**others, "tokens": tokens, WEIGHTS: weights}


class _Bins:
    """Rows by the room that is left in them."""

    def __init__(self, width: int):
        self.width = width
        self.rows: list[list[int]] = []
        self.rooms: list[int] = []  # sorted
        self.by_room: dict[int, list[int]] = {}

    def add(self, item: int, length: int) -> None:
        """To the fullest row that has room for it, or to a new one."""
        at = bisect.bisect_left(self.rooms, length)
        if at == len(self.rooms):
            room, row = self.width, len(self.rows)
            self.rows.append([])
        else:
            room = self.rooms[at]
            row = self.by_room[room].pop()
            if not self.by_room[room]:
                del self.by_room[room]
                self.rooms.pop(at)
        self.rows[row].append(item)
        left = room - length
        if left not in self.by_room:
            bisect.insort(self.rooms, left)
        self.by_room.setdefault(left, []).append(row)


def _read_item(
    item: Any, column: str | None, extra: Any, most: int, what: str
) -> tuple[Any, Any]:
    """Tokens of an item, `extra` behind them, and the weights of all. What is before the
    item is another one, so that its first token is no target."""
    import numpy

    if not isinstance(item, Mapping) or LABELS not in item:
        raise CallError(f"{what} is {kind_of(item)}, expected a mapping with '{LABELS}'")
    ids, learned = _read(item, _find_column(item, column, what), what)
    number = len(ids) + len(extra)
    if not len(ids) or number > most:
        raise CallError(f"{what} has {number} tokens, expected 1 to {most}")
    learned[0] = 0.0
    return numpy.append(ids, extra), numpy.append(learned, numpy.zeros(len(extra)))


def _read_end(end: Any) -> Any:
    """The tokens behind an item, of NumPy: one or none."""
    import numpy

    try:
        extra = [] if end is None else [operator.index(end)]
        check_tokens(min(extra, default=0), max(extra, default=0), "end")
    except (TypeError, CallError):
        raise OptionError(f"end is {end}, expected a token", option="end") from None
    return numpy.array(extra, "<i4")


def pack(
    data: Iterable[Mapping], seq: int, *, end: int | None = None, column: str | None = None
) -> list[dict[str, Any]]:
    """Puts several items with labels into each row of `seq` + 1 tokens, whole, and fills
    what is left: the longest first, each into the fullest row that has room for it (best
    fit decreasing). `end` is a token behind each item, for a plan with a document mask.
    Rows are in the order of their first items."""
    import numpy

    width, extra = to_count("seq", seq) + 1, _read_end(end)
    items = [
        _read_item(item, column, extra, width, f"item {number} of the data")
        for number, item in enumerate(data)
    ]
    bins = _Bins(width)
    order = sorted(range(len(items)), key=lambda i: -len(items[i][0]))
    for number in order:
        bins.add(number, len(items[number][0]))
    rows = []
    for row in sorted(sorted(own) for own in bins.rows):
        tokens, weights = numpy.zeros(width, "<i4"), numpy.zeros(width, "<f4")
        joined = [numpy.concatenate([items[i][k] for i in row]) for k in (0, 1)]
        tokens[: len(joined[0])], weights[: len(joined[1])] = joined
        rows.append({"tokens": tokens, WEIGHTS: weights[1:]})
    return rows
