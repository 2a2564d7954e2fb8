"""A researcher's day: own arrivals, own service times, a sick replica, raw data in pandas, a recording.

Simulations and real processes must agree with their raw data, and a recording with what was measured. PARM_BINARY is the
binary, SCRATCH a copy of the tracked files.
"""

import json
import os
import random
import re
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pandas

PARM, SCRATCH = os.environ["PARM_BINARY"], Path(os.environ["SCRATCH"])
FOLDER = SCRATCH / "research"
COLUMNS = ["number", "warm_up", "intended_us", "latency_us", "lag_us", "outcome", "right"]

OWN = """
instances = 6
deployed = 6
loads = [0.5]
queries = 30000
warm_up = 3000
policies = ["equal", "hedge", "parm"]
scenarios = ["mine", "mine+sick"]
service = { time_ms = { kind = "file", path = "service.txt" } }
[scenario.mine]
arrivals_file = "arrivals.txt"
"""
REAL = """
instances = 3
deployed = 3
rates = [100.0]
queries = 600
warm_up = 100
policies = ["hedge"]
scenarios = ["sick"]
service = { time_ms = { kind = "constant", value = 10.0 } }
"""
REFUSED = {
    "queris = 5": "queris",
    "backup_share = 200.0": "backup_share = 200: give a share from 0 to",
    "loads = [0.5]\nrates = [100.0]": "keep one of them",
    'arrivals = "poisson"': '{ kind = "poisson" }',
}


def parm(*words, ok=True):
    """Runs a command. Returns its output."""
    done = subprocess.run([PARM, *words], cwd=SCRATCH, capture_output=True, text=True, timeout=300)
    assert (done.returncode == 0) == ok, f"parm {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if ok else done.stderr


def near(what, found, wanted, tolerance):
    assert abs(found / wanted - 1) <= tolerance, f"{what}: {found}, expected {wanted}"


def runs(results):
    """Returns each run of a results folder with its raw data and the row of its cell."""
    rows = json.loads((results / "results.json").read_text())["report"]["rows"]
    for line in (results / "runs.jsonl").read_text().splitlines():
        run = json.loads(line)
        frame = pandas.read_csv(results / run["raw"])
        assert list(frame.columns) == COLUMNS, frame.columns
        assert frame.number.to_list() == list(range(len(frame))), "every query has a line, in order"
        yield run, frame, next(row for row in rows if (row["scenario"], row["policy"]) == (run["scenario"], run["policy"]))


def simulated():
    draw = random.Random(7)
    gaps = [draw.choice([1, 1, 1, 12]) for _ in range(400)]
    seconds = [sum(gaps[:n]) / 10 for n in range(1, len(gaps) + 1)]
    service = [draw.uniform(8, 12) for _ in range(300)]
    (FOLDER / "arrivals.txt").write_text("\n".join(map(str, seconds)))
    (FOLDER / "service.txt").write_text(" ".join(map(str, service)))
    (FOLDER / "own.toml").write_text(OWN)
    results = FOLDER / "simulated"
    parm("experiment", str(FOLDER / "own.toml"), "--simulate", "--raw", "--results", str(results))
    p99 = {}
    for run, frame, row in runs(results):
        counted = frame[frame.warm_up == 0]
        assert (frame.warm_up.sum(), len(counted), row["count"]) == (3000, 27000, 27000)
        tail = p99[run["scenario"], run["policy"]] = counted.latency_us.quantile(0.99) / 1e3
        near(f"p99 of {run['policy']}", tail, row["p99_ms"]["value"], 0.02)
        own = frame.intended_us[:400].diff()[1:].to_list()
        scale = sum(own) / sum(gaps[1:])
        assert all(abs(found - scale * gap) < 2 for found, gap in zip(own, gaps[1:])), "arrivals follow the file"
        if run["policy"] != "parm":
            assert frame.latency_us.min() >= 1e3 * min(service) - 1, "service times follow the file"
        assert (run["k"], run["r"]) == ((2, 1) if run["policy"] == "parm" else (None, None)), run
        reconstructed = frame.outcome == "reconstructed"
        assert frame.right[reconstructed].isna().all() and (frame.right[~reconstructed] == 1).all()
    assert p99["mine+sick", "equal"] > 1.3 * p99["mine", "equal"], p99
    assert p99["mine+sick", "hedge"] < 0.9 * p99["mine+sick", "equal"], p99
    assert "mine+sick" in (results / "report.txt").read_text()
    print(f"simulated: raw data agrees with the report; p99 with a sick replica: {p99['mine+sick', 'equal']:.1f} ms, hedge {p99['mine+sick', 'hedge']:.1f}")


def with_processes():
    (FOLDER / "real.toml").write_text(REAL)
    results = FOLDER / "real"
    parm("experiment", str(FOLDER / "real.toml"), "--results", str(results))
    [(run, frame, row)] = runs(results)
    assert (frame.warm_up.sum(), row["count"]) == (100, len(frame) - 100)
    assert (frame.right == 1).all() and frame.latency_us.min() >= 10_000
    print(f"real processes: the same columns, {len(frame)} queries, {row['p50_ms']['value']:.1f} ms at p50, {run['policy']}")


def refused():
    for text, said in REFUSED.items():
        (FOLDER / "wrong.toml").write_text(text + "\n")
        error = parm("experiment", str(FOLDER / "wrong.toml"), "--simulate", "--results", str(FOLDER / "none"), ok=False)
        assert said in error, error
    print(f"{len(REFUSED)} mistakes in a file are named")


def started(stack, name, *words):
    """Starts a server on free ports. Returns its addresses."""
    ready = FOLDER / f"{name}.json"
    free = [word for flag in ("--http", "--grpc", "--metrics") for word in (flag, "127.0.0.1:0")]
    log = stack.enter_context(open(FOLDER / f"{name}.log", "w"))
    server = subprocess.Popen([PARM, *words, *free, "--ready-file", ready], cwd=SCRATCH, stderr=log)
    stack.callback(server.wait)
    stack.callback(server.kill)
    until = time.time() + 60
    while not ready.exists():
        assert server.poll() is None and time.time() < until, (FOLDER / f"{name}.log").read_text()
        time.sleep(0.05)
    return json.loads(ready.read_text())


def joined(frontend, count):
    """Waits until so many instances are ready: the frontend starts without them, and a load without a model ends at once."""
    until, ready = time.time() + 60, 0
    while ready < count:
        assert time.time() < until, f"{ready} of {count} instances are ready"
        time.sleep(0.1)
        with urllib.request.urlopen(f"http://{frontend['admin']}/admin/v1/instances") as answer:
            ready = sum(one["state"] == "ready" for one in json.load(answer))


def recorded():
    """The recording of a pool with a replica that is four times slower for good."""
    with ExitStack() as stack:
        urls = []
        for number in range(4):
            worker = started(stack, f"worker-{number}", "worker", "--models", "tests/models", "--instances", "1", "--faults")
            plan = {"delay_ms": {"kind": "constant", "value": 80 if number == 3 else 20}}
            urllib.request.urlopen(f"http://{worker['metrics']}/faults", json.dumps(plan).encode())
            urls.append(f"http://{worker['http']}")
        pool = [word for url in urls for word in ("--worker", url)]
        frontend = started(stack, "frontend", "serve", *pool, "--admin", "127.0.0.1:0", "--policy", "equal", "--set", "frontend.dispatch.ejection.enabled=false")
        joined(frontend, len(urls))
        errors = stack.enter_context(open(FOLDER / "load.log", "w"))
        load = subprocess.Popen([PARM, "load", f"http://{frontend['http']}", "--model", "affine", "--rate", "60", "--seconds", "40", "--quiet"], stdout=subprocess.DEVNULL, stderr=errors)
        stack.callback(load.wait)
        stack.callback(load.kill)
        file = str(FOLDER / "busy.jsonl")
        parm("record", "--frontend", f"http://{frontend['admin']}", "--seconds", "30", "--file", file)
        assert load.poll() is None, (FOLDER / "load.log").read_text()
    said = parm("doctor", file, "--policy", "equal")
    assert re.search(re.escape(urls[3]) + r" is [34]\.\d times slower", said), said
    report = json.loads(parm("simulate", "--recording", file, "--policy", "equal", "--output", "json"))
    times = [point["ms"] for point in report["rows"][0]["spectrum"]]
    assert max(times) >= 75, f"the simulated tail lacks the slow replica: {times[-5:]}"
    print(f"recording: {said.splitlines()[1]}")


FOLDER.mkdir(exist_ok=True)
refused()
simulated()
with_processes()
recorded()
print("researcher: files, raw data and recordings hold")
