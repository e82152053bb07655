#===- each_layer.py - Defects in one of many layers that are alike ----*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Seeds each defect into single layers of a model that layers.py --alternate makes, and has
`plait-opt` prove each IR. Prints what is not refused, and how many are.

each_layer.py CLAIM LAYERS IR..."""

import re
import subprocess
import sys

claim, layers, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def replace(text, pattern, new, layer):
    """Once, in a line of the layer."""
    pattern = re.compile(rf"^.*{pattern}.*nn\.layer = {layer}\b.*$", re.M)
    line = pattern.search(text)
    return text[:line.start()] + new(line[0]) + text[line.end():]


def exchange(text, a, b):
    return text.replace(a, "\0").replace(b, a).replace("\0", b)


def find_activation(text, layer):
    """What the gradient of the second matrix is made of: an argument of the backward pass."""
    return re.search(rf'nn\.matmul (%arg\d+), %\d+ "bsf,bsh->fh" {{nn\.layer = {layer}\b', text)


def take_activation(text, layer, other):
    own, alien = find_activation(text, layer), find_activation(text, other)
    return text[:own.start(1)] + alien[1] + text[own.end(1):]


# By name: the text with a defect in a layer, given another one of its kind.
DEFECTS = {
    "subtracts": lambda text, layer, other:
        replace(text, r"nn\.add ", lambda line: line.replace("nn.add", "nn.sub"), layer),
    "another number": lambda text, layer, other:
        replace(text, r"by 1\.0", lambda line: line.replace("by 1.0", "by 1.001"), layer),
    "no sum over tp": lambda text, layer, other:
        replace(text, r"dist\.all_reduce ", lambda line: re.sub(
            r'dist\.all_reduce (%\w+) on @mesh\["tp"\]  sum (.*) -> .*', r"nn.scale \1 by 1.0 \2",
            line), layer),
    "another layer's matrix": lambda text, layer, other:
        text.replace(f"nn.read @up.{layer}  value", f"nn.read @up.{other}  value", 1),
    "another layer's activation": take_activation,
    "exchanged gradients": lambda text, layer, other:
        exchange(text, f"to @up.{layer}  gradient", f"to @up.{other}  gradient"),
}


def is_refused(text):
    """By the proof: an IR that cannot be read would show nothing."""
    done = subprocess.run(["plait-opt", "-o", "/dev/null", f"--plait-prove-meaning=claim={claim}"],
                          input=text, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"plait-opt ended with {done.returncode}: {done.stderr}")
    return done.returncode == 1 and "computes something else than the model asks for" in done.stderr


refused = 0
for file in files:
    sound = open(file).read()
    if is_refused(sound):
        sys.exit(f"{file} computes something else as it is")
    for layer in (0, layers // 2, layers - 1):
        other = layer - 2 if layer >= 2 else layer + 2
        for name, seed in DEFECTS.items():
            text = seed(sound, layer, other)
            if text == sound:
                sys.exit(f"{name} changes nothing in layer {layer} of {file}")
            if is_refused(text):
                refused += 1
            else:
                print(f"{file}, layer {layer}: {name}")
print(f"refused {refused} of {len(files) * 3 * len(DEFECTS)}")
