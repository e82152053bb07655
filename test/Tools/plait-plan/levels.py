# ===- levels.py - What came to the plan format has its level ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Holds Plan.fbs against test/golden/plans/level-0.txt, which lists the fields and
the words of enumerations that plans of level 0 had. Whatever else there is must stand
in lib/Plan/Level.cpp, or an earlier plait passes over it in silence. And what level 0
had must still be there, or plans that were written with it cannot be read."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "test" / "Tools" / "plaitc"))
import fields  # noqa: E402


def main():
    base = set((ROOT / "test/golden/plans/level-0.txt").read_text().split())
    rows = set(re.findall(r'\{"([\w.]+)", \d+, ',
                          (ROOT / "lib/Plan/Level.cpp").read_text()))
    there = {f"{table}.{name}" for kinds in (fields.TABLES, fields.ENUMERATIONS)
             for table, names in kinds.items() for name in names}
    problems = [f"{name}: no row in lib/Plan/Level.cpp says since when"
                for name in sorted(there - base)
                if not {name, name.split(".")[0]} & rows]
    problems += [f"{name}: plans of level 0 have it" for name in sorted(base - there)]
    problems += [f"{row}: lib/Plan/Level.cpp has it, Plan.fbs has not" for row in
                 sorted(rows) if not any(f"{name}.".startswith(f"{row}.") for name in there)]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(there)} names, {len(there - base)} later than level 0")


if __name__ == "__main__":
    main()
