"""Load generators on the same null server in the same run: parm load compared with wrk, h2load and perf_analyzer.

It measures the latency that a generator adds to one request (one at a time), its highest rate (sixteen at a time), and the
rate up to which parm load keeps a schedule. The server answers at once, so the figures are those of the generator, the
kernel and the server's protocol. Generator and server share this machine, so processor time per request is given too.
Rounds are interleaved and the table has medians. Run by `just bench-load`; needs wrk and h2load on the path.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import tempfile

import hop
from processes import PARM, Parm

MODEL = "null"


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def grpc_body(floats):
    """Returns a ModelInferRequest of one row of FP32 values, in gRPC's five-byte frame."""
    tensor = field(1, b"input") + field(2, b"FP32") + field(3, varint(1) + varint(floats))
    values = struct.pack(f"<{floats}f", *(i / floats for i in range(floats)))
    message = field(1, MODEL.encode()) + field(5, tensor) + field(7, values)
    return b"\0" + struct.pack(">I", len(message)) + message


def timed(command):
    """Returns the command's output and its processor seconds."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return out, err, usage.ru_utime + usage.ru_stime, process.returncode


def parm(url, *flags, seconds):
    """Returns parm load's report; its answered requests include those of the warm-up's half second in the processor
    time."""
    out, err, cpu, _ = timed([PARM, "load", url, "--model", MODEL, "--quiet", "--seconds", str(seconds),
                              "--warm-up", "0.5", "--output", "json", *flags])
    if not out:
        raise SystemExit(err)
    report = json.loads(out)
    requests = report["answered_per_second"] * (seconds + 0.5)
    quantiles = {round(q["share"], 4): q["ms"] for q in report["latency"]}
    us = {share: ms and ms * 1e3 for share, ms in quantiles.items()}
    return {"rate": report["answered_per_second"], "p50": us[0.5], "p99": us[0.99], "cpu": 1e6 * cpu / max(requests, 1),
            "lag": 1e3 * report["validity"]["lag_p99_ms"], "valid": report["validity"]["valid"]}


def wrk(script, address, connections, seconds):
    out, err, cpu, code = timed(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script),
                                 f"http://{address}/v2/models/{MODEL}/infer"])
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", out)
    if code or not found:
        raise SystemExit(out + err)
    requests, _, p50, p99, errors = map(int, found.groups())
    if errors:
        raise SystemExit(f"wrk: {errors} errors")
    return {"rate": requests / seconds, "p50": p50, "p99": p99, "cpu": 1e6 * cpu / requests}


def h2load(url, streams, seconds, body, *headers):
    h1 = ["--h1", f"-c{streams}"] if "/v2/" in url else ["-c1", f"-m{streams}"]
    arguments = [argument for header in headers for argument in ("-H", header)]
    out, err, cpu, code = timed(["h2load", "-t1", f"-D{seconds}", *h1, "-d", str(body), *arguments, url])
    rate = re.search(r"finished in .*?, ([\d.]+) req/s", out)
    mean = re.search(r"time for request:\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)", out)
    done = re.search(r"(\d+) succeeded, (\d+) failed", out)
    if code or not (rate and mean and done) or int(done[2]):
        raise SystemExit(out + err)
    unit = {"us": 1, "ms": 1e3, "s": 1e6}[mean[2]]
    return {"rate": float(rate[1]), "mean": float(mean[1]) * unit, "cpu": 1e6 * cpu / max(int(done[1]), 1)}


def perf_analyzer(binary, address, protocol, streams, seconds):
    out, err, cpu, code = timed([binary, "-m", MODEL, "-u", address, "-i", protocol, "--concurrency-range", str(streams),
                                 "--measurement-interval", str(int(seconds * 1000)), "--percentile=50", "-s", "50",
                                 "--max-threads", "1"])
    rate = re.search(r"Throughput: ([\d.]+) infer/sec", out)
    p50 = re.search(r"p50 latency: (\d+) usec", out)
    p99 = re.search(r"p99 latency: (\d+) usec", out)
    if code or not (rate and p50):
        raise SystemExit(out + err)
    return {"rate": float(rate[1]), "p50": int(p50[1]), "p99": int(p99[1]) if p99 else None}


def generators(worker, folder, options):
    header, blob = hop.body(options.floats)
    script = hop.wrk_script(folder, options.floats)
    http = folder / "request.bin"
    grpc = folder / "request.grpc"
    grpc.write_bytes(grpc_body(options.floats))
    infer = f"http://{worker.http}/v2/models/{MODEL}/infer"
    rpc = f"http://{worker.grpc}/inference.GRPCInferenceService/ModelInfer"
    seconds = options.seconds

    def ours(url):
        def run(streams):
            flags = ["--scenario", "single-stream"] if streams == 1 else \
                ["--scenario", "offline", "--streams", str(streams)]
            return parm(url, *flags, seconds=seconds)
        return run

    all_of_them = {
        "parm load, HTTP/1.1": ours(f"http://{worker.http}"),
        "wrk, HTTP/1.1": lambda streams: wrk(script, worker.http, streams, seconds),
        "h2load, HTTP/1.1": lambda streams: h2load(infer, streams, seconds, http,
                                                   "content-type: application/octet-stream",
                                                   f"inference-header-content-length: {len(header)}"),
        "parm load, gRPC": ours(f"grpc://{worker.grpc}"),
        "h2load, gRPC": lambda streams: h2load(rpc, streams, seconds, grpc,
                                               "content-type: application/grpc", "te: trailers"),
        "parm load, frames": ours(f"frames://{worker.http}"),
    }
    if options.perf_analyzer:
        for protocol, address in (("http", worker.http), ("grpc", worker.grpc)):
            all_of_them[f"perf_analyzer, {protocol}"] = \
                lambda streams, p=protocol, a=address: perf_analyzer(options.perf_analyzer, a, p, streams, seconds)
    return all_of_them


def closed(all_of_them, streams, rounds):
    results = {name: [] for name in all_of_them}
    for _ in range(rounds):
        for name, run in all_of_them.items():
            results[name].append(run(streams))
    lines = [f"{streams} at a time:\n", "| generator | requests/s | p50 (us) | mean (us) | p99 (us) | "
             "generator's CPU (us a request) |", "|---|---|---|---|---|---|"]
    for name, runs in results.items():
        def cell(key, runs=runs):
            values = [run[key] for run in runs if run.get(key) is not None]
            return f"{statistics.median(values):.0f}" if values else "-"
        lines.append(f"| {name} | {cell('rate')} | {cell('p50')} | {cell('mean')} | {cell('p99')} | {cell('cpu')} |")
    return "\n".join(lines)


def open_loop(urls, rates, rounds, seconds):
    lines = ["Poisson arrivals, parm load:\n", "| transport | rate | valid runs | lag p99 (us) | p50 (us) | p99 (us) | "
             "generator's CPU (us a request) |", "|---|---|---|---|---|---|---|"]
    for name, url in urls.items():
        for rate in rates:
            runs = [parm(url, "--rate", str(rate), "--seed", str(seed), seconds=seconds) for seed in range(rounds)]
            def middle(key, runs=runs):
                return f"{statistics.median(run[key] for run in runs if run[key] is not None):.0f}"
            valid = sum(run["valid"] for run in runs)
            lines.append(f"| {name} | {rate} | {valid} of {rounds} | {middle('lag')} | {middle('p50')} | "
                         f"{middle('p99')} | {middle('cpu')} |")
            if not valid:
                break
    return "\n".join(lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=int, default=2)
    arguments.add_argument("--floats", type=int, default=784, help="FP32 values in a request (784 are 3 KB)")
    arguments.add_argument("--rates", type=int, nargs="*", default=[1000, 2000, 5000, 10000, 20000, 30000, 40000])
    arguments.add_argument("--only", choices=["one", "sixteen", "open"], help="only one part, to save time")
    arguments.add_argument("--perf-analyzer", help="path of a perf_analyzer binary; left out when absent")
    options = arguments.parse_args()
    config = pathlib.Path(__file__).parent / "null-worker.toml"
    with tempfile.TemporaryDirectory() as folder, Parm("worker", "--config", str(config)) as worker:
        worker.wait_for_model(MODEL)
        all_of_them = generators(worker, pathlib.Path(folder), options)
        print(f"{options.floats} FP32 values a request, {options.rounds} rounds of {options.seconds} s, medians\n")
        for name, streams in (("one", 1), ("sixteen", 16)):
            if options.only in (None, name):
                print(closed(all_of_them, streams, options.rounds) + "\n", flush=True)
        if options.only in (None, "open"):
            urls = {"HTTP/1.1": f"http://{worker.http}", "gRPC": f"grpc://{worker.grpc}", "frames": f"frames://{worker.http}"}
            print(open_loop(urls, options.rates, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
