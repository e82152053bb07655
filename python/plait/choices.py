# ===- choices.py - What the planner chooses -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""plait.plan: how to train a model on a cluster, with what it costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import display, options
from .errors import OptionError, kind_of
from .models import Model, as_model

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .plans import Plan


class Emitted(str):
    """A choice in the words of another program: its text, with `notes`, which that has
    no room for, and the `choice`."""

    notes: list[str]
    choice: Choice


class Choice:
    """A choice of the planner. `options` are arguments for plait.compile, and
    `prediction` all that was predicted, with the fields of docs/Planner.md."""

    def __init__(self, model: Model, chosen: dict[str, Any], prediction: dict[str, Any]):
        self.model = model
        self.options = chosen
        self.prediction = prediction

    @property
    def mesh(self) -> dict[str, int]:
        configuration = self.prediction["configuration"]
        return {axis: configuration[axis] for axis in options.AXES}

    @property
    def seconds(self) -> float:
        """The time of a step."""
        return self.prediction["iteration_seconds"]

    @property
    def tokens_per_second(self) -> float:
        return self.prediction["tokens_per_second"]

    @property
    def mfu(self) -> float:
        """The part of the devices' peak rate that the model's own FLOPs make."""
        return self.prediction["mfu"]

    @property
    def time(self) -> dict[str, float]:
        """Seconds of the step by what they are spent on, which add up to it."""
        parts = dict(self.prediction["breakdown_seconds"])
        for axis, seconds in self.prediction["exposed_comm_seconds"].items():
            parts[f"{axis} communication"] = seconds
        return parts

    @property
    def memory(self) -> list[dict[str, float]]:
        """Bytes of a rank by what they are for, stage by stage."""
        return self.prediction["memory_bytes"]

    @property
    def memory_limit(self) -> float:
        """Bytes of a device that training can use."""
        return self.prediction["memory_limit_bytes"]

    @property
    def alternatives(self) -> list[dict[str, Any]]:
        """The runners-up, best first, with `why` they are slower."""
        return self.prediction["alternatives"]

    @property
    def variants(self) -> list[dict[str, Any]]:
        """The choice with one thing changed, and what that does."""
        return self.prediction["variants"]

    def compile(
        self,
        path: options.PathLike | None = None,
        **given: Unpack[options.CompileOptions],
    ) -> Plan:
        """plait.compile of this choice."""
        from .plans import compile

        return compile(self, path, **given)

    def to_megatron(self) -> Emitted:
        """The choice as flags of Megatron-LM. What that program would train otherwise,
        or cannot do, is an error: plait.emit searches what it can do."""
        return emit(self.model, "megatron", **self._strategy())

    def to_torchtitan(self) -> Emitted:
        """The choice as a command of torchtitan, as to_megatron."""
        return emit(self.model, "torchtitan", **self._strategy())

    def to_deepspeed(self) -> Emitted:
        """The choice as a configuration of DeepSpeed, as to_megatron."""
        return emit(self.model, "deepspeed", **self._strategy())

    def _strategy(self) -> dict[str, Any]:
        """The options without those that say how plait's own kernels compute."""
        own = ("backend", "target", "target_cpu", "epilogues")
        return {name: x for name, x in self.options.items() if name not in own}

    def to_json(self) -> str:
        """The options and the prediction."""
        content = {"options": self.options, "prediction": self.prediction}
        return json.dumps(content, indent=2)

    def __str__(self) -> str:
        return display.print_choice(self)

    def __repr__(self) -> str:
        mesh = " ".join(f"{axis}={size}" for axis, size in self.mesh.items())
        return f"<plait.Choice {mesh}, a step takes {display.seconds(self.seconds)}>"

    def _repr_html_(self) -> str:
        return display.draw_choice(self)


def plan(
    model: Model | options.PathLike | Any, **given: Unpack[options.CompileOptions]
) -> Choice:
    """Lets the planner choose how to train a model on `cluster`: the fastest way that
    fits. What else is given is not chosen, as in `plan(model, cluster="h100:8",
    global_batch=128, seq=8192, mesh="tp=2")`. Options are those of plaitc."""
    options.check_names(given, options.CompileOptions, "plait.plan")
    if given.get("cluster") is None:
        raise OptionError(
            "plait.plan needs a cluster",
            hint='such as cluster="h100:8"',
            option="cluster",
        )
    source = as_model(model)
    text = source.native.text("plait_model_plan", options.encode(given))
    return make_choice(source, json.loads(text))


def make_choice(model: Model, answer: dict[str, Any]) -> Choice:
    """A choice as the library tells of it."""
    chosen = {name.replace("-", "_"): x for name, x in answer["options"].items()}
    return Choice(model, chosen, answer["prediction"])


def emit(
    model: Model | options.PathLike | Any,
    program: str,
    **given: Unpack[options.CompileOptions],
) -> Emitted:
    """Lets the planner choose among what another training program can run, "megatron",
    "torchtitan" or "deepspeed", and writes the choice in its words. Options are those
    of plait.plan."""
    options.check_names(given, options.CompileOptions, "plait.emit")
    check_program(program)
    source = as_model(model)
    answer = json.loads(
        source.native.text("plait_model_emit", options.encode(given), program.encode())
    )
    emitted = Emitted(answer["text"])
    emitted.notes = answer["notes"]
    emitted.choice = make_choice(source, answer)
    return emitted


def check_program(program: Any) -> None:
    if not isinstance(program, str):
        raise OptionError(
            f"the program is {kind_of(program)}, expected its name", option="program"
        )
