#===- key_bias.py - Biases without a gradient --------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Biases of keys whose true gradient is zero: what is added to all keys of a head
alike adds the same to all scores of a query. Adam turns their rounding into full
steps. Where positions turn all of a head, the bias of a key does depend on its
position."""

import json
import pathlib


def clear_key_bias(name: str, difference, folder: pathlib.Path) -> None:
    """Sets the elements of `difference`, an array or a tensor of one dimension in
    the order of the file, to 0 where they belong to such a bias; `folder` has the
    config.json."""
    if name.endswith(".attn.c_attn.bias"):
        difference.reshape(3, -1)[1] = 0
    elif name.endswith(".query_key_value.bias"):
        config = json.loads((folder / "config.json").read_text())
        heads = config["num_attention_heads"]
        difference.reshape(heads, 3, -1)[:, 1] = 0
    elif name.endswith(".k_proj.bias"):
        config = json.loads((folder / "config.json").read_text())
        if config.get("partial_rotary_factor", 1.0) < 1.0:
            difference[:] = 0
