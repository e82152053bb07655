# ===- package_data.py - Steps, data and tensors of the package -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Cases of python_package.py: what a run computes, and from which data."""

import gc
import os
import pathlib
import re
import signal
import struct
import threading
import warnings

import package_suite
from harness import read_safetensors, require
from package_suite import BATCH, MODEL, RECIPE, ROWS, SEQUENCE, STEPS, Suite, refuse

# ===-----------------------------------------------------------------------===#
# Against plait-run
# ===-----------------------------------------------------------------------===#


def check_same(suite: Suite, plan) -> str:
    """Losses, norms and weights, of rows and of a file."""
    log, theirs, ours = (suite.folder / name for name in ("log", "theirs", "ours"))
    log.unlink(missing_ok=True)
    words = (plan.path, "--tokens", suite.tokens, "--steps", STEPS, "--log", log)
    words += tuple(x for k, v in RECIPE.items() for x in (f"--{k}", v))
    suite.tools.run("plait-run", *words, "--save", theirs)
    text = log.read_text()
    expected = [
        (struct.unpack("f", struct.pack("f", float(loss)))[0], float(norm))
        for loss, norm in re.findall(r'"loss": (\S+), "grad_norm": (\S+),', text)
    ]
    require(len(expected) == STEPS, text)
    for options in ({"data": suite.rows}, {"tokens": suite.tokens, "steps": STEPS}):
        run = suite.plait.train(plan, **options, **RECIPE)
        steps = list(run)
        # The log has nine digits, which tell each float.
        found = [float(f"{step.loss:.9g}") for step in steps]
        require(found == [float(f"{x:.9g}") for x, _ in expected], f"{found} {expected}")
        norms = [float(f"{step.gradient_norm:.9g}") for step in steps]
        require(norms == [norm for _, norm in expected], f"{norms}, {expected}")
        require([step.step for step in steps] == list(range(1, STEPS + 1)), "numbers")
        run.save_pretrained(ours)
        for name in ("model.safetensors", "config.json"):
            same = (ours / name).read_bytes() == (theirs / name).read_bytes()
            require(same, f"{name} differs from plait-run's")
        check_weights(run, ours)
    return f"{STEPS} steps"


def check_weights(run, folder: pathlib.Path) -> None:
    """What tensors say is what was saved."""
    header, content = read_safetensors(folder / "model.safetensors")
    facts = {x["name"]: x for x in run.plan.facts["parameters"]}
    whole = [
        n for n, x in facts.items() if run.plan.parameters[n] == tuple(x["file_shape"])
    ]
    require(len(whole) == len(facts), "not all parameters are whole")
    for name in whole:
        begin, end = header[facts[name]["file_name"]]["data_offsets"]
        tensor = run.weights[name]
        flat = flatten(tensor.tolist())
        same = struct.pack(f"<{len(flat)}f", *flat) == content[begin:end]
        require(same, f"{name} is not what was saved")
        require(
            list(tensor.shape) == facts[name]["file_shape"], f"{name} has another shape"
        )


def flatten(value) -> list[float]:
    return (
        [x for part in value for x in flatten(part)]
        if isinstance(value, list)
        else [value]
    )


def check_forms(suite: Suite) -> str:
    """The same rows in all forms that data may have."""
    import numpy

    rows = suite.rows
    wide = numpy.array(rows, dtype=numpy.int64)
    batches = [wide[k : k + 5] for k in range(0, ROWS, 5)]  # of another size
    forms = {
        "numpy": wide,
        "uint16": wide.astype("uint16"),
        "fortran": numpy.asfortranarray(wide),
        "array of tokens": suite.stream,
        "numpy of tokens": numpy.array(suite.stream),
        "mapped": numpy.memmap(suite.tokens, dtype="uint16", mode="r"),
        "list of arrays": list(wide),
        "batches": batches,
        "tuple": tuple(map(tuple, rows)),
        "generator of rows": (row for row in rows),
        "generator of batches": iter(batches),
        "list of tokens": list(suite.stream),
        # As a DataLoader of a TensorDataset.
        "generator of tuples": ([batch] for batch in batches),
        "columns": [{"ids": row, "text": "x"} for row in rows],
        "generator of columns": ({"ids": row} for row in wide),
    }
    expected = suite.losses(rows)
    for name, form in forms.items():
        column = "ids" if "columns" in name else None
        found = suite.losses(form, column=column, steps=STEPS)
        require(found == expected, f"{name}: {found}, expected {expected}")
    # At its end data begins again; epochs say how often.
    twice = suite.losses(rows, epochs=numpy.int64(2), log_every=numpy.int64(1))
    require(twice[:STEPS] == expected and len(twice) == 2 * STEPS, f"{twice}")
    require(suite.losses(batches, steps=2 * STEPS) == twice, "batches do not begin again")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = suite.losses(iter(rows), steps=99)
    require(found == expected, f"a generator's end: {found}")
    require(len(caught) == 1 and caught[0].filename == package_suite.__file__, f"{caught}")
    require("after 3 of 99 steps" in str(caught[0].message), f"{caught[0].message}")
    return f"{len(forms)} forms"


def check_order(suite: Suite) -> str:
    """A shuffled pass has each row once, and seeds name it."""
    from plait import rows

    shape = rows.Shape(BATCH, SEQUENCE)

    def read(seed, count):
        source = rows.open_data(suite.rows, shape, None, "shuffled", seed)
        return [x for x, _ in zip(source.read(0), range(count))]

    first, again, other = read(1, 2 * ROWS), read(1, 2 * ROWS), read(2, ROWS)
    require(first == again and first[:ROWS] != other, "seeds do not name the order")
    require(first[:ROWS] != first[ROWS:], "each pass has the same order")
    given = sorted(struct.pack(f"{SEQUENCE + 1}i", *row) for row in suite.rows)
    require(sorted(first[:ROWS]) == given == sorted(first[ROWS:]), "rows are lost")
    source = rows.open_data(suite.rows, shape, None, "shuffled", 1)
    require([x for x, _ in zip(source.read(5), range(9))] == first[5:14], "resumed")
    require(
        suite.losses(suite.rows, order="shuffled") != suite.losses(suite.rows), "order"
    )
    return f"{ROWS} rows"


def check_resume(suite: Suite) -> str:
    """A run that was left goes on in its data, and writes its checkpoint at the end."""
    folder = suite.folder / "checkpoints"
    expected = suite.losses(suite.rows)
    train = suite.plait.train
    with train(suite.plan, suite.rows, checkpoint=folder, **RECIPE) as run:
        found = [next(run).loss]
        run.checkpoint()
    with train(suite.plan, suite.rows, resume=folder, checkpoint=folder, **RECIPE) as run:
        require(run.step == 1, f"resumed at {run.step}")
        found += [step.loss for step in run]
        require(list(run) == [] and run.step == STEPS, f"{run}")
    require(found == expected, f"{found}, expected {expected}")
    require(any("3" in path.name for path in folder.iterdir()), "no last checkpoint")
    return "after 1 step"


def check_weighed(suite: Suite) -> str:
    """Rows with weights and with labels, as a sequence, as blocks, and as a stream of
    either, as data sets that are not held in memory give them."""
    import numpy

    plait = suite.plait
    model = plait.model(MODEL, target_weights=True)
    plan = plait.compile(
        model, mesh="dp=2", global_batch=BATCH, seq=SEQUENCE, no_reference=True
    )
    learned = SEQUENCE // 2
    labelled = [
        {"input_ids": row, "labels": [-100] * learned + row[learned:]}
        for row in suite.rows
    ]
    weights = numpy.arange(SEQUENCE) + 1 >= learned
    weighed = [
        {"tokens": numpy.array(row), "target_weights": weights.astype("float32")}
        for row in suite.rows
    ]
    lists = [{name: value.tolist() for name, value in row.items()} for row in weighed]
    expected = suite.losses(labelled, plan)
    for rows in (labelled, weighed, lists):
        blocks = [
            {name: [row[name] for row in rows[k : k + 5]] for name in rows[0]}
            for k in range(0, ROWS, 5)
        ]
        for form in (rows, iter(rows), iter(blocks)):
            found = suite.losses(form, plan, steps=STEPS)
            require(found == expected, f"{form}: {found}, expected {expected}")
        path = suite.folder / "weighed.rows"
        require(plait.write_rows(path, plan, iter(rows)) == ROWS, "rows are lost")
        require(suite.losses(None, plan, tokens=path, steps=STEPS) == expected, "a file")
    # Of items without tokens nothing is learned.
    none = numpy.array([], "int64")
    empty = [{"input_ids": none, "labels": none}, {"input_ids": [], "labels": []}]
    found = suite.losses([*empty, *labelled[2:]], plan)
    short = [{name: x[:1] for name, x in row.items()} for row in labelled[:2]]
    require(found == suite.losses([*short, *labelled[2:]], plan), f"{found}")
    return "rows and blocks"


class _Interrupted:
    """Rows one of which is interrupted once."""

    def __init__(self, rows):
        self.rows = rows
        self.left = 1

    def get(self, number: int):
        if number == 6 and self.left:
            self.left = 0
            raise KeyboardInterrupt
        return self.rows[number]


class _ByNumber(_Interrupted):
    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number: int):
        return self.get(number)


class _Again(_Interrupted):
    def __iter__(self):
        return map(self.get, range(len(self.rows)))


class _Once(_Interrupted):
    number = 0

    def __iter__(self):
        return self

    def __next__(self):
        row = self.get(self.number)
        self.number += 1
        return row


def check_interrupted(suite: Suite) -> str:
    """An interrupt while a batch is read loses no row: the run goes on with it."""
    expected = suite.losses(suite.rows)
    for kind in (_ByNumber, _Again, _Once):
        data = kind(suite.rows)
        run = suite.plait.train(suite.plan, data, steps=STEPS, **RECIPE)
        try:
            run.complete()
        except KeyboardInterrupt:
            require(run.step == 1 and not data.left, f"{kind}: at {run.step}")
        found = [step.loss for step in run.complete().history]
        require(found == expected, f"{kind}: {found}, expected {expected}")
    return "in 3 kinds of data"


def check_nested(suite: Suite) -> str:
    """Neither the data nor another thread takes a step while rows of one are read."""
    expected = suite.losses(suite.rows)
    refused = []

    def ask():
        try:
            next(run)
        except suite.plait.CallError as error:
            refused.append(str(error))

    def read():
        for k, row in enumerate(suite.rows):
            if k == BATCH + 1:
                ask()
                other = threading.Thread(target=ask)
                other.start()
                other.join()
            yield row

    run = suite.plait.train(suite.plan, read(), steps=STEPS, **RECIPE)
    found = [step.loss for step in run]
    require(found == expected, f"{found}, expected {expected}")
    require(len(refused) == 2 and "already" in refused[1], f"refused {refused}")
    return refused[0]


def check_told(suite: Suite) -> str:
    """An interrupt in the middle of a step comes when its callbacks have heard of it."""

    class Count:
        steps = 0

        def on_step_end(self, args, state, control, **more):
            self.steps = state.global_step

    count = Count()
    run = suite.plait.train(suite.plan, suite.rows, callbacks=[count], **RECIPE)
    call = run.native.call

    def interrupt(name, *arguments):
        os.kill(os.getpid(), signal.SIGINT)
        call(name, *arguments)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run.native.call = interrupt
        run.complete()
        raise AssertionError("the run was not interrupted")
    except KeyboardInterrupt:
        run.native.call = call
    finally:
        signal.signal(signal.SIGINT, before)
    require(run.step == count.steps == 1, f"{count.steps} of {run.step} steps were told")
    require(run.complete().step == count.steps == STEPS, f"{run}")
    return "after a step"


def check_steps(suite: Suite) -> str:
    """Rows that are given step by step; a refused batch has not happened."""
    plait = suite.plait
    expected = suite.losses(suite.rows)
    most = 2**64 - 1  # as PyTorch draws seeds
    seed = plait.train(suite.plan, steps=1, seed=most).options["seed"]
    require(seed == most, f"the seed is {seed}")
    run = plait.train(suite.plan, steps=STEPS, **RECIPE)
    found = []
    for k in range(STEPS):
        batch = suite.rows[k * BATCH : (k + 1) * BATCH]
        for bad in (batch[:-1], [row[1:] for row in batch], [[999] * 17] * BATCH):
            refuse(plait.Error, lambda bad=bad: run.train_step(bad))
        found.append(run.train_step(batch).loss)
    require(found == expected, f"{found}, expected {expected}")
    refuse(plait.CallError, lambda: next(iter(plait.train(suite.plan, steps=1))))
    return f"{STEPS} steps"


# ===-----------------------------------------------------------------------===#
# Tensors
# ===-----------------------------------------------------------------------===#


def check_tensors(suite: Suite) -> str:
    import numpy

    plait = suite.plait
    for plan in (suite.plan, suite.parts):
        run = plait.train(plan, suite.rows, **RECIPE)
        name = "model.layers.0.input_layernorm.weight"
        before = numpy.array(run.weights[name])
        require((before == 1).all(), f"{name} begins with {before}")
        view = numpy.from_dlpack(run.weights[name])
        next(run)
        after = numpy.asarray(run.weights[name])
        require(not (after == before).any(), "a step has changed nothing")
        if plan is suite.plan:
            require((view == after).all(), "a view does not show the step")
        require(not after.flags.writeable, "a view can be written to")
        gradient = run.gradients[name].numpy()
        require(gradient.shape == before.shape and gradient.any(), "no gradient")
        wanted = numpy.arange(before.size, dtype=numpy.float64)
        for given in (
            wanted,
            list(map(float, wanted)),
            wanted[::-1][::-1],
            run.weights[name],
        ):
            run.weights[name] = given
            require((run.weights[name].numpy() == wanted).all(), f"set by {type(given)}")
        refuse(plait.CallError, lambda: run.weights.__setitem__(name, wanted[1:]))
        refuse(
            plait.CallError, lambda: run.weights.__setitem__(name, [[1.0], [1.0, 2.0]])
        )
        refuse(plait.CallError, lambda: run.weights.__setitem__(name, "text"))
        error = refuse(KeyError, lambda: run.weights[name + "s"])
        require(name in error.hint, f"{error.hint} does not name it")
        require(name in run.weights and run.weights.get("no") is None, "not a mapping")
        kept = run.weights[name]
        run.close()
        require(kept.tolist() == wanted.tolist(), "a tensor ends with its run")
        refuse(plait.Error, lambda: run.weights[name])
        for _ in range(3):  # of which nobody takes anything
            kept.__dlpack__()
        gc.collect()
        require((numpy.from_dlpack(kept) == wanted).all(), "a capsule took it along")
        del kept, view, after, gradient
        gc.collect()
        from plait import _dlpack

        require(not _dlpack._held, f"{len(_dlpack._held)} tensors are held")
    return "whole and divided"


def check_ranks(suite: Suite) -> str:
    """What a rank holds of a matrix that tp divides."""
    run = suite.plait.train(suite.parts, suite.rows)
    name = "model.layers.0.mlp.up_proj.weight"
    whole = run.weights[name].numpy()
    parts = []
    for rank in run.ranks:
        try:
            parts.append(run.weights.of_rank(name, rank).numpy())
        except suite.plait.CallError as error:
            require("has nothing of" in str(error), str(error))
    require(len(parts) == 2 and sum(x.size for x in parts) == whole.size, f"{len(parts)}")
    require(sum(x.sum() for x in parts) - whole.sum() < 1e-3, "other numbers")
    return f"{whole.shape} in {len(parts)}"
