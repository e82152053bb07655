# ===- _dlpack.py - Tensors of a run, in and out -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Tensors as DLPack has them, without NumPy or PyTorch, which are imported by those
functions alone that return theirs."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

from .errors import CallError, kind_of

CPU, FLOAT = 1, 2


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
DLManagedTensor._fields_ = [
    ("tensor", DLTensor),
    ("context", ctypes.c_void_p),
    ("deleter", Deleter),
]

# What other libraries hold, by address.
_held: dict[int, tuple[DLManagedTensor, Tensor]] = {}


@Deleter
def _release(address: int, held: dict = _held) -> None:
    held.pop(address, None)


_api = ctypes.PyDLL(None)
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_api.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_NAME = b"dltensor"


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule: int, api: Any = _api, held: dict = _held, name: bytes = _NAME) -> None:
    """Lets go of what nobody has taken out of the capsule."""
    if api.PyCapsule_IsValid(capsule, name):
        held.pop(api.PyCapsule_GetPointer(capsule, name), None)


# Arrays may be freed when this module is gone: their deleters stay.
for _stays in (_release, _drop):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_stays))


def _extents(shape: tuple[int, ...]) -> Any:
    """They live as long as what has the pointer."""
    return ctypes.cast(
        (ctypes.c_int64 * len(shape))(*shape), ctypes.POINTER(ctypes.c_int64)
    )


class Tensor:
    """A tensor of a run, float32 in row-major order, for numpy.asarray,
    torch.from_dlpack and all that speak DLPack. It is a view where a rank of this
    process has the tensor as it is, which the next step changes, and a copy elsewhere:
    it is to be read, not to be written."""

    def __init__(self, address: int, shape: tuple[int, ...] | None = None):
        """Takes what the library has given, as a tensor of another shape with as many
        elements where one is named."""
        managed = ctypes.cast(address, ctypes.POINTER(DLManagedTensor)).contents
        given = managed.tensor
        if shape is None:
            shape = tuple(given.shape[i] for i in range(given.ndim))
        self.shape = shape
        self._tensor = DLTensor.from_buffer_copy(given)
        self._tensor.ndim, self._tensor.shape = len(shape), _extents(shape)
        self._finalizer = weakref.finalize(self, managed.deleter, address)
        # A deleter at exit would come after the threads of the run.
        self._finalizer.atexit = False

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<plait.Tensor float32 {list(self.shape)}>"

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": "<f4",
            "data": (self._address, True),
        }

    @property
    def _address(self) -> int:
        return (self._tensor.data or 0) + self._tensor.byte_offset

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.device_type, self._tensor.device_id

    def __dlpack__(self, **_: Any) -> Any:
        """Options of newer versions of the protocol ask for what the tensor is."""
        managed = DLManagedTensor(self._tensor, None, _release)
        address = ctypes.addressof(managed)
        _held[address] = (managed, self)
        return _api.PyCapsule_New(address, _NAME, ctypes.cast(_drop, ctypes.c_void_p))

    def numpy(self) -> Any:
        """A view as NumPy has it, which cannot be written to."""
        import numpy

        return numpy.asarray(self)

    def torch(self) -> Any:
        """A view as PyTorch has it; clone() it to keep it over the next step."""
        import torch

        return torch.from_dlpack(self)

    def tolist(self) -> list:
        """The numbers, as nested lists."""
        count = math.prod(self.shape)
        kind = ctypes.c_float * count
        flat = list(kind.from_address(self._address)) if count else []
        for extent in self.shape[:0:-1]:
            flat = [flat[i : i + extent] for i in range(0, len(flat), extent)]
        return flat if self.shape else flat[0]


class Given:
    """A tensor for the library: the whole of it, float32 in row-major order. It has to
    be of the shape `shape`, and is one of `inner`, with as many elements."""

    def __init__(
        self, value: Any, name: str, shape: tuple[int, ...], inner: tuple[int, ...]
    ):
        self.keeps, address, found = _floats(value, name)
        if found != shape:
            raise CallError(
                f"the tensor for '{name}' is of shape {list(found)}, expected {list(shape)}"
            )
        extents = _extents(inner)
        tensor = DLTensor(address, CPU, 0, len(inner), FLOAT, 32, 1, extents, None, 0)
        self.managed = DLManagedTensor(tensor, None, Deleter())

    def pointer(self) -> Any:
        return ctypes.byref(self.managed)


def _floats(value: Any, name: str) -> tuple[Any, int, tuple[int, ...]]:
    """What keeps the memory, its address, and the shape."""
    if hasattr(value, "data_ptr"):  # of PyTorch, on any device and of any type
        import torch

        value = value.detach().to("cpu", torch.float32).contiguous()
        return value, value.data_ptr(), tuple(value.shape)
    if isinstance(value, Tensor):
        interface = value.__array_interface__
        return value, interface["data"][0], value.shape
    if isinstance(value, (int, float, list, tuple)):
        shape, flat = _flatten(value, name)
        numbers = (ctypes.c_float * max(len(flat), 1))(*flat)
        return numbers, ctypes.addressof(numbers), shape
    try:
        import numpy

        if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
            value = numpy.from_dlpack(value)
        array = numpy.ascontiguousarray(value, dtype=numpy.float32)
    except (ImportError, TypeError, ValueError, RuntimeError, BufferError) as error:
        raise CallError(f"{kind_of(value)} is no tensor for '{name}': {error}") from None
    # It makes one dimension of none.
    return array, array.ctypes.data, tuple(numpy.shape(value))


def _flatten(value: Any, name: str) -> tuple[tuple[int, ...], list[float]]:
    if isinstance(value, (int, float)):
        return (), [float(value)]
    if not isinstance(value, (list, tuple)):
        raise CallError(f"a list for '{name}' has {kind_of(value)} in it")
    parts = [_flatten(part, name) for part in value]
    shapes = {shape for shape, _ in parts}
    if len(shapes) > 1:
        raise CallError(f"lists of different lengths are no tensor for '{name}'")
    shape = (len(parts), *next(iter(shapes), ()))
    return shape, [number for _, flat in parts for number in flat]
