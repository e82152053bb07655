#!/usr/bin/env python3
# ===- terminal.py - What a command prints on a terminal -------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Runs a command on a terminal of its own and prints what it has written there: a
line for each line, in which what was written over something else stands behind a
bar. Standard library only.

  terminal.py COMMAND..."""

import os
import pty
import sys


def main() -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.execvp(sys.argv[1], sys.argv[1:])
    text = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # how Linux says that nobody has it open any more
            break
        if not more:
            break
        text += more
    os.waitpid(process, 0)
    for line in text.decode(errors="replace").split("\n"):
        print("|".join(part for part in line.split("\r") if part))


if __name__ == "__main__":
    main()
