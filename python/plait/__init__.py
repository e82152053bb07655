# ===- __init__.py - The package -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""plait from Python: plans the distributed training of transformers, and does it.

model = plait.model("llama-3-8b")
choice = plait.plan(model, cluster="h100:8", global_batch=128, seq=8192)
plan = plait.compile(choice)
for step in plait.train(plan, tokens="tokens.bin", steps=100):
    print(step.loss)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._dlpack import Tensor
from .audits import Audit, audit
from .choices import Choice, Emitted, emit, plan
from .errors import (
    CallError,
    DoesNotFit,
    Error,
    ExportError,
    FileError,
    ModelError,
    NotExpressible,
    OptionError,
    Place,
    ProcessError,
    ProofError,
    Warning,  # noqa: A004 F401 plait.Warning
)
from .labels import pack
from .models import Cluster, Model, cluster, model
from .plans import Plan, compile, load  # noqa: A004 F401 plait.compile
from .rows import write_rows
from .runs import Run, Step
from .training import train

if TYPE_CHECKING:
    from .frontend.loading import load_weights
    from .frontend.model import from_torch
    from .frontend.storage import no_weights

# Not Warning and compile, which are names of Python's own.
__all__ = [
    "Audit",
    "CallError",
    "Choice",
    "Cluster",
    "DoesNotFit",
    "Emitted",
    "Error",
    "ExportError",
    "FileError",
    "Model",
    "ModelError",
    "NotExpressible",
    "OptionError",
    "Place",
    "Plan",
    "ProcessError",
    "ProofError",
    "Run",
    "Step",
    "Tensor",
    "audit",
    "cluster",
    "emit",
    "from_torch",
    "load",
    "load_weights",
    "model",
    "no_weights",
    "pack",
    "plan",
    "train",
    "write_rows",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """PyTorch is imported by those names alone that need it."""
    if name == "from_torch":
        from .frontend.model import from_torch

        return from_torch
    if name == "load_weights":
        from .frontend.loading import load_weights

        return load_weights
    if name == "no_weights":
        from .frontend.storage import no_weights

        return no_weights
    raise AttributeError(f"module 'plait' has no attribute '{name}'")
