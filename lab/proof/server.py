"""A model server as people write it: FastAPI on uvicorn, with a run time of 60 to 140 ms for requests and for first tokens.

The run time follows from the number of the request and the number of the server, so that every gateway meets the same
times, and a copy at another server has a time of its own. Each arrival is appended to a file, which outlives a killed
server. `POST /fault` freezes the engine or makes it slower, but `/health` still answers 200, as vLLM's does when its
engine hangs.
"""

import argparse
import asyncio
import json
import os
import random

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

FASTEST, SLOWEST, TOKENS, TOKEN_SECONDS = 0.060, 0.140, 5, 0.020

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("--host", default="127.0.0.1")
arguments.add_argument("--port", type=int, required=True)
arguments.add_argument("--number", type=int, required=True, help="number of this server, which draws its run times")
arguments.add_argument("--arrivals", required=True, help="file to which the number of each arriving request is appended")


class Engine:
    """What runs the model: it can stand still or be slow while its HTTP server is fine."""

    def __init__(self, number, arrivals):
        self.number, self.slowdown = number, 1.0
        self.arrivals = os.open(arrivals, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.runs = asyncio.Event()
        self.runs.set()

    def arrived(self, request):
        os.write(self.arrivals, f"{request}\n".encode())

    async def work(self, seconds):
        await self.runs.wait()
        await asyncio.sleep(seconds * self.slowdown)
        await self.runs.wait()

    async def run(self, request):
        await self.work(random.Random(f"{request} {self.number}").uniform(FASTEST, SLOWEST))


def application(engine):
    app = FastAPI()

    @app.get("/health")
    def health():
        return {}

    # The SGLang gateway asks what a server is.
    @app.get("/v1/models")
    def models():
        return {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "proof"}]}

    @app.get("/get_model_info")
    @app.get("/model_info")
    def model_info():
        return {"model_path": "m", "is_generation": True}

    @app.get("/get_server_info")
    @app.get("/server_info")
    def server_info():
        return {"model_path": "m", "served_model_name": "m"}

    @app.post("/fault")
    async def fault(request: Request):
        plan = await request.json()
        engine.slowdown = plan.get("slowdown", 1.0)
        engine.runs.clear() if plan.get("frozen") else engine.runs.set()
        return {}

    # `/generate` is the same for the SGLang gateway, which passes on routes of language models only.
    @app.post("/predict")
    @app.post("/generate")
    async def predict(request: Request):
        number = (await request.json())["text"]
        engine.arrived(number)
        await engine.run(number)
        return {"text": number, "meta_info": {"id": number, "finish_reason": {"type": "stop"}}}

    # As with vLLM, the head of the answer leaves before the first token.
    @app.post("/v1/chat/completions")
    async def chat(request: Request):
        number = (await request.json())["messages"][0]["content"]
        engine.arrived(number)

        async def tokens():
            await engine.run(number)
            for token in range(TOKENS):
                if token:
                    await engine.work(TOKEN_SECONDS)
                choice = {"index": 0, "delta": {"role": "assistant", "content": f"w{token} "}, "finish_reason": None}
                yield "data: " + json.dumps({"id": number, "object": "chat.completion.chunk", "created": 0, "model": "m",
                                             "choices": [choice]}) + "\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(tokens(), media_type="text/event-stream")

    return app


def main():
    options = arguments.parse_args()
    # Longer than any gateway keeps an idle connection, so that none sends on one which the server is closing.
    uvicorn.run(application(Engine(options.number, options.arrivals)), host=options.host, port=options.port, access_log=False,
                log_level="error", timeout_keep_alive=600, timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main()
