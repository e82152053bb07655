#===- mirror.py - A drawn model in PyTorch ----------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What the operations of graph.py compute, in PyTorch, which differentiates
them; and a training step as docs/Running.md defines it. In fp64 this is the
truth; with noise, or in bf16, it says how much rounding alone moves a model."""

import dataclasses
import math

import torch

from masks import draw

from .graph import KEYS, TARGETS, TOKENS, Graph, Op
from .recipe import Batch, Recipe

torch.set_num_threads(1)


@dataclasses.dataclass
class Arithmetic:
    """How numbers are rounded. `noise` moves every result by up to that much of
    itself, as rounding would; `generator` says which way."""

    dtype: torch.dtype = torch.float64
    noise: float = 0.0
    generator: torch.Generator | None = None

    @property
    def wide(self) -> torch.dtype:
        """Of sums and statistics."""
        half = self.dtype == torch.bfloat16
        return torch.float32 if half else self.dtype

    def round(self, value: torch.Tensor) -> torch.Tensor:
        value = value.to(self.dtype)
        if not self.noise:
            return value
        shift = torch.rand(
            value.shape, generator=self.generator, dtype=torch.float64
        )
        return value * (1 + self.noise * (2 * shift - 1)).to(self.dtype)


class Evaluation:
    """One evaluation of @loss. `gap` is the smallest distance, relative, of a
    maximum or minimum to what it is taken of, ties left out: where it is small,
    rounding decides who gets the gradient."""

    def __init__(self, graph: Graph, parameters, tokens, targets, keys, arithmetic):
        self.graph = graph
        self.parameters = parameters
        self.arithmetic = arithmetic
        self.gap = math.inf
        self.values = {TOKENS: tokens, TARGETS: targets, KEYS: keys}
        for op in graph.ops:
            self.run(op)

    def run(self, op: Op) -> None:
        operands = [self.values[value] for value in op.operands]
        found = COMPUTE[op.kind](self, op, *operands)
        found = found if isinstance(found, tuple) else (found,)
        self.values.update(zip(op.results, found))

    @property
    def loss(self) -> torch.Tensor:
        return self.values[self.graph.loss]

    @property
    def count(self) -> torch.Tensor:
        return self.values[self.graph.count]

    def shape_of(self, op: Op) -> list[int]:
        return self.graph.shape(self.graph.dims[op.results[0]])

    def compare(self, a: torch.Tensor, b: torch.Tensor) -> None:
        """Notes how far apart they are."""
        apart = (a - b).detach().abs() / (b.detach().abs().max() + 1e-30)
        apart = apart[apart > 0]
        if apart.numel():
            self.gap = min(self.gap, apart.min().item())

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.arithmetic.wide)

    def round(self, x: torch.Tensor) -> torch.Tensor:
        return self.arithmetic.round(x)


#===-----------------------------------------------------------------------===#
# Operations
#===-----------------------------------------------------------------------===#


def read(e: Evaluation, op: Op):
    return e.parameters[op.attrs["symbol"]].to(e.arithmetic.dtype)


def fill(e: Evaluation, op: Op):
    shape = e.shape_of(op)
    return torch.full(shape, op.attrs["by"], dtype=e.arithmetic.dtype)


def iota(e: Evaluation, op: Op):
    shape = e.shape_of(op)
    along = op.attrs["along"]
    view = [1] * len(shape)
    view[along] = shape[along]
    return torch.arange(shape[along]).view(view).expand(shape)


def matmul(e: Evaluation, op: Op, lhs, rhs):
    dims = [*op.operands, op.results[0]]
    a, b, y = ("".join(e.graph.dims[value]) for value in dims)
    found = torch.einsum(f"{a},{b}->{y}", e.wide(lhs), e.wide(rhs))
    return e.round(found)


def embedding(e: Evaluation, op: Op, table, ids):
    """The row of an id that the table does not have is zero."""
    inside = ids < table.shape[0]
    rows = table[torch.where(inside, ids, torch.zeros_like(ids))]
    return torch.where(inside[..., None], rows, torch.zeros_like(rows))


def attention(e: Evaluation, op: Op, query, key, value):
    query, key, value = map(e.wide, (query, key, value))
    scores = torch.einsum("bqgrd,bkgd->bgrqk", query, key) * op.attrs["scale"]
    position = torch.arange(query.shape[1])
    behind = position[:, None] - position[None, :]
    hidden = (behind < 0) | (behind >= (op.attrs.get("window") or len(behind)))
    scores = scores.masked_fill(hidden, -math.inf)
    out = torch.einsum("bgrqk,bkgd->bqgrd", scores.softmax(-1), value)
    return e.round(out), scores.logsumexp(-1).detach()


def layer_norm(e: Evaluation, op: Op, x, weight, bias):
    x, weight, bias = map(e.wide, (x, weight, bias))
    mean = x.mean(-1)
    variance = (x - mean[..., None]).square().mean(-1)
    rstd = (variance + op.attrs["epsilon"]).rsqrt()
    normal = (x - mean[..., None]) * rstd[..., None]
    return e.round(normal * weight + bias), mean.detach(), rstd.detach()


def rms_norm(e: Evaluation, op: Op, x, weight):
    x, weight = map(e.wide, (x, weight))
    rstd = (x.square().mean(-1) + op.attrs["epsilon"]).rsqrt()
    return e.round(x * rstd[..., None] * weight), rstd.detach()


def rope(e: Evaluation, op: Op, x):
    size = x.shape[-1]
    exponent = torch.arange(0, size, 2, dtype=torch.float64) / size
    angle = torch.arange(x.shape[1])[:, None] * op.attrs["theta"] ** -exponent
    view = [1, x.shape[1]] + [1] * (x.dim() - 3) + [size]
    angle = torch.cat([angle, angle], -1).view(view)
    x = e.wide(x)
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    found = x * angle.cos().to(x.dtype) + turned * angle.sin().to(x.dtype)
    return e.round(found)


def broadcast(e: Evaluation, op: Op, x):
    kept = e.graph.dims[op.operands[0]]
    dims = e.graph.dims[op.results[0]]
    view = [e.graph.extents[dim] if dim in kept else 1 for dim in dims]
    return x.reshape(view).expand(e.shape_of(op))


def reduce(e: Evaluation, op: Op, x):
    """Ties of a maximum share its gradient, as torch.amax has it."""
    kept = e.graph.dims[op.results[0]]
    dims = e.graph.dims[op.operands[0]]
    axes = [index for index, dim in enumerate(dims) if dim not in kept]
    if op.attrs["of"] == "sum":
        return e.round(e.wide(x).sum(axes))
    top = x.amax(axes, keepdim=True)
    e.compare(top, x)
    return top.reshape(e.shape_of(op))


def minimum(e: Evaluation, op: Op, a, b):
    e.compare(a, b)
    return torch.minimum(a, b)


def pick(e: Evaluation, op: Op, x, ids):
    return x * (torch.arange(x.shape[-1]) == ids[..., None]).to(x.dtype)


def dropout(e: Evaluation, op: Op, x, keys):
    probability = op.attrs["probability"]
    mask = draw.mask(keys, op.attrs["site"], x.shape, probability)
    return e.round(e.wide(x) * torch.from_numpy(mask).to(e.arithmetic.wide))


def cross_entropy(e: Evaluation, op: Op, logits, targets):
    counted = (targets != op.attrs["ignore"]).to(e.arithmetic.wide)
    logs = e.wide(logits).log_softmax(-1)
    chosen = logs.gather(-1, targets[..., None])[..., 0]
    return -(chosen * counted).sum(), counted.sum()


def valid(e: Evaluation, op: Op, ids):
    return (ids != op.attrs["ignore"]).to(e.arithmetic.dtype)


def elementwise(function):
    """Computed wide and rounded once."""
    return lambda e, op, *inputs: e.round(function(op, *map(e.wide, inputs)))


def gelu(op: Op, x):
    form = "tanh" if op.attrs.get("tanh") else "none"
    return torch.nn.functional.gelu(x, approximate=form)


COMPUTE = {
    "read": read,
    "fill": fill,
    "iota": iota,
    "matmul": matmul,
    "embedding": embedding,
    "attention": attention,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "rope": rope,
    "broadcast": broadcast,
    "reduce": reduce,
    "pick": pick,
    "valid": valid,
    "dropout": dropout,
    "softmax_cross_entropy": cross_entropy,
    "gelu": elementwise(gelu),
    "silu": elementwise(lambda op, x: torch.nn.functional.silu(x)),
    "neg": elementwise(lambda op, x: -x),
    "exp": elementwise(lambda op, x: x.exp()),
    "log": elementwise(lambda op, x: x.log()),
    "tanh": elementwise(lambda op, x: x.tanh()),
    "erf": elementwise(lambda op, x: x.erf()),
    "sqrt": elementwise(lambda op, x: x.sqrt()),
    "rsqrt": elementwise(lambda op, x: x.rsqrt()),
    "sigmoid": elementwise(lambda op, x: x.sigmoid()),
    "add": elementwise(lambda op, a, b: a + b),
    "sub": elementwise(lambda op, a, b: a - b),
    "mul": elementwise(lambda op, a, b: a * b),
    "div": elementwise(lambda op, a, b: a / b),
    "scale": elementwise(lambda op, x: x * op.attrs["by"]),
    "shift": elementwise(lambda op, x: x + op.attrs["by"]),
    "min": minimum,
    # Those that pass no gradient on.
    "equal": lambda e, op, a, b: (a == b).to(a.dtype),
    "is_zero": lambda e, op, x: (x == 0).to(x.dtype),
    "stop_gradient": lambda e, op, x: x.detach(),
}


#===-----------------------------------------------------------------------===#
# Training
#===-----------------------------------------------------------------------===#


SEED = 0  # of the masks: plait-run's, if it is told none


@dataclasses.dataclass
class Trained:
    steps: list[dict]  # loss and grad_norm of each
    weights: dict[str, torch.Tensor]
    gap: float
    # The norm of each parameter's gradient, the smallest of all steps.
    gradients: dict[str, float] = dataclasses.field(default_factory=dict)


def samples(tokens: list[int], rows, sequence: int):
    """Inputs and targets; samples wrap at the end of the file."""
    total = (len(tokens) - 1) // sequence
    starts = [row % total * sequence for row in rows]
    block = torch.tensor([tokens[x : x + sequence + 1] for x in starts])
    return block[:, :-1], block[:, 1:]


def accumulate(graph, parameters, tokens, batch, step, arithmetic):
    """Gradients of the summed loss at the parameters; (loss, count, gap)."""
    loss, count, gap = 0.0, 0.0, math.inf
    for microbatch in range(batch.microbatches):
        rows = batch.rows(step, microbatch)
        ids = samples(tokens, rows, graph.extents["s"])
        numbers = [row - (step - 1) * batch.size for row in rows]
        keys = draw.keys(SEED, step, numbers)
        found = Evaluation(graph, parameters, *ids, keys, arithmetic)
        if found.loss.requires_grad:
            found.loss.backward()
        loss += found.loss.item()
        count += found.count.item()
        gap = min(gap, found.gap)
    return loss, count, gap


def find_columns(graph: Graph, weight: int, op: Op) -> tuple[int, ...]:
    """The dimensions of a weight that a matmul sums over, where it is a matrix."""
    if op.kind != "matmul" or len(set(op.operands)) == 1 or is_logits(graph, op):
        return ()
    own, result = graph.dims[weight], graph.dims[op.results[0]]
    (other,) = (graph.dims[value] for value in op.operands if value != weight)
    summed = tuple(i for i, dim in enumerate(own) if dim not in result)
    isolated = all(dim not in other for dim in own if dim in result)
    first, last = summed[:1], summed[-1:]
    one_run = summed and last[0] - first[0] + 1 == len(summed) < len(own)
    at_an_end = one_run and (first[0] == 0 or last[0] + 1 == len(own))
    return summed if isolated and at_an_end else ()


def is_logits(graph: Graph, op: Op) -> bool:
    """Whether classes are chosen by it, changed element by element at most."""
    left = [op.results[0]]
    while left:
        value = left.pop()
        for user in graph.ops:
            if value not in user.operands:
                continue
            if user.kind == "softmax_cross_entropy":
                return True
            if len(user.operands) == len(user.results) == 1:
                if graph.dims[user.results[0]] == graph.dims[value]:
                    left.append(user.results[0])
    return False


def find_matrices(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The columns of parameters that Muon updates as matrices."""
    found: dict[str, set] = {}
    for read in graph.ops:
        if read.kind != "read":
            continue
        columns = found.setdefault(read.attrs["symbol"], set())
        for op in graph.ops:
            if read.results[0] in op.operands:
                columns.add(find_columns(graph, read.results[0], op))
    return {
        name: next(iter(columns))
        for name, columns in found.items()
        if len(columns) == 1 and () not in columns
    }


class Muon:
    """Matrices as torch.optim.Muon has them, but in the width of the parameters and of
    any number of dimensions; all else by `rest`, which is None where there is none."""

    def __init__(self, matrices, decays, recipe: Recipe, rest):
        self.matrices, self.decays, self.recipe = matrices, decays, recipe
        self.rest = rest
        self.momenta = {}

    def zero_grad(self, set_to_none: bool) -> None:
        for value, _ in self.matrices.values():
            value.grad = None
        if self.rest:
            self.rest.zero_grad(set_to_none=set_to_none)

    @torch.no_grad()
    def step(self) -> None:
        recipe = self.recipe
        for name, (value, columns) in self.matrices.items():
            if value.grad is None:
                continue
            momentum = self.momenta.setdefault(name, torch.zeros_like(value))
            momentum.lerp_(value.grad, 1 - recipe.momentum)
            ahead = value.grad.lerp(momentum, recipe.momentum)
            rows = [i for i in range(value.dim()) if i not in columns]
            moved = ahead.permute(*rows, *columns)
            shape = moved.shape
            height = math.prod(shape[: len(rows)])
            matrix = orthogonalize(moved.reshape(height, -1))
            factor = max(1.0, height / matrix.shape[1]) ** 0.5
            back = [[*rows, *columns].index(i) for i in range(value.dim())]
            if self.decays[name]:
                value.mul_(1 - recipe.lr * recipe.weight_decay)
            value.sub_(recipe.lr * factor * matrix.reshape(shape).permute(back))
        if self.rest:
            self.rest.step()


def orthogonalize(x):
    if x.shape[0] > x.shape[1]:
        return orthogonalize(x.T).T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


def make_muon(graph: Graph, parameters, recipe: Recipe):
    columns = find_matrices(graph)
    rest = {k: v for k, v in parameters.items() if k not in columns}
    factored = dataclasses.replace(recipe, lr=recipe.lr * recipe.adamw_lr_factor)
    matrices = {k: (parameters[k], columns[k]) for k in columns if k in parameters}
    decays = {k: graph.parameters[k].decay for k in matrices}
    others = optimizer(graph, rest, factored, "adamw") if rest else None
    return Muon(matrices, decays, recipe, others)


class Several:
    """An optimizer for each group."""

    def __init__(self, optimizers):
        self.optimizers = optimizers

    def zero_grad(self, set_to_none: bool) -> None:
        for one in self.optimizers:
            one.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        for one in self.optimizers:
            one.step()


def each_optimizer(graph: Graph, parameters, recipe: Recipe, kind: str, groups):
    """`kind` for what is in none of the groups. A group has options of all."""
    own = {name: other for name, other in groups if name in parameters}
    rest = {k: v for k, v in parameters.items() if k not in own}
    made = [optimizer(graph, rest, recipe, kind)] if rest else []
    for other in sorted(set(own.values())):
        part = {k: v for k, v in parameters.items() if own.get(k) == other}
        factor = recipe.adamw_lr_factor if other == "adamw" != kind else 1
        factored = dataclasses.replace(recipe, lr=recipe.lr * factor)
        made.append(optimizer(graph, part, factored, other))
    return Several(made)


def optimizer(graph: Graph, parameters, recipe: Recipe, kind: str):
    if kind == "muon":
        return make_muon(graph, parameters, recipe)
    groups = [
        {
            "params": [
                value
                for name, value in parameters.items()
                if graph.parameters[name].decay == decays
            ],
            "weight_decay": recipe.weight_decay if decays else 0.0,
        }
        for decays in (False, True)
    ]
    groups = [group for group in groups if group["params"]]
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.beta1)
    betas = (recipe.beta1, recipe.beta2)
    return torch.optim.AdamW(
        groups,
        lr=recipe.lr,
        betas=betas,
        eps=recipe.eps,
    )


def train(
    graph, weights, tokens, batch: Batch, recipe: Recipe, arithmetic, kind, groups=()
):
    """The master copies are never narrower than fp32, nor are gradients."""
    wide = arithmetic.wide
    parameters = {
        name: weights[name].to(wide, copy=True).requires_grad_(True)
        for name in graph.parameters
    }
    update = each_optimizer(graph, parameters, recipe, kind, groups)
    trained = Trained([], {}, math.inf)
    for step in range(1, recipe.steps + 1):
        update.zero_grad(set_to_none=True)
        loss, count, gap = accumulate(
            graph, parameters, tokens, batch, step, arithmetic
        )
        trained.gap = min(trained.gap, gap)
        grads = [p.grad for p in parameters.values() if p.grad is not None]
        count = count or math.nan
        for grad in grads:
            grad.div_(count)
        norm = math.sqrt(sum(g.double().square().sum().item() for g in grads))
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                own = parameter.grad.double().norm().item()
                known = trained.gradients.get(name, math.inf)
                trained.gradients[name] = min(own, known)
        if recipe.grad_clip:
            for grad in grads:
                grad.mul_(min(1.0, recipe.grad_clip / (norm + 1e-6)))
        trained.steps.append({"loss": loss / count, "grad_norm": norm})
        update.step()
    trained.weights = {k: v.detach().double() for k, v in parameters.items()}
    return trained
