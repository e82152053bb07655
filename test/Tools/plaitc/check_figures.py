#===- check_figures.py - A projection adds up --------------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""check_figures.py JSON: holds a prediction with --train-tokens of gpt2 or
llama-3-8b on H100s against the FLOPs of its matmuls, and its parts
against their sums."""

import json
import math
import sys

# Layers, width, key-value width, parameters of matrices a layer, vocabulary;
# and the published count of all parameters.
MODELS = {
    "gpt2": (12, 768, 12 * 768**2, 50257, 124_439_808),
    "llama-3-8b": (
        32,
        4096,
        2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336,
        128256,
        8_030_261_248,
    ),
}


def close(found, expected, tolerance=1e-9):
    assert abs(found - expected) <= tolerance * abs(expected), (found, expected)


def main() -> None:
    content = json.load(open(sys.argv[1], encoding="utf-8"))
    name = content["model"].rsplit("/", 1)[-1]
    layers, width, matrices, vocabulary, parameters = MODELS[name]
    pick = content["configuration"]
    tokens = pick["global_batch"] * pick["sequence"]
    projection = content["projection"]
    step = content["iteration_seconds"]

    # Chowdhery et al. 2022, appendix B: 6 N + 12 L H Q T of a token. N are the
    # parameters that multiply: the head does, tied or not, a lookup does not.
    attention = 12 * layers * width * pick["sequence"]
    multiplying = layers * matrices + vocabulary * width
    close(content["model_flops"], tokens * (6 * multiplying + attention))
    assert projection["parameters"] == parameters

    devices = math.prod(pick[axis] for axis in ("pp", "replicate", "dp", "ep", "cp", "tp"))
    close(content["mfu"], content["model_flops"] / (step * devices * 989e12))
    close(sum(content["roofline_seconds"].values()), step)
    assert projection["steps"] == math.ceil(projection["tokens"] / tokens)
    close(projection["seconds"], projection["steps"] * step)
    close(projection["days"], projection["seconds"] / 86400)
    close(projection["device_hours"], devices * projection["seconds"] / 3600)
    close(projection["joules"], 700 * devices * projection["seconds"])
    assert ("money" in projection) == ("price" in projection)
    if "price" in projection:
        money = projection["price"] * projection["device_hours"]
        close(projection["money"], money)
    rule = projection["rule"]
    work = rule["flops"] * projection["tokens"] * parameters
    close(rule["seconds"], work / (devices * rule["rate"]))
    # The rule knows no attention, and takes all parameters to multiply.
    ratio = 6 * parameters / (6 * multiplying + attention)
    close(rule["seconds"] / projection["seconds"], ratio, 1e-5)
    close(projection["optimal_tokens"], 20 * parameters)


main()
