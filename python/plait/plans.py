# ===- plans.py - Compiled plans -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""plait.compile and plait.load: plans, which can be run."""

from __future__ import annotations

import functools
import json
import math
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from . import _library, display, options, tools
from .choices import Choice
from .errors import FileError
from .models import Model, as_model

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Plan:
    """A compiled plan, the file `path`. `model` is what it was compiled from and
    `choice` what the planner said of it, where that is known."""

    def __init__(
        self,
        path: options.PathLike,
        model: Model | None = None,
        choice: Choice | None = None,
        folder: tempfile.TemporaryDirectory | None = None,
    ):
        self.path = pathlib.Path(path)
        self.model = model
        self.choice = choice
        self._folder = folder
        session = _library.shared_session()
        self.native = _library.Owner(
            session, "plait_plan_load", session.handle, os.fsencode(self.path)
        )

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """What the file says of itself: mesh, sizes of a batch, parameters."""
        return json.loads(self.native.text("plait_describe"))

    @property
    def mesh(self) -> dict[str, int]:
        return self.facts["mesh"]

    @property
    def ranks(self) -> int:
        return self.facts["ranks"]

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        return self.facts["global_batch"]

    @property
    def seq(self) -> int:
        """Tokens of a sequence."""
        return self.facts["sequence"]

    @property
    def vocabulary(self) -> int:
        return self.facts["vocabulary"]

    @functools.cached_property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shapes by name: those of files and modules, where the plan has the tensor
        whole, which it may divide into more dimensions."""
        shapes = {}
        for x in self.facts["parameters"]:
            own, file = tuple(x["shape"]), tuple(x["file_shape"])
            shapes[x["name"]] = file if math.prod(file) == math.prod(own) else own
        return shapes

    @functools.cached_property
    def replay(self) -> tools.Replay | None:
        """The plan step by step, with predicted times, by plait-plan; None where that
        tool is not found."""
        return tools.replay(self.path)

    def save(self, path: options.PathLike) -> pathlib.Path:
        """Copies the file; plait-run, plait-plan and plait.load read it."""
        path = pathlib.Path(path)
        part = path.with_name(f".{path.name}.part")
        try:
            shutil.copyfile(self.path, part)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise FileError(f"cannot write '{path}': {error.strerror}", code=21) from None
        return path

    def to_json(self) -> str:
        """What the file says of itself, and what was predicted."""
        content = dict(self.facts)
        if self.choice:
            content["prediction"] = self.choice.prediction
        return json.dumps(content, indent=2)

    def __repr__(self) -> str:
        mesh = " ".join(f"{axis}={size}" for axis, size in self.mesh.items())
        return f"<plait.Plan of {self.facts['model']} for {self.ranks} ranks, {mesh}>"

    def _repr_html_(self) -> str:
        return display.draw_plan(self)


def compile(  # noqa: A001 plait.compile
    model: Model | Choice | options.PathLike | Any,
    path: options.PathLike | None = None,
    **given: Unpack[options.CompileOptions],
) -> Plan:
    """Compiles a model, or what plait.plan has chosen for one, and proves that the
    plan trains it. The plan is written to `path`, or else to a temporary folder, which
    goes with the returned object. Nothing is chosen: what is not given has its default.
    Options are those of plaitc."""
    options.check_names(given, options.CompileOptions, "plait.compile")
    choice = model if isinstance(model, Choice) else None
    asked = {**choice.options, **given} if choice else given
    source = choice.model if choice else as_model(model)
    folder = None
    if path is None:
        folder = tempfile.TemporaryDirectory(prefix="plait-")
        path = pathlib.Path(folder.name) / f"{source.name}.plan"
    native = source.native
    # Runs of all plans are of one session, which loads it.
    _library.Owner(
        native.session,
        "plait_model_compile",
        native.handle,
        options.encode(asked),
        os.fsencode(path),
    ).close()
    return Plan(path, source, choice, folder)


def load(path: options.PathLike) -> Plan:
    """Opens a plan that plait.compile or plaitc has written."""
    return Plan(path)
