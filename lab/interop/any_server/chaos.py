"""Replicas that die and stop while openai's clients go on: no call fails, and late ones are hedged."""

import collections
import os
import signal
import threading

import openai

from fleet import until, wait_for_instances
from sdks import MESSAGES, client

CLIENTS = 8


class Load:
    """Clients that call one after another: chat, embeddings and, if wanted, streamed chat."""

    def __init__(self, parm, calls, streams):
        self.left = iter(range(calls))
        self.lock = threading.Lock()
        self.done = 0
        self.failed = []
        self.outcomes = collections.Counter()
        self.threads = [threading.Thread(target=self.run, args=(parm, streams), daemon=True) for _ in range(CLIENTS)]
        [thread.start() for thread in self.threads]

    def run(self, parm, streams):
        api = client(parm.http)
        while True:
            with self.lock:
                call = next(self.left, None)
            if call is None:
                return
            try:
                outcome = self.call(api, call, streams)
            except Exception as error:
                outcome = "failed"
                self.failed.append(f"{type(error).__name__}: {error}")
            with self.lock:
                self.outcomes[outcome] += 1
                self.done += 1

    def call(self, api, call, streams):
        if call % 4 == 0:
            answer = api.embeddings.with_raw_response.create(model="m", input=str(call))
            assert len(answer.parse().data[0].embedding) == 16
        elif streams and call % 4 == 1:
            answer = api.chat.completions.with_raw_response.create(model="m", messages=MESSAGES, stream=True)
            words = [chunk.choices[0].delta.content or "" for chunk in answer.parse()]
            assert "".join(words) == "you said How are you? with ünïcödé ", words
        else:
            answer = api.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
            assert answer.parse().choices[0].message.content.startswith("you said")
        return answer.headers["parm-outcome"]

    def ends(self, what):
        [thread.join(90) for thread in self.threads]
        alive = sum(thread.is_alive() for thread in self.threads)
        assert not alive and not self.failed, f"{what}: {len(self.failed)} failed, {alive} clients wait: {self.failed[:3]}"
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        print(f"  ok  {what}: no call failed ({outcomes})")


def replica_dies(parm, fleet):
    load = Load(parm, 600, streams=False)
    until("a third of the calls are done", lambda: load.done > 200)
    os.killpg(fleet.servers[1].process.pid, signal.SIGKILL)
    load.ends("one of two replicas killed at the 200th of 600 calls")
    # Streams that begin now are for the other replica.
    Load(parm, 80, streams=True).ends("80 calls with streams on the replica that is left")
    fleet.restart(1)
    wait_for_instances(parm, 2)


def replica_stops(parm, fleet):
    Load(parm, 300, streams=True).ends("300 calls with streams before a replica stops")
    process = fleet.servers[0].process.pid
    load = Load(parm, 400, streams=False)
    until("a quarter of the calls are done", lambda: load.done > 100)
    os.killpg(process, signal.SIGSTOP)
    try:
        load.ends("one of two replicas stopped (SIGSTOP) at the 100th of 400 calls")
        assert load.outcomes["hedged"] > 0, load.outcomes
        Load(parm, 120, streams=True).ends("120 calls with streams while it is stopped")
    finally:
        os.killpg(process, signal.SIGCONT)
    wait_for_instances(parm, 2)


def stream_breaks(parm, fleet):
    """A replica dies in the middle of a stream: the client gets an error, and no piece of another answer."""
    stream = client(parm.http).chat.completions.create(model="endless", messages=MESSAGES, stream=True)
    for _ in range(20):
        next(stream)
    running = [server for server in fleet.servers if server.process.poll() is None]
    [os.killpg(server.process.pid, signal.SIGKILL) for server in running]
    try:
        for _ in stream:
            pass
        raise AssertionError("the stream ended as if it were whole")
    except openai.APIError as error:
        assert "PARM-0020" in f"{error.code} {error}", repr(error)
    print("  ok  a stream whose replica is killed ends with openai.APIError, code PARM-0020")


def check(parm, fleet):
    replica_dies(parm, fleet)
    replica_stops(parm, fleet)
    stream_breaks(parm, fleet)
