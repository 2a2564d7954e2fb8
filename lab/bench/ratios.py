"""The published speed ratios, measured again: one table compared with the recorded ratios (`lab/bench/figures.json`).

Ratios are taken within one run, so they hold on a slow or busy machine. One that got worse by a fifth is named, and the
status is 1. `--record` records the new ratios: then update docs/results too. Run by `just bench`; it needs wrk, nginx and
haproxy on the path, takes ten minutes, and needs an otherwise idle machine.
"""

import argparse
import json
import pathlib
import statistics
import sys

import coded
import hop

FIGURES = pathlib.Path(__file__).parent / "figures.json"
WORSE = 1.2


def of_hop(envoy):
    """Yields requests per CPU second and added medians compared with other proxies, and whether more or less is better."""
    options = argparse.Namespace(rounds=3, seconds=2, floats=784, envoy=envoy)
    small = hop.run(options)
    options.floats = 150_528
    large = hop.run(options)

    def middle(found, name, key):
        return statistics.median(found[name][key])

    def added(name):
        return middle(small, name, "p50") - middle(small, "direct", "p50")

    yield "pass-through to nginx, requests per CPU second", +1, middle(small, "parm", "per_core") / middle(small, "nginx", "per_core")
    yield "pass-through's added median to nginx's", -1, added("parm") / added("nginx")
    yield "as it comes to pass-through, requests per CPU second", +1, (
        middle(small, "parm, as it comes", "per_core") / middle(small, "parm", "per_core"))
    yield "600 KB: pass-through to nginx, requests a second", +1, middle(large, "parm", "rate") / middle(large, "nginx", "rate")
    if envoy:
        yield "as it comes to Envoy, requests per CPU second", +1, (
            middle(small, "parm, as it comes", "per_core") / middle(small, "envoy", "per_core"))


def of_coding():
    """Yields the processor time of a frontend's query, compared with hedging."""
    found = coded.run(coded.parsed([]))
    for way, (spent, _) in found.items():
        if way != "hedge":
            yield f"{way} to hedge, CPU a query", -1, spent / found["hedge"][0]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--envoy", help="path of an envoy binary; left out when absent")
    arguments.add_argument("--record", action="store_true", help="record the new ratios")
    options = arguments.parse_args()
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    found, worse = {}, []
    print("| ratio | better is | recorded | now | |\n|---|---|---|---|---|")
    for name, sign, value in [*of_hop(options.envoy), *of_coding()]:
        found[name] = round(value, 3)
        before = known.get(name)
        factor = 1.0 if before is None else (before / value if sign > 0 else value / before)
        said = "new" if before is None else "worse by a fifth or more" if factor >= WORSE else ""
        if factor >= WORSE:
            worse.append(name)
        print(f"| {name} | {'more' if sign > 0 else 'less'} | {'' if before is None else f'{before:.2f}'} | {value:.2f} | {said} |",
              flush=True)
    if options.record:
        FIGURES.write_text(json.dumps({**known, **found}, indent=2) + "\n")
    return 1 if worse and not options.record else 0


if __name__ == "__main__":
    sys.exit(main())
