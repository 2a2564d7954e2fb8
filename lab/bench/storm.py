"""A minute at one and a half times the workers' capacity, from clients that resend at once.

A client waits for 300 ms, ten service times; after a rejection or a timeout it resends at once, up to ten times. The effect
of the overload depends on the client's treatment of the abandoned request:
- `says`: it sends its deadline with every request (`timeout`), which then expires;
- `hangs up`: it closes the connection;
- `forgets`: the server is not notified, and has ten seconds (its default deadline) for each.

There are twenty seconds at half load, a minute at one and a half, and forty seconds at half again. Goodput is the queries
whose client got its answer, as a share of those that could be answered (all, or the capacity). The storm ends with the load
if every query that is sent five seconds after that, or later, is answered in 1.1 tries on average.

Run by `just retry-storm`; the status is 1 if the storm of clients of `says` or `hangs up` did not end, or their goodput was
below 70 %.
"""

import argparse
import statistics
import sys
import tempfile

import callers
from fleet import POLICIES, Frontend, workers

SERVICE_MS, WORKERS = 30.0, 6
CAPACITY = WORKERS * 1e3 / SERVICE_MS
PATIENCE, TRIES = 0.3, 10
PHASES = [("before", 0.5, 20), ("storm", 1.5, 60), ("after", 0.5, 40)]
# A sixth of a second's work for the workers: half of a client's timeout.
SHORT = "hedge, queue of 30"
SETTLED, LEAST_GOODPUT = 5.0, 0.7
KINDS = {"says": {"hangs_up": True, "deadline": PATIENCE}, "hangs up": {"hangs_up": True, "deadline": None},
         "forgets": {"hangs_up": False, "deadline": None}}


def frontend(name, fleet):
    if name == SHORT:
        return Frontend("hedge", fleet, "--set", "frontend.dispatch.queue_limit=30")
    return Frontend(name, fleet)


def storm(front, kind, seed):
    phases = [(load * CAPACITY, seconds) for _, load, seconds in PHASES]
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        sender = callers.start(address=front.http, phases=phases, seed=seed, tries=TRIES, patience=PATIENCE,
                               file=file.name, **KINDS[kind])
        length = sum(seconds for _, seconds in phases)
        if sender.wait(timeout=length + TRIES * PATIENCE + 60):
            raise SystemExit("the clients ended badly")
        return callers.read(file.name)


def judge(rows):
    """Returns goodput, tries and median time of each phase; the end of the storm, and whether it ended."""
    start, found = rows[0][0], {}
    for name, load, seconds in PHASES:
        part = [row for row in rows if start <= row[0] < start + seconds]
        good = sum(callers.answered(outcome) for *_, outcome, _ in part)
        found[name] = {"goodput": good / seconds / CAPACITY / min(load, 1.0),
                       "tries": statistics.mean(tries for *_, tries in part),
                       "p50_ms": 1e3 * statistics.median(took for _, took, *_ in part)}
        start += seconds
    fell = start - PHASES[-1][2]
    after = [row for row in rows if row[0] >= fell]
    settled = [row for row in after if row[0] >= fell + SETTLED]
    ended = all(callers.answered(outcome) for *_, outcome, _ in settled) and \
        statistics.mean(tries for *_, tries in settled) <= 1.1
    unrest = [sent for sent, _, outcome, tries in after if tries > 1 or not callers.answered(outcome)]
    return found, ended, (max(unrest) - fell if unrest else 0.0)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--policies", nargs="*", default=["hedge", "stand-in", SHORT],
                           choices=[*POLICIES, SHORT])
    arguments.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    options = arguments.parse_args()
    fleet, broken = workers(WORKERS, SERVICE_MS), []
    print("| policy | client | " + " | ".join(f"{name}: goodput, tries, p50 (ms)" for name, *_ in PHASES) +
          " | last resent after the load fell (s) |\n|" + "---|" * (len(PHASES) + 3), flush=True)
    for policy in options.policies:
        for kind in options.kinds:
            front = frontend(policy, fleet)
            front.start()
            found, ended, unrest = judge(storm(front, kind, 1))
            front.kill()
            cells = [f"{part['goodput']:.0%}, {part['tries']:.2f}, {part['p50_ms']:.0f}" for part in found.values()]
            print(f"| {policy} | {kind} | " + " | ".join(cells) + f" | {unrest:.1f}{'' if ended else ', not over'} |",
                  flush=True)
            if kind != "forgets" and not ended:
                broken.append(f"{policy}, {kind}: the storm did not end with the load")
            if kind != "forgets" and found["storm"]["goodput"] < LEAST_GOODPUT:
                broken.append(f"{policy}, {kind}: goodput of {found['storm']['goodput']:.0%} in the storm")
    print("\n" + ("\n".join(f"BROKEN {line}" for line in broken) or "all bounds hold"))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
