#!/usr/bin/env python3
#===- diagnostics.py - Which messages no test knows -------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Lists the messages of lib that no test mentions. A message is known where a
test has one of its pieces, of eight letters or more, or where a piece has what a
test looks for, of a dozen letters or more that no other message has. That is less
than that a test provokes it, and cheap: nothing runs. Those that cannot be provoked,
as what the system refuses for want of memory, are in unprovoked.txt, each with its
reason; no other may be there.

  python3 test/Docs/diagnostics.py [ROOM]    lists them, with their places"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "Execute"))

from harness import Reporter, require  # noqa: E402

MAKERS = r"fail|failure|emitError|emitOpError|emitWarning|warn(?!\(\))|note|error"
# Members of pages that people read are no diagnostics.
PAGES = ("lib/Planner/Report/", "lib/Runtime/Training/Dashboard")
CALL = re.compile(rf"\b(?:{MAKERS})\(")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
SINGLE = re.compile(r"'((?:[^'\\\n]|\\.)*)'")
# What lit looks for, but for what is matched by an expression.
CHECKED = re.compile(r"^[\s/#;]*[A-Z][A-Z0-9-]*: (.*)$", re.MULTILINE)
EXPECTED = re.compile(r"expected-(?:error|warning|note|remark)\S* (?:@\S+ )?\{\{(.*)\}\}")
SHOWN = re.compile(r"^```text from=.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
SUFFIXES = {".py", ".c", ".cpp", ".h", ".mlir", ".test", ".txt", ".json", ".csv"}
SHORTEST, LEAST_LOOKED_FOR = 8, 12
# Around what a message says of a name or a value, which is no part of a piece.
PUNCTUATION = " .,:;'\"()"
REASONS = ROOT / "test" / "Docs" / "unprovoked.txt"


def normalize(text: str) -> str:
    """Blanks and escapes as one blank; options without what they are marked by."""
    blank = re.sub(r"[\s\\]+", " ", text)
    return re.sub(r"`([a-z][a-z0-9-]*)`|(?<![\w-])--(?=[a-z])", r"\1", blank)


def join_literals(text: str) -> str:
    """Neighbours as one, as compilers read them."""
    return re.sub(r'"\s*\n\s*f?r?"', "", text)


def find_statement(text: str, start: int) -> str:
    """From `start` to where the call ends, or what is streamed into it."""
    depth, inside, i = 0, False, start
    while i < len(text):
        letter = text[i]
        if inside and letter == "\\":
            i += 1
        elif letter == '"':
            inside = not inside
        elif not inside and letter in "([{":
            depth += 1
        elif not inside and letter in ")]}":
            depth -= 1
            if depth < 0:
                break
        elif not inside and letter == ";" and depth <= 0:
            break
        i += 1
    return text[start:i]


def find_messages(text: str) -> list[tuple[int, list[str]]]:
    """Line and pieces of each message; those in pieces too short to look for are
    left out."""
    found = []
    for call in CALL.finditer(text):
        statement = join_literals(find_statement(text, call.start()))
        pieces = [
            normalize(piece.replace('\\"', '"')).strip(PUNCTUATION)
            for piece in LITERAL.findall(statement)
        ]
        pieces = [piece for piece in pieces if len(piece) >= SHORTEST]
        if pieces:
            found.append((text.count("\n", 0, call.start()) + 1, pieces))
    return found


def read_tests() -> list[str]:
    """All tests but these; of pages what commands are shown to print."""
    texts = [
        join_literals(path.read_text(errors="ignore").replace('\\"', '"'))
        for path in sorted((ROOT / "test").rglob("*"))
        if path.is_file() and path.suffix in SUFFIXES and path.parent.name != "Docs"
    ]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return texts + [block for page in pages for block in SHOWN.findall(page.read_text())]


def find_looked_for(tests: list[str]) -> set[str]:
    """What tests look for in outputs: strings, and lines of lit."""
    found = set()
    for text in tests:
        strings = LITERAL.findall(text) + SINGLE.findall(text) + EXPECTED.findall(text)
        strings += [x for line in CHECKED.findall(text) for x in re.split(r"\{\{.*?\}\}", line)]
        for string in strings:
            # Between what an expression leaves open.
            for part in re.split(r"[.\\][*+d]\+?|\{\w*\}|error: |warning: ", string):
                part = normalize(part).strip(PUNCTUATION)
                if len(part) >= LEAST_LOOKED_FOR and " " in part:
                    found.add(part)
    return found


def read_messages() -> list[tuple[str, int, list[str]]]:
    messages = []
    for path in sorted((ROOT / "lib").rglob("*")):
        name = str(path.relative_to(ROOT))
        if path.suffix not in (".h", ".cpp") or name.startswith(PAGES):
            continue
        text = re.sub(r"^[ \t]*//.*$", "", path.read_text(), flags=re.MULTILINE)
        messages += [(name, line, pieces) for line, pieces in find_messages(text)]
    return messages


def find_unknown() -> tuple[list[tuple[str, int, str]], int]:
    """File, line and longest piece of those that no test knows, and how many
    messages there are."""
    tests, messages = read_tests(), read_messages()
    all_tests = normalize("\n".join(tests))
    left = [x for x in messages if not any(piece in all_tests for piece in x[2])]
    texts = collections.Counter("\n".join(pieces) for _, _, pieces in messages)
    joined = "\n".join(texts)
    looked_for = [x for x in find_looked_for(tests) if joined.count(x) == 1]
    unknown = []
    for name, line, pieces in left:
        if not any(part in piece for part in looked_for for piece in pieces):
            unknown.append((name, line, max(pieces, key=len)))
    return unknown, len(messages)


def read_reasons() -> dict[tuple[str, str], str]:
    """By file and piece. A line is FILE: PIECE, and the next one why."""
    lines = [x for x in REASONS.read_text().splitlines() if x and x[0] != "#"]
    reasons = {}
    for place, reason in zip(lines[::2], lines[1::2], strict=True):
        name, _, piece = place.partition(": ")
        require(reason[:2] == "  ", f"'{place}' has no reason behind it")
        reasons[name, piece] = reason.strip()
    return reasons


def check_all() -> str:
    unknown, count = find_unknown()
    reasons = read_reasons()
    found = {(name, piece) for name, _, piece in unknown}
    new = [f"{x}:{line}: {piece}" for x, line, piece in unknown if (x, piece) not in reasons]
    require(not new, f"no test knows {len(new)} messages:\n" + "\n".join(new))
    gone = [f"{name}: {piece}" for name, piece in reasons if (name, piece) not in found]
    require(not gone, f"{REASONS.name} has what is known or gone:\n" + "\n".join(gone))
    return f"{count} messages, {len(reasons)} that nothing can provoke"


def check_finding() -> None:
    text = 'fail("is `micro-batch` ",\n n, " too "\n "large"); note("short");'
    found = find_messages(text)
    require(found == [(1, ["is micro-batch", "too large"])], str(found))


def check(report: Reporter) -> None:
    report.case("diagnostics: finding", check_finding)
    report.case("diagnostics: known to tests", check_all)


def main() -> None:
    unknown, count = find_unknown()
    for name, line, piece in unknown:
        if len(sys.argv) < 2 or name.startswith(sys.argv[1]):
            print(f"{name}:{line}: {piece}")
    rooms = collections.Counter("/".join(name.split("/")[:2]) for name, _, _ in unknown)
    print(f"of {count} messages no test knows {len(unknown)}: {dict(rooms)}")


if __name__ == "__main__":
    main()
