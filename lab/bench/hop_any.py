"""One hop of what parm does not read: CPU of an opaque JSON request and of a streamed chunk, next to nginx, haproxy and Envoy.

Opaque requests are 1 KB of JSON for nginx, which answers at once. Streams are answers of `parm worker --emulate-chat`, 100 tokens each,
a chunk per token. Proxies have one thread each. The rounds are interleaved, the table has medians over the rounds. Run by
`just bench-hop-any`; needs wrk, nginx and haproxy on the path.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import urllib.request

from hop import envoy, haproxy, nginx, processor_seconds, script_of
from processes import Parm, Server, free_port

TOKENS = 100
# All streams get a token in each iteration: 8,000 chunks a second for 64 streams.
EMULATED = ["--emulate-chat", "tiny", "--set", "backend.chat.iteration_ms=8"]
WAYS = {"parm, as it comes": [], "parm, pass-through": ["--policy", "none"]}


def answering(folder, port):
    """nginx that answers every request itself."""
    config = pathlib.Path(folder) / "answering.conf"
    answer = json.dumps({"predictions": [[0.1 * index for index in range(10)]]})
    config.write_text(f"""
daemon off; worker_processes 1; pid {folder}/answering.pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_buffer_size 1m; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 100000000;
  server {{ listen 127.0.0.1:{port}; default_type application/json; location / {{ return 200 '{answer}'; }} }} }}""")
    return ["nginx", "-c", str(config), "-e", "stderr"]


def unbuffered(folder, port, upstream):
    """nginx as a proxy that passes each chunk on."""
    command = nginx(folder, port, upstream)
    config = pathlib.Path(folder) / "nginx.conf"
    config.write_text(config.read_text().replace("proxy_pass", "proxy_buffering off; proxy_pass"))
    return command


def load(script, address, path, connections, seconds):
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(script), f"http://{address}{path}"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    requests, _, p50, _, errors = map(int, re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", out).groups())
    if errors or not requests:
        raise SystemExit(f"{address}: {errors} errors in {requests} requests: the run is invalid")
    return requests, p50


def tokens_of(worker):
    with urllib.request.urlopen(f"http://{worker.metrics}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(r"^parm_chat_output_tokens_total(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE))


@contextlib.contextmanager
def proxies(options, folder, address, nginx_config):
    """The address and the process of each proxy over one server, by name."""
    with contextlib.ExitStack() as running:
        targets = {}
        os.environ["TOKIO_WORKER_THREADS"] = "1"
        for name, flags in WAYS.items():
            parm = running.enter_context(Parm("serve", "--upstream", f"http://{address}", *flags, log=subprocess.DEVNULL))
            targets[name] = (parm.http, parm.process.pid)
        del os.environ["TOKIO_WORKER_THREADS"]
        makers = {"nginx": nginx_config, "haproxy": haproxy}
        if options.envoy:
            makers["envoy"] = lambda *a: [options.envoy, *envoy(*a)[1:]]
        for name, maker in makers.items():
            port = free_port()
            proxy = Server(maker(folder, port, address), f"http://127.0.0.1:{port}/health")
            targets[name] = (f"127.0.0.1:{port}", running.enter_context(proxy).process.pid)
        yield targets


def opaque(options, folder):
    """Microseconds of a proxy's CPU per request, and added p50, by name."""
    body = json.dumps({"instances": [[round(0.01 * index, 2) for index in range(150)]]}).encode()
    script = script_of(pathlib.Path(folder) / "opaque", body, {"Content-Type": "application/json"})
    port = free_port()
    with Server(answering(folder, port), f"http://127.0.0.1:{port}/health"), \
            proxies(options, folder, f"127.0.0.1:{port}", nginx) as targets:
        results = {name: [] for name in targets}
        direct = []
        for _ in range(options.rounds):
            direct.append(load(script, f"127.0.0.1:{port}", "/predict", 1, options.seconds)[1])
            for name, (address, pid) in targets.items():
                _, p50 = load(script, address, "/predict", 1, options.seconds)
                before = processor_seconds(pid)
                requests, _ = load(script, address, "/predict", 16, options.seconds)
                used = processor_seconds(pid) - before
                results[name].append((1e6 * used / requests, p50 - direct[-1], requests / options.seconds))
    return results


def streamed(options, folder):
    """Microseconds of a proxy's CPU per streamed chunk, by name."""
    body = {"model": "tiny", "stream": True, "max_tokens": TOKENS, "messages": [{"role": "user", "content": "Tell me."}]}
    script = script_of(pathlib.Path(folder) / "stream", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with Parm("worker", *EMULATED, log=subprocess.DEVNULL) as worker, proxies(options, folder, worker.http, unbuffered) as targets:
        results = {name: [] for name in targets}
        for _ in range(options.rounds):
            for name, (address, pid) in targets.items():
                before, tokens = processor_seconds(pid), tokens_of(worker)
                load(script, address, "/v1/chat/completions", 64, options.seconds)
                used, chunks = processor_seconds(pid) - before, tokens_of(worker) - tokens
                results[name].append((1e6 * used / chunks, chunks / options.seconds))
    return results


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=3)
    arguments.add_argument("--envoy", help="path of an envoy binary; left out when absent")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        median = lambda rows, at: statistics.median(row[at] for row in rows)  # noqa: E731
        found = opaque(options, folder)
        usual = median(found["nginx"], 0)
        print("| through | CPU per request (us) | to nginx | added p50, 1 in flight (us) | requests/s, 16 in flight |")
        print("|---|---|---|---|---|")
        for name, rows in found.items():
            print(f"| {name} | {median(rows, 0):.1f} | {median(rows, 0) / usual:.2f} | {median(rows, 1):.0f} | {median(rows, 2):.0f} |")
        found = streamed(options, folder)
        usual = median(found["nginx"], 0)
        print("\n| through | CPU per chunk (us) | to nginx | chunks/s, 64 streams |\n|---|---|---|---|")
        for name, rows in found.items():
            print(f"| {name} | {median(rows, 0):.1f} | {median(rows, 0) / usual:.2f} | {median(rows, 1):.0f} |")


if __name__ == "__main__":
    main()
