"""Two frontends over real Tritons compared with one.

It measures the cost of sharing foreign servers in the tail. Twelve Tritons (python backend, 20 ms, lognormal with sigma
0.05) get 240 queries per second in total, from one `parm load` per frontend with a part of the rate. Run by `just tritons`.
"""

import argparse
import contextlib
import tempfile

from frontends import shared
from processes import ROOT, Parm, free_port
from triton import stub, triton

SERVERS = 12


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
        print("| frontends | p50 | p90 | p99 | p99.9 (ms) | queries |\n|---|---|---|---|---|---|")
        p99 = {}
        for count in (1, 2):
            *found, number = shared(count, servers, options)
            p99[count] = found[2]
            cells = " | ".join(f"{value:.1f}" for value in found)
            print(f"| {count} | {cells} | {number} |", flush=True)
    print(f"\np99 of two frontends to that of one: {p99[2] / p99[1]:.2f}")


if __name__ == "__main__":
    main()
