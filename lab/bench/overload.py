"""Five minutes at three times the workers' capacity, for several policies at the same time, and the recovery afterwards.

Every policy has its own frontend and six workers that sleep for 30 ms per query. First the capacity is measured (`parm load
--scenario offline`), then half of it is sent for half a minute, then three times as much, all with a deadline of a second,
then half again at once. The benchmark passes if
- goodput, answers within the deadline, is at least 90 % of the capacity;
- the p99 of the answers is within the deadline;
- the half minute afterwards is as fast as the one before (p50 and p99 at most `AS_BEFORE` times theirs, in total and from
the third second on) without failures.

Run by `just overload`; the status is 1 if a bound is exceeded.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

from fleet import MODEL, POLICIES, Frontend, workers
from processes import PARM

SERVICE_MS, WORKERS, DEADLINE_MS = 30.0, 6, 1000
LEAST_GOODPUT, AS_BEFORE = 0.9, 1.5
# Half a second's work for the workers; the default of 1024 queries is five seconds'.
SHORT = "hedge, queue of 100"


def frontend(name, fleet):
    if name == SHORT:
        return Frontend("hedge", fleet, "--set", "frontend.dispatch.queue_limit=100")
    return Frontend(name, fleet)


class Load:
    """A concurrent `parm load` and its report."""

    def __init__(self, front, seconds, *arguments):
        self.samples = tempfile.NamedTemporaryFile(suffix=".csv")
        self.process = subprocess.Popen(
            [PARM, "load", f"http://{front.http}", "--model", MODEL, "--quiet", "--seconds", str(seconds), "--output",
             "json", "--deadline-ms", str(DEADLINE_MS), "--samples", self.samples.name, "--allow-failed", "100",
             *arguments], stdout=subprocess.PIPE, text=True)

    def report(self):
        """Returns the report, and every counted request as (seconds since the start, ms, outcome)."""
        out = self.process.communicate()[0]
        if not out:
            raise SystemExit("parm load ended without a report")
        with open(self.samples.name, newline="", encoding="utf-8") as file:
            rows = [(float(row["intended_us"]) / 1e6, float(row["latency_us"]) / 1e3, row["outcome"])
                    for row in csv.DictReader(file)]
        return json.loads(out), rows


def answered(rows):
    return sorted(ms for _, ms, outcome in rows if outcome not in ("failed", "dropped"))


def quantile(values, share):
    return values[min(int(share * len(values)), len(values) - 1)] if values else float("inf")


def phase(fronts, seconds, rates, warm_up):
    """Runs the same phase for all at the same time."""
    loads = {name: Load(front, seconds, "--rate", f"{rates[name]:.1f}", "--warm-up", str(warm_up))
             for name, front in fronts.items()}
    return {name: load.report() for name, load in loads.items()}


def memory(front):
    status = pathlib.Path(f"/proc/{front.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def judge(name, capacity, before, during, after, seconds):
    """Returns the row of a policy, and the exceeded bounds."""
    goodput = len(answered(during)) / seconds / capacity
    slowest = quantile(answered(during), 0.99)
    outcomes = {}
    for *_, outcome in during:
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    failed_after = len(after) - len(answered(after))
    settled = [row for row in after if row[0] >= 3.0]
    broken = []
    if goodput < LEAST_GOODPUT:
        broken.append(f"goodput was {goodput:.1%} of the capacity")
    if slowest > DEADLINE_MS:
        broken.append(f"the p99 of the answers was {slowest:.0f} ms")
    if failed_after:
        broken.append(f"{failed_after} requests failed at half load afterwards")
    for share in (0.5, 0.99):
        wanted = AS_BEFORE * quantile(answered(before), share)
        for part, what in ((after, "afterwards"), (settled, "from the third second on")):
            if (found := quantile(answered(part), share)) > wanted:
                broken.append(f"the p{100 * share:g} {what} was {found:.0f} ms, {wanted:.0f} may be")
    by_second = [quantile(answered([row for row in after if int(row[0]) == second]), 0.99) for second in range(4)]
    row = [name, f"{capacity:.0f}", f"{goodput:.1%}", f"{quantile(answered(during), 0.5):.0f}", f"{slowest:.0f}",
           ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items())),
           *(f"{quantile(answered(part), 0.5):.1f} / {quantile(answered(part), 0.99):.1f}" for part in (before, after)),
           ", ".join(f"{ms:.0f}" for ms in by_second)]
    return row, [f"{name}: {what}" for what in broken]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=int, default=300)
    arguments.add_argument("--times", type=float, default=3.0, help="offered, in capacities")
    arguments.add_argument("--policies", nargs="*", default=["none", "hedge", "parm+", "stand-in", SHORT],
                           choices=[*POLICIES, SHORT])
    options = arguments.parse_args()
    fronts = {policy: frontend(policy, workers(WORKERS, SERVICE_MS)) for policy in options.policies}
    for front in fronts.values():
        front.start()

    streams = ["--scenario", "offline", "--streams", str(2 * WORKERS), "--warm-up", "2"]
    measured = {name: Load(front, 20, *streams) for name, front in fronts.items()}
    capacity = {name: load.report()[0]["answered_per_second"] for name, load in measured.items()}
    half = {name: rate / 2 for name, rate in capacity.items()}
    before = phase(fronts, 30, half, 2)
    held = {name: memory(front) for name, front in fronts.items()}
    times = {name: options.times * rate for name, rate in capacity.items()}
    during = phase(fronts, options.seconds, times, 2)
    after = phase(fronts, 30, half, 0)

    print("| policy | capacity (1/s) | goodput | answered: p50 (ms) | p99 (ms) | outcomes | before: p50 / p99 (ms) "
          "| after: p50 / p99 (ms) | p99 of the first four seconds after (ms) |\n|" + "---|" * 9)
    broken = []
    for name in fronts:
        row, failings = judge(name, capacity[name], before[name][1], during[name][1], after[name][1], options.seconds)
        print("| " + " | ".join(row) + " |")
        broken += failings
    for name, front in fronts.items():
        print(f"{name}: {held[name]:.1f} MB before, {memory(front):.1f} MB after; "
              f"first failure: {during[name][0].get('first_failure')}")
    print("\n" + ("\n".join(f"BROKEN {line}" for line in broken) or "all bounds hold"))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
