# ===- package_shown.py - What the package shows and tells -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Cases of python_package.py: pages, JSON, callbacks, the doctor."""

import gc
import html.parser
import json

from harness import GOLDEN, ROOT, require
from package_suite import BATCH, MODEL, RECIPE, SEQUENCE, STEPS, Suite

MIXTURE = GOLDEN / "mixtral-small-test"
TINY = ROOT / "examples/models/tinyllama-1.1b"

# ===-----------------------------------------------------------------------===#
# What is shown
# ===-----------------------------------------------------------------------===#


class Page(html.parser.HTMLParser):
    """A page whose elements are closed, and which fetches nothing."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.names, self.text = [], [], []
        self.feed(text)
        require(not self.open, f"{self.open} are not closed")

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.names.append(tag)
        for name, value in attrs:
            require(name not in ("src", "href", "onload"), f"{tag} has {name}")
            is_number = name in ("x", "y", "width", "height", "x1", "x2", "y1", "y2")
            require(not is_number or float(value) >= 0, f"{tag} has {name}={value}")
        require(tag not in ("script", "img", "link", "iframe"), f"there is a {tag}")

    def handle_endtag(self, tag):
        require(self.open and self.open.pop() == tag, f"{tag} ends elsewhere")

    def handle_data(self, text):
        self.text.append(text)


def check_choice(suite: Suite) -> str:
    plait = suite.plait
    model = plait.model(TINY)
    cluster = plait.cluster("h100:2x8")
    require((cluster.devices, str(cluster)) == (16, "h100:2x8"), f"{cluster!r}")
    choice = plait.plan(
        model, cluster=cluster, global_batch=64, seq=2048, mesh="pp=2,dp=8"
    )
    require(choice.mesh["pp"] == 2, f"{choice.mesh}: what is given was not pinned")
    require(abs(sum(choice.time.values()) / choice.seconds - 1) < 1e-6, f"{choice.time}")
    require(len(choice.memory) == 2, f"{len(choice.memory)} stages")
    require(
        len(choice.alternatives) > 3 and choice.alternatives[0]["why"], "no runners-up"
    )
    content = json.loads(choice.to_json())
    require(content["options"]["mesh"].startswith("pp=2"), f"{content['options']}")
    page = Page(choice._repr_html_())
    require(page.names.count("svg") == 2, f"{page.names}")
    for word in ("forward", "stage 1", "activations", "runners-up"):
        require(word in page.text, f"the page does not say {word}")
    require("MFU" in str(choice) and "pp=2" in repr(choice), f"{choice!r}\n{choice}")
    words = (TINY, "--cluster", "h100:2x8", "--json", "-")
    sizes = ("--global-batch", 64, "--seq", 2048, "--mesh", "pp=2,dp=8")
    told = json.loads(suite.tools.run("plaitc", *words, *sizes).stdout)
    require(told == choice.prediction, "plaitc predicts something else")
    return repr(choice)


def check_experts(suite: Suite) -> str:
    """What ranks of ep exchange is chosen, or pinned."""
    plait = suite.plait
    sizes = {"cluster": "cpu:4", "global_batch": 8, "seq": 32, "mesh": "ep=4"}
    chosen = plait.plan(MIXTURE, **sizes)
    taken = chosen.prediction["configuration"]["expert_exchange"]
    times = {}
    for word in ("tokens", "rows"):
        pinned = plait.plan(MIXTURE, **sizes, expert_exchange=word)
        found = pinned.prediction["configuration"]["expert_exchange"]
        require(found == word, f"{found} for {word}")
        times[word] = pinned.seconds
    require(chosen.seconds == min(times.values()), f"{taken}: {chosen.seconds}, {times}")
    plan = chosen.compile(suite.folder / "experts.plan", no_reference=True)
    shown = suite.tools.run("plait-plan", "show", plan.path).stdout
    require(f", expert-exchange {taken}" in shown, shown)
    return f"{taken}: {times}"


def check_plan(suite: Suite) -> str:
    """What a choice has decided is compiled, and shown."""
    plait = suite.plait
    choice = plait.plan(MODEL, cluster="host:2", global_batch=BATCH, seq=SEQUENCE)
    plan = choice.compile(suite.folder / "chosen.plan", no_reference=True)
    require(
        plan.mesh == {k: x for k, x in choice.mesh.items() if k in plan.mesh}, f"{plan}"
    )
    loaded = plait.load(plan.path)
    copied = plait.load(plan.save(suite.folder / "copy.plan"))
    require(loaded.facts == plan.facts == copied.facts, "another plan is loaded")
    require("prediction" in json.loads(plan.to_json()), "a plan forgets its prediction")
    for shown, count in ((plan, 3), (loaded, 2), (suite.parts, 2)):
        page = Page(shown._repr_html_())
        require(page.names.count("svg") == count, f"{page.names.count('svg')} drawings")
        for word in ("stage 0", "Forward", "Backward", "activations"):
            require(word in page.text, f"the page does not say {word}")
    require("stage 1" in page.text, "no second stage")
    temporary = plait.compile(MODEL, global_batch=1, seq=8, no_reference=True)
    path = temporary.path
    require(path.is_file() and temporary.parameters, f"{temporary}")
    del temporary
    gc.collect()
    require(not path.exists() and not path.parent.exists(), f"{path} is left")
    return repr(plan)


def check_run_shown(suite: Suite) -> str:
    run = suite.plait.train(suite.plan, suite.rows)
    Page(run._repr_html_())
    run.complete()
    page = Page(run._repr_html_())
    require(page.names.count("svg") == 1, f"{page.names}")
    content = json.loads(run.to_json())
    require(len(content["history"]) == STEPS, f"{content}")
    require(content["options"]["lr"] == 0.0003, f"{content['options']}")
    return repr(run)


class Heard:
    """A callback that takes part in everything."""

    def __init__(self):
        self.events, self.logs = [], []

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)

        def hear(args, state, control, **more):
            self.events.append((name, state.global_step))
            if name == "on_log":
                self.logs.append(more["logs"])
            if name == "on_step_end" and state.global_step == 2:
                control.should_training_stop = control.should_save = True
            if name == "on_train_begin":
                self.args = args.to_dict()
                self.model = more["model"]
            json.dumps([args.to_sanitized_dict(), args.to_json_string()])

        return hear


def check_callbacks(suite: Suite) -> str:
    heard = Heard()
    folder = suite.folder / "called"
    with suite.plait.train(
        suite.plan,
        suite.rows,
        callbacks=[heard],
        run_name="mine",
        checkpoint=folder,
        **RECIPE,
    ) as run:
        run.complete()
    step = [("on_step_begin", 0), ("on_step_end", 1), ("on_log", 1)]
    second = [("on_step_begin", 1), ("on_step_end", 2), ("on_log", 2), ("on_save", 2)]
    begin = [("on_init_end", 0), ("on_train_begin", 0), ("on_epoch_begin", 0)]
    end = [("on_save", 2), ("on_epoch_end", 2), ("on_train_end", 2)]
    require(heard.events == begin + step + second + end, f"{heard.events}")
    require(
        heard.args["run_name"] == "mine" and heard.args["lr"] == 0.01, f"{heard.args}"
    )
    require(heard.model.config.to_dict()["model_type"] == "llama", "no config")
    require(heard.model.num_parameters() > 1000, "no parameters")
    logs = {"loss", "grad_norm", "learning_rate", "tokens_per_second", "epoch"}
    require(set(heard.logs[0]) == logs, f"{heard.logs[0]}")
    losses = [step.loss for step in run.history]
    require([x["loss"] for x in heard.logs] == losses, f"{heard.logs}")
    return f"{len(heard.events)} events"


def check_doctor(suite: Suite) -> str:
    from plait import doctor

    lines = {what: (text, is_here) for what, text, is_here in doctor.check()}
    require(lines["library"][1], f"{lines['library']}")
    require("plait-run" in lines["programs"][0], f"{lines['programs']}")
    for what in ("processors", "memory", "MPI", "CUDA", "torch"):
        require(what in lines, f"no line of {what}")
    return f"{len(lines)} lines"
