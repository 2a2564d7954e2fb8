"""A bundle for a network that PyTorch wrote: trained, verified, run in Python's ONNX Runtime, served.

Run by `just interop-parity`. `parm train parity` reads training/tests/it/pytorch/cnn.onnx and the demonstration images
without their labels. A worker's answers (tract) must be those of onnxruntime within 1e-4 of the output range, for the
deployed network and its parity model. Then one of four workers is stopped, and a frontend must give a reconstruction in its
place.
"""

import concurrent.futures
import contextlib
import gzip
import json
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.request

import numpy
import onnxruntime

from processes import PARM, PATIENCE, ROOT, Parm

CNN = ROOT / "training/tests/it/pytorch/cnn.onnx"
IMAGES = ROOT / "examples/fashion-mnist/images-idx3-ubyte.gz"
NAME, K, TOLERANCE = "cnn", 2, 1e-4
# Every late query waits for its reconstruction, so that one is certain.
CODED = ["--policy", "parm", "--set", "frontend.dispatch.coding.parm_plus.k_follows_load=false",
         "--set", "frontend.dispatch.coding.parm_plus.hedge=false"]


def run(*arguments):
    done = subprocess.run([PARM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"parm {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def train(folder):
    """Returns the bundle's models by name, each with its version."""
    out = run("train", "parity", "--deployed", CNN, "--name", NAME, "--models", folder / "models", "--runs", folder / "runs",
              "--k", K, "--epochs", 6, "--set", "augment.shift=1", "--data", f"idx:{IMAGES}?rows=0..1500", "--test",
              f"idx:{IMAGES}?rows=1500..2000")
    for line in out.splitlines():
        print("   ", line.replace(str(folder), "."))
    for line in run("models", "verify", "--models", folder / "models").splitlines():
        print("   ", line.replace(str(folder), "."))
    return sorted((folder / "models").glob("*/*/model.onnx"))


def infer(address, model, rows):
    """Returns the first output and the answer's parameters."""
    given = {"name": name(model), "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    body = json.dumps({"inputs": [given]}).encode()
    request = urllib.request.Request(f"http://{address}/v2/models/{model.parent.parent.name}/infer", body)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        answer = json.loads(answer.read())
    [output] = answer["outputs"]
    return numpy.array(output["data"], numpy.float32).reshape(output["shape"]), answer.get("parameters", {})


def name(model):
    return onnxruntime.InferenceSession(str(model)).get_inputs()[0].name


def expected(model, rows):
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})[0]


def compare(address, model, rows):
    want = expected(model, rows)
    got, _ = infer(address, model, rows)
    error = float(numpy.abs(got.reshape(want.shape) - want).max() / (want.max() - want.min()))
    label = f"{model.parent.parent.name}, {len(rows)} rows of {list(rows.shape[1:])}"
    if error > TOLERANCE:
        raise SystemExit(f"FAIL  {label}: differs by {error:.1e} of the output range")
    print(f"  ok  {label}: tract and onnxruntime differ by {error:.1e} of the output range")


def serve(models, deployed, images):
    """Stops a worker under load until a reconstruction arrives; compares every answer with onnxruntime's."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Parm("worker", "--models", models)) for _ in range(4)]
        flags = [flag for worker in workers for flag in ("--worker", f"http://{worker.http}")]
        frontend = stack.enter_context(Parm("serve", *flags, "--bundles", models, *CODED))
        frontend.wait_for_model(NAME)
        workers[0].process.send_signal(signal.SIGSTOP)
        try:
            counts, right = answers(frontend, deployed, images)
        finally:
            workers[0].process.send_signal(signal.SIGCONT)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"  ok  served with a worker stopped: {said}; {right} of the reconstructions are the network's own class")


def answers(frontend, deployed, images):
    want = expected(deployed, images)
    counts, right, at, deadline = {}, 0, 0, time.monotonic() + PATIENCE
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        while counts.get("reconstructed", 0) < 20:
            if time.monotonic() > deadline:
                raise SystemExit(f"FAIL  only these answers came within {PATIENCE:.0f} s: {counts}")
            rows = [(at + one) % len(images) for one in range(3)]
            at += 3
            asked = pool.map(lambda row: infer(frontend.http, deployed, images[row : row + 1]), rows)
            for row, (got, parameters) in zip(rows, asked):
                outcome = parameters["parm_outcome"]
                counts[outcome] = counts.get(outcome, 0) + 1
                if outcome == "reconstructed":
                    right += int(got.argmax() == want[row].argmax())
                elif numpy.abs(got - want[row]).max() > TOLERANCE * (want.max() - want.min()):
                    raise SystemExit(f"FAIL  row {row} is {outcome} and differs from onnxruntime")
    return counts, right


def main():
    pixels = numpy.frombuffer(gzip.open(IMAGES).read(), numpy.uint8, offset=16)
    images = (pixels.reshape(-1, 1, 28, 28) / 255).astype(numpy.float32)[1500:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        print("trained from cnn.onnx as PyTorch wrote it, without labels")
        models = train(folder)
        deployed = next(model for model in models if model.parent.parent.name == NAME)
        [parity] = [model for model in models if model != deployed]
        print("one worker, tract")
        with Parm("worker", "--models", str(folder / "models")) as worker:
            worker.wait_for_model(NAME)
            compare(worker.http, deployed, images[:64])
            compare(worker.http, parity, images[: 64 * K].reshape(64, K, 28, 28))
        print("a frontend over four workers")
        serve(str(folder / "models"), deployed, images)
    print("a bundle trained from PyTorch's file runs in onnxruntime and serves")


if __name__ == "__main__":
    main()
