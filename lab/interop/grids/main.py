"""Grids on real engines; see ../grids.sh. Usage: main.py [slurm] [ray] [time]"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import slurm
import work


def on_ray(grid, kind):
    """Runs the recipe on two CPUs, and kills a worker with its cell."""
    command = [sys.executable, work.ROOT / "deploy/grids/grid.py", *grid.arguments("ray", kind, "--lease", str(work.LEASE))]
    environment = os.environ | {"PARM": work.PARM, "RAY_USAGE_STATS_ENABLED": "0", "RAY_OVERRIDE_RESOURCES": '{"CPU": 2}'}
    recipe = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 600
    while not (found := grid.victim("ray", kind)):
        if time.monotonic() > deadline or recipe.poll() is not None:
            raise SystemExit(f"ray {kind}: no cell was in its middle")
        time.sleep(0.05)
    task, lease = found
    worker = int(pathlib.Path(f"/proc/{task}/stat").read_text().rsplit(")", 1)[1].split()[1])
    subprocess.run(["kill", "-9", str(worker), str(task)], check=True)
    print(f"ray {kind}: killed a worker in the middle of {lease.name.split('.')[0]}", flush=True)
    if recipe.wait(timeout=900):
        raise SystemExit(f"ray {kind}: the recipe ended with status {recipe.returncode}")
    grid.check("ray", kind)


def user_seconds(run):
    """User time of the child processes of a call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run()
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def times(grid):
    """User time of a matrix in one process and in four shares of one folder."""
    for turn in (1, 2):
        whole = user_seconds(lambda: grid.run(f"whole-{turn}", "matrix"))
        shares = [lambda share=share: grid.run(f"shares-{turn}", "matrix", "--share", f"{share}/4") for share in range(4)]
        split = sum(map(user_seconds, shares))
        print(f"user time, turn {turn}: one process {whole:.1f} s, four shares {split:.1f} s, {split / whole:.2f}", flush=True)


def main(*parts):
    """Runs the named parts, or all."""
    with tempfile.TemporaryDirectory(prefix="parm-grids-") as scratch:
        # A build without optimisation needs less, such as 0.2.
        scale = float(os.environ.get("SCALE", "1"))
        grid = work.Work(pathlib.Path(scratch), queries=int(1e6 * scale), train=int(1e4 * scale))
        if not parts or "time" in parts:
            times(grid)
        engines = [name for name in ("slurm", "ray") if not parts or name in parts]
        for kind in grid.commands if engines else ():
            grid.run("one", kind)
        if "slurm" in engines:
            cluster = slurm.Slurm(grid.folder / "slurm", os.environ | {"PARM": work.PARM})
            try:
                for kind in grid.commands:
                    slurm.run(cluster, grid, kind)
            finally:
                cluster.stop()
        if "ray" in engines:
            for kind in grid.commands:
                on_ray(grid, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
