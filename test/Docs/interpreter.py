#===- interpreter.py - Python blocks of a page ------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs the Python blocks of a page, one after the other, as a reader types them: what
one defines, the next has."""

import json
import pathlib
import subprocess
import threading

from harness import Failure, require

# Reads a block a line, as JSON, and answers whether it succeeded and what it printed.
DRIVER = """
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    output, good = io.StringIO(), True
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            exec(compile(json.loads(line), "block", "exec"), names)
        except BaseException:
            traceback.print_exc()
            good = False
    print(json.dumps([good, output.getvalue()]), flush=True)
"""


class Interpreter:
    def __init__(self, python: pathlib.Path, folder: pathlib.Path, environment: dict):
        self.child = subprocess.Popen(
            [str(python), "-c", DRIVER],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, text: str, timeout: float) -> str:
        """What a block prints; it must succeed."""
        timer = threading.Timer(timeout, self.child.kill)
        timer.start()
        try:
            self.child.stdin.write(json.dumps(text) + "\n")
            self.child.stdin.flush()
            answer = self.child.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            raise Failure(f"the interpreter has ended, or did not end in {timeout:g} s")
        good, output = json.loads(answer)
        require(good, output.strip()[-1000:])
        return output

    def close(self) -> None:
        self.child.stdin.close()
        self.child.wait()
