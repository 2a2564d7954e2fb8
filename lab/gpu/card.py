#!/usr/bin/env python3
"""Measures workers on a graphics card, with the networks of networks.py.

    lab/gpu/card.py engine NETWORKS             # ONNX Runtime in Python: time by rows, first runs, pinned memory, rounding
    lab/gpu/card.py latency NETWORKS            # `parm worker` compared with ONNX Runtime in Python, by rows
    lab/gpu/card.py memory NETWORKS             # memory of models that are resident together, cost of switching between them
    lab/gpu/card.py batches NETWORKS            # largest batches of a frontend over one worker
    lab/gpu/card.py policies NETWORKS           # three workers on the card: policies, alone, with a busy neighbour, one slow

Prints one JSON object a line. PARM_BINARY names the binary; the Python needs `onnxruntime-gpu[cuda,cudnn]`.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import processes  # noqa: E402

MODEL, PARITY, STAND_IN = "resnet18", "parity", "small"
ROWS = [1, 2, 4, 8, 16, 32]
WORKERS = 3
QUICK = ["--set", "server.drain_delay_ms=0"]
POLICIES = {
    "equal": ["--policy", "equal"],
    "hedge": ["--policy", "hedge"],
    "parm": ["--policy", "parm"],
    "parm+": ["--policy", "parm+"],
    "stand-in": ["--policy", "stand-in"],
}


def say(**fields):
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in fields.items()}), flush=True)


def milliseconds(call, seconds, least=20):
    """Returns the median time of a call."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def session(path, device, search="EXHAUSTIVE", tf32="1"):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if device == "cpu":
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    onnxruntime.preload_dlls()
    own = {"device_id": device.split(":")[1], "cudnn_conv_algo_search": search, "use_tf32": tf32}
    made = onnxruntime.InferenceSession(path, options, providers=[("CUDAExecutionProvider", own)])
    if "CUDAExecutionProvider" not in made.get_providers():
        sys.exit("onnxruntime did not open the card")
    return made


def engine(arguments):
    import numpy

    path = str(arguments.networks / MODEL / "1" / "model.onnx")
    random = numpy.random.default_rng(1)
    shape = session(path, "cpu").get_inputs()[0].shape[1:]
    sample = random.random((2, *shape), dtype=numpy.float32)
    expected = session(path, "cpu").run(None, {"input": sample})[0]
    for search in arguments.search.split(","):
        for tf32 in ("1", "0"):
            made = session(path, arguments.device, search, tf32)
            answer = made.run(None, {"input": sample})[0]
            apart = float(numpy.abs(answer - expected).max() / numpy.abs(expected).max())
            say(part="rounding", search=search, tf32=tf32, largest_difference=apart)
        made = session(path, arguments.device, search)
        for rows in [*ROWS, 3, 5]:
            values = random.random((rows, *shape), dtype=numpy.float32)
            start = time.perf_counter()
            made.run(None, {"input": values})
            first = 1e3 * (time.perf_counter() - start)
            usual = milliseconds(lambda: made.run(None, {"input": values}), arguments.seconds)
            fields = {"first": first, "pageable": usual}
            if arguments.device != "cpu":
                fields["pinned"] = pinned(made, values, arguments.seconds)
            say(part="engine", search=search, rows=rows, **fields)


def pinned(made, values, seconds):
    """Returns the time with inputs that are copied into pinned memory first, as a worker would."""
    import numpy
    import torch  # only for pinned memory

    buffer = torch.empty(values.shape, dtype=torch.float32, pin_memory=True)
    view = buffer.numpy()
    answer = torch.empty((values.shape[0], made.get_outputs()[0].shape[1]), dtype=torch.float32, pin_memory=True)
    binding = made.io_binding()
    binding.bind_input("input", "cpu", 0, numpy.float32, values.shape, buffer.data_ptr())
    binding.bind_output("output", "cpu", 0, numpy.float32, tuple(answer.shape), answer.data_ptr())

    def call():
        view[...] = values
        made.run_with_iobinding(binding)

    return milliseconds(call, seconds)


class Pool:
    """Workers on the card, and at most one frontend over them."""

    def __init__(self, arguments, workers, flags=()):
        self.log = open(arguments.log, "a")
        self.networks = str(arguments.networks)
        own = ["worker", "--models", self.networks, "--device", arguments.device, "--instances", "1", "--faults", *QUICK, *flags]
        start = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor() as threads:
            self.workers = list(threads.map(lambda _: processes.Parm(*own, log=self.log), range(workers)))
        self.seconds = time.perf_counter() - start
        self.workers[0].wait_for_model(MODEL)
        self.frontend, self.url = None, f"grpc://{self.workers[0].grpc}"

    def serve(self, *flags):
        """Starts a frontend in place of the last."""
        if self.frontend:
            self.frontend.__exit__()
        urls = [flag for worker in self.workers for flag in ("--worker", f"http://{worker.http}")]
        self.frontend = processes.Parm("serve", *urls, "--bundles", self.networks, *QUICK, *flags, log=self.log)
        self.frontend.wait_for_model(MODEL)
        self.url = f"grpc://{self.frontend.grpc}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for part in [self.frontend, *self.workers]:
            if part:
                part.__exit__()


def load(url, *flags, seconds, model=MODEL):
    command = [processes.PARM, "load", url, "--model", model, "--seconds", str(seconds), "--warm-up", "1", "--allow-failed", "100",
               "--quiet", "--output", "json", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.strip():
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def milliseconds_in_model(metrics, model=MODEL):
    """Returns the sum of times in the model, and the number of requests."""
    page = urllib.request.urlopen(f"http://{metrics}/metrics", timeout=5).read().decode()

    def total(name):
        lines = [line for line in page.splitlines() if line.startswith(name + "{") and f'"{model}"' in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    return total("nv_inference_compute_infer_duration_us") / 1e3, total("nv_inference_request_success")


def quantiles(report):
    """Returns the quantiles of a report that rest on enough samples, and what made it invalid."""
    found = {f"p{100 * one['share']:g}": one["ms"] for one in report["latency"] if one["ms"] is not None}
    faults = report["validity"]["faults"]
    return {**found, "max": report["max_ms"], **({"faults": faults} if faults else {})}


def outcomes(report):
    return {one["outcome"]: round(one["share"], 4) for one in report["outcomes"]}


def latency(arguments):
    engine(arguments)
    with Pool(arguments, 1) as pool:
        say(part="start", seconds=pool.seconds)
        for rows in ROWS:
            before = milliseconds_in_model(pool.workers[0].metrics)
            report = load(pool.url, "--scenario", "multi-stream", "--rows", str(rows), seconds=arguments.seconds)
            after = milliseconds_in_model(pool.workers[0].metrics)
            inside = (after[0] - before[0]) / max(1, after[1] - before[1])
            say(part="worker", rows=rows, inside=inside, **quantiles(report))


def used(arguments):
    """Returns the memory of the card in use, in MiB."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])


def memory(arguments):
    before = used(arguments)
    for loaded in ([MODEL], [MODEL, PARITY], [MODEL, PARITY, STAND_IN]):
        with Pool(arguments, 1, flags=["--set", f"backend.load={json.dumps(loaded)}"]) as pool:
            say(part="memory", models=len(loaded), mib=used(arguments) - before, seconds=pool.seconds)
            if len(loaded) == 3:
                switching(pool, arguments.seconds)


def switching(pool, seconds):
    """Compares runs of one model with runs that alternate between two, on one instance."""
    alone = {}
    for model in (MODEL, PARITY):
        before = milliseconds_in_model(pool.workers[0].metrics, model)
        load(pool.url, "--scenario", "single-stream", seconds=seconds, model=model)
        after = milliseconds_in_model(pool.workers[0].metrics, model)
        alone[model] = (after[0] - before[0]) / max(1, after[1] - before[1])
    before = [milliseconds_in_model(pool.workers[0].metrics, model) for model in (MODEL, PARITY)]
    command = [processes.PARM, "load", pool.url, "--seconds", str(seconds), "--scenario", "offline", "--streams", "1", "--quiet",
               "--allow-failed", "100", "--model"]
    both = [subprocess.Popen([*command, model], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for model in (MODEL, PARITY)]
    for one in both:
        one.wait()
    for (sum_before, runs_before), model in zip(before, (MODEL, PARITY)):
        total, runs = milliseconds_in_model(pool.workers[0].metrics, model)
        say(part="switching", model=model, alone=alone[model], in_turn=(total - sum_before) / max(1, runs - runs_before))


def batches(arguments):
    with Pool(arguments, 1) as pool:
        for size in (1, 4, 8, 16, 32, "auto"):
            pool.serve("--policy", "none", "--set", f"frontend.dispatch.batch.max_size={json.dumps(size)}")
            report = load(pool.url, "--scenario", "offline", "--streams", "64", "--threads", "4", seconds=arguments.seconds)
            say(part="throughput", size=size, per_second=report["answered_per_second"], **quantiles(report))
            for rate in arguments.rates:
                report = load(pool.url, "--rate", str(rate), "--deadline-ms", "250", "--threads", "4", seconds=arguments.seconds)
                say(part="batches", size=size, rate=rate, per_second=report["answered_per_second"], **quantiles(report))


def policies(arguments):
    with Pool(arguments, WORKERS) as pool:
        pool.serve("--policy", "none")
        report = load(pool.url, "--scenario", "offline", "--streams", str(WORKERS), "--threads", "4", seconds=arguments.seconds)
        rate = arguments.share * report["answered_per_second"]
        say(part="capacity", per_second=report["answered_per_second"], rate=rate, seconds=pool.seconds)
        for world in arguments.worlds.split(","):
            delay(pool.workers[0], 2 * WORKERS * 1e3 / report["answered_per_second"] if world == "slow" else 0)
            neighbour = Neighbour(arguments) if world == "busy" else contextlib.nullcontext()
            with neighbour:
                for policy, flags in POLICIES.items():
                    pool.serve(*flags)
                    done = load(pool.url, "--rate", f"{rate:.1f}", "--threads", "4", seconds=arguments.policy_seconds)
                    say(part="policies", world=world, policy=policy, per_second=done["answered_per_second"], outcomes=outcomes(done),
                        **quantiles(done))


def delay(worker, milliseconds):
    plan = {"delay_ms": {"kind": "constant", "value": milliseconds}, "delay_rate": 1.0} if milliseconds else {}
    body = json.dumps(plan).encode()
    urllib.request.urlopen(urllib.request.Request(f"http://{worker.metrics}/faults", body, method="POST"), timeout=5)


class Neighbour:
    """Another process on the card: batches of 64 for a fifth of each half second."""

    def __init__(self, arguments):
        self.command = [sys.executable, __file__, "neighbour", str(arguments.networks), "--device", arguments.device]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE)
        self.process.stdout.readline()

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def neighbour(arguments):
    import numpy

    made = session(str(arguments.networks / MODEL / "1" / "model.onnx"), arguments.device)
    values = numpy.random.default_rng(1).random((64, *made.get_inputs()[0].shape[1:]), dtype=numpy.float32)
    made.run(None, {"input": values})
    print("ready", flush=True)
    while True:
        end = time.perf_counter() + 0.1
        while time.perf_counter() < end:
            made.run(None, {"input": values})
        time.sleep(0.4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {part.__name__: part for part in (engine, latency, memory, batches, policies, neighbour)}
    parser.add_argument("part", choices=parts)
    parser.add_argument("networks", type=pathlib.Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--policy-seconds", type=float, default=8.0)
    parser.add_argument("--search", default="EXHAUSTIVE,HEURISTIC")
    parser.add_argument("--share", type=float, default=0.5, help="load of `policies`, as a share of the capacity")
    parser.add_argument("--worlds", default="alone,busy,slow")
    parser.add_argument("--rates", type=float, nargs="*", default=[])
    parser.add_argument("--log", default=os.path.join(tempfile.gettempdir(), "parm-card.log"))
    arguments = parser.parse_args()
    arguments.networks = arguments.networks.resolve()
    parts[arguments.part](arguments)


if __name__ == "__main__":
    main()
