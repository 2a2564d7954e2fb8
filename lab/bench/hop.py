"""One pass-through hop: parm compared with nginx, haproxy and Envoy, as proxies to the same worker in the same run.

There are two figures per proxy: the added p50 at one request in flight, and requests per second of its own CPU time at
sixteen. The rounds are interleaved (direct, parm, nginx, haproxy, Envoy, direct, ...), so that a busy machine slows all
alike; the table has medians over the rounds. Run by `just bench-hop`; needs wrk, nginx and haproxy on the path.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import tempfile

from processes import Parm, Server, free_port

MODEL = "null"
# The settings of the other proxies: no redundancy, and no limit per worker. By default parm hedges and gives an instance
# one batch at a time.
PASS_THROUGH = ["--policy", "none", "--set", "frontend.instances.slots=16"]


def body(floats):
    """Returns a binary request of one row of FP32 values, as tritonclient sends it."""
    header = json.dumps({"inputs": [{"name": "input", "shape": [1, floats], "datatype": "FP32",
                                     "parameters": {"binary_data_size": 4 * floats}}],
                         "parameters": {"binary_data_output": True}}).encode()
    return header, struct.pack(f"<{floats}f", *(i / floats for i in range(floats)))


def wrk_script(folder, floats):
    header, blob = body(floats)
    binary = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": len(header)}
    return script_of(pathlib.Path(folder) / "request", header + blob, binary)


def script_of(path, payload, headers):
    """Writes a script with which wrk posts these bytes and prints the line that `load` reads."""
    path.with_suffix(".bin").write_bytes(payload)
    lines = "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in headers.items())
    script = path.with_suffix(".lua")
    script.write_text(f"""
wrk.method = "POST"
{lines}local file = io.open("{path.with_suffix(".bin")}", "rb"); wrk.body = file:read("*a"); file:close()
done = function(summary, latency, requests)
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout))
end
""")
    return script


def nginx(folder, port, upstream):
    config = pathlib.Path(folder) / "nginx.conf"
    config.write_text(f"""
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_buffer_size 1m; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 100000000;
  upstream worker {{ server {upstream}; keepalive 64; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://worker; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}""")
    return ["nginx", "-c", str(config), "-e", "stderr"]


def haproxy(folder, port, upstream):
    config = pathlib.Path(folder) / "haproxy.cfg"
    config.write_text(f"""
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server worker {upstream}
""")
    return ["haproxy", "-db", "-q", "-f", str(config)]


def envoy(folder, port, upstream):
    address, upstream_port = upstream.split(":")
    socket = lambda a, p: {"socket_address": {"address": a, "port_value": int(p)}}  # noqa: E731
    router = {"name": "envoy.filters.http.router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}
    manager = {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3."
                        "HttpConnectionManager",
               "stat_prefix": "hop", "http_filters": [router],
               "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                   {"match": {"prefix": "/"}, "route": {"cluster": "worker", "timeout": "60s"}}]}]}}
    config = {"static_resources": {
        "listeners": [{"address": socket("127.0.0.1", port), "filter_chains": [{"filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}],
        "clusters": [{"name": "worker", "type": "STATIC", "connect_timeout": "5s", "load_assignment": {
            "cluster_name": "worker", "endpoints": [{"lb_endpoints": [
                {"endpoint": {"address": socket(address, upstream_port)}}]}]}}]}}
    path = pathlib.Path(folder) / "envoy.json"
    path.write_text(json.dumps(config))
    return ["envoy", "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]


def processor_seconds(pid):
    """Returns the CPU time of a process and all its children, as accounted by the kernel."""
    parents, ticks = {}, {}
    for process in pathlib.Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(process.name)] = int(fields[1])
        ticks[int(process.name)] = int(fields[11]) + int(fields[12])

    def is_of(process):
        while process in parents and process != pid:
            process = parents[process]
        return process == pid

    return sum(used for process, used in ticks.items() if is_of(process)) / os.sysconf("SC_CLK_TCK")


def load(script, address, connections, seconds, model=MODEL):
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script),
               f"http://{address}/v2/models/{model}/infer"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    requests, _, p50, p99, errors = map(int, re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", out).groups())
    if errors or not requests:
        raise SystemExit(f"{address}: {errors} errors in {requests} requests: the run is invalid")
    return requests, p50, p99


def measure(targets, script, rounds, seconds):
    results = {name: {"p50": [], "p99": [], "per_core": [], "rate": []} for name in targets}
    for _ in range(rounds):
        for name, (address, pid) in targets.items():
            _, p50, p99 = load(script, address, 1, seconds)
            results[name]["p50"].append(p50)
            results[name]["p99"].append(p99)
        for name, (address, pid) in targets.items():
            before = processor_seconds(pid)
            requests, _, _ = load(script, address, 16, seconds)
            results[name]["per_core"].append(requests / max(processor_seconds(pid) - before, 1e-9))
            results[name]["rate"].append(requests / seconds)
    return results


def table(results, floats):
    direct = statistics.median(results["direct"]["p50"])
    envoy_rate = statistics.median(results["envoy"]["per_core"]) if "envoy" in results else None
    lines = ["| through | p50, 1 in flight (us) | added p50 (us) | p99, 1 in flight (us) | requests/s, 16 in flight "
             "| MB/s | requests per CPU second of the proxy | against Envoy |", "|---|---|---|---|---|---|---|---|"]
    for name, result in results.items():
        p50, p99, per_core, rate = (statistics.median(result[key]) for key in ("p50", "p99", "per_core", "rate"))
        proxy = name != "direct"
        ratio = f"{per_core / envoy_rate:.2f}x" if proxy and envoy_rate else ""
        lines.append(f"| {name} | {p50:.0f} | {f'{p50 - direct:.0f}' if proxy else ''} | {p99:.0f} | {rate:.0f} | {rate * 4 * floats / 1e6:.0f} | "
                     f"{f'{per_core:.0f}' if proxy else ''} | {ratio} |")
    return "\n".join(lines)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=int, default=3)
    arguments.add_argument("--floats", type=int, default=784, help="FP32 values in a request (784 are 3 KB)")
    arguments.add_argument("--envoy", help="path of an envoy binary; left out when absent")
    options = arguments.parse_args()
    found = run(options)
    print(f"{options.floats} FP32 values a request, {options.rounds} rounds of {options.seconds} s, medians\n")
    print(table(found, options.floats))


def run(options):
    """Returns the readings of every proxy, by name."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        os.chmod(folder, 0o755)
        script = wrk_script(folder, options.floats)
        worker_config = pathlib.Path(folder) / "worker.toml"
        null = (pathlib.Path(__file__).parent / "null-worker.toml").read_text()
        worker_config.write_text(null.replace("[784]", f"[{options.floats}]"))
        # Frontends share a worker; here each one has its own.
        workers = [running.enter_context(Parm("worker", "--config", str(worker_config))) for _ in range(4)]
        for worker in workers:
            worker.wait_for_model(MODEL)
        direct, *others = (worker.http for worker in workers)
        # One thread, like nginx and Envoy; only the proxies are limited, not the workers.
        os.environ["TOKIO_WORKER_THREADS"] = "1"
        ways = {
            "parm": lambda http: ["serve", "--worker", f"http://{http}", *PASS_THROUGH],
            "parm, as it comes": lambda http: ["serve", "--worker", f"http://{http}"],
            "parm, any server": lambda http: ["serve", "--upstream", f"http://{http}"],
        }
        targets = {"direct": (direct, workers[0].process.pid)}
        for (name, way), http in zip(ways.items(), others):
            proxy = running.enter_context(Parm(*way(http)))
            proxy.wait_for_model(MODEL)
            targets[name] = (proxy.http, proxy.process.pid)
        makers = {"nginx": nginx, "haproxy": haproxy}
        if options.envoy:
            makers["envoy"] = lambda *a: [options.envoy, *envoy(*a)[1:]]
        for name, maker in makers.items():
            port = free_port()
            proxy = Server(maker(folder, port, direct), f"http://127.0.0.1:{port}/v2/health/ready")
            targets[name] = (f"127.0.0.1:{port}", running.enter_context(proxy).process.pid)
        del os.environ["TOKIO_WORKER_THREADS"]
        return measure(targets, script, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
