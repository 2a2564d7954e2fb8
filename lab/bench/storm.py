"""A minute of one and a half times what the workers can do, from clients that resend at once.

A client waits for 300 ms, ten service times; when it is refused or has no answer by then, it resends at once, up to ten
times. What an overload of half as much again becomes then depends on what a client does with the request that it no longer
waits for: it
- `says` its deadline with every request (`timeout`), and lets it expire;
- `hangs up`: closes the connection;
- `forgets` it: the server is never told, and has ten seconds (its default deadline) for each.

Twenty seconds at half load, a minute at one and a half, forty seconds at half again. Goodput is the queries whose client got
its answer, as a share of what could be answered (all, or the capacity). The storm ends when the load falls if every query
that is sent five seconds after that, or later, is answered, 1.1 tries on average.

Run by `just retry-storm`; the status is 1 where the storm of clients that say or hang up did not end, or their goodput was
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
# A sixth of a second's work for the workers: half of a client's patience.
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
    """Goodput, tries and median time of each phase; when the storm was over, and whether it was."""
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
    print("\n" + ("\n".join(f"BROKEN {line}" for line in broken) or "everything held"))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
