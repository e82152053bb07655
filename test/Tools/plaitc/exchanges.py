#!/usr/bin/env python3
# ===- exchanges.py - What steps exchange, predicted and compiled -*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Holds the list of exchanges that the planner predicts of a step against the one that is
read off the plan which the compiler makes of the same configuration: by stage, axis, moment
and kind, how many there are and how many bytes they move. Standard library only.

  exchanges.py OUT                  a dozen that cover the choices
  exchanges.py OUT --all            all of them
  exchanges.py OUT --draws 1 --seed 7 in their place one drawn configuration; without a seed
                                    it is one of its own in each run, which is printed
  exchanges.py OUT --draws 9 --seed 7 --equal 8 --near 5
                                    fails where fewer are equal, or fewer steps within 5 %
  exchanges.py OUT --draws 1 --plain
                                    one that has nothing on hosts
  exchanges.py OUT --filter zero=3  those whose name has that; --verbose prints lists
  exchanges.py OUT --times          the time of each step, too: as it is predicted, but
                                    for waiting for the slowest replica, by the replayed"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys

from unassembled import make_environment

# What packs add: rows of 64 elements a parameter, and as many rows for each rank.
PADDING = 0.02

# Wide enough that tp is used, and short enough that a compilation takes no second.
MODEL = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 4,
    "n_embd": 1024, "n_head": 8, "n_positions": 512, "vocab_size": 2048,
    "activation_function": "gelu_new", "attn_pdrop": 0.0, "embd_pdrop": 0.0,
    "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
    "tie_word_embeddings": True,
}
UNTIED = {**MODEL, "tie_word_embeddings": False}
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
    "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "max_position_embeddings": 512, "vocab_size": 2048,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "initializer_range": 0.02, "tie_word_embeddings": False,
}
MIXTURE = {
    **LLAMA, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
    "norm_topk_prob": True,
}
MODELS = {"gpt2": MODEL, "untied": UNTIED, "llama": LLAMA}
ALL_MODELS = {**MODELS, "mixture": MIXTURE}

SCHEDULES = {
    "gpipe": 1, "1f1b": 1, "interleaved-1f1b": 2, "breadth-first": 2, "zb-h1": 1,
    "zb-h2": 1, "zb-v": 2, "v-half": 2, "v-min": 2, "dualpipe-v": 2, "zb-auto": 1,
}
AXES = ["pp", "replicate", "dp", "ep", "cp", "tp"]
CONTEXT = ["gather", "heads", "zigzag"]
RECOMPUTE = ["none", "selective", "full"]
COMPRESS = ["none", "none", "int8", "int8:32+feedback", "sign:64", "topk:64+keep:2",
            "topk:32+keep:7+feedback"]
OFFLOAD = ["optimizer", "activations", "optimizer,activations"]


def make(mesh, model="gpt2", **choices):
    """A case: options by name, of which those that are not given have these values."""
    usual = {
        "schedule": "1f1b", "chunks": 1, "zero": 0, "recompute": "none",
        "sequence-parallel": "off", "offload": "none", "micro-batch": 2,
        "global-batch": 32, "seq": 256,
    }
    given = {key.replace("_", "-"): value for key, value in choices.items()}
    sizes = dict(size.split("=") for size in mesh.split(","))
    # Of ep, which needs experts, a name tells only where there is some.
    full = ",".join(
        f"{axis}={sizes.get(axis, 1)}" for axis in AXES if axis != "ep" or "ep" in sizes
    )
    return {"model": model, "mesh": full, **usual, **given}


def list_cases():
    cases = []
    for schedule, chunks in SCHEDULES.items():
        for zero in range(4):
            cases.append(make("pp=2,dp=2", schedule=schedule, chunks=chunks, zero=zero))
    for way in CONTEXT:
        for recompute in RECOMPUTE:
            for zero in (0, 3):
                cases.append(make("dp=2,cp=2", zero=zero, context_parallel=way,
                                  recompute=recompute))
        cases.append(make("cp=4", "llama", context_parallel=way))
        cases.append(make("pp=2,cp=2,tp=2", context_parallel=way))
    for recompute in RECOMPUTE:
        for pieces in (1, 4):
            for sp in ("off", "on"):
                cases.append(make("dp=2,tp=2", recompute=recompute,
                                  tp_comm_overlap=pieces, sequence_parallel=sp))
    for offload in OFFLOAD:
        for zero in range(4):
            cases.append(make("dp=2", offload=offload, zero=zero))
    for zero in range(4):
        cases.append(make("dp=4", "untied", zero=zero, reduce_precision="bf16"))
        cases.append(make("dp=2,cp=2", "llama", zero=zero))
        cases.append(make("pp=4", zero=0, layers=["1,1,1,1", "2,1,1,0", "0,2,1,1",
                                                  "1,2,1,0"][zero]))
    for mesh in ("dp=4", "pp=2,dp=2", "dp=2,tp=2", "dp=2,cp=2"):
        cases.append(make(mesh, compress="int8:64"))
        cases.append(make(mesh, compress="topk:64+keep:2"))
        cases.append(make(mesh, compress="int8:32+feedback", zero=1))
        cases.append(make(mesh, compress="int8:32+feedback", zero=2))
        cases.append(make(mesh, compress="int8:32+feedback", zero=3))
        cases.append(make(mesh, compress="powersgd:2+feedback"))
        cases.append(make(mesh, compress="int8:64+feedback+both"))
    cases.append(make("dp=2,tp=2", "llama", compress="powersgd+feedback"))
    cases.append(make("pp=2,dp=2", zero=1, compress="powersgd:2+feedback"))
    cases.append(make("dp=2,cp=2", "untied", compress="powersgd"))
    cases.append(make("dp=2,ep=2", "mixture", compress="powersgd:2+feedback"))
    cases.append(make("dp=2,ep=2,tp=2", "mixture", compress="powersgd+feedback"))
    cases.append(make("dp=4", "untied", compress="topk+feedback"))
    cases.append(make("dp=2,tp=2", zero=1, compress="topk:64+keep:2+feedback+rounds:3"))
    cases.append(make("pp=2,dp=2", "untied", compress="sign+feedback"))
    for recompute in RECOMPUTE:
        cases.append(make("pp=2,dp=2", "untied", zero=3, recompute=recompute,
                          compress="sign+feedback"))
    cases.append(make("dp=4", "untied", compress="topk+feedback+both"))
    cases.append(make("dp=2,ep=2", "mixture", compress="int8:64+feedback+both"))
    cases.append(make("dp=2,tp=2", "llama", compress="randk:64+feedback+rounds:2+both"))
    cases.append(make("dp=2,tp=2", "llama", compress="int8:128+feedback", sequence_parallel="on"))
    cases.append(make("pp=2,dp=2", compress="onebit-adam"))
    cases.append(make("dp=2,tp=2", "llama", compress="onebit-adam:64"))
    cases.append(make("dp=2,cp=2", "untied", compress="onebit-adam"))
    cases.append(make("dp=2,ep=2", "mixture", compress="onebit-adam:64"))
    for zero in range(4):
        cases.append(make("replicate=2,dp=2", zero=zero))
        cases.append(make("replicate=2,dp=2,cp=2", "llama", zero=zero))
        cases.append(make("pp=2,replicate=2,dp=2", "untied", zero=zero))
        cases.append(make("replicate=2,dp=2,tp=2", zero=zero, sequence_parallel="on"))
    cases.append(make("pp=2,dp=2,tp=2", sequence_parallel="on", zero=2))
    cases.append(make("pp=2,dp=2,tp=2", "llama", zero=3))
    for recompute in RECOMPUTE:
        for zero in range(4):
            cases.append(make("dp=2,ep=2", "mixture", zero=zero, recompute=recompute))
    for zero in range(4):
        for mesh in ("ep=4", "ep=2,cp=2", "pp=2,ep=2,tp=2", "replicate=2,ep=2", "dp=2,ep=2,cp=2"):
            cases.append(make(mesh, "mixture", zero=zero))
        cases.append(make("ep=4", "mixture", zero=zero, offload="optimizer"))
        cases.append(make("ep=2,tp=2", "mixture", zero=zero, sequence_parallel="on"))
        cases.append(make("dp=2,ep=2", "mixture", zero=zero, reduce_precision="bf16"))
        cases.append(make("dp=2,ep=2", "mixture", zero=zero, freeze="*.experts.*"))
    for zero in range(2):
        cases.append(make("dp=2,ep=2", "mixture", zero=zero, compress="int8:64"))
    cases.append(make("dp=2,ep=2", "mixture", zero=2, compress="int8:64+feedback"))
    for recompute in RECOMPUTE:
        cases.append(make("dp=2,ep=2", "mixture", recompute=recompute,
                          micro_batch=1, expert_chunks=4))
        for mesh, chunks in (("dp=2,ep=2", 1), ("ep=4", 4)):
            cases.append(make(mesh, "mixture", recompute=recompute, micro_batch=1,
                              expert_exchange="rows", expert_chunks=chunks))
    # What a first half of a backward pass leaves is on its way to a host behind it.
    cases.append(make("pp=2", "llama", schedule="zb-v", chunks=2, offload="activations"))
    # So short that attention is cheap, and computed again.
    for way in CONTEXT:
        cases.append(make("cp=2", recompute="selective", context_parallel=way, seq=128))
    cases.append(make("dp=2,tp=2", "untied", sequence_parallel="on", tp_comm_overlap=4))
    # Below all that is trained, between it, and the tied table.
    for zero in range(4):
        for frozen in ("*.h.[012].*", "*.h.[13].*", "*wte*"):
            cases.append(make("dp=2", zero=zero, freeze=frozen))
        cases.append(make("pp=2,dp=2", zero=zero, freeze="*.h.[12].*"))
        cases.append(make("dp=2,tp=2", zero=zero, freeze="*.attn.*"))
    return cases


def draw(generator):
    """Any configuration that there is: what cannot be compiled is drawn anew."""
    schedule = generator.choice(list(SCHEDULES))
    sizes = {axis: generator.choice([1, 2]) for axis in AXES if axis != "ep"}
    if SCHEDULES[schedule] > 1 and sizes["pp"] == 1:
        schedule = "1f1b"
    if math.prod(sizes.values()) > 8:
        sizes["pp"] = 1
        schedule = "1f1b"
    if math.prod(sizes.values()) > 8:
        sizes["replicate"] = 1
    case = make(
        ",".join(f"{axis}={size}" for axis, size in sizes.items()),
        generator.choice(list(MODELS)), schedule=schedule, chunks=SCHEDULES[schedule],
        zero=generator.randrange(4), recompute=generator.choice(RECOMPUTE),
        sequence_parallel=generator.choice(["off", "on"]),
        offload=generator.choice(["none", "none", *OFFLOAD]),
        tp_comm_overlap=generator.choice([1, 4]), micro_batch=generator.choice([1, 2]),
        seq=generator.choice([128, 256]))
    if sizes["cp"] > 1:
        case["context-parallel"] = generator.choice(CONTEXT)
    case["compress"] = generator.choice(COMPRESS)
    if case["zero"] > 1 and "feedback" not in case["compress"]:
        case["compress"] = "none"
    return case


# Each choice of list_cases() is in one of these at least, and a tied table on one rank
# of which two stages read it.
DOZEN = [
    "gpt2/pp=2,dp=2",
    "gpt2/pp=2,dp=2/schedule=interleaved-1f1b/chunks=2/zero=1",
    "gpt2/pp=2,dp=2/schedule=v-min/chunks=2/zero=2",
    "gpt2/pp=2,dp=2/schedule=zb-h1/zero=3",
    "gpt2/pp=2,dp=2/schedule=zb-v/chunks=2/zero=3",
    "gpt2/dp=2,cp=2/recompute=full/context-parallel=heads",
    "gpt2/dp=2,cp=2/zero=3/recompute=selective/context-parallel=zigzag",
    "gpt2/dp=2,cp=2/zero=3/recompute=full/context-parallel=gather",
    "llama/cp=4/context-parallel=gather",
    "gpt2/dp=2,tp=2/sequence-parallel=on/tp-comm-overlap=4",
    "gpt2/dp=2,tp=2/recompute=full/sequence-parallel=on/tp-comm-overlap=1",
    "gpt2/dp=2/zero=2/offload=optimizer,activations",
    "untied/dp=4/zero=1/reduce-precision=bf16",
    "gpt2/pp=4/layers=0,2,1,1",
    "gpt2/pp=2,dp=2/compress=int8:64",
    "llama/dp=2,tp=2/sequence-parallel=on/compress=int8:128+feedback",
    "gpt2/dp=2,tp=2/compress=topk:64+keep:2",
    "gpt2/dp=2,tp=2/zero=1/compress=topk:64+keep:2+feedback+rounds:3",
    "gpt2/pp=2,dp=2/zero=1/compress=int8:32+feedback",
    "gpt2/dp=2,tp=2/zero=2/compress=int8:32+feedback",
    "gpt2/dp=2,tp=2/zero=3/compress=int8:32+feedback",
    "untied/pp=2,dp=2/zero=3/recompute=full/compress=sign+feedback",
    "untied/pp=2,dp=2/compress=sign+feedback",
    "gpt2/pp=2,dp=2/compress=onebit-adam",
    "gpt2/pp=2,dp=2/compress=int8:64+feedback+both",
    "untied/dp=4/compress=topk+feedback+both",
    "llama/pp=2,dp=2,tp=2/zero=3",
    "llama/replicate=2,dp=2,cp=2/zero=1",
    "untied/pp=2,replicate=2,dp=2/zero=3",
    "mixture/dp=2,ep=2/zero=1/recompute=full",
    "mixture/ep=2,cp=2",
    "mixture/dp=2,ep=2/micro-batch=1/expert-chunks=4",
    "mixture/dp=2,ep=2/recompute=full/micro-batch=1/expert-chunks=4",
    "gpt2/cp=2/recompute=selective/seq=128/context-parallel=heads",
    "gpt2/cp=2/recompute=selective/seq=128/context-parallel=zigzag",
    "untied/dp=2,tp=2/sequence-parallel=on/tp-comm-overlap=4",
    "gpt2/pp=2,dp=2/zero=1/freeze=*.h.[12].*",
    "gpt2/dp=2/zero=3/freeze=*.h.[13].*",
]


def name(case):
    usual = make(case["mesh"])
    axes = [axis for axis in case["mesh"].split(",") if not axis.endswith("=1")]
    return "/".join([case["model"], ",".join(axes), *(
        f"{key}={value}" for key, value in case.items()
        if key not in ("model", "mesh") and usual.get(key) != value)])


def measure(case, out):
    """The predicted and the compiled lists, by stage, and both steps' seconds."""
    folder = out / case["model"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(ALL_MODELS[case["model"]]))
    plan, report, listed, replay = (
        out / file for file in ("plan", "report.json", "list.json", "replay.json"))
    options = [text for key, value in case.items()
               if key not in ("model", "sequence-parallel")
               for text in (f"--{key}", str(value))]
    options += ["--pin", f"sp={case['sequence-parallel']}"]
    # Processors alone compute experts.
    cluster = "cpu:8" if case["model"] == "mixture" else "h100:1x8"
    words = ["plaitc", folder, "--cluster", cluster, *options, "--no-reference",
             "--no-prove", "--json", report, "-o", plan]
    made = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env=make_environment(out))
    if made.returncode:
        return made.stderr.strip().splitlines()[-1]
    for command, path in (("exchanges", listed), ("simulate", replay)):
        subprocess.run(["plait-plan", command, plan, "--json", path], check=True,
                       stdout=subprocess.DEVNULL)
    predicted = json.loads(report.read_text())
    return (predicted["exchanges"], json.loads(listed.read_text())["exchanges"],
            predicted["iteration_seconds"] - predicted["breakdown_seconds"]["wait"],
            json.loads(replay.read_text())["step_seconds"])


KEYS = ("over", "in", "what", "members")


def compare(predicted, compiled):
    """What differs, in lines."""
    lines = []
    if len(predicted) != len(compiled):
        return [f"{len(predicted)} stages predicted, {len(compiled)} compiled"]
    for stage, pair in enumerate(zip(predicted, compiled)):
        rows = [{tuple(row[key] for key in KEYS): row for row in rows} for rows in pair]
        for key in sorted(set(rows[0]) | set(rows[1]), key=str):
            mine, plan = rows[0].get(key), rows[1].get(key)
            where = f"stage {stage}: " + " ".join(map(str, key))
            if not mine or not plan:
                row = mine or plan
                lines.append(f"{where}: {row['count']:g} of {row['bytes']:g} bytes only "
                             + ("predicted" if mine else "compiled"))
                continue
            # How many copies there are is nowhere predicted: they go on one by one.
            if key[0] != "host" and mine["count"] != plan["count"]:
                lines.append(f"{where}: count {mine['count']:g} predicted, "
                             f"{plan['count']:g} compiled")
            if abs(mine["bytes"] - plan["bytes"]) > PADDING * plan["bytes"]:
                lines.append(f"{where}: bytes {mine['bytes']:g} predicted, "
                             f"{plan['bytes']:g} compiled")
    return lines


def show(title, lists):
    for stage, rows in enumerate(lists):
        for row in rows:
            print(f"  {title} {stage}:", *(row[key] for key in KEYS), f"{row['count']:g}",
                  f"{row['bytes']:g} {1e6 * row['seconds']:.1f} us,"
                  f" hidden {1e6 * row['hidden_seconds']:.1f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--filter", default="")
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--equal", type=int)
    parser.add_argument("--near", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    generator = random.Random(options.seed)
    cases = []
    if options.draws:
        print(f"--draws {options.draws} --seed {options.seed}")
        # One in a handful makes no sense.
        cases = [draw(generator) for _ in range(9 * options.draws)]
        if options.plain:
            cases = [case for case in cases if case["offload"] == "none"]
    else:
        every = options.all or options.filter
        cases = [case for case in list_cases()
                 if options.filter in name(case) and (every or name(case) in DOZEN)]
    failed = compiled = near = 0
    for case in cases:
        if options.draws and compiled == options.draws:
            break
        found = measure(case, options.out)
        if isinstance(found, str):
            if not options.draws:
                print(f"{name(case)}: not compiled: {found}")
                failed += 1
            continue
        compiled += 1
        lines = compare(*found[:2])
        failed += bool(lines)
        near += abs(found[2] / found[3] - 1) <= 0.05
        times = f": {found[2] / found[3]:.3f}" if options.times else ""
        if lines or options.verbose or times:
            print(name(case) + times)
        for line in lines:
            print(f"  {line}")
        if options.verbose:
            show("predicted", found[0])
            show("compiled", found[1])
    if not compiled:
        sys.exit("nothing was compiled")
    if options.draws:
        print(f"{compiled - failed} of {compiled} are equal, {near} within 5 %")
    least = compiled if options.equal is None else options.equal
    if near < options.near or compiled - failed < least:
        sys.exit(f"{failed} of {options.draws or len(cases)} differ")
    print(f"{compiled} plans exchange what was predicted")


if __name__ == "__main__":
    main()
