#===- compressors.py - Compressors from their papers ------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What each compressor makes of a vector, in numpy and fp32: codes and numbers of
chunks, the bits that are sent, and what they are decoded to."""

import dataclasses
from collections.abc import Callable

import numpy

F32 = numpy.float32


def chunks(x: numpy.ndarray, block: int) -> numpy.ndarray:
    """Rows of `block` elements each, the last one filled up with zeros."""
    flat = numpy.asarray(x, F32).reshape(-1)
    padded = numpy.zeros(-(-flat.size // block) * block, F32)
    padded[: flat.size] = flat
    return padded.reshape(-1, block)


def integer_encode(rows: numpy.ndarray, limit: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Absmax scaling by chunks to -limit … limit (Dettmers 2016; 2022, "8-bit optimizers
    via block-wise quantization", the linear data type), nearest, ties to even."""
    largest = numpy.abs(rows).max(axis=1)
    factor = F32(limit) / (largest + F32(2.0**-100))
    codes = numpy.rint(rows * factor[:, None]).astype(numpy.int8)
    return codes, largest * F32(1 / limit)


def int8_encode(rows: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    return integer_encode(rows, 127)


def int4_encode(rows: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    return integer_encode(rows, 7)


def integer_decode(codes: numpy.ndarray, numbers: numpy.ndarray) -> numpy.ndarray:
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


def sign_encode(
    rows: numpy.ndarray, counts: numpy.ndarray
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """EF-signSGD with a scale (Karimireddy et al. 2019, "Error feedback fixes SignSGD",
    Algorithm 2): one bit, 1 where negative, and ‖x‖₁ / d of the d elements that a row
    has."""
    sums = numpy.abs(rows).sum(axis=1, dtype=F32)
    return (rows < 0).astype(numpy.int8), sums / counts.astype(F32)


def sign_decode(codes: numpy.ndarray, numbers: numpy.ndarray) -> numpy.ndarray:
    return (1 - 2 * codes.astype(F32)) * numbers[:, None]


def top_k(rows: numpy.ndarray, k: int) -> numpy.ndarray:
    """The k largest magnitudes of each row, of equal ones those of lower indices;
    zeros elsewhere (Stich et al. 2018, definition 2.1)."""
    order = numpy.argsort(-numpy.abs(rows), axis=1, kind="stable")
    kept = numpy.zeros(rows.shape, bool)
    numpy.put_along_axis(kept, order[:, :k], True, axis=1)
    return numpy.where(kept, rows, F32(0))


def draw_key(name: str) -> int:
    """FNV-1a, 32 bits."""
    hashed = 0x811C9DC5
    for byte in name.encode():
        hashed = (hashed ^ byte) * 0x01000193 % 2**32
    return hashed


def draw(*numbers) -> numpy.ndarray:
    """Uniform numbers below 1 of 24 bits: the hash of nn.dropout over seed, step, key
    of the parameter, replica, chunk, and column, which broadcast."""
    golden = numpy.uint32(0x9E3779B9)
    hashed = numpy.asarray(numbers[0], numpy.uint32)
    with numpy.errstate(over="ignore"):
        for number in numbers[1:]:
            hashed = hashed + golden * numpy.asarray(number, numpy.uint32)
            for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
                hashed = (hashed ^ (hashed >> numpy.uint32(shift))) * numpy.uint32(factor)
            hashed = hashed ^ (hashed >> numpy.uint32(16))
    return (hashed >> numpy.uint32(8)).astype(F32) * F32(2.0**-24)


def random_mask(counts: numpy.ndarray, k: int, draws: numpy.ndarray) -> numpy.ndarray:
    """The k elements of each row with the largest draws, of equal ones those of lower
    indices, among those that the row has."""
    isOwn = numpy.arange(draws.shape[1]) < counts[:, None]
    order = numpy.argsort(-numpy.where(isOwn, draws, F32(0)), axis=1, kind="stable")
    kept = numpy.zeros(draws.shape, bool)
    numpy.put_along_axis(kept, order[:, :k], True, axis=1)
    return kept


def random_k(rows, counts, k: int, draws, scales: bool) -> numpy.ndarray:
    """k elements of each row, times d / k of the d that it has, if it has more (Stich
    et al. 2018; unbiased with ω = d / k - 1)."""
    factor = numpy.maximum(counts, k).astype(F32) * F32(1 / k)
    kept = random_mask(counts, k, draws)
    scaled = rows * factor[:, None] if scales else rows
    return numpy.where(kept, scaled, F32(0))


def qsgd_encode(rows, levels: int, draws, feedback: bool = False):
    """QSGD (Alistarh et al. 2017, section 3.1): ‖x‖₂ · sign(x) · ζ / s, where ζ is
    one of the two integers around s · |x| / ‖x‖₂, at random. With feedback it is
    divided by 1 + ω, so that it is contractive."""
    block = rows.shape[1]
    omega = min(block / levels**2, block**0.5 / levels)
    unit = F32(1 / (levels * (1 + omega) if feedback else levels))
    tiny = F32(2.0**-100)
    largest = numpy.abs(rows).max(axis=1)
    parts = numpy.abs(rows) * (F32(1) / (largest + tiny))[:, None]
    norm = numpy.sqrt(numpy.square(parts).sum(axis=1, dtype=F32))
    share = numpy.minimum(parts * (F32(levels) / (norm + tiny))[:, None], F32(levels))
    low = numpy.floor(share)
    codes = numpy.where(rows < 0, -1, 1) * (low + (share - low > draws))
    return codes.astype(numpy.int16), largest * (norm * unit)


def power_sgd(m: numpy.ndarray, q: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """One step of PowerSGD (Vogels et al. 2019, Algorithm 1) on the mean of matrices:
    what comes out, and the Q that the next step begins with."""
    p = m @ q
    for column in range(p.shape[1]):
        for before in range(column):
            p[:, column] -= (p[:, before] @ p[:, column]) * p[:, before]
        p[:, column] /= numpy.linalg.norm(p[:, column])
    q = m.T @ p
    return p @ q.T, q


@dataclasses.dataclass(frozen=True)
class Chunks:
    """What a rule of SCHEMES is told of the chunks of a parameter."""

    counts: numpy.ndarray  # of elements
    keep: int
    feedback: bool
    step: int = 0
    key: int = 0
    replica: int = 0
    round: int = 0

    def draw(self, rows: numpy.ndarray, replica: int) -> numpy.ndarray:
        chunk, column = numpy.arange(len(rows))[:, None], numpy.arange(rows.shape[1])
        return draw(self.round, self.step, self.key, replica, chunk, column)


def int8(rows, chunks):
    return integer_decode(*int8_encode(rows))


def int4(rows, chunks):
    return integer_decode(*int4_encode(rows))


def sign(rows, chunks):
    return sign_decode(*sign_encode(rows, chunks.counts))


def topk(rows, chunks):
    return top_k(rows, chunks.keep)


def qsgd(levels: int) -> Callable:
    def make(rows, chunks):
        draws = chunks.draw(rows, chunks.replica)
        return integer_decode(
            *qsgd_encode(rows, levels, draws, chunks.feedback)
        )

    return make


def randk(rows, chunks):
    """On all replicas the same elements."""
    draws = chunks.draw(rows, 0)
    return random_k(rows, chunks.counts, chunks.keep, draws, not chunks.feedback)


@dataclasses.dataclass(frozen=True)
class Scheme:
    make: Callable  # C of rows and of what is known of them
    bits: int
    block: int  # where none is given
    share: int = 0  # one of so many elements is kept where no number is given
    # The largest code: one more or less is a jump of the largest magnitude by it.
    limit: float = 1
    # Jumps in the range of a chunk's elements, for how many lie next to one.
    jumps: float = 1
    # How many times smaller what is left for a next round is than what was sent, while
    # what measuring has left in it stays. Of int8 that is too small to be seen.
    shrinks: float = 1


SCHEMES = {
    "int8": Scheme(int8, 8, 256, limit=127, jumps=127),
    "int4": Scheme(int4, 4, 256, limit=7, jumps=7, shrinks=14),
    "sign": Scheme(sign, 1, 4096, limit=0.5, jumps=16),
    "topk": Scheme(topk, 1, 4096, share=64, jumps=16),
    # The norm of 256 elements is at most 16 times the largest. Of codes of 1/127 of
    # the norm rounding at random leaves a sixth of the square on average, which is
    # 16 / √6 / 127 of the norm in all: a twentieth.
    "qsgd8": Scheme(qsgd(127), 8, 256, limit=127 / 16, jumps=127, shrinks=20),
    "qsgd4": Scheme(qsgd(7), 4, 256, limit=7 / 16, jumps=16),
    "qsgd2": Scheme(qsgd(1), 2, 256, limit=1 / 16, jumps=16),
    # No code says which, and what is sent may be 64 times as large.
    "ef21-topk": Scheme(topk, 1, 4096, share=64, jumps=16),
    # Of a momentum, which is made outside.
    "onebit-adam": Scheme(sign, 1, 4096, limit=0.5, jumps=16),
    "randk": Scheme(randk, 0, 4096, share=64, limit=1 / 64, jumps=64),
}


@dataclasses.dataclass(frozen=True)
class Compressor:
    """What --compress says of a chunk."""

    scheme: Scheme
    block: int
    keep: int
    feedback: bool = False
    rounds: int = 1
    both: bool = False

    @classmethod
    def parse(cls, text: str) -> "Compressor":
        first, *parts = text.split("+")
        name, _, block = first.partition(":")
        scheme = SCHEMES[name]
        size = int(block or scheme.block)
        given = dict(part.split(":") for part in parts if ":" in part)
        usual = max(1, size // scheme.share) if scheme.share else 0
        keep, rounds = int(given.get("keep", usual)), int(given.get("rounds", 1))
        return cls(scheme, size, keep, "feedback" in parts, rounds, "both" in parts)

    def compress(
        self, x: numpy.ndarray, step=0, name="", replica=0, first=0
    ) -> numpy.ndarray:
        """What is sent of x in all rounds, of its shape, of a parameter of that name:
        v ← v + C(x − v) from 0 on (Huang et al. 2022, "Lower bounds and nearly optimal
        algorithms in distributed learning with communication compression", FCC)."""
        v = self.compress_once(x, step, name, replica, first)
        for index in range(first + 1, first + self.rounds):
            v = v + self.compress_once(x - v, step, name, replica, index)
        return v

    def compress_sum(self, x: numpy.ndarray, step=0, name="") -> numpy.ndarray:
        """What is sent of a sum, as one replica's, with random numbers of its own."""
        return self.compress(x, step, name, first=16)

    def compress_once(self, x, step, name, replica, index) -> numpy.ndarray:
        """C(x), in the round of that index."""
        rows = chunks(x, self.block)
        starts = numpy.arange(len(rows)) * self.block
        counts = numpy.minimum(x.size - starts, self.block)
        known = Chunks(
            counts, self.keep, self.feedback, step, draw_key(name), replica, index
        )
        sent = self.scheme.make(rows, known)
        return sent.reshape(-1)[: x.size].reshape(x.shape)

    def count_bytes(self, elements: int) -> int:
        """What one replica sends of a parameter, in all rounds."""
        rows = self.rounds * -(-elements // self.block)
        if not self.keep:
            return rows * (self.block * self.scheme.bits // 8 + 4)
        if not self.scheme.bits:
            return rows * 4 * self.keep
        # A bit for each element, or 16 for each that is kept, two of them a word.
        which = min(self.block // 8, 4 * -(-self.keep // 2))
        return rows * (which + 4 * self.keep)
