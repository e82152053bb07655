# ===- one_target.py - All code of a plan for one target ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""one_target.py PLAN OUT: the plan with its cubin called PTX, like the other code."""

import ctypes
import ctypes.util
import sys

HEADER = 64  # with the hash of what follows at byte 24: lib/Plan/Container.cpp

xxh = ctypes.CDLL(ctypes.util.find_library("xxhash")).XXH3_64bits
xxh.restype = ctypes.c_uint64
xxh.argtypes = (ctypes.c_char_p, ctypes.c_size_t)


def hash_of(data):
    return xxh(bytes(data), len(data)).to_bytes(8, "little")


def certify(payload, at):
    """What the certificate at byte `at` has to hold: the hash of all the rest."""
    return hash_of(payload[:at] + payload[at + 8 :])


content = bytearray(open(sys.argv[1], "rb").read())
payload = content[HEADER:]
certificate = next(
    at
    for at in range(0, len(payload) - 7, 4)
    if payload[at : at + 8] == certify(payload, at)
)
at = payload.index(b"\x05\0\0\0cubin\0")
payload[at : at + 10] = b"\x03\0\0\0ptx\0\0\0"
payload[certificate : certificate + 8] = certify(payload, certificate)
content[HEADER:] = payload
content[24:32] = hash_of(payload)
open(sys.argv[2], "wb").write(content)
