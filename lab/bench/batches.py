#!/usr/bin/env python3
"""Automatic batch sizes compared with fixed ones, with a real encoder of token ids in ONNX Runtime, one thread a worker.

The loads are shares of the best capacity: that of batches of eight, measured first. For each load all settings run in turn.

    lab/bench/batches.py run PARM NETWORK RESULTS [--workers N] [--triton PYTHON] [--mlserver PYTHON]
    lab/bench/batches.py jump PARM NETWORK RESULTS [--workers N]
    lab/bench/batches.py lengths PARM NETWORK RESULTS --tokenizer FILE [--workers N]
    lab/bench/batches.py table RESULTS

`run` and `jump` append to RESULTS, one JSON object for each run. `jump` sends 0.2 of the capacity, then 0.9, then 0.2, each
setting the same requests. `lengths` sends texts of unequal lengths, the sentences and paragraphs of this repository's pages,
as fast as they are answered; it needs `tokenizers`. The Pythons need `nvidia-pytriton` or `mlserver` with `uvloop<0.22`, and onnxruntime. `PARM` finds
ONNX Runtime by ORT_DYLIB_PATH. `NETWORK` is lab/interop/texts/encoder.py's, with --pooled.
"""

import argparse
import collections
import contextlib
import csv
import http.client
import itertools
import json
import os
import pathlib
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADS = [0.1, 0.5, 0.9, 1.2]
SIZES = [1, 2, 4, 8, "auto"]
DEADLINE_MS = 250
STEP_S = 5.0
LIMITS_MS = [25, 50, 100]


def npy(path, rows, tokens, pick):
    """Writes whole numbers as an array."""
    header = str({"descr": "<i8", "fortran_order": False, "shape": (rows, tokens)}).ljust(117) + "\n"
    numbers = struct.pack(f"<{rows * tokens}q", *(pick() for _ in range(rows * tokens)))
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + numbers)


def load(arguments, url, samples, *flags, seconds, warm_up=0.6):
    """Runs `parm load` and returns its report and its samples: when and how late each was answered."""
    inputs = [flag for name in ("input_ids", "attention_mask") for flag in ("--input", f"{name}={samples.parent / name}.npy")]
    command = [arguments.parm, "load", url, "--model", "encoder", *inputs, "--seconds", str(seconds), "--warm-up", str(warm_up),
               "--deadline-ms", str(DEADLINE_MS), "--allow-failed", "100", "--samples", str(samples), "--quiet", "--output", "json", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.strip():
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    with open(samples, newline="") as file:
        rows = [(float(row["intended_us"]) / 1e6, float(row["latency_us"]) / 1e3, row["outcome"]) for row in csv.DictReader(file)]
    return json.loads(done.stdout), rows


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


class Bench:
    """The servers, all running, one under load at a time."""

    def __init__(self, arguments, sizes, running):
        os.environ["PARM_BINARY"] = arguments.parm
        import batchers

        self.arguments = arguments
        self.folder = pathlib.Path(running.enter_context(tempfile.TemporaryDirectory()))
        log = running.enter_context(open(self.folder / "log", "w"))
        random.seed(1)
        npy(self.folder / "input_ids.npy", 256, arguments.tokens, lambda: random.randrange(1000, 30000))
        npy(self.folder / "attention_mask.npy", 256, arguments.tokens, lambda: 1)
        given = arguments.workers, arguments.network, self.folder, log
        self.servers = {str(size): batchers.ParmBatcher(size, *given) for size in sizes}
        if arguments.mlserver:
            self.servers["MLServer"] = batchers.MlserverBatcher(arguments.mlserver, *given)
        if arguments.triton:
            self.servers["Triton"] = batchers.TritonBatcher(arguments.triton, *given)
        for server in self.servers.values():
            running.callback(server.end)
        self.capacities = []
        for name in [*self.servers, "8", "8"]:
            report, _ = self.load(name, "--scenario", "offline", "--streams", str(32 * arguments.workers), seconds=2.0)
            if name == "8":
                self.capacities.append(report["answered_per_second"])
            print(name, "offline", round(report["answered_per_second"]), report.get("first_failure"), flush=True)
        self.capacity = statistics.median(self.capacities)

    def load(self, name, *flags, **times):
        return load(self.arguments, self.servers[name].url, self.folder / "samples.csv", *flags, **times)

    def write(self, **result):
        result |= {"workers": self.arguments.workers, "capacity": self.capacity}
        with open(self.arguments.results, "a") as file:
            file.write(json.dumps(result) + "\n")


def run(bench, repeat):
    for share in LOADS:
        for name, server in bench.servers.items():
            rate = share * bench.capacity
            before = server.counts()
            report, rows = bench.load(name, "--rate", f"{rate:.1f}", "--seed", str(repeat), seconds=bench.arguments.seconds)
            after = server.counts()
            took = [took for _, took, _ in rows]  # failures count as the deadline
            size = (after[0] - before[0]) / max(1, after[1] - before[1]) if after else None
            served = sum(outcome not in ("failed", "dropped") for *_, outcome in rows) / report["seconds"]
            result = {"p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "served": served, "rows": size}
            bench.write(kind="run", load=share, setting=name, seed=repeat, lag=report["validity"], **result)
            print(share, name, {key: value and round(value, 2) for key, value in result.items()}, flush=True)
            if name in ("MLServer", "Triton") and share > 0.8:
                time.sleep(0.5)  # requests beyond their deadline stay in their queues


def jump(bench, repeat):
    random.seed(repeat)
    trace, now = bench.folder / "trace", 0.0
    with open(trace, "w") as file:
        while now < 3 * STEP_S:
            rate = bench.capacity * (0.9 if STEP_S <= now < 2 * STEP_S else 0.2)
            now += random.expovariate(rate)
            file.write(f"{now:.6f}\n")
    for name in bench.servers:
        _, rows = bench.load(name, "--arrivals", f"trace:{trace}", seconds=3 * STEP_S, warm_up=0.0)
        parts = collections.defaultdict(list)
        for sent, took, _ in rows:
            part = "low" if sent < STEP_S else "first 2 s" if sent < STEP_S + 2 else "high" if sent < 2 * STEP_S else "back"
            parts[part].append(took)
        for part, took in parts.items():
            late = {str(limit): sum(one > limit for one in took) / len(took) for limit in LIMITS_MS}
            bench.write(kind="jump", part=part, setting=name, seed=repeat, p50=quantile(took, 0.5), p99=quantile(took, 0.99),
                        late=late, queries=len(took))
            print(name, part, len(took), round(quantile(took, 0.5), 1), round(quantile(took, 0.99), 1), late, flush=True)


def texts(arguments):
    """Returns the token ids of sentences, and of paragraphs, of the pages, at most 256 each."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    pages = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
    paragraphs = [part.strip() for page in pages for part in page.read_text().split("\n\n")]
    paragraphs = [part for part in paragraphs if part and part[0] not in "#|`" and not part.startswith("    ")]
    sentences = [one for part in paragraphs for one in re.split(r"(?<=[.:?])\s+", part) if len(one) > 3]
    return {name: [one.ids for one in tokenizer.encode_batch(found)] for name, found in (("sentences", sentences), ("paragraphs", paragraphs))}


def body(ids):
    """Returns a request of one row in the protocol's binary form, with its headers."""
    data = struct.pack(f"<{len(ids)}q", *ids) + struct.pack(f"<{len(ids)}q", *[1] * len(ids))
    inputs = [{"name": name, "datatype": "INT64", "shape": [1, len(ids)], "parameters": {"binary_data_size": 8 * len(ids)}}
              for name in ("input_ids", "attention_mask")]
    outputs = [{"name": "sentence_embedding", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": inputs, "outputs": outputs, "parameters": {"timeout": 30_000_000}}).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}


def ask(connection, request):
    """Sends a request and returns the answer's numbers."""
    connection.request("POST", "/v2/models/encoder/infer", *request)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        sys.exit(f"status {answer.status}: {content[:200]}")
    values = content[int(answer.headers["Inference-Header-Content-Length"]):]
    return struct.unpack(f"<{len(values) // 4}f", values)


def closed_loop(address, requests, streams, seconds, alone=None):
    """Sends requests on so many connections, each after the answer to the last. Returns how many were answered in this time, their
    latencies, and the largest difference to the answers alone."""
    until, order, took, most = time.monotonic() + seconds, itertools.count(), [], [0.0]

    def run():
        connection = http.client.HTTPConnection(address)
        while (started := time.monotonic()) < until:
            at = next(order) % len(requests)
            answer = ask(connection, requests[at])
            took.append((time.monotonic() - started) * 1e3)
            if alone and at in alone:
                most[0] = max(most[0], max(abs(one - other) for one, other in zip(answer, alone[at])))

    threads = [threading.Thread(target=run) for _ in range(streams)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return len(took) / seconds, took, most[0]


def processor_seconds(server):
    """Returns the processor time that the workers of a server have used."""
    fields = [pathlib.Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split() for worker in server.parts[:-1]]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def lengths(arguments, running):
    os.environ["PARM_BINARY"] = arguments.parm
    import batchers

    folder = pathlib.Path(running.enter_context(tempfile.TemporaryDirectory()))
    log = running.enter_context(open(folder / "log", "w"))
    # Before threads exist, so that the servers start on an idle machine.
    settings = {1: "1", 8: "8", "auto": "auto"}
    servers = {}
    for size, name in settings.items():
        servers[name] = batchers.ParmBatcher(size, arguments.workers, arguments.network, folder, log)
        running.callback(servers[name].end)
    for kind, rows in texts(arguments).items():
        random.seed(arguments.seed)
        random.shuffle(rows)
        requests = [body(ids) for ids in rows]
        sizes = sorted(len(ids) for ids in rows)
        tenths = [sizes[len(sizes) * tenth // 10] for tenth in (1, 5, 9)]
        print(kind, len(rows), "texts; tokens at 10, 50 and 90 %:", tenths, flush=True)
        connection = http.client.HTTPConnection(servers["1"].http)
        alone = {at: ask(connection, requests[at]) for at in range(min(200, len(requests)))}
        for name, server in servers.items():  # times are learned
            closed_loop(server.http, requests, arguments.streams, 2.0)
        for repeat in range(arguments.repeats):
            for name, server in servers.items():
                before, used = server.counts(), processor_seconds(server)
                rate, took, most = closed_loop(server.http, requests, arguments.streams, arguments.seconds, alone)
                after, used = server.counts(), processor_seconds(server) - used
                rows_each = (after[0] - before[0]) / max(1, after[1] - before[1])
                result = {"served": rate, "p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "rows": rows_each, "difference": most,
                          "processor_ms": 1e3 * used / max(1, after[0] - before[0])}
                print(kind, name, {key: float(f"{value:.3g}") for key, value in result.items()}, flush=True)
                with open(arguments.results, "a") as file:
                    line = {"kind": "lengths", "texts": kind, "tokens": tenths, "workers": arguments.workers, "setting": name, "seed": repeat}
                    file.write(json.dumps(line | result) + "\n")


def table_of_lengths(runs):
    groups = collections.defaultdict(list)
    for one in runs:
        groups[one["texts"], one["setting"]].append(one)
    print("\n| texts | setting | runs | answers/s | p50 (ms) | p99 (ms) | rows a batch | processor time a row (ms) "
          "| largest difference |\n|" + "---|" * 9)
    for (kind, name), found in groups.items():
        middle = {key: statistics.median(one[key] for one in found) for key in ("served", "p50", "p99", "rows", "processor_ms")}
        print(f"| {kind} | {name} | {len(found)} | {middle['served']:.0f} | {middle['p50']:.0f} | {middle['p99']:.0f} "
              f"| {middle['rows']:.2f} | {middle['processor_ms']:.2f} | {max(one['difference'] for one in found):.1e} |")


def table(path):
    runs = [json.loads(line) for line in open(path)]
    table_of_lengths([one for one in runs if one["kind"] == "lengths"])
    runs = [one for one in runs if one["kind"] != "lengths"]
    middle = lambda found, key: statistics.median(one[key] for one in found)
    groups = collections.defaultdict(list)
    for one in runs:
        groups[one["kind"], one["workers"], one.get("load", one.get("part")), one["setting"]].append(one)
    print("| workers | load | setting | runs | p50 (ms) | p99 (ms) | answers/s | rows a batch |\n|---|---|---|---|---|---|---|---|")
    for (kind, workers, share, name), found in sorted(groups.items(), key=lambda item: item[0][:2]):
        if kind == "run":
            rows = "-" if found[0]["rows"] is None else f"{middle(found, 'rows'):.2f}"
            print(f"| {workers} | {share} | {name} | {len(found)} | {middle(found, 'p50'):.1f} | {middle(found, 'p99'):.1f} "
                  f"| {middle(found, 'served'):.0f} | {rows} |")
    print("\n| workers | part | setting | runs | queries | p50 (ms) | p99 (ms) | " + " | ".join(f"over {limit} ms (%)" for limit in LIMITS_MS)
          + " |\n|" + "---|" * (7 + len(LIMITS_MS)))
    for (kind, workers, part, name), found in sorted(groups.items(), key=lambda item: item[0][:2]):
        if kind == "jump":
            late = [100 * statistics.mean(one["late"][str(limit)] for one in found) for limit in LIMITS_MS]
            print(f"| {workers} | {part} | {name} | {len(found)} | {sum(one['queries'] for one in found)} | {middle(found, 'p50'):.1f} "
                  f"| {middle(found, 'p99'):.1f} | " + " | ".join(f"{share:.2f}" for share in late) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "jump", "lengths"):
        command = commands.add_parser(name)
        command.add_argument("parm")
        command.add_argument("network", type=pathlib.Path)
        command.add_argument("results", type=pathlib.Path)
        command.add_argument("--workers", type=int, default=1)
        command.add_argument("--tokens", type=int, default=16)
        command.add_argument("--seconds", type=float, default=10.0)
        command.add_argument("--repeats", type=int, default=1)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--triton")
        command.add_argument("--mlserver")
        command.add_argument("--tokenizer", type=pathlib.Path)
        command.add_argument("--streams", type=int, default=32)
    commands.add_parser("table").add_argument("results", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command == "table":
        return table(arguments.results)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the servers end too
    with contextlib.ExitStack() as running:
        if arguments.command == "lengths":
            return lengths(arguments, running)
        bench = Bench(arguments, SIZES if arguments.command == "run" else SIZES[1:], running)
        for repeat in range(arguments.repeats):
            (run if arguments.command == "run" else jump)(bench, arguments.seed + repeat)


if __name__ == "__main__":
    main()
