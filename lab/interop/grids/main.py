"""Grids on real engines; see ../grids.sh. Usage: main.py [slurm] [ray] [disk] [time] [accuracy]"""

import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import disk
import slurm
import work


def on_ray(grid, kind):
    """Runs the recipe on two CPUs, and kills a worker with its cell."""
    command = [sys.executable, work.ROOT / "deploy/grids/grid.py", *grid.arguments("ray", kind)]
    environment = os.environ | {"PARM": work.PARM, "RAY_USAGE_STATS_ENABLED": "0", "RAY_OVERRIDE_RESOURCES": '{"CPU": 2}'}
    recipe = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 600
    while not (task := grid.victim("ray", kind)):
        if time.monotonic() > deadline or recipe.poll() is not None:
            raise SystemExit(f"ray {kind}: no cell was in its middle")
        time.sleep(0.05)
    worker = int(pathlib.Path(f"/proc/{task}/stat").read_text().rsplit(")", 1)[1].split()[1])
    subprocess.run(["kill", "-9", str(worker), str(task)], check=True)
    print(f"ray {kind}: killed a worker in the middle of a cell", flush=True)
    if recipe.wait(timeout=900):
        raise SystemExit(f"ray {kind}: the recipe ended with status {recipe.returncode}")
    grid.check("ray", kind)


def processor_seconds(run):
    """User and system time of the child processes of a call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def times(grid, kind, turns):
    """Processor time of a matrix in one process and in four shares of one folder, in turns."""
    for turn in range(turns):
        user, system = processor_seconds(lambda: grid.run(f"whole-{turn}", kind))
        shares = [lambda share=share: grid.run(f"shares-{turn}", kind, "--share", f"{share}/4") for share in range(4)]
        split = [processor_seconds(share) for share in shares]
        split_user, split_system = (sum(part) for part in zip(*split))
        ratio = (split_user + split_system) / (user + system)
        print(f"{kind}, turn {turn + 1}: one process {user:.1f} + {system:.1f} s of user and system time,", flush=True)
        print(f"  four shares {split_user:.1f} + {split_system:.1f} s, {ratio:.3f} times as much", flush=True)


def accuracy(grid):
    """The perceptrons' matrix of the accuracy page, with fewer epochs, and one seed and size of groups. DATA is its data."""
    text = (work.ROOT / "training/matrix/mlp.toml").read_text()
    text = re.sub(r"epochs = \d+", f"epochs = {os.environ.get('EPOCHS', '1')}", text)
    path = grid.folder / "accuracy.toml"
    path.write_text(re.sub(r"(k|seed) = \[(\d+),.*\]", r"\1 = [\2]", text))
    grid.commands["accuracy"] = ["train", "matrix", str(path), "--data", os.environ["DATA"]]
    times(grid, "accuracy", turns=1)
    del grid.commands["accuracy"]


def main(*parts):
    """Runs the named parts, or all."""
    with tempfile.TemporaryDirectory(prefix="parm-grids-") as scratch:
        # A build without optimisation needs less, such as 0.2.
        scale = float(os.environ.get("SCALE", "1"))
        grid = work.Work(pathlib.Path(scratch), queries=int(1e6 * scale), train=int(1e4 * scale))
        if not parts or "time" in parts:
            times(grid, "matrix", turns=2)
        if "accuracy" in parts:
            accuracy(grid)
        engines = [name for name in ("slurm", "ray", "disk") if not parts or name in parts]
        for kind in grid.commands if engines else ():
            grid.run("one", kind)
        if "slurm" in engines:
            cluster = slurm.Slurm(grid.folder / "slurm", os.environ | {"PARM": work.PARM})
            try:
                for kind in grid.commands:
                    slurm.run(cluster, grid, kind)
            finally:
                cluster.stop()
        if "disk" in engines:
            for kind in grid.commands:
                disk.run(grid, kind)
        if "ray" in engines:
            for kind in grid.commands:
                on_ray(grid, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
