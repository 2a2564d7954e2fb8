"""`parm stand-in` on networks of many kinds from several exporters: exporters.py FOLDER [PART OF A NAME..].

Run by `just interop-exporters`. It prints a line for each network and exporter: the chosen candidate, its cost as the
command stated it and as measured again in a loop of Python's onnxruntime (one thread, alternating with the deployed model),
its agreement, and whether tract and ONNX Runtime give the answers of Python's onnxruntime. Weights are random, so classes
are nearly tied and agreement is not informative. The next column is the mean cosine of answers, minus the mean answer, on
rows that the command did not receive. If no candidate fits, the command's message says why. The recipe fails if a cost is
off by more than 15 %, an answer is not a number or has another shape, or an engine rejects the chosen candidate.
"""

import json
import pathlib
import re
import shutil
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

COST, MEASURE = "0.6", "4"
TURNS, SECONDS, OFF = 400, 4.0, 0.15
# tract adds in another order, and its 8-bit steps can round the other way.
TOLERANCE = {"ort": 1e-4, "tract": 0.05}


def search(place, models):
    """Returns the command's result as JSON, and its message."""
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


def again(place, deployed, other):
    """Returns the cost, by lower quartiles of alternating runs."""
    times, started = ([], []), time.monotonic()
    for turn in range(TURNS):
        row = slice(turn % 32, turn % 32 + 1)
        for one, times_of_one in zip([deployed, other], times):
            feed = given_row(place, one, row)
            # The other model's data in the processor's caches is not part of this one's cost, as in the command.
            one.run(None, feed)
            begun = time.perf_counter()
            one.run(None, feed)
            times_of_one.append(time.perf_counter() - begun)
        if turn > 20 and time.monotonic() - started > SECONDS:
            break
    # The first runs warm up; other work of the machine only adds time.
    quartile = lambda times: statistics.quantiles(times[3:], n=4)[0]
    return quartile(times[1]) / quartile(times[0])


ARRAYS = {}


def given_row(place, session, row):
    if place not in ARRAYS:
        ARRAYS.clear()
        ARRAYS[place] = [numpy.load(path) for path in sorted(place.glob("fresh-*.npy"))]
    return {one.name: array[row] for one, array in zip(session.get_inputs(), ARRAYS[place])}


def cosine(place, deployed, other):
    """Returns the mean cosine of answers minus the mean answer, and whether all are numbers of the right shape."""
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


def served(engine, standing, place, scratch):
    """Returns whether a worker with this engine answers a row like onnxruntime, or its error."""
    models = pathlib.Path(scratch) / f"served-{engine}"
    shutil.rmtree(models, ignore_errors=True)
    shutil.copytree(standing, models / standing.name)
    with tempfile.TemporaryFile("w+") as log:
        try:
            with Parm("worker", "--models", str(models), "--engine", engine, "--instances", "1", log=log) as worker:
                return asked(worker, models / standing.name / "1/model.onnx", place, TOLERANCE[engine])
        except SystemExit:
            log.seek(0)
            reasons = re.findall(r"(?:error|reason)=(.*)", log.read())
            return f"not loaded: {reasons[-1][:160] if reasons else ''}"


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
        scale = numpy.ptp(want) if want.size > 1 else numpy.abs(want).max()
        off = float(numpy.abs(got - want).max() / max(scale, 1e-9))
        if off > tolerance:
            return f"off by {off:.2f} of the range"
    return "ok"


def tried(place, scratch):
    """Returns a line of the table, and its faults."""
    models = pathlib.Path(scratch) / "models"
    found, sentence = search(place, models)
    if found is None:
        return f"| {place.name} | | none: {sentence} | | | | | | |", [f"{place.name}: {sentence}"]
    if not found["chosen"]:
        return f"| {place.name} | {found['deployed_us'] / 1000:.2f} | none: {sentence} | | | | | | |", []
    taken = next(one for one in found["candidates"] if one["name"] == found["chosen"])
    standing, told, wrong = models / f"{place.name}-stand-in", taken["cost"][0], []
    deployed, other = session(place / "model.onnx"), session(standing / "1/model.onnx")
    near, is_right = cosine(place, deployed, other)
    measured = again(place, deployed, other)
    engines = [served(engine, standing, place, scratch) for engine in ["tract", "ort"]]
    if abs(measured / told - 1) > OFF:
        wrong.append(f"{place.name}: cost told {told:.2f}, measured {measured:.2f}")
    if not is_right or engines[1] != "ok":
        wrong.append(f"{place.name}: {engines[1]}, numbers of the right shape: {is_right}")
    row = [place.name, f"{found['deployed_us'] / 1000:.2f}", taken["name"], f"{told:.2f}", f"{measured:.2f}",
           f"{100 * taken['agreement']['value']:.0f}", f"{near:.3f}", *engines]
    shutil.rmtree(models / place.name)
    shutil.rmtree(standing)
    return f"| {' | '.join(row)} |", wrong


def main(folder, chosen):
    failures, lines = [], 0
    print("| network | ms | taken | c told | c again | agreement, % | cosine | tract | ort |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "models").mkdir()
        for place in sorted(pathlib.Path(folder).iterdir()):
            if chosen and not any(name in place.name for name in chosen):
                continue
            if not (place / "complete").exists():
                print(f"| {place.name} | | not exported: {(place / 'failed.txt').read_text()} | | | | | | |", flush=True)
                continue
            line, wrong = tried(place, scratch)
            print(line, flush=True)
            failures += wrong
            lines += "none" not in line
    print(f"{lines} have a stand-in of {COST} or less")
    if failures:
        raise SystemExit("FAIL  " + "\n      ".join(failures))


main(sys.argv[1], sys.argv[2:])
