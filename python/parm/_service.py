"""Starts copies of an application or a function, with `parm run` in front of them."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import json
import operator
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any, Callable, Sequence

from . import _server
from ._command import ParmError, binary, flags

#: The program of a copy; with `-m` the module would be loaded twice.
COPY = "import sys; from parm import _server; _server.serving = True; _server.main(*sys.argv[1:])"
#: What can be served without further packages.
FUNCTION = "a plain function of a file, such as `def predict(x): return clf.predict_proba(x)`"
#: Ends parm when the pipe is closed that only this Python has: a Python that is killed runs nothing at its end.
GUARD = "import os, sys; sys.stdin.read(); os.kill(int(sys.argv[1]), 15)"


class Service:
    """Running copies. Ends with `stop`, at the end of a `with` block, or with this Python."""

    def __init__(self, words: list[str], name: str | None, folder: Any, function: Any, example: list[Any]) -> None:
        self._folder, self._name, self._function, self._example = folder, name, function, example
        self._log, ready = os.path.join(folder.name, "log"), os.path.join(folder.name, "ready.json")
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
        self.addresses: dict[str, Any] = json.loads(pathlib.Path(ready).read_text("utf-8"))
        self.url: str = f"http://{self.addresses['http']}"

    def log(self) -> str:
        """What parm and the copies have written so far; the copies' lines begin with their number."""
        return pathlib.Path(self._log).read_text("utf-8", "replace")

    def __call__(self, *arrays: Any) -> Any:
        """Sends arrays to the function that is served, and returns its array, or a dictionary of several."""
        if self._name is None:
            raise ParmError(f"only a served function can be called: send requests to {self.url}")
        import numpy

        sent = [numpy.asarray(array) for array in arrays]
        for at, (array, like) in enumerate(zip(sent, map(numpy.asarray, self._example))):
            # Python's own numbers have 64 bits, and models rarely do. If a value could be lost, parm refuses the request.
            if like.dtype.kind in "iuf" and numpy.can_cast(array.dtype, like.dtype, "same_kind"):
                sent[at] = array.astype(like.dtype)
        head, body = _server.encode(_server.named(self._function, sent), True)
        head["parameters"] = {"binary_data_output": True}
        text = json.dumps(head).encode()
        headers = {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"}
        url = f"{self.url}/v2/models/{self._name}/infer"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, text + body, headers)) as answer:
                _, read = _server.decode(answer.read(), answer.headers.get("Inference-Header-Content-Length"), "outputs")
        except urllib.request.HTTPError as error:
            said = error.read().decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError, TypeError):
                said = json.loads(said)["error"]
            raise ParmError(said["message"] if isinstance(said, dict) else said) from None
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
    target: str | Sequence[str] | Callable[..., Any], *, example: Any = None, name: str | None = None, **options: Any
) -> Service:
    """Starts copies of a server behind one address, and returns once all answer.

    `target` is an ASGI application such as `"app:app"`, the words of a command with `{port}`, or a function of numpy
    arrays whose first dimension is the rows. A function is served by the Open Inference Protocol, as the model `name`
    (its own by default). With `example`, an array (or a list of arrays) of some rows, parm knows the shapes: it batches rows
    of several requests and accepts policies such as stand-in. Further keywords are flags of `parm run`: `replicas=4` (2 by
    default), `http="127.0.0.1:8000"` (the address for clients), `policy="hedge"`, `admin="127.0.0.1:8003"`.
    """
    if _server.serving:
        raise ParmError('a copy imports this script: put `if __name__ == "__main__":` before parm.serve')
    folder = tempfile.TemporaryDirectory(prefix="parm-")
    examples = [] if example is None else list(example) if isinstance(example, (list, tuple)) else [example]
    # An ASGI application is asynchronous, and uvicorn needs its name.
    if callable(target) and not any(map(inspect.iscoroutinefunction, (target, getattr(target, "__call__")))):
        name = name or getattr(target, "__name__", "function").strip("<>")
        command = [sys.executable, "-c", COPY, _importable(target, folder.name), "{port}", name]
        if examples:
            import numpy

            command.append(os.path.join(folder.name, "example.npz"))
            numpy.savez(command[-1], *examples)
            options.setdefault("worker", True)
    elif isinstance(target, str):
        # Without uvicorn the copy's last line, which is the error's, says so.
        command = [sys.executable, "-m", "uvicorn", target, "--host", "127.0.0.1", "--port", "{port}"]
    elif isinstance(target, (list, tuple)):
        command = list(target)
    else:
        raise ParmError(f'cannot serve a {type(target).__name__}: give {FUNCTION}, an application ("app:app"), or a command')
    # Only clients need an address that they know.
    options = {"grpc": "127.0.0.1:0", "metrics": "127.0.0.1:0", **options}
    words = [binary(), "run", "--ready-file", os.path.join(folder.name, "ready.json"), *flags(options), "--", *command]
    return Service(words, name if callable(target) else None, folder, target, examples)


def _importable(function: Callable[..., Any], folder: str) -> str:
    """Where another process finds a function: in a module, in the script, or else in a pickle of its code."""
    module, path = str(getattr(function, "__module__", "")), getattr(function, "__qualname__", "")
    place = module if module != "__main__" else os.path.abspath(getattr(sys.modules[module], "__file__", None) or "-")
    # A method of an object, or a function inside another one, is not found.
    with contextlib.suppress(AttributeError, KeyError):
        if operator.attrgetter(path)(sys.modules[module]) is function and (module != "__main__" or os.path.isfile(place)):
            return f"{place}:{path}"
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        raise ParmError(f"only cloudpickle can send it to the copies: pip install cloudpickle, or give {FUNCTION}") from None
    pickled = pathlib.Path(folder, "function.pickle")
    pickled.write_bytes(cloudpickle.dumps(function))
    return str(pickled)
