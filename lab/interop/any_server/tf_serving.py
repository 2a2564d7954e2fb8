"""TF Serving's own gRPC client against two servers of its service, directly and through parm: tf_serving.py [PARM]

The servers implement `PredictionService` with TF Serving's published definitions. The model server itself is not in any Python package.
"""

import concurrent.futures
import contextlib
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

from fleet import wait_for_instances
from processes import Parm

CALLS = 300
NO_MODEL = "Servable not found for request: Latest(none)"


class Doubles(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Doubles the input `x`."""

    def __init__(self):
        self.delay = 0.0

    def Predict(self, request, context):
        time.sleep(self.delay)
        if request.model_spec.name != "doubles":
            context.abort(grpc.StatusCode.NOT_FOUND, NO_MODEL)
        context.set_trailing_metadata((("x-served-by", "doubles"),))
        answer = predict_pb2.PredictResponse()
        answer.model_spec.CopyFrom(request.model_spec)
        answer.outputs["y"].CopyFrom(tf.make_tensor_proto(2 * tf.make_ndarray(request.inputs["x"])))
        return answer

    def GetModelMetadata(self, request, context):
        answer = get_model_metadata_pb2.GetModelMetadataResponse()
        answer.model_spec.CopyFrom(request.model_spec)
        return answer


def serve(stack):
    servicer, server = Doubles(), grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stack.callback(server.stop, None)
    return servicer, f"127.0.0.1:{port}"


def request(values, model="doubles"):
    asked = predict_pb2.PredictRequest()
    asked.model_spec.name, asked.model_spec.signature_name = model, "serving_default"
    asked.inputs["x"].CopyFrom(tf.make_tensor_proto(values))
    return asked


def client(stack, address):
    return prediction_service_pb2_grpc.PredictionServiceStub(stack.enter_context(grpc.insecure_channel(address)))


def same_answers(direct, through):
    for values in (numpy.float32([[1, 2.5]]), numpy.arange(300_000, dtype=numpy.float32), numpy.array([], numpy.int64)):
        own, call = direct.Predict(request(values)), through.Predict.with_call(request(values), timeout=5)
        assert own.SerializeToString(deterministic=True) == call[0].SerializeToString(deterministic=True)
        assert ("x-served-by", "doubles") in [tuple(pair) for pair in call[1].trailing_metadata()]
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    assert direct.GetModelMetadata(metadata) == through.GetModelMetadata(metadata)
    for stub in (direct, through):
        try:
            stub.Predict(request([1.0], "none"), timeout=5)
        except grpc.RpcError as error:
            assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, NO_MODEL), error
        else:
            raise AssertionError("an unknown model was served")
    print("  ok  answers, trailers and errors are those of the server")


def hides_a_slow_server(servicers, through):
    servicers[0].delay = 0.4
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        through.Predict(request([1.0]), timeout=5)
        times.append(time.perf_counter() - began)
    slow = sum(took > 0.35 for took in times)
    assert slow < CALLS / 20, f"{slow} of {CALLS} calls took as long as the slow server"
    print(f"  ok  with one server 400 ms slower, {slow} of {CALLS} calls took as long")


def main():
    with contextlib.ExitStack() as stack:
        servers = [serve(stack) for _ in range(2)]
        urls = [part for _, address in servers for part in ("--upstream", f"grpc://{address}")]
        parm = stack.enter_context(Parm("serve", *urls))
        wait_for_instances(parm, 2)
        direct, through = client(stack, servers[0][1]), client(stack, parm.grpc)
        same_answers(direct, through)
        hides_a_slow_server([servicer for servicer, _ in servers], through)
    print(f"TF Serving's gRPC client works through parm (tensorflow {tf.__version__})")


if __name__ == "__main__":
    sys.exit(main())
