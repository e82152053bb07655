# ===- attention.py - Linear layers and attention -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Contractions, and attention, which is recognised behind its softmax, with
whatever mask and in whatever form it is written; other masks than those that
nn.attention has are written out."""

import dataclasses
import math

import torch

from ..errors import NotExpressible
from .arithmetic import HIDDEN, largest, scale, where
from .axes import Dim, copy, flat, leaves, make, unify
from .graph import Graph, Value
from .lazy import LogWeights, Masked, Weights, repeat
from .layout import wrap
from .walk import aten, handles

# Contractions.


@handles(aten.linear.default)
def linear(walker, x, weight, bias=None):
    x, weight = walker.tensor(x), walker.tensor(weight)
    letters = "abcdefg"[: len(x.dims) - 1]
    return _add_bias(
        walker, walker.graph.contract(x, weight, f"{letters}k,nk->{letters}n"), bias
    )


def _add_bias(walker, value: Value, bias) -> Value:
    if bias is None:
        return value
    return walker.graph.binary("add", value, walker.tensor(bias))


@handles(aten.addmm.default, aten.baddbmm.default)
def addmm(walker, bias, x, y, beta=1, alpha=1):
    product = scale(walker, matmul(walker, x, y), float(alpha))
    bias = scale(walker, bias, float(beta)) if beta != 1 else walker.tensor(bias)
    return walker.graph.binary("add", walker.tensor(product), bias)


@handles(aten.matmul.default, aten.mm.default, aten.bmm.default, aten.mv.default)
def matmul(walker, x, y):
    ranks = [len(_dims(walker, z)) for z in (x, y)]
    lead = "abcdefg"[: max(max(ranks) - 2, 0)]
    left, right = (lead[len(lead) - max(r - 2, 0) :] for r in ranks)
    left, right = left + ("ik" if ranks[0] > 1 else "k"), right + (
        "kj" if ranks[1] > 1 else "k"
    )
    out = lead + ("i" if ranks[0] > 1 else "") + ("j" if ranks[1] > 1 else "")
    return contract(walker, x, y, f"{left},{right}->{out}")


def _dims(walker, x) -> list[Dim]:
    if isinstance(x, Weights):
        x = x.scores
    if isinstance(x, Masked):
        x = x.scores
    return walker.tensor(x).dims


@handles(aten.einsum.default)
def einsum(walker, equation, operands, path=None):
    *parts, out = _letters(walker, equation, operands)
    if any(len(set(x)) < len(x) for x in (*parts, out)):
        raise NotExpressible(f"'aten.einsum' of '{equation}', which takes a diagonal")
    value, own = operands[0], parts[0]
    for i, (other, letters) in enumerate(zip(operands[1:], parts[1:]), 1):
        # Of all but the last what the others need is kept.
        needed = set(out).union(*parts[i + 1 :])
        kept = "".join(x for x in dict.fromkeys(own + letters) if x in needed)
        kept = kept if parts[i + 1 :] else out
        value, own = contract(walker, value, other, f"{own},{letters}->{kept}"), kept
    value, own = _sum_alone(walker, walker.tensor(value), own, out)
    return value.seen([value.dims[own.index(x)] for x in out])


def _letters(walker, equation: str, operands) -> list[str]:
    """The dimensions of the operands and of the result; those that an ellipsis stands
    for have capital letters of which the last are the last."""
    spec = equation.replace(" ", "")
    given, arrow, out = spec.partition("->")
    parts = given.split(",")
    lengths = [len(_dims(walker, x)) - len(p) + 3 for x, p in zip(operands, parts)]
    used = [n for n, p in zip(lengths, parts) if "..." in p]
    names = "ZYXWVUTSRQ"[: max(used, default=0)][::-1]
    if not arrow:
        letters = given.replace(",", "").replace(".", "")
        out = "..." * bool(used)
        out += "".join(sorted(x for x in letters if letters.count(x) == 1))
    expanded = [p.replace("...", names[len(names) - n :]) for n, p in zip(lengths, parts)]
    return [*expanded, out.replace("...", names)]


def contract(walker, x, y, spec: str) -> Value:
    """A contraction that ends an attention is the attention."""
    if isinstance(x, Weights):
        value = _find_attention(walker, x, walker.tensor(y), spec)
        if value is not None:
            return value
    x, y = walker.tensor(x), walker.tensor(y)
    left, right, out = spec.replace("->", ",").split(",")
    x, left = _sum_alone(walker, x, left, right + out)
    y, right = _sum_alone(walker, y, right, left + out)
    x, y = _drop_ones(x, y, left, right)
    return walker.graph.contract(x, y, f"{left},{right}->{out}")


def _sum_alone(walker, x: Value, own: str, others: str):
    """Sums over dimensions that only one operand has."""
    alone = [i for i, letter in enumerate(own) if letter not in others]
    if not alone:
        return x, own
    x = walker.graph.reduce("sum", x, alone, False)
    return x, "".join(letter for letter in own if letter in others)


def _drop_ones(x: Value, y: Value, left: str, right: str) -> tuple[Value, Value]:
    """A dimension of 1 in one operand is repeated as the other's."""
    for i, letter in enumerate(left):
        j = right.find(letter)
        if j < 0 or x.shape[i] == y.shape[j]:
            continue
        if x.shape[i] == 1:
            x = x.seen([*x.dims[:i], make(y.shape[j]), *x.dims[i + 1 :]])
        else:
            y = y.seen([*y.dims[:j], make(x.shape[i]), *y.dims[j + 1 :]])
    return x, y


# Attention.


def softmax(graph: Graph, x: Value, dim: int) -> Value:
    """Written out, with the largest score of each row taken off."""
    top = graph.unary("stop_gradient", graph.reduce("max", x, [dim], True))
    powers = graph.unary("exp", graph.binary("sub", x, top))
    return graph.binary("div", powers, graph.reduce("sum", powers, [dim], True))


@handles(aten.softmax.int, aten._softmax.default)
def softmax_of(walker, x, dim, *more, **named):
    value = x.scores if isinstance(x, Masked) else walker.tensor(x)
    if wrap(dim, len(value.dims)) != len(value.dims) - 1:
        return softmax(walker.graph, walker.tensor(x), wrap(dim, len(value.dims)))
    return Weights(x if isinstance(x, Masked) else value)


@handles(aten.log_softmax.int, aten._log_softmax.default)
def log_softmax(walker, x, dim, *more, **named):
    from .functions import logsumexp

    dim = wrap(dim, len(_dims(walker, x)))
    if dim == len(_dims(walker, x)) - 1:
        return LogWeights(x)
    value = walker.tensor(x)
    return walker.graph.binary("sub", value, logsumexp(walker, value, [dim], True))


@handles(aten.native_dropout.default)
def native_dropout(walker, x, probability, training):
    """The second result is the mask, for PyTorch's own backward pass."""
    return [dropout(walker, x, probability, training), None]


@handles(aten.dropout.default)
def dropout(walker, x, probability, training):
    if not training or not probability:
        return x
    if isinstance(x, Weights) and not x.dropout:
        return Weights(x.scores, float(probability))
    return walker.dropout(walker.tensor(x), float(probability))


@dataclasses.dataclass(frozen=True)
class Sight:
    """The keys that a query sees: those up to itself, or with `both` those after it,
    too; of these with a window w the ones at a distance below w."""

    window: int | None = None
    both: bool = False


def sight_of(walker, mask: torch.Tensor, length: int) -> Sight | None:
    """None: the mask is one that nn.attention does not have. All layers have the same
    mask, which is large."""
    return walker.remember(
        ("sight", mask.data_ptr(), mask.shape, mask.stride(), mask.dtype, length),
        mask,
        lambda: _find_sight(mask, length),
    )


def _find_sight(mask: torch.Tensor, length: int) -> Sight | None:
    if mask.dtype != torch.bool:
        hidden = mask <= HIDDEN
        if bool((mask.masked_fill(hidden, 0.0) != 0).any()):
            return None
        mask = ~hidden
    if mask.dim() < 2 or mask.shape[-2:] != (length, length):
        return None
    rows = _without_repeats(mask)
    if rows.shape[:-2].numel() != 1:
        return None
    seen = rows.reshape(rows.shape[-2:]).expand(length, length)
    window = int(seen[-1].sum())
    narrow = window if window < length else None
    near = torch.ones(length, length, dtype=torch.bool).triu(1 - window)
    for both in (False, True):
        if window and torch.equal(seen, near.tril(window - 1 if both else 0)):
            return Sight(narrow, both)
    return None


def _without_repeats(x: torch.Tensor) -> torch.Tensor:
    """One of each repeated slice of the outer dimensions."""
    for dim in range(x.dim() - 2):
        first = x.narrow(dim, 0, 1)
        if x.stride(dim) == 0 or torch.equal(first.expand_as(x), x):
            x = first
    return x


@handles(aten.scaled_dot_product_attention.default)
def sdpa(walker, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, **named):
    q, k, v = (walker.tensor(x) for x in (q, k, v))
    by = named.get("scale")
    by = 1.0 / math.sqrt(q.shape[-1]) if by is None else by
    if named.get("enable_gqa"):
        k, v = (_share(walker, x, q.shape[-3]) for x in (k, v))
    q, k, v = _broadcast(walker.graph, q, k, v)
    length = k.shape[-2]
    mask = attn_mask
    if is_causal:
        mask = walker.remember(
            ("causal", q.shape[-2], length),
            None,
            lambda: torch.ones(q.shape[-2], length, dtype=torch.bool).tril(),
        )
    lead = "abcdef"[: len(q.dims) - 2]
    constant = isinstance(mask, torch.Tensor)
    sight = Sight(both=True) if mask is None else None
    if constant:
        sight = sight_of(walker, mask, length)
    if sight and suits(walker.graph, q, k, v):
        return attend(walker, q, k, v, by, sight, dropout_p)
    scores = walker.graph.contract(q, k, f"{lead}st,{lead}ut->{lead}su")
    scores = scale(walker, scores, by)
    seeing = _find_seeing(walker, mask)
    if constant and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    if constant and not bool((mask == 0).all()):
        scores = Masked(scores, mask).make(walker)
    elif mask is not None and not constant:
        if walker.is_boolean(3, "attn_mask"):
            scores = where(walker, mask, scores, -math.inf)
        else:
            scores = walker.graph.binary("add", scores, walker.tensor(mask))
    weights = Weights(scores, dropout_p).make(walker)
    result = walker.graph.contract(weights, v, f"{lead}su,{lead}ut->{lead}st")
    return result if seeing is None else walker.graph.binary("mul", result, seeing)


def _broadcast(graph: Graph, *values: Value) -> list[Value]:
    """Tensors that agree in all dimensions before the last two: one that lacks such a
    dimension, or has 1 there, repeats."""
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in values))
    return [repeat(graph, x, [*lead, *x.shape[-2:]]) for x in values]


def _find_seeing(walker, mask) -> Value | None:
    """1 for queries that see a key; what others get is 0. None: all see one, or it is not
    known, as of scores that are added."""
    if isinstance(mask, torch.Tensor):
        shown = mask if mask.dtype == torch.bool else mask > -math.inf
        shown = shown.any(-1, keepdim=True)
        return None if bool(shown.all()) else walker.constant(shown.float())
    if mask is None or not walker.is_boolean(3, "attn_mask"):
        return None
    return largest(walker, mask, -1, True)


def _share(walker, x: Value, heads: int) -> Value:
    """Each head of keys or values for several of queries."""
    from .layout import repeat_interleave

    count = x.shape[-3]
    return x if count == heads else repeat_interleave(walker, x, heads // count, -3)


def _find_attention(walker, weights: Weights, value: Value, spec: str) -> Value | None:
    """softmax(scale · q kᵀ + mask) v, if nn.attention has such a mask, or there is
    none."""
    left, right, out = spec.replace("->", ",").split(",")
    scores, sight = weights.scores, Sight(both=True)
    if isinstance(scores, Masked):
        sight = sight_of(walker, scores.mask, scores.scores.shape[-1])
        scores = scores.scores
    found = _find_product(scores)
    if sight is None or found is None or left[-1] not in right:
        return None
    q, k, by = found
    size = [x for x in right if x not in left]
    lead, query = left[:-2], left[-2]
    if len(size) != 1 or not set(right) <= {*lead, left[-1], size[0]}:
        return None
    v = _arranged(value, right, (*lead, left[-1], size[0]), q, (*lead, "", ""))
    if not suits(walker.graph, q, k, v):
        return None
    result = attend(walker, q, k, v, by, sight, weights.dropout)
    order = [*lead, query, size[0]]
    return result.seen([result.dims[order.index(x)] for x in out])


def _find_product(scores: Value):
    """Queries and keys [lead…, position, size] of a product that is seen as the
    scores are, and its factor."""
    by, value = 1.0, scores
    while value.op.kind == "scale":
        if [leaves(d) for d in value.dims] != [leaves(d) for d in value.op.dims]:
            return None
        by *= value.op.attrs["by"]
        value = value.op.operands[0]
    op = value.op
    if op.kind != "contract":
        return None
    if [leaves(d) for d in value.dims] != [leaves(d) for d in op.dims]:
        return None
    left, right, out = op.attrs["spec"].replace("->", ",").split(",")
    summed = [x for x in left if x not in out]
    lead, query, key = out[:-2], out[-2], out[-1]
    if len(summed) != 1 or summed[0] not in right:
        return None
    q, k = op.operands
    if query in right and key in left:
        q, k, left, right = k, q, right, left
    if sorted(left) != sorted([*lead, query, *summed]):
        return None
    if not set(right) <= {*lead, key, *summed}:
        return None
    wanted = (*lead, query, *summed)
    return (
        _arranged(q, left, wanted, q, left),
        _arranged(k, right, (*lead, key, *summed), q, left),
        by,
    )


def _arranged(value: Value, letters: str, wanted, like: Value, of) -> Value:
    """With the dimensions `wanted`. Those that it lacks it repeats, as long as those
    of `like`, which has the letters `of`."""
    dims = []
    for letter in wanted:
        if letter in letters:
            dims.append(value.dims[letters.index(letter)])
        else:
            dims.append(copy(like.dims[list(of).index(letter)]))
    return value.seen(dims)


def suits(graph: Graph, q: Value, k: Value, v: Value) -> bool:
    """Whether nn.attention takes tensors [lead…, position, size]: positions are those of
    the sequence, heads are those of a sequence, and keys and values have one size."""
    wanted = [graph.sequence.root()]
    for x in (q, k):
        if [a.size.root() for a in leaves(x.dims[-2])] != wanted:
            return False
    lead = [a.size.root() for a in leaves(flat(q.dims[:-2]))]
    return lead.count(graph.batch.root()) == 1 and q.shape[-1] == v.shape[-1]


def attend(walker, q: Value, k: Value, v: Value, by, sight: Sight, probability) -> Value:
    """nn.attention of tensors [lead…, position, size]. Heads of queries that see the
    same keys are a group."""
    graph = walker.graph
    lead = q.dims[:-2]
    heads = leaves(flat(lead))
    if _is_own(graph, heads, k):
        last = heads.pop()
        if last.extent > 1:
            last.size.root().split(last.extent, 1, kept=True)
            heads += last.leaves()[:1]
    for other in (k, v):
        unify(heads, flat(other.dims[:-2]))
    unify(q.dims[-1], k.dims[-1])
    unify(k.dims[-2], v.dims[-2])
    out = [*leaves(flat(lead)), *q.dims[-2], *v.dims[-1]]
    attrs = {"by": by, "window": sight.window, "both": sight.both}
    if probability:
        attrs |= {"probability": float(probability), "site": walker.next_site()}
    return graph.add("attention", [q, k, v], [*lead, q.dims[-2], v.dims[-1]], out, **attrs)


def _is_own(graph: Graph, heads: Dim, k: Value) -> bool:
    """Whether each head has keys of its own: it is then a group with one query, a
    dimension of 1 that only queries have."""
    keys = flat(k.dims[:-2])
    if not k.has(keys) or not heads or heads[-1].size.root() is graph.batch.root():
        return False
    known = {axis.size.root() for axis in leaves(keys)}
    return heads[-1].size.root() not in known
