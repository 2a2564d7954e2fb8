"""Ray Serve: a prediction and a stream, on a Ray of its own. Run by `servers.py` with the port."""

import asyncio
import signal
import sys

import ray
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve

app = FastAPI()


@serve.deployment
@serve.ingress(app)
class Doubles:
    @app.post("/predict")
    async def predict(self, request: Request):
        return {"output": [2 * value for value in (await request.json())["input"]]}

    @app.get("/count/{upto}")
    def count(self, upto: int):
        async def numbers():
            for number in range(upto):
                yield f"data: {number}\n\n"
                await asyncio.sleep(0.01)

        return StreamingResponse(numbers(), media_type="text/event-stream")


if __name__ == "__main__":
    ray.init(address="local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False,
             object_store_memory=100 << 20)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Doubles.options(ray_actor_options={"num_cpus": 0.1}).bind())
    # Ray's processes end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.pause()
