#===- draw.py - The masks of dropout, in NumPy ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What docs/Plan.md says of keys and masks, written a second time."""

import numpy

C = numpy.uint32(0x9E3779B9)


def philox(counter, key) -> int:
    """The first word of Philox4x32-10 (Salmon et al., SC 2011)."""
    word = 0xFFFFFFFF
    a, b, c, d = counter
    k, l = key
    for _ in range(10):
        x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (y >> 32) ^ b ^ k, y & word, (x >> 32) ^ d ^ l, x & word
        k, l = (k + 0x9E3779B9) & word, (l + 0xBB67AE85) & word
    return a


def keys(seed: int, step: int, rows) -> numpy.ndarray:
    """Of these rows of the global batch of a step, which count from 1."""
    found = [philox((row, 0, step, 0), (seed, 0)) for row in rows]
    return numpy.array(found, numpy.uint32)


def mix(word: numpy.ndarray) -> numpy.ndarray:
    word = (word ^ (word >> numpy.uint32(16))) * numpy.uint32(0x7FEB352D)
    word = (word ^ (word >> numpy.uint32(15))) * numpy.uint32(0x846CA68B)
    return word ^ (word >> numpy.uint32(16))


def mask(keys, site: int, shape, probability: float) -> numpy.ndarray:
    """What a tensor of `shape`, whose first dimension is that of the keys, is
    multiplied with."""
    word = mix(keys + numpy.array([site], numpy.uint32) * C)
    for extent in shape[1:]:
        word = mix(word[..., None] + numpy.arange(extent, dtype=numpy.uint32) * C)
    kept = word < round((1 - probability) * 2**32)
    return kept / (1 - probability)
