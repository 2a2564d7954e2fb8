"""The small experiment and matrix, their reference of one process, and the comparison."""

import json
import os
import pathlib
import random
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
PARM = os.environ["PARM_BINARY"]

EXPERIMENT = """
queries = {queries}
warm_up = 1000
repeats = 2
loads = [0.5, 0.8]
policies = ["equal", "hedge", "stand-in"]
scenarios = ["A"]
"""

MATRIX = """
[data.small]
train = "idx:{{}}/train-images,{{}}/train-labels"
test = "idx:{{}}/test-images,{{}}/test-labels"

[base.mlp]
held_out = 200
run = {{ epochs = {epochs}, batch = 16, rate = 0.003 }}

[recipe.slots]
held_out = 200
run = {{ epochs = {epochs}, batch = 16, rate = 0.003 }}

[recipe.weighted]
encoder = "weighted"
held_out = 200
run = {{ epochs = {epochs}, batch = 16, rate = 0.003 }}

[[cells]]
data = ["small"]
base = ["mlp"]
recipe = ["slots", "weighted"]
k = [2, 3]
seed = [1, 2]
"""


def idx(path, sizes, data):
    """Writes bytes in the form of MNIST."""
    head = bytes([0, 0, 8, len(sizes)]) + b"".join(struct.pack(">I", size) for size in sizes)
    path.write_bytes(head + bytes(data))


def rows(folder, name, count, seed):
    """Blurred squares: the class is the place of the square."""
    draw = random.Random(seed)
    labels = [draw.randrange(9) for _ in range(count)]
    pixels = bytearray()
    for label in labels:
        top, left = 4 * (label // 3), 4 * (label % 3)
        for y in range(12):
            for x in range(12):
                inside = top <= y < top + 4 and left <= x < left + 4
                pixels.append(min(255, max(0, int(draw.gauss(150 if inside else 90, 60)))))
    idx(folder / f"{name}-images", [count, 12, 12], pixels)
    idx(folder / f"{name}-labels", [count], labels)


class Work:
    """Both grids in a folder. `commands` are their command lines without a folder for results."""

    def __init__(self, folder, queries, train, epochs=10):
        self.folder = folder
        (folder / "grid.toml").write_text(EXPERIMENT.format(queries=queries))
        (folder / "matrix.toml").write_text(MATRIX.format(epochs=epochs))
        rows(folder, "train", train, 1)
        rows(folder, "test", 1000, 2)
        self.commands = {
            "experiment": ["experiment", str(folder / "grid.toml"), "--simulate"],
            "matrix": ["train", "matrix", str(folder / "matrix.toml"), "--data", str(folder)],
        }

    def results(self, name, kind):
        """The folder of a run."""
        return self.folder / f"{name}-{kind}"

    def arguments(self, name, kind, *more):
        """The arguments of parm for a run."""
        return [*self.commands[kind], "--results", str(self.results(name, kind)), *more]

    def run(self, name, kind, *more):
        """Runs parm to its end."""
        return subprocess.run([PARM, *self.arguments(name, kind, *more)], check=True, capture_output=True, text=True).stdout

    def numbers(self, name, kind):
        """The results as texts that must be equal in every run: without measured times and their order."""
        if kind == "experiment":
            report = json.loads((self.results(name, kind) / "results.json").read_text(), parse_float=str)["report"]
            return json.dumps(report, sort_keys=True)
        lines = (self.results(name, kind) / "outcomes.jsonl").read_text().splitlines()
        outcomes = [json.loads(line, parse_float=str) for line in lines]
        for outcome in outcomes:
            outcome.pop("seconds"), outcome.pop("costs", None)
        return json.dumps(sorted(outcomes, key=lambda one: one["key"]), sort_keys=True)

    def check(self, engine, kind):
        """Joins the results of an engine and compares them with those of one process."""
        self.run(f"{engine}-joined", kind, "--join", str(self.results(engine, kind)))
        if self.numbers(f"{engine}-joined", kind) != self.numbers("one", kind):
            raise SystemExit(f"{engine} {kind}: the joined results differ from those of one process")
        cells = len(list((self.results(engine, kind) / "cells").glob("*.json")))
        print(f"{engine} {kind}: {cells} cells, equal to one process to the digit", flush=True)

    def victim(self, name, kind):
        """A process that runs a share of this run, once it is in the middle of a cell."""
        results = self.results(name, kind)
        # A training is in its middle when it has a checkpoint, a share of an experiment when it has its first result.
        if not list((results / "cells").glob("*.checkpoint" if kind == "matrix" else "*.json")):
            return None
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[0] == PARM and "--share" in words and str(results) in words:
                return int(folder.name)
        return None
