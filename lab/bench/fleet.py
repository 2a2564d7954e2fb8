"""Workers and frontends of the chaos benchmarks, and the faults of workers.

A worker emulates `big`, which sleeps for a service time and answers linearly, and `small`, a stand-in that gives the same
answers in a quarter of the time. Its addresses are fixed, because it restarts on the same ones.
"""

import atexit
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

from network import OWN_NAMESPACES, Host, port
from processes import PARM, wait_for_http

MODEL, STAND_IN = "big", "small"
INPUTS, OUTPUTS = 16, 4

# Arguments of `parm serve` for each policy. The emulated model is linear, so `mds` codes it without a bundle.
POLICIES = {
    "none": ["--policy", "none"],
    "equal": ["--policy", "equal"],
    "hedge": ["--policy", "hedge"],
    "parm": ["--policy", "parm", "--set", "frontend.dispatch.coding.code=mds"],
    "parm+": ["--policy", "parm+", "--set", "frontend.dispatch.coding.code=mds"],
    "stand-in": ["--stand-in", STAND_IN],
}


class Process:
    """A process that never outlives this one."""

    def __init__(self, command, log=None, env=None):
        self.command, self.env = command, {**os.environ, **(env or {})}
        self.log = log or subprocess.DEVNULL
        self.process = None
        atexit.register(self.kill)

    def launch(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.log, env=self.env)

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()


class Worker(Process):
    """A worker on its own host."""

    def __init__(self, folder, service_ms):
        self.host = Host()
        address = self.host.address
        self.http, self.metrics = f"{address}:{self.host.ports[0]}", f"{address}:{self.host.ports[2]}"
        config = pathlib.Path(folder) / f"worker-{self.host.number}.toml"
        config.write_text("".join(f"""
[backend.emulated.{name}]
input = [{INPUTS}]
outputs = {OUTPUTS}
seed = {self.host.number}
time_ms = {{ kind = "lognormal", median = {time}, sigma = 0.05 }}
""" for name, time in ((MODEL, service_ms), (STAND_IN, service_ms / 4))))
        super().__init__([*self.host.prefix, PARM, "worker", "--config", str(config), "--faults", "--instances", "1",
                          "--http", self.http, "--grpc", f"{address}:{self.host.ports[1]}",
                          "--metrics", self.metrics])

    def start(self):
        self.launch()
        wait_for_http(f"http://{self.http}/v2/health/ready", self.process)

    def suffer(self, **plan):
        """Applies a fault plan; none ends all faults. Workers with the same seed would all be slow at the same time."""
        body = json.dumps({"seed": self.host.number, **plan}).encode()
        request = urllib.request.Request(f"http://{self.metrics}/faults", body, {"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=5).read()


class Frontend(Process):
    """A `parm serve` over workers."""

    def __init__(self, policy, workers, *arguments, **options):
        self.name = policy
        self.http, self.metrics = (f"127.0.0.1:{port()}" for _ in range(2))
        urls = [word for worker in workers for word in ("--worker", f"http://{worker.http}")]
        self.workers = len(workers)
        super().__init__([PARM, "serve", *urls, *POLICIES[policy], "--http", self.http, "--grpc", "127.0.0.1:0",
                          "--metrics", self.metrics, *arguments], **options)

    def start(self):
        """Starts it and waits until every worker has joined."""
        self.launch()
        wait_for_http(f"http://{self.http}/v2/models/{MODEL}/ready", self.process)
        until = time.monotonic() + 30
        while self.metric('parm_instances{state="ready"}') < self.workers:
            if time.monotonic() > until:
                raise SystemExit(f"{self.name}: not all of {self.workers} workers joined within 30 s")
            time.sleep(0.02)

    def metric(self, prefix):
        """Returns the sum of the series with this prefix."""
        page = urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=5).read().decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(prefix)}\S* (\S+)$", page, re.M))


def begin(fault, worker):
    """Applies this fault to a worker."""
    if fault == "killed":
        worker.kill()
    elif fault == "stopped":
        worker.signal(signal.SIGSTOP)
    elif fault == "cut off":
        worker.host.cut(True)
    elif fault == "slow":
        worker.suffer(slowdown=10.0)
    elif fault == "wrong":
        worker.suffer(wrong_rate=1.0)


def end(fault, worker):
    """Ends the fault."""
    if fault == "killed":
        worker.start()
    elif fault == "stopped":
        worker.signal(signal.SIGCONT)
    elif fault == "cut off":
        worker.host.cut(False)
    elif fault in ("slow", "wrong"):
        worker.suffer()


def possible(faults):
    """Returns the faults that can be applied here; prints those that are left out."""
    left_out = [] if OWN_NAMESPACES else [fault for fault in faults if fault == "cut off"]
    for fault in left_out:
        print(f"skipped, it needs network namespaces (run lab/bench/chaos.sh as root): {fault}", flush=True)
    return [fault for fault in faults if fault not in left_out]


def workers(number, service_ms):
    """Starts `count` workers and waits until they are ready."""
    folder = tempfile.mkdtemp(prefix="parm-chaos-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    fleet = [Worker(folder, service_ms) for _ in range(number)]
    for worker in fleet:
        worker.launch()
    for worker in fleet:
        wait_for_http(f"http://{worker.http}/v2/health/ready", worker.process)
    return fleet
