"""From a PyTorch file to late queries that a stand-in answers: stand_in.py FOLDER. Run by `just interop-stand-in`.

The network is served with `--capture` under load, and `parm stand-in` makes a stand-in from the capture. Three workers
serve both, one of them is stopped briefly again and again, and the answers are graded, under the policies stand-in and
hedge. Rejections are tested too: a folder captured from another model, rows of other sizes, and a disk that becomes full
while queries are captured.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import numpy

from processes import PARM, ROOT, Parm

NAME, WORKERS = "fashion", 3
TRAFFIC = ["--rate", "60", "--seconds", "15"]
ASKED = ["--rate", "60", "--seconds", "172", "--warm-up", "3"]
# Length of a worker's stop, and of the time between two stops, in seconds.
STOPPED, RUNNING = 0.5, 2.5


def run(*arguments, status=0):
    done = subprocess.run([PARM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != status:
        raise SystemExit(f"parm {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def load(address, rows, *flags):
    command = [PARM, "load", f"http://{address}", "--model", NAME, "--input", rows, "--quiet", "--output", "json", *flags]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"parm load ended with {done.returncode}:\n{done.stderr}") from None
    if done.returncode:
        # The figures are valid although the report names a fault.
        print(done.stderr.strip().splitlines()[-1])
    return report


def counted(parm, line):
    page = urllib.request.urlopen(f"http://{parm.metrics}/metrics").read().decode()
    return sum(float(had.rsplit(" ", 1)[1]) for had in page.splitlines() if had.startswith(line))


def capture(folder, models, rows, flags):
    with Parm("serve", "--models", models, "--policy", "none", "--capture", folder, "--set", "frontend.capture.share=1.0", "--instances", "1") as parm:
        parm.wait_for_model(NAME)
        report = load(parm.http, rows, *flags)
        kinds = {event: counted(parm, f'parm_captured_requests_total{{event="{event}"}}') for event in ["kept", "dropped", "failed"]}
    return report, kinds


def stopping(workers, done):
    """Stops one worker after another briefly."""
    at = 0
    while not done.wait(RUNNING):
        process = workers[at % len(workers)].process
        process.send_signal(signal.SIGSTOP)
        done.wait(STOPPED)
        process.send_signal(signal.SIGCONT)
        at += 1


def serve(models, policy, folder):
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Parm("worker", "--models", models, "--instances", "1")) for _ in range(WORKERS)]
        flags = [flag for worker in workers for flag in ("--worker", f"http://{worker.http}")]
        parm = stack.enter_context(Parm("serve", *flags, "--bundles", models, "--policy", policy))
        parm.wait_for_model(NAME)
        deadline = time.monotonic() + 60
        while policy == "stand-in" and not counted(parm, "parm_stand_in_cost"):
            if time.monotonic() > deadline:
                raise SystemExit("FAIL  the frontend found no stand-in")
            time.sleep(0.1)
        done = threading.Event()
        stopper = threading.Thread(target=stopping, args=(workers, done))
        stopper.start()
        try:
            return load(parm.http, folder / "asked.npy", "--labels", folder / "labels.npy", "--allow-failed", "5", *ASKED)
        finally:
            done.set()
            stopper.join()


def line(policy, report):
    at = {quantile["share"]: quantile["ms"] for quantile in report["latency"]}
    outcomes = {share["outcome"]: share for share in report["outcomes"]}
    taken = outcomes.get("stand-in", {"share": 0.0, "requests": 0, "right": 0, "graded": 0})
    right = f"{100 * taken['right'] / taken['graded']:.1f} of {taken['graded']}" if taken["graded"] else "-"
    failed = report["sent"] - sum(share["requests"] for share in report["outcomes"] if share["outcome"] != "failed")
    shown = [f"{at[share]:.1f}" if at.get(share) is not None else "-" for share in (0.5, 0.99, 0.999)]
    return (f"| {policy} | {report['sent']} | {failed} | {' | '.join(shown)} | {100 * report['accuracy']:.1f} | "
            f"{100 * taken['requests'] / report['sent']:.2f} | {right} |")


def refusals(folder, captured, models, scratch):
    lenet = ROOT / "models/fashion-lenet/1/model.onnx"
    model = models / NAME / "1/model.onnx"
    odd = scratch / "odd.npy"
    numpy.save(odd, numpy.zeros((64, 3, 17), numpy.float32))
    cases = [
        ("captured from another model", lenet, "other", f"capture:{captured}", "holds queries to 'fashion', none to 'other'"),
        ("another model's file under the name", lenet, NAME, f"capture:{captured}", "but this model has input"),
        ("rows of other sizes", model, NAME, f"npy:{odd}", "the data has rows of [3, 17]"),
    ]
    for what, file, name, data, wanted in cases:
        _, said = run("stand-in", file, "--name", name, "--data", data, "--dry-run", "--runs", scratch / "runs", status=64)
        if wanted not in said:
            raise SystemExit(f"FAIL  {what}: {said}")
        print(f"  ok  {what} is refused: {said.strip().splitlines()[-1].split(': ', 2)[-1]}")


def full_disk(models, rows, scratch):
    """A file system of 64 KiB, which only root can create."""
    small = scratch / "small"
    small.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], capture_output=True).returncode:
        print("  --  a full disk: skipped, no small file system can be mounted here")
        return
    try:
        report, kinds = capture(small / "captured", models, rows, ["--rate", "60", "--seconds", "4"])
    finally:
        subprocess.run(["umount", "-l", small], check=False)
    failed = report["validity"]["failed"]
    if failed or kinds["failed"] != 1:
        raise SystemExit(f"FAIL  a full disk: {kinds}, {failed} of the requests failed")
    print(f"  ok  a full disk: {kinds['kept']:.0f} queries kept, then none, and all {report['sent']} were answered")


def main(folder):
    folder = pathlib.Path(folder)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        models, captured = scratch / "models", scratch / "captured"
        (models / NAME / "1").mkdir(parents=True)
        shutil.copy(folder / "model.onnx", models / NAME / "1/model.onnx")
        report, kinds = capture(captured, models, folder / "traffic.npy", TRAFFIC)
        print(f"captured: {kinds['kept']:.0f} of {report['sent']} queries")
        table, verdict = run("stand-in", NAME, "--models", models, "--data", f"capture:{captured}", "--runs", scratch / "runs",
                             "--engine", "ort", "--meaning", "logits", "--measure", 5)
        print(table + verdict.replace(str(scratch), "."))
        refusals(folder, captured, models, scratch)
        full_disk(models, folder / "traffic.npy", scratch)
        print(f"\n{WORKERS} workers, one of them stopped for {STOPPED} s of every {STOPPED + RUNNING}")
        print("| policy | queries | failed | p50, ms | p99 | p99.9 | accuracy, % | from the stand-in, % | right of these, % |")
        print("|---|---|---|---|---|---|---|---|---|")
        for policy in ["hedge", "stand-in"]:
            report = serve(models, policy, folder)
            print(line(policy, report), flush=True)
            if policy == "stand-in" and not any(share["outcome"] == "stand-in" for share in report["outcomes"]):
                raise SystemExit("FAIL  no query was answered by the stand-in")


main(sys.argv[1])
