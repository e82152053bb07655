# ===- _library.py - The library in C -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""libplait.so, as plait-c/plait.h declares it: where it is, its functions, and what
owns its handles. Failures are exceptions; warnings are Python's, and what else the
library says goes to the logger "plait"."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import pathlib
import shutil
import sys
import threading
import warnings
import weakref
from typing import Any

from .errors import CallError, Error, Warning, make_error
from .options import spell

# PLAIT_C_VERSION of the header that the functions below are of.
INTERFACE = 1
# Of a wheel: the library and the tools.
NATIVE = pathlib.Path(__file__).parent / "native"
VARIABLE = "PLAIT_LIBRARY"
NAMES = (f"libplait.so.{INTERFACE}", "libplait.so")
# Where an installed tree has it, seen from the folder of plaitc.
BESIDE = (".", "../lib", "../lib64", f"../lib/{os.uname().machine}-linux-gnu")
INFO, NOTE, WARNING = 0, 1, 2
WHOLE = -1
WEIGHT, GRADIENT = 0, 1
MOST_NAMED_LOSSES = 13

log = logging.getLogger("plait")
# What a warning is not about: this package, and what it calls itself through.
INSIDE = (str(pathlib.Path(__file__).parent) + os.sep, functools.__file__)

# ===-----------------------------------------------------------------------===#
# The header
# ===-----------------------------------------------------------------------===#

Handle = ctypes.c_void_p
Out = ctypes.POINTER
Text = ctypes.c_char_p
Listener = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, Text)


class Failure(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),
        ("message", Text),
        ("field", Text),
        ("place", Text),
        ("hint", Text),
    ]


class StepRecord(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("step", ctypes.c_uint64),
        ("loss", ctypes.c_double),
        ("gradient_norm", ctypes.c_double),
        ("learning_rate", ctypes.c_double),
        ("tokens", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("skipped", ctypes.c_int32),
        ("rolled_back", ctypes.c_int32),
        ("evaluation_loss", ctypes.c_double),
        ("named_losses", ctypes.c_double * MOST_NAMED_LOSSES),
        ("evaluation_named_losses", ctypes.c_double * MOST_NAMED_LOSSES),
    ]


# Those that may fail, with what they take.
FUNCTIONS = {
    "plait_session_open": (ctypes.c_uint32, Out(Handle)),
    "plait_session_listen": (Handle, Listener, ctypes.c_void_p),
    "plait_close": (Handle,),
    "plait_describe": (Handle, Out(ctypes.c_void_p)),
    "plait_model_import": (Handle, Text, Text, Out(Handle)),
    "plait_model_plan": (Handle, Text, Out(ctypes.c_void_p)),
    "plait_cluster_describe": (Handle, Text, Out(ctypes.c_void_p)),
    "plait_model_emit": (Handle, Text, Text, Out(ctypes.c_void_p)),
    "plait_job_audit": (Handle, Text, Text, Handle, Text, Out(ctypes.c_void_p)),
    "plait_model_compile": (Handle, Text, Text, Out(Handle)),
    "plait_plan_load": (Handle, Text, Out(Handle)),
    "plait_run_begin": (Handle, Text, Out(Handle)),
    "plait_run_step": (Handle, ctypes.c_void_p, ctypes.c_size_t, Out(StepRecord)),
    "plait_run_tensor": (
        Handle, Text, ctypes.c_int32, ctypes.c_int32, Out(ctypes.c_void_p)
    ),
    "plait_run_set_tensor": (Handle, Text, ctypes.c_void_p),
    "plait_run_save": (Handle, Text),
    "plait_run_checkpoint": (Handle,),
}  # fmt: skip

# ===-----------------------------------------------------------------------===#
# Finding it
# ===-----------------------------------------------------------------------===#


def _in(folder: pathlib.Path) -> pathlib.Path | None:
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def find_library() -> pathlib.Path:
    """The file: of this package, of PLAIT_LIBRARY, or beside an installed plaitc."""
    if found := _in(NATIVE):
        return found
    if named := os.environ.get(VARIABLE):
        path = pathlib.Path(named)
        found = _in(path) if path.is_dir() else path
        if found and found.is_file():
            return found
        raise Error(f"{VARIABLE} is '{named}', where there is no {NAMES[-1]}", code=20)
    if tool := shutil.which("plaitc"):
        folder = pathlib.Path(tool).resolve().parent
        for beside in BESIDE:
            if found := _in(folder / beside):
                return found.resolve()
    raise Error(
        f"{NAMES[-1]} is not found in this package, and no plaitc that is installed has "
        "it next to it",
        hint=f"{VARIABLE} may name it",
        code=20,
    )


def native_path() -> str:
    """The path of programs with those of the wheel, among them the linker for kernels.
    They come last: another that is on the path is the user's choice."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([x for x in folders if x != str(NATIVE)] + [str(NATIVE)])


class Library:
    """The loaded library. `call` raises what a function returns."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        if path.parent == NATIVE:
            os.environ["PATH"] = native_path()
        try:
            self.functions = ctypes.CDLL(str(path))
        except OSError as error:
            raise Error(f"cannot load '{path}': {error}", code=20) from None
        try:
            self._declare()
        except AttributeError as error:
            name = str(error).rsplit(" ", 1)[-1]
            raise Error(
                f"'{path}' has no function {name}: it is not the library of plait that "
                f"this package needs, with interface {INTERFACE}"
            ) from None
        self.version = self.functions.plait_version().decode()

    def _declare(self) -> None:
        for name, kinds in FUNCTIONS.items():
            function = getattr(self.functions, name)
            function.argtypes = kinds
            function.restype = ctypes.POINTER(Failure)
        self.functions.plait_version.restype = Text
        for name in ("plait_error_free", "plait_text_free"):
            getattr(self.functions, name).argtypes = (ctypes.c_void_p,)
            getattr(self.functions, name).restype = None

    def call(self, name: str, *arguments: Any) -> None:
        failure = getattr(self.functions, name)(*arguments)
        if not failure:
            return
        fields = failure.contents
        texts = [
            getattr(fields, name).decode(errors="replace")
            for name in ("message", "field", "place", "hint")
        ]
        code = fields.code
        self.functions.plait_error_free(failure)
        message, field, place, hint = texts
        message = spell(message)
        option = field.replace("-", "_")
        raise make_error(code, message, option, place, spell(hint))

    def take_text(self, pointer: ctypes.c_void_p) -> str:
        text = ctypes.string_at(pointer.value or 0).decode()
        self.functions.plait_text_free(pointer)
        return text


@functools.lru_cache(maxsize=1)
def load_library() -> Library:
    return Library(find_library())


# ===-----------------------------------------------------------------------===#
# Sessions and what comes out of them
# ===-----------------------------------------------------------------------===#


def _close(library: Library, handle: int, process: int, *_: Any) -> None:
    """A process that was forked has the handle, but not the threads behind it."""
    if os.getpid() == process:
        failure = library.functions.plait_close(handle)
        if failure:  # it has been closed with its session
            library.functions.plait_error_free(failure)


class Session:
    """A session, which hears what the library says."""

    def __init__(self) -> None:
        self.library = load_library()
        handle = Handle()
        try:
            self.library.call("plait_session_open", INTERFACE, ctypes.byref(handle))
        except Error as error:
            raise Error(
                f"'{self.library.path}' is plait {self.library.version}: {error.message}",
                code=error.code,
            ) from None
        self.handle = handle.value or 0
        # The listener must not keep the session alive, but be there until its end.
        heard: list[str] = []
        self._heard = heard
        listener = Listener(lambda _, kind, text: _hear(heard, kind, text))
        weakref.finalize(self, _close, self.library, self.handle, os.getpid(), listener)
        self.call("plait_session_listen", self.handle, listener, None)

    def call(self, name: str, *arguments: Any) -> None:
        try:
            self.library.call(name, *arguments)
        finally:
            self.warn()

    def text(self, name: str, *arguments: Any) -> str:
        pointer = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(pointer))
        return self.library.take_text(pointer)

    def warn(self) -> None:
        """Warns of what was heard, at the line outside of the package that called."""
        while self._heard:
            self.warn_of(self._heard.pop(0))

    def warn_of(self, message: str) -> None:
        warnings.warn(message, Warning, stacklevel=_level_of_caller())


class Owner:
    """What a session has made by a function, until nobody has this object any more."""

    def __init__(self, session: Session, maker: str, *arguments: Any):
        handle = Handle()
        session.call(maker, *arguments, ctypes.byref(handle))
        self.session = session
        self.handle = handle.value or 0
        self._process = os.getpid()
        self._finalizer = weakref.finalize(
            self, _close, session.library, self.handle, self._process
        )

    def call(self, name: str, *arguments: Any) -> None:
        if os.getpid() != self._process:  # it would wait for threads for ever
            raise CallError(
                f"the run is of process {self._process}, and not of what was forked from it",
                hint="plait.train begins another",
            )
        self.session.call(name, self.handle, *arguments)

    def text(self, name: str, *arguments: Any) -> str:
        return self.session.text(name, self.handle, *arguments)

    def close(self) -> None:
        self._finalizer()

    def __reduce__(self):
        raise TypeError(
            "models, plans and runs are of one process and cannot be pickled: give the "
            "other process a path, as that of Plan.save()"
        )


def _hear(heard: list[str], kind: int, text: bytes) -> None:
    """Exceptions cannot leave a listener: warnings, which may be such, come later."""
    message = spell(text.decode(errors="replace"))
    if kind == WARNING:
        heard.append(message)
    else:
        log.log(logging.INFO if kind == NOTE else logging.DEBUG, "%s", message)


def _level_of_caller() -> int:
    """That of warnings.warn in the function which calls this."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(INSIDE):
        level, frame = level + 1, frame.f_back
    return level


_lock = threading.Lock()
_shared: list[tuple[int, Session]] = []


def shared_session() -> Session:
    """The session of all runs: processes of a launcher meet once."""
    with _lock:
        if not _shared or _shared[0][0] != os.getpid():
            _shared[:] = [(os.getpid(), Session())]
        return _shared[0][1]
