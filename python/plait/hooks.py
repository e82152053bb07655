# ===- hooks.py - Callbacks by transformers' names -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Calls objects that have methods of transformers' TrainerCallback, without importing
transformers: what they get has the fields that they read there."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import CallError, kind_of

if TYPE_CHECKING:
    from .runs import Run, Step

EVENTS = (
    "on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end",
    "on_log", "on_evaluate", "on_save", "on_epoch_end", "on_train_end",
)  # fmt: skip
# What callbacks get of a Trainer, and plait does not have.
NOTHING = (
    "processing_class", "tokenizer", "optimizer", "lr_scheduler", "train_dataloader",
    "eval_dataloader",
)  # fmt: skip


class Arguments:
    """In the place of TrainingArguments: the options of the run, and those fields of
    transformers that callbacks read."""

    def __init__(self, fields: Mapping[str, Any]):
        self._fields = {
            "output_dir": ".",
            "logging_dir": None,
            "run_name": None,
            "seed": 0,
            "max_steps": 0,
            "num_train_epochs": 1,
            "learning_rate": 0.0,
            "logging_strategy": "steps",
            "logging_steps": 1,
            "logging_first_step": True,
            "logging_nan_inf_filter": False,
            "eval_strategy": "no",
            "eval_steps": None,
            "eval_delay": 0,
            "save_strategy": "no",
            "save_steps": 0,
            "load_best_model_at_end": False,
            "metric_for_best_model": "eval_loss",
            "greater_is_better": False,
            "report_to": [],
            "disable_tqdm": False,
            "world_size": 1,
            "process_index": 0,
            "local_process_index": 0,
            "push_to_hub": False,
            "hub_model_id": None,
            **{name: value for name, value in fields.items() if value is not None},
        }
        self.__dict__.update(self._fields)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def to_sanitized_dict(self) -> dict[str, Any]:
        kinds = (bool, int, float, str)
        return {
            k: x if isinstance(x, kinds) else str(x) for k, x in self.to_dict().items()
        }

    def to_json_string(self) -> str:
        return json.dumps(self.to_dict(), indent=2, default=str)


@dataclasses.dataclass
class State:
    """The fields of TrainerState."""

    epoch: float = 0.0
    global_step: int = 0
    max_steps: int = 0
    logging_steps: int = 1
    eval_steps: int = 0
    save_steps: int = 0
    train_batch_size: int | None = None
    num_train_epochs: int = 1
    num_input_tokens_seen: int = 0
    total_flos: float = 0.0
    log_history: list[dict[str, float]] = dataclasses.field(default_factory=list)
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    trial_name: str | None = None
    trial_params: dict[str, Any] | None = None
    stateful_callbacks: dict[str, Any] = dataclasses.field(default_factory=dict)

    def save_to_json(self, json_path: str) -> None:
        with open(json_path, "w", encoding="utf-8") as file:
            file.write(
                json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"
            )


@dataclasses.dataclass
class Control:
    """The fields of TrainerControl, which callbacks set."""

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False


class Config(dict):
    """A config.json as callbacks read it."""

    def to_dict(self) -> dict[str, Any]:
        return dict(self)

    def to_json_string(self) -> str:
        return json.dumps(self, indent=2, default=str)


class Trained:
    """What callbacks get as the model: what they log of one."""

    def __init__(self, config: Mapping[str, Any] | None, parameters: int):
        self.config = None if config is None else Config(config)
        self._parameters = parameters

    def num_parameters(self) -> int:
        return self._parameters


class Callbacks:
    """The callbacks of a run, each of which gets what those before have left of the
    state and the control. Without any, nothing happens."""

    def __init__(self, given: Iterable[Any], log_every: int):
        if not isinstance(given, Iterable):
            raise CallError(f"callbacks is {kind_of(given)}, expected a list")
        self.each = [x() if isinstance(x, type) else x for x in given]
        for one in self.each:
            if not any(callable(getattr(one, name, None)) for name in EVENTS):
                raise CallError(
                    f"{kind_of(one)} is no callback: it has none of {', '.join(EVENTS)}"
                )
        self.control = Control()
        self._log_every = log_every
        self._has_begun = False

    def attach(self, run: Run, run_name: str | None, rows: int | None) -> None:
        """Tells of a run. `rows` are those of a pass over the data, where known."""
        plan = run.plan
        config = plan.model.config if plan.model else None
        parameters = sum(math.prod(shape) for shape in plan.parameters.values())
        self._rows_of_step = plan.global_batch
        self._rows = rows
        self.args = _make_arguments(run, run_name, self._log_every)
        self.state = State(
            global_step=run.step,
            max_steps=run.steps,
            logging_steps=self._log_every,
            train_batch_size=plan.global_batch,
            is_local_process_zero=run.leads,
            is_world_process_zero=run.leads,
        )
        self._shared = dict.fromkeys(NOTHING) | {"model": Trained(config, parameters)}
        self.fire("on_init_end")

    def fire(self, event: str, **more: Any) -> None:
        for one in self.each:
            function = getattr(one, event, None)
            if callable(function):
                shared = {**self._shared, **more}
                answer = function(self.args, self.state, self.control, **shared)
                if answer is not None:
                    self.control = answer

    def begin_step(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.fire("on_train_begin")
            self.fire("on_epoch_begin")
        self.fire("on_step_begin")

    def end_step(self, step: Step, reached: int) -> None:
        """`reached` is another step where the run was rolled back."""
        self.state.global_step = reached
        self.state.num_input_tokens_seen += step.tokens
        if self._rows:
            self.state.epoch = reached * self._rows_of_step / self._rows
        self.fire("on_step_end")
        if self.control.should_log or reached % self._log_every == 0:
            self.control.should_log = False
            self._log(
                {
                    "loss": step.loss,
                    "grad_norm": step.gradient_norm,
                    "learning_rate": step.learning_rate,
                    "tokens_per_second": step.tokens_per_second,
                }
            )
        if step.evaluation_loss is not None:
            metrics = {"eval_loss": step.evaluation_loss}
            self._log(metrics)
            self.fire("on_evaluate", metrics=metrics)
            # Behind the callbacks, as a Trainer does: they compare with those before.
            best = self.state.best_metric
            if best is None or step.evaluation_loss < best:
                self.state.best_metric = step.evaluation_loss
                self.state.best_global_step = reached

    def wants_save(self) -> bool:
        """Whether one has asked for a checkpoint since the last question."""
        wants, self.control.should_save = self.control.should_save, False
        return wants

    def end(self) -> None:
        if self._has_begun:
            self._has_begun = False
            self.fire("on_epoch_end")
            self.fire("on_train_end")

    def _log(self, logs: dict[str, float]) -> None:
        """What is no number is left out: charts have no place for it."""
        kept = {name: x for name, x in logs.items() if math.isfinite(x)}
        kept["epoch"] = self.state.epoch
        self.state.log_history.append({**kept, "step": self.state.global_step})
        self.fire("on_log", logs=kept)


def _make_arguments(run: Run, run_name: str | None, log_every: int) -> Arguments:
    """The options of the run, defaults too, and what they are there."""
    settings = {name.replace("-", "_"): value for name, value in run.options.items()}
    evaluates = settings.get("eval_tokens") or settings.get("eval_text")
    return Arguments(
        {
            **settings,
            # Of transformers, from step to step; of plait, the batches of each.
            "eval_steps": settings.get("eval_every"),
            "eval_strategy": "steps" if evaluates else "no",
            "output_dir": settings.get("checkpoint"),
            "max_steps": run.steps,
            "learning_rate": settings.get("lr"),
            "run_name": run_name,
            "logging_steps": log_every,
            "process_index": min(run.ranks),
            "plan": run.plan.facts["hash"],
            "mesh": dict(run.plan.mesh),
        }
    )
