"""A full disk, and a folder that cannot be written: a tmpfs of a few kilobytes holds the results."""

import subprocess

import work


def run(grid, kind):
    """Fills the disk, takes the right to write away, and continues on a larger disk."""
    folder = grid.results("disk", kind)
    folder.mkdir()
    say("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder)
    try:
        refused(grid, kind, "--share", "0/1")
        say("mount", "-o", "remount,ro", folder)
        refused(grid, kind, "--share", "0/1")
        say("mount", "-o", "remount,rw,size=64m", folder)
        grid.run("disk", kind, "--share", "0/1")
        grid.check("disk", kind)
    finally:
        say("umount", folder)


def refused(grid, kind, *more):
    """A run that must end with status 1 and a message."""
    done = subprocess.run([work.PARM, *grid.arguments("disk", kind, *more)], capture_output=True, text=True, timeout=600)
    if done.returncode != 1 or "cannot" not in done.stderr:
        raise SystemExit(f"disk {kind}: status {done.returncode}: {done.stderr}")
    print(f"disk {kind}: {done.stderr.strip().splitlines()[-1]}", flush=True)


def say(*command):
    """Runs a command of the system."""
    subprocess.run(list(map(str, command)), check=True)
