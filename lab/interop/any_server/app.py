"""A server as people write them: OpenAI's and TEI's routes, and odd answers, in FastAPI. Answers follow from requests only.

The model's name in a request selects the behaviour: `error-STATUS`, `slow-MILLISECONDS`, `gated`, `endless`, or any other.
`GET /seen` is for the recipe: requests of this replica, those that run, disconnects, and the last request's headers.
"""

import asyncio
import base64
import collections
import gzip
import hashlib
import json
import os
import random
import struct

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

app = FastAPI()
# Each request takes about this long, so that lateness is measurable.
PACE = float(os.environ.get("APP_PACE", "0"))
counts = collections.Counter()
seen = {"headers": [], "target": "", "running": 0}
gate = asyncio.Event()

CREATED = 1_700_000_000


class Note:
    """Counts requests. FastAPI's own middleware would hide disconnects."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] not in ("/seen", "/open", "/health"):
            counts[scope["path"]] += 1
            seen["headers"] = [[name.decode(), value.decode("latin-1")] for name, value in scope["headers"]]
            seen["target"] = f"{scope['raw_path'].decode()}?{scope['query_string'].decode()}"
            seen["running"] += 1
            try:
                await self.app(scope, receive, send)
            finally:
                seen["running"] -= 1
        else:
            await self.app(scope, receive, send)


app.add_middleware(Note)


@app.get("/health")
async def health():
    return {}


@app.get("/seen")
async def report():
    return {"counts": counts, **seen}


@app.post("/open")
async def open_gate():
    gate.set()


async def behaves(model):
    """Waits and fails as the model's name says."""
    if PACE:
        await asyncio.sleep(PACE * random.uniform(0.8, 1.2))
    kind, _, value = model.partition("-")
    if kind == "slow":
        await asyncio.sleep(int(value) / 1000)
    if kind == "error":
        status, _, after = value.partition("-")
        error = {"message": f"you asked for {status}", "type": "asked_for", "param": "model", "code": f"e{status}"}
        return JSONResponse({"error": error}, int(status), {"retry-after": after} if after else None)
    return None


def identity(body):
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]


async def until_gone(request):
    """Returns when the client has closed its connection."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.02)
    counts["gone"] += 1


@app.get("/v1/models")
async def models():
    return {"object": "list", "data": [{"id": "m", "object": "model", "created": CREATED, "owned_by": "recipe"}]}


@app.post("/v1/chat/completions")
async def chat(request: Request):
    body = await request.json()
    model = body["model"]
    if model.startswith("slow-"):
        answer = asyncio.ensure_future(behaves(model))
        gone = asyncio.ensure_future(until_gone(request))
        await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
        answer.cancel(), gone.cancel()
    elif failed := await behaves(model):
        return failed
    content = body["messages"][-1]["content"]
    words = [word + " " for word in f"you said {content} with ünïcödé".split()]
    head = {"id": f"chatcmpl-{identity(body)}", "created": CREATED, "model": model}
    usage = {"prompt_tokens": len(content), "completion_tokens": len(words), "total_tokens": len(content) + len(words)}
    if not body.get("stream"):
        message = {"role": "assistant", "content": "".join(words), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    head["object"] = "chat.completion.chunk"
    options = body.get("stream_options") or {}
    return StreamingResponse(events(head, words, usage if options.get("include_usage") else None),
                             media_type="text/event-stream", headers={"cache-control": "no-cache"})


def event(head, choices, **more):
    return f"data: {json.dumps({**head, 'choices': choices, **more}, ensure_ascii=False)}\n\n"


def delta(reason=None, **said):
    return [{"index": 0, "delta": said, "logprobs": None, "finish_reason": reason}]


async def events(head, words, usage):
    yield ": a comment\n\n"
    yield event(head, delta(role="assistant", content=""))
    model, ended = head["model"], False
    try:
        for word in words:
            yield event(head, delta(content=word))
            if model == "gated":
                await asyncio.wait_for(gate.wait(), 20)
            await asyncio.sleep(0.005)
        while model == "endless":
            yield event(head, delta(content="on "))
            await asyncio.sleep(0.01)
        ended = True
    finally:
        counts["gone"] += not ended
    yield event(head, delta("stop"))
    if usage:
        yield event(head, [], usage=usage)
    yield "data: [DONE]\n\n"


@app.post("/v1/completions")
async def completions(request: Request):
    body = await request.json()
    choice = {"index": 0, "text": body["prompt"][::-1], "logprobs": None, "finish_reason": "stop"}
    return {"id": f"cmpl-{identity(body)}", "object": "text_completion", "created": CREATED, "model": body["model"],
            "choices": [choice]}


def vector(text, size=16):
    digest = hashlib.sha512(str(text).encode()).digest()
    return [round(byte / 255 - 0.5, 6) for byte in digest[:size]]


@app.post("/v1/embeddings")
async def embeddings(request: Request):
    body = await request.json()
    if failed := await behaves(body["model"]):
        return failed
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = [vector(text) for text in texts]
    if body.get("encoding_format") == "base64":
        rows = [base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode() for row in rows]
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 1, "total_tokens": 1}}


@app.post("/v1/audio/transcriptions")
async def transcription(request: Request):
    async with request.form() as form:
        sound = await form["file"].read()
        return {"text": f"{form['model']}: {len(sound)} bytes, {hashlib.sha256(sound).hexdigest()}"}


@app.post("/v1/responses")
async def responses(request: Request):
    body = await request.json()
    part = {"type": "output_text", "text": f"you said {body['input']}", "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {"id": f"resp_{identity(body)}", "object": "response", "created_at": CREATED, "model": body["model"],
            "status": "completed", "output": [message], "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}


# TEI's routes. `/` is its alias for the model's own task.
@app.post("/embed")
@app.post("/")
async def embed(request: Request):
    body = await request.json()
    texts = body["inputs"] if isinstance(body["inputs"], list) else [body["inputs"]]
    return [vector(text) for text in texts]


@app.post("/rerank")
async def rerank(request: Request):
    body = await request.json()
    scored = [{"index": index, "score": vector(body["query"] + text)[0]} for index, text in enumerate(body["texts"])]
    return sorted(scored, key=lambda row: -row["score"])


@app.post("/embed_sparse")
async def sparse(request: Request):
    body = await request.json()
    return [[{"index": len(text), "value": vector(text)[1]}] for text in body["inputs"]]


# Odd answers.
@app.api_route("/echo/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], include_in_schema=False)
async def echo(rest: str, request: Request):
    body = await request.body()
    answer = Response(body, media_type="application/octet-stream")
    answer.headers["x-target"] = request.scope["raw_path"].decode() + "?" + request.scope["query_string"].decode()
    answer.headers["x-method"] = request.method
    answer.raw_headers += [(b"set-cookie", b"a=1; Path=/"), (b"set-cookie", b"b=2; HttpOnly"), (b"x-odd", b"\xe9t\xe9")]
    return answer


@app.get("/odd/{name}")
async def odd(name: str):
    match name:
        case "empty":
            return Response(status_code=204)
        case "redirect":
            return RedirectResponse("http://example.com/elsewhere?a=b", 307)
        case "gzip":
            data = gzip.compress(b"twice " * 1000, mtime=0)
            return Response(data, headers={"content-encoding": "gzip", "vary": "accept-encoding", "etag": 'W/"1"'})
        case "pieces":
            return StreamingResponse((f"piece {index}\n" for index in range(50)), media_type="text/plain")
        case "lines":
            return StreamingResponse((json.dumps({"n": index}) + "\n" for index in range(50)), media_type="application/x-ndjson")
        case "large":
            return Response(bytes(range(256)) * (12 << 10), media_type="application/octet-stream")
        case "not-modified":
            return Response(status_code=304, headers={"etag": '"1"'})
        case _ if name.isdigit():
            return PlainTextResponse(f"status {name}", int(name), {"www-authenticate": "Basic"} if name == "401" else None)
    return PlainTextResponse("no such oddity", 404)
