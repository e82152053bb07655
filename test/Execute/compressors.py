#===- compressors.py - Compressors from their papers ------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What each compressor makes of a vector, in numpy and fp32: codes and numbers of
chunks, the bits that are sent, and what they are decoded to."""

import numpy

F32 = numpy.float32


def chunks(x: numpy.ndarray, block: int) -> numpy.ndarray:
    """Rows of `block` elements each, the last one filled up with zeros."""
    flat = numpy.asarray(x, F32).reshape(-1)
    padded = numpy.zeros(-(-flat.size // block) * block, F32)
    padded[: flat.size] = flat
    return padded.reshape(-1, block)


def int8_encode(rows: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Absmax scaling by chunks to -127 … 127 (Dettmers 2016; 2022, "8-bit optimizers
    via block-wise quantization", the linear data type), nearest, ties to even."""
    largest = numpy.abs(rows).max(axis=1)
    factor = F32(127) / (largest + F32(2.0**-100))
    codes = numpy.rint(rows * factor[:, None]).astype(numpy.int8)
    return codes, largest * F32(1 / 127)


def int8_decode(codes: numpy.ndarray, numbers: numpy.ndarray) -> numpy.ndarray:
    return codes.astype(F32) * numbers[:, None]


def pack(codes: numpy.ndarray, bits: int) -> numpy.ndarray:
    """The words of the wire: bits i·b … of word j are of element i·(block/n) + j of
    its chunk, n = 32 / b."""
    count = 32 // bits
    parts = codes.astype(numpy.int64).reshape(len(codes), count, -1)
    words = numpy.zeros((len(codes), parts.shape[2]), numpy.uint64)
    for index in range(count):
        digits = (parts[:, index] % 2**bits).astype(numpy.uint64)
        words |= digits << numpy.uint64(index * bits)
    return words.astype(numpy.uint32)


SCHEMES = {"int8": (8, int8_encode, int8_decode)}


def compress(scheme: str, block: int, x: numpy.ndarray) -> numpy.ndarray:
    """C(x), of the shape of x."""
    _, encode, decode = SCHEMES[scheme]
    sent = decode(*encode(chunks(x, block)))
    return sent.reshape(-1)[: x.size].reshape(x.shape)


def count_bytes(scheme: str, block: int, elements: int) -> int:
    """What one replica sends of a parameter."""
    bits = SCHEMES[scheme][0]
    return -(-elements // block) * (block * bits // 8 + 4)
