"""Runs contenders in turn under `parm load`, and prints quantiles per repeat and pooled.

Used by quota.py and sick.py. Every run has its own frontend. Contenders of a repeat share a seed, thus arrivals, and take turns
in a random order. `idle` is the share of the machine's processor time that was idle in a run: other programs reduce it.
"""

import collections
import csv
import json
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import urllib.request

from processes import PARM

GOOD = ("exact", "hedged", "model", "stand-in")


def processor():
    """Returns the idle and all ticks of the machine."""
    ticks = [int(tick) for tick in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def counters(address):
    """Returns the frontend's counters, summed over models; none for other servers."""
    if not address:
        return collections.Counter()
    page = urllib.request.urlopen(f"http://{address}/metrics", timeout=5).read().decode()
    found = collections.Counter()
    for name, value in re.findall(r"^(parm_\w+_total)\S* (\S+)$", page, re.M):
        found[name] += float(value)
    return found


def quantile(values, share):
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)]


def trial(front, model, rate, seconds, seed, warm_up=3.0, arrivals="poisson"):
    """Loads a started server and returns its latencies in milliseconds, outcomes and counts."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        idle, ticks = processor()
        done = subprocess.run(
            [PARM, "load", f"http://{front.http}", "--model", model, "--rate", str(rate), "--arrivals", arrivals, "--seconds",
             str(seconds), "--warm-up", str(warm_up), "--seed", str(seed), "--deadline-ms", "2000", "--allow-failed", "100",
             "--samples", file.name, "--quiet", "--output", "json"], stdout=subprocess.PIPE, text=True, check=False)
        report = json.loads(done.stdout)
        still, later = processor()
        with open(file.name, newline="") as lines:
            rows = list(csv.DictReader(lines))
    counted = counters(getattr(front, "metrics", None))
    answers = max(len(rows) * (seconds + warm_up) / seconds, 1)
    return {"took": [float(row["latency_us"]) / 1e3 for row in rows],
            "failed": sum(row["outcome"] not in GOOD for row in rows),
            "hedged": sum(row["outcome"] == "hedged" for row in rows),
            "copies": 100 * (counted["parm_hedges_total"] + counted["parm_explored_total"]) / answers,
            "ejected": counted["parm_ejections_total"], "rows": rows,
            "idle": 100 * (still - idle) / (later - ticks), "lag": report["validity"]["lag_p99_ms"],
            "valid": report["validity"]["valid"]}


def summary(took):
    return {"p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "p99.9": quantile(took, 0.999)}


def turns(contenders, repeats, run, label=""):
    """Runs every contender once a repeat, prints each run and a table, and returns the runs."""
    runs = collections.defaultdict(list)
    for seed in range(1, repeats + 1):
        for name in random.Random(seed).sample(contenders, len(contenders)):
            found = run(name, seed)
            runs[name].append(found)
            figures = ", ".join(f"{key} {value:.1f}" for key, value in summary(found["took"]).items())
            print(f"{label} {seed} {name}: {len(found['took'])} queries, {figures} ms, {found['hedged']} answered by copies, "
                  f"copies {found['copies']:.1f} %, {found['ejected']:g} ejections, {found['failed']} failed, "
                  f"idle {found['idle']:.0f} %, lag p99 {found['lag']:.2f} ms{'' if found['valid'] else ', INVALID'}"
                  f"{found.get('note', '')}", flush=True)
    print(f"\n{label}: medians of {repeats} repeats (range); pooled over all; excess is p99 - p50, gap is p99.9 - p50, in ms")
    for name in contenders:
        each = [summary(found["took"]) for found in runs[name]]
        whole = summary([took for found in runs[name] for took in found["took"]])
        cells = [f"{title} {spread([one[high] - low * one['p50'] for one in each])}"
                 for title, high, low in (("p50", "p50", 0), ("p99", "p99", 0), ("excess", "p99", 1), ("gap", "p99.9", 1))]
        print(f"  {name:24} {', '.join(cells)}; pooled p99 {whole['p99']:.1f}, p99.9 {whole['p99.9']:.1f}, "
              f"N {sum(len(found['took']) for found in runs[name])}")
    print(flush=True)
    return runs


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}..{max(values):.1f})"
