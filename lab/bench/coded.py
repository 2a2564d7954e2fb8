"""Processor time of a frontend for a query, by policy: codes and stand-ins compared with hedging.

`parm serve` gets steady traffic of 3 KB a query for emulated workers, which take 5 ms and use no processor time, at 60 % of
their capacity. Workers and clients are other processes, whose time does not count. Rounds of the policies alternate, and the
medians count. Run by `just bench` (`ratios.py`), and alone with PYTHONPATH=lab/interop; `--rate` fits it to a slow machine.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import tempfile
import urllib.request

from processes import PARM, Parm

INSTANCES = 16
MODELS = """
[backend.emulated.slow]
time_ms = { kind = "constant", value = 5.0 }
[backend.emulated.small]
time_ms = { kind = "constant", value = 1.25 }
[frontend.dispatch.coding]
code = "mds"
k = 4
parm_plus.k_follows_load = false
[frontend.dispatch.stand_in]
model = "small"
"""
# Of the policy `parm` extra instances run the parities: 16 serve queries under each policy.
WAYS = {
    "hedge": ("hedge", INSTANCES),
    "parm+, k = 4": ("parm+", INSTANCES),
    "parm, k = 4": ("parm", INSTANCES * 5 // 4),
    "stand-in, c = 0.25": ("stand-in", INSTANCES),
}


def metrics(parm, *starts):
    """The sum of the samples that begin with one of these texts."""
    page = urllib.request.urlopen(f"http://{parm.metrics}/metrics").read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(starts))


def processor_us(parm):
    """Processor time of a process until now, in microseconds."""
    fields = pathlib.Path(f"/proc/{parm.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e6


def load(parm, options, seconds):
    command = [PARM, "load", f"http://{parm.http}", "--model", "slow", "--rate", str(options.rate), "--seconds", str(seconds)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(config, policy, instances, options):
    """Processor time of a query in microseconds, and parities or stand-ins for each query."""
    with contextlib.ExitStack() as stack:
        def start(*arguments):
            started = stack.enter_context(Parm(*arguments, log=subprocess.DEVNULL))
            stack.callback(started.process.kill)  # a drain takes seconds
            return started

        workers = [start("worker", "--config", config, "--instances", "1") for _ in range(instances)]
        urls = [part for one in workers for part in ("--worker", f"frames://{one.http}")]
        parm = start("serve", "--config", config, "--policy", policy, *urls)
        parm.wait_for_model("slow")
        load(parm, options, 3)
        counted = ("parm_parities_total{event=\"sent\"", "parm_stand_ins_total{event=\"late\"")
        before = [processor_us(parm), metrics(parm, "nv_inference_count{model=\"slow\""), metrics(parm, *counted)]
        load(parm, options, options.seconds)
        after = [processor_us(parm), metrics(parm, "nv_inference_count{model=\"slow\""), metrics(parm, *counted)]
        spent, queries, extra = (now - then for now, then in zip(after, before))
        return spent / queries, extra / queries


def run(options):
    """The median processor time of a query, and the share of parities or stand-ins, by way."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "parm.toml"
        config.write_text(MODELS)
        rounds = [{way: measure(str(config), *own, options) for way, own in WAYS.items()} for _ in range(options.rounds)]
    return {way: [statistics.median(found[way][at] for found in rounds) for at in (0, 1)] for way in WAYS}


def parsed(arguments=None):
    """Options of a command line, or of this list."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=int, default=15)
    options.add_argument("--rate", type=int, default=INSTANCES * 200 * 6 // 10, help="queries a second")
    return options.parse_args(arguments)


if __name__ == "__main__":
    found = run(parsed())
    print("| way | CPU us per query | relative to hedge | parities or stand-ins per query |\n|---|---|---|---|")
    for way, (spent, extra) in found.items():
        print(f"| {way} | {spent:.1f} | {100 * (spent / found['hedge'][0] - 1):+.1f} % | {extra:.2f} |")
