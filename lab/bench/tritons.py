"""Two frontends over real Tritons compared with one: without help, and as neighbours.

It measures the cost of sharing foreign servers in the tail. Twelve Tritons (python backend, 20 ms, lognormal with sigma
0.05) get 240 queries per second in total, from one `parm load` per frontend with a part of the rate. Run by `just tritons`; the
status is 1 if the p99 of two neighbours is more than 1.15 times that of one frontend.
"""

import argparse
import contextlib
import sys
import tempfile

from frontends import shared
from processes import ROOT, Parm, free_port
from triton import stub, triton

SERVERS = 12
MOST_P99 = 1.15
TOLD = "Triton, frontends told of each other"


class Named:
    """The addresses of a server."""

    def __init__(self, http):
        self.http = http


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--policy", default="equal")
    options = arguments.parse_args()
    stub()
    with tempfile.TemporaryFile("w+") as log, contextlib.ExitStack() as running:
        servers = []
        for _ in range(SERVERS):
            http = free_port()
            running.enter_context(triton(ROOT / "bench" / "triton", http, free_port(), log))
            servers.append(Named(f"127.0.0.1:{http}"))
        print("| servers | frontends | p50 | p90 | p99 | p99.9 (ms) | queries |\n|---|---|---|---|---|---|---|")
        p99 = {}
        for name, counts in (("Triton", (1, 2)), (TOLD, (2,))):
            for count in counts:
                *found, number = shared(count, servers, options, neighbours=name == TOLD)
                p99[name, count] = found[2]
                cells = " | ".join(f"{value:.1f}" for value in found)
                print(f"| {name} | {count} | {cells} | {number} |", flush=True)
    p99[TOLD, 1] = p99["Triton", 1]
    ratios = {name: p99[name, 2] / p99[name, 1] for name in ("Triton", TOLD)}
    print("\np99 of two frontends to that of one: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    return 0 if ratios[TOLD] <= MOST_P99 else 1


if __name__ == "__main__":
    sys.exit(main())
