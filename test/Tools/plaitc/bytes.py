#===- bytes.py - Names that are no UTF-8 ------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Plans and trains with files whose names are no UTF-8, and prints these names as
reports and settings have them."""

import json
import os
import shutil
import subprocess
import sys

folder, config, cluster = map(os.fsencode, sys.argv[1:])
os.chdir(folder)
os.mkdir(b"nano\xff")
shutil.copy(config, b"nano\xff")


def run(*words) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def read(path: bytes):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def show(subject: str, name: str) -> None:
    print(subject, name.encode("ascii", "backslashreplace").decode())


size = ("--global-batch", "2", "--seq", "8")
run("plaitc", b"nano\xff", "--mesh", "dp=2", *size, "--no-prove", "--no-reference",
    "-o", b"\xff.plan", "--json", b"\xff.json")  # fmt: skip
show("model", read(b"\xff.json")["model"])

shutil.copy(cluster, b"small\xff.json")
run("plaitc", b"nano\xff", "--compare", b"small\xff.json:1,cpu:1", *size,
    "--json", b"both\xff.json")  # fmt: skip
(name, _) = (one["cluster"] for one in read(b"both\xff.json")["clusters"])
show("clusters", name.removesuffix(".json:1"))

run("plait-run", b"\xff.plan", "--text", config, "--steps", "1", "--save", b"saved\xff",
    "--checkpoint", b"run\xff", "--dashboard", b"run\xff.html")  # fmt: skip
run("plait-run", b"\xff.plan", "--text", config, "--steps", "2", "--weights", b"saved\xff",
    "--checkpoint", b"again\xff")  # fmt: skip
show("settings", read(b"run\xff/step-00000001/index.json")["run"]["settings"]["save"])
with open(b"run\xff.html", encoding="utf-8") as page:
    show("page", next(x for x in page.read().split('"') if x.startswith("saved")))
