# ===- inputs.py - Floats beside tokens -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Which arguments of a module or of its loss are floats that a run is given."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

from ..errors import Error, kind_of
from .export import FloatInput

# Of the nn dialect (FloatInputs.h).
MOST = 16
_NAME = re.compile(r"[A-Za-z_]\w{0,31}", re.ASCII)


def read(
    module, loss, features: Mapping[str, Any] | None, context: Mapping[str, Any] | None
) -> tuple[FloatInput, ...]:
    """Features, and then context."""
    found: list[FloatInput] = []
    for option, given in (("features", features), ("context", context)):
        if not isinstance(given or {}, Mapping):
            raise Error(f"{option} is {kind_of(given)}, expected names with shapes")
        for name, shape in (given or {}).items():
            if any(own.name == name for own in found):
                raise Error(f"'{name}' is both in features and in context")
            of_loss = _is_of_loss(module, loss, option, name)
            shape = _read_shape(option, name, shape)
            found.append(FloatInput(name, shape, option == "features", of_loss))
    if len(found) > MOST:
        raise Error(f"{len(found)} float inputs, expected at most {MOST}")
    return tuple(found)


def _read_shape(option: str, name: str, shape: Any) -> tuple[int, ...]:
    """A number is one dimension."""
    extents = (shape,) if isinstance(shape, int) else shape
    if not isinstance(extents, (tuple, list)) or not all(
        isinstance(x, int) and x > 0 for x in extents
    ):
        first = "[batch, seq, …]" if option == "features" else "[batch, …]"
        raise Error(
            f"{option} has '{name}' with {shape!r}, expected the extents of {first} behind "
            "the dots, as (3, 32)"
        )
    return tuple(extents)


def _is_of_loss(module, loss, option: str, name: Any) -> bool:
    """The module's own, or the loss's."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Error(
            f"{option} has the name {name!r}, expected at most 32 letters, digits and "
            "underscores"
        )
    if name in ("tokens", "targets", "keys"):
        raise Error(f"{option} has the name '{name}', which plait has for something else")
    if loss is not None and name in _parameters(loss):
        return True
    named = _parameters(module.forward)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in named.values())
    if name not in named and not takes_all:
        raise Error(
            f"{option} has '{name}', which is an argument of neither forward() nor loss()"
        )
    return False


def _parameters(function) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def comes_first(module, floats: tuple[FloatInput, ...]) -> bool:
    """Whether one is in the place of the tokens."""
    first = next(iter(_parameters(module.forward)), None)
    return any(own.name == first and not own.of_loss for own in floats)
