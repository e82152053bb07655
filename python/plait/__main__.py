# ===- __main__.py - The command line -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""python -m plait doctor; python -m plait from-torch FILE.py:FUNCTION --out DIR"""

import argparse
import importlib.util
import pathlib
import sys

from . import doctor
from .errors import Error


def load(source: str, is_empty: bool):
    """The module that a function of a file makes."""
    file, _, name = source.rpartition(":")
    path = pathlib.Path(file)
    if not file or not name:
        raise Error(f"'{source}' is not of the form FILE.py:FUNCTION")
    if not path.is_file():
        raise Error(f"'{file}' is not a file")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Error(f"'{file}' is no Python file")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    function = getattr(program, name, None)
    if not callable(function):
        raise Error(f"'{file}' has no function '{name}'")
    if not is_empty:
        return function()
    from . import no_weights

    with no_weights():
        return function()


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("plait", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what runs here, a line each")
    command = commands.add_parser("from-torch", help="a model from a PyTorch module")
    command.add_argument("source", help="FILE.py:FUNCTION, which returns the module")
    command.add_argument("--out", required=True, help="folder for model.mlir and weights")
    command.add_argument("--batch", type=int, help="sequences of a microbatch")
    command.add_argument("--seq", type=int, help="tokens of a sequence")
    command.add_argument("--tokens", help="argument that gets the tokens")
    command.add_argument("--targets", help="argument that gets the targets")
    command.add_argument("--no-weights", action="store_true", help="make none")
    command.add_argument("--json", action="store_true", help="print facts as JSON")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    options = parse(words)
    if options.command == "doctor":
        return doctor.main()
    try:
        return convert(options)
    except Error as error:
        print(f"plait: error: {error}", file=sys.stderr)
        return 1


def convert(options: argparse.Namespace) -> int:
    from . import from_torch

    module = load(options.source, options.no_weights)
    sizes = {"batch": options.batch, "seq": options.seq}
    names = {"tokens": options.tokens, "targets": options.targets}
    model = from_torch(module, **sizes, **names)
    model.save(options.out)
    for note in model.notes:
        print(f"plait: note: {note}", file=sys.stderr)
    print(model.to_json() if options.json else f"wrote {options.out}: {model!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
