"""Half an hour at half load under a sequence of faults, for several policies at the same time.

Every policy has its own frontend and six workers, and the same faults at the same times: a worker is killed and restarted,
stopped, cut off, made ten times slower, or answers wrongly; the disk of logs, recording and bundles is full; the frontend's
clock jumps by an hour. The frontend's memory, descriptors and threads are read every second.

The benchmark passes if
- every request is answered: one worker of six has a fault at a time and half of the capacity is in use, so a policy that
can use another worker has no reason to fail. Policies without retries (`none`, `equal`) may fail the queries that a silent
worker held: one job per slot, and one more when it is probed;
- no client waits in vain: a rejection always comes by the deadline;
- wrong answers are given only while a worker has that fault;
- memory and descriptors stay flat: neither a robust slope (Theil-Sen) over the run nor the medians of its first and last
third grow by more than `aftermath.GROWTH`.

Run by `just soak`; the status is 1 if a bound is exceeded.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import sys
import threading
import time

import aftermath
import callers
from fleet import POLICIES, Frontend, begin, end, possible, workers
from network import OWN_NAMESPACES, run
from processes import ROOT

SERVICE_MS, WORKERS, DEADLINE = 30.0, 6, 1.0
RATE = 0.5 * WORKERS * 1e3 / SERVICE_MS
# Length of each fault in seconds; ten seconds lie between two.
LENGTHS = {"killed": 6, "stopped": 8, "cut off": 8, "slow": 12, "wrong": 10, "disk full": 12, "clock ahead": 10,
           "clock behind": 10}
BETWEEN = 10.0
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
            # Gives the frontend something to log.
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
        """Returns the frontend's memory in MB, its descriptors and threads."""
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
    """Applies one fault after another until the given time: (fault, began, ended) of each."""
    rng, past, waiting = random.Random(seed), [], []
    time.sleep(BETWEEN)
    while True:
        # Every fault once per cycle, in a new order.
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
        print("skipped, it needs its own disk (run lab/bench/chaos.sh as root): disk full", flush=True)
        faults.remove("disk full")
    if not FAKETIME.exists():
        print(f"skipped, {FAKETIME} is missing (package libfaketime): jumps of the clock", flush=True)
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
        of_it = samples[subject.policy]
        aftermath.seconds(rows, past, of_it, folder / f"{subject.policy}-seconds.csv")
        ended = aftermath.report(subject.policy, rows, past, of_it, list(LENGTHS))
        if subject.frontend.process.poll() is not None:
            ended.append(f"the frontend ended with status {subject.frontend.process.returncode}")
        broken += [f"{subject.policy}: {what}" for what in ended]
        recording = subject.disk / "recording.jsonl"
        print(f"recording: {recording.stat().st_size / 1e6:.1f} MB" if recording.exists() else "no recording")
        shutil.copy(subject.disk / "log", folder / f"{subject.policy}.log")
    print("\n" + ("\n".join(f"BROKEN {line}" for line in broken) or "all bounds hold"))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
