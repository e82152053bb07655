# ===- attributes.py - Attributes in the text of IR ------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Finds all attributes of a module that is written in the generic form, down to
the numbers, words, names and types that they are made of, and edits them.

A *place* is called after the op and the way to it: `nn.parameter init.mean`; the
elements of a list are one place, `[]`, and what has no name in an attribute goes by
its kind: `pipe.function <word>`. An *edit* is a span of the text and what stands there
instead."""

import collections
import dataclasses
import functools
import pathlib
import re

TOKEN = re.compile(r"""
    (?P<space>\s+)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<type>(?:tensor|memref|vector)<(?:[^<>"]|"[^"]*"|->|<(?:[^<>"]|"[^"]*"|<[^<>]*>)*>)*>)
  | (?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))
  | (?P<symbol>@(?:[\w.$-]+|"[^"]*"))
  | (?P<attribute>\#[\w.]+|![\w.]+)
  | (?P<word>[A-Za-z_][\w.$]*)
  | (?P<punctuation>->|::|.)
""", re.VERBOSE | re.DOTALL)
BUILTIN = re.compile(r"(?:[su]?i|f|bf)\d+|index|none|unit|array|dense")
OPEN, CLOSE = "<[{(", ">]})"


@dataclasses.dataclass(frozen=True)
class Leaf:
    """What is edited as one: `text`, at `start`, of kind number, word, ..."""
    place: str
    kind: str
    start: int
    text: str

    @property
    def end(self):
        return self.start + len(self.text)


@dataclasses.dataclass(frozen=True)
class Entry:
    """An attribute of an op, or a named part of one, with what stands for it."""
    place: str
    start: int
    end: int
    value: str


@dataclasses.dataclass
class Attributes:
    leaves: list = dataclasses.field(default_factory=list)
    entries: list = dataclasses.field(default_factory=list)
    # Of each op with attributes: its name, those that it has, where one more goes.
    ops: list = dataclasses.field(default_factory=list)
    # The last element of each list, with the comma before it.
    last: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Edit:
    place: str
    label: str
    start: int
    end: int
    text: str

    def apply(self, module):
        return module[:self.start] + self.text + module[self.end:]


@dataclasses.dataclass(frozen=True)
class Renaming(Edit):
    """Of a symbol, wherever it is named, buffers that are called after it too."""

    def apply(self, module):
        name = module[self.start + 1:self.end - 1]
        return re.sub(rf'(@"?|sym_name = "){re.escape(name)}(?=[" ,)\]>}}:]|$)',
                      rf"\g<1>{self.text}", module, flags=re.MULTILINE)


# What any op may have is one place.
SHARED = re.compile(r"(?!builtin\.module |func\.func )\S+ "
                    r"((?:dist|nn|pipe|plait|plan)\.\w.*)")


def call(place):
    return f"any op {match[1]}" if (match := SHARED.fullmatch(place)) else place


class Scanner:
    """Walks over the tokens of a module once."""

    def __init__(self, text):
        self.text = text
        self.tokens = [(match.lastgroup, match.group(), match.start())
                       for match in TOKEN.finditer(text)
                       if match.lastgroup != "space"]
        self.at = 0
        self.found = Attributes()

    def peek(self, ahead=0):
        index = self.at + ahead
        return self.tokens[index][1] if index < len(self.tokens) else ""

    def take(self):
        token = self.tokens[self.at]
        self.at += 1
        return token

    def skip(self):
        """Over what is in the brackets that begin here."""
        depth = 0
        while True:
            text = self.take()[1]
            depth += (text in OPEN) - (text in CLOSE)
            if not depth:
                return

    def end_of_last(self):
        _, text, start = self.tokens[self.at - 1]
        return start + len(text)

    def scan_module(self):
        while self.at < len(self.tokens):
            kind, text, _ = self.tokens[self.at]
            if kind == "string" and self.peek(1) == "(":
                self.scan_op()
            else:
                self.at += 1
        return self.found

    def scan_op(self):
        name = self.take()[1].strip('"')
        self.skip()  # operands
        if self.peek() == "[":
            self.skip()  # successors
        known = len(self.found.ops)
        if self.peek() == "<" and self.peek(1) == "{":
            self.take()
            self.scan_dictionary(name, is_op=True)
            self.take()
        if self.peek() == "(":  # regions
            self.take()
            depth = 1
            while depth:
                kind, text, _ = self.tokens[self.at]
                if kind == "string" and self.peek(1) == "(":
                    self.scan_op()
                    continue
                if text == "^":  # arguments of a block
                    while self.peek() != "(" and self.peek() != ":":
                        self.at += 1
                    if self.peek() == "(":
                        self.skip()
                    continue
                depth += (text in OPEN) - (text in CLOSE)
                self.at += 1
        if self.peek() == "{":
            self.scan_dictionary(name, is_op=len(self.found.ops) == known)

    def scan_dictionary(self, place, is_op=False):
        """`{a = 1, b}`. An op's first one is where attributes are added."""
        start = self.take()[2]
        names = {}
        while self.peek() != "}":
            first = self.at
            key = self.take()[1].strip('"')
            value = self.tokens[first][2]
            if self.peek() == "=":
                self.take()
                value = self.tokens[self.at][2]
                self.scan_value(f"{place} {key}" if is_op or " " not in place
                                else f"{place}.{key}")
            self.add_entry(f"{place} {key}" if is_op or " " not in place
                           else f"{place}.{key}", first, value)
            names[key] = self.text[self.tokens[first][2]:self.end_of_last()]
            if self.peek() == ",":
                self.take()
        self.take()
        if is_op:
            self.found.ops.append((place, names, start + 1))

    def add_entry(self, place, first, value):
        """With the comma that goes with it when it is removed."""
        start, end = self.tokens[first][2], self.end_of_last()
        stands = self.text[value:end]
        if self.peek() == ",":
            end = self.tokens[self.at + 1][2]
        elif self.tokens[first - 1][1] == ",":
            start = self.tokens[first - 1][2]
        self.found.entries.append(Entry(place, start, end, stands))

    def scan_value(self, place):
        """Up to the comma or bracket behind the value."""
        kind, text, start = self.tokens[self.at]
        is_set = self.tokens[self.at + 1][0] == "string" and self.peek(2) != "="
        if text == "{" and not is_set:
            self.scan_dictionary(place)
        elif text in OPEN:
            self.scan_sequence(place, "[]" if text in "[{" else "")
        elif kind == "punctuation":
            self.take()
        else:
            self.take()
            self.add_leaf(place, kind, text, start)
        while self.peek() not in (",", "}", "]", ")", ">", ""):
            if self.peek() == ":" and self.peek(1) not in ("[", "<"):
                self.take()
                if self.tokens[self.at][0] != "number":  # the type of a number
                    self.take()
                    continue
            self.scan_value(place)

    def scan_sequence(self, place, suffix):
        self.take()
        first = self.at
        while self.peek() not in ("]", ")", ">", "}"):
            first = self.at
            if self.tokens[first][0] in ("word", "string") and self.peek(1) == "=":
                key = self.take()[1].strip('"')
                self.take()
                value = self.tokens[self.at][2]
                self.scan_value(f"{place}.{key}")
                self.add_entry(f"{place}.{key}", first, value)
            else:
                self.scan_value(place + suffix)
            if self.peek() == ",":
                self.take()
        if suffix and first != self.at:
            start = self.tokens[first - (self.tokens[first - 1][1] == ",")][2]
            self.found.last.append((place + suffix, start, self.end_of_last()))
        self.take()

    def add_leaf(self, place, kind, text, start):
        if kind == "attribute" or kind == "word" and BUILTIN.fullmatch(text):
            return
        self.found.leaves.append(Leaf(place, kind, start, text))


def find_attributes(text):
    return Scanner(text).scan_module()


@functools.cache
def find_enumerations():
    """The words of each enumeration of the dialects."""
    root = pathlib.Path(__file__).resolve().parents[3]
    groups = []
    for path in sorted((root / "include").rglob("*.td")):
        for body in re.findall(r"I\d+EnumAttr<(.*?)\]>", path.read_text(), re.DOTALL):
            groups.append(re.findall(r'EnumAttrCase<"\w+", \d+, "(\w+)">', body))
    words = collections.defaultdict(list)
    for group in groups:
        for word in group:
            words[word] += [other for other in group if other != word]
    # Those of the configuration.
    source = (root / "lib/Configuration/Configuration.cpp").read_text()
    for group in re.findall(r"\{((?:\s*\"[a-z0-9-]+\",?)+)\s*\}", source):
        for word in (names := re.findall(r'"([a-z0-9-]+)"', group)):
            words[word] += [other for other in names if other != word]
    return words


def change_number(text):
    if text.startswith("0x"):
        return ["1.250000e+00"]
    if re.search(r"[.eE]", text):
        return [repr(float(text) * 1.5 + (float(text) == 0))]
    return [str(int(text) + 1), str(int(text) - 1)]


def change_string(text, others):
    """Another one that is known, or a digit or a letter of this one."""
    inner = text[1:-1]
    found = [other for other in others if other != text][:1]
    if digit := re.search(r"(?<![\\\dA-F])[1-9](?!\w)", inner):
        found.append(f'"{inner[:digit.start()]}{int(digit.group()) % 9 + 1}'
                     f'{inner[digit.end():]}"')
    return found or [f'"{inner}x"']


def change_type(text):
    return [re.sub(r"(?<=<)\d+", lambda size: str(int(size.group()) + 1), text)]


def change(leaf, others):
    """The other texts of a leaf."""
    others = sorted(others)
    if leaf.kind == "number":
        return change_number(leaf.text)
    if leaf.kind == "string":
        return change_string(leaf.text, others)
    if leaf.kind == "type":
        return change_type(leaf.text)
    if leaf.text in ("true", "false"):
        return ["false" if leaf.text == "true" else "true"]
    found = [other for other in others if other != leaf.text][:1]
    if leaf.kind == "word":
        found = find_enumerations().get(leaf.text) or found
    return found


def find_edits(text):
    """All edits of a module, by place and label."""
    found = find_attributes(text)
    edits = collections.defaultdict(list)

    def add(place, label, start, end, instead, kind=Edit):
        place = call(place)
        if instead != text[start:end]:
            edits[place, label].append(kind(place, label, start, end, instead))
    values = collections.defaultdict(set)
    for leaf in found.leaves:
        values[leaf.place, leaf.kind].add(leaf.text)
    for leaf in found.leaves:
        for number, instead in enumerate(change(leaf, values[leaf.place, leaf.kind])):
            add(leaf.place, f"{leaf.kind} {number}", leaf.start, leaf.end, instead)
        if leaf.place.endswith(" sym_name"):
            add(leaf.place, "renamed", leaf.start, leaf.end,
                leaf.text.strip('"') + ".renamed", Renaming)
    stands = collections.defaultdict(set)
    for entry in found.entries:
        stands[entry.place].add(entry.value)
    for entry in found.entries:
        add(entry.place, "removed", entry.start, entry.end, "")
        other = next((value for value in sorted(stands[entry.place])
                      if value != entry.value), entry.value)
        start = text.index(entry.value, entry.start)
        add(entry.place, "another's", start, start + len(entry.value), other)
    for place, start, end in found.last:
        add(place, "shortened", start, end, "")
    seen = collections.defaultdict(dict)
    for name, attributes, _ in found.ops:
        seen[name].update(attributes)
    for name, attributes, start in found.ops:
        for key, stands in seen[name].items():
            if key not in attributes:
                add(f"{name} {key}", "added", start, start,
                    stands + ", " * bool(attributes))
    return edits
