"""Clients of the Open Inference Protocol against parm: curl, tritonclient (HTTP and gRPC), grpcurl, perf_analyzer's routes.

Every answer is compared with ONNX Runtime on the same model file. Run by `just interop`.
"""

import json
import pathlib
import subprocess
import sys
import urllib.request

import numpy
import onnxruntime
import tritonclient.grpc
import tritonclient.http

from processes import ROOT, Parm

MODEL = "magika"
INPUT, OUTPUT = "bytes", "target_label"
TOLERANCE = 1e-4


def queries(rows):
    return numpy.random.default_rng(7).integers(0, 257, size=(rows, 2048), dtype=numpy.int32)


def expected(batch):
    session = onnxruntime.InferenceSession(str(ROOT / "models" / MODEL / "1" / "model.onnx"))
    return session.run([OUTPUT], {INPUT: batch})[0]


def check(name, got, want):
    assert got.shape == want.shape, f"{name}: shape {got.shape}, want {want.shape}"
    error = float(numpy.abs(got - want).max() / max(1e-9, want.max() - want.min()))
    assert error <= TOLERANCE, f"{name}: differs by {error:.2e} of the output range"
    print(f"  ok  {name} (largest difference {error:.1e} of the output range)")


def curl_json(address, batch, want):
    body = {"id": "curl", "inputs": [{"name": INPUT, "shape": list(batch.shape), "datatype": "INT32",
                                      "data": batch.tolist()}]}
    out = subprocess.run(
        ["curl", "-sS", "--fail-with-body", "-d", "@-", f"http://{address}/v2/models/{MODEL}/infer"],
        input=json.dumps(body).encode(), capture_output=True, check=True).stdout
    answer = json.loads(out)
    assert answer["id"] == "curl" and answer["model_name"] == MODEL, answer
    [output] = answer["outputs"]
    check("curl, JSON", numpy.array(output["data"], numpy.float32).reshape(output["shape"]), want)


def triton_http(address, batch, want, binary):
    client = tritonclient.http.InferenceServerClient(address)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(MODEL)
    assert client.get_model_metadata(MODEL)["inputs"][0]["name"] == INPUT
    assert client.get_model_config(MODEL)["name"] == MODEL
    assert any(model["name"] == MODEL for model in client.get_model_repository_index())
    tensor = tritonclient.http.InferInput(INPUT, batch.shape, "INT32")
    tensor.set_data_from_numpy(batch, binary_data=binary)
    outputs = [tritonclient.http.InferRequestedOutput(OUTPUT, binary_data=binary)]
    answer = client.infer(MODEL, [tensor], outputs=outputs, request_id="t1")
    assert answer.get_response()["id"] == "t1"
    check(f"tritonclient http, {'binary' if binary else 'JSON'}", answer.as_numpy(OUTPUT), want)
    defaults = tritonclient.http.InferInput(INPUT, batch.shape, "INT32")
    defaults.set_data_from_numpy(batch)
    if binary:
        check("tritonclient http, all defaults", client.infer(MODEL, [defaults]).as_numpy(OUTPUT), want)
        assert client.get_inference_statistics(MODEL)["model_stats"][0]["name"] == MODEL
        try:
            client.infer("no-such-model", [defaults])
            raise AssertionError("an unknown model was answered")
        except tritonclient.http.InferenceServerException as error:
            assert error.status() == "404", error


def triton_grpc(address, batch, want):
    client = tritonclient.grpc.InferenceServerClient(address)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(MODEL)
    assert client.get_model_metadata(MODEL).outputs[0].name == OUTPUT
    assert client.get_model_config(MODEL).config.name == MODEL
    assert client.get_inference_statistics(MODEL).model_stats[0].name == MODEL
    assert any(model.name == MODEL for model in client.get_model_repository_index().models)
    tensor = tritonclient.grpc.InferInput(INPUT, batch.shape, "INT32")
    tensor.set_data_from_numpy(batch)
    check("tritonclient grpc", client.infer(MODEL, [tensor]).as_numpy(OUTPUT), want)


def grpcurl(program, address, batch, want):
    def call(method, data="{}"):
        return json.loads(subprocess.run([program, "-plaintext", "-d", "@", address, method], input=data.encode(),
                                         capture_output=True, check=True).stdout or "{}")
    listed = subprocess.run([program, "-plaintext", address, "list"], capture_output=True, check=True).stdout.decode()
    assert "inference.GRPCInferenceService" in listed and "grpc.health.v1.Health" in listed, listed
    assert call("grpc.health.v1.Health/Check")["status"] == "SERVING"
    assert call("inference.GRPCInferenceService/ServerReady")["ready"] is True
    row = batch[:1]
    request = {"model_name": MODEL, "inputs": [{"name": INPUT, "datatype": "INT32", "shape": list(row.shape),
                                                "contents": {"int_contents": row.ravel().tolist()}}]}
    answer = call("inference.GRPCInferenceService/ModelInfer", json.dumps(request))
    import base64
    raw = base64.b64decode(answer["rawOutputContents"][0])
    check("grpcurl, by reflection", numpy.frombuffer(raw, "<f4").reshape(1, -1), want[:1])


def perf_analyzer_routes(address, batch, want):
    def get(path):
        with urllib.request.urlopen(f"http://{address}{path}") as answer:
            return json.load(answer)
    assert get("/v2")["extensions"] is not None
    assert get(f"/v2/models/{MODEL}")["name"] == MODEL
    assert get(f"/v2/models/{MODEL}/config")["name"] == MODEL
    assert get(f"/v2/models/{MODEL}/stats")["model_stats"], "statistics are advertised and must be there"
    header = json.dumps({"id": "", "inputs": [{"name": INPUT, "shape": list(batch.shape), "datatype": "INT32",
                                               "parameters": {"binary_data_size": batch.nbytes}}],
                         "outputs": [{"name": OUTPUT, "parameters": {"binary_data": True}}]}).encode()
    request = urllib.request.Request(
        f"http://{address}/v2/models/{MODEL}/infer", data=header + batch.tobytes(),
        headers={"Inference-Header-Content-Length": str(len(header))})
    with urllib.request.urlopen(request) as answer:
        length = int(answer.headers["Inference-Header-Content-Length"])
        body = answer.read()
    output = json.loads(body[:length])["outputs"][0]
    got = numpy.frombuffer(body[length:length + output["parameters"]["binary_data_size"]], "<f4")
    check("perf_analyzer's four routes", got.reshape(output["shape"]), want)


def every_client(name, server, program):
    print(name)
    server.wait_for_model(MODEL)
    batch = queries(3)
    want = expected(batch)
    curl_json(server.http, batch, want)
    triton_http(server.http, batch, want, binary=True)
    triton_http(server.http, batch, want, binary=False)
    triton_grpc(server.grpc, batch, want)
    grpcurl(program, server.grpc, batch, want)
    perf_analyzer_routes(server.http, batch, want)


def main():
    program = sys.argv[1]
    models = str(pathlib.Path(ROOT) / "models")
    with Parm("serve", "--models", models, "--instances", "2") as server:
        every_client("parm serve, two embedded instances", server, program)
    with Parm("worker", "--models", models) as worker:
        every_client("parm worker", worker, program)
    with Parm("worker", "--models", models) as one, Parm("worker", "--models", models) as two:
        workers = ["--worker", f"http://{one.http}", "--worker", f"grpc://{two.grpc}"]
        with Parm("serve", *workers) as frontend:
            every_client("parm serve over two remote workers (one by HTTP upgrade to frames, one by gRPC)", frontend, program)
    print("all clients agree with ONNX Runtime")


if __name__ == "__main__":
    main()
