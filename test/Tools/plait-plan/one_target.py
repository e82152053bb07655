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

content = bytearray(open(sys.argv[1], "rb").read())
at = content.index(b"\x05\0\0\0cubin\0")
content[at : at + 10] = b"\x03\0\0\0ptx\0\0\0"
payload = bytes(content[HEADER:])
hash_of = ctypes.CDLL(ctypes.util.find_library("xxhash")).XXH3_64bits
hash_of.restype = ctypes.c_uint64
hash_of.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
content[24:32] = hash_of(payload, len(payload)).to_bytes(8, "little")
open(sys.argv[2], "wb").write(content)
