# ===- custom.py - Models that no library has -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Models written as people write them, each with something of its own."""

import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, HIDDEN, POSITIONS = 64, 32, 64


class Model(nn.Module):
    """Embedding, blocks, norm, head."""

    def __init__(self, block, layers=3, hidden=HIDDEN, tied=True, positions=True):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, hidden)
        self.positions = nn.Embedding(POSITIONS, hidden) if positions else None
        self.blocks = nn.ModuleList([block() for _ in range(layers)])
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(self, tokens):
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def causal(q, k, v):
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return seen.transpose(1, 2).flatten(2)


class Parallel(nn.Module):
    """Attention and a squared-ReLU MLP side by side, fused key and value, norms of
    queries and keys, a learned gain."""

    def __init__(self, hidden=HIDDEN, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden)
        self.q, self.kv = nn.Linear(hidden, hidden), nn.Linear(hidden, 2 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 96), nn.Linear(96, hidden)
        self.q_norm, self.k_norm = (RMSNorm(hidden // heads) for _ in range(2))
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x):
        y = self.norm(x)
        k, v = self.kv(y).chunk(2, dim=-1)
        q, k, v = (split_heads(z, self.heads) for z in (self.q(y), k, v))
        seen = self.out(causal(self.q_norm(q), self.k_norm(k), v))
        return x + self.gain * seen + self.down(F.relu(self.up(y)) ** 2)


class ByHand(nn.Module):
    """Interleaved projections, and attention in matmuls with a mask from a buffer."""

    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([RMSNorm(HIDDEN) for _ in range(2)])
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.mlp = nn.Sequential(
            nn.Linear(HIDDEN, 48), nn.GELU("tanh"), nn.Linear(48, HIDDEN)
        )
        mask = torch.tril(torch.ones(POSITIONS, POSITIONS))
        self.register_buffer("mask", mask.view(1, 1, POSITIONS, POSITIONS))

    def forward(self, x):
        batch, length, width = x.shape
        size = width // self.heads
        qkv = self.qkv(self.norms[0](x)).view(batch, length, self.heads, 3, size)
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(size))
        hidden = self.mask[:, :, :length, :length] == 0
        weights = F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        seen = (weights @ v).transpose(1, 2).contiguous().view(batch, length, width)
        x = x + self.out(seen)
        return x + self.mlp(self.norms[1](x))


class Einsum(nn.Module):
    """Grouped queries by einsum, rotary halves, a gated MLP in one projection."""

    def __init__(self, groups=2, heads=3, size=8, inner=40):
        super().__init__()
        self.size, self.inner = size, inner
        self.norms = nn.ModuleList([RMSNorm(HIDDEN) for _ in range(2)])
        shapes = [(groups, heads, size), (groups, size), (groups, size)]
        self.q, self.k, self.v = (
            nn.Parameter(0.1 * torch.randn(HIDDEN, *shape)) for shape in shapes
        )
        self.out = nn.Parameter(0.1 * torch.randn(groups, heads, size, HIDDEN))
        self.gate_up = nn.Linear(HIDDEN, 2 * inner, bias=False)
        self.down = nn.Linear(inner, HIDDEN, bias=False)

    def rotate(self, x):
        steps = torch.arange(0, self.size, 2) / self.size
        angles = torch.outer(torch.arange(x.shape[1]), 500.0**-steps)
        angles = angles.view(x.shape[1], *[1] * (x.dim() - 3), -1)
        a, b = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def forward(self, x):
        y = self.norms[0](x)
        q = self.rotate(torch.einsum("bsh,hgrd->bsgrd", y, self.q))
        k = self.rotate(torch.einsum("bsh,hgd->bsgd", y, self.k))
        v = torch.einsum("bsh,hgd->bsgd", y, self.v)
        scores = torch.einsum("bsgrd,btgd->bgrst", q, k) / math.sqrt(self.size)
        length = x.shape[1]
        scores = scores + torch.full((length, length), -torch.inf).triu(1)
        seen = torch.einsum("bgrst,btgd->bsgrd", scores.softmax(-1), v)
        x = x + torch.einsum("bsgrd,grdh->bsh", seen, self.out)
        gate, up = self.gate_up(self.norms[1](x)).split(self.inner, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Neighbours(nn.Module):
    """Rotary embedding of pairs of neighbours, without norms and biases."""

    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def rotate(self, x):
        length, size = x.shape[1], x.shape[-1]
        angles = torch.outer(
            torch.arange(length), 10000.0 ** (-torch.arange(0, size, 2) / size)
        )
        cos, sin = (
            t.repeat_interleave(2, -1)[:, None] for t in (angles.cos(), angles.sin())
        )
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * cos + turned * sin

    def forward(self, x):
        q, k, v = (z.unflatten(-1, (self.heads, -1)) for z in self.qkv(x).chunk(3, -1))
        q, k, v = (z.transpose(1, 2) for z in (self.rotate(q), self.rotate(k), v))
        return x + self.out(causal(q, k, v))


class Polar(Neighbours):
    """The same with complex numbers, which come as a buffer."""

    def __init__(self, heads=4):
        super().__init__(heads)
        size = HIDDEN // heads
        angles = torch.outer(
            torch.arange(POSITIONS), 10000.0 ** (-torch.arange(0, size, 2) / size)
        )
        turns = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("turns", turns, persistent=False)

    def rotate(self, x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.turns[: x.shape[1], None]
        return torch.view_as_real(turned).flatten(-2).type_as(x)


class Pairs(Neighbours):
    """Norms of pairs, which split the elements of a head in memory."""

    def rotate(self, x):
        pairs = x.view(*x.shape[:-1], -1, 2)
        length = (pairs.square().sum(-1, keepdim=True) + 1).sqrt()
        return super().rotate((pairs / length).flatten(-2))


class Conflict(nn.Module):
    """Views as 3 · 12 and as 2 · 18, which have no factors in common."""

    def __init__(self):
        super().__init__()
        self.up, self.a = nn.Linear(36, 36), nn.Parameter(torch.randn(3, 12))

    def forward(self, x):
        y = (self.up(x).unflatten(-1, (3, 12)) * self.a).flatten(-2)
        return x + torch.tanh(y.unflatten(-1, (2, 18)).flip(-2).flatten(-2))


class Relative(nn.Module):
    """A learned bias of the distance."""

    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.bias = nn.Embedding(2 * POSITIONS - 1, heads)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.unbind(2)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * (width // self.heads) ** -0.5
        index = torch.arange(length)
        distance = index[:, None] - index
        scores = scores + self.bias(distance + POSITIONS - 1).permute(2, 0, 1)
        least = torch.finfo(scores.dtype).min
        weights = torch.where(distance >= 0, scores, least).softmax(-1)
        seen = torch.einsum("bhij,bjhd->bihd", weights, v)
        return x + self.out(seen.reshape(batch, length, width))


class Slopes(nn.Module):
    """ALiBi: a bias of constants that differ by head."""

    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, heads + 1))

    def forward(self, x):
        q, k, v = (split_heads(z, self.heads) for z in self.qkv(x).split(HIDDEN, -1))
        index = torch.arange(x.shape[1])
        bias = -(index[:, None] - index).abs() * self.slopes[:, None, None]
        bias = bias.masked_fill(index > index[:, None], -torch.inf)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return x + self.out(seen.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """Weight norm, GLU, a learned gate."""

    def __init__(self):
        super().__init__()
        self.up = nn.utils.parametrizations.weight_norm(nn.Linear(HIDDEN, 2 * HIDDEN))
        self.down = nn.Linear(HIDDEN, HIDDEN)
        self.gate = nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, x):
        return x + torch.sigmoid(self.gate) * self.down(F.glu(self.up(x), dim=-1))


class Activations(nn.Module):
    """Functions that nn has no op for, made of those that it has."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(8)])

    def forward(self, x):
        functions = (F.leaky_relu, F.elu, F.softplus, F.mish, F.hardtanh, F.relu6, torch.abs)
        for function, layer in zip(
            (*functions, lambda z: z.clamp(-0.5, 1) ** 3), self.layers
        ):
            x = x + function(layer(x)) / 8
        return x


def pieces(x):
    """A function of the sign, in the ways that it is chosen by."""
    a = torch.where(x > 0.1, x, -0.2 * x) + x * (x <= 0.3)
    b = x.masked_fill((x < -0.5) | (x >= 0.5), 0.25) * ((x > 0) + (x > -0.25))
    return a + b + torch.sign(x) * (x.detach() != 0) + F.hardshrink(x, 0.2)


class Functions(nn.Module):
    """More of them, choices by computed numbers, and statistics."""

    FUNCTIONS = (
        F.celu, F.selu, F.hardswish, F.hardsigmoid, pieces,
        lambda x: F.threshold(x, 0.1, -0.3),
        lambda x: torch.clip(x, -1.2, 0.2) + torch.clamp_min(x, -0.1),
        lambda x: torch.lerp(x, x.square(), torch.sigmoid(x)),
        lambda x: torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x * x + 1),
        lambda x: torch.log1p(x * x) + torch.exp2(x) + torch.log2(x * x + 1),
        lambda x: torch.sinh(x) - torch.expm1(x) + torch.erfc(x) + F.softplus(x, 2.0, 0.5),
        lambda x: torch.logaddexp(x, 2 * x) + torch.hypot(x, x + 1) - x.log_softmax(1) / 9,
        lambda x: (x * x + 1) ** 1.5 + 2.0**x + (x * x + 1) ** x,
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1).sqrt(),
        lambda x: x / (1 + x.std(-1, unbiased=False, keepdim=True)),
        lambda x: x - x.logsumexp(-1, keepdim=True) + torch.var_mean(x, -1, True)[1][..., None],
        lambda x: x / (x.norm(p=1, dim=-1, keepdim=True) + 1) - x.min(-1, keepdim=True)[0],
        lambda x: F.cosine_similarity(x, x.square(), dim=-1)[..., None] * x,
        lambda x: x.cumsum(1) / 9 + (x @ x.mT).tril() @ x / 9,
        lambda x: F.group_norm(x.flatten(0, 1), 4).view_as(x),
        lambda x: torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1),
        lambda x: x.mean(-1, keepdim=True).expand_as(x) + torch.arange(HIDDEN) / 9,
    )  # fmt: skip

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.layers = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in self.FUNCTIONS])
        self.slope = nn.PReLU(init=0.1)

    def forward(self, x):
        for function, layer in zip(self.FUNCTIONS, self.layers):
            x = x + function(layer(self.norm(x))) / 8
        return self.slope(x)


class Reordered(nn.Module):
    """Rows of a parameter by a list, einsum of one and three operands, an ellipsis."""
    ORDER = (0, *range(HIDDEN - 2, 0, -1), HIDDEN - 1)

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(0.2 * torch.randn(HIDDEN, HIDDEN)) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        a = self.a.index_select(0, torch.tensor(self.ORDER))
        y = torch.einsum("...i,ij,jk->...k", x, a, self.b[list(self.ORDER)])
        return x + y * self.scale + torch.einsum("bsh->bs", x)[..., None] / HIDDEN


class Encoder(nn.Module):
    """Attention to all positions, to those near by, and with keys of another size."""

    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.ModuleList([nn.Linear(HIDDEN, 3 * HIDDEN) for _ in range(3)])
        self.q, self.k = (nn.Linear(HIDDEN, 12 * heads) for _ in range(2))
        self.out = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        index = torch.arange(x.shape[1])
        near = (index[:, None] - index).abs() < 3
        for i, (layer, mask) in enumerate(zip(self.qkv, (None, near, near.tril()))):
            q, k, v = (split_heads(z, self.heads) for z in layer(x).chunk(3, -1))
            if i == 2:
                q, k = (split_heads(z(x), self.heads) for z in (self.q, self.k))
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
        q, k, v = (split_heads(z, self.heads) for z in self.qkv[0](x).chunk(3, -1))
        weights = (q @ k.mT / math.sqrt(HIDDEN // self.heads)).softmax(-1)
        return x + (weights @ v).transpose(1, 2).flatten(2)


class Padded(nn.Module):
    """Keys that are padding are hidden, by masks that are computed from the tokens."""

    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=0)
        self.qkv = nn.ModuleList([nn.Linear(HIDDEN, 3 * HIDDEN) for _ in range(3)])
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        kept = ((tokens != 0) & (tokens != 5))[:, None, None]
        seen = torch.ones(tokens.shape[1], tokens.shape[1]).tril().bool()
        biased = (1.0 - (kept & seen).to(torch.long).float()) * torch.finfo(x.dtype).min
        for layer, mask in zip(self.qkv, (kept | seen.T, kept, biased)):
            q, k, v = (split_heads(z, self.heads) for z in layer(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            w = (q @ k.mT).masked_fill(~kept, -torch.inf).softmax(-1)
            x = x + (y + w @ v).transpose(1, 2).flatten(2)
        return self.head(x)


class InPlace(nn.Module):
    """Changes tensors in place, parts of them too."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 48), nn.Linear(48, HIDDEN)

    def forward(self, x):
        y = self.up(self.norm(x))
        y.mul_(0.5).add_(1.0)
        z = y.clone()
        z[..., :4] = y[..., :4] * 2
        return x + self.down(torch.sigmoid(z))


class Shared(nn.Module):
    """One block, called three times, and capped logits."""

    def __init__(self):
        super().__init__()
        self.embed, self.block = nn.Embedding(VOCABULARY, HIDDEN), ByHand()
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        for _ in range(3):
            x = self.block(x)
        return 5 * torch.tanh(self.head(x) / 5)


class Different(nn.Module):
    """Blocks that are not alike, by names of their own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        inner = (
            nn.LayerNorm(HIDDEN),
            nn.Linear(HIDDEN, 64),
            nn.SiLU(),
            nn.Linear(64, HIDDEN),
        )
        self.blocks = nn.ModuleList([ByHand(4), nn.Sequential(*inner), ByHand(2), Gated()])
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Functional(nn.Module):
    """Parameters without modules: layers are found by their shapes."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(0.1 * torch.randn(VOCABULARY, HIDDEN))
        self.matrices = nn.ParameterList(
            [nn.Parameter(0.2 * torch.randn(HIDDEN, HIDDEN)) for _ in range(8)]
        )

    def forward(self, tokens):
        x = F.embedding(tokens, self.table)
        for i in range(0, 8, 2):
            y = torch.tanh(F.layer_norm(x, (HIDDEN,)) @ self.matrices[i])
            x = x + y @ self.matrices[i + 1].t()
        return x @ self.table.T


class TwoHeads(nn.Module):
    """Returns two tensors of logits, for a loss of its own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.ModuleList([ByHand() for _ in range(2)])
        self.heads = nn.ModuleList([nn.Linear(HIDDEN, VOCABULARY) for _ in range(2)])

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return tuple(head(x) for head in self.heads)


def two_losses(output, targets):
    parts = [F.cross_entropy(x.flatten(0, 1), targets.flatten()) for x in output]
    return parts[0] + 0.5 * parts[1]


class Classic(nn.Module):
    """PyTorch's own encoder layers, with sinusoidal positions, added in place."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=0)
        angles = torch.arange(POSITIONS)[:, None] * torch.exp(
            torch.arange(0, HIDDEN, 2) * (-math.log(10000.0) / HIDDEN)
        )
        table = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
        self.register_buffer("table", table)
        layer = nn.TransformerEncoderLayer(
            HIDDEN, 4, 48, 0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.embed(tokens) * math.sqrt(HIDDEN)
        x += self.table[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.layers(x, mask=mask, is_causal=True))


class Stopped(nn.Module):
    """Regions without gradients, a frozen table, names that need quotes, and a loss whose
    classes are the second dimension."""

    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(
            nn.Embedding(VOCABULARY, HIDDEN), nn.Linear(HIDDEN, HIDDEN), ByHand()
        )
        self.parts[0].weight.requires_grad_(False)
        self.scales = nn.ParameterDict({"a-b/c": nn.Parameter(torch.ones(HIDDEN))})
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        x = self.parts(tokens)
        with torch.no_grad():
            fixed = self.parts[1](x)
        return self.head(x * self.scales["a-b/c"] + fixed - x.detach() / 2)


def channel_loss(output, targets):
    return F.cross_entropy(output.transpose(1, 2), targets)


class Transposed(nn.Module):
    """Positions first, square matrices between residuals, rolled and exchanged parts."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(3)])
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens).transpose(0, 1)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        half = HIDDEN // 2
        x = x + x.roll(1, 0) + torch.cat([x[..., half:], x[..., :half]], -1)
        return self.head(x.transpose(0, 1))


class Named(nn.Module):
    """Tokens and targets by name, and the loss inside, with targets that it shifts."""

    def __init__(self):
        super().__init__()
        self.model = Model(ByHand, layers=2)

    def forward(self, *, ids, labels=None, scale=1.0):
        logits = self.model(ids) * scale
        if labels is None:
            return logits
        loss = F.cross_entropy(
            logits[:, :-1].reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1)
        )
        return loss, logits


MODELS = {
    "parallel": lambda: Model(Parallel),
    "one-layer": lambda: Model(Parallel, layers=1),
    "odd-heads": lambda: Model(lambda: Parallel(33, 3), hidden=33, layers=2),
    "one-head": lambda: Model(lambda: Parallel(HIDDEN, 1), layers=2),
    "by-hand": lambda: Model(ByHand, tied=False),
    "einsum": lambda: Model(Einsum, layers=2, positions=False),
    "neighbours": lambda: Model(Neighbours, layers=2, positions=False),
    "conflict": lambda: Model(Conflict, hidden=36),
    "pairs": lambda: Model(Pairs, layers=2, positions=False),
    "polar": lambda: Model(Polar, layers=2, positions=False),
    "relative": lambda: Model(Relative, layers=2, positions=False),
    "slopes": lambda: Model(Slopes, layers=2, positions=False),
    "gated": lambda: Model(Gated),
    "activations": lambda: Model(Activations, layers=2),
    "functions": lambda: Model(Functions, layers=1),
    "reordered": lambda: Model(Reordered, layers=2),
    "encoder": lambda: Model(Encoder, layers=2),
    "in-place": lambda: Model(InPlace),
    "padded": Padded,
    "shared": Shared,
    "different": Different,
    "functional": Functional,
    "two-heads": TwoHeads,
    "classic": Classic,
    "stopped": Stopped,
    "transposed": Transposed,
    "named": Named,
}
# What from_torch is told of those that it cannot see itself.
NAMED = {
    "two-heads": {"loss": two_losses},
    "stopped": {"loss": channel_loss},
    "named": {"tokens": "ids", "targets": "labels"},
}
