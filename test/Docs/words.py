#===- words.py - Words and sentences of user pages --------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""User pages speak the words of the field, in sentences that have a verb. So do
the texts of the tools: help, reports and messages.

The words not to use are a table of docs/Glossary.md. Texts of the tools are the
string literals in C++ and Python that have more than one word, with those of the
scripts in raw literals. Docstrings are comments. Sentences are those of
paragraphs and list items that end with a full stop. One has a verb if one of
its words is in verbs.txt, the forms that the pages use, and is no noun by its
neighbours. Limits: a verb in a subordinate clause counts, so that "Sums of
what ranks have." passes, and so does a noun that is spelt like a verb and has
no article. Words that are mostly nouns (step, plan, run) are therefore not in
the list. Where a sentence fails whose verb is not in verbs.txt, add it."""

import ast
import pathlib
import re

from harness import ROOT, Reporter, require

# For people who work on plait, whose subject needs other words.
DEVELOPER = {
    "docs/Developing.md",
    "docs/GPUKernels.md",
    "docs/Guards.md",
    "docs/Phases.md",
    "docs/Plan.md",
    "docs/Proof.md",
    "docs/Rationale.md",
    "docs/Tutorial.md",
    "examples/custom-op/README.md",
}
# Its messages are about places of elements, in the terms of docs/Proof.md.
DEVELOPER_SOURCES = {"lib/Proof"}
# Comments and single characters are matched so that a quotation mark within one
# begins no literal. Neighbouring literals are one text.
LITERALS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)'"""
    r"""|R"(?P<end>\w*)\((?P<raw>.*?)\)(?P=end)\""""
    r"""|(?P<text>(?:"(?:[^"\\\n]|\\.)*"(?:\s|\\\n)*)+)""",
    re.S,
)
# What a page says is quoted, or between elements.
SCRIPT = re.compile(
    r"""//[^\n]*|(?P<said>"[^"\n]* [^"\n]*"|'[^'\n]* [^'\n]*'|`[^`]*`|>[^<>\n]+<)|[^\n]"""
)
GLOSSARY = ROOT / "docs" / "Glossary.md"
HEADING = "## Words that user pages do not use"
VERBS = pathlib.Path(__file__).with_name("verbs.txt")
ARTICLES = {"a", "an", "its", "the", "their"}
BEFORE_OF = {"are", "consist", "consists", "is", "was", "were"}
# A full stop behind these ends no sentence.
ABBREVIATIONS = ("et al.", "e.g.", "i.e.", "vs.")


def blank(match: re.Match) -> str:
    """As many lines without text, so that line numbers stay."""
    return "\n" * match[0].count("\n")


def read_prose(text: str) -> str:
    """A page without code, addresses of links and pictures, and HTML."""
    text = re.sub(r"^```.*?^```", blank, text, flags=re.M | re.S)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", blank, text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", lambda m: "CODE" + blank(m), text)
    return re.sub(r"<[^>\n]+>", "", text)


def banned_words(text: str) -> list[str]:
    """The left column of the glossary's table, one entry a word or phrase."""
    require(HEADING in text, f"docs/Glossary.md has no '{HEADING}'")
    rows = re.findall(r"^\| (.+?) \| .+ \|$", text.partition(HEADING)[2], re.M)
    words = [word.strip() for row in rows[1:] for word in row.split(",")]
    require(bool(words), f"no table below '{HEADING}'")
    return words


def read_literals(text: str) -> str:
    """C++ source without all but its texts, line numbers kept."""

    def keep(match: re.Match) -> str:
        if match["raw"]:
            return re.sub(SCRIPT, lambda m: m["said"] or blank(m), match["raw"])
        pieces = re.split(r'"((?:[^"\\\n]|\\.)*)"', match["text"] or "")
        said = "".join(pieces[1::2]).replace("\\n", " ")
        return (said if " " in said.strip() else "") + "\0"

    found, line = [], 1
    for match in LITERALS.finditer(text):
        begin = text.count("\n", 0, match.start()) + 1
        found.append("\n" * (begin - line) + keep(match))
        line = begin
    return "".join(found)


def read_strings(text: str) -> str:
    """Python source without all but its texts, line numbers kept."""
    lines = [""] * (text.count("\n") + 1)
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {id(x.value) for x in nodes if isinstance(x, ast.Expr)}
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            for number, line in enumerate(node.value.split("\n"), node.lineno - 1):
                said = line if " " in node.value.strip() else ""
                said = re.sub(r"\w+ = ", "", said)  # names, as IR has them
                lines[min(number, len(lines) - 1)] += said + "\0"
    return "\n".join(lines)


def find_words(text: str, words: list[str]) -> list[str]:
    """Where a page uses one of the words: "line: word"."""
    return search(read_prose(text.partition(HEADING)[0]), words)


def search(prose: str, words: list[str]) -> list[str]:
    found = []
    for word in words:
        pattern = r"\b" + r"\s+".join(map(re.escape, word.split())) + r"\b"
        for match in re.finditer(pattern, prose, re.I):
            line = prose.count("\n", 0, match.start()) + 1
            found.append(f"line {line}: '{word}'")
    return found


def read_paragraphs(text: str) -> list[tuple[int, str]]:
    """Paragraphs and list items, with their first lines. No tables, headings."""
    found, first, lines = [], 0, []
    for number, line in enumerate([*read_prose(text).splitlines(), ""], 1):
        item = re.match(r" *(?:[-*]|\d+\.) +", line)
        ends = not line.strip() or line.startswith(("|", "#"))
        if (ends or item) and lines:
            found.append((first, " ".join(lines)))
            lines = []
        if ends:
            continue
        first = first if lines else number
        lines.append(line[item.end() :] if item else line.strip())
    return found


def split_sentences(paragraph: str) -> list[str]:
    """The sentences that end with a full stop."""
    for short in ABBREVIATIONS:
        paragraph = paragraph.replace(short, short[:-1])
    parts = re.split(r"(?<=[.!?])[*)]*\s+(?=[(*\[]*[A-Z\d])", paragraph)
    return [x for x in parts if re.search(r"[.!?][*)]*$", x.rstrip())]


def has_verb(words: list[str], verbs: set[str]) -> bool:
    """Whether one of the words is a verb, and no noun by its neighbours: "the
    work", "sums of"."""
    for before, word, after in zip(["", *words], words, [*words[1:], ""]):
        is_noun = before in ARTICLES or (
            after == "of" and word not in BEFORE_OF
        )
        if word in verbs and not is_noun:
            return True
    return False


def find_fragments(text: str, verbs: set[str]) -> list[str]:
    """Sentences without a verb: "line: sentence". Bold leads, as "**Order.**",
    and pieces of one word are headings."""
    found = []
    for line, paragraph in read_paragraphs(text):
        paragraph = re.sub(r"^\*\*[^*]+\*\*", "", paragraph)
        for sentence in split_sentences(paragraph):
            words = re.findall(r"[a-z]+(?:n't)?", sentence.lower())
            if len(words) > 1 and not has_verb(words, verbs):
                found.append(f"line {line}: no verb in '{sentence.strip()}'")
    return found


def check_page(page: pathlib.Path, words: list[str], verbs: set[str]) -> str:
    text = page.read_text()
    found = find_words(text, words) + find_fragments(text, verbs)
    require(not found, f"{len(found)} places\n" + "\n".join(found))
    return ""


def check_sources(words: list[str]) -> str:
    """Help, reports and messages."""
    found, count = [], 0
    readers = {".cpp": read_literals, ".h": read_literals, ".py": read_strings}
    for folder in ("include", "lib", "tools", "python"):
        for file in sorted((ROOT / folder).rglob("*")):
            name = file.relative_to(ROOT).as_posix()
            if file.suffix not in readers or any(
                name.startswith(x + "/") for x in DEVELOPER_SOURCES
            ):
                continue
            count += 1
            places = search(readers[file.suffix](file.read_text()), words)
            found += [f"{name} {place}" for place in places]
    require(not found, f"{len(found)} places\n" + "\n".join(found))
    return f"{count} files"


def check_self(words: list[str], verbs: set[str]) -> str:
    """Both checks find what they are for, and only that."""
    require(
        find_words("It\nlies `beside` a [box](beside.md).", words)
        == ["line 2: 'lies'", "line 2: 'box'"],
        "words are not found",
    )
    require(
        not find_words("```text\nlies\n```\nIt underlies `it`.", words),
        "code or parts of words are found",
    )
    source = """// "It lies"
    char quote = '"'; // it lies
    say("lies", "it "
        "lies", 1,
        "it goes\\n"
        "on");
    """
    require(
        search(read_literals(source), words)
        == ["line 3: 'lies'", "line 5: 'goes on'"],
        "words of literals are not found",
    )
    require(
        search(read_literals('x = R"(// lies\nsay("it lies"); lies)"; // lies'), words)
        == ["line 2: 'lies'"],
        "words of raw literals are not found",
    )
    source = "# it lies\n'''it lies'''\nsay('it lies', 'lies',\n  f'it {lies} goes on')\n"
    require(
        search(read_strings(source), words) == ["line 3: 'lies'", "line 4: 'goes on'"],
        "words of strings are not found",
    )
    bad = "It works. Sums of all ranks, and the work.\n\n- A verb is here.\n- The size\n  of it.\n"
    lines = [x.partition(":")[0] for x in find_fragments(bad, verbs)]
    require(lines == ["line 1", "line 4"], f"fragments are in {lines}")
    return f"{len(words)} words, {len(verbs)} verbs"


def check(report: Reporter, pages: list[pathlib.Path]) -> None:
    verbs = set(VERBS.read_text().split())
    words = banned_words(GLOSSARY.read_text())
    report.case("words/self", lambda: check_self(words, verbs))
    report.case("words/sources", lambda: check_sources(words))
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        if name not in DEVELOPER:
            report.case(
                f"words/{name}", lambda p=page: check_page(p, words, verbs)
            )
