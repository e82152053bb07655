# ===- package_suite.py - Plans and data for the package -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""What the cases of python_package.py share."""

import array
import pathlib
import sys

from harness import GOLDEN, ROOT, Tools, require, write_tokens

sys.path.insert(0, str(ROOT / "python"))
MODEL = GOLDEN / "llama-small-test"
BATCH, SEQUENCE, STEPS = 4, 16, 3
ROWS = BATCH * STEPS
RECIPE = {"lr": 0.01, "seed": 3}


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        import plait

        self.plait = plait
        self.tools = tools
        self.folder = folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 5, ROWS * SEQUENCE + 1, 256)
        numbers = array.array("H", self.tokens.read_bytes())
        self.stream = array.array("i", numbers)
        # As plait-run cuts a file: a row's last token is the next one's first.
        self.rows = [
            list(numbers[k * SEQUENCE : (k + 1) * SEQUENCE + 1]) for k in range(ROWS)
        ]
        self.plan = plait.compile(
            MODEL, mesh={"dp": 2}, global_batch=BATCH, seq=SEQUENCE, no_reference=True
        )
        # Ranks that divide parameters.
        self.parts = plait.compile(
            MODEL, folder / "parts.plan", mesh="pp=2,tp=2", global_batch=BATCH,
            seq=SEQUENCE, no_reference=True,
        )  # fmt: skip

    def losses(self, data=None, plan=None, **options) -> list[float]:
        run = self.plait.train(plan or self.plan, data, **RECIPE, **options)
        return [step.loss for step in run]


def refuse(kind: type, call) -> Exception:
    try:
        answer = call()
    except kind as error:
        require("\n" not in error.message, f"several lines: {error}")
        return error
    raise AssertionError(f"was not refused: {answer}")
