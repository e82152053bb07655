# ===- package_errors.py - Options and errors of the package -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Cases of python_package.py: what is refused, what is said, and the library in C."""

import copy
import ctypes.util
import inspect
import json
import logging
import os
import pathlib
import pickle
import re
import signal
import warnings

from harness import ROOT, require
from package_suite import MODEL, RECIPE, Suite, refuse

# ===-----------------------------------------------------------------------===#
# Options and errors
# ===-----------------------------------------------------------------------===#


def check_names(suite: Suite, table: str, tool: str, calls) -> str:
    """The names in the package are options of the tool, and those that it leaves out
    are refused by the library as well."""
    from plait import options

    known = {name.replace("_", "-") for name in getattr(options, table).__annotations__}
    text = suite.tools.run(tool, "--help-all").stdout
    flags = set(re.findall(r"^ +(?:-\w,)?--([a-z][a-z0-9-]*)", text, re.MULTILINE))
    require(known <= flags, f"{tool} has no {sorted(known - flags)}")
    for name in sorted(flags - known):
        error = refuse(suite.plait.Error, lambda: calls({name: "x"}))
        require("is no option" in str(error), f"{name}: {error}")
    return f"{len(known)} options"


def try_run(suite: Suite, given: dict):
    """Past the package's own check of names."""
    from plait.hooks import Callbacks
    from plait.runs import Run

    return Run(suite.plan, json.dumps(given).encode(), None, Callbacks((), 1))


def try_compile(suite: Suite, given: dict):
    from plait import _library

    native = suite.plait.model(MODEL).native
    text = json.dumps(given).encode()
    path = os.fsencode(suite.folder / "x.plan")
    return _library.Owner(
        native.session, "plait_model_compile", native.handle, text, path
    )


# What is called, the class, the option and a part of the text.
def list_errors(suite: Suite) -> dict:
    import numpy

    plait, plan, rows = suite.plait, suite.plan, suite.rows
    sizes = {"cluster": "h100:8", "global_batch": 4, "seq": 16}
    bad = suite.folder / "bad.mlir"
    bad.write_text("module {\n  nonsense\n}\n")
    return {
        "mistyped": (
            lambda: plait.plan(MODEL, cluster="h100:8", globl_batch=4),
            plait.OptionError,
            "globl_batch",
            "near it are global_batch",
        ),
        "hyphens": (
            lambda: plait.plan(MODEL, **{"global-batch": 4}),
            plait.OptionError,
            "global-batch",
            "it is spelt global_batch",
        ),
        "elsewhere": (
            lambda: plait.train(plan, rows, zero=1),
            plait.OptionError,
            "zero",
            "it is an option of plait.plan",
        ),
        "instead": (
            lambda: plait.train(plan, rows, save="x"),
            plait.OptionError,
            "save",
            "save_pretrained",
        ),
        "no cluster": (lambda: plait.plan(MODEL), plait.OptionError, "cluster", "needs"),
        "cluster": (
            lambda: plait.cluster("h10:8"),
            plait.OptionError,
            "cluster",
            "unknown device",
        ),
        "cluster file": (
            lambda: plait.cluster("/no/file.json"),
            plait.OptionError,
            "cluster",
            "/no/file",
        ),
        "cluster of": (lambda: plait.cluster(8), plait.OptionError, "cluster", "an int"),
        "bound": (
            lambda: plait.plan(MODEL, **{**sizes, "global_batch": 0}),
            plait.OptionError,
            "global_batch",
            "expected 1 to",
        ),
        "spelling": (
            lambda: plait.compile(MODEL, micro_batch=-1),
            plait.OptionError,
            "micro_batch",
            'micro_batch is "-1"',
        ),
        "word": (
            lambda: plait.compile(MODEL, expert_exchange="sideways"),
            plait.OptionError,
            "expert_exchange",
            "expected tokens or rows",
        ),
        "divides": (
            lambda: plait.compile(MODEL, mesh="tp=3"),
            plait.ModelError,
            "",
            "tp",
        ),
        "value": (
            lambda: plait.compile(MODEL, mesh=object()),
            plait.OptionError,
            "mesh",
            "no value of an option",
        ),
        "nan": (
            lambda: plait.train(plan, rows, lr=float("nan")),
            ValueError,
            "lr",
            "nan",
        ),
        "lr": (lambda: plait.train(plan, rows, lr=-1), plait.OptionError, "lr", "-1"),
        "no file": (lambda: plait.load("/no/plan"), plait.FileError, "", "/no/plan"),
        "no plan": (
            lambda: plait.load(MODEL / "config.json"),
            plait.Error,
            "",
            "config.json",
        ),
        "no model": (lambda: plait.model("/no/model"), plait.FileError, "", "/no/model"),
        "IR": (
            lambda: plait.compile(plait.model(bad)),
            plait.ModelError,
            "",
            "bad.mlir:2:3",
        ),
        "memory": (
            lambda: plait.plan(
                ROOT / "examples/models/llama-3-70b",
                cluster="h100:1",
                global_batch=1,
                seq=8192,
            ),
            plait.DoesNotFit,
            "",
            "what fits",
        ),
        "model of": (lambda: plait.model(7), plait.ModelError, "", "an int"),
        "folder": (
            lambda: plait.compile(MODEL, "/no/folder/a.plan"),
            plait.FileError,
            "",
            "/no/folder",
        ),
        "data of": (lambda: plait.train(plan, 7), plait.CallError, "", "an int"),
        "path as data": (
            lambda: plait.train(plan, "x.bin"),
            plait.CallError,
            "",
            "tokens=",
        ),
        "floats": (lambda: plait.train(plan, [[0.5] * 17]), plait.CallError, "", "float"),
        "float in a row": (
            lambda: plait.train(plan, [[*rows[0][:-1], numpy.array(0.5)]] * 4),
            plait.CallError,
            "",
            "elements of ndarray",
        ),
        "short rows": (
            lambda: plait.train(plan, [[1] * 16] * 4),
            plait.CallError,
            "",
            "rows of 17",
        ),
        "ragged": (
            lambda: plait.train(plan, [[1] * 17] * 3 + [[1] * 18]).complete(),
            plait.CallError,
            "",
            "row 3 of the data is of shape [18]",
        ),
        "negative": (
            lambda: plait.train(plan, [[-1] * 17] * 4),
            plait.CallError,
            "",
            "-1",
        ),
        "vocabulary": (
            lambda: plait.train(plan, [[plan.vocabulary] * 17] * 4).complete(),
            plait.Error,
            "",
            str(plan.vocabulary),
        ),
        "few rows": (
            lambda: plait.train(plan, rows[:3]),
            plait.OptionError,
            "steps",
            "3 rows",
        ),
        "no steps": (
            lambda: plait.train(plan, iter(rows)),
            plait.OptionError,
            "steps",
            "has to be given",
        ),
        "order": (
            lambda: plait.train(plan, rows, order="any"),
            plait.OptionError,
            "order",
            "given or",
        ),
        "shuffled": (
            lambda: plait.train(plan, iter(rows), order="shuffled", steps=1),
            plait.OptionError,
            "order",
            "by number",
        ),
        "column": (
            lambda: plait.train(plan, [{"a": rows[0]}] * 4, column="b"),
            plait.OptionError,
            "column",
            "it has a",
        ),
        "no column": (
            lambda: plait.train(plan, [{"a": rows[0]}] * 4),
            plait.OptionError,
            "column",
            "has columns a",
        ),
        "two sources": (
            lambda: plait.train(plan, rows, tokens="x"),
            plait.OptionError,
            "tokens",
            "excludes",
        ),
        "callback": (
            lambda: plait.train(plan, rows, callbacks=[7]),
            plait.CallError,
            "",
            "no callback",
        ),
        "type": (
            lambda: plait.train(plan, rows, steps="x"),
            plait.OptionError,
            "steps",
            "no whole number",
        ),
        "callbacks": (
            lambda: plait.train(plan, rows, callbacks=7),
            plait.CallError,
            "",
            "expected a list",
        ),
        "dictionary": (
            lambda: plait.train(plan, {"input_ids": rows}),
            plait.CallError,
            "",
            "no rows",
        ),
        "numpy nan": (
            lambda: plait.train(plan, rows, lr=numpy.float32("nan")),
            plait.OptionError,
            "lr",
            "lr is nan",
        ),
        "array as option": (
            lambda: plait.train(plan, rows, lr=numpy.ones(2)),
            plait.OptionError,
            "lr",
            "no value of an option",
        ),
        "complex as option": (
            lambda: plait.train(plan, rows, lr=numpy.complex64(1)),
            plait.OptionError,
            "lr",
            "no value of an option",
        ),
        "wide label": (
            lambda: plait.pack([{"input_ids": [2**32 + 5], "labels": [-100]}], 16),
            plait.CallError,
            "",
            "has token 4294967301, expected 0 to",
        ),
        "end": (
            lambda: plait.pack([{"input_ids": [5], "labels": [-100]}], 16, end=1.5),
            plait.OptionError,
            "end",
            "end is 1.5",
        ),
        "end of no vocabulary": (
            lambda: plait.pack([{"input_ids": [5], "labels": [-100]}], 16, end=-1),
            plait.OptionError,
            "end",
            "end is -1",
        ),
        "rows of tokens": (
            lambda: plait.write_rows(suite.folder / "no.rows", plan, rows),
            plait.CallError,
            "",
            "takes no floats",
        ),
        "load": (lambda: plait.load(5), plait.CallError, "", "expected a path"),
        "not compiled": (
            lambda: plait.train(MODEL, rows),
            plait.Error,
            "",
            "llama-small",
        ),
    }


def check_error(case) -> str:
    call, kind, option, words = case
    error = refuse(kind, call)
    text = str(error)
    require(error.option == option, f"{text}: the option is '{error.option}'")
    require(words in text, f"'{text}' does not say '{words}'")
    require(isinstance(error.code, int) and error.code > 0, f"code {error.code}")
    return text


def check_pickled(suite: Suite) -> str:
    """Errors come out of other processes whole."""
    error = refuse(suite.plait.Error, lambda: suite.plait.cluster("h10:8"))
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        fields = ("code", "message", "option", "location", "hint")
        for name in fields:
            require(getattr(other, name) == getattr(error, name), f"{name} is another")
        require(type(other) is type(error) and str(other) == str(error), f"{other!r}")
    # A plan holds memory of this process.
    try:
        pickle.dumps(suite.plan)
    except TypeError as refusal:
        text = str(refusal)
    require("cannot be pickled: give the other process a path" in text, text)
    return str(error)


def check_sets(suite: Suite) -> str:
    """Names come as a set, too, as PEFT has them: that is a list in order."""
    options = suite.plait.options
    encoded = options.encode({"lora_targets": {"v_proj", "q_proj"}}, ("lora_targets",))
    require(encoded == b'{"lora-targets": ["q_proj", "v_proj"]}', str(encoded))
    return encoded.decode()


def check_forked(suite: Suite) -> str:
    """A process that was forked has none of the threads of a run: using it is an error,
    and not a wait for them. It can begin a run of its own."""
    plait = suite.plait
    run = plait.train(suite.plan, suite.rows, **RECIPE)
    expected = next(run).loss
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            error = refuse(plait.CallError, lambda: next(run))
            refuse(plait.CallError, lambda: run.save_pretrained(suite.folder / "forked"))
            require("forked" in str(error), str(error))
            own = next(plait.train(suite.plan, suite.rows, **RECIPE)).loss
            require(own == expected, f"{own}, expected {expected}")
            os.write(writing, b"good")
        except BaseException as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    require((told, status) == ("good", 0), f"'{told}', ended with {status}")
    require(next(run).step == 2, "the run does not go on here")
    return "in a child"


def check_heard(suite: Suite) -> str:
    """Warnings are Python's, at the line that called, and notes go to the log."""
    plait = suite.plait
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = inspect.currentframe().f_lineno + 1
        choice = plait.plan(MODEL, cluster="h100:8x8", global_batch=64, seq=16)
    require(len(caught) == 1, f"{[str(x.message) for x in caught]}")
    require(issubclass(caught[0].category, plait.Warning), f"{caught[0].category}")
    require((caught[0].filename, caught[0].lineno) == (__file__, line), f"{caught[0]}")
    require("stay idle" in str(caught[0].message), str(caught[0].message))
    require("--" not in str(caught[0].message), str(caught[0].message))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refuse_warning(plait, lambda: plait.plan(MODEL, **choice.options))
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("plait")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        plait.train(suite.plan, suite.rows, **RECIPE)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    return f"{len(records)} records"


def refuse_warning(plait, call) -> None:
    """A choice that is asked for again has all decided, and may warn or not; a warning
    that is an error leaves the library usable."""
    try:
        call()
    except plait.Warning:
        pass
    plait.cluster("h100:8")


# ===-----------------------------------------------------------------------===#
# The library
# ===-----------------------------------------------------------------------===#


def check_library(suite: Suite) -> str:
    """Where the library is looked for, and one that is none."""
    from plait import _library

    plait = suite.plait
    known = os.environ.pop(_library.VARIABLE)
    path = os.environ["PATH"]
    try:
        os.environ["PATH"] = known
        beside = _library.find_library()
        require(beside.parent == pathlib.Path(known).resolve(), f"{beside}")
        os.environ["PATH"] = "/nowhere"
        error = refuse(plait.Error, _library.find_library)
        require(_library.VARIABLE in error.hint, str(error))
        os.environ[_library.VARIABLE] = "/nowhere"
        refuse(plait.Error, _library.find_library)
        other = ctypes.util.find_library("m") or "libm.so.6"
        error = refuse(plait.Error, lambda: _library.Library(pathlib.Path(other)))
        require("is not the library of plait" in str(error), str(error))
        text = suite.folder / "libplait.so"
        text.write_text("text")
        refuse(plait.Error, lambda: _library.Library(text))
    finally:
        os.environ.update({_library.VARIABLE: known, "PATH": path})
    before, _library.INTERFACE = _library.INTERFACE, 99
    try:
        error = refuse(plait.Error, _library.Session)
    finally:
        _library.INTERFACE = before
    require("99" in str(error) and "libplait" in str(error), str(error))
    return str(error)


def check_header() -> str:
    """The functions and structures that the package declares are the header's."""
    from plait import _library

    header = (ROOT / "include/plait-c/plait.h").read_text()
    header = re.sub(r"/\*.*?\*/", " ", header, flags=re.S)
    (version,) = re.findall(r"#define PLAIT_C_VERSION (\d+)", header)
    require(int(version) == _library.INTERFACE, f"the header is of version {version}")
    calls = re.findall(r"PLAIT_C_API\s+plait_error \*\s*(plait_\w+)\(([^)]*)\)", header)
    found = {name: len(words.split(",")) for name, words in calls}
    own = {name: len(kinds) for name, kinds in _library.FUNCTIONS.items()}
    require(own == found, f"{sorted(set(own.items()) ^ set(found.items()))}")
    for name, kind in (("error", _library.Failure), ("step", _library.StepRecord)):
        (body,) = re.findall(rf"typedef struct plait_{name} {{(.*?)}}", header, re.S)
        fields = re.findall(r"(\w+)(?:\[\w+\])?;", body)
        require(fields == [x for x, _ in kind._fields_], f"plait_{name} has {fields}")
    return f"{len(found)} functions"
