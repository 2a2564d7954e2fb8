"""The cost of many instances, models and connections for one frontend: time to join, memory, processor time at rest,
latency.

One `parm worker` with models that answer at once, listening on all of loopback, is every instance: each has its own address
(127.0.x.y). Each row is a new frontend. The load is 200 queries per second for one model, open loop. A frontend's quantiles
are printed next to those of the smallest one, as the machine is shared. Run by `just bench-scale`; the status is 1 if
memory, processor time at rest or time to join grows by more than a fifth beyond linear from the middle to the largest.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from processes import PARM, Parm, free_port, wait_for_http

MODEL = "null-0"
RATE = 200
BEYOND = 1.2


def address(number, port):
    return f"127.0.{1 + number // 250}.{1 + number % 250}:{port}"


class Fronted:
    """A frontend over `count` instances."""

    def __init__(self, folder, count, port):
        workers = pathlib.Path(folder) / f"workers-{count}"
        workers.write_text("".join(f"http://{address(number, port)}\n" for number in range(count)))
        began = time.monotonic()
        self.parm = Parm("serve", "--policy", "hedge", "--set", f"frontend.workers_file={workers}")
        until = began + 120
        while self.metric('parm_instances{state="ready"}') < count:
            if time.monotonic() > until:
                raise SystemExit(f"not all of {count} instances joined within two minutes")
            time.sleep(0.01)
        self.joined = time.monotonic() - began

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.parm.__exit__()

    def metric(self, prefix):
        page = urllib.request.urlopen(f"http://{self.parm.metrics}/metrics", timeout=10).read().decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(prefix)}\S* (\S+)$", page, re.M))

    def memory(self):
        status = pathlib.Path(f"/proc/{self.parm.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.parm.process.pid}/fd"))

    def at_rest(self, seconds):
        """Returns the share of a core."""
        def spent():
            threads = pathlib.Path(f"/proc/{self.parm.process.pid}/task").iterdir()
            return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
        before = spent()
        time.sleep(seconds)
        return (spent() - before) / 1e9 / seconds

    def load(self, seconds):
        """Returns p50 and p99 in microseconds."""
        command = [PARM, "load", f"http://{self.parm.http}", "--model", MODEL, "--rate", str(RATE), "--seconds", str(seconds),
                   "--warm-up", "2", "--output", "json"]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        quantiles = {quantile["share"]: quantile["ms"] * 1e3 for quantile in report["latency"] if quantile.get("ms")}
        return [quantiles[0.5], quantiles[0.99]]


def idle_clients(http, count):
    """Connections that are idle after a first query."""
    host, port = http.rsplit(":", 1)
    held = []
    for _ in range(count):
        held.append(socket.create_connection((host, int(port))))
    # A connection without any query is closed soon.
    for client in held:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
    return held


def row(what, front, seconds, base):
    time.sleep(2)
    rest, (p50, p99) = front.at_rest(seconds), front.load(seconds)
    base = base or (p50, p99)
    memory = front.memory()
    print(f"| {what} | {front.joined:.2f} | {memory:.1f} | {front.descriptors()} | {100 * rest:.1f} | {p50:.0f} | {p99:.0f} | "
          f"{p50 - base[0]:+.0f}, {p99 - base[1]:+.0f} |", flush=True)
    return (front.joined, memory, rest), base


def beyond(name, sizes, readings):
    """Returns the costs per item that are larger for the largest size than for the middle one."""
    said = []
    for index, what in enumerate(("time to join", "memory", "processor time at rest")):
        low, middle, high = (reading[index] for reading in readings)
        each = [(value - low) / size for value, size in ((middle, sizes[1]), (high, sizes[2]))]
        # Below that the difference cannot be measured.
        if each[1] > BEYOND * max(each[0], (0.01, 1.0, 0.001)[index] / sizes[1]):
            said.append(f"{what} by {name}: {1e3 * each[0]:.3f} for each thousand of {sizes[1]}, {1e3 * each[1]:.3f} of {sizes[2]}")
    return said


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=int, default=10)
    options = arguments.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    said = []
    print("| | all ready after (s) | memory (MB) | descriptors | at rest (% of a core) | p50 (us) | p99 (us) | to the first row (us) |\n"
          "|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        base = None
        instances, models, clients = [], [], []
        for count in (1, 50, 500):
            with worker(folder, count) as (port, _):
                if count == 1:
                    for number in (1, 100, 1000):
                        with Fronted(folder, number, port) as front:
                            reading, base = row(f"{number} instances", front, options.seconds, base)
                            instances.append(reading)
                    for number in (100, 1000, 5000):
                        with Fronted(folder, 1, port) as front:
                            held = idle_clients(front.parm.http, number)
                            clients.append(row(f"{number} idle clients", front, options.seconds, base)[0])
                            del held
                with Fronted(folder, 1, port) as front:
                    models.append(row(f"{count} models", front, options.seconds, base)[0])
    said += beyond("instances", (1, 100, 1000), instances)
    said += beyond("idle clients", (100, 1000, 5000), clients)
    said += beyond("models", (1, 50, 500), models)
    print("\n" + ("\n".join(f"more than linear: {line}" for line in said) or "All costs grow at most linearly."))
    return 1 if said else 0


class worker:
    """A worker with `count` models on one port of every loopback address."""

    def __init__(self, folder, models):
        self.port, grpc, metrics = free_port(), free_port(), free_port()
        config = pathlib.Path(folder) / f"worker-{models}.toml"
        config.write_text("".join(f'[backend.emulated.null-{number}]\ninput = [784]\noutputs = 10\n'
                                  f'time_ms = {{ kind = "constant", value = 0.0 }}\n' for number in range(models)))
        self.process = subprocess.Popen(
            [PARM, "worker", "--config", str(config), "--http", f"0.0.0.0:{self.port}", "--grpc", f"127.0.0.1:{grpc}",
             "--metrics", f"127.0.0.1:{metrics}"], stderr=subprocess.DEVNULL)

    def __enter__(self):
        wait_for_http(f"http://127.0.0.1:{self.port}/v2/health/ready", self.process)
        return self.port, self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    sys.exit(main())
