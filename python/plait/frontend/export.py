# ===- export.py - A module as torch.export sees it -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Traces a module with torch.export.

What is traced is a copy without weights: every parameter is a zero that is repeated
in its shape, in fp32, so that a module of any size, of any type and on any device,
`meta` included, costs no memory. The numbers of buffers matter and are kept."""

import contextlib
import copy
import dataclasses
import io
import logging
import pathlib
import traceback

import torch
from torch import nn
from torch.nn import functional

from ..errors import Error, ExportError, NotExpressible, Place

IGNORED = -100
# A call that is none, but a region without gradients.
NO_GRAD = "plait.no_grad"
_TORCH = str(pathlib.Path(torch.__file__).parent)
_OWN = str(pathlib.Path(__file__).parent)


@dataclasses.dataclass
class Weight:
    """A parameter of the module by its first name, and the others that share its
    storage."""

    name: str
    tensor: torch.Tensor
    names: list[str]


@dataclasses.dataclass(frozen=True)
class FloatInput:
    """Floats beside tokens, an argument of the module or, with `of_loss`, of the loss:
    [batch, sequence, *shape] if they are of positions, else [batch, *shape]."""

    name: str
    shape: tuple[int, ...]
    of_positions: bool
    of_loss: bool = False

    def make(self, batch: int, sequence: int) -> torch.Tensor:
        lead = (batch, sequence) if self.of_positions else (batch,)
        return torch.zeros(*lead, *self.shape)


def find_weights(module: nn.Module) -> list[Weight]:
    """Ties are found by storage. A tensor without storage is tied to itself alone."""
    found: dict[object, Weight] = {}
    objects: dict[object, torch.Tensor] = {}
    for given, tensor in module.named_parameters(remove_duplicate=False):
        name = uncompiled(given)
        if not tensor.is_floating_point():
            raise Error(
                f"parameter '{name}' is of {tensor.dtype}, expected a float type"
            )
        if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
            raise Error(
                f"parameter '{name}' has no shape yet",
                hint="call the module once, which gives it one",
            )
        if not tensor.numel():
            raise Error(f"parameter '{name}' of shape {list(tensor.shape)} has no elements")
        key = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.is_meta or not tensor.data_ptr() or _is_repeated(tensor):
            key = id(tensor)
        known = found.setdefault(key, Weight(name, tensor, []))
        known.names.append(name)
        if objects.setdefault(key, tensor) is not tensor:
            _refuse_shared(known.name, name)
    _check_apart(list(found.values()))
    return list(found.values())


def _refuse_shared(first: str, second: str) -> None:
    """An optimizer of PyTorch's updates that memory once for each, with the gradient and
    the state of each, in the order in which it was given them."""
    raise Error(
        f"parameters '{first}' and '{second}' are two that share memory, which PyTorch's "
        "optimizers update twice",
        hint="make them one parameter, or clone one of them",
    )


def _check_apart(weights: list[Weight]) -> None:
    """That no two have elements in common, as views of one tensor may."""
    shared: dict[int, list[Weight]] = {}
    for weight in weights:
        tensor = weight.tensor
        if not tensor.is_meta and tensor.data_ptr() and not _is_repeated(tensor):
            shared.setdefault(tensor.untyped_storage().data_ptr(), []).append(weight)
    for group in shared.values():
        group.sort(key=lambda weight: weight.tensor.data_ptr())
        ends = [_end(weight.tensor) for weight in group]
        if any(w.tensor.data_ptr() < end for w, end in zip(group[1:], ends)):
            _check_elements(group)


def _end(tensor: torch.Tensor) -> int:
    """The address behind its last element."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _check_elements(group: list[Weight]) -> None:
    """Of tensors whose memory begins before that of others ends."""
    taken = torch.zeros(group[0].tensor.untyped_storage().nbytes(), dtype=torch.bool)
    owns = []
    for weight in group:
        tensor, size = weight.tensor, weight.tensor.element_size()
        place = [x * size for x in tensor.stride()], tensor.storage_offset() * size
        own = torch.as_strided(taken, tensor.shape, *place)
        if own.any():
            taken.zero_()
            own.fill_(True)
            first = next(w for w, other in owns if other().any())
            _refuse_shared(first.name, weight.name)
        own.fill_(True)
        shape = tensor.shape
        owns.append((weight, lambda s=shape, p=place: torch.as_strided(taken, s, *p)))


def _is_repeated(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 1 and not any(tensor.stride())


@dataclasses.dataclass
class Traced:
    """A graph of PyTorch's, and what its inputs are by the names of their nodes."""

    nodes: list
    inputs: list[str]
    parameters: dict[str, Weight]
    constants: dict[str, torch.Tensor]
    constant_names: dict[str, str]


class _Wrapped(nn.Module):
    """From tokens, targets and floats to the loss."""

    def __init__(self, module: nn.Module, loss, tokens, targets, inputs):
        super().__init__()
        self.module = module
        self.loss = loss
        self.tokens = tokens
        self.targets = targets
        self.inputs = inputs

    def forward(self, tokens, targets, floats, arguments, named):
        named, of_loss = dict(named), {}
        for own, value in zip(self.inputs, floats):
            (of_loss if own.of_loss else named)[own.name] = value
        if self.targets:
            named[self.targets] = targets
        if self.tokens:
            named[self.tokens] = tokens
        if self.tokens is None:
            arguments = (tokens, *arguments)
        output = self.module(*arguments, **named)
        if self.targets:
            return find_loss(output)
        return self.loss(output, targets, **of_loss)


def find_tensors(output) -> list:
    """What a module has returned, by itself, in a tuple, or by name."""
    for name in ("loss", "logits"):
        value = output.get(name) if isinstance(output, dict) else None
        if value is None:
            value = getattr(output, name, None)
        if isinstance(value, torch.Tensor):
            return [value]
    if isinstance(output, dict):
        output = tuple(output.values())
    if not isinstance(output, (tuple, list)):
        output = (output,)
    return [x for x in output if isinstance(x, torch.Tensor) and x.is_floating_point()]


def find_loss(output) -> torch.Tensor:
    found = [x for x in find_tensors(output) if x.dim() == 0]
    if len(found) != 1:
        raise Error(
            f"the module was given targets and returns {len(found)} numbers, expected "
            "one, the loss"
        )
    return found[0]


def cross_entropy(output, targets: torch.Tensor) -> torch.Tensor:
    """The loss where none is given: of the logits that the module returns."""
    found = [x for x in find_tensors(output) if x.dim() == 3]
    if len(found) != 1:
        shapes = ", ".join(str(list(x.shape)) for x in find_tensors(output))
        raise Error(
            f"the module returns tensors of shapes {shapes or 'that are none'}, expected "
            "one of logits, [batch, sequence, vocabulary]",
            hint="pass loss=, a function of what it returns and the targets",
        )
    return functional.cross_entropy(
        found[0].flatten(0, 1), targets.flatten(), ignore_index=IGNORED
    )


def bare_copy(module: nn.Module, weights: list[Weight]) -> nn.Module:
    """The module on the CPU with fp32 zeros without storage in place of weights."""
    memo = {}
    shared = {name: weight for weight in weights for name in weight.names}
    zeros = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        weight = shared[uncompiled(name)]
        if weight.name not in zeros:
            zero = torch.zeros(()).expand(tensor.shape)
            zeros[weight.name] = nn.Parameter(zero, tensor.requires_grad)
        memo[id(tensor)] = zeros[weight.name]
    for name, tensor in module.named_buffers(remove_duplicate=False):
        if not tensor.is_meta:
            kept = tensor.detach().cpu()
            memo[id(tensor)] = kept.float() if kept.is_floating_point() else kept
    try:
        result = copy.deepcopy(module, memo)
    except Exception as error:
        raise ExportError(f"the module cannot be copied: {error}") from error
    _fill_buffers(result)
    # Caches of keys and values are for generating.
    if hasattr(getattr(result, "config", None), "use_cache"):
        result.config.use_cache = False
    return result


def _fill_buffers(module: nn.Module) -> None:
    """Computes buffers of the meta device as modules do that own them. What cannot be
    computed stays, and is an error where its numbers are needed."""
    initialise = getattr(module, "_init_weights", None)
    for part in module.modules():
        own = [x for x in part.buffers(recurse=False) if x.is_meta]
        if not own or any(True for _ in part.parameters(recurse=False)):
            continue
        reset = getattr(part, "reset_parameters", None) or initialise
        if reset is None:
            continue
        part.to_empty(device="cpu", recurse=False)
        reset() if reset is not initialise else initialise(part)


def trace(wrapped: nn.Module, inputs: tuple) -> torch.export.ExportedProgram:
    """One static graph with the operations that PyTorch's modules name."""
    try:
        with _silence(), _all_lines(), _no_own_gradients():
            program = torch.export.export(wrapped, inputs, strict=False)
            _mark_no_grad(program.graph)
            return program.run_decompositions({})
    except Error as error:
        raise error.located(_raised_at(error))
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise ExportError(
            f"torch.export cannot trace this: {reason}", _raised_at(error)
        ) from error


@contextlib.contextmanager
def _silence():
    """What PyTorch logs and prints is said by the error, in one line."""
    logging.disable(logging.CRITICAL)
    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _mark_no_grad(graph: torch.fx.Graph) -> None:
    """Decompositions forget that a region has no gradient. The calls that it is in they
    keep, so it becomes one."""
    region = torch.ops.higher_order.wrap_with_set_grad_enabled
    for node in graph.nodes:
        if node.target is region and node.args[0] is False:
            calls = node.meta.get("nn_module_stack") or {}
            node.meta["nn_module_stack"] = {**calls, NO_GRAD: ("", NO_GRAD)}


@contextlib.contextmanager
def _no_own_gradients():
    """A trace has the forward pass of a torch.autograd.Function alone, and would get
    another gradient. PyTorch's own are for memory."""
    apply = torch.autograd.Function.__dict__["apply"]

    def refuse(kind, *arguments, **named):
        if kind.__module__.startswith("torch."):
            return apply.__get__(None, kind)(*arguments, **named)
        raise NotExpressible(
            f"the gradient of '{kind.__name__}', a torch.autograd.Function of its own"
        )

    torch.autograd.Function.apply = classmethod(refuse)
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply


@contextlib.contextmanager
def _all_lines():
    """PyTorch keeps of each operation the lines of functions called `forward` alone,
    while a person wants that of the function which they call. Its filter is not public:
    where there is none, lines are PyTorch's."""
    owner, name = torch.fx.proxy.TracerBase, "_filter_traceback_frames"
    own = owner.__dict__.get(name)
    if own is None:
        yield
        return

    def keep(tracer, frames):
        return traceback.StackSummary.from_list([f for f in frames if _is_user(f.filename)])

    setattr(owner, name, keep)
    try:
        yield
    finally:
        setattr(owner, name, own)


def _is_user(file: str) -> bool:
    """Whether it is neither of PyTorch nor of this package."""
    return not file.startswith((_TORCH, _OWN, "<"))


def _raised_at(error: Exception) -> Place:
    """The last of the user's lines."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_user(frame.filename):
            return Place("", shorten(frame.filename), frame.lineno or 0)
    return Place()


def shorten(file: str) -> str:
    """From the current folder, or from the packages that are installed."""
    path = pathlib.Path(file)
    if "site-packages" in path.parts:
        at = len(path.parts) - path.parts[::-1].index("site-packages")
        return "/".join(path.parts[at:])
    try:
        return str(path.relative_to(pathlib.Path.cwd()))
    except ValueError:
        return str(path)


def place_of(node) -> Place:
    """The line in which the user's program, or the library it calls, asks for what
    the node computes."""
    calls = (node.meta.get("nn_module_stack") or {}).values()
    paths = [path for path, kind in calls if kind != NO_GRAD]
    path = strip(paths[-1]) if paths else ""
    lines = (node.meta.get("stack_trace") or "").split("\n")
    for line in reversed(lines):
        if not line.strip().startswith('File "'):
            continue
        file, rest = line.strip()[6:].split('"', 1)
        if _is_user(file):
            number = rest.split("line ", 1)[1].split(",")[0]
            return Place(path, shorten(file), int(number))
    return Place(path)


def strip(name: str) -> str:
    """A name without the module that was put around the user's."""
    return uncompiled(name.removeprefix("module").removeprefix("."))


def uncompiled(name: str) -> str:
    """A name without the modules that torch.compile puts around others, as transformers
    saves and opens it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def trace_module(module, weights, call, inputs) -> Traced:
    """`inputs`: tokens, targets, floats, further arguments, those with a name."""
    wrapped = _Wrapped(
        bare_copy(module, weights), call.loss, call.tokens, call.targets, call.floats
    )
    wrapped.train(module.training)
    program = trace(wrapped, inputs)
    signature = program.graph_signature
    _refuse_changes(signature)
    shared = {name: weight for weight in weights for name in weight.names}
    parameters = {
        node: shared[strip(name)] for node, name in signature.inputs_to_parameters.items()
    }
    names = dict(signature.inputs_to_buffers)
    names |= signature.inputs_to_lifted_tensor_constants
    held = dict(program.constants) | dict(program.state_dict)
    constants = {node: held[name].detach() for node, name in names.items()}
    return Traced(
        list(program.graph.nodes),
        [x for x in signature.user_inputs],
        parameters,
        constants,
        {node: strip(name) for node, name in names.items()},
    )


def _refuse_changes(signature) -> None:
    """What a step leaves behind would be lost."""
    for kind in ("buffer", "parameter"):
        changed = getattr(signature, f"{kind}s_to_mutate", {})
        for name in sorted(map(strip, changed.values())):
            raise Error(
                f"the module changes its {kind} '{name}' in its forward pass, which "
                "training with plait would not"
            )
