"""A small server of the Open Inference Protocol for one function of numpy arrays, in a process of its own.

It calls the function for one request at a time, because few functions are safe to call from two threads; the other copies
run beside it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import operator
import pickle
import runpy
import sys
import threading
import traceback
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterable, Sequence

#: Whether this process is a copy, which must not start copies of its own. The copy's program sets it.
serving = False

TYPES = {f"{kind}{8 * size}": f"{code}{size}" for kind, code in [("INT", "i"), ("UINT", "u")] for size in (1, 2, 4, 8)}
TYPES.update({"BOOL": "?", "FP16": "f2", "FP32": "f4", "FP64": "f8"})
NAMES = {code: name for name, code in TYPES.items()}


def datatype(array: Any) -> str:
    """The protocol's name of an array's type; strings are BYTES."""
    return NAMES.get(array.dtype.str.lstrip("<>|=").replace("b1", "?"), "BYTES")


def encode(arrays: Iterable[tuple[str, Any]], binary: bool) -> tuple[dict[str, Any], bytes]:
    """The tensors of a request as JSON, and the bytes after it."""
    tensors, rest = [], []
    for name, array in arrays:
        tensor: dict[str, Any] = {"name": name, "datatype": datatype(array), "shape": list(array.shape)}
        if tensor["datatype"] == "BYTES":
            tensor["data"] = [each.decode() if isinstance(each, bytes) else str(each) for each in array.ravel()]
        elif binary:
            rest.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
            tensor["parameters"] = {"binary_data_size": len(rest[-1])}
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    return {"inputs": tensors}, b"".join(rest)


def decode(body: bytes, length: str | None, key: str = "inputs") -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON of a request or an answer, and its arrays by name."""
    import numpy

    split = int(length) if length else len(body)
    head, at, arrays = json.loads(body[:split]), split, {}
    for tensor in head[key]:
        size = tensor.get("parameters", {}).get("binary_data_size")
        kind = TYPES.get(tensor["datatype"])
        if size is None:
            array = numpy.array(tensor["data"], dtype=kind or object)
        elif kind:
            array = numpy.frombuffer(body[at : at + size], numpy.dtype(kind).newbyteorder("<"))
        else:
            array = numpy.array(_strings(body[at : at + size]), dtype=object)
        at += size or 0
        arrays[tensor["name"]] = array.reshape(tensor["shape"])
    return head, arrays


def _strings(body: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "little")
        found.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def find(target: str) -> Callable[..., Any]:
    """The function of `module:name`, `/path/script.py:name` or `/path/function.pickle`."""
    if target.endswith(".pickle"):
        with open(target, "rb") as file:
            return pickle.load(file)  # type: ignore[no-any-return]
    place, _, path = target.rpartition(":")
    names = runpy.run_path(place, run_name="__parm__") if place.endswith(".py") else vars(importlib.import_module(place))
    try:
        return operator.attrgetter(path)(types.SimpleNamespace(**names))  # type: ignore[no-any-return]
    except AttributeError:
        sys.exit(f"'{path}' is not found when a copy imports {place}: move it above `if __name__ == \"__main__\":`")


def parameters(function: Callable[..., Any]) -> list[str]:
    """The parameters if all can be given by name."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions in C do not tell
        return []
    in_order = any(each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL) for each in found)
    return [] if in_order else [each.name for each in found if each.kind != each.VAR_KEYWORD]


def named(function: Callable[..., Any], arrays: Sequence[Any]) -> list[tuple[str, Any]]:
    """The inputs of a call: the names are those of the parameters, where these are known."""
    names = parameters(function)
    return list(zip(names if len(names) >= len(arrays) else [f"input{at}" for at in range(len(arrays))], arrays))


def described(arrays: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Names, types and shapes, with any number of rows."""
    return [{"name": name, "datatype": datatype(each), "shape": [-1, *each.shape[1:]]} for name, each in arrays]


class Model:
    """The function as a model."""

    def __init__(self, function: Callable[..., Any], name: str, example: str | None) -> None:
        self.function, self.name, self.lock = function, name, threading.Lock()
        self.metadata: dict[str, Any] = {"name": name, "versions": ["1"], "platform": "python", "inputs": [], "outputs": []}
        if example:
            import numpy

            with numpy.load(example) as file:
                inputs = named(function, [file[key] for key in file.files])
            self.metadata.update(inputs=described(inputs), outputs=described(self.run(dict(inputs))))

    def run(self, arrays: dict[str, Any]) -> list[tuple[str, Any]]:
        """Calls the function: by the names of its parameters if the request has these, otherwise in order."""
        import numpy

        with self.lock:
            by_name = set(arrays) <= set(parameters(self.function))
            found = self.function(**arrays) if by_name else self.function(*arrays.values())
        if not isinstance(found, dict):
            found = {f"output{at}": each for at, each in enumerate(found if isinstance(found, tuple) else [found])}
        return [(name, numpy.asarray(array)) for name, array in found.items()]


class Handler(BaseHTTPRequestHandler):
    """Answers the routes of the protocol that parm and its clients use."""

    model: Model
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        path, model = self.path.split("?")[0].rstrip("/"), f"/v2/models/{self.model.name}"
        if path in ("/health", "/v2/health/live", "/v2/health/ready", f"{model}/ready", f"{model}/versions/1/ready"):
            self.say(200, {})
        elif path == "/v2":
            self.say(200, {"name": "parm-python", "version": "1", "extensions": ["binary_tensor_data"]})
        elif path in (model, f"{model}/versions/1"):
            self.say(200, self.model.metadata)
        elif path in (f"{model}/config", f"{model}/versions/1/config"):
            rows = 64 if self.model.metadata["inputs"] else 0
            # parm reads the tensors from the metadata, but refuses a configuration without these lists.
            self.say(200, {"name": self.model.name, "platform": "python", "max_batch_size": rows, "input": [], "output": []})
        else:
            self.say(404, {"error": f"no route {path}"})

    def do_POST(self) -> None:
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            return self.say(411, {"error": "a request with a body needs a Content-Length"})
        body, path = self.rfile.read(int(self.headers.get("Content-Length", 0))), self.path.split("?")[0]
        if path == "/v2/repository/index":
            return self.say(200, [{"name": self.model.name, "version": "1", "state": "READY", "reason": ""}])
        if path not in (f"/v2/models/{self.model.name}/infer", f"/v2/models/{self.model.name}/versions/1/infer"):
            return self.say(404, {"error": f"no route {path}"})
        length = self.headers.get("Inference-Header-Content-Length")
        try:
            asked, arrays = decode(body, length)
        except (KeyError, TypeError, ValueError) as error:
            return self.say(400, {"error": f"cannot read the request: {type(error).__name__}: {error}"})
        wanted = asked.get("parameters", {}).get("binary_data_output", False)
        wanted = wanted or any(each.get("parameters", {}).get("binary_data") for each in asked.get("outputs", []))
        try:
            head, rest = encode(self.model.run(arrays), wanted)
        except Exception as error:  # what the function raises is its own
            traceback.print_exc()
            return self.say(500, {"error": f"{type(error).__name__}: {error}"})
        named = {"model_name": self.model.name, "model_version": "1", "id": asked.get("id", "")}
        self.say(200, {**named, "outputs": head["inputs"]}, rest)

    def say(self, status: int, content: Any, rest: bytes = b"") -> None:
        """Writes an answer."""
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream" if rest else "application/json")
        if rest:
            self.send_header("Inference-Header-Content-Length", str(len(text)))
        self.send_header("Content-Length", str(len(text) + len(rest)))
        self.end_headers()
        self.wfile.write(text + rest)

    def log_message(self, format: str, *arguments: Any) -> None:
        """parm counts requests; a line for each is of no use."""


def main(target: str, port: str, name: str, example: str | None = None) -> None:
    """Serves until it is ended."""
    Handler.model = Model(find(target), name, example)
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
