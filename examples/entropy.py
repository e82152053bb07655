#!/usr/bin/env python3
#===- entropy.py - What a text costs without a model ------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Prints the empirical entropy of a file's bytes in nats per byte, alone and
given the byte before: the least loss of models that see none and one."""

import collections
import math
import pathlib
import sys


def main() -> None:
    data = pathlib.Path(sys.argv[1]).read_bytes()
    single = collections.Counter(data)
    pairs = collections.Counter(zip(data, data[1:]))
    alone = sum(n * math.log(len(data) / n) for n in single.values())
    given = sum(n * math.log(single[a] / n) for (a, _), n in pairs.items())
    alone, given = alone / len(data), given / (len(data) - 1)
    print(f"{len(data)} bytes, {len(single)} different")
    print(f"entropy {alone:.3f} nats per byte, after one byte {given:.3f}")


if __name__ == "__main__":
    main()
