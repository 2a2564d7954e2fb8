"""The encoder in ONNX Runtime, one thread. Triton's dynamic batcher gives all requests of a batch in one call."""

import os
import sys

sys.path.insert(0, os.environ["SITE_PACKAGES"])  # the embedded Python ignores virtual environments

import numpy  # noqa: E402
import onnxruntime  # noqa: E402
import triton_python_backend_utils as utils  # noqa: E402


class TritonPythonModel:
    def initialize(self, arguments):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["NETWORK"], options, ["CPUExecutionProvider"])

    def execute(self, requests):
        names = ["input_ids", "attention_mask"]
        parts = [[utils.get_input_tensor_by_name(request, name).as_numpy() for request in requests] for name in names]
        (vectors,) = self.session.run(None, {name: numpy.concatenate(part) for name, part in zip(names, parts)})
        ends = numpy.cumsum([len(part) for part in parts[0]])[:-1]
        return [utils.InferenceResponse([utils.Tensor("sentence_embedding", part)]) for part in numpy.split(vectors, ends)]
