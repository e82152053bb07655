# ===- training.py - From options to a run -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""plait.train."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import options, rows
from .errors import CallError, OptionError, kind_of
from .hooks import Callbacks
from .plans import Plan, load
from .runs import Run

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Options that are lists.
_LISTS = ("tokens", "text", "eval_tokens", "eval_text")


def train(
    plan: Plan | options.PathLike,
    data: Any = None,
    *,
    column: str | None = None,
    order: str = "given",
    callbacks: Iterable[Any] = (),
    run_name: str | None = None,
    log_every: int = 1,
    progress: bool | None = None,
    **given: Unpack[options.RunOptions],
) -> Run:
    """Begins to train a plan in this process, or as the ranks of this process where
    mpirun, srun or torchrun has started several. The run that it returns is an iterator
    of steps.

    `data` is an array [n, seq + 1] of tokens, a long one of tokens, or an iterable of
    rows or of batches; of rows with columns, as those of Hugging Face's datasets,
    `column` names the tokens. `order` is "given" or "shuffled". `tokens` or `text`
    name files in its place. Without either, each step is given its rows:
    Run.train_step. `steps` is by default one pass over the rows.

    `callbacks` have methods of transformers' TrainerCallback, and hear of the loss
    each `log_every` steps; `run_name` is for them. `progress` is shown in terminals
    and notebooks, unless it is False. The other options are those of plait-run.
    `weights` is by default what a module had that from_torch has read; False: random
    ones."""
    options.check_names(given, options.RunOptions, "plait.train")
    asked: dict[str, Any] = dict(given)
    log_every = options.to_count("log_every", log_every)
    plan = _as_plan(plan)
    source = None
    if data is not None:
        source = _open(plan, data, column, order, asked)
    elif column is not None or order != "given":
        name = "column" if column is not None else "order"
        raise OptionError(f"{name} is of data, and there is none", option=name)
    _choose_weights(plan, asked)
    encoded = options.encode(asked, _LISTS)
    return Run(plan, encoded, source, Callbacks(callbacks, log_every), run_name, progress)


def _as_plan(plan: Any) -> Plan:
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, (str, os.PathLike)):
        return load(plan)
    raise CallError(
        f"plait.train got {kind_of(plan)}, expected a plan",
        hint="plait.compile makes one",
    )


def _open(
    plan: Plan, data: Any, column: str | None, order: str, given: dict[str, Any]
) -> rows.Table | rows.Stream:
    """Opens the data, and says how many steps there are where nobody has."""
    for name in ("tokens", "text", "shuffle"):
        if given.get(name):
            hint = "order='shuffled' shuffles rows" if name == "shuffle" else ""
            raise OptionError(
                f"{name} excludes data that is given", hint=hint, option=name
            )
    shape = rows.Shape.of(plan)
    source = rows.open_data(data, shape, column, order, given.get("seed") or 0)
    epochs = given.pop("epochs", None)
    if given.get("steps") is None:
        given["steps"] = _count_steps(source, epochs, plan.global_batch)
    elif epochs is not None:
        raise OptionError("epochs excludes steps", option="epochs")
    return source


def _count_steps(source: rows.Table | rows.Stream, epochs: Any, batch: int) -> int:
    if source.number is None:
        raise OptionError(
            "steps has to be given for data that does not say how many rows it has",
            option="steps",
        )
    if epochs is not None and not (isinstance(epochs, numbers.Real) and 0 < epochs < 1e9):
        raise OptionError(f"epochs is {epochs}, expected more than 0", option="epochs")
    steps = int((1 if epochs is None else epochs) * source.number // batch)
    if steps < 1:
        raise OptionError(
            f"the data has {source.number} rows, and a step takes {batch}",
            hint="steps= reads it again from its end on",
            option="steps",
        )
    return steps


def _choose_weights(plan: Plan, given: dict[str, Any]) -> None:
    weights = given.get("weights")
    if weights is True:
        raise OptionError("weights is True, expected a path or False", option="weights")
    if weights is False:
        given["weights"] = None
    elif weights is None and plan.model and not given.get("resume"):
        given["weights"] = plan.model.weights
