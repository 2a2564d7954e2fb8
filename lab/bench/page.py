"""The cost of open pages for a frontend: its processor time at a constant load, with streams of frames open and without.

Rounds with and without pages alternate under one constant load, so that other work of the machine affects both. The
frontend runs at real-time priority (`chrt -f 10`) if that is allowed. Usage: page.py [--rate N] [--rounds N] [--seconds N]
[--pages N]
"""

import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

from processes import PARM, ROOT, Parm

TICK = os.sysconf("SC_CLK_TCK")


def processor(pid):
    """Returns the processor seconds that a process has used, in user and system mode."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Page:
    """Reads the stream as a page does, and discards it."""

    def __init__(self, admin):
        self.answer = urllib.request.urlopen(f"http://{admin}/admin/v1/stream")
        self.frames = self.bytes = 0
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        """Reads until it is closed."""
        try:
            for line in self.answer:
                if line.startswith(b'{"frame"'):
                    self.frames += 1
                    self.bytes += len(line)
        except (ValueError, OSError):
            pass

    def close(self):
        """Closes the stream."""
        with socket.socket(fileno=os.dup(self.answer.fileno())) as other_end:
            # A plain close would wait for the reader.
            other_end.shutdown(socket.SHUT_RDWR)
        self.thread.join()


def round_of(frontend, admin, pages, seconds):
    """Returns the share of one core that the frontend used, and the number of frames."""
    watching = [Page(admin) for _ in range(pages)]
    time.sleep(1)
    before, began = processor(frontend.process.pid), time.monotonic()
    time.sleep(seconds)
    share = (processor(frontend.process.pid) - before) / (time.monotonic() - began)
    for page in watching:
        page.close()
    # The frontend notices it at its next frame.
    time.sleep(1.2)
    return share, sum(page.frames for page in watching), sum(page.bytes for page in watching)


def main():
    """Prints every round, and the cost of pages."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--rate", type=int, default=1000)
    flags.add_argument("--rounds", type=int, default=6)
    flags.add_argument("--seconds", type=float, default=30)
    flags.add_argument("--pages", type=int, default=1)
    asked = flags.parse_args()
    models = ["--config", "lab/bench/null-worker.toml", "--instances", "1"]
    with Parm("worker", *models) as one, Parm("worker", *models) as other:
        workers = [word for worker in (one, other) for word in ("--worker", f"http://{worker.http}")]
        with Parm("serve", *workers, "--admin", "127.0.0.1:18003") as frontend:
            first = subprocess.run(["chrt", "-a", "-f", "-p", "10", str(frontend.process.pid)], capture_output=True, text=True)
            print(f"frontend at real-time priority: {'no, ' + first.stderr.strip() if first.returncode else 'yes'}")
            frontend.wait_for_model("null")
            length = 20 + (asked.seconds + 3) * 2 * asked.rounds
            load = subprocess.Popen(
                [PARM, "load", f"http://{frontend.http}", "--model", "null", "--rate", str(asked.rate), "--seconds", str(int(length)), "--quiet"],
                cwd=ROOT, stdout=subprocess.PIPE, text=True,
            )
            time.sleep(5)
            shares = {0: [], asked.pages: []}
            for number in range(asked.rounds):
                # ABBA, so that a drift affects both.
                for pages in (0, asked.pages) if number % 2 == 0 else (asked.pages, 0):
                    share, frames, size = round_of(frontend, "127.0.0.1:18003", pages, asked.seconds)
                    shares[pages].append(share)
                    print(f"round {number + 1}, {pages} pages: {share * 100:6.2f} % of a core, {frames} frames, {size / max(1, frames):.0f} bytes each", flush=True)
            differences = [with_page - without for without, with_page in zip(shares[0], shares[asked.pages])]
            load.terminate()
            print(load.communicate()[0])
    cost = statistics.mean(differences)
    spread = 1.96 * statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
    print(f"without: {statistics.mean(shares[0]) * 100:.2f} % of a core; {asked.pages} pages: {cost * 100:+.2f} +- {spread * 100:.2f} points")
    if cost > 0.02 * asked.pages:
        sys.exit("a page costs more than 2 % of a core")


if __name__ == "__main__":
    main()
