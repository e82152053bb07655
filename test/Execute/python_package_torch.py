#!/usr/bin/env python3
# ===- python_package_torch.py - The package with PyTorch -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Takes a model of transformers and a module of its own through plait.from_torch, plans
them for 64 GPUs, compiles them for 8 ranks of this machine, trains them for 20 steps as
PyTorch does, and saves what transformers opens. Also tensors, data and callbacks of
PyTorch and transformers.

Needs what from_torch.py needs, and says so where it is not there."""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import random
import sys
import tempfile
import warnings

import torch_callbacks
from from_torch import lacks_torch
from harness import ROOT, Failure, Reporter, Skipped, arguments, require
from torch_small import (
    SEQUENCE,
    VOCABULARY,
    make_llama,
    make_neox,
    make_own,
    make_wrapped,
)

sys.path[:0] = [str(ROOT / "python")]

BATCH, STEPS = 8, 20
RECIPE = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-5, "weight_decay": 0.1}
CLIP = 1.0
MESH = {"pp": 2, "dp": 2, "tp": 2}
# What is asked for. Both are in fp32 with sums in another order: a loss of about 5.5 has
# an ulp of 4.8e-7, and 20 steps of AdamW, which divides by the root of the second
# moment, have let runs drift by up to four of them.
LOSS = 1e-5
# A step moves a weight by up to lr, and its direction by what sums are off by: after 20
# steps runs were off by up to 3e-6.
WEIGHTS = 1e-5


class Suite:
    def __init__(self, folder: pathlib.Path):
        import plait
        import torch

        torch.manual_seed(7)
        self.plait = plait
        self.torch = torch
        self.folder = folder
        self.rows = torch.randint(0, VOCABULARY, (BATCH * STEPS, SEQUENCE + 1))
        self.small = plait.compile(
            plait.from_torch(make_own(), batch=2, seq=SEQUENCE),
            global_batch=BATCH, micro_batch=BATCH, seq=SEQUENCE, no_reference=True,
        )  # fmt: skip

    def train_there(self, module) -> list[float]:
        """PyTorch's own losses. Decay of what has more than one dimension."""
        torch = self.torch
        groups = [
            {
                "params": [p for p in module.parameters() if (p.dim() > 1) == decays],
                "weight_decay": RECIPE["weight_decay"] * decays,
            }
            for decays in (True, False)
        ]
        betas = (RECIPE["beta1"], RECIPE["beta2"])
        optimizer = torch.optim.AdamW(
            groups, lr=RECIPE["lr"], betas=betas, eps=RECIPE["eps"]
        )
        losses = []
        for batch in self.rows.split(BATCH):
            output = module(batch[:, :-1])
            logits = getattr(output, "logits", output)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), batch[:, 1:].flatten()
            )
            module.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            optimizer.step()
            losses.append(loss.item())
        return losses


def check_whole(suite: Suite, make) -> str:
    """From a module to a folder, against PyTorch."""
    from safetensors.torch import load_file

    plait, torch = suite.plait, suite.torch
    torch.manual_seed(3)
    module = make()
    model = plait.from_torch(module, batch=2, seq=SEQUENCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so small a model leaves GPUs idle
        choice = plait.plan(model, cluster="h100:8x8", global_batch=64, seq=SEQUENCE)
    require(
        choice.prediction["configuration"]["cluster"] == "h100:8x8", "another cluster"
    )
    plan = plait.compile(
        model,
        mesh=MESH,
        global_batch=BATCH,
        micro_batch=2,
        seq=SEQUENCE,
        no_reference=True,
    )
    require(plan.ranks == 8, f"{plan.ranks} ranks")
    run = plait.train(plan, suite.rows, grad_clip=CLIP, **RECIPE)
    found = [step.loss for step in run]
    expected = suite.train_there(module)
    require(len(found) == len(expected) == STEPS, f"{len(found)} steps")
    loss = max(abs(a - b) for a, b in zip(found, expected))
    folder = run.save_pretrained(suite.folder / make.__name__)
    if hasattr(module, "config"):
        from transformers import AutoModelForCausalLM

        opened = AutoModelForCausalLM.from_pretrained(folder)
        require(type(opened) is type(module), f"opened is a {type(opened)}")
        require(opened.dtype == torch.float32, f"opened in {opened.dtype}")
        saved = opened.state_dict()
    else:
        saved = load_file(folder / "model.safetensors")
    own = dict(module.named_parameters())
    require(set(own) <= set(saved), f"saved lacks {sorted(set(own) - set(saved))}")
    off = max(float((saved[name] - own[name]).detach().abs().max()) for name in own)
    remark = f"losses off {loss:.1e}, weights off {off:.1e}"
    require(loss <= LOSS and off <= WEIGHTS, remark)
    return remark


def check_loading(suite: Suite) -> str:
    """A module gets what was trained, from a run, a folder, parts of it and a file; ties
    stay ties. What does not fit changes nothing."""
    from safetensors.torch import load_file, save_file

    plait, torch = suite.plait, suite.torch
    module = make_own()
    model = plait.from_torch(module, batch=2, seq=SEQUENCE)
    plan = plait.compile(
        model, global_batch=BATCH, micro_batch=BATCH, seq=SEQUENCE, no_reference=True
    )
    run = plait.train(plan, suite.rows, steps=2, **RECIPE)
    run.complete()
    folder = run.save_pretrained(suite.folder / "loaded")
    saved = load_file(folder / "model.safetensors")
    parts = suite.folder / "parts"
    parts.mkdir()
    names = sorted(saved)
    for i, part in enumerate((names[:2], names[2:])):
        save_file({x: saved[x] for x in part}, parts / f"{i}.safetensors")
    table = {x: f"{int(x in names[2:])}.safetensors" for x in names}
    index = parts / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": table}))
    for source in (run, folder, parts, folder / "model.safetensors"):
        other = make_own()
        plait.load_weights(other, source)
        for name, tensor in other.named_parameters():
            require(torch.equal(tensor, saved[name]), f"{name} of {source} differs")
    refused = 0
    short = {x: saved[x] for x in names[1:]}
    bent = saved | {"place": saved["place"].T.contiguous()}
    more = saved | {"another": torch.zeros(1)}
    cases = ((short, "lack"), (bent, "has shape"), (more, "have 'another'"))
    for tensors, words in cases:
        file = suite.folder / f"{refused}.safetensors"
        save_file(tensors, file)
        before = {k: v.clone() for k, v in other.state_dict().items()}
        try:
            plait.load_weights(other, file)
        except plait.FileError as error:
            refused += words in str(error)
        same = all(torch.equal(v, before[k]) for k, v in other.state_dict().items())
        require(same, f"{words}: the module was changed")
    require(refused == len(cases), f"{refused} of {len(cases)} were refused")
    try:
        plait.load_weights(other, suite.folder / "nowhere")
    except plait.FileError as error:
        return str(error)
    raise Failure("nothing was loaded")


def check_compiled(suite: Suite) -> str:
    """A module that torch.compile has wrapped, as a whole and a part of it once more, has
    the names that it had before."""
    from safetensors.torch import load_file

    plait, torch = suite.plait, suite.torch
    module = make_own()
    names = set(dict(module.named_parameters()))
    module.blocks[1] = torch.compile(module.blocks[1])
    wrapped = torch.compile(module)
    model = plait.from_torch(wrapped, batch=2, seq=SEQUENCE)
    plan = plait.compile(model, global_batch=BATCH, seq=SEQUENCE, no_reference=True)
    run = plait.train(plan, suite.rows, steps=1, **RECIPE).complete()
    folder = run.save_pretrained(suite.folder / "compiled")
    saved = load_file(folder / "model.safetensors")
    learned = {name for name in saved if not name.startswith("constant.")}
    require(learned == names, f"saved as {sorted(learned)}")
    plait.load_weights(wrapped, run)
    require(torch.equal(module.embed.weight, saved["embed.weight"]), "was not loaded")
    return f"{len(names)} names"


def check_threads(suite: Suite) -> str:
    """Threads read modules, also the same one, and nothing is left behind."""
    nn = suite.torch.nn
    module = nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY))

    def read(_):
        return suite.plait.from_torch(module, batch=2, seq=4).text

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        texts = list(pool.map(read, range(3)))
    require(set(texts) == {read(0)}, "threads read other models")
    return f"{len(texts)} threads"


def check_weights(suite: Suite) -> str:
    """A run begins with the module's weights, unless it is told others."""
    plait, torch = suite.plait, suite.torch
    torch.manual_seed(5)
    module = make_own()
    model = plait.from_torch(module, batch=2, seq=SEQUENCE)
    plan = plait.compile(model, global_batch=BATCH, seq=SEQUENCE, no_reference=True)
    run = plait.train(plan, suite.rows)
    weight = module.embed.weight.detach()
    view = torch.from_dlpack(run.weights["embed.weight"])
    require(torch.equal(view, weight), "a run begins with other weights")
    next(run)
    require(not torch.equal(view, weight), "a view does not show the step")
    for given in (weight, weight.double(), weight.T.contiguous().T, module.embed.weight):
        run.weights["embed.weight"] = given
        require(torch.equal(run.weights["embed.weight"].torch(), weight), "set")
    run.weights["embed.weight"] = weight.bfloat16()
    rounded = weight.bfloat16().float()
    require(torch.equal(run.weights["embed.weight"].torch(), rounded), "set from bf16")
    other = plait.train(plan, suite.rows, weights=False)
    require(not torch.equal(other.weights["embed.weight"].torch(), weight), "not random")
    with plait.no_weights():
        bare = make_own()
    bare = plait.compile(
        plait.from_torch(bare, batch=2, seq=SEQUENCE), global_batch=BATCH, seq=SEQUENCE,
        no_reference=True,
    )  # fmt: skip
    require(plait.train(bare, suite.rows).step == 0, "without weights")
    return repr(view.shape)


def check_data(suite: Suite) -> str:
    """Tensors and loaders, in the same order, are the same data."""
    torch = suite.torch

    def losses(data, **options):
        return [x.loss for x in suite.plait.train(suite.small, data, **options)]

    expected = losses(suite.rows, steps=4)
    loader = torch.utils.data.DataLoader(suite.rows, batch_size=12)
    columns = [{"input_ids": row, "labels": row} for row in suite.rows]
    batches = torch.utils.data.DataLoader(columns, batch_size=BATCH)
    forms = {
        "int32": (suite.rows.int(), None),
        "rows": (list(suite.rows), None),
        "lists": (suite.rows.tolist(), None),
        "transposed": (suite.rows.T.contiguous().T, None),
        "loader": (loader, None),
        "loader of columns": (batches, "input_ids"),
        "columns": (columns, "input_ids"),
    }
    for name, (data, column) in forms.items():
        found = losses(data, steps=4, column=column)
        require(found == expected, f"{name}: {found}, expected {expected}")
    return f"{len(forms)} forms"


def check_floats(suite: Suite) -> str:
    """Arrays by name, rows by number and batches as they come train alike, and what a
    plan cannot take is refused with one error that names it."""
    import plait
    import torch
    from torch_models import floats

    case = floats.CASES["denoiser"]
    model = plait.from_torch(
        case.make(), batch=4, seq=8, loss=case.loss, features=case.features,
        context=case.context, tokens=False,
    )  # fmt: skip
    plan = plait.compile(
        model, mesh="pp=2,dp=2", global_batch=8, micro_batch=2, seq=8
    )
    generator = torch.Generator().manual_seed(3)
    data = {
        "noisy": torch.randn(24, 8, 6, generator=generator),
        "noise": torch.randn(24, 8, 6, generator=generator).double().numpy(),
        "time": torch.rand(24, generator=generator).bfloat16(),
    }
    rows = [{name: column[i] for name, column in data.items()} for i in range(24)]
    batches = [
        {name: column[i : i + 3] for name, column in data.items()} for i in range(0, 24, 3)
    ]
    path = suite.folder / "rows.bin"
    require(plait.write_rows(path, plan, data) == 24, "not 24 rows")
    losses = [
        [step.loss for step in plait.train(plan, given, progress=False, **named)]
        for given, named in (
            (data, {}),
            (rows, {}),
            (iter(batches), {"steps": 3}),
            (None, {"tokens": path, "steps": 3}),
        )
    ]
    require(len(losses[0]) == 3, f"{len(losses[0])} steps")
    require(all(x == losses[0] for x in losses), f"losses differ: {losses}")
    wrong = [
        ({**data, "noisy": data["noisy"].transpose(1, 2)}, "is of shape [24, 6, 8]"),
        ({**data, "noisy": data["noisy"].long()}, "expected floats"),
        ({**data, "time": data["time"][:5]}, "5 rows of 'time' and 24 of 'noisy'"),
        ({k: v for k, v in data.items() if k != "time"}, "has no 'time'"),
        ({**data, "tokens": torch.zeros(24, 8).long()}, "expected rows of 9"),
        (data["noisy"], "expected a mapping"),
        ({**data, "noisy": data["noisy"] / 0}, "expected a finite one"),
    ]
    for given, words in wrong:
        check_refused(words, lambda: next(plait.train(plan, given, progress=False)))
    return f"{len(wrong)} errors"


def check_modules(suite: Suite) -> str:
    """Sizes and weights that no model has."""
    plait, torch = suite.plait, suite.torch
    module = make_own()
    size = {"batch": 2, "seq": SEQUENCE}
    wrong = [
        ({"batch": 0}, "batch is 0, expected a whole number of at least 1"),
        ({"batch": 2.0}, "batch is 2.0, expected"),
        ({"seq": 0}, "seq is 0, expected"),
        ({"seq": 1}, "seq is 1, expected at least 2"),
    ]
    for given, words in wrong:
        check_refused(words, lambda: plait.from_torch(module, **{**size, **given}))
    name, weight = next(iter(module.named_parameters()))
    with torch.no_grad():
        weight.view(-1)[0] = float("nan")
    words = f"'{name}' has numbers that are not finite"
    check_refused(words, lambda: plait.from_torch(module, **size))
    return f"{len(wrong) + 1} errors"


def draw_items(number: int, most: int) -> list[dict]:
    """Prompts with answers, as data sets for instruction tuning have them."""
    draw = random.Random(5)
    items = []
    for _ in range(number):
        length = draw.randint(4, most)
        ids = [draw.randrange(1, VOCABULARY) for _ in range(length)]
        begin = draw.randrange(1, length)
        items.append({"input_ids": ids, "labels": [-100] * begin + ids[begin:]})
    return items


def mean_of(module, items) -> float:
    """By transformers, which shifts labels: the mean over what all items learn."""
    import torch

    losses, count = 0.0, 0
    for item in items:
        ids, labels = (torch.tensor([item[k]]) for k in ("input_ids", "labels"))
        learned = int((labels[:, 1:] != -100).sum())
        with torch.no_grad():
            losses += module(input_ids=ids, labels=labels).loss.item() * learned
        count += learned
    return losses / count


def check_labels(suite: Suite) -> str:
    """Items with labels, one a row or packed, have the loss that transformers has of each
    alone; from a config and from a module, from Python and from a file."""
    import plait

    module = make_llama().eval()
    folder = suite.folder / "labelled"
    module.save_pretrained(folder)
    weights = folder / "model.safetensors"
    size = {"mesh": "dp=2,tp=2", "global_batch": 8, "micro_batch": 2, "seq": SEQUENCE}
    items = draw_items(24, SEQUENCE // 2)

    def losses(model, data, **options):
        plan = plait.compile(model, **size)
        run = plait.train(
            plan, data, weights=weights, lr=0.0, order="given", progress=False, **options
        )
        return [step.loss for step in run], plan

    expected = [mean_of(module, items[i : i + 8]) for i in range(0, 24, 8)]
    imported = plait.model(folder, target_weights=True)
    traced = plait.model(
        plait.from_torch(module, batch=2, seq=SEQUENCE), target_weights=True
    )
    found, plan = losses(imported, items)
    path = suite.folder / "labelled.rows"
    require(plait.write_rows(path, plan, items) == 24, "not 24 rows")
    padded = suite.torch.nn.utils.rnn.pad_sequence
    columns = {
        name: padded(
            [suite.torch.tensor(item[name]) for item in items],
            batch_first=True, padding_value=fill,
        )
        for name, fill in (("input_ids", 0), ("labels", -100))
    }  # fmt: skip
    for name, other in (
        ("file", losses(imported, None, tokens=path, steps=3)[0]),
        ("columns", losses(imported, columns)[0]),
        ("module", losses(traced, items)[0]),
    ):
        # Those of the module have sums in another order.
        off = max(abs(x - y) for x, y in zip(found, other))
        require(off < 1e-6 and len(other) == 3, f"{name}: {other}, expected {found}")
    off = max(abs(x - y) for x, y in zip(found, expected))
    require(len(found) == 3 and off < LOSS, f"{found}, expected {expected}")

    rows = plait.pack(items, SEQUENCE, end=0)
    require(8 <= len(rows) < 16, f"{len(rows)} rows")
    kept = sorted(tuple(item["input_ids"]) for item in items)
    cut = [
        tuple(part) for row in rows
        for part in split(row["tokens"].tolist(), 0) if part
    ]  # fmt: skip
    require(sorted(cut) == kept, "packing has lost something")
    masked = plait.model(folder, target_weights=True, document_mask=True)
    packed, _ = losses(masked, rows[:8], document_end=0)
    ids = {tuple(item["input_ids"]): item for item in items}
    first = [
        ids[tuple(part)] for row in rows[:8]
        for part in split(row["tokens"].tolist(), 0) if part
    ]  # fmt: skip
    apart = abs(packed[0] - mean_of(module, first))
    require(apart < LOSS, f"packed: {packed}, off by {apart:.2g}")
    return f"off by {off:.2g}, packed by {apart:.2g}, {len(rows)} rows of 24 items"


def split(tokens: list[int], end: int) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == end:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def check_adapters(suite: Suite) -> str:
    """peft opens what is saved, and it is what was trained; plait goes on from what peft
    saves. Of a folder of transformers, and of a module that plait traces."""
    try:
        import peft
    except ImportError:
        raise Skipped("peft is not there") from None
    plait, torch = suite.plait, suite.torch
    torch.manual_seed(3)
    module = make_llama()
    folder = suite.folder / "adapted"
    module.save_pretrained(folder)
    size = dict(global_batch=BATCH, micro_batch=2, seq=SEQUENCE, no_reference=True)
    given = dict(lora=4, lora_alpha=64, lora_targets=["q_proj", "down_proj"])
    recipe = RECIPE | {"lr": 3e-2, "grad_clip": CLIP, "weights": folder}
    rows, worst = suite.rows, 0.0

    def loss_of(opened, step: int) -> float:
        batch = rows[step * BATCH : (step + 1) * BATCH]
        logits = opened(batch[:, :-1]).logits.flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, batch[:, 1:].flatten()).item()

    def open_adapters(saved):
        own = type(module).from_pretrained(folder)
        return peft.PeftModel.from_pretrained(own, saved, is_trainable=True)

    traced = plait.from_torch(module, batch=2, seq=SEQUENCE)
    for name, source in (("folder", folder), ("module", traced)):
        plan = plait.compile(plait.model(source, **given), mesh="dp=2,tp=2", **size)
        run = plait.train(plan, rows, steps=4, **recipe)
        losses = [next(run).loss for _ in range(3)]
        saved = run.save_pretrained(suite.folder / f"adapters-{name}")
        losses.append(next(run).loss)
        run.close()
        opened = open_adapters(saved)
        off = abs(losses[3] - loss_of(opened, 3))
        require(off <= LOSS, f"{name}: {losses}, off by {off:.2g}")
        # B is not zero any more: what peft has merged would not show another one.
        require(abs(loss_of(module, 3) - losses[3]) > 100 * LOSS, "adapters count nothing")
        again = suite.folder / f"again-{name}"
        opened.save_pretrained(again)
        more = plait.train(plan, rows[3 * BATCH :], steps=1, adapter=again, **recipe)
        after = next(more).loss
        worst = max(worst, off, abs(after - losses[3]))
        require(worst <= LOSS, f"{name}: goes on with {after}, expected {losses[3]}")
    return f"losses off {worst:.1e}"


def check_label_errors(suite: Suite) -> str:
    """One error that names the item and what is wrong with it."""
    import plait

    size = {"mesh": "dp=2", "global_batch": 2, "seq": 8}
    model = ROOT / "examples/models/gpt2-nano"
    weighed = plait.compile(plait.model(model, target_weights=True), **size)
    plain = plait.compile(model, **size)
    good = {"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}
    wrong = [
        (weighed, {"labels": [-100, 7, 3]}, None, "label 1 of row 1 of the data is 7"),
        (weighed, {"labels": [-100, 2]}, None, "has 3 tokens and 2 labels"),
        (weighed, {"labels": [0.5, 2, 3]}, None, "expected a row of whole numbers"),
        (weighed, {"input_ids": [[1, 2, 3]]}, None, "is of shape [1, 3]"),
        (weighed, {}, "ids", "has no column 'ids'"),
        (weighed, {"input_ids": list(range(10)), "labels": list(range(10))}, None,
         "has 10 tokens, expected at most 9"),
        (plain, {}, "input_ids", "but the plan learns all tokens"),
    ]  # fmt: skip
    for plan, change, column, words in wrong:
        data = [good, {**good, **change}]
        if plan is plain:
            data = [{k: v * 3 for k, v in good.items()}] * 2
        check_refused(
            words,
            lambda: plait.train(plan, data, column=column, progress=False).complete(),
        )
    lonely = {"labels": [1, 2]}
    for data, options, words in (
        ([good, [1, 2]], {"seq": 8}, "item 1 of the data is a list"),
        ([lonely], {"seq": 8}, "neither 'tokens' nor 'input_ids'"),
        ([good], {"seq": 2, "end": 0}, "item 0 of the data has 4 tokens, expected 1 to 3"),
        ([good], {"seq": 0}, "seq is 0"),
        ([{"input_ids": [], "labels": []}], {"seq": 8}, "has 0 tokens, expected 1 to 9"),
    ):
        check_refused(words, lambda: plait.pack(data, **options))
    check_refused("which can be used as it is", lambda: plait.model(plait.model(model)))
    return f"{len(wrong) + 6} errors"


def check_refused(words: str, call) -> None:
    import plait

    try:
        call()
    except plait.Error as error:
        require(words in str(error), f"'{error}' does not say '{words}'")
    else:
        raise Failure(f"was not refused: {words}")


def main() -> int:
    options = arguments(__doc__).parse_args()
    os.environ["PLAIT_LIBRARY"] = str(options.bin.resolve())
    report = Reporter("python-torch", options.filter)
    if lacks_torch(report):
        return report.finish()
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(pathlib.Path(folder))
        report.case("whole/llama", lambda: check_whole(suite, make_llama))
        report.case("whole/neox", lambda: check_whole(suite, make_neox))
        report.case("whole/own", lambda: check_whole(suite, make_own))
        if importlib.util.find_spec("peft"):
            report.case("whole/wrapped", lambda: check_whole(suite, make_wrapped))
        report.case("loading", lambda: check_loading(suite))
        report.case("compiled", lambda: check_compiled(suite))
        report.case("threads", lambda: check_threads(suite))
        report.case("weights", lambda: check_weights(suite))
        report.case("data", lambda: check_data(suite))
        report.case("modules", lambda: check_modules(suite))
        report.case("floats", lambda: check_floats(suite))
        report.case("labels", lambda: check_labels(suite))
        report.case("adapters", lambda: check_adapters(suite))
        report.case("label errors", lambda: check_label_errors(suite))
        report.case("callbacks", lambda: torch_callbacks.check_callbacks(suite))
        report.case("early stopping", lambda: torch_callbacks.check_early_stopping(suite))
        report.case("fields", torch_callbacks.check_fields)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
