#===- training_suite.py - Plans and runs of the training suites -------------===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What training.py and bad_steps.py share: plans by their settings, runs with
their logs and weights, and files of tokens."""

import json
import pathlib
import re
import shutil
import struct
import subprocess

from harness import GOLDEN, Reporter, Tools, require

BATCH, SEQUENCE = 8, 32
SETTINGS = (
    ("1",),
    ("dp=2", "--zero", "1"),
    ("dp=4", "--zero", "3"),
    ("pp=2,dp=2", "--zero", "2", "--schedule", "zb-h1"),
    ("pp=2,tp=2", "--schedule", "zb-v"),
    ("pp=2", "--recompute", "full", "--optimizer", "sgd"),
    ("cp=2,tp=2", "--optimizer", "lion"),
    ("dp=2", "--zero", "1", "--precision", "bf16"),
)
RECIPE = ("--beta1", "0.9", "--weight-decay", "0.1", "--grad-clip", "1")
BETA2 = ("--beta2", "0.95")  # which SGD has no use for


def read_log(path: pathlib.Path) -> list[dict]:
    def refuse(word):
        raise ValueError(f"{word} is no JSON")

    lines = path.read_text().splitlines()
    return [json.loads(x, parse_constant=refuse) for x in lines]


def read_page(path: pathlib.Path) -> dict:
    """The data of a dashboard, which loads nothing from elsewhere."""
    text = path.read_text()
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    require(found is not None, "no data")
    addresses = set(re.findall(r"https?://[^'\"]+", text))
    require(all("www.w3.org" in x for x in addresses), addresses)
    return json.loads(found[1])


# What the script of a dashboard asks of a browser, as far as its words go.
BROWSER = """
class Element {
  setAttribute() {}
  appendChild(child) { return child; }
  prepend() {}
}
const text = require('fs').readFileSync(process.argv[1], 'utf8'), elements = {};
const [, data, script] =
    text.match(/id="data">([^]*?)<\\/script>[^]*?<script>([^]*?)<\\/script>/);
elements.data = {textContent: data};
const page = {getElementById: id => elements[id] ??= new Element(),
              createElementNS: () => new Element()};
new Function('document', 'setTimeout', script)(page, () => {});
console.log(elements.state.textContent);
"""


def read_state(path: pathlib.Path) -> str | None:
    """The line below the title of a dashboard, where there is Node.js to run its
    script; else nothing."""
    node = shutil.which("node")
    if not node:
        return None
    done = subprocess.run([node, "-e", BROWSER, str(path)], capture_output=True, text=True)
    require(done.returncode == 0, done.stderr)
    return done.stdout.strip()


def is_near(found: float, expected: float, tolerance: float) -> bool:
    return abs(found - expected) <= tolerance * abs(expected)


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        self.plans = {}
        self.recipes = {}

    def compile(self, model: str, setting) -> pathlib.Path:
        key = (model, setting)
        if key not in self.plans:
            plan = self.folder / f"{len(self.plans)}.plan"
            mesh, *options = setting
            self.tools.run(
                "plaitc", GOLDEN / model, "--mesh", mesh, *options,
                *("--seq", SEQUENCE, "--global-batch", BATCH),
                *("--micro-batch", 1, "--no-reference", "-o", plan),
            )
            self.plans[key] = plan
            self.recipes[plan] = RECIPE if "sgd" in setting else RECIPE + BETA2
        return self.plans[key]

    def train(self, plan, *options, rate="1e-3", save=True):
        """The log's objects, the saved weights and what was said."""
        log, saved = self.folder / "log", self.folder / "saved"
        log.unlink(missing_ok=True)
        outcome = self.tools.run(
            "plait-run", plan, "--lr", rate, *self.recipes[plan], *options,
            *("--log", log), *(("--save", saved) if save else ()),
        )
        weights = (saved / "model.safetensors").read_bytes() if save else b""
        return read_log(log), weights, outcome

    def fail(self, *options) -> str:
        outcome = self.tools.call("plait-run", *options)
        require(outcome.code == 1, f"ended with {outcome.code}")
        lines = outcome.stderr.strip().splitlines()
        require(lines[-1].startswith("plait-run: error: "), outcome.stderr)
        return lines[-1].removeprefix("plait-run: error: ")


def read_tokens(path: pathlib.Path) -> list[int]:
    content = path.read_bytes()
    return list(struct.unpack(f"<{len(content) // 2}H", content))


def write_list(path: pathlib.Path, tokens: list[int]) -> pathlib.Path:
    path.write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    return path
