#!/usr/bin/env python3
"""Compares policies with Envoy over twelve workers of which one is 2.4 times slower all the time (scenario `sick`).

The workers sleep for 20 ms per query; Poisson arrivals at 300 a second are half of their capacity. Envoy uses least
requests of four random hosts, active health checks and outlier detection of at most a tenth of the hosts (its default; with
half it ejects healthy ones, too), and hedges after a configured time; balancer.py has its configuration. Contenders take
turns.

    lab/bench/sick.py --envoy FILE [--repeats 3] [--only equal hedge "Envoy"]

PARM_BINARY names the binary.
"""

import argparse
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "lab/interop"))

from balancer import Envoy  # noqa: E402
from fleet import MODEL, Frontend, workers  # noqa: E402
from trials import trial, turns  # noqa: E402

WORKERS, SERVICE_MS, RATE, SLOWDOWN = 12, 20.0, 300, 2.4
# Times after which Envoy hedges, in ms.
ENVOYS = {"Envoy": None, "Envoy, 30 ms": 30.0, "Envoy, 40 ms": 40.0}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--envoy", required=True, help="path of an envoy binary")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=10.5)
    arguments.add_argument("--only", nargs="*", default=["equal", "hedge", *ENVOYS], help="contenders")
    options = arguments.parse_args()
    fleet = workers(WORKERS, SERVICE_MS)
    fleet[0].suffer(slowdown=SLOWDOWN)

    def run(name, seed):
        front = Envoy(options.envoy, fleet, 2000, try_ms=ENVOYS[name], ejected=10) if name in ENVOYS \
            else Frontend(name, fleet)
        front.start()
        found = trial(front, MODEL, RATE, options.seconds, seed, warm_up=1.5)
        front.kill()
        time.sleep(0.3)
        return found

    turns(options.only, options.repeats, run, "sick")


if __name__ == "__main__":
    main()
