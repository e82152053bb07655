# ===- layout.py - What only rearranges -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""PyTorch's operations on shapes. They write lists of axes anew, and add nothing."""

import operator

import torch

from ..errors import NotExpressible
from . import lazy, rotary, slices
from .axes import extent, leaves, reshape
from .graph import Value
from .lazy import Mix, Part, Shifted
from .walk import aten, handles

_LOSSES = (lazy.Loss, lazy.Mean)
_SAME = (lazy.Weights, lazy.Masked, lazy.LogWeights, *_LOSSES, Shifted, lazy.Padded)


def wrap(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


@handles(operator.getitem)
def getitem(walker, values, index):
    return values[index]


@handles(aten._assert_tensor_metadata.default)
def check(walker, *arguments, **named):
    return None


@handles(
    aten.clone.default,
    aten.alias.default,
    aten.contiguous.default,
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
)
def same(walker, x, **named):
    return x


@handles(aten._to_copy.default, aten.type_as.default, aten.to.dtype)
def cast(walker, x, *arguments, **named):
    """plait has one float type at a time, that of --precision."""
    dtype = walker.node.meta["val"].dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        kind = getattr(getattr(x, "op", None), "kind", "")
        if kind not in ("tokens", "targets") and not walker.is_boolean(0):
            raise NotExpressible(f"a conversion of computed numbers to {dtype}")
    if dtype in (torch.bfloat16, torch.float16):
        walker.graph.note(
            f"the module converts to {dtype}; in plait --precision says what is "
            "computed with"
        )
    return x


@handles(aten.detach.default)
def detach(walker, x):
    return walker.graph.unary("stop_gradient", walker.tensor(x))


@handles(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.dims,
    aten.squeeze.dim,
    aten.squeeze.default,
    aten.unsqueeze.default,
)
def view(walker, x, *arguments, **named):
    shape = walker.shape
    if isinstance(x, (Shifted, lazy.Padded, lazy.LogWeights)):
        return x
    if isinstance(x, Mix):
        return view_mix(walker, x, shape)
    if isinstance(x, _SAME) and shape == shape_of(x):
        return x
    value = walker.tensor(x)
    users = {user.target for user in walker.node.users}
    if users == {aten.view_as_complex.default} and shape[:-2] == value.shape[:-1]:
        # Pairs to be turned are no dimensions.
        return Mix.of(value).taken(lambda t: t.reshape(shape[-2:]))
    if extent(sum(value.dims, [])) != extent_of(shape):
        raise NotExpressible(f"a view of {value.shape} as {shape}")
    return _reshaped(walker, value, shape)


def _reshaped(walker, value: Value, shape: list[int]) -> Value:
    """Where factors of a dimension are none of those that a view asks for, as 2 · 12 and
    3 · 8, it is joined before."""
    try:
        return value.seen(reshape(value.dims, shape))
    except NotExpressible:
        split = [i for i, dim in enumerate(value.dims) if len(leaves(dim)) > 1]
        if not split:
            raise
    for dim in split:
        value = slices.join(walker, value, dim)
    return value.seen(reshape(value.dims, shape))


def shape_of(x) -> list[int] | None:
    scores = getattr(x, "scores", None)
    if isinstance(scores, lazy.Masked):
        scores = scores.scores
    return scores.shape if isinstance(scores, Value) else None


def view_mix(walker, x: Mix, shape: list[int]):
    """The trailing dimensions of elements are rearranged where they stay behind the
    others; where the last of the others joins them, they are elements of both."""
    if x.is_slice:
        value = walker.tensor(x)
        return value.seen(reshape(value.dims, shape))
    lead = x.shape[: len(x.shape) - len(x.tail)]
    if lead and shape == [*lead[:-1], lead[-1] * extent_of(x.tail)]:
        x, lead = x.absorbed(), lead[:-1]
    if shape[: len(lead)] == lead:
        tail = shape[len(lead) :]
        return x.taken(lambda t: t.reshape(tail))
    value = walker.tensor(x)
    return value.seen(reshape(value.dims, shape))


def extent_of(shape) -> int:
    return torch.Size(shape).numel()


@handles(aten.transpose.int)
def transpose(walker, x, first, second):
    order = list(range(len(walker.shape)))
    first, second = wrap(first, len(order)), wrap(second, len(order))
    order[first], order[second] = second, first
    return permute(walker, x, order)


@handles(aten.t.default, aten.mT.default, aten.numpy_T.default)
def turn(walker, x):
    return transpose(walker, x, -1, -2) if len(walker.shape) > 1 else x


@handles(aten.permute.default)
def permute(walker, x, order):
    if isinstance(x, (Shifted, lazy.LogWeights)):
        return x
    value = walker.tensor(x)
    return value.seen([value.dims[wrap(i, len(order))] for i in order])


@handles(aten.movedim.int)
def move(walker, x, source, target):
    order = list(range(len(walker.shape)))
    order.insert(wrap(target, len(order)), order.pop(wrap(source, len(order))))
    return permute(walker, x, order)


@handles(aten.expand.default, aten.broadcast_to.default)
def expand(walker, x, *arguments, **named):
    if isinstance(x, lazy.Weights):
        return x
    return lazy.repeat(walker.graph, walker.tensor(x), walker.shape)


@handles(aten.repeat_interleave.self_int)
def repeat_interleave(walker, x, count, dim=None, **named):
    value = walker.tensor(x)
    if dim is None:
        raise NotExpressible("'aten.repeat_interleave' of all dimensions at once")
    dim = wrap(dim, len(value.dims))
    one = value.seen([*value.dims[: dim + 1], [], *value.dims[dim + 1 :]])
    shape = one.shape
    shape[dim + 1] = count
    repeated = lazy.repeat(walker.graph, one, shape).dims
    joined = [*repeated[dim], *repeated[dim + 1]]
    return value.seen([*repeated[:dim], joined, *repeated[dim + 2 :]])


@handles(aten.repeat.default)
def tile(walker, x, counts):
    """Each repeated dimension is the number of times, and then the dimension."""
    value = walker.tensor(x)
    dims = [[]] * (len(counts) - len(value.dims)) + list(value.dims)
    result = []
    for dim, count in zip(dims, counts):
        new = lazy.repeat(walker.graph, value.seen([[]]), [count]).dims[0]
        result.append([*new, *dim])
    return value.seen(result)


@handles(aten.slice.Tensor)
def take(walker, x, dim=0, start=None, end=None, step=1):
    if isinstance(x, (Shifted, lazy.Padded)):
        return _shift_again(x, dim, start, end, step)
    shape = shape_of_any(walker, x)
    dim = wrap(dim, len(shape))
    low, high, step = slice(start, end, step).indices(shape[dim])
    if (low, high, step) == (0, shape[dim], 1):
        return x
    return part(walker, x, dim, torch.arange(low, high, step))


def shape_of_any(walker, x) -> list[int]:
    if isinstance(x, Part):
        return list(x.box.extents)
    return list(x.shape) if isinstance(x, (Value, Mix)) else walker.tensor(x).shape


def _shift_again(x, dim, start, end, step):
    """Targets that got one more at their end, without their first: the targets of
    plait, which begin one token later."""
    if isinstance(x, lazy.Padded) and step == 1 and start == 1:
        return Shifted(x.value, 1, 1, x.value.shape[1])
    raise NotExpressible("a slice of targets that are shifted or padded already")


def part(walker, x, dim: int, index: torch.Tensor):
    """The elements `index` along a dimension. Of none there is a constant."""
    if not len(index):
        shape = shape_of_any(walker, x)
        return torch.empty([*shape[:dim], 0, *shape[dim + 1 :]])
    low, high = int(index[0]), int(index[-1]) + 1
    is_range = torch.equal(index, low + torch.arange(len(index)))
    if isinstance(x, Part) and is_range and x.box.name not in walker.graph.whole:
        return Part(x.box.cut(dim, low, high), x.trained)
    if isinstance(x, Mix) and dim >= len(x.shape) - len(x.tail):
        at = dim - (len(x.shape) - len(x.tail))
        return x.taken(lambda t: t.index_select(at, index))
    value = walker.tensor(x)
    if is_range and _is_sequence(walker, value, dim):
        return Shifted(value, dim, low, high)
    if dim == len(value.dims) - 1:
        mix = Mix.of(value)
        return mix.taken(lambda t: t.index_select(0, index))
    if is_range:
        return slices.cut(walker, value, dim, low, high)
    return slices.pick(walker, value, dim, index)


def _is_sequence(walker, value: Value, dim: int) -> bool:
    """Of what the loss is of: tokens, targets, logits."""
    if not _may_be_shifted(walker, value):
        return False
    axes = leaves(value.dims[dim])
    return [a.size.root() for a in axes] == [walker.graph.sequence.root()]


def _may_be_shifted(walker, value: Value) -> bool:
    if value.op.kind in ("tokens", "targets"):
        return True
    return len(value.dims) == 3 and value.op.kind in ("contract", "add", "scale")


@handles(aten.select.int)
def select(walker, x, dim, index):
    if isinstance(x, (Shifted, lazy.Padded)):
        raise NotExpressible("one position of targets or logits")
    shape = shape_of_any(walker, x)
    dim = wrap(dim, len(shape))
    if isinstance(x, Value) and shape[dim] == 1:
        return x.seen([*x.dims[:dim], *x.dims[dim + 1 :]])
    found = part(walker, x, dim, torch.tensor([wrap(index, shape[dim])]))
    if isinstance(found, Mix) and dim >= len(found.shape) - len(found.tail):
        at = dim - (len(found.shape) - len(found.tail))
        return (
            found.taken(lambda t: t.squeeze(at)) if len(found.tail) > 1 else _scalar(found)
        )
    value = walker.tensor(found)
    return value.seen([*value.dims[:dim], *value.dims[dim + 1 :]])


def _scalar(found: Mix) -> Mix:
    return found.taken(lambda t: t.reshape(()))


@handles(aten.index_select.default)
def index_select(walker, x, dim, index):
    shape = shape_of_any(walker, x)
    return part(walker, x, wrap(dim, len(shape)), index)


@handles(aten.split_with_sizes.default, aten.split.sizes)
def split_sizes(walker, x, sizes, dim=0):
    begin, parts = 0, []
    for size in sizes:
        parts.append(take(walker, x, dim, begin, begin + size))
        begin += size
    return parts


@handles(aten.split.Tensor)
def split(walker, x, size, dim=0):
    shape = shape_of_any(walker, x)
    total = shape[wrap(dim, len(shape))]
    sizes = [min(size, total - i) for i in range(0, total, size)]
    return split_sizes(walker, x, sizes, dim)


@handles(aten.chunk.default)
def chunk(walker, x, chunks, dim=0):
    shape = shape_of_any(walker, x)
    total = shape[wrap(dim, len(shape))]
    return split(walker, x, -(-total // chunks), dim)


@handles(aten.unbind.int)
def unbind(walker, x, dim=0):
    shape = shape_of_any(walker, x)
    return [select(walker, x, dim, i) for i in range(shape[wrap(dim, len(shape))])]


@handles(aten.roll.default)
def roll(walker, x, shifts, dims=()):
    if len(dims) != 1:
        raise NotExpressible("'aten.roll' along several dimensions")
    shape = shape_of_any(walker, x)
    dim = wrap(dims[0], len(shape))
    index = torch.arange(shape[dim]).roll(shifts[0])
    if dim == len(shape) - 1:
        return Mix.of(walker.tensor(x)).taken(lambda t: t.index_select(0, index))
    return slices.pick(walker, walker.tensor(x), dim, index)


@handles(aten.flip.default)
def flip(walker, x, dims):
    value = walker.tensor(x)
    for dim in dims:
        dim = wrap(dim, len(value.dims))
        index = torch.arange(value.shape[dim]).flip(0)
        value = slices.pick(walker, value, dim, index)
    return value


@handles(aten.index.Tensor)
def index(walker, x, indices):
    """By one constant along one dimension, or rows of a table by tokens."""
    from .model_ops import look_up

    given = [(dim, at) for dim, at in enumerate(indices) if at is not None]
    is_by_tokens = len(given) == 1 and isinstance(given[0][1], Value)
    if is_by_tokens and given[0][0] == 0 and len(shape_of_any(walker, x)) == 2:
        return look_up(walker, walker.tensor(x), given[0][1])
    if len(given) != 1 or not isinstance(given[0][1], torch.Tensor):
        raise NotExpressible("'aten.index' by computed numbers, or by several indices")
    (dim, at), shape = given[0], shape_of_any(walker, x)
    if at.dtype == torch.bool:
        at = at.nonzero().squeeze(-1) if at.dim() == 1 else None
    if at is None:
        raise NotExpressible("'aten.index' by a mask of several dimensions")
    at = torch.where(at < 0, at + shape[dim], at)
    value = walker.tensor(part(walker, x, dim, at.flatten()))
    return value.seen(reshape(value.dims, walker.shape))


@handles(aten.cat.default, aten.concat.default)
def cat(walker, parts, dim=0):
    parts = [x for x in parts if not (isinstance(x, torch.Tensor) and not x.numel())]
    if len(parts) == 1:
        return parts[0]
    dim = wrap(dim, len(walker.shape))
    if dim == len(walker.shape) - 1 and all(isinstance(x, (Value, Mix)) for x in parts):
        return rotary.settle(walker, lazy.join(walker, parts, dim))
    return slices.concatenate(walker, [walker.tensor(x) for x in parts], dim)


@handles(aten.stack.default)
def stack(walker, parts, dim=0):
    """Of elements of one tensor behind their dimension: the rotary embedding of
    pairs of neighbours is written so."""
    dim = wrap(dim, len(walker.shape))
    if dim == len(walker.shape) - 1 and all(isinstance(x, Mix) for x in parts):
        return _stack_mixes(walker, parts)
    values = [walker.tensor(x) for x in parts]
    thin = [v.seen([*v.dims[:dim], [], *v.dims[dim:]]) for v in values]
    return slices.concatenate(walker, thin, dim)


def _stack_mixes(walker, parts: list[Mix]):
    """As a concatenation, and then the elements in another order."""
    first = parts[0]
    tail = first.tail
    if not all(first.matches(x) and x.tail == tail for x in parts):
        values = [walker.tensor(x) for x in parts]
        thin = [v.seen([*v.dims, []]) for v in values]
        return slices.concatenate(walker, thin, len(walker.shape) - 1)
    count = extent_of(tail)
    joined = lazy.join(walker, [x.taken(lambda t: t.reshape(count)) for x in parts], 0)
    if not isinstance(joined, Mix):
        return joined
    return joined.taken(lambda t: t.reshape(len(parts), *tail).movedim(0, -1))


@handles(aten.view_as_complex.default)
def view_as_complex(walker, x):
    pairs = x if isinstance(x, Mix) else Mix.of(walker.tensor(x))
    return lazy.Complex(*(pairs.taken(lambda t, i=i: t[..., i]) for i in range(2)))


@handles(aten.view_as_real.default)
def view_as_real(walker, x):
    return _stack_mixes(walker, [x.real, x.imaginary])


@handles(aten.copy.default)
def copy(walker, x, source, *more):
    """`source` in the shape of x."""
    return expand(walker, source)


@handles(aten.slice_scatter.default)
def put(walker, x, source, dim=0, start=None, end=None, step=1):
    """x with some of its elements replaced: these are zeros to which `source` is
    added."""
    value, new = walker.tensor(x), walker.tensor(source)
    dim = wrap(dim, len(value.dims))
    count = value.shape[dim]
    index = torch.arange(*slice(start, end, step).indices(count))
    kept = torch.ones(count)
    kept[index] = 0
    kept = kept.reshape(-1, *[1] * (len(value.dims) - dim - 1))
    rest = walker.graph.binary("mul", value, walker.constant(kept))
    matrix = torch.zeros(len(index), count)
    matrix[torch.arange(len(index)), index] = 1
    return walker.graph.binary("add", rest, slices.multiply(walker, new, dim, matrix))


@handles(aten.select_scatter.default)
def put_one(walker, x, source, dim, index):
    new = walker.tensor(source)
    dim = wrap(dim, len(walker.shape))
    index = wrap(index, walker.shape[dim])
    thin = new.seen([*new.dims[:dim], [], *new.dims[dim:]])
    return put(walker, x, thin, dim, index, index + 1)


@handles(aten.pad.default, aten.constant_pad_nd.default)
def pad(walker, x, pads, mode="constant", value=None):
    kind = getattr(getattr(x, "op", None), "kind", "")
    if kind in ("targets", "tokens") and list(pads) == [0, 1] and mode == "constant":
        return lazy.Padded(x)
    if mode != "constant" or value:
        raise NotExpressible(f"padding by '{mode}' or with {value}")
    result = walker.tensor(x)
    rank = len(result.dims)
    for i in range(len(pads) // 2):
        before, after = pads[2 * i], pads[2 * i + 1]
        dim = rank - 1 - i
        count = result.shape[dim]
        low, high = max(-before, 0), count - max(-after, 0)
        matrix = torch.zeros(count, count + before + after)
        index = torch.arange(low, high)
        matrix[index, index + before] = 1
        result = slices.multiply(walker, result, dim, matrix)
    return result


@handles(aten.broadcast_tensors.default)
def broadcast(walker, tensors):
    """All in the shape that they have together."""
    shapes = [x.shape if torch.is_tensor(x) else shape_of_any(walker, x) for x in tensors]
    shape = list(torch.broadcast_shapes(*shapes))
    return [
        x if list(own) == shape else lazy.repeat(walker.graph, walker.tensor(x), shape)
        for x, own in zip(tensors, shapes)
    ]
