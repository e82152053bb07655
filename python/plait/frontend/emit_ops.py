# ===- emit_ops.py - How each operation is printed -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""One function for each kind of operation: the line, or the lines, that it is."""

import math

from ..errors import NotExpressible
from .axes import Axis, flat, leaves, pairs
from .emit import Emitter, Wanted, number, symbol, tensor_type
from .graph import Op, Value


def _single(axes, what: str) -> Axis:
    """The one factor of a dimension that nn needs whole."""
    found = leaves(axes)
    if len(found) != 1:
        extents = [a.extent for a in found]
        raise NotExpressible(f"{what} has the factors {extents}, expected one dimension")
    return found[0]


def _as_is(axes) -> Wanted:
    return [(a, a.extent) for a in axes]


def emit_unary(emitter: Emitter, op: Op) -> None:
    (x,) = op.operands
    name, type_ = emitter.fit(op, x, _as_is(leaves(op.order)))
    result = emitter.names[op] = emitter.name(op)
    words = {"scale": " by ", "shift": " by "}
    after = words[op.kind] + number(op.attrs["by"]) if op.kind in words else ""
    if op.attrs.get("tanh"):
        after = " tanh"
    emitter.line(op, result, f"{op.kind} {name}{after}", type_)


def emit_read(emitter: Emitter, op: Op) -> None:
    parameter = emitter.symbols[op.attrs["box"]]
    name = emitter.names[op] = emitter.name(op, parameter.rpartition(".")[2])
    emitter.line(op, name, f"read {symbol(parameter)} value", emitter.type_of(op))


def emit_fill(emitter: Emitter, op: Op) -> None:
    name = emitter.names[op] = emitter.name(op, "number")
    emitter.line(op, name, f"fill {number(op.attrs['amount'])}", emitter.type_of(op))


def emit_iota(emitter: Emitter, op: Op) -> None:
    name = emitter.names[op] = emitter.name(op, "positions")
    emitter.line(op, name, "iota along 0", emitter.type_of(op))


def emit_valid(emitter: Emitter, op: Op) -> None:
    (ids,) = op.operands
    name = emitter.names[op] = emitter.name(op, "valid")
    text = f"valid {emitter.names[ids.op]} ignore {op.attrs['ignore']}"
    emitter.line(op, name, text, f"{emitter.type_of(ids.op)} -> {emitter.type_of(op)}")


def emit_pick(emitter: Emitter, op: Op) -> None:
    """The elements at the ids, and zeros."""
    x, ids = op.operands
    order = leaves(op.order)
    name, type_ = emitter.fit(op, x, _as_is(order))
    index = emitter.names[ids.op], emitter.type_of(ids.op)
    result = emitter.names[op] = emitter.name(op, "picked")
    text = f"pick {name}, {index[0]}"
    emitter.line(op, result, text, f"{type_}, {index[1]} -> {type_}")


def emit_binary(emitter: Emitter, op: Op) -> None:
    (x, type_), (y, _) = (emitter.fit_like(op, v) for v in op.operands)
    name = emitter.names[op] = emitter.name(op)
    emitter.line(op, name, f"{op.kind} {x}, {y}", type_)


def emit_comparison(emitter: Emitter, op: Op) -> None:
    (x, type_), (y, _) = (emitter.fit_like(op, v) for v in op.operands)
    name = emitter.names[op] = emitter.name(op)
    emitter.line(op, name, f"{op.kind} {x}, {y}", f"{type_} -> {type_}")


def emit_reduce(emitter: Emitter, op: Op) -> None:
    (x,) = op.operands
    stored, kept = leaves(x.op.order), set(leaves(op.order))
    dims = [i for i, axis in enumerate(stored) if axis not in kept]
    if not dims:
        emitter.names[op] = emitter.names[x.op]
        return
    name = emitter.names[op] = emitter.name(op, op.attrs["reduction"])
    text = f"reduce {op.attrs['reduction']} {emitter.names[x.op]} dims {dims}"
    emitter.line(op, name, text, f"{emitter.type_of(x.op)} -> {emitter.type_of(op)}")


def _letters(op: Op) -> list[dict[Axis, str]]:
    """The letters of the axes of both operands and of the result."""
    left, right, out = op.attrs["spec"].replace("->", ",").split(",")
    x, y = op.operands
    dims = [dict(zip(left, x.dims)), dict(zip(right, y.dims)), dict(zip(out, op.dims))]
    result: list[dict[Axis, str]] = [{}, {}, {}]
    count = 0
    for label in dict.fromkeys(out + left + right):
        of = [i for i in (2, 0, 1) if label in dims[i]]
        first = of[0]
        for axis in leaves(dims[first][label]):
            letter = result[first][axis] = chr(ord("a") + count)
            count += 1
            for i in of[1:]:
                for a, b in pairs(dims[first][label], dims[i][label]):
                    if a is axis:
                        result[i][b] = letter
    return result


def emit_contract(emitter: Emitter, op: Op) -> None:
    letters = _letters(op)
    orders = [leaves(v.op.order) for v in (*op.operands, op.value())]
    words = [[m[a] for a in o if a in m] for m, o in zip(letters, orders)]
    operands = []
    for i in (0, 1):
        others = set(words[1 - i]) | set(words[2])
        kept = [a for a in orders[i] if letters[i].get(a) in others]
        name, type_ = emitter.fit(op, op.operands[i], _as_is(kept))
        operands.append((name, type_, "".join(letters[i][a] for a in kept)))
    summed = {x for m in letters[:2] for x in m.values()} - set(letters[2].values())
    # What repeats in both is one term, as often as it repeats; what only one stores
    # is summed by now.
    times = math.prod(
        next(a.extent for m in letters[:2] for a, x in m.items() if x == letter)
        for letter in summed
        if not any(letter in part for part in words[:2])
    )
    out = "".join(letters[2][a] for a in orders[2])
    name = emitter.names[op] = emitter.name(op)
    (x, x_type, left), (y, y_type, right) = operands
    text = f'matmul {x}, {y} "{left},{right}->{out}"'
    emitter.line(op, name, text, f"({x_type}, {y_type}) -> {emitter.type_of(op)}")
    if times != 1:
        whole = emitter.names[op] = emitter.name(op, "times")
        text = f"scale {name} by {number(float(times))}"
        emitter.line(op, whole, text, emitter.type_of(op))


def emit_embedding(emitter: Emitter, op: Op) -> None:
    table, ids = op.operands
    rows, columns = _single(table.dims[0], "a table"), leaves(table.dims[1])
    index = emitter.names[ids.op], emitter.type_of(ids.op)
    axes = leaves(ids.op.order)
    if len(columns) == 1:
        given, type_ = emitter.fit(op, table, _as_is([rows, *columns]))
        name = emitter.names[op] = emitter.name(op)
        text = f"embedding {given}, {index[0]}"
        emitter.line(op, name, text, f"({type_}, {index[1]}) -> {emitter.type_of(op)}")
        return
    # Rows that are used in factors: a product with ones at the ids.
    hot = tensor_type([*(a.extent for a in axes), rows.extent])
    ones, picked = emitter.name(op, "ones"), emitter.name(op, "picked")
    emitter.line(op, ones, "fill 1.0", hot)
    emitter.line(op, picked, f"pick {ones}, {index[0]}", f"{hot}, {index[1]} -> {hot}")
    given, type_ = emitter.fit(op, table, _as_is([rows, *columns]))
    letters = "abcdefghij"
    lead = letters[: len(axes)]
    inner = letters[len(axes) : len(axes) + len(columns)]
    name = emitter.names[op] = emitter.name(op)
    text = f'matmul {picked}, {given} "{lead}z,z{inner}->{lead}{inner}"'
    emitter.line(op, name, text, f"({hot}, {type_}) -> {emitter.type_of(op)}")


def emit_norm(emitter: Emitter, op: Op) -> None:
    x, *weights = op.operands
    order = leaves(op.order)
    last = _single(x.dims[-1], "the dimension of a norm")
    given = [emitter.fit(op, x, _as_is(order))]
    for weight in weights:
        axis = leaves(weight.dims[-1])
        given.append(emitter.fit(op, weight, _as_is(axis) or [(None, last.extent)]))
    name = emitter.names[op] = emitter.name(op)
    statistics = tensor_type([a.extent for a in order[:-1]])
    words = ["mean", "rstd"][-len(weights) :]
    results = [name, *(emitter.name(op, word) for word in words)]
    names, types = (", ".join(part) for part in zip(*given))
    text = f"{op.kind} {names} epsilon {number(op.attrs['eps'])}"
    out = ", ".join([given[0][1], *[statistics for _ in words]])
    emitter.line(op, ", ".join(results), text, f"({types}) -> ({out})")


def emit_rope(emitter: Emitter, op: Op) -> None:
    (x,) = op.operands
    order = leaves(op.order)
    ends = [a.size.root() for a in order[:2]]
    if ends != [emitter.graph.batch.root(), emitter.graph.sequence.root()]:
        raise NotExpressible("rotary embedding of what has no batch or no positions")
    _single(x.dims[-1], "the dimension that is rotated")
    name, type_ = emitter.fit(op, x, _as_is(order))
    result = emitter.names[op] = emitter.name(op, "rope")
    text = f"rope {name} theta {number(op.attrs['theta'])}"
    scaling = op.attrs["scaling"]
    if scaling:
        words = [f"{k} = {number(scaling[k])}" for k in ("factor", "low", "high")]
        words.append(f"original = {scaling['original']}")
        text += f" scaling <{', '.join(words)}>"
    emitter.line(op, result, text, type_)


def emit_dropout(emitter: Emitter, op: Op) -> None:
    emitter.uses_keys = True
    (x,) = op.operands
    order = leaves(op.order)
    name, type_ = emitter.fit(op, x, _as_is(order))
    result = emitter.names[op] = emitter.name(op, "dropped")
    text = f"dropout {name}, %keys {_drawn(op)}"
    keys = tensor_type([order[0].extent], "i32")
    emitter.line(op, result, text, f"{type_}, {keys}")


def _drawn(op: Op) -> str:
    return f"probability {number(op.attrs['probability'])} site {op.attrs['site']}"


def _heads(emitter: Emitter, op: Op):
    """Of a query: the axes of batch, groups and heads of a group, and the partners of
    the first two in key and value."""
    q, k, v = op.operands
    lead = leaves(flat(q.dims[:-2]))
    batch = [a for a in lead if a.size.root() is emitter.graph.batch.root()]
    partners = [dict(pairs(lead, leaves(flat(x.dims[:-2])))) for x in (k, v)]
    groups, heads = [], []
    for axis in lead:
        if axis in batch:
            continue
        stored = any(x.stored([m[axis]]) for x, m in zip((k, v), partners) if axis in m)
        (groups if stored else heads).append(axis)
    # Further dimensions of 1 are none.
    groups, heads = ([a for a in x if a.extent > 1] or x[:1] for x in (groups, heads))
    if len(batch) != 1 or len(groups) > 1 or len(heads) > 1:
        raise NotExpressible(
            f"attention over dimensions of {[a.extent for a in lead]}: expected a batch, "
            "groups, and heads of a group"
        )
    return batch[0], groups[:1] or [None], heads[:1] or [None], partners


def emit_attention(emitter: Emitter, op: Op) -> None:
    q, k, v = op.operands
    batch, groups, heads, partners = _heads(emitter, op)
    position, size = _single(q.dims[-2], "the sequence"), _single(q.dims[-1], "a head")
    middle = [(a, a.extent if a else 1) for a in (*groups, *heads)]
    wanted = [*_as_is([batch, position]), *middle, *_as_is([size])]
    given = [emitter.fit(op, q, wanted)]
    for x, partner in zip((k, v), partners):
        ends = _single(x.dims[-2], "the sequence"), _single(x.dims[-1], "a head")
        group = groups[0] and partner.get(groups[0])
        extent = groups[0].extent if groups[0] else 1
        axes = [partner[batch], ends[0]]
        given.append(
            emitter.fit(op, x, [*_as_is(axes), (group, extent), *_as_is(ends[1:])])
        )
    result = [batch, position, *groups, *heads, *leaves(op.dims[-1])]
    _emit_attention(emitter, op, given, result)


def _emit_attention(emitter: Emitter, op: Op, given, result) -> None:
    extents = [a.extent if a else 1 for a in result]
    out = tensor_type(extents)
    sums = tensor_type([extents[i] for i in (0, 2, 3, 1)])
    names, types = [list(part) for part in zip(*given)]
    text = f"attention {', '.join(names)} scale {number(op.attrs['by'])}"
    if op.attrs["window"]:
        text += f" window {op.attrs['window']}"
    if op.attrs["both"]:
        text += " bidirectional"
    if "site" in op.attrs:
        emitter.uses_keys = True
        text += f" dropout %keys {_drawn(op)}"
        types.append(tensor_type(extents[:1], "i32"))
    name, lse = emitter.name(op), emitter.name(op, "lse")
    emitter.line(op, f"{name}, {lse}", text, f"({', '.join(types)}) -> ({out}, {sums})")
    op.order = [a for a in result if a]
    missing = [i for i, a in enumerate(result) if a is None]
    if missing:
        thin = emitter.name(op, "heads")
        emitter.line(
            op, thin, f"reduce sum {name} dims {missing}", f"{out} -> {emitter.type_of(op)}"
        )
        name = thin
    emitter.names[op] = name


EMITTERS = {
    "read": emit_read,
    "fill": emit_fill,
    "iota": emit_iota,
    "valid": emit_valid,
    "pick": emit_pick,
    "reduce": emit_reduce,
    "contract": emit_contract,
    "embedding": emit_embedding,
    "layer_norm": emit_norm,
    "rms_norm": emit_norm,
    "rope": emit_rope,
    "dropout": emit_dropout,
    "attention": emit_attention,
    **{kind: emit_binary for kind in ("add", "sub", "mul", "div", "min")},
    **{kind: emit_comparison for kind in ("greater", "equal")},
}


def emit_loss(emitter: Emitter, op: Op, logits: Value, targets: Value, ignored: int):
    """Sum and number of the losses."""
    lead = flat([d for d in logits.dims[:-1]])
    partner = dict(pairs(flat(targets.dims), lead))
    classes = _single(logits.dims[-1], "the vocabulary")
    axes = [(partner.get(a), a.extent) for a in leaves(targets.op.order)]
    if any(axis is None and extent > 1 for axis, extent in axes):
        raise NotExpressible("logits that are not of each position of each sequence")
    name, type_ = emitter.fit(op, logits, [*axes, *_as_is([classes])])
    total, count = emitter.name(op, "sum"), emitter.name(op, "count")
    text = f"softmax_cross_entropy {name}, %targets ignore {ignored}"
    ids = emitter.type_of(targets.op)
    scalars = "(tensor<f32>, tensor<f32>)"
    emitter.line(op, f"{total}, {count}", text, f"({type_}, {ids}) -> {scalars}")
    return total, count
