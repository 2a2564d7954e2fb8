"""Several frontends over the same workers compared with one: the cost of sharing in the tail, and the effect of a crash.

Twelve workers of 20 ms (lognormal, sigma 0.05) get 240 queries per second in total, 40 % of their capacity, from one `parm
load` per frontend with a part of the rate. The quantiles are of all queries together. Then one of two frontends is killed
(SIGKILL) halfway. This measures the latency of the other's queries after that, and whether workers still hold anything for
the dead one.

Run by `just frontends`. The status is 1 if three frontends' p99 is more than 1.1 times that of one, their p99.9 more than
1.25 times, or a query of the survivor was late by more than 100 ms. `--without` also runs three without tokens.
"""

import argparse
import csv
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import fleet
from fleet import MODEL, Frontend, workers
from processes import PARM

WORKERS, SERVICE_MS, RATE = 12, 20.0, 240.0
MOST_P99, MOST_P999, MOST_LATE_MS = 1.1, 1.25, 100.0
# Later lateness is an effect of the kill.
AFTERMATH = 2.0


class Load:
    """`parm load` at a frontend, with every query in a file."""

    def __init__(self, front, rate, seconds, seed):
        self.samples = tempfile.NamedTemporaryFile(suffix=".csv")
        self.process = subprocess.Popen(
            [PARM, "load", f"http://{front.http}", "--model", MODEL, "--rate", str(rate), "--seconds", str(seconds),
             "--warm-up", "3", "--seed", str(seed), "--allow-failed", "100", "--deadline-ms", "2000",
             "--samples", self.samples.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def rows(self):
        """Returns each query's send time (s), latency (ms) and outcome."""
        self.process.wait()
        with open(self.samples.name, newline="") as file:
            return [(float(row["intended_us"]) / 1e6, float(row["latency_us"]) / 1e3, row["outcome"])
                    for row in csv.DictReader(file)]


def times(rows):
    return [took for _, took, _ in rows]


def quantile(sorted_times, share):
    return sorted_times[min(int(len(sorted_times) * share), len(sorted_times) - 1)]


def start(count, hosts, policy, arguments=()):
    """Starts frontends."""
    fronts = [Frontend(policy, hosts, *arguments) for _ in range(count)]
    for front in fronts:
        front.start()
    return fronts


def shared(count, hosts, options, arguments=()):
    """Returns the quantiles of all queries with this many frontends."""
    fronts = start(count, hosts, options.policy, arguments)
    loads = [Load(front, RATE / count, options.seconds, seed) for seed, front in enumerate(fronts, 1)]
    took = sorted(took for load in loads for took in times(load.rows()))
    for front in fronts:
        front.kill()
    return [quantile(took, share) for share in (0.5, 0.9, 0.99, 0.999)] + [len(took)]


def killed(hosts, options):
    """Returns the lateness of the survivor's queries when one of two frontends is killed, and the rest that workers
    hold."""
    stays, dies = start(2, hosts, options.policy)
    loads = [Load(front, RATE / 2, options.seconds, seed) for seed, front in enumerate((stays, dies), 1)]
    time.sleep(3 + options.seconds / 2)
    dies.kill()
    rows = loads[0].rows()
    loads[1].process.kill()
    half = options.seconds / 2
    median = statistics.median(times(rows))
    first = min(sent for sent, *_ in rows)
    after = [took for sent, took, _ in rows if half - 1 <= sent - first <= half + AFTERMATH]
    failed = sum(outcome not in ("exact", "hedged", "stand-in", "reconstructed") for *_, outcome in rows)
    sharing = [int(worker_metric(worker, "parm_sharing_frontends")) for worker in hosts]
    stays.kill()
    return max(after) - median, failed, max(sharing)


def worker_metric(worker, name):
    page = urllib.request.urlopen(f"http://{worker.metrics}/metrics", timeout=5).read().decode()
    return sum(float(value) for value in re.findall(rf"^{name} (\S+)$", page, re.M))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--policy", default="equal", choices=list(fleet.POLICIES))
    arguments.add_argument("--stragglers", action="store_true", help="1 %% of the runs take 5 to 10 times as long")
    arguments.add_argument("--without", action="store_true", help="also three frontends without tokens")
    options = arguments.parse_args()
    hosts = workers(WORKERS, SERVICE_MS)
    if options.stragglers:
        for worker in hosts:
            worker.suffer(delay_ms={"kind": "uniform", "min": 4 * SERVICE_MS, "max": 9 * SERVICE_MS}, delay_rate=0.01)
    print("| frontends | p50 | p90 | p99 | p99.9 (ms) | queries |\n|---|---|---|---|---|---|")
    found = {}
    runs = [("one", 1, ()), ("three", 3, ())]
    if options.without:
        # Plain HTTP, as to a server without tokens.
        runs.append(("three, without tokens", 3, ("--set", "frontend.client.transport=http")))
    for name, count, more in runs:
        *found[name], number = shared(count, hosts, options, more)
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in found[name]) + f" | {number} |", flush=True)
    late, failed, left = killed(hosts, options)
    print(f"\nOne of two frontends killed: the slowest query of the other is {late:.1f} ms above the median, {failed} failed; "
          f"frontends that workers still know: {left}")
    (_, _, p99, p999), (_, _, p99s, p999s) = found["one"], found["three"]
    print(f"three to one: p99 {p99s / p99:.2f}, p99.9 {p999s / p999:.2f}")
    good = p99s <= MOST_P99 * p99 and p999s <= MOST_P999 * p999 and late <= MOST_LATE_MS and left <= 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
