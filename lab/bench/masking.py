"""Masking of faults: the time from a fault's start to the last answer that it delayed, by policy, compared with Envoy.

Six workers sleep for 10 ms per query; Poisson arrivals at 200 per second. After three seconds one worker is killed,
stopped, cut off or made ten times slower for five seconds. Every run has its own frontend (or Envoy), and the contenders
take turns in a random order. An answer is late if it took more than twice the clean p99 of `equal` in the same invocation,
or failed. With `--lanes 2` two runs go on concurrently, on six workers each. `none` is not among the contenders: on the
same workers it equals `equal`. Run by `just bench-masking`.
"""

import argparse
import concurrent.futures
import json
import pathlib
import queue
import random
import statistics
import tempfile
import time

import callers
from balancer import Envoy
from fleet import POLICIES, Frontend, begin, end, possible, workers

FAULTS = ["nothing", "killed", "stopped", "cut off", "slow"]
ENVOYS = ["Envoy", "Envoy, hedging", "Envoy, hedging early"]
BEFORE, AFTER, RATE, SERVICE_MS, DEADLINE = 3.0, 5.0, 200, 10.0, 2.0


def frontend(name, fleet, envoy):
    if name == "Envoy":
        return Envoy(envoy, fleet, DEADLINE * 1e3)
    if name == "Envoy, hedging":
        return Envoy(envoy, fleet, DEADLINE * 1e3, try_ms=3 * SERVICE_MS)
    if name == "Envoy, hedging early":
        return Envoy(envoy, fleet, DEADLINE * 1e3, try_ms=2 * SERVICE_MS)
    return Frontend(name, fleet)


def load(front, seconds, seed, during=None):
    """Runs queries for this long and returns the result of `during`, which is called once they are under way."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        sender = callers.start(address=front.http, phases=[(RATE, seconds)], seed=seed, deadline=DEADLINE,
                               file=file.name)
        happened = during() if during else None
        if sender.wait(timeout=seconds + DEADLINE + 30):
            raise SystemExit("the clients ended badly")
        return callers.read(file.name), happened


def one(name, fault, fleet, envoy, seed, victim):
    """Returns a run's queries and the start of the fault."""
    front = frontend(name, fleet, envoy)
    front.start()

    def strike():
        time.sleep(BEFORE)
        now = time.monotonic()
        begin(fault, victim)
        return now
    rows, struck = load(front, BEFORE + AFTER, seed, strike)
    end(fault, victim)
    front.kill()
    # The worker is still busy with abandoned queries.
    time.sleep(0.3)
    return rows, struck


def judge(rows, struck, threshold):
    """Returns the milliseconds until the last late answer, and the numbers of late and failed ones."""
    ended = [(sent + took, took, outcome) for sent, took, outcome, _ in rows if sent + took >= struck]
    failed = [at for at, _, outcome in ended if not callers.answered(outcome)]
    late = [at for at, took, outcome in ended if callers.answered(outcome) and took > threshold]
    return {"masked_ms": 1e3 * (max(failed + late) - struck) if failed or late else 0.0,
            "late": len(late), "failed": len(failed),
            "reasons": sorted({outcome for *_, outcome in ended if not callers.answered(outcome)}),
            "approximate": sum(outcome == "stand-in" for *_, outcome in ended)}


def late_after(lanes):
    """Returns twice the clean p99 of `equal`, in seconds."""
    fleet = lanes.get()
    front = Frontend("equal", fleet)
    front.start()
    clean, _ = load(front, 20, 99)
    front.kill()
    lanes.put(fleet)
    took = [took for _, took, outcome, _ in clean[RATE:] if callers.answered(outcome)]
    threshold = 2 * quantile(took, 0.99)
    print(f"clean, equal: p50 {1e3 * quantile(took, 0.5):.1f} ms, p99 {1e3 * quantile(took, 0.99):.1f} ms; "
          f"late is more than {1e3 * threshold:.1f} ms", flush=True)
    return threshold


def quantile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def table(results, faults, names):
    lines = ["| fault | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for fault in faults:
        cells = []
        for name in names:
            runs = results[fault][name]
            times = [run["masked_ms"] for run in runs]
            late, failed = (statistics.median(run[key] for run in runs) for key in ("late", "failed"))
            cells.append(f"{statistics.median(times):.0f} ({min(times):.0f}..{max(times):.0f}); {late:g} + {failed:g}")
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--envoy", help="path of an envoy binary; left out when absent")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--lanes", type=int, default=1, help="runs at a time")
    arguments.add_argument("--only", nargs="*", help="contenders; all unless given")
    arguments.add_argument("--faults", nargs="*", default=FAULTS)
    arguments.add_argument("--results", default="results/masking.json", help="every run, for programs")
    options = arguments.parse_args()
    names = [*(name for name in POLICIES if name != "none"), *(ENVOYS if options.envoy else [])]
    names = [name for name in names if not options.only or name in options.only]
    faults = possible(options.faults)
    lanes = queue.SimpleQueue()
    for fleet in [workers(6, SERVICE_MS) for _ in range(options.lanes)]:
        lanes.put(fleet)
    threshold = late_after(lanes)
    results = {fault: {name: [] for name in names} for fault in faults}

    def turn(repeat, fault, name, number):
        fleet = lanes.get()
        try:
            run = judge(*one(name, fault, fleet, options.envoy, repeat, fleet[number]), threshold)
        finally:
            lanes.put(fleet)
        results[fault][name].append(run)
        print(f"{repeat} {fault}, {name}: {json.dumps(run)}", flush=True)

    rng = random.Random(1)
    with concurrent.futures.ThreadPoolExecutor(options.lanes) as pool:
        turns = []
        for repeat in range(options.repeats):
            for fault in rng.sample(faults, len(faults)):
                number = rng.randrange(6)
                turns += [pool.submit(turn, repeat, fault, name, number) for name in rng.sample(names, len(names))]
        for done in turns:
            done.result()
    print("\nms to the last late or failed answer: median (range); late + failed answers, medians\n")
    print(table(results, faults, names))
    path = pathlib.Path(options.results)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"threshold_ms": 1e3 * threshold, "runs": results}, indent=1))


if __name__ == "__main__":
    main()
