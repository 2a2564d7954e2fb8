"""Runs a bundle's models in Python's ONNX Runtime, independently of parm.

python3 lab/interop/bundle.py models/NAME rows.npy

Reads models/NAME/parm.toml, runs the deployed model on the rows, and each parity model with slots on groups of them side by
side. Prints how often a slot agrees with the deployed model. Fails if a model does not load, an output does not have the
size that its code states, or slots agree less often than the bundle's own measurement minus five points.
"""

import pathlib
import sys
import tomllib

import numpy
import onnxruntime

SLACK = 0.05


def session(root, name, version):
    path = root / name / str(version) / "model.onnx"
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run(model, rows):
    (given,) = model.get_inputs()
    return model.run(None, {given.name: rows})[0]


def agreement(root, parity, rows, predictions):
    """Returns how often the answer in a slot is the deployed model's; None for a code whose answers need subtraction."""
    code = parity["code"]
    k = code["k"]
    rows, predictions = rows[: len(rows) // k * k], predictions[: len(rows) // k * k]
    # Rows are stacked: the first dimension of a query grows k times.
    groups = rows.reshape(len(rows) // k, k * rows.shape[1], *rows.shape[2:])
    answers = [run(session(root, model["name"], model["version"]), groups) for model in parity["models"]]
    width = predictions[0].size
    for answer in answers:
        if answer[0].size != k * width:
            raise SystemExit(f"a parity model puts out {answer[0].size} values per group, but the code needs {k * width}")
    slots = numpy.mean(answers, axis=0).reshape(-1, k, width)[:, code.get("order", range(k))]
    return float((slots.argmax(2) == predictions.reshape(-1, k, width).argmax(2)).mean())


def main(bundle, data):
    folder = pathlib.Path(bundle)
    manifest = tomllib.loads((folder / "parm.toml").read_text())
    rows = numpy.load(data)
    predictions = run(session(folder.parent, folder.name, manifest["deployed"]["version"]), rows)
    print(f"{folder.name}: {len(rows)} rows, predictions of shape {predictions.shape[1:]}")
    for parity in manifest.get("parity", []):
        code = parity["code"]
        name = f"{code['kind']} k={code['k']}"
        if code["kind"] != "slots" or code.get("head", "slots") != "slots" or "layout" in code:
            for model in parity.get("models", []):
                session(folder.parent, model["name"], model["version"])
            print(f"{name}: loads")
            continue
        agrees = agreement(folder.parent, parity, rows, predictions)
        print(f"{name}: slots agree with the deployed model on {100 * agrees:.2f} % of {len(rows)} rows")
        expected = parity.get("accuracy", {}).get("degraded")
        if expected is not None and agrees < expected - SLACK:
            raise SystemExit(f"{name}: agreement is too low: the bundle measured {expected}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
