"""Several tenants on the same four workers, through three frontends, under a flood and with weights.

Flood: 64 clients send queries to a model of 100 ms without a pause, next to 20 queries per second to one of 5 ms. Each is
measured alone first. Neither has a configured share. Weights: tenants of weights 1, 2 and 4 each have enough clients to
fill all workers; their parts of the instances' time are read from the workers' metrics (`parm_share_used_seconds_total`).

Run by `just tenants`. It prints one table and then each bound as held or missed; the status is 1 if one is missed. The
light model's p99 is at most two of the heavy one's service times above its own when alone. The heavy one loses no more of
the instances' time than the light one uses. Each tenant's part of the time is in proportion to its weight, within 5 %.
"""

import argparse
import asyncio
import atexit
import json
import pathlib
import re
import shutil
import struct
import sys
import tempfile
import time
import urllib.request

from callers import Connection
from fleet import INPUTS, OUTPUTS, Process
from network import Host, port
from processes import PARM, wait_for_http

WORKERS, CLIENTS, LIGHT_RATE = 4, 64, 20.0
MODELS = {"heavy": 100.0, "light": 5.0, "even": 20.0}
WEIGHTS = {"bronze": 1, "silver": 2, "gold": 4}
WARM_UP = 1.0
MOST_ABOVE_MS, MOST_OFF = 2 * MODELS["heavy"], 0.05
# Jobs that have started when the metrics are read are counted later: one of the heavy model, at both ends.
SLACK = 2 * WORKERS * MODELS["heavy"] / 1e3

SHARES = "".join(f"[share.{name}]\nweight = {weight}\n" for name, weight in WEIGHTS.items())
EMULATED = "".join(f"""
[backend.emulated.{name}]
input = [{INPUTS}]
outputs = {OUTPUTS}
time_ms = {{ kind = "lognormal", median = {time_ms}, sigma = 0.05 }}
""" for name, time_ms in MODELS.items())


class Worker(Process):
    """A worker that serves every model."""

    def __init__(self, folder):
        self.host = Host()
        address, ports = self.host.address, self.host.ports
        self.http, self.metrics = f"{address}:{ports[0]}", f"{address}:{ports[2]}"
        config = pathlib.Path(folder) / f"worker-{self.host.number}.toml"
        config.write_text(SHARES + EMULATED)
        super().__init__([*self.host.prefix, PARM, "worker", "--config", str(config), "--instances", "1", "--http",
                          self.http, "--grpc", f"{address}:{ports[1]}", "--metrics", self.metrics])

    def used(self):
        """Returns the seconds of its time by share, or by model if that is the share."""
        page = urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=5).read().decode()
        series = re.findall(r'^parm_share_used_seconds_total\{model="(\w*)",share="(\w*)"\} (\S+)$', page, re.M)
        return {share or model: float(seconds) for model, share, seconds in series}


class Frontend(Process):
    """A `parm serve` over all workers."""

    def __init__(self, folder, number, workers):
        self.http = f"127.0.0.1:{port()}"
        config = pathlib.Path(folder) / f"frontend-{number}.toml"
        config.write_text(SHARES + '[frontend.dispatch]\npolicy = "equal"\n')
        urls = [word for worker in workers for word in ("--worker", f"http://{worker.http}")]
        super().__init__([PARM, "serve", "--config", str(config), *urls, "--http", self.http, "--grpc", "127.0.0.1:0",
                          "--metrics", f"127.0.0.1:{port()}"])


def request(model, share=None):
    """Returns a request's bytes."""
    parameters = {"binary_data_output": True, **({"parm_share": share} if share else {})}
    header = json.dumps({"parameters": parameters, "inputs": [{
        "name": "input", "shape": [1, INPUTS], "datatype": "FP32",
        "parameters": {"binary_data_size": 4 * INPUTS}}]}).encode()
    body = header + struct.pack(f"<{INPUTS}f", *range(INPUTS))
    head = (f"POST /v2/models/{model}/infer HTTP/1.1\r\nhost: tenants\r\ncontent-type: application/octet-stream\r\n"
            f"inference-header-content-length: {len(header)}\r\ncontent-length: {len(body)}\r\n\r\n").encode()
    return head + body


async def connect(front):
    host, number = front.http.rsplit(":", 1)
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, int(number))
    return connection


async def ask(connection, query):
    """Returns the milliseconds until the answer; fails without one."""
    began = time.monotonic()
    head, body = await connection.ask(query)
    if int(head[9:12]) != 200:
        raise SystemExit(f"a query failed: {body.decode(errors='replace')[:300]}")
    return (time.monotonic() - began) * 1e3


async def greedy(front, query, until):
    """A client that sends its next query when it is answered."""
    connection, took = await connect(front), []
    while time.monotonic() < until:
        took.append(await ask(connection, query))
    return took


async def steady(fronts, query, rate, until):
    """Sends queries on a schedule, however slow earlier ones are."""
    pools, asked = [[] for _ in fronts], []

    async def once(number):
        pool, front = pools[number % len(fronts)], fronts[number % len(fronts)]
        connection = pool.pop() if pool else await connect(front)
        took = await ask(connection, query)
        pool.append(connection)
        return took

    due = time.monotonic()
    while due < until:
        await asyncio.sleep(max(due - time.monotonic(), 0))
        asked.append(asyncio.ensure_future(once(len(asked))))
        due += 1 / rate
    return await asyncio.gather(*asked)


async def phase(fronts, workers, seconds, floods=(), light=False):
    """Runs clients for this long; returns each share's use of the instances' time, and the light model's times."""
    until = time.monotonic() + WARM_UP + seconds
    crowd = [greedy(fronts[client % len(fronts)], request(model, share), until)
             for model, share in floods for client in range(CLIENTS)]
    crowd = [asyncio.ensure_future(one) for one in crowd]
    times = asyncio.ensure_future(steady(fronts, request("light"), LIGHT_RATE, until)) if light else None
    await asyncio.sleep(WARM_UP)
    before = await asyncio.to_thread(used, workers)
    await asyncio.sleep(until - time.monotonic())
    after = await asyncio.to_thread(used, workers)
    await asyncio.gather(*crowd)
    took = sorted((await times)[int(WARM_UP * LIGHT_RATE):]) if light else []
    return {name: after[name] - before.get(name, 0) for name in after}, took


def used(workers):
    """Returns the seconds of all workers' time by share."""
    pages = [worker.used() for worker in workers]
    return {name: sum(page.get(name, 0) for page in pages) for name in {name for page in pages for name in page}}


def quantile(took, share):
    return took[min(int(len(took) * share), len(took) - 1)]


def row(name, took, seconds):
    times = [f"{quantile(took, share):.1f}" for share in (0.5, 0.9, 0.99)] if took else ["", "", ""]
    print(f"| {name} | {' | '.join(times)} | {seconds} |", flush=True)


async def measure(fronts, workers, seconds):
    """Prints the table; returns each bound in words, and whether it holds."""
    print("| | p50 | p90 | p99 (ms) | instances' time (s) |\n|---|---|---|---|---|")
    alone, calm = await phase(fronts, workers, seconds, light=True)
    row("light alone", calm, f"light {alone['light']:.2f}")
    heavy, _ = await phase(fronts, workers, seconds, floods=[("heavy", None)])
    row("heavy alone", [], f"heavy {heavy['heavy']:.2f}")
    both, took = await phase(fronts, workers, seconds, floods=[("heavy", None)], light=True)
    row("light beside heavy", took, f"heavy {both['heavy']:.2f}, light {both['light']:.2f}")
    shared, _ = await phase(fronts, workers, seconds, floods=[("even", share) for share in WEIGHTS])
    whole, weights = sum(shared[share] for share in WEIGHTS), sum(WEIGHTS.values())
    row("weights 1, 2, 4", [], ", ".join(f"{share} {shared[share]:.2f}" for share in WEIGHTS))

    above = quantile(took, 0.99) - quantile(calm, 0.99)
    lost = heavy["heavy"] - both["heavy"]
    bounds = [(f"the light model's p99 is {above:.1f} ms above its own when alone, at most {MOST_ABOVE_MS:.0f}",
               above <= MOST_ABOVE_MS),
              (f"the heavy model lost {lost:.2f} s to the light one's {both['light']:.2f} (and {SLACK:.1f} in progress)",
               lost <= both["light"] + SLACK)]
    for share, weight in WEIGHTS.items():
        off = shared[share] / whole * weights / weight - 1
        bounds.append((f"{share} had {shared[share] / whole:.3f} of the time for {weight} of {weights}: {off:+.1%}",
                       abs(off) <= MOST_OFF))
    return bounds


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=10.0, help="of each of the four phases")
    arguments.add_argument("--frontends", type=int, default=3)
    options = arguments.parse_args()
    folder = tempfile.mkdtemp(prefix="parm-tenants-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    workers = [Worker(folder) for _ in range(WORKERS)]
    for worker in workers:
        worker.launch()
    for worker in workers:
        wait_for_http(f"http://{worker.http}/v2/health/ready", worker.process)
    fronts = [Frontend(folder, number, workers) for number in range(options.frontends)]
    for front in fronts:
        front.launch()
    for front in fronts:
        for model in MODELS:
            wait_for_http(f"http://{front.http}/v2/models/{model}/ready", front.process)
    # Until every worker has joined every frontend.
    time.sleep(1)
    bounds = asyncio.run(measure(fronts, workers, options.seconds))
    print()
    for said, held in bounds:
        print(f"{'held' if held else 'missed'}: {said}")
    return 0 if all(held for _, held in bounds) else 1


if __name__ == "__main__":
    sys.exit(main())
