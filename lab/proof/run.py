"""Puts gateways, parm among them, in front of the same faulty servers, and compares what their clients see.

Each contender has three servers of its own (server.py) and gets the same requests at the same times: open loop, so a slow
answer delays no later request. In each run one fault begins in the middle and ends. By default the contenders of a run are
measured side by side, so that the machine's noise meets all alike. It prints a table a run and writes `run.json`,
`table.md` and the curves from p50 to p99.9 into a folder.

    lab/proof/setup.sh .parm/proof && .parm/proof/bin/python lab/proof/run.py --parm target/release/parm
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import aiohttp
except ImportError:
    raise SystemExit("aiohttp is missing: run lab/proof/setup.sh FOLDER, then FOLDER/bin/python lab/proof/run.py") from None

from gateways import CONTENDERS, binary_of, version_of
from picture import picture, quantile
from processes import Host, Process, end_everything, free_port, own_network, processor_seconds

SERVER = pathlib.Path(__file__).with_name("server.py")
SERVERS, PATIENCE, LATE, WARM_UP = 3, 30.0, 1.0, 3.0
# A client that sends later than this after a request's time measures itself.
ALLOWED_LAG = 0.050
KINDS = ("requests", "streams")
FAULTS = {
    "none": "no fault",
    "frozen": "one engine stands still, its /health answers 200",
    "slow": "one server is 5 times slower",
    "killed": "one server is killed and restarted",
    "flapping": "one server is stopped and continued every 5 s",
    "dropped": "packets to and from one server are dropped",
    "rolling": "the servers are restarted one after the other",
}
COLUMNS = {"sent": "sent", "failed": "failed", "late": "late (over 1 s)", "p50": "p50", "p99": "p99", "p999": "p99.9",
           "longest": "longest answer", "cpu_ms": "CPU a request (ms)", "extra": "extra requests"}


class Server:
    """One model server: a process that can be restarted on its address."""

    def __init__(self, number, folder, session, own, host=None):
        self.session, self.log, self.arrivals = session, folder / f"server-{number}.log", folder / f"arrivals-{number}"
        self.host = host
        name, port = (host.address, 8000) if host else ("127.0.0.1", free_port(own))
        self.address = f"{name}:{port}"
        self.command = [*(host.prefix if host else []), sys.executable, SERVER, "--host", name, "--port", port,
                        "--number", number, "--arrivals", self.arrivals]
        self.arrivals.touch()
        self.start()

    def start(self):
        self.process = Process(self.command, self.log, signal.SIGKILL)

    async def ready(self):
        await answers(self.session, f"http://{self.address}/health", self.process)

    async def suffer(self, **plan):
        async with self.session.post(f"http://{self.address}/fault", json=plan) as answer:
            await answer.read()

    async def restart(self):
        """Restarts it as an operator does: it finishes what it has, and the next one is ready before this returns."""
        self.process.signal(signal.SIGTERM)
        for _ in range(200):
            if self.process.ended():
                break
            await asyncio.sleep(0.05)
        self.process.end()
        self.start()
        await self.ready()


async def answers(session, url, process, patience=60.0):
    """Waits until this URL answers 200."""
    until = time.monotonic() + patience
    while True:
        with contextlib.suppress(aiohttp.ClientError, asyncio.TimeoutError, OSError):
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as answer:
                if answer.status == 200:
                    return
        if process.ended():
            raise RuntimeError(f"the process for {url} ended with status {process.process.returncode}")
        if time.monotonic() > until:
            raise RuntimeError(f"{url} did not answer 200 within {patience:.0f} s")
        await asyncio.sleep(0.1)


async def break_and_mend(fault, servers, start, length):
    """Applies a fault to the first server (or to all, one by one) at this time."""
    clock, first = asyncio.get_running_loop().time, servers[0]

    async def until(moment):
        await asyncio.sleep(max(0.0, moment - clock()))

    await until(start)
    if fault in ("frozen", "slow"):
        await first.suffer(**({"frozen": True} if fault == "frozen" else {"slowdown": 5.0}))
        await until(start + length)
        await first.suffer()
    elif fault == "killed":
        first.process.end()
        await until(start + length / 4)
        first.start()
        await first.ready()
    elif fault == "flapping":
        for turn in range(max(1, int(length / 10))):
            first.process.signal(signal.SIGSTOP)
            await until(start + 10 * turn + 5)
            first.process.signal(signal.SIGCONT)
            await until(start + 10 * turn + 10)
    elif fault == "dropped":
        first.host.cut(True)
        await until(start + length)
        first.host.cut(False)
    elif fault == "rolling":
        for number, server in enumerate(servers):
            await until(start + number * length / len(servers))
            await server.restart()


class Client:
    """Sends requests at given times and notes how each ended; a time includes how late the client itself was."""

    def __init__(self, session, address, kind, contender):
        self.session = session
        # The SGLang gateway refuses routes that are not a language model's; the server's answer is the same.
        path = "/v1/chat/completions" if kind == "streams" else "/generate" if contender == "smg" else "/predict"
        self.url, self.one = f"http://{address}{path}", self.stream if kind == "streams" else self.request
        self.times, self.failures, self.lags = [], {}, []

    async def request(self, name):
        async with self.session.post(self.url, json={"text": name}) as answer:
            if answer.status != 200:
                return f"status {answer.status}"
            if (await answer.json())["text"] != name:
                return "answer of another request"
            return asyncio.get_running_loop().time()

    async def stream(self, name):
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": name}]}
        first, done = None, False
        async with self.session.post(self.url, json=body) as answer:
            if answer.status != 200:
                return f"status {answer.status}"
            async for line in answer.content:
                done = done or line.strip() == b"data: [DONE]"
                if first is None and b'"content"' in line:
                    if f'"{name}"'.encode() not in line:
                        return "answer of another request"
                    first = asyncio.get_running_loop().time()
        return first if first and done else "broken stream"

    async def measured(self, name, due):
        try:
            ended = await asyncio.wait_for(self.one(name), PATIENCE)
        except asyncio.TimeoutError:
            ended = f"no answer after {PATIENCE:.0f} s"
        except (aiohttp.ClientError, OSError, ValueError, KeyError) as error:
            ended = type(error).__name__
        if isinstance(ended, str):
            self.failures[ended] = self.failures.get(ended, 0) + 1
        else:
            self.times.append(1000 * (ended - due))

    async def load(self, begin, moments, prefix=""):
        clock, tasks = asyncio.get_running_loop().time, []
        for number, moment in enumerate(moments):
            due = begin + moment
            await asyncio.sleep(max(0.0, due - clock()))
            self.lags.append(clock() - due)
            tasks.append(asyncio.create_task(self.measured(f"{prefix}{number}", due)))
        await asyncio.gather(*tasks)


def moments(rate, seconds, seed):
    """Arrivals of a Poisson process; the same for every contender."""
    draw, at, found = random.Random(seed), 0.0, []
    while (at := at + draw.expovariate(rate)) < seconds:
        found.append(at)
    return found


class Meeting:
    """Where the contenders of a run wait for each other; one that fails leaves, and the others go on."""

    def __init__(self, number):
        self.number, self.arrived, self.gate = number, 0, asyncio.Event()

    async def wait(self):
        self.arrived += 1
        gate = self.gate
        self.go_if_complete()
        await gate.wait()

    def leave(self):
        self.number -= 1
        self.go_if_complete()

    def go_if_complete(self):
        if self.arrived >= self.number:
            gate, self.gate, self.arrived = self.gate, asyncio.Event(), 0
            gate.set()


async def trial(contender, kind, fault, options, folder, meeting):
    """Measures one contender with servers of its own, at the same time as the others at the meeting."""
    folder.mkdir()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        gateway, servers = None, []
        try:
            for number in range(SERVERS):
                host = Host(folder / "host.log") if fault == "dropped" and number == 0 else None
                servers.append(Server(number, folder, session, options.own, host))
            await asyncio.gather(*(server.ready() for server in servers))
            port = free_port(options.own)
            command = CONTENDERS[contender][1](options.binaries[contender], folder, port,
                                               [server.address for server in servers])
            gateway = Process(command, folder / "gateway.log")
            await answers(session, f"http://127.0.0.1:{port}/health", gateway)
            await asyncio.sleep(2.0)
            members = gateway.members()
            await meeting.wait()
            clock = asyncio.get_running_loop().time
            await Client(session, f"127.0.0.1:{port}", kind, contender).load(
                clock(), moments(options.rate, WARM_UP, options.seed + 1), "w")
            await meeting.wait()
            client, used = Client(session, f"127.0.0.1:{port}", kind, contender), processor_seconds(members)
            begin = clock()
            # Each contender's fault begins a little later than the last one's: servers that start together slow everything.
            shift = list(CONTENDERS).index(contender) / len(CONTENDERS) * (options.seconds - options.length) / 4
            damage = asyncio.create_task(break_and_mend(
                fault, servers, begin + (options.seconds - options.length) / 2 + shift, options.length))
            await client.load(begin, moments(options.rate, options.seconds, options.seed))
            used = processor_seconds(members) - used
            if gateway.ended():
                raise RuntimeError(f"{contender} ended during the run")
            await damage
            # What follows takes time that the other contenders must not lose.
            await meeting.wait()
            return reading(contender, kind, fault, client, used, [server.arrivals for server in servers])
        finally:
            for process in (gateway, *(server.process for server in servers),
                            *(server.host.holder for server in servers if server.host)):
                if process:
                    process.end()


def reading(contender, kind, fault, client, used, arrivals):
    """The figures of one run. A failed request counts as the client's whole patience in the quantiles."""
    lines = [line for file in arrivals for line in file.read_text().split() if not line.startswith("w")]
    failed, answered = sum(client.failures.values()), sorted(client.times)
    times = sorted([*answered, *[1000 * PATIENCE] * failed])
    return {"contender": contender, "kind": kind, "fault": fault, "sent": len(times), "failed": failed,
            "failures": client.failures, "late": sum(one > 1000 * LATE for one in answered), "p50": quantile(times, 0.5),
            "p99": quantile(times, 0.99), "p999": quantile(times, 0.999), "longest": answered[-1] if answered else None,
            "cpu_ms": 1000 * used / max(1, len(times)), "extra": len(lines) - len(set(lines)),
            "lag_ms": 1000 * quantile(sorted(client.lags), 0.999), "times_ms": [round(one, 1) for one in times]}


def table(readings):
    lines = ["| in front | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for one in readings:
        cells = ("" if one[key] is None else f"{one[key]:.2f}" if key == "cpu_ms" else f"{one[key]:,.0f}" for key in COLUMNS)
        lines.append(f"| {one['contender']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def notes(readings):
    """Why requests failed, and which client was too slow to be believed."""
    lines = [f"- {one['contender']} failed: " + ", ".join(f"{number} {why}" for why, number in one["failures"].items())
             for one in readings if one["failures"]]
    return "\n".join(lines + [f"- INVALID: the client of {one['contender']} sent up to {one['lag_ms']:.0f} ms late"
                              for one in readings if one["lag_ms"] > 1000 * ALLOWED_LAG])


def write(folder, facts, readings):
    """Writes all that is known so far, so that an interrupted run keeps its results."""
    curves = folder / "curves"
    curves.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({**facts, "readings": readings}))
    page = [f"Times in ms{' to the first token for streams' if any(one['kind'] == 'streams' for one in readings) else ''}. "
            f"{facts['rate']:g} requests a second for {facts['seconds']:g} s, with a fault of {facts['fault_seconds']:g} s."]
    for (kind, fault), group in itertools.groupby(readings, lambda one: (one["kind"], one["fault"])):
        group = list(group)
        page += [f"## {kind.capitalize()}: {FAULTS[fault]}", table(group), notes(group)]
        what = "to the first token" if kind == "streams" else "of a request"
        drawn = picture(f"{kind.capitalize()}: {FAULTS[fault]}", f"Time {what}; a failed request counts as {PATIENCE:.0f} s",
                        {one["contender"]: one["times_ms"] for one in group})
        (curves / f"{kind}-{fault}.svg").write_text(drawn)
    page.append("\n".join(f"- {name}: {version}" for name, version in facts["versions"].items()))
    (folder / "table.md").write_text("\n\n".join(part for part in page if part) + "\n")


def merged(runs):
    """Medians of several runs, and curves over all their times."""
    found = {}
    for one in (one for run in runs for one in run["readings"]):
        found.setdefault((one["kind"], one["fault"], one["contender"]), []).append(one)
    readings = []
    for key in itertools.product(KINDS, FAULTS, CONTENDERS):
        if group := found.get(key):
            known = {name: [one[name] for one in group if one[name] is not None] for name in COLUMNS}
            medians = {name: statistics.median(values) if values else None for name, values in known.items()}
            readings.append({**group[0], **medians, "failures": {}, "lag_ms": max(one["lag_ms"] for one in group),
                             "times_ms": sorted(itertools.chain(*(one["times_ms"] for one in group)))})
    return readings


async def guarded(name, kind, fault, options, folder, meeting):
    """The reading of a trial, or why there is none."""
    try:
        return await trial(name, kind, fault, options, folder, meeting)
    except (RuntimeError, OSError, aiohttp.ClientError, subprocess.CalledProcessError) as error:
        meeting.leave()
        return f"{name}, {kind}, {fault}: {error}"


async def all_runs(options, facts):
    readings, broken = [], 0
    with tempfile.TemporaryDirectory(prefix="parm-proof-") as logs:
        for kind, fault in itertools.product(options.kinds, options.faults):
            if fault == "dropped" and not options.own:
                print(f"skipped, it needs root and network namespaces: {fault} ({kind})", flush=True)
                continue
            groups = [[name] for name in options.only] if options.in_turn else [options.only]
            found = []
            for group in groups:
                meeting = Meeting(len(group))
                found += await asyncio.gather(*(
                    guarded(name, kind, fault, options, pathlib.Path(logs) / f"{kind}-{fault}-{name}", meeting)
                    for name in group))
            broken += sum(isinstance(one, str) for one in found)
            for trouble in (one for one in found if isinstance(one, str)):
                print(f"FAILED: {trouble}", flush=True)
            found = [one for one in found if not isinstance(one, str)]
            if not found:
                continue
            readings += found
            print(f"\n{kind}: {FAULTS[fault]}\n\n{table(found)}", flush=True)
            if notes(found):
                print(f"\n{notes(found)}", flush=True)
            write(options.out, facts, readings)
        if broken:
            shutil.copytree(logs, options.out / "logs", dirs_exist_ok=True)
            raise SystemExit(f"{broken} runs failed; logs are in {options.out / 'logs'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parm", default="target/release/parm", help="parm's binary [default: target/release/parm]")
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS), help="contenders")
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a run [default: 60]")
    parser.add_argument("--fault-seconds", type=float, dest="length", help="length of a fault [default: 2/3 of a run]")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second of each contender [default: 20]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the arrivals [default: 1]")
    parser.add_argument("--in-turn", action="store_true", help="one contender at a time, which takes six times as long")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results/proof"), help="folder [default: results/proof]")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="write the medians of these run.json instead of running")
    options = parser.parse_args()
    if options.merge:
        runs = [json.loads(pathlib.Path(file).read_text()) for file in options.merge]
        write(options.out, {key: value for key, value in runs[0].items() if key != "readings"}, merged(runs))
        return
    options.length = min(options.length or options.seconds * 2 / 3, options.seconds)
    options.binaries = {name: binary_of(name, options.parm) for name in options.only}
    for name in [name for name in options.only if not options.binaries[name]]:
        print(f"skipped, it is not installed: {name}", flush=True)
    options.only = [name for name in options.only if options.binaries[name]]
    versions = {name: version_of(name, options.binaries[name]) for name in options.only}
    options.out = options.out.resolve()
    options.own = own_network()
    facts = {"rate": options.rate, "seconds": options.seconds, "fault_seconds": options.length, "seed": options.seed,
             "in_turn": options.in_turn, "versions": versions, "python": platform.python_version(), "cores": os.cpu_count()}
    # A client that waits for a processor would measure itself.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        asyncio.run(all_runs(options, facts))
    except KeyboardInterrupt:
        raise SystemExit("interrupted: all its processes are ended") from None
    finally:
        end_everything()


if __name__ == "__main__":
    main()
