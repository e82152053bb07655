#!/usr/bin/env python3
#===- overlap.py - Communication beside computation -------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What replicas exchange goes on beside computing, on processors as on GPUs: in
the trace of a run a reduction of gradients begins while the backward pass goes
on, and parameters that ZeRO divides, in bf16 those of ZeRO 2 too, are gathered
while others are computed with. Losses and weights have the bits that they have one after the other, under every
schedule, in one process and in several."""

import dataclasses
import json
import pathlib
import re
import shutil
import sys
import tempfile

import covering
from harness import Reporter, Tools, arguments, require, write_tokens
from processes import NANO, metrics
from processes import Suite as Processes

STEPS = 3
STEPS_PHASE = (
    "builtin.module(plait-begin-phase{phase=steps},plan-lower-to-steps,"
    "plan-bucket-reductions{bucket=16384},plait-end-phase{phase=steps})"
)
SCHEDULES = (
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved-1f1b", 2),
    ("breadth-first", 2),
    ("zb-h1", 1),
    ("zb-h2", 1),
    ("zb-v", 2),
    ("v-half", 2),
    ("v-min", 2),
    ("dualpipe-v", 2),
    ("zb-auto", 1),
)
# Name, kind of collective, options, processes of a default run.
BESIDE = (
    ("reduces", "all-reduce", (), (1, 2)),
    ("scatters/zero=2", "reduce-scatter", ("--zero", 2), (2,)),
    ("scatters/zero=3", "reduce-scatter", ("--zero", 3), (1,)),
    ("gathers/zero=3", "all-gather", ("--zero", 3), (2,)),
    ("gathers/zero=2", "all-gather", ("--zero", 2, "--precision", "bf16"), (1,)),
)
# Processes that have the bits of one thread: all of these with --all, else one of
# them a case, in turn.
OF_SCHEDULES, OF_MESHES = (1, 2, 4), (1, 2)


@dataclasses.dataclass
class Span:
    name: str
    action: str
    begin: float
    end: float


def read_trace(path: pathlib.Path) -> dict[int, list[tuple[int, Span]]]:
    """The streams and operations of each rank, in the order of the plan. Actions
    have an argument, they have none."""
    ranks: dict[int, list[tuple[int, Span]]] = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X" and not event["args"]:
            begin, length = event["ts"], event["dur"]
            span = Span(event["name"], event["cat"], begin, begin + length)
            ranks.setdefault(event["pid"], []).append((event["tid"], span))
    return ranks


def count_beside(spans: list[tuple[int, Span]], kind: str) -> tuple[int, int]:
    """How many collectives of the second stream of this kind there are, and how
    many of them begin before what the plan has in front of them in the first stream
    has ended, or end after what it has behind them has begun."""
    every = beside = 0
    for index, (stream, span) in enumerate(spans):
        if stream == 0 or span.name != kind:
            continue
        every += 1
        ahead = [x.end for other, x in spans[:index] if other == 0][-1:]
        behind = [x.begin for other, x in spans[index:] if other == 0][:1]
        beside += any(x > span.begin for x in ahead) or any(
            x < span.end for x in behind
        )
    return every, beside


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        self.processes = Processes(tools, report, folder)
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 5, 1 << 14, 256)

    def model(self, layers: int, width: int) -> pathlib.Path:
        folder = self.folder / f"model-{layers}-{width}"
        folder.mkdir(exist_ok=True)
        config = json.loads((NANO / "config.json").read_text())
        config |= {"n_layer": layers, "n_embd": width}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def compile(
        self, mesh: str, *options, layers=4, width=64, rows=1
    ) -> pathlib.Path:
        """With buckets of 64 KiB, as if the model had as many as a large one."""
        lower, steps, plan = (
            self.folder / name for name in ("lower.mlir", "steps.mlir", "x.plan")
        )
        self.tools.run(
            *("plaitc", self.model(layers, width), "--mesh", mesh, *options),
            *("--global-batch", 16, "--micro-batch", rows, "--seq", 64),
            *("--compile-to", "lower", "-o", lower),
        )
        self.tools.run("plait-opt", f"--pass-pipeline={STEPS_PHASE}", lower, "-o", steps)
        self.tools.run("plaitc", steps, "--no-reference", "-o", plan)
        return plan

    def train(self, plan, processes: int, *options, steps=STEPS) -> tuple:
        log, saved = self.folder / "log", self.folder / "saved"
        log.unlink(missing_ok=True)
        words = (
            *(plan, "--tokens", self.tokens, "--steps", steps, "--lr", 0.01),
            *("--log", log, "--save", saved, *options),
        )
        if processes == 1:
            self.tools.run("plait-run", *words)
        else:
            done = self.processes.mpirun(processes, *words)
            require(done.code == 0, done.stderr)
        return metrics(log), (saved / "model.safetensors").read_bytes()

    def compare(self, plan, processes: int, *options) -> None:
        """With a thread for communication, and without."""
        on, off = (
            self.train(plan, processes, "--overlap", word, *options)
            for word in ("on", "off")
        )
        require(len(on[0]) == STEPS, on[0])
        require(on[0] == off[0], f"metrics {on[0]}, without overlap {off[0]}")
        require(on[1] == off[1], "weights differ from those without overlap")

    def trace(self, plan, processes: int) -> dict:
        path = self.folder / "trace.json"
        self.train(plan, processes, "--overlap", "on", "--trace", path)
        return read_trace(path)


#===-----------------------------------------------------------------------===#
# Cases
#===-----------------------------------------------------------------------===#


def is_beside(suite: Suite, processes: int, kind: str, *options):
    """Of a model that has work to do: buckets are reduced before the last pass
    is over, of the rank that is not ahead of the other one. What is gathered may
    be there before the other thread is given a core again, where there are fewer
    cores than threads."""
    rows = 4 if options else 8
    plan = suite.compile("dp=2", *options, layers=8, width=128, rows=rows)
    told = []
    for rank, spans in suite.trace(plan, processes).items():
        streams = {stream for stream, _ in spans}
        require(streams == {0, 1}, f"rank {rank} has streams {sorted(streams)}")
        require(
            not any(x.name.startswith("All") for stream, x in spans if stream == 0),
            f"rank {rank} exchanges with replicas in its first stream",
        )
        told.append(count_beside(spans, kind))
    every = told[0][0]
    most = max(beside for _, beside in told)
    text = ", ".join(f"{beside} of {every}" for every, beside in told)
    # Mostly nearly all are. Where there are more threads and processes than cores
    # it is the system that says who goes on; without a second stream it is none.
    least = every / 20 if processes == 1 else 1
    require(every > 100 and most >= least, f"only {text} are beside others")
    return text


def is_serial(suite: Suite):
    """In one process, where nobody says otherwise."""
    plan = suite.compile("dp=2")
    path = suite.folder / "trace.json"
    suite.train(plan, 1, "--trace", path)
    for rank, spans in read_trace(path).items():
        for (_, first), (stream, second) in zip(spans, spans[1:]):
            require(
                stream == 0,
                f"rank {rank} has a second stream",
            )
            require(
                first.end <= second.begin + 1e-3,
                f"rank {rank}: {second} begins before {first} ends",
            )


def same_bits(suite: Suite, mesh: str, counts, *options, run=()):
    # Several microbatches, of a pipeline more.
    plan = suite.compile(mesh, *options, rows=1 if "pp" in mesh else 2)
    suite.tools.run("plait-plan", "check", plan)
    for processes in counts:
        suite.compare(plan, processes, *run)


def begins_with_gathers(suite: Suite, mesh: str, *options):
    """A step that begins by gathering, against one that ends so, as it does where
    what is gathered lies on the host. Parameters are read between steps too: to be
    evaluated, saved, and taken up again."""
    told, folder = [], suite.folder / "checkpoints"
    evaluate = ("--eval-tokens", suite.tokens, "--eval-every", 2, "--eval-steps", 1)
    for offload in ("none", "optimizer"):
        plan = suite.compile(
            mesh, "--precision", "bf16", *options, "--offload", offload,
            rows=1 if "pp" in mesh else 2,
        )
        shown = suite.tools.run("plait-plan", "show", plan).stdout
        begins = offload == "none"
        require(("gather_0" in shown) == begins, shown)
        straight = suite.train(plan, 1, *evaluate)
        evaluations = re.findall('"eval_loss": [^,}]*', (suite.folder / "log").read_text())
        require(len(evaluations) == 2, evaluations)
        shutil.rmtree(folder, ignore_errors=True)
        suite.train(plan, 1, "--checkpoint", folder, "--checkpoint-every", 2, steps=2)
        resumed = suite.train(plan, 1, "--resume", folder)
        require(resumed[0] == straight[0][2:], f"{resumed[0]}, expected {straight[0]}")
        require(resumed[1] == straight[1], "resumed, weights have other bits")
        told.append((straight, evaluations))
    require(told[0][0][0] == told[1][0][0], f"{told[0][0][0]}, expected {told[1][0][0]}")
    require(told[0][1] == told[1][1], f"{told[0][1]}, expected {told[1][1]}")
    require(told[0][0][1] == told[1][0][1], "weights have other bits")


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    options = parser.parse_args()
    takes_all = covering.takes_all(options)
    report = Reporter("overlap", options.filter)

    def counts_of(processes: tuple, index: int) -> tuple:
        return processes if takes_all else (processes[index % len(processes)],)

    tools = Tools(options.bin, options.timeout)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        case = report.case
        for name, kind, flags, few in BESIDE:
            for processes in OF_MESHES if takes_all else few:
                case(
                    f"beside/{name}/processes={processes}",
                    lambda: is_beside(suite, processes, kind, *flags),
                )
        case("serial", lambda: is_serial(suite))
        for index, (schedule, chunks) in enumerate(SCHEDULES):
            words = ("--schedule", schedule, "--chunks", chunks)
            counts = counts_of(OF_SCHEDULES, index)
            case(
                f"bits/pp=2,dp=2/{schedule}",
                lambda: same_bits(suite, "pp=2,dp=2", counts, *words),
            )
        for index, (mesh, flags) in enumerate((
            ("dp=4", ()),
            ("dp=2,tp=2", ()),
            ("dp=2,cp=2", ()),
            ("dp=4", ("--zero", 1)),
            ("dp=4", ("--zero", 2)),
            ("dp=4", ("--zero", 3)),
            ("pp=2,dp=2,tp=2", ("--zero", 3)),
            ("dp=2", ("--zero", 3, "--recompute", "full")),
            ("replicate=2,dp=2", ("--zero", 1)),
            ("replicate=2,dp=2,tp=2", ("--zero", 3)),
            ("dp=2", ("--precision", "bf16", "--zero", 2)),
            ("pp=2,dp=2", ("--precision", "bf16", "--zero", 1)),
            ("pp=2,dp=2,tp=2", ("--compress", "int8:32+feedback")),
        )):
            name = "/".join((mesh, *map(str, flags))).replace("--", "")
            counts = counts_of(OF_MESHES, index)
            case(f"bits/{name}", lambda: same_bits(suite, mesh, counts, *flags))
        for mesh, flags in (
            ("dp=4", ("--zero", 1)),
            ("dp=2", ("--zero", 2, "--reduce-precision", "bf16")),
            ("dp=2,cp=2", ("--zero", 2)),
            (
                "pp=2,dp=2",
                ("--zero", 1, "--schedule", "interleaved-1f1b", "--chunks", 2),
            ),
        ):
            name = "/".join((mesh, *map(str, flags))).replace("--", "")
            case(
                f"begins/{name}",
                lambda: begins_with_gathers(suite, mesh, *flags),
            )
        # The threads agree on whether there is an update, and a watched step has
        # one thread.
        case(
            "bits/skip",
            lambda: same_bits(suite, "dp=4", (1, 2), run=("--on-nan", "skip")),
        )
        case(
            "bits/guard",
            lambda: same_bits(suite, "dp=4", (1, 2), run=("--guard", 2)),
        )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
