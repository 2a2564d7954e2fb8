"""Clients that send on a schedule, however slow earlier requests are, and record the time of each answer on the clock of
the faults.

`parm load` is more precise and faster, but it does not record when on the machine's clock a request was sent or why one
failed, and it does not resend. Figures that need this come from here, and rates beyond some thousand per second from `parm
load`. Run as a separate process: `python3 callers.py SETTINGS_AS_JSON`, which writes a line of CSV for every query.
"""

import asyncio
import contextlib
import csv
import gc
import json
import os
import random
import re
import struct
import subprocess
import sys
import time

from fleet import INPUTS, MODEL, OUTPUTS

# Beyond the deadline that the server received: an answer that is missing by then never comes.
PATIENCE = 0.5
COLUMNS = ["at", "took", "outcome", "tries"]


def query(number, deadline):
    """Returns a request's bytes and the right answer: the outputs are sums of every fourth input."""
    values = [((number * 7 + place) % 97) / 8 for place in range(INPUTS)]
    parameters = {"binary_data_output": True}
    if deadline:
        parameters["timeout"] = int(deadline * 1e6)
    header = json.dumps({"parameters": parameters, "inputs": [{
        "name": "input", "shape": [1, INPUTS], "datatype": "FP32",
        "parameters": {"binary_data_size": 4 * INPUTS}}]}).encode()
    body = header + struct.pack(f"<{INPUTS}f", *values)
    head = (f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nhost: chaos\r\ncontent-type: application/octet-stream\r\n"
            f"inference-header-content-length: {len(header)}\r\ncontent-length: {len(body)}\r\n\r\n").encode()
    return head + body, [sum(values[place::OUTPUTS]) for place in range(OUTPUTS)]


def judged(head, body, right):
    """Returns the outcome of an answer: the server's `parm_outcome`, `wrong`, or its error."""
    status = int(head[9:12])
    if status != 200:
        return f"{status}: {error_of(body)}"
    length = int(re.search(rb"inference-header-content-length: *(\d+)", head, re.I)[1])
    said = re.search(rb'"parm_outcome": *"([^"]*)"', body[:length])
    values = struct.unpack(f"<{OUTPUTS}f", body[length:])
    if any(abs(value - wanted) > 0.01 for value, wanted in zip(values, right)):
        return "wrong"
    return said[1].decode() if said else "exact"


def error_of(body):
    with contextlib.suppress(ValueError, KeyError, TypeError):
        body = json.loads(body)["error"].encode()
    # Numbers and addresses differ from one error to the next.
    return re.sub(r"[\d.:]*\d", "N", body.decode(errors="replace").strip())[:100]


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection with one request at a time."""

    def __init__(self):
        self.transport, self.received, self.answer = None, b"", None

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, request):
        self.received, self.answer = b"", asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answer

    def data_received(self, data):
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0 or self.answer is None or self.answer.done():
            return
        head = self.received[:end]
        length = int(re.search(rb"content-length: *(\d+)", head, re.I)[1])
        if len(self.received) >= end + 4 + length:
            self.answer.set_result((head, self.received[end + 4:]))

    def connection_lost(self, error):
        if self.answer and not self.answer.done():
            self.answer.set_exception(ConnectionResetError(str(error)))


class Pool:
    """Connections to one address: the most recently used is reused first."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.host, self.port, self.idle = host, int(port), []

    async def ask(self, request, right, patience):
        """Returns the outcome of one try. A client whose timeout expires closes the connection."""
        connection = None
        try:
            async with asyncio.timeout(patience):
                while self.idle and connection is None:
                    connection = self.idle.pop()
                    if connection.transport.is_closing():
                        connection = None
                if connection is None:
                    loop = asyncio.get_running_loop()
                    _, connection = await loop.create_connection(Connection, self.host, self.port)
                head, body = await connection.ask(request)
        except TimeoutError:
            if connection:
                connection.transport.abort()
            return "silence"
        except OSError as error:
            return f"broken: {type(error).__name__}"
        self.idle.append(connection)
        return judged(head, body, right)


async def once(pool, number, due, settings):
    request, right = query(number, settings["deadline"])
    outcome = await pool.ask(request, right, due + settings["deadline"] + PATIENCE - time.monotonic())
    return outcome, 1


async def stubborn(pool, number, due, settings):
    """Resends at once after a rejection or a timeout, and gives up after a number of tries."""
    request, right = query(number, settings["deadline"])
    for tries in range(1, settings["tries"] + 1):
        outcome = await attempt(pool, request, right, settings)
        if answered(outcome):
            break
    return outcome, tries


async def attempt(pool, request, right, settings):
    if settings["hangs_up"]:
        return await pool.ask(request, right, settings["patience"])
    # Abandons the request without notifying the server, which may still work on it.
    asked = asyncio.ensure_future(pool.ask(request, right, 30))
    done, _ = await asyncio.wait([asked], timeout=settings["patience"])
    return asked.result() if done else "silence"


async def drive(settings):
    pool, rng, rows = Pool(settings["address"]), random.Random(settings["seed"]), []
    out = open(settings["file"], "w", newline="", encoding="utf-8")
    table, under_way = csv.writer(out), set()
    table.writerow(COLUMNS)
    ask = stubborn if settings.get("tries") else once

    async def follow(number, due):
        outcome, tries = await ask(pool, number, due, settings)
        rows.append((f"{due:.4f}", f"{time.monotonic() - due:.4f}", outcome, tries))

    number, due = 0, time.monotonic() + 0.2
    for rate, seconds in settings["phases"]:
        end = due + seconds
        while (due := due + rng.expovariate(rate)) < end:
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            task = asyncio.ensure_future(follow(number, due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            number += 1
            if len(rows) > 1000:
                table.writerows(rows)
                rows.clear()
        due = end
    while under_way:
        await asyncio.wait(under_way)
    table.writerows(rows)
    out.close()


def start(**settings):
    """Starts clients; `phases` is a list of (rate, seconds)."""
    settings = {"seed": 1, **settings}
    return subprocess.Popen([sys.executable, __file__, json.dumps(settings)])


def read(file):
    """Returns the queries of a run, (sent, seconds, outcome, tries), in the order in which they were sent."""
    with open(file, newline="", encoding="utf-8") as source:
        rows = csv.DictReader(source)
        return sorted((float(r["at"]), float(r["took"]), r["outcome"], int(r["tries"])) for r in rows)


def answered(outcome):
    """Whether a client received a usable answer."""
    return outcome in ("exact", "hedged", "reconstructed", "stand-in")


if __name__ == "__main__":
    gc.freeze()
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    asyncio.run(drive(json.loads(sys.argv[1])))
