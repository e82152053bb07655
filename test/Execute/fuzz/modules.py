# ===- fuzz/modules.py - Random modules of PyTorch -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Draws language models in PyTorch as source text, in the many ways that people write
them: modules and functions, chunk, split, unbind, view, permute, einsum, buffers, writes
in place, ties, lists in lists, keyword inputs. Text, so that a failure is a file to read
and errors have lines to name."""

import random

from fuzz.module_text import HEAD, HELPERS, write_class

VOCABULARY, POSITIONS = 64, 32


class Draw:
    """The choices of one module. `kinds` says what was chosen, for counts."""

    def __init__(self, seed: str):
        self.random = random.Random(seed)
        self.kinds: list[str] = []
        self.heads = self.random.choice([1, 2, 2, 3, 4, 4])
        self.size = self.random.choice([4, 8, 8, 10, 16])
        self.hidden = self.heads * self.size

    def pick(self, what: str, *choices: str) -> str:
        chosen = self.random.choice(choices)
        self.kinds.append(f"{what}={chosen}")
        return chosen

    def chance(self, what: str, share: float = 0.5) -> bool:
        hit = self.random.random() < share
        if hit:
            self.kinds.append(what)
        return hit

    # Norms.

    def norm(self, name: str, size: str = "HIDDEN") -> tuple[list[str], str]:
        """Lines of __init__, and the function to call on a tensor."""
        kind = self.pick(
            "norm", "layer", "layer", "functional", "rms", "own-rms", "own-layer", "none",
            "unit", "l2", "no-affine",
        )
        if kind == "layer":
            bias = ", bias=False" if self.chance("norm-no-bias", 0.3) else ""
            return [f"self.{name} = nn.LayerNorm({size}{bias})"], f"self.{name}"
        if kind == "no-affine":
            made = f"nn.LayerNorm({size}, elementwise_affine=False)"
            return [f"self.{name} = {made}"], f"self.{name}"
        if kind == "rms":
            return [f"self.{name} = nn.RMSNorm({size}, eps=1e-6)"], f"self.{name}"
        if kind in ("own-rms", "own-layer", "unit"):
            made = {"own-rms": "RMSNorm", "own-layer": "OwnNorm", "unit": "UnitNorm"}[kind]
            return [f"self.{name} = {made}({size})"], f"self.{name}"
        if kind == "functional":
            lines = [
                f"self.{name}_w = nn.Parameter(torch.ones({size}))",
                f"self.{name}_b = nn.Parameter(torch.zeros({size}))",
            ]
            call = f"F.layer_norm(x, ({size},), self.{name}_w, self.{name}_b)"
            return lines, f"(lambda x: {call})"
        if kind == "l2":
            return [], "(lambda x: F.normalize(x, dim=-1) * 2.0)"
        return [], "(lambda x: 0.5 * x)"

    # Feed-forward parts.

    def activation(self) -> str:
        return self.pick(
            "act", "F.relu", "F.gelu", "F.silu", "torch.tanh", "torch.sigmoid",
            "nn.GELU('tanh')", "nn.SiLU()", "nn.Softplus()", "F.elu", "F.leaky_relu",
            "(lambda y: F.relu(y) ** 2)", "(lambda y: F.relu(y).square())", "F.mish",
            "(lambda y: y.clamp(min=0))", "(lambda y: torch.clamp_max(y, 1.0))",
            "F.hardtanh", "(lambda y: y * torch.sigmoid(1.702 * y))", "F.relu6",
            "(lambda y: torch.exp(-y * y))", "(lambda y: torch.maximum(y, 0.1 * y))",
            "F.hardswish", "F.hardsigmoid", "F.softsign", "F.selu", "F.celu",
            "F.logsigmoid", "F.tanhshrink", "torch.erf", "F.threshold_relu",
            "(lambda y: torch.where(y > 0, y, 0.2 * y))",
        ).replace("F.threshold_relu", "(lambda y: F.threshold(y, 0.0, 0.0))")

    def mlp(self) -> tuple[list[str], list[str]]:
        """Lines of __init__, and of a function of x."""
        inner = self.random.choice([self.hidden, 2 * self.hidden, 24, 36])
        act = self.activation()
        bias = self.random.choice(["", ", bias=False"])
        kind = self.pick(
            "mlp", "plain", "sequential", "glu-two", "glu-chunk", "glu-split", "glu-F",
            "parameters", "tied", "in-place", "einsum", "weight-norm", "bottleneck",
            "addmm", "slice", "baddbmm", "grouped", "scaled",
        )
        up = f"self.up = nn.Linear(HIDDEN, {inner}{bias})"
        wide = f"self.up = nn.Linear(HIDDEN, {2 * inner}{bias})"
        down = f"self.down = nn.Linear({inner}, HIDDEN{bias})"
        table = {
            "plain": ([up, down], [f"return self.down({act}(self.up(x)))"]),
            "sequential": (
                [f"self.net = nn.Sequential(nn.Linear(HIDDEN, {inner}), nn.GELU(), "
                 f"nn.Dropout(0.0), nn.Linear({inner}, HIDDEN))"],
                ["return self.net(x)"],
            ),
            "glu-two": (
                [up, f"self.gate = nn.Linear(HIDDEN, {inner}{bias})", down],
                [f"return self.down({act}(self.gate(x)) * self.up(x))"],
            ),
            "glu-chunk": (
                [wide, down],
                ["a, b = self.up(x).chunk(2, dim=-1)", f"return self.down(a * {act}(b))"],
            ),
            "glu-split": (
                [wide, down],
                [f"a, b = torch.split(self.up(x), {inner}, dim=2)",
                 f"return self.down({act}(a).mul(b))"],
            ),
            "glu-F": ([wide, down], ["return self.down(F.glu(self.up(x)))"]),
            "parameters": (
                [f"self.a = nn.Parameter(0.1 * torch.randn(HIDDEN, {inner}))",
                 f"self.b = nn.Parameter(0.1 * torch.randn({inner}, HIDDEN))"],
                [f"return {act}(x @ self.a) @ self.b"],
            ),
            "tied": ([up], [f"return F.linear({act}(self.up(x)), self.up.weight.t())"]),
            "in-place": (
                [up, down],
                ["y = self.up(x)", "y *= 0.7", "y.add_(0.1)",
                 "y[..., :2] = y[..., :2] * 1.5", f"return self.down({act}(y))"],
            ),
            "einsum": (
                [f"self.a = nn.Parameter(0.1 * torch.randn({inner}, HIDDEN))", down],
                [f"return self.down({act}(torch.einsum('bsh,fh->bsf', x, self.a)))"],
            ),
            "weight-norm": (
                [f"self.up = nn.utils.parametrizations.weight_norm(nn.Linear(HIDDEN, {inner}))",
                 down],
                [f"return self.down({act}(self.up(x)))"],
            ),
            "bottleneck": (
                ["self.low = nn.Linear(HIDDEN, 3)", "self.high = nn.Linear(3, HIDDEN)"],
                ["return self.high(self.low(x)) * 0.5"],
            ),
            "addmm": (
                [f"self.a = nn.Parameter(0.1 * torch.randn(HIDDEN, {inner}))",
                 f"self.c = nn.Parameter(torch.zeros({inner}))", down],
                ["flat = x.reshape(-1, HIDDEN)",
                 f"y = torch.addmm(self.c, flat, self.a).view(*x.shape[:-1], {inner})",
                 f"return self.down({act}(y))"],
            ),
            "slice": (
                [wide, down],
                ["y = self.up(x)",
                 f"return self.down({act}(y[..., :{inner}]) + y[..., {inner}:])"],
            ),
            "baddbmm": (
                [f"self.a = nn.Parameter(0.1 * torch.randn(HIDDEN, {inner}))", down],
                ["w = self.a.unsqueeze(0).expand(x.shape[0], -1, -1)",
                 f"return self.down({act}(torch.bmm(x, w)))"],
            ),
            "grouped": (
                ["self.a = nn.Parameter(0.2 * torch.randn(HEADS, SIZE, SIZE))"],
                ["y = x.unflatten(-1, (HEADS, SIZE))",
                 f"y = {act}(torch.einsum('bsgi,gij->bsgj', y, self.a))",
                 "return y.flatten(-2)"],
            ),
            "scaled": (
                [up, down, "self.gain = nn.Parameter(torch.tensor(0.8))"],
                [f"return torch.mul(self.down({act}(self.up(x))), self.gain)"],
            ),
        }  # fmt: skip
        return table[kind]

    # Attention.

    def projections(self) -> tuple[list[str], list[str], int]:
        """q, k and v as [batch, heads, position, size], and the heads of k and v."""
        groups = self.random.choice([x for x in range(1, self.heads + 1) if not self.heads % x])
        bias = self.random.choice(["", ", bias=False"])
        kind = self.pick(
            "qkv", "three", "chunk", "split", "unbind", "permute", "kv", "einsum", "conv1d",
            "interleaved", "narrow", "packed",
        )
        fused = [f"self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN{bias})"]
        heads = "unflatten(-1, (HEADS, SIZE)).transpose(1, 2)"
        views = [
            f"q, k, v = (t.{heads} for t in (q, k, v))",
            "q, k, v = (t.view(B, S, HEADS, SIZE).permute(0, 2, 1, 3) for t in (q, k, v))",
            "q, k, v = (t.reshape(B, S, HEADS, -1).swapaxes(1, 2) for t in (q, k, v))",
        ]
        view = self.random.choice(views)
        if kind in ("three", "kv") and groups < self.heads:
            self.kinds.append("grouped")
            init = [
                f"self.q = nn.Linear(HIDDEN, HIDDEN{bias})",
                f"self.kv = nn.Linear(HIDDEN, 2 * {groups} * SIZE{bias})",
            ]
            body = [
                f"q = self.q(x).{heads}",
                f"k, v = self.kv(x).view(B, S, 2, {groups}, SIZE).permute(2, 0, 3, 1, 4)",
            ]
            return init, body, groups
        table = {
            "three": (
                [f"self.{t} = nn.Linear(HIDDEN, HIDDEN{bias})" for t in "qkv"],
                ["q, k, v = self.q(x), self.k(x), self.v(x)", view],
            ),
            "chunk": (fused, ["q, k, v = self.qkv(x).chunk(3, dim=-1)", view]),
            "split": (fused, ["q, k, v = self.qkv(x).split(HIDDEN, dim=2)", view]),
            "unbind": (
                fused,
                ["qkv = self.qkv(x).view(B, S, 3, HEADS, SIZE)",
                 "q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))"],
            ),
            "permute": (
                fused,
                ["qkv = self.qkv(x).reshape(B, S, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)",
                 "q, k, v = qkv[0], qkv[1], qkv[2]"],
            ),
            "kv": (
                [f"self.q = nn.Linear(HIDDEN, HIDDEN{bias})",
                 f"self.kv = nn.Linear(HIDDEN, 2 * HIDDEN{bias})"],
                ["q, (k, v) = self.q(x), self.kv(x).tensor_split(2, dim=-1)", view],
            ),
            "einsum": (
                [f"self.w{t} = nn.Parameter(0.2 * torch.randn(HEADS, HIDDEN, SIZE))"
                 for t in "qkv"],
                [f"{t} = torch.einsum('bsh,nhd->bnsd', x, self.w{t})" for t in "qkv"],
            ),
            "conv1d": (
                ["self.w = nn.Parameter(0.2 * torch.randn(HIDDEN, 3 * HIDDEN))",
                 "self.b = nn.Parameter(torch.zeros(3 * HIDDEN))"],
                ["q, k, v = (x @ self.w + self.b).split([HIDDEN, HIDDEN, HIDDEN], -1)", view],
            ),
            "interleaved": (
                fused,
                ["q, k, v = self.qkv(x).view(B, S, HEADS, 3 * SIZE).transpose(1, 2)"
                 ".chunk(3, -1)"],
            ),
            "narrow": (
                fused,
                ["y = self.qkv(x)",
                 "q, k, v = (y.narrow(-1, i * HIDDEN, HIDDEN) for i in range(3))", view],
            ),
            "packed": (
                ["self.w = nn.Parameter(0.2 * torch.randn(3, HIDDEN, HIDDEN))"],
                ["q, k, v = (x @ w for w in self.w)", view],
            ),
        }  # fmt: skip
        return *table[kind], self.heads

    def rotary(self) -> tuple[list[str], list[str]]:
        kind = self.pick(
            "rope", "none", "none", "none", "halves", "chunk", "stack", "complex", "part",
            "buffer",
        )
        if kind == "none" or self.size % 4:
            return [], []
        part = "SIZE // 2" if kind == "part" else "SIZE"
        angles = [
            f"steps = torch.arange(0, {part}, 2).float() / ({part})",
            "angles = torch.outer(torch.arange(S).float(), 100.0 ** -steps)",
        ]
        if kind in ("halves", "buffer", "part"):
            init = []
            if kind == "buffer":
                init = [
                    "self.register_buffer('steps', 100.0 ** -(torch.arange(0, SIZE, 2) / SIZE))"
                ]
                angles = ["angles = torch.arange(S)[:, None] * self.steps"]
            lines = [
                *angles,
                "angles = torch.cat((angles, angles), dim=-1)",
                "cos, sin = angles.cos(), angles.sin()",
            ]
            if kind == "part":
                lines += [
                    f"q, k = (torch.cat((t[..., :{part}] * cos + turn(t[..., :{part}]) * sin,"
                    f" t[..., {part}:]), -1) for t in (q, k))"
                ]
            else:
                lines += ["q, k = (t * cos + turn(t) * sin for t in (q, k))"]
            return init, lines
        return [], [
            *angles,
            {
                "chunk": "q, k = (rotate(t, angles.cos(), angles.sin()) for t in (q, k))",
                "stack": "q, k = (rotate_pairs(t, angles) for t in (q, k))",
                "complex": "q, k = (rotate_complex(t, angles) for t in (q, k))",
            }[kind],
        ]

    def scores(self) -> tuple[list[str], list[str]]:
        """From q, k and v to `seen`, as [batch, heads, position, size]."""
        kind = self.pick(
            "attend", "sdpa", "sdpa", "sdpa-mask", "sdpa-bias", "sdpa-full", "fill", "where",
            "triu", "full", "window", "both", "alibi", "relative", "capped", "bmm", "exp",
            "sink", "temperature", "minimum",
        )  # fmt: skip
        if kind.startswith("sdpa"):
            mask = {
                "sdpa": "is_causal=True",
                "sdpa-full": "",
                "sdpa-mask": "attn_mask=torch.ones(S, S).tril().bool()",
                "sdpa-bias": "attn_mask=torch.full((S, S), -torch.inf).triu(1)",
            }[kind]
            extra = self.random.choice(["", ", scale=0.3"])
            words = ", ".join(x for x in (mask, extra[2:]) if x)
            words = f", {words}" if words else ""
            return [], [f"seen = F.scaled_dot_product_attention(q, k, v{words})"]
        score = self.random.choice(
            [
                "w = q @ k.transpose(-2, -1) / math.sqrt(SIZE)",
                "w = torch.matmul(q * SIZE**-0.5, k.mT)",
                "w = torch.einsum('bnid,bnjd->bnij', q, k) * SIZE**-0.5",
            ]
        )
        soft = self.random.choice(
            ["w = F.softmax(w, dim=-1)", "w = w.softmax(-1)", "w = nn.Softmax(-1)(w)"]
        )
        out = self.random.choice(
            ["seen = w @ v", "seen = torch.einsum('bnij,bnjd->bnid', w, v)",
             "seen = torch.matmul(w, v)"]
        )  # fmt: skip
        row = ["i = torch.arange(S, device=x.device)", "d = i[:, None] - i[None, :]"]
        buffer = [
            "self.register_buffer('mask', torch.tril(torch.ones(POSITIONS, POSITIONS))"
            ".view(1, 1, POSITIONS, POSITIONS), persistent=False)"
        ]
        causal = "w = w.masked_fill(d < 0, float('-inf'))"
        table = {
            "fill": (
                buffer,
                ["w = w.masked_fill(self.mask[:, :, :S, :S] == 0, float('-inf'))"],
            ),
            "where": ([], [*row, "w = torch.where(d >= 0, w, torch.finfo(w.dtype).min)"]),
            "triu": ([], ["w = w + torch.triu(torch.full((S, S), -1e9), diagonal=1)"]),
            "full": ([], []),
            "window": ([], [*row, "w = w.masked_fill((d < 0) | (d >= 3), -torch.inf)"]),
            "both": ([], [*row, "w = w.masked_fill(d.abs() > 2, -torch.inf)"]),
            "alibi": (
                ["self.register_buffer('slopes', 2.0 ** -torch.arange(1, HEADS + 1))"],
                [*row, "w = w - d.abs() * self.slopes[:, None, None]", causal],
            ),
            "relative": (
                ["self.bias = nn.Embedding(2 * POSITIONS - 1, HEADS)"],
                [*row, "w = w + self.bias(d + POSITIONS - 1).permute(2, 0, 1)", causal],
            ),
            "capped": ([], [*row, "w = 5.0 * torch.tanh(w / 5.0)", causal]),
            "bmm": ([], []),
            "exp": ([], [*row, causal]),
            "sink": (["self.sink = nn.Parameter(torch.zeros(HEADS))"], [*row, causal]),
            "temperature": (
                ["self.log_t = nn.Parameter(torch.zeros(HEADS, 1, 1))"],
                [*row, "w = w * self.log_t.exp()", causal],
            ),
            "minimum": (
                [],
                [*row, "w = w + (1.0 - (d >= 0).float()) * torch.finfo(torch.float32).min"],
            ),
        }  # fmt: skip
        init, lines = table[kind]
        if kind == "bmm":
            return init, [
                "a, c, e = (t.reshape(B * HEADS, S, SIZE) for t in (q, k, v))",
                "w = torch.bmm(a, c.transpose(1, 2)) * SIZE**-0.5",
                "w = w + torch.full((S, S), -torch.inf).triu(1)",
                "seen = torch.bmm(w.softmax(-1), e).view(B, HEADS, S, SIZE)",
            ]
        if kind == "exp":
            soft = "w = torch.exp(w - torch.logsumexp(w, -1, keepdim=True))"
            if self.chance("exp-by-hand"):
                soft = "w = torch.exp(w - w.amax(-1, keepdim=True)); w = w / w.sum(-1, True)"
        if kind == "sink":
            soft = (
                "w = torch.cat((w, self.sink.view(1, -1, 1, 1).expand(B, -1, S, 1)), -1)"
                ".softmax(-1)[..., :-1]"
            )
        return init, [score, *lines, soft, out]

    def attention(self) -> tuple[list[str], list[str]]:
        init, body, groups = self.projections()
        init, body = list(init), ["B, S, _ = x.shape", *body]
        if self.chance("qk-norm", 0.25):
            lines, call = self.norm("qk_norm", "SIZE")
            init += lines
            body.append(f"q, k = {call}(q), {call}(k)")
        lines, turned = self.rotary()
        init += lines
        body += turned
        if groups != self.heads:
            shared = self.heads // groups
            body.append(
                self.random.choice(
                    [
                        f"k, v = (t.repeat_interleave({shared}, dim=1) for t in (k, v))",
                        f"k, v = (t[:, :, None].expand(B, {groups}, {shared}, S, SIZE)"
                        ".reshape(B, HEADS, S, SIZE) for t in (k, v))",
                    ]
                )
            )
        lines, seen = self.scores()
        init += [*lines, "self.out = nn.Linear(HIDDEN, HIDDEN)"]
        body += seen
        if self.chance("gated-heads", 0.2):
            init.append("self.head_gate = nn.Linear(HIDDEN, HEADS)")
            body.append("seen = seen * self.head_gate(x).sigmoid().transpose(1, 2)[..., None]")
        body.append(
            self.random.choice(
                [
                    "return self.out(seen.transpose(1, 2).reshape(B, S, HIDDEN))",
                    "return self.out(seen.transpose(1, 2).contiguous().view(B, S, -1))",
                    "return self.out(seen.permute(0, 2, 1, 3).flatten(2))",
                ]
            )
        )
        return init, body

    # Blocks.

    def part(self, name: str, drawn) -> str:
        init, body = drawn
        return write_class(name, "nn.Module", init, "x", body)

    def block(self, name: str) -> str:
        """Classes of a block and its parts."""
        text = self.part(f"{name}Mixer", self.attention())
        text += self.part(f"{name}Mlp", self.mlp())
        first, f = self.norm("first")
        second, g = self.norm("second")
        init = [
            *first, *second, f"self.mixer = {name}Mixer()", f"self.mlp = {name}Mlp()",
        ]  # fmt: skip
        kind = self.pick(
            "block", "pre", "pre", "post", "parallel", "sandwich", "gated", "scaled",
            "mlp-only", "shift", "hyper",
        )
        bodies = {
            "pre": [f"x = x + self.mixer({f}(x))", f"return x + self.mlp({g}(x))"],
            "post": [f"x = {f}(x + self.mixer(x))", f"return {g}(x + self.mlp(x))"],
            "parallel": [f"y = {f}(x)", "return x + self.mixer(y) + self.mlp(y)"],
            "sandwich": [
                f"x = x + {f}(self.mixer({f}(x)))", f"return x + {g}(self.mlp({g}(x)))",
            ],
            "gated": [
                f"x = x + torch.sigmoid(self.gate) * self.mixer({f}(x))",
                f"return torch.lerp(x, self.mlp({g}(x)), self.amount)",
            ],
            "scaled": [
                f"x = torch.add(x, self.mixer({f}(x)), alpha=0.5)",
                f"return (x + self.mlp({g}(x))) / math.sqrt(2)",
            ],
            "mlp-only": [f"return x + self.mlp({f}(x)) - 0.1 * self.mixer({g}(x))"],
            "shift": [
                "before = F.pad(x, (0, 0, 1, -1))",
                f"x = x + self.mixer({f}(x + self.mix * (before - x)))",
                f"return x + self.mlp({g}(x))",
            ],
            "hyper": [
                "a, b = x.unflatten(-1, (2, -1)).unbind(-2) if HIDDEN % 2 == 0 else (x, x)",
                "y = torch.cat((b, a), -1) if HIDDEN % 2 == 0 else x",
                f"x = x + self.mixer({f}(y))",
                f"return x + self.mlp({g}(x))",
            ],
        }  # fmt: skip
        if kind == "gated":
            init += [
                "self.gate = nn.Parameter(torch.zeros(HIDDEN))",
                "self.amount = nn.Parameter(torch.tensor(0.3))",
            ]
        if kind == "shift":
            init.append("self.mix = nn.Parameter(torch.full((1, 1, HIDDEN), 0.5))")
        return text + write_class(name, "nn.Module", init, "x", bodies[kind])

    # Models.

    def model(self) -> tuple[str, dict]:
        """Text of a file with a function `build`, and what from_torch is told."""
        blocks = ["First"] + (["Second"] if self.chance("two-kinds", 0.25) else [])
        text = HEAD.format(
            vocabulary=VOCABULARY, positions=POSITIONS, hidden=self.hidden,
            heads=self.heads, size=self.size,
        )  # fmt: skip
        text += HELPERS + "".join(self.block(name) for name in blocks)
        init = ["self.embed = nn.Embedding(VOCABULARY, HIDDEN)"]
        body = ["x = self.embed(ids)"]
        self._positions(init, body)
        self._layers(init, body, blocks)
        lines, call = self.norm("last")
        init += lines
        body.append(f"x = {call}(x)")
        told = self._end(init, body)
        arguments = {"keyword": "*, ids, scale=1.0", "loss": "ids, labels=None"}
        given = arguments.get(told.pop("call", ""), "ids")
        text += write_class("Model", "nn.Module", init, given, body)
        text += "\n\ndef build():\n    return Model()\n"
        return text, told

    def _positions(self, init: list[str], body: list[str]) -> None:
        kind = self.pick("positions", "none", "learned", "slice", "sines", "scaled", "buffer")
        if kind == "learned":
            init.append("self.place = nn.Embedding(POSITIONS, HIDDEN)")
            body.append("x = x + self.place(torch.arange(ids.shape[1], device=ids.device))")
        elif kind == "slice":
            init.append("self.place = nn.Parameter(0.1 * torch.randn(1, POSITIONS, HIDDEN))")
            body.append("x = x + self.place[:, : ids.size(1)]")
        elif kind == "sines":
            body.append("x = x * math.sqrt(HIDDEN) + sines(ids.shape[1])")
        elif kind == "buffer":
            init.append("self.register_buffer('index', torch.arange(POSITIONS)[None])")
            init.append("self.place = nn.Embedding(POSITIONS, HIDDEN)")
            body.append("x += self.place(self.index[:, : ids.shape[1]])")
        elif kind == "scaled":
            body.append("x = x * 3.0")

    def _layers(self, init: list[str], body: list[str], blocks: list[str]) -> None:
        kind = self.pick("layers", "list", "list", "sequential", "nested", "shared", "names",
                         "enumerate", "dict")  # fmt: skip
        count = self.random.choice([1, 2, 2, 3])
        made = [f"{blocks[i % len(blocks)]}()" for i in range(count)]
        every = ", ".join(made)
        if kind == "list":
            init.append(f"self.blocks = nn.ModuleList([{every}])")
            body += ["for block in self.blocks:", "    x = block(x)"]
        elif kind == "enumerate":
            init.append(f"self.blocks = nn.ModuleList([{every}])")
            init.append(f"self.gains = nn.ParameterList([torch.ones(1) for _ in range({count})])")
            body += [
                "for i, block in enumerate(self.blocks):",
                "    x = x + self.gains[i] * block(x)",
            ]
        elif kind == "sequential":
            init.append(f"self.blocks = nn.Sequential({every})")
            body.append("x = self.blocks(x)")
        elif kind == "nested":
            init.append(
                f"self.groups = nn.ModuleList([nn.ModuleList([{every}]), "
                f"nn.ModuleList([{made[0]}])])"
            )
            body += [
                "for group in self.groups:", "    for block in group:", "        x = block(x)",
            ]  # fmt: skip
        elif kind == "shared":
            init.append(f"self.block = {made[0]}")
            body += [f"for _ in range({count}):", "    x = self.block(x)"]
        elif kind == "dict":
            words = ", ".join(f"'layer_{i}': {x}" for i, x in enumerate(made))
            init.append(f"self.blocks = nn.ModuleDict({{{words}}})")
            body += ["for block in self.blocks.values():", "    x = block(x)"]
        else:
            for i, one in enumerate(made):
                init.append(f"self.h{i} = {one}")
                body.append(f"x = self.h{i}(x)")

    def _end(self, init: list[str], body: list[str]) -> dict:
        head = self.pick("head", "linear", "bias", "tied", "tied-F", "transposed", "capped",
                         "two", "low-rank")  # fmt: skip
        init.append("nn.init.normal_(self.embed.weight, std=0.1)")
        linear = "self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)"
        call = {
            "linear": "self.head(x)",
            "bias": "self.head(x)",
            "tied": "self.head(x)",
            "tied-F": "F.linear(x, self.embed.weight)",
            "transposed": "x @ self.embed.weight.T",
            "capped": "4 * torch.tanh(self.head(x) / 4)",
            "two": "(self.head(x) + self.other(x)) / 2",
            "low-rank": "self.head(self.low(x))",
        }[head]
        if head in ("linear", "tied", "capped", "two"):
            init.append(linear)
        if head == "bias":
            init.append("self.head = nn.Linear(HIDDEN, VOCABULARY)")
        if head == "tied":
            init.append("self.head.weight = self.embed.weight")
        if head == "two":
            init.append("self.other = nn.Linear(HIDDEN, VOCABULARY)")
        if head == "low-rank":
            init += ["self.low = nn.Linear(HIDDEN, 5)",
                     "self.head = nn.Linear(5, VOCABULARY)"]  # fmt: skip
        result = self.pick("result", "logits", "logits", "tuple", "dict", "keyword", "loss")
        if result == "tuple":
            body.append(f"return {call}, None")
        elif result == "dict":
            body.append(f"return {{'logits': {call}, 'hidden': x}}")
        elif result == "keyword":
            body.append(f"return {call} * scale")
            return {"tokens": "ids", "call": "keyword"}
        elif result == "loss":
            body += [
                f"logits = {call}", "if labels is None:", "    return logits",
                "return F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1)), logits",
            ]  # fmt: skip
            return {"targets": "labels", "call": "loss"}
        else:
            body.append(f"return {call}")
        return {}
