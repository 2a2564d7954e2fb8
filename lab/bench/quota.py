#!/usr/bin/env python3
"""Measures policies over four workers with a real model, one of them under a CPU quota of the kernel.

The workers run magika with one thread each. The first is in a cgroup with a quota in percent of a core and a period of
100 ms, as a container with a CPU limit: it runs normally and then stands still for the rest of the period. Arrivals are
Poisson unless a trace is given, of which each repeat takes another part, at the same mean rate. Rows are random. Without
--rate the rate is half of the rate that all workers answer together without a quota. Contenders take turns. Needs root
and cgroups, version 1 or 2.

    lab/bench/quota.py [--engine ort --onnxruntime FILE | --engine tract] [--quota 0 15] [--rate N]

PARM_BINARY names the binary. The workers, the frontend and the load share this machine's cores, so latencies include
waiting for a core.
"""

import argparse
import contextlib
import csv
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "lab/interop"))

from fleet import Frontend, Process  # noqa: E402
from network import port  # noqa: E402
from processes import PARM, wait_for_http  # noqa: E402
from trials import trial, turns  # noqa: E402

WORKERS, MODEL, PERIOD_US = 4, "magika", 100_000


class Quota:
    """A cgroup that limits the processor time of one process."""

    def __init__(self, pid):
        root = pathlib.Path("/sys/fs/cgroup")
        self.second = (root / "cgroup.controllers").exists()
        self.folder = (root if self.second else root / "cpu") / "parm-quota"
        self.pid = pid
        try:
            if self.second:
                (root / "cgroup.subtree_control").write_text("+cpu")
            self.folder.mkdir(exist_ok=True)
            (self.folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            sys.exit(f"cgroup {self.folder}: {error}: run as root where cgroups may be made")

    def limit(self, percent):
        """Limits it to this share of a core; 0 is no limit."""
        own = int(PERIOD_US * percent / 100)
        if self.second:
            (self.folder / "cpu.max").write_text(f"{own or 'max'} {PERIOD_US}")
        else:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(own or -1))

    def throttled(self):
        """Returns the periods in which it was stopped."""
        lines = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(lines["nr_throttled"])

    def remove(self):
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.05)


class Worker(Process):
    """A worker with the real model."""

    def __init__(self, options):
        self.http, self.metrics = (f"127.0.0.1:{port()}" for _ in range(2))
        library = ["--set", f"backend.engine.onnxruntime={options.onnxruntime}"] if options.onnxruntime else []
        super().__init__([PARM, "worker", "--models", str(ROOT / "models"), "--set", f'backend.load=["{MODEL}"]',
                          "--engine", options.engine, *library, "--instances", "1", "--http", self.http,
                          "--grpc", "127.0.0.1:0", "--metrics", self.metrics])
        self.launch()

    def ready(self):
        wait_for_http(f"http://{self.http}/v2/models/{MODEL}/ready", self.process)


class Front(Frontend):
    """A frontend that waits for the real model."""

    def start(self):
        self.launch()
        wait_for_http(f"http://{self.http}/v2/models/{MODEL}/ready", self.process)
        until = time.monotonic() + 30
        while self.metric('parm_instances{state="ready"}') < self.workers:
            if time.monotonic() > until:
                raise SystemExit(f"{self.name}: not all of {self.workers} workers joined within 30 s")
            time.sleep(0.02)


def capacity(fleet):
    """Returns the rate that all workers answer together."""
    front = Front("equal", fleet)
    front.start()
    done = subprocess.run(
        [PARM, "load", f"http://{front.http}", "--model", MODEL, "--scenario", "offline", "--streams", "8", "--seconds",
         "5", "--quiet", "--output", "json"], stdout=subprocess.PIPE, text=True, check=True)
    front.kill()
    return json.loads(done.stdout)["answered_per_second"]


WARM_UP = 3.0


def times(path):
    """Returns the seconds of a trace of Azure, with the column TIMESTAMP."""
    with open(path, newline="") as lines:
        stamps = [row["TIMESTAMP"][:26] for row in csv.DictReader(lines)]
    moments = [datetime.datetime.fromisoformat(stamp) for stamp in stamps]
    return [(moment - moments[0]).total_seconds() for moment in moments]


def part(trace, seed, rate, seconds):
    """Returns the lines of the part of a trace for this repeat, at the given mean rate."""
    count = int(rate * (seconds + WARM_UP))
    start = (seed - 1) * count
    if start + count > len(trace):
        sys.exit(f"the trace has {len(trace)} requests, too few for repeat {seed}: give fewer --repeats or --seconds")
    chosen = trace[start:start + count]
    speed = (chosen[-1] - chosen[0]) * rate / count
    return "".join(f"{(moment - chosen[0]) / speed:.6f}\n" for moment in chosen)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--engine", choices=["ort", "tract"], default="tract")
    arguments.add_argument("--onnxruntime", help="path of ONNX Runtime's shared library")
    arguments.add_argument("--quota", type=float, nargs="+", default=[0, 15], help="percent of a core; 0 is none")
    arguments.add_argument("--rate", type=float, help="queries a second; half of the capacity unless given")
    arguments.add_argument("--trace", type=pathlib.Path, help="arrivals from a trace of Azure (CSV)")
    arguments.add_argument("--seconds", type=float, default=15)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--only", nargs="*", default=["equal", "none", "hedge"], help="policies")
    arguments.add_argument("--raw", type=pathlib.Path, help="existing folder for all samples")
    options = arguments.parse_args()
    trace = times(options.trace) if options.trace else None
    fleet = [Worker(options) for _ in range(WORKERS)]
    for worker in fleet:
        worker.ready()
    quota = Quota(fleet[0].pid)
    try:
        rate = options.rate or round(capacity(fleet) / 2)
        print(f"{WORKERS} workers, {options.engine}, {rate:g} queries/s", flush=True)
        for percent in options.quota:
            quota.limit(percent)

            def run(name, seed):
                front = Front(name, fleet)
                front.start()
                before = quota.throttled()
                with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                    if trace:
                        file.write(part(trace, seed, rate, options.seconds))
                        file.flush()
                    arrivals = f"trace:{file.name}" if trace else "poisson"
                    found = trial(front, MODEL, rate, options.seconds, seed, WARM_UP, arrivals)
                found["note"] = f", throttled in {quota.throttled() - before} periods"
                front.kill()
                if options.raw:
                    file = options.raw / f"{percent:g}-{name}-{seed}.csv"
                    file.write_text("\n".join(",".join(row.values()) for row in found["rows"]))
                # The limited worker may still be busy with abandoned queries.
                time.sleep(0.5)
                return found

            turns(options.only, options.repeats, run, f"quota {percent:g} %")
    finally:
        for worker in fleet:
            worker.kill()
        quota.remove()


if __name__ == "__main__":
    main()
