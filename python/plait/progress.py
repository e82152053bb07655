# ===- progress.py - What a person sees of a run -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""A line in a terminal, or a table and a curve in a notebook."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from . import display

if TYPE_CHECKING:
    from .runs import Run

# Seconds between two updates; people see no more.
TERMINAL, NOTEBOOK = 0.1, 0.5


class Progress:
    """Shows nothing: neither terminal nor notebook, or nobody asked for it."""

    interval = float("inf")

    def __init__(self) -> None:
        self._shown = 0.0

    def update(self, run: Run, is_last: bool = False) -> None:
        now = time.monotonic()
        if is_last or now - self._shown >= self.interval:
            self._shown = now
            self.show(run)

    def show(self, run: Run) -> None:
        """Shows where the run is."""

    def end(self) -> None:
        """Leaves what was shown, and the place behind it to others."""


class Terminal(Progress):
    interval = TERMINAL

    def __init__(self) -> None:
        super().__init__()
        self._width = 0

    def show(self, run: Run) -> None:
        last = run.history[-1]
        line = (
            f"step {run.step}/{run.steps}  loss {last.loss:.4f}  "
            f"norm {last.gradient_norm:.3g}  lr {last.learning_rate:.3g}  "
            f"{display.count(last.tokens_per_second)} tokens/s"
        )
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def end(self) -> None:
        if self._width:
            sys.stderr.write("\n")
            self._width = 0


class Notebook(Progress):
    interval = NOTEBOOK

    def __init__(self) -> None:
        super().__init__()
        self._place = None

    def show(self, run: Run) -> None:
        from IPython.display import HTML
        from IPython.display import display as put

        page = HTML(run._repr_html_())
        if self._place is None:
            self._place = put(page, display_id=True)
        else:
            self._place.update(page)


def _is_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def make_progress(wanted: bool | None) -> Progress:
    """None: where somebody is likely to see it."""
    if wanted is False:
        return Progress()
    if _is_notebook():
        return Notebook()
    if wanted or sys.stderr.isatty():
        return Terminal()
    return Progress()
