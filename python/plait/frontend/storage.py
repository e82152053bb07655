# ===- frontend/storage.py - Modules without weights -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Modules that are made without memory for their weights."""

import contextlib

import torch
from torch import nn


@contextlib.contextmanager
def no_weights():
    """Modules made inside have parameters on the meta device, but buffers with numbers:
    rotary tables and masks, which from_torch looks at."""
    register = nn.Module.register_parameter

    def without(self, name, parameter):
        if parameter is not None and not parameter.is_meta:
            trained = parameter.requires_grad
            parameter = type(parameter)(parameter.to("meta"), requires_grad=trained)
        register(self, name, parameter)

    nn.Module.register_parameter = without
    try:
        with torch.no_grad():
            yield
    finally:
        nn.Module.register_parameter = register
