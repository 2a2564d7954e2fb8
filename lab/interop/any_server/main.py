"""Servers of any kind behind `parm serve --upstream`, and unmodified clients in front. Run by `just interop-any-server`."""

import contextlib
import sys
import tempfile
import time

import chaos
import own
import sdks
import servers

# A call is late when it takes much longer than this.
PACE = 0.02


def part(name, check):
    """Runs a part, and shows the end of the servers' logs if it fails."""
    print(name, flush=True)
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as log, contextlib.ExitStack() as stack:
        try:
            check(stack, log)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-6000:])
            raise
    print(f"  {time.monotonic() - began:.0f} s", flush=True)


def headers(stack, log):
    fleet = own.start(stack, log, replicas=1)
    own.requests_arrive_unchanged(fleet.frontend(log=log), fleet.addresses[0])


def answers(stack, log):
    fleet = own.start(stack, log)
    own.check(fleet.frontend(log=log), fleet)


def clients(stack, log):
    fleet = own.start(stack, log)
    sdks.check(fleet.frontend(log=log), fleet)


def faults(stack, log):
    fleet = own.start(stack, log, pace=PACE)
    chaos.check(fleet.frontend(log=log), fleet)


def main():
    part("one FastAPI app: what it sees of a request", headers)
    part("two FastAPI apps: answers, byte by byte", answers)
    part("two FastAPI apps: client libraries", clients)
    part("two FastAPI apps: replicas that die and stop", faults)
    skipped = []
    for name, kind in servers.KINDS.items():
        if not (servers.environment(kind) / "complete").exists():
            skipped.append(name)
            print(f"{name}\n  SKIPPED: the package {kind.package} does not install here")
            continue
        part(name, lambda stack, log: servers.check(name, kind, log))
    print("not tested: real chat servers, which need weights")
    missing = f", but for {', '.join(skipped)} (skipped)" if skipped else ""
    print(f"parm passes on requests for servers of any kind{missing}")


if __name__ == "__main__":
    main()
