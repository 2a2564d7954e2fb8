"""tract, ort and Python's onnxruntime on the same real models and inputs. Run by `just interop-engines`.

An engine agrees when its largest difference from onnxruntime is at most 1e-4 of the output's range.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RUN = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/examples/run_model"
TOLERANCE = 1e-4
UNSUPPORTED = {("silero-vad with branches", "tract")}


def cases(folder):
    """Returns name, model file and inputs by name."""
    random = numpy.random.default_rng(7)
    magika = ROOT / "models/magika/1/model.onnx"
    tokens = random.integers(0, 257, (1, 2048), dtype=numpy.int32)
    yield "magika, 1 row", magika, {"bytes": tokens}
    yield "magika, 8 rows", magika, {"bytes": random.integers(0, 257, (8, 2048), dtype=numpy.int32)}
    tone = numpy.sin(numpy.arange(576) * 0.05)[None].astype(numpy.float32)
    state = numpy.zeros((2, 1, 128), numpy.float32)
    speech = {"input": tone, "state": state, "sr": numpy.array(16000, numpy.int64)}
    yield "silero-vad", folder / "silero_vad/data/silero_vad_op18_ifless.onnx", speech
    # The same model with its sampling rates as branches of different shapes, which tract cannot analyse.
    yield "silero-vad with branches", folder / "silero_vad/data/silero_vad.onnx", speech
    # Nine seconds of noise at 16 kHz, and the log-mel frames of such a clip.
    noise = random.normal(0, 0.1, (1, 144160)).astype(numpy.float32)
    frames = random.normal(-30, 10, (1, 900, 120)).astype(numpy.float32)
    yield "speechmos sig_bak_ovr", folder / "speechmos/dnsmos_models/sig_bak_ovr.onnx", {"input_1": noise}
    yield "speechmos model_v8", folder / "speechmos/dnsmos_models/model_v8.onnx", {"input_1": frames}


def engine(name, path, inputs, session):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for at, tensor in enumerate(session.get_inputs()):
            proto = numpy_helper.from_array(inputs[tensor.name])
            (folder / f"input_{at}.pb").write_bytes(proto.SerializeToString())
        run = subprocess.run([RUN, name, path, folder], capture_output=True, text=True)
        if run.returncode:
            return run.stderr.splitlines()[0]
        outputs = range(len(session.get_outputs()))
        read = lambda at: onnx.TensorProto.FromString((folder / f"output_{at}.pb").read_bytes())
        return [numpy_helper.to_array(read(at)) for at in outputs]


def main():
    failed = False
    for case, path, inputs in cases(pathlib.Path(sys.argv[1])):
        session = onnxruntime.InferenceSession(str(path))
        expected = session.run(None, inputs)
        for name in ["tract", "ort"]:
            outputs = engine(name, path, inputs, session)
            if isinstance(outputs, str) and (case, name) in UNSUPPORTED:
                print(f"-     {case}, {name}: not supported, and says so")
                continue
            if isinstance(outputs, str):
                print(f"FAIL  {case}, {name}: {outputs}")
                failed = True
                continue
            pairs = list(zip(outputs, expected))
            assert all(got.shape == want.shape for got, want in pairs), f"{case}, {name}: shapes differ"
            scale = lambda want: max(float(numpy.ptp(want) if want.size > 1 else numpy.abs(want).max()), 1e-9)
            worst = max(float(numpy.abs(got - want).max()) / scale(want) for got, want in pairs)
            verdict = "ok  " if worst <= TOLERANCE else "FAIL"
            failed = failed or worst > TOLERANCE
            print(f"{verdict}  {case}, {name}: largest difference {worst:.1e} of the output range")
    sys.exit(failed)


main()
