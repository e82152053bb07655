"""Fails where an answer to an unknown option names an option that no tool has."""

import re
import sys

source, help_text = (open(path).read() for path in sys.argv[1:])
known = set(re.findall(r"--([a-z0-9-]+)", help_text))
table = source.split("foreignOptions[] = {")[1].split("\n};")[0]
answers = re.findall(r'"(?:plaitc|plait-run)",\s*"([a-z0-9-]+)[^"]*"', table)
own = source.split("ownOptions[] = {")[1].split("};")[0]
answers += [
    name
    for text in re.findall(r'"([^"]*)"', own)
    for name in text.split()
    if name not in ("plaitc", "plait-run", "plait-data")
]
assert len(answers) > 60, answers
missing = sorted(set(answers) - known)
assert not missing, missing
