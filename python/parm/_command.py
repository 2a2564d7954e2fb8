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
    """`parm` could not do what was asked. The message is that of the program."""


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


def report(words: list[str]) -> dict[str, Any]:
    """Runs a command and reads its JSON. A run that is invalid, or misses a threshold, has a report too, which says so."""
    done = subprocess.run([binary(), *words, "--output=json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        raise ParmError(done.stderr.strip() or f"parm {words[0]} ended with status {done.returncode}") from None
