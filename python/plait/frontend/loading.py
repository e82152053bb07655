# ===- loading.py - Weights back into a module -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""plait.load_weights: a module gets the weights of a run, or those of files."""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

import torch
from safetensors import SafetensorError, safe_open

from ..errors import CallError, FileError
from .export import uncompiled
from .weights import CONSTANT

if TYPE_CHECKING:
    from ..options import PathLike
    from ..runs import Run

_INDEX = "model.safetensors.index.json"


def load_weights(module: torch.nn.Module, source: Union[PathLike, Run]) -> None:
    """Copies weights into `module`, in place: of a run, which all of its processes call,
    of a folder with model.safetensors or its parts, or of a safetensors file.

    Names and shapes have to be the module's. Tied parameters are in a file once. Nothing
    is changed where something is missing, unknown or of another shape."""
    if not isinstance(module, torch.nn.Module):
        raise CallError(
            f"load_weights got a {type(module).__name__}, expected a torch.nn.Module"
        )
    save: Any = getattr(source, "save_pretrained", None)
    if save is None:
        _load(module, pathlib.Path(source))  # type: ignore[arg-type]
        return
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        save(folder)
        _load(module, pathlib.Path(folder))


def _load(module: torch.nn.Module, path: pathlib.Path) -> None:
    learned = _by_name(module.named_parameters(remove_duplicate=False))
    own = learned | _by_name(module.named_buffers(remove_duplicate=False))
    places = _find_tensors(path)
    _check(learned, own, places, path)
    with torch.no_grad():
        for name, file in places.items():
            if name in own:
                own[name].copy_(_read(file, name, own[name].shape))


def _by_name(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {uncompiled(name): tensor for name, tensor in named}


def _find_tensors(path: pathlib.Path) -> dict[str, pathlib.Path]:
    """The file that each tensor is in."""
    files = [path]
    if path.is_dir():
        index = path / _INDEX
        files = [path / "model.safetensors"]
        if not files[0].is_file() and index.is_file():
            try:
                named = json.loads(index.read_text())["weight_map"].values()
            except (OSError, ValueError, KeyError, AttributeError) as error:
                raise FileError(f"'{index}' is no index of weights: {error!r}") from None
            files = [path / name for name in sorted(set(named))]
    result: dict[str, pathlib.Path] = {}
    for file in files:
        with _open(file) as opened:
            result |= dict.fromkeys(opened.keys(), file)
    return result


def _open(file: pathlib.Path) -> Any:
    try:
        return safe_open(file, "pt")
    except FileNotFoundError:
        raise FileError(f"there are no weights at '{file}'") from None
    except (OSError, SafetensorError) as error:
        raise FileError(f"cannot read weights '{file}': {error}") from None


def _check(learned: dict, own: dict, places: dict, path: pathlib.Path) -> None:
    unknown = [x for x in places if x not in own and not x.startswith(CONSTANT)]
    if unknown:
        raise FileError(
            f"weights '{path}' have '{unknown[0]}'"
            f"{_others(unknown)}, which the module does not have"
        )
    given = {_place(own[name]) for name in places if name in own}
    missing = [
        name
        for name, tensor in learned.items()
        if name not in places and _place(tensor) not in given
    ]
    if missing:
        raise FileError(
            f"weights '{path}' lack '{missing[0]}'{_others(missing)} of the module"
        )
    for name in places:
        if name in own and own[name].is_meta:
            raise CallError(
                f"'{name}' of the module is on the meta device and holds no numbers",
                hint="module.to_empty(device='cpu') gives it memory",
            )
        if name in own:
            _check_shape(name, own[name], places[name])


def _check_shape(name: str, tensor: torch.Tensor, file: pathlib.Path) -> None:
    """One element has as many shapes as a person likes."""
    with _open(file) as opened:
        found = opened.get_slice(name).get_shape()
    shape = list(tensor.shape)
    if found != shape and not (tensor.numel() == 1 and set(found) <= {1}):
        raise FileError(
            f"weights '{file}': tensor '{name}' has shape {found}, the module's is {shape}"
        )


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _place(tensor: torch.Tensor) -> object:
    """The same for tied tensors."""
    return tensor.data_ptr() or id(tensor)


def _read(file: pathlib.Path, name: str, shape: torch.Size) -> torch.Tensor:
    with _open(file) as opened:
        return opened.get_tensor(name).reshape(shape)
