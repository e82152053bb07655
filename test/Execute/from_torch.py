#!/usr/bin/env python3
# ===- from_torch.py - PyTorch's modules against PyTorch -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Takes modules through plait.from_torch, trains them with AdamW for five steps over
meshes, and in PyTorch: loss and gradient norm of every step and all weights at the end
agree. Those of transformers that plaitc imports from config.json have the losses of
that import. What cannot be expressed ends in an error with its line of Python.

Needs PyTorch 2.6 or newer, safetensors, and for families of models transformers: of the
interpreter that runs this, of the one that PLAIT_TORCH names, or of
build/venv-torch. Without, it says so, and counts as one case that cannot run here.
By default a few models are trained, with --all each."""

import contextlib
import fnmatch
import functools
import inspect
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from harness import (
    ROOT,
    TORCH,
    Failure,
    Reporter,
    Skipped,
    Tools,
    arguments,
    require,
    write_tokens,
)

sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "golden")]

BATCH, SEQUENCE, STEPS, VOCABULARY = 4, 16, 5, 64
# Far above the noise of gradients that are zero by theory, as those of the biases of
# keys, which AdamW would make updates of.
RECIPE = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-5, "weight-decay": 0.1}
# With torch.optim.Muon for matrices, its iterations in fp32 as plait has them, or in
# bf16 as PyTorch does.
MUON_RECIPE = RECIPE | {"lr": 0.02, "momentum": 0.95, "adamw-lr-factor": 0.05}
MUON_CASES = [
    ("muon", "qwen3", mesh)
    for mesh in (
        "pp=1", "tp=2", "pp=2", "dp=2", "dp=2 --zero 1", "dp=2 --zero 2",
        "dp=2 --zero 3", "cp=2",
    )
] + [("muon", "gpt2", "tp=2"), ("muon-bf16", "qwen3", "pp=1")]
# An optimizer for each group, of which the last that matches a name counts.
GROUPS = {
    "*_proj.weight": "muon", "*v_proj.weight": "adamw", "*norm*": "lion", "*embed*": "sgd",
}
GROUP_RECIPE = RECIPE | {
    "muon-lr-factor": 20, "muon-weight-decay": 0.05, "lion-lr-factor": 0.3,
    "lion-beta2": 0.99, "sgd-lr-factor": 10, "sgd-beta1": 0.8,
}
GROUP_CASES = [("groups", "qwen3", mesh) for _, _, mesh in MUON_CASES[:8]]
CLIP = 1.0
# Both are in fp32 with sums in another order. The farthest of all runs were off by
# 2.3e-7, 1.2e-5 and 1.9e-6. The last two are Gemma 3 on cp=2, where gradients of the
# first step are as near to those in float64 as PyTorch's: the worst parameter is off by
# 3.0e-7 of the norm, PyTorch's by 3.4e-7. AdamW divides by |g| + 1e-5, so that roundings
# of 2e-8 in one element of a projection of values, which has next to no gradient, move it
# by 1.9e-6; the norm of step 4 follows with 1.0e-5 from float64. On one rank it stays
# within 1.0e-6, PyTorch's within 2.2e-6, and within 4.1e-6 where weights are changed by
# an ulp.
TOLERANCE = {"loss": 1e-6, "grad_norm": 2e-5}
WEIGHTS = 1e-5
# Five updates of a matrix of lr times what is off by up to 485 roundings (optimizers.py),
# and with iterations in bf16 by up to 1 / 4: they are bent apart by singular values that
# bf16 cannot tell from each other.
MUON_WEIGHTS = {"muon": 5 * 0.02 * 485 * 2**-23, "muon-bf16": 5 * 0.02 / 4}
MUON_WEIGHTS["groups"] = MUON_WEIGHTS["muon"]
MUON_TOLERANCE = {
    "muon": {"loss": 1e-5, "grad_norm": 1e-4},
    "groups": {"loss": 1e-5, "grad_norm": 1e-4},
    "muon-bf16": {"loss": 1e-2, "grad_norm": 5e-2},
}
# Of losses of about 4, in the seven digits that a log has.
SAME = 1e-6
ONE = ("pp=1",)
SPLIT = ("pp=2,tp=2",)
MORE = ("cp=2", "pp=2,dp=2 --zero 3", "dp=2,cp=2 --schedule zb-h1")
# Meshes that a model does not have: heads that tp does not divide, one layer for pp.
WITHOUT = {
    "one-layer": "pp=2",
    "functions": "pp=2",
    "zeros": "pp=2",
    "padded": "pp=2",
    "odd-heads": "tp=2",
    "one-head": "tp=2",
}
FEW = {"gpt2": ONE + SPLIT, "qwen3": SPLIT, "parallel": SPLIT, "different": SPLIT}
FEW |= {"zeros": ONE, "corners": SPLIT}


def find_torch() -> str | None:
    """None if this interpreter has it; else what another is, or why there is none."""
    try:
        import torch

        version = tuple(int(x) for x in torch.__version__.split(".")[:2])
        if version >= (2, 6):
            return None
        reason = f"PyTorch is {torch.__version__}"
    except ImportError:
        reason = "there is no PyTorch"
    for python in TORCH:
        if os.environ.get("PLAIT_TORCH_TRIED") == str(python):
            continue
        os.environ["PLAIT_TORCH_TRIED"] = str(python)
        os.execv(python, [str(python), *sys.argv])
    return f"{reason}, expected 2.6 or newer; PLAIT_TORCH may name an interpreter"


class Suite:
    """What is made once of a model: the export, and PyTorch's own training."""

    def __init__(self, tools: Tools, folder: pathlib.Path):
        from torch_models import corners, custom

        custom.MODELS |= corners.MODELS
        self.tools = tools
        self.folder = folder
        self.custom = custom
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 5, STEPS * BATCH * SEQUENCE + 1, VOCABULARY)

    def make(self, name: str):
        import torch

        torch.manual_seed(7)
        if name in self.custom.MODELS:
            return self.custom.MODELS[name]()
        from torch_models import families

        return families.make(name)

    @functools.cache
    def export(self, name: str):
        import plait

        named = self.custom.NAMED.get(name, {})
        module = self.make(name)
        model = plait.from_torch(module, batch=BATCH, seq=SEQUENCE, **named)
        model.save(self.folder / name)
        return model

    @functools.cache
    def train_there(self, name: str, kind: str = "adamw"):
        """Records of the steps, and the module as it is then."""
        import torch
        from plait.frontend.export import cross_entropy

        named = self.custom.NAMED.get(name, {})
        module, loss_of = self.make(name), named.get("loss", cross_entropy)
        ids = torch.frombuffer(bytearray(self.tokens.read_bytes()), dtype=torch.int16)
        optimizers = self.optimizers(module, kind)
        records = []
        for step in range(STEPS):
            rows = torch.stack(
                [
                    ids[k * SEQUENCE : (k + 1) * SEQUENCE + 1].long()
                    for k in range(step * BATCH, (step + 1) * BATCH)
                ]
            )
            argument = {named["tokens"]: rows[:, :-1]} if "tokens" in named else {}
            output = module(**argument) if argument else module(rows[:, :-1])
            loss = loss_of(output, rows[:, 1:])
            module.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            with iterations(kind):
                for optimizer in optimizers:
                    optimizer.step()
            record = {"loss": loss.item(), "grad_norm": norm.item()}
            records.append({"step": step + 1, **record})
        return records, module

    def optimizers(self, module, kind: str):
        """Decay of what has more than one dimension. Muon of the weights of all linear
        layers but the head; GPT-2's have inputs as rows."""
        import torch

        matrices = {
            m.weight: type(m).__name__ == "Conv1D"
            for name, m in module.named_modules()
            if type(m).__name__ in ("Linear", "Conv1D") and "head" not in name
        }
        if kind == "adamw":
            return [adamw(module.parameters(), RECIPE, 1)]
        if kind == "groups":
            return group_optimizers(module)
        rest = [p for p in module.parameters() if p not in matrices]
        recipe = MUON_RECIPE
        found = [adamw(rest, recipe, recipe["adamw-lr-factor"])]
        options = {
            "weight_decay": recipe["weight-decay"],
            "momentum": recipe["momentum"],
        }
        for weight, is_transposed in matrices.items():
            # torch.optim.Muon takes rows for outputs.
            shape = weight.shape[::-1] if is_transposed else weight.shape
            wanted = max(1, shape[0] / shape[1]) ** 0.5
            own = max(1, weight.shape[0] / weight.shape[1]) ** 0.5
            rate = recipe["lr"] * wanted / own
            options["weight_decay"] = recipe["weight-decay"] * own / wanted
            found.append(torch.optim.Muon([weight], lr=rate, **options))
        return found

    def train_here(
        self, model, weights, mesh: str, out: pathlib.Path, kind: str = "adamw"
    ) -> list[dict]:
        import compare

        recipe = {"adamw": RECIPE, "groups": GROUP_RECIPE}.get(kind, MUON_RECIPE)
        optimizer = kind.split("-")[0]
        if kind == "groups":
            optimizer = "adamw"
            mesh += "".join(f" --optimizer-of {x}={own}" for x, own in GROUPS.items())
        mesh, *options = mesh.split()
        replicas = re.search(r"dp=(\d+)", mesh)
        self.tools.run(
            "plaitc",
            model,
            *("--mesh", mesh, *options),
            *("--global-batch", BATCH, "--seq", SEQUENCE),
            *("--micro-batch", BATCH // (int(replicas[1]) if replicas else 1)),
            *("--optimizer", optimizer, "-o", out / "a.plan"),
        )
        self.tools.run(
            "plait-run",
            out / "a.plan",
            *("--tokens", self.tokens, "--weights", weights, "--steps", STEPS),
            *(word for key, value in recipe.items() for word in (f"--{key}", value)),
            *("--grad-clip", CLIP, "--log", out / "a.jsonl", "--save", out / "saved"),
        )
        return compare.read_steps(str(out / "a.jsonl"))

    def check(self, name: str, mesh: str, kind: str = "adamw") -> str:
        import compare

        tolerance = MUON_TOLERANCE.get(kind, TOLERANCE)
        bounds = tolerance | {"weights": MUON_WEIGHTS.get(kind, WEIGHTS)}
        self.export(name)
        expected, module = self.train_there(name, kind)
        folder = self.folder / name
        with tempfile.TemporaryDirectory() as out:
            out = pathlib.Path(out)
            weights = folder / "model.safetensors"
            steps = self.train_here(folder / "model.mlir", weights, mesh, out, kind)
            rows = compare.differences(expected, steps)
            off = {key: max(row[key] for row in rows) for key in TOLERANCE}
            off["weights"] = compare_weights(module, weights, out / "saved")
        remark = ", ".join(f"{key} off {value:.1e}" for key, value in off.items())
        for key, bound in bounds.items():
            require(off[key] <= bound, f"{key} differs: {remark}")
        return remark

    def check_import(self, name: str) -> str:
        """The losses of the model that plaitc imports from its config.json."""
        self.export(name)
        with tempfile.TemporaryDirectory() as out:
            out = pathlib.Path(out)
            made = out / "made"
            self.make(name).save_pretrained(made)
            found = self.train_here(made, made, "pp=1", out)
            own = out / "own"
            own.mkdir()
            folder = self.folder / name
            model, weights = folder / "model.mlir", folder / "model.safetensors"
            steps = self.train_here(model, weights, "pp=1", own)
        worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(steps, found))
        require(worst <= SAME, f"losses differ by {worst:.1e} from those of the import")
        return f"loss off {worst:.1e}"


def split(parameters, decay: float) -> list[dict]:
    """Groups of what decays and of what does not."""
    parameters = list(parameters)
    return [
        {
            "params": [p for p in parameters if (p.dim() > 1) == decays],
            "weight_decay": decay * decays,
        }
        for decays in (True, False)
    ]


def adamw(parameters, recipe, factor):
    import torch

    return torch.optim.AdamW(
        split(parameters, recipe["weight-decay"]),
        lr=recipe["lr"] * factor,
        betas=(recipe["beta1"], recipe["beta2"]),
        eps=recipe["eps"],
    )


def group_optimizers(module):
    """An optimizer of each group of GROUPS, and AdamW of what is in none."""
    import torch
    from torch_lion import Lion

    recipe, of = GROUP_RECIPE, {"adamw": [], "muon": [], "lion": [], "sgd": []}
    for name, parameter in module.named_parameters():
        found = [own for x, own in GROUPS.items() if fnmatch.fnmatch(name, x)]
        of[found[-1] if found else "adamw"].append(parameter)
    rates = {x: recipe["lr"] * recipe.get(f"{x}-lr-factor", 1) for x in of}
    decay = recipe["weight-decay"]
    found = [
        adamw(of["adamw"], recipe, 1),
        torch.optim.Muon(
            of["muon"], lr=rates["muon"], momentum=0.95,
            weight_decay=recipe["muon-weight-decay"],
        ),
        Lion(
            split(of["lion"], decay), (recipe["beta1"], recipe["lion-beta2"]),
            lr=rates["lion"],
        ),
        torch.optim.SGD(
            split(of["sgd"], decay), rates["sgd"], momentum=recipe["sgd-beta1"]
        ),
    ]
    require(all(of.values()), "a group has no parameter")
    return found


@contextlib.contextmanager
def iterations(kind: str):
    """Newton-Schulz iterations of torch.optim.Muon in fp32."""
    if kind not in ("muon", "groups"):
        yield
        return
    from torch.optim import _muon

    def orthogonalize(x, coefficients, steps, least):
        if x.shape[0] > x.shape[1]:
            return orthogonalize(x.T, coefficients, steps, least).T
        a, b, c = coefficients
        x = x / x.norm().clamp(min=least)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x

    own = _muon._zeropower_via_newtonschulz
    _muon._zeropower_via_newtonschulz = orthogonalize
    try:
        yield
    finally:
        _muon._zeropower_via_newtonschulz = own


def compare_weights(module, given: pathlib.Path, saved: pathlib.Path) -> float:
    """The largest difference. What is saved has all that was given."""
    from safetensors.torch import load_file

    found, before = load_file(saved / "model.safetensors"), load_file(given)
    names = set(before)
    require(set(found) == names, f"saved is {sorted(names ^ set(found))} more or less")
    own = dict(module.named_parameters(remove_duplicate=False))
    own |= dict(module.named_buffers())
    worst = 0.0
    for name in names & set(own):
        there = own[name].detach()
        here, start = (x[name].reshape(there.shape) for x in (found, before))
        off = (here - there).abs()
        if own[name].grad is not None:
            # What the loss does not depend on stays here, and decays in PyTorch.
            off[(here == start) & (own[name].grad == 0)] = 0
        worst = max(worst, float(off.max()))
    return worst


def check_refused(name: str) -> str:
    """An error of the package, at the line that the model marks."""
    import plait
    import torch
    from torch_models import refused

    kind, named, words = refused.CASES[name]
    lines, begin = inspect.getsourcelines(kind)
    marked = [begin + i for i, line in enumerate(lines) if f"the line of {name}" in line]
    try:
        plait.from_torch(kind(), batch=2, seq=8, **named)
    except plait.Error as error:
        text = str(error)
        require(words in text, f"'{text}' does not say '{words}'")
        # Older versions tell the line of the nearest `forward`.
        exact = hasattr(torch.fx.proxy.TracerBase, "_filter_traceback_frames")
        place = f"refused.py:{marked[0] if exact else ''}" if marked else ""
        require(place in text, f"'{text}' does not name {place}")
        require("\n" not in text, "several lines")
        return text
    raise Failure("was not refused")


def check_storage(suite: Suite) -> str:
    """Without storage, and in bf16, a module is the same model. Ties are found, and
    written once."""
    import plait
    import torch

    def body(module, **named):
        text = plait.from_torch(module, batch=2, seq=8, **named).text
        return re.sub(r"init<[^>]*>", "", text)

    expected = body(suite.make("parallel"))
    with plait.no_weights():
        bare = suite.make("parallel")
    # no_weights gives every parameter storage of its own, so ties are made again.
    bare.head.weight = bare.embed.weight
    require(all(p.is_meta for p in bare.parameters()), "parameters have storage")
    require(body(bare) == expected, "another model without storage")
    require(body(suite.make("parallel").bfloat16()) == expected, "another model in bf16")
    module = suite.make("parallel")
    plait.from_torch(module.to(torch.bfloat16), batch=2, seq=8).save(suite.folder / "bf16")
    from safetensors.torch import load_file

    saved = load_file(suite.folder / "bf16" / "model.safetensors")
    require("head.weight" not in saved, "a tied weight is there twice")
    require(all(x.dtype == torch.bfloat16 for x in saved.values()), "another type")
    return f"{len(saved)} tensors"


def check_command(suite: Suite) -> str:
    """python -m plait writes what from_torch does."""
    file = pathlib.Path(suite.custom.__file__)
    out = suite.folder / "command"
    command = (sys.executable, "-m", "plait", "from-torch")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}

    def run(*words):
        return subprocess.run(
            (*command, *map(str, words)),
            capture_output=True,
            text=True,
            env=environment,
            timeout=suite.tools.timeout,
        )

    done = run(f"{file}:Functional", "--out", out, "--batch", BATCH, "--seq", SEQUENCE)
    require(done.returncode == 0, done.stderr)
    require((out / "model.safetensors").is_file(), "no weights")
    done = run(f"{file}:Nothing", "--out", out)
    require(done.returncode == 1, f"ended with {done.returncode}")
    require("has no function 'Nothing'" in done.stderr, done.stderr)
    return done.stderr.strip()


def check_dropout(suite: Suite) -> str:
    """In training mode dropout is drawn, with masks that do not depend on the mesh; in
    evaluation mode there is none."""
    import plait
    from torch import nn

    class Dropping(suite.custom.Functional):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.25)

        def forward(self, tokens):
            return self.dropout(super().forward(tokens))

    model = plait.from_torch(Dropping(), batch=BATCH, seq=SEQUENCE)
    folder = model.save(suite.folder / "dropout")
    require("probability 0.25 site 0" in model.text, "no dropout")
    without = plait.from_torch(Dropping().eval(), batch=BATCH, seq=SEQUENCE)
    require("dropout" not in without.text, "dropout in evaluation mode")
    losses = []
    for mesh in ("pp=1", "pp=2,tp=2"):
        with tempfile.TemporaryDirectory() as out:
            weights = folder / "model.safetensors"
            steps = suite.train_here(
                folder / "model.mlir", weights, mesh, pathlib.Path(out)
            )
        losses.append([record["loss"] for record in steps])
    worst = max(abs(a - b) / b for a, b in zip(*losses))
    require(worst <= TOLERANCE["loss"], f"losses differ by {worst:.1e} over meshes")
    return f"off {worst:.1e} over meshes"


def check_saved(suite: Suite) -> str:
    """transformers opens what plait-run saves, also where a fused projection was seen in
    factors of its dimensions, and computes the same with it."""
    import torch
    from transformers import AutoModelForCausalLM

    name = "gpt-neox"
    model = suite.export(name)
    require("shapes = {" in model.text, "no tensor is seen in factors")
    folder = suite.folder / name
    with tempfile.TemporaryDirectory() as out:
        out = pathlib.Path(out)
        weights = folder / "model.safetensors"
        suite.train_here(folder / "model.mlir", weights, "pp=2", out)
        opened, told = AutoModelForCausalLM.from_pretrained(
            out / "saved", output_loading_info=True
        )
    require(not told["mismatched_keys"], f"other shapes: {told['mismatched_keys']}")
    require(not told["missing_keys"], f"missing are {told['missing_keys']}")
    trained = suite.train_there(name)[1]
    rows = torch.arange(2 * SEQUENCE).view(2, SEQUENCE) % VOCABULARY
    with torch.no_grad():
        off = float((opened(rows).logits - trained(rows).logits).abs().max())
    require(off <= WEIGHTS * 10, f"logits are off by {off:.1e}")
    return f"logits off {off:.1e}"


def training_cases(suite: Suite, every: bool):
    from torch_models import families

    if not every:
        return [(name, mesh) for name, meshes in FEW.items() for mesh in meshes]
    names = [x for x in families.FAMILIES if x != "mixtral"] + list(suite.custom.MODELS)
    cases = []
    for i, name in enumerate(names):
        without = WITHOUT.get(name, "none")
        meshes = [m for m in ONE + SPLIT if without not in m]
        cases += [(name, mesh) for mesh in meshes]
        mesh = MORE[i % len(MORE)]
        if without not in mesh:
            cases.append((name, mesh))
    return cases


def spell(mesh: str) -> str:
    """A mesh and options, as a part of a case's name."""
    return mesh.replace(" --", "/").replace(" ", "=")


def run_cases(suite: Suite, report: Reporter, every: bool) -> None:
    from torch_models import families, refused

    for name in refused.CASES:
        report.case(f"refused/{name}", lambda name=name: check_refused(name))
    report.case("storage", lambda: check_storage(suite))
    report.case("dropout", lambda: check_dropout(suite))
    report.case("command", lambda: check_command(suite))
    report.case("saved", lambda: check_saved(suite))
    for name, mesh in training_cases(suite, every):
        label = f"{name}/{spell(mesh)}"
        report.case(label, lambda name=name, mesh=mesh: suite.check(name, mesh))
    cases = MUON_CASES + GROUP_CASES if every else MUON_CASES[1::3] + GROUP_CASES[::3]
    for kind, name, mesh in cases:
        label = f"{kind}/{name}/{spell(mesh)}"
        report.case(label, lambda n=name, m=mesh, k=kind: suite.check(n, m, k))
    for name in families.IMPORTED if every else ():
        report.case(f"import/{name}", lambda name=name: suite.check_import(name))


def lacks_torch(report: Reporter) -> bool:
    """Whether there is no PyTorch, which `report` is then told."""
    missing = find_torch()

    def skip():
        raise Skipped(missing)

    if missing:
        report.case("unsupported", skip)
    return bool(missing)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--all", action="store_true", help="every model")
    options = parser.parse_args()
    report = Reporter("from_torch", options.filter)
    if lacks_torch(report):
        return report.finish()
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(options.bin, options.timeout)
        run_cases(Suite(tools, pathlib.Path(folder)), report, options.all)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
