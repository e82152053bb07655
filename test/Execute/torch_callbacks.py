# ===- torch_callbacks.py - Callbacks of transformers -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Cases of python_package_torch.py: what transformers' own callbacks do in a run."""

import dataclasses
import os
import sys

from harness import require


def check_callbacks(suite) -> str:
    """Those of transformers, and one that is made of theirs."""
    from transformers import (
        DefaultFlowCallback,
        PrinterCallback,
        ProgressCallback,
        TrainerCallback,
    )

    seen = []

    class Own(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            seen.append((state.max_steps, model.num_parameters() > 1000))

        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append((state.global_step, round(logs["loss"], 3)))

        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step >= 3
            return control

        def on_train_end(self, args, state, control, **kwargs):
            seen.append(len(state.log_history))

    given = [DefaultFlowCallback, PrinterCallback, ProgressCallback, Own()]
    with open(os.devnull, "w") as nowhere:
        stdout, stderr, sys.stdout, sys.stderr = sys.stdout, sys.stderr, nowhere, nowhere
        try:
            run = suite.plait.train(suite.small, suite.rows, callbacks=given).complete()
        finally:
            sys.stdout, sys.stderr = stdout, stderr
    expected = [(step.step, round(step.loss, 3)) for step in run.history]
    require(len(expected) == 3, f"{len(expected)} steps")
    require(seen == [(run.steps, True), *expected, 3], f"{seen}")
    return f"{seen}"


def check_early_stopping(suite) -> str:
    """Transformers' callback ends a run whose loss on held-out data no longer falls."""
    import numpy
    from transformers import EarlyStoppingCallback

    tokens = suite.folder / "held.bin"
    numpy.random.default_rng(5).integers(0, 256, 300).astype("uint16").tofile(tokens)
    patience, every = 2, 2
    run = suite.plait.train(
        suite.small, suite.rows, lr=0.03, steps=40, eval_tokens=tokens, eval_every=every,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=patience)],
    ).complete()  # fmt: skip
    losses = [x.evaluation_loss for x in run.history if x.evaluation_loss is not None]
    best = min(range(len(losses)), key=losses.__getitem__)
    require(run.step < run.steps, f"the run was not stopped: {losses}")
    require(run.step == (best + 1 + patience) * every, f"{run.step} steps: {losses}")
    return f"after {run.step} steps"


def check_fields() -> str:
    """State and control have the fields that transformers' own have."""
    from plait import hooks
    from transformers import TrainerControl, TrainerState

    for own, theirs in ((hooks.State, TrainerState), (hooks.Control, TrainerControl)):
        fields = {x.name for x in dataclasses.fields(theirs)}
        lacking = fields - {x.name for x in dataclasses.fields(own)}
        require(not lacking, f"{own.__name__} lacks {sorted(lacking)}")
    return f"as {TrainerState.__name__}"
