"""The FastAPI app of `app.py` behind a frontend: every kind of answer, byte by byte."""

import gzip
import http.client
import json
import sys
import threading
import urllib.request

from compare import Ask, all_same, same, send
from fleet import Fleet, until
from processes import ROOT

JSON = {"content-type": "application/json"}


def start(stack, log, replicas=2, pace=0.0):
    folder = str(ROOT / "lab" / "interop" / "any_server")
    command = [sys.executable, "-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"]
    return Fleet(stack, command, "/health", replicas, {"APP_PACE": str(pace), "PYTHONPATH": folder}, log=log)


def post(path, value):
    return Ask("POST", path, json.dumps(value).encode(), JSON)


def chat(model="m", **more):
    return post("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "Grüße"}], **more})


def asks():
    every_byte = bytes(range(256)) * 64
    yield chat()
    yield chat(stream=True)
    yield chat(stream=True, stream_options={"include_usage": True})
    yield post("/v1/completions", {"model": "m", "prompt": "abc"})
    yield post("/v1/embeddings", {"model": "m", "input": ["a", "b"]})
    yield post("/v1/embeddings", {"model": "m", "input": "a", "encoding_format": "base64"})
    yield post("/v1/embeddings", {"model": "m", "input": [[101, 7, 102], [101, 102]]})
    yield post("/embed", {"inputs": ["a", "b"]})
    yield post("/embed_sparse", {"inputs": ["a", "b"]})
    yield post("/rerank", {"query": "q", "texts": ["a", "b", "c"]})
    yield post("/", {"inputs": "a"})
    yield Ask("GET", "/v1/models")
    yield Ask("GET", "/openapi.json")
    for status in (400, 401, 403, 404, 409, 413, 422, 429, 500, 501, 502, 503, 504):
        yield chat(f"error-{status}")
    yield chat("error-429-1")
    yield chat("error-503-1")
    yield post("/v1/chat/completions", {"nonsense": 1})
    yield Ask("POST", "/v1/chat/completions", b"nonsense", JSON)
    for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "POST"):
        yield Ask(method, "/echo/a%2Fb%20c//d?x=%C3%A9&y=1+2&x=%26", None if method == "GET" else every_byte)
    yield Ask("POST", "/echo/large", every_byte * 128)
    yield Ask("POST", "/echo/empty", b"")
    for name in ("empty", "redirect", "gzip", "pieces", "lines", "large", "not-modified", "nothing", "201", "401", "418", "451"):
        yield Ask("GET", f"/odd/{name}")
    yield Ask("GET", "/odd/gzip", None, {"accept-encoding": "gzip", "if-none-match": 'W/"1"'})
    yield Ask("HEAD", "/v1/models")
    yield Ask("GET", "/nowhere")
    yield Ask("DELETE", "/v1/models")


def seen(address):
    with urllib.request.urlopen(f"http://{address}/seen", timeout=10) as answer:
        return json.load(answer)


def total(fleet, name):
    return sum(seen(address)["counts"].get(name, 0) for address in fleet.addresses)


def requests_arrive_unchanged(parm, server):
    """Headers as the server sees them: the same but for the host."""
    body = gzip.compress(b"zipped", mtime=0)
    headers = {"content-encoding": "gzip", "x-mine": "1", "cookie": "a=1; b=2", "authorization": "Bearer sk-x", "accept": "*/*",
               "user-agent": "me/1", "x-request-id": "r1", "connection": "close, x-secret", "x-secret": "1", "te": "trailers"}
    ask = Ask("POST", "/echo/headers?a=%20", body, headers)
    send(server, ask)
    own = seen(server)
    send(parm.http, ask)
    passed = seen(server)
    assert own["target"] == passed["target"], passed
    dropped = {"host", "connection", "x-secret", "te"}
    kept = sorted((name, value) for name, value in own["headers"] if name not in dropped)
    got = {name: value for name, value in passed["headers"]}
    assert got.pop("host") == server and got.pop("x-forwarded-host") == parm.http, passed
    assert got.pop("x-forwarded-for") == "127.0.0.1" and got.pop("x-forwarded-proto") == "http", passed
    assert sorted(got.items()) == kept, f"{sorted(got.items())}, want {kept}"
    print("  ok  a request's headers arrive unchanged, but for Host, X-Forwarded-* and those of the connection")


def events_are_not_held_back(parm, fleet):
    """The server waits in the middle of its stream until the client has the first part."""
    ask = chat("gated", stream=True)
    connection = http.client.HTTPConnection(parm.http, timeout=15)
    connection.request(ask.method, ask.path, ask.body, ask.headers)
    response = connection.getresponse()
    first = response.read1()
    while b"you " not in first:
        first += response.read1()
    assert b"[DONE]" not in first, first
    for address in fleet.addresses:
        send(address, Ask("POST", "/open"))
    rest = response.read()
    assert rest.endswith(b"data: [DONE]\n\n"), rest[-200:]
    connection.close()
    print("  ok  the first event arrives while the server holds back the second")


def many_at_once(parm, fleet, requests=400, threads=32):
    want = send(fleet.addresses[0], chat()).body
    wrong = []
    numbers = iter(range(requests))
    lock = threading.Lock()

    def run():
        connection = http.client.HTTPConnection(parm.http, timeout=30)
        while True:
            with lock:
                if next(numbers, None) is None:
                    return
            ask = chat()
            connection.request(ask.method, ask.path, ask.body, ask.headers)
            answer = connection.getresponse()
            body = answer.read()
            if (answer.status, body) != (200, want):
                wrong.append((answer.status, body[:200]))

    workers = [threading.Thread(target=run) for _ in range(threads)]
    [worker.start() for worker in workers], [worker.join(120) for worker in workers]
    assert not wrong and not any(worker.is_alive() for worker in workers), wrong[:3]
    spread = [seen(address)["counts"]["/v1/chat/completions"] for address in fleet.addresses]
    assert min(spread) > requests / 10, f"requests by replica: {spread}"
    print(f"  ok  {requests} requests of {threads} clients on their connections, spread over the replicas")


def http2(parm, server):
    import httpx

    with httpx.Client(http1=False, http2=True, base_url=f"http://{parm.http}") as client:
        for ask in asks():
            passed = client.request(ask.method, ask.path, content=ask.body, headers=ask.headers, follow_redirects=False)
            own = send(server, ask)
            assert passed.http_version == "HTTP/2"
            body = own.body if own.header("content-encoding") != "gzip" else gzip.decompress(own.body)
            assert (passed.status_code, passed.content) == (own.status, body), f"{ask}: {passed.status_code} {passed.content[:200]}"
    print("  ok  httpx by HTTP/2 (prior knowledge): the same answers")


def check(parm, fleet):
    all_same("FastAPI with uvicorn", parm.http, fleet.addresses[0], list(asks()))
    events_are_not_held_back(parm, fleet)
    many_at_once(parm, fleet)
    http2(parm, fleet.addresses[0])
