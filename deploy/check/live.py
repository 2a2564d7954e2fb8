#!/usr/bin/env python3
"""Rules and dashboard on a real Prometheus that scrapes real processes: a frontend and three workers, one of them slow.

promtool's tests know only the series that somebody wrote into them. Here the scrape, the names and the labels are real, and
after half a minute the slow worker has to stand out: by the frontends' times and by its own clock. Panels of what cannot
happen here (stand-ins, codes) are empty, and no others. Usage: live.py TOOLS PARM PROMETHEUS
"""

import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import expressions
import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
MODEL = 'backend.emulated.m={{input=[4], outputs=2, time_ms={{kind="constant", value={}}}}}'
# Milliseconds that a run takes: long, so that a machine with other work to do changes little.
USUAL, SLOW = 100, 800
BODY = json.dumps({"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
# Panels and alerts of what does not happen here.
EMPTY = {
    "Stand-ins",
    "Agreement of stand-ins",
    "Groups and reconstructions",
    "parm:approximate:ratio5m",
    "Requests refused or failed",
    "Jobs that workers failed",
}


def get(url):
    """JSON of a page."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def started(command, ready, log):
    """A process of ours, and where it listens."""
    ready.unlink(missing_ok=True)
    process = subprocess.Popen([*map(str, command), "--ready-file", str(ready)], stdout=log, stderr=log)
    end = time.monotonic() + 60
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{command[1]} does not start: see {log.name}")
        time.sleep(0.05)
    return process, json.loads(ready.read_text())


def prometheus(program, folder, targets, log):
    """Prometheus with the configuration in the box, but these targets and a faster clock."""
    config = yaml.safe_load((DEPLOY / "prometheus/scrape.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus/rules.yaml")]
    for job in config["scrape_configs"]:
        job["static_configs"][0]["targets"] = targets[job["job_name"]]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    # Port 0 is not told anywhere, so one is taken that is free now.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    return process, f"http://127.0.0.1:{port}/api/v1"


def asked(api, expression):
    """What an expression gives: (labels, value) of each series."""
    answer = get(f"{api}/query?{urllib.parse.urlencode({'query': expression})}")
    if answer["status"] != "success":
        raise SystemExit(f"{expression}: {answer}")
    return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]


def observe(api, slow, slow_pod):
    """What is to be seen: the slow worker, its alert, and no panel empty that should not be."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        time.sleep(1)
        try:
            frontends = {labels["exported_instance"]: value for labels, value in asked(api, "max by (exported_instance) (parm_instance_slow)")}
            own = {labels["pod"]: value for labels, value in asked(api, "parm:pod_slowness:ratio10m")}
            alerts = get(f"{api}/alerts")["data"]["alerts"]
        except (OSError, ValueError):
            continue
        told = {alert["labels"].get("exported_instance") for alert in alerts if alert["labels"]["alertname"] == "ParmRecyclePod"}
        if frontends.get(slow, 0) > 2 and own.get(slow_pod, 0) > 2 and slow in told:
            break
    else:
        raise SystemExit(f"the slow worker does not stand out: {frontends}, {own}, {told}")
    others = [value for name, value in frontends.items() if name != slow]
    if told != {slow} or max(others) > 1.5:
        raise SystemExit(f"others stand out too: {frontends}, {told}")
    found, _ = expressions.expressions()
    silent = set()
    for place, text in found:
        text = text.replace("$__rate_interval", "1m").replace("$namespace", ".*").replace("$model", ".*")
        if not asked(api, text) and not place.startswith("Parm"):
            silent.add(place)
    if silent - EMPTY - {"adapter"}:
        raise SystemExit(f"empty, with nothing wrong: {silent - EMPTY}")
    print(f"  ok  the slow worker is {frontends[slow]:.1f} times the usual for frontends, {own[slow_pod]:.1f} by its own clock")
    print(f"  ok  {len(found)} expressions asked; of what does not happen here there is nothing: {', '.join(sorted(silent))}")


def main(tools, parm, program):
    """Starts everything, and ends it."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=tools, prefix="live-"))
    processes, ends = [], threading.Event()
    with open(folder / "log", "w") as log:
        try:
            workers = []
            for number in (1, 2, 3):
                own = [f"--{port}=127.0.0.{number}:0" for port in ("http", "grpc", "metrics")]
                time_ms = SLOW if number == 3 else USUAL
                command = [parm, "worker", *own, "--instances=1", "--set", MODEL.format(time_ms)]
                process, where = started(command, folder / "ready", log)
                processes.append(process)
                workers.append(where)
            command = [parm, "serve", "--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--metrics=127.0.0.1:0"]
            # If it were ejected or avoided, it would get probes only, and it would take minutes to tell.
            command += ["--set", "frontend.dispatch.ejection.enabled=false", "--set", 'frontend.dispatch.placement="turns"']
            command += [part for where in workers for part in ("--worker", f"http://{where['http']}")]
            process, frontend = started(command, folder / "ready", log)
            processes.append(process)
            targets = {"parm-frontend": [frontend["metrics"]], "parm-worker": [where["metrics"] for where in workers]}
            process, api = prometheus(program, folder, targets, log)
            processes.append(process)

            def ask():
                while not ends.is_set():
                    request = urllib.request.Request(f"http://{frontend['http']}/v2/models/m/infer", BODY)
                    try:
                        with urllib.request.urlopen(request, timeout=20) as answer:
                            answer.read()
                    except OSError:
                        # It ends when this does; before, the panels would tell.
                        ends.wait(0.1)
                    time.sleep(0.005)

            clients = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
            time.sleep(2)
            for client in clients:
                client.start()
            observe(api, f"http://{workers[2]['http']}", workers[2]["metrics"])
            ends.set()
            for client in clients:
                client.join()
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(timeout=60)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
