# ===- audits.py - Jobs of other programs -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""plait.audit: the job of another program, and what would be better."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _library, options
from .choices import Choice, check_program, make_choice
from .errors import CallError, FileError, kind_of
from .models import ConfiguredModel, Model, as_model

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Audit:
    """A job that was read: `job` is what it does and costs, `best` the best that the
    same program could run, both as of plait.plan. `notes` name what was not read."""

    def __init__(self, job: Choice, best: Choice, notes: list[str], text: str):
        self.job = job
        self.best = best
        self.notes = notes
        self._text = text

    @property
    def gain(self) -> float:
        """How many times as fast the best is."""
        return self.job.seconds / self.best.seconds

    def to_json(self) -> str:
        content = {
            "job": json.loads(self.job.to_json()),
            "best": json.loads(self.best.to_json()),
            "notes": self.notes,
        }
        return json.dumps(content, indent=2)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<plait.Audit, the best is {self.gain:.2f} times as fast>"


def audit(
    job: options.PathLike | Sequence[str],
    program: str = "megatron",
    *,
    model: Model | options.PathLike | Any = None,
    ignore_field: options.Texts = (),
    **given: Unpack[options.CompileOptions],
) -> Audit:
    """Reads the job of another program: a list of its flags, their text, or the path of
    a script, as a pathlib.Path. It runs on `cluster`. `model` is for flags that do not
    say it, and what else is given outweighs the job. `ignore_field` names flags that
    change neither arithmetic nor layout."""
    options.check_names(given, options.CompileOptions, "plait.audit")
    check_program(program)
    source = None if model is None else as_model(model)
    session = source.native.session if source else _library.shared_session()
    asked = {**given, "ignore_field": ignore_field or None}
    answer = json.loads(
        session.text(
            "plait_job_audit",
            session.handle,
            program.encode(),
            _read_job(job).encode(),
            source.native.handle if source else None,
            options.encode(asked, ("ignore_field",)),
        )
    )
    source = source or ConfiguredModel(json.loads(answer["config"]), {})
    best = make_choice(source, answer["best"])
    return Audit(make_choice(source, answer), best, answer["notes"], answer["text"])


def _read_job(job: Any) -> str:
    if isinstance(job, str):
        return job
    if isinstance(job, os.PathLike):
        path = pathlib.Path(job)
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise FileError(f"cannot read '{path}': {reason}") from None
    if isinstance(job, Sequence) and all(isinstance(word, str) for word in job):
        return shlex.join(job)
    raise CallError(f"plait.audit got {kind_of(job)}, expected flags or a path")
