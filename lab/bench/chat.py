"""Times to first token through parm and through other proxies, over four emulated replicas of a language model.

Recorded chats are replayed with real processes. Every world runs through every proxy in turn: all replicas well, one 2.4 times
slower for good, one that stands still for 30 seconds. `envoy SECONDS` tries another replica after so long (needs Envoy on the path).
Run by `just bench-chat`; needs nginx and haproxy on the path.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import tempfile
import urllib.request

import hop
from hop import processor_seconds
from processes import PARM, ROOT, Parm, Server, free_port

REPLICAS = 4
TRACE = ROOT / "core/workload/profiles/azure-conversations.csv"
WORLDS = {
    "healthy": {},
    "sick": {"slowdown": 2.4},
    "still": {"schedule": {"instances": 1, "faults": [
        {"kind": "hang", "when": {"kind": "every", "at_ms": 60_000, "every_ms": 360_000, "length_ms": 30_000}}]}},
}


def nginx(folder, port, servers):
    lines = "".join(f"server {server}; " for server in servers)
    config = pathlib.Path(folder) / "nginx.conf"
    config.write_text(f"""
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_buffer_size 1m; client_max_body_size 64m; client_body_temp_path {folder}/b;
  proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream replicas {{ least_conn; {lines} keepalive 256; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 600s; }} }}
}}""")
    return ["nginx", "-c", str(config), "-e", "stderr"]


def haproxy(folder, port, servers):
    lines = "".join(f"  server s{number} {server}\n" for number, server in enumerate(servers))
    config = pathlib.Path(folder) / "haproxy.cfg"
    config.write_text(f"""
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  balance leastconn
{lines}""")
    return ["haproxy", "-db", "-q", "-f", str(config)]


def envoy(folder, port, servers, seconds):
    """Envoy that gives a request to the replica with the fewest, and to another one if an attempt has no head in time."""
    command = hop.envoy(folder, port, servers[0])
    path = pathlib.Path(folder) / "envoy.json"
    config = json.loads(path.read_text())["static_resources"]
    manager = config["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"] |= {"timeout": "600s", "retry_policy": {
        "retry_on": "5xx,reset,connect-failure", "num_retries": 3, "per_try_timeout": f"{seconds}s",
        "host_selection_retry_max_attempts": 5, "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}]}}
    cluster = config["clusters"][0]
    cluster["lb_policy"] = "LEAST_REQUEST"
    addresses = [dict(zip(("address", "port_value"), (server.split(":")[0], int(server.split(":")[1])))) for server in servers]
    cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
        {"endpoint": {"address": {"socket_address": address}}} for address in addresses]
    path.write_text(json.dumps({"static_resources": config}))
    return command


@contextlib.contextmanager
def through(proxy, servers):
    """The address of a proxy over these servers, and its process."""
    urls = [argument for server in servers for argument in ("--upstream", f"http://{server}")]
    with tempfile.TemporaryDirectory() as folder:
        if proxy.startswith("parm"):
            policy = "none" if proxy == "parm none" else "hedge"
            with Parm("serve", *urls, "--policy", policy) as parm:
                yield parm.http, parm.process.pid
        else:
            port = free_port()
            if proxy.startswith("envoy"):
                command = envoy(folder, port, servers, proxy.split()[1])
            else:
                command = {"nginx least_conn": nginx, "haproxy leastconn": haproxy}[proxy](folder, port, servers)
            with Server(command, f"http://127.0.0.1:{port}/health") as server:
                yield f"127.0.0.1:{port}", server.process.pid


def plan(replica, faults):
    request = urllib.request.Request(f"http://{replica.metrics}/faults", json.dumps(faults).encode(), method="POST")
    urllib.request.urlopen(request, timeout=10).read()


def replay(address, trace, speed):
    command = [PARM, "load", f"http://{address}", "--openai", "--model", "chat", "--arrivals", f"trace:{trace}",
               "--speed", str(speed), "--warm-up", "10", "--allow-failed", "100", "--output", "json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7200)
    if not done.stdout.strip().startswith("{"):
        raise SystemExit(f"parm load failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", default=TRACE)
    parser.add_argument("--speed", type=float, default=1.4)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--proxies", default="nginx least_conn,haproxy leastconn,parm none,parm hedge")
    parser.add_argument("--out", help="file for the reports as JSON")
    flags = parser.parse_args()
    reports = []
    for world in flags.worlds.split(","):
        for proxy in flags.proxies.split(","):
            with contextlib.ExitStack() as stack:
                # New replicas each time: the schedule of faults begins with the process.
                replicas = [stack.enter_context(Parm("worker", "--emulate-chat", "chat", "--faults"))
                            for _ in range(REPLICAS)]
                address, pid = stack.enter_context(through(proxy, [replica.http for replica in replicas]))
                plan(replicas[0], WORLDS[world])
                before = processor_seconds(pid)
                report = replay(address, flags.trace, flags.speed)
                used = processor_seconds(pid) - before
            reports.append({"world": world, "proxy": proxy, "cpu_seconds": used, "report": report})
            print(line(world, proxy, used, report), flush=True)
    if flags.out:
        pathlib.Path(flags.out).write_text(json.dumps(reports, indent=1))


def line(world, proxy, used, report):
    chats = report["chats"]
    known = [one for one in report["latency"] if one["ms"] is not None]
    shown = ", ".join(f"p{100 * one['share']:g} {one['ms'] / 1e3:.3f}" for one in known)
    shown += f", longest {report['max_ms'] / 1e3:.2f}"
    per_token = 1e6 * used / max(chats["output_tokens"], 1)
    return (f"{world:8} {proxy:18} first token in seconds: {shown}; {chats['answered']} of {report['sent']} answered; "
            f"{per_token:.0f} us of the proxy's CPU a token; {'valid' if report['validity']['valid'] else 'INVALID'}")


if __name__ == "__main__":
    main()
