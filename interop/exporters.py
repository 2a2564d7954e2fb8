"""`parm stand-in` on networks of many kinds as exporters write them: exporters.py FOLDER [NAME-EXPORTER..]. Run by
`just interop-exporters`.

A line for each network and exporter: the candidate that was taken, its cost as the command said it and measured again by a loop
in Python's onnxruntime (one thread, taking turns with the deployed model), how often it agrees, and whether tract and ONNX Runtime serve it
with the answers that Python's onnxruntime gives. Weights are random, so classes lie near ties and agreement says little: beside it
stands the mean cosine of answers, less the mean answer, on rows that the command was not given. Where nothing fits, the sentence of
the command says why. The recipe fails where a cost is off by more than 15 %, an answer is no number or of another shape, or an engine
refuses what was taken.
"""

import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy
import onnxruntime

from processes import PARM, ROOT, Parm

COST, MEASURE = "0.6", "2"
TURNS, SECONDS, OFF = 200, 4.0, 0.15
# tract adds up in another order; 8-bit steps can round the other way there.
TOLERANCE = {"ort": 1e-4, "tract": 0.05}


def search(place, models):
    """What the command found, as JSON, and its sentence."""
    count = len(list(place.glob("rows-*.npy")))
    files = ",".join(str(place / f"rows-{at}.npy") for at in range(count))
    command = [PARM, "stand-in", place / "model.onnx", "--name", place.name, "--data", f"npy:{files}", "--engine", "ort"]
    command += ["--cost", COST, "--measure", MEASURE, "--models", models, "--runs", models.parent / "runs", "--output", "json"]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("wrote")]
    if done.returncode:
        return None, said[-1] if said else f"ended with {done.returncode}"
    return json.loads(done.stdout), said[-1]


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def given(place, kind, session, rows):
    inputs = session.get_inputs()
    return {one.name: numpy.load(place / f"{kind}-{at}.npy")[rows] for at, one in enumerate(inputs)}


def again(place, deployed, other):
    """The cost, by medians of runs that take turns."""
    times, started = ([], []), time.monotonic()
    for turn in range(TURNS):
        row = slice(turn % 32, turn % 32 + 1)
        for one, times_of_one in zip([deployed, other], times):
            feed = given_row(place, one, row)
            begun = time.perf_counter()
            one.run(None, feed)
            times_of_one.append(time.perf_counter() - begun)
        if turn > 20 and time.monotonic() - started > SECONDS:
            break
    # The first runs make what the others use.
    return statistics.median(times[1][3:]) / statistics.median(times[0][3:])


ARRAYS = {}


def given_row(place, session, row):
    if place not in ARRAYS:
        ARRAYS.clear()
        ARRAYS[place] = [numpy.load(path) for path in sorted(place.glob("fresh-*.npy"))]
    return {one.name: array[row] for one, array in zip(session.get_inputs(), ARRAYS[place])}


def cosine(place, deployed, other):
    """The mean cosine of answers less the mean answer; and whether all of them are numbers, of the right shape."""
    every = slice(0, None)
    said, answers = deployed.run(None, given_row(place, deployed, every)), other.run(None, given_row(place, other, every))
    is_right = all(a.shape == b.shape and numpy.isfinite(b).all() for a, b in zip(said, answers)) and len(said) == len(answers)
    if not is_right:
        return float("nan"), False
    cosines = []
    for a, b in zip(said, answers):
        middle = a.mean(0, keepdims=True)
        a, b = (a - middle).reshape(len(a), -1), (b - middle).reshape(len(b), -1)
        cosines.append(float(((a * b).sum(1) / numpy.maximum(numpy.linalg.norm(a, axis=1) * numpy.linalg.norm(b, axis=1), 1e-12)).mean()))
    return min(cosines), True


def served(engine, models, folder, names):
    """For each stand-in, whether a worker with this engine answers a row of it as onnxruntime does, or what it says."""
    verdicts = {}
    with tempfile.TemporaryFile("w+") as log, Parm("worker", "--models", str(models), "--engine", engine, log=log) as worker:
        for name in names:
            verdicts[name] = asked(worker, models / f"{name}-stand-in" / "1/model.onnx", folder / name, TOLERANCE[engine])
        log.seek(0)
        reasons = log.read()
    for name in names:
        if verdicts[name] == "not loaded":
            found = re.search(rf"{re.escape(name)}-stand-in\b.*", reasons)
            verdicts[name] = f"not loaded: {found.group(0)[:160] if found else ''}"
    return verdicts


def asked(worker, path, place, tolerance):
    reference = session(path)
    feed = given_row(place, reference, slice(0, 1))
    kinds = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}
    tensors = [{"name": n, "shape": list(a.shape), "datatype": kinds[str(a.dtype)], "data": a.ravel().tolist()} for n, a in feed.items()]
    url = f"http://{worker.http}/v2/models/{path.parent.parent.name}/infer"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps({"inputs": tensors}).encode()), timeout=60) as answer:
            outputs = {one["name"]: one for one in json.loads(answer.read())["outputs"]}
    except urllib.error.HTTPError:
        return "not loaded"
    for info, want in zip(reference.get_outputs(), reference.run(None, feed)):
        got = numpy.array(outputs[info.name]["data"], numpy.float32).reshape(outputs[info.name]["shape"])
        if got.shape != want.shape or not numpy.isfinite(got).all():
            return "other shape, or no numbers"
        off = float(numpy.abs(got - want).max() / max(numpy.ptp(want), 1e-9))
        if off > tolerance:
            return f"off by {off:.2f} of the range"
    return "ok"


def main(folder, chosen):
    folder = pathlib.Path(folder)
    lines, failures = [], []
    with tempfile.TemporaryDirectory() as scratch:
        models = pathlib.Path(scratch) / "models"
        models.mkdir()
        for place in sorted(place for place in folder.iterdir() if not chosen or place.name in chosen):
            if not (place / "complete").exists():
                with contextlib.suppress(FileNotFoundError):
                    lines.append((place.name, None, f"not exported: {(place / 'failed.txt').read_text()}"))
                continue
            print(f"{place.name} ...", file=sys.stderr, flush=True)
            found, sentence = search(place, models)
            if found is None or not found["chosen"]:
                lines.append((place.name, None, sentence))
                continue
            taken = next(one for one in found["candidates"] if one["name"] == found["chosen"])
            deployed, other = session(place / "model.onnx"), session(models / f"{place.name}-stand-in/1/model.onnx")
            near, is_right = cosine(place, deployed, other)
            row = {"family": taken["name"], "told": taken["cost"][0], "again": again(place, deployed, other),
                   "agreement": 100 * taken["agreement"]["value"], "cosine": near, "ms": found["deployed_us"] / 1000, "right": is_right}
            lines.append((place.name, row, sentence))
        names = [name for name, row, _ in lines if row]
        verdicts = {engine: served(engine, models, folder, names) for engine in ["tract", "ort"]} if names else {}
    print("| network | ms | taken | c told | c again | agreement, % | cosine | tract | ort |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, row, sentence in lines:
        if not row:
            print(f"| {name} | | none: {sentence} | | | | | | |")
            failures += [name] if "not exported" not in sentence and "nothing" not in sentence else []
            continue
        engines = [verdicts[engine][name] for engine in ["tract", "ort"]]
        print(f"| {name} | {row['ms']:.2f} | {row['family']} | {row['told']:.2f} | {row['again']:.2f} | {row['agreement']:.0f} | "
              f"{row['cosine']:.3f} | {' | '.join(engines)} |")
        off = abs(row["again"] / row["told"] - 1)
        if off > OFF:
            failures.append(f"{name}: cost told {row['told']:.2f}, measured {row['again']:.2f}")
        if not row["right"] or engines[1] != "ok":
            failures.append(f"{name}: {engines[1]}, right: {row['right']}")
    print(f"{len(names)} of {len(lines)} have a stand-in of {COST} or less")
    if failures:
        raise SystemExit("FAIL  " + "\n      ".join(failures))


main(sys.argv[1], sys.argv[2:])
