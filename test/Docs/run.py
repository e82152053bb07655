#!/usr/bin/env python3
#===- run.py - The docs say what the tools do -------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs the commands of README.md, docs/ and examples/, holds the output that
they show against the real one, parses their IR, follows their links, and
compares the options they name with those that the tools have. blocks.py says
how a page marks a block; words.py checks words and sentences; reference.py and
passes.py check the .td files. One line a case, then "N passed, N failed"."""

import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "Execute"))

import blocks  # noqa: E402
import comments  # noqa: E402
import diagnostics  # noqa: E402
import dispatch  # noqa: E402
import messages  # noqa: E402
import passes  # noqa: E402
import reference  # noqa: E402
import words  # noqa: E402
from harness import (  # noqa: E402
    TORCH,
    Failure,
    Reporter,
    Tools,
    arguments,
    require,
)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def find_pages() -> list[pathlib.Path]:
    """The pages whose commands run, README.md first. Those that are generated
    have none."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [x for x in pages if x.parent.name != "reference"]
    return pages + sorted((ROOT / "examples").rglob("*.md"))


#===-----------------------------------------------------------------------===#
# Blocks
#===-----------------------------------------------------------------------===#


class BlockRunner:
    def __init__(self, tools: Tools, report: Reporter, slow: bool):
        self.tools = tools
        self.report = report
        self.slow = slow

    def check(self, block: blocks.Block, scratch: blocks.Scratch) -> str:
        unknown = set(block.options) - blocks.KNOWN
        require(not unknown, f"unknown options {sorted(unknown)}")
        for option in ("skip", "slow"):
            if option in block.options:
                require(bool(block.options[option].strip()), f"{option}: why?")
        needed = block.options.get("needs", "torch")
        require(needed == "torch", f"needs '{needed}', expected torch")
        if "from" in block.options:
            command = block.options["from"]
            output = scratch.output_of(command, self.tools.timeout)
            blocks.compare_output(block.text, output)
            return command
        if block.language == "mlir":
            file = scratch.folder / "block.mlir"
            file.write_text(block.text)
            self.tools.run("plait-opt", file, cwd=scratch.folder)
            return "parsed"
        if block.language == "python":
            scratch.run_python(block, self.tools.timeout)
            return ""
        scratch.run(block.text, self.tools.timeout)
        return ""

    def wants(self, block: blocks.Block) -> bool:
        if "skip" in block.options:
            return False
        if "slow" in block.options and not self.slow:
            return False
        if "needs" in block.options and not TORCH:
            return False
        return block.language in ("sh", "mlir", "python") or "from" in block.options

    def run_page(self, page: pathlib.Path) -> None:
        found = [x for x in blocks.read_blocks(page) if self.wants(x)]
        if not any(self.report.wants(x.name) for x in found):
            return
        with tempfile.TemporaryDirectory(prefix="plait-docs-") as folder:
            scratch = blocks.Scratch(pathlib.Path(folder), self.tools.folder)
            for block in found:
                kind = "output" if "from" in block.options else block.language
                self.report.case(
                    f"{block.name} {kind}",
                    lambda b=block: self.check(b, scratch),
                )
            scratch.close()


#===-----------------------------------------------------------------------===#
# Links
#===-----------------------------------------------------------------------===#


def anchors(page: pathlib.Path) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.replace(" ", "-") for title in kept}


def check_links(page: pathlib.Path) -> str:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    links = [x for x in LINK.findall(text) if "://" not in x]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        require(target.exists(), f"{link}: no such file")
        if anchor:
            require(anchor in anchors(target), f"{link}: no such heading")
    return f"{len(links)} links"


#===-----------------------------------------------------------------------===#
# Options
#===-----------------------------------------------------------------------===#


def read_flags(tools: Tools, *command: str) -> set[str]:
    """The options of a tool or of one of its commands."""
    is_short = command in (("plait-run",), ("plaitc",))
    text = tools.run(*command, "--help-all" if is_short else "--help").stdout
    option = re.compile(r"^ +((?:-\w,)?(?:--[a-z][a-z0-9-]*,?)+)", re.MULTILINE)
    return {x for names in option.findall(text) for x in FLAG.findall(names)}


def check_options(tools: Tools, command: str, documented: dict) -> str:
    """Every option is in docs/, and its tables there name no other."""
    flags = read_flags(tools, *command.split())
    flags -= {"--help", "--help-all", "--version"}
    missing = sorted(flags - documented["anywhere"])
    require(not missing, f"no page names {' '.join(missing)}")
    invented = sorted(documented.get(command, set()) - flags)
    require(not invented, f"there is no {' '.join(invented)}")
    return f"{len(flags)} options"


def documented_flags() -> dict[str, set[str]]:
    """The options that any page names, and by heading those in the first column
    of the tables below it."""
    documented = {"anywhere": set()}
    for page in find_pages():
        text, heading = page.read_text(), ""
        documented["anywhere"] |= set(FLAG.findall(text))
        for line in text.splitlines():
            if line.startswith("#"):
                heading = line.lstrip("# ").strip("`")
            elif line.startswith("| `-"):
                cell = line.split("|")[1]
                documented.setdefault(heading, set()).update(FLAG.findall(cell))
    return documented


#===-----------------------------------------------------------------------===#
# The quick start
#===-----------------------------------------------------------------------===#


def check_quickstart() -> str:
    """It builds the tools that it runs, each before it does, and no others."""
    script = (ROOT / "scripts" / "quickstart.sh").read_text()
    built, used = set(), set()
    for line in script.splitlines():
        if build := re.match(r"scripts/build\.sh +([^#\n]+)", line):
            built |= set(build[1].split())
        used |= set(re.findall(r"build/bin/([\w-]+)", line))
        require(used <= built, f"runs {sorted(used - built)} before it builds it")
    require(built == used, f"builds {sorted(built)}, runs {sorted(used)}")
    return " ".join(sorted(built))


COMMANDS = (
    "plaitc",
    "plait-run",
    "plait-plan show",
    "plait-plan check",
    "plait-plan schedule",
    "plait-plan simulate",
    "plait-plan diff",
    "plait-plan calibrate",
    "plait-plan reshard",
    "plait-data",
)


def main() -> int:
    parser = arguments(__doc__)
    # Enough to compile the example, which takes 20 s when nothing else runs.
    parser.set_defaults(timeout=240)
    parser.add_argument(
        "--slow", action="store_true", help="run the blocks marked slow as well"
    )
    options = parser.parse_args()
    timeout = 600 if options.slow else options.timeout
    tools = Tools(options.bin, timeout)
    report = Reporter("docs", options.filter)
    runner = BlockRunner(tools, report, options.slow)
    for page in find_pages():
        runner.run_page(page)
        name = page.relative_to(ROOT)
        report.case(f"{name} links", lambda p=page: check_links(p))
    more = [*(ROOT / "bench").glob("*.md"), *(ROOT / "docs" / "reference").glob("*")]
    for page in sorted(more):
        name = page.relative_to(ROOT)
        report.case(f"{name} links", lambda p=page: check_links(p))
    documented = documented_flags()
    for command in COMMANDS:
        report.case(
            f"options/{command}",
            lambda c=command: check_options(tools, c, documented),
        )
    report.case("quickstart", check_quickstart)
    words.check(report, find_pages())
    reference.check(report, tools)
    passes.check(report, tools)
    comments.check(report)
    dispatch.check(report)
    messages.check(report)
    diagnostics.check(report)
    return report.finish()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"error: {failure}")
