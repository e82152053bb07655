# ===- model.py - Models from PyTorch modules -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""plait.from_torch and what it returns."""

import copy
import dataclasses
import functools
import json
import pathlib
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree

from .. import options
from ..errors import Error, NotExpressible, OptionError
from ..models import Model
from . import emit, emit_ops, export, inputs, joins, layers, norms, weights
from . import arithmetic, attention, functions, layout  # noqa: F401 handlers
from . import convolutions, losses, model_ops  # noqa: F401 handlers
from .axes import leaves
from .graph import Graph
from .lazy import Loss
from .walk import Walker

# Where none is given.
BATCH, SEQUENCE = 2, 128

# torch.export changes what all threads of PyTorch share, and sizes.check the module.
_TRACING = threading.Lock()


@dataclasses.dataclass
class Built:
    """A model as it was found at one size: text, and what a person asks about it."""

    text: str
    parameters: list[weights.Parameter]
    layers: list[str]
    notes: list[str]
    constants: dict[str, torch.Tensor]
    nodes: int
    folded: int
    operations: int


class TorchModel(Model):
    """What a module is: `text` in the nn dialect, for `batch` sequences of `sequence`
    tokens. `notes` say what a person should know of it. The library, which reads files,
    gets it in a temporary folder, as `save` writes it when it is first needed."""

    def __init__(
        self,
        built: Built,
        found: list[export.Weight],
        batch: int,
        sequence: int,
        module: torch.nn.Module,
    ):
        self.text = built.text
        self.notes = built.notes
        self.batch = batch
        self.sequence = sequence
        self._built = built
        self._weights = found
        self._module = type(module).__name__
        self._config = getattr(module, "config", None)
        self._generation = getattr(module, "generation_config", None)
        to_dict = getattr(self._config, "to_dict", None)
        self.config = to_dict() if callable(to_dict) else None

    @functools.cached_property
    def _files(self) -> pathlib.Path:
        self._folder = tempfile.TemporaryDirectory(prefix="plait-")
        return self.save(self._folder.name)

    def _find(self) -> pathlib.Path:
        return self._files / "model.mlir"

    @property
    def weights(self) -> pathlib.Path | None:
        path = self._files / "model.safetensors"
        return path if path.is_file() else None

    @property
    def name(self) -> str:
        return self._module

    def write_config(self, folder: pathlib.Path, precision: str) -> None:
        """Writes the config.json of a module of transformers, which says in which type
        the weights beside it are."""
        for given in (self._config, self._generation):
            if callable(getattr(given, "save_pretrained", None)):
                part: Any = copy.deepcopy(given)
                if hasattr(part, "dtype"):
                    part.dtype = {"bf16": torch.bfloat16}.get(precision, torch.float32)
                part.save_pretrained(folder)

    def save(self, folder) -> pathlib.Path:
        """Writes model.mlir, and model.safetensors unless the module has no weights.
        Tied parameters are there once, under the first of their names."""
        folder = pathlib.Path(folder)
        weights.replace(folder / "model.mlir", lambda part: part.write_text(self.text))
        tensors = {w.name: w.tensor for w in self._weights} | self._built.constants
        if all(weights.has_numbers(tensor) for tensor in tensors.values()):
            weights.save(folder / "model.safetensors", tensors)
        return folder

    def to_json(self) -> str:
        """Facts, as JSON."""
        built = self._built
        return json.dumps(
            {
                "batch": self.batch,
                "sequence": self.sequence,
                "layers": built.layers,
                "parameters": [
                    {
                        "name": p.symbol,
                        "shape": list(p.view),
                        "decay": p.decays,
                        "file": dataclasses.asdict(p.box),
                    }
                    for p in built.parameters
                ],
                "tied": [w.names for w in self._weights if len(w.names) > 1],
                "nodes": {"traced": built.nodes, "folded": built.folded},
                "operations": built.operations,
                "notes": self.notes,
                "torch": torch.__version__,
            },
            indent=2,
        )

    def __repr__(self) -> str:
        built = self._built
        return (
            f"<plait.Model {self.name} of {len(built.layers)} layers, {len(built.parameters)} "
            f"parameters, {built.operations} operations>"
        )


@dataclasses.dataclass(frozen=True)
class Call:
    """How a module is called: what is not tokens, targets or floats is constant.
    `tokens` and `targets` are names of arguments; where tokens are None they are the
    first one, and where they are False there are none."""

    arguments: tuple
    named: dict
    tokens: str | bool | None
    targets: str | None
    loss: object
    floats: tuple[export.FloatInput, ...] = ()

    def inputs(self, batch: int, sequence: int) -> tuple:
        """Two tensors, since one that is given twice is one input."""
        ids = [torch.zeros(batch, sequence, dtype=torch.long) for _ in range(2)]
        floats = tuple(x.make(batch, sequence) for x in self.floats)
        return (*ids, floats, self.arguments, self.named)

    @property
    def has_tensors(self) -> bool:
        return any(
            isinstance(x, torch.Tensor)
            for x in _pytree.tree_leaves((self.arguments, self.named))
        )


def build(module, found, call: Call, batch: int, sequence: int) -> Built:
    """The model at one size."""
    inputs = call.inputs(batch, sequence)
    traced = export.trace_module(module, found, call, inputs)
    rest = _pytree.tree_leaves(inputs)[2 + len(call.floats) :]
    values = dict(zip(traced.inputs, ["tokens", "targets", *call.floats, *rest]))
    whole: list[str] = []
    while True:
        walker = Walker(traced, batch, sequence, whole)
        loss = walker.run(values)
        try:
            return _finish(module, found, walker, loss, call.floats)
        except weights.Overlap as overlap:
            # Once more, with slices of what it gives in place of slices of it.
            if overlap.name in whole:
                raise
            whole.append(overlap.name)


def _finish(module, found, walker: Walker, loss: Loss, floats) -> Built:
    graph = walker.graph
    roots = [value.op for term in loss.terms for value in term[:2]]
    roots += [value.op for value in loss.ratio or ()]
    norms.find_rms_norms(graph)
    graph.ops = emit.live_ops(graph, roots)
    paths = layers.assign(graph)
    joins.join(walker)
    norms.write_out(graph)
    text, parameters = _write(module, found, walker, loss, paths, floats)
    return Built(
        text,
        parameters,
        paths,
        graph.notes,
        walker.constants,
        len(walker.traced.nodes),
        walker.folded,
        len(graph.ops),
    )


def _write(module, found, walker: Walker, loss: Loss, paths: list[str], floats):
    graph = walker.graph
    reads = {op.attrs["box"]: op for op in graph.ops if op.kind == "read"}
    weights.check_boxes(reads)
    rest = [box for w in found for box in weights.remainders(list(reads), w)]
    symbols = weights.name_boxes([*reads, *rest])
    tensors = {w.name: w.tensor for w in found} | walker.constants
    scales = {
        x.op.attrs["box"]
        for op in graph.ops
        if op.kind in ("layer_norm", "rms_norm")
        for x in op.operands[1:2]
        if x.op.kind == "read"
    }
    emitter = emit.Emitter(graph, symbols, floats)
    for op in graph.ops:
        try:
            emitter.emit(op)
        except Error as error:
            raise error.located(op.place)
    total, count = _write_loss(emitter, loss)
    views = {box: [a.extent for a in leaves(op.order)] for box, op in reads.items()}
    parameters = [
        weights.make_parameter(box, view, symbols[box], tensors[box.name], box in scales)
        for box, view in (views | {box: box.extents for box in rest}).items()
    ]
    for box in rest:
        graph.note(f"'{symbols[box]}' is not trained: the loss does not depend on it")
    shapes = weights.shapes_of(parameters, tensors)
    text = _module_text(
        module, emitter, parameters, loss, len(paths), (total, count), floats, shapes
    )
    return text, parameters


def _write_loss(emitter: emit.Emitter, loss: Loss) -> tuple[str, str]:
    """A sum of means over the same targets is the mean of a sum."""
    total, number = None, None
    if len({term[2] for term in loss.terms}) > 1:
        raise NotExpressible("a sum of losses that ignore different targets")
    for logits, targets, ignored, factor in loss.terms:
        part, count = emit_ops.emit_loss(emitter, logits.op, logits, targets, ignored)
        number = number or count
        if factor != 1:
            scaled = f"{part}_scaled"
            text = f"    {scaled} = nn.scale {part} by {emit.number(factor)} : tensor<f32>"
            emitter.lines.append(text)
            part = scaled
        if total:
            added = f"{part}_added"
            emitter.lines.append(f"    {added} = nn.add {total}, {part} : tensor<f32>")
            part = added
        total = part
    if loss.ratio:
        part, count = (_write_scalar(emitter, value) for value in loss.ratio)
        number = number or count
        if total:
            emitter.lines.append(f"    %both = nn.add {total}, {part} : tensor<f32>")
            part = "%both"
        total = part
    return total, number


def _write_scalar(emitter: emit.Emitter, value) -> str:
    name, _ = emitter.fit(value.op, value, [])
    return name


def _find_vocabulary(graph: Graph, loss: Loss) -> int:
    """What tokens and targets select from has at least as many; 1: they select from
    nothing."""
    found = [leaves(term[0].dims[-1])[0].extent for term in loss.terms]
    for op in graph.ops:
        if op.kind == "embedding" and op.operands[1].op.kind == "tokens":
            found.append(op.operands[0].shape[0])
        if op.kind == "pick":
            found.append(op.operands[0].shape[-1])
    return min(found, default=1)


def _float_arguments(graph: Graph, floats) -> str:
    """In the factors of their dimensions that are computed with."""
    batch, sequence = graph.batch.root().extent, graph.sequence.root().extent
    ops = {op.attrs["given"]: op for op in graph.ops if op.kind == "float"}
    text = ""
    for own in floats:
        lead = [batch, sequence] if own.of_positions else [batch]
        shape = [a.extent for a in leaves(ops[own].order)] if own in ops else None
        kind = "features" if own.of_positions else "context"
        type_ = emit.tensor_type(shape or [*lead, *own.shape])
        text += f", %{own.name}: {type_} {{nn.{kind} = {emit.quoted(own.name)}}}"
    return text


def _config_json(module) -> str:
    """What plait-run writes beside the weights of a module of transformers."""
    write = getattr(getattr(module, "config", None), "to_json_string", None)
    return write() if callable(write) else ""


def _module_text(
    module, emitter, parameters, loss, count: int, results, floats, shapes
) -> str:
    graph: Graph = emitter.graph
    batch, sequence = graph.batch.root().extent, graph.sequence.root().extent
    ids = emit.tensor_type([batch, sequence], "i32")
    drawn = f", %keys: {emit.tensor_type([batch], 'i32')} {{nn.keys}}"
    keys = drawn if emitter.uses_keys else ""
    kind = getattr(getattr(module, "config", None), "model_type", None)
    name = type(module).__name__
    attrs = (
        f"layers = {max(count, 1)} : i64, model_type = {emit.quoted(kind or name.lower())}, "
        f"name = {emit.quoted(name)}, {shapes}"
        f"vocab = {_find_vocabulary(graph, loss)} : i64"
    )
    arguments = _float_arguments(graph, floats)
    config = _config_json(module)
    also = f", plait.config_json = {emit.quoted(config)}" if config else ""
    return "\n".join(
        [
            f"// {name}, from PyTorch.",
            f"module attributes {{plait.model = {{{attrs}}}{also}}} {{",
            *(p.declaration() for p in parameters),
            f"  func.func @loss(%tokens: {ids}, %targets: {ids}{keys}{arguments}) "
            "-> (tensor<f32>, tensor<f32>) {",
            *emitter.lines,
            f"    return {results[0]}, {results[1]} : tensor<f32>, tensor<f32>",
            "  }",
            "}",
            *emitter.locations(),
            "",
        ]
    )


def from_torch(
    module: torch.nn.Module,
    *example_inputs,
    loss=None,
    batch: int | None = None,
    seq: int | None = None,
    tokens: str | bool | None = None,
    targets: str | None = None,
    features: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    **named,
) -> TorchModel:
    """The model that a PyTorch module is, as plaitc trains it.

    The module gets tokens, integers [batch, seq], as its first argument, or as the one
    that `tokens` names, and returns logits, by themselves, in a tuple or as `.logits`.
    The loss is their cross-entropy, or `loss(output, targets)`; where `targets` names an
    argument the module gets them and returns the loss itself. `features` are floats
    [batch, seq, …], and `context` those [batch, …], that the module or the loss gets as
    arguments of these names: the shapes behind batch and sequence. A module without
    tokens has `tokens=False`. `example_inputs` and `named` are what else it gets, with
    tokens first if there is any; they are constants.
    A module in training mode keeps its dropout. Its weights are not changed.

    Raises NotExpressible, with the line of Python, for what the nn dialect does not have,
    and ExportError for what torch.export does not trace.
    """
    if not isinstance(module, torch.nn.Module):
        raise Error(
            f"from_torch got a {type(module).__name__}, expected a torch.nn.Module"
        )
    floats = inputs.read(module, loss, features, context)
    if tokens is None and inputs.comes_first(module, floats):
        tokens = False
    example = named.pop(tokens, None) if tokens else None
    if tokens is None and example_inputs:
        example, *example_inputs = example_inputs
    needs_two = tokens is not False or any(x.of_positions for x in floats)
    batch, seq = _sizes(example, batch, seq, 2 if needs_two else 1)
    named.pop(targets, None)
    loss = loss or export.cross_entropy
    call = Call(tuple(example_inputs), named, tokens, targets, loss, floats)
    from . import sizes

    with _TRACING:
        found = export.find_weights(module)
        built = build(module, found, call, batch, seq)
        sizes.check(module, found, call, built, batch, seq)
    return TorchModel(built, found, batch, seq, module)


def _sizes(example, batch: int | None, seq: int | None, least: int) -> tuple[int, int]:
    """`least` is that of a sequence. What has no positions is one."""
    if example is not None:
        if not isinstance(example, torch.Tensor) or example.dim() != 2:
            raise Error("the tokens are to be a tensor [batch, sequence]")
        if example.is_floating_point():
            raise Error(f"the tokens are of {example.dtype}, expected integers")
        given = tuple(example.shape)
        for name, asked, have in zip(("batch", "seq"), (batch, seq), given):
            if asked not in (None, have):
                raise Error(f"{name} is {asked}, but the tokens have {have}")
        batch, seq = given
    usual = SEQUENCE if least > 1 else 1
    batch = options.to_count("batch", BATCH if batch is None else batch)
    seq = options.to_count("seq", usual if seq is None else seq)
    if seq < least:
        raise OptionError(f"seq is {seq}, expected at least {least}", option="seq")
    return batch, seq
