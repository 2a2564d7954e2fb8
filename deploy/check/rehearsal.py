#!/usr/bin/env python3
"""A rollout without a cluster: the manifests' own configurations and times, real processes, DNS as old as CoreDNS may have it.

In a network and a mount of its own stand workers on addresses of the loopback network, a frontend that asks for
`parm-workers` as in a pod (search list, ndots 5), and a name server whose answers live for 30 s. Three workers are replaced
as a Deployment does it (one more at a time, the next when the new one was ready for minReadySeconds) while clients ask
without a pause. No request may fail. The same again with minReadySeconds 0 must fail some: else it would be superfluous.
Then the frontend is asked to end. Takes five minutes and wants root. Usage: rehearsal.py TOOLS PARM
"""

import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
NAME = "parm-workers.ml.svc.cluster.local"
RESOLV = "search ml.svc.cluster.local svc.cluster.local cluster.local\nnameserver 127.0.0.53\noptions ndots:5\n"
LIVES = 30
BODY = json.dumps({"inputs": [{"name": "image", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.5] * 784}]}).encode()


class Names(threading.Thread):
    """A name server that answers with what it knew up to 30 s ago."""

    def __init__(self):
        super().__init__(daemon=True)
        self.addresses, self.answer, self.read = [], [], -LIVES
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.53", 53))

    def run(self):
        while True:
            question, client = self.socket.recvfrom(4096)
            labels, at = [], 12
            while question[at]:
                labels.append(question[at + 1 : at + 1 + question[at]].decode())
                at += 1 + question[at]
            kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
            known = ".".join(labels).lower() == NAME
            if time.monotonic() - self.read >= LIVES:
                self.answer, self.read = list(self.addresses), time.monotonic()
            found = self.answer if known and kind == 1 else []
            head = question[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, len(found), 0, 0)
            answers = [struct.pack(">HHHIH", 0xC00C, 1, 1, LIVES, 4) + socket.inet_aton(address) for address in found]
            self.socket.sendto(head + question[12 : at + 5] + b"".join(answers), client)


class Clients:
    """Threads that ask one after another, and remember what failed."""

    def __init__(self):
        self.answered, self.failed, self.ends = 0, [], False
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(4)]
        for thread in self.threads:
            thread.start()

    def ask(self):
        while not self.ends:
            request = urllib.request.Request("http://127.0.0.1:8000/v2/models/fashion-linear/infer", BODY)
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    answer.read()
                self.answered += 1
            except urllib.error.HTTPError as error:
                self.failed.append(f"{error.code}: {error.read().decode()[:150]}")
            except OSError as error:
                self.failed.append(str(error))
            time.sleep(0.02)

    def counts(self):
        """Answered and failed since the last time."""
        counts = self.answered, list(self.failed)
        self.answered, self.failed = 0, []
        return counts


def status(url):
    """The status of a page; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def until(what, holds, seconds):
    """Waits for something, for so long."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Pool:
    """Workers, as a Deployment replaces them."""

    def __init__(self, parm, names, log):
        self.parm, self.names, self.log, self.last, self.pods = parm, names, log, 0, {}

    def start(self):
        """A new pod; DNS knows it at once (publishNotReadyAddresses)."""
        self.last += 1
        address = f"127.0.1.{self.last}"
        command = [self.parm, "worker", "--config", DEPLOY / "kubernetes/worker/worker.toml", "--models", DEPLOY.parent / "models"]
        command += ["--set", 'backend.load=["fashion-linear"]', "--http", f"{address}:8000", "--grpc", f"{address}:8001"]
        self.pods[address] = subprocess.Popen([*command, "--metrics", f"{address}:8002"], stdout=self.log, stderr=self.log)
        self.names.addresses.append(address)
        until(f"{address} is ready", lambda: status(f"http://{address}:8000/v2/health/ready") == 200, 60)

    def stop(self, address):
        """An old pod gets SIGTERM; its address goes when it has ended."""
        process = self.pods.pop(address)
        process.send_signal(signal.SIGTERM)

        def ended():
            if process.wait(timeout=30):
                print(f"  {address} ended badly", flush=True)
            self.names.addresses.remove(address)

        thread = threading.Thread(target=ended)
        thread.start()
        return thread

    def replace(self, ready_seconds):
        """A rollout with maxSurge 1 and maxUnavailable 0."""
        ending = []
        for old in list(self.pods):
            self.start()
            time.sleep(ready_seconds)
            ending.append(self.stop(old))
        for thread in ending:
            thread.join()


def rehearse(tools, parm):
    """The whole of it, inside."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    resolv = pathlib.Path(tools) / "resolv.conf"
    resolv.write_text(RESOLV)
    subprocess.run(["mount", "--bind", str(resolv), "/etc/resolv.conf"], check=True)
    deployment = yaml.safe_load((DEPLOY / "kubernetes/worker/deployment.yaml").read_text())
    pause = deployment["spec"]["minReadySeconds"]
    config = DEPLOY / "kubernetes/frontend/frontend.toml"
    server = tomllib.loads(config.read_text())["server"]
    names = Names()
    names.start()
    log = open(pathlib.Path(tools) / "rehearsal.log", "w")
    pool = Pool(parm, names, log)
    for _ in range(3):
        pool.start()
    command = [parm, "serve", "--config", config, "--http", "127.0.0.1:8000", "--grpc", "127.0.0.1:8001", "--metrics", "127.0.0.1:8002"]
    frontend = subprocess.Popen(command, stdout=log, stderr=log)

    def instances():
        with urllib.request.urlopen("http://127.0.0.1:8003/admin/v1/instances", timeout=2) as answer:
            return [each for each in json.load(answer) if each["in_service"]]

    try:
        until("the frontend is ready", lambda: status("http://127.0.0.1:8000/v2/health/ready") == 200, 60)
        until("it knows all three", lambda: len(instances()) == 3, 60)
        print("  ok  three workers found by the name in the manifest", flush=True)
        clients = Clients()
        time.sleep(5)
        clients.counts()
        pool.replace(pause)
        answered, failed = clients.counts()
        if failed or answered < 1000:
            raise SystemExit(f"a rollout with minReadySeconds {pause} failed {len(failed)} requests, and {answered} were answered: {failed[:3]}")
        print(f"  ok  a rollout with minReadySeconds {pause}: {answered} requests, none failed", flush=True)
        until("it knows the new three", lambda: len(instances()) == 3, 90)
        pool.replace(0)
        time.sleep(5)
        answered, failed = clients.counts()
        if not failed:
            raise SystemExit(f"a rollout with minReadySeconds 0 failed none of {answered} requests: what is it for?")
        print(f"  ok  with minReadySeconds 0 it fails requests: {len(failed)}, such as {failed[0]}", flush=True)
        until("it knows the newest three", lambda: len(instances()) == 3, 90)
        time.sleep(2)
        clients.counts()
        began = time.monotonic()
        frontend.send_signal(signal.SIGTERM)
        until("readiness is false", lambda: status("http://127.0.0.1:8000/v2/health/ready") == 503, 5)
        time.sleep(server["drain_delay_ms"] / 1000 - 5)
        answered, failed = clients.counts()
        if failed or not answered:
            raise SystemExit(f"while it drains a frontend failed {len(failed)} requests, and {answered} were answered: {failed[:3]}")
        clients.ends = True
        for thread in clients.threads:
            thread.join()
        if frontend.wait(timeout=60):
            raise SystemExit("the frontend ended badly")
        took = time.monotonic() - began
        print(f"  ok  a frontend that ends: not ready at once, {answered} requests answered meanwhile, gone after {took:.0f} s", flush=True)
    finally:
        for process in [frontend, *pool.pods.values()]:
            process.terminate()


def main(tools, parm, inside=""):
    """Goes into a network and a mount of its own first."""
    if inside:
        return rehearse(tools, parm)
    if os.geteuid():
        print("  skipped: the rehearsal, for only root may have a network of its own")
        return None
    arguments = [sys.executable, "-u", __file__, str(pathlib.Path(tools).resolve()), str(pathlib.Path(parm).resolve()), "inside"]
    sys.exit(subprocess.run(["unshare", "--mount", "--net", *arguments]).returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
