"""Half an hour at half load while one thing after another goes wrong, for several policies at the same time.

Every policy has a frontend and six workers of its own, and the same faults at the same moments: a worker is killed and
restarted, stopped, cut off, made ten times slower, answers wrongly; the disk that logs, recording and bundles are on is
full; the frontend's clock jumps by an hour. Every second the frontend's memory, descriptors and threads are read.

It passes where
- every request is answered: with one worker of six unwell at a time and half of the capacity in use, a policy that can ask
  another worker has no reason to fail anything. Policies that never ask twice (`none`, `equal`) may fail what a silent
  worker held: one job a slot, and one more when it is tried again;
- no client waits in vain: a refusal comes by the deadline, always;
- wrong answers are given only while a worker answers wrongly, for nothing else makes them;
- memory and descriptors stay flat: neither a robust slope (Theil-Sen) over the run nor the medians of its first and last
  third say that they grew by more than `GROWTH`.

Run by `just soak`; the status is 1 where something did not hold.
"""

import argparse
import collections
import contextlib
import csv
import os
import pathlib
import random
import shutil
import statistics
import sys
import threading
import time

import callers
from fleet import POLICIES, Frontend, begin, end, possible, workers
from network import OWN_NAMESPACES, run
from processes import ROOT

SERVICE_MS, WORKERS, DEADLINE = 30.0, 6, 1.0
RATE = 0.5 * WORKERS * 1e3 / SERVICE_MS
# Seconds that each fault lasts; between two there are ten.
LENGTHS = {"killed": 6, "stopped": 8, "cut off": 8, "slow": 12, "wrong": 10, "disk full": 12, "clock ahead": 10,
           "clock behind": 10}
BETWEEN, AFTERMATH = 10.0, 5.0
SILENT = {"stopped", "cut off"}
NEVER_ASK_TWICE = {"none", "equal"}
GROWTH = {"rss_mb": 4.0, "descriptors": 8.0}
FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
DISK_MB = 96


class Subject:
    """A policy's frontend, its workers, its disk, its clock and its clients."""

    def __init__(self, policy, folder, minutes, seed):
        self.policy, self.disk = policy, folder / f"disk-{policy}"
        self.disk.mkdir(parents=True)
        if OWN_NAMESPACES:
            run("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(self.disk))
        self.bundle = self.disk / "models" / "fashion-lenet" / "parm.toml"
        self.bundle.parent.mkdir(parents=True)
        shutil.copy(ROOT / "models" / "fashion-lenet" / "parm.toml", self.bundle)
        self.clock = folder / f"clock-{policy}"
        self.clock.write_text("+0\n")
        faketime = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                    "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        self.workers = workers(WORKERS, SERVICE_MS)
        self.log = open(self.disk / "log", "ab")
        self.frontend = Frontend(policy, self.workers, "--record", str(self.disk / "recording.jsonl"),
                                 "--bundles", str(self.disk / "models"), log=self.log,
                                 env=faketime if FAKETIME.exists() else None)
        self.frontend.start()
        self.file = folder / f"{policy}.csv"
        self.clients = callers.start(address=self.frontend.http, phases=[(RATE, 60 * minutes)], deadline=DEADLINE,
                                     seed=seed, file=str(self.file))

    def begin(self, fault, number):
        if fault == "disk full":
            with contextlib.suppress(OSError), open(self.disk / "filler", "wb", buffering=0) as filler:
                while filler.write(bytes(1 << 16)):
                    pass
            with contextlib.suppress(OSError):
                self.bundle.write_text("half of a bund" * 1000)
            # So that there is something to log.
            self.workers[number].kill()
        elif fault.startswith("clock"):
            self.clock.write_text("+3600\n" if fault == "clock ahead" else "-3600\n")
        else:
            begin(fault, self.workers[number])

    def end(self, fault, number):
        if fault == "disk full":
            self.workers[number].start()
            (self.disk / "filler").unlink()
            shutil.copy(ROOT / "models" / "fashion-lenet" / "parm.toml", self.bundle)
        elif fault.startswith("clock"):
            self.clock.write_text("+0\n")
        else:
            end(fault, self.workers[number])

    def sample(self):
        """Memory in MB, descriptors and threads of the frontend now."""
        process = pathlib.Path(f"/proc/{self.frontend.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return {"rss_mb": int(status["VmRSS"].split()[0]) / 1024, "threads": int(status["Threads"]),
                "descriptors": len(os.listdir(process / "fd"))}


def watch(subjects, samples, stop):
    while not stop.wait(1.0):
        for subject in subjects:
            with contextlib.suppress(OSError, KeyError):
                samples[subject.policy].append((time.monotonic(), subject.sample()))


def episodes(subjects, faults, until, seed):
    """Lets one fault follow another until then: (fault, began, ended) of each."""
    rng, past, waiting = random.Random(seed), [], []
    time.sleep(BETWEEN)
    while True:
        # Every fault once, in another order each time.
        waiting = waiting or rng.sample(faults, len(faults))
        fault, number = waiting.pop(), rng.randrange(WORKERS)
        if time.monotonic() + LENGTHS[fault] + BETWEEN > until:
            return past
        began = time.monotonic()
        for subject in subjects:
            subject.begin(fault, number)
        time.sleep(LENGTHS[fault])
        for subject in subjects:
            subject.end(fault, number)
        past.append((fault, began, time.monotonic()))
        print(f"{fault}: worker {number}, {past[-1][2] - began:.0f} s", flush=True)
        dead = [subject.policy for subject in subjects if subject.frontend.process.poll() is not None]
        if dead:
            print(f"the frontend of {', '.join(dead)} ended", flush=True)
            return past
        time.sleep(BETWEEN)


def by_fault(rows, past):
    """Queries by the fault that they met: those that were sent or answered while it lasted or in its aftermath."""
    met = collections.defaultdict(list)
    for row in rows:
        sent, took = row[:2]
        during = (fault for fault, began, ended in past if sent + took >= began and sent < ended + AFTERMATH)
        met[next(during, "nothing")].append(row)
    return met


def counts(rows, late_after):
    """What became of queries."""
    kinds = collections.Counter(outcome for *_, outcome, _ in rows)
    took = sorted(took for _, took, *_ in rows)
    return {"queries": len(rows), "late": sum(1 for _, took, outcome, _ in rows
                                              if callers.answered(outcome) and took > late_after),
            "wrong": kinds["wrong"], "silence": kinds["silence"],
            "failed": sum(n for kind, n in kinds.items() if not callers.answered(kind) and kind != "wrong"),
            "reasons": {kind: n for kind, n in kinds.items() if not callers.answered(kind) and kind != "wrong"},
            "hedged": kinds["hedged"], "reconstructed": kinds["reconstructed"], "stand-in": kinds["stand-in"],
            "p99_ms": 1e3 * took[int(0.99 * len(took))] if took else 0.0}


def slope(points):
    """Theil-Sen: the median of the slopes of all pairs of points, of at most 300."""
    points = points[::max(1, len(points) // 300)]
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1:])


def grown(samples, key):
    """By how much it grew over the run, by the slope and by thirds, the first tenth left out."""
    points = [(at, sample[key]) for at, sample in samples][len(samples) // 10:]
    third = len(points) // 3
    middle = lambda part: statistics.median(value for _, value in part)  # noqa: E731
    return {"median": middle(points), "most": max(value for _, value in points),
            "slope": slope(points) * (points[-1][0] - points[0][0]),
            "thirds": middle(points[-third:]) - middle(points[:third])}


def verdict(subject, met, past, growth):
    """What did not hold."""
    silent = sum(fault in SILENT for fault, *_ in past)
    allowed = 2 * silent if subject.policy in NEVER_ASK_TWICE else 0
    broken = []
    if subject.frontend.process.poll() is not None:
        broken.append(f"the frontend ended with status {subject.frontend.process.returncode}")
    if (failed := sum(count["failed"] for count in met.values())) > allowed:
        broken.append(f"{failed} requests failed, {allowed} may")
    if silence := sum(count["silence"] for count in met.values()):
        broken.append(f"{silence} requests got no word by their deadline")
    if stray := sum(count["wrong"] for fault, count in met.items() if fault != "wrong"):
        broken.append(f"{stray} wrong answers while no worker answered wrongly")
    for key, limit in GROWTH.items():
        for how in ("slope", "thirds"):
            if growth[key][how] > limit:
                broken.append(f"{key} grew by {growth[key][how]:.1f} ({how}), {limit:g} may be noise")
    return broken


def report(subject, rows, past, samples):
    met = by_fault(rows, past)
    clean = sorted(took for _, took, *_ in met["nothing"])
    late_after = 2 * clean[int(0.99 * len(clean))]
    met = {fault: counts(part, late_after) for fault, part in met.items()}
    growth = {key: grown(samples, key) for key in ("rss_mb", "descriptors", "threads")}
    print(f"\n{subject.policy}: {len(rows)} requests; late is more than {1e3 * late_after:.0f} ms")
    columns = ["queries", "late", "failed", "silence", "wrong", "hedged", "reconstructed", "stand-in", "p99_ms"]
    print("| fault | times | " + " | ".join(columns) + " |\n|---|" + "---|" * (len(columns) + 1))
    for fault in ["nothing", *LENGTHS]:
        if fault in met:
            times = sum(kind == fault for kind, *_ in past)
            print(f"| {fault} | {times or ''} | " + " | ".join(f"{met[fault][key]:.0f}" for key in columns) + " |")
    for fault, count in met.items():
        for reason, number in count["reasons"].items():
            print(f"{fault}: {number} x {reason}")
    for key, value in growth.items():
        print(f"{key}: median {value['median']:.1f}, most {value['most']:.1f}, slope over the run {value['slope']:+.2f}, "
              f"last third less first {value['thirds']:+.2f}")
    recording = subject.disk / "recording.jsonl"
    print(f"recording: {recording.stat().st_size / 1e6:.1f} MB" if recording.exists() else "no recording")
    return verdict(subject, met, past, growth)


def seconds(subject, rows, past, samples, path):
    """A line for every second: what became of the queries sent in it, and what the frontend held."""
    sent = collections.defaultdict(collections.Counter)
    for at, _, outcome, _ in rows:
        sent[int(at)][outcome] += 1
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["second", "fault", "outcomes", "rss_mb", "descriptors", "threads"])
        for at, sample in samples:
            fault = next((fault for fault, began, ended in past if began <= at < ended), "")
            outcomes = " ".join(f"{kind}={number}" for kind, number in sent[int(at)].items())
            table.writerow([int(at), fault, outcomes, f"{sample['rss_mb']:.1f}", sample["descriptors"],
                            sample["threads"]])


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--policies", nargs="*", default=["hedge", "parm+", "stand-in"], choices=list(POLICIES))
    arguments.add_argument("--faults", nargs="*", default=list(LENGTHS), choices=list(LENGTHS))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--results", default="results/soak")
    options = arguments.parse_args()
    folder = pathlib.Path(options.results).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    faults = possible(options.faults)
    if not OWN_NAMESPACES and "disk full" in faults:
        print("left out, as it needs a disk of its own (run bench/chaos.sh as root): disk full", flush=True)
        faults.remove("disk full")
    if not FAKETIME.exists():
        print(f"left out, as there is no {FAKETIME} (package libfaketime): jumps of the clock", flush=True)
        faults = [fault for fault in faults if not fault.startswith("clock")]

    subjects = [Subject(policy, folder, options.minutes, options.seed) for policy in options.policies]
    samples, stop = {subject.policy: [] for subject in subjects}, threading.Event()
    watcher = threading.Thread(target=watch, args=(subjects, samples, stop), daemon=True)
    watcher.start()
    past = episodes(subjects, faults, time.monotonic() + 60 * options.minutes, options.seed)
    broken = []
    for subject in subjects:
        subject.clients.wait(timeout=60 * options.minutes + 60)
    stop.set()
    watcher.join()
    for subject in subjects:
        rows = callers.read(subject.file)
        seconds(subject, rows, past, samples[subject.policy], folder / f"{subject.policy}-seconds.csv")
        broken += [f"{subject.policy}: {what}" for what in report(subject, rows, past, samples[subject.policy])]
        shutil.copy(subject.disk / "log", folder / f"{subject.policy}.log")
    print("\n" + ("\n".join(f"BROKEN {line}" for line in broken) or "everything held"))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
