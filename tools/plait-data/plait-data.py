#!/usr/bin/env python3
#===- plait-data - Turns text into token files ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Turns text into tokens for plait-run: PREFIX.bin, raw tokens, and PREFIX.idx,
which says where documents begin, in the format of Megatron's indexed data sets.

Documents are the objects of .jsonl files and of .json arrays, the rows of .parquet
files, and whole .txt files, or their lines with --lines; all but .parquet may end
with .gz, .zst, .bz2 or .xz as well. What is written depends on input and options
alone, not on the number of workers. Both files appear when they are complete."""

import argparse
import array
import bz2
import codecs
import collections
import concurrent.futures
import concurrent.futures.process
import contextlib
import difflib
import gzip
import io
import itertools
import json
import lzma
import multiprocessing
import os
import pathlib
import re
import signal
import struct
import sys
import time
import zlib

# Text of about this many characters is one task for a worker.
TASK = 1 << 20
# Tokens of smaller vocabularies have 2 bytes, as plait-run expects them.
SHORT_VOCABULARY = 65536
# Of Megatron's format: see TokenFile.h.
MAGIC, VERSION = b"MMIDIDX\0\0", 1
CODES = {"H": 8, "i": 4}  # uint16, int32
# What scripts/install-deps.sh has made for the packages, in the source tree that
# this was built from.
BUILT_PYTHON = "@PROJECT_SOURCE_DIR@/build/venv-data/bin/python"


class Failure(Exception):
    """One line that says what is wrong."""


#===-----------------------------------------------------------------------===#
# Documents: pairs of where one is from and its text
#===-----------------------------------------------------------------------===#


def decode(content: bytes, place: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        byte, at = content[error.start], error.start
        raise Failure(f"{place} is not UTF-8: byte {at} is 0x{byte:02x}") from None


def read_lines(file, name: str):
    for number, line in enumerate(file, 1):
        yield f"'{name}' line {number}", line


def read_text(file, name: str, by_line: bool):
    if not by_line:
        yield f"'{name}'", decode(file.read(), f"'{name}'")
        return
    for place, line in read_lines(file, name):
        yield place, decode(line.rstrip(b"\r\n"), place)


def check_text(text, field: str, place: str) -> str:
    """A document without text is empty."""
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Failure(f"{place}: '{field}' is {type(text).__name__}, not text")
    return text


def parse_json(text: str | bytes, place: str, key: str | None = None, kind="not JSON"):
    """Of a key that is there twice the last would be taken without a word: an error, if
    it is `key` or none is named."""

    def build(pairs):
        keys = [name for name, _ in pairs if key in (None, name)]
        if len(set(keys)) < len(keys):
            twice = collections.Counter(keys).most_common(1)[0][0]
            raise ValueError(f"an object has '{twice}' twice")
        return dict(pairs)

    try:
        # Numbers are not looked at, and may have any number of digits.
        return json.loads(text, parse_int=len, object_pairs_hook=build)
    except (ValueError, RecursionError) as error:
        raise Failure(f"{place} is {kind}: {error}") from None


def get_text(entry, field: str, place: str) -> str:
    if not isinstance(entry, dict) or field not in entry:
        raise Failure(f"{place} is no object with '{field}'")
    return check_text(entry[field], field, place)


def read_json(file, name: str, field: str):
    """A list of objects, or objects in lines."""
    # Blanks in front of a list are few.
    if file.peek(64).lstrip().startswith(b"["):
        name = f"'{name}'"
        entries = parse_json(decode(file.read(), name), name, field)
        for number, entry in enumerate(entries, 1):
            place = f"{name} entry {number}"
            yield place, get_text(entry, field, place)
        return
    for place, line in read_lines(file, name):
        if line.strip():
            entry = parse_json(decode(line, place), place, field)
            yield place, get_text(entry, field, place)


def import_arrow(path: str):
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Failure(f"'{path}' needs the Python package pyarrow: {error}") from None
    return pyarrow


def read_parquet(path: str, field: str):
    pyarrow = import_arrow(path)
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            if field not in names:
                raise Failure(f"'{path}' has no column '{field}', but {', '.join(names)}")
            if names.count(field) > 1:
                raise Failure(f"'{path}' has the column '{field}' twice")
            for batch in table.iter_batches(batch_size=256, columns=[field]):
                for value in batch.column(0).to_pylist():
                    number += 1
                    place = f"'{path}' row {number}"
                    yield place, check_text(value, field, place)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        line = str(error).splitlines()[0]
        raise Failure(f"'{path}' after row {number}: {line}") from None


def open_zstd(path: str):
    pyarrow = import_arrow(path)
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(open(path, "rb")), "zstd")


COMPRESSED = {
    ".gz": ("gzip", gzip.open),
    ".zst": ("zstd", open_zstd),
    ".bz2": ("bzip2", bz2.open),
    ".xz": ("xz", lzma.open),
}


class Decompressed(io.RawIOBase):
    """What is in a file, with errors that name it."""

    def __init__(self, path: str, kind: str, file):
        self.path, self.kind, self.file = path, kind, file

    def readable(self) -> bool:
        return True

    def readinto(self, target) -> int:
        try:
            content = self.file.read(len(target))
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if getattr(error, "errno", None):  # of the disk
                raise
            raise Failure(f"'{self.path}' is not a whole {self.kind} file: {error}") from None
        target[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self.file.close()
        super().close()


def open_input(path: str, ending: str):
    if ending not in COMPRESSED:
        return open(path, "rb")
    kind, opener = COMPRESSED[ending]
    return io.BufferedReader(Decompressed(path, kind, opener(path)), 1 << 20)


def read_documents(path: str, options):
    ending = pathlib.Path(path).suffix
    kind = pathlib.Path(path.removesuffix(ending) if ending in COMPRESSED else path).suffix
    if path.endswith(".parquet"):
        yield from read_parquet(path, options.field)
        return
    if kind not in (".txt", ".jsonl", ".json"):
        raise Failure(
            f"'{path}' is no .txt, .jsonl, .json or .parquet file, nor one of the "
            f"first three with {', '.join(COMPRESSED)} behind"
        )
    with open_input(path, ending) as file:
        # Says how the text is encoded, and is none of it.
        if file.peek(3).startswith(codecs.BOM_UTF8):
            file.read(3)
        if kind == ".txt":
            yield from read_text(file, path, options.lines)
        else:
            yield from read_json(file, path, options.field)


def cut_into_tasks(options, progress):
    """Lists of documents, none of them empty."""
    task, size = [], 0
    for path in options.input:
        for place, text in read_documents(path, options):
            if not text:
                progress.empty += 1
                continue
            task.append((place, text))
            size += len(text)
            if size >= TASK:
                yield task
                task, size = [], 0
    if task:
        yield task


#===-----------------------------------------------------------------------===#
# Tokens
#===-----------------------------------------------------------------------===#


def find_tokenizer(path: str) -> pathlib.Path:
    file = pathlib.Path(path)
    if file.is_dir():
        file /= "tokenizer.json"
    if not file.is_file():
        raise Failure(f"there is no tokenizer '{file}'")
    return file


def load_tokenizer(path: str, special: bool):
    from tokenizers import Tokenizer
    file = find_tokenizer(path)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library has no type of its own
        raise Failure(f"'{file}' is no tokenizer: {error}") from None
    # What a file may ask for would cut documents or fill them up.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A text that spells '<|endoftext|>' would end its document there.
    if not hasattr(tokenizer, "encode_special_tokens"):
        raise Failure("the Python package tokenizers is too old, expected 0.19 or later")
    tokenizer.encode_special_tokens = not special
    return tokenizer


class Encoder:
    """Turns tasks into the lengths of documents and their tokens."""

    def __init__(self, path: str, eos: str | None, special: bool):
        self.tokenizer = load_tokenizer(path, special)
        self.vocabulary = max(self.tokenizer.get_vocab().values(), default=-1) + 1
        if self.vocabulary == 0:
            raise Failure(f"the tokenizer '{path}' has no tokens")
        self.typecode = "H" if self.vocabulary <= SHORT_VOCABULARY else "i"
        self.end = []
        if eos is not None:
            token = self.tokenizer.token_to_id(eos)
            if token is None:
                raise Failure(f"the tokenizer '{path}' has no token '{eos}'")
            self.end = [token]

    def __call__(self, task) -> tuple[list[int], bytes]:
        lengths, tokens = [], array.array(self.typecode)
        for place, text in task:
            try:
                ids = self.tokenizer.encode(text, add_special_tokens=False).ids
            except Exception as error:  # half of a surrogate pair, for example
                reason = str(error).splitlines()[0]
                raise Failure(f"{place} cannot be encoded: {reason}") from None
            # A normalizer may leave nothing.
            ids += self.end if ids else []
            tokens.extend(ids)
            lengths.append(len(ids))
        return lengths, tokens.tobytes()


encode = None  # of a worker


def start_worker(*arguments) -> None:
    global encode
    # The first process says that it was interrupted.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    encode = Encoder(*arguments)


def work(task):
    return encode(task)


def encode_in_order(tasks, encoder: Encoder, options):
    """The results of tasks in their order, few at a time."""
    if options.workers == 1:
        for task in tasks:
            end_if_stopped()
            yield encoder(task)
        return
    arguments = (options.tokenizer, options.eos, options.special_tokens)
    pool = concurrent.futures.ProcessPoolExecutor(
        options.workers, initializer=start_worker, initargs=arguments
    )
    finished = False
    try:
        waiting = collections.deque()
        for task in tasks:
            waiting.append(pool.submit(work, task))
            end_if_stopped()
            if len(waiting) > 2 * options.workers:
                yield waiting.popleft().result()
        while waiting:
            end_if_stopped()
            yield waiting.popleft().result()
        finished = True
    except concurrent.futures.process.BrokenProcessPool:
        raise Failure("a worker was killed, for want of memory perhaps") from None
    finally:
        # A pool that was interrupted, in the middle of anything, may not end by itself.
        if not finished:
            for worker in multiprocessing.active_children():
                worker.kill()
        pool.shutdown(wait=finished, cancel_futures=True)


#===-----------------------------------------------------------------------===#
# Files
#===-----------------------------------------------------------------------===#


class Output:
    """PREFIX.bin and PREFIX.idx, written aside until they are complete."""

    def __init__(self, prefix: str, typecode: str, overwrite: bool):
        self.names = [f"{prefix}.bin", f"{prefix}.idx"]
        self.parts = [f"{name}.tmp-{os.getpid()}" for name in self.names]
        for name in self.names:
            if not overwrite and os.path.lexists(name):
                raise Failure(f"'{name}' exists; --overwrite replaces it")
        self.code = CODES[typecode]
        self.bytes = array.array(typecode).itemsize
        self.lengths = array.array("i")
        self.file = open(self.parts[0], "xb")

    @contextlib.contextmanager
    def naming(self, number: int):
        """Errors of writing, as those of a full disk, do not say by themselves where."""
        try:
            yield
        except OSError as error:
            error.filename = error.filename or self.names[number]
            raise

    def add(self, lengths: list[int], tokens: bytes) -> None:
        if max(lengths) > 2**31 - 1:
            raise Failure(f"a document has {max(lengths)} tokens, more than 2^31 - 1")
        self.lengths.extend(filter(None, lengths))
        with self.naming(0):
            self.file.write(tokens)

    def write_index(self) -> None:
        """Every document is one sequence."""
        count = len(self.lengths)
        with open(self.parts[1], "xb") as file:
            file.write(MAGIC + struct.pack("<QBQQ", VERSION, self.code, count, count + 1))
            self.lengths.tofile(file)
            ends = itertools.accumulate(self.lengths, initial=0)
            array.array("q", [end * self.bytes for end in ends])[:-1].tofile(file)
            array.array("q", range(count + 1)).tofile(file)
            file.flush()
            os.fsync(file.fileno())

    def commit(self) -> None:
        with self.naming(0):
            self.file.flush()
            os.fsync(self.file.fileno())
        with self.naming(1):
            self.write_index()
        # An index never lies beside tokens that are not its own.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.names[1])
        for part, name in zip(self.parts, self.names):
            os.replace(part, name)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of tokens that found no room before
            self.file.close()
        for part in self.parts:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)


class Progress:
    def __init__(self):
        self.documents = self.empty = self.tokens = 0
        self.start = self.shown = time.monotonic()

    def add(self, documents: int, empty: int, tokens: int) -> None:
        self.documents += documents
        self.empty += empty
        self.tokens += tokens
        now = time.monotonic()
        if now - self.shown > 0.5 and sys.stderr.isatty():
            self.shown = now
            rate = f"{self.tokens / (now - self.start):.0f} tokens/s"
            print(f"\r{self.documents} documents, {self.tokens} tokens, {rate}   ",
                  end="", file=sys.stderr, flush=True)  # fmt: skip


#===-----------------------------------------------------------------------===#
# The command line
#===-----------------------------------------------------------------------===#


def prepare(options) -> None:
    tokenizer = find_tokenizer(options.tokenizer)
    parse_json(tokenizer.read_bytes(), f"'{tokenizer}'", kind="no tokenizer")
    encoder = Encoder(options.tokenizer, options.eos, options.special_tokens)
    progress = Progress()
    output = Output(options.output, encoder.typecode, options.overwrite)
    try:
        tasks = cut_into_tasks(options, progress)
        with contextlib.closing(encode_in_order(tasks, encoder, options)) as results:
            for lengths, tokens in results:
                output.add(lengths, tokens)
                empty = lengths.count(0)
                progress.add(len(lengths) - empty, empty, len(tokens) // output.bytes)
        if not progress.documents:
            names = "', '".join(options.input)
            raise Failure(f"no text in {progress.empty} documents of '{names}'")
        output.commit()
    finally:
        output.close()
    print(f"{options.output}.bin: {progress.documents} documents, {progress.tokens} tokens "
          f"of {output.bytes} bytes, vocabulary {encoder.vocabulary}, {progress.empty} "
          "empty documents left out")  # fmt: skip


def fail(message: str) -> int:
    print(f"plait-data: error: {message}", file=sys.stderr)
    return 1


# Options of Megatron-LM's preprocess_data.py.
FOREIGN = {
    "--input": "the files themselves",
    "--output-prefix": "--output",
    "--tokenizer-model": "--tokenizer",
    "--tokenizer-name-or-path": "--tokenizer",
    "--vocab-file": "--tokenizer",
    "--json-keys": "--field",
    "--append-eod": "--eos TOKEN",
}


class Parser(argparse.ArgumentParser):
    """Errors of usage are like all others: one line, and the exit code is 1."""

    def error(self, message):
        sys.exit(fail(message))

    def parse_args(self):
        """What is unknown is told before what is missing, with what may be meant."""
        known = list(self._option_string_actions)
        for word in itertools.takewhile(lambda word: word != "--", sys.argv[1:]):
            option = word.split("=")[0]
            names = [name for name in known if name.startswith(option)]
            if not re.fullmatch("--[a-z-]+", option) or names:
                continue
            near = difflib.get_close_matches(option, known, 1)
            meant = FOREIGN.get(option) or (near[0] if near else None)
            hint = f", did you mean {meant}?" if meant else ""
            self.error(f"unknown option '{option}'{hint}")
        return super().parse_args()


def parse():
    parser = Parser(
        prog="plait-data", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("input", nargs="+", help=".txt, .jsonl, .json or .parquet files, in this order")
    add("--tokenizer", required=True, metavar="FILE",
        help="Hugging Face's tokenizer.json, or its folder")  # fmt: skip
    add("-o", "--output", required=True, metavar="PREFIX", help="of what is written")
    add("--field", default="text", help="key or column with the text (text)")
    add("--lines", action="store_true", help="each line of a .txt is a document")
    add("--eos", metavar="TOKEN", help="ends every document, as '<|endoftext|>'")
    add("--special-tokens", action="store_true",
        help="special tokens that a text spells are these, and not text")  # fmt: skip
    add("--workers", type=int, default=len(os.sched_getaffinity(0)),
        help="processes (the processors)")  # fmt: skip
    add("--overwrite", action="store_true", help="replace what is there")
    options = parser.parse_args()
    if not 1 <= options.workers <= 4096:
        parser.error(f"--workers {options.workers} is not in range 1 to 4096")
    name = os.path.basename(options.output)
    if name in ("", ".", "..", "-"):
        parser.error(f"--output '{options.output}' has no name for files to begin with")
    if name.endswith((".bin", ".idx")):
        parser.error(f"--output '{options.output}' ends like a file, expected what "
                     "PREFIX.bin and PREFIX.idx begin with")  # fmt: skip
    return options


def find_packages() -> None:
    """Goes on in the Python that the build has packages for, where this has none."""
    import importlib.util

    if importlib.util.find_spec("tokenizers"):
        return
    script = pathlib.Path(__file__).resolve()
    built = script.parent.parent / "venv-data" / "bin" / "python"
    pythons = [built, pathlib.Path(BUILT_PYTHON)]
    # Not from one to the other without an end.
    if sys.prefix not in [str(python.parent.parent) for python in pythons]:
        for python in filter(pathlib.Path.exists, pythons):
            os.execv(python, [str(python), str(script), *sys.argv[1:]])
    raise Failure("the Python package tokenizers is missing: scripts/install-deps.sh makes a "
                  "Python that has it; or python3 -m venv V, V/bin/pip install tokenizers "
                  f"pyarrow, and V/bin/python '{script}'")  # fmt: skip


stopped = []  # by which signal


def end(signum, frame):
    """Noted for the work to end between two tasks: what is raised in a callback of
    the pool is printed and forgotten there. A second signal does not wait."""
    stopped.append(signum)
    if len(stopped) > 1:
        os._exit(128 + signum)


def end_if_stopped() -> None:
    if stopped:
        raise KeyboardInterrupt(stopped[0])


def main() -> int:
    # Workers are processes; threads beside them would only get in their way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Closed, its number would be that of the first file that is opened.
    sys.stderr = sys.stderr or open(os.devnull, "w")
    options = parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        find_packages()
        prepare(options)
    except KeyboardInterrupt as stop:
        return 128 + stop.args[0]
    except OSError as error:
        # The user does not know what is written aside.
        name = str(error.filename or "").removesuffix(f".tmp-{os.getpid()}")
        name = f"'{name}': " if name else ""
        return fail(f"{name}{error.strerror or error}")
    except MemoryError:
        return fail("not enough memory")
    except Failure as error:
        return fail(str(error))
    return 0


if __name__ == "__main__":
    code = main()
    if code:
        # Python's own end waits for the pool, which may not end, or fails, once
        # its workers were killed.
        sys.stderr.flush()
        os._exit(code)
