# ===- errors.py - What goes wrong, and where -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""The exceptions of the package, a class for a family of the library's codes."""

from __future__ import annotations

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


class Error(Exception):
    """An error of plait: one line that names the culprit, the value and the bound.

    `code` is the cause, as docs/Errors.md numbers it; `option` the keyword argument
    that is to blame, `location` the line of the model or of the user's Python that
    caused it, and `hint` what may help, each an empty text where there is none."""

    code = 1

    def __init__(
        self,
        message: str,
        place: Place | None = None,
        hint: str = "",
        *,
        code: int | None = None,
        option: str = "",
        location: str = "",
    ):
        self.message = message
        self.place = place or Place()
        self.hint = hint
        self.code = type(self).code if code is None else code
        self.option = option
        self._location = location
        super().__init__(message)

    @property
    def location(self) -> str:
        return self._location or str(self.place)

    def located(self, place: Place) -> Error:
        """The same, at `place` if it has none of its own yet."""
        if not self.location:
            self.place = place
        return self

    def __str__(self) -> str:
        head = f"{self.location}: " if self.location else ""
        inside = f" (in {self.place.module})" if self.place.module else ""
        return f"{head}{self.message}{inside}" + (f"; {self.hint}" if self.hint else "")

    def __reduce__(self):
        return _remake, (type(self), self.args, self.__dict__)


def _remake(kind: type[Error], arguments: tuple, fields: dict) -> Error:
    """An error that another process has raised."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(fields)
    return error


def kind_of(value: object) -> str:
    """What a value is, for messages: "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


class CallError(Error):
    """A call that comes too early or too late, or gets what it cannot use."""

    code = 2


class OptionError(Error, ValueError):
    """An option that there is not, or whose value is refused."""

    code = 10


class FileError(Error):
    """A file that cannot be read or written."""

    code = 20


class ModelError(Error):
    """A model that is refused, or cannot be compiled as it was asked for."""

    code = 30


class NotExpressible(ModelError):
    """A part of a module for which the nn dialect has no operation."""


class ExportError(ModelError):
    """A module that torch.export cannot trace."""


class DoesNotFit(Error):
    """A model for which the cluster has too little memory."""

    code = 40


class ProofError(Error):
    """A plan that computes something else than its model: a defect of plait."""

    code = 50


class ProcessError(Error):
    """Another process that has failed, or was waited for too long."""

    code = 60


_FAMILIES = {
    2: CallError,
    10: OptionError,
    20: FileError,
    21: FileError,
    22: FileError,
    30: ModelError,
    31: ModelError,
    40: DoesNotFit,
    41: DoesNotFit,
    50: ProofError,
    60: ProcessError,
    61: ProcessError,
}


def make_error(
    code: int, message: str, option: str = "", location: str = "", hint: str = ""
) -> Error:
    """The error of a code, which another version of the library may have added. A
    failure without a cause that has an option is that option's."""
    code = OptionError.code if option and code == Error.code else code
    kind = _FAMILIES.get(code, Error)
    return kind(message, hint=hint, code=code, option=option, location=location)


class Warning(UserWarning):  # noqa: A001 plait.Warning, as plait.Error
    """What the library warns of."""
