"""Starts the real binary (and other servers) for the interop recipes: port 0, a readiness file, no fixed sleeps."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PARM = os.environ.get("PARM_BINARY", str(ROOT / "target" / "release" / "parm"))
PATIENCE = 120.0


class Parm:
    """A running `parm serve` or `parm worker`."""

    def __init__(self, *arguments, log=None):
        self.folder = tempfile.TemporaryDirectory()
        ready = pathlib.Path(self.folder.name) / "ready.json"
        ports = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [PARM, *arguments, *ports, "--ready-file", str(ready)], cwd=ROOT, stderr=log or None
        )
        deadline = time.monotonic() + PATIENCE
        while not ready.exists():
            if self.process.poll() is not None:
                raise SystemExit(f"parm {' '.join(arguments)} ended with status {self.process.returncode}")
            if time.monotonic() > deadline:
                self.process.kill()
                raise SystemExit(f"parm {' '.join(arguments)} was not ready after {PATIENCE:.0f} s")
            time.sleep(0.02)
        addresses = json.loads(ready.read_text())
        self.http, self.grpc, self.metrics = addresses["http"], addresses["grpc"], addresses["metrics"]
        # The file reports that it listens; its workers, if any, can take longer.
        wait_for_http(f"http://{self.http}/v2/health/ready", self.process)

    def wait_for_model(self, model):
        wait_for_http(f"http://{self.http}/v2/models/{model}/ready")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.stop()
        self.process.kill()


class Server:
    """Another server, started with a command and polled until a URL answers 200."""

    def __init__(self, command, ready_url, env=None, cwd=None, log=None):
        self.process = subprocess.Popen(
            command, env={**os.environ, **(env or {})}, cwd=cwd, stdout=log, stderr=log, start_new_session=True
        )
        wait_for_http(ready_url, self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def wait_for_http(url, process=None):
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        if process is not None and process.poll() is not None:
            raise SystemExit(f"the server for {url} ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit(f"{url} did not answer 200 within {PATIENCE:.0f} s")
        time.sleep(0.1)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
