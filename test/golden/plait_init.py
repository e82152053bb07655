#===- plait_init.py - plait's initialisation in numpy -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The weights that plait-run starts from when it is given none: the recipe of
include/plait/Runtime/Random.h, written a second time from its description."""

import math

import numpy
import xxhash

MASK = numpy.uint64(0xFFFFFFFF)
MULTIPLIERS = (numpy.uint64(0xD2511F53), numpy.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
SHIFT = numpy.uint64(32)


def philox(counter, key):
    """Philox4x32-10 on arrays of 32-bit words held in uint64."""
    x0, x1, x2, x3 = counter
    for number in range(10):
        k0, k1 = (
            numpy.uint64((k + number * w) & 0xFFFFFFFF)
            for k, w in zip(key, WEYL)
        )
        product0, product1 = MULTIPLIERS[0] * x0, MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (
            (product1 >> SHIFT) ^ x1 ^ k0,
            product1 & MASK,
            (product0 >> SHIFT) ^ x3 ^ k1,
            product0 & MASK,
        )
    return x0, x1, x2, x3


def uniform(words):
    """The midpoint of one of 2^24 equal parts of (0, 1)."""
    return ((words >> numpy.uint64(8)).astype("f8") + 0.5) * 2.0**-24


def normal(name: str, shape, seed: int, std: float) -> numpy.ndarray:
    """Tensor `name` of the safetensors file, in fp32, mean 0."""
    count = math.prod(shape)
    block = numpy.arange((count + 3) // 4, dtype=numpy.uint64)
    constant = numpy.zeros_like(block)
    digest = xxhash.xxh3_64_intdigest(name.encode())
    words = philox(
        (
            block & MASK,
            block >> SHIFT,
            constant + numpy.uint64(seed & 0xFFFFFFFF),
            constant + numpy.uint64(seed >> 32),
        ),
        (digest & 0xFFFFFFFF, digest >> 32),
    )
    values = numpy.empty((len(block), 4))
    for pair in (0, 2):
        u, v = uniform(words[pair]), uniform(words[pair + 1])
        radius = numpy.sqrt(-2.0 * numpy.log(u))
        values[:, pair] = radius * numpy.cos(2.0 * math.pi * v)
        values[:, pair + 1] = radius * numpy.sin(2.0 * math.pi * v)
    # The plan holds the standard deviation as a float.
    values *= float(numpy.float32(std))
    return values.reshape(-1)[:count].astype("f4").reshape(shape)


def deviation(config: dict, name: str) -> float:
    """As Hugging Face initialises the family: GPT-2 scales the projections
    that end in the residual stream by the number of them."""
    std = config["initializer_range"]
    if config["model_type"] == "gpt2" and name.endswith("c_proj.weight"):
        std /= math.sqrt(2 * config["n_layer"])
    return std


def initialise(config: dict, shapes: dict, seed: int) -> dict:
    """{name: fp32 array} for {name: shape}: matrices are normal, biases zero,
    norms one."""
    values = {}
    for name, shape in shapes.items():
        if len(shape) >= 2:
            std = deviation(config, name)
            values[name] = normal(name, shape, seed, std)
        else:
            constant = 0.0 if name.endswith("bias") else 1.0
            values[name] = numpy.full(shape, constant, dtype="f4")
    return values
