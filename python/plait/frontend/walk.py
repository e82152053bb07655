# ===- walk.py - Through a traced graph, node by node -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Turns the nodes of a traced module into operations over axes.

What depends on neither tokens nor parameters is computed at once, however it is
written: masks, tables of rotary angles, buckets of positions. What is left are the
operations with weights, each of which has a handler in one of the modules beside this
one."""

import functools

import torch

from ..errors import Error, NotExpressible
from . import export, lazy, slices
from .axes import leaves
from .graph import Box, Graph, Value
from .weights import CONSTANT

aten = torch.ops.aten
_HANDLERS: dict = {}
# A constant tensor of more elements is not made a parameter.
MOST_CONSTANT = 2**26
# In place of infinity.
LARGE = 1e30


def handles(*targets):
    """Says which operations of PyTorch's a function is for: it gets the walker and
    the operation's own arguments."""

    def add(function):
        for target in targets:
            _HANDLERS[target] = function
        return function

    return add


class Walker:
    """From one traced graph to one graph over axes. `constants` are the tensors that
    became parameters which are not trained, by name."""

    def __init__(self, traced: export.Traced, batch: int, sequence: int, whole=()):
        self.traced = traced
        self.graph = Graph(batch, sequence, whole)
        self.graph.join = functools.partial(slices.join, self)
        self.environment: dict = {}
        self.constants: dict[str, torch.Tensor] = {}
        # The node at hand, and the shape of what it gives.
        self.shape: list[int] = []
        self.node: torch.fx.Node | None = None
        self.folded = 0
        # Whether the module shifts targets, of each of its cross-entropies.
        self.shifts: set[bool] = set()
        self.sites = 0
        self._constant_names: dict[int, str] = {}
        self._known: dict = {}

    def run(self, inputs: dict) -> lazy.Loss:
        """`inputs`: tensors by the names of nodes; of tokens and targets, these words, of
        floats what they are."""
        last = self._last_uses()
        result = None
        for node in self.traced.nodes:
            self.graph.place = export.place_of(node)
            self.graph.calls = _calls(node)
            try:
                if node.op == "output":
                    result = self._values(node.args[0])[0]
                else:
                    self.environment[node] = self._value(node, inputs)
            except Error as error:
                raise error.located(self.graph.place)
            for used in last.get(node, ()):
                self.environment.pop(used, None)
        from . import losses

        return losses.settle(self, result)

    def _last_uses(self) -> dict:
        """Which values are dead after a node: tables of constants may be large."""
        last = {}
        for node in self.traced.nodes:
            for used in node.all_input_nodes:
                last[used] = node
        result: dict = {}
        for used, node in last.items():
            result.setdefault(node, []).append(used)
        return result

    def _value(self, node, inputs: dict):
        if node.op == "placeholder":
            return self._input(node, inputs)
        if node.op != "call_function":
            raise NotExpressible(f"a graph with a node '{node.op}'")
        arguments = self._values(node.args)
        named = {key: self._values(value) for key, value in node.kwargs.items()}
        if _is_constant([arguments, list(named.values())]):
            self.folded += 1
            return self._fold(node, arguments, named)
        value = node.meta.get("val")
        self.shape = list(value.shape) if isinstance(value, torch.Tensor) else []
        self.node = node
        handler = _HANDLERS.get(node.target)
        if handler is None:
            raise NotExpressible(
                f"'{name_of(node.target)}' has no counterpart in the nn dialect"
            )
        try:
            result = handler(self, *arguments, **named)
        except Error:
            raise
        except Exception as error:
            raise NotExpressible(
                f"'{name_of(node.target)}' in a form that is not known: {error}"
            ) from error
        if export.NO_GRAD in (node.meta.get("nn_module_stack") or {}):
            return self._stopped(result)
        return result

    def _stopped(self, result):
        """What is computed where PyTorch does not record gradients."""
        if isinstance(result, list):
            return [self._stopped(x) for x in result]
        if not isinstance(result, (Value, lazy.Lazy)):
            return result
        return self.graph.unary("stop_gradient", self.tensor(result))

    def _fold(self, node, arguments, named):
        if any(x.is_meta for x in _tensors([arguments, list(named.values())])):
            raise Error(
                "the numbers of a buffer are needed, and it is on the meta device",
                hint="make the module inside 'with plait.no_weights():' instead",
            )
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise NotExpressible(
                f"'{name_of(node.target)}' draws numbers, as only dropout may"
            )
        with torch.no_grad():
            return node.target(*arguments, **named)

    def _input(self, node, inputs: dict):
        name = node.name
        if name in self.traced.parameters:
            weight = self.traced.parameters[name]
            shape = tuple(weight.tensor.shape)
            box = Box(weight.name, shape, (0,) * len(shape), shape)
            return lazy.Part(box, weight.tensor.requires_grad)
        if name in self.traced.constants:
            tensor = self.traced.constants[name]
            self._constant_names[id(tensor)] = self.traced.constant_names[name]
            return tensor
        given = inputs.get(name)
        if isinstance(given, export.FloatInput):
            return self.graph.float_input(given)
        return self.graph.input(given) if isinstance(given, str) else given

    def _values(self, argument):
        if isinstance(argument, torch.fx.Node):
            return self.environment[argument]
        if isinstance(argument, (list, tuple)):
            return [self._values(x) for x in argument]
        return argument

    # What handlers ask.

    def is_boolean(self, index: int, name: str = "") -> bool:
        """Whether an argument of the node at hand is of truth values: of computed ones
        1 and 0 stand for them."""
        arguments = self.node.args
        given = arguments[index] if index < len(arguments) else self.node.kwargs.get(name)
        value = given.meta.get("val") if isinstance(given, torch.fx.Node) else given
        return isinstance(value, torch.Tensor) and value.dtype == torch.bool

    def tensor(self, x) -> Value:
        """`x` as a tensor that an operation gives."""
        if isinstance(x, Value):
            return x
        if isinstance(x, (int, float)):
            return self.graph.fill(float(x))
        if isinstance(x, torch.Tensor):
            return self.constant(x)
        return x.make(self)

    def scalar(self, x) -> float | None:
        """The number that a constant is, or has in all its places."""
        if isinstance(x, (int, float)):
            return float(x)
        if not isinstance(x, torch.Tensor) or not x.numel() or x.is_complex():
            return None
        first = x.flatten()[0]
        return float(first) if bool((x == first).all()) else None

    def remember(self, key, kept, compute):
        """What `compute` gives, once for a key. `kept` is what the key is about: it lives
        on, so that no other takes its place in memory."""
        if key not in self._known:
            self._known[key] = kept, compute()
        return self._known[key][1]

    def next_site(self) -> int:
        """The number of a dropout in the model."""
        self.sites += 1
        return self.sites - 1

    def dropout(self, x: Value, probability: float) -> Value:
        """Masks are drawn for each sequence, whose dimension comes first."""
        if not probability:
            return x
        batch = [a for a in leaves(x.op.order) if a.size.root() is self.graph.batch.root()]
        if len(batch) != 1:
            raise NotExpressible("dropout of what is the same for all sequences")
        order = batch + [a for a in leaves(x.op.order) if a is not batch[0]]
        attrs = {"probability": probability, "site": self.next_site()}
        return self.graph.add("dropout", [x], x.dims, order, **attrs)

    def constant(self, x: torch.Tensor, own: bool = False) -> Value:
        """A constant tensor is a parameter that is not trained, the smallest that
        repeats to it. With `own` it is another than those of the same numbers, and has
        factors of its own."""
        if self.scalar(x) is not None:
            value = self.graph.fill(self.scalar(x))
            return lazy.repeat(self.graph, value, list(x.shape))
        if x.is_complex():
            raise NotExpressible(f"a constant tensor of {x.dtype}")
        known = self._constant_names.get(id(x))
        small = x
        for dim in range(x.dim()):
            first = small.narrow(dim, 0, 1)
            if small.shape[dim] > 1 and torch.equal(first.expand_as(small), small):
                small = first
        self.check_size(small.numel())
        # Minus infinity would have infinity times zero in the backward pass.
        finite = small.float().clamp(-LARGE, LARGE).contiguous()
        name = self._name_constant(finite, known, own)
        box = Box(name, tuple(small.shape), (0,) * small.dim(), tuple(small.shape))
        value = self.graph.read(box, trained=False)
        return lazy.repeat(self.graph, value, list(x.shape))

    def check_size(self, count: int) -> None:
        """Of a constant that becomes a parameter."""
        if count > MOST_CONSTANT:
            raise NotExpressible(
                f"a constant tensor of {count} elements: plait keeps at most "
                f"{MOST_CONSTANT}"
            )

    def _name_constant(self, x: torch.Tensor, name: str | None, own: bool) -> str:
        for known, tensor in self.constants.items():
            if not own and tensor.shape == x.shape and torch.equal(tensor, x):
                return known
        name = name or f"{CONSTANT}{len(self.constants)}"
        self.constants[name] = x
        self.graph.note(
            f"'{name}' is a constant of shape {list(x.shape)}: its numbers are with the "
            "weights, and it is not trained"
        )
        return name


def name_of(target) -> str:
    """Without its overload."""
    return ".".join(str(target).split(".")[:2])


def _calls(node) -> tuple:
    stack = node.meta.get("nn_module_stack") or {}
    return tuple(
        (key, export.strip(path), str(kind).split(".")[-1])
        for key, (path, kind) in stack.items()
        if key != export.NO_GRAD
    )


def _tensors(x) -> list[torch.Tensor]:
    if isinstance(x, (list, tuple)):
        return [t for y in x for t in _tensors(y)]
    return [x] if isinstance(x, torch.Tensor) else []


def _is_constant(x) -> bool:
    if isinstance(x, (list, tuple)):
        return all(_is_constant(y) for y in x)
    return not isinstance(x, (Value, lazy.Lazy))
