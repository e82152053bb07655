# ===- models.py - Models and clusters -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""What is trained, and on what: plait.model and plait.cluster."""

from __future__ import annotations

import copy
import functools
import json
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from . import _library, options
from ._library import Owner, Session
from .errors import ModelError, OptionError, kind_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Options that are lists.
_LISTS = ("lora_targets", "no_decay", "freeze", "lr_factor", "balance", "ignore_field", "shard")


class Model:
    """A model that can be planned, compiled and trained. `config` is its config.json,
    where it has one."""

    config: dict[str, Any] | None = None
    # What the library is told of it, and where that lies if it goes with this object.
    _options = b"{}"
    _folder: tempfile.TemporaryDirectory | None = None

    def __init__(self, path: options.PathLike, given: Mapping[str, Any]):
        self._path = os.fspath(path)
        self._options = options.encode(given, _LISTS)
        _ = self.native  # fails now where it is none

    @functools.cached_property
    def native(self) -> Owner:
        """The library's model."""
        session = Session()
        file = os.fsencode(self._find())
        return Owner(session, "plait_model_import", session.handle, file, self._options)

    def _find(self) -> options.PathLike:
        return self._path

    def change(self, given: Mapping[str, Any]) -> Model:
        """The same model with options, of which this one has none."""
        if not given or self._options != Model._options:
            has = "which can be used as it is" if not given else "which has options already"
            raise ModelError(f"plait.model got a model, {has}")
        made = copy.copy(self)
        made.__dict__.pop("native", None)
        made._options = options.encode(given, _LISTS)
        _ = made.native
        return made

    @property
    def weights(self) -> pathlib.Path | None:
        """The file that a run begins with where nobody names another; None: there is
        none."""
        return None

    @property
    def has_adapters(self) -> bool:
        """Whether adapters are trained, and nothing else is saved."""
        return "lora" in json.loads(self._options)

    @property
    def name(self) -> str:
        path = pathlib.Path(self._path)
        return (path.parent if path.stem in ("config", "model") else path).stem

    def write_config(self, folder: pathlib.Path, precision: str) -> None:
        """Writes beside saved weights what the library does not have: it knows the
        config.json that it has read."""

    def __repr__(self) -> str:
        return f"<plait.Model '{self._path}'>"


class ConfiguredModel(Model):
    """A model of a config.json that is no file."""

    def __init__(self, config: Mapping[str, Any], given: Mapping[str, Any]):
        try:
            text = json.dumps(dict(config))
        except (TypeError, ValueError) as error:
            raise ModelError(f"the config is none that JSON has: {error}") from None
        folder = tempfile.TemporaryDirectory(prefix="plait-")
        path = pathlib.Path(folder.name) / "config.json"
        path.write_text(text)
        super().__init__(path, given)
        self._folder = folder
        self.config = dict(config)

    @property
    def name(self) -> str:
        return str((self.config or {}).get("model_type", "model"))

    def __repr__(self) -> str:
        return f"<plait.Model {self.name}>"


def model(
    source: Union[options.PathLike, Mapping[str, Any], Any],
    **given: Unpack[options.ModelOptions],
) -> Model:
    """Imports a model: a folder with config.json, that file, a .mlir file in the nn
    dialect, or a configuration as a dictionary or as transformers has it. Of a model, as
    from_torch gives it, makes one that options change.

    Options are those of plaitc that change a model, or how it is split: `dropout`,
    `document_mask`, `target_weights`, `lora`, `lora_alpha`, `lora_targets`, `no_decay`,
    `freeze`, `lr_factor`, `balance`,
    `ignore_field`, `shard`, `expert_chunks`."""
    options.check_names(given, options.ModelOptions, "plait.model")
    if isinstance(source, Mapping):
        return ConfiguredModel(source, given)
    if isinstance(source, (str, os.PathLike)):
        made = Model(source, given)
        made.config = _read_config(pathlib.Path(source))
        return made
    if hasattr(source, "to_json_string") and hasattr(source, "model_type"):
        return ConfiguredModel(json.loads(source.to_json_string(use_diff=False)), given)
    if isinstance(source, Model):
        return source.change(given)
    hint = "plait.from_torch takes modules" if hasattr(source, "state_dict") else ""
    raise ModelError(
        f"plait.model got {kind_of(source)}, expected a path or a configuration",
        hint=hint,
    )


def _read_config(path: pathlib.Path) -> dict[str, Any] | None:
    """What callbacks may log of a model; the library has read it before."""
    file = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text()) if file.suffix == ".json" else None
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def as_model(source: Any) -> Model:
    """The model that a function is asked about."""
    return source if isinstance(source, Model) else model(source)


# ===-----------------------------------------------------------------------===#
# Clusters
# ===-----------------------------------------------------------------------===#

class Cluster:
    """A cluster that the planner knows: `text` as plaitc --cluster takes it, `devices`
    of all nodes, and of each the bytes that training can use."""

    def __init__(self, text: str, devices: int, memory_bytes: float):
        self.text = text
        self.devices = devices
        self.memory_bytes = memory_bytes

    def option_text(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return (
            f"<plait.Cluster {self.text}: {self.devices} devices with "
            f"{self.memory_bytes / 1e9:.1f} GB each>"
        )


def cluster(name: Union[options.PathLike, Cluster]) -> Cluster:
    """Checks a cluster: "h100:64x8", "cpu:8", "host:8" for this machine, or a hardware
    file (docs/Hardware.md)."""
    if isinstance(name, Cluster):
        return name
    if not isinstance(name, (str, os.PathLike)):
        raise OptionError(
            f"the cluster is {kind_of(name)}, expected a name or a path",
            option="cluster",
        )
    text = os.fspath(name)
    session = _library.shared_session()
    facts = json.loads(
        session.text("plait_cluster_describe", session.handle, text.encode())
    )
    return Cluster(text, facts["devices"], facts["memory_limit_bytes"])
