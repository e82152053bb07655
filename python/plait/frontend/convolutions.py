# ===- convolutions.py - Convolutions that are products -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""A convolution whose windows do not overlap is a product with each of them: the
embedding of patches, and of single positions."""

from ..errors import NotExpressible
from .axes import reshape
from .walk import aten, handles


def _all(given, count: int) -> list[int]:
    values = [given] if isinstance(given, int) else list(given)
    return values * count if len(values) == 1 else values


@handles(
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.conv1d.padding,
    aten.conv2d.padding,
    aten.conv3d.padding,
)
def convolution(
    walker, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1
):
    x, weight = walker.tensor(x), walker.tensor(weight)
    kernel = weight.shape[2:]
    rank = len(kernel)
    fits = (
        padding != "same"
        and _all(stride, rank) == kernel
        and (padding == "valid" or not any(_all(padding, rank)))
        and (max(kernel) == 1 or set(_all(dilation, rank)) == {1})
        and groups == 1
        and len(x.dims) == rank + 2
        and all(n % k == 0 for n, k in zip(x.shape[2:], kernel))
    )
    if not fits:
        raise NotExpressible(
            "a convolution with overlapping windows, gaps, padding or groups"
        )
    batch, channels, *extents = x.shape
    shape = [batch, channels]
    for count, size in zip(extents, kernel):
        shape += [count // size, size]
    windows = x.seen(reshape(x.dims, shape))
    places, sizes = "pqr"[:rank], "xyz"[:rank]
    inside = "".join(a + b for a, b in zip(places, sizes))
    spec = f"bc{inside},oc{sizes}->bo{places}"
    result = walker.graph.contract(windows, weight, spec)
    if bias is None:
        return result
    bias = walker.tensor(bias)
    bias = bias.seen([bias.dims[0], *[[]] * rank])
    return walker.graph.binary("add", result, bias)
