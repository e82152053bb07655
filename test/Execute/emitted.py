#!/usr/bin/env python3
#===- emitted.py - Layouts as other programs read them -----*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What `plaitc --emit` writes, read by the programs' own objects: degrees, groups of
ranks, microbatches, layers of a stage and the order of a step have to be those of
`--json`. It needs an interpreter with PyTorch 2 and the packages of
test/requirements-emitted.txt, and says so where there is none. Without them, the
texts are compared with `--json` field by field, and what is read back by
`--from megatron` has to be predicted alike."""

import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from harness import ROOT, TORCH, Reporter, Skipped, Tools, arguments, require

MODELS = ROOT / "examples" / "models"
READER = pathlib.Path(__file__).with_name("emitted_reader.py")
# Model, cluster, sequences, tokens, further options: between them they have every
# axis, uneven stages, chunks, a V, offload and recomputation of some layers.
JOBS = {
    "8b": ("llama-3-8b", "h100:2x8", 128, 8192, ()),
    "70b": ("llama-3-70b", "h100:8x8", 256, 8192, ()),
    "qwen": ("qwen3-8b", "a100-80g:4x8", 64, 4096, ("--pin", "pp=4,tp=2")),
    "gpt2": ("gpt2", "h100:8", 64, 1024, ("--pin", "tp=2")),
    "long": ("llama-3.1-8b", "h100:4x8", 32, 32768, ("--pin", "cp=4")),
    "uneven": ("gpt2", "h100:8", 64, 1024,
               ("--pin", "pp=4,tp=1", "--layers", "2,3,3,4")),
    "block": ("llama-3-8b", "h100:8", 32, 4096,
              ("--pin", "pp=2,tp=1,recompute=full:4", "--schedule", "1f1b")),
    "chunks": ("llama-3-8b", "h100:8", 32, 4096,
               ("--pin", "pp=4,tp=2,chunks=4", "--schedule", "interleaved-1f1b")),
    "v": ("llama-3-8b", "h100:8", 32, 4096, ("--pin", "pp=4", "--schedule", "zb-v")),
    "hsdp": ("llama-3-8b", "h100:4x8", 128, 8192, ("--pin", "replicate=4")),
}
# What a program has not; "v" is a schedule of torchtitan's alone, as groups are.
WITHOUT = {"megatron": ("v", "hsdp"), "torchtitan": ("gpt2", "uneven", "block"),
           "deepspeed": ("qwen", "long", "uneven", "block", "chunks", "v", "hsdp")}


def get_flags(job):
    model, cluster, batch, sequence, more = JOBS[job]
    return (MODELS / model, "--cluster", cluster, "--global-batch", batch, "--seq",
            sequence, *more)


@functools.cache
def emit(tools, program, job, folder):
    """The prediction and the text, of one search."""
    path = folder / f"{program}-{job}"
    tools.run("plaitc", *get_flags(job), "--emit", program, "-o", path, "--json",
              folder / "choice.json")
    return json.loads((folder / "choice.json").read_text()), path.read_text()


def get_words(text):
    """The arguments behind the program's name, as a shell would give them."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    shell = "\n".join(lines)
    shell = shell[shell.index("torchrun"):].replace("torchrun", "printf '%s\\n'", 1)
    names = {"MODULE": "llama3", "CONFIG": "llama3_8b", "schedule": "SCHEDULE"}
    done = subprocess.run(["bash", "-c", shell], env={"PATH": "/bin", **names},
                          capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    return [word for word in words[1:] if word]


def read_options(words):
    """Values by option; a flag without one has True."""
    options, name = {}, None
    for word in words:
        if word.startswith("--"):
            name = word[2:]
            options[name] = True
        elif name and not word.startswith("activation-checkpoint:"):
            old = options[name]
            options[name] = word if old is True else f"{old} {word}"
    return options


def get_csv(text):
    found = re.search(r"<<'END'\n(.*?)END\n", text, re.S)
    return found[1] if found else ""


def check_degrees(choice, degrees):
    c = choice["configuration"]
    wanted = {axis: c[axis] for axis in degrees}
    require(degrees == wanted, f"degrees are {degrees}, planned are {wanted}")


def check_text(tools, program, job, folder):
    """Field by field, without anything of the program's."""
    choice, text = emit(tools, program, job, folder)
    c = choice["configuration"]
    if program == "deepspeed":
        config = json.loads(text)
        micro, parts = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
        require(config["train_batch_size"] == micro * parts * c["dp"], text)
        require(config["zero_optimization"]["stage"] == c["zero"], text)
        tensor = config.get("tensor_parallel", {}).get("autotp_size", 1)
        check_degrees(choice, {"tp": tensor, "cp": config.get("sequence_parallel_size", 1)})
        return
    o = read_options(get_words(text))
    if program == "megatron":
        check_degrees(choice, {axis: int(o[f"{name}-parallel-size"]) for axis, name in
                               (("tp", "tensor-model"), ("pp", "pipeline-model"),
                                ("cp", "context"))})
        require(int(o["micro-batch-size"]) == c["micro_batch"], text)
        require(("use-distributed-optimizer" in o) == (c["zero"] == 1), text)
        return
    p = "parallelism."
    check_degrees(choice, {axis: int(o[f"{p}{name}_degree"]) for axis, name in
                           (("tp", "tensor_parallel"), ("pp", "pipeline_parallel"),
                            ("cp", "context_parallel"), ("dp", "data_parallel_shard"),
                            ("replicate", "data_parallel_replicate"))})
    require((o[f"{p}fsdp_reshard_after_forward"] == "always") == (c["zero"] == 3), text)
    require(bool(get_csv(text)) == (c["pp"] > 1), "no order of a step")


def check_round_trip(tools, job, folder):
    """What is written and read again is predicted alike, with the model as flags and
    as it is."""
    choice, text = emit(tools, "megatron", job, folder)
    path, read = folder / "job.sh", folder / "read.json"
    path.write_text(text)
    model, cluster = get_flags(job)[0], get_flags(job)[2]
    for given in ((), (model,)):
        out = tools.run("plaitc", *given, "--cluster", cluster, "--from",
                        f"megatron:{path}", "--emit", "megatron", "--json", read).stdout
        again = json.loads(read.read_text())
        for field in ("iteration_seconds", "memory_bytes", "configuration"):
            require(again[field] == choice[field],
                    f"{field} is {again[field]}, was {choice[field]}")
        require(out == text, f"the text is\n{out}")


def check_objects(tools, program, job, folder):
    """By the program's own objects, in an interpreter that has them."""
    choice, text = emit(tools, program, job, folder)
    asked = {"program": program, "configuration": choice["configuration"],
             "text": text, "csv": get_csv(text)}
    if program != "deepspeed":
        asked["words"] = get_words(text)
        asked["options"] = read_options(asked["words"])
    for python in TORCH:
        done = subprocess.run([python, READER], input=json.dumps(asked),
                              capture_output=True, text=True, timeout=tools.timeout)
        require(done.returncode in (0, 3), done.stdout + done.stderr[-2000:])
        if done.returncode == 0:
            return done.stdout.strip().splitlines()[-1]
    raise Skipped(f"no interpreter with PyTorch 2 has {program}; see "
                  "test/requirements-emitted.txt")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--all", action="store_true",
                        help="each job by the program's objects, not one of each")
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    reporter = Reporter("emitted", options.filter)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for program in WITHOUT:
            jobs = [job for job in JOBS if job not in WITHOUT[program]]
            for job in jobs:
                reporter.case(f"{program}/{job}",
                              lambda: check_text(tools, program, job, folder))
            for job in jobs if options.all else jobs[:1]:
                reporter.case(f"objects/{program}/{job}",
                              lambda: check_objects(tools, program, job, folder))
        for job in JOBS:
            if job not in WITHOUT["megatron"]:
                reporter.case(f"round-trip/{job}",
                              lambda: check_round_trip(tools, job, folder))
    return reporter.finish()


if __name__ == "__main__":
    sys.exit(main())
