# ===- axes.py - Dimensions as lists of factors -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Dimensions of PyTorch's tensors as lists of factors.

A `view` splits and joins dimensions, which the nn dialect cannot. So a dimension
is a list of axes, outermost first, whose extents multiply to its own; `view` and
`permute` only write these lists anew. Where two tensors meet, their lists are made
to have the same extents: an axis that is too long is split, there and wherever its
size occurs. In the end each axis is one dimension of an nn tensor."""

import math

from ..errors import NotExpressible


class Size:
    """An extent, which may turn out to be a product. Axes that have met share one."""

    def __init__(self, extent: int, kept: bool = False, whole: str = ""):
        self.extent = extent
        # What tokens have as one dimension, by name, stays one.
        self.whole = whole
        # An extent of 1 is left out, unless it is kept: a batch of one, and the
        # dimensions of attention.
        self.kept = kept
        self.parts: list[Size] | None = None
        self.same: Size | None = None

    def root(self) -> "Size":
        size = self
        while size.same:
            size = size.same
        return size

    def split(self, *extents: int, kept: bool = False) -> None:
        """In factors, outermost first. `kept`: those of 1 are dimensions, too."""
        assert self.parts is None and math.prod(extents) == self.extent
        if self.whole:
            shown = " and ".join(map(str, extents))
            raise NotExpressible(f"{self.whole} would have to be split in {shown}")
        self.parts = [Size(x, kept and x == 1) for x in extents]

    def merge(self, other: "Size") -> None:
        """Both are whole, and equal."""
        if self is not other:
            other.kept |= self.kept
            other.whole = other.whole or self.whole
            self.same = other


class Axis:
    """A dimension of a tensor, or a factor of one: the extent is that of `size`,
    the identity its own."""

    def __init__(self, size: Size):
        self.size = size
        self._parts: list[Axis] | None = None

    @property
    def extent(self) -> int:
        return self.size.root().extent

    def leaves(self) -> list["Axis"]:
        """What it has been split into."""
        size = self.size.root()
        if size.parts is None:
            return [] if size.extent == 1 and not size.kept else [self]
        if self._parts is None:
            self._parts = [Axis(part) for part in size.parts]
        return leaves(self._parts)


Dim = list[Axis]


def leaves(axes: Dim) -> Dim:
    return [leaf for axis in axes for leaf in axis.leaves()]


def flat(dims: list[Dim]) -> Dim:
    return [axis for dim in dims for axis in dim]


def extent(axes: Dim) -> int:
    return math.prod(axis.extent for axis in axes)


def copy(axes: Dim) -> Dim:
    """Other axes of the same sizes."""
    return [Axis(axis.size) for axis in axes]


def make(extent: int) -> Dim:
    return [] if extent == 1 else [Axis(Size(extent))]


def _is_unit(axes: Dim) -> bool:
    return bool(axes) and axes[0].extent == 1


def pairs(xs: Dim, ys: Dim) -> list[tuple[Axis, Axis]]:
    """Which leaves of two unified dimensions are the same. A kept extent of 1 may
    have no partner."""
    xs, ys = leaves(xs), leaves(ys)
    result = []
    while xs and ys:
        if xs[0].extent == ys[0].extent:
            result.append((xs.pop(0), ys.pop(0)))
        else:
            (xs if _is_unit(xs) else ys).pop(0)
    return result


def unify(xs: Dim, ys: Dim) -> None:
    """Splits sizes until both have the same, and makes them one."""
    while True:
        matched, split = _meet(leaves(xs), leaves(ys))
        if split is None:
            break
        axis, extents = split
        axis.size.root().split(*extents, kept=1 in extents)
    for a, b in matched:
        a.size.root().merge(b.size.root())


def _meet(xs: Dim, ys: Dim):
    """The leaves that are the same, from the outside, until one has to be split: it,
    and the extents of its factors."""
    matched: list[tuple[Axis, Axis]] = []
    while xs or ys:
        if xs and ys and xs[0].extent == ys[0].extent:
            matched.append((xs.pop(0), ys.pop(0)))
        elif _is_unit(xs) or _is_unit(ys):
            swapped = _is_unit(ys)
            own, other = (ys, xs) if swapped else (xs, ys)
            own.pop(0)
            # One size on both sides would get the dimension on both, again and again.
            split = None
            if not _begin_alike(own, other):
                split = _insert(other, [m[not swapped] for m in matched])
            if split:
                return matched, split
        elif not xs or not ys:
            raise NotExpressible("two dimensions that meet differ in extent")
        else:
            long, short = (xs, ys) if xs[0].extent > ys[0].extent else (ys, xs)
            return matched, (long[0], factors(long[0], short[0].extent))
    return matched, None


def _begin_alike(xs: Dim, ys: Dim) -> bool:
    """Whether the first dimension above 1 is one size in both."""
    first = [next((a.size.root() for a in z if a.extent > 1), None) for z in (xs, ys)]
    return first[0] is not None and first[0] is first[1]


def _insert(ahead: Dim, behind: Dim):
    """Where a dimension of 1 goes that only the other side has: before what is ahead,
    else behind what there was. None where that is the batch, or nothing."""
    if ahead and not ahead[0].size.root().kept:
        return ahead[0], (1, ahead[0].extent)
    if not ahead and behind and not behind[-1].size.root().kept:
        return behind[-1], (behind[-1].extent, 1)
    return None


def factors(axis: Axis, outer: int) -> tuple[int, int]:
    """`outer` times the rest."""
    if axis.extent % outer:
        raise NotExpressible(
            f"a dimension of {axis.extent} would have to be split in parts of "
            f"{outer}, which does not divide it"
        )
    return outer, axis.extent // outer


def reshape(dims: list[Dim], shape: list[int]) -> list[Dim]:
    """The axes of `dims` as dimensions of the extents `shape`."""
    rest, result = leaves(flat(dims)), []
    for index, count in enumerate(shape):
        taken: Dim = []
        while extent(taken) < count:
            axis, have = rest[0], extent(taken)
            if count % (have * axis.extent):
                factor = math.gcd(count // have, axis.extent)
                if factor == 1:
                    raise NotExpressible(
                        f"a view as {list(shape)} mixes dimensions that are no "
                        "multiples of each other"
                    )
                axis.size.root().split(*factors(axis, factor))
                rest = leaves(rest)
            else:
                taken.append(rest.pop(0))
        # A kept extent of 1 stays with what it is behind of, unless a dimension of 1
        # waits for it.
        while rest and _is_unit(rest) and (not taken or 1 not in shape[index + 1 :][:1]):
            taken.append(rest.pop(0))
        result.append(taken)
    return result
