#!/usr/bin/env python3
"""Stops all workers of a model under load, and checks the answers of the stand-in in the frontend.

Six workers run fashion-lenet, delayed to 20 ms, at half load. All are stopped (SIGSTOP), killed (SIGKILL) or cut off
(a namespace without a link) for ten seconds. Prints the answers before, during and after the outage, their accuracy,
and the processor time and memory of the frontends. The load is for six workers, so a seventh is a spare.

    lab/bench/outage.py PARM IMAGES [LABELS] [--frontends N] [--fault stop|kill|cut] [--model NAME] [--workers N]

The data are Fashion-MNIST, such as Debian's package dataset-fashion-mnist. `cut` needs root.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

WORKERS, RUN_MS, OUTAGE_S = 6, 20.0, 10.0
BEFORE_S, AFTER_S = 20.0, 15.0
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Process:
    """A process of parm, in a namespace or not."""

    def __init__(self, command, log, namespace=None):
        prefix = ["ip", "netns", "exec", namespace] if namespace else []
        self.command, self.log = prefix + command, log
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)

    def cpu(self):
        """Returns its processor seconds."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Returns its resident memory in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Fleet:
    """Workers and frontends."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.namespace = "parm-outage" if arguments.fault == "cut" else None
        if self.namespace:
            self.link()
        host = "10.77.0.2" if self.namespace else "127.0.0.1"
        log = open(folder / "log", "w")
        self.addresses = [f"{host}:{23000 + 10 * number}" for number in range(arguments.workers)]
        self.workers = [self.worker(address, log) for address in self.addresses]
        urls = [flag for address in self.addresses for flag in ("--worker", f"http://{address}")]
        options = ["--set", "frontend.dispatch.batch.max_size=1", "--set", "log.level=info"]
        if arguments.stand_in_at == "frontend":
            options += ["--models", str(arguments.models), "--stand-in-at", "frontend"]
        elif arguments.stand_in_at == "none":
            options += ["--policy", "hedge"]
        ports = [24000 + 10 * number for number in range(arguments.frontends)]
        self.frontends = [Process(
            [arguments.parm, "serve", *urls, *options, "--http", f"127.0.0.1:{port}", "--grpc", f"127.0.0.1:{port + 1}",
             "--metrics", f"127.0.0.1:{port + 2}"], log) for port in ports]
        self.ports = ports
        for address in self.addresses:
            self.wait(f"http://{address}/v2/health/ready")
            self.delay(address)
        for port in ports:
            self.wait(f"http://127.0.0.1:{port}/v2/models/{arguments.model}/ready")

    def worker(self, address, log):
        host, port = address.split(":")
        addresses = [f"{host}:{int(port) + offset}" for offset in range(3)]
        flags = ["--http", addresses[0], "--grpc", addresses[1], "--metrics", addresses[2]]
        only = ["--set", f'backend.load=["{self.arguments.model}"]']
        models = ["--models", str(self.arguments.models)]
        return Process([self.arguments.parm, "worker", *models, *only, "--faults", *flags], log, self.namespace)

    def link(self):
        """Makes a namespace with one link to this one."""
        name = self.namespace
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        for command in (f"netns add {name}", f"link add parm0 type veth peer name parm1 netns {name}",
                        "addr add 10.77.0.1/24 dev parm0", "link set parm0 up", f"-n {name} link set lo up",
                        f"-n {name} addr add 10.77.0.2/24 dev parm1", f"-n {name} link set parm1 up"):
            subprocess.run(["ip", *command.split()], check=True)

    def cable(self, state):
        """Sets the far end of the link, so that the route to it stays."""
        subprocess.run(["ip", "-n", self.namespace, "link", "set", "parm1", state], check=True)

    def wait(self, url):
        for _ in range(600):
            try:
                urllib.request.urlopen(url, timeout=1)
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"{url} does not answer: see {self.folder}/log")

    def answered(self, port):
        """Whether a frontend has answered a request."""
        page = urllib.request.urlopen(f"http://127.0.0.1:{port + 2}/metrics", timeout=5).read().decode()
        return any(line.startswith("nv_inference_request_success") and not line.endswith(" 0") for line in page.splitlines())

    def delay(self, address):
        host, port = address.split(":")
        plan = {"delay_ms": {"kind": "constant", "value": RUN_MS}, "delay_rate": 1.0}
        request = urllib.request.Request(f"http://{host}:{int(port) + 2}/faults", json.dumps(plan).encode(), method="POST")
        urllib.request.urlopen(request, timeout=5)

    def fail(self):
        for worker in self.workers:
            if self.arguments.fault == "stop":
                worker.process.send_signal(signal.SIGSTOP)
            elif self.arguments.fault == "kill":
                worker.end()
        if self.namespace:
            self.cable("down")

    def heal(self):
        for worker in self.workers:
            if self.arguments.fault == "stop":
                worker.process.send_signal(signal.SIGCONT)
            elif self.arguments.fault == "kill":
                worker.start()
        if self.namespace:
            self.cable("up")
        if self.arguments.fault == "kill":
            for address in self.addresses:
                self.wait(f"http://{address}/v2/health/ready")
                self.delay(address)

    def end(self):
        for process in self.frontends + self.workers:
            process.end()
        if self.namespace:
            subprocess.run(["ip", "netns", "del", self.namespace])


def load(fleet, port, rate, samples):
    """Starts the load on one frontend."""
    arguments = fleet.arguments
    data = ["--input", arguments.inputs] + (["--labels", arguments.labels] if arguments.labels else [])
    seconds = BEFORE_S + OUTAGE_S + AFTER_S
    return subprocess.Popen(
        [arguments.parm, "load", f"http://127.0.0.1:{port}", "--model", arguments.model, "--rate", str(rate),
         "--seconds", str(seconds), "--warm-up", "0", *data, "--samples", str(samples), "--deadline-ms", "5000",
         "--allow-failed", "100", "--quiet", "--output", "json"], stdout=subprocess.PIPE, text=True)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def phases(rows, began, healed):
    """Returns the rows before, during and after the outage."""
    parts = collections.defaultdict(list)
    for sent, took, outcome in rows:
        name = "before" if sent < began else "during" if sent < healed else "after"
        parts[name].append((sent, took, outcome))
    return parts


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [(float(row["intended_us"]) / 1e6, float(row["latency_us"]) / 1e3, row["outcome"]) for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parm")
    parser.add_argument("inputs")
    parser.add_argument("labels", nargs="?")
    parser.add_argument("--model", default="fashion-lenet")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "models")
    parser.add_argument("--frontends", type=int, default=1)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--fault", choices=["stop", "kill", "cut"], default="stop")
    parser.add_argument("--stand-in-at", choices=["frontend", "none"], default="frontend")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fleet = Fleet(arguments, folder)
        try:
            run(fleet, folder)
        finally:
            fleet.end()


def run(fleet, folder):
    rate = 0.5 * WORKERS / (RUN_MS / 1e3) / len(fleet.ports)
    samples = [folder / f"{port}.csv" for port in fleet.ports]
    spent = [frontend.cpu() for frontend in fleet.frontends]
    loads = [load(fleet, port, rate, path) for port, path in zip(fleet.ports, samples)]
    while not all(fleet.answered(port) for port in fleet.ports):
        time.sleep(0.02)
    start = time.monotonic()
    time.sleep(BEFORE_S)
    began = time.monotonic() - start
    middle = [frontend.cpu() for frontend in fleet.frontends]
    fleet.fail()
    time.sleep(OUTAGE_S)
    outage = [frontend.cpu() for frontend in fleet.frontends]
    healed = time.monotonic() - start
    fleet.heal()
    returned = time.monotonic() - start
    reports = [json.loads(load.communicate()[0]) for load in loads]
    for number, (path, report) in enumerate(zip(samples, reports)):
        parts = phases(read(path), began, healed)
        for name in ("before", "during", "after"):
            rows = parts[name]
            outcomes = collections.Counter(outcome for *_, outcome in rows)
            took = [took for _, took, _ in rows]
            print(f"frontend {number} {name}: {len(rows)} queries, {dict(outcomes)}, p50 {statistics.median(took):.1f} ms, "
                  f"p99 {quantile(took, 0.99):.1f}, p99.9 {quantile(took, 0.999):.1f}, longest {max(took):.1f}")
        approximate = [sent + took / 1e3 for sent, took, outcome in parts["after"] if outcome == "stand-in"]
        exact = [sent + took / 1e3 for sent, took, outcome in parts["after"] if outcome in ("exact", "hedged", "model")]
        print(f"frontend {number}: first exact answer {min(exact, default=float('nan')) - returned:.2f} s after the workers' "
              f"return, last answer of the stand-in {max(approximate, default=returned) - returned:.2f} s after it")
        print(f"frontend {number}: processor before {(middle[number] - spent[number]) / began:.3f} cores, during "
              f"{(outage[number] - middle[number]) / OUTAGE_S:.3f}")
        print(f"frontend {number}: {fleet.frontends[number].memory():.0f} MiB; a worker: {fleet.workers[0].memory():.0f} MiB")
        print("accuracy", json.dumps(report.get("accuracy")))


if __name__ == "__main__":
    main()
