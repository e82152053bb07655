# ===- options.py - Options of plaitc and plait-run as arguments -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Keyword arguments that are options of plaitc and plait-run.

Each has the long name of its option with underscores. The library knows their bounds
and defaults; the names stand here for type checkers and editors, and so that a
mistyped one is told its neighbours. Tests hold them against the tools' --help."""

from __future__ import annotations

import difflib
import json
import math
import operator
import os
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypedDict, Union

from .errors import OptionError, kind_of

AXES = ("pp", "replicate", "dp", "ep", "cp", "tp")

PathLike = Union[str, "os.PathLike[str]"]
Paths = Union[PathLike, Sequence[PathLike]]
Texts = Union[str, Sequence[str]]


class ModelOptions(TypedDict, total=False):
    """What changes a model when it is imported."""

    dropout: str
    document_mask: bool
    target_weights: bool
    lora: int
    lora_alpha: float
    lora_targets: Texts
    expert_chunks: int
    no_decay: Texts
    freeze: Texts
    lr_factor: Texts
    optimizer_of: Texts
    balance: Texts
    ignore_field: Texts
    shard: Texts


class CompileOptions(TypedDict, total=False):
    """What a model is planned and compiled for. Of plait.plan, what is given is not
    chosen; of plait.compile, what is not given has its default."""

    cluster: Any
    mesh: Union[str, Mapping[str, int]]
    global_batch: int
    seq: int
    micro_batch: int
    schedule: str
    schedule_file: PathLike
    chunks: int
    layers: Union[str, Sequence[int]]
    recompute: str
    zero: int
    sequence_parallel: bool
    context_parallel: str
    expert_exchange: str
    offload: str
    precision: str
    reduce_precision: str
    compress: str
    outer: str
    attention: str
    epilogues: str
    tp_comm_overlap: int
    loss_chunks: int
    optimizer: str
    deterministic: bool
    backend: str
    target: str
    target_cpu: str
    claim: PathLike
    dump_phases_to: PathLike
    no_prove: bool
    no_reference: bool
    verify_each_phase: bool


class RunOptions(TypedDict, total=False):
    """How a plan is run."""

    weights: Union[PathLike, bool]
    adapter: PathLike
    tokens: Paths
    token_type: str
    text: Paths
    text_as_bytes: bool
    shuffle: bool
    document_end: int
    log_samples: PathLike
    tf32: bool
    log: PathLike
    tensorboard: PathLike
    dashboard: PathLike
    metrics_port: Union[int, str]
    best: PathLike
    export_precision: str
    print_every: int
    checkpoint: PathLike
    checkpoint_every: Union[int, str]
    keep: int
    replica: PathLike
    replica_every: Union[int, str]
    resume: PathLike
    seed: int
    steps: int
    epochs: float
    lr: float
    lr_schedule: str
    warmup_steps: int
    min_lr: float
    decay_steps: int
    weight_decay: float
    beta1: float
    beta2: float
    eps: float
    momentum: float
    adamw_lr_factor: float
    adamw_beta1: float
    adamw_beta2: float
    adamw_eps: float
    adamw_weight_decay: float
    sgd_lr_factor: float
    sgd_beta1: float
    sgd_weight_decay: float
    lion_lr_factor: float
    lion_beta1: float
    lion_beta2: float
    lion_weight_decay: float
    muon_lr_factor: float
    muon_momentum: float
    muon_weight_decay: float
    muon_match_rms_lr_factor: float
    muon_match_rms_momentum: float
    muon_match_rms_weight_decay: float
    grad_clip: float
    eval_tokens: Paths
    eval_text: Paths
    eval_every: int
    eval_steps: int
    on_nan: str
    guard: int
    on_spike: str
    spike_steps: int
    spike_deviations: float
    threads: int
    devices: int
    collective_blocks: int
    cuda_graph: str
    time_matmuls: str
    overlap: str
    stress: str
    timeout: float


# By the function that takes them.
TABLES = {
    "plait.model": ModelOptions,
    "plait.plan and plait.compile": CompileOptions,
    "plait.train": RunOptions,
}
# Of the tools, but here something else does it.
INSTEAD = {
    "save": "run.save_pretrained(folder) writes the model",
    "export": "run.save_pretrained(folder) writes the model",
    "output": "`path` is where the plan is written",
    "pin": "what is given is pinned: tp_comm_overlap=1, chunks=2, mesh='tp=2'",
    "log_every": "`print_every` is what plait-run has; `log_every` is of callbacks",
}
# An option in the library's messages, with dashes or without.
_HYPHENATED = re.compile(
    r"(?<![\w-])(?:--)?("
    + "|".join(
        sorted(
            {
                name.replace("_", "-")
                for table in TABLES.values()
                for name in table.__annotations__
                if "_" in name
            },
            key=len,
            reverse=True,
        )
    )
    + r")(?![\w-])"
)
_DASHED = re.compile(r"(?<!\S)--(?=[a-z])")


def spell(text: str) -> str:
    """A message of the library with options as Python spells them."""
    text = _HYPHENATED.sub(lambda match: match[1].replace("-", "_"), text)
    return _DASHED.sub("", text)


def check_names(given: Mapping[str, Any], table: type, of: str) -> None:
    """Raises an error for a name that the table does not have."""
    for name in given:
        if name in table.__annotations__:
            continue
        raise OptionError(
            f"{of} has no option '{name}'", hint=_hint(name, table, of), option=name
        )


def _hint(name: str, table: type, of: str) -> str:
    plain = name.lstrip("-").replace("-", "_")
    if plain in table.__annotations__:
        return f"it is spelt {plain}"
    for function, other in TABLES.items():
        if plain in other.__annotations__:
            return f"it is an option of {function}"
    if plain in INSTEAD:
        return INSTEAD[plain]
    near = difflib.get_close_matches(plain, table.__annotations__, 3, 0.6)
    return f"near it are {', '.join(near)}" if near else f"see help({of})"


def encode(given: Mapping[str, Any], lists: Sequence[str] = ()) -> bytes:
    """Options as the library reads them: a JSON object. What is None is not given.
    `lists` names those that may be lists; others join theirs to one text."""
    content = {}
    for name, value in given.items():
        if value is not None:
            content[name.replace("_", "-")] = _value(name, value, name in lists)
    return json.dumps(content).encode()


def to_count(name: str, value: Any) -> int:
    """A whole number of at least 1, of Python or NumPy."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise OptionError(
            f"{name} is {value}, expected a whole number of at least 1", option=name
        )
    return number


def _value(name: str, value: Any, is_list: bool) -> Any:
    if getattr(value, "ndim", None) == 0:
        value = value.item()  # a number of NumPy or PyTorch
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"{name} is {value}, expected a number", option=name)
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Mapping):
        return ",".join(f"{axis}={size}" for axis, size in value.items())
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        parts = [_value(name, part, False) for part in value]
        return parts if is_list else ",".join(map(str, parts))
    if isinstance(value, Set):  # PEFT keeps names of modules in one
        return _value(name, sorted(value, key=str), is_list)
    if hasattr(value, "option_text"):
        return value.option_text()
    raise OptionError(
        f"{name} is {kind_of(value)}, which is no value of an option", option=name
    )
