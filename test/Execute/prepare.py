#!/usr/bin/env python3
#===- prepare.py - Text becomes tokens --------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What plait-data writes is what Hugging Face's tokenizers make of each document,
with the same bytes for any number of workers, from every kind of file. What it
cannot read ends in one error, and leaves nothing behind. Runs in the Python that
has plait-data's packages, build/venv-data."""

import array
import bz2
import gzip
import json
import lzma
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

import pyarrow
import pyarrow.parquet
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness import LONG, ROOT, Reporter, Tools, arguments, attend_to_signals, require

EOS = "<|endoftext|>"


def read_indexed(prefix: pathlib.Path) -> list[list[int]]:
    """The documents, by the format that TokenFile.h describes."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    require(index[:9] == b"MMIDIDX\0\0", index[:9])
    version, code, count, bounds = struct.unpack_from("<QBQQ", index, 9)
    require(version == 1 and bounds == count + 1, (version, count, bounds))
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    offsets = struct.unpack_from(f"<{count}q", index, 34 + 4 * count)
    first = struct.unpack_from(f"<{bounds}q", index, 34 + 12 * count)
    require(list(first) == list(range(bounds)), first)
    require(len(index) == 34 + 12 * count + 8 * bounds, len(index))
    kind = {8: "H", 4: "i"}[code]
    tokens = array.array(kind)
    tokens.frombytes(pathlib.Path(f"{prefix}.bin").read_bytes())
    size = tokens.itemsize
    require(sum(lengths) == len(tokens), (sum(lengths), len(tokens)))
    return [
        list(tokens[o // size : o // size + n]) for o, n in zip(offsets, lengths)
    ]


def make_tokenizer(path: pathlib.Path, texts, size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[EOS], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    # What would spoil documents if it were obeyed.
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def compress_zstd(content: bytes) -> bytes:
    """In two frames with a third between them that is to be skipped, as programs
    with several threads write."""
    codec, half = pyarrow.Codec("zstd"), len(content) // 2
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    return (
        codec.compress(content[:half], asbytes=True) + skipped
        + codec.compress(content[half:], asbytes=True)
    )  # fmt: skip


COMPRESS = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": compress_zstd,
}  # fmt: skip


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        pages = sorted((ROOT / "docs").glob("*.md"))
        self.texts = [x.read_text() for x in pages]
        self.texts += ["", "é 漢字 \u2028 \0 🙂\r\n", " ", EOS + "inside"]
        self.tokenizer_file = folder / "tokenizer.json"
        self.tokenizer = make_tokenizer(self.tokenizer_file, self.texts, 600)
        self.count = 0

    def path(self, name: str) -> pathlib.Path:
        self.count += 1
        return self.folder / f"{self.count}-{name}"

    def write(self, name: str, content: bytes | str) -> pathlib.Path:
        path = self.path(name)
        if isinstance(content, str):
            content = content.encode()
        path.write_bytes(content)
        return path

    def prepare(self, *arguments, tokenizer=None) -> pathlib.Path:
        prefix = self.path("out")
        self.tools.run(
            "plait-data", *arguments, "-o", prefix,
            *("--tokenizer", tokenizer or self.tokenizer_file),
        )
        return prefix

    def expected(self, texts, eos=None) -> list[list[int]]:
        def encode(text):
            return self.tokenizer.encode(text, add_special_tokens=False).ids

        end = [] if eos is None else [self.tokenizer.token_to_id(eos)]
        return [encode(x) + end for x in texts if x]


def kind_cases(suite: Suite) -> None:
    texts = suite.texts

    def check(name, files, expected_texts, *options, eos=EOS):
        def body():
            ends = ("--eos", eos) if eos else ()
            expected = suite.expected(expected_texts, eos)
            contents = set()
            for workers in (1, 3):
                prefix = suite.prepare(
                    *files(), *options, *ends, "--workers", workers
                )
                found = read_indexed(prefix)
                require(found == expected, f"{workers} workers: other tokens")
                contents.add(
                    tuple(
                        pathlib.Path(f"{prefix}.{x}").read_bytes()
                        for x in ("bin", "idx")
                    )
                )
            require(len(contents) == 1, "workers change what is written")
            require(not list(suite.folder.glob("*.tmp-*")), "files left over")

        suite.report.case(f"kinds/{name}", body)

    def json_lines(key="text"):
        # With empty lines, which are no documents.
        return "\n\n  \n".join(json.dumps({"id": 1, key: x}) for x in texts)

    check("jsonl", lambda: [suite.write("a.jsonl", json_lines())], texts)
    check(
        "field", lambda: [suite.write("a.jsonl", json_lines("body"))], texts,
        *("--field", "body"), eos=None,
    )
    for ending, compress in COMPRESS.items():
        check(
            ending,
            lambda ending=ending, compress=compress: [
                suite.write(f"a.jsonl.{ending}", compress(json_lines().encode())),
                suite.write(f"b.txt.{ending}", compress(texts[0].encode())),
            ],
            [*texts, texts[0]],
        )
    array_of_texts = json.dumps([{"text": x} for x in [*texts, None]], indent=1)
    check("array", lambda: [suite.write("a.json", " \n" + array_of_texts)], texts)
    check("array-lines", lambda: [suite.write("a.jsonl", array_of_texts)], texts)
    check("empty-array", lambda: [suite.write("a.json", "[]"), suite.write("b.txt", "a")], ["a"])
    mark = b"\xef\xbb\xbf"  # as editors of Windows begin files
    check(
        "byte-order-mark",
        lambda: [
            suite.write("a.jsonl.gz", gzip.compress(mark + json_lines().encode())),
            suite.write("a.txt", mark + b"a text"),
        ],
        [*texts, "a text"],
    )
    # Enough for several tasks, which come back in their order.
    many = [f"{i} {x}" for i in range(12) for x in texts if x]
    check(
        "tasks",
        lambda: [
            suite.write("a.jsonl", "\n".join(json.dumps({"text": x}) for x in many))
        ],
        many,
    )

    def parquet():
        path = suite.path("a.parquet")
        table = pyarrow.table({"text": [*texts, None], "id": range(len(texts) + 1)})
        pyarrow.parquet.write_table(table, path, row_group_size=3)
        return [path]

    check("parquet", parquet, texts)
    check(
        "text",
        lambda: [suite.write("a.txt", texts[0]), suite.write("b.txt", texts[1])],
        texts[:2],
    )
    check(
        "lines", lambda: [suite.write("a.txt", "one\n\r\n\ntwo\r\nthree")],
        ["one", "two", "three"], "--lines",
    )

    # Python converts no integer of so many digits.
    check(
        "long-number",
        lambda: [suite.write("a.jsonl", '{"text": "a", "id": ' + "9" * 5000 + "}")],
        ["a"],
    )

    def special():
        """What a text spells ends no document, unless that is asked for."""
        end = suite.tokenizer.token_to_id(EOS)
        file = suite.write("a.jsonl", json.dumps({"text": f"the {EOS} of"}))
        (found,) = read_indexed(suite.prepare(file, "--eos", EOS))
        require(found.count(end) == 1 and found[-1] == end, found)
        (found,) = read_indexed(suite.prepare(file, "--eos", EOS, "--special-tokens"))
        require(found.count(end) == 2, found)

    suite.report.case("kinds/special", special)

    def wide():
        """A vocabulary that two bytes do not hold."""
        path = suite.path("wide.json")
        words = {f"w{i}": i for i in range(65537)}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.save(str(path))
        text = suite.write("a.txt", "w65536 w1 w2")
        prefix = suite.prepare(text, tokenizer=path)
        require(read_indexed(prefix) == [[65536, 1, 2]], read_indexed(prefix))
        size = pathlib.Path(f"{prefix}.bin").stat().st_size
        require(size == 12, f"{size} bytes")

    suite.report.case("kinds/wide", wide)


def error_cases(suite: Suite) -> None:
    good = suite.write("good.txt", "some text")
    tokenizer = ("--tokenizer", suite.tokenizer_file)

    def refuses(name, expected, *arguments, workers=1, prefix=suite.folder / "never"):
        def body():
            before = sorted(suite.folder.iterdir())
            outcome = suite.tools.call(
                "plait-data", *arguments, "-o", prefix, "--workers", workers
            )
            lines = outcome.stderr.strip().splitlines()
            require(outcome.code == 1, f"ended with {outcome.code}: {lines}")
            require(len(lines) == 1, outcome.stderr)
            require(
                lines[0].startswith("plait-data: error: ")
                and expected in lines[0],
                lines[0],
            )
            require(sorted(suite.folder.iterdir()) == before, "left files behind")

        suite.report.case(f"errors/{name}", body)

    def lines(*entries):
        """A good line, then these."""
        text = b"".join(x + b"\n" for x in (b'{"text": "a"}', *entries))
        return suite.write("a.jsonl", text), *tokenizer

    table = suite.path("a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"body": ["a"], "n": [1]}), table)
    whole = table.read_bytes()
    refuses("utf-8", "line 2 is not UTF-8: byte 10 is 0xff", *lines(b'{"text": "\xff"}'))
    refuses("json", "line 3 is not JSON", *lines(b"", b'{"text": '))
    refuses("twice", "line 2 is not JSON: an object has 'text' twice", *lines(b'{"text": "a", "text": "a"}'))
    broken = suite.write("broken.json", '[{"text": "a"}, {"text": "b"}')
    refuses("cut-array", f"'{broken}' is not JSON", broken, *tokenizer)
    words = suite.write("words.json", '[{"text": "a"}, "b"]')
    refuses("array-of-text", f"'{words}' entry 2 is no object with 'text'", words, *tokenizer)
    refuses("deep", "line 2 is not JSON", *lines(b"[" * 100000))
    refuses("field", "line 2 is no object with 'text'", *lines(b'{"body": "a"}'))
    refuses("list", "line 2 is no object with 'text'", *lines(b'["text"]'))
    refuses("number", "line 2: 'text' is int, not text", *lines(b'{"text": 1}'))
    refuses("surrogate", "line 2 cannot be encoded", *lines(b'{"text": "\\ud800"}'), workers=2)
    refuses("column", "no column 'text', but body, n", table, *tokenizer)
    columns = pyarrow.table([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text"] * 2)
    twice = suite.path("twice.parquet")
    pyarrow.parquet.write_table(columns, twice)
    refuses("column-twice", f"'{twice}' has the column 'text' twice", twice, *tokenizer)
    refuses("type", "row 1: 'n' is int, not text", table, *tokenizer, "--field", "n")
    refuses(
        "parquet", "after row 0: ", suite.write("b.parquet", whole[:-9]), *tokenizer,
        workers=2,
    )
    for ending, kind in (("gz", "gzip"), ("bz2", "bzip2"), ("xz", "xz"), ("zst", "zstd")):
        whole = COMPRESS[ending](b"text" * 999)
        cut = suite.write(f"b.txt.{ending}", whole[:-9])
        refuses(f"cut-{ending}", f"is not a whole {kind} file", cut, *tokenizer)
        none = suite.write(f"c.txt.{ending}", "none of it")
        refuses(f"no-{ending}", f"is not a whole {kind} file", none, *tokenizer)
        refuses(f"missing-{ending}", "No such file", f"none.txt.{ending}", *tokenizer)
    refuses("missing", "none.txt", "none.txt", *tokenizer)
    refuses("kind", "is no .txt, .jsonl, .json or .parquet", suite.write("x.csv", "a"), *tokenizer)
    for name, file in (("empty", ("e.txt", "")), ("nothing", ("e.jsonl", "\n"))):
        path, count = suite.write(*file), int(name == "empty")
        refuses(name, f"no text in {count} documents of '{path}'", path, *tokenizer)
    refuses("eos", "has no token '</s>'", good, *tokenizer, "--eos", "</s>")
    refuses("tokenizer", "there is no tokenizer", good, "--tokenizer", "none.json")
    refuses("no-tokenizer", "is no tokenizer", good, "--tokenizer", good)
    twice = suite.tokenizer_file.read_text().replace('"version"', '"version": "1.0", "version"', 1)
    refuses(
        "tokenizer-twice", "has 'version' twice", good, "--tokenizer", suite.write("t.json", twice)
    )
    refuses("usage", "--workers: invalid int value: 'x'", good, *tokenizer, workers="x")
    for kind, name in (("dot", "."), ("nothing", ""), ("folder", f"{suite.folder}/"), ("stdout", "-")):
        refuses(f"output-{kind}", f"--output '{name}' has no name", good, *tokenizer, prefix=name)
    file = suite.folder / "never.bin"
    refuses("output-file", f"--output '{file}' ends like a file", good, *tokenizer, prefix=file)
    # Not what is written aside.
    refuses(
        "no-folder", "error: '/proc/none/data.bin': No such file", good, *tokenizer,
        prefix="/proc/none/data",
    )
    # The first of two files is good: nothing of it is left.
    refuses("second", "none.jsonl", good, "none.jsonl", *tokenizer)

    def exists():
        prefix = suite.prepare(good)
        options = (good, *tokenizer, "-o", prefix)
        outcome = suite.tools.call("plait-data", *options)
        require(
            outcome.code == 1 and "--overwrite replaces it" in outcome.stderr, outcome
        )
        suite.tools.run("plait-data", *options, "--overwrite")

    suite.report.case("errors/exists", exists)

    def shell(prefix, before: str, behind: str):
        """The outcome of good text, after commands and with other files."""
        tool = suite.tools.folder / "plait-data"
        command = (tool, good, *tokenizer, "-o", prefix, "--workers", 1)
        return subprocess.run(
            ["bash", "-c", f'{before} exec "$0" "$@" {behind}', *map(str, command)],
            capture_output=True, text=True, timeout=LONG,
        )  # fmt: skip

    def is_full():
        """What finds no room only when the file is closed leaves nothing there."""
        prefix = suite.path("full")
        outcome = shell(prefix, "ulimit -f 0;", "")
        require(outcome.returncode == 1, outcome)
        expected = f"plait-data: error: '{prefix}.bin': File too large\n"
        require(outcome.stderr == expected, outcome.stderr)
        left = list(suite.folder.glob(f"{prefix.name}*"))
        require(not left, left)

    suite.report.case("errors/full", is_full)

    def is_closed():
        """A daemon may have closed what it says errors to."""
        prefix = suite.path("closed")
        outcome = shell(prefix, "", "<&- 2>&-")
        require(outcome.returncode == 0, outcome)
        require(read_indexed(prefix) == suite.expected(["some text"]), "other tokens")

    suite.report.case("errors/closed", is_closed)

    def is_interrupted():
        """While it works: nothing is left of either file."""
        line = json.dumps({"text": suite.texts[0] * 20}) + "\n"
        long = suite.write("long.jsonl", line * 400)
        prefix = suite.path("interrupted")
        command = [
            suite.tools.folder / "plait-data", long, *tokenizer, "-o", prefix
        ]  # fmt: skip
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(
                list(map(str, command)), stderr=subprocess.PIPE, text=True
            )
            while not list(suite.folder.glob(f"{prefix.name}*")):
                require(process.poll() is None, "ended too soon")
                time.sleep(0.01)
            process.send_signal(number)
            _, text = process.communicate(timeout=LONG)
            require(process.returncode == 128 + number, process.returncode)
            require(text == "", text)
            left = list(suite.folder.glob(f"{prefix.name}*"))
            require(not left, left)

    suite.report.case("errors/interrupted", is_interrupted)


def training_case(suite: Suite) -> None:
    """From text to a trained step, with the tokens that were prepared."""

    def trains():
        prefix = suite.prepare(
            suite.write("a.txt", suite.texts[0]), "--eos", EOS
        )
        model = suite.folder / "model"
        model.mkdir()
        config = json.loads((ROOT / "examples/models/gpt2-nano/config.json").read_text())
        config |= {"vocab_size": 600, "n_embd": 16, "n_layer": 1, "n_head": 1}
        (model / "config.json").write_text(json.dumps(config))
        plan, log = suite.folder / "a.plan", suite.path("log")
        suite.tools.run(
            "plaitc", model, "--mesh", "dp=2", "--global-batch", 2, "--seq", 32,
            *("--no-reference", "--no-prove", "-o", plan),
        )
        suite.tools.run("plait-run", plan, "--tokens", prefix, "--steps", 2, "--log", log)
        require(len(log.read_text().splitlines()) == 2, log.read_text())

    suite.report.case("trains", trains)


def main() -> int:
    attend_to_signals()
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("prepare", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        kind_cases(suite)
        error_cases(suite)
        training_case(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
