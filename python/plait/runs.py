# ===- runs.py - Runs of plans -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""A run, step by step, with its weights and gradients."""

from __future__ import annotations

import ctypes
import dataclasses
import difflib
import itertools
import json
import math
import os
import pathlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from . import _dlpack, _library, display, hooks, options, rows
from .errors import CallError, Error
from .plans import Plan
from .progress import make_progress


@dataclasses.dataclass(frozen=True)
class Step:
    """The outcome of a step, whose number counts from 1. `loss` is a mean over
    `tokens`. Where `skipped` loss or gradient was not finite and nothing was updated;
    where `rolled_back` the run has gone back to a checkpoint. `evaluation_loss` is that
    on held-out data, where it was due after the step. `losses` are those that the model
    names, and `evaluation_losses` the same on held-out data."""

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    seconds: float
    skipped: bool
    rolled_back: bool
    evaluation_loss: float | None
    losses: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluation_losses: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


class UnknownName(CallError, KeyError):
    """A parameter that the plan does not have."""


class Tensors(Mapping[str, Any]):
    """Tensors of a run by the name of their parameter. Of a run by several processes
    all have to ask for the same ones; those without rank 0 get None."""

    def __init__(self, run: Run, kind: int):
        self._run = run
        self._kind = kind
        is_weight = kind == _library.WEIGHT
        facts = run.plan.facts["parameters"]
        self._inner = {
            x["name"]: tuple(x["shape"]) for x in facts if is_weight or not x["frozen"]
        }

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __contains__(self, name: object) -> bool:
        return name in self._inner

    def __getitem__(self, name: str) -> Any:
        return self._get(name, _library.WHOLE, self._shape(name))

    def of_rank(self, name: str, rank: int) -> Any:
        """What a rank of this process holds of the tensor, in the dimensions that the
        plan has, padding included."""
        self._shape(name)
        return self._get(name, rank, None)

    def _get(self, name: str, rank: int, shape: tuple[int, ...] | None) -> Any:
        address = ctypes.c_void_p()
        self._run.native.call(
            "plait_run_tensor", name.encode(), self._kind, rank, ctypes.byref(address)
        )
        return _dlpack.Tensor(address.value, shape) if address.value else None

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self._inner:
            near = difflib.get_close_matches(str(name), self._inner, 3)
            hint = f"near it are {', '.join(near)}" if near else ""
            raise UnknownName(f"the run has no '{name}'", hint=hint)
        return self._run.plan.parameters[name]

    def __repr__(self) -> str:
        return f"<{len(self)} tensors of a plait.Run>"


class Weights(Tensors):
    """Weights, which can be set: whole tensors of NumPy, of PyTorch, or lists."""

    def __setitem__(self, name: str, value: Any) -> None:
        given = _dlpack.Given(value, name, self._shape(name), self._inner[name])
        self._run.native.call("plait_run_set_tensor", name.encode(), given.pointer())


class _Held:
    """Holds an interrupt back while the library works, so that no step is lost."""

    def __enter__(self) -> _Held:
        self.was_interrupted = False
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            # Others have reasons of their own.
            if self._before is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, *_: Any) -> None:
        self.was_interrupted = True

    def __exit__(self, *_: Any) -> None:
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._before)


class Run:
    """A run of a plan: an iterator of its steps. It may be left and gone on with, and
    between two steps its weights can be read, set and saved. An interrupt comes between
    two steps, as KeyboardInterrupt."""

    def __init__(
        self,
        plan: Plan,
        encoded: bytes,
        source: rows.Table | rows.Stream | None,
        called: hooks.Callbacks,
        run_name: str | None = None,
        shows: bool | None = None,
    ):
        self.plan = plan
        self.history: list[Step] = []
        self.native = _library.Owner(
            plan.native.session, "plait_run_begin", plan.native.handle, encoded
        )
        facts = self.facts
        self.step: int = facts["step"]
        self.steps: int = facts["steps"]
        self.options: dict[str, Any] = facts["options"]
        self.ranks: list[int] = facts["ranks"]
        self.weights = Weights(self, _library.WEIGHT)
        self.gradients = Tensors(self, _library.GRADIENT)
        self._shape = rows.Shape.of(plan)
        # A run that is resumed goes on where it was in the data.
        self._source = source
        self._taken = self.step * plan.global_batch  # rows
        self._rows: list[bytes] = []  # of the next batch
        self._feed = source.read(self._taken) if source else None
        self._reads = threading.Lock()
        self._is_over = False
        self._progress = make_progress(shows if self.leads else False)
        self._callbacks = called
        called.attach(self, run_name, source.number if source else None)

    # What is known ------------------------------------------------------------

    @property
    def facts(self) -> dict[str, Any]:
        """Where the run is, its options, and the ranks of this process."""
        return json.loads(self.native.text("plait_describe"))

    @property
    def leads(self) -> bool:
        """Whether this process has rank 0: the one that writes and shows."""
        return 0 in self.ranks

    def to_json(self) -> str:
        """Where the run is, and the steps that this process has seen."""
        history = []
        for step in self.history:
            fields = dataclasses.asdict(step)
            # JSON has neither nan nor inf.
            history.append(
                {
                    name: None if isinstance(x, float) and not math.isfinite(x) else x
                    for name, x in fields.items()
                }
            )
        return json.dumps({**self.facts, "history": history}, indent=2)

    def __repr__(self) -> str:
        loss = f", loss {self.history[-1].loss:.4f}" if self.history else ""
        return f"<plait.Run at step {self.step} of {self.steps}{loss}>"

    def _repr_html_(self) -> str:
        return display.draw_run(self)

    # Steps --------------------------------------------------------------------

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> Step:
        if self._is_over:
            raise StopIteration
        is_done = self.step >= self.steps or self._callbacks.control.should_training_stop
        batch = None if is_done else self._take_batch()
        if batch is None:
            self._end()
            raise StopIteration
        return self._do_step(batch)

    def train_step(self, batch: Any) -> Step:
        """One step on the rows of a global batch, of seq + 1 tokens each, in the place
        of data that plait.train was given."""
        return self._do_step(self._shape.batch(batch))

    def complete(self) -> Run:
        """Does all steps that are left."""
        for _ in self:
            pass
        return self

    def _take_batch(self) -> bytes | None:
        """None: the data is at its end. Nothing: the run reads files."""
        if self._source is None:
            if self.options.get("tokens") or self.options.get("text"):
                return b""
            raise CallError("the run has no data", hint="give rows to train_step()")
        if not self._reads.acquire(blocking=False):
            raise CallError(
                "the run reads the rows of a step already",
                hint="its data and other threads cannot take the next step meanwhile",
            )
        try:
            for row in itertools.islice(self._feed, self._shape.rows - len(self._rows)):
                self._rows.append(row)
                self._taken += 1
        except BaseException:
            # What an exception has left, as that of an interrupt, gives no more.
            self._feed = self._source.read_on(self._taken)
            raise
        finally:
            self._reads.release()
        if len(self._rows) == self._shape.rows:
            batch, self._rows = self._rows, []
            return b"".join(batch)
        self.native.session.warn_of(
            f"the data ended after {self.step} of {self.steps} steps"
        )
        return None

    def _do_step(self, batch: bytes) -> Step:
        self._callbacks.begin_step()
        record = _library.StepRecord(ctypes.sizeof(_library.StepRecord))
        with _Held() as held:
            try:
                self.native.call(
                    "plait_run_step",
                    batch or None,
                    len(batch) // rows.BYTES,
                    ctypes.byref(record),
                )
            except Error:
                self._progress.end()
                raise
            step = _read_step(record, self.plan.facts["named_losses"])
            self.history.append(step)
            self.step = self.facts["step"] if step.rolled_back else step.step
        self._progress.update(self, is_last=self.step >= self.steps)
        self._callbacks.end_step(step, self.step)
        if self._callbacks.wants_save():
            self.checkpoint()
        if held.was_interrupted:
            self._progress.end()
            raise KeyboardInterrupt
        return step

    def _end(self) -> None:
        """What plait-run does behind the last step."""
        self._is_over = True
        self._progress.end()
        if self.history and self.options.get("checkpoint"):
            self.checkpoint()
        self._callbacks.end()

    # Results ------------------------------------------------------------------

    def save_pretrained(self, folder: options.PathLike) -> pathlib.Path:
        """Writes the weights as a model folder, which transformers open where the model
        is one of theirs; of a model with `lora` its adapters alone, which peft opens. All
        processes call this."""
        folder = pathlib.Path(folder)
        self.native.call("plait_run_save", os.fsencode(folder))
        if self.leads and self.plan.model and not self.plan.model.has_adapters:
            precision = self.options.get("export-precision") or "fp32"
            self.plan.model.write_config(folder, precision)
        self._callbacks.fire("on_save")
        return folder

    def checkpoint(self) -> None:
        """Writes a checkpoint into the folder that the option `checkpoint` names, and
        waits for it. All processes call this."""
        self.native.call("plait_run_checkpoint")
        self._callbacks.fire("on_save")

    def close(self) -> None:
        """Ends the run. Tensors of it stay what they are."""
        self._is_over = True
        self._progress.end()
        self._callbacks.end()
        self.native.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _read_step(record: _library.StepRecord, names: list[str]) -> Step:
    evaluation = record.evaluation_loss
    is_evaluated = not math.isnan(evaluation)
    return Step(
        record.step,
        record.loss,
        record.gradient_norm,
        record.learning_rate,
        int(record.tokens),
        record.seconds,
        bool(record.skipped),
        bool(record.rolled_back),
        evaluation if is_evaluated else None,
        dict(zip(names, record.named_losses)),
        dict(zip(names, record.evaluation_named_losses)) if is_evaluated else {},
    )
