#!/usr/bin/env python3
# ===- container.py - The recipe of an image -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Reads Apptainer's recipe examples/plait.def as far as that can be done without
Apptainer: its sections, the wheel and the packages that it names, and that its own test
passes with this build. With --root and --wheel the %post and %test of the recipe are run
in a folder with a bare Debian 12, as root, where the network is that of this machine:

  debootstrap --variant=minbase bookworm ROOT
  container.py --root ROOT --wheel build/wheel/plait-*.whl"""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

from harness import ROOT, Reporter, Skipped, arguments, require

RECIPE = ROOT / "examples" / "plait.def"
SECTIONS = {"files", "post", "environment", "runscript", "test", "labels"}


def read_recipe() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The header's fields, and the lines of each section."""
    header, sections = {}, {}
    lines = None
    for line in RECIPE.read_text().splitlines():
        found = re.fullmatch(r"%(\w+)", line)
        if found:
            require(found[1] not in sections, f"%{found[1]} twice")
            lines = sections.setdefault(found[1], [])
        elif lines is not None:
            require(not line or line.startswith("    "), f"'{line}' is not indented")
            lines.append(line[4:])
        elif line and not line.startswith("#"):
            key, colon, value = line.partition(": ")
            require(bool(colon), f"'{line}' is no field")
            header[key] = value
    return header, sections


def check_form() -> str:
    header, sections = read_recipe()
    require(header == {"Bootstrap": "docker", "From": "debian:12-slim"}, str(header))
    require(set(sections) == SECTIONS, f"sections {sorted(sections)}")
    for name in ("post", "runscript", "test", "environment"):
        script = "\n".join(sections[name])
        done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
        require(done.returncode == 0, f"%{name}: {done.stderr}")
    return f"{len(sections)} sections"


def check_wheel() -> str:
    """The file is where scripts/wheel.sh puts it, by the name that it gets."""
    source, target = [x for x in read_recipe()[1]["files"] if x][0].split()
    text = (ROOT / "scripts" / "wheel.sh").read_text()
    require("${1:-build/wheel}" in text, "scripts/wheel.sh writes elsewhere")
    project = (ROOT / "python" / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"', project, re.M)
    require(version is not None, "the project has no version")
    name = f"build/wheel/plait-{version[1]}-py3-none-manylinux_2_34_x86_64.whl"
    require(fnmatch.fnmatch(name, source), f"{source} is not {name}")
    post = "\n".join(read_recipe()[1]["post"])
    require(f"{target}plait-*.whl" in post, f"%post does not install from {target}")
    return name


def check_packages() -> str:
    """Debian has them."""
    if not shutil.which("apt-cache"):
        raise Skipped("there is no apt-cache")
    post = " ".join(read_recipe()[1]["post"]).replace("\\", "")
    found = re.search(r"--no-install-recommends (.*?) rm ", post)
    require(found is not None, "%post installs nothing")
    names = found[1].split()
    done = subprocess.run(
        ["apt-cache", "pkgnames"], capture_output=True, text=True, check=True
    )
    known = set(done.stdout.split())
    if len(known) < 10000:
        raise Skipped(f"apt-cache knows {len(known)} packages only")
    missing = [name for name in names if name not in known]
    require(not missing, f"Debian has no {', '.join(missing)}")
    return ", ".join(names)


def check_test(binaries: pathlib.Path) -> str:
    """%test, with the programs of this build."""
    environment = os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "PLAIT_LIBRARY": str(binaries),
    }
    script = "set -eu\n" + "\n".join(read_recipe()[1]["test"])
    done = subprocess.run(
        ["sh"], input=script, text=True, capture_output=True, env=environment
    )
    require(done.returncode == 0, done.stdout + done.stderr)
    lines = done.stdout.strip().splitlines()
    require(lines[-1] == "host:2" and len(lines) > 4, done.stdout)
    return lines[-1]


def check_root(root: pathlib.Path, wheel: pathlib.Path) -> str:
    """%post and %test in a bare Debian."""
    sections = read_recipe()[1]
    (root / "opt/wheel").mkdir(parents=True, exist_ok=True)
    shutil.copy(wheel, root / "opt/wheel")
    bare = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    output = ""
    for name in ("post", "test"):
        before = sections["environment"] if name == "test" else []
        script = "\n".join(["set -eu", *before, *sections[name]])
        done = subprocess.run(
            ["chroot", str(root), "sh"],
            input=script, text=True, capture_output=True, env=bare,
        )  # fmt: skip
        output = done.stdout
        require(done.returncode == 0, f"%{name}: {output[-2000:]}{done.stderr[-2000:]}")
    return output.strip().splitlines()[-1]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--root", type=pathlib.Path, help="a bare Debian 12")
    parser.add_argument("--wheel", type=pathlib.Path, help="that scripts/wheel.sh wrote")
    options = parser.parse_args()
    report = Reporter("container", options.filter)
    report.case("form", check_form)
    report.case("wheel", check_wheel)
    report.case("packages", check_packages)
    report.case("test", lambda: check_test(options.bin.resolve()))
    if options.root and options.wheel:
        report.case("root", lambda: check_root(options.root, options.wheel))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
