# ===- errors.py - What goes wrong, and where -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""The exceptions of the package."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in a program something comes from: the path of the module that was
    called, `model.layers.3.mlp`, and the line of Python."""

    module: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""


class PlaitError(Exception):
    """An error with the line of the user's Python that caused it, where one did,
    and what can be done about it."""

    def __init__(self, message: str, place: Place | None = None, hint: str = ""):
        self.message = message
        self.place = place or Place()
        self.hint = hint
        super().__init__(message)

    def located(self, place: Place) -> "PlaitError":
        """The same, at `place` if it has none of its own yet."""
        if not self.place.file:
            self.place = place
        return self

    def __str__(self) -> str:
        head = f"{self.place}: " if self.place.file else ""
        inside = f" (in {self.place.module})" if self.place.module else ""
        return f"{head}{self.message}{inside}" + (f"; {self.hint}" if self.hint else "")


class NotExpressible(PlaitError):
    """A part of a module for which the nn dialect has no operation."""


class ExportError(PlaitError):
    """A module that torch.export cannot trace."""
