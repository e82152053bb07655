#!/usr/bin/env python3
#===- mirror.py - The models of this folder in PyTorch ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Writes expected.json: loss and gradient norm of every step of models.py's run,
by PyTorch in fp64. Needs torch; the tests themselves do not."""

import json
import pathlib
import sys

import torch
from torch.nn import functional

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import models  # noqa: E402


def ties(p, tokens):
    x = p["embed"][tokens]
    top = functional.gelu(x + p["bias"]).amax(1)
    z = x + (top @ p["w"])[:, None]
    quarter = torch.full_like(x, 0.25)
    m = torch.tanh(z) + torch.minimum(x, quarter)
    return m * m.amax(2, keepdim=True) @ p["embed"].T


def stopped(p, tokens):
    x = p["embed"][tokens]
    b = torch.tanh(x @ p["shared"]) * p["scale"]
    f = b * (x.detach() @ p["shared"])
    h = f + (x == 0).double() + p["scale"].detach()
    return h @ p["head"].T


def frozen(p, tokens):
    x = p["embed"][tokens].detach()
    c = functional.silu(x @ p["up"]) @ p["fixed"].detach()
    return (x + c * p["number"].detach()) @ p["head"].T


def rotate(x):
    """Rotary embedding of theta 100 in the layout of two halves."""
    half = x.shape[-1] // 2
    frequencies = 100.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * frequencies
    angles = torch.cat((angles, angles), 1)[:, None]
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * angles.cos() + turned * angles.sin()


def positions(p, tokens):
    x = p["embed"][tokens]
    q = torch.einsum("bsh,hgrd->bsgrd", x, p["q"])
    q = rotate(q.flatten(2, 3)).unflatten(2, q.shape[2:4])
    k = rotate(torch.einsum("bsh,hgd->bsgd", x, p["k"]))
    v = torch.einsum("bsh,hgd->bsgd", x, p["v"])
    scores = 0.5 * torch.einsum("bsgrd,btgd->bgrst", q, k)
    index = torch.arange(x.shape[1])
    distance = index[:, None] - index
    hidden = (distance < 0) | (distance >= 3)
    scores = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    seen = torch.einsum("bgrst,btgd->bsgrd", scores, v)
    x = x + torch.einsum("bsgrd,grdh->bsh", seen, p["o"])
    every = (0.25 * torch.einsum("bsh,bth->bst", x, x)).softmax(-1)
    return (x + every @ x + torch.tanh(x.mean(1))[:, None]) @ p["embed"].T


def sinks(p, tokens):
    x = p["embed"][tokens]
    index = torch.arange(x.shape[1])
    distance = index[:, None] - index
    for i, (window, cap) in enumerate(((3, 1.5), (x.shape[1], None))):
        q = torch.einsum("bsh,hgrd->bsgrd", x, p[f"q.{i}"])
        k = torch.einsum("bsh,hgd->bsgd", x, p[f"k.{i}"])
        v = torch.einsum("bsh,hgd->bsgd", x, p[f"v.{i}"])
        scores = 0.5 * torch.einsum("bsgrd,btgd->bgrst", q, k)
        if cap:
            scores = cap * torch.tanh(scores / cap)
        hidden = (distance < 0) | (distance >= window)
        scores = scores.masked_fill(hidden, -torch.inf)
        sink = p[f"sinks.{i}"][None, :, :, None, None]
        sink = sink.expand(*scores.shape[:-1], 1)
        weights = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
        seen = torch.einsum("bgrst,btgd->bsgrd", weights, v)
        x = x + torch.einsum("bsgrd,grdh->bsh", seen, p[f"o.{i}"])
    return x @ p["embed"].T


def shapes(p, tokens):
    x = p["embed"][tokens]
    h = torch.einsum("bsh,dgsrh->bsgrd", x, p["in"])
    y = torch.einsum("bsgrd,hgrd->bsh", h, p["out"])
    thin = y.sum(2, keepdim=True)
    n = functional.layer_norm(thin, (1,), p["scale"], p["shift"], 0.01)
    return (x + y * n.sum(1)[:, None]) @ p["embed"].T


def heads(p, tokens):
    x = p["embed"][tokens]
    for i in range(3):
        layer = {key[:-2]: p[key] for key in p if key.endswith(f".{i}")}
        root = (x.square().mean(2, keepdim=True) + 1e-5).rsqrt()
        n = x * root * layer["norm"]
        q = rotate(torch.einsum("bsh,hgrd->bsgrd", n, layer["q"]).squeeze(3))
        k = rotate(torch.einsum("bsh,hgd->bsgd", n, layer["k"]))
        v = torch.einsum("bsh,hgd->bsgd", n, layer["v"])
        scores = 0.5 * torch.einsum("bsgd,btgd->bgst", q, k)
        later = torch.ones(scores.shape[2:]).triu(1).bool()
        scores = scores.masked_fill(later, -torch.inf).softmax(-1)
        seen = torch.einsum("bgst,btgd->bsgd", scores, v)
        both = torch.einsum("bsgd,gdh->bsh", seen, layer["o"].squeeze(1))
        both = both + functional.relu(n @ layer["up"]).square() @ layer["down"]
        x = x + layer["gain"] * both
        early = x if i == 0 else early

    def compute_loss(targets):
        first, second = x @ p["embed"].T, x @ p["second"].T
        smoothed = functional.cross_entropy(
            first.flatten(0, 1), targets, label_smoothing=0.125
        )
        z = first.logsumexp(2).square().mean()
        other = functional.cross_entropy(second.flatten(0, 1), targets)
        squares = early.square().sum() / targets.numel()
        named = {"z_loss": z, "second": other, "early": squares}
        return smoothed + 0.5 * other + z / 128, named

    return compute_loss


def choose(scores, choices):
    """The ids of the highest; that no two are near each other is seen to."""
    top, ids = scores.sort(stable=True, dim=-1, descending=True)
    gap = (top[..., choices - 1] - top[..., choices]).min()
    assert gap == 0 or gap > 1e-6, f"experts with scores {gap:.2g} apart"
    return ids[..., :choices]


def experts(p, tokens):
    x = p["embed"][tokens]
    logits = x @ p["router.0"]
    scores = logits.sigmoid()
    ids = choose((scores + p["bias.0"]).detach(), 2)
    w = scores.gather(2, ids)
    w = 1.5 * w / w.sum(2, keepdim=True)
    t = torch.einsum("bsh,bschf->bscf", x, p["up.0"][ids]).tanh()
    y = torch.einsum("bscf,bschf->bsch", t, p["down.0"][ids])
    x = x + (y * w[..., None]).sum(2)
    often = functional.one_hot(ids, 5).sum((1, 2))
    balance = (often * scores.sum(1)).sum()
    z = logits.logsumexp(2).square().sum()
    logits = x @ p["router.1"].T
    ids = choose(logits.detach(), 3)
    w = logits.gather(2, ids).softmax(2)
    t = functional.silu(torch.einsum("bsh,bscfh->bscf", x, p["up.1"][ids]))
    y = torch.einsum("bscf,bscfh->bsch", t * w[..., None], p["down.1"][ids])
    x = x + y.sum(2)

    def compute_loss(targets):
        count = targets.numel()
        own = functional.cross_entropy((x @ p["embed"].T).flatten(0, 1), targets)
        named = {"balance": balance / count, "z_loss": z / count}
        return own + named["balance"] / 64 + named["z_loss"] / 128, named

    return compute_loss


def train(model, name: str, given: dict) -> list[dict]:
    shapes = models.read_parameters(name)
    p = {
        key: torch.tensor(
            given.get(key) or models.weights(key, shape), dtype=torch.float64
        )
        .reshape(shape)
        .requires_grad_()
        for key, (shape, _) in shapes.items()
    }
    recipe = models.RECIPE
    groups = [
        {"params": [p[key]], "weight_decay": recipe["weight-decay"] * decays}
        for key, (_, decays) in shapes.items()
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=recipe["lr"],
        betas=(recipe["beta1"], recipe["beta2"]),
        eps=recipe["eps"],
    )
    tokens = torch.tensor(models.tokens())
    records = []
    for step in range(recipe["steps"]):
        samples = range(step * models.BATCH, (step + 1) * models.BATCH)
        rows = torch.stack(
            [
                tokens[k * models.SEQUENCE : (k + 1) * models.SEQUENCE + 1]
                for k in samples
            ]
        )
        optimizer.zero_grad(set_to_none=True)
        targets = rows[:, 1:].flatten()
        # Logits, or what a loss of its own makes of the targets.
        made = model(p, rows[:, :-1])
        loss, named = (
            made(targets)
            if callable(made)
            else (functional.cross_entropy(made.flatten(0, 1), targets), {})
        )
        loss.backward()
        trained = [x for x in p.values() if x.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(trained, recipe["grad-clip"])
        optimizer.step()
        record = {
            "step": step + 1,
            "loss": loss.item(),
            "grad_norm": norm.item(),
        }
        if named:
            record["losses"] = {key: x.item() for key, x in named.items()}
        records.append(record)
    return records


def main() -> None:
    # An update moves equal numbers apart by less than fp32 tells: from the second
    # step on fp32 still sees ties where fp64 sees none.
    expected = {
        model.__name__: train(model, model.__name__, {})
        for model in (ties, stopped, frozen, positions, sinks, shapes, heads, experts)
    }
    for name, given in models.GIVEN.items():
        if name:
            expected[f"experts-{name}"] = train(experts, "experts", given)
    expected["ties"] = expected["ties"][:1]
    models.EXPECTED.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
