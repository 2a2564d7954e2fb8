"""Writes the tables of accuracy of the matrices in `training/matrix/` from the results of `parm train matrix`.

    python3 training/tables.py docs/results/raw/accuracy.txt

A cell's last line in `training/results/outcomes.jsonl` counts.
"""

import itertools
import json
import pathlib
import statistics
import sys
import tomllib

HOME = pathlib.Path(__file__).parent
# The quantile of the normal distribution for 95 % intervals.
Z = 1.96

HEAD = """# Accuracy of reconstructions

Every recipe of the matrices in `training/matrix/`. `parm train matrix training/matrix/*.toml` runs the cells that have no result, and `python3 training/tables.py \
docs/results/raw/accuracy.txt` writes this page. Results are in `training/results/outcomes.jsonl`, with dates in its history. \
All rows are codes, which mix the queries of a group; `slots` and `tiles` make a prediction for each query. Stand-ins are not in these tables.

- **A_a**: accuracy of available predictions. **A_d**: accuracy of reconstructions alone, over every group of the test set and every loss of \
one prediction. ± is the standard deviation of the seeds.
- **Gap**: A_a - A_d in points, with its 95 % interval from pairs: the same rows, predicted and reconstructed. Reconstructions from one parity \
err together, so a group counts as one observation. All seeds use the same test rows, so more seeds do not narrow the interval.
- **Agreement**: how often a reconstruction gives the answer of the deployed model; for boxes, the share that both have in common. \
**Calibration error**: mean distance between the confidence and how often the answer is right, on the test set, after calibration on held-out rows.
- **Cost**: time of one run of a parity model as a share of the deployed model's run for one query, one thread, in turns, on the machine that \
trained. A group has r such runs. A learned code has no cost here: the deployed model runs on its coded query, between two more networks.

Rows named `parm-` are ParM's recipe: random weights, mean square error, constant step size. `parm-sum-500` has the paper's 500 epochs. \
`sum-warm` begins with the deployed weights, with a falling step size and an average of the weights. The paper's numbers are of other networks.
"""

# What a measure counts, and its constant answer.
MEASURES = {
    "accuracy": ("accuracy in percent", "the most frequent class"),
    "iou": ("mean intersection over union with the true box in percent", "the mean box"),
    "agreement": ("agreement with the deployed model's own answers in percent, because the rows have no labels",
                  "the most frequent answer"),
}

# Results of the SOSP 2019 paper on parity models, sum code: its network, A_a, and A_d by k.
PAPER = {
    "mnist": ("ResNet-18", 99.20, {2: 99.21, 3: 98.27, 4: 96.38}),
    "fashion-mnist": ("ResNet-18", 92.90, {2: 91.11, 3: 87.85, 4: 84.20}),
    "cifar-10": ("ResNet-18", 93.50, {2: 87.4, 3: 73.85, 4: 52.91}),
    "cifar-100": ("ResNet-152", 92.50, {2: 86.10, 3: 69.92, 4: 43.93}),
    "spoken-digits": ("VGG-11 on 30 spoken words", 94.54, {2: 91.48, 3: 83.91, 4: 75.59}),
    "blood-cells": ("boxes of birds (CUB-200)", 95.0, {2: 67.0}),
}


def cells(matrix):
    """The cells of a matrix, ordered by seed."""
    for product in sorted(matrix["cells"], key=lambda product: product["seed"][0]):
        lists = [product[name] for name in ("data", "base", "recipe", "k")] + [product.get("r", [1]), product["seed"]]
        yield from itertools.product(*lists)


def spread(values):
    """Mean and, for several seeds, standard deviation, in percent."""
    mean = 100 * statistics.fmean(values)
    return f"{mean:.2f}" if len(values) < 2 else f"{mean:.2f} ± {100 * statistics.stdev(values):.2f}"


def mean(found, value):
    """The mean over the seeds; None if one of them has no value."""
    values = [value(one) for one in found]
    return None if None in values else statistics.fmean(values)


def show(found, wanted):
    """The columns behind the recipe's name."""
    if not found:
        return "not yet run | | | | | |"
    gap = f"{100 * mean(found, lambda one: one['available'] - one['degraded']):.2f}"
    error = mean(found, lambda one: one.get("gap_error"))
    percents = [mean(found, lambda one: one.get(name)) for name in ("agreement", "calibration_error")]
    costs = [mean(found, lambda one: one.get("costs", {}).get(engine)) for engine in ("tract", "ort")]
    columns = [spread([one["degraded"] for one in found])]
    columns.append(gap if error is None else f"{gap} ± {100 * Z * error:.2f}")
    columns += ["" if share is None else f"{100 * share:.1f}" for share in percents]
    columns += ["" if share is None else f"{share:.2f}" for share in costs]
    more = " (more to come)" if len(found) < wanted else ""
    return " | ".join(columns) + f" | {len(found)} / {found[0]['epochs']} / {found[0]['groups']}{more}"


def section(data, base, table, described):
    """The table of a deployed model on a data set."""
    measure, note = described.get("measure", "accuracy"), described.get("note", "")
    yield f"\n## {data}, {base}\n"
    every = [one for _, (found, _) in sorted(table.items()) for one in found]
    if every:
        what, constant = MEASURES[measure]
        available = list({one["seed"]: one["available"] for one in every}.values())
        yield f"Measured: {what}. A_a (predictions) {spread(available)}; {constant} as every answer: {100 * every[0]['constant']:.2f}."
    else:
        yield "Not yet run."
    if note:
        yield f"\n{note}"
    yield "\n| k | recipe | A_d | gap | agreement, % | calibration error, % | cost: tract | ONNX Runtime | seeds / epochs / groups |"
    yield "|---|---|---|---|---|---|---|---|---|"
    network, available, degraded = PAPER.get(data, ("", 0, {}))
    for k, rows in itertools.groupby(sorted(table.items()), key=lambda row: row[0][0]):
        for (_, recipe, r), (found, wanted) in rows:
            name = f"{recipe}, r={r}" if r > 1 else recipe
            yield f"| {k} | {name} | {show(found, wanted)} |"
        if k in degraded:
            gap = available - degraded[k]
            yield f"| {k} | paper: sum, {network}, A_a {available:.2f} | {degraded[k]:.2f} | {gap:.2f} | | | | | |"


def main():
    known = {}
    for line in (HOME / "results/outcomes.jsonl").read_text().splitlines():
        one = json.loads(line)
        known[tuple(one[name] for name in ("data", "base", "recipe", "k", "r", "seed"))] = one
    sections, described = {}, {}
    for path in sorted((HOME / "matrix").glob("*.toml")):
        matrix = tomllib.loads(path.read_text())
        for cell in cells(matrix):
            data, base, recipe, k, r, _ = cell
            found, wanted = sections.setdefault((data, base), {}).get((k, recipe, r), ([], 0))
            found += [known[cell]] if cell in known else []
            sections[data, base][k, recipe, r] = (found, wanted + 1)
            described[data, base] = matrix["data"][data]
    lines = [line for key, table in sorted(sections.items()) for line in section(*key, table, described[key])]
    pathlib.Path(sys.argv[1]).write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
