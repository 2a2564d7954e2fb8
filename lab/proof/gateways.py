"""The gateways in front of the servers: each command and configuration. README.md says why each is configured so."""

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys

from processes import free_port

# Three medians of the servers' run time: after it, the second configuration of Envoy sends another request.
TRY_SECONDS = 0.3
EXTENSIONS = "type.googleapis.com/envoy.extensions"


def nginx(binary, folder, port, servers):
    lines = "".join(f"    server {server};\n" for server in servers)
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};"
                         for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = folder / "nginx.conf"
    config.write_text(f"""{user} daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; {temporary}
  upstream servers {{
    least_conn;
{lines}    keepalive 64;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://servers; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}
  }}
}}
""")
    return [binary, "-c", config, "-e", "stderr"]


def haproxy(binary, folder, port, servers):
    lines = "".join(f"  server s{number} {server}\n" for number, server in enumerate(servers))
    config = folder / "haproxy.cfg"
    config.write_text(f"""global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option redispatch 1
frontend clients
  bind 127.0.0.1:{port}
  default_backend servers
backend servers
  balance leastconn
  option http-no-delay
  option httpchk GET /health
  default-server check inter 1s
{lines}""")
    return [binary, "-db", "-q", "-f", config]


def envoy(binary, folder, port, servers, try_seconds=None):
    def address(of):
        host, number = of.rsplit(":", 1)
        return {"socket_address": {"address": host, "port_value": int(number)}}

    retries = {"retry_on": "5xx,reset,connect-failure", "num_retries": 2, "host_selection_retry_max_attempts": 5,
               "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {
                   "@type": f"{EXTENSIONS}.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}]}
    route = {"cluster": "servers", "retry_policy": retries}
    if try_seconds:
        retries["per_try_timeout"] = f"{try_seconds}s"
        route["hedge_policy"] = {"hedge_on_per_try_timeout": True}
    router = {"name": "envoy.filters.http.router", "typed_config": {
        "@type": f"{EXTENSIONS}.filters.http.router.v3.Router"}}
    manager = {"@type": f"{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
               "stat_prefix": "proof", "http_filters": [router], "route_config": {"virtual_hosts": [
                   {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]}}
    listener = {"address": address(f"127.0.0.1:{port}"), "filter_chains": [{"filters": [
        {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}]}
    cluster = {
        "name": "servers", "type": "STATIC", "connect_timeout": "1s", "lb_policy": "LEAST_REQUEST",
        "load_assignment": {"cluster_name": "servers", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": address(server)}} for server in servers]}]},
        "health_checks": [{"timeout": "1s", "interval": "1s", "unhealthy_threshold": 2, "healthy_threshold": 1,
                           "http_health_check": {"path": "/health"}}],
        # A good health check must not return a frozen server, so it does not end an ejection.
        "outlier_detection": {"consecutive_5xx": 5, "consecutive_gateway_failure": 5,
                              "enforcing_consecutive_gateway_failure": 100, "interval": "1s",
                              "base_ejection_time": "30s", "max_ejection_percent": 50,
                              "successful_active_health_check_uneject_host": False},
        # By default three retries at a time are allowed, and waiting hedges use them up.
        "circuit_breakers": {"thresholds": [{"retry_budget": {
            "budget_percent": {"value": 20.0}, "min_retry_concurrency": 10}}]},
    }
    config = folder / "envoy.json"
    config.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}, indent=1))
    return [binary, "-c", config, "--concurrency", "1", "--disable-hot-restart", "-l", "critical"]


def envoy_hedging(binary, folder, port, servers):
    return envoy(binary, folder, port, servers, TRY_SECONDS)


def smg(binary, _, port, servers):
    return [binary, "launch", "--host", "127.0.0.1", "--port", str(port), "--policy", "power_of_two",
            "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port()), "--log-level", "error",
            "--worker-urls", *(f"http://{server}" for server in servers)]


def parm(binary, _, port, servers):
    upstreams = [word for server in servers for word in ("--upstream", f"http://{server}")]
    return [binary, "serve", *upstreams, "--http", f"127.0.0.1:{port}", "--grpc", "127.0.0.1:0",
            "--metrics", "127.0.0.1:0"]


# The program and the command of each contender, in the order of the tables.
CONTENDERS = {
    "nginx": ("nginx", nginx),
    "haproxy": ("haproxy", haproxy),
    "envoy": ("envoy", envoy),
    "envoy-hedging": ("envoy", envoy_hedging),
    "smg": ("smg", smg),
    "parm": ("parm", parm),
}


def binary_of(contender, parm_binary):
    """Returns the path of the contender's program, or none if it is not installed."""
    program = CONTENDERS[contender][0]
    if program == "parm":
        return shutil.which(parm_binary) and str(pathlib.Path(shutil.which(parm_binary)).resolve())
    environment = pathlib.Path(sys.executable).parent
    # Debian installs servers where the path of a user may not lead.
    return shutil.which(program, path=f"{environment}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def version_of(contender, binary):
    program = CONTENDERS[contender][0]
    if program == "smg":
        return importlib.metadata.version("smg")
    flag = "-v" if program in ("nginx", "haproxy") else "--version"
    done = subprocess.run([binary, flag], capture_output=True, text=True, check=False)
    return next((line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()), "unknown")
