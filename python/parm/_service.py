"""Starts copies of an application or a function, with `parm run` in front of them."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Sequence

from . import _server
from ._command import ParmError, binary, flags

#: The program of a copy; with `-m` the module would be loaded twice.
COPY = "import sys; from parm._server import main; main(*sys.argv[1:])"
#: Ends parm when the pipe is closed that only this Python has: a Python that is killed runs nothing at its end.
GUARD = "import os, sys; sys.stdin.read(); os.kill(int(sys.argv[1]), 15)"


class Service:
    """Running copies. Ends with `stop`, at the end of a `with` block, or with this Python."""

    def __init__(self, words: list[str], name: str | None, folder: tempfile.TemporaryDirectory[str]) -> None:
        self._folder, self._name = folder, name
        self._log, ready = os.path.join(folder.name, "log"), os.path.join(folder.name, "ready.json")
        at = words.index("--")
        words = [binary(), *words[:at], "--ready-file", ready, *words[at:]]
        # The copies find the modules that this Python finds.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path)}
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        guard = [sys.executable, "-ISc", GUARD, str(self._process.pid)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        atexit.register(self.stop)
        while not os.path.exists(ready):
            if self._process.poll() is not None:
                self.stop()
                raise ParmError(self.log().strip())
            time.sleep(0.02)
        with open(ready, encoding="utf-8") as file:
            self.addresses: dict[str, Any] = json.load(file)
        self.url: str = f"http://{self.addresses['http']}"

    def log(self) -> str:
        """What parm and the copies have written so far; the copies' lines begin with their number."""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def __call__(self, *arrays: Any) -> Any:
        """Sends arrays to the function that is served, and returns its array, or a dictionary of several."""
        if self._name is None:
            raise ParmError(f"only a served function can be called: send requests to {self.url}")
        head, body = _server.encode([(f"input{at}", array) for at, array in enumerate(arrays)], True)
        head["parameters"] = {"binary_data_output": True}
        text = json.dumps(head).encode()
        headers = {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"}
        url = f"{self.url}/v2/models/{self._name}/infer"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, text + body, headers)) as answer:
                length = answer.headers.get("Inference-Header-Content-Length")
                read = _server.decode(answer.read(), length, "outputs")
        except urllib.error.HTTPError as error:
            raise ParmError(error.read().decode(errors="replace")) from None
        return next(iter(read.values())) if len(read) == 1 else read

    def stop(self) -> None:
        """Answers accepted requests, then ends the copies."""
        atexit.unregister(self.stop)
        self._process.terminate()
        self._process.wait()
        self._guard.kill()
        self._guard.communicate()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(
    target: str | Sequence[str] | Callable[..., Any],
    *,
    replicas: int = 2,
    http: str = "127.0.0.1:8000",
    example: Any = None,
    name: str | None = None,
    **options: Any,
) -> Service:
    """Starts copies of a server behind one address, and returns once all answer.

    `target` is an ASGI application such as `"app:app"`, the words of a command with `{port}`, or a function of numpy
    arrays whose first dimension is the rows. A function is served by the Open Inference Protocol, as the model `name`
    (its own by default). With `example`, an array (or a list of arrays) of some rows, parm knows the shapes: it batches rows
    of several requests and accepts policies such as stand-in. `http` is the address for clients; further keywords are
    flags of `parm run`: `policy="hedge", admin="127.0.0.1:8003"`.
    """
    if _server.serving:
        raise ParmError('a copy imports this script: put `if __name__ == "__main__":` before parm.serve')
    folder = tempfile.TemporaryDirectory(prefix="parm-")
    if callable(target):
        name = name or getattr(target, "__name__", "function").strip("<>")
        command = [sys.executable, "-c", COPY, _importable(target, folder.name), "{port}", name]
        if example is not None:
            import numpy

            path = os.path.join(folder.name, "example.npz")
            arrays = example if isinstance(example, (list, tuple)) else [example]
            numpy.savez(path, *arrays)
            command.append(path)
            options.setdefault("worker", True)
        else:
            options["set"] = [*options.get("set", []), "frontend.upstreams.probe=/v2/health/ready"]
    elif isinstance(target, str):
        # Without uvicorn the copy's last line, which is the error's, says so.
        command = [sys.executable, "-m", "uvicorn", target, "--host", "127.0.0.1", "--port", "{port}"]
    else:
        command = list(target)
    # Only clients need an address that they know.
    options = {"grpc": "127.0.0.1:0", "metrics": "127.0.0.1:0", **options}
    words = ["run", f"--replicas={replicas}", f"--http={http}", *flags(options), "--", *command]
    return Service(words, name if callable(target) else None, folder)


def _importable(function: Callable[..., Any], folder: str) -> str:
    """Where another process finds a function: in a module, in the script, or else in a pickle of its code."""
    module, path = function.__module__, getattr(function, "__qualname__", "<none>")
    if "<" not in path and module != "__main__":
        return f"{module}:{path}"
    script = getattr(sys.modules["__main__"], "__file__", None)
    if "<" not in path and script:
        return f"{os.path.abspath(script)}:{path}"
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        raise ParmError(
            "a function of a notebook, or inside another one, needs cloudpickle to reach the copies: pip install "
            "cloudpickle, or write it into a module"
        ) from None
    pickled = os.path.join(folder, "function.pickle")
    with open(pickled, "wb") as file:
        cloudpickle.dump(function, file)
    return pickled
