"""The commands that end with a report: load, simulate, demo and stand-in."""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from typing import Any

from ._command import ParmError, flags, report
from ._report import Report
from ._service import Service


def load(url: Any, model: str, **options: Any) -> Report:
    """Sends load to a server and reports its latencies (`parm load`). `url` is an address or what `serve` gave.

    Further keywords are flags: `rate=50, seconds=10, require=["p99.9<=50ms"]`. `input` may be an array of rows.
    A run that is invalid, or misses a threshold of `require`, raises a ParmError, whose `report` has the figures.
    """
    if isinstance(url, Service) and url._name and not url._example:
        raise ParmError("the model's shapes are unknown: serve it with parm.serve(function, example=rows)")
    with tempfile.TemporaryDirectory() as folder:
        if "input" in options and not isinstance(options["input"], (str, os.PathLike, list, tuple)):
            options["input"] = _saved(options["input"], folder, "rows")
        told, _ = report(["load", str(getattr(url, "url", url)), "--model", model, "--quiet", *flags(options)])
    bars = [(f"p{100 * each['share']:g}", each.get("ms")) for each in told.get("latency", [])]
    return Report(told, f"{model}: {told['answered_per_second']:.0f} requests answered per second", bars)


def simulate(**options: Any) -> Report:
    """Simulates policies under load and faults in virtual time (`parm simulate`).

    Keywords are flags: `scenario="AB", load=[0.5, 0.85], policy=["equal", "hedge"], queries=100_000`. A run has 20,000
    queries by default, so that a notebook does not wait for the million of the program.
    """
    told, _ = report(["simulate", *flags({"queries": 20_000, **options})])
    bars = []
    for row in told["rows"]:
        name = f"{row['policy']}, {row['scenario']} {row['load']:g}"
        bars += [(f"{name}: p50", row["p50_ms"]["value"]), ("p99.9", (row["p999_ms"] or {}).get("value"))]
    return Report(told, f"{told['queries']} queries a run, by policy, scenario and load", bars)


def demo(**options: Any) -> Report:
    """Compares policies on this machine, with slow servers and then a frozen one (`parm demo`): `seconds=20`."""
    told, _ = report(["demo", *flags(options)])
    bars = []
    for row in told["policies"]:
        bars += [(f"{row['policy']}: p99, {act}", row[act]["p99_ms"]) for act in ("slow", "frozen")]
        bars += [(f"p99.9, {act}", row[act]["p999_ms"]) for act in ("slow", "frozen")]
    return Report(told, f"{told['seconds']:.0f} s at {told['rate']:.0f} requests per second", bars)


def stand_in(model: Any, rows: Any, *, name: str = "model", labels: Any = None, **options: Any) -> Report:
    """Makes a cheaper model with nearly the same answers (`parm stand-in`), and a model repository of both.

    `model` is a torch module, a fitted estimator of scikit-learn, an ONNX model or file, or a name in the repository.
    `rows` is an array of inputs, or a list with one for each input; a few hundred rows are better than 24, the least.
    `parm serve --models models --policy stand-in` serves the result; `models="folder"` is another repository. The key
    `advice` says what was made, or, if `chosen` is None, what to do instead.
    """
    inputs = list(rows) if isinstance(rows, (list, tuple)) else [rows]
    with tempfile.TemporaryDirectory() as folder:
        source = _exported(model, inputs, os.path.join(folder, f"{name}.onnx"))
        words = ["stand-in", source] + (["--name", name] if source.endswith(".onnx") else [])
        arrays = inputs if labels is None else [*inputs, labels]
        files = [_saved(array, folder, f"array{at}") for at, array in enumerate(arrays)]
        words += ["--data", "npy:" + ",".join(files), "--runs", os.path.join(folder, "runs")]
        told, _ = report(words + flags(options))
    bars = [(f"{each['name']} agrees", 100 * each["agreement"]["value"]) for each in told["candidates"]]
    return Report(told, f"{name}: {told['advice']}", bars, "%")


def _saved(array: Any, folder: str, name: str) -> str:
    import numpy

    array = numpy.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    # Python's own numbers have 64 bits, and models rarely do.
    path = os.path.join(folder, f"{name}.npy")
    numpy.save(path, array.astype("float32") if array.dtype == "float64" else array)
    return path


def _exported(model: Any, inputs: list[Any], path: str) -> str:
    """The path of an ONNX file of the model, or the name or path that was given."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if hasattr(model, "SerializeToString"):
        pathlib.Path(path).write_bytes(model.SerializeToString())
    elif "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        torch = sys.modules["torch"]
        sample = tuple(torch.as_tensor(array)[:2] for array in inputs)
        names = [f"input{at}" for at in range(len(sample))]
        axes = {each: {0: "batch"} for each in [*names, "output"]}
        torch.onnx.export(
            model.eval(), sample, path, input_names=names, output_names=["output"], dynamic_axes=axes, dynamo=False
        )
    elif hasattr(model, "predict") and hasattr(model, "get_params"):
        try:
            from skl2onnx import to_onnx  # type: ignore[import-untyped]
        except ImportError:
            raise ParmError("an estimator of scikit-learn is exported by skl2onnx: pip install skl2onnx") from None
        import numpy

        options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
        written = to_onnx(model, numpy.asarray(inputs[0])[:1].astype("float32"), options=options)
        pathlib.Path(path).write_bytes(written.SerializeToString())
    else:
        raise ParmError(f"cannot export a {type(model).__name__}: give an estimator, a torch module, an ONNX model or file")
    return path
