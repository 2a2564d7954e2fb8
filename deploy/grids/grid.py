#!/usr/bin/env python3
"""Runs the cells of one command as Ray tasks, the longest first, in a folder that all nodes see.

    python deploy/grids/grid.py experiment tail.toml --simulate --results /shared/tail

RAY_ADDRESS names the cluster. A lost worker's cell runs again once its lease expires (--lease, 60 s).
"""

import json
import os
import subprocess
import sys

import ray

COMMAND = [os.environ.get("PARM", "parm"), *sys.argv[1:]]


@ray.remote(max_retries=5, retry_exceptions=True)
def run(key):
    done = subprocess.run([*COMMAND, "--cell", key], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)


listed = json.loads(subprocess.check_output([*COMMAND, "--list", "--output", "json"]))
cells = [cell for cell in listed["cells"] if cell["state"] != "done"]
cells.sort(key=lambda cell: -cell["estimate_s"])
ray.init()
cpus = int(os.environ.get("CPUS", "1"))
tasks = {run.options(name=cell["name"], num_cpus=cpus).remote(cell["key"]): cell for cell in cells}
while tasks:
    [ended], _ = ray.wait(list(tasks))
    ray.get(ended)
    print(f"{tasks.pop(ended)['name']}: done, {len(tasks)} left", flush=True)
