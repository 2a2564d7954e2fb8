"""Embeddings while one of four workers is slow for good: sick.py PARM MODELS TEXTS [--seconds S] [--rate R]

MODELS has `minilm` with its bundle (`parm stand-in minilm --data texts:TEXTS`), and ONNX Runtime is found as parm finds it.
Each run takes four times as long as it would, by sleeping, so that four workers fit on two cores; on the slow worker 2.4 times as long as
on the others. Prints a line for each policy: times, outcomes, work, and the cosine of approximate vectors with the deployed model's.
"""

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import time
import urllib.request

import aiohttp
import numpy

PADDED, SICK, WORKERS, PORT = 4.0, 2.4, 4, 21000


@contextlib.contextmanager
def process(*words):
    running = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


def ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def until_ready(port, path="/v2/models/minilm/ready"):
    for _ in range(600):
        with contextlib.suppress(OSError):
            ask(port, path)
            return
        time.sleep(0.1)
    raise SystemExit(f"no model at {port}")


async def embed(session, port, text):
    body = {"model": "minilm", "input": text}
    started = time.perf_counter()
    async with session.post(f"http://127.0.0.1:{port}/v1/embeddings", json=body) as answer:
        answer.raise_for_status()
        vector = (await answer.json())["data"][0]["embedding"]
        return time.perf_counter() - started, answer.headers.get("parm-outcome"), numpy.array(vector)


async def load(port, texts, rate, seconds, seed):
    draw, end = random.Random(seed), time.perf_counter() + seconds
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks, next_at = [], time.perf_counter()
        while next_at < end:
            await asyncio.sleep(max(0, next_at - time.perf_counter()))
            text = draw.randrange(len(texts))
            tasks.append((text, asyncio.create_task(embed(session, port, texts[text]))))
            next_at += draw.expovariate(rate)
        return [(text, *await task) for text, task in tasks]


async def true_vectors(port, texts):
    async with aiohttp.ClientSession() as session:
        return [(await embed(session, port, text))[2] for text in texts]


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("parm")
    flags.add_argument("models")
    flags.add_argument("texts")
    flags.add_argument("--seconds", type=float, default=120)
    flags.add_argument("--rate", type=float, default=45)
    flags.add_argument("--policies", nargs="+", default=["equal", "hedge", "stand-in"])
    given = flags.parse_args()
    texts = [line for line in open(given.texts).read().splitlines() if line.strip()][:300]
    address = lambda port: ["--http", f"127.0.0.1:{port}", "--grpc", f"127.0.0.1:{port + 1}", "--metrics", f"127.0.0.1:{port + 2}"]
    with contextlib.ExitStack() as running:
        for worker in range(WORKERS):
            words = ["worker", "--models", given.models, "--instances", "1", "--faults", "--set", 'backend.engine.name="ort"']
            running.enter_context(process(given.parm, *words, *address(PORT + 10 * worker)))
        for worker in range(WORKERS):
            until_ready(PORT + 10 * worker)
        true = asyncio.run(true_vectors(PORT, texts))
        for worker in range(WORKERS):
            slowdown = PADDED * (SICK if worker == 0 else 1)
            request = urllib.request.Request(
                f"http://127.0.0.1:{PORT + 10 * worker + 2}/faults", json.dumps({"slowdown": slowdown}).encode(), method="PUT"
            )
            urllib.request.urlopen(request).read()
        for number, policy in enumerate(given.policies):
            port = PORT + 100 + 10 * number
            workers = [word for at in range(WORKERS) for word in ("--worker", f"http://127.0.0.1:{PORT + 10 * at}")]
            words = ["serve", *workers, "--models", given.models, "--policy", policy]
            with process(given.parm, *words, *address(port)):
                until_ready(port)
                asyncio.run(load(port, texts, given.rate, 20, 1))
                answers = asyncio.run(load(port, texts, given.rate, given.seconds, 2))
            times = 1000 * numpy.array([took for _, took, _, _ in answers])
            outcomes = [outcome for _, _, outcome, _ in answers]
            cosines = numpy.array([vector @ true[text] for text, _, outcome, vector in answers if outcome == "stand-in"])
            wrong = sum(vector @ true[text] < 0.9999 for text, _, outcome, vector in answers if outcome != "stand-in")
            quantiles = ", ".join(f"p{q} {numpy.percentile(times, q):.1f}" for q in (50, 99, 99.9))
            told = ", ".join(f"{name} {100 * outcomes.count(name) / len(outcomes):.2f} %" for name in sorted(set(outcomes)))
            print(f"{policy:9} {len(answers)} answers, ms: {quantiles}; {told}; exact answers that differ: {wrong}")
            if len(cosines):
                print(f"          cosine of stand-ins: mean {cosines.mean():.4f}, least {cosines.min():.4f}, at least 0.95: {100 * (cosines >= 0.95).mean():.1f} %")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
