"""Queries a parm frontend whose workers are foreign servers, and checks every answer and every outcome."""

import concurrent.futures

import numpy
import tritonclient.grpc
import tritonclient.http

WEIGHTS = numpy.array([[1, 2], [3, 4], [5, 6], [7, 8]], numpy.float32)
BIAS = numpy.array([0.5, -0.5], numpy.float32)


def check(frontend, requests=200):
    """Sends requests of one to four rows from eight threads, by HTTP and gRPC in turn."""
    frontend.wait_for_model("affine")
    numbers = numpy.random.default_rng(3)
    inputs = [numbers.normal(size=(1 + i % 4, 4)).astype(numpy.float32) for i in range(requests)]

    def ask(job):
        index, x = job
        kind, address = ((tritonclient.http, frontend.http), (tritonclient.grpc, frontend.grpc))[index % 2]
        client = kind.InferenceServerClient(address)
        tensor = kind.InferInput("x", x.shape, "FP32")
        tensor.set_data_from_numpy(x)
        answer = client.infer("affine", [tensor])
        return float(numpy.abs(answer.as_numpy("y") - (x @ WEIGHTS + BIAS)).max())

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        errors = list(pool.map(ask, enumerate(inputs)))
    assert max(errors) < 1e-4, f"an answer is off by {max(errors)}"
    metadata = tritonclient.http.InferenceServerClient(frontend.http).get_model_metadata("affine")
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["x"], metadata
    print(f"  ok  {requests} requests ({sum(len(x) for x in inputs)} rows) by HTTP and gRPC, "
          f"largest error {max(errors):.1e}")
