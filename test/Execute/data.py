#!/usr/bin/env python3
#===- data.py - Which samples steps read ------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What ranks read, by the log of samples, is what the recipe in SampleOrder.h
says, computed here anew: on every mesh, over resumes on other meshes and other
numbers of processes. Token files of all formats give the same losses; damaged
ones end in one error each."""

import itertools
import json
import os
import pathlib
import shutil
import struct
import sys
import tempfile

import numpy

from harness import Reporter, Tools, arguments, require

BATCH, SEQUENCE, VOCABULARY = 8, 32, 97
MESHES = {
    "1": (),
    "dp=2,tp=2": ("--zero", "1"),
    "pp=2,cp=2": ("--schedule", "1f1b"),
    "dp=4": ("--zero", "3"),
    "dp=3": (),
}
CONFIG = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
    "vocab_size": VOCABULARY, "n_positions": SEQUENCE, "n_embd": 16,
    "n_layer": 2, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}  # fmt: skip


#===-----------------------------------------------------------------------===#
# The recipe
#===-----------------------------------------------------------------------===#


def philox(counter, key) -> int:
    """The first word of Philox4x32-10 (Salmon et al., SC 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF,
            (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF,
        ]  # fmt: skip
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def permute(entry: int, size: int, seed: int, source: int, epoch: int) -> int:
    half = next(h for h in itertools.count(1) if 4**h >= size)
    mask, low = 2**half - 1, 2**32 - 1
    while True:
        left, right = divmod(entry, 2**half)
        for j in range(8):
            counter = (right, 2**31 + 2**8 * source + j, epoch & low, epoch >> 32)
            word = philox(counter, (seed & low, seed >> 32))
            left, right = right, left ^ (word & mask)
        entry = left * 2**half + right
        if entry < size:
            return entry


def turns(shares: list[int]) -> list[tuple[int, int]]:
    """(source, rank) of a round."""
    places = [
        ((2 * k + 1) / (2 * n), d, k)
        for d, n in enumerate(shares)
        for k in range(n)
    ]
    return [(d, k) for _, d, k in sorted(places)]


def weighted(sizes, shares, seed, count: int):
    order, result = turns(shares), []
    for i in range(count):
        source, rank = order[i % len(order)]
        drawn = i // len(order) * shares[source] + rank
        epoch, entry = divmod(drawn, sizes[source])
        result.append(
            [source, permute(entry, sizes[source], seed, source, epoch)]
        )
    return result


def unweighted(sizes, seed, count: int):
    total, result = sum(sizes), []
    for i in range(count):
        number = permute(i % total, total, seed, 0, i // total)
        source = 0
        while number >= sizes[source]:
            number -= sizes[source]
            source += 1
        result.append([source, number])
    return result


#===-----------------------------------------------------------------------===#
# Files
#===-----------------------------------------------------------------------===#

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def write_indexed(prefix: pathlib.Path, documents, kind: str) -> pathlib.Path:
    """Megatron's format: see TokenFile.h."""
    lengths = numpy.array([len(x) for x in documents], numpy.int32)
    size = numpy.dtype(kind).itemsize
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)[:-1]]) * size
    tokens = numpy.concatenate(documents).astype(kind)
    prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[kind], len(lengths), len(lengths) + 1)
        + lengths.tobytes() + offsets.astype(numpy.int64).tobytes()
        + numpy.arange(len(lengths) + 1, dtype=numpy.int64).tobytes()
    )  # fmt: skip
    return prefix


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        self.plans, self.count = {}, 0

    def plan(self, mesh: str, batch: int = BATCH) -> pathlib.Path:
        if (mesh, batch) not in self.plans:
            path = self.folder / f"{len(self.plans)}.plan"
            self.tools.run(
                "plaitc", self.model, "--mesh", mesh, *MESHES[mesh],
                *("--global-batch", batch, "--micro-batch", 1),
                *("--seq", SEQUENCE, "--no-reference", "--no-prove"),
                *("-o", path),
            )
            self.plans[mesh, batch] = path
        return self.plans[mesh, batch]

    def path(self, name: str) -> pathlib.Path:
        """A path of its own."""
        self.count += 1
        return self.folder / f"{self.count}-{name}"

    def raw(self, samples: int, kind="uint16", seed=0) -> pathlib.Path:
        path = self.path("tokens.bin")
        draw = numpy.random.default_rng(seed)
        count = samples * SEQUENCE + 1
        draw.integers(0, VOCABULARY, count).astype(kind).tofile(path)
        return path

    def train(self, plan, *options):
        """What each step has read, and its loss."""
        log, samples = self.path("log"), self.path("samples")
        command = (
            plan, *options, "--log", log, "--log-samples", samples,
            *("--threads", 1),
        )  # fmt: skip
        self.tools.run("plait-run", *command)
        return read_lines(samples), read_losses(log)

    def fail(self, *options) -> str:
        outcome = self.tools.call("plait-run", *options)
        lines = outcome.stderr.strip().splitlines()
        require(outcome.code == 1, f"ended with {outcome.code}: {lines}")
        require(lines[-1].startswith("plait-run: error: "), outcome.stderr)
        require(
            sum("error" in x for x in lines) == 1, f"more than one: {lines}"
        )
        return lines[-1].removeprefix("plait-run: error: ")


def read_lines(path: pathlib.Path) -> dict[int, list]:
    """The last line of a step counts."""
    lines = map(json.loads, path.read_text().splitlines())
    return {x["step"]: x["samples"] for x in lines}


def read_losses(path: pathlib.Path) -> list[float]:
    return [json.loads(x)["loss"] for x in path.read_text().splitlines()]


def flatten(steps: dict[int, list]) -> list:
    return [x for step in sorted(steps) for x in steps[step]]


#===-----------------------------------------------------------------------===#
# The order of samples
#===-----------------------------------------------------------------------===#


def order_cases(suite: Suite) -> None:
    # More than a pass over the first, which has fewer than a batch.
    small, large = suite.raw(5), suite.raw(50, seed=1)
    steps = 9

    def follows(list_, expected):
        def body():
            for mesh in ("1", "dp=2,tp=2", "pp=2,cp=2"):
                found, _ = suite.train(
                    suite.plan(mesh), "--tokens", list_, "--steps", steps,
                    *("--shuffle", "--seed", 2**32 + 7),
                )
                require(flatten(found) == expected, f"{mesh}: {found}")

        return body

    count, seed = steps * BATCH, 2**32 + 7
    suite.report.case(
        "order/two", follows(f"{small},{large}", unweighted([5, 50], seed, count))
    )
    suite.report.case(
        "order/weights",
        follows(
            f"{small}:7,{large}:3",
            weighted([5, 50], [70000, 30000], seed, count),
        ),
    )
    suite.report.case(
        "order/weight-0",
        follows(
            f"{small}:0,{large}:1e-3", weighted([5, 50], [0, 100000], seed, count)
        ),
    )

    def one_sample():
        found, losses = suite.train(
            suite.plan("dp=2,tp=2"), "--tokens", suite.raw(1), "--shuffle",
            *("--epochs", 16),
        )
        require(flatten(found) == [[0, 0]] * 16 and len(losses) == 2, found)

    def epochs():
        found, _ = suite.train(
            suite.plan("1"), "--tokens", f"{small},{large}", "--shuffle",
            *("--epochs", 2),
        )
        require(len(found) == 110 // BATCH, f"{len(found)} steps")
        first = flatten(found)[:55]
        require(len({tuple(x) for x in first}) == 55, "not each sample once")

    suite.report.case("order/one-sample", one_sample)
    suite.report.case("order/epochs", epochs)


def resume_cases(suite: Suite) -> None:
    sources = f"{suite.raw(7)}:0.25,{suite.raw(60, seed=1)}:0.75"
    options = ("--tokens", sources, "--shuffle", "--seed", 3)

    def goes_on():
        """Over meshes and batches, as one run without an end."""
        folder, samples = suite.path("checkpoints"), suite.path("samples")
        log = suite.path("log")
        for mesh, batch, steps in (
            ("dp=2,tp=2", 8, 3), ("1", 8, 5), ("dp=3", 6, 8),
            ("pp=2,cp=2", 4, 10), ("dp=4", 8, 12),
        ):  # fmt: skip
            suite.tools.run(
                "plait-run", suite.plan(mesh, batch), *options,
                *("--steps", steps, "--checkpoint", folder, "--resume", folder),
                *("--log-samples", samples, "--log", log, "--threads", 1),
            )
        found = flatten(read_lines(samples))
        expected = weighted([7, 60], [25000, 75000], 3, len(found))
        require(found == expected, "not the samples of an undisturbed run")
        require(len(found) == 3 * 8 + 2 * 8 + 3 * 6 + 2 * 4 + 2 * 8, len(found))
        lines = samples.read_text().splitlines()
        require(len(lines) == 12, f"{len(lines)} lines: a step was done twice")

    def epochs_end():
        """Two epochs are as many samples, whatever the batches were."""
        folder = suite.path("checkpoints")
        samples = suite.path("samples")
        tokens = suite.raw(20)
        common = (
            *("--tokens", tokens, "--shuffle", "--epochs", 2, "--threads", 1),
            *("--checkpoint", folder, "--resume", folder),
            *("--log-samples", samples, "--checkpoint-every", 1),
        )
        suite.tools.run(
            "plait-run", suite.plan("1"), "--tokens", tokens, "--shuffle",
            *("--steps", 2, "--checkpoint", folder, "--threads", 1),
            *("--log-samples", samples),
        )
        suite.tools.run("plait-run", suite.plan("pp=2,cp=2", 4), *common)
        found = flatten(read_lines(samples))
        require(found == unweighted([20], 0, 40), found)

    def processes():
        if not shutil.which("mpirun"):
            return "no mpirun"
        samples = suite.path("samples")
        command = (
            "mpirun", "-n", "2", "--oversubscribe", "--allow-run-as-root",
            suite.tools.folder / "plait-run", suite.plan("dp=2,tp=2"),
            *options, "--steps", 3, "--log-samples", samples,
            *("--timeout", 60, "--threads", 1),
        )  # fmt: skip
        launcher = Tools(pathlib.Path("/"), suite.tools.timeout)
        launcher.run(shutil.which("mpirun").lstrip("/"), *command[1:])
        found = flatten(read_lines(samples))
        expected = weighted([7, 60], [25000, 75000], 3, 3 * BATCH)
        require(found == expected, found)

    suite.report.case("resume/meshes", goes_on)
    suite.report.case("resume/epochs", epochs_end)
    suite.report.case("resume/processes", processes)


#===-----------------------------------------------------------------------===#
# Formats
#===-----------------------------------------------------------------------===#


def format_cases(suite: Suite) -> None:
    tokens = numpy.fromfile(suite.raw(30), numpy.uint16)
    # Some documents are empty, also the last one.
    documents = numpy.split(tokens, [0, 3, 3, 100, 700, tokens.size])

    def losses(list_, *options):
        _, found = suite.train(
            suite.plan("1"), "--tokens", list_, "--steps", 3, *options
        )
        return found

    def are_equal():
        raw = {}
        for kind in ("uint16", "uint32", "int32", "int64"):
            raw[kind] = suite.path("raw")
            tokens.astype(kind).tofile(raw[kind])
        expected = losses(raw["uint16"])
        for kind, path in raw.items():
            found = losses(path, "--token-type", kind)
            require(found == expected, f"{kind}: {found}, not {expected}")
        for kind in CODES:
            prefix = write_indexed(suite.path("indexed"), documents, kind)
            for path in (prefix, f"{prefix}.bin", f"{prefix}.idx"):
                found = losses(path)
                require(found == expected, f"{path} {kind}: {found}")

    suite.report.case("formats/equal", are_equal)

    plan = suite.plan("1")

    def damage(change, expected, options=()):
        def body():
            prefix = write_indexed(suite.path("x"), documents, "uint16")
            content = bytearray(prefix.with_suffix(".idx").read_bytes())
            if change:
                content = change(content)
            prefix.with_suffix(".idx").write_bytes(content)
            error = suite.fail(plan, "--tokens", prefix, *options)
            require(expected in error, error)

        return body

    def put(offset, kind, value):
        def change(content):
            struct.pack_into(kind, content, offset, value)
            return content

        return change

    def shorten(content):
        """The last but one of the sequences; the last one is empty."""
        put(34 + 4 * 5, "<i", 1)(content)
        return put(offsets + 8 * 6, "<q", 1402)(content)

    count = len(documents)
    offsets, bounds = 34 + 4 * count, 34 + 12 * count
    for name, change, expected in (
        ("empty", lambda x: b"", "has 0 bytes, its header needs 34"),
        ("header", lambda x: x[:33], "has 33 bytes, its header needs 34"),
        ("magic", put(0, "B", 0), "does not begin with MMIDIDX"),
        ("version", put(9, "<Q", 2), "has version 2, expected 1"),
        ("type", put(17, "B", 9), "has the token type 9, expected 1 to 8"),
        ("float", put(17, "B", 7), "tokens are float32, expected integers"),
        ("truncated", lambda x: x[:-1], "too few for 7 sequences and 8 bounds"),
        ("longer", lambda x: x + b"12345678", "bounds of documents need"),
        ("count", put(18, "<Q", 2**63), "too few for 9223372036854775808"),
        ("bounds", put(26, "<Q", 2**64 - 1), "too few for 7 sequences"),
        ("negative", put(34 + 8, "<i", -1), "sequence 2 has -1 tokens"),
        ("length", put(34 + 4 * 5, "<i", 2**30), "sequence 5 ends at byte"),
        ("shorter", shorten, "the last sequence ends at byte"),
        ("offset", put(offsets + 16, "<q", 8), "sequence 2 begins at byte 8"),
        ("before", put(offsets, "<q", -2), "sequence 0 begins at byte -2"),
        ("document", put(bounds + 8, "<q", 8), "document 1 begins with"),
        ("last", put(bounds + 8 * 7, "<q", 6), "the documents end with"),
    ):
        suite.report.case(f"damage/{name}", damage(change, expected))
    suite.report.case(
        "damage/declared",
        damage(
            None, "tokens are uint16, --token-type says int32",
            ("--token-type", "int32"),
        ),
    )

    def vocabulary():
        """Between the first two blocks that are looked at before a run, which
        are 66,576 bytes apart."""
        path = suite.path("large")
        with path.open("wb") as file:
            file.truncate(65 * 2**20)
            file.seek(66000)
            file.write(struct.pack("<H", VOCABULARY))
        # Token 33000 is in sample 1031.
        plan = suite.plan("1")
        error = suite.fail(
            plan, "--tokens", path, "--token-type", "uint16", "--steps", 150
        )
        require(
            "step 129: " in error
            and f"token 33000 is {VOCABULARY}, the vocabulary has" in error,
            error,
        )

    def is_missing():
        prefix = write_indexed(suite.path("x"), documents, "uint16")
        prefix.with_suffix(".bin").unlink()
        error = suite.fail(plan, "--tokens", prefix)
        require("No such file" in error and ".bin" in error, error)

    suite.report.case("damage/vocabulary", vocabulary)
    suite.report.case("damage/missing", is_missing)


#===-----------------------------------------------------------------------===#
# Lists
#===-----------------------------------------------------------------------===#


def list_cases(suite: Suite) -> None:
    plan, good = suite.plan("1"), suite.raw(20)
    short = suite.path("short")
    numpy.zeros(SEQUENCE, numpy.uint16).tofile(short)

    def refuses(expected, *options):
        def body():
            error = suite.fail(plan, *options)
            require(expected in error, error)

        return body

    for name, list_, expected in (
        ("some", f"{good}:1,{good}", "one has a weight, the other has none"),
        ("negative", f"{good}:-1,{good}:1", "has the weight -1, expected 0 to"),
        ("nan", f"{good}:nan,{good}:1", "has the weight nan, expected 0 to"),
        ("infinite", f"{good}:inf", "has the weight inf, expected 0 to 1e9"),
        ("huge", f"{good}:1e999", "has the weight inf, expected 0 to 1e9"),
        ("zeros", f"{good}:0,{good}:0", "and all others have the weight 0"),
        ("tiny", f"{good}:1,{good}:1e-6", "weight 1e-06, less than 1/100000"),
        ("empty", f"{good},,{good}", "names a file without a name"),
        ("end", f"{good},", "names a file without a name"),
        ("none", "", "--tokens is empty"),
        ("missing", f"{good},none.bin", "'none.bin': No such file"),
        ("folder", suite.folder, "not a regular file"),
        ("short", f"{good},{short}", "has 32 tokens, one sample needs 33"),
    ):
        suite.report.case(f"list/{name}", refuses(expected, "--tokens", list_))
    def is_no_pipe():
        pipe = suite.path("pipe")
        os.mkfifo(pipe)
        error = suite.fail(plan, "--tokens", pipe)
        require("not a regular file" in error, error)

    suite.report.case("list/pipe", is_no_pipe)
    for name, target, expected in (
        ("log-folder", suite.folder, "cannot write"),
        ("log-nowhere", suite.folder / "none" / "log", "cannot write"),
        ("log-output", "-", "--log-samples is added to a file"),
    ):
        suite.report.case(
            f"list/{name}",
            refuses(expected, "--tokens", good, "--log-samples", target),
        )
    both = ("--tokens", good, "--epochs", 1)
    suite.report.case(
        "list/few", refuses("a batch needs 8", *both[:3], 0.1)
    )
    for value in (0, "nan", -1):
        outcome = suite.tools.call("plait-run", plan, *both[:3], value)
        suite.report.case(
            f"list/epochs-{value}",
            lambda x=outcome: require(
                x.code != 0 and "--epochs" in x.stderr, x.stderr
            ),
        )
    suite.report.case(
        "list/passes",
        refuses("--epochs needs sources without weights", "--tokens", f"{good}:1", "--epochs", 1),
    )
    suite.report.case(
        "list/evaluation",
        refuses("an evaluation weighs all samples equally", *both, "--eval-tokens", f"{good}:1"),
    )

    def toml():
        path = suite.path("run.toml")
        path.write_text(
            f'tokens = ["{good}:0.5", "{short}-not:0.5"]\nsteps = 1\n'
        )
        error = suite.fail(plan, "--config", path)
        require("-not': No such file" in error, error)
        path.write_text("tokens = [1]\n")
        outcome = suite.tools.call("plait-run", plan, "--config", path)
        require("a list of what are no strings" in outcome.stderr, outcome)

    suite.report.case("list/toml", toml)

    def odd_names():
        """A file may have the name of a list."""
        odd = suite.folder / "a,b:0.5"
        shutil.copy(good, odd)
        found, _ = suite.train(plan, "--tokens", odd, "--steps", 1)
        require(flatten(found) == [[0, i] for i in range(BATCH)], found)

    suite.report.case("list/odd-names", odd_names)


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("data", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        order_cases(suite)
        resume_cases(suite)
        format_cases(suite)
        list_cases(suite)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
