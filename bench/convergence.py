#!/usr/bin/env python3
# ===- convergence.py - What schemes reach, and what they send ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Which loss do schemes of data parallelism reach with the same tokens, and what do
they send between sites?

gpt2-nano learns the Bible, a token a byte, on 8 ranks: 4 replicas or sites, each a
pipeline of two stages. All have the same samples a step, learning rate and AdamW;
nothing is tuned for a scheme. What has been run is kept in `--folder`, so that a run
that was interrupted goes on. `--draw FILE` writes docs/images/convergence.svg."""

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH, SEQUENCE, HELD_OUT = 32, 64, 200_000
BASELINE = "all-reduce"
# Name: mesh of the four replicas, options of plaitc.
SCHEMES = {
    BASELINE: ("dp", []),
    "int8 + feedback": ("dp", ["--compress", "int8+feedback"]),
    "qsgd4": ("dp", ["--compress", "qsgd4"]),
    "sign + feedback": ("dp", ["--compress", "sign+feedback"]),
    "1-bit Adam": ("dp", ["--compress", "onebit-adam"]),
    "top 1 % + feedback": ("dp", ["--compress", "topk+keep:40+feedback"]),
    "PowerSGD, rank 4 + feedback": ("dp", ["--compress", "powersgd+feedback"]),
    "local SGD, H=8": ("sites", ["--outer", "average:8"]),
    "DiLoCo, H=30": ("sites", ["--outer", "diloco:30"]),
    "DiLoCo, H=30, int8": ("sites", ["--outer", "diloco:30,compress=int8"]),
    "Streaming DiLoCo, 4 bit": (
        "sites", ["--outer", "streaming:30,fragments=2,delay=2,compress=e3m0"]),
    "SparseLoCo, H=30": ("sites", ["--outer", "sparseloco:30"]),
    "gossip, ring": ("sites", ["--outer", "gossip:ring"]),
    "gossip, one peer": ("sites", ["--outer", "gossip:one-peer"]),
}


class Failure(Exception):
    """What a tool said."""


def tool(arguments, name, *rest):
    result = subprocess.run([os.path.join(arguments.bin, name), *rest],
                            capture_output=True, text=True, check=False)
    if result.returncode:
        raise Failure(f"{name} {' '.join(rest)}: {result.stderr.strip()}")
    return result.stdout


def texts(folder):
    """Of what is trained on, and what is held out."""
    train, held = os.path.join(folder, "train.txt"), os.path.join(folder, "held-out.txt")
    if not os.path.exists(held):
        # A verse a line, without its number.
        bible = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], capture_output=True,
                               text=True, check=True, stdin=subprocess.DEVNULL).stdout
        text = re.sub(r"^\S+ ", "", bible, flags=re.MULTILINE).encode()
        for path, part in ((train, text[:-HELD_OUT]), (held, text[-HELD_OUT:])):
            with open(path, "wb") as file:
                file.write(part)
    return train, held


def sent(shown, axis):
    """Bytes that the rank which sends most sends over `axis` in a step on average."""
    most = 0
    for program in shown.split("sent by a rank in a training step")[1:]:
        lines = re.findall(rf"^    {axis}(,[^\n]*?)?  +.* (\d+) bytes$", program,
                           re.MULTILINE)
        counts = {name: int(count) for name, count in lines}
        most = max(most, counts.get(", in a step on average", counts[""]))
    return most


def train(arguments, name, seed, data):
    """1-bit Adam begins with AdamW for a fifth of the steps, as a plan of its own."""
    axis, options = SCHEMES[name]
    file = re.sub(r"\W+", "-", name)
    plan, log, warm, folder = (os.path.join(arguments.folder, file + end)
                               for end in (".plan", ".jsonl", "-warm.plan", "-warm"))

    def compile_to(path, own):
        tool(arguments, "plaitc", os.path.join(ROOT, "examples/models/gpt2-nano"),
             "--mesh", f"pp=2,{axis}=4", *own, "--zero", "0", "--global-batch",
             str(BATCH), "--micro-batch", "4", "--seq", str(SEQUENCE), "--no-reference",
             "-o", path)

    def run(path, steps, *own):
        tool(arguments, "plait-run", path, "--text", data[0], "--eval-text", data[1],
             "--steps", str(steps), "--shuffle", "--seed", str(seed), "--lr",
             str(arguments.lr), "--warmup-steps", str(arguments.steps // 20),
             "--lr-schedule", "cosine", "--decay-steps", str(arguments.steps),
             "--log", log, *own)

    compile_to(plan, options)
    if os.path.exists(log):
        os.remove(log)  # a run adds to it
    resume = []
    if "onebit-adam" in options:
        shutil.rmtree(folder, ignore_errors=True)
        compile_to(warm, [])
        run(warm, arguments.steps // 5, "--checkpoint", folder)
        resume = ["--resume", folder]
    run(plan, arguments.steps, *resume)
    with open(log) as lines:
        steps = [json.loads(line) for line in lines]
    return {
        "held_out": steps[-1]["eval_loss"],
        "trained": statistics.mean(step["loss"] for step in steps[-50:]),
        "bytes": sent(tool(arguments, "plait-plan", "show", plan, "--no-color"), axis),
    }


def report(kept):
    base = kept[BASELINE]
    print("| scheme | bytes a step | less by | loss on held-out text | seeds apart | to all-reduce |")
    print("|---|---|---|---|---|---|")
    for name, runs in kept.items():
        last = [run["held_out"] for run in runs.values()]
        pairs = [runs[seed]["held_out"] / base[seed]["held_out"] - 1
                 for seed in runs if seed in base]
        count = next(iter(runs.values()))["bytes"]
        factor = next(iter(base.values()))["bytes"] / count
        print(f"| {name} | {count:,} | {factor:.1f} | {statistics.mean(last):.4f} | "
              f"{max(last) - min(last):.4f} | {100 * statistics.mean(pairs):+.1f} % |")


def picture(kept):
    """Loss over bytes a step, a point each scheme, with a bar from the lowest to the
    highest of its seeds."""
    width, height, left, top = 560, 320, 56, 14
    points = {name: ([run["held_out"] for run in runs.values()],
                     next(iter(runs.values()))["bytes"]) for name, runs in kept.items()}
    least = min(min(losses) for losses, _ in points.values())
    most = max(max(losses) for losses, _ in points.values())
    exponents = [math.log10(count) for _, count in points.values()]
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))

    def across(exponent):
        return left + width * (exponent - low) / (high - low)

    def down(loss):
        return top + 10 + (height - 20) * (most - loss) / (most - least)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 200} '
        f'{top + height + 44}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" '
        'stroke="#999999"/>',
        f'<text x="{left + width / 2 - 90}" y="{top + height + 38}">bytes a rank sends '
        'between sites in a step</text>',
        f'<text x="{left + width - 130}" y="{top + 18}">loss on held-out text</text>',
    ]
    for exponent in range(low, high + 1):
        label = f"{10 ** exponent:,}"
        lines.append(f'<text x="{across(exponent) - 3.3 * len(label):.1f}" '
                     f'y="{top + height + 18}">{label}</text>')
    for fraction in (0, 0.25, 0.5, 0.75, 1):
        loss = least + (most - least) * fraction
        lines.append(f'<text x="10" y="{down(loss) + 4:.1f}">{loss:.3f}</text>')
    # Points are numbered, as names of neighbours would lie on one another.
    for number, (name, (losses, count)) in enumerate(points.items(), 1):
        x, y = across(math.log10(count)), down(statistics.mean(losses))
        lines.append(f'<path d="M{x:.1f},{down(max(losses)):.1f}V{down(min(losses)):.1f}" '
                     'stroke="#1f77b4" stroke-width="2"/>')
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1f77b4"/>')
        above = -6 if number % 2 else 16
        lines.append(f'<text x="{x:.1f}" y="{y + above:.1f}" text-anchor="middle">'
                     f'{number}</text>')
        lines.append(f'<text x="{left + width + 14}" y="{top + 12 + 18 * number}">'
                     f'{number} {name}</text>')
    return "\n".join(lines) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "convergence"))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--draw", metavar="FILE", help="picture to write")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    results = os.path.join(arguments.folder, f"{arguments.steps}-{arguments.lr:g}.json")
    kept = {}
    if os.path.exists(results):
        with open(results) as file:
            kept = json.load(file)
    data = texts(arguments.folder)
    # All schemes with a seed before the next one, so that what is there can be compared.
    for seed in map(str, range(arguments.seeds)):
        for name in SCHEMES:
            if seed in kept.setdefault(name, {}):
                continue
            kept[name][seed] = train(arguments, name, seed, data)
            with open(results + ".part", "w") as file:
                json.dump(kept, file, indent=1)
            os.replace(results + ".part", results)
            print(f"{name}, seed {seed}: {kept[name][seed]['held_out']:.4f}",
                  file=sys.stderr)
    report(kept)
    if arguments.draw:
        with open(arguments.draw, "w") as file:
            file.write(picture(kept))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"error: {failure}")
