"""The cost of a query in a server compared with the engine itself: a parm worker, Triton and MLServer, with the same
network.

All run the LeNet-5 of `models/` in one session of the same ONNX Runtime with one thread; Triton and MLServer call it from
Python, as their packages have no other backend. The client is wrk, over HTTP: JSON everywhere, and binary tensors if the
server accepts them. There are two figures per server: the median that it adds to the engine's own at one request in flight,
and its CPU time per request at eight, without the engine's. Rounds are interleaved, and the table has medians. Run by `just
bench-servers`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

import hop
from processes import ROOT, Parm, Server, free_port

NETWORK = ROOT / "models" / "fashion-lenet" / "1" / "model.onnx"
HERE = pathlib.Path(__file__).parent / "servers"
IMAGE = [(at % 251) / 251 for at in range(784)]

# Run by a Python that has the engine: prints the median time and the CPU time of a query, in microseconds.
ENGINE = """
import sys, time, statistics, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, ["CPUExecutionProvider"])
x = (numpy.arange(784, dtype=numpy.float32) % 251 / 251).reshape(1, 1, 28, 28)
times, until, used = [], time.perf_counter() + float(sys.argv[2]), time.process_time()
while time.perf_counter() < until:
    began = time.perf_counter()
    session.run(None, {"input": x})
    times.append(time.perf_counter() - began)
print(1e6 * statistics.median(times), 1e6 * (time.process_time() - used) / len(times))
"""


def scripts(folder):
    tensor = {"name": "input", "shape": [1, 1, 28, 28], "datatype": "FP32"}
    plain = json.dumps({"inputs": [tensor | {"data": IMAGE}]}).encode()
    header = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": 3136}}],
                         "parameters": {"binary_data_output": True}}).encode()
    binary = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": len(header)}
    return {"JSON": hop.script_of(folder / "plain", plain, {"Content-Type": "application/json"}),
            "binary": hop.script_of(folder / "binary", header + struct.pack("<784f", *IMAGE), binary)}


def library(python):
    """Returns the folder of a Python's ONNX Runtime library."""
    find = "import onnxruntime, pathlib; print(next((pathlib.Path(onnxruntime.__file__).parent / 'capi').glob('libonnxruntime.so*')))"
    return subprocess.run([python, "-c", find], capture_output=True, text=True, check=True).stdout.strip()


def triton(python, log, models=HERE / "triton", network=NETWORK, has_metrics=False):
    """Starts the Triton of a Python package, with the stub that fits its Python. Returns its addresses and the server."""
    lines = "import pytriton, sysconfig, sys; print(pytriton.__file__); print(sysconfig.get_path('purelib')); print(sys.base_prefix); print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run([python, "-c", lines], capture_output=True, text=True, check=True).stdout.splitlines()
    home, packages, base, version = pathlib.Path(found[0]).parent / "tritonserver", *found[1:]
    link = home / "backends" / "python" / "triton_python_backend_stub"
    if not link.exists():
        link.symlink_to(home / "python_backend_stubs" / version / "triton_python_backend_stub")
    http, grpc, metrics = free_port(), free_port(), free_port()
    command = [str(home / "bin" / "tritonserver"), f"--model-repository={models}", f"--backend-directory={home / 'backends'}",
               f"--cache-directory={home / 'caches'}", f"--allow-metrics={str(has_metrics).lower()}", f"--metrics-port={metrics}", f"--http-port={http}", f"--grpc-port={grpc}",
               "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", f"--backend-config=python,shm-region-prefix-name=parm{http}"]
    environment = {"SITE_PACKAGES": packages, "LD_LIBRARY_PATH": f"{base}/lib", "NETWORK": str(network)}
    server = Server(command, f"http://127.0.0.1:{http}/v2/health/ready", env=environment, log=log)
    return f"127.0.0.1:{http}", f"127.0.0.1:{metrics}", server


def mlserver(python, folder, log):
    models = folder / "mlserver"
    shutil.copytree(HERE / "mlserver", models)
    http, grpc = free_port(), free_port()
    settings = json.loads((models / "settings.json").read_text())
    settings |= {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc}
    (models / "settings.json").write_text(json.dumps(settings))
    command = [str(pathlib.Path(python).parent / "mlserver"), "start", "."]
    server = Server(command, f"http://127.0.0.1:{http}/v2/models/lenet/ready", env={"NETWORK": str(NETWORK)}, cwd=models, log=log)
    return f"127.0.0.1:{http}", server


def worker(python, folder):
    models = folder / "models" / "lenet" / "1"
    models.mkdir(parents=True)
    shutil.copy(NETWORK, models / "model.onnx")
    os.environ["ORT_DYLIB_PATH"] = library(python)
    return Parm("worker", "--models", str(folder / "models"), "--engine", "ort", "--instances", "1")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=3)
    arguments.add_argument("--triton", required=True, help="a Python with nvidia-pytriton and onnxruntime")
    arguments.add_argument("--mlserver", required=True, help="a Python with mlserver and onnxruntime")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        folder = pathlib.Path(folder)
        log = running.enter_context(open(folder / "servers.log", "w"))
        wanted = scripts(folder)
        own = running.enter_context(worker(options.mlserver, folder))
        own.wait_for_model("lenet")
        servers = {"parm worker": (own.http, own.process.pid)}
        for name, (address, *_, server) in {"Triton": triton(options.triton, log),
                                            "MLServer": mlserver(options.mlserver, folder, log)}.items():
            servers[name] = (address, running.enter_context(server).process.pid)
        ways = [(name, form) for form in wanted for name in servers if (name, form) != ("MLServer", "binary")]
        alone, added, used = [], {way: [] for way in ways}, {way: [] for way in ways}
        for round in range(-1, options.rounds):  # the first is the warm-up
            command = [options.mlserver, "-c", ENGINE, str(NETWORK), str(options.seconds / 2)]
            engine, cpu = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
            for way in ways:
                address, pid = servers[way[0]]
                _, p50, _ = hop.load(wanted[way[1]], address, 1, options.seconds, "lenet")
                before = hop.processor_seconds(pid)
                requests, _, _ = hop.load(wanted[way[1]], address, 8, options.seconds, "lenet")
                busy = 1e6 * (hop.processor_seconds(pid) - before) / requests
                if round >= 0:
                    added[way].append(p50 - engine)
                    used[way].append(busy - cpu)
            alone += [(engine, cpu)] if round >= 0 else []
    middle = statistics.median
    print(f"The engine alone: {middle(engine for engine, _ in alone):.0f} us a query, {middle(cpu for _, cpu in alone):.0f} us of CPU.\n")
    print("| server | request | added p50, 1 in flight (us) | added CPU a request, 8 in flight (us) |\n|---|---|---|---|")
    for way in ways:
        print(f"| {way[0]} | {way[1]} | {middle(added[way]):.0f} | {middle(used[way]):.0f} |")


if __name__ == "__main__":
    sys.exit(main())
