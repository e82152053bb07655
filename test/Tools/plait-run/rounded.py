"""Fails unless the second model folder has the weights of the first in bf16.

Reads safetensors as the format says. A number in bf16 is the upper half of one in fp32;
the nearest has an error of at most half a last place, and is even where two are near.
"""

import json
import struct
import sys

import numpy


def read(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    body = data[8 + length :]
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        yield name, tensor["dtype"], tensor["shape"], body[begin:end]


full, half = (list(read(folder)) for folder in sys.argv[1:])
assert [x[0] for x in full] == [x[0] for x in half]
assert full
for (name, kind, shape, data), (_, other, form, rounded) in zip(full, half):
    assert (kind, other, shape) == ("F32", "BF16", form), name
    exact = numpy.frombuffer(data, "<f4").astype(numpy.float64)
    bits = numpy.frombuffer(rounded, "<u2").astype(numpy.uint32)
    value = (bits << 16).view(numpy.float32).astype(numpy.float64)
    above = ((bits + 1) << 16).view(numpy.float32).astype(numpy.float64)
    below = ((bits - 1) << 16).view(numpy.float32).astype(numpy.float64)
    error = numpy.abs(value - exact)
    nonzero = exact != 0
    for neighbour in (above, below):
        other_error = numpy.abs(neighbour - exact)[nonzero]
        tie = other_error == error[nonzero]
        assert (error[nonzero] <= other_error).all(), name
        assert (bits[nonzero][tie] % 2 == 0).all(), name
config = json.load(open(sys.argv[2] + "/config.json"))
for key in ("dtype", "torch_dtype"):
    assert config.get(key, "bfloat16") == "bfloat16", config
