"""Triton's own gRPC client with its streams against two servers of its service, directly and through parm: triton_streams.py

The servers implement `ModelStreamInfer` with tritonclient's published definitions. Triton itself is not in any Python package that is
small enough.
"""

import concurrent.futures
import contextlib
import importlib.metadata
import queue
import sys
import time

import grpc
import numpy
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc

from fleet import wait_for_instances
from processes import Parm

STREAMS = 100
PATIENCE = 20


class Repeats(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each request of a stream as often as its first value says, and then waits for the next request."""

    def __init__(self):
        self.delay, self.cancelled = 0.0, 0

    def ModelStreamInfer(self, requests, context):
        context.add_callback(lambda: setattr(self, "cancelled", self.cancelled + (context.code() is None)))
        for request in requests:
            time.sleep(self.delay)
            if request.model_name != "repeats":
                yield service_pb2.ModelStreamInferResponse(error_message=f"no model {request.model_name}")
                continue
            value = numpy.frombuffer(request.raw_input_contents[0], numpy.int32)
            for index in range(value[0]):
                answer = service_pb2.ModelInferResponse(model_name="repeats", id=request.id)
                answer.outputs.add(name="y", datatype="INT32", shape=[1])
                answer.raw_output_contents.append(numpy.int32([index]).tobytes())
                yield service_pb2.ModelStreamInferResponse(infer_response=answer)


def serve(stack):
    servicer, server = Repeats(), grpc.server(concurrent.futures.ThreadPoolExecutor(32))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stack.callback(server.stop, None)
    return servicer, f"127.0.0.1:{port}"


class Talk:
    """A stream of one client."""

    def __init__(self, address):
        self.client, self.heard = triton.InferenceServerClient(address), queue.Queue()
        self.client.start_stream(callback=lambda result, error: self.heard.put((result, error)))

    def ask(self, times, number, model="repeats"):
        asked = triton.InferInput("x", [1], "INT32")
        asked.set_data_from_numpy(numpy.int32([times]))
        self.client.async_stream_infer(model, [asked], request_id=str(number))

    def hear(self):
        """The id and the value of the next answer, or the text of an error."""
        result, error = self.heard.get(timeout=PATIENCE)
        return str(error.message()) if error else (result.get_response().id, int(result.as_numpy("y")[0]))

    def end(self, **how):
        self.client.stop_stream(**how)
        self.client.close()


def conversation(address):
    """Everything that a client hears which takes turns with the server, then sends several requests at once."""
    talk, heard = Talk(address), []
    for number in range(5):
        talk.ask(3, number)
        heard += [talk.hear() for _ in range(3)]
    for number in range(5, 10):
        talk.ask(2, number)
    heard += [talk.hear() for _ in range(10)]
    talk.ask(1, 10, "none")
    heard.append(talk.hear())
    talk.ask(1, 11)
    heard.append(talk.hear())
    talk.end()
    return heard


def same_answers(direct, through):
    own = conversation(direct)
    assert len(own) == 27 and own[25] == "no model none", own
    assert conversation(through) == own
    print(f"  ok  {len(own)} answers of a conversation are those of the server")


def long_stream(through):
    talk = Talk(through)
    talk.ask(20_000, 1)
    assert [talk.hear()[1] for _ in range(20_000)] == list(range(20_000))
    talk.end()
    print("  ok  20,000 answers to one request arrive in order")


def cancelled(servicers, through):
    before = sum(servicer.cancelled for servicer in servicers)
    talk = Talk(through)
    talk.ask(1, 1)
    talk.hear()
    talk.end(cancel_requests=True)
    deadline = time.monotonic() + PATIENCE
    while sum(servicer.cancelled for servicer in servicers) == before:
        assert time.monotonic() < deadline, "the server did not see the end"
        time.sleep(0.02)
    print("  ok  a cancelled stream ends at the server")


def hides_a_slow_server(servicers, through):
    servicers[0].delay = 0.4
    slow = 0
    for number in range(STREAMS):
        began = time.perf_counter()
        talk = Talk(through)
        talk.ask(1, number)
        assert talk.hear() == (str(number), 0)
        slow += time.perf_counter() - began > 0.35
        talk.end()
    servicers[0].delay = 0.0
    assert slow < STREAMS / 5, f"{slow} of {STREAMS} streams took as long as the slow server"
    print(f"  ok  with one server 400 ms slower, {slow} of {STREAMS} streams took as long")


def main():
    with contextlib.ExitStack() as stack:
        servers = [serve(stack) for _ in range(2)]
        servicers = [servicer for servicer, _ in servers]
        urls = [part for _, address in servers for part in ("--upstream", f"grpc://{address}")]
        parm = stack.enter_context(Parm("serve", *urls))
        wait_for_instances(parm, 2)
        same_answers(servers[0][1], parm.grpc)
        long_stream(parm.grpc)
        cancelled(servicers, parm.grpc)
        hides_a_slow_server(servicers, parm.grpc)
    print(f"Triton's streams work through parm (tritonclient {importlib.metadata.version('tritonclient')})")


if __name__ == "__main__":
    sys.exit(main())
