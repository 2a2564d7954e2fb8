#!/usr/bin/env python3
"""Runs the shares of one command as Ray tasks, in a folder that all nodes see.

    SHARES=32 python deploy/grids/grid.py experiment tail.toml --simulate --results /shared/tail

RAY_ADDRESS names the cluster, CPUS the processors of a task. Ray starts a lost task again, which skips the cells that have a
result.
"""

import os
import subprocess
import sys

import ray

COMMAND = [os.environ.get("PARM", "parm"), *sys.argv[1:]]
SHARES = int(os.environ.get("SHARES", "4"))


@ray.remote(max_retries=5, retry_exceptions=True)
def run(index):
    done = subprocess.run([*COMMAND, "--share", f"{index}/{SHARES}"], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)


ray.init()
cpus = int(os.environ.get("CPUS", "1"))
tasks = {run.options(name=f"share {index}", num_cpus=cpus).remote(index): index for index in range(SHARES)}
while tasks:
    [ended], _ = ray.wait(list(tasks))
    ray.get(ended)
    print(f"share {tasks.pop(ended)}: done, {len(tasks)} left", flush=True)
