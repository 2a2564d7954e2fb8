r"""Compares the figures of `parm stand-in` with Python's onnxruntime, for published models on rows that it never saw.

    pip install onnxruntime numpy pillow tokenizers
    pip download --no-deps magika rapidocr ..      # the packages of rows.py and more.py; unpack them into one folder
    apt-get download plasma-workspace-wallpapers gnome-backgrounds iso-codes libglib2.0-data libgtk-3-common \
        gedit-common nautilus-data                 # pictures and translations: unpack them into the same folder
    apt-get install espeak-ng
    UNPACKED=FOLDER TOKENIZER=FOLDER/tokenizer.json PARM=target/release/parm python measure.py rows WORK [MODEL..]
    ORT_DYLIB_PATH=.. UNPACKED=.. PARM=.. python measure.py run WORK [MODEL..]
    python measure.py table WORK

`run` adds a line of JSON for each stand-in to WORK/results.jsonl. A model gets --cost 0.5. It also gets 0.25 if a
cheaper candidate may be taken then, or the cost of the cheapest that agrees often enough if nothing was taken.
MODEL=COST asks for one cost. minilm-l6.onnx has the weights of its package in a graph of your own exporter, with the mean
of the tokens as its output. Other work on the machine makes both costs useless: use `chrt -r 10`.
"""
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
from more import MORE
from rows import MODELS, find

ENOUGH = 0.8
MODELS |= MORE


def make_rows(work, name):
    """Writes different rows: those for the tool and those that stay hidden."""
    _, _, rows, count, _ = MODELS[name]
    draw = np.random.default_rng(sum(name.encode()))
    arrays = rows(count, draw)
    kept = {tuple(hash(part[at].tobytes()) for part in arrays): at for at in range(len(arrays[0]))}
    kept = draw.permutation(list(kept.values()))[:count]
    made = min(1000, max(min(220, len(kept) // 2), int(len(kept) * 0.4)))
    for at, array in enumerate(arrays):
        np.save(work / f"{name}-made-{at}.npy", array[kept[:made]])
        np.save(work / f"{name}-held-{at}.npy", array[kept[made:]])


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def same(a, b, meaning):
    """Whether two answers to one row agree, as docs/stand-ins.md says."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    if meaning == "label":
        return np.array_equal(a, b)
    if meaning in ("logits", "probabilities") and a.shape[-1] > 1:
        return np.array_equal(a.argmax(-1), b.argmax(-1))
    a, b = (part.astype(np.float64) for part in (a, b))
    if meaning.startswith("decision"):
        least = float(meaning.partition(":")[2] or 0.5)
        return np.array_equal(a >= least, b >= least)
    if meaning == "embedding":
        size = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        return bool(((a * b).sum(-1) >= 0.95 * size).all())
    apart = np.linalg.norm(a - b)
    return apart <= 1e-6 or apart <= 0.05 * max(np.linalg.norm(a), np.linalg.norm(b))


def wilson(hits, count, z=1.96):
    share, spread = hits / count, z * z / count
    half = z * (share * (1 - share) / count + spread / count / 4) ** 0.5
    return [share, (share + spread / 2 - half) / (1 + spread), (share + spread / 2 + half) / (1 + spread)]


def cost(deployed, other, feed, seconds=6.0, blocks=3):
    """Cost of one row: lower quartiles of runs in turns. Returns all of them, the blocks and the deployed time."""
    for _ in range(5):
        deployed.run(None, feed), other.run(None, feed)
    started = time.perf_counter()
    deployed.run(None, feed)
    turns = max(20, min(2000, int(seconds / blocks / 2 / max(time.perf_counter() - started, 1e-6))))
    taken = np.empty((blocks, turns, 2))
    for block in range(blocks):
        for turn in range(turns):
            for at, one in enumerate((deployed, other) if turn % 2 else (other, deployed)):
                started = time.perf_counter()
                one.run(None, feed)
                taken[block, turn, at if turn % 2 else 1 - at] = time.perf_counter() - started
    quartile = lambda part: np.quantile(part.reshape(-1, 2), 0.25, axis=0)
    ratio = lambda part: quartile(part)[1] / quartile(part)[0]
    return ratio(taken), [ratio(block) for block in taken], quartile(taken)[0] * 1000


def measure(work, name, file, other, meanings):
    deployed, stand_in = session(file), session(other)
    held = sorted(work.glob(f"{name}-held-*.npy"), key=lambda path: int(path.stem.rpartition("-")[2]))
    arrays = [np.load(path, mmap_mode="r") for path in held]
    names = [put.name for put in deployed.get_inputs()]
    of = lambda at: {name: np.ascontiguousarray(array[at:at + 1]) for name, array in zip(names, arrays)}
    outputs = [put.name for put in deployed.get_outputs()]
    hits = 0
    for at in range(len(arrays[0])):
        a, b = deployed.run(outputs, of(at)), stand_in.run(outputs, of(at))
        hits += all(same(a[out][0], b[out][0], meanings[out]) for out in range(len(a)))
    ratio, blocks, taken = cost(deployed, stand_in, of(0))
    return {"held": len(arrays[0]), "measured": wilson(hits, len(arrays[0])), "measured_cost": ratio,
            "blocks": blocks, "deployed_ms": taken}


def search(work, name, limit, seconds):
    """Runs the command. Returns its JSON, what it said, and the stand-in's file."""
    _, pattern, _, _, flags = MODELS[name]
    models = work / f"{name}-models"
    shutil.rmtree(models, ignore_errors=True)
    made = sorted(work.glob(f"{name}-made-*.npy"), key=lambda path: int(path.stem.rpartition("-")[2]))
    command = [os.environ.get("PARM", "parm"), "stand-in", str(find(pattern)[0]), "--name", "model", "--engine", "ort",
               "--data", "npy:" + ",".join(map(str, made)), "--cost", str(limit), "--time-limit", str(seconds),
               "--models", str(models), "--runs", str(work / f"{name}-runs"), "--output", "json", *flags]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    (work / f"{name}-{limit}.json").write_text(done.stdout)
    (work / f"{name}-{limit}.log").write_text(done.stderr)
    told = json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else None
    files = sorted(models.glob("model-stand-in/*/model.onnx"))
    return told, done.stderr.strip().splitlines(), files[0] if files else None, time.monotonic() - started


def run(work, name, seconds=int(os.environ.get("LIMIT", 75))):
    name, _, limits = name.partition("=")
    package, pattern, _, _, _ = MODELS[name]
    wanted = [float(limits)] if limits else [0.5]
    for limit in wanted:
        told, said, file, taken = search(work, name, limit, seconds)
        line = {"model": name, "package": package, "limit": limit, "seconds": round(taken), "said": said[-1:]}
        if told:
            enough = max(ENOUGH, told["constant"]["high"])
            eligible = [one["cost"][0] for one in told["candidates"] if one["agreement"]["value"] >= enough]
            line |= {"meanings": told["meanings"], "judged": told["judged_rows"], "constant": told["constant"],
                     "deployed_us": told["deployed_us"], "chosen": told["chosen"]}
            chosen = next((one for one in told["candidates"] if one["name"] == told["chosen"]), None)
            if wanted == [0.5] and chosen and chosen["cost"][0] > 0.25 and min(eligible) <= 0.27:
                wanted.append(0.25)
            if wanted == [0.5] and not chosen and eligible and min(eligible) <= 0.75:
                wanted.append(round(min(eligible) + 0.02, 2))
        if told and file:
            line |= {"told_cost": chosen["cost"], "told": chosen["agreement"]}
            line |= measure(work, name, find(pattern)[0], file, [one["meaning"] for one in told["meanings"]["outputs"]])
        with (work / "results.jsonl").open("a") as results:
            results.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def table(work):
    share = lambda low, value, high: f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"
    for line in map(json.loads, (work / "results.jsonl").read_text().splitlines()):
        if "measured" not in line:
            print(f"| {line['model']} | {line['limit']} | none | {' '.join(line['said'])} |")
            continue
        told, (value, low, high) = line["told"], line["measured"]
        agrees = "overlap" if low <= told["high"] and high >= told["low"] else "MISSED"
        if told["low"] - 1e-9 <= value <= told["high"] + 1e-9:
            agrees = "inside"
        off = line["told_cost"][0] / line["measured_cost"] - 1
        bound = 0.10 if line["deployed_ms"] >= 1 else 0.15
        print(f"| {line['model']} ({line['package']}) | {'; '.join(one['meaning'] for one in line['meanings']['outputs'])} "
              f"| {line['limit']} | {line['chosen']} | {line['deployed_ms']:.3g} | {line['told_cost'][0]:.3f}, {line['measured_cost']:.3f} "
              f"({min(line['blocks']):.3f} to {max(line['blocks']):.3f}) | {share(told['low'], told['value'], told['high'])}, "
              f"{share(low, value, high)} of {line['held']} | {agrees}, cost {100 * off:+.0f} % {'ok' if abs(off) <= bound else 'OFF'} |")


if __name__ == "__main__":
    what, work, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:] or list(MODELS)
    work.mkdir(parents=True, exist_ok=True)
    if what == "table":
        table(work)
    for name in names if what != "table" else []:
        (make_rows if what == "rows" else run)(work, name)
