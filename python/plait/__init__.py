# ===- __init__.py - The package -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""plait from Python: models of PyTorch as plaitc compiles them."""

from .errors import ExportError, NotExpressible, Place, PlaitError

__all__ = [
    "ExportError",
    "NotExpressible",
    "Place",
    "PlaitError",
    "from_torch",
    "no_weights",
]
__version__ = "0.1.0"


def __getattr__(name: str):
    """PyTorch is imported by those names alone that need it."""
    if name == "from_torch":
        from .frontend.model import from_torch

        return from_torch
    if name == "no_weights":
        from .frontend.storage import no_weights

        return no_weights
    raise AttributeError(f"module 'plait' has no attribute '{name}'")
