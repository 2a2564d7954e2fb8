"""Finds and runs the program `parm`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from typing import Any


class ParmError(RuntimeError):
    """`parm` could not do what was asked. The message is that of the program; `report` is that of a run that failed."""

    def __init__(self, message: str, report: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.report = report


def binary() -> str:
    """The path of the program: `PARM_BINARY`, that of this environment, or that of the PATH."""
    beside = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    found = os.environ.get("PARM_BINARY") or shutil.which("parm", path=os.pathsep.join(beside)) or shutil.which("parm")
    if not found:
        raise ParmError("the program parm was not found: install the wheel of parm-rs, or set PARM_BINARY to its path")
    return found


def flags(options: dict[str, Any]) -> list[str]:
    """Keywords as flags: `start_timeout=5` is `--start-timeout 5`, True is a flag without value, a list repeats the flag."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is True:
                words.append(flag)
            elif item is not None and item is not False:
                # One word, because a value may begin with a minus.
                words.append(f"{flag}={item}")
    return words


def report(words: list[str]) -> tuple[dict[str, Any], str]:
    """Runs a command, and returns its JSON and what it said besides."""
    done = subprocess.run([binary(), *words, "--output=json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told = json.loads(done.stdout) if done.stdout else None
    if told is None or done.returncode:
        # A run that is invalid, or misses a threshold, has a report too.
        raise ParmError(done.stderr.strip() or f"parm {words[0]} ended with status {done.returncode}", told)
    return told, done.stderr
